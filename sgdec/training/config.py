"""The settings of one training run: the options of `sgdec train`, which each checkpoint stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from sgdec.complaints import OF_NAMES, complaint, shown
from sgdec.errors import UsageError
from sgdec.plugins.options import Section, flaw

if TYPE_CHECKING:
    from sgdec.models.base import Model

TEXT = Section("Text")
MODEL = Section("Model")
RUN = Section("Run")
STEPS = Section("Steps and batches")
OBJECTIVE = Section("Objective")
START = Section("Initial weights")
OPTIMISER = Section("Optimiser")
VALIDATION = Section("Validation and checkpoints")
DEVICES = Section("Devices")

Precision = Literal["auto", "fp32", "bf16", "fp64"]
Parallel = Literal["none", "data", "model", "hybrid"]
Metric = Literal["perplexity", "bleu", "gleu"]

IDLE_WITHOUT = {
    "samples": ("objective",),
    "alpha": ("objective",),
    "baseline": ("objective",),
    "sgd_lr": ("sgd_after", "objective"),
    "anneal_after": ("halve_every",),
    "plateau_factor": ("plateau",),
    "decay_rule": ("plateau",),
    "source_noise_kind": ("source_noise",),
}
"""Settings that have no effect unless one of the listed settings is set."""

BOTH_START = {
    "start": ("unigram_bias", "embeddings_source", "embeddings_target", "embeddings_output", "start_decoder"),
    "start_decoder": ("unigram_bias", "embeddings_target", "embeddings_output"),
}
"""Settings that exclude each other because they initialise the same parameters."""

BATCH_SIZES = ("batch_tokens", "batch_pairs", "workspace")
"""Settings that each define the size of a batch; ``batch_pairs`` excludes the other two."""

OF_ADAM = ("beta1", "beta2", "adam_epsilon")
"""Settings of Adam besides its learning rate."""

TAKES = (
    "language model and takes one text file",
    "translation model and takes two files, source and target",
    "model of two sources and takes three files, both sources and the target",
)
"""The kind of a model and its files, for error messages; the index is the number of the model's sources."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainConfig:
    """All settings of a run. A step is one update of the parameters.

    An example is one pair of lines, or one line for a language model.
    """

    train: tuple[str, ...]
    """Source and target file, aligned line by line, or one file for a language model; also ``.gz`` and ``.zst``."""
    valid: tuple[str, ...]
    tokenizer: tuple[str, ...]
    """One vocabulary file for both sides, or one for the source and one for the target."""
    output: str
    """The folder of the run."""
    model: str = "gnmt"
    options: Mapping[str, Any] = field(default_factory=dict)
    """The model's own options: the parameters of its constructor."""

    epochs: Annotated[float, STEPS, Field(gt=0, description="passes over the training data")] = 20.0
    max_steps: Annotated[int, STEPS, Field(ge=0, description="limit on training steps; 0 = as --epochs says")] = 0
    batch_tokens: Annotated[
        int,
        STEPS,
        Field(
            ge=1,
            description="size of a batch: examples x tokens of the longest side; a longer example has its own batch",
        ),
    ] = 1024
    batch_pairs: Annotated[
        int,
        STEPS,
        Field(
            ge=0,
            description="size of a batch in sentence pairs (or lines) of any length; 0 = as --batch-tokens says",
        ),
    ] = 0
    workspace: Annotated[
        int,
        STEPS,
        Field(
            ge=0,
            description="memory of an update in MiB, filled by each batch; 0 = as --batch-tokens says "
            "(experimental: tried on CPUs and one H100)",
        ),
    ] = 0
    accumulate: Annotated[int, STEPS, Field(ge=1, description="batches per step, equal to one large batch")] = 1
    max_line: Annotated[
        int, TEXT, Field(ge=1, description="leave out training pairs with more tokens than this on a side")
    ] = 250
    max_ratio: Annotated[
        float,
        TEXT,
        Field(
            ge=0,
            description="leave out training pairs if one side is this many times as long as the other; 0 = keep all",
        ),
    ] = 0.0
    shard_tokens: Annotated[
        int,
        TEXT,
        Field(ge=0, description="tokens per shard; longer texts are read from disk by shards; 0 = all in memory"),
    ] = 5_000_000
    label_smoothing: Annotated[
        float | None,
        OBJECTIVE,
        Field(
            ge=0, lt=1, description="probability mass spread over all tokens; default: 0.1, with expected-reward 0"
        ),
    ] = None
    """Never None in a finished object: the default is filled in."""
    right_left: Annotated[
        bool, TEXT, Field(description="train on reversed targets; decoding restores their order")
    ] = False
    source_noise: Annotated[
        float, TEXT, Field(ge=0, lt=1, description="share of source tokens dropped, redrawn at each update")
    ] = 0.0
    source_noise_kind: Annotated[
        Literal["unknown", "deletion"], TEXT, Field(description="a dropped token becomes <unk>, or is deleted")
    ] = "unknown"
    token_weights: Annotated[
        str,
        TEXT,
        Field(
            description="file of weights, aligned with the training text: one per line, or one per target token"
        ),
    ] = ""
    edit_weight: Annotated[
        float,
        TEXT,
        Field(gt=0, lt=1e30, description="weight of target tokens that are not in the source (for edited text)"),
    ] = 1.0
    objective: Annotated[
        Literal["ml", "expected-reward"],
        OBJECTIVE,
        Field(
            description="maximum likelihood (ml), or refinement of --start-from by the GLEU of its samples"
        ),
    ] = "ml"
    samples: Annotated[
        int, OBJECTIVE, Field(ge=2, description="outputs sampled per source in each step (expected-reward)")
    ] = 15
    alpha: Annotated[
        float, OBJECTIVE, Field(ge=0, description="weight of the added log likelihood (expected-reward)")
    ] = 0.017
    baseline: Annotated[
        bool, OBJECTIVE, Field(description="subtract the mean reward of a source's samples (expected-reward)")
    ] = True
    start: Annotated[
        str, START, Field(description="checkpoint, or folder of a run, whose weights training starts from")
    ] = ""
    unigram_bias: Annotated[
        bool, START, Field(description="initialise the softmax bias with the log frequencies of the target tokens")
    ] = False
    clip: Annotated[float, OPTIMISER, Field(gt=0, description="limit on the gradient norm")] = 5.0

    embeddings_source: Annotated[
        str, START, Field(description="file of initial source embeddings, in the text format of word2vec or GloVe")
    ] = ""
    embeddings_target: Annotated[
        str, START, Field(description="file of initial target embeddings, in the same format")
    ] = ""
    embeddings_output: Annotated[
        str, START, Field(description="file of initial output layer weights, in the same format")
    ] = ""
    start_decoder: Annotated[
        str, START, Field(description="folder of a language model whose weights the decoder starts from")
    ] = ""

    lr: Annotated[float, OPTIMISER, Field(gt=0, description="learning rate of Adam")] = 0.001
    beta1: Annotated[float, OPTIMISER, Field(ge=0, lt=1, description="Adam's decay of gradients")] = 0.9
    beta2: Annotated[float, OPTIMISER, Field(gt=0, lt=1, description="Adam's decay of squared gradients")] = 0.999
    adam_epsilon: Annotated[
        float, OPTIMISER, Field(ge=1e-30, lt=1, description="Adam's epsilon, added to the root in the denominator")
    ] = 1e-8
    warmup: Annotated[int, OPTIMISER, Field(ge=0, description="steps over which the learning rate rises from 0")] = 0
    cooldown: Annotated[
        float,
        OPTIMISER,
        Field(ge=0, le=1, description="share of the steps, at the end, in which the learning rate falls to 0"),
    ] = 0.0
    inverse_sqrt: Annotated[
        int,
        OPTIMISER,
        Field(
            ge=0,
            description="after this many steps the learning rate falls with 1 / sqrt(step); 0 = never",
        ),
    ] = 0
    plateau: Annotated[
        int,
        OPTIMISER,
        Field(ge=0, description="lower the learning rate after this many validations without improvement; 0 = never"),
    ] = 0
    plateau_factor: Annotated[
        float, OPTIMISER, Field(gt=0, lt=1, description="factor by which --plateau lowers the learning rate")
    ] = 0.5
    decay_rule: Annotated[
        Literal["best", "previous"],
        OPTIMISER,
        Field(
            description="the validations that --plateau counts: those that are not better than the best one so far, "
            "or those that are worse than the previous one"
        ),
    ] = "best"
    sgd_after: Annotated[
        int, OPTIMISER, Field(ge=0, description="switch from Adam to SGD after this many steps; 0 = never")
    ] = 0
    sgd_lr: Annotated[float, OPTIMISER, Field(gt=0, description="learning rate of SGD")] = 0.5
    anneal_after: Annotated[
        int, OPTIMISER, Field(ge=0, description="steps before the learning rate is first halved")
    ] = 0
    halve_every: Annotated[
        int, OPTIMISER, Field(ge=0, description="steps between halvings of the learning rate; 0 = never")
    ] = 0
    ema: Annotated[
        float,
        OPTIMISER,
        Field(
            ge=0,
            lt=1,
            description="save a moving average of the weights, in which each step has this share; 0 = no average",
        ),
    ] = 0.0

    validate_every: Annotated[
        int, VALIDATION, Field(ge=0, description="steps between validations; 0 = once per epoch")
    ] = 0
    save_every: Annotated[
        int, VALIDATION, Field(ge=0, description="steps between checkpoints; 0 = at validations only")
    ] = 0
    keep: Annotated[
        int, VALIDATION, Field(ge=0, description="number of latest checkpoints to retain for `sgdec average`")
    ] = 0
    patience: Annotated[
        int, VALIDATION, Field(ge=0, description="stop after this many validations without improvement; 0 = never")
    ] = 0
    bleu: Annotated[
        int,
        VALIDATION,
        Field(
            ge=0, description="validation lines to translate for BLEU and GLEU (not for language models); 0 = none"
        ),
    ] = 1000
    metric: Annotated[Metric, VALIDATION, Field(description="metric that selects the checkpoint best")] = "perplexity"

    seed: Annotated[int, RUN, Field(ge=0, description="seed of all random numbers")] = 1
    device: Annotated[
        str, DEVICES, Field(description="device to train on: cpu or cuda (experimental: cuda, tried on one H100)")
    ] = "cpu"
    parallel: Annotated[
        Parallel,
        DEVICES,
        Field(
            description="how the processes of torchrun share the work; none = one process "
            "(experimental: tried on the CPUs of one machine, never on several GPUs)"
        ),
    ] = "none"
    precision: Annotated[
        Precision, DEVICES, Field(description="number format; auto = bf16 autocast if the hardware supports it")
    ] = "auto"
    compile: Annotated[
        bool, DEVICES, Field(description="apply torch.compile to the model; needs g++, and is slower on CPUs")
    ] = False
    threads: Annotated[
        Annotated[int, Field(ge=1)] | Literal["auto"],
        DEVICES,
        Field(description="CPU threads per process; auto = the free cores, or those of the resumed run"),
    ] = "auto"

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_line(cls, given: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        """Raises `UsageError` for a value of the wrong type or out of range; names the option as it is typed."""
        for name, value in given.kwargs.items():
            if (unfit := flaw(value)) is not None:
                raise UsageError(f"{flag(name)}: {unfit}.")
        try:
            return check(given)
        except ValidationError as error:
            first = error.errors()[0]
            where = flag(str(first["loc"][0]))
            what = where if first["type"] in OF_NAMES else f"{where}: {shown(first['input'])}"
            raise UsageError(f"{complaint(what, first)}.") from None

    @model_validator(mode="after")
    def _settle(self) -> Self:
        if self.label_smoothing is None:  # expected reward uses the model's own probabilities, without smoothing
            object.__setattr__(self, "label_smoothing", 0.0 if self.objective == "expected-reward" else 0.1)
        return self

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        """Raises `UsageError` for settings that exclude each other or have no effect without another setting."""
        if len(self.tokenizer) not in (1, 2, 3):
            raise UsageError("--tokenizer: give one (all sides), two (sources, target) or three (one per side).")
        for name, others in IDLE_WITHOUT.items():
            if self.is_set(name) and not any(map(self.is_set, others)):
                needed = " or ".join(map(flag, others))
                raise UsageError(f"{flag(name)} does nothing without {needed}. Leave it out.")
        for one, others in BOTH_START.items():
            for other in others:
                if self.is_set(one) and self.is_set(other):
                    raise UsageError(f"{flag(one)} and {flag(other)} set the same weights. Give only one of them.")
        refuse_two_sizes([name for name in BATCH_SIZES if self.is_set(name)])
        if self.compile and self.parallel != "none":
            raise UsageError(f"--compile: does not work with --parallel {self.parallel}. Leave it out.")
        if self.workspace and self.parallel in ("model", "hybrid"):
            raise UsageError(f"--workspace: does not work with --parallel {self.parallel}. Give --batch-tokens.")
        return self

    @model_validator(mode="after")
    def _fit_the_objective(self) -> Self:
        """Raises `UsageError` if expected reward cannot use a setting that is given, or lacks one that it needs."""
        if self.objective == "ml":
            return self
        if self.is_set("lr"):
            raise UsageError("--lr is Adam's rate, and expected-reward uses SGD. Give --sgd-lr.")
        for name in filter(self.is_set, OF_ADAM):
            raise UsageError(f"{flag(name)} is a setting of Adam, and expected-reward uses SGD. Leave it out.")
        if not self.start:
            raise UsageError(
                "--objective expected-reward refines a trained model: the random outputs of an untrained one have "
                "no reward to learn from. Give --start-from MODEL."
            )
        if self.parallel in ("model", "hybrid"):
            raise UsageError(
                f"--parallel {self.parallel} supports maximum likelihood only. For expected-reward use data, or none."
            )
        if self.sgd_after:
            raise UsageError(
                "--sgd-after: expected-reward uses plain SGD from the first step, at --sgd-lr. Leave --sgd-after "
                "out."
            )
        if self.token_weights or self.is_set("edit_weight"):
            raise UsageError(
                "--objective expected-reward has no token weights. Leave --token-weights and --edit-weight out."
            )
        return self

    def require_fit(self, family: type[Model]) -> None:
        """Raises `UsageError` if these settings cannot train a model of class ``family``, whose name is ``model``."""
        sources = family.sources
        for option, files in (("--train", self.train), ("--valid", self.valid)):
            if len(files) != sources + 1:
                raise UsageError(f"{option}: {self.model} is a {TAKES[sources]}, not {len(files)}.")
        if len(self.tokenizer) > 2 > sources > 0:
            raise UsageError(
                "--tokenizer: give it once for both sides, or once for the source and once for the target; "
                f"{self.model} has one source."
            )
        if len(self.tokenizer) > 1 > sources:
            raise UsageError(f"--tokenizer: {self.model} is a language model and has one vocabulary; give it once.")
        for setting, why, value, instead in family.refusals():
            found = getattr(self, setting)
            if self.is_set(setting) and value in (None, found):
                what, way_out = (f" {found}", f"Use {instead}") if instead else ("", "Leave it out")
                raise UsageError(f"{flag(setting)}{what}: {self.model} {why}. {way_out}.")
        # The family's refusals come first: for a language model this advice would be wrong.
        if self.metric != "perplexity" and not self.bleu:
            raise UsageError(f"--metric {self.metric} needs translations, and --bleu 0 makes none. Give --bleu 1000.")

    def is_set(self, name: str) -> bool:
        """Whether a setting differs from its default."""
        return bool(getattr(self, name) != DEFAULTS[name])

    def to_json(self) -> dict[str, Any]:
        """All settings as values that JSON can store."""
        return asdict(self)


def flag(name: str) -> str:
    """The option of a setting, as it is typed.

    >>> flag("max_steps"), flag("start")
    ('--max-steps', '--start-from')
    """
    # torchrun completes a prefix of its own options: it would read --start as --start-method.
    return "--start-from" if name == "start" else f"--{name.replace('_', '-')}"


def refuse_two_sizes(given: Collection[str]) -> None:
    """Raises `UsageError` if the settings ``given`` are ``batch_pairs`` and another size of batches."""
    others = [name for name in BATCH_SIZES if name in given and name != "batch_pairs"]
    if "batch_pairs" in given and others:
        raise UsageError(
            f"--batch-pairs and {flag(others[0])} both define the size of a batch. Give only one of them."
        )


DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(TrainConfig) if f.default is not MISSING}
DEFAULTS["label_smoothing"] = 0.1
"""The defaults; also the values of settings that a checkpoint of an earlier version does not store."""

"""The settings of one training run: the options of `sgdec train`, and what a checkpoint remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from sgdec.errors import UsageError
from sgdec.plugins.options import flaw

Precision = Literal["auto", "fp32", "bf16", "fp64"]
Parallel = Literal["none", "data", "model", "hybrid"]
Metric = Literal["perplexity", "bleu", "gleu"]

CHANGEABLE = frozenset(
    {
        "epochs",
        "max_steps",
        "patience",
        "validate_every",
        "save_every",
        "keep",
        "bleu",
        "cooldown",
        "device",
        "compile",
        "parallel",
        "shard_tokens",
        "threads",
        "token_weights",
    }
)
"""What a resumed run may set otherwise than the run that it continues. What files hold is compared by itself."""

PATHS = frozenset(
    {
        "train",
        "valid",
        "tokenizer",
        "output",
        "start",
        "start_decoder",
        "embeddings_source",
        "embeddings_target",
        "embeddings_output",
    }
)
"""Files that may lie elsewhere by then; but a run that had none may not get one."""

IDLE_WITHOUT = {
    "samples": ("objective",),
    "alpha": ("objective",),
    "baseline": ("objective",),
    "sgd_lr": ("sgd_after", "objective"),
    "anneal_after": ("halve_every",),
    "plateau_factor": ("plateau",),
    "source_noise_kind": ("source_noise",),
}
"""Settings that do nothing where none of these others is set."""

OF_TRANSLATION = ("source_noise", "edit_weight", "embeddings_source", "start_decoder")
"""Settings that mean nothing to a language model."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run. Steps are updates of the parameters.

    A line pair is one example; for a language model a line.
    """

    train: tuple[str, ...]
    """Source and target file, line by line, or one file for a language model; ``.gz`` and ``.zst`` too."""
    valid: tuple[str, ...]
    tokenizer: tuple[str, ...]
    """One vocabulary file for both sides, or one for the source and one for the target."""
    output: str
    """The folder of the run."""
    model: str = "gnmt"
    options: Mapping[str, Any] = field(default_factory=dict)
    """The model's own options, see its constructor."""

    epochs: Annotated[float, Field(gt=0, description="passes over the training data")] = 20.0
    max_steps: Annotated[int, Field(ge=0, description="end after this many steps, 0 = as epochs says")] = 0
    batch_tokens: Annotated[
        int, Field(ge=1, description="examples times tokens of the longest side; a longer example is a batch alone")
    ] = 1024
    workspace: Annotated[
        int,
        Field(
            ge=0,
            description="MiB for an update: batches as large as they hold, 0 = as --batch-tokens says "
            "(experimental: tried on CPUs, never on a GPU)",
        ),
    ] = 0
    accumulate: Annotated[int, Field(ge=1, description="batches in a step, which is that of one large batch")] = 1
    max_line: Annotated[int, Field(ge=1, description="leave out training lines with more tokens on a side")] = 250
    max_ratio: Annotated[
        float,
        Field(ge=0, description="leave out training pairs with a side so many times as long as the other, 0 = none"),
    ] = 0.0
    shard_tokens: Annotated[
        int, Field(ge=0, description="text of more tokens is read from disk, in shards of so many; 0 = all in memory")
    ] = 5_000_000
    label_smoothing: Annotated[
        float | None,
        Field(ge=0, lt=1, description="share spread over all tokens; by default 0.1, and 0 with expected-reward"),
    ] = None
    """A number once the settings are made."""
    right_left: Annotated[
        bool, Field(description="learn targets from their end to their start; undone when text is written")
    ] = False
    source_noise: Annotated[
        float, Field(ge=0, lt=1, description="share of source tokens that are lost, others each time a pair is seen")
    ] = 0.0
    source_noise_kind: Annotated[
        Literal["unknown", "deletion"], Field(description="a lost token becomes <unk>, or is left out")
    ] = "unknown"
    token_weights: Annotated[
        str, Field(description="a file with the weights of each training line: one, or one for each target token")
    ] = ""
    edit_weight: Annotated[
        float,
        Field(gt=0, lt=1e30, description="weight of target tokens that were not in the source (for edited text)"),
    ] = 1.0
    objective: Annotated[
        Literal["ml", "expected-reward"],
        Field(description="ml: maximum likelihood; expected-reward: the GLEU of sampled outputs, from --start-from"),
    ] = "ml"
    samples: Annotated[int, Field(ge=2, description="expected-reward: outputs drawn of each source in a step")] = 15
    alpha: Annotated[float, Field(ge=0, description="expected-reward: weight of log likelihood beside it")] = 0.017
    baseline: Annotated[bool, Field(description="expected-reward: subtract the samples' mean reward")] = True
    start: Annotated[
        str, Field(description="start from the weights of this checkpoint, or of the best of this run's folder")
    ] = ""
    unigram_bias: Annotated[
        bool, Field(description="start the softmax's bias from the log frequencies of the target tokens")
    ] = False
    clip: Annotated[float, Field(gt=0, description="the largest norm of a gradient")] = 5.0

    embeddings_source: Annotated[
        str, Field(description="start source embeddings from this file, in the text format of word2vec or GloVe")
    ] = ""
    embeddings_target: Annotated[str, Field(description="start target embeddings from such a file")] = ""
    embeddings_output: Annotated[
        str, Field(description="start the weights of the output layer from such a file")
    ] = ""
    start_decoder: Annotated[
        str, Field(description="start the decoder from this language model, a folder that `sgdec train` wrote")
    ] = ""

    lr: Annotated[float, Field(gt=0, description="learning rate of Adam")] = 0.001
    beta2: Annotated[float, Field(gt=0, lt=1, description="Adam's decay of squared gradients")] = 0.999
    warmup: Annotated[int, Field(ge=0, description="steps over which the rate rises from zero")] = 0
    cooldown: Annotated[
        float, Field(ge=0, le=1, description="share of the last steps in which the rate falls to 0")
    ] = 0.0
    inverse_sqrt: Annotated[
        int, Field(ge=0, description="after this many steps the rate falls with the root of the step, 0 = never")
    ] = 0
    plateau: Annotated[
        int, Field(ge=0, description="lower the rate after this many validations without gain, 0 = never")
    ] = 0
    plateau_factor: Annotated[float, Field(gt=0, lt=1, description="by this factor")] = 0.5
    sgd_after: Annotated[int, Field(ge=0, description="switch from Adam to SGD after this many steps, 0 = never")] = 0
    sgd_lr: Annotated[float, Field(gt=0, description="learning rate of SGD")] = 0.5
    anneal_after: Annotated[int, Field(ge=0, description="start to halve the rate after this many steps")] = 0
    halve_every: Annotated[int, Field(ge=0, description="halve it again every so many steps, 0 = never")] = 0
    ema: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="a step's share in a moving average of the weights, to validate and save, 0 = none",
        ),
    ] = 0.0

    validate_every: Annotated[int, Field(ge=0, description="steps between validations, 0 = once an epoch")] = 0
    save_every: Annotated[int, Field(ge=0, description="steps between checkpoints, 0 = at validations only")] = 0
    keep: Annotated[
        int, Field(ge=0, description="keep so many of the latest checkpoints, as `sgdec average` takes them")
    ] = 0
    patience: Annotated[int, Field(ge=0, description="stop after this many validations without gain, 0 = never")] = 0
    bleu: Annotated[
        int,
        Field(ge=0, description="validation lines translated for BLEU and GLEU (not of a language model), 0 = none"),
    ] = 1000
    metric: Annotated[Metric, Field(description="what the best checkpoint is best in")] = "perplexity"

    seed: Annotated[int, Field(ge=0, description="decides everything drawn at random")] = 1
    device: Annotated[str, Field(description="cpu or cuda (experimental: cuda, never run on a GPU)")] = "cpu"
    parallel: Annotated[
        Parallel,
        Field(
            description="how processes that torchrun starts share the work; none = there is one process "
            "(experimental: tried on the CPUs of one machine, never on GPUs)"
        ),
    ] = "none"
    precision: Annotated[Precision, Field(description="auto: bf16 autocast where the hardware has it")] = "auto"
    compile: Annotated[
        bool, Field(description="torch.compile the model's passes; on a CPU this does not pay, and takes g++")
    ] = False
    threads: Annotated[int, Field(ge=0, description="CPU threads of each process, 0 = PyTorch's choice")] = 0

    def __post_init__(self) -> None:
        """Raises `UsageError` for a setting of the wrong kind or out of range."""
        if self.label_smoothing is None:  # the reward's gradient is of the model's own probabilities
            object.__setattr__(self, "label_smoothing", 0.0 if self.objective == "expected-reward" else 0.1)
        if len(self.tokenizer) not in (1, 2, 3):
            raise UsageError("--tokenizer: give it once for all sides, or for sources and target, or for each side.")
        for name, hint in get_type_hints(TrainConfig, include_extras=True).items():
            value = getattr(self, name)
            if (unfit := flaw(value)) is not None:
                raise UsageError(f"{flag(name)}: {unfit}.")
            if get_origin(hint) is not Annotated:
                continue
            try:
                TypeAdapter(hint).validate_python(value)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Input ")
                raise UsageError(f"{flag(name)}: {value!r} {reason}.") from None
        for name, others in IDLE_WITHOUT.items():
            if getattr(self, name) != DEFAULTS[name] and all(getattr(self, o) == DEFAULTS[o] for o in others):
                needed = " or ".join(map(flag, others))
                raise UsageError(f"{flag(name)} does nothing without {needed}. Leave it out.")
        if self.objective == "expected-reward" and self.lr != DEFAULTS["lr"]:
            raise UsageError("--lr is Adam's rate, and expected-reward takes SGD. Give --sgd-lr.")

    def check_model(self, *, sources: int, steps: bool = False) -> None:
        """Raises `UsageError` where the settings do not fit a model of so many sources.

        ``steps``: its attention goes from the beginning of the source to its end, and the target with it.
        """
        language_model = not sources
        for option, files in (("--train", self.train), ("--valid", self.valid)):
            if len(files) != sources + 1:
                takes = (
                    "language model and takes one text file",
                    "translation model and takes two files, source and target",
                    "model of two sources and takes three files, both sources and the target",
                )[sources]
                raise UsageError(f"{option}: {self.model} is a {takes}, not {len(files)}.")
        if len(self.tokenizer) > 2 > sources > 0:
            raise UsageError(
                "--tokenizer: give it once for both sides, or once for the source and once for the target; "
                f"{self.model} has one source."
            )
        if steps and self.right_left:
            raise UsageError(f"--right-left: {self.model} goes through the source from left to right. Leave it out.")
        if sources > 1 and self.source_noise and self.source_noise_kind == "deletion":
            raise UsageError(
                "--source-noise-kind deletion: a short one of two sources would lose all its tokens. Use unknown."
            )
        if steps and self.source_noise and self.source_noise_kind == "deletion":
            raise UsageError(f"--source-noise-kind deletion: {self.model} steps over each source token. Use unknown.")
        if (steps or sources > 1) and self.edit_weight != 1:
            raise UsageError(f"--edit-weight: {self.model} does not read one source token by token. Leave it out.")
        if language_model and len(self.tokenizer) > 1:
            raise UsageError(f"--tokenizer: {self.model} is a language model and has one vocabulary; give it once.")
        for name in OF_TRANSLATION if language_model else ():
            if getattr(self, name) != DEFAULTS[name]:
                raise UsageError(f"{flag(name)}: {self.model} is a language model and has no source. Leave it out.")
        if language_model and self.metric != "perplexity":
            raise UsageError(
                f"--metric {self.metric}: {self.model} is a language model and translates nothing. Use perplexity."
            )
        if self.metric != "perplexity" and not self.bleu:
            raise UsageError(f"--metric {self.metric} needs translations, and --bleu 0 makes none. Give --bleu 1000.")

    def to_json(self) -> dict[str, Any]:
        """A readable copy of all settings."""
        return asdict(self)

    def differences(self, earlier: Mapping[str, Any]) -> list[str]:
        """Names of settings that a run to be resumed had otherwise and that may not change."""
        free = CHANGEABLE - {"bleu"} if self.metric != "perplexity" else CHANGEABLE
        before = {**DEFAULTS, **earlier}
        return [f.name for f in fields(self) if f.name in before.keys() - free and self._differs(f.name, before)]

    def _differs(self, name: str, earlier: Mapping[str, Any]) -> bool:
        before, now = earlier[name], getattr(self, name)
        return bool(before) != bool(now) if name in PATHS else bool(before != now)


def flag(name: str) -> str:
    """A setting as it is typed.

    >>> flag("max_steps"), flag("start")
    ('--max-steps', '--start-from')
    """
    # torchrun reads whatever begins an option of its own as that option: --start as --start-method.
    return "--start-from" if name == "start" else f"--{name.replace('_', '-')}"


DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(TrainConfig) if f.default is not MISSING}
DEFAULTS["label_smoothing"] = 0.1
"""What a run had whose sgdec did not yet know of a setting."""

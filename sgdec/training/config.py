"""The settings of one training run: the options of `sgdec train`, and what a checkpoint remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from sgdec.errors import UsageError

Precision = Literal["auto", "fp32", "bf16", "fp64"]

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
        "threads",
    }
)
"""What a resumed run may set otherwise than the run that it continues; so may the paths of the files."""


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
    batch_tokens: Annotated[int, Field(ge=1, description="tokens in a batch, the longer side, with padding")] = 1024
    accumulate: Annotated[int, Field(ge=1, description="batches in a step, which is that of one large batch")] = 1
    max_line: Annotated[int, Field(ge=1, description="leave out training lines with more tokens on a side")] = 250
    max_ratio: Annotated[
        float,
        Field(ge=0, description="leave out training pairs with a side so many times as long as the other, 0 = none"),
    ] = 0.0
    label_smoothing: Annotated[float, Field(ge=0, lt=1, description="share spread over all tokens")] = 0.1
    right_left: Annotated[
        bool, Field(description="learn targets from their end to their start; undone when text is written")
    ] = False
    unigram_bias: Annotated[
        bool, Field(description="start the softmax's bias from the log frequencies of the target tokens")
    ] = False
    clip: Annotated[float, Field(gt=0, description="the largest norm of a gradient")] = 5.0

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
        int, Field(ge=0, description="validation lines translated for BLEU, 0 = none (a language model has none)")
    ] = 1000
    metric: Annotated[Literal["perplexity", "bleu"], Field(description="what the best checkpoint is best in")] = (
        "perplexity"
    )

    seed: Annotated[int, Field(ge=0, description="decides everything drawn at random")] = 1
    device: Annotated[str, Field(description="cpu or cuda")] = "cpu"
    precision: Annotated[Precision, Field(description="auto: bf16 autocast where the hardware has it")] = "auto"
    threads: Annotated[int, Field(ge=0, description="CPU threads, 0 = PyTorch's choice")] = 0

    def __post_init__(self) -> None:
        """Raises `UsageError` for a setting of the wrong kind or out of range."""
        if len(self.tokenizer) not in (1, 2):
            raise UsageError(
                "--tokenizer: give it once for both sides, or once for the source and once for the target."
            )
        for name, hint in get_type_hints(TrainConfig, include_extras=True).items():
            value = getattr(self, name)
            if get_origin(hint) is not Annotated:
                continue
            try:
                TypeAdapter(hint).validate_python(value)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Input ")
                raise UsageError(f"--{name.replace('_', '-')}: {value!r} {reason}.") from None

    def check_files(self, *, language_model: bool) -> None:
        """Raises `UsageError` where the number of files does not fit the kind of model, or there can be no BLEU."""
        expected = 1 if language_model else 2
        for option, files in (("--train", self.train), ("--valid", self.valid)):
            if len(files) != expected:
                takes = "language model and takes one text file"
                if not language_model:
                    takes = "translation model and takes two files, source and target"
                raise UsageError(f"{option}: {self.model} is a {takes}, not {len(files)}.")
        if language_model and len(self.tokenizer) > 1:
            raise UsageError(f"--tokenizer: {self.model} is a language model and has one vocabulary; give it once.")
        if language_model and self.metric == "bleu":
            raise UsageError(
                f"--metric bleu: {self.model} is a language model and translates nothing. Use perplexity."
            )

    def to_json(self) -> dict[str, Any]:
        """A readable copy of all settings."""
        return asdict(self)

    def differences(self, earlier: Mapping[str, Any]) -> list[str]:
        """Names of settings that a run to be resumed had otherwise and that may not change."""
        paths = {"train", "valid", "tokenizer", "output"}
        names = [f.name for f in fields(self) if f.name not in CHANGEABLE | paths]
        before = {**DEFAULTS, **earlier}
        return [name for name in names if name in before and before[name] != getattr(self, name)]


DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(TrainConfig) if f.default is not MISSING}
"""What a run had whose sgdec did not yet know of a setting."""

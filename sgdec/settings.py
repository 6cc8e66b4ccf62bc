"""The settings of a run besides its predictors and decoder: list sizes, length limits, batching, device, precision.

``sgdec decode``, ``sgdec score`` and `sgdec.load` share them, with the same defaults, checks and errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from annotated_types import Ge

from sgdec.plugins.options import Section, configure

if TYPE_CHECKING:
    from sgdec.ranking import Ranking


class Says(NamedTuple):
    """The description of a setting of a run.

    ``pydantic.Field`` describes the options of plugins and the settings of training. It does not describe these,
    because ``sgdec decode --help`` reads them: with an import of pydantic it would take a third longer.
    """

    description: str


SEARCH = Section("Search")
INPUT = Section("Input")
OUTPUT = Section("Output")
BATCHES = Section("Batches and device")
REPRODUCTION = Section("Reproduction")
RESCORING = Section("N-best lists")

Precision = Literal["fp32", "bf16", "fp64", "int8"]
BoundsKind = Literal["auto", "product", "sum"]
SHAPING = (
    "nbest", "distinct_text", "max_length_factor", "max_length", "batch_size", "window", "max_rows", "deterministic",
    "bounds", "check_bounds", "copy_unknown",
)  # fmt: skip
"""Settings that can change the results. The signature lists them, `max_source_length`, and what rows hold."""

OF_SCORES = ("batch_size", "window", "max_rows", "deterministic")
"""Those among them that can change the scores of given outputs."""


@dataclass(frozen=True, repr=False)
class Settings:
    """Each field is an option ``--NAME`` of the command line, with hyphens for underscores, and says its section."""

    nbest: Annotated[int, Ge(1), OUTPUT, Says("number of hypotheses to list per sentence")] = 1
    distinct_text: Annotated[
        bool, OUTPUT, Says("list of hypotheses with the same text only the best; others take the places of the rest")
    ] = False
    max_length_factor: Annotated[
        float | None,
        Ge(0),
        SEARCH,
        Says(
            "limit on output tokens before </s>, as a multiple of source tokens; default: 2, but for a causal model "
            "of hf 256 tokens, or what its context leaves"
        ),
    ] = None
    max_length: Annotated[
        int | None,
        Ge(0),
        SEARCH,
        Says("limit on output tokens before </s>; 0 = no limit, and an error at 10,000 tokens without </s>"),
    ] = None
    deterministic: Annotated[
        bool,
        REPRODUCTION,
        Says("results are bit-equal for every --batch-size; slower, because sentences are computed separately"),
    ] = False
    bounds: Annotated[
        BoundsKind,
        SEARCH,
        Says("what exact searches take to be possible: lattices and language models together, or the sum of each"),
    ] = "auto"
    check_bounds: Annotated[
        bool,
        SEARCH,
        Says(
            "check at each expansion, on arrays too, what predictors claim and bounds rest on; a wrong claim ends a "
            "search with an error that names the predictor; slower"
        ),
    ] = False
    copy_unknown: Annotated[
        bool, OUTPUT, Says("replace each unknown word by the source word with the highest attention (word models)")
    ] = False
    max_source_length: Annotated[
        int, Ge(0), INPUT, Says("limit on source tokens; longer sources fail; 0 = no limit")
    ] = 1000
    coverage: Annotated[
        bool, OUTPUT, Says("add its coverage to each hypothesis (GNMT, equation 14 at beta 1), in JSON lines")
    ] = False
    weights: Annotated[
        str | None, INPUT, Says("file with a line for each sentence: the weight of each predictor, in their order")
    ] = None
    tokenizer: Annotated[str | None, INPUT, Says("the vocabulary file, if no model has one")] = None
    vocab_size: Annotated[
        int | None, Ge(3), INPUT, Says("size of the target vocabulary, if no model states it")
    ] = None
    batch_size: Annotated[int, Ge(1), BATCHES, Says("sentences decoded together")] = 64
    window: Annotated[
        int | None,
        Ge(1),
        BATCHES,
        Says("number of sentences that are sorted by length together; default: 16 batches"),
    ] = None
    max_rows: Annotated[
        int | None, Ge(1), BATCHES, Says("limit on prefixes that are scored in one call")
    ] = None
    seed: Annotated[int, REPRODUCTION, Says("random seed")] = 0
    device: Annotated[
        str, BATCHES, Says("device of neural models: cpu or cuda (experimental: cuda, tried on one H100)")
    ] = "cpu"
    precision: Annotated[Precision, BATCHES, Says("number format of neural models")] = "fp32"
    threads: Annotated[
        Annotated[int, Ge(1)] | Literal["auto"],
        BATCHES,
        Says("CPU threads of neural models; auto = the free cores, fewer if other processes need them later"),
    ] = "auto"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Check and convert settings. Raises UsageError for an unknown name or an invalid value."""
        said = {name: plain(value) for name, value in given.items() if value is not None}
        return cls(**configure(cls, said, name=None))

    def shaping(self) -> dict[str, str]:
        """The settings that the signature lists, as text; unset ones are left out."""
        values = {name: getattr(self, name) for name in (*SHAPING, "coverage", "max_source_length")}
        return {name: str(value) for name, value in values.items() if value is not None and value is not False}

    def __repr__(self) -> str:
        """The settings that differ from the defaults."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        differing = [f"{name}={value!r}" for name, value in chosen.items() if value != getattr(Settings, name)]
        return ", ".join(differing) or "defaults"


@dataclass(frozen=True)
class Penalties:
    """The length and coverage penalties for ranking given outputs; see `sgdec.ranking`."""

    alpha: Annotated[float, Ge(0), RESCORING, Says("length penalty")] = 0.0
    beta: Annotated[float, Ge(0), RESCORING, Says("coverage penalty")] = 0.0
    normalize: Annotated[
        Literal["gnmt", "length"],
        RESCORING,
        Says("divide by GNMT's penalty, or by length to the power of alpha"),
    ] = "gnmt"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Penalties:
        """Check and convert settings, as `Settings.of` does."""
        return cls(**configure(cls, {name: plain(value) for name, value in given.items()}, name=None))

    @property
    def ranking(self) -> Ranking:
        from sgdec.ranking import Ranking

        return Ranking(self.alpha, self.beta, self.normalize)


def plain(value: Any) -> Any:
    """Convert paths to text and NumPy numbers to Python numbers, as a command line or TOML file would give them."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value

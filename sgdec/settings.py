"""The settings of a run besides its parts: how many hypotheses, how long, how many sentences at once, on what.

``sgdec decode``, ``sgdec score`` and `sgdec.load` take theirs from here, with the same defaults, checks and errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from annotated_types import Ge

from sgdec.plugins.options import configure

if TYPE_CHECKING:
    from sgdec.ranking import Ranking


class Says(NamedTuple):
    """What a setting is for. (Pydantic's fields say it, too; importing it takes longer than all of a help text.)"""

    description: str


Precision = Literal["fp32", "bf16", "fp64", "int8"]
SHAPING = (
    "nbest", "max_length_factor", "max_length", "batch_size", "window", "max_rows", "deterministic", "copy_unknown",
)  # fmt: skip
"""Settings that can change what is found: they belong to the signature, as `max_source_length` does."""


@dataclass(frozen=True, repr=False)
class Settings:
    """Each is an option ``--NAME`` of the command line, where underscores are hyphens."""

    nbest: Annotated[int, Ge(1), Says("hypotheses per sentence, at most")] = 1
    max_length_factor: Annotated[float, Ge(0), Says("at most this many times the source tokens before </s>")] = 2.0
    max_length: Annotated[
        int | None,
        Ge(0),
        Says("at most this many tokens before </s>; 0 = no limit, but an error where 10,000 tokens come to no end"),
    ] = None
    deterministic: Annotated[
        bool,
        Says("results do not depend on --batch-size, bit for bit: sentences share no arithmetic, which is slower"),
    ] = False
    copy_unknown: Annotated[
        bool, Says("spell unknown words as the source words that they attend to (models of words)")
    ] = False
    max_source_length: Annotated[int, Ge(0), Says("longer sources (in tokens) fail; 0 = none does")] = 1000
    tokenizer: Annotated[str | None, Says("the vocabulary where no model brings one")] = None
    vocab_size: Annotated[int | None, Ge(3), Says("target tokens where no model says how many")] = None
    batch_size: Annotated[int, Ge(1), Says("sentences in flight")] = 64
    window: Annotated[int | None, Ge(1), Says("sentences sorted by length; default: 16 batches")] = None
    max_rows: Annotated[int | None, Ge(1), Says("at most this many rows a job of the predictors")] = None
    seed: Annotated[int, Says("for whatever draws at random")] = 0
    device: Annotated[
        str, Says("where neural models run: cpu or cuda (experimental: cuda, never run on a GPU)")
    ] = "cpu"
    precision: Annotated[Precision, Says("arithmetic of neural models")] = "fp32"
    threads: Annotated[int | None, Ge(1), Says("threads of neural models; default: all cores")] = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Checked and converted. Raises UsageError for a name that is none, and for a value that does not fit."""
        said = {name: plain(value) for name, value in given.items() if value is not None}
        return cls(**configure(cls, said, name=None))

    def shaping(self) -> dict[str, str]:
        """Those of the signature that are set."""
        values = {name: getattr(self, name) for name in (*SHAPING, "max_source_length")}
        return {name: str(value) for name, value in values.items() if value is not None and value is not False}

    def __repr__(self) -> str:
        """What differs from the defaults."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        differing = [f"{name}={value!r}" for name, value in chosen.items() if value != getattr(Settings, name)]
        return ", ".join(differing) or "defaults"


@dataclass(frozen=True)
class Penalties:
    """How outputs of different length are compared where they are scored; see `sgdec.ranking`."""

    alpha: Annotated[float, Ge(0), Says("length penalty")] = 0.0
    beta: Annotated[float, Ge(0), Says("coverage penalty")] = 0.0
    normalize: Annotated[
        Literal["gnmt", "length"],
        Says("divide by GNMT's penalty, or by length to the power of alpha"),
    ] = "gnmt"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Penalties:
        """Checked and converted, as `Settings.of` does."""
        return cls(**configure(cls, {name: plain(value) for name, value in given.items()}, name=None))

    @property
    def ranking(self) -> Ranking:
        from sgdec.ranking import Ranking

        return Ranking(self.alpha, self.beta, self.normalize)


def plain(value: Any) -> Any:
    """A value as a command line or TOML would give it: paths as text, numbers of numpy as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value

"""The settings of a run besides its parts: how many hypotheses, how long, how many sentences at once, on what.

``sgdec decode``, ``sgdec score`` and `sgdec.load` take theirs from here, with the same defaults, checks and errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from sgdec.options import configure
from sgdec.ranking import Ranking

Precision = Literal["fp32", "bf16", "fp64", "int8"]
SHAPING = (
    "nbest", "max_length_factor", "max_length", "batch_size", "window", "max_rows", "deterministic", "copy_unknown",
)  # fmt: skip
"""Settings that can change what is found: they belong to the signature, as `max_source_length` does."""


@dataclass(frozen=True, repr=False)
class Settings:
    """Each is an option ``--NAME`` of the command line, where underscores are hyphens."""

    nbest: Annotated[int, Field(ge=1, description="hypotheses a sentence, at most")] = 1
    max_length_factor: Annotated[
        float, Field(ge=0, description="at most this many times the source tokens before </s>")
    ] = 2.0
    max_length: Annotated[
        int | None,
        Field(
            ge=0,
            description="at most this many tokens before </s>; 0 = no limit, "
            "but an error where 10,000 tokens come to no end",
        ),
    ] = None
    deterministic: Annotated[
        bool,
        Field(
            description="results do not depend on --batch-size, bit for bit: sentences share no arithmetic, which is "
            "slower"
        ),
    ] = False
    copy_unknown: Annotated[
        bool, Field(description="spell unknown words as the source words that they attend to (models of words)")
    ] = False
    max_source_length: Annotated[int, Field(ge=0, description="longer sources (in tokens) fail; 0 = none does")] = (
        1000
    )
    tokenizer: Annotated[str | None, Field(description="the vocabulary where no model brings one")] = None
    vocab_size: Annotated[int | None, Field(ge=3, description="target tokens where no model says how many")] = None
    batch_size: Annotated[int, Field(ge=1, description="sentences in flight")] = 64
    window: Annotated[int | None, Field(ge=1, description="sentences sorted by length; default: 16 batches")] = None
    max_rows: Annotated[int | None, Field(ge=1, description="at most this many rows a job of the predictors")] = None
    seed: Annotated[int, Field(description="for whatever draws at random")] = 0
    device: Annotated[str, Field(description="cpu or cuda")] = "cpu"
    precision: Annotated[Precision, Field(description="arithmetic of neural models")] = "fp32"
    threads: Annotated[int | None, Field(ge=1, description="threads of neural models; default: all cores")] = None

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

    alpha: Annotated[float, Field(ge=0, description="length penalty")] = 0.0
    beta: Annotated[float, Field(ge=0, description="coverage penalty")] = 0.0
    normalize: Annotated[
        Literal["gnmt", "length"],
        Field(description="divide by GNMT's penalty, or by length to the power of alpha"),
    ] = "gnmt"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Penalties:
        """Checked and converted, as `Settings.of` does."""
        return cls(**configure(cls, {name: plain(value) for name, value in given.items()}, name=None))

    @property
    def ranking(self) -> Ranking:
        return Ranking(self.alpha, self.beta, self.normalize)


def plain(value: Any) -> Any:
    """A value as a command line or TOML would give it: paths as text, numbers of numpy as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value

"""The lines of a trace file, version 1: one JSON object per line, told apart by ``event``.

`SCHEMA` validates a line; its JSON schema is ``docs/_static/trace.schema.json``. docs/howto/traces.md describes the
format for readers. Numbers are natural logs, rounded to six decimals; null stands for infinity or for no value.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

VERSION = 1
"""The version of the format. A reader refuses all others."""

Token: TypeAlias = Annotated[int, Field(ge=0)]
Number: TypeAlias = Annotated[int, Field(ge=0)]
"""The number of an expansion, a batch or a predictor, or of things counted."""
Seconds: TypeAlias = Annotated[float, Field(ge=0)]
Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
_strict = with_config(ConfigDict(extra="forbid", strict=True))


@_strict
class HeaderLine(TypedDict):
    """The first line: the run."""

    event: Literal["trace"]
    version: Literal[1]
    sgdec: Annotated[str, Field(description="the version of sgdec that wrote the file")]
    signature: Annotated[str, Field(description="what reproduces the run")]
    predictors: Annotated[list[str], Field(min_length=1)]
    weights: Annotated[list[Finite | None], Field(description="of the predictors; null = not consulted")]
    decoder: str
    options: Annotated[dict[str, Any], Field(description="the options of the decoder that were set")]
    ranking: Annotated[dict[str, Any], Field(description="length and coverage penalties")]
    nbest: Number
    children: Annotated[Number, Field(description="the most children that an expansion lists")]
    expansions: Annotated[Number, Field(description="the most expansions that are recorded of a sentence")]


@_strict
class PiecesLine(TypedDict):
    """Target tokens as strings, those that have not occurred in the file before."""

    event: Literal["pieces"]
    pieces: dict[str, str]


@_strict
class BatchLine(TypedDict):
    """Prefixes that the predictors scored together."""

    event: Literal["batch"]
    number: Number
    rows: Number
    seconds: Seconds


@_strict
class SentenceLine(TypedDict):
    """Begins a sentence. The lines up to its ``end`` belong to it."""

    event: Literal["sentence"]
    id: Annotated[int, Field(ge=1)]
    tokens: list[Token]
    pieces: list[str] | None
    text: str | None
    max_length: Number | None


@_strict
class ExpandLine(TypedDict):
    """One expanded prefix with its children: `sgdec.trace.records.Expansion`."""

    event: Literal["expand"]
    n: Number
    parent: Number | None
    token: Token | None
    batch: NotRequired[Number]
    candidates: Number
    tokens: list[Token]
    totals: list[Finite]
    scores: list[list[Finite]]
    fates: list[int | str]
    rest: str
    into: NotRequired[dict[str, tuple[Number, Token]]]
    alone: NotRequired[list[tuple[Token, Finite, list[Number]] | None]]
    ending: NotRequired[Literal[True]]
    weights: NotRequired[list[Finite | None]]
    attention: NotRequired[dict[str, list[Finite]]]
    place: NotRequired[dict[str, str]]


@_strict
class BoundLine(TypedDict):
    """The bounds of an exact search at some moment."""

    event: Literal["bound"]
    expansions: Number
    seconds: Seconds
    bound: Annotated[Finite | None, Field(description="the best that can still be found; null = unknown")]
    best: Annotated[Finite | None, Field(description="the best found; null = none")]


@_strict
class HypothesisPart(TypedDict):
    """A hypothesis of the n-best list."""

    expansion: Annotated[Number | None, Field(description="the expansion whose child </s> it is")]
    tokens: list[Token]
    text: str | None
    score: Finite
    rank_score: Finite


@_strict
class EndLine(TypedDict):
    """Ends a sentence."""

    event: Literal["end"]
    id: Annotated[int, Field(ge=1)]
    stopped: Annotated[str | None, Field(description="the decoder's reason")]
    hypotheses: list[HypothesisPart]
    expansions: Number
    recorded: Annotated[Number, Field(description="the number of expand lines")]
    proven: bool | None
    gap: Finite | None
    seconds: Seconds
    error: str | None


Line: TypeAlias = HeaderLine | PiecesLine | BatchLine | SentenceLine | ExpandLine | BoundLine | EndLine
SCHEMA: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="event")])

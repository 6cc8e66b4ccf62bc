"""The lines of a trace file, version 1: one JSON object per line, told apart by ``event``.

`SCHEMA` validates a line; its JSON schema is ``docs/_static/trace.schema.json``. docs/howto/traces.md describes the
format for readers. Numbers are natural logs, rounded to six decimals; null stands for infinity or for no value.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from sgdec.io.limits import TOKENS

Token: TypeAlias = Annotated[int, Field(ge=0, lt=TOKENS)]
TokenName: TypeAlias = Annotated[str, Field(pattern="^[0-9]{1,10}$")]
"""A token as a key of an object."""
Number: TypeAlias = Annotated[int, Field(ge=0, lt=2**53)]
"""The number of an expansion, a batch or a predictor, or of things counted."""
Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Seconds: TypeAlias = Annotated[Finite, Field(ge=0)]
_strict = with_config(ConfigDict(extra="forbid", strict=True))


def _is(description: str) -> Any:
    return Field(description=description)


@_strict
class HeaderLine(TypedDict):
    """The first line: the run."""

    event: Literal["trace"]
    version: Annotated[Literal[1], _is("the version of this format; readers refuse all others")]
    sgdec: Annotated[str, _is("the version of sgdec that wrote the file")]
    signature: Annotated[str, _is("versions, predictors, decoder, options and files of the run")]
    predictors: Annotated[list[str], Field(min_length=1, description="their names; other lines use their order")]
    weights: Annotated[list[Finite | None], _is("of the predictors; null = not consulted")]
    decoder: Annotated[str, _is("its name")]
    options: Annotated[dict[str, Any], _is("the options of the decoder that were set")]
    ranking: Annotated[dict[str, Any], _is("length and coverage penalties")]
    nbest: Annotated[Number, _is("the number of hypotheses that the run wants of each sentence")]
    children: Annotated[Number, _is("the most children of an expansion that are listed because of their scores")]
    expansions: Annotated[Number, _is("the most expansions that are recorded of a sentence")]


@_strict
class PiecesLine(TypedDict):
    """Target tokens as strings, those that have not occurred in the file before."""

    event: Literal["pieces"]
    pieces: Annotated[dict[TokenName, str], _is("by token")]


@_strict
class BatchLine(TypedDict):
    """Prefixes, of one sentence or several, that the predictors scored together."""

    event: Literal["batch"]
    number: Annotated[Number, _is("counted from 1 over the run, also over batches that are not in the file")]
    rows: Annotated[Number, _is("the number of prefixes")]
    seconds: Annotated[Seconds, _is("the time that the predictors took")]


@_strict
class SentenceLine(TypedDict):
    """Begins a sentence. The lines up to its ``end`` belong to it."""

    event: Literal["sentence"]
    id: Annotated[int, Field(ge=1, lt=2**53, description="its number in the input, from 1; rises in the file")]
    tokens: Annotated[list[Token], _is("of the source")]
    pieces: Annotated[list[str] | None, _is("these tokens as strings; null without a vocabulary")]
    text: Annotated[str | None, _is("the line of the input")]
    max_length: Annotated[Number | None, _is("the most tokens before </s>; null = no limit")]


@_strict
class ExpandLine(TypedDict):
    """A prefix that was expanded, with its children. Child i has token, total, scores and fate number i."""

    event: Literal["expand"]
    n: Annotated[Number, _is("its number: 0, 1, ... in each sentence, in the order in which they happened")]
    parent: Annotated[Number | None, _is("the expansion whose child it is; null for an empty prefix")]
    token: Annotated[Token | None, _is("the last token of the prefix; null for an empty one")]
    batch: Annotated[NotRequired[Number], _is("the number of its batch")]
    candidates: Annotated[Number, _is("the number of tokens that no list excludes, with those not listed here")]
    tokens: Annotated[list[Token], _is("of its best children, best first, then of others that the decoder received")]
    totals: Annotated[list[Finite], _is("by child: the weighted sum of all scores of the prefix that ends with it")]
    scores: Annotated[list[list[Finite]], _is("by child and predictor: the unweighted score of its token")]
    fates: Annotated[list[int | str], _is("by child: the number of its own expansion, or why it was not expanded")]
    rest: Annotated[str, _is("the fate of all candidates that are not listed")]
    into: Annotated[
        NotRequired[dict[TokenName, tuple[Number, Token]]],
        _is("for recombined children, by token: expansion and token of the node that represents both"),
    ]
    notes: Annotated[NotRequired[dict[TokenName, list[str]]], _is("what the decoder notes about children, by token")]
    alone: Annotated[
        NotRequired[list[tuple[Token, Finite, list[Number]] | None]],
        _is(
            "by predictor: the token that it alone would choose, its own score of it, and the numbers of the "
            "predictors that forbid it; null if it is not consulted or prefers none. Absent with one predictor"
        ),
    ]
    ending: Annotated[NotRequired[Literal[True]], _is("the prefix is at the length limit: only </s> can follow")]
    weights: Annotated[NotRequired[list[Finite | None]], _is("the weights, if they are not those of the run")]
    attention: Annotated[
        NotRequired[dict[str, list[Finite]]], _is("by predictor and source token: attention for the next token")
    ]
    place: Annotated[NotRequired[dict[str, str]], _is("by predictor: where it is, such as a state of a lattice")]


@_strict
class BoundLine(TypedDict):
    """The bounds of an exact search at some moment, as rank scores."""

    event: Literal["bound"]
    expansions: Annotated[Number, _is("the number of expansions so far")]
    seconds: Annotated[Seconds, _is("since the search began")]
    bound: Annotated[Finite | None, _is("no hypothesis is better; null = unknown")]
    best: Annotated[Finite | None, _is("the best hypothesis found so far; null = none")]


@_strict
class HypothesisPart(TypedDict):
    """A hypothesis of the n-best list."""

    expansion: Annotated[Number | None, _is("the expansion whose child </s> it is; null = not recorded")]
    tokens: Annotated[list[Token], _is("without </s>")]
    text: Annotated[str | None, _is("null without a vocabulary")]
    score: Annotated[Finite, _is("the weighted total")]
    rank_score: Annotated[Finite, _is("the score that orders the list, with penalties")]
    part_scores: Annotated[
        NotRequired[dict[str, dict[str, list[Finite | None]]]],
        _is("by mix and part: the score of each token, </s> last; null from the first on that the part forbids"),
    ]


@_strict
class EndLine(TypedDict):
    """Ends a sentence."""

    event: Literal["end"]
    id: Annotated[int, Field(ge=1, lt=2**53, description="that of the sentence line")]
    stopped: Annotated[str | None, _is("the decoder's reason for stopping; null = it did not say")]
    hypotheses: Annotated[list[HypothesisPart], _is("best first")]
    expansions: Annotated[Number, _is("the number of expansions of the search")]
    recorded: Annotated[Number, _is("the number of expand lines")]
    proven: Annotated[bool | None, _is("whether the list is proven to be the best; null for other decoders")]
    gap: Annotated[Finite | None, _is("the best hypothesis can be better by at most this; null = unknown")]
    seconds: Annotated[Seconds, _is("of the search, during which others can run too")]
    error: Annotated[str | None, _is("why there is no hypothesis; null if there is one")]


Line: TypeAlias = HeaderLine | PiecesLine | BatchLine | SentenceLine | ExpandLine | BoundLine | EndLine
SCHEMA: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="event")])


def json_schema() -> dict[str, Any]:
    """The JSON schema of a line, for tools in other languages."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a trace file of sgdec, version 1",
        "description": "The first line is a HeaderLine. Sentences follow, each from its SentenceLine to its EndLine.",
        **SCHEMA.json_schema(),
    }

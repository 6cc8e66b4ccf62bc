"""The outputs of a run, read from any format that holds them: one list of hypotheses per sentence, best first.

- ``text``: one output per line, as text or token ids;
- ``nbest``: an n-best list in Moses' format (`sgdec.io.nbest`);
- ``jsonl``: the JSON lines of ``sgdec decode --output-format jsonl``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from sgdec.errors import SgdecError
from sgdec.io.documents import parse_json
from sgdec.io.nbest import group_entries, parse_id
from sgdec.text.lines import read_lines

Format: TypeAlias = Literal["text", "nbest", "jsonl"]
FORMATS: tuple[Format, ...] = get_args(Format)
LARGEST = 1e100
"""Scores beyond this number count as missing, so that sums of scores are finite."""
MOST = 10_000_000
"""The largest id of an n-best list: each sentence that the list leaves out takes memory, too."""


class StoredHypothesis(NamedTuple):
    """One output of a sentence."""

    text: str
    """Text, or token ids separated by spaces."""
    score: float | None
    """The total; None if the file has none, or one beyond `LARGEST`."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of one run."""

    name: str
    """The file, for messages and tables."""
    format: Format
    lists: Sequence[Sequence[StoredHypothesis]]
    """The hypotheses of each sentence, in the order of the file; empty if the sentence failed."""
    weights: Mapping[str, float | None] = field(default_factory=dict)
    """The predictors of the scores, each with its weight; None = unknown. Empty if the file names none."""

    @property
    def best(self) -> list[StoredHypothesis]:
        """The first hypothesis of each sentence; the empty output without a score if there is none."""
        return [listed[0] if listed else StoredHypothesis("", None) for listed in self.lists]

    @property
    def texts(self) -> list[str]:
        """The texts of `best`."""
        return [hypothesis.text for hypothesis in self.best]

    @property
    def missing(self) -> int:
        """The number of sentences without an output."""
        return sum(not listed for listed in self.lists)

    def filled(self, sentences: int) -> Outputs:
        """Outputs of at least so many ``sentences``: those after the last one of an n-best list have an empty list,
        because that format has no line for a failed sentence. The other formats have one and stay as they are."""
        if self.format != "nbest" or len(self.lists) >= sentences:
            return self
        return replace(self, lists=[*self.lists, *([()] * (sentences - len(self.lists)))])


def read_outputs(path: str, format: Format | None = None) -> Outputs:
    """Reads outputs; ``-`` is standard input. Without ``format`` the first line decides.

    A sentence that an n-best list leaves out has failed, as one with an empty list in JSON lines. Raises SgdecError
    if the file has no lines, if it is a trace, if it does not have the format, and if JSON lines skip a sentence.
    """
    name = "standard input" if path == "-" else path
    lines = list(read_lines(path))
    if not lines:
        raise SgdecError(f"{name}: the file has no lines. Expected one output per line, or lists of outputs.")
    if format is None and _is_trace(lines[0]):
        raise SgdecError(f"{name} is a trace. Expected outputs, which 'sgdec decode --output FILE' writes.")
    format = format or format_of(lines[0])
    if format == "text":
        return Outputs(name, format, [[StoredHypothesis(line, None)] for line in lines])
    return _of_nbest(lines, name) if format == "nbest" else _of_json(lines, name)


def format_of(line: str) -> Format:
    """The format of a file with this first line.

    >>> format_of("ein Hund"), format_of("0 ||| ein Hund ||| -2.5"), format_of('{"id": 1, "hypotheses": []}')
    ('text', 'nbest', 'jsonl')
    """
    try:
        parse_id(line, "")
    except SgdecError:
        pass
    else:
        return "nbest"
    try:
        row = parse_json(line)
    except ValueError:
        return "text"
    return "jsonl" if isinstance(row, dict) and "hypotheses" in row else "text"


def _is_trace(line: str) -> bool:
    """Whether a line is the first one of a trace."""
    try:
        row = parse_json(line)
    except ValueError:
        return False
    return isinstance(row, dict) and row.get("event") == "trace"


def _of_nbest(lines: Sequence[str], name: str) -> Outputs:
    lists: list[list[StoredHypothesis]] = []
    weights: dict[str, float | None] = {}
    for number, entries in group_entries(lines, name):
        if number > MOST:
            raise SgdecError(f"{entries[0].where}: the id is too large. Expected at most {MOST:,} sentences.")
        lists += ([] for _ in range(number - 1 - len(lists)))
        lists.append([StoredHypothesis(entry.text, _moderate(entry.total)) for entry in entries])
        weights = weights or dict.fromkeys(entries[0].features)
    return Outputs(name, "nbest", lists, weights)


def _of_json(lines: Sequence[str], name: str) -> Outputs:
    lists: list[list[StoredHypothesis]] = []
    weights: dict[str, float | None] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
            sentence, listed = row["id"], [_hypothesis(found) for found in row["hypotheses"]]
            if type(sentence) is not int:
                raise ValueError
            weights = weights or _weights(row["hypotheses"])
        except (ValueError, KeyError, TypeError, OverflowError):
            raise SgdecError(
                f"{name}: line {number} is not a result of `sgdec decode --output-format jsonl`."
            ) from None
        if sentence != number:
            raise SgdecError(
                f"{name}: sentence {number} is missing; the next one is {sentence}. Expected every sentence, from 1."
            )
        lists.append(listed)
    return Outputs(name, "jsonl", lists, weights)


def _weights(hypotheses: Iterable[dict[str, Any]]) -> dict[str, float | None]:
    """The weights of the first hypothesis, if there is one; anything but a number is unknown."""
    given = next((found.get("weights") for found in hypotheses), None)
    if not isinstance(given, dict):
        return {}
    return {
        name: _moderate(float(weight)) if type(weight) in (int, float) else None for name, weight in given.items()
    }


def _hypothesis(found: Any) -> StoredHypothesis:
    if not isinstance(found, dict):
        raise TypeError
    text = found.get("text")
    if text is None:
        text = " ".join(map(str, found["tokens"]))
    str.encode(text, "utf-8")  # JSON can spell half of a surrogate pair, and text that is a number
    return StoredHypothesis(text, _moderate(float(found["score"])))


def _moderate(score: float | None) -> float | None:
    return score if score is not None and abs(score) <= LARGEST else None

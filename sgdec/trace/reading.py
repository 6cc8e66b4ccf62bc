"""Reading trace files. Whatever a file contains, the numbers of a trace that was read lead to what exists."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgdec.complaints import complaint
from sgdec.context import EOS
from sgdec.errors import SgdecError, counted, one_line
from sgdec.io.documents import parse_json
from sgdec.text.lines import read_lines
from sgdec.trace.records import Alone, Batch, Bound, Ended, Expansion, Header, SentenceTrace, Tracing

if TYPE_CHECKING:
    from sgdec.trace.lines import EndLine, ExpandLine, HeaderLine, Line, SentenceLine

VERSION = 1
"""That of `sgdec.trace.lines`, which is imported only for reading: it needs pydantic."""
EXPECTED = "Expected a trace, which 'sgdec decode --trace FILE' writes."


@dataclass(frozen=True)
class Trace:
    """The content of a trace file."""

    header: Header
    sentences: tuple[SentenceTrace, ...]
    """In the order of the file, which is that of the input."""
    pieces: Mapping[int, str]
    """Target tokens as strings; empty without a vocabulary."""


def read_trace(path: str | Path, tracing: Tracing | None = None) -> Trace:
    """Read a trace: plain, or packed by gzip or zstd (by the ending of its name).

    ``tracing``: only the sentences that it includes. Raises SgdecError, with the file and the line, if the file is
    not a trace, is damaged or cut, or has another version.
    """
    reading: _Reading | None = None
    for number, line in enumerate(_lines(path), 1):
        try:
            if reading is not None:
                reading.take(line)
            elif line["event"] == "trace":
                reading = _Reading(line, tracing or Tracing())
            else:
                raise SgdecError(f"{path}: line 1 is {line['event']!r}, not the header of a trace. {EXPECTED}")
        except ValueError as error:
            raise SgdecError(f"{path}: line {number}: {error}. The file is damaged; write it again.") from None
    if reading is None:
        raise SgdecError(f"{path} is empty. {EXPECTED}")
    if reading.within is not None:
        raise SgdecError(f"{path} ends in the middle of sentence {reading.within}: it is cut. Write it again.")
    return Trace(reading.header, tuple(reading.sentences), reading.pieces)


def _lines(path: str | Path) -> Iterator[Line]:
    """The lines of a file. Raises SgdecError for one that has not the form of a line of this version."""
    from pydantic import ValidationError

    from sgdec.trace.lines import SCHEMA

    for number, text in enumerate(read_lines(path), 1):
        try:
            yield SCHEMA.validate_json(text)
        except ValidationError as error:
            if number == 1:
                _require_version(path, text)
            found = error.errors(include_url=False, include_input=False)[0]
            why = complaint(".".join(map(str, found["loc"])) or "it", found)
            end = EXPECTED if number == 1 else "The file is damaged or cut; write it again."
            raise SgdecError(
                f"{path}: line {number} is not a line of a trace ({one_line(why)[:200]}). {end}"
            ) from None


def _require_version(path: str | Path, text: str) -> None:
    """Raises SgdecError for a header of another version."""
    try:
        found = parse_json(text)
    except ValueError:
        return
    if isinstance(found, dict) and found.get("event") == "trace" and found.get("version") != VERSION:
        raise SgdecError(
            f"{path} is a trace of version {found.get('version')!r:.50}; this sgdec reads version {VERSION}. Trace "
            "the run again, or use the sgdec that wrote it."
        )


class _Reading:
    """Collects the lines of a trace into sentences. Its methods raise ValueError for what cannot be."""

    def __init__(self, line: HeaderLine, included: Tracing) -> None:
        self.header = _header(line)
        self.pieces: dict[int, str] = {}
        self.sentences: list[SentenceTrace] = []
        self._included = included
        self._batches: dict[int, Batch] = {}
        self._begun: SentenceLine | None = None
        self._last = 0
        """The number of the last sentence."""
        self._expansions: list[Expansion] = []
        self._bounds: list[Bound] = []

    @property
    def within(self) -> int | None:
        """The sentence that has begun and has not ended."""
        return None if self._begun is None else self._begun["id"]

    def take(self, line: Line) -> None:
        if line["event"] == "pieces":
            self.pieces.update((int(token), piece) for token, piece in line["pieces"].items())
        elif line["event"] == "batch":
            self._batches[line["number"]] = Batch(line["number"], line["rows"], line["seconds"])
        elif line["event"] == "sentence":
            self._begin(line)
        elif line["event"] == "trace":
            raise ValueError("a second header")
        elif self._begun is None:
            raise ValueError(f"{line['event']!r} outside of a sentence")
        elif line["event"] == "expand":
            self._expand(line)
        elif line["event"] == "bound":
            bound = math.inf if line["bound"] is None else line["bound"]
            self._bounds.append(Bound(line["expansions"], bound, line["best"], line["seconds"]))
        else:
            found = self._ended(self._begun, line)
            self._begun = None
            if self._included.includes(found.id):
                self.sentences.append(found)

    def _begin(self, line: SentenceLine) -> None:
        if self._begun is not None:
            raise ValueError(f"sentence {line['id']} begins before sentence {self._begun['id']} has ended")
        if line["id"] <= self._last:
            raise ValueError(f"sentence {line['id']} after sentence {self._last}")
        if line["pieces"] is not None:
            _require_width("pieces", len(line["pieces"]), len(line["tokens"]))
        self._begun, self._last, self._expansions, self._bounds = line, line["id"], [], []

    def _expand(self, line: ExpandLine) -> None:
        found = _expansion(line, self.header.predictors)
        if found.number != len(self._expansions):
            raise ValueError(f"expansion {found.number} comes where {len(self._expansions)} is next")
        if found.batch is not None and found.batch not in self._batches:
            raise ValueError(f"there is no batch {found.batch}")
        if (found.parent is None) != (found.token is None):
            raise ValueError("an expansion has a parent and a token, or neither of the two")
        if found.parent is not None and found.token is not None:
            if found.parent >= found.number:
                raise ValueError(f"expansion {found.number} comes before its parent, {found.parent}")
            child = self._expansions[found.parent].child(found.token)
            if child is None or child.fate != found.number:
                raise ValueError(f"token {found.token} of expansion {found.parent} has not fate {found.number}")
        self._expansions.append(found)

    def _ended(self, begun: SentenceLine, line: EndLine) -> SentenceTrace:
        if line["id"] != begun["id"]:
            raise ValueError(f"the end of sentence {line['id']} in sentence {begun['id']}")
        if line["recorded"] != len(self._expansions):
            raise ValueError(f"{counted(len(self._expansions), 'expansion')} where {line['recorded']} were recorded")
        batches = dict.fromkeys(each.batch for each in self._expansions if each.batch is not None)
        found = SentenceTrace(
            id=begun["id"],
            tokens=tuple(begun["tokens"]),
            text=begun["text"],
            max_length=begun["max_length"],
            expansions=tuple(self._expansions),
            bounds=tuple(self._bounds),
            hypotheses=tuple(
                Ended(
                    tuple(each["tokens"]), each["score"], each["rank_score"], each["expansion"], each["text"],
                    {
                        mix: {part: tuple(scores) for part, scores in own.items()}
                        for mix, own in each.get("part_scores", {}).items()
                    },
                )
                for each in line["hypotheses"]
            ),
            stopped=line["stopped"],
            counted=line["expansions"],
            proven=line["proven"],
            gap=line["gap"],
            error=line["error"],
            pieces=None if begun["pieces"] is None else tuple(begun["pieces"]),
            batches=tuple(self._batches[number] for number in batches),
            seconds=line["seconds"],
        )
        _require_connected(found)
        return found


def _require_connected(trace: SentenceTrace) -> None:
    """Raises ValueError for the number of an expansion that is not there, or is that of another prefix."""
    expansions = trace.expansions
    for expansion in expansions:
        for token, fate in zip(expansion.tokens, expansion.fates, strict=True):
            if isinstance(fate, int):
                found = expansions[fate] if 0 <= fate < len(expansions) else None
                if found is None or (found.parent, found.token) != (expansion.number, token):
                    raise ValueError(f"token {token} of expansion {expansion.number} is not expansion {fate}")
        for token, (number, other) in expansion.into.items():
            if number >= len(expansions) or expansions[number].child(other) is None:
                raise ValueError(f"token {token} of expansion {expansion.number} is recombined into nothing")
    for hypothesis in trace.hypotheses:
        ended = hypothesis.expansion
        if ended is not None and (
            ended >= len(expansions)
            or expansions[ended].child(EOS) is None
            or trace.path(ended) != hypothesis.tokens
        ):
            raise ValueError(f"expansion {ended} is not that of the hypothesis {list(hypothesis.tokens)!s:.80}")


def _header(line: HeaderLine) -> Header:
    _require_width("weights", len(line["weights"]), len(line["predictors"]))
    return Header(
        predictors=tuple(line["predictors"]),
        weights=tuple(line["weights"]),
        decoder=line["decoder"],
        options=line["options"],
        ranking=line["ranking"],
        nbest=line["nbest"],
        signature=line["signature"],
        children=line["children"],
        expansions=line["expansions"],
        sgdec=line["sgdec"],
    )


def _expansion(line: ExpandLine, predictors: Sequence[str]) -> Expansion:
    """Raises ValueError if its lists do not fit each other or the predictors."""
    for name, values in (("totals", line["totals"]), ("scores", line["scores"]), ("fates", line["fates"])):
        _require_width(name, len(values), len(line["tokens"]))
    alone, weights = line.get("alone", []), line.get("weights")
    rows = [("scores", row) for row in line["scores"]] + [("alone", alone)] * bool(alone)
    for name, row in rows if weights is None else [*rows, ("weights", weights)]:
        _require_width(name, len(row), len(predictors))
    if len(set(line["tokens"])) < len(line["tokens"]):
        raise ValueError("a token is listed twice")
    return Expansion(
        number=line["n"],
        parent=line["parent"],
        token=line["token"],
        candidates=line["candidates"],
        tokens=tuple(line["tokens"]),
        totals=tuple(line["totals"]),
        scores=tuple(map(tuple, line["scores"])),
        fates=tuple(line["fates"]),
        rest=line["rest"],
        into={int(token): node for token, node in line.get("into", {}).items()},
        notes={int(token): tuple(notes) for token, notes in line.get("notes", {}).items()},
        alone=tuple(None if each is None else _alone(each, len(predictors)) for each in alone),
        ending=line.get("ending", False),
        weights=None if weights is None else tuple(weights),
        attention={name: tuple(row) for name, row in line.get("attention", {}).items()},
        place=line.get("place", {}),
        batch=line.get("batch"),
    )


def _alone(found: tuple[int, float, list[int]], predictors: int) -> Alone:
    token, score, forbidden_by = found
    if any(number >= predictors for number in forbidden_by):
        raise ValueError(f"a token is forbidden by {forbidden_by}, of {predictors} predictors")
    return Alone(token, score, tuple(forbidden_by))


def _require_width(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{name} has length {found}; expected {expected}")

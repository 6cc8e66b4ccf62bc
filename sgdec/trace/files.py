"""Trace files: one JSON object per line, plain or packed by gzip or zstd, by the ending of the name."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from sgdec.context import Vocabularies, Vocabulary
from sgdec.errors import SgdecError
from sgdec.io.writing import whole_file
from sgdec.text.lines import ZSTD, read_lines
from sgdec.trace.records import Alone, Batch, Bound, Ended, Expansion, Header, SentenceTrace, Tracing

if TYPE_CHECKING:
    from sgdec.trace.lines import EndLine, ExpandLine, Line, SentenceLine

DECIMALS = 6
"""Scores are rounded to so many."""
VERSION = 1
"""That of `sgdec.trace.lines`, which is imported only for reading: it needs pydantic."""


@dataclass(frozen=True)
class Trace:
    """The content of a trace file."""

    header: Header
    sentences: tuple[SentenceTrace, ...]
    """In the order of the file, which is that of the input."""
    pieces: Mapping[int, str]
    """Target tokens as strings; empty without a vocabulary."""


class TraceWriter:
    """Writes sentences, each when its search has ended."""

    def __init__(self, file: IO[bytes], header: Header, vocabularies: Vocabularies) -> None:
        self._file = file
        self._source, self._target = vocabularies.source, vocabularies.target
        self._pieces: set[int] = set()
        self._batches: set[int] = set()
        """The numbers of the batches written so far."""
        self._put(_header_line(header))

    def write(self, trace: SentenceTrace) -> None:
        """Write what a search did."""
        if self._target is not None:
            self._put_pieces(trace, self._target)
        for batch in trace.batches:
            if batch.number not in self._batches:
                self._batches.add(batch.number)
                seconds = round(batch.seconds, DECIMALS)
                self._put({"event": "batch", "number": batch.number, "rows": batch.rows, "seconds": seconds})
        pieces = None if self._source is None else list(map(self._source.piece, trace.tokens))
        self._put({
            "event": "sentence", "id": trace.id, "tokens": list(trace.tokens), "pieces": pieces, "text": trace.text,
            "max_length": trace.max_length,
        })  # fmt: skip
        for expansion in trace.expansions:
            self._write(_expand_line(expansion))
        for bound in trace.bounds:
            self._put({
                "event": "bound", "expansions": bound.expansions, "seconds": round(bound.seconds, DECIMALS),
                "bound": _finite(bound.bound), "best": _finite(bound.best),
            })  # fmt: skip
        self._put(_end_line(trace, self._target))

    def _put_pieces(self, trace: SentenceTrace, vocabulary: Vocabulary) -> None:
        tokens: set[int] = set()
        for expansion in trace.expansions:
            tokens.update(expansion.tokens)
            tokens.update(alone.token for alone in expansion.alone if alone is not None)
        for hypothesis in trace.hypotheses:
            tokens.update(hypothesis.tokens)
        new = sorted(tokens - self._pieces)
        if new:
            self._pieces.update(new)
            self._put({"event": "pieces", "pieces": {str(token): vocabulary.piece(token) for token in new}})

    def _put(self, line: Mapping[str, Any]) -> None:
        self._write(_dumps(line))

    def _write(self, line: str) -> None:
        self._file.write(line.encode("utf-8") + b"\n")


@contextmanager
def writing_trace(path: str | Path, header: Header, vocabularies: Vocabularies) -> Iterator[TraceWriter]:
    """Open a trace file, which appears when the block has ended without an error.

    Raises SgdecError if it cannot be written, or for ``.zst`` without the package that packs it.
    """
    with whole_file(path) as file, _packed(file, str(path)) as stream:
        yield TraceWriter(stream, header, vocabularies)


def read_trace(path: str | Path, tracing: Tracing | None = None) -> Trace:
    """Read a trace. ``tracing``: only the sentences that it includes.

    Raises SgdecError, with the file and the line, if it is not a trace, is damaged or cut, or has another version.
    """
    lines = enumerate(_lines(path), 1)
    _, first = next(lines, (0, None))
    if first is None:
        raise SgdecError(f"{path} is empty; expected a trace, as 'sgdec decode --trace FILE' writes it.")
    if first["event"] != "trace":
        raise SgdecError(f"{path}: line 1 is {first['event']!r}; expected the header of a trace.")
    reading = _Reading(str(path))
    for number, line in lines:
        try:
            reading.take(line)
        except (KeyError, IndexError, ValueError) as error:
            raise SgdecError(f"{path}: line {number}: {error}. The file is damaged.") from None
    header = _header(first)
    included = tracing or Tracing()
    return Trace(header, tuple(s for s in reading.ended() if included.includes(s.id)), reading.pieces)


class _Reading:
    """Collects the lines of a trace into sentences."""

    def __init__(self, path: str) -> None:
        self.pieces: dict[int, str] = {}
        self._path = path
        self._batches: dict[int, Batch] = {}
        self._sentences: list[SentenceTrace] = []
        self._open: SentenceLine | None = None
        self._expansions: list[Expansion] = []
        self._bounds: list[Bound] = []

    def take(self, line: Line) -> None:
        """Raises ValueError for a line that cannot stand here."""
        if line["event"] == "pieces":
            self.pieces.update((int(token), piece) for token, piece in line["pieces"].items())
        elif line["event"] == "batch":
            self._batches[line["number"]] = Batch(line["number"], line["rows"], line["seconds"])
        elif line["event"] == "sentence":
            if self._open is not None:
                raise ValueError(f"sentence {line['id']} begins before sentence {self._open['id']} has ended")
            self._open, self._expansions, self._bounds = line, [], []
        elif line["event"] == "trace":
            raise ValueError("a second header")
        elif self._open is None:
            raise ValueError(f"{line['event']!r} outside a sentence")
        elif line["event"] == "expand":
            if line["n"] != len(self._expansions) or not (line["parent"] or 0) <= line["n"]:
                raise ValueError(f"expansion {line['n']} of {line['parent']} after {len(self._expansions)} others")
            self._expansions.append(_expansion(line))
        elif line["event"] == "bound":
            bound = math.inf if line["bound"] is None else line["bound"]
            self._bounds.append(Bound(line["expansions"], bound, line["best"], line["seconds"]))
        else:
            self._sentences.append(self._sentence(self._open, line))
            self._open = None

    def ended(self) -> list[SentenceTrace]:
        """Raises SgdecError if the file ends in the middle of a sentence."""
        if self._open is not None:
            raise SgdecError(
                f"{self._path} ends in the middle of sentence {self._open['id']}: the file is cut. Write it again."
            )
        return self._sentences

    def _sentence(self, begun: SentenceLine, end: EndLine) -> SentenceTrace:
        if end["id"] != begun["id"] or end["recorded"] != len(self._expansions):
            raise ValueError(
                f"the end of sentence {end['id']} with {end['recorded']} expansions, in sentence {begun['id']} with "
                f"{len(self._expansions)}"
            )
        numbers = dict.fromkeys(each.batch for each in self._expansions if each.batch is not None)
        return SentenceTrace(
            id=begun["id"],
            tokens=tuple(begun["tokens"]),
            text=begun["text"],
            max_length=begun["max_length"],
            expansions=tuple(self._expansions),
            bounds=tuple(self._bounds),
            hypotheses=tuple(
                Ended(tuple(each["tokens"]), each["score"], each["rank_score"], each["expansion"], each["text"])
                for each in end["hypotheses"]
            ),
            stopped=end["stopped"],
            counted=end["expansions"],
            proven=end["proven"],
            gap=end["gap"],
            error=end["error"],
            pieces=None if begun["pieces"] is None else tuple(begun["pieces"]),
            batches=tuple(self._batches[number] for number in numbers),
            seconds=end["seconds"],
        )


def _lines(path: str | Path) -> Iterator[Line]:
    """The lines of a file, checked. Raises SgdecError for one that is not of a trace of this version."""
    from pydantic import ValidationError

    from sgdec.trace.lines import SCHEMA

    for number, text in enumerate(read_lines(path), 1):
        try:
            yield SCHEMA.validate_json(text)
        except ValidationError as error:
            if number == 1:
                _require_version(path, text)
            found = error.errors()[0]
            where = ".".join(map(str, found["loc"]))
            raise SgdecError(
                f"{path}: line {number} is not a line of a trace ({f'{where}: ' if where else ''}{found['msg']}). "
                "The file is damaged or cut, or not a trace."
            ) from None


def _require_version(path: str | Path, text: str) -> None:
    """Raises SgdecError for a header of another version."""
    try:
        found = json.loads(text)
    except ValueError:
        return
    if isinstance(found, dict) and found.get("event") == "trace" and found.get("version") != VERSION:
        raise SgdecError(
            f"{path} is a trace of version {found.get('version')}; this sgdec reads version {VERSION}. Trace the run "
            "again, or use the sgdec that wrote it."
        )


@contextmanager
def _packed(file: BinaryIO, path: str) -> Iterator[IO[bytes]]:
    """A stream that packs what is written, as the ending of the name says."""
    if path.endswith(".gz"):
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
            yield cast("IO[bytes]", packed)
    elif path.endswith(".zst"):
        try:
            zstd = import_module(ZSTD)
        except ModuleNotFoundError:
            raise SgdecError(
                f'{path}: writing zstd takes a package that is not installed (pip install "sgdec[zstd]"). Install '
                "it, or give a name without .zst."
            ) from None
        with zstd.open(file, "wb") as packed:
            yield packed
    else:
        yield file


def _header_line(header: Header) -> dict[str, Any]:
    return {
        "event": "trace", "version": VERSION, "sgdec": header.sgdec, "signature": header.signature,
        "predictors": list(header.predictors), "weights": list(header.weights), "decoder": header.decoder,
        "options": dict(header.options), "ranking": dict(header.ranking), "nbest": header.nbest,
        "children": header.children, "expansions": header.expansions,
    }  # fmt: skip


def _header(line: Any) -> Header:
    names = ("decoder", "options", "ranking", "nbest", "signature", "children", "expansions", "sgdec")
    return Header(tuple(line["predictors"]), tuple(line["weights"]), **{name: line[name] for name in names})


def _expand_line(expansion: Expansion) -> str:
    """The line as text: to format numbers here costs a third of what a general encoder takes."""
    width = len(expansion.scores[0]) if expansion.scores else 0
    numbers = f"[{','.join(['%.6f'] * width)}]"
    scores = ",".join([numbers] * len(expansion.scores)) % tuple(chain.from_iterable(expansion.scores))
    parts = [
        f'{{"event":"expand","n":{expansion.number},"parent":{_dumps(expansion.parent)},'
        f'"token":{_dumps(expansion.token)},"batch":{_dumps(expansion.batch)},"candidates":{expansion.candidates},'
        f'"tokens":[{",".join(map(str, expansion.tokens))}],"totals":[{_numbers(expansion.totals, 6)}],'
        f'"scores":[{scores}],"fates":{_dumps(expansion.fates)},"rest":{_dumps(expansion.rest)}'
    ]
    if expansion.attention:
        rows = (f"{_dumps(name)}:[{_numbers(row, 3)}]" for name, row in expansion.attention.items())
        parts.append(f'"attention":{{{",".join(rows)}}}')
    rest: dict[str, Any] = {}
    if expansion.into:
        rest["into"] = {str(token): node for token, node in expansion.into.items()}
    if expansion.alone:
        rest["alone"] = [
            None if each is None else [each.token, round(each.score, DECIMALS), each.forbidden_by]
            for each in expansion.alone
        ]
    if expansion.ending:
        rest["ending"] = True
    if expansion.weights is not None:
        rest["weights"] = expansion.weights
    if expansion.place:
        rest["place"] = expansion.place
    if rest:
        parts.append(_dumps(rest)[1:-1])
    return ",".join(parts) + "}"


def _numbers(values: Sequence[float], decimals: int) -> str:
    """Finite numbers, separated by commas."""
    return ",".join([f"%.{decimals}f"] * len(values)) % tuple(values)


def _expansion(line: ExpandLine) -> Expansion:
    width = len(line["tokens"])
    if not len(line["totals"]) == len(line["scores"]) == len(line["fates"]) == width:
        raise ValueError(f"expansion {line['n']} has lists of different length")
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
        alone=tuple(
            None if each is None else Alone(each[0], each[1], tuple(each[2])) for each in line.get("alone", [])
        ),
        ending=line.get("ending", False),
        weights=tuple(line["weights"]) if "weights" in line else None,
        attention={name: tuple(row) for name, row in line.get("attention", {}).items()},
        place=line.get("place", {}),
        batch=line.get("batch"),
    )


def _end_line(trace: SentenceTrace, vocabulary: Vocabulary | None) -> dict[str, Any]:
    def text(found: Ended) -> str | None:
        return vocabulary.decode(found.tokens) if found.text is None and vocabulary is not None else found.text

    return {
        "event": "end", "id": trace.id, "stopped": trace.stopped,
        "hypotheses": [
            {
                "expansion": each.expansion, "tokens": each.tokens, "text": text(each),
                "score": round(each.score, DECIMALS), "rank_score": round(each.rank_score, DECIMALS),
            }
            for each in trace.hypotheses
        ],
        "expansions": trace.counted, "recorded": len(trace.expansions), "proven": trace.proven,
        "gap": _finite(trace.gap), "seconds": round(trace.seconds, DECIMALS), "error": trace.error,
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, DECIMALS)


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

"""Writing trace files: one JSON object per line, plain or packed by gzip or zstd, by the ending of the name."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from sgdec.context import Vocabularies, Vocabulary
from sgdec.errors import SgdecError
from sgdec.io.writing import whole_file
from sgdec.text.lines import ZSTD
from sgdec.trace.reading import VERSION
from sgdec.trace.records import Ended, Expansion, Header, SentenceTrace

DECIMALS = 6
"""Scores and times are rounded to so many."""


class TraceWriter:
    """Writes sentences, each when its search has ended."""

    def __init__(self, file: IO[bytes], header: Header, vocabularies: Vocabularies) -> None:
        self._file = file
        self._source, self._target = vocabularies.source, vocabularies.target
        self._pieces: set[int] = set()
        self._batches: set[int] = set()
        self.sentences = 0
        """The number of sentences written."""
        self._put(_header_line(header))

    def write(self, trace: SentenceTrace) -> None:
        """Write what a search did."""
        self.sentences += 1
        if self._target is not None:
            self._put_pieces(trace, self._target)
        for batch in trace.batches:
            if batch.number not in self._batches:
                self._batches.add(batch.number)
                seconds = round(batch.seconds, DECIMALS)
                self._put({"event": "batch", "number": batch.number, "rows": batch.rows, "seconds": seconds})
        pieces = trace.pieces
        if pieces is None and self._source is not None:
            pieces = tuple(map(self._source.piece, trace.tokens))
        self._put({
            "event": "sentence", "id": trace.id, "tokens": trace.tokens, "pieces": pieces, "text": trace.text,
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
        new = sorted(token for token in tokens - self._pieces if token < vocabulary.size)
        if new:
            self._pieces.update(new)
            self._put({"event": "pieces", "pieces": {str(token): vocabulary.piece(token) for token in new}})

    def _put(self, line: Mapping[str, Any]) -> None:
        self._write(_dumps(line))

    def _write(self, line: str) -> None:
        self._file.write(line.encode("utf-8", "replace") + b"\n")  # names of files, in errors, can be no UTF-8


@contextmanager
def writing_trace(path: str | Path, header: Header, vocabularies: Vocabularies) -> Iterator[TraceWriter]:
    """Open a trace file, which appears when the block has ended without an error.

    Raises SgdecError if it cannot be written, or for ``.zst`` without the package that packs it.
    """
    with whole_file(path) as file, _packed(file, str(path)) as stream:
        yield TraceWriter(stream, header, vocabularies)


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


def _expand_line(expansion: Expansion) -> str:
    """The line as text: to format numbers here costs a third of what a general encoder takes."""
    width = len(expansion.scores[0]) if expansion.scores else 0
    numbers = f"[{','.join(['%.6f'] * width)}]"
    scores = ",".join([numbers] * len(expansion.scores)) % tuple(chain.from_iterable(expansion.scores))
    parts = [
        f'{{"event":"expand","n":{expansion.number},"parent":{_dumps(expansion.parent)},'
        f'"token":{_dumps(expansion.token)},"candidates":{expansion.candidates},'
        f'"tokens":[{",".join(map(str, expansion.tokens))}],"totals":[{_numbers(expansion.totals, 6)}],'
        f'"scores":[{scores}],"fates":{_dumps(expansion.fates)},"rest":{_dumps(expansion.rest)}'
    ]
    if expansion.attention:
        rows = (f"{_dumps(name)}:[{_numbers(row, 3)}]" for name, row in expansion.attention.items())
        parts.append(f'"attention":{{{",".join(rows)}}}')
    rest: dict[str, Any] = {} if expansion.batch is None else {"batch": expansion.batch}
    if expansion.into:
        rest["into"] = {str(token): node for token, node in expansion.into.items()}
    if expansion.notes:
        rest["notes"] = {str(token): notes for token, notes in expansion.notes.items()}
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


def _end_line(trace: SentenceTrace, vocabulary: Vocabulary | None) -> dict[str, Any]:
    def text(found: Ended) -> str | None:
        return vocabulary.decode(found.tokens) if found.text is None and vocabulary is not None else found.text

    return {
        "event": "end", "id": trace.id, "stopped": trace.stopped,
        "hypotheses": [
            {
                "expansion": each.expansion, "tokens": each.tokens, "text": text(each),
                "score": round(each.score, DECIMALS), "rank_score": round(each.rank_score, DECIMALS),
                **({"part_scores": each.part_scores} if each.part_scores else {}),
            }
            for each in trace.hypotheses
        ],
        "expansions": trace.counted, "recorded": len(trace.expansions), "proven": trace.proven,
        "gap": _finite(trace.gap), "seconds": round(trace.seconds, DECIMALS), "error": trace.error,
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, DECIMALS)


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

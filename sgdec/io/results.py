"""Writing results: one writer per format, one call per sentence, flushed at once.

A sentence without hypotheses is an empty line in ``text`` and ``ids``, an empty list in ``jsonl``, no line in
``nbest`` and an empty lattice in ``fst``, so lines never shift.
"""

from __future__ import annotations

import io
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from sgdec.context import Vocabulary
from sgdec.errors import SgdecError, UsageError
from sgdec.found import Found
from sgdec.io.patterns import path_of
from sgdec.io.unfinished import Sink, UnfinishedRows, open_noted
from sgdec.io.writing import open_stream, writes_directly
from sgdec.protocol import FORBIDDEN, Hypothesis, Source
from sgdec.search.outcome import Outcome

Spell: TypeAlias = Callable[[Sequence[int]], str]
"""A function from tokens to a line: text or token ids."""
PartsOf: TypeAlias = Callable[[Source, Sequence[Sequence[int]]], Sequence[Mapping[str, Mapping[str, list[float]]]]]
"""For each output of a source by mix and part the score of each token; -inf from a token on that a part forbids."""


class Writer(ABC):
    """Writes outcomes in input order."""

    @abstractmethod
    def write(self, outcome: Outcome) -> str | None:
        """Write one sentence immediately. Returns a warning if something had to be left out."""


def make_writer(
    format: str,
    output: str | None,
    rows: Sink,
    vocabulary: Vocabulary | None,
    names: Sequence[str],
    *,
    ledger: bool = False,
    parts: PartsOf | None = None,
) -> Writer:
    """The writer of an output format for predictors with these names. It writes to ``rows`` or to a pattern of files.

    ``ledger``: the JSON also has the scores of every token, and with ``parts`` those of the parts of mixes.
    """
    if format == "fst":
        assert output is not None
        return LatticeWriter(output)
    spell = vocabulary.decode if vocabulary is not None and format != "ids" else _ids
    if format == "jsonl":
        return JsonWriter(rows, spell, names, ledger=ledger, parts=parts if ledger else None)
    return NbestWriter(rows, spell, names) if format == "nbest" else LineWriter(rows, spell)


@contextmanager
def open_rows(
    output: str | None,
    about: Callable[[], Mapping[str, Any]],
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Iterator[UnfinishedRows]:
    """Open the output of rows: ``--output`` (None: standard output), in UTF-8. Only an output that is a file can be
    resumed.

    ``about``: see `open_noted`. Raises UsageError if an output cannot be opened or resumed, SgdecError if it cannot
    be written completely.
    """
    if resume and overwrite:
        raise UsageError("--resume continues a run and --overwrite begins it again. Give only one of them.")
    if output is not None and not writes_directly(output):
        with open_noted(output, about(), resume=resume, overwrite=overwrite) as rows:
            yield rows
        return
    if resume:
        raise UsageError("--resume continues a run whose output is a file. Give --output FILE of that run.")
    if output is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
        yield UnfinishedRows(sys.stdout)
        return
    try:
        with io.TextIOWrapper(open_stream(output), "utf-8", "backslashreplace", newline="\n") as stream:
            yield UnfinishedRows(stream)
    except OSError as error:
        raise SgdecError(f"--output {output}: {error.strerror or error}.") from None


class LineWriter(Writer):
    """The best hypothesis, one line per sentence."""

    def __init__(self, output: Sink, spell: Spell) -> None:
        self._output = output
        self._spell = spell

    def write(self, outcome: Outcome) -> str | None:
        best = outcome.result.hypotheses[:1]
        self._output.write("".join(_one_line(spelled(hypothesis, self._spell)) for hypothesis in best) + "\n")
        self._output.flush()
        return None


class NbestWriter(Writer):
    """Moses' format: ``id ||| tokens ||| name= score ... ||| total``, scores unweighted, ids 1-based."""

    def __init__(self, output: Sink, spell: Spell, names: Sequence[str]) -> None:
        self._output = output
        self._spell = spell
        self._names = names

    def write(self, outcome: Outcome) -> str | None:
        for hypothesis in outcome.result.hypotheses:
            features = " ".join(
                f"{name}= {score:.6f}" for name, score in zip(self._names, hypothesis.scores, strict=True)
            )
            text = _one_line(spelled(hypothesis, self._spell))
            self._output.write(f"{outcome.source.id} ||| {text} ||| {features} ||| {hypothesis.score:.6f}\n")
        self._output.flush()
        return None


class JsonWriter(Writer):
    """One JSON object per sentence, with all results: `sgdec.found.Found.to_dict`."""

    def __init__(
        self,
        output: Sink,
        spell: Spell,
        names: Sequence[str],
        *,
        ledger: bool = False,
        parts: PartsOf | None = None,
    ) -> None:
        self._output = output
        self._spell = spell
        self._names = names
        self._ledger = ledger
        self._parts = parts

    def write(self, outcome: Outcome) -> str | None:
        row = Found.of(outcome, self._names, None).to_dict(ledger=self._ledger)
        for hypothesis, listed in zip(outcome.result.hypotheses, row["hypotheses"], strict=True):
            listed["text"] = spelled(hypothesis, self._spell)
        if self._parts is not None:
            outputs = [hypothesis.tokens for hypothesis in outcome.result.hypotheses]
            for listed, parts in zip(row["hypotheses"], self._parts(outcome.source, outputs), strict=True):
                if parts:
                    listed["part_scores"] = {name: _numbers(own) for name, own in parts.items()}
        self._output.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._output.flush()
        return None


class LatticeWriter(Writer):
    """One acceptor per sentence with the n-best list; its natural-log costs give the same totals."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def write(self, outcome: Outcome) -> str | None:
        from sgdec.io.lattice import write_nbest

        path = Path(path_of(self._pattern, outcome.source.id))
        path.parent.mkdir(parents=True, exist_ok=True)
        left_out = write_nbest(path, outcome.result.hypotheses)
        if left_out:
            lost = "1 hypothesis" if left_out == 1 else f"{left_out} hypotheses"
            return f"{path} lacks {lost} with token 0 (unknown), which a lattice reads as epsilon."
        return None


def _numbers(columns: Mapping[str, list[float]]) -> dict[str, list[float | None]]:
    """The scores by part; null for -inf, which JSON lacks."""
    return {
        name: [None if score == FORBIDDEN else float(score) for score in scores] for name, scores in columns.items()
    }


def _one_line(text: str) -> str:
    """The text without line breaks, which some tokenizers have as pieces: one line is one sentence."""
    return text.replace("\r", " ").replace("\n", " ")


def spelled(hypothesis: Hypothesis, spell: Spell) -> str:
    """The text of a hypothesis: its own ``text`` if it is set and the output is text, otherwise the line of its
    tokens."""
    return hypothesis.text if hypothesis.text is not None and spell is not _ids else spell(hypothesis.tokens)


def _ids(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))

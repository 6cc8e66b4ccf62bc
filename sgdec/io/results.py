"""Writing results: one writer a format, one call a sentence, flushed at once.

A sentence without hypotheses is an empty line in ``text`` and ``ids``, an empty list in ``jsonl``, nothing in
``nbest`` and an empty lattice in ``fst``: lines never shift.
"""

from __future__ import annotations

import io
import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from sgdec.context import Vocabulary
from sgdec.errors import SgdecError, UsageError
from sgdec.outcome import Outcome
from sgdec.protocol import Hypothesis

Spell: TypeAlias = Callable[[Sequence[int]], str]
"""Tokens as a line: text, or token ids."""


class Writer(ABC):
    """Writes outcomes in input order."""

    @abstractmethod
    def write(self, outcome: Outcome) -> str | None:
        """One sentence, at once. Returns a warning where something had to be left out."""


@contextmanager
def open_writer(
    format: str, path: str | None, vocabulary: Vocabulary | None, names: Sequence[str]
) -> Iterator[Writer]:
    """The writer of ``--output-format`` to ``--output`` (None: standard output), for predictors of these names.

    Raises UsageError where the output cannot be opened, SgdecError where it cannot be written to its end.
    """
    if format == "fst":
        if path is None or "{id}" not in path:
            raise UsageError(
                "--output-format fst writes one lattice a sentence: give --output a pattern such as 'out/{id}.fst'."
            )
        yield LatticeWriter(path)
        return
    spell = vocabulary.decode if vocabulary is not None and format != "ids" else _ids
    with open_output(path) as output:
        if format == "jsonl":
            yield JsonWriter(output, spell, names)
        elif format == "nbest":
            yield NbestWriter(output, spell, names)
        else:
            yield LineWriter(output, spell)


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """A UTF-8 file, or standard output for None; errors as `open_writer` says."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    try:
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror}; expected a file in a folder that exists.") from None
    try:
        with file:
            yield file
    except OSError as error:
        raise SgdecError(
            f"--output {path}: {error.strerror or error}. What is there already stays; go on with --range."
        ) from None


class LineWriter(Writer):
    """The best hypothesis, one line a sentence."""

    def __init__(self, output: TextIO, spell: Spell) -> None:
        self._output = output
        self._spell = spell

    def write(self, outcome: Outcome) -> str | None:
        best = outcome.result.hypotheses[:1]
        self._output.write("".join(spelled(hypothesis, self._spell) for hypothesis in best) + "\n")
        self._output.flush()
        return None


class NbestWriter(Writer):
    """Moses' format: ``id ||| tokens ||| name= score ... ||| total``, scores unweighted, ids 1-based."""

    def __init__(self, output: TextIO, spell: Spell, names: Sequence[str]) -> None:
        self._output = output
        self._spell = spell
        self._names = names

    def write(self, outcome: Outcome) -> str | None:
        for hypothesis in outcome.result.hypotheses:
            features = " ".join(
                f"{name}= {score:.6f}" for name, score in zip(self._names, hypothesis.scores, strict=True)
            )
            text = spelled(hypothesis, self._spell)
            self._output.write(f"{outcome.source.id} ||| {text} ||| {features} ||| {hypothesis.score:.6f}\n")
        self._output.flush()
        return None


class JsonWriter(Writer):
    """One JSON object a sentence, with everything that is known."""

    def __init__(self, output: TextIO, spell: Spell, names: Sequence[str]) -> None:
        self._output = output
        self._spell = spell
        self._names = names

    def write(self, outcome: Outcome) -> str | None:
        result = outcome.result
        row = {
            "id": outcome.source.id,
            "hypotheses": [self._hypothesis(hypothesis) for hypothesis in result.hypotheses],
            "proven": result.proven,
            "gap": result.gap if result.gap is None or math.isfinite(result.gap) else None,  # JSON has no Infinity
            "expansions": result.expansions,
            "seconds": round(outcome.seconds, 6),
        }
        if outcome.error is not None:
            row["error"] = str(outcome.error)
        self._output.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._output.flush()
        return None

    def _hypothesis(self, hypothesis: Hypothesis) -> dict[str, Any]:
        """``weights``: by name, those of the last token; None where a predictor was not consulted."""
        return {
            "tokens": list(hypothesis.tokens),
            "text": spelled(hypothesis, self._spell),
            "score": hypothesis.score,
            "rank_score": hypothesis.rank_score,
            "scores": dict(zip(self._names, hypothesis.scores, strict=True)),
            "weights": dict(zip(self._names, hypothesis.weights[-1], strict=True)),
        }


class LatticeWriter(Writer):
    """One acceptor a sentence over the n-best list, natural-log costs, that rescores to the same totals."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def write(self, outcome: Outcome) -> str | None:
        from sgdec.io.lattice import write_nbest

        path = Path(self._pattern.replace("{id}", str(outcome.source.id)))
        path.parent.mkdir(parents=True, exist_ok=True)
        left_out = write_nbest(path, outcome.result.hypotheses)
        if left_out:
            return f"{path} lacks {left_out} hypotheses with token 0 (unknown), which a lattice reads as epsilon."
        return None


def spelled(hypothesis: Hypothesis, spell: Spell) -> str:
    """The text of a hypothesis: its own, if it has any and text is asked for, or what its tokens spell."""
    return hypothesis.text if hypothesis.text is not None and spell is not _ids else spell(hypothesis.tokens)


def _ids(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))

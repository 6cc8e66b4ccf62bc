"""Writing results: one writer a format, one call a sentence, flushed at once.

A sentence without hypotheses is an empty line in ``text`` and ``ids``, an empty list in ``jsonl``, nothing in
``nbest`` and an empty lattice in ``fst``: lines never shift.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from sgdec.context import Vocabulary
from sgdec.errors import UsageError
from sgdec.protocol import Hypothesis
from sgdec.scheduler import Outcome

FORMATS = ("text", "ids", "nbest", "jsonl", "fst")


class Writer(ABC):
    """Writes outcomes in input order."""

    @abstractmethod
    def write(self, outcome: Outcome) -> None:
        """One sentence."""


def make_writer(
    format: str, output: TextIO | None, path: str | None, vocabulary: Vocabulary | None, names: Sequence[str]
) -> Writer:
    """``output``: an open stream; ``path``: where it goes, a pattern with ``{id}`` for lattices."""
    if format == "fst":
        if path is None or "{id}" not in path:
            raise UsageError(
                "--output-format fst writes one lattice a sentence: give --output a pattern such as 'out/{id}.fst'"
            )
        return LatticeWriter(path)
    assert output is not None
    spell = vocabulary.decode if vocabulary is not None and format != "ids" else _ids
    if format in ("text", "ids"):
        return LineWriter(output, spell)
    if format == "nbest":
        return NbestWriter(output, spell, names)
    return JsonWriter(output, spell, names)


class LineWriter(Writer):
    """The best hypothesis, one line a sentence."""

    def __init__(self, output: TextIO, spell: Any) -> None:
        self._output = output
        self._spell = spell

    def write(self, outcome: Outcome) -> None:
        best = outcome.result.hypotheses[:1]
        self._output.write("".join(self._spell(list(hypothesis.tokens)) for hypothesis in best) + "\n")
        self._output.flush()


class NbestWriter(Writer):
    """Moses' format: ``id ||| tokens ||| name= score ... ||| total``, scores unweighted, ids 1-based."""

    def __init__(self, output: TextIO, spell: Any, names: Sequence[str]) -> None:
        self._output = output
        self._spell = spell
        self._names = names

    def write(self, outcome: Outcome) -> None:
        for hypothesis in outcome.result.hypotheses:
            features = " ".join(
                f"{name}= {score:.6f}" for name, score in zip(self._names, hypothesis.scores, strict=True)
            )
            text = self._spell(list(hypothesis.tokens))
            self._output.write(f"{outcome.source.id} ||| {text} ||| {features} ||| {hypothesis.score:.6f}\n")
        self._output.flush()


class JsonWriter(Writer):
    """One JSON object a sentence, with everything that is known."""

    def __init__(self, output: TextIO, spell: Any, names: Sequence[str]) -> None:
        self._output = output
        self._spell = spell
        self._names = names

    def write(self, outcome: Outcome) -> None:
        result = outcome.result
        row = {
            "id": outcome.source.id,
            "hypotheses": [self._hypothesis(hypothesis) for hypothesis in result.hypotheses],
            "proven": result.proven,
            "gap": result.gap,
            "expansions": result.expansions,
            "seconds": round(outcome.seconds, 6),
        }
        if outcome.error is not None:
            row["error"] = str(outcome.error)
        self._output.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._output.flush()

    def _hypothesis(self, hypothesis: Hypothesis) -> dict[str, Any]:
        """``weights``: by name, those of the last token; None where a predictor was not consulted."""
        return {
            "tokens": list(hypothesis.tokens),
            "text": self._spell(list(hypothesis.tokens)),
            "score": hypothesis.score,
            "rank_score": hypothesis.rank_score,
            "scores": dict(zip(self._names, hypothesis.scores, strict=True)),
            "weights": dict(zip(self._names, hypothesis.weights[-1], strict=True)),
        }


class LatticeWriter(Writer):
    """One acceptor a sentence over the n-best list, natural-log costs, that rescores to the same totals."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def write(self, outcome: Outcome) -> None:
        from sgdec.io.lattice import write_nbest

        path = Path(self._pattern.replace("{id}", str(outcome.source.id)))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_nbest(path, outcome.result.hypotheses)


def _ids(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))

"""A second search says what the stop rule of the first one has missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import Predictor, Scores
from sgdec.protocol import Candidates, Source
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.findings import findings
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.run import Diagnosis, diagnose
from sgdec.tasks.diagnosis.stopping import options_of
from sgdec.tasks.diagnosis.summary import summarise

LATE = "5 6\t-1\n5 6 7 8\t-2\n"
"""The second entry ranks higher if each token adds 1, and the beam has finished the first one before."""


def diagnosed(folder: Path, weight: float, nbest: int = 1, **options: Any) -> Diagnosis:
    """One sentence; ``weight`` is that of the word count, so a negative one likes long outputs."""
    path = folder / "allowed.tsv"
    path.write_text(LATE)
    run = sgdec.load(
        "trie,wc", "beam", vocab_size=9, max_length=9, nbest=nbest,
        trie={"path": str(path)}, wc={"weight": weight}, beam=options,
    )  # fmt: skip
    return diagnose(run, [Case(Source(1, (3,), max_length=9), (5, 6), "")])


@pytest.mark.parametrize(
    ("stop", "outputs"), [("best", 1), ("hf-true", 1), ("full", 0), ("length", 0), ("proven", 0)]
)
def test_only_a_rule_that_ends_too_early_is_blamed(tmp_path: Path, stop: str, outputs: int) -> None:
    found = diagnosed(tmp_path, -1.0, stop=stop, size=1 if stop == "hf-true" else 2)
    stops = summarise(found).stops
    assert stops.outputs == outputs and stops.rule == stop == found.subject.stop
    assert any("too early" in line for line in findings(summarise(found))) == bool(outputs)
    assert (stops.length_ratio == 2.0) and found.sentences[0].search.by == outputs


def test_an_output_that_is_proven_to_be_the_best_is_not_searched_again(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, -0.1)
    assert found.stopping.caveat is not None and found.stopping.found == {}
    assert found.sentences[0].search.error == "none" and found.sentences[0].witnesses == ()


def test_lists_that_end_too_early_are_counted(tmp_path: Path) -> None:
    """The output is the best one, and the second hypothesis is missing."""
    found = diagnosed(tmp_path, 0.0, nbest=2)
    assert len(found.lists[0]) == 1
    assert findings(summarise(found)) == [
        "Because of stop best, 1 of 1 n-best lists lack hypotheses that the search finds with stop proven."
    ]


class Boundless(Predictor):
    """Declares nothing."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.array([-9.0, -9.0, -0.1, -3.0, -4.0]))


@pytest.mark.parametrize(("limit", "other"), [(9, "length"), (None, None)])
def test_a_run_in_which_no_other_rule_works_has_the_caveat(limit: int | None, other: str | None) -> None:
    run = sgdec.load({"boundless": Boundless()}, "beam", vocab_size=5, max_length=limit)
    found = diagnose(run, [Case(Source(1, (3,), max_length=limit), (3,), "")], ProofBudget("none"))
    assert found.stopping.other == other
    said = [line for line in findings(summarise(found)) if line.startswith("beam: with stop best the search can")]
    assert len(said) == (other is None)


def test_options_are_those_that_the_decoder_has() -> None:
    run = sgdec.load("wc", "beam", vocab_size=5, beam={"size": 7})
    assert options_of(run)["size"] == 7 and options_of(run)["stop"] == "best"
    made = sgdec.load("wc", run.parts.decoder, vocab_size=5)
    assert options_of(made) == options_of(run)

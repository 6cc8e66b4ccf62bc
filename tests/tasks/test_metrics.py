"""Scores and the bootstrap are sacreBLEU's own, and equal scores are no evidence of a difference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.errors import UsageError
from sgdec.tasks import metrics
from sgdec.tasks.metrics import NAMES, corpus_scores, sentence_chrf

sacrebleu = pytest.importorskip("sacrebleu")

REFERENCES = [
    "Zwei Männer gehen über die Straße.",
    "Ein Hund läuft am Strand entlang, schnell.",
    "Das Mädchen isst einen Apfel.",
    "Die Kinder spielen im Garten hinter dem Haus.",
]
FIRST = ["Zwei Männer gehen auf die Straße.", "Der Hund läuft am Strand entlang.", "Mädchen isst Apfel.", "Ja."]
SECOND = ["Zwei Männer gehen über Straßen.", "Ein Hund läuft am Strand entlang.", "Das Mädchen isst.", "Im Garten."]
OTHERS = ["Zwei Männer überqueren die Straße.", "Ein Hund rennt am Strand.", "Ein Mädchen isst.", "Kinder im Garten."]


def by_command_line(folder: Path, *options: str) -> str:
    """What sacreBLEU's own command prints for the two systems."""
    for name, lines in (("ref", REFERENCES), ("other", OTHERS), ("first", FIRST), ("second", SECOND)):
        (folder / name).write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "sacrebleu", "ref", "other", "-i", "first", "second", "--quiet"]
    done = subprocess.run(
        [*command, "-m", "bleu", "chrf", "ter", *options], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "SACREBLEU_SEED": "7"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_bootstrap_is_that_of_sacrebleu(tmp_path: Path) -> None:
    """Its command prints these numbers rounded."""
    scores = corpus_scores([FIRST, SECOND], [REFERENCES, OTHERS], "bootstrap", 300, 7)
    printed = by_command_line(tmp_path, "--paired-bs", "--paired-bs-n", "300", "-f", "text")
    for system in scores.systems:
        for score in system.values():
            assert f"{score.value:.1f} ({score.mean:.1f} ± {score.margin:.1f})" in printed
    for score in scores.systems[1].values():
        assert f"(p = {score.p_value:.4f})" in printed
    for signature in scores.signatures.values():
        assert signature in printed and "bs:300|seed:7" in signature


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS]])
@pytest.mark.parametrize("test", ["none", "approx"])
def test_scores_are_those_of_sacrebleu(test: metrics.Test, references: list[list[str]]) -> None:
    scores = corpus_scores([FIRST, SECOND], references, test, 20)
    for system, outputs in zip(scores.systems, (FIRST, SECOND), strict=True):
        assert system["bleu"].value == sacrebleu.corpus_bleu(outputs, references).score
        assert system["chrf"].value == sacrebleu.corpus_chrf(outputs, references).score
        assert system["ter"].value == sacrebleu.corpus_ter(outputs, references).score
        assert all(score.mean is score.margin is None for score in system.values())
        assert all((score.p_value is None) == (test == "none" or outputs is FIRST) for score in system.values())


def test_signatures_name_the_test() -> None:
    signatures = corpus_scores([FIRST, SECOND], [REFERENCES], samples=20, seed=3).signatures
    assert all("|ar:20|seed:3|" in signature for signature in signatures.values())


def test_scores_computed_by_hand() -> None:
    """Of four words one is replaced: TER 1/4. Of the 1- to 4-grams of the output 3/4, 2/3, 1/2 and none of 1 are in
    the reference; sacreBLEU's smoothing (exp) counts the first order without a match as 1/2."""
    (system,) = corpus_scores([["a b c x"]], [["a b c d"]], "none").systems
    assert system["ter"].value == pytest.approx(25)
    assert system["bleu"].value == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25)


TEXTS = st.lists(st.text("ab .", max_size=8), min_size=3, max_size=3)


@given(TEXTS, TEXTS, TEXTS, st.sampled_from(["bootstrap", "approx", "none"]))
def test_a_swap_negates_the_differences_and_keeps_the_p_values(
    one: list[str], other: list[str], references: list[str], test: metrics.Test
) -> None:
    (_, there), (_, back) = (
        corpus_scores(systems, [references], test, 10).systems for systems in ([one, other], [other, one])
    )
    for key in NAMES:
        first, second = there[key], back[key]
        assert first.difference is not None and first.difference == -(second.difference or 0)
        assert first.p_value == second.p_value


@given(TEXTS, TEXTS, st.sampled_from(["bootstrap", "approx"]))
def test_a_system_does_not_differ_from_itself(one: list[str], references: list[str], test: metrics.Test) -> None:
    for score in corpus_scores([one, one], [references], test, 20).systems[1].values():
        assert score.difference == 0 and score.p_value == 1


def test_the_seed_decides_and_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean(seed: int) -> float | None:
        return corpus_scores([FIRST, SECOND], [REFERENCES], "bootstrap", 50, seed).systems[1]["chrf"].mean

    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    assert mean(1) == mean(1) != mean(2)
    assert "SACREBLEU_SEED" not in os.environ
    monkeypatch.setenv("SACREBLEU_SEED", "3")
    assert mean(1) != mean(2)
    assert os.environ["SACREBLEU_SEED"] == "3"


def test_a_test_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "available", lambda: 1 << 30)
    with pytest.raises(UsageError, match=r"4 sentences with 10,000,000 samples needs 3\.1 GiB, but 1\.0 GiB"):
        corpus_scores([FIRST, SECOND], [REFERENCES], "bootstrap", 10_000_000)


def test_sentence_chrf_is_that_of_sacrebleu_but_for_empty_texts() -> None:
    metric = sacrebleu.metrics.CHRF()
    assert sentence_chrf(FIRST[0], [REFERENCES[0], OTHERS[0]], metric) == (
        sacrebleu.sentence_chrf(FIRST[0], [REFERENCES[0], OTHERS[0]]).score
    )
    assert sentence_chrf("", [""], metric) == 100 and sentence_chrf("", ["a"], metric) == 0

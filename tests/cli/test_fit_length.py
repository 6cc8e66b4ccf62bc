"""The promise: ``sgdec fit-length`` finds the most probable length model, and names what is wrong in one line."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from sgdec_predictors.length import LengthPredictor

from sgdec import EOS, Source
from sgdec.cli.main import main
from sgdec.estimation.lengths import fit_lengths
from sgdec.io.lengths import read_length_weights
from sgdec.models.length import LengthWeights, features_of
from sgdec.text.sentencepiece import train_vocabulary

pytestmark = pytest.mark.slow

TRUTH = LengthWeights((0.05, 0.3, 0.5, 0.0, 0.0, 1.0), (0.0, 0.02, 0.0, 0.05, 0.3, -0.4))


def lines(count: int, seed: int = 1) -> list[str]:
    rng = np.random.default_rng(seed)
    words = ["a", "dog", "sits", "bridge", "under-the", "over.", "there,", "translation"]
    return [" ".join(rng.choice(words, rng.integers(1, 20))) for _ in range(count)]


def drawn(source: list[str], weights: LengthWeights, seed: int = 2) -> list[int]:
    """Lengths by the model itself: a Poisson count whose rate is Gamma distributed."""
    rng = np.random.default_rng(seed)
    given = [weights.distribution(line) for line in source]
    return [int(rng.poisson(rng.gamma(r, p / (1 - p)))) for r, p in given]


def log_probability(weights: LengthWeights, source: list[str], lengths: list[int]) -> float:
    given = zip(source, lengths, strict=True)
    return math.fsum(weights.distribution(line).log_probability(n) for line, n in given) / len(source)


def test_no_weights_near_the_fitted_ones_and_not_even_the_true_ones_are_better() -> None:
    source = lines(400)
    lengths = drawn(source, TRUTH)
    fitted = fit_lengths(source, lengths)
    best = log_probability(fitted.weights, source, lengths)
    assert best == pytest.approx(fitted.log_probability, abs=1e-9)
    assert best >= log_probability(TRUTH, source, lengths)
    assert fitted.gradient < 1e-4
    scale = [*np.mean([features_of(line) for line in source], axis=0), 1.0]
    for part in (0, 1):
        for i in range(6):
            for step in (1e-3, -1e-3):
                moved = [list(fitted.weights.r), list(fitted.weights.p)]
                moved[part][i] += step / scale[i]
                other = LengthWeights(tuple(moved[0]), tuple(moved[1]))
                assert log_probability(other, source, lengths) <= best + 1e-9


def test_the_true_distribution_is_found_again() -> None:
    source = lines(4000)
    fitted = fit_lengths(source, drawn(source, TRUTH)).weights
    means, variances = [], []  # of what was found, by what is true
    for line in lines(100, seed=9):
        true, found = TRUTH.distribution(line), fitted.distribution(line)
        means.append(found.r * found.p / (1 - found.p) / (true.r * true.p / (1 - true.p)))
        variances.append(means[-1] * (1 - true.p) / (1 - found.p))
    assert np.median(means) == pytest.approx(1, abs=0.03) and np.std(means) < 0.1
    assert np.median(variances) == pytest.approx(1, abs=0.1) and np.std(variances) < 0.2


def test_lengths_that_vary_less_than_a_poisson_distribution_become_one() -> None:
    """No negative binomial distribution is narrower."""
    source = lines(400)
    lengths = [2 * len(line.split()) for line in source]
    fitted = fit_lengths(source, lengths).weights
    for line in source[:20]:
        r, p = fitted.distribution(line)
        assert p < 0.01
        assert r * p / (1 - p) == pytest.approx(2 * len(line.split()), rel=0.05)


def test_a_feature_that_is_always_the_same_gets_no_weight() -> None:
    source = [line.replace(",", "").replace(".", "").replace("-", "") for line in lines(300)]
    fitted = fit_lengths(source, drawn(source, TRUTH))
    assert fitted.weights.r[2] == fitted.weights.p[2] == fitted.weights.r[4] == 0.0


@pytest.mark.parametrize("form", ["words", "ids", "pieces"])
def test_the_command_writes_what_the_predictor_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    source = ["", *lines(300)]
    lengths = [3, *drawn(source[1:], TRUTH)]
    lengths[7] = 0  # a pair with an empty side is left out, as is the first
    word = {"words": "ja", "ids": "7", "pieces": "b"}[form]
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in source))
    (tmp_path / "target").write_text("".join(" ".join([word] * n) + "\n" for n in lengths))
    arguments = [tmp_path / "source", tmp_path / "target", "--output", tmp_path / "weights"]
    if form == "pieces":
        vocabulary = train_vocabulary(["b b b", "a b"], 6, kind="word")
        (tmp_path / "tok.spm").write_bytes(vocabulary.serialized)
        arguments += ["--tokenizer", tmp_path / "tok.spm"]
        assert len(vocabulary.encode("b b b")) == 3
    assert main(["fit-length", *map(str, arguments)]) == 0
    printed = capsys.readouterr().err
    kept = [(line, n) for line, n in zip(source, lengths, strict=True) if line and n]
    assert f"{len(kept)} pairs; log-probability of a length -" in printed
    expected = fit_lengths([line for line, _ in kept], [n for _, n in kept]).weights
    assert read_length_weights(tmp_path / "weights") == expected
    predictor = LengthPredictor(str(tmp_path / "weights"))
    states = predictor.initialize_batch([Source(1, (3,), source[1])])
    score = predictor.predict_batch(states).rows[0].get(EOS)
    assert score == pytest.approx(expected.distribution(source[1]).log_probability(0), abs=1e-12)


@pytest.mark.parametrize(
    ("source", "target", "complaint"),
    [
        (None, "a\n", "source: cannot be read (No such file or directory)"),
        ("a\nb\n", "a\n", "source has 2 lines but {folder}/target has 1"),
        ("a\n", "a\n", "expected at least two sentence pairs"),
        ("a\n\n", "\nb\n", "expected at least two sentence pairs"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str | None, target: str, complaint: str
) -> None:
    if source is not None:
        (tmp_path / "source").write_text(source)
    (tmp_path / "target").write_text(target)
    arguments = [tmp_path / "source", tmp_path / "target", "--output", tmp_path / "weights"]
    assert main(["fit-length", *map(str, arguments)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and error.count("\n") == 1
    assert complaint.replace("{folder}", str(tmp_path)) in error
    assert main(["fit-length", *map(str, arguments[:3]), str(tmp_path / "no" / "weights")]) == 1
    assert "cannot be written (no such folder)" in capsys.readouterr().err

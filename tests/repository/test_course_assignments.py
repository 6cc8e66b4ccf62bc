"""The promise of what the assignments on the beam search curse and on budgets are made of: a model, shares of points,
hidden checks, and figures."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from grader.assignment import COURSE, Share, load_assignment
from grader.cli import main
from models import language
from models.claims import true_total
from models.small import WEIGHTS, SmallModel
from sgdec_decoders.beam import BeamDecoder

from sgdec import BOS, EOS, Source
from sgdec.testing import PredictorContract, random_space
from tests.helpers.places import ROOT

SOLUTIONS = ROOT / "tests" / "course_solutions"
SEED = 1


def test_a_share_is_between_0_and_1() -> None:
    assert Share(0.5, "half of them").values == {}
    with pytest.raises(ValueError, match="expected 0 to 1"):
        Share(1.5, "more than there is")


def test_hidden_checks_are_loaded_if_they_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "small_one"
    folder.mkdir()
    (folder / "checks.py").write_text(
        "from grader.assignment import Assignment\nASSIGNMENT = Assignment('decoder', 'x')\n"
        "@ASSIGNMENT.check('seen', points=1)\ndef _(make, rng):\n    pass\n"
    )
    monkeypatch.setattr("grader.assignment.COURSE", tmp_path)
    assert [(check.promise, check.hidden) for check in load_assignment("small_one").checks] == [("seen", False)]
    (folder / "hidden.py").write_text(
        "def add(checks):\n    @checks.ASSIGNMENT.check('secret', points=2, hidden=True)\n"
        "    def _(make, rng):\n        pass\n"
    )
    found = load_assignment("small_one")
    assert [(check.promise, check.hidden) for check in found.checks] == [("seen", False), ("secret", True)]
    assert found.points == 3


def test_the_starter_and_the_handout_of_beam_ask_for_the_same_list() -> None:
    starter, handout = ((COURSE / "beam" / name).read_text() for name in ("starter.py", "handout.md"))
    assert "All finished hypotheses that were ever in the beam, best rank score first" in starter
    assert "Return all finished hypotheses that were ever in $H$, best rank score first" in handout


def test_the_report_on_the_page_for_students_has_a_promise_as_it_is() -> None:
    (quoted,) = re.findall(r"^   0 of (\d)  (.*)$", (COURSE / "students.md").read_text(), re.MULTILINE)
    assert quoted in [(str(check.points), check.promise) for check in load_assignment("beam").checks]


class TestSmallModel(PredictorContract):
    """sgdec's own contract."""

    vocab_size = language.TARGET_SIZE
    tolerance = 1e-9

    def make(self) -> SmallModel:
        return SmallModel()


def test_the_file_of_the_model_is_small() -> None:
    assert WEIGHTS.stat().st_size < 2**21


def test_numpy_and_torch_give_the_same_scores() -> None:
    torch = pytest.importorskip("torch")
    from models.train import Translator, padded
    from safetensors.torch import load_file

    model = Translator()
    model.load_state_dict(load_file(WEIGHTS))
    rng = np.random.default_rng(SEED)
    for source in [language.draw_source(rng) for _ in range(5)]:
        target = language.draw_target(rng, source, noise=False)
        with torch.no_grad():
            (expected,) = model(*padded([source]), torch.tensor([[BOS, *target]])).numpy()
        predictor = SmallModel()
        states = predictor.initialize_batch([Source(1, source)])
        for token, row in zip((*target, EOS), expected, strict=True):
            scores = predictor.predict_batch(states).values
            assert scores is not None
            assert np.allclose(scores[0], row, atol=1e-4)
            states = predictor.consume_batch(states, [token])


@pytest.mark.slow
def test_training_is_repeatable_and_learns() -> None:
    torch = pytest.importorskip("torch")
    from models.train import draw_pairs, negative_log_likelihood, train

    threads = torch.get_num_threads()
    try:
        first, second = train(8, batch=8), train(8, batch=8)
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    pairs = draw_pairs(np.random.default_rng(SEED), 16)
    assert negative_log_likelihood(first, pairs) < negative_log_likelihood(train(1, batch=8, rate=0.0), pairs)


def test_the_language_has_uncertainty_and_noise() -> None:
    rng = np.random.default_rng(SEED)
    source = language.draw_source(rng, shortest=12)
    drawn = [language.draw_target(rng, source) for _ in range(3000)]
    whole = [target for target in drawn if len(target) == len(source)]
    assert len(set(whole)) > 0.9 * len(whole)
    assert 0.005 < sum(not target for target in drawn) / 3000 < 0.02
    assert 0.02 < sum(0 < len(target) < len(source) for target in drawn) / 3000 < 0.04
    assert all(language.f1(source, target) == 1.0 for target in whole)
    assert language.f1(source, ()) == 0.0
    words = Counter(language.MEANING[token] for target in drawn for token in target)
    assert set(words) == set(source)


@pytest.mark.slow
def test_the_baselines_of_the_handout_are_those_that_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from decode_this import baselines

    assert main([str(SOLUTIONS / "my_decode_this.py")], baselines.command) == 0
    assert capsys.readouterr().out.rstrip() in (COURSE / "decode_this" / "handout.md").read_text()


@pytest.mark.slow
def test_baselines_without_a_way_to_go_are_left_out_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    from decode_this import baselines

    assert main(["--sentences", "1"], baselines.command) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert said[0] == ["model", "bigrams", "lattices"]
    assert said[1][:3] == ["greedy", "-", "0.00"] and said[2][-3:] == ["-", "0.00", "0.00"]
    reason = "-: a beam of 4 finds the best of all sentences (model). Take more --sentences."
    assert said[-1] == reason.split()


@pytest.mark.parametrize("module", ["decode_this.baselines", "curse.figures"])
def test_a_wrong_call_for_figures_is_one_line(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = import_module(module).command
    for call, message in (
        (["no.py"], "no.py: no such file"),
        (["no.py", "--sentences", "0"], "0 is not in the range"),
    ):
        assert main(call, command) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1


def test_a_hypothesis_has_the_total_that_the_predictors_give() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(30):
        tiny = random_space(rng)
        for found in BeamDecoder(3).decode(tiny.open(nbest=3)).hypotheses:
            assert true_total(tiny, found) == pytest.approx(found.score)
            with pytest.raises(AssertionError, match="the total of"):
                true_total(tiny, replace(found, score=found.score + 0.01))
            for tokens in ((*found.tokens, EOS), (-1, *found.tokens), found.tokens * 50 + (3,) * 50):
                with pytest.raises(AssertionError, match="is -inf"):
                    true_total(tiny, replace(found, tokens=tokens))


def test_no_model_is_needed_but_for_training() -> None:
    """Students have the core only."""
    for path in COURSE.rglob("*.py"):
        if path.name != "train.py" and path.parent.name != "grader":
            found = re.search(r"^(import|from) (torch|pynini|safetensors|sacrebleu)", path.read_text(), re.MULTILINE)
            assert found is None, path

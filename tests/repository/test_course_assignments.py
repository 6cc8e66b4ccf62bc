"""The promise of the assignments on the beam search curse and on budgets: their models, checks, and points.

Mistakes are tried on the checks that they name, and on those that take no model.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from grader.assignment import COURSE, Assignment, Check, Share, load_assignment
from models import language
from models.small import WEIGHTS, SmallModel

from sgdec import BOS, EOS, Source
from sgdec.errors import SgdecError
from sgdec.plugins.host import Host
from sgdec.testing import PredictorContract, breach
from tests.course_solutions import wrong_curses, wrong_decode_this
from tests.helpers.places import ROOT

SOLUTIONS = ROOT / "tests" / "course_solutions"
WRONG = {"curse": wrong_curses.WRONG, "decode_this": wrong_decode_this.WRONG}
CASES = [(name, cls, promises) for name, wrong in WRONG.items() for cls, promises in wrong]
SLOW = {wrong_curses.MODE, wrong_curses.COST, wrong_curses.FIGURES, wrong_curses.DEFAULTS}
"""Promises that are tried only on the mistakes that name them."""
SEED = 1


@pytest.fixture(scope="module")
def loaded() -> dict[str, Assignment]:
    return {name: load_assignment(name) for name in WRONG}


def outcome(check: Check, cls: type, seed: int = SEED) -> tuple[float, str | None]:
    """The share of the points, and why it is not all."""
    found: list[Share | None] = []
    failure = breach(lambda: found.append(check.test(cls, np.random.default_rng(seed))))
    if failure is not None:
        return 0.0, failure
    return (1.0, None) if found[0] is None else (found[0].share, found[0].why)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", [SEED, 2026])
def test_a_right_solution_gets_full_marks(name: str, seed: int, loaded: dict[str, Assignment]) -> None:
    cls = Host([SOLUTIONS / f"my_{name}.py"], autoload=False).load(loaded[name].kind, loaded[name].plugin)
    for check in loaded[name].checks:
        assert outcome(check, cls, seed)[0] == 1.0, (check.promise, outcome(check, cls, seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_starter_gets_nothing(name: str, loaded: dict[str, Assignment]) -> None:
    cls = Host([COURSE / name / "starter.py"], autoload=False).load(loaded[name].kind, loaded[name].plugin)
    for check in loaded[name].checks:
        share, why = outcome(check, cls)
        assert share == 0.0 and why is not None and "NotImplementedError" in why, check.promise


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cls", "promises"), CASES, ids=[cls.__name__ for _, cls, _ in CASES])
def test_a_mistake_costs_the_promises_that_it_breaks(
    name: str, cls: type, promises: set[str], loaded: dict[str, Assignment]
) -> None:
    tried = [check for check in loaded[name].checks if check.promise not in SLOW - promises]
    assert {check.promise for check in tried if outcome(check, cls)[0] < 1.0} == promises


@pytest.mark.parametrize("name", WRONG)
def test_every_promise_is_broken_by_some_mistake(name: str, loaded: dict[str, Assignment]) -> None:
    assert {check.promise for check in loaded[name].checks} == set().union(*(p for _, p in WRONG[name]))


@pytest.mark.parametrize("name", WRONG)
def test_the_handout_lists_what_is_graded(name: str, loaded: dict[str, Assignment]) -> None:
    rows = re.findall(r"^\| (.*?) +\| (\d+) \|$", (COURSE / name / "handout.md").read_text(), re.MULTILINE)
    visible = [check for check in loaded[name].checks if not check.hidden]
    assert [(promise.replace("`", ""), int(points)) for promise, points in rows] == [
        (check.promise, check.points) for check in visible
    ]
    assert sum(check.points for check in visible) == 20


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


class TestSmallModel(PredictorContract):
    """sgdec's own contract."""

    vocab_size = language.TARGET_SIZE
    tolerance = 1e-9

    def make(self) -> SmallModel:
        return SmallModel()


def test_the_model_is_small_and_needs_neither_torch_nor_safetensors() -> None:
    assert WEIGHTS.stat().st_size < 2**21
    text = (COURSE / "models" / "small.py").read_text()
    assert "import torch" not in text and "import safetensors" not in text


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


def test_the_figures_of_the_handout_are_those_of_the_solution(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from curse import figures

    monkeypatch.setattr(sys, "argv", ["figures.py", str(SOLUTIONS / "my_curse.py")])
    figures.main()
    assert capsys.readouterr().out.rstrip() in (COURSE / "curse" / "handout.md").read_text()


def test_curse_and_decode_this_import_neither_torch_nor_pynini() -> None:
    assert find_spec("curse.checks") is not None
    for path in (*COURSE.glob("curse/*.py"), *COURSE.glob("decode_this/*.py")):
        assert not re.search(r"^(import|from) (torch|pynini|safetensors|sacrebleu)", path.read_text(), re.MULTILINE)


def test_a_file_with_another_plugin_is_refused() -> None:
    with pytest.raises(SgdecError, match="no decoder named 'mysearch'"):
        Host([SOLUTIONS / "my_decode_this.py"], autoload=False).load("decoder", "mysearch")

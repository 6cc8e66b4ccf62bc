"""The promise: rounds find weights that were planted, say what they found, and lose nothing when they are killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import BOS, EOS, Predictor, Scores, SgdecError, Source, UsageError
from sgdec.library import LoadedRun
from sgdec.protocol import Candidates
from sgdec.tuning.tune import Round, Tuned, tune
from tests.helpers.attentive import Attentive

V, SENTENCES, SIZE = 8, 12, 9
SOURCES = [[3]] * SENTENCES


class Varied(Predictor):
    """A bigram table that differs from sentence to sentence. Its state: sentence and last token."""

    def __init__(self, seed: int) -> None:
        self._tables = np.random.default_rng(seed).normal(size=(SENTENCES, V, V))
        self._tables[:, :, :2] = -np.inf
        self._tables[:, :, EOS] -= 1.0
        self._state = 0, BOS

    def initialize(self, source: Source) -> None:
        self._state = (source.id - 1) % SENTENCES, BOS

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(self._tables[self._state])

    def consume(self, token: int) -> None:
        self._state = self._state[0], token

    def get_state(self) -> tuple[int, int]:
        return self._state

    def set_state(self, state: tuple[int, int]) -> None:
        self._state = state


def loaded(weight: float, **options: Any) -> LoadedRun:
    predictors = {"a": Varied(1), "b": Varied(2)}
    return sgdec.load(
        predictors, "beam", max_length=4, beam={"size": SIZE, "stop": "full"}, nbest=SIZE, b={"weight": weight},
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def references() -> list[str]:
    return [" ".join(map(str, found.best.tokens)) for found in loaded(0.8).decode(SOURCES)]


@pytest.mark.parametrize("method", ["mert", "mira", "grid"])
def test_planted_weights_are_found(method: Any, references: list[str]) -> None:
    seen: list[Round] = []
    found = tune(
        loaded(0.0), SOURCES, references, metric="chrf", method=method, bounds={"b": (0.0, 2.0)}, ended=seen.append
    )
    assert list(found.rounds) == seen
    first, *_, last = found.rounds
    assert (first.weights, first.new, last.promised) == ({"a": 1.0, "b": 0.0}, SIZE * SENTENCES, ())
    assert first.development < 60 < 97 < found.best.development
    assert found.best.weights["a"] == 1.0
    assert found.best.development == max(each.development for each in found.rounds)
    again = [" ".join(map(str, each.best.tokens)) for each in found.run.decode(SOURCES)]
    assert again == list(found.best.outputs)


def test_lower_is_better_for_ter(references: list[str]) -> None:
    found = tune(loaded(0.0), SOURCES, references, metric="ter", seeds=1)
    assert found.best.development < 5 < found.rounds[0].development


def test_rounds_end_when_lists_have_nothing_new(references: list[str]) -> None:
    found = tune(loaded(0.8), SOURCES, references, metric="chrf", rounds=9, seeds=1)
    assert found.rounds[0].development == pytest.approx(100.0)
    assert len(found.rounds) < 9
    assert found.rounds[-1].new == 0


def test_held_out_sentences_decide_nothing(references: list[str]) -> None:
    plain = tune(loaded(0.0), SOURCES, references, metric="chrf", seeds=1, rounds=2)
    others = SOURCES[:3], ["9 9"] * 3
    told = tune(loaded(0.0), SOURCES, references, metric="chrf", held_out=others, seeds=1, rounds=2)
    assert [each.weights for each in told.rounds] == [each.weights for each in plain.rounds]
    assert [each.held_out for each in plain.rounds] == [None] * len(plain.rounds)
    assert all(each.held_out is not None and each.held_out < 20 for each in told.rounds)


def test_a_killed_tuning_goes_on_where_it_was(tmp_path: Path, references: list[str]) -> None:
    def tuned(folder: Path | None, **more: Any) -> Tuned:
        return tune(
            loaded(0.0), SOURCES, references, metric="chrf", folder=None if folder is None else str(folder),
            **{"held_out": (SOURCES[:3], references[:3]), "seeds": 1, "rounds": 3} | more,
        )  # fmt: skip

    def killed(found: Any, work: str) -> Any:
        for number, each in enumerate(found):
            if work == "round 2" and number == 5:
                raise KeyboardInterrupt
            yield each

    whole, folder = tuned(None), tmp_path / "folder"
    with pytest.raises(KeyboardInterrupt):
        tuned(folder, watch=killed)
    assert sorted(each.name for each in folder.iterdir()) == [
        "round-1.jsonl", "tuning.json",
    ]  # fmt: skip
    decoded: list[str] = []
    resumed = tuned(folder, watch=lambda found, work: decoded.append(work) or found)  # type: ignore[func-returns-value]
    assert resumed.rounds == whole.rounds
    assert decoded[0] == "round 2"
    assert tuned(folder, watch=lambda found, work: pytest.fail(work)).rounds == whole.rounds
    assert len(tuned(folder, rounds=2).rounds) == 2, "fewer rounds, or more, are the same tuning"
    with pytest.raises(UsageError, match=r"rounds with other settings \(seeds\)"):
        tuned(folder, seeds=2)
    for changed in ({"held_out": (SOURCES[:3], references[1:4])}, {"held_out": (SOURCES[:2], references[:2])}):
        with pytest.raises(UsageError, match=r"rounds with other settings \(sentences\)"):
            tuned(folder, **changed)
    (folder / "tuning.json").write_bytes(b"\xff")
    with pytest.raises(SgdecError, match=r"tuning\.json: expected the settings of a tuning"):
        tuned(folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UsageError, match="is not empty, and has no tuning"):
        tuned(tmp_path / "other")


Change = Callable[[list[dict[str, Any]]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(), "expected 12 lists, one on each line. Delete it: it is decoded again"),
        (lambda rows: rows[11].pop("hypotheses"), "sentence 12 has no hypotheses"),
        (lambda rows: rows[11].update(hypotheses=5), "sentence 12 has no hypotheses"),
        (lambda rows: rows.reverse(), "sentence 1: the row has the id 12"),
        (lambda rows: rows[2]["hypotheses"][1].pop("tokens"), "sentence 3, hypothesis 2: expected its tokens"),
        (lambda rows: rows[2]["hypotheses"][1].update(tokens=[[1]]), "sentence 3, hypothesis 2: expected its tokens"),
        (lambda rows: rows[2]["hypotheses"][1].update(text=5), "sentence 3, hypothesis 2: expected its tokens"),
        (lambda rows: rows[2]["hypotheses"][1].update(coverage="x"), "sentence 3, hypothesis 2: expected its tok"),
        (lambda rows: rows[2]["hypotheses"].__setitem__(0, 7), "sentence 3, hypothesis 1: expected its tokens"),
        (lambda rows: rows[2]["hypotheses"][1]["scores"].update(b=True), "sentence 3, hypothesis 2: expected its to"),
        (lambda rows: rows[2]["hypotheses"][1]["scores"].update(b=10**400), "sentence 3, hypothesis 2: expected it"),
        (lambda rows: [each["weights"].update(b=0.5) for row in rows for each in row["hypotheses"]],
         "the hypotheses have the weights {'a': 1.0, 'b': 0.5}, and this round {'a': 1.0, 'b': 0.0}. Delete"),
    ],
)  # fmt: skip
def test_damaged_lists_of_a_folder_are_one_line(
    change: Change, message: str, tmp_path: Path, references: list[str]
) -> None:
    def tuned() -> Tuned:
        return tune(loaded(0.0), SOURCES, references, metric="chrf", folder=str(tmp_path / "f"), rounds=2, seeds=1)

    first = tuned()
    file = tmp_path / "f" / "round-1.jsonl"
    whole = file.read_text("utf-8")
    rows = [json.loads(line) for line in whole.splitlines()]
    change(rows)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with pytest.raises(SgdecError) as error:
        tuned()
    assert message in str(error.value) and "\n" not in str(error.value)
    file.unlink()
    assert tuned().rounds == first.rounds and file.exists()


def test_rounds_that_change_places_are_noticed(tmp_path: Path, references: list[str]) -> None:
    folder = tmp_path / "f"
    tune(loaded(0.0), SOURCES, references, metric="chrf", folder=str(folder), rounds=3, seeds=1)
    first, second = folder / "round-1.jsonl", folder / "round-2.jsonl"
    text = first.read_text("utf-8")
    first.write_text(second.read_text("utf-8"), encoding="utf-8")
    second.write_text(text, encoding="utf-8")
    with pytest.raises(SgdecError, match=r"round-1\.jsonl: the hypotheses have the weights"):
        tune(loaded(0.0), SOURCES, references, metric="chrf", folder=str(folder), rounds=3, seeds=1)


def test_mistakes_leave_no_folder(tmp_path: Path, references: list[str]) -> None:
    for options in ({"bounds": {"c": (0.0, 1.0)}}, {"method": "grid"}, {"alphas": (float("nan"),)}):
        with pytest.raises(UsageError):
            tune(loaded(0.1), SOURCES, references, folder=str(tmp_path / "f"), **options)
    with pytest.raises(SgdecError, match="there are no sentences to tune on"):
        tune(loaded(0.1), [], [], folder=str(tmp_path / "f"))
    assert not (tmp_path / "f").exists()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not empty, and has no"):
        tune(loaded(0.1), SOURCES, references, folder=str(tmp_path / "file"))


def test_the_first_round_is_within_the_bounds(references: list[str]) -> None:
    found = tune(loaded(0.1), SOURCES, references, metric="chrf", bounds={"b": (0.5, 2.0)}, rounds=2, seeds=1)
    assert found.rounds[0].weights == {"a": 1.0, "b": 0.5}
    assert all(0.5 <= each.weights["b"] <= 2.0 for each in found.rounds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": {"c": (0.0, 1.0)}}, "bounds of 'c', which is not tuned. Available: a, b."),
        ({"bounds": {"b": (1.0, 0.0)}}, "bounds of 'b': expected LOW,HIGH with LOW at most HIGH, not (1.0, 0.0)."),
        ({"bounds": {"b": 5}}, "bounds of 'b': expected LOW,HIGH with LOW at most HIGH, not 5."),
        ({"metric": "wer"}, "metric 'wer': expected bleu, chrf, ter."),
        ({"method": "bogus"}, "method 'bogus': expected mert, mira, grid."),
        ({"rounds": 0}, "rounds 0: expected at least 1."),
        ({"seeds": 0}, "seeds 0: expected at least 1."),
        ({"alphas": "0,1"}, "alphas '0,1': expected numbers, such as (0.0, 0.5, 1.0)."),
        ({"beta": True}, "beta is tuned by the coverage of hypotheses: load the run with coverage=True."),
        ({"method": "grid"}, "method grid tries 11 values of each weight, 100,000 points at most: give bounds"),
    ],
)
def test_wrong_settings_are_one_line(options: dict[str, Any], message: str, references: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        tune(loaded(0.5), SOURCES, references, **options)
    assert message in str(raised.value)


def test_one_weight_alone_is_nothing_to_tune(references: list[str]) -> None:
    run = sgdec.load({"a": Varied(1)}, "beam", max_length=4, nbest=2)
    with pytest.raises(UsageError, match="there is nothing to tune"):
        tune(run, SOURCES, references)


def test_each_source_has_a_reference(references: list[str]) -> None:
    with pytest.raises(SgdecError, match="12 sources and 11 references: expected one for each"):
        tune(loaded(0.0), SOURCES, references[1:])


def test_optimisers_are_keyed_by_round_and_seed(monkeypatch: pytest.MonkeyPatch, references: list[str]) -> None:
    seen: list[float] = []

    def noting(lists: Any, weights: Any, bounds: Any, *, generator: np.random.Generator) -> Any:
        seen.append(generator.random())
        return weights

    monkeypatch.setattr("sgdec.tuning.tune.mert", noting)
    tune(loaded(0.0), SOURCES, references, seeds=2, rounds=2)
    assert seen == [np.random.default_rng([1, seed]).random() for seed in range(2)]


def test_alpha_is_chosen_from_its_grid() -> None:
    wanted = loaded(0.8).with_weights({}, alpha=1.0, normalize="length")
    references = [" ".join(map(str, found.best.tokens)) for found in wanted.decode(SOURCES)]
    start = loaded(0.8).with_weights({}, normalize="length")
    found = tune(start, SOURCES, references, metric="chrf", alphas=(0.0, 0.5, 1.0), seeds=1, bounds={"b": (0.8, 0.8)})
    assert found.rounds[0].options == {"alpha": 0.0}
    assert (found.best.options, found.best.development) == ({"alpha": 1.0}, pytest.approx(100.0))
    assert found.run.parts.decoder.ranking.alpha == 1.0


def test_beta_is_a_weight_of_the_coverage() -> None:
    """An output that stops early leaves the last word unread; the model alone prefers it."""

    def loaded(beta: float) -> LoadedRun:
        read = Attentive([0, 1, 2, 2, 2], strength=0.9)
        options: dict[str, Any] = {"beam": {"size": 20, "stop": "full", "beta": beta}, "wc": {"weight": 0.5}}
        return sgdec.load({"read": read, "wc": "wc"}, vocab_size=5, max_length=3, nbest=20, coverage=True, **options)

    sources = [[3, 4, 3]] * 3
    references = [" ".join(map(str, found.best.tokens)) for found in loaded(1.5).decode(sources)]
    assert all(references) and not any(found.best.tokens for found in loaded(0.0).decode(sources))
    found = tune(loaded(0.0), sources, references, metric="chrf", beta=True, seeds=1, bounds={"wc": (0.5, 0.5)})
    assert found.best.options.keys() == {"beta"}
    assert found.best.options["beta"] > 0.5 and found.best.development == pytest.approx(100.0)

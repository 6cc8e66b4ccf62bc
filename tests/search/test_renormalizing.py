"""Renormalised scores are those of the definition, in every form: s(w) - log sum of exp s(v) over what others allow.

Oracle: the definition, by recursion over the rows of each predictor alone, in float64.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path as File
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.vanilla import VanillaDecoder

import sgdec
from sgdec import BatchPredictor, Decoder, Hypothesis, Scores, Source, UsageError
from sgdec.cli.main import main
from sgdec.context import EOS
from sgdec.protocol import Candidates
from sgdec.search.checking.constellation import CheckedConstellation
from sgdec.search.combination.renormalizing import Renormalized
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.search.scheduler import Scheduler
from sgdec.tasks.scoring import GivenOutputDecoder, ScoringPair, with_given_output
from sgdec.testing import Bonus, Lattice, OnDemandTable, Table, TinySpace, tiny_spaces
from sgdec.testing.reading import read_row
from sgdec.testing.tiny_spaces import LATTICE, V
from sgdec.trace.records import Tracing
from tests.helpers.oracles import tiny
from tests.helpers.tiny_models import write_lattice

INF = math.inf


class Marked(BatchPredictor):
    """Marks what can follow: all tokens but one."""

    max_score = 0.0

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        return [3] * len(sources)

    def predict_batch(
        self, states: Sequence[int], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        allowed = np.ones((len(states), V), dtype=bool)
        allowed[np.arange(len(states)), states] = False
        return Scores.allowing(allowed)

    def consume_batch(self, states: Sequence[int], tokens: Sequence[int]) -> list[int]:
        return [3 if token == 4 else 4 for token in tokens]


def table(seed: int, forbidden: float = 0.0) -> npt.NDArray[np.float64]:
    """``[V, V]``: scores of both signs, without ``<s>``."""
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((V, V)) < forbidden, -INF, rng.normal(size=(V, V)))
    scores[:, 1] = -INF
    scores[:, EOS] = rng.normal(size=V)
    return scores


def spaces() -> dict[str, TinySpace]:
    own = [
        tiny(3, a=Table(table(1)), b=Bonus({3: -INF, 4: -0.5})),
        tiny(3, a=Table(table(2)), b=Marked()),
        tiny(3, a=Marked(), b=Table(table(2))),
        tiny(3, a=Table(table(3)), b=Table(table(4, 0.4)), c=Bonus({0: -INF}), weights=[0.5, 1.0, 0.0]),
        tiny(3, a=OnDemandTable(table(5)), b=Table(table(6, 0.4)), c=Bonus({4: -INF})),
        tiny(3, a=OnDemandTable(table(7, 0.3)), b=OnDemandTable(table(8, 0.3)), c=Lattice(LATTICE)),
        tiny(3, a=Bonus({3: 0.5, 4: -1.0}, default=-0.3), b=Bonus({0: -INF}), vocab_size=V),
        tiny(3, a=Lattice(LATTICE), b=Table(table(9, 0.4)), c=Bonus({4: -INF})),
        tiny(3, a=Table(table(10)), b=Table(table(11, 0.3)), weights=[1.0, None]),
    ]
    given = [space for space in tiny_spaces() if not space.empty and space.source.max_length is not None]
    return {f"{number}: {space.name}": space for number, space in enumerate([*own, *given])}


SPACES = spaces()


def renormalizing(
    space: TinySpace, chosen: Sequence[int], kind: type[Constellation] = Constellation
) -> Constellation:
    """The space's constellation, in which these predictors are renormalised."""
    plain = space.constellation()
    members = [
        Member(member.name, Renormalized(member.predictor) if k in chosen else member.predictor, member.weight)
        for k, member in enumerate(plain.members)
    ]
    return kind(members, vocab_size=plain.vocab_size)


Found = dict[tuple[int, ...], tuple[float, npt.NDArray[np.float64]]]
"""By the tokens of each output its total, and its scores by predictor."""


def enumerated(space: TinySpace, chosen: Sequence[int]) -> Found:
    constellation = space.constellation()
    states = [predictor.initialize_batch([space.source])[0] for predictor in constellation.predictors]
    return dict(_outputs(constellation, space.source, chosen, (), states, np.zeros(len(states))))


def _outputs(
    constellation: Constellation,
    source: Source,
    chosen: Sequence[int],
    prefix: tuple[int, ...],
    states: Sequence[Any],
    sums: npt.NDArray[np.float64],
) -> Iterator[tuple[tuple[int, ...], tuple[float, npt.NDArray[np.float64]]]]:
    weights, predictors = constellation.weights, constellation.predictors
    width = constellation.vocab_size or max(
        getattr(predictor.predict_batch([state]).values, "shape", (1, 0))[1]
        for predictor, state in zip(predictors, states, strict=True)
    ) or V
    rows = np.array([
        np.zeros(width) if weight is None else read_row(predictor.predict_batch([state]), 0, width)
        for predictor, weight, state in zip(predictors, weights, states, strict=True)
    ])  # [K, V]
    scores = rows.copy()
    for k in chosen:
        others = [other for other in range(len(rows)) if other != k]
        allowed = np.isfinite(rows[others]).all(axis=0)
        total = np.exp(rows[k, allowed]).sum()
        if weights[k] is not None and total > 0:
            scores[k] -= math.log(total)
    for token in range(width):
        if not np.isfinite(rows[:, token]).all() or (len(prefix) == source.max_length and token != EOS):
            continue
        after = sums + scores[:, token]
        if token == EOS:
            yield prefix, (sum(w * s for w, s in zip(weights, after.tolist(), strict=True) if w), after)
            continue
        then = [
            state if weight is None else predictor.consume_batch([state], [token])[0]
            for predictor, weight, state in zip(predictors, weights, states, strict=True)
        ]
        yield from _outputs(constellation, source, chosen, (*prefix, token), then, after)


def search(constellation: Constellation, source: Source, decoder: Decoder, **options: Any) -> list[Hypothesis]:
    options = {"batch_size": 1, "nbest": 1000, **options}
    sources = [Source(number + 1, source.tokens, max_length=source.max_length) for number in range(3)]
    outcomes = list(Scheduler(constellation, decoder, **options).run(sources))
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    lists = [outcome.result.hypotheses for outcome in outcomes]
    assert lists[0] == lists[1] == lists[2]
    return lists[0]


def require_equal(found: Sequence[Hypothesis], expected: Found) -> None:
    assert {each.tokens for each in found} == set(expected)
    for each in found:
        total, sums = expected[each.tokens]
        assert each.score == pytest.approx(total, abs=1e-9)
        assert each.scores == pytest.approx(sums, abs=1e-9)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


WIDE: dict[str, Callable[[], Decoder]] = {
    "beam": lambda: BeamDecoder(200, stop="length"),
    "vanilla": lambda: VanillaDecoder(200, stop="length"),
}
WAYS: dict[str, dict[str, Any]] = {
    "one by one": {},
    "batches": {"batch_size": 3},
    "traced": {"tracing": Tracing()},
    "few rows": {"batch_size": 2, "max_rows": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_each_predictor_renormalised_has_the_scores_of_the_definition(name: str) -> None:
    space = SPACES[name]
    names = range(len(space.constellation().members))
    for chosen in [[k] for k in names] + [list(names)]:
        expected = enumerated(space, chosen)
        require_equal(search(renormalizing(space, chosen), space.source, WIDE["beam"]()), expected)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", list(SPACES)[:9])
def test_it_is_the_same_in_batches_in_traces_and_with_few_rows(name: str, way: str) -> None:
    space = SPACES[name]
    found = search(renormalizing(space, [0]), space.source, WIDE["beam"](), **WAYS[way])
    require_equal(found, enumerated(space, [0]))


@pytest.mark.slow
def test_and_on_arrays() -> None:
    compared = 0
    for space in SPACES.values():
        if space.constellation().predictors[0].on_demand:
            continue
        found = search(renormalizing(space, [0]), space.source, WIDE["vanilla"](), batch_size=3)
        require_equal(found, enumerated(space, [0]))
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("decoder", [DfsDecoder, partial(AStarDecoder, heuristic="none"), AStarDecoder])
def test_exact_searches_prove_the_optimum_although_scores_have_risen(decoder: Callable[[], Decoder]) -> None:
    for name in ("0: a and b", "1: a and b", "3: a and b and c"):
        space = SPACES[name]
        every = list(range(len(space.constellation().members)))
        expected = max(total for total, _ in enumerated(space, every).values())
        constellation = renormalizing(space, every, CheckedConstellation)
        (found,) = search(constellation, space.source, decoder(), nbest=1)
        assert found.score == pytest.approx(expected)


def test_no_claim_of_the_predictor_is_passed_on() -> None:
    made = Renormalized(Lattice(LATTICE))
    claims = ("best_remaining", "worst_remaining", "relaxations", "whole", "subset", "steps", "arcs")
    assert not [claim for claim in claims if hasattr(made, claim)]
    assert made.max_score == 0.0
    constellation = Constellation([Member("a", made), Member("b", Lattice(LATTICE))])
    assert constellation.automaton is None and constellation.product is None


@pytest.mark.parametrize("name", list(SPACES)[:9])
def test_given_outputs_are_scored_as_they_are_in_a_search(name: str) -> None:
    space = SPACES[name]
    constellation = renormalizing(space, [0])
    expected = enumerated(space, [0])
    scheduler = Scheduler(with_given_output(constellation), GivenOutputDecoder(), batch_size=4)
    pairs = [ScoringPair(i + 1, (3, 4, 3), None, len(tokens), tokens) for i, tokens in enumerate(expected)]
    for outcome in scheduler.run(pairs):
        (found,) = outcome.result.hypotheses
        assert found.score == pytest.approx(expected[found.tokens][0], abs=1e-9)
        assert found.scores == pytest.approx(expected[found.tokens][1], abs=1e-9)


@pytest.mark.parametrize("decoder", [GreedyDecoder(), SampleDecoder(samples=5)])
def test_greedy_and_samples_have_these_scores(decoder: Decoder) -> None:
    for space in list(SPACES.values())[:9]:
        expected = enumerated(space, [0])
        (outcome,) = Scheduler(renormalizing(space, [0]), decoder).run([space.source])
        for each in outcome.result.hypotheses:
            assert each.score == pytest.approx(expected[each.tokens][0], abs=1e-9)


def test_without_a_size_of_the_vocabulary_it_is_refused() -> None:
    constellation = Constellation([Member("a", Renormalized(sgdec.lift(Bonus({3: 0.5}))))])
    with pytest.raises(UsageError, match=r"a\.renormalize sums over all target tokens.*--vocab-size"):
        search(constellation, Source(1, (3,), max_length=2), GreedyDecoder())


@pytest.mark.slow
def test_tensors_stay_tensors() -> None:
    torch = pytest.importorskip("torch")

    class Tensors(Marked):
        def predict_batch(
            self, states: Sequence[int], candidates: Sequence[Candidates | None] | None = None
        ) -> Scores:
            return Scores.dense(torch.from_numpy(table(12)[states]).float())

    space = tiny(3, a=Tensors(), b=Bonus({3: -INF}))
    for decoder in WIDE.values():
        require_like(search(renormalizing(space, [0]), space.source, decoder()), enumerated(space, [0]))


def require_like(found: Sequence[Hypothesis], expected: Found) -> None:
    assert {each.tokens for each in found} == set(expected)
    assert [each.score for each in found] == pytest.approx([expected[each.tokens][0] for each in found], abs=1e-5)


# The command line and the library.


RUN = [
    "--predictors", "uni=ngram,fst", "--fst.path", "{id}.fst", "--fst.use_weights", "false", "--input-format", "ids",
    "--uni.path", "lm.arpa", "--vocab-size", "8",
]  # fmt: skip


def write_unigrams(path: File, weights: dict[str, float]) -> None:
    lines = [f"{math.log10(p):.7f}\t{word}" for word, p in weights.items()]
    path.write_text("\n".join(["\\data\\", f"ngram 1={len(lines)}", "", "\\1-grams:", *lines, "", "\\end\\", ""]))


def test_commands_have_the_option_and_score_as_they_decode(
    tmp_path: File, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After <s> 3 or 4 (0.1 and 0.3); after 3 the token 4 or </s> (0.3 and 0.2); after 4 only 4, then </s>."""
    monkeypatch.chdir(tmp_path)
    write_lattice(tmp_path / "1.fst", [((3, 4), 0.5), ((3,), 1.5), ((4, 4), 2.0)])
    write_unigrams(tmp_path / "lm.arpa", {"<unk>": 0.1, "<s>": 0.1, "</s>": 0.2, "3": 0.1, "4": 0.3, "5": 0.2})
    (tmp_path / "in.ids").write_text("7 7\n")
    (tmp_path / "out.ids").write_text("3 4\n")
    outputs = {"false": ([3], 0.1 * 0.2), "true": ([4, 4], 0.3 / 0.4)}
    given = {"false": 0.1 * 0.3 * 0.2, "true": 0.1 / 0.4 * 0.3 / 0.5}
    for value in ("false", "true"):
        chosen = [*RUN, "--uni.renormalize", value, "--output-format", "jsonl"]
        assert main(["decode", *chosen, "--decoder", "dfs", "in.ids"]) == 0
        out, err = capsys.readouterr()
        (found,) = json.loads(out)["hypotheses"]
        assert (found["tokens"], found["score"]) == (outputs[value][0], pytest.approx(math.log(outputs[value][1])))
        assert f"renormalize={value}" in err
        assert main(["score", *chosen, "--target-format", "ids", "in.ids", "out.ids"]) == 0
        assert json.loads(capsys.readouterr().out)["score"] == pytest.approx(math.log(given[value]))


def test_the_option_is_true_or_false(tmp_path: File) -> None:
    write_unigrams(tmp_path / "lm.arpa", {"<unk>": 0.5, "<s>": 0.1, "</s>": 0.2})
    options = {"path": tmp_path / "lm.arpa", "renormalize": "perhaps"}
    with pytest.raises(UsageError, match=r"--ngram\.renormalize: .*normalise its scores over the tokens"):
        sgdec.load("ngram", ngram=options, vocab_size=5)

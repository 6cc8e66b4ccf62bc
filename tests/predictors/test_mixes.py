"""Mixes are what their docstrings say: against enumeration, with all kinds of parts, -inf and ties included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.contrast import Contrast
from sgdec_predictors.interpolate import Interpolate

from sgdec.context import EOS, Context
from sgdec.errors import SgdecError, UsageError
from sgdec.lifting import lift
from sgdec.mixing import Mix
from sgdec.protocol import FORBIDDEN, BatchPredictor, Scores, Source
from sgdec.search.checking.constellation import CheckedConstellation
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.search.scheduler import Scheduler
from sgdec.testing.enumeration import enumerate_space
from sgdec.testing.random_spaces import KINDS, V, random_predictor
from sgdec.testing.toys import BatchTable, Bonus, OnDemandTable, Table
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.recorded import DATA, all_cases

Parts = Mapping[str, BatchPredictor]
History = Sequence[Sequence[float]]
"""``[T, K]``: the scores of the tokens of a prefix by part; -inf from the first that a part forbids."""
SPACES = 5_000 if EXHAUSTIVE else 200


class Case(NamedTuple):
    """A mix, and what it should be: the score of each token after a prefix."""

    name: str
    mix: Mix
    expected: Callable[[History, Sequence[Sequence[float]]], list[float]]
    """Of the scores of a prefix ``[T, K]`` and those of all next tokens ``[K, V]``: the mix's scores ``[V]``."""


def log_sum(values: Sequence[float]) -> float:
    highest = max(values, default=FORBIDDEN)
    return highest if highest == FORBIDDEN else highest + math.log(sum(math.exp(v - highest) for v in values))


def log(number: float) -> float:
    return math.log(number) if number else FORBIDDEN


def entropy(row: Sequence[float]) -> float:
    total = log_sum(row)
    return math.inf if total == FORBIDDEN else -sum(math.exp(v - total) * (v - total) for v in row if v > FORBIDDEN)


def interpolated(shares: Sequence[float], scheme: str) -> Callable[..., list[float]]:
    def expected(history: History, rows: Sequence[Sequence[float]]) -> list[float]:
        logs = [log(share) for share in shares]
        if scheme == "bayesian":  # a ratio of two sums over parts
            before = [each + sum(step[k] for step in history) for k, each in enumerate(logs)]
            whole = log_sum(before)
            return [log_sum([b + row[v] for b, row in zip(before, rows, strict=True)]) - whole for v in range(V)]
        if scheme == "entropy":
            own = [each - entropy(row) for each, row in zip(logs, rows, strict=True)]
            whole = log_sum(own)
            logs = [each if each == FORBIDDEN else each - whole for each in own]
        return [log_sum([each + row[v] for each, row in zip(logs, rows, strict=True)]) for v in range(V)]

    return expected


def contrasted(weights: Sequence[float], alpha: float, normalize: bool) -> Callable[..., list[float]]:
    def expected(history: History, rows: Sequence[Sequence[float]]) -> list[float]:
        best, found = max(rows[0]), []
        for v in range(V):
            own = [row[v] for row in rows]
            plausible = not alpha or own[0] >= best + math.log(alpha)
            allowed = FORBIDDEN not in own and plausible
            found.append(sum(w * s for w, s in zip(weights, own, strict=True)) if allowed else FORBIDDEN)
        total = log_sum(found) if normalize else 0.0
        return found if total == FORBIDDEN else [v - total for v in found]

    return expected


def draw(rng: np.random.Generator, kinds: Sequence[str] = KINDS) -> tuple[str, Parts, Context]:
    chosen = rng.choice(kinds, rng.integers(2, 4)).tolist()
    coarse = bool(rng.random() < 0.5)
    parts = {name: lift(random_predictor(kind, rng, 1.0, coarse)) for name, kind in zip("abc", chosen, strict=False)}
    return "+".join(chosen), parts, Context(vocab_size=V)


def draw_case(rng: np.random.Generator, kinds: Sequence[str] = KINDS) -> Case:
    said, parts, context = draw(rng, kinds)
    if rng.random() < 0.6:
        scheme = str(rng.choice(["fixed", "bayesian", "entropy"]))
        cuts = np.floor(rng.random(len(parts)) * 5) + 1e-9
        shares = (cuts / cuts.sum()).tolist()
        mix: Mix = Interpolate(parts, tuple(shares), cast(Any, scheme), context)
        return Case(f"interpolate {scheme} {shares} {said}", mix, interpolated(shares, scheme))
    weights = tuple(float(w) for w in rng.choice([1.0, 0.5, -1.0, -0.5, 0.0], len(parts)))
    alpha, normalize = float(rng.choice([0.0, 0.3, 1.0])), bool(rng.random() < 0.5)
    mix = Contrast(parts, weights, alpha, normalize, context)
    return Case(f"contrast {weights} {alpha} {normalize} {said}", mix, contrasted(weights, alpha, normalize))


def row_of(scores: Scores) -> list[float]:
    if scores.values is not None:
        return [float(value) for value in scores.values[0]]
    return [float(scores.rows[0].get(token)) for token in range(V)]


def outputs(case: Case, source: Source) -> Iterator[tuple[tuple[int, ...], float]]:
    """All outputs with their totals, from the parts alone."""

    def walk(
        tokens: tuple[int, ...], states: Sequence[Any], history: History, total: float
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        rows = [
            [FORBIDDEN] * V if state is None else row_of(part.predict_batch([state]))
            for part, state in zip(parts, states, strict=True)
        ]
        assert source.max_length is not None
        for token, score in enumerate(case.expected(history, rows)):
            if score == FORBIDDEN or (len(tokens) == source.max_length and token != EOS):
                continue
            if token == EOS:
                yield tokens, total + score
                continue
            after = [
                None if row[token] == FORBIDDEN else part.consume_batch([state], [token])[0]
                for part, state, row in zip(parts, states, rows, strict=True)
            ]
            own = [row[token] for row in rows]
            yield from walk((*tokens, token), after, [*history, own], total + score)

    parts = list(case.mix.inner.values())
    states = [part.initialize_batch([source])[0] for part in parts]
    return walk((), states, [], 0.0)


@pytest.mark.parametrize("block", range(5))
def test_a_mix_is_its_formula(block: int) -> None:
    """All outputs and totals, by enumeration over the mix and by a wide beam; proofs where there are bounds."""
    proofs = 0
    for seed in range(block, SPACES, 5):
        rng = np.random.default_rng(seed)
        case = draw_case(rng)
        source = Source(1, (3, 4), max_length=int(rng.integers(0, 4)))
        expected = dict(outputs(case, source))
        constellation = Constellation.of({"mix": case.mix}, vocab_size=V)
        found = {path.tokens: path.total for path in enumerate_space(constellation, source)}
        assert found == pytest.approx(expected, abs=1e-9), (seed, case.name)
        outcome = next(iter(Scheduler(constellation, BeamDecoder(size=200, stop="full"), nbest=200).run([source])))
        if not expected:
            assert outcome.error is not None or not outcome.result.hypotheses, (seed, case.name)
            continue
        assert outcome.error is None, (seed, case.name, outcome.error)
        beam = {each.tokens: each.score for each in outcome.result.hypotheses}
        assert beam == pytest.approx(expected, abs=1e-9), (seed, case.name)
        exact = DfsDecoder() if seed % 2 else AStarDecoder()
        try:
            proof = next(iter(Scheduler(constellation, exact).run([source])))
        except UsageError as error:
            assert "does not declare" in str(error)
            continue
        assert proof.error is None and proof.result.proven, (seed, case.name, proof.error)
        proofs += 1
        assert proof.result.hypotheses[0].score == pytest.approx(max(expected.values()), abs=1e-9), (seed, case.name)
    assert proofs > SPACES // 40


def test_sentences_in_a_batch_beside_others_find_what_they_find_alone() -> None:
    """With a lattice beside the mix, whose tokens are its candidates, and a weight; claims are checked."""
    for seed in range(SPACES // 5):
        rng = np.random.default_rng(seed)
        case = draw_case(rng)
        others = {"lattice": lift(random_predictor("lattice", rng, 1.0, False)), "wc": lift(Bonus({}, default=0.3))}
        members = [Member("mix", case.mix, 0.7)] + [Member(name, each) for name, each in others.items()]
        constellation = CheckedConstellation(members, vocab_size=V)
        sources = [Source(n, (3,) * n, max_length=n % 4) for n in range(1, 6)]
        expected = [enumerate_space(constellation, source) for source in sources]
        decoder = BeamDecoder(size=300, stop="length")
        for size in (1, 5):
            outcomes = list(Scheduler(constellation, decoder, batch_size=size, nbest=300).run(sources))
            for paths, outcome in zip(expected, outcomes, strict=True):
                found = {each.tokens: each.score for each in outcome.result.hypotheses}
                totals = {path.tokens: path.total for path in paths}
                assert found == pytest.approx(totals, abs=1e-9), (seed, case.name)


def test_bounds_of_parts_do_not_bound_a_mixture() -> None:
    """Two experts over four steps, each certain at every second one: neither of them would pay as little."""

    class Alternating(Table):
        best_remaining = worst_remaining = state_key = None  # type: ignore[assignment]  # it lacks these abilities
        max_score = 0.0

        def __init__(self, first: bool) -> None:
            super().__init__(np.zeros((V, V)))
            self._first = first

        def predict_next(self, candidates: Any = None) -> Scores:
            length = 4 - int(self._state.left)
            certain = (length % 2 == 0) == self._first
            return Scores.dense(np.full(V, 0.0 if certain else math.log(0.001)))

    mix = Interpolate({"a": lift(Alternating(True)), "b": lift(Alternating(False))})
    assert mix.max_score == pytest.approx(0.0)
    source = Source(1, (3,), max_length=3)
    paths = [path for path in enumerate_space(Constellation.of({"mix": mix}, vocab_size=V), source)
             if len(path.tokens) == 3]  # fmt: skip
    assert paths[0].total == pytest.approx(4 * math.log(0.5 + 0.0005), abs=1e-9)
    assert paths[0].total > 2 * math.log(0.001) + 10


@pytest.mark.parametrize("scheme", ["fixed", "bayesian", "entropy"])
def test_tensors_are_mixed_as_arrays_are(scheme: Any) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    tables = [np.where(rng.random((V, V)) < 0.2, FORBIDDEN, rng.normal(size=(V, V)) - 3.0) for _ in range(2)]

    class Tensors(BatchTable):
        def predict_batch(self, states: Any, candidates: Any = None) -> Scores:
            return Scores.dense(torch.from_numpy(super().predict_batch(states).values).float())

    totals = []
    for kind in (BatchTable, Tensors):
        mixes: list[Mix] = [
            Interpolate({"a": kind(tables[0]), "b": kind(tables[1])}, (0.3, 0.7), scheme),
            Contrast({"a": kind(tables[0]), "b": BatchTable(tables[1])}, (1.0, -0.5), 0.1, True),
        ]
        spaces = [Constellation.of({"mix": mix}, vocab_size=V) for mix in mixes]
        source = Source(1, (3,), max_length=3)
        totals.append([{path.tokens: path.total for path in enumerate_space(space, source)} for space in spaces])
    for exact, single in zip(*totals, strict=True):
        assert single == pytest.approx(exact, abs=1e-4)


def test_on_demand_parts_are_asked_about_candidates_only() -> None:
    asked: list[Any] = []

    class Watched(OnDemandTable):
        def predict_next(self, candidates: Any = None) -> Scores:
            asked.append(candidates)
            return super().predict_next(candidates)

    table = np.log(np.full((V, V), 0.25))
    mix = Interpolate({"a": lift(Watched(table)), "b": BatchTable(table)})
    assert mix.on_demand
    whole = Interpolate({"a": lift(Watched(table)), "b": BatchTable(table)}, scheme="entropy")
    assert not whole.on_demand
    found = mix.predict_batch(mix.initialize_batch([Source(1, (3,))]), [[2, 3]])
    assert found.rows[0].get(3) == pytest.approx(math.log(0.25)) and asked == [[2, 3]]


def test_parts_that_need_the_number_of_tokens_say_so() -> None:
    parts = {"a": lift(Bonus({EOS: 0.5}, default=-1.0)), "b": lift(Bonus({3: 0.5}, default=-1.0))}
    mix = Interpolate(parts, scheme="entropy")
    with pytest.raises(UsageError, match=r"a\+b: the number of tokens that share a score is unknown"):
        mix.predict_batch(mix.initialize_batch([Source(1, (3,))]))


def test_parts_with_other_numbers_of_tokens_are_refused() -> None:
    mix = Interpolate({"a": BatchTable(np.zeros((V, V))), "b": BatchTable(np.zeros((V + 1, V + 1)))})
    with pytest.raises(SgdecError, match="score different numbers of tokens: a 4 and b 5"):
        mix.predict_batch(mix.initialize_batch([Source(1, (3,))]))


def test_tokens_that_share_a_score_count_as_many_as_they_are() -> None:
    """Of five tokens one is listed; and where all are listed, no other token has the default."""
    one = {"a": lift(Bonus({3: math.log(0.2)}, default=math.log(0.1))), "b": lift(Bonus({3: 0.0}, default=0.0))}
    mix = Contrast(one, (1.0, 1.0), normalize=True, context=Context(vocab_size=5))
    (row,) = mix.predict_batch(mix.initialize_batch([Source(1, (3,))])).rows
    assert row.get(3) == pytest.approx(math.log(0.2 / 0.6)) and row.default == pytest.approx(math.log(0.1 / 0.6))
    every = {name: lift(Bonus({0: -1.0, 1: -1.0, 2: -1.0, 3: -2.0}, default=9.0)) for name in "ab"}
    plausible = Contrast(every, (1.0, 0.0), plausibility=math.exp(-0.5), context=Context(vocab_size=4))
    (row,) = plausible.predict_batch(plausible.initialize_batch([Source(1, (3,))])).rows
    assert [row.get(token) for token in range(4)] == [-1.0, -1.0, -1.0, FORBIDDEN]


def test_prefixes_of_different_predictions_are_consumed_together() -> None:
    rng = np.random.default_rng(4)
    tables = [np.log(rng.dirichlet(np.ones(V), V)) for _ in range(2)]
    parts = {name: BatchTable(table) for name, table in zip("ab", tables, strict=True)}
    mix = Interpolate(parts, scheme="bayesian")
    (first,) = mix.initialize_batch([Source(1, (3,))])
    mix.predict_batch([first])
    (later,) = mix.consume_batch([first], [3])
    mix.predict_batch([later])  # the last prediction knows only this one
    together = mix.consume_batch([first, later], [2, 1])
    alone = [mix.consume_batch([state], [token])[0] for state, token in ((first, 2), (later, 1))]
    for one, other in zip(together, alone, strict=True):
        assert one.memory == pytest.approx(other.memory, abs=1e-12)


def test_a_key_needs_keys_of_all_parts_and_includes_what_is_remembered() -> None:
    table = np.log(np.full((V, V), 0.25))
    keyed = Interpolate({"a": BatchTable(table), "b": BatchTable(table + 0.1)}, scheme="bayesian")
    states = keyed.initialize_batch([Source(1, (3,))])
    after = keyed.consume_batch(states * 2, [3, 3])
    first, second = keyed.state_key(after)
    assert first == second and first != keyed.state_key(states)[0]

    class Keyless(BatchTable):
        state_key = None  # type: ignore[assignment]  # it lacks the ability

    assert Interpolate({"a": BatchTable(table), "b": Keyless(table)}).state_key is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda parts: Interpolate(parts, (0.5, 0.6)), "weights 0.5,0.6: expected numbers of at least 0 whose sum"),
        (lambda parts: Interpolate(parts, (1.5, -0.5)), "expected numbers of at least 0"),
        (lambda parts: Interpolate(parts, (1.0,)), r"interpolate: 1 weight for 2 parts \(a\+b\). Give one each."),
        (lambda parts: Contrast(parts, (1.0, 2.0, 3.0)), r"contrast: 3 weights for 2 parts \(a\+b\)"),
        (lambda parts: Contrast({"a": parts["a"]}), r"a: a mix needs several predictors"),
    ],
)
def test_wrong_weights_are_one_line(make: Callable[[Parts], Mix], message: str) -> None:
    table = BatchTable(np.zeros((V, V)))
    with pytest.raises(UsageError, match=message):
        make({"a": table, "b": table})


@pytest.mark.parametrize("scheme", ["bayesian", "bayesian_loglin"])
def test_recorded_bayesian_totals_weigh_each_token_with_its_own_probability(scheme: str) -> None:
    """As docs/from-sgnmt.md says: lambda of a token includes that token; the totals of `interpolate` are others."""
    cases = [case for case in all_cases() if case["options"].get("combination_scheme") == scheme]
    if DATA is None:
        pytest.skip("SGDEC_DATA is not set: no recorded cases")
    found = [each for case in cases for sentence in case["sentences"] for each in sentence["nbest"]]
    recorded = [each for each in found if "breakdown" in each]
    assert len(recorded) > 30
    others = []
    for each in recorded:
        logs, total, mixed = [math.log(0.6), math.log(0.4)], 0.0, 0.0
        for scores in each["breakdown"]:
            mixed += log_sum(np.add(logs, scores).tolist())
            joint = np.add(logs, scores)
            logs = (joint - log_sum(joint.tolist())).tolist()
            total += log_sum(np.add(logs, scores).tolist())
        assert total == pytest.approx(each["score"], abs=1e-12)
        others.append(abs(mixed - total))
    assert min(others) > 0.1

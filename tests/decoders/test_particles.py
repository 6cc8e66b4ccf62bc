"""`particles` draws whole outputs with weights whose sums are unbiased, whatever proposes, twists and resamples.

There are two oracles: enumeration, for the means of estimates, and a second implementation in plain loops, which must
draw the same particles with the same weights from the same random numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.particles import ParticlesDecoder, ancestors, consulted, drawn
from sgdec_decoders.sample import SampleDecoder

from sgdec import EOS, Result, Source, UsageError
from sgdec.arrays import FORBIDDEN
from sgdec.chain import UNCHAINED, Chain
from sgdec.plugins.options import configure
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.sampling import generator
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import Bonus, Lattice, Table, TinySpace, enumerate_space, tiny_spaces
from sgdec.testing.enumeration import followers
from sgdec.testing.trace_checks import require_complete, require_true
from sgdec.trace.records import Fate, Tracing
from tests.helpers.breadth import examples
from tests.helpers.oracles import leaves, open_nodes, opened, tiny

RUNS = examples(1200)
CERTAIN = 4.5
"""Standard errors; several hundred means are compared. Seeds are fixed, so a test fails always or never."""
LATTICE = Lattice(
    {
        0: {3: (0.0, 1), 4: (-0.6, 2)},
        1: {3: (0.2, 3), 4: (-0.9, 3), EOS: (-0.7, 9)},
        2: {3: (-0.1, 3), 4: (-0.2, 8)},  # nothing follows 4 4
        3: {EOS: (0.7, 9), 4: (-0.4, 4)},
        4: {EOS: (-1.0, 9)},
    }
)
RNG = np.random.default_rng(28)
TABLE = np.where(np.arange(5) < 2, FORBIDDEN, RNG.normal(-0.4, 1.0, (5, 5)))  # <unk> and <s> never follow
GUIDE = RNG.normal(-0.4, 1.0, (5, 5))
MIXED = tiny(5, [1.0, -0.5, 0.0], 5, a=LATTICE, b=Bonus({3: 0.8}, default=-0.2), guide=Table(GUIDE))
DENSE = tiny(3, [1.0, 0.7, 0.0], a=Table(TABLE), b=Table(RNG.normal(0.0, 0.6, (5, 5))), guide=Table(GUIDE))

Tokens = tuple[int, ...]


def run(space: TinySpace, seed: int = 0, nbest: int = 999, **options: Any) -> Result:
    return run_with(ParticlesDecoder(**options), space, seed, nbest)


def run_with(decoder: Any, space: TinySpace, seed: int, nbest: int = 999) -> Result:
    constellation = built(space)
    (root,) = constellation.roots([space.source])
    result: Result = decoder.decode(SearchSpace(constellation, root, seed=seed, nbest=nbest))
    return result


@cache
def built(space: TinySpace) -> Constellation:
    return space.constellation()


def target(space: TinySpace) -> dict[Tokens, float]:
    """exp(s(y)) of all hypotheses."""
    return {path.tokens: math.exp(path.total) for path in enumerate_space(space.constellation(), space.source)}


# Unbiased.

CASES: dict[str, tuple[TinySpace, dict[str, Any]]] = {
    "never resampled": (MIXED, {"threshold": 0.0}),
    "systematic": (MIXED, {"threshold": 1.0}),
    "stratified": (DENSE, {"threshold": 1.0, "resampling": "stratified"}),
    "multinomial": (MIXED, {"threshold": 1.0, "resampling": "multinomial"}),
    "sometimes": (DENSE, {"threshold": 0.7}),
    "one proposes": (MIXED, {"propose": ("a",), "threshold": 1.0}),
    "one without a weight proposes": (DENSE, {"propose": ("guide",), "threshold": 0.8}),
    "with bounds": (DENSE, {"twist": "bound", "threshold": 1.0}),
    "with another twist": (MIXED, {"twist": "guide", "threshold": 1.0, "resampling": "multinomial"}),
    "both": (DENSE, {"twist": "guide", "propose": ("b", "guide"), "threshold": 0.9}),
    "flatter": (DENSE, {"chain": Chain.parse("temperature=2"), "threshold": 1.0}),
}


def estimates(space: TinySpace, **options: Any) -> tuple[list[Tokens], Any, Any]:
    """Hypotheses, exp(s) of each, and its estimates ``[runs, hypotheses]``."""
    truth = target(space)
    found = np.zeros((RUNS, len(truth)))
    places = {tokens: at for at, tokens in enumerate(truth)}
    for seed in range(RUNS):
        for each in run(space, seed, particles=6, **options).hypotheses:
            found[seed, places[each.tokens]] = math.exp(each.log_weight or 0.0)
    return list(truth), np.array(list(truth.values())), found


def errors(truth: Any, found: Any) -> Any:
    """How many standard errors the means are away."""
    spread = np.maximum(found.std(axis=0), 1e-12) / math.sqrt(len(found))
    return (found.mean(axis=0) - truth) / spread


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_weights_of_each_hypothesis_are_unbiased(name: str) -> None:
    """So are sums of them, of Z, and of Z times any function."""
    space, options = CASES[name]
    tokens, truth, found = estimates(space, **options)
    often = (found > 0).sum(axis=0) >= 30  # of rare ones the normal approximation says nothing
    assert np.all(np.abs(errors(truth, found))[often] < CERTAIN)
    lengths = np.array(list(map(len, tokens)))
    for weights in (np.ones(len(tokens)), lengths, lengths == 2):
        off, estimate = errors(truth @ weights, found @ weights), found @ weights
        assert abs(off) < CERTAIN, (off, estimate.mean())
        assert estimate.std() / math.sqrt(RUNS) < 0.1 * (truth @ weights)  # a bias could be seen


def test_a_law_that_is_close_is_told_apart() -> None:
    """The sum of `sample`'s law is 1 less dead ends; masks make it differ from that of the target."""
    _, truth, found = estimates(MIXED, threshold=1.0)
    assert abs(errors(1.1 * truth.sum(), found.sum(axis=1))) > CERTAIN
    law = {tokens[:-1]: p for tokens, p in leaves(MIXED).items() if tokens[-1] == EOS}
    shares = np.array([law[tokens] for tokens in target(MIXED)])
    assert np.max(np.abs(shares / shares.sum() - truth / truth.sum())) > 0.05


def test_a_cut_leaves_unbiased_estimates_of_what_it_covers() -> None:
    """Of two hypotheses that a greedy proposal can reach."""
    result = run(DENSE, chain=Chain.parse("top_k=1"), particles=3)
    (found,) = result.hypotheses
    assert found.count == 3 and found.log_weight == pytest.approx(found.score)
    assert math.exp(found.log_weight or 0.0) < sum(target(DENSE).values())


# The same in plain loops.


@dataclass
class Walker:
    tokens: Tokens
    states: list[Any]
    weight: float
    twist: float = 1.0
    number: float | None = None
    lost: bool = False

    @property
    def growing(self) -> bool:
        return self.tokens[-1:] != (EOS,) and not self.lost


def reference(space: TinySpace, seed: int, given: Mapping[str, Any]) -> dict[Tokens, tuple[int, float]]:
    """By hypothesis the number of its particles and the sum of their weights."""
    made = ParticlesDecoder(**given)
    n, here = made.particles, space.constellation()
    names, weights, source = here.names, here.weights, space.source
    proposal: list[float] = []
    for name, weight in zip(names, weights, strict=True):
        if weight is None:
            proposal.append(0.0)
        elif made.propose is None:
            proposal.append(weight)
        elif name not in made.propose:
            proposal.append(0.0)
        else:
            proposal.append(1.0 if weight == 0 else weight)
    root = [predictor.initialize_batch([source])[0] for predictor in here.predictors]
    walkers = [Walker((), root, 1 / n) for _ in range(n)]
    step = 0
    while any(walker.growing for walker in walkers):
        after = []
        for number, walker in enumerate(walkers):
            if not walker.growing:
                after.append(walker)
                continue
            found = followers(here, source, walker.states, len(walker.tokens))
            if not found:
                after.append(replace(walker, lost=True, weight=0.0))
                continue
            scores = np.array([dot(proposal, each) for _, each in found])
            local = made.chain.apply(scores, walker.number)
            q = [math.exp(p) for p in local.log_probs]
            u, at = generator(seed, source.id, number, step).random() * sum(q), 0
            while sum(q[: at + 1]) <= u:
                at += 1
            token, ledger = found[int(local.places[at])]
            states = walker.states
            if token != EOS:
                asked = zip(here.predictors, states, weights, strict=True)
                states = [s if w is None else p.consume_batch([s], [token])[0] for p, s, w in asked]
            score = dot([weight or 0.0 for weight in weights], ledger)
            twist = walker.twist * math.exp(ledger[names.index(made.twist)]) if made.twist in names else 1.0
            kept = None if local.states is None else float(local.states[at])
            grown = Walker((*walker.tokens, token), states, walker.weight * math.exp(score) / q[at], twist, kept)
            if token == EOS:
                grown.twist = 1.0
            elif made.twist == "bound":
                grown.twist = math.exp(bounds(space)[grown.tokens])
            after.append(grown)
        walkers = after
        if any(walker.growing for walker in walkers):
            walkers = again(walkers, made, generator(seed, source.id, n, step))
        step += 1
    listed: dict[Tokens, tuple[int, float]] = {}
    for walker in walkers:
        if walker.tokens[-1:] == (EOS,):
            count, weight = listed.get(walker.tokens[:-1], (0, 0.0))
            listed[walker.tokens[:-1]] = count + 1, weight + walker.weight
    return listed


def again(walkers: Sequence[Walker], made: ParticlesDecoder, numbers: np.random.Generator) -> list[Walker]:
    n, v = len(walkers), [walker.weight * walker.twist for walker in walkers]
    total = sum(v)
    if total == 0 or total**2 / sum(each * each for each in v) >= made.threshold * n:
        return list(walkers)
    if made.resampling == "multinomial":
        points = [numbers.random() for _ in range(n)]
    elif made.resampling == "stratified":
        points = [(i + numbers.random()) / n for i in range(n)]
    else:
        offset = numbers.random()
        points = [(i + offset) / n for i in range(n)]
    chosen = []
    for point in points:
        at = 0
        while sum(v[: at + 1]) <= point * total:
            at += 1
        chosen.append(walkers[at])
    return [replace(walker, weight=total / n / walker.twist) for walker in chosen]


def dot(weights: Sequence[float], scores: Sequence[float]) -> float:
    return sum(weight * score for weight, score in zip(weights, scores, strict=True))


@cache
def bounds(space: TinySpace) -> dict[Tokens, float]:
    """The bounds of all unfinished prefixes under the weights of the run."""
    here = opened(space)
    return {node.tokens: bound for node in open_nodes(here) for bound in here.bound([node])}


SPACES = [*tiny_spaces(), MIXED, DENSE]
CHAINS = ["", "", "temperature=1.7", "top_k=2", "mirostat=1.2:2", "temperature=0.6+top_p=0.8"]


@pytest.mark.parametrize("case", range(examples(300)))
def test_loops_draw_the_same_particles_with_the_same_weights(case: int) -> None:
    rng = np.random.default_rng(case)
    space, seed = SPACES[case % len(SPACES)], int(rng.integers(2**40))
    constellation = built(space)
    asked = [n for n, weight in zip(constellation.names, constellation.weights, strict=True) if weight is not None]
    options: dict[str, Any] = {
        "particles": int(rng.integers(1, 13)),
        "propose": tuple(name for name in asked if rng.random() < 0.5) if rng.random() < 0.6 else None,
        "twist": rng.choice(["none", "bound", *asked]),
        "threshold": rng.choice([0.0, 0.5, 0.8, 0.97, 1.0]),
        "resampling": rng.choice(["multinomial", "stratified", "systematic"]),
        "chain": Chain.parse(rng.choice(CHAINS)),
    }
    result, expected = run(space, seed, **options), reference(space, seed, options)
    assert {each.tokens: each.count for each in result.hypotheses} == {y: n for y, (n, _) in expected.items()}
    assert [each.log_weight for each in result.hypotheses] == pytest.approx(
        [math.log(expected[each.tokens][1]) for each in result.hypotheses], abs=1e-9
    )
    assert result.drawn == options["particles"] and result.proven is None
    paths = {path.tokens: path for path in enumerate_space(constellation, space.source)}
    for each in result.hypotheses:
        assert each.score == each.rank_score == pytest.approx(paths[each.tokens].total, abs=1e-9)
        assert each.ledger == paths[each.tokens].ledger and each.log_q is None
        assert each.weights == (constellation.weights,) * len(each.ledger)
    assert [each.score for each in result.hypotheses] == sorted((h.score for h in result.hypotheses), reverse=True)


# The parts.


def test_without_resampling_the_particles_are_the_draws_of_sample() -> None:
    for space in (MIXED, DENSE):
        for chain in (UNCHAINED, Chain.parse("temperature=0.8+mirostat=1.5")):
            for seed in range(10):
                ours = run(space, seed, particles=20, threshold=0.0, chain=chain)
                theirs = run_with(SampleDecoder(samples=20, chain=chain), space, seed)
                assert [(h.tokens, h.count, h.score) for h in ours.hypotheses] == [
                    (h.tokens, h.count, h.score) for h in theirs.hypotheses
                ]
                for one, other in zip(ours.hypotheses, theirs.hypotheses, strict=True):
                    weight = other.score - (other.log_q or 0.0) + math.log((other.count or 0) / 20)
                    assert one.log_weight == pytest.approx(weight)


def test_a_draw_is_the_same_as_that_of_the_space() -> None:
    here = opened(DENSE)
    (family,) = here.distributions([here.root])
    for number in range(50):
        (theirs,) = here.draw([here.root], [number])
        assert theirs is not None
        assert theirs.node.last == family.tokens[drawn(family.log_probs, here.generator(number, 0).random())]


WEIGHTS = np.array([0.0, 0.35, 1.0, 0.0, 0.05, 0.6, 0.0])
EXPECTED = len(WEIGHTS) * WEIGHTS / WEIGHTS.sum()


@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "systematic"])
def test_a_particle_is_copied_in_proportion_to_its_weight(scheme: Any) -> None:
    runs, rng = 4000, np.random.default_rng(1)
    counts = np.array([np.bincount(ancestors(WEIGHTS, scheme, rng), minlength=7) for _ in range(runs)])
    assert np.all(counts.sum(axis=1) == 7)
    assert np.all(counts[:, WEIGHTS == 0] == 0)
    spread = counts.std(axis=0) / math.sqrt(runs) + 1e-12
    assert np.all(np.abs(counts.mean(axis=0) - EXPECTED) < 4 * spread)
    share = EXPECTED / 7
    if scheme == "multinomial":  # independent: the variance of a binomial
        assert counts.var(axis=0) == pytest.approx(7 * share * (1 - share), abs=0.08)
    elif scheme == "systematic":
        assert np.all(counts >= np.floor(EXPECTED)) and np.all(counts <= np.ceil(EXPECTED))
    else:
        assert np.all(np.abs(counts - EXPECTED) < 2) and np.any(counts < np.floor(EXPECTED))
        assert np.all(counts.var(axis=0)[EXPECTED > 1] < 7 * (share * (1 - share))[EXPECTED > 1] / 2)


@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "systematic"])
def test_the_first_and_the_last_point_meet_particles_with_weights(scheme: Any) -> None:
    """For the lowest random numbers, and the highest, which rounding brings to the end of the last interval."""

    @dataclass
    class Always:
        number: float

        def random(self, size: int | None = None) -> Any:
            return np.full(size or (), self.number)

    for n in (1, 3, 64, 1000):
        weights = np.concatenate([[0.0] * 2, np.random.default_rng(n).random(n), [0.0] * 5])
        for number in (0.0, 1.0 - 2.0**-53):
            chosen = ancestors(weights, scheme, Always(number))  # type: ignore[arg-type]
            assert 2 <= np.min(chosen) <= np.max(chosen) < n + 2


EVEN = Lattice({0: {3: (-0.7, 1), 4: (-0.7, 1)}, 1: {3: (-0.7, 2), 4: (-0.7, 2)}, 2: {EOS: (0.0, 9)}})


def test_equal_weights_need_no_resampling_and_one_particle_has_none() -> None:
    even = tiny(a=EVEN)
    never = run(even, particles=32, threshold=0.0)
    assert run(even, particles=32, threshold=1.0, resampling="multinomial") == never
    for seed in range(20):
        assert run(MIXED, seed, particles=1) == run(MIXED, seed, particles=1, threshold=1.0, twist="bound")


def test_twists_change_nothing_without_resampling_and_something_with_it() -> None:
    kept, changed = set(), set()
    for twist in ("none", "bound", "guide", "a"):
        found = [run(DENSE, seed, particles=6, twist=twist, threshold=0.0) for seed in range(15)]
        kept.add(repr(found))
        changed.add(repr([run(DENSE, seed, particles=6, twist=twist, threshold=1.0) for seed in range(15)]))
    assert (len(kept), len(changed)) == (1, 4)


TRAP = Lattice({0: {3: (0.0, 1), 4: (0.0, 2)}, 1: {3: (0.0, 3)}, 2: {3: (0.0, 4)}, 3: {EOS: (0.5, 9)}})


def test_a_bound_drops_what_leads_nowhere() -> None:
    """Particles after 4 are in a dead end two tokens later; their bound says so, and is -inf."""
    trap = tiny(a=TRAP)
    for seed in range(10):
        lost = run(trap, seed, particles=40)
        saved = run(trap, seed, particles=40, twist="bound", threshold=1.0)
        assert (lost.drawn, saved.drawn) == (40, 40)
        (one,), (other,) = lost.hypotheses, saved.hypotheses
        assert one.tokens == other.tokens == (3, 3)
        assert 0 < (one.count or 0) < 40 and other.count == 40
        assert one.log_weight == pytest.approx(other.log_weight)  # no particle was lost before both knew
        assert other.log_weight == pytest.approx(0.5 + math.log(2 * (one.count or 0) / 40))


def test_where_all_are_lost_the_list_is_empty() -> None:
    nothing = tiny(a=Lattice({0: {4: (0.0, 2), 3: (0.0, 2)}, 2: {4: (0.0, 3)}}))
    for twist in ("none", "bound", "a"):
        result = run(nothing, particles=5, twist=twist, threshold=1.0)
        assert result.hypotheses == [] and result.drawn == 5


def test_equal_prefixes_are_expanded_once() -> None:
    here = opened(DENSE, nbest=99)
    ParticlesDecoder(particles=200).decode(here)
    assert here.expansions <= 1 + 2 + 4 + 8


def test_weights_far_from_one_are_kept_in_the_log_domain() -> None:
    shifted = tiny(40, [1.0], vocab_size=6, a=Table(RNG.normal(-90.0, 3.0, (6, 6))))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        result = run(shifted, particles=8, threshold=0.7)
    assert all(math.isfinite(each.log_weight or 0.0) and (each.log_weight or 0.0) < -50 for each in result.hypotheses)


def test_the_list_has_the_best_totals() -> None:
    flat: dict[str, Any] = {"particles": 50, "threshold": 0.0, "chain": Chain.parse("temperature=4")}
    whole = run(DENSE, 4, **flat)
    assert len(whole.hypotheses) > 5
    assert run(DENSE, 4, nbest=3, **flat).hypotheses == whole.hypotheses[:3]


def test_batches_and_their_order_change_nothing() -> None:
    decoder = ParticlesDecoder(particles=6, threshold=0.9, twist="guide", propose=("a", "guide"))
    sources = [Source(number, (3, 4, 3), max_length=3) for number in range(1, 9)]

    def runs(batch_size: int, order: int) -> dict[int, Result]:
        scheduler = Scheduler(DENSE.constellation(), decoder, nbest=9, batch_size=batch_size, seed=5)
        return {outcome.source.id: outcome.result for outcome in scheduler.run(sources[::order])}

    alone = runs(1, 1)
    assert alone == runs(5, -1)
    assert len({repr(result.hypotheses) for result in alone.values()}) > 1


# Traces.


@pytest.mark.parametrize(
    "options",
    [{}, {"threshold": 1.0}, {"propose": ("guide",), "threshold": 1.0}, {"propose": ("b",), "twist": "bound"}],
    ids=str,
)
@pytest.mark.parametrize("nbest", [2, 99])
def test_a_trace_is_true_and_complete(options: dict[str, Any], nbest: int) -> None:
    dropped = set()
    for seed in range(4):
        decoder = ParticlesDecoder(particles=12, **options)
        constellation = DENSE.constellation()
        scheduler = Scheduler(constellation, decoder, nbest=nbest, seed=seed, tracing=Tracing(children=2))
        (outcome,) = scheduler.run([DENSE.source])
        assert outcome.trace is not None
        assert outcome.result == run(DENSE, seed, nbest, particles=12, **options)
        require_complete(outcome.trace, str(seed))
        paths = enumerate_space(DENSE.constellation(), DENSE.source)
        require_true(outcome.trace, outcome.result, constellation.weights, paths, Ranking(), 1e-4, str(seed))
        fates = Counter(child.fate for _, child in outcome.trace.nodes())
        assert fates[Fate.LISTED] == len(outcome.result.hypotheses)
        assert all(each.expansion is not None for each in outcome.trace.hypotheses)
        dropped.add(bool(fates["resampling"]))
    assert (options.get("threshold") == 1.0) <= (True in dropped)


def test_notes_say_where_the_particles_are() -> None:
    decoder = ParticlesDecoder(particles=9, threshold=0.0)
    scheduler = Scheduler(DENSE.constellation(), decoder, seed=2, tracing=Tracing())
    (outcome,) = scheduler.run([DENSE.source])
    assert outcome.trace is not None
    here, numbers = opened(DENSE), Counter[int]()
    for number in range(9):
        here.seed = 2
        (found,) = here.draw([here.root], [number])
        assert found is not None
        (note,) = outcome.trace.expansions[0].notes[found.node.last]
        assert str(number + 1) in note.split(" ", 1)[1].split(", ")
        assert note.startswith("particles ") == ("," in note)
        numbers[found.node.last] += 1
    all_together = Scheduler(MIXED.constellation(), ParticlesDecoder(chain=Chain.parse("top_k=1")), tracing=Tracing())
    (outcome,) = all_together.run([MIXED.source])
    assert outcome.trace is not None
    assert set(outcome.trace.expansions[0].notes.values()) == {("64 particles",)}


# Mistakes.


def test_names_are_those_of_predictors_with_a_weight() -> None:
    unasked = tiny(2, [1.0, None], 5, model=Table(TABLE), other=Bonus({}, default=0.0))
    here = opened(unasked)
    assert consulted(here, "propose", "model") == 0
    cases = {
        ("propose", "lm"): "particles: propose: there is no predictor 'lm' in this run; expected one of model.",
        ("propose", "other"): "particles: propose: predictor 'other' has no weight; expected one of model.",
        ("twist", "bounds"): "particles: twist: there is no predictor 'bounds' in this run; expected one of none, "
        "bound, model.",
    }
    for (option, name), message in cases.items():
        value: Any = (name,) if option == "propose" else name
        with pytest.raises(UsageError) as raised:
            ParticlesDecoder(**{option: value}).decode(here)
        assert str(raised.value) == message


def test_a_bound_must_be_declared_and_finite() -> None:
    class Boundless(Table):
        best_remaining = None  # type: ignore[assignment]

    class Infinite(Table):
        def best_remaining(self, states: Sequence[Any]) -> list[float]:
            return [math.inf] * len(states)

    with pytest.raises(UsageError, match="'a'"):
        run(tiny(2, a=Boundless(TABLE)), twist="bound")
    with pytest.raises(UsageError, match="twist bound needs finite bounds"):
        run(tiny(2, a=Infinite(TABLE)), twist="bound")
    run(tiny(2, a=Infinite(TABLE)), twist="bound", threshold=0.0)  # not asked for


def test_options_are_converted_and_checked() -> None:
    given = {"propose": "nmt, fst", "chain": "temperature=2", "twist": "bound", "threshold": "1"}
    made = ParticlesDecoder(**configure(ParticlesDecoder, given, name="particles"))
    assert (made.propose, str(made.chain), made.twist) == (("nmt", "fst"), "temperature=2", "bound")
    for option, value in (("particles", "0"), ("threshold", "1.5"), ("resampling", "residual")):
        with pytest.raises(UsageError, match=option):
            configure(ParticlesDecoder, {option: value}, name="particles")

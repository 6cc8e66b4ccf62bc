"""`mcmc` walks so that each hypothesis has its share of exp(total) over whole outputs.

The oracle is enumeration: the transition kernel of a walk, from the local distributions by plain recursion.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.mcmc import TRIES, McmcDecoder, Reached, acceptance

from sgdec import EOS, Node, Result, Source
from sgdec.arrays import Floats
from sgdec.chain import UNCHAINED, Chain
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import Bonus, Lattice, Table, TinySpace
from sgdec.testing.random_spaces import random_space
from sgdec.trace.records import Tracing
from tests.helpers.breadth import examples
from tests.helpers.chi_squared import critical, statistic
from tests.helpers.oracles import opened, tiny

Tokens: TypeAlias = tuple[int, ...]

LATTICE = Lattice(
    {
        0: {3: (0.0, 1), 4: (-1.2, 2)},
        1: {3: (0.2, 3), 4: (-0.9, 3), EOS: (-1.7, 9)},
        2: {3: (0.9, 3), 4: (-0.2, 8)},  # nothing follows 4 4
        3: {3: (-0.3, 4), EOS: (0.0, 9)},
        4: {EOS: (1.0, 9)},
    }
)
SPACE = tiny(None, [1.0, -0.5], 5, a=LATTICE, b=Bonus({3: 0.8}, default=-0.2))
CHAINS = list(map(Chain.parse, ["", "temperature=2", "top_k=2+temperature=0.6", "mirostat=0.9:2"]))


class Kernel:
    """The transition probabilities of one walk in a small space, of places and suffixes added up one by one."""

    def __init__(self, space: TinySpace, chain: Chain = UNCHAINED) -> None:
        here = opened(space)
        self.log_q: dict[Tokens, list[float]] = {}
        """By hypothesis, with ``</s>``, the log-probability of each of its tokens."""
        self.nodes: dict[Tokens, Node] = {}
        stack: list[tuple[Node, list[float], float | None]] = [(here.root, [], chain.start)]
        while stack:
            node, so_far, state = stack.pop()
            if node.finished:
                self.log_q[node.tokens], self.nodes[node.tokens] = so_far, node
                continue
            children = sorted(here.expand([node])[0], key=lambda child: child.last)
            if not children:
                continue
            local = chain.apply(np.array([child.total - node.total for child in children]), state)
            for place, (at, log_prob) in enumerate(zip(local.places, local.log_probs.tolist(), strict=True)):
                if log_prob > -math.inf:
                    after = None if local.states is None else float(local.states[place])
                    stack.append((children[at], [*so_far, log_prob], after))
        self.hypotheses = sorted(self.log_q)
        self.reached = [Reached(self.nodes[y], math.fsum(self.log_q[y])) for y in self.hypotheses]
        totals = np.array([each.node.total for each in self.reached])
        weights = np.exp(totals - totals.max(initial=-math.inf))
        self.pi: Floats = weights / weights.sum()
        self.begins: Floats = np.exp([each.log_q for each in self.reached])
        """The probabilities of draws from q; the others are lost."""
        self.moves = self._moves()

    def _moves(self) -> Floats:
        """``[from, to]``"""
        n = len(self.hypotheses)
        moves = np.zeros((n, n))
        for i, y in enumerate(self.hypotheses):
            for j, proposal in enumerate(self.hypotheses):
                for place in range(len(y)):
                    if proposal[:place] == y[:place]:
                        redrawn = math.exp(math.fsum(self.log_q[proposal][place:]))
                        moves[i, j] += redrawn / len(y) * acceptance(self.reached[i], self.reached[j])
        moves[np.diag_indices(n)] += 1 - moves.sum(axis=1)
        return moves

    def of(self, weights: Floats) -> dict[Tokens, float]:
        return dict(zip(self.hypotheses, weights.tolist(), strict=True))


@cache
def kernel(chain: Chain = UNCHAINED) -> Kernel:
    return Kernel(SPACE, chain)


def assert_balanced(kernel: Kernel) -> None:
    flow = kernel.pi[:, None] * kernel.moves
    np.testing.assert_allclose(flow, flow.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel.pi @ kernel.moves, kernel.pi, rtol=0, atol=1e-12)
    assert np.all(kernel.moves >= -1e-12) and np.all(kernel.moves[kernel.pi > 1e-300] <= 1 + 1e-12)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_the_target_is_stationary_and_every_move_is_as_frequent_as_its_way_back(chain: Chain) -> None:
    assert_balanced(kernel(chain))
    others = np.abs(kernel(chain).begins / kernel(chain).begins.sum() - kernel(chain).pi)
    assert others.max() > 0.02  # q is another distribution
    powers = np.linalg.matrix_power(kernel(chain).moves, 4096)
    np.testing.assert_allclose(powers, np.broadcast_to(kernel(chain).pi, powers.shape), atol=1e-9)


@settings(max_examples=examples(120))
@given(seed=st.integers(0, 2**32), chain=st.sampled_from(CHAINS))
def test_so_it_is_in_any_small_space(seed: int, chain: Chain) -> None:
    space = random_space(np.random.default_rng(seed))
    found = Kernel(space, chain)
    if found.hypotheses and len(found.hypotheses) <= 60:
        assert_balanced(found)


def opened_with(seed: int, space: TinySpace = SPACE) -> SearchSpace:
    constellation = space.constellation()
    (root,) = constellation.roots([space.source])
    return SearchSpace(constellation, root, seed=seed, nbest=99)


@cache
def walked(chain: Chain) -> list[list[Tokens]]:
    """Long walks."""
    paths = McmcDecoder(steps=examples(900), walks=20, chain=chain).walked(opened_with(3))
    return [[reached.node.tokens for reached in path] for path in paths]


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_moves_are_as_frequent_as_the_kernel_says(chain: Chain) -> None:
    """From each hypothesis by itself: given where a walk is, its next step depends on nothing before."""
    law = kernel(chain)
    moves = Counter(step for path in walked(chain) for step in pairwise(path))
    found = freedom = told_apart = 0.0
    starts = Counter(y for path in walked(chain) for y in path[:-1])
    for i, y in enumerate(law.hypotheses):
        counts = {to: moves[y, to] for to in law.hypotheses if moves[y, to]}
        row = law.of(law.moves[i])
        if starts[y] >= 50:
            one, more = statistic(counts, {to: p for to, p in row.items() if p > 0 or to in counts})
            found, freedom = found + one, freedom + more
            told_apart += statistic(counts, law.of(law.begins / law.begins.sum()))[0]
    assert freedom >= 3 and found < critical(int(freedom))
    assert told_apart > 2 * critical(int(freedom))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 16])
def test_walks_begin_with_draws_and_approach_the_target(steps: int) -> None:
    """Many short walks, which are independent, and what powers of the kernel say; dead ends are drawn again."""
    law = kernel()
    assert law.begins.sum() < 0.95
    begins = law.begins / law.begins.sum()
    after = begins @ np.linalg.matrix_power(law.moves, steps)
    near, far = (after, law.pi) if steps == 1 else (law.pi, begins)
    assert np.abs(after - near).sum() < 0.03  # less than this test sees
    ends = McmcDecoder(steps=1, burn_in=steps - 1, walks=examples(1500)).walked(opened_with(7))
    counts = Counter(path[-1].node.tokens for path in ends)
    found, freedom = statistic(counts, law.of(near))
    assert freedom >= 5 and found < critical(freedom) < statistic(counts, law.of(far))[0]
    assert steps > 1 or statistic(counts, law.of(begins))[0] > critical(freedom)


def tokens_of(decoder: McmcDecoder, seed: int = 5) -> list[list[Tokens]]:
    return [[reached.node.tokens for reached in path] for path in decoder.walked(opened_with(seed))]


def test_more_walks_contain_the_fewer_ones_and_more_steps_the_fewer_ones() -> None:
    few, walks, steps = (
        tokens_of(McmcDecoder(walks=walks, steps=steps)) for walks, steps in ((2, 30), (5, 30), (2, 70))
    )
    assert few == walks[:2] == [path[:30] for path in steps]
    assert len({tuple(path) for path in walks}) == 5
    assert tokens_of(McmcDecoder(walks=2, steps=18, burn_in=12)) == [path[12:] for path in few]


def test_each_step_draws_anew() -> None:
    """Redrawn with the numbers of another step or walk, suffixes would be those again."""
    uniform = tiny(6, vocab_size=43, a=Table([[-math.inf] * 2 + [-9.0] + [0.0] * 40] * 43))
    paths = McmcDecoder(walks=6, steps=40).walked(opened_with(2, uniform))
    last = [tokens[-3:] for path in paths for tokens in {reached.node.tokens for reached in path}]
    assert len(set(last)) > 150 and max(Counter(last).values()) < 4  # at most some steps redraw only the end


def result(seed: int = 1, space: TinySpace = SPACE, **options: object) -> Result:
    return McmcDecoder(**options).decode(opened_with(seed, space))  # type: ignore[arg-type]


def test_each_hypothesis_has_its_number_of_steps_and_its_probability() -> None:
    for chain in CHAINS:
        found = result(walks=3, steps=70, burn_in=20, chain=chain)
        counts = Counter(
            reached.node.tokens[:-1]
            for path in McmcDecoder(walks=3, steps=70, burn_in=20, chain=chain).walked(opened_with(1))
            for reached in path
        )
        assert {h.tokens: h.count for h in found.hypotheses} == counts
        assert found.drawn == sum(counts.values()) == 3 * 70
        known = {y[:-1]: math.fsum(log_q) for y, log_q in kernel(chain).log_q.items()}
        assert all(h.log_q == pytest.approx(known[h.tokens], abs=1e-12) for h in found.hypotheses)
        assert all(h.log_weight is None for h in found.hypotheses) and found.proven is None


def test_the_list_has_the_best_first_and_of_equal_ones_the_first_visited() -> None:
    totals = [h.score for h in result(steps=100).hypotheses]
    assert totals == sorted(totals, reverse=True) and len(totals) == len(kernel().hypotheses)
    equal = tiny(2, vocab_size=6, a=Table([[-9.0, -9.0, -1.0, -1.0, -1.0, -1.0]] * 6))
    found = McmcDecoder(walks=2, steps=20).decode(opened_with(4, equal)).hypotheses
    paths = McmcDecoder(walks=2, steps=20).walked(opened_with(4, equal))
    visits = [reached.node.tokens[:-1] for path in paths for reached in path]
    of_two = [h.tokens for h in found if len(h.tokens) == 2]
    assert len(of_two) > 5 and of_two == sorted(of_two, key=visits.index)


def test_one_best_token_leaves_one_hypothesis() -> None:
    """A chain that cuts restricts the target; here to what greedy finds."""
    (found,) = result(chain=Chain.parse("top_k=1")).hypotheses
    assert found.count == 200 and found.log_q == 0.0 and found.tokens == (3, 3)


def test_a_model_that_is_normalised_is_its_own_proposal() -> None:
    """Then only lengths reject: all outputs of one length are accepted."""
    rng = np.random.default_rng(3)
    table = np.log(rng.dirichlet(np.ones(3), size=5))
    rows = np.full((5, 5), -math.inf)
    rows[:, 2:] = table
    law = Kernel(tiny(3, vocab_size=5, a=Table(rows)))
    for current in law.reached:
        for proposal in law.reached:
            if current.node.length <= 3 and proposal.node.length <= 3:  # no end is forced
                expected = min(1.0, current.node.length / proposal.node.length)
                assert acceptance(current, proposal) == pytest.approx(expected)


def test_a_beginning_is_drawn_until_it_is_no_dead_end() -> None:
    """Of tokens 3 and 4 only the rare 3 goes on."""
    rare = tiny(a=Lattice({0: {3: (-2.0, 1), 4: (0.0, 2)}, 1: {EOS: (0.0, 9)}}))
    found = result(space=rare, walks=20, steps=3)
    (only,) = found.hypotheses
    assert (only.tokens, only.count, found.drawn) == ((3,), 60, 60)
    hopeless = tiny(a=Lattice({0: {3: (-300.0, 1), 4: (0.0, 2)}, 1: {EOS: (0.0, 9)}}))
    space = opened_with(1, hopeless)
    found = McmcDecoder(walks=2).decode(space)
    assert (found.hypotheses, found.drawn, space.expansions) == ([], 0, 2 * TRIES * 2)


@pytest.mark.parametrize("batch_size", [3, 8])
def test_batches_and_their_order_change_nothing(batch_size: int) -> None:
    decoder = McmcDecoder(steps=6, walks=2, chain=Chain.parse("mirostat=1.2:0.5"))
    sources = [Source(number, (3, 4, 3)) for number in range(1, 9)]

    def run(size: int, order: int) -> dict[int, Result]:
        scheduler = Scheduler(SPACE.constellation(), decoder, nbest=9, batch_size=size, seed=5)
        return {outcome.source.id: outcome.result for outcome in scheduler.run(sources[::order])}

    alone = run(1, 1)
    assert alone == run(batch_size, -1)
    assert len({tuple((h.tokens, h.count) for h in result.hypotheses) for result in alone.values()}) > 4


def test_the_walks_of_a_sentence_are_asked_about_in_one_batch() -> None:
    sizes: list[int] = []

    class Counted(SearchSpace):
        def draw(self, nodes, *rest, **more):  # type: ignore[no-untyped-def]
            sizes.append(len(nodes))
            return super().draw(nodes, *rest, **more)

    constellation = SPACE.constellation()
    (root,) = constellation.roots([SPACE.source])
    McmcDecoder(walks=7, steps=40).decode(Counted(constellation, root, nbest=9))
    assert sizes[0] == 7 and np.mean(sizes) > 5 and max(sizes) == 7


def test_a_trace_says_what_became_of_each_proposal() -> None:
    decoder = McmcDecoder(walks=2, steps=30, burn_in=10)
    scheduler = Scheduler(SPACE.constellation(), decoder, nbest=2, batch_size=1, seed=5, tracing=Tracing())
    (outcome,) = scheduler.run([SPACE.source])
    assert outcome.trace is not None
    notes: list[tuple[str, str]] = []
    fates: dict[str, str] = {}
    for expansion in outcome.trace.expansions:
        for token, fate in zip(expansion.tokens, expansion.fates, strict=True):
            for note in expansion.notes.get(token, ()):
                notes.append((note, str(fate)))
                if token == EOS:
                    fates[note] = str(fate)
    steps = Counter(note.split(" accepted")[0].split(" rejected")[0] for note, _ in notes)
    expected = {f"walk {walk}: step {step}" for walk in (1, 2) for step in range(1, 41)}
    assert steps == dict.fromkeys({*expected, "walk 1: start", "walk 2: start"}, 1)
    rejected = [note for note, _ in notes if "rejected" in note]
    assert 5 < len(rejected) < 60 and any(note.endswith("rejected, 0") for note in rejected)  # dead ends
    assert all(0 <= float(note.rpartition(", ")[2]) < 1 for note in rejected)
    assert {"listed", "outranked"} <= set(fates.values()) <= {"listed", "outranked", "rejected", "uncounted"}
    assert outcome.trace.stopped == "finished"


def test_what_no_counted_step_was_at_is_rejected_or_uncounted_in_a_trace() -> None:
    seen = set()
    for seed in range(20):
        decoder = McmcDecoder(walks=1, steps=1, burn_in=3)
        scheduler = Scheduler(SPACE.constellation(), decoder, nbest=1, batch_size=1, seed=seed, tracing=Tracing())
        (outcome,) = scheduler.run([SPACE.source])
        assert outcome.trace is not None
        for expansion in outcome.trace.expansions:
            for token, fate in zip(expansion.tokens, expansion.fates, strict=True):
                notes = expansion.notes.get(token, ())
                if token == EOS and notes:
                    seen.add(str(fate))
                    if fate == "rejected":
                        assert "rejected" in notes[-1]
                    if fate == "uncounted":
                        assert "accepted" in notes[-1] or "start" in notes[-1]
    assert seen == {"listed", "rejected", "uncounted"}

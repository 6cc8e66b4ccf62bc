"""`mcmc` visits hypotheses as often as the target says, because each step is in detailed balance with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from sgdec_decoders.mcmc import DrawnPath, McmcDecoder, acceptance

from sgdec import EOS, Node, Result
from sgdec.arrays import Floats
from sgdec.chain import UNCHAINED, Chain
from sgdec.search.space import SearchSpace
from sgdec.testing import Bonus, Lattice, Table, TinySpace, enumerate_space
from tests.helpers.breadth import examples
from tests.helpers.oracles import opened, tiny

Tokens = tuple[int, ...]

LATTICE = Lattice(
    {
        0: {3: (-0.5, 1), 4: (-2.0, 2), 5: (-1.0, 4)},
        1: {3: (-0.4, 3), 4: (-2.2, 3), EOS: (-1.0, 9)},
        2: {3: (-0.1, 3), 4: (-0.2, 3)},
        3: {EOS: (0.0, 9), 3: (-1.0, 6), 4: (-1.5, 6)},
        6: {EOS: (-0.2, 9)},
        4: {3: (-0.3, 5)},
        5: {},
    }
)
"""From state 4 on there is no way to the end."""
SPACES: dict[str, TinySpace] = {
    "dead end": tiny(3, [1.0, -0.5], 6, a=LATTICE, b=Bonus({3: 0.8}, default=-0.2)),
    "length limit": tiny(
        3, a=Table(np.log([[0.1, 0.1, 0.5, 0.3], [0.2, 0.1, 0.3, 0.4], [0.1] * 4, [0.4, 0.2, 0.3, 0.1]]))
    ),
    "not normalised": tiny(2, a=Table(np.random.default_rng(1).normal(size=(5, 5)) * 1.5)),
}
CHAINS = [UNCHAINED, Chain.parse("temperature=2"), Chain.parse("mirostat=1:0.5"), Chain.parse("top_k=2")]


def posterior(space: TinySpace) -> dict[Tokens, float]:
    paths = {path.tokens: path.total for path in enumerate_space(space.constellation(), space.source)}
    whole = np.logaddexp.reduce(list(paths.values()))
    return {tokens: math.exp(total - whole) for tokens, total in paths.items()}


def proposals(space: SearchSpace, prefix: DrawnPath, chain: Chain) -> list[tuple[DrawnPath, float]]:
    """Every end of a prefix with its log-probability; dead ends are left out."""
    (local,) = space.distributions([prefix.end], chain, [prefix.states[-1]])
    found = []
    for at, child in enumerate(local.children(range(len(local.tokens)))):
        log_prob = float(local.log_probs[at])
        longer = prefix.extended(child, log_prob, None if local.states is None else float(local.states[at]))
        ends = [(longer, 0.0)] if child.finished else proposals(space, longer, chain)
        found += [(end, log_prob + rest) for end, rest in ends]
    return found


def kernel(space: TinySpace, chain: Chain) -> tuple[list[DrawnPath], Floats]:
    """All hypotheses that q can draw, and the probabilities ``[y, y']`` of one step, by enumeration."""
    here = opened(space)
    paths = [path for path, _ in proposals(here, DrawnPath((here.root,)), chain)]
    place_of = {path.end.tokens[:-1]: place for place, path in enumerate(paths)}
    matrix = np.zeros((len(paths), len(paths)))
    for y, path in enumerate(paths):
        for place in range(path.tokens):
            stays = 1.0
            for proposal, log_prob in proposals(here, path.before(place), chain):
                moves = math.exp(log_prob) * acceptance(path, proposal)
                matrix[y, place_of[proposal.end.tokens[:-1]]] += moves / path.tokens
                stays -= moves
            matrix[y, y] += stays / path.tokens
    return paths, matrix


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("name", SPACES)
def test_each_step_is_in_detailed_balance_with_the_target(name: str, chain: Chain) -> None:
    space = SPACES[name]
    paths, matrix = kernel(space, chain)
    target = posterior(space)
    pi = np.array([target[path.end.tokens[:-1]] for path in paths])
    pi /= pi.sum()  # restricted to what the chain can draw
    flow = pi[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)
    assert (len(paths) == len(target)) == (chain in CHAINS[:2])


def decoded(space: TinySpace, seed: int = 0, nbest: int = 10_000, **options: object) -> Result:
    constellation = space.constellation()
    (root,) = constellation.roots([space.source])
    decoder = McmcDecoder(**options)  # type: ignore[arg-type]
    return decoder.decode(SearchSpace(constellation, root, seed=seed, nbest=nbest))


def counts(result: Result) -> Counter[Tokens]:
    return Counter({each.tokens: each.count or 0 for each in result.hypotheses})


def shares(result: Result) -> dict[Tokens, float]:
    return {each.tokens: (each.count or 0) / (result.drawn or 1) for each in result.hypotheses}


def variation(ours: dict[Tokens, float], theirs: dict[Tokens, float]) -> float:
    return 0.5 * sum(abs(ours.get(key, 0) - theirs.get(key, 0)) for key in ours.keys() | theirs.keys())


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS[:3:2], ids=str)
@pytest.mark.parametrize("name", SPACES)
def test_a_decoder_makes_the_steps_of_the_kernel(name: str, chain: Chain) -> None:
    """The places after one step, from each beginning as often as q says: chi-squared on their joint frequencies."""
    space, runs = SPACES[name], examples(1800)
    paths, matrix = kernel(space, chain)
    q = np.array([math.exp(path.log_q[-1]) for path in paths])
    q /= q.sum()  # a beginning in a dead end is drawn again
    places = {path.end.tokens[:-1]: place for place, path in enumerate(paths)}
    found = decoded(space, chain=chain, walks=runs, steps=1, burn_in=0)
    begun = decoded(space, chain=chain, walks=runs, steps=2, burn_in=0)
    assert found.drawn == runs and begun.drawn == 2 * runs
    for counted, law in (
        (counts(found), q @ matrix),
        (counts(begun), (q @ matrix + q @ matrix @ matrix) / 2),
    ):
        drawn = sum(counted.values())
        observed = np.array([counted[path.end.tokens[:-1]] for path in paths])
        often = law * drawn >= 5
        cells = [*zip(observed[often], law[often] * drawn, strict=True)]
        cells.append((observed[~often].sum(), max(law[~often].sum() * drawn, 1e-9)))
        statistic = sum((have - expected) ** 2 / expected for have, expected in cells)
        freedom = len(cells) - 1
        assert statistic < freedom + 4.5 * math.sqrt(2 * freedom) + 6
    assert set(places) >= {each.tokens for each in begun.hypotheses}


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS[:2], ids=str)
@pytest.mark.parametrize("name", SPACES)
def test_shares_tend_to_the_target(name: str, chain: Chain) -> None:
    space = SPACES[name]
    target, paths = posterior(space), kernel(space, chain)[0]
    reached = {path.end.tokens[:-1]: target[path.end.tokens[:-1]] for path in paths}
    whole = sum(reached.values())
    found = decoded(space, chain=chain, walks=40, steps=examples(150), burn_in=20)
    assert variation(shares(found), {tokens: p / whole for tokens, p in reached.items()}) < 0.09
    drawn = {path.end.tokens[:-1]: math.exp(path.log_q[-1]) for path in paths}
    if name != "length limit" and chain == UNCHAINED:
        assert variation(drawn, target) > 0.1  # which is not what `sample` draws
    for each in found.hypotheses:
        assert each.log_q == pytest.approx(math.log(drawn[each.tokens]))
        assert each.log_weight is None


def test_more_walks_and_more_steps_contain_the_fewer_ones() -> None:
    def visits(**options: int) -> Counter[Tokens]:
        return counts(decoded(SPACES["dead end"], seed=3, **options))

    few, walks = visits(walks=2, steps=10, burn_in=5), visits(walks=3, steps=10, burn_in=5)
    longer, begun = visits(walks=2, steps=14, burn_in=5), visits(walks=2, steps=15, burn_in=0)
    assert few < walks and walks.total() == 30
    assert few < longer and longer.total() == 28
    assert few < begun and begun.total() == 30
    assert visits(walks=2, steps=10, burn_in=5) == few
    other = decoded(SPACES["dead end"], seed=4, walks=2, steps=10, burn_in=5)
    assert {each.tokens: each.count for each in other.hypotheses} != dict(few)


def test_totals_and_order_are_those_of_the_model() -> None:
    space = SPACES["not normalised"]
    found = decoded(space, walks=4, steps=30)
    totals = {path.tokens: path.total for path in enumerate_space(space.constellation(), space.source)}
    assert [each.score for each in found.hypotheses] == sorted((h.score for h in found.hypotheses), reverse=True)
    assert all(each.score == pytest.approx(totals[each.tokens]) for each in found.hypotheses)
    assert decoded(space, walks=4, steps=30, nbest=2).hypotheses == found.hypotheses[:2]


def test_a_space_without_an_end_has_no_hypothesis() -> None:
    space = tiny(3, a=Lattice({0: {3: (0.0, 1)}, 1: {3: (0.0, 2)}, 2: {}}))
    found = decoded(space, walks=2, steps=3)
    assert (found.hypotheses, found.drawn) == ([], 6)


def test_acceptance_is_a_probability_even_of_extreme_totals() -> None:
    def path(total: float, log_q: Sequence[float]) -> DrawnPath:
        root = opened(SPACES["dead end"]).root
        node = Node(root.family, EOS, (), total, root.states)
        return DrawnPath((root,) * len(log_q) + (node,), (0.0, *log_q), (None,) * (len(log_q) + 1))

    assert acceptance(path(-1e5, [-1.0]), path(0.0, [-900.0, -1.0])) == 1.0
    assert acceptance(path(0.0, [-1.0]), path(-1e5, [-1.0])) == 0.0
    assert acceptance(path(-3.0, [-2.0]), path(-3.0, [-1.0, -2.5])) == pytest.approx(math.exp(0.5) / 2)

"""The promise of `best_children`: what a full sort of everything that can follow a beam would keep, in its order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from sgdec import Source
from sgdec.protocol import SparseRow
from sgdec.scores import DenseScores, Scores
from sgdec.search.combination.choosing import Choice
from sgdec.search.combination.columns import Column
from sgdec.search.combination.dense import DenseRows
from sgdec.search.combining import Combined
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.requests import Request, answer
from sgdec.search.space import SearchSpace
from sgdec.topk import BLOCK
from tests.helpers.breadth import examples, some
from tests.helpers.explicit_spaces import EOS, Space, random_space


class Candidate(NamedTuple):
    """What can follow a beam."""

    total: float
    place: int
    rank: int
    """Among the children of the node."""
    token: int | None

    @property
    def ends(self) -> bool:
        return self.token in (None, EOS)


def sorted_out(
    families: Sequence[list[tuple[int, float]] | None], before: list[float], choice: Choice
) -> list[tuple[int, int | None]]:
    """By a plain sort: the places of nodes, and tokens; the token is None for a finished node, which stays.

    ``families``: by node its tokens with their scores; None if it is finished.
    """
    candidates = []
    for place, (family, total) in enumerate(zip(families, before, strict=True)):
        if family is None:
            candidates.append(Candidate(total, place, 0, None))
            continue
        offers = sorted(family, key=lambda child: (-child[1], child[0]))[: choice.each]
        offers = [child for child in offers if total + child[1] >= total + offers[0][1] - choice.width]
        candidates += [Candidate(total + score, place, rank, token) for rank, (token, score) in enumerate(offers)]
    candidates.sort(key=lambda candidate: (-candidate.total, candidate.place, candidate.rank))
    kept, opened = [], 0
    for candidate in candidates:
        if (opened < choice.size) or (candidate.ends and choice.all_ends):
            kept.append((candidate.place, candidate.token))
        opened += not candidate.ends
    return kept


def random_choice(rng: np.random.Generator, largest: int) -> Choice:
    size = int(rng.integers(1, largest + 1))
    return Choice(
        size, size, float(rng.choice([math.inf, math.inf, 0.5, 2.0])), bool(rng.random() < 0.3)
    )


def random_beam(rng: np.random.Generator, space: SearchSpace) -> list[Node]:
    """Some of the nodes of one length, and some finished ones, best first."""
    beam = [space.root]
    for _ in range(int(rng.integers(3))):
        growing = [node for node in beam if not node.finished]
        found = [child for family in space.expand(growing, 4) for child in family] if growing else []
        beam = [node for node in beam if node.finished] + [child for child in found if rng.random() < 0.8]
    return sorted(beam, key=lambda node: -node.total)


def families_of(space: Space, beam: list[Node]) -> list[list[tuple[int, float]] | None]:
    """By the tables alone."""
    return [None if node.finished else space.combined(node.source.id, node.tokens) for node in beam]


def _answered(constellation: Constellation, max_rows: int, request: Request) -> object:
    (reply,) = answer(constellation.perform, [request], max_rows)
    return reply


@pytest.mark.slow
@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.parametrize("first", range(0, examples(150), 50))
def test_they_are_those_that_a_full_sort_keeps(first: int, max_rows: int | None) -> None:
    for seed in range(first, first + 50):
        rng = np.random.default_rng(seed)
        tables = random_space(seed)
        constellation = tables.constellation()
        ask = None if max_rows is None else partial(_answered, constellation, max_rows)
        for source, root in zip(tables.sources(), constellation.roots(tables.sources()), strict=True):
            space = SearchSpace(constellation, root, ask=ask)
            beam, choice = random_beam(rng, space), random_choice(rng, 5)
            expansions = space.expansions
            found = space.best_children(beam, choice.size, width=choice.width, all_ends=choice.all_ends)
            assert space.expansions - expansions == sum(not node.finished for node in beam)
            expected = sorted_out(families_of(tables, beam), [node.total for node in beam], choice)
            wanted = [
                (beam[place].tokens if token is None else (*beam[place].tokens, token)) for place, token in expected
            ]
            assert [node.tokens for node in found] == wanted, (seed, source.id, choice)
            for node in found:
                assert node.total == pytest.approx(sum(map(_weighted, *node.columns()[1:])), abs=1e-9)


def _weighted(scores: tuple[float, ...], weights: tuple[float | None, ...]) -> float:
    return sum(weight * score for score, weight in zip(scores, weights, strict=True) if weight is not None)


@pytest.mark.slow
@pytest.mark.parametrize("first", some(range(0, 200, 100)))
def test_distinct_ones_are_the_best_of_each_key(first: int) -> None:
    several = 0
    for seed in range(first, first + 100):
        rng = np.random.default_rng(seed)
        tables = random_space(seed)
        constellation = tables.constellation()
        for root in constellation.roots(tables.sources()):
            space = SearchSpace(constellation, root)
            beam, choice = random_beam(rng, space), random_choice(rng, 3)
            before = [node.total for node in beam]
            ordered = sorted_out(families_of(tables, beam), before, choice._replace(size=1000))
            growing = [node for node in beam if not node.finished]
            children = {
                child.tokens: child for family in (space.expand(growing, 4) if growing else []) for child in family
            }
            nodes = [
                beam[place] if token is None else children[(*beam[place].tokens, token)] for place, token in ordered
            ]
            first_of: dict[Hashable, Node] = {}
            for node, key in zip(nodes, space.keys(nodes), strict=True):
                several += key in first_of
                first_of.setdefault(key, node)
            wanted, opened = [], 0
            for node in first_of.values():
                if opened < choice.size or (node.finished and choice.all_ends):
                    wanted.append(node.tokens)
                opened += not node.finished
            found = space.best_children(
                beam, choice.size, width=choice.width, all_ends=choice.all_ends, distinct=True
            )
            assert [node.tokens for node in found] == wanted, (seed, choice)
    assert several > 20


def test_a_beam_of_no_size_is_refused() -> None:
    tables = random_space(0)
    constellation = tables.constellation()
    (root, *_) = constellation.roots(tables.sources())
    with pytest.raises(ValueError, match="size is 0; expected 1 or more"):
        SearchSpace(constellation, root).best_children([root], 0)


SIZES = (3, 4, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5, 12 * BLOCK)
"""Of vocabularies: with no whole block of maxima, with one, and with several and a rest."""


def combined(
    values: list[npt.NDArray[np.floating]], weights: list[float], ending: bool
) -> list[list[tuple[int, float]]]:
    """The children of each row, in float64, by plain sums."""
    rows = []
    for row in range(len(values[0])):
        family = []
        for token in range(values[0].shape[1]):
            scores = [float(each[row, token]) for each in values]
            if min(scores) > -math.inf and (token == EOS or not ending):
                total = 0.0
                for weight, score in zip(weights, scores, strict=True):
                    total += weight * score
                family.append((token, total))
        rows.append(family)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_the_best_cells_of_a_matrix_are_found_in_blocks(seed: int, as_tensor: bool) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.choice(SIZES))
    groups = np.unique(np.sort(rng.integers(0, 3, rng.integers(1, 9))), return_inverse=True)[1]
    count = len(groups)
    values, weights = [], []
    for _ in range(int(rng.integers(1, 4))):
        coarse = rng.integers(-6, int(rng.choice([1, 5])), (count, size)) * rng.choice([1.0, 0.1, 0.3])
        scores = coarse if rng.random() < 0.7 else -rng.exponential(3, (count, size))
        scores[rng.random((count, size)) < rng.choice([0.0, 0.3, 0.95])] = -math.inf
        values.append(scores.astype(rng.choice([np.float32, np.float64])))
        weights.append(float(rng.choice([1.0, 0.5, 0.7, -0.3, 0.0])))
    before = -rng.integers(0, 5, count) * float(rng.choice([1.0, 0.1, 33.3]))
    choice = random_choice(rng, 8)
    ending = (rng.random(3) < 0.2)[groups]
    columns = []
    for scores, weight in zip(values, weights, strict=True):
        answered = scores
        if as_tensor:
            torch = pytest.importorskip("torch")
            answered = torch.from_numpy(scores)
        columns.append(Column("p", DenseScores(answered), range(count), [weight] * count))
    found = DenseRows(columns, range(count), size).chosen(groups, before, choice, ending)
    expected = []
    for group in range(int(groups[-1]) + 1):
        (rows,) = np.nonzero(groups == group)
        families = combined([scores[rows] for scores in values], weights, bool(ending[rows[0]]))
        kept = sorted_out(families, before[rows].tolist(), choice)
        expected += [(int(rows[place]), token) for place, token in kept]
    assert list(zip(found.row.tolist(), found.token.tolist(), strict=True)) == expected


def test_a_sum_that_cancels_is_decided_in_float64() -> None:
    """Two scores of float32 near 3,000 whose differences are below the rounding of their sum."""
    size, fine = 4 * BLOCK, 2.0**-13
    values = np.full((1, size), 3000.0, np.float32)
    other = np.full((1, size), -3000.0, np.float32)
    wins = [7, 70, 200]
    values[0, wins] += np.float32(fine * 2)
    other[0, wins] += np.array([0.0, -2.0, 2.0], np.float32) * np.float32(fine)
    exact = values.astype(np.float64) * 0.7 + other.astype(np.float64) * 0.7
    order = np.lexsort((np.arange(size), -exact[0]))
    columns = [Column(name, DenseScores(each), range(1), [0.7]) for name, each in (("a", values), ("b", other))]
    for count in (1, 2, 3):
        found = DenseRows(columns, range(1), size).chosen(np.zeros(1, np.int64), np.zeros(1), Choice(count, count))
        assert found.token.tolist() == order[:count].tolist()


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_single_precision_that_nearly_cancel_are_decided_in_float64(seed: int) -> None:
    """The sums of float32 are wrong by more than the differences between the best ones."""
    rng, size = np.random.default_rng(seed), 200 * BLOCK  # of which few reach the second best maximum
    large = rng.uniform(2000.0, 4000.0, (1, size)).astype(np.float32)
    small = [rng.uniform(-6e-3, 0.0, (1, size)).astype(np.float32) for _ in range(3)]
    values = [large, *small, -large]
    exact = sum(each.astype(np.float64) for each in values)
    order = np.lexsort((np.arange(size), -exact[0]))
    order = order[order != EOS]
    columns = [Column("p", DenseScores(each), range(1), [1.0]) for each in values]
    found = DenseRows(columns, range(1), size).chosen(np.zeros(1, np.int64), np.zeros(1), Choice(2, 2))
    assert found.token[found.token != EOS].tolist() == order[:2].tolist()


def test_long_lists_of_tokens_are_chosen_from_by_totals() -> None:
    rng = np.random.default_rng(0)
    size, before = 500, [-1.0, -1.5, -3.0, -0.5]
    scores = rng.uniform(-3.0, 0.0, (4, size))
    tokens = [sorted(rng.choice(size, 200, replace=False).tolist()) for _ in range(4)]
    listed = [SparseRow(row, [0.0] * len(row)) for row in tokens]
    columns = [
        Column("model", DenseScores(scores), range(4), [1.0] * 4),
        Column("list", Scores(rows=listed), range(4), [1.0] * 4),
    ]
    choice = Choice(6, 6)
    for groups in ([0, 0, 0, 0], [0, 0, 1, 1]):
        found = Combined(columns, tokens, size).best_together(groups, before, choice)
        for group in set(groups):
            rows = [row for row in range(4) if groups[row] == group]
            families = [[(token, float(scores[row, token])) for token in tokens[row]] for row in rows]
            expected = sorted_out(families, [before[row] for row in rows], choice)
            kept = {(rows.index(row), token) for row in rows for token, *_ in found[row]}
            assert kept == set(expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_found_wherever_it_stands(bad: float) -> None:
    for size in SIZES:
        for token in {0, EOS, size - 1, size // 2}:
            values = np.full((3, size), -1.0)
            values[1, token] = bad
            rows = DenseRows([Column("broken", DenseScores(values), range(3), [1.0] * 3)], range(3), size)
            with pytest.raises(Exception, match="broken"):
                rows.chosen(np.zeros(3, np.int64), np.zeros(3), Choice(2, 2))


def test_listed_and_open_rows_of_one_beam_are_chosen_from_together() -> None:
    """Two nodes are restricted, two are not; ties go to the first node."""
    size = 2 * BLOCK
    open_scores = np.full((4, size), -3.0)
    open_scores[1, 9], open_scores[3, 11] = -1.0, -1.0
    listed = SparseRow([5, 9], [-0.5, -1.0])
    columns = [
        Column("open", DenseScores(open_scores), range(4), [1.0] * 4),
        Column("list", Scores(rows=[listed, listed]), [0, None, 1, None], [1.0, None, 1.0, None]),
    ]
    found = Combined(columns, [[5, 9], None, [5, 9], None], size).best_together([0] * 4, [0.0] * 4, Choice(2, 2))
    flat = sorted((-score, node, token) for node, family in enumerate(found) for token, score, _ in family)
    assert [(node, token) for _, node, token in flat][:2] == [(1, 9), (3, 11)]


def test_defaults_with_exceptions_are_part_of_the_sum() -> None:
    size = 3 * BLOCK
    scores = -np.arange(size, dtype=np.float32)[None].repeat(2, axis=0)
    listed = Scores.sparse([100], [200.0], default=0.0)
    columns = [
        Column("a", DenseScores(scores), range(2), [1.0, 1.0]),
        Column("b", listed, [0, None], [1.0, None]),
    ]
    found = DenseRows(columns, range(2), size).chosen(np.array([0, 0]), np.zeros(2), Choice(3, 3))
    assert list(zip(found.row.tolist(), found.token.tolist(), strict=True)) == [(0, 100), (0, 0), (1, 0)]
    assert found.total.tolist() == [100.0, 0.0, 0.0]


def test_a_wide_beam_makes_as_many_nodes_as_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a step grows with the beam, not with its square."""
    from tests.helpers.wide import Wide

    constellation = Wide.constellation(200)
    (root,) = constellation.roots([Source(1, (3,), max_length=9)])
    space = SearchSpace(constellation, root)
    beam = [node for node in space.best_children([root], 50) if not node.finished]
    made = 0
    children = Node.children

    def counted(*arguments: object) -> list[Node]:
        nonlocal made
        found: list[Node] = children(*arguments)  # type: ignore[arg-type]
        made += len(found)
        return found

    monkeypatch.setattr(Node, "children", counted)
    assert len([node for node in space.best_children(beam, 50) if not node.finished]) == 50
    assert made <= 100

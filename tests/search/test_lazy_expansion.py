"""The promise of lazy expansion: all children, in order, whatever is asked meanwhile; and little is kept for them."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.protocol import BatchPredictor, Candidates, Result, Scores, Source, SparseRow, State
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from tests.helpers.breadth import examples
from tests.helpers.meetings import Meeting, meetings

pytestmark = pytest.mark.slow
NODES = examples(4)
"""The nodes whose rows could be kept."""

# All children, in order.


@settings(max_examples=examples(60))
@given(meetings((5, 70, 150, 700)), st.data())
def test_children_come_in_order_whatever_is_asked_meanwhile(meeting: Meeting, data: st.DataObject) -> None:
    constellation, nodes = meeting.opened()
    space = SearchSpace(constellation, nodes[0])
    families = dict(enumerate(space.expand(nodes)))
    found: dict[int, list[tuple[int, float, tuple[float, ...]]]] = {place: [] for place in families}
    while families:
        place = data.draw(st.sampled_from(list(families)))
        wanted = data.draw(st.sampled_from((1, 63, 64, 65, 500)))
        children = list(islice(families[place], wanted))
        found[place] += [(child.last, child.total, child.steps()[-1].scores) for child in children]
        if len(children) < wanted:
            del families[place]
        if data.draw(st.booleans()):
            space.expand(nodes[:1], limit=1)
    for place, continuations in found.items():
        assert continuations == meeting.expected(place)


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_sums_that_are_rounded_in_single_precision_come_in_exact_order(seed: int, predictors: int) -> None:
    """The oracle sums in double precision what was said in single precision, which is -100 and a few last bits."""
    rng = np.random.default_rng(seed)
    rows = (np.spacing(np.float32(100)) * rng.integers(200, size=(predictors, 1500)) - 100).astype(np.float32)
    weights = rng.normal(size=predictors)
    said = {f"p{k}": Fixed(torch.from_numpy(row) if k % 2 else row) for k, row in enumerate(rows)}
    space = opened(Constellation.of(said, weights=weights.tolist()))
    totals = np.zeros(1500)
    for weight, row in zip(weights, rows, strict=True):
        totals += weight * row.astype(np.float64)
    (children,) = space.expand([space.root])
    expected = np.lexsort((np.arange(1500), -totals))
    assert [(child.last, child.total) for child in children] == list(
        zip(expected.tolist(), totals[expected].tolist(), strict=True)
    )


class Fixed(BatchPredictor):
    """The same row after every prefix; ``asked`` counts the rows."""

    def __init__(self, row: npt.NDArray[Any] | torch.Tensor) -> None:
        self._row = row
        self.asked = 0

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [None] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.asked += len(states)
        numpy = isinstance(self._row, np.ndarray)
        return Scores.dense(np.stack([self._row] * len(states)) if numpy else self._row.repeat(len(states), 1))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return list(states)


class Unsteady(Fixed):
    """As a model whose last bits depend on the batch: every answer is a little different."""

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        scores = super().predict_batch(states, candidates)
        noise = np.random.default_rng(self.asked).normal(size=scores.values.shape)  # type: ignore[union-attr]
        return Scores.dense(scores.values + 1e-3 * noise)  # type: ignore[operator]


def opened(constellation: Constellation, max_length: int | None = None) -> SearchSpace:
    (root,) = constellation.roots([Source(1, (3,), max_length=max_length)])
    return SearchSpace(constellation, root)


def test_second_answers_that_differ_lose_no_child_and_totals_never_rise() -> None:
    unsteady = Unsteady(np.linspace(0.0, -1.0, 3000))  # the noise is three times the distance of neighbours
    space = opened(Constellation.of({"a": unsteady}))
    (children,) = space.expand([space.root])
    found: list[Node] = []
    while some := list(islice(children, 100)):
        found += some
        space.expand([space.root], limit=1)
    assert sorted(child.last for child in found) == list(range(3000))
    totals = [child.total for child in found]
    assert totals == sorted(totals, reverse=True)


def test_who_reads_on_at_once_asks_once_and_who_comes_back_asks_a_few_times() -> None:
    fixed = Fixed(np.linspace(0.0, -1.0, 30_000, dtype=np.float32))
    space = opened(Constellation.of({"a": fixed}))
    (children,) = space.expand([space.root])
    assert len(list(children)) == 30_000
    assert (fixed.asked, space.expansions) == (1, 1)
    (children,) = space.expand([space.root])
    fixed.asked = 0
    for _ in range(30_000 // 50):
        assert len(list(islice(children, 50))) == 50
        space.expand([space.root], limit=1)
    assert fixed.asked == 30_000 // 50 + 3  # 64 children, 512 more, 4,608 more, the others
    assert space.expansions == 2 + 30_000 // 50


@pytest.mark.parametrize("batch_size", [1, 4])
def test_interleaved_searches_find_what_enumeration_finds(batch_size: int) -> None:
    """Families are read in turn, and ``</s>`` is the last child of each: all of them are asked about again."""
    scores = np.log(np.random.default_rng(1).dirichlet(np.ones(90)))
    worst = scores.argmin()
    scores[[EOS, worst]] = scores[[worst, EOS]]

    class InTurn(Decoder):
        def decode(self, space: SearchSpace) -> Result:
            families = space.expand(space.expand([space.root], limit=5)[0])
            finished: list[Node] = []
            while families:
                space.expand([space.root], limit=1)  # after which nothing is left of the job that made the families
                taken = [list(islice(family, 40)) for family in families]
                finished += [child for children in taken for child in children if child.finished]
                families = [family for family, children in zip(families, taken, strict=True) if children]
            return Result([space.finish(node) for node in sorted(finished, key=lambda node: -node.total)])

    constellation = Constellation.of({"a": Bounded(scores)})
    sources = [Source(i, (3,), max_length=2) for i in range(1, 7)]
    best = np.argsort(-scores)[:5].tolist()
    for outcome in Scheduler(constellation, InTurn(), batch_size=batch_size, nbest=5).run(sources):
        found = [(h.tokens, h.score) for h in outcome.result.hypotheses]
        assert found == [((token,), pytest.approx(scores[token] + scores[EOS])) for token in best]


class Bounded(Fixed):
    max_score = 0.0


# Little is kept.

V, ROW = 16_000, 16_000 * 4
"""The smallest row there is takes ROW bytes."""
Form = Literal["numpy", "torch", "sparse", "many listed", "on demand", "flat on demand"]


@pytest.fixture
def old_objects_aside() -> None:
    """What is there already need not be searched again and again; all that was collected stays aside."""
    gc.collect()
    gc.freeze()


few_objects = pytest.mark.usefixtures("old_objects_aside")


class Said(BatchPredictor):
    """Rows made again for every question. State: a number."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.on_demand = "on demand" in form  # type: ignore[misc]

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [source.id for source in sources]

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [state + token for state, token in zip(states, tokens, strict=True)]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        values = np.stack([np.random.default_rng(state).normal(size=V).astype(np.float32) for state in states])
        if self._form == "flat on demand" and candidates is not None and None not in candidates:
            flat = np.concatenate([row[list(tokens or ())] for row, tokens in zip(values, candidates, strict=True)])
            return Scores.of_candidates(candidates, flat.astype(np.float64))
        if self._form == "sparse":
            return Scores(rows=[SparseRow([5, 9], [-1.0, -2.0], -0.5) for _ in states])
        if self._form == "many listed":
            tokens = range(0, V, 2)
            return Scores(rows=[SparseRow(tokens, row[tokens].tolist()) for row in values])
        return Scores.dense(torch.from_numpy(values).clone() if self._form == "torch" else values)


MIXES: dict[str, tuple[Form, ...]] = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "a mix of both": ("torch", "numpy"),
    "with an open sparse row": ("numpy", "sparse"),
    "many candidates": ("many listed",),
    "a model over many candidates": ("torch", "many listed"),
    "on demand": ("many listed", "on demand"),
    "flat on demand": ("many listed", "flat on demand"),
    "on demand without candidates": ("numpy", "on demand"),
}


def bytes_kept(make: Callable[[SearchSpace, list[Node]], object], mix: Sequence[Form], nodes: int) -> float:
    """Bytes a node that are there because of what ``make`` returns, after one more job."""
    constellation = Constellation.of({f"p{k}": Said(form) for k, form in enumerate(mix)})
    roots = constellation.roots([Source(i, (), max_length=20) for i in range(nodes)])
    space = SearchSpace(constellation, roots[0])
    make(space, roots[:1])  # what is imported and cached
    before = tensor_bytes()
    tracemalloc.start()
    kept = make(space, roots)
    space.expand(roots[:1], limit=1)
    gc.collect()
    most = tracemalloc.get_traced_memory()[0] + tensor_bytes() - before
    tracemalloc.stop()
    del kept
    return most / nodes


def tensor_bytes() -> int:
    """Of all storages that a tensor holds, but for those that were there before the test."""
    storages = (each.untyped_storage() for each in gc.get_objects() if type(each) is torch.Tensor)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def taken(count: int) -> Callable[[SearchSpace, list[Node]], object]:
    """Iterators from which so many children were taken."""

    def make(space: SearchSpace, nodes: list[Node]) -> list[Iterator[Node]]:
        families = space.expand(nodes)
        for family in families:
            assert len(list(islice(family, count))) == count
        return families

    return make


@few_objects
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("count", [0, 64])
def test_an_open_iterator_keeps_a_block_and_no_row(mix: str, count: int) -> None:
    assert bytes_kept(taken(count), MIXES[mix], nodes=NODES) < ROW / 8


@few_objects
@pytest.mark.parametrize("mix", MIXES)
def test_where_more_is_wanted_it_keeps_a_few_times_as_much(mix: str) -> None:
    assert bytes_kept(taken(65), MIXES[mix], nodes=NODES) < ROW / 2


@few_objects
@pytest.mark.parametrize("mix", MIXES)
def test_nodes_keep_nothing_of_the_job_that_made_them(mix: str) -> None:
    lists = bytes_kept(lambda space, nodes: space.expand(nodes, limit=3), MIXES[mix], nodes=NODES)
    assert lists < ROW / 16
    some = bytes_kept(lambda space, nodes: [next(family) for family in space.expand(nodes)], MIXES[mix], nodes=NODES)
    assert some < ROW / 16
    drawn = bytes_kept(lambda space, nodes: space.sample(nodes, range(len(nodes))), MIXES[mix], nodes=NODES)
    assert drawn < ROW / 16


def test_coverage_keeps_nothing_of_the_batch_that_it_comes_from() -> None:
    class Attentive(Said):
        def attention(self, states: Sequence[State]) -> list[npt.NDArray[np.float64]]:
            return list(np.ones((len(states), 5)))

    constellation = Constellation.of({"a": Attentive("numpy")})
    nodes = constellation.roots([Source(i, (3,) * 5) for i in range(3)])
    space = SearchSpace(constellation, nodes[0], ranking=Ranking(beta=0.1))
    for child in [next(family) for family in space.expand(nodes)]:
        (row,) = child.coverage
        assert row is not None and row.base is None


@few_objects
def test_the_last_job_is_kept_for_as_long_as_somebody_may_read_on() -> None:
    constellation = Constellation.of({"a": Said("torch")})
    space = opened(constellation)
    before = tensor_bytes()
    families = space.expand([space.root])
    next(families[0])
    assert tensor_bytes() - before == ROW
    del families
    gc.collect()
    assert tensor_bytes() == before

"""With a limit and ``lazy``, children are those of the list, and each costs an object only when it is read."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.bestfirst import BestFirstDecoder
from sgdec_decoders.syncbeam import SyncBeamDecoder

from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, State, Steps
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from tests.helpers.breadth import examples
from tests.helpers.meetings import Meeting, meetings


@settings(max_examples=examples(100))
@given(meetings((5, 70, 150)), st.integers(1, 160), st.sampled_from((-math.inf, -2.0, 0.0)), st.integers(0, 160))
def test_the_children_are_those_of_the_list(meeting: Meeting, limit: int, above: float, read: int) -> None:
    constellation, nodes = meeting.opened()
    space = SearchSpace(constellation, nodes[0])
    lists = space.expand(nodes, limit, above)
    for place, children in enumerate(space.expand(nodes, limit, above, lazy=True)):
        space.expand(nodes[:1], limit=1)  # which frees the scores
        some = list(islice(children, read))
        expected = [each for each in meeting.expected(place)[:limit] if each[1] > above]
        found = [(child.last, child.total, child.steps()[-1].scores) for child in (*some, *children)]
        assert found == expected
        assert found == [(child.last, child.total, child.steps()[-1].scores) for child in lists[place]]


# Only what is read becomes a node.


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of all nodes, in the order of their creation."""
    tokens: list[int] = []
    original = Node.__init__

    def noted(self: Node, family: object, last: int, *others: object) -> None:
        tokens.append(last)
        original(self, family, last, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Node, "__init__", noted)
    return tokens


class Always(BatchPredictor):
    """The same row ``[V]`` after every prefix."""

    max_score = 0.0

    def __init__(self, row: Sequence[float]) -> None:
        self.row = np.array(row)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [None] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(np.stack([self.row] * len(states)))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return list(states)


class Wide(Always):
    """The same as an automaton."""

    restricts = True

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        raise AssertionError("an automaton is asked for its steps")

    def steps(self, state: State, tokens: Candidates | None) -> Steps:
        tokens = range(len(self.row)) if tokens is None else tokens
        return tokens, self.row[list(tokens)].tolist(), [None] * len(tokens)


def falling(vocab_size: int) -> list[float]:
    """``</s>`` is the least probable token."""
    row = -0.01 * np.arange(1.0, vocab_size + 1)
    row[2] = -40.0
    return row.tolist()


def expansions(decoder: Decoder, predictor: BatchPredictor, max_length: int = 4) -> int:
    source = Source(1, (3,), max_length=max_length)
    (outcome,) = Scheduler(Constellation.of({"a": predictor}), decoder, batch_size=1).run([source])
    assert outcome.error is None and outcome.result.hypotheses
    return outcome.result.expansions


@pytest.mark.parametrize("form", [Always, Wide])
@pytest.mark.parametrize("size", [10, 60])
def test_bestfirst_creates_two_nodes_a_slot(form: type[Always], size: int, created: list[int]) -> None:
    """The next sibling of the one that takes the slot, and its own first child."""
    expansions(BestFirstDecoder(size), form(falling(500)), max_length=4)
    positions = 6  # the root, four tokens, the end
    assert len(created) <= 2 * size * positions


@pytest.mark.parametrize("form", [Always, Wide])
@pytest.mark.parametrize("size", [5, 15])
def test_an_inner_beam_creates_its_slots_and_the_best_child_of_each(
    form: type[Always], size: int, created: list[int]
) -> None:
    decoder = SyncBeamDecoder(symbol=1, max_word_length=3, size=size, stop="full")
    number = expansions(decoder, form(falling(500)))
    assert len(created) <= 2 * number + size * size


def test_an_exact_search_creates_a_block_of_a_thousand_arcs(created: list[int]) -> None:
    number = expansions(AStarDecoder(max_expansions=50), Wide([-9.0, -9.0, -0.1, *[-3.0] * 1000]))
    assert len(created) <= 8 * number + 1


# What an iterator keeps.


def kept(make: Callable[[SearchSpace], object], predictor: BatchPredictor) -> int:
    """Bytes that are in use because of what ``make`` returns."""
    constellation = Constellation.of({"a": predictor})
    (root,) = constellation.roots([Source(1, (3,), max_length=9)])
    space = SearchSpace(constellation, root)
    make(space)  # imports and caches
    gc.collect()
    gc.freeze()  # what is there already need not be searched again
    tracemalloc.start()
    held = make(space)
    space.expand([root], limit=1)
    gc.collect()
    most = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del held
    return most


@pytest.mark.slow
def test_children_that_nobody_reads_are_kept_as_numbers() -> None:
    """Token, score and ledger of 1,000 children in float64; the row has 16,000 scores, the batch 8 rows."""

    def lazily(space: SearchSpace) -> Iterator[Node]:
        return space.expand([space.root] * 8, limit=1000, lazy=True)[5]

    def listed(space: SearchSpace) -> list[Node]:
        return space.expand([space.root] * 8, limit=1000)[5]

    predictor = Always(falling(16_000))
    assert kept(lazily, predictor) < 1000 * 3 * 8 + 10_000
    assert kept(listed, predictor) > 100_000


# Errors are raised by the call, as for a list.


@pytest.mark.parametrize("form", [Always, Wide])
@pytest.mark.parametrize(("bad", "said"), [(math.nan, "NaN"), (math.inf, "gave inf")])
def test_faults_are_found_before_a_child_is_read(form: type[Always], bad: float, said: str) -> None:
    row = falling(90)
    row[40] = bad
    constellation = Constellation.of({"a": form(row)})
    (root,) = constellation.roots([Source(1, (3,), max_length=9)])
    with pytest.raises(SgdecError, match=said):
        SearchSpace(constellation, root).expand([root], limit=80, lazy=True)


@pytest.mark.parametrize("form", [Always, Wide])
def test_an_overflow_of_the_last_child_is_found_before_one_is_read(form: type[Always]) -> None:
    constellation = Constellation.of({"a": form([-1e308, -1.7e308, *[-1.0] * 80])})
    (root,) = constellation.roots([Source(1, (3,), max_length=9)])
    space = SearchSpace(constellation, root)
    (children,) = space.expand([root], limit=82, lazy=True)
    worst = [child for child in children if child.last == 1]
    with pytest.raises(SgdecError, match="overflows at token 1:"):
        space.expand(worst, limit=82, lazy=True)

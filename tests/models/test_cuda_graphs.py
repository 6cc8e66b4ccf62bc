"""A recorded step says what the step itself says, whatever shapes come along, and nothing of what is padded shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sgdec.models import cuda_graphs
from sgdec.models.base import Memory, ModelContext, Rows, State
from sgdec.models.cuda_graphs import GraphedStep, Replay, block
from sgdec.models.gnmt import GNMT
from tests.helpers.breadth import examples

pytestmark = pytest.mark.slow

WIDTH = 6


class Tape:
    """Records without a GPU, and as strictly as one: the outputs are the same memory at every replay."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def __call__(self, work: Callable[[], tuple[State, Tensor, Tensor]]) -> Replay:
        self.recorded += 1
        outputs = work()

        def replay() -> tuple[State, Tensor, Tensor]:
            self.replayed += 1
            state, output, attention = work()
            for kept, new in zip((*outputs[0], *outputs[1:]), (*state, output, attention), strict=True):
                kept.copy_(new)
            return outputs

        return replay


def _model(seed: int = 1) -> GNMT:
    torch.manual_seed(seed)
    return GNMT(ModelContext(11, 12), layers=3, width=WIDTH, init=0.6).double().eval()


def _rows(owners: list[int], sentences: int) -> Rows:
    """As `nmt` lays them out."""
    rows_of = [[row for row, owner in enumerate(owners) if owner == b] for b in range(sentences)]
    most = max(map(len, rows_of))
    grid = torch.tensor([rows + [0] * (most - len(rows)) for rows in rows_of])
    cell = torch.tensor([owner * most + rows_of[owner].index(row) for row, owner in enumerate(owners)])
    return Rows(grid, cell)


def _inputs(model: GNMT, lengths: list[int], owners: list[int] | None, seed: int) -> tuple[Memory, State, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(3, 11, (len(lengths), max(lengths)), generator=generator)
    memory = model.encode(source, torch.tensor(lengths))
    if owners is not None:
        memory = memory._replace(rows=_rows(owners, len(lengths)))
    prefixes = len(lengths) if owners is None else len(owners)
    state = tuple(torch.randn(prefixes, WIDTH, generator=generator, dtype=torch.double) for _ in range(6))
    return memory, state, torch.randint(0, 12, (prefixes,), generator=generator)


def _assert_equal(found: tuple[State, Tensor, Tensor], wanted: tuple[State, Tensor, Tensor]) -> None:
    for one, other in zip((*found[0], *found[1:]), (*wanted[0], *wanted[1:]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(0, 4)),
        min_size=1,
        max_size=4,
    )
)
def test_padded_and_replayed_steps_are_the_step(batches: list[tuple[list[int], int]]) -> None:
    model, tape = _model(), Tape()
    graphed = GraphedStep(model.step, tape)
    with torch.inference_mode():
        for (lengths, width), again in product(batches, range(3)):
            owners = [b for b in range(len(lengths)) for _ in range(1 + (b * 7 + width) % 4)] if width else None
            inputs = _inputs(model, lengths, owners, seed=again)
            _assert_equal(graphed(*inputs), model.step(*inputs))
    assert tape.recorded >= 1
    assert tape.replayed >= 2


def test_outputs_stay_as_they_are_when_the_next_step_is_replayed() -> None:
    model = _model()
    graphed = GraphedStep(model.step, Tape())
    with torch.inference_mode():
        inputs = [_inputs(model, [3, 5], [0, 0, 1], seed) for seed in range(5)]
        kept = [graphed(*each) for each in inputs]
        for found, each in zip(kept, inputs, strict=True):
            _assert_equal(found, model.step(*each))


def test_nearby_shapes_share_one_graph() -> None:
    model, tape = _model(), Tape()
    graphed = GraphedStep(model.step, tape)
    with torch.inference_mode():
        for lengths, owners in [([3, 5], [0, 0, 1]), ([4, 9], [0, 1, 1]), ([16, 2], [0, 0, 1, 1])]:
            graphed(*_inputs(model, lengths, owners, 1))
    assert tape.recorded == 1
    assert tape.replayed == 2


def test_no_more_graphs_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "LARGEST", 2)
    model, tape = _model(), Tape()
    graphed = GraphedStep(model.step, tape)
    with torch.inference_mode():
        for length in (10, 20, 40, 10, 10):
            graphed(*_inputs(model, [length], None, 1))
    assert len(graphed._graphs) == 2
    assert tape.recorded == 1


@given(st.integers(1, 10_000))
def test_a_block_holds_what_is_padded_and_little_more(count: int) -> None:
    assert count <= block(count) < max(2 * count, count + cuda_graphs.BLOCK)
    assert block(block(count)) == block(count)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_recorded_step_is_the_step() -> None:
    model = _model().cuda()
    graphed = GraphedStep(model.step)
    with torch.inference_mode():
        for seed, owners in product(range(4), ([0, 0, 1], [0, 1, 1, 1])):
            source = torch.randint(3, 11, (2, 5), generator=torch.Generator().manual_seed(seed)).cuda()
            memory = model.encode(source, torch.tensor([5, 3]))
            rows = _rows(owners, 2)
            memory = memory._replace(rows=Rows(rows.grid.cuda(), rows.cell.cuda()))
            state = tuple(torch.full((len(owners), WIDTH), 0.1 * seed).double().cuda() for _ in range(6))
            tokens = torch.tensor(owners).cuda() + seed
            _assert_equal(graphed(memory, state, tokens), model.step(memory, state, tokens))

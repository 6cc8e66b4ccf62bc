"""The promise of the slot pool: handles give back what was put, and a slot lives as long as its handle."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdec.slots import FIRST_CAPACITY, Slot, SlotPool, Union


@given(st.lists(st.one_of(st.integers(0, 700), st.floats(0, 1)), max_size=12))
def test_whatever_is_put_and_dropped_handles_keep_their_rows(actions: list[int | float]) -> None:
    """An integer puts so many rows; a fraction drops that part of all handles."""
    pool, held, made = SlotPool(), list[tuple[Slot, int]](), 0
    for action in actions:
        if isinstance(action, int):
            numbers = torch.arange(made, made + action)
            made += action
            slots = pool.put((numbers.float(), numbers.double()[:, None].expand(action, 3)))
            held += list(zip(slots, numbers.tolist(), strict=True))
            del slots
        else:
            del held[: int(action * len(held))]
        assert pool.used == len(held)
        if held:
            some = held[::-2]
            rows, wide = pool.get([slot for slot, _ in some])
            assert rows.tolist() == [float(number) for _, number in some]
            assert wide.tolist() == [[float(number)] * 3 for _, number in some]
            del some
            assert rows.dtype == torch.float32 and wide.dtype == torch.float64


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_the_pool_is_no_larger_than_what_is_held_at_once() -> None:
    pool = SlotPool()
    for _ in range(100):
        slots = pool.put((torch.zeros(FIRST_CAPACITY // 2, 2),))
    assert len(slots) == pool.used
    assert pool.capacity == FIRST_CAPACITY


@pytest.mark.usefixtures("no_collector")
def test_a_handle_that_goes_at_any_moment_of_a_put_is_free_once() -> None:
    """The collector may end a cycle that holds handles between any two instructions; here before each of them."""
    at, instructions = 0, 1
    while at < instructions:
        pool = SlotPool()
        held = pool.put((torch.arange(FIRST_CAPACITY - 1.0),))
        cycle: list[object] = [held.pop(), held.pop()]
        cycle.append(cycle)
        del cycle
        with collecting(at) as seen:
            new = pool.put((torch.arange(1000.0, 1004.0),))  # more than are free, so the pool grows, too
        at, instructions = at + 1, len(seen)
        others = pool.put((torch.zeros(pool.capacity - pool.used),))
        numbers = [slot.number for slot in [*held, *new, *others]]
        assert sorted(numbers) == list(range(pool.capacity)), f"collected before instruction {at} of {instructions}"
        assert pool.get(held)[0].tolist() == list(range(len(held)))
        assert pool.get(new)[0].tolist() == [1000.0, 1001.0, 1002.0, 1003.0]
    assert at > 50


@contextmanager
def collecting(at: int) -> Iterator[list[int]]:
    """Runs the collector once, before the instruction ``at`` of ``sgdec.slots``; the list counts the instructions."""
    seen: list[int] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_globals["__name__"] != "sgdec.slots" or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if len(seen) == at:
                gc.collect(0)
            seen.append(frame.f_lasti)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)


def test_a_put_that_fails_loses_no_slots() -> None:
    pool = SlotPool()
    held = pool.put((torch.zeros(3, 2),))
    with pytest.raises((RuntimeError, ValueError)):
        pool.put((torch.zeros(5, 9),))
    assert pool.used == len(held) == 3


def test_nothing_put_or_asked_for_is_nothing() -> None:
    pool = SlotPool()
    assert pool.put((torch.zeros(0, 2),)) == []
    held = pool.put((torch.zeros(3, 2),))
    assert pool.put((torch.zeros(0, 2),)) == [] and pool.used == len(held)
    assert pool.get([])[0].shape == (0, 2)


def test_rows_that_would_keep_their_computation_alive_are_refused() -> None:
    pool, layer = SlotPool(), torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="inference_mode"):
        pool.put((torch.zeros(1), layer(torch.zeros(1, 2))))
    assert pool.used == 0
    with torch.inference_mode():
        assert len(pool.put((torch.zeros(1), layer(torch.zeros(1, 2))))) == 1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=5))
def test_with_heads_first_rows_are_the_same(sizes: list[int]) -> None:
    plain, by_head = SlotPool(), SlotPool(lambda tensor: True)
    held: list[tuple[Slot, Slot]] = []
    for number, size in enumerate(sizes):
        rows = torch.randn(size, 3, 2) + number
        held += zip(plain.put((rows,)), by_head.put((rows.transpose(0, 1),)), strict=True)
    assert plain.used == by_head.used == len(held)
    asked = held[::-3]
    (expected,), (found,) = plain.get([slot for slot, _ in asked]), by_head.get([slot for _, slot in asked])
    assert torch.equal(found.transpose(0, 1), expected) and found[0].is_contiguous()


@given(st.data())
def test_a_union_has_each_slot_of_a_sentence_once(data: st.DataObject) -> None:
    known = [Slot(number, []) for number in range(9)]
    trail = st.lists(st.sampled_from(known), unique=True).map(tuple)
    trails = data.draw(st.lists(st.lists(trail, min_size=1, max_size=4), min_size=1, max_size=4))
    if not any(own for each in trails for own in each):
        return
    most = max(map(len, trails))
    room = data.draw(st.sampled_from([0, most]))
    union = Union.of(trails, room=room)
    sentences, _, width = union.seen.shape
    assert len(union.slots) == sentences * width and sentences == len(trails)
    for number, own in enumerate(trails):
        slots = union.slots[number * width : (number + 1) * width]
        different = len({slot for each in own for slot in each})
        assert len(set(slots[:different])) == different
        for place, each in enumerate(own):
            seen = union.seen[number, place, : width - room]
            assert [slot for slot, there in zip(slots, seen, strict=False) if there] == [
                slot for slot in slots[:different] if slot in each
            ]
            assert union.seen[number, place].sum() == len(each) + bool(room)
    assert width == room + max(len({slot for each in own for slot in each}) for own in trails)
    assert not room or (union.seen[:, :, width - room :] == np.eye(room, dtype=bool)).all()

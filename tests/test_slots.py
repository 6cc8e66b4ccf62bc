"""The promise of the slot pool: handles give back what was put, and a slot lives as long as its handle."""

from __future__ import annotations

import gc

import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdec.slots import FIRST_CAPACITY, Slot, SlotPool


@given(st.lists(st.one_of(st.integers(1, 700), st.floats(0, 1)), max_size=12))
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


def test_the_pool_is_no_larger_than_what_is_held_at_once() -> None:
    pool = SlotPool()
    gc.disable()  # slots are free without the help of the collector
    try:
        for _ in range(100):
            slots = pool.put((torch.zeros(FIRST_CAPACITY // 2, 2),))
    finally:
        gc.enable()
    assert len(slots) == pool.used
    assert pool.capacity == FIRST_CAPACITY

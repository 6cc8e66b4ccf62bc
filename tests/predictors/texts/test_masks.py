"""The promise: a row of a mask says of every token what its bit says, and lists few tokens where it can."""

from __future__ import annotations

import numpy as np
import pytest
from sgdec_predictors.texts.masks import MaskRows


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("size", [5, 64, 1000, 1001, 4096])
def test_rows_list_what_is_allowed_or_what_is_not(size: int, share: float) -> None:
    bits = np.random.default_rng(size).random(size) < share
    padded = np.concatenate([np.ones(32, bool), bits, np.zeros(-(size + 32) % 32, bool)])
    row = MaskRows(size, first_byte=4).of(np.packbits(padded, bitorder="little").tobytes())
    assert row.filled(size).tolist() == np.where(bits, 0.0, -np.inf).tolist()
    assert len(row) <= max(64, size / 8, size - bits.sum())


def test_rows_are_shared_and_kept_within_their_room() -> None:
    rows = MaskRows(64, first_byte=0, room=4000)
    masks = [number.to_bytes(8, "little") for number in range(1, 500)]
    assert rows.of(masks[0]) is rows.of(bytes(masks[0]))
    for number, mask in enumerate(masks, 1):
        assert len(rows.of(mask)) == number.bit_count()
        assert sum(len(mask) + 16 * len(row) for mask, row in rows._kept.items()) <= 4000

"""Seeds derived from other numbers."""

from __future__ import annotations

import numpy as np


def hash_seed(seed: int, other: int) -> int:
    """A 63-bit seed derived from ``seed`` and a step or rank; consecutive numbers give unrelated seeds.

    >>> hash_seed(1, 2) == hash_seed(1, 2), hash_seed(1, 2) == hash_seed(2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence((seed, other)).generate_state(1, np.uint64)[0] >> np.uint64(1))

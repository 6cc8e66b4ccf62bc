"""A look-up of many integer keys at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sgdec.arrays import Ints


class Keyed:
    """Rows of numbers by key.

    >>> table = Keyed({7: (0.5, 1.0), 3: (0.25, 2.0)}, width=2)
    >>> place, there = table.find(np.array([3, 4]))
    >>> there.tolist(), table.values[place[there]].tolist()
    ([True, False], [[0.25, 2.0]])
    """

    def __init__(self, values: Mapping[int, tuple[float, ...]], width: int) -> None:
        """``values``: by key, which is below 2^63 - 1, ``width`` numbers."""
        keys = sorted(values)
        self._keys = np.array([*keys, np.iinfo(np.int64).max], np.int64)
        """``[n + 1]``, ascending; the last one is above all others, so every key has a place."""
        self.values = np.array([*(values[key] for key in keys), (0.0,) * width])
        """``[n + 1, width]``, in the order of the keys."""

    def find(self, keys: Ints) -> tuple[Ints, np.ndarray]:
        """The place of each key in `values`, and whether the key is there: ``[m]``, ``[m]``."""
        place = self._keys.searchsorted(keys)
        return place, self._keys[place] == keys

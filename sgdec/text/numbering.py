"""The token numbers of models that other tools made.

Here the tokens 0, 1 and 2 are `UNK`, `BOS` and `EOS`; other models give these roles to other ids, give one id several
roles, or lack a role. A `Numbering` is the smallest change that helps: a permutation of the model's ids with at most
three ids added.

1. An id that has a role gets the number of that role. If it has several, ``</s>`` comes before ``<s>``, and ``<s>``
   before ``<unk>``.
2. A role that no id has keeps its number, which is *reserved*: no token of the model has it, and it scores -inf.
3. Other ids keep their numbers. Those below 3, whose numbers are taken, get the numbers that roles have left, in
   ascending order, and after these V, V + 1, ... for V ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sgdec.arrays import Ints
from sgdec.context import BOS, EOS, UNK

RESERVED = -1
"""In place of a model's id: no token of the model has this number."""


@dataclass(frozen=True, eq=False)
class Numbering:
    """The numbers of a model's ids.

    >>> t5 = Numbering.of(6, unk=2, bos=None, eos=[1])  # pad </s> <unk> a b c
    >>> t5.ids.tolist(), t5.numbers.tolist()
    ([2, -1, 1, 3, 4, 5, 0], [6, 2, 0, 3, 4, 5])
    """

    ids: Ints
    """``[size]``: the model's id of each number; RESERVED = none."""
    ends: tuple[int, ...]
    """The model's ids that end a text; the first has the number `EOS`."""

    @classmethod
    def of(cls, rows: int, *, unk: int | None, bos: int | None, eos: Sequence[int]) -> Numbering:
        """The numbering of a model with the ids 0 to ``rows - 1``.

        Raises ValueError if no id ends a text, or a role's id is not one of these.
        """
        if not eos:
            raise ValueError("no id ends a text")
        roles: dict[int, int] = {}
        for id, number in ((eos[0], EOS), (bos, BOS), (unk, UNK)):
            if id is not None:
                roles.setdefault(id, number)
        for id in (*roles, *eos):
            if not 0 <= id < rows:
                raise ValueError(f"id {id} has a role, but there are only {rows} ids")
        displaced = [id for id in range(min(3, rows)) if id not in roles]
        left = sorted(id for id in roles if id > EOS)  # never more than are displaced
        after = max(rows, 3)
        ids = np.full(after + len(displaced) - len(left), RESERVED, np.int64)
        ids[3:rows] = np.arange(3, rows)
        ids[list(roles.values())] = list(roles)
        ids[[*left, *range(after, len(ids))]] = displaced
        return cls(ids, tuple(dict.fromkeys(eos)))

    @property
    def size(self) -> int:
        return len(self.ids)

    @cached_property
    def numbers(self) -> Ints:
        """``[V]``: the number of each of the model's ids."""
        used = self.ids >= 0
        found = np.zeros(int(used.sum()), np.int64)
        found[self.ids[used]] = used.nonzero()[0]
        return found

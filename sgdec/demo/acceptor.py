"""The minimal deterministic acceptor of a finite language, without pynini."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from sgdec.io.openfst_writing import openfst_bytes

Tokens = tuple[int, ...]
Continue = Callable[[Hashable], Iterable[tuple[Tokens, Hashable]]]
"""For each place of a network the strings, empty ones too, that lead from it to other places; no way leads back."""
END = None
"""The place where sequences end."""


@dataclass(frozen=True)
class Acceptor:
    """A minimal, deterministic and acyclic acceptor, without weights. State 0 is the start."""

    states: tuple[tuple[bool, tuple[tuple[int, int], ...]], ...]
    """For each state: whether a sequence can end there, and its arcs sorted by token: token, and a later state."""

    def count(self) -> int:
        """The number of sequences that it accepts."""
        counts = [0] * len(self.states)
        for state in reversed(range(len(self.states))):
            final, arcs = self.states[state]
            counts[state] = final + sum(counts[target] for _, target in arcs)
        return counts[0]

    def openfst(self) -> bytes:
        """The content of an OpenFst file."""
        return openfst_bytes([
            (0.0 if final else inf, [(token, token, 0.0, target) for token, target in arcs])
            for final, arcs in self.states
        ])  # fmt: skip


def minimal_acceptor(start: Hashable, leads: Continue) -> Acceptor:
    """The acceptor of all sequences on the ways from a place to `END`.

    A state of the deterministic acceptor is the set of ways that are still possible, each the rest of a string and
    the place where it leads. States are numbered from the last to the first, and those with equal ends and equal arcs
    are one, which makes an acyclic acceptor minimal.
    """
    Ways = frozenset[tuple[Tokens, Hashable]]
    numbers: dict[Ways, int] = {}
    states: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}

    def begun(string: Tokens, place: Hashable) -> Iterator[tuple[Tokens, Hashable]]:
        if string or place is END:
            yield string, place
        else:
            for following, target in leads(place):
                yield from begun(following, target)

    def number(ways: Ways) -> int:
        if ways not in numbers:
            by_token = defaultdict[int, set[tuple[Tokens, Hashable]]](set)
            for string, place in ways:
                if string:
                    by_token[string[0]].update(begun(string[1:], place))
            arcs = tuple((token, number(frozenset(by_token[token]))) for token in sorted(by_token))
            numbers[ways] = states.setdefault((((), END) in ways, arcs), len(states))
        return numbers[ways]

    number(frozenset(begun((), start)))
    last = len(states) - 1  # the start, because targets are numbered before
    return Acceptor(tuple(
        (final, tuple((token, last - target) for token, target in arcs)) for final, arcs in reversed(states)
    ))  # fmt: skip

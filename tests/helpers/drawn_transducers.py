"""Transducers as plain values, whose paths are listed one by one: the oracle of those who walk or build them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgdec import EOS, UNK
from sgdec.io.transducer import OTHERWISE, UNK_LABEL, TransducerArc, write_transducer

Paths = Iterator[tuple[float, tuple[int, ...]]]


class Drawn:
    """A transducer as its arcs by state, with final costs; input epsilons only lead to later states."""

    def __init__(self, arcs: dict[int, list[TransducerArc]], final: dict[int, float]) -> None:
        self.arcs = arcs
        self.final = final

    def write(self, path: str) -> str:
        write_transducer(path, ((state, arc) for state, arcs in self.arcs.items() for arc in arcs), self.final)
        return path

    def paths(self, tokens: Sequence[int], state: int = 0, barred: frozenset[int] = frozenset()) -> Paths:
        """Score and inner tokens of each path that reads just these tokens."""
        if not tokens and state in self.final and EOS not in barred:
            yield -self.final[state], ()
        own = self.arcs.get(state, [])
        read_here = frozenset(arc.input for arc in own) | ({EOS} if state in self.final else set())
        following = tokens[0] if tokens else EOS
        for arc in own:
            if arc.input == 0:
                further = self.paths(tokens, arc.target, barred)
            elif arc.input == OTHERWISE:
                further = (
                    self.paths(tokens, arc.target, barred | read_here) if following not in read_here else iter(())
                )
            elif tokens and arc.input == (tokens[0] or UNK_LABEL) and tokens[0] not in barred:
                further = self.paths(tokens[1:], arc.target)
            else:
                continue
            written = () if arc.output == 0 else (UNK if arc.output == UNK_LABEL else arc.output,)
            for score, rest in further:
                yield score - arc.cost, written + rest

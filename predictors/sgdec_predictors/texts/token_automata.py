"""An automaton over bytes as one over the tokens of a vocabulary.

A state is a pair: where the text is in the automaton, and where it is in the spelling of the vocabulary
(`sgdec_predictors.texts.spelling`). The tokens that can follow a state are found by walking its bytes along a prefix
tree of all tokens at once, so tokens that begin alike cost their common bytes once. A pair from which the vocabulary
spells no way to the end is dead, although the text could continue. Rows, and how many tokens are missing to the end,
are computed when a search first needs them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from sgdec.arcs import DEAD, Automaton, spread
from sgdec.arrays import MORE, Ints
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec_predictors.texts.byte_automata import FAR, ByteAutomaton, distances
from sgdec_predictors.texts.spelling import Piece, Spelling

ENDED = -2
"""The state after ``</s>``."""
TOGETHER = 256
"""The most states whose tokens are found together; a number between much memory and many calls."""
ARCS_TOGETHER = 1 << 22
"""The most arcs that are found together, at 8 bytes for each of some ten numbers."""
MOST_ARCS, MOST_PAIRS = 1 << 27, 1 << 24
"""The most arcs that are followed to find the ways to the end, which takes half a minute; and those between
different states, which are kept for that time, at 24 bytes."""
KEPT = 1 << 24
"""The arcs of all rows that are kept."""
PROBES = 64
"""The number of short tokens that are tried first from states in which a text cannot end."""
UNKNOWN = -1


class TokenWays(NamedTuple):
    """The arcs of one state: ascending tokens ``[n]``, and the states after them ``[n]``."""

    tokens: Ints
    after: Ints


class VocabularyTree:
    """The tokens by their bytes, in one state of the spelling. Node 0 is the root; children are consecutive."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """``pieces [V]``: the bytes of each token; None = it has no text."""
        listed = sorted((piece, token) for token, piece in enumerate(pieces) if piece is not None)
        lengths = np.array([len(piece) for piece, _ in listed], np.int64)
        starts = np.cumsum(lengths) - lengths
        letters = np.frombuffer(b"".join(piece for piece, _ in listed), np.uint8)
        node, nodes = np.zeros(len(listed), np.int64), 1
        parents, byte = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        depth, longer = 0, np.flatnonzero(lengths)
        while len(longer):
            column, parent = letters[starts[longer] + depth].astype(np.int64), node[longer]
            is_new = np.append(True, (column[1:] != column[:-1]) | (parent[1:] != parent[:-1]))
            """Whether a token is the first one with its prefix."""
            parents.append(parent[is_new])
            byte.append(column[is_new])
            node[longer] = nodes + np.cumsum(is_new) - 1
            nodes += int(is_new.sum())
            depth += 1
            longer = longer[lengths[longer] > depth]
        self.byte = np.concatenate(byte)
        self.children: Ints = np.bincount(np.concatenate(parents)[1:], minlength=nodes)
        self.first_child: Ints = 1 + np.cumsum(self.children) - self.children
        order = np.argsort(node, kind="stable")
        self.tokens = np.array([token for _, token in listed], np.int64)[order]
        """The tokens, node after node."""
        self.count: Ints = np.bincount(node, minlength=nodes)
        self.first_token: Ints = np.cumsum(self.count) - self.count

    def walk(self, table: npt.NDArray[np.integer[Any]], states: Ints) -> tuple[Ints, Ints, Ints]:
        """All tokens that can be read from these states ``[n]``: place of the state, token, state after it; ``[m]``.

        ``table [S, 256]``: the next states; `DEAD` = none.
        """
        found = []
        place, node, at = np.arange(len(states)), np.zeros(len(states), np.int64), states
        while len(node):
            count = self.count[node]
            _, tokens = spread(self.first_token[node], count)
            found.append((place.repeat(count), self.tokens[tokens], at.repeat(count)))
            count = self.children[node]
            _, node = spread(self.first_child[node], count)
            at = table[at.repeat(count), self.byte[node]].astype(np.int64)
            alive = at != DEAD
            place, node, at = place.repeat(count)[alive], node[alive], at[alive]
        places, tokens, after = map(np.concatenate, zip(*found, strict=True))
        return places, tokens, after


TREES: WeakKeyDictionary[Spelling, tuple[Sequence[VocabularyTree], Sequence[VocabularyTree]]] = WeakKeyDictionary()
"""For each spelling in use, and each of its states, trees of all tokens, and of a few of the shortest ones."""


def _known_trees(spelling: Spelling) -> tuple[Sequence[VocabularyTree], Sequence[VocabularyTree]]:
    found = TREES.get(spelling)
    if found is None:
        short = []
        for pieces in spelling.adds:
            lengths = np.array([MORE if piece is None else len(piece) for piece in pieces])
            chosen = set(np.argsort(lengths, kind="stable")[:PROBES].tolist())
            short.append(VocabularyTree([piece if i in chosen else None for i, piece in enumerate(pieces)]))
        found = TREES[spelling] = [VocabularyTree(pieces) for pieces in spelling.adds], short
    return found


class TokenAutomaton:
    """The outputs whose text is in a language. State 0 is the empty output.

    >>> from sgdec_predictors.texts.regexes import compile_regexes
    >>> from sgdec.vocabularies import SPECIAL, WordVocabulary
    >>> words = Spelling.of(WordVocabulary([*SPECIAL, "no", "yes", "please"]))
    >>> automaton = TokenAutomaton(compile_regexes(["(yes|no)( please)?"])[0], words)
    >>> automaton.ways(0).tokens.tolist(), automaton.ways(automaton.after(0, 4)).tokens.tolist()
    ([3, 4], [2, 5])
    """

    def __init__(self, letters: ByteAutomaton, spelling: Spelling, left: Ints | None = None) -> None:
        """``left``: `left` of the same automaton, if it has been computed before."""
        self.letters = letters
        self.spelling = spelling
        self._rows: OrderedDict[int, TokenWays] = OrderedDict()
        self._arcs = 0
        self._followed = 0
        """The arcs that were followed to find the ways to the end."""
        self._together = max(1, min(TOGETHER, ARCS_TOGETHER // spelling.size))
        ends = letters.ends.repeat(spelling.states)
        self.left: Ints = np.where(ends, 1, UNKNOWN).astype(np.int64) if left is None else left
        """``[states]``: what is known of `missing`; `UNKNOWN` = nothing."""

    @property
    def states(self) -> int:
        """The number of pairs of a state of the text and a state of the spelling."""
        return self.letters.states * self.spelling.states

    @property
    def is_empty(self) -> bool:
        """Whether the vocabulary spells no text of the language."""
        return self.least == FAR

    @property
    def least(self) -> int:
        """The least number of tokens of an output, ``</s>`` included; `FAR` = there is none."""
        return int(self.missing(np.zeros(1, np.int64))[0]) if self.states else FAR

    def missing(self, states: Ints) -> Ints:
        """``[n]``: the least number of tokens from states ``[n]`` to the end, ``</s>`` included; `FAR` = no way.

        Raises SgdecError if that would take too long.
        """
        unknown = states[self.left[states] == UNKNOWN]
        if len(unknown):
            self._find_ways_out(np.unique(unknown))
        return self.left[states]

    def ways(self, state: int) -> TokenWays:
        """The tokens that can follow a state, with those only that lead to an end."""
        if state < 0:
            return NOWHERE
        found = self._rows.get(state)
        if found is None:
            self.prepare([state])
            return self._rows[state]
        self._rows.move_to_end(state)
        return found

    def after(self, state: int, token: int) -> int:
        """The state after one token; `DEAD` if it cannot follow."""
        if state < 0:
            return DEAD
        at, spelled = divmod(state, self.spelling.states)
        if token == EOS:
            return ENDED if self.letters.ends[at] else DEAD
        piece = self.spelling.adds[spelled][token] if 0 <= token < self.spelling.size else None
        at = DEAD if piece is None else self.letters.after(at, piece)
        if at == DEAD:
            return DEAD
        after = at * self.spelling.states + int(self.spelling.after[spelled, token])
        left = int(self.left[after])
        if left == UNKNOWN:
            left = int(self.missing(np.array([after]))[0])
        return after if left < FAR else DEAD

    def prepare(self, states: Sequence[int]) -> None:
        """Find the ways of these states together, which takes less time than one by one."""
        missing = np.array([state for state in dict.fromkeys(states) if state >= 0 and state not in self._rows])
        for start in range(0, len(missing), self._together):
            chosen = missing[start : start + self._together]
            place, tokens, after = self._walk(chosen)
            leads_on = self.missing(after) < FAR
            place, tokens, after = place[leads_on], tokens[leads_on], after[leads_on]
            order = np.lexsort((tokens, place))
            bounds = place[order].searchsorted(np.arange(len(chosen) + 1))
            for i, state in enumerate(chosen.tolist()):
                arcs = order[bounds[i] : bounds[i + 1]]
                self._keep(state, TokenWays(tokens[arcs], after[arcs]))

    def whole(self, most: int) -> Automaton | None:
        """The states that prefixes reach, with their arcs, of score 0; None if there are more than ``most`` arcs."""
        found: dict[int, TokenWays] = {}
        frontier, arcs = [0], 0
        while frontier and arcs <= most:
            for start in range(0, len(frontier), self._together):
                chosen = frontier[start : start + self._together]
                self.prepare(chosen)
                found.update((state, self.ways(state)) for state in chosen)
            arcs += sum(len(found[state].tokens) for state in frontier)
            reached = np.unique(np.concatenate([found[state].after for state in frontier]))
            frontier = [state for state in reached.tolist() if state >= 0 and state not in found]
        if frontier:
            return None
        rows = [found.get(state, NOWHERE) for state in range(self.states)]
        offsets = np.cumsum([0, *(len(row.tokens) for row in rows)])
        tokens, after = (np.concatenate([row[part] for row in rows]) for part in range(2))
        return Automaton(offsets, tokens, np.zeros(len(tokens)), after)

    def _keep(self, state: int, ways: TokenWays) -> None:
        if self.letters.ends[state // self.spelling.states]:
            ways = TokenWays(np.append(EOS, ways.tokens), np.append(ENDED, ways.after))
        self._rows[state] = ways
        self._arcs += len(ways.tokens)
        while self._arcs > KEPT and len(self._rows) > TOGETHER:
            self._arcs -= len(self._rows.popitem(last=False)[1].tokens)

    def _walk(self, states: Ints, trees: Sequence[VocabularyTree] | None = None) -> tuple[Ints, Ints, Ints]:
        """The tokens with text after these states: the place of the state, the token, the state after it."""
        at, spelled = np.divmod(states, self.spelling.states)
        found = []
        for kind in np.unique(spelled).tolist():
            (chosen,) = (spelled == kind).nonzero()
            place, tokens, after = (trees or self._trees)[kind].walk(self.letters.table, at[chosen])
            found.append((chosen[place], tokens, after * self.spelling.states + self.spelling.after[kind, tokens]))
        places, tokens, after = map(np.concatenate, zip(*found, strict=True))
        return places, tokens, after

    @property
    def _trees(self) -> Sequence[VocabularyTree]:
        return _known_trees(self.spelling)[0]

    @property
    def _short(self) -> Sequence[VocabularyTree]:
        return _known_trees(self.spelling)[1]

    def _find_ways_out(self, frontier: Ints) -> None:
        """Set `left` for these states, which are unknown, and for all unknown ones that can be reached from them.

        Raises SgdecError if that are too many.
        """
        seen, pairs = self.left != UNKNOWN, 0
        arcs = [np.zeros(0, np.int64)]
        while len(frontier):
            seen[frontier] = True
            reached = [np.zeros(0, np.int64)]
            for start in range(0, len(frontier), self._together):
                chosen = frontier[start : start + self._together]
                place, _, after = self._walk(chosen, self._short)
                self.left[chosen[place[self.left[after] == 1]]] = 2  # not 1, because no text ends there
                chosen = chosen[self.left[chosen] == UNKNOWN]
                if not len(chosen):
                    continue
                place, _, after = self._walk(chosen)
                arcs.append(np.unique(chosen[place] * self.states + after))
                reached.append(np.unique(after))
                self._followed += len(place)
                pairs += len(arcs[-1])
                if self._followed > MOST_ARCS or pairs > MOST_PAIRS:
                    raise SgdecError(
                        f"{self.letters.states:,} states of text are too many for a vocabulary of "
                        f"{self.spelling.size:,} tokens, which would be followed from each of them. Give smaller "
                        "numbers of repetitions, or fewer words."
                    )
            frontier = np.unique(np.concatenate(reached))
            frontier = frontier[~seen[frontier]]
        origins, targets = np.divmod(np.concatenate(arcs), self.states)
        found = distances(origins, targets, np.where(self.left == UNKNOWN, FAR, self.left))
        self.left[seen] = found[seen]


NOWHERE = TokenWays(np.zeros(0, np.int64), np.zeros(0, np.int64))

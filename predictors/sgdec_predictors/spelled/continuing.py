"""The probabilities of given continuations of covered prefixes: of bytes w after a text x, P(x w...) / P(x...).

A token sequence that covers x w either has its last token beyond the end of w, so it is in the subtree of the trie at
w, or it has a token that ends inside of w. The first are one sum for each element of the prefix. The second are
elements of their own, whose scores the inner predictor has to give, so few of them are followed: those with at least
``min_share`` of the probability of x, and no more than ``width`` that end at the same byte. If nothing covers x w so
far, those are followed that have this share of the text up to their end; and at last the best of what was left out.

All pairs of an element and a continuation go through the trie together, one byte after the other; a second round is
for the elements that end inside of continuations, and so on. Whether an element is followed into w depends on no
other continuation but by ``width``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.spelled.continued import ContinuedPrefix, LeftOut
from sgdec_predictors.spelled.covering import Element, after_byte, masses, ranges
from sgdec_predictors.spelled.leading import LeaderTexts
from sgdec_predictors.spelled.trie import SpellingTrie, log_sums, log_sums_by_place
from sgdec_predictors.wrapping.inner_tokens import InnerPrefix


class Continuing:
    """Sums over the sequences that cover continuations."""

    def __init__(
        self,
        trie: SpellingTrie,
        texts: LeaderTexts,
        read: Callable[[Sequence[Sequence[Element]]], list[list[Element]]],
        width: int,
        least: float,
        canonical: bool,
    ) -> None:
        """``read``: gives the elements of prefixes their values. ``width``, 0 = no limit, and ``least``, the log of a
        share: which elements are followed of those that end at the same byte inside of continuations."""
        self.trie, self.texts, self.read = trie, texts, read
        self.width, self.least, self.canonical = width, least, canonical

    def continued(self, covers: Sequence[Sequence[Element]], texts: Sequence[Ints]) -> list[ContinuedPrefix]:
        """For each prefix its continuations, which are numbers of texts that are not empty, ascending and different.

        The elements have their values.
        """
        batch = _Batch(self, covers, texts)
        while batch.going():
            batch.follow()
        return batch.results()

    def after(self, prefix: ContinuedPrefix, text: int) -> list[Element]:
        """The elements that cover a prefix and one of its continuations."""
        return prefix.after(text, self.trie, self.canonical)

    def left_out(self, prefix: ContinuedPrefix, text: int) -> tuple[Element, bytes] | None:
        """The most probable element that was not followed inside of a continuation, and the bytes after it."""
        found = prefix.most_left_out(text, self.trie, self.canonical)
        return found and (found[0], self.texts.text(text)[found[1] :])

    def after_byte(self, cover: Sequence[Element], byte: int) -> list[Element]:
        """The elements that cover one more byte: the most probable ones, and the most probable one at a root."""
        after = after_byte(self.trie, cover, byte, self.canonical)
        (mass,) = masses([after])
        order = np.argsort(-mass, kind="stable").tolist()
        enough = mass.max(initial=FORBIDDEN) + self.least
        kept = {i for i in order[: self.width or None] if mass[i] >= enough}
        kept.update([i for i in order if after[i].values is None][:1])
        return [after[i] for i in sorted(kept)]


class _Pairs(NamedTuple):
    """Pairs of an element and an asked continuation, of which ``done`` bytes are behind the element already."""

    element: Ints
    asked: Ints
    done: Ints

    def of(self, chosen: Ints, done: Ints) -> _Pairs:
        return _Pairs(self.element[chosen], self.asked[chosen], done)


class _Subtrees(NamedTuple):
    """R pairs of an element and a node below its own, with the scores of the node's entries."""

    element: Ints
    node: Ints
    values: Floats
    """The scores of all pairs, one after the other."""
    start: Ints
    """``[R]``: where those of each pair begin."""
    weight: Floats
    """``[R]``: the element's weight."""
    sum: Floats
    """``[R]``: the log of the sum of the scores, times the weight."""

    def of(self, chosen: Ints) -> _Subtrees:
        start, weight, sums = self.start[chosen], self.weight[chosen], self.sum[chosen]
        return _Subtrees(self.element[chosen], self.node[chosen], self.values, start, weight, sums)


class _Batch:
    """The continuations of several prefixes, which are asked about together."""

    def __init__(self, by: Continuing, covers: Sequence[Sequence[Element]], texts: Sequence[Ints]) -> None:
        self._by, self._texts = by, texts
        self._asked = np.concatenate(texts)
        """The text of each continuation, in the order of prefixes."""
        counts = np.array(list(map(len, texts)))
        self._row = np.arange(len(texts)).repeat(counts)
        self._total, self._lost = np.full(len(self._asked), FORBIDDEN), np.zeros(len(self._asked))
        self._elements: list[Element] = []
        self._row_of, self._node_of, self._weight_of = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        none = np.zeros(0, np.int64)
        self._reached = [(none, none, none)]
        self._left_out = LeftOut.none(len(self._asked))
        self._read: list[dict[InnerPrefix, list[Element]]] = [{} for _ in covers]
        rows = np.arange(len(covers)).repeat(list(map(len, covers)))
        new = self._add([element for cover in covers for element in cover], rows)
        asked = ranges((np.cumsum(counts) - counts)[rows], counts[rows])
        self.pairs = _Pairs(new.repeat(counts[rows]), asked, np.zeros_like(asked))

    def going(self) -> bool:
        """Whether there is more to follow; at last the best of what was left out, for texts that nothing covers."""
        if not len(self.pairs.element):
            out = self._left_out
            asked = np.flatnonzero((self._total == FORBIDDEN) & (out.weight > FORBIDDEN))
            row, done = self._row[asked], out.done[asked]
            numbers, which = self._new(out.entry[asked], out.element[asked], out.weight[asked], row)
            out.weight[asked] = FORBIDDEN
            self.pairs = _Pairs(numbers, asked[which], done[which])
        return bool(len(self.pairs.element))

    def follow(self) -> None:
        """Sum what reaches the ends of continuations in one more token, and find the elements that end inside."""
        ends, end, insides, inside = self._walk()
        keys = np.append(ends.element, insides.element) * len(self._by.trie.first) + np.append(end, inside)
        different, which = np.unique(keys, return_inverse=True)
        subtrees = self._subtrees(different)
        reached, sums = which[: len(end)], subtrees.sum[which[: len(end)]]
        some = sums > FORBIDDEN
        self._reached.append((ends.asked[some], ends.element[some], end[some]))
        self._total = np.logaddexp(self._total, log_sums_by_place(ends.asked, sums, len(self._asked)))
        self.pairs = self._inside(subtrees, insides, which[len(reached) :])

    def results(self) -> list[ContinuedPrefix]:
        """The continuations of each prefix."""
        by_row = np.argsort(self._row_of, kind="stable")
        first = np.searchsorted(self._row_of[by_row], np.arange(len(self._texts) + 1)).tolist()
        local = np.empty_like(by_row)
        local[by_row] = np.arange(len(by_row)) - np.array(first)[self._row_of[by_row]]
        asked, element, node = map(np.concatenate, zip(*self._reached, strict=True))
        order = np.argsort(asked, kind="stable")
        asked, element, node = asked[order], local[element[order]], node[order]
        out = self._left_out._replace(element=local[self._left_out.element]) if len(local) else self._left_out
        bounds = np.cumsum([0, *map(len, self._texts)])
        found = []
        for row, texts in enumerate(self._texts):
            low, high = bounds[row : row + 2].tolist()
            here = slice(*asked.searchsorted((low, high)).tolist())
            elements = [self._elements[i] for i in by_row[first[row] : first[row + 1]].tolist()]
            reached = asked[here] - low, element[here], node[here]
            scores, lost = self._total[low:high], self._lost[low:high]
            left_out = LeftOut(out.weight[low:high], out.element[low:high], out.entry[low:high], out.done[low:high])
            found.append(ContinuedPrefix(texts, scores, lost, elements, reached, left_out, self._read[row]))
        return found

    def _add(self, elements: Sequence[Element], rows: Ints) -> Ints:
        """Number new elements of these rows."""
        first = len(self._elements)
        self._elements += elements
        self._row_of = np.append(self._row_of, rows)
        self._node_of = np.append(self._node_of, np.array([each.node for each in elements], np.int64))
        self._weight_of = np.append(self._weight_of, [each.weight for each in elements])
        return np.arange(first, len(self._elements))

    def _walk(self) -> tuple[_Pairs, Ints, _Pairs, Ints]:
        """The pairs that reach the ends of their continuations, with the nodes there; and, with the nodes, the pairs
        inside at each byte where tokens end."""
        trie, texts, pairs = self._by.trie, self._by.texts, self.pairs
        text = self._asked[pairs.asked]
        place, left = texts.first[text] + pairs.done, texts.length[text] - pairs.done
        at, active, depth = self._node_of[pairs.element], np.arange(len(text)), 0
        found: list[list[Ints]] = [[active[:0]] for _ in range(5)]
        while len(active):
            at = trie.children_for(at, texts.spelled[place[active] + depth])
            active, at, depth = active[at >= 0], at[at >= 0], depth + 1
            over = left[active] == depth
            ending = ~over & (trie.first[at] < trie.inside[at])
            done = np.full(int(ending.sum()), depth)
            for own, new in zip(found, (active[over], at[over], active[ending], at[ending], done), strict=True):
                own.append(new)
            active, at = active[~over], at[~over]
        ends, end, insides, inside, done = map(np.concatenate, found)
        return pairs.of(ends, pairs.done[ends]), end, pairs.of(insides, pairs.done[insides] + done), inside

    def _subtrees(self, keys: Ints) -> _Subtrees:
        """The scores and sums of different pairs of an element and a node, in their order."""
        trie = self._by.trie
        element, node = np.divmod(keys, len(trie.first))
        length = trie.last[node] - trie.first[node]
        start = np.cumsum(length) - length
        places = ranges(trie.first[node] - trie.inside[self._node_of[element]], length)
        values = np.empty(len(places))
        numbers, first = np.unique(element, return_index=True)
        bounds = np.append(start[first], len(places)).tolist()
        for number, low, high in zip(numbers.tolist(), bounds[:-1], bounds[1:], strict=True):
            own = self._elements[number].values
            assert own is not None
            values[low:high] = own[places[low:high]]
        weight = self._weight_of[element]
        return _Subtrees(element, node, values, start, weight, weight + log_sums(values, start))

    def _inside(self, subtrees: _Subtrees, insides: _Pairs, which: Ints) -> _Pairs:
        """The elements after tokens that end inside of continuations, with what is asked about them.

        ``which``: the subtree of each pair.
        """
        order = np.argsort(which, kind="stable")
        pairs = insides.of(order, insides.done[order])
        groups, first = np.unique(which[order], return_index=True)  # one group of pairs for each subtree
        size = np.diff(np.append(first, len(order)))
        own, row = subtrees.of(groups), self._row[pairs.asked[first]]
        entries, group, weights, kept = self._chosen(own, row, pairs, first)
        lost = np.bincount(group[~kept], np.exp(weights[~kept]), len(groups))
        self._lost += np.bincount(pairs.asked, lost.repeat(size), len(self._asked))
        self._leave_out(pairs, first, own.element[group[~kept]], group[~kept], entries[~kept], weights[~kept])
        entries, group, weights = entries[kept], group[kept], weights[kept]
        numbers, which = self._new(entries, own.element[group], weights, row[group])
        group, weights = group[which], weights[which].repeat(size[group[which]])
        chosen = ranges(first[group], size[group])
        found = _Pairs(numbers.repeat(size[group]), pairs.asked[chosen], pairs.done[chosen])
        matters = (weights >= self._by.least) | (self._total[found.asked] == FORBIDDEN)
        self._lost += np.bincount(found.asked[~matters], np.exp(weights[~matters]), len(self._asked))
        return _Pairs(found.element[matters], found.asked[matters], found.done[matters])

    def _new(self, entries: Ints, before: Ints, weights: Floats, rows: Ints) -> tuple[Ints, Ints]:
        """The elements after the tokens of entries and those after them without a text: their numbers, and which of
        the entries each follows from. Reads all in one batch."""
        new = []
        for entry, number, weight in zip(entries.tolist(), before.tolist(), weights.tolist(), strict=True):
            new.append([self._elements[number].then(self._by.trie, entry, weight, self._by.canonical)])
        read = self._by.read(new)
        for row, elements in zip(rows.tolist(), read, strict=True):
            self._read[row][elements[0].inner] = elements
        which = np.arange(len(read)).repeat(list(map(len, read)))
        return self._add([each for elements in read for each in elements], rows[which]), which

    def _chosen(
        self, own: _Subtrees, row: Ints, pairs: _Pairs, first: Ints
    ) -> tuple[Ints, Ints, Floats, npt.NDArray[np.bool_]]:
        """The entries of tokens that end at the nodes of groups, their groups and weights, and which are kept."""
        trie, texts, least = self._by.trie, self._by.texts, self._by.least
        number = trie.inside[own.node] - trie.first[own.node]
        entries, group = ranges(trie.first[own.node], number), np.arange(len(number)).repeat(number)
        weights = own.weight[group] + own.values[ranges(own.start, number)]
        last = texts.first[self._asked[pairs.asked[first]]] + pairs.done[first] - 1
        _, text = np.unique(row * len(texts.spelled) + texts.beginning[last], return_inverse=True)
        whole = log_sums_by_place(text, own.sum, len(text))[text]
        kept = (weights > FORBIDDEN) & (weights >= least + whole[group])
        if len(first):
            alone = np.logical_or.reduceat(self._total[pairs.asked] == FORBIDDEN, first)
            kept &= (weights >= least) | alone[group]
        if self._by.width:
            order = np.lexsort((-weights, ~kept, text[group]))
            begins = np.searchsorted(text[group][order], np.arange(len(text)))
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order)) - begins[text[group][order]]
            kept &= rank < self._by.width
        return entries, group, weights, kept

    def _leave_out(
        self, pairs: _Pairs, first: Ints, element: Ints, group: Ints, entries: Ints, weights: Floats
    ) -> None:
        """Note entries of groups that are not kept, if they are the most probable ones of continuations."""
        size = np.diff(np.append(first, len(pairs.asked)))
        places = ranges(first[group], size[group])  # all pairs of the group of each entry
        which = np.arange(len(group)).repeat(size[group])
        better = weights[which] > self._left_out.weight[pairs.asked[places]]
        order = np.argsort(weights[which[better]], kind="stable")  # the last of several is noted
        places, which = places[better][order], which[better][order]
        asked, noted = pairs.asked[places], self._left_out
        noted.weight[asked], noted.element[asked] = weights[which], element[which]
        noted.entry[asked], noted.done[asked] = entries[which], pairs.done[places]

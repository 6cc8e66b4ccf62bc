"""The probabilities of given continuations of covered prefixes: of bytes w after a text x, P(x w...) / P(x...).

A token sequence that covers x w either has its last token beyond the end of w, so it is in the subtree of the trie at
w, or it has a token that ends inside of w. The first are one sum for each element of the prefix. The second are
elements of their own, whose scores the inner predictor has to give, so few of them are followed: those with at least
``min_share`` of the probability of x, and no more than ``width`` that end at the same byte. If nothing covers x w so
far, those are followed that have at least this share of the most probable one.

All pairs of an element and a continuation go through the trie together, one byte after the other; a second round is
for the elements that end inside of continuations, and so on. Whether an element is followed into w depends on no
other continuation but by ``width``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sgdec.arrays import Flags, Floats, Ints
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
        while len(batch.pairs.element):
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

    def of(self, chosen: Ints | Flags) -> _Pairs:
        return _Pairs(self.element[chosen], self.asked[chosen], self.done[chosen])


class _Batch:
    """The continuations of several prefixes, the rows, which are asked about together.

    Elements have numbers, those that end inside of continuations, too; so have the asked continuations.
    """

    def __init__(self, by: Continuing, covers: Sequence[Sequence[Element]], texts: Sequence[Ints]) -> None:
        self._by, self._texts = by, texts
        self._asked = np.concatenate(texts)
        """The text of each continuation, in the order of prefixes."""
        counts = np.array(list(map(len, texts)))
        self._row = np.arange(len(texts)).repeat(counts)
        """The row of each continuation."""
        self._total, self._lost = np.full(len(self._asked), FORBIDDEN), np.zeros(len(self._asked))
        self._left_out = LeftOut.none(len(self._asked))
        self._elements: list[Element] = []
        none = np.zeros(0, np.int64)
        self._row_of, self._node_of, self._weight_of = none, none, np.zeros(0)
        """The row, the node and the weight of each element."""
        self._reached = [(none, none, none)]
        """Continuations, elements whose last token reaches their ends, and the nodes there."""
        self._read: list[dict[InnerPrefix, list[Element]]] = [{} for _ in covers]
        """For each row the elements that were read inside of continuations."""
        rows = np.arange(len(covers)).repeat(list(map(len, covers)))
        new = self._add([element for cover in covers for element in cover], rows)
        asked = ranges((np.cumsum(counts) - counts)[rows], counts[rows])
        self.pairs = _Pairs(new.repeat(counts[rows]), asked, np.zeros_like(asked))
        """Those that `follow` takes next."""

    def follow(self) -> None:
        """Sum what reaches the ends of continuations in one more token, and find the elements that end inside."""
        trie = self._by.trie
        ends, end, insides, inside = self._walk()
        size = len(trie.first)
        different, which = np.unique(ends.element * size + end, return_inverse=True)
        element, node = np.divmod(different, size)
        length = trie.last[node] - trie.first[node]
        scores = self._scores(element.repeat(length), ranges(trie.first[node], length))
        sums = (self._weight_of[element] + log_sums(scores, np.cumsum(length) - length))[which]
        some = sums > FORBIDDEN
        self._reached.append((ends.asked[some], ends.element[some], end[some]))
        self._total = np.logaddexp(self._total, log_sums_by_place(ends.asked, sums, len(self._asked)))
        self.pairs = self._inside(insides, inside)

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
        inner = pairs.of(insides)
        return pairs.of(ends), end, inner._replace(done=inner.done + done), inside

    def _scores(self, element: Ints, entry: Ints) -> Floats:
        """The score of each entry after its element; elements ascend."""
        places = entry - self._by.trie.inside[self._node_of[element]]
        found = np.empty(len(entry))
        changes = np.flatnonzero(np.diff(element, prepend=-1))
        bounds = [*changes.tolist(), len(entry)]
        for number, (low, high) in zip(element[changes].tolist(), pairwise(bounds), strict=True):
            values = self._elements[number].values
            assert values is not None
            found[low:high] = values[places[low:high]]
        return found

    def _inside(self, pairs: _Pairs, nodes: Ints) -> _Pairs:
        """The elements after tokens that end inside of continuations, at nodes, with what is asked about them.

        A step is an element and the entry of its last token; several continuations can share one.
        """
        trie, least = self._by.trie, self._by.least
        number = trie.inside[nodes] - trie.first[nodes]
        pairs = pairs.of(np.arange(len(nodes)).repeat(number))
        keys = pairs.element * len(trie.tokens) + ranges(trie.first[nodes], number)
        steps, first, step = np.unique(keys, return_index=True, return_inverse=True)
        element, entry = np.divmod(steps, len(trie.tokens))
        weights = self._weight_of[element] + self._scores(element, entry)
        weight, asked = weights[step], pairs.asked
        best = np.full(len(self._asked), FORBIDDEN)
        np.maximum.at(best, asked, weight)
        alone = self._total[asked] == FORBIDDEN
        followed = (weight > FORBIDDEN) & ((weight >= least) | alone & (weight >= least + best[asked]))
        chosen = np.isin(np.arange(len(steps)), step[followed])
        followed &= self._most_probable(weights, pairs.of(first), chosen)[step]
        self._leave_out(pairs.of(~followed), element[step[~followed]], entry[step[~followed]], weight[~followed])
        kept, which = np.unique(step[followed], return_inverse=True)
        read = self._new(entry[kept], element[kept], weights[kept], self._row[asked[first[kept]]])
        own = pairs.of(followed)
        counts = np.diff(read)[which]  # one for an element, and more if others follow from it without a text
        again = np.arange(len(which)).repeat(counts)
        return _Pairs(ranges(read[which], counts), own.asked[again], own.done[again])

    def _most_probable(self, weights: Floats, pairs: _Pairs, chosen: Flags) -> Flags:
        """Mark the ``width`` most probable ones of the chosen steps that end at the same byte of a row."""
        if not self._by.width:
            return chosen
        texts, found = self._by.texts, np.zeros_like(chosen)
        last = texts.first[self._asked[pairs.asked]] + pairs.done - 1
        text = self._row[pairs.asked] * len(texts.spelled) + texts.beginning[last]
        places = np.flatnonzero(chosen)
        order = places[np.lexsort((-weights[places], text[places]))]
        new = np.diff(text[order], prepend=-1) != 0
        rank = np.arange(len(order)) - np.flatnonzero(new)[np.cumsum(new) - 1]
        found[order[rank < self._by.width]] = True
        return found

    def _new(self, entries: Ints, before: Ints, weights: Floats, rows: Ints) -> Ints:
        """Add the elements after the tokens of n entries, and those that follow from them without a text.

        All are read in one batch. ``[n + 1]``: the numbers from which on those of each entry are, and the last one.
        """
        new = []
        for entry, number, weight in zip(entries.tolist(), before.tolist(), weights.tolist(), strict=True):
            new.append([self._elements[number].then(self._by.trie, entry, weight, self._by.canonical)])
        read = self._by.read(new)
        for row, elements in zip(rows.tolist(), read, strict=True):
            self._read[row][elements[0].inner] = elements
        sizes = list(map(len, read))
        first = len(self._elements)
        self._add([each for elements in read for each in elements], rows.repeat(sizes))
        return first + np.cumsum([0, *sizes])

    def _leave_out(self, pairs: _Pairs, element: Ints, entry: Ints, weight: Floats) -> None:
        """Note the probability of steps that are not followed, and the most probable one of each continuation."""
        self._lost += np.bincount(pairs.asked, np.exp(weight), len(self._asked))
        out = self._left_out
        order = np.argsort(weight, kind="stable")  # the last of several is noted
        order = order[weight[order] > out.weight[pairs.asked[order]]]
        asked = pairs.asked[order]
        for noted, new in zip(out, (weight, element, entry, pairs.done), strict=True):
            noted[asked] = new[order]

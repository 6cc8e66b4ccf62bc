"""A back-off language model as arrays: the score of every token after a history without a loop over the vocabulary.

    p(w | h) = p*(w | h)                    if the model lists the n-gram h w
             = b(h) p(w | suffix of h)      otherwise                               (Katz 1987)

All n-grams form one trie, numbered level by level: node 0 is the empty history, node k + 1 is the k-th n-gram in the
order of (node of its history, last symbol). So the n-grams that continue a history are one range of the arrays, and
a row is the unigrams, shifted by the sum of all back-offs, overlaid with the range of each suffix of the history, the
shortest first. Scores are natural logs in float32, as precise as KenLM's.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Copies, Ints, Put, namespace
from sgdec.errors import SgdecError
from sgdec.files import LN_10, Arpa, NGrams

Singles = npt.NDArray[np.float32]

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
NEVER_SEEN = -100 * LN_10
"""KenLM's score of ``<unk>`` if the model does not list it."""
LAST_KEY = (1 << 63) - 1
"""A number above all keys of n-grams."""


class BackoffTable:
    """Scores of words after a history.

    A history is a node of the trie: the longest suffix of all words so far that the model can tell from shorter
    ones. Column c of a row is the word ``columns[c]``; a word that the model does not list is ``<unk>``. N-grams with
    a word that is not a column cannot occur and are left out.

    >>> unigrams = NGrams(np.array([[0], [1], [2]], np.int32), np.log([0.75, 0.25, 1e-9]), np.zeros(3))
    >>> table = BackoffTable(Arpa(["a", "</s>", "<s>"], [unigrams]), ["</s>", "a"])
    >>> np.exp(table.rows([table.start])).tolist()
    [[0.25, 0.75]]
    """

    def __init__(self, arpa: Arpa, columns: Sequence[str]) -> None:
        """Raises `SgdecError` if the model lacks ``<s>``, ``</s>`` or the history of an n-gram, or repeats an
        n-gram."""
        words = [UNKNOWN if word == "<UNK>" else word for word in arpa.words]  # KenLM takes both
        for word in (START, END):
            if word not in words:
                raise SgdecError(f"the model does not list {word} among its 1-grams")
        unigrams, *longer = arpa.orders
        if UNKNOWN not in words:
            words.append(UNKNOWN)
            unigrams = NGrams(
                np.append(unigrams.words, [[len(words) - 1]], axis=0),
                np.append(unigrams.scores, NEVER_SEEN),
                np.append(unigrams.backoffs, 0.0),
            )
        self._symbol_of = self._name(set(words), columns)
        self._unknown = self._symbol_of[UNKNOWN]
        self._width = max(len(columns), 1 + max(self._symbol_of.values()))
        self.order = len(arpa.orders)
        self._grow(np.array([self._symbol_of.get(word, -1) for word in words]), [unigrams, *longer])
        self._prepare_rows(columns)
        self._copies = Copies(BackoffTable._moved)
        self.start = self.advance(0, START)

    def rows(self, histories: Sequence[int]) -> Singles:
        """``[rows, columns]``: ln p of every column after each history."""
        handed_on, overlays = self.overlays(histories)
        out = self.base + handed_on[:, None]  # [rows, width]
        for nodes, backoff in overlays:
            rows, listed = self._listed(nodes)
            out[rows, self.last[listed]] = self.scores[listed] + backoff[rows]
        if len(self.doubles):
            out[:, self.doubles] = out[:, self.originals]
        wanted: Singles = out[:, : self.columns]
        return wanted

    def overlays(self, histories: Sequence[int]) -> tuple[Singles, list[tuple[Ints, Singles]]]:
        """The parts that are added to the unigrams to make `rows`: the sum of each history's back-offs, and its
        suffixes.

        For each suffix of the histories, shortest first: its nodes ``[rows]``, and the back-offs before it
        ``[rows]``.
        """
        chain = [np.asarray(histories, np.int64)]  # the histories, their longest known suffixes, theirs, ...
        while chain[-1].any():
            chain.append(self._suffix[chain[-1]])
        backoff = np.zeros((len(chain), len(histories)), np.float32)  # before each of them, summed
        for i, nodes in enumerate(chain[:-1]):
            backoff[i + 1] = backoff[i] + self._backoff[nodes]
        return backoff[-1], list(zip(chain[-2::-1], backoff[-2::-1], strict=True))

    def ranges(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The index of the first n-gram that continues each node, and their number.

        The root has none, because its n-grams are in `base`.
        """
        first = self._first[nodes]
        return first, np.where(nodes > 0, self._first[nodes + 1] - first, 0)

    def score(self, history: int, word: str) -> float:
        """ln p of one word, bit-equal to the number in `rows`."""
        return self.step(history, self.symbol(word))[0]

    def advance(self, history: int, word: str) -> int:
        """The history after one more word."""
        return self.step(history, self.symbol(word))[1]

    def highest_score(self) -> float:
        """The highest score of any symbol after any history, exactly.

        A listed n-gram has its own score. An unlisted n-gram can score higher if back-offs are positive: after
        history h, among the symbols listed after one of its suffixes, the best that neither h nor a longer suffix
        lists.
        """
        highest = self.scores.max()
        nodes = np.flatnonzero(self._backoff > 0)
        if not len(nodes):
            return float(highest)
        histories = np.repeat(np.arange(len(self._first) - 1), np.diff(self._first))
        ranked = np.lexsort((-self.scores, histories))  # the n-grams after each history, the best first
        backoff = np.zeros(len(nodes), np.float32)
        longer: list[Ints] = []
        while True:
            open_ = nodes > 0
            nodes, backoff, longer = nodes[open_], backoff[open_], [suffix[open_] for suffix in longer]
            if not len(nodes):
                return float(highest)
            longer.append(nodes)
            backoff, nodes = backoff + self._backoff[nodes], self._suffix[nodes]
            highest = max(highest, self._highest_unlisted(nodes, backoff, longer, ranked, highest))

    def _highest_unlisted(
        self, nodes: Ints, backoff: Singles, longer: Sequence[Ints], ranked: Ints, highest: np.float32
    ) -> np.float32:
        """The best n-gram after each node that none of the ``longer`` histories lists, if it beats ``highest``."""
        place, end = self._first[nodes], self._first[nodes + 1]
        left = np.flatnonzero(place < end)
        while len(left):
            found = ranked[place[left]]
            scores = backoff[left] + self.scores[found]
            better = scores > highest
            left, found, scores = left[better], found[better], scores[better]
            listed = np.zeros(len(left), bool)
            for histories in longer:
                listed |= self._children(histories[left], self.last[found].astype(np.int64)) > 0
            highest = max(highest, scores[~listed].max(initial=highest))
            left = left[listed]
            place[left] += 1
            left = left[place[left] < end[left]]
        return highest

    def step(self, history: int, symbol: int) -> tuple[float, int]:
        """`score` and `advance` in one walk."""
        first, last, scores, backoffs, suffix, after = self._views
        backoff = 0.0
        while True:
            end = first[history + 1]
            place = bisect_left(last, symbol, first[history], end)  # the node of "history symbol", if it is listed
            if place < end and last[place] == symbol:
                return _single(backoff + scores[place]), after[place]
            backoff = _single(backoff + backoffs[history])
            history = suffix[history]

    def symbol(self, word: str) -> int:
        """The number of a word in `step` and `step_all`."""
        return self._symbol_of.get(word, self._unknown)

    def step_all(self, histories: Ints, symbols: Ints) -> tuple[npt.NDArray[np.float64], Ints]:
        """`step` for arrays or tensors ``[n]``, with bit-equal numbers."""
        table = self._copies.beside(self, histories)
        nodes, backoff = table._find(histories, symbols)
        ngrams, xp = nodes - 1, table._xp
        return xp.asarray(backoff + table.scores[ngrams], dtype=xp.float64), table._after[ngrams]

    def _find(self, histories: Ints, symbols: Ints) -> tuple[Ints, Singles]:
        """The longest listed n-gram of each history and symbol, and the back-offs on the way to it."""
        xp, nodes = self._xp, self._children(histories, symbols)
        backoff = xp.zeros(len(nodes), dtype=xp.float32, device=nodes.device)
        (missing,) = xp.nonzero(nodes == 0)
        histories = histories[missing]
        while len(missing):
            backoff[missing] += self._backoff[histories]
            histories = self._suffix[histories]
            nodes[missing] = found = self._children(histories, symbols[missing])
            (still,) = xp.nonzero(found == 0)
            missing, histories = missing[still], histories[still]
        return nodes, backoff

    def _children(self, histories: Ints, symbols: Ints) -> Ints:
        """The node of each ``history symbol``, or 0."""
        keys = histories * self._width + symbols
        at = self._xp.searchsorted(self._keys, keys)
        nodes: Ints = self._xp.where(self._keys[at] == keys, at + 1, 0)
        return nodes

    def _moved(self, put: Put) -> BackoffTable:
        """The same on another device, for `_find` alone."""
        moved = copy.copy(self)
        moved._keys, moved.scores, moved._after = put(self._keys), put(self.scores), put(self._after)
        moved._backoff, moved._suffix = put(self._backoff), put(self._suffix)
        moved._xp = namespace(moved._keys)
        moved._copies = Copies(BackoffTable._moved)  # not those that have this copy
        return moved

    def _listed(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The n-grams that the model lists after each node, concatenated: the index of the node, and the n-gram."""
        first, lengths = self.ranges(nodes)
        rows = np.repeat(np.arange(len(nodes)), lengths)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return rows, first[rows] + within

    @staticmethod
    def _name(words: set[str], columns: Sequence[str]) -> dict[str, int]:
        """The symbol of each word, which is its first column; ``<s>`` and ``<unk>`` may need an extra symbol."""
        symbol_of: dict[str, int] = {}
        for column, word in enumerate(columns):
            symbol_of.setdefault(word if word in words else UNKNOWN, column)
        for extra, word in enumerate([word for word in (START, END, UNKNOWN) if word not in symbol_of]):
            symbol_of[word] = len(columns) + extra
        return symbol_of

    def _grow(self, symbol_of: Ints, orders: Sequence[NGrams]) -> None:
        """Build the trie, level by level. ``symbol_of`` has the symbol of each word in the model's list; -1 = no
        column."""
        self._keys = np.array([LAST_KEY])  # history x width + symbol, ascending; then LAST_KEY
        self._xp = namespace(self._keys)
        scores, backoffs = [np.empty(0)], [np.zeros(1)]
        self._suffix = np.zeros(1, np.int64)  # for each node that can be a history: its longest known proper suffix
        levels = []
        for n, ngrams in enumerate(orders, 1):
            symbols = symbol_of[ngrams.words]  # [count, n]
            kept = (symbols >= 0).all(axis=1)
            symbols = symbols[kept]
            histories = np.zeros(len(symbols), np.int64)
            for column in symbols.T[:-1]:
                histories = self._children(histories, column)
                if not histories.all():
                    raise SgdecError(f"the model lists a {n}-gram whose first {n - 1} words it does not list")
            keys = histories * self._width + symbols[:, -1]
            order = np.argsort(keys)
            keys = keys[order]
            if (keys[1:] == keys[:-1]).any():
                raise SgdecError(f"the model lists a {n}-gram twice")
            if n < len(orders):
                levels.append(slice(len(self._suffix), len(self._suffix) + len(keys)))
                self._suffix = np.append(self._suffix, self._longest_suffix(keys, root=n == 1))
                backoffs.append(ngrams.backoffs[kept][order])
            self._keys = np.concatenate([self._keys[:-1], keys, self._keys[-1:]])
            scores.append(ngrams.scores[kept][order])
        self.last = (self._keys[:-1] % self._width).astype(np.int32)
        self.scores: Singles = np.concatenate(scores).astype(np.float32)
        self._backoff: Singles = np.concatenate(backoffs).astype(np.float32)
        self._first = np.searchsorted(self._keys, np.arange(len(self._suffix) + 1) * self._width)
        self._merge_equals(levels)
        longest = self._longest_suffix(self._keys[len(self._suffix) - 1 : -1], root=len(orders) == 1)
        self._after = np.append(self._distinct, self._distinct[longest])[1:]  # the history after each n-gram
        arrays = self._first, self.last, self.scores, self._backoff, self._suffix, self._after
        self._views = tuple(array.data for array in arrays)  # lists give single numbers faster

    def _longest_suffix(self, keys: Ints, *, root: bool) -> Ints:
        """For new n-grams: the node of the longest known n-gram that is a proper suffix."""
        if root:
            return np.zeros(len(keys), np.int64)
        histories, symbols = self._suffix[keys // self._width], keys % self._width
        while True:
            nodes = self._children(histories, symbols)
            missing = (nodes == 0) & (histories > 0)
            if not missing.any():
                return nodes
            histories = np.where(missing, self._suffix[histories], histories)

    def _merge_equals(self, levels: Sequence[slice]) -> None:
        """Merge each history without listed n-grams and without a back-off with its suffix, because both have the
        same future."""
        self._distinct = np.arange(len(self._suffix))
        alike = (self._first[1:] == self._first[:-1]) & (self._backoff == 0)
        for level in levels:
            self._distinct[level] = np.where(alike[level], self._distinct[self._suffix[level]], self._distinct[level])
        self._suffix = self._distinct[self._suffix]

    def _prepare_rows(self, columns: Sequence[str]) -> None:
        """Compute the unigram row, and the columns that repeat the word of another column."""
        self.columns = len(columns)
        symbols = np.array([self._symbol_of.get(word, self._unknown) for word in columns], np.int64)
        unigrams = self._children(np.zeros(len(columns), np.int64), symbols) - 1
        self.base: Singles = np.zeros(self._width, np.float32)
        self.base[: self.columns] = self.scores[unigrams]
        overlaid = np.zeros(self._width, bool)
        overlaid[self.last[self._first[1] :]] = True
        self.doubles = np.flatnonzero((symbols != np.arange(self.columns)) & overlaid[symbols])
        self.originals = symbols[self.doubles]


def _single(value: float) -> float:
    """Round to float32, so that a sum of two numbers equals the sum that arrays compute."""
    return float(np.float32(value))

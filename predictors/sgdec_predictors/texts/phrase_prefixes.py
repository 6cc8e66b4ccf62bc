"""The beginnings of patterns as the nodes of an automaton (Aho and Corasick 1975, "Efficient string matching").

The node of a text is the longest beginning of a pattern with which the text ends. All shorter ones follow from it:
each node has a link to the longest other one with which it ends. With whole words, a beginning that starts with a
word character does not count directly after another word character. The shorter ones still follow, because a node has
all characters before them. Cost: linear in the characters of the patterns, and in those of the texts that are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgdec_predictors.texts.characters import is_word


class PhrasePrefixes:
    """The beginnings of some texts. Node 0 is the empty one.

    >>> tree = PhrasePrefixes(["abab", "b"])
    >>> node = tree.after(tree.after(0, "a"), "b")
    >>> [tree.sizes[each] for each in tree.suffixes(node)], list(tree.ending(node))
    ([2, 1], [1])
    """

    def __init__(self, texts: Sequence[str], whole_words: bool = False) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.sizes = [0]
        """The number of characters of each node."""
        self._whole_words = whole_words
        self._order = sorted(range(len(texts)), key=texts.__getitem__)
        """The numbers of the texts in their order: those that begin with one node follow each other."""
        self._first, self._last = [0], [len(texts)]
        """The places in this order of the texts that begin with each node."""
        self._ends: dict[int, list[int]] = {}
        """The numbers of the texts that are a node."""
        for place, number in enumerate(self._order):
            node = 0
            for char in texts[number]:
                node = self._child(node, char, place)
                self._last[node] = place + 1
            self._ends.setdefault(node, []).append(number)
        self._link()

    def after(self, node: int, char: str, in_word: bool = False) -> int:
        """The node after one more character; ``in_word``: whether it is after a word character."""
        while True:
            child = self.children[node].get(char)
            if child is not None and (node or not (in_word and self._whole_words and is_word(char))):
                return child
            if not node:
                return 0
            node = self._links[node]

    def suffixes(self, node: int) -> Iterator[int]:
        """A node and all others with which it ends, without the empty one."""
        while node:
            yield node
            node = self._links[node]

    def beginning(self, node: int) -> list[int]:
        """The numbers of the texts that begin with a node."""
        return self._order[self._first[node] : self._last[node]]

    def ending(self, node: int) -> Iterator[int]:
        """The numbers of the texts with which a node ends."""
        while node:
            yield from self._ends.get(node, ())
            node = self._outputs[node]

    def path(self, text: str) -> list[int]:
        """The nodes of one of the texts, after each of its characters."""
        nodes = [0]
        for char in text:
            nodes.append(self.children[nodes[-1]][char])
        return nodes[1:]

    def link(self, node: int) -> int:
        """The longest other node with which a node ends."""
        return self._links[node]

    def _child(self, node: int, char: str, place: int) -> int:
        known = self.children[node].get(char)
        if known is not None:
            return known
        self.children[node][char] = child = len(self.children)
        self.children.append({})
        self.sizes.append(self.sizes[node] + 1)
        self._first.append(place)
        self._last.append(place)
        return child

    def _link(self) -> None:
        """Find the links, from shorter nodes to longer ones."""
        self._links = [0] * len(self.children)
        self._outputs = [0] * len(self.children)
        """The longest other node with which a node ends and that is a text."""
        waiting = [(0, False)]
        for node, in_word in waiting:  # grows
            for char, child in self.children[node].items():
                link = self.after(self._links[node], char, in_word) if node else 0
                self._links[child] = link
                self._outputs[child] = link if link in self._ends else self._outputs[link]
                waiting.append((child, is_word(char)))

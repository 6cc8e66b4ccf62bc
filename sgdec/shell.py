"""The five verbs of SGNMT for all predictors together, to write the algorithms of a paper literally.

For teaching, exercises and tests. Decoders should use `SearchSpace.expand`, because `predict_next` lists every
continuation. See Stahlberg et al. 2017, Algorithms 1 and 2.
"""

from __future__ import annotations

from sgdec.context import EOS
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace


class Shell:
    """All predictors of a constellation as one predictor; its state is a node."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._node = space.root
        self._children: dict[int, Node] = {}

    def initialize(self) -> None:
        """Go back to the empty prefix."""
        self.set_state(self._space.root)

    def predict_next(self) -> dict[int, float]:
        """Every token that can follow, with its combined score, best first. After ``</s>``: ``</s>`` with score 0."""
        if self._node.finished:
            return {EOS: 0.0}
        if not self._children:
            (children,) = self._space.expand([self._node])
            self._children = {child.last: child for child in children}
        return {token: child.total - self._node.total for token, child in self._children.items()}

    def consume(self, token: int) -> None:
        """Add one token; does nothing after ``</s>``. Raises KeyError if the token cannot follow."""
        if self._node.finished:
            return
        self.predict_next()
        self.set_state(self._children[token])

    def get_state(self) -> Node:
        """The prefix, as a value."""
        return self._node

    def set_state(self, state: Node) -> None:
        """Go back to a prefix."""
        self._node = state
        self._children = {}

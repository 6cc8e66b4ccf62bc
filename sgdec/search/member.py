"""One predictor of a constellation: its name, its weight, its methods, whose errors name it, and its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, State
from sgdec.scores import require_scores
from sgdec.search.answers import require_one_each
from sgdec.search.blame import blamed
from sgdec.search.memory import FREE, require_room
from sgdec.search.node import NOT_CONSUMED, Behind, Node, Pending, Unread


@dataclass(frozen=True)
class Member:
    """One entry of ``--predictors``: its name, its predictor and its weight."""

    name: str
    predictor: BatchPredictor
    weight: float | None = 1.0
    given: bool = False
    """Whether it forces the output that is scored; the renormalisation of others ignores it."""
    _row_bytes: dict[bool, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The memory of one row of its dense answers, without and with candidates; empty before the first answer."""

    # The predictor's methods. Exceptions that they raise name the predictor, and so does the SgdecError for an
    # answer of the wrong type or length.

    def initialize(self, sources: Sequence[Source]) -> list[State]:
        found: list[State] = self._called("initialize_batch", len(sources), sources)
        return found

    def predict(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        """Raises SgdecError, without a call, if the answer is known to need more memory than there is."""
        asked = candidates is not None
        known = self._row_bytes.get(asked)
        if known is not None and known * len(states) > FREE:
            require_room(len(states), known, f"predictor {self.name!r}: the scores of", "prefixes")
        found: Scores = self._called("predict_batch", None, states, candidates)
        require_scores(self.name, found, len(states))
        if known is None and (size := found.row_bytes()) is not None:
            self._row_bytes[asked] = size
        return found

    def consume(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        found: list[State] = self._called("consume_batch", len(states), states, tokens)
        return found

    def ask(self, ability: str, states: Sequence[State]) -> Sequence[Any]:
        """Call an optional method that the predictor has; return its answers, one per state."""
        found: Sequence[Any] = self._called(ability, len(states), states)
        return found

    @property
    def releases(self) -> bool:
        """Whether the predictor keeps something for each sentence (`sgdec.protocol.Release`)."""
        return hasattr(self.predictor, "release")

    def release(self, roots: Sequence[State]) -> None:
        self._called("release", None, roots)

    def _called(self, method: str, expected: int | None, *arguments: Any) -> Any:
        """The answer of a method; of this length, unless it is None."""
        try:
            found = getattr(self.predictor, method)(*arguments)
        except Exception as error:
            if (fault := blamed(self.name, self.predictor, error)) is error:
                raise
            raise fault from fault.__cause__
        if expected is not None and not (hasattr(found, "__len__") and len(found) == expected):
            require_one_each(self.name, method, found, expected)
        return found

    # Consumption is lazy: a predictor consumes a node's last token when its state for the node is first needed.

    def states(self, k: int, nodes: Sequence[Node]) -> list[State]:
        """The states of this predictor, number k, for these nodes; missing states are computed and stored."""
        late = []
        for node in nodes:
            if type(node.states) is Unread:
                node.states = Pending(node.states.before)
            if isinstance(node.states, Pending) and node.states.states[k] is NOT_CONSUMED:
                late.append((node, node.states))
        if late:
            after = self.consume(self._before(k, late), [node.last for node, _ in late])
            for (node, pending), state in zip(late, after, strict=True):
                pending.states[k] = state
                for each in pending.states:  # by identity: a state may refuse to be compared
                    if each is NOT_CONSUMED:
                        break
                else:
                    node.states = tuple(pending.states)
        held: list[Any] = [node.states for node in nodes]
        return [states.states[k] if type(states) is Pending else states[k] for states in held]

    def _before(self, k: int, late: Sequence[tuple[Node, Pending]]) -> list[State]:
        """The states before the last token of each node.

        A predictor that was not consulted for some steps (weight None) first consumes the tokens of these.
        """
        states = [pending.before[k] for _, pending in late]
        while behind := [i for i, state in enumerate(states) if type(state) is Behind]:
            held = [states[i] for i in behind]
            tokens = [late[i][0].tokens[state.length] for i, state in zip(behind, held, strict=True)]
            after = self.consume([state.state for state in held], tokens)
            for i, old, new in zip(behind, held, after, strict=True):
                length = old.length + 1
                states[i] = new if length == late[i][0].length - 1 else Behind(new, length)
        return states

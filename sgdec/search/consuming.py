"""Lazy consumption: a predictor consumes a node's last token when its state for the node is first needed.

A predictor that was not consulted for some steps (weight None) is several tokens behind and first consumes these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sgdec.protocol import State
from sgdec.search.member import Member
from sgdec.search.node import NOT_CONSUMED, Behind, Node, Pending, Unread


def states_of(member: Member, k: int, nodes: Sequence[Node]) -> list[State]:
    """The states of ``member``, which is predictor k, for these nodes; missing states are computed and stored."""
    late = []
    for node in nodes:
        if type(node.states) is Unread:
            node.states = Pending(node.states.before)
        if isinstance(node.states, Pending) and node.states.states[k] is NOT_CONSUMED:
            late.append((node, node.states))
    if late:
        after = member.consume(_before(member, k, late), [node.last for node, _ in late])
        for (node, pending), state in zip(late, after, strict=True):
            pending.states[k] = state
            for each in pending.states:  # by identity: a state may refuse to be compared
                if each is NOT_CONSUMED:
                    break
            else:
                node.states = tuple(pending.states)
    held: list[Any] = [node.states for node in nodes]
    return [states.states[k] if type(states) is Pending else states[k] for states in held]


def _before(member: Member, k: int, late: Sequence[tuple[Node, Pending]]) -> list[State]:
    """The states of ``member`` before the last token of each node."""
    states = [pending.before[k] for _, pending in late]
    while behind := [i for i, state in enumerate(states) if type(state) is Behind]:
        held = [states[i] for i in behind]
        tokens = [late[i][0].tokens[state.length] for i, state in zip(behind, held, strict=True)]
        after = member.consume([state.state for state in held], tokens)
        for i, old, new in zip(behind, held, after, strict=True):
            length = old.length + 1
            states[i] = new if length == late[i][0].length - 1 else Behind(new, length)
    return states

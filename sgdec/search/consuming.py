"""Lazy consumption: a predictor's states of nodes, whose last tokens it consumes when it is first asked about them.

A predictor that was not consulted for a while (weight None) is several tokens behind, and catches up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sgdec.protocol import State
from sgdec.search.member import Member
from sgdec.search.node import NOT_CONSUMED, Behind, Node, Pending, Unread


def states_of(member: Member, k: int, nodes: Sequence[Node]) -> list[State]:
    """The states of these nodes by ``member``, which is predictor k; fills them in where they are not there yet."""
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
    """Its states before the last token of each node."""
    states = [pending.before[k] for _, pending in late]
    while behind := [i for i, state in enumerate(states) if type(state) is Behind]:
        held = [states[i] for i in behind]
        tokens = [late[i][0].tokens[state.length] for i, state in zip(behind, held, strict=True)]
        after = member.consume([state.state for state in held], tokens)
        for i, old, new in zip(behind, held, after, strict=True):
            length = old.length + 1
            states[i] = new if length == late[i][0].length - 1 else Behind(new, length)
    return states

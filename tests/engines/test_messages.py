"""An event is the same on the other side of a pipe or a network."""

from __future__ import annotations

import pytest

from sgdec.corpus.engine import Advanced, Died, Done, Event, Hello, Ready, Receipt, Refused, Task
from sgdec.engines.messages import event_of, line_of

EVENTS: list[Event] = [
    Ready("1.1", Hello({"seed": "0"}, "here", ("a note",))),
    Advanced("1.1", 20),
    Done("1.1", Task(3, 4, 5, again=True), Receipt("ab", 5, 1, 0.5, "1.1", "cd")),
    Done("1.1", Task(3), None),
    Refused("1.1", "no", 2),
    Died("1.1", Task(3), "killed by SIGKILL", (Task(4), Task(5, 0, 1)), outside=True),
    Died("1.1", None, "ended with status 1"),
]


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    assert event_of(line_of(event)) == event

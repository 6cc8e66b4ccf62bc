"""Events as JSON, for the way between processes and machines."""

from __future__ import annotations

import json
from dataclasses import asdict

from sgdec.corpus.engine import Advanced, Died, Done, Event, Hello, Ready, Receipt, Refused, Task


def line_of(event: Event) -> str:
    """An event as one line, without its end.

    >>> line_of(Advanced("1.1", 20))
    '{"event": "Advanced", "worker": "1.1", "lines": 20}'
    """
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def event_of(line: str) -> Event:
    """The inverse of `line_of`. Raises ValueError for a line that is not complete."""
    given = json.loads(line)
    kind, worker = given.pop("event"), given.pop("worker")
    if kind == "Ready":
        hello = given["hello"]
        return Ready(worker, Hello(**{**hello, "notes": tuple(hello["notes"])}))
    if kind == "Done":
        receipt = given["receipt"]
        return Done(worker, Task(*given["task"]), None if receipt is None else Receipt(**receipt))
    if kind == "Died":
        task = None if given["task"] is None else Task(*given["task"])
        return Died(worker, task, given["reason"], tuple(Task(*each) for each in given["waiting"]), given["outside"])
    return Advanced(worker, **given) if kind == "Advanced" else Refused(worker, **given)

"""Files that a check makes for a submission, such as lattices, in a folder that the submission can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from grader.view import INBOX, View, readable

_views: list[View] = []


@contextmanager
def delivers_to(view: View) -> Iterator[None]:
    """Within this context the folders are made in a view."""
    _views.append(view)
    try:
        yield
    finally:
        _views.pop()


@contextmanager
def folder() -> Iterator[tuple[Path, str]]:
    """A new folder, and its path as the submission sees it; without a view, both are the same."""
    with readable(), TemporaryDirectory(dir=_views[-1].at(INBOX) if _views else None) as name:
        place = Path(name)
        place.chmod(0o755)
        yield place, _views[-1].seen(place) if _views else name

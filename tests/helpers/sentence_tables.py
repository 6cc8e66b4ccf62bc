"""The tables of sentences on the pages of `sgdec compare` and `sgdec diagnose`, as a reader sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.browsing import Reader

WIDE, PHONE = (1400, 900), (400, 800)
"""Widths and heights of screens."""
VISIBLE = "[...document.querySelectorAll('#outputs tbody tr')].filter(row => row.checkVisibility())"


@contextmanager
def opening(reader: Reader, folder: Path) -> Iterator[Callable[[str], Reader]]:
    """A function that opens a page, given as HTML. At the end no page may have complained."""

    def open_(html: str) -> Reader:
        file = folder / "page.html"
        file.write_text(html, encoding="utf-8")
        reader.open(file)
        return reader

    yield open_
    resize(reader, WIDE)
    assert reader.complaints == []


def resize(reader: Reader, screen: tuple[int, int]) -> None:
    width, height = screen
    reader.page.set_viewport_size({"width": width, "height": height})


def shown(reader: Reader) -> list[int]:
    """The numbers of the sentences that can be seen, in order."""
    found: list[int] = reader.ask(f"{VISIBLE}.map(row => Number(row.cells[0].textContent))")
    return found


def choose(reader: Reader, kind: str) -> list[int]:
    """The sentences of a kind, in ascending order."""
    reader.page.get_by_role("combobox").select_option(label=kind)
    return sorted(shown(reader))


def find(reader: Reader, text: str) -> list[int]:
    """The sentences with a text, in ascending order."""
    field = reader.page.get_by_label("Find")
    field.fill(text)
    field.press("Enter")
    return sorted(shown(reader))


def said(reader: Reader) -> str:
    """What the page says about the number of sentences."""
    return reader.texts(".controls output")[0]


def visible_without_scripts(reader: Reader, path: Path) -> tuple[int, bool]:
    """In a browser that runs no scripts: the number of sentences that can be seen, and whether controls can."""
    browser = reader.page.context.browser
    assert browser is not None
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    rows = page.locator("#outputs tbody tr").all()
    found = sum(row.is_visible() for row in rows), page.locator(".controls").is_visible()
    context.close()
    return found

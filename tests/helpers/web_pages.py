"""Reading HTML pages as a browser does, and running them in headless Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
REQUIRED = bool(os.environ.get("SGDEC_NEED_BROWSER"))
"""Whether tests fail without the programs that they need (`make view-test`)."""
needs_browser = pytest.mark.skipif(BROWSER is None and not REQUIRED, reason="no headless Chromium")


class Page(HTMLParser):
    """The elements of a page, and the text inside those of each tag, in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        if tag not in ("meta", "br", "input", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements with this tag."""
        return [attributes for name, attributes in self.elements if name == tag]


def run_in_browser(html: str, folder: Path, *options: str) -> str:
    """The page as HTML after its scripts have run. Their errors and what they log are printed by the browser."""
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(
        [str(BROWSER), *flags, "--enable-logging=stderr", *options, path.as_uri()], capture_output=True, text=True
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout

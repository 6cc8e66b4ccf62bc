"""Headless Chromium, driven by playwright, for tests of pages that a reader works with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.helpers.web_pages import BROWSER, REQUIRED

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MISSING = (
    "no Chromium: install the package chromium of the system" if BROWSER is None
    else "no playwright: pip install playwright" if find_spec("playwright") is None else ""
)  # fmt: skip
SIZE = {"width": 1400, "height": 1000}


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of the system. Skips the test without one, or fails if it is `REQUIRED`."""
    if MISSING:
        if REQUIRED:
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(BROWSER), args=["--no-sandbox"])
        yield browser
        browser.close()


class Reader:
    """The reader of pages, who notes all that the browser complains about."""

    def __init__(self, browser: Browser) -> None:
        self.complaints: list[str] = []
        context: Any = {"viewport": SIZE, "reduced_motion": "reduce"}
        self.page: Page = browser.new_page(**context)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self._request(request.url))

    def _request(self, url: str) -> None:
        if not url.startswith("file://"):
            self.complaints.append(f"request of {url}")

    def open(self, path: Path, address: str = "", theme: Literal["light", "dark"] = "light") -> None:
        """Open a page; ``address`` is the part after the name of the file."""
        self.page.emulate_media(color_scheme=theme)
        self.page.goto("about:blank")  # the same file with another address would not be read again
        self.page.goto(path.as_uri() + address)

    def ask(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        return self.page.evaluate(code)

    def wait_until(self, condition: str, seconds: float = 20) -> None:
        """Return when a JavaScript expression is true.

        `Page.wait_for_function` asks again from within the page, where the page's policy forbids strings as code.
        """
        end = time.monotonic() + seconds
        while not self.ask(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"not true after {seconds} s: {condition}")
            time.sleep(0.02)

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements."""
        found: list[str] = self.ask(f"[...document.querySelectorAll({selector!r})].map(x => x.textContent)")
        return found

    def count(self, selector: str) -> int:
        return len(self.texts(selector))

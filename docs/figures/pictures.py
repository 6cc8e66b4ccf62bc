"""Take the pictures of docs/gallery.md: run its commands in a folder that contains ``demo``, and open the pages.

    sgdec demo --directory demo && python docs/figures/pictures.py

Needs playwright and a Chromium of the system.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FIGURES = Path(__file__).parent
GALLERY = FIGURES.parent / "gallery.md"
SENTENCE = 5
"""A sentence that the model alone gets wrong."""
PARTING = 35
"""A sentence of which greedy search misses the best hypothesis."""
SIZE = {"width": 1200, "height": 900}
PAGES = {
    "gallery-view": f"mix.html#sentence={SENTENCE}",
    "gallery-two": f"two.html#sentence={PARTING}",
    "gallery-diagnosis": "diagnosis.html",
    "gallery-comparison": "comparison.html",
}


def main() -> None:
    for commands in re.findall(r"```sh\n(.*?)```", GALLERY.read_text(encoding="utf-8"), re.DOTALL):
        subprocess.run(["bash", "-euc", commands], check=True)
    shutil.copy("figure.svg", FIGURES / "gallery-figure.svg")
    browsers = filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome")))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=next(browsers), args=["--no-sandbox"])
        page: Page = browser.new_page(viewport=SIZE)
        for name, address in PAGES.items():
            page.goto(f"{Path.cwd().as_uri()}/{address}")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=FIGURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()

"""The promise: ``make docs`` builds a site that is whole, says what is registered and public, and needs no network.

Every warning of Sphinx is an error: a broken link, a page in no table of contents, a docstring that does not parse.
The test builds with the plainest theme of Sphinx, which takes half the time.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import COMMANDS
from sgdec.plugins.host import HOOK_OF, HOOKS, Host
from sgdec.testing import BeamContract, DecoderContract, PredictorContract, PredictorSearchContract
from tests.helpers.places import ROOT
from tests.helpers.public_modules import public_modules

sphinx = pytest.importorskip("sphinx", reason="the site is built where sgdec[docs] is installed")
pytestmark = pytest.mark.slow
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
MODULES = public_modules()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-D", "html_theme=basic", "-D"]
    command += ["autodoc_preserve_defaults=0"]  # how defaults look; to find them takes an eighth of the time
    done = subprocess.run(
        [*command, "-d", folder / "doctrees", "docs", folder / "html"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def index(site: Path) -> dict[str, Any]:
    """What the search of the site looks words up in."""
    text = (site / "searchindex.js").read_text()
    found: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    return found


def pages_with(index: dict[str, Any], word: str) -> set[str]:
    from sphinx.search.en import SearchEnglish

    term = SearchEnglish({}).stem(word)
    numbers = [index[part].get(term, []) for part in ("terms", "titleterms")]
    flat = [number for found in numbers for number in (found if isinstance(found, list) else [found])]
    return {index["docnames"][number] for number in flat}


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("restricting", "explanation/architecture"),
        ("predictors", "reference/commands/decode"),
        ("prune_local", "reference/decoders/beam"),
        ("fsttok_max_pending_score", "from-sgnmt"),
        ("initialize", "reference/api/sgdec.protocol"),
    ],
)
def test_the_search_finds(index: dict[str, Any], word: str, page: str) -> None:
    assert page in pages_with(index, word)


def test_pages_of_the_examples_are_pages_of_the_site(site: Path, index: dict[str, Any]) -> None:
    """Their text is that of the files, and links to the files lead to them."""
    examples = {name for name in index["docnames"] if name.startswith("examples/") and name != "examples/index"}
    assert len(examples) == len(list((ROOT / "examples").rglob("*.md")))
    assert "bow" in (handout := (site / "examples" / "course-bag.html").read_text()) and "<math" in handout
    links = {
        link
        for page in site.rglob("*.html")
        for link in re.findall(r'href="([^"#]*)[^"]*"', page.read_text())
        if link.endswith(".md") and not link.startswith("http")
    }
    assert links == set(), "links that download Markdown"
    assert 'href="course-bag.html"' in (site / "examples" / "course.html").read_text()
    assert 'href="../examples/course-bag.html"' in (site / "howto" / "teaching.html").read_text()


def test_all_that_is_registered_has_a_page(index: dict[str, Any]) -> None:
    expected = {f"reference/commands/{name}" for name in COMMANDS}
    plugins = [(HOOK_OF[entry.kind].removeprefix("sgdec_"), entry.name) for entry in Host(autoload=False).names()]
    expected |= {f"reference/{folder}/{name}" for folder, name in plugins}
    assert expected <= set(index["docnames"])


def test_every_option_is_on_the_page_of_its_command(site: Path) -> None:
    for name in COMMANDS:
        command = importlib.import_module(f"sgdec.cli.{name.replace('-', '_')}").command
        page = (site / "reference" / "commands" / f"{name}.html").read_text()
        options = [flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")]
        assert [flag for flag in options if flag not in page] == []
        assert "–" not in page, "a dash where an option has two hyphens"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_described(site: Path, module: str) -> None:
    """By the inventory of the site, which other sites link by."""
    from sphinx.util.inventory import InventoryFile

    with open(site / "objects.inv", "rb") as file:
        inventory = InventoryFile.loads(file.read(), uri="").data
    described = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    there = importlib.import_module(module)
    mine = {
        name
        for name, value in vars(there).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module and callable(value)
    }
    if module == "sgdec":
        homes = {name: getattr(getattr(there, name), "__module__", "") for name in there.__all__}
        mine = {name for name, home in homes.items() if home and home not in MODULES}
    assert module in described
    assert {name for name in mine if f"{module}.{name}" not in described} == set()


def test_a_reader_needs_no_network_and_every_picture_says_what_it_shows(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.(?:https?:)?//[^>]*>", text) == []
        pictures = re.findall(r"<img\b[^>]*_images[^>]*>", text)
        assert [picture for picture in pictures if not re.search(r'alt="[^"]{20,}"', picture)] == []


def test_docstrings_come_through_whole(site: Path) -> None:
    """Backslashes, bars, and options in running text; no empty list of bases."""
    assert r"\hidden_weights 2 is ignored" in (site / "reference/api/sgdec.io.nplm.html").read_text()
    assert "|Y| and the coverage sum" in (site / "reference/api/sgdec.ranking.html").read_text()
    for page in (site / "reference").rglob("*.html"):
        assert not re.search(r"<p>Bases:\s*</p>", page.read_text())


def test_code_with_an_empty_line_stays_in_one_piece(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "reference/api/sgdec.testing.html").read_text())
    assert "    vocab_size = 8\n\n    def make(self):" in text


@pytest.mark.parametrize("contract", [PredictorContract, PredictorSearchContract, DecoderContract, BeamContract])
def test_a_contract_is_described_with_all_that_its_author_can_set(site: Path, contract: type[Any]) -> None:
    text = (site / "reference/api/sgdec.testing.html").read_text()
    names = {name for base in contract.__mro__ if base is not object for name in vars(base) if name[0] != "_"}
    assert {name for name in names if f'id="sgdec.testing.{contract.__name__}.{name}"' not in text} == set()


def test_the_hooks_are_described_and_not_the_marker_of_pluggy(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "reference/api/sgdec.html").read_text())
    assert {hook for hook in HOOKS if f"{hook}()" not in text} == set()
    assert "Instantiate it with" not in text


@pytest.mark.skipif(BROWSER is None, reason="no headless Chromium")
@pytest.mark.parametrize("word", ["restricting", "--predictors"])
def test_search_works_in_a_browser(site: Path, word: str) -> None:
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"]
    url = f"file://{site}/search.html?q={word}"
    done = subprocess.run([str(BROWSER), *options, url], capture_output=True, text=True)
    found = re.search(r"Search finished, found (\d+) page", done.stdout)
    assert found and int(found[1]) > 3
    assert 'href="reference/' in done.stdout

"""The page of a comparison shows every sentence, and hostile text stays text."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.io.outputs import Outputs, StoredHypothesis
from sgdec.tasks.comparison import compare
from sgdec.tasks.comparison_page import page
from tests.helpers.web_pages import Page, needs_browser, run_in_browser

pytest.importorskip("sacrebleu")
HOSTILE = [
    "</td></table></script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\" onclick='alert(1)' <!--",
    "{{ names }} {% include 'x' %}",
    "\u202e&lt;b&gt; \x1b[31m <del>x</del>",
]


def run(name: str, texts: list[str]) -> Outputs:
    return Outputs(name, "text", [[StoredHypothesis(text, None)] for text in texts])


def test_a_row_has_source_references_and_outputs() -> None:
    comparison = compare(
        [run("a", ["the cat sat", "yes"]), run("b", ["the cat lay", "yes"])],
        [["the cat lay", "yes"], ["cats", "ja"]], source=["die Katze lag", "ja"], test="none",
    )  # fmt: skip
    html = page(comparison)
    cells = Page(html).texts["td"]
    rows = [cells[-16:-8], cells[-8:]]
    difference = f"{comparison.sentences[0].difference:+.1f}"
    assert rows[0][:5] == [difference, "die Katze lag", "the cat lay", "cats", "the cat sat"]
    assert rows[0][6:] == ["the cat satlay", "100.0"], "the words deleted, then those inserted"
    assert rows[1] == ["+0.0", "ja", "yes", "ja", "yes", "100.0", "yes", "100.0"]
    parsed = Page(html)
    assert parsed.texts["del"] == ["deleted", "sat"] and parsed.texts["ins"] == ["inserted", "lay"]
    assert all("scope" in attributes for attributes in parsed.attributes("th"))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_adds_no_element(hostile: str) -> None:
    def of(text: str) -> Page:
        texts = [text, "b c d e"]
        runs = [run(text, texts), run("b", texts)]
        return Page(page(compare(runs, [texts], source=texts, test="none")))

    found, plain = of(hostile), of("x")
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    assert [set(attributes) for _, attributes in found.elements] == [set(each) for _, each in plain.elements]
    assert found.texts["td"].count(hostile.replace("\x1b", "\ufffd")) == 4


def test_hostile_words_that_differ_stay_words() -> None:
    html = page(compare([run("a", ["same <b>old</b>"]), run("b", ["same <script>new</script>"])]))
    parsed = Page(html)
    assert parsed.texts["del"][-1] == "<b>old</b>" and parsed.texts["ins"][-1] == "<script>new</script>"


@pytest.mark.slow
@needs_browser
def test_the_page_runs_in_a_browser_and_begins_with_the_largest_difference(tmp_path: Path) -> None:
    texts = ["one two three", "four five", "six"]
    html = page(compare([run("a", texts), run(HOSTILE[0], ["one two three", "five four", "seven"])]))
    parsed = Page(run_in_browser(html, tmp_path))
    headings = zip(parsed.attributes("th"), parsed.texts["th"], strict=True)
    rows = [text for attributes, text in headings if attributes["scope"] == "row"]
    assert rows[-3:] == ["3", "2", "1"]
    sorts = [heading["aria-sort"] for heading in parsed.attributes("th") if "aria-sort" in heading]
    assert sorts == ["none", "descending", *["none"] * 4]

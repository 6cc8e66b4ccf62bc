"""The page of a comparison shows every sentence that differs, the others on demand, and hostile text stays text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sgdec.io.outputs import Outputs, StoredHypothesis
from sgdec.tasks.comparison import Comparison, compare
from sgdec.tasks.comparison_page import page
from tests.helpers.breadth import examples, some
from tests.helpers.browsing import Reader, chromium
from tests.helpers.sentence_tables import (
    PHONE,
    choose,
    find,
    opening,
    resize,
    said,
    shown,
    visible_without_scripts,
)
from tests.helpers.web_pages import Page, needs_browser, run_in_browser

pytest.importorskip("sacrebleu")
HOSTILE = [
    "</td></table></script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\" onclick='alert(1)' <!--",
    "{{ names }} {% include 'x' %}",
    "\u202e&lt;b&gt; \x1b[31m <del>x</del>",
]


def run(name: str, texts: Sequence[str | None]) -> Outputs:
    """``texts``: None for a sentence without an output."""
    return Outputs(name, "text", [[] if text is None else [StoredHypothesis(text, None)] for text in texts])


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


Open = Callable[[Comparison], Reader]
FIRST = ["Die Kinder sehen nach dem Ball.", "Ja.", "Der Zug wartet.", "Ein Straßencafé."]
SECOND = ["Die Kinder suchen den Ball.", "Ja.", "Der Zug wartet.", "Ein Café."]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with chromium() as browser:
        yield Reader(browser)


@pytest.fixture
def opened(reader: Reader, tmp_path: Path) -> Iterator[Open]:
    with opening(reader, tmp_path) as open_:
        yield lambda comparison: open_(page(comparison))


@pytest.mark.slow
def test_sentences_with_equal_outputs_are_hidden_until_they_are_asked_for(opened: Open) -> None:
    reader = opened(compare([run("a", FIRST), run("b", SECOND)], [SECOND], test="none"))
    assert sorted(shown(reader)) == [1, 4]
    assert said(reader) == "2 of 4 shown; 2 with equal outputs hidden"
    box = reader.page.get_by_label("also equal outputs (2)")
    box.press("Space")
    assert sorted(shown(reader)) == [1, 2, 3, 4] and said(reader) == "4 of 4 shown"
    box.press("Space")
    reader.page.get_by_role("button", name="sentence").click()
    assert shown(reader) == [4, 1], "sorting does not bring them back"


@pytest.mark.slow
def test_sentences_are_equal_only_if_all_runs_have_the_same_output(opened: Open) -> None:
    """Two runs that agree against a third are not equal, and neither are runs that all failed."""
    runs = [run("a", ["x", "x", None, ""]), run("b", ["x", "x", None, ""]), run("c", ["x", "y", None, None])]
    assert sorted(shown(opened(compare(runs)))) == [2, 3, 4]


@pytest.mark.slow
def test_a_page_without_equal_outputs_has_no_box_for_them(opened: Open) -> None:
    reader = opened(compare([run("a", ["x"]), run("b", ["y"])]))
    assert reader.count(".controls [type=checkbox]") == 0 and said(reader) == "1 of 1 shown"


@pytest.mark.slow
def test_text_is_found_in_outputs_as_they_are_and_not_across_changes(opened: Open) -> None:
    reader = opened(compare([run("a", FIRST), run("b", SECOND)], source=["children", "yes", "train", "café"]))
    assert find(reader, "Kinder suchen den") == [1], "words around a deletion"
    assert find(reader, "sehen nach dem ball") == [1], "words of the first run, in another case"
    assert find(reader, "nach dem suchen") == [], "a deletion with what replaces it"
    assert find(reader, "TRAIN") == [] and said(reader) == "0 of 4 shown; 1 with equal outputs hidden"
    reader.page.get_by_label("also equal outputs (2)").check()
    assert find(reader, "TRAIN") == [3] and find(reader, "Cafe\u0301") == [4] and find(reader, " ") == [1, 2, 3, 4]
    assert find(reader, "children die") == [], "two cells"
    reader.page.get_by_label("Find").press_sequentially(" Kinder")
    reader.wait_until("document.querySelector('.controls output').textContent.startsWith('0 of')")
    reader.page.get_by_label("Find").fill("Kinder")
    reader.wait_until("document.querySelector('.controls output').textContent.startsWith('1 of')")


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(examples(6))))
@pytest.mark.parametrize("has_references", [True, False])
def test_each_kind_shows_the_sentences_that_it_counts(opened: Open, seed: int, has_references: bool) -> None:
    """Names are hostile, since the kinds are named after the runs."""
    rng = random.Random(seed)
    texts: list[list[str | None]] = [
        [rng.choice([None, "", "a b c d", "a b x d", "y y y y"]) for _ in range(12)] for _ in range(6)
    ]
    references = [["a b c d"] * 12] if has_references else []
    names = ["first", "</option><script>alert(1)</script>", '"third" & (last)', "d", "e", "f"]
    found = compare([run(*each) for each in zip(names, texts, strict=True)], references, test="none")
    expected: dict[str, list[int]] = {}
    for each in found.sentences:
        for place, name in enumerate(names):
            if each.missing[place]:
                expected.setdefault(f"{name}: no output", []).append(each.number)
            by = each.chrf[place] - each.chrf[0]
            if has_references and by:
                kind = f"{name}: {'higher' if by > 0 else 'lower'} chrF than first"
                expected.setdefault(kind, []).append(each.number)
            if not has_references and each.outputs[place] != each.outputs[0]:
                expected.setdefault(f"{name}: other output than first", []).append(each.number)
    reader = opened(found)
    listed = reader.texts(".controls option")
    assert sorted(listed) == sorted(["all", *(f"{kind} ({len(of)})" for kind, of in expected.items())])
    for kind, numbers in expected.items():
        assert choose(reader, f"{kind} ({len(numbers)})") == numbers


@pytest.mark.slow
def test_on_a_phone_the_table_scrolls_and_the_page_does_not(opened: Open) -> None:
    """Names and words without spaces are longer than the screen."""
    first, second = "path/" * 60 + "x", "w" * 1000
    texts, others = ["ein Hund " * 30, "w" * 5000], ["eine Katze " * 30, "\u05d0" * 5000]
    reader = opened(compare([run(first, texts), run(second, others)], [texts], source=texts, test="none"))
    resize(reader, PHONE)
    assert reader.ask("document.documentElement.scrollWidth") == 400
    ends = reader.ask("[...document.querySelectorAll('.controls *')].map(x => x.getBoundingClientRect().right)")
    assert max(ends) <= 400
    heights = "['.tall', '.tall thead'].map(x => document.querySelector(x).getBoundingClientRect().height)"
    box_height, head_height = reader.ask(heights)
    assert box_height <= 0.86 * PHONE[1] and head_height < 0.25 * box_height
    box = reader.page.get_by_role("region", name="Sentences")
    box.press("ArrowRight")
    reader.wait_until("document.querySelector('.tall').scrollLeft > 0")
    reader.ask("document.querySelector('.tall').scrollTo(500, 500)")
    kept = reader.ask(
        "['.tall', '.tall thead th', '.tall tbody th'].map(x => document.querySelector(x))"
        ".map(x => x.getBoundingClientRect()).map(x => [x.left, x.top])"
    )
    (left, top), corner, (number, _) = kept
    assert corner == [left, top] and number == left, "headings and numbers stay in view"


@pytest.mark.slow
def test_the_keyboard_reaches_controls_and_table_in_order(opened: Open) -> None:
    reader = opened(compare([run("a", FIRST), run("b", SECOND)], [SECOND], test="none"))
    reader.page.get_by_label("Find").focus()
    seen = []
    for _ in range(4):
        reader.page.keyboard.press("Tab")
        seen.append(reader.ask("document.activeElement.tagName + ' ' + document.activeElement.className"))
    assert seen == ["SELECT ", "INPUT ", "DIV wide tall", "BUTTON "]


@pytest.mark.slow
def test_without_scripts_the_page_has_every_sentence_and_no_controls(reader: Reader, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(compare([run("a", FIRST), run("b", SECOND)], [SECOND], test="none")), encoding="utf-8")
    assert visible_without_scripts(reader, file) == (4, False)


@pytest.mark.slow
def test_on_paper_the_table_is_whole_and_has_its_headings(opened: Open) -> None:
    texts = [f"eine Zeile {number}" for number in range(60)]
    reader = opened(compare([run("first", texts), run("second", texts[1:] + texts[:1])], test="none"))
    reader.page.emulate_media(media="print")
    heights = "['.tall', '#outputs'].map(x => document.querySelector(x).getBoundingClientRect().height)"
    box_height, table_height = reader.ask(heights)
    assert box_height == pytest.approx(table_height, abs=2)
    assert "first" in reader.page.locator("#outputs thead").inner_text()
    assert not reader.page.locator(".controls").is_visible() and not reader.page.locator("#theme").is_visible()
    reader.page.emulate_media(media="screen")

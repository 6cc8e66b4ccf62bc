"""The page of a diagnosis holds every sentence, its plots have names, and hostile text stays text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import sgdec
from sgdec.protocol import Source
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.page import page
from sgdec.tasks.diagnosis.report import Report
from sgdec.tasks.diagnosis.run import diagnose
from sgdec.tasks.diagnosis.summary import summarise
from sgdec.tasks.diagnosis.verdicts import KnownOutput
from tests.helpers.web_pages import Page, needs_browser, run_in_browser

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow
HOSTILE = "</td></table></svg><script>alert(1)</script><img src=x onerror=alert(1)> \" onclick='x' {{ rows }} \x1b"


def report(text: str) -> Report:
    run = sgdec.load({"good": "wc", "bad": "wc"}, "greedy", vocab_size=6, good={"weight": -1.0}, bad={"weight": 0.5})
    sources = [Source(number, (3,), text, max_length=3) for number in (1, 2, 3)]
    found = diagnose(run, [Case(source, (4,) * source.id, text) for source in sources])
    sentences = []
    for each in found.sentences:
        assert each.output is not None
        search = replace(each.search, error="witnessed", better=KnownOutput(text, each.output, text))
        sentences.append(replace(each, output_text=text, search=search, problems=(text,)))
    diagnosis = replace(found, sentences=tuple(sentences))
    return Report(diagnosis, summarise(diagnosis))


def test_each_sentence_has_a_row_and_a_link() -> None:
    found = Page(page(report("ein Hund"), "view.html"))
    links = [attributes["href"] for attributes in found.attributes("a")]
    assert sorted(links) == [f"view.html#sentence={number}" for number in (1, 2, 3)]
    assert sum(text.count("ein Hund") == 5 for text in found.texts["td"]) == 3, (
        "source, output, reference, better, its origin"
    )
    assert not Page(page(report("ein Hund"))).attributes("a")


def test_plots_have_a_name_and_a_description() -> None:
    found = Page(page(report("x")))
    svgs = found.attributes("svg")
    ids = {attributes["id"] for _, attributes in found.elements if "id" in attributes}
    for attributes in svgs:
        assert attributes["role"] == "img" and set((attributes["aria-labelledby"] or "").split()) <= ids
    assert len(svgs) == 3 and len([tag for tag, _ in found.elements if tag == "desc"]) == 3
    listed = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(listed) == len(set(listed))


def test_hostile_text_adds_no_element() -> None:
    hostile, plain = Page(page(report(HOSTILE), HOSTILE)), Page(page(report("x"), "x"))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert [set(attributes) for _, attributes in hostile.elements] == [set(each) for _, each in plain.elements]


@needs_browser
def test_a_browser_makes_the_tables_sortable(tmp_path: Path) -> None:
    html = run_in_browser(page(report("x")), tmp_path)
    assert html.count('aria-sort="none"') >= 9

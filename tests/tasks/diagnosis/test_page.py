"""The page of a diagnosis names its subject and has every sentence, the worst first; hostile text stays text."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sgdec_decoders.beam import BeamDecoder

import sgdec
from sgdec.protocol import Source
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.page import page
from sgdec.tasks.diagnosis.report import Report
from sgdec.tasks.diagnosis.run import diagnose
from sgdec.tasks.diagnosis.scored import Decision, Scored
from sgdec.tasks.diagnosis.summary import summarise
from sgdec.tasks.diagnosis.verdicts import (
    PROVEN_BEST,
    Forbidden,
    JudgedSentence,
    KnownOutput,
    ModelVerdict,
    SearchVerdict,
)
from tests.helpers.breadth import examples, some
from tests.helpers.browsing import Reader, chromium
from tests.helpers.sentence_tables import (
    PHONE,
    WIDE,
    choose,
    find,
    opening,
    resize,
    said,
    shown,
    visible_without_scripts,
)
from tests.helpers.web_pages import Page, needs_browser, run_in_browser

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow
HOSTILE = "</td></table></svg><script>alert(1)</script><img src=x onerror=alert(1)> \" onclick='x' {{ rows }} \x1b"


@cache
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


def heads(html: str) -> dict[str, str]:
    """The rows of the first table of a page: what is diagnosed."""
    table = html[html.index("<table>") : html.index("</table>")]
    found = Page(table)
    return dict(zip(found.texts["th"], found.texts["td"], strict=True))


WEIGHTS = [
    (1.0, "1"),
    (0.1 + 0.2, "0.30000000000000004"),
    (-1e-9, "-1e-09"),
    (1234567.125, "1234567.125"),
    (-0.5, "-0.5"),
]
"""Weights, and as they have to be spelled: read as a number, each spelling is the weight again."""


def test_the_head_names_exactly_the_weights_and_options_that_were_used() -> None:
    names = [f"p{place}" for place in range(len(WEIGHTS))]
    options: Any = {name: {"weight": weight} for name, (weight, _) in zip(names, WEIGHTS, strict=True)}
    options["beam"] = {"size": 3, "alpha": 0.123456789, "stop": "length", "recombine": True}
    run = sgdec.load(dict.fromkeys(names, "wc"), "beam", vocab_size=6, **options)
    diagnosis = diagnose(run, [Case(Source(1, (3,), "x", max_length=2), (4,), "y")])
    head = heads(page(Report(diagnosis, summarise(diagnosis))))
    assert head["predictors"] == ", ".join(
        f"{name}=wc (weight {spelled})" for name, (_, spelled) in zip(names, WEIGHTS, strict=True)
    )
    told = [float(weight) for weight in re.findall(r"\(weight (\S+)\)", head["predictors"])]
    output = diagnosis.sentences[0].output
    assert output is not None and sum(map(math.prod, zip(told, output.shares, strict=True))) == output.rank_score
    assert head["decoder"].startswith("beam (size 3, alpha 0.123456789, beta 0, ")
    assert "recombine true, stop length" in head["decoder"] and head["stop rule"] == "length"
    assert head["exact search"] == "astar, at most 300 expansions for each sentence"


def test_the_head_names_the_options_of_a_decoder_that_is_an_object() -> None:
    run = sgdec.load("wc", BeamDecoder(7, alpha=0.5), vocab_size=6)
    diagnosis = diagnose(run, [Case(Source(1, (3,), "x", max_length=2), (4,), "y")])
    head = heads(page(Report(diagnosis, summarise(diagnosis))))
    assert head["predictors"] == "wc (weight 1)" and "size 7, alpha 0.5" in head["decoder"]


def test_the_page_has_the_signature_that_it_is_given() -> None:
    assert Page(page(report("x"), signature=HOSTILE)).texts["code"] == [HOSTILE.replace("\x1b", "\ufffd")]
    assert "Signature" not in Page(page(report("x"))).texts["summary"]


Open = Callable[[str], Reader]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with chromium() as browser:
        yield Reader(browser)


@pytest.fixture
def opened(reader: Reader, tmp_path: Path) -> Iterator[Open]:
    with opening(reader, tmp_path) as open_:
        yield open_


def with_verdicts(text: str, verdicts: Mapping[int, tuple[SearchVerdict, ModelVerdict, str]]) -> Report:
    """A report with these verdicts by sentence; a sentence is "failed", "too long", or neither."""
    plain = report(text)
    one = plain.diagnosis.sentences[0]
    assert one.output is not None

    def of(number: int, search: SearchVerdict, model: ModelVerdict, state: str) -> JudgedSentence:
        output = None if state == "failed" else one.output
        limit = 1 if state == "too long" else None
        each = replace(one, id=number, search=search, model=model, output=output, limit=limit)
        return replace(each, reference_length=5, problems=())

    sentences = tuple(of(number, *verdict) for number, verdict in verdicts.items())
    diagnosis = replace(plain.diagnosis, sentences=sentences)
    return Report(diagnosis, summarise(diagnosis))


def search_error(by: float, decides: str = "good") -> SearchVerdict:
    better = KnownOutput("exact search", Scored((4,), by, by, (-by, 0.0), 0.0), "better")
    return SearchVerdict("proven", by, by, better, Decision(by, {decides: by}, decides, None))


def model_error(by: float, decides: str = "good") -> ModelVerdict:
    return ModelVerdict("error", by, Decision(by, {decides: by}, decides, None))


FORBIDDEN = ModelVerdict("forbidden", forbidden=Forbidden(("bad",), 4, 1))
RIGHT = ModelVerdict("none", 0.0)
PLANTED = {
    1: (PROVEN_BEST, RIGHT, ""),
    2: (search_error(2.0), RIGHT, ""),
    3: (PROVEN_BEST, model_error(30.0), ""),
    4: (PROVEN_BEST, FORBIDDEN, ""),
    5: (search_error(4.0), FORBIDDEN, ""),
    6: (PROVEN_BEST, RIGHT, "too long"),
    7: (SearchVerdict("unknown", 0.0, math.inf), ModelVerdict("none"), "failed"),
    8: (search_error(100.0), model_error(1.0), ""),
    9: (PROVEN_BEST, ModelVerdict("none", -50.0), ""),
}
MATTERS = [7, 5, 4, 6, 8, 3, 2, 1, 9]
"""No output; forbidden with a search error; two lost references, in their order; by the larger error; no errors."""


@cache
def planted_page(text: str) -> str:
    return page(with_verdicts(text, PLANTED), "view.html", "signature")


def test_the_sentences_that_matter_most_come_first_and_the_reader_can_change_that(opened: Open) -> None:
    reader = opened(planted_page("x"))
    assert shown(reader) == MATTERS
    largest = "[...document.querySelectorAll('#outputs tbody tr')].map(row => row.cells[1].textContent)"
    assert reader.ask(largest) == ["no output", "lost", "lost", "lost", "100", "30", "2", "0", "0"]
    heading = "[...document.querySelectorAll('#outputs [aria-sort=descending]')].map(x => x.textContent)"
    assert reader.ask(heading) == ["largest error"]
    reader.page.get_by_role("button", name="search error", exact=True).press("Enter")
    assert shown(reader)[:3] == [8, 5, 2] and reader.ask(heading) == ["search error"]
    reader.page.get_by_role("button", name="sentence", exact=True).click()
    assert shown(reader) == sorted(PLANTED, reverse=True)
    reader.page.get_by_role("button", name="largest error").click()
    assert shown(reader) == MATTERS, "the first order again, with its ties"


def test_the_sentences_stand_before_tables_and_plots(opened: Open) -> None:
    reader = opened(planted_page("x"))
    titles = reader.texts("h2")
    assert titles[:4] == ["What is diagnosed", "What stands out", "Sentences", "Verdicts"]
    assert reader.ask("document.querySelector('#sentences').getBoundingClientRect().top") < WIDE[1] / 2


@pytest.mark.parametrize("seed", some(range(examples(6))))
def test_kinds_are_those_that_the_tables_count(opened: Open, seed: int) -> None:
    rng = random.Random(seed)
    verdicts = {}
    for number in range(1, 21):
        by = rng.choice(["good", "bad"])
        later = Forbidden(("bad",), 4, 1, ("good",) if rng.random() < 0.5 else ())
        right = ModelVerdict("none", -1.5, Decision(1.5, {by: 1.5}, by, None))
        model = rng.choice([RIGHT, right, model_error(1.5, by), ModelVerdict("forbidden", forbidden=later)])
        search = rng.choice([PROVEN_BEST, search_error(2.5, by), SearchVerdict("unknown", 0.0, 1.0)])
        verdicts[number] = (search, model, rng.choice(["", "", "too long", "failed"]))
    planted = with_verdicts("x", verdicts)
    summary, reader = planted.summary, opened(page(planted))
    counts = {**summary.verdicts, "no output": summary.failed}
    for each in summary.deciders:
        counts[f"{each.name} forbids the reference"] = each.forbids
        counts[f"{each.name} decides the model error"] = each.model_errors
        counts[f"{each.name} decides the search error"] = each.search_errors
    counts["reference lost"] = sum(
        model.forbidden is not None or state == "too long" for _, model, state in verdicts.values()
    )
    listed = [f"{kind} ({number})" for kind, number in counts.items() if number]
    assert sorted(reader.texts(".controls option")) == sorted(["all", *listed])
    for kind, number in counts.items():
        assert not number or len(choose(reader, f"{kind} ({number})")) == number
    searches = {number: search.decision for number, (search, *_) in verdicts.items()}
    expected = [number for number, decision in searches.items() if decision and decision.predictor == "bad"]
    assert choose(reader, f"bad decides the search error ({len(expected)})") == expected


def test_sentences_are_found_by_their_texts_and_explanations(opened: Open) -> None:
    reader = opened(planted_page("ein Hund"))
    assert find(reader, "bad forbids token 1") == [4, 5] and said(reader) == "2 of 9 shown"
    assert find(reader, "EIN HUND") == sorted(PLANTED)
    assert find(reader, "reference ein") == [], "labels are no text"


def test_plots_stand_in_two_columns_where_there_is_space(opened: Open) -> None:
    reader = opened(planted_page("x"))
    lefts = "[...document.querySelectorAll('.plots figure')].map(x => x.getBoundingClientRect().left)"
    assert len(set(reader.ask(lefts))) == 2
    resize(reader, PHONE)
    assert len(set(reader.ask(lefts))) == 1


def test_on_a_phone_the_page_does_not_scroll_sideways(opened: Open) -> None:
    """Texts without spaces are longer than the screen."""
    reader = opened(planted_page("w" * 5000))
    resize(reader, PHONE)
    assert reader.ask("document.documentElement.scrollWidth") == PHONE[0]
    reader.page.get_by_role("region", name="Sentences").press("ArrowRight")
    reader.wait_until("document.querySelector('.tall').scrollLeft > 0")


def test_without_scripts_the_page_has_every_sentence_and_no_controls(reader: Reader, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(planted_page("x"), encoding="utf-8")
    assert visible_without_scripts(reader, file) == (len(PLANTED), False)

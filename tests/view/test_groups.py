"""In a browser: groups, draws, walks and particles that notes of decoders name are marked, named, and shown alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgdec.chain import Chain
from sgdec.trace.records import SentenceTrace
from sgdec.view.page import page
from sgdec.view.runs import TracedRun
from sgdec.view.tree import TreePrefix, prefixes
from tests.helpers.browsing import Reader, chromium
from tests.helpers.traced_runs import SHOWN, Model, traced

pytestmark = pytest.mark.slow

Open = Callable[..., Reader]
MODELS = {"nmt": Model(1, 4), "lm": Model(2, 4)}
OPTIONS: dict[str, dict[str, Any]] = {
    "diverse": {"size": 6, "groups": 3, "nbest": 6},
    "sample": {"samples": 6},
    "stochastic": {"samples": 5},
    "mcmc": {"walks": 3, "steps": 9},
}
RUNS = {
    name: traced(name, MODELS, sources=[[3, 4, 5]], max_length=4, **options) for name, options in OPTIONS.items()
}


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with chromium() as browser:
        yield Reader(browser)


@pytest.fixture
def opened(reader: Reader, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of some runs. At the end no page may have complained."""

    def open_(*runs: TracedRun) -> Reader:
        file = tmp_path / "page.html"
        file.write_text(page(runs), encoding="utf-8")
        reader.open(file)
        reader.wait_until(SHOWN)
        return reader

    yield open_
    assert reader.complaints == []


def members(trace: SentenceTrace, tree: list[TreePrefix]) -> dict[str, set[int]]:
    """By group the places of the prefixes with its notes, and of all before them: the oracle, from the records."""
    places = {number: place for place, prefix in enumerate(tree) for number in prefix.expansions}
    children = {(prefix.parent, prefix.token): place for place, prefix in enumerate(tree)}
    found: defaultdict[str, set[int]] = defaultdict(set)
    for expansion in trace.expansions:
        for token, notes in expansion.notes.items():
            for note in notes:
                word, number = re.split("[ :,]", note)[:2]
                at: int | None = children[places[expansion.number], token]
                while at is not None:
                    found[f"{word} {number}"].add(at)
                    at = tree[at].parent
    return found


def drawn(reader: Reader) -> list[int]:
    found: list[int] = reader.ask("[...document.querySelectorAll('#run1 g.node')].map(x => +x.dataset.place)")
    return found


def marks(reader: Reader, place: int) -> list[int]:
    """The numbers of the colours of a prefix, from left to right."""
    classes = reader.ask(f"[...document.querySelectorAll('#run1-{place} rect.member')].map(x => x.className.baseVal)")
    return [int(each.rpartition("-")[2]) for each in classes]


def show(reader: Reader, name: str, number: int = 1) -> None:
    reader.page.check(f"input[name=groups-run{number}][value='{name}']")


def noted(run: TracedRun, *notes: str) -> TracedRun:
    """The run with these notes, one at each child of the first expansion."""
    (trace,) = run.sentences
    first = trace.expansions[0]
    more = {token: (note,) for token, note in zip(first.tokens, notes, strict=False)}
    expansions = [replace(each, notes={}) for each in trace.expansions[1:]]
    return replace(run, sentences=[replace(trace, expansions=(replace(first, notes=more), *expansions))])


@pytest.mark.parametrize("name", RUNS)
def test_each_group_has_its_colour_and_can_be_shown_alone(opened: Open, name: str) -> None:
    trace = RUNS[name].sentences[0]
    tree = prefixes(trace)
    expected = members(trace, tree)
    names = sorted(expected)
    assert len(names) >= 3
    reader = opened(RUNS[name])
    assert [text.strip() for text in reader.texts(".group")] == ["all", *names]
    everything = drawn(reader)
    for place in everything:
        belongs = [number for number, each in enumerate(names, 1) if place in expected[each]]
        assert marks(reader, place) == belongs
    for each in names:
        show(reader, each)
        assert drawn(reader) == sorted(expected[each]), "also those that were dropped"
        selected = reader.ask("viewer.views[0].graph.selected")
        ranks = [tree[place].rank for place in expected[each]]
        known = [rank for rank in ranks if rank is not None]
        ends = expected[each] - {tree[place].parent for place in expected[each]}
        assert tree[selected].rank == min(known) if known else selected == min(ends)
    show(reader, "")
    assert set(drawn(reader)) >= set(everything)


def test_the_list_and_the_prefix_say_to_which_group_a_hypothesis_belongs(opened: Open) -> None:
    run = traced("mcmc", MODELS, sources=[[3, 4]], max_length=2, walks=3, steps=9, chain=Chain.parse("top_k=2"))
    trace, tree = run.sentences[0], prefixes(run.sentences[0])
    expected = members(trace, tree)
    reader, longest = opened(run), 0
    for rank, text in enumerate(reader.texts(".hypotheses li")):
        (place,) = [place for place, prefix in enumerate(tree) if prefix.rank == rank]
        walks = [name.removeprefix("walk ") for name in sorted(expected) if place in expected[name]]
        said = f"walk{'s' * (len(walks) > 1)} {', '.join(walks)}"
        assert text.endswith(f" {said}")
        reader.page.locator(".hypotheses button").nth(rank).click()
        facts = dict(zip(reader.texts(".prefix dt"), reader.texts(".prefix dd"), strict=True))
        assert facts["belongs to"] == said
        notes = trace.expansions[tree[tree[place].parent or 0].expansions[0]].notes[2]
        assert facts["notes"] == "; ".join(notes) and "accepted" in facts["notes"]
        reader.page.hover(f"#run1-{place}")
        shown = str(reader.page.locator("#tooltip").text_content())
        assert said in shown and notes[0] in shown
        longest = max(longest, len(notes))
        assert all((note in shown) == (at < 3) for at, note in enumerate(notes))
        assert (f"{len(notes) - 3} more notes" in shown) == (len(notes) > 3)
    assert longest > 3


def test_continuations_have_their_groups_beside_their_fates(opened: Open) -> None:
    reader = opened(noted(RUNS["diverse"], "group 1", "groups 1, 2", "looks good"))
    reader.page.locator("#run1-0").click()
    fates = reader.texts(".continuations tbody td:last-child")
    assert [fate.partition(" · ")[2] for fate in fates[:4]] == ["group 1", "groups 1, 2", "", ""]
    assert [text.strip() for text in reader.texts(".group")] == ["all", "group 1", "group 2"]


def test_names_are_words_with_numbers_at_the_beginning_of_a_note(opened: Open) -> None:
    cases = {
        "group 2": ["group 2"], "particles 3, 7": ["particle 3", "particle 7"], "particle 12": ["particle 12"],
        "walk 1: step 4 accepted": ["walk 1"], "walk 2, step 12: accepted": ["walk 2"], "1,200 particles": [],
        "step": [], "late in 3 steps": [], "group 1st": [], "class 2": ["class 2"], "Gruppe 5": ["Gruppe 5"],
        "x 1 <b>": [], "": [],
    }  # fmt: skip
    reader = opened(RUNS["diverse"])
    for note, names in cases.items():
        assert reader.page.evaluate("note => named(note)", note) == names, note


def test_groups_are_in_the_order_of_their_numbers_and_many_have_no_marks(opened: Open) -> None:
    notes = [f"draws {', '.join(map(str, range(1, 13)))}", "draw 20, 3"]
    run = noted(RUNS["sample"], *notes)
    reader = opened(run)
    assert [text.strip() for text in reader.texts(".group")] == ["all", *(f"draw {n}" for n in (*range(1, 13), 20))]
    reader.page.select_option("#dropped", "all")
    first, second = run.sentences[0].expansions[0].tokens[:2]
    places = {prefix.token: at for at, prefix in enumerate(prefixes(run.sentences[0])) if prefix.parent == 0}
    assert marks(reader, places[first]) == [] and marks(reader, places[second]) == [3, 5]  # of 8 colours, again
    reader.page.locator(f"#run1-{places[first]}").click()
    assert "draws 1, 2, 3, 4, 5, 6, 7, 8 and 4 more" in reader.texts(".prefix dd")


def test_a_group_of_many_prefixes_is_folded(opened: Open) -> None:
    (trace,) = RUNS["diverse"].sentences
    last = trace.expansions[-1]
    wide = replace(
        trace.expansions[0], tokens=tuple(range(3, 503)), totals=(-1.0,) * 500, scores=((-1.0, 0.0),) * 500,
        fates=tuple(range(1, 501)), notes=dict.fromkeys(range(3, 503), ("group 1",)),
    )  # fmt: skip
    others = tuple(
        replace(last, number=n, parent=0, token=n + 2, tokens=(), totals=(), scores=(), fates=(), notes={}, into={})
        for n in range(1, 501)
    )
    run = replace(RUNS["diverse"], sentences=[replace(trace, expansions=(wide, *others), hypotheses=())])
    reader = opened(run)
    show(reader, "group 1")
    before = len(drawn(reader))
    assert 150 < before <= 202
    (more,) = [text for text in reader.texts(".more") if text]
    assert int(more.removeprefix("+")) == 501 - before
    for key in ("g", "Home", "Enter"):
        reader.page.keyboard.press(key)
    assert len(drawn(reader)) > before


def test_two_runs_choose_their_groups_for_themselves_by_keyboard(opened: Open) -> None:
    reader = opened(RUNS["diverse"], RUNS["mcmc"])
    show(reader, "group 1")
    show(reader, "walk 1", 2)
    assert reader.ask("[...document.querySelectorAll('.group :checked')].map(x => x.value)") == ["group 1", "walk 1"]
    reader.page.keyboard.press("ArrowRight")
    assert reader.ask("[...document.querySelectorAll('.group :checked')].map(x => x.value)") == ["group 1", "walk 2"]
    reader.page.keyboard.press("d")  # keys of the page work there
    assert reader.page.input_value("#dropped") == "path"


def test_dropped_branches_and_the_slider_work_within_a_group(opened: Open) -> None:
    run = RUNS["mcmc"]
    trace, tree = run.sentences[0], prefixes(run.sentences[0])
    walk = members(trace, tree)["walk 1"]
    reader = opened(run)
    show(reader, "walk 1")
    reader.page.select_option("#dropped", "all")
    beside = {at for at, prefix in enumerate(tree) if prefix.parent in walk and not prefix.expansions}
    assert set(drawn(reader)) == walk | {at for at in beside if tree[at].rank is None}
    dropped = [at for at in walk if tree[at].fate == "rejected"]
    reader.page.locator(".fate[data-fate=rejected] input").uncheck()
    assert len(dropped) > 1 and set(dropped) & set(drawn(reader)) <= {reader.ask("viewer.views[0].graph.selected")}
    reader.page.locator(".fate[data-fate=rejected] input").check()
    reader.page.select_option("#dropped", "none")
    reader.page.fill("#until", "3")
    assert set(drawn(reader)) == {
        at for at in walk if (parent := tree[at].parent) is None or tree[parent].expansions[0] < 3
    }


def test_a_search_without_notes_has_no_groups(opened: Open) -> None:
    reader = opened(noted(RUNS["diverse"], "looks good", "<b>late</b>"))
    assert reader.count(".groups") == reader.count("rect.member") == reader.count(".of-groups") == 0
    reader.page.select_option("#dropped", "all")
    reader.page.locator("#run1-0").click()
    reader.page.locator(".continuations button").nth(1).click()
    assert "<b>late</b>" in reader.texts(".prefix dd")
    assert not re.search("<b>late", str(reader.page.locator("#runs").inner_html()))

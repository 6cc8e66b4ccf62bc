"""In a browser: what is drawn equals the trace, every control works, and no text of a user becomes markup."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from sgdec.testing.toys import Lattice, OnDemandTable, Table
from sgdec.trace.records import Bound, Expansion, Fate, SentenceTrace
from sgdec.view.data import REASONS
from sgdec.view.layout import best_place, path, rows
from sgdec.view.page import page
from sgdec.view.parting import Parting, parting
from sgdec.view.runs import SearchError, TracedRun
from sgdec.view.tree import TreePrefix, prefixes
from tests.helpers.browsing import SIZE, Reader, chromium
from tests.helpers.traced_runs import SHOWN, Model, V, on_lattice, renamed, traced

pytestmark = pytest.mark.slow

Open = Callable[..., Reader]
BEAM = traced("beam", {"nmt": Model(1, 4), "lm": Model(2, 4)}, size=3)
GREEDY = traced("greedy", {"nmt": Model(1, 4), "lm": Model(2, 4)}, nbest=1, name="greedy.jsonl")
NAMES = {"beam": [BEAM], "two": [GREEDY, BEAM], "lattice": [on_lattice()]}
PLAIN = [renamed(BEAM, "x"), replace(renamed(BEAM, "x"), name="x")]
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<img src=x onerror=alert(1)>",
    "]]>&lt;b>\"'`${1}",
    "\u2028\u202e\u0000\x1b[31m",
    "w" * 10_000,
]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with chromium() as browser:
        yield Reader(browser)


@pytest.fixture
def opened(reader: Reader, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of some runs. At the end no page may have complained."""

    def open_(runs: Sequence[TracedRun], address: str = "", theme: Literal["light", "dark"] = "light") -> Reader:
        file = tmp_path / "page.html"
        file.write_text(page(runs), encoding="utf-8")
        reader.open(file, address, theme)
        reader.wait_until(SHOWN)
        return reader

    yield open_
    assert reader.complaints == []


def tree_of(run: TracedRun, id: int = 1) -> list[TreePrefix]:
    return prefixes(run.by_id[id])


def kept(tree: Sequence[TreePrefix]) -> list[int]:
    return [at for at, prefix in enumerate(tree) if prefix.expansions or prefix.rank is not None]


def drawn(reader: Reader, run: int = 1) -> list[int]:
    """The places of the prefixes that are drawn."""
    found: list[int] = reader.ask(f"[...document.querySelectorAll('#run{run} g.node')].map(x => +x.dataset.place)")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_drawn_is_the_trace(opened: Open, name: str) -> None:
    reader = opened(NAMES[name])
    reader.page.select_option("#dropped", "all")
    for number, run in enumerate(NAMES[name], 1):
        tree, trace = tree_of(run), run.by_id[1]
        assert drawn(reader, number) == list(range(len(tree)))
        assert reader.count(f"#run{number} path.step") == sum(prefix.parent is not None for prefix in tree)
        fates = Counter(reader.ask(f"[...document.querySelectorAll('#run{number} g.node')].map(x => x.dataset.fate)"))
        expected = Counter(
            "expanded" if isinstance(child.fate, int) else str(child.fate) for _, child in trace.nodes()
        )
        expected["expanded"] += sum(expansion.parent is None for expansion in trace.expansions)
        assert fates == expected
        said = reader.texts(f"article:nth-child({number}) .fate")
        assert Counter({text.split()[0]: int(text.split()[1]) for text in said}) == expected
        labels = [text.split(" ·")[0].split()[0] for text in reader.texts(f"#run{number} .label")]
        assert labels == [run.label(prefix.token) for prefix in tree]


def test_rows_and_columns_are_those_of_the_layout(opened: Open) -> None:
    reader = opened([BEAM])
    tree = tree_of(BEAM)
    for choice in ("none", "path", "best", "all"):
        reader.page.select_option("#dropped", choice)
        boxes = {int(at): box for at, box in reader.ask("[...viewer.views[0].graph.boxes]")}
        expected = rows(tree, boxes)
        unit = reader.ask("ROW")
        assert {at: box["y"] / unit for at, box in boxes.items()} == expected
        for at, box in boxes.items():
            parent = tree[at].parent
            assert parent is None or boxes[parent]["x"] + boxes[parent]["width"] < box["x"]
        lefts = {tree[at].length: box["x"] for at, box in boxes.items()}
        assert all(box["x"] == lefts[tree[at].length] for at, box in boxes.items())
    assert len(boxes) == len(tree) > len(kept(tree))


def test_labels_fit_into_their_boxes(opened: Open) -> None:
    reader = opened([renamed(BEAM, "▁WWWWWWWWWWWW")])
    widths = reader.ask(
        "[...document.querySelectorAll('g.node')].map(node => node.querySelector('rect').getBBox().width"
        " - node.querySelector('.label').getBBox().width)"
    )
    assert widths and min(widths) >= 8


def test_the_final_path_is_a_line_on_top(opened: Open) -> None:
    reader = opened([BEAM])
    tree = tree_of(BEAM)
    best = path(tree, best_place(tree))
    places = reader.ask("[...document.querySelectorAll('g.node.best')].map(x => +x.dataset.place)")
    assert places == best
    tops = reader.ask("[...document.querySelectorAll('g.node.best')].map(x => x.getBoundingClientRect().top)")
    others = reader.ask("[...document.querySelectorAll('g.node:not(.best)')].map(x => x.getBoundingClientRect().top)")
    assert len(set(tops)) == 1 and min(others) > tops[0]
    last = reader.ask("[...document.querySelectorAll('.edges path')].slice(-1)[0].classList.contains('best')")
    assert last, "nothing is drawn over it"


@pytest.mark.parametrize("name", ["beam", "lattice"])
def test_the_ledger_of_each_hypothesis_adds_up_to_its_score(opened: Open, name: str) -> None:
    (run,) = NAMES[name]
    reader = opened([run])
    for rank, hypothesis in enumerate(run.by_id[1].hypotheses):
        reader.page.locator(".hypotheses button").nth(rank).click()
        *sums, total = [number(text) for text in reader.texts(".ledger .sum")]
        assert total == pytest.approx(hypothesis.score, abs=1e-3)
        assert sum(sums) == pytest.approx(hypothesis.score, abs=2e-3)
        totals = [number(text) for text in reader.texts(".ledger .total")]
        steps = [
            sum(map(number, reader.texts(f".ledger tbody tr:nth-child({step}) td.number")[1:-1]))
            for step in range(1, len(totals) + 1)
        ]
        for before, step, after in zip([0.0, *totals], steps, totals, strict=False):
            assert before + step == pytest.approx(after, abs=2e-3)
        assert totals[-1] == pytest.approx(hypothesis.score, abs=1e-3)


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_the_ledger_says_what_each_predictor_alone_would_choose_and_who_forbids_it(opened: Open) -> None:
    (run,) = NAMES["lattice"]
    reader = opened([run])
    trace, tree = run.by_id[1], tree_of(run)
    best = path(tree, best_place(tree))
    forbidden = 0
    for row, place in enumerate(best[1:], 1):
        parent = tree[place].parent
        assert parent is not None
        expansion = trace.expansions[tree[parent].expansions[0]]
        (cell,) = reader.texts(f".ledger tbody tr:nth-child({row}) td:nth-last-child(2)")
        shown = [
            (name, alone)
            for name, alone, own in zip(run.header.predictors, expansion.alone, tree[place].scores, strict=True)
            if alone is not None and alone.score > own + 1e-9
        ]
        for name, alone in shown:
            assert f"{name}: {run.label(alone.token)}" in cell
        assert cell.count(": ") == len(shown)
        assert cell.count("forbidden by fst") == sum(alone.forbidden_by == (1,) for _, alone in shown)
        forbidden += cell.count("forbidden by fst")
        (where,) = reader.texts(f".ledger tbody tr:nth-child({row}) td:last-child")
        assert where == ", ".join(f"{name} {state}" for name, state in expansion.place.items()) != ""
    assert forbidden


def test_the_ledger_does_not_say_what_the_trace_does_not_know(opened: Open) -> None:
    """A predictor that was asked for the others' candidates can prefer another token."""
    flat = np.full((V, V), -2.5)
    rising = flat + np.arange(V) / 10  # alone it prefers the last token
    lattice = Lattice({0: {3: (-0.1, 1), 4: (-0.2, 1)}, 1: {2: (0.0, 9)}})
    for predictor, known in ((OnDemandTable(flat), False), (Table(flat), True)):
        reader = opened([traced("greedy", {"fst": lattice, "lm": predictor}, nbest=1)])
        assert ("the same" in "".join(reader.texts(".ledger .alone"))) == known
    reader = opened([traced("greedy", {"fst": lattice, "lm": Table(rising)}, nbest=1, weights=(1.0, -0.5))])
    assert all(f"w{V - 1}" not in text for text in reader.texts(".ledger .alone")), "with this weight the first"


def test_a_run_without_an_output_has_no_differences(opened: Open) -> None:
    failed = replace(BEAM, sentences=[replace(trace, hypotheses=()) for trace in BEAM.sentences])
    reader = opened([BEAM, failed])
    assert reader.texts("#parting p")[0] == "A run has no output." and reader.count(".differences") == 0


def test_a_prefix_lists_its_continuations_with_totals_and_fates(opened: Open) -> None:
    reader = opened([BEAM])
    reader.page.locator("#run1-0").click()
    root = BEAM.by_id[1].expansions[0]
    assert reader.texts(".continuations tbody .token") == [BEAM.label(token) for token in root.tokens]
    totals = reader.texts(".continuations tbody td:nth-child(2)")
    assert [number(text) for text in totals] == pytest.approx(root.totals, abs=1e-3)
    fates = [f"expanded as {fate}" if isinstance(fate, int) else str(fate) for fate in root.fates]
    assert reader.texts(".continuations tbody td:last-child") == fates
    (run,) = NAMES["lattice"]
    reader = opened([run])
    reader.page.locator("#run1-0").click()
    assert reader.texts(".continuations caption") == ["all 3 allowed tokens"]


def test_hover_and_focus_show_the_ledger_of_a_prefix(opened: Open) -> None:
    reader = opened([BEAM])
    tree = tree_of(BEAM)
    reader.page.hover("#run1-1")
    tip = reader.page.locator("#tooltip")
    assert tip.is_visible() and f"{tree[1].total:.3f}".replace("-", "−") in str(tip.text_content())
    for name, weight, score in zip(BEAM.header.predictors, BEAM.header.weights, tree[1].scores, strict=True):
        assert f"{name}: {weight:g} × {score:.3f}".replace("-", "−") in str(tip.text_content())
    reader.page.hover("#source")
    assert not tip.is_visible()
    reader.page.keyboard.press("g")
    reader.page.keyboard.press("Home")
    reader.page.keyboard.press("ArrowRight")
    assert reader.texts(".ledger .total") == [f"{tree[1].total:.3f}".replace("-", "−")]
    assert str(reader.page.locator("#status").text_content()).startswith(BEAM.label(tree[1].token))


def test_arrows_move_between_prefixes(opened: Open) -> None:
    reader = opened([BEAM])
    tree = tree_of(BEAM)
    best, press = path(tree, best_place(tree)), reader.page.keyboard.press
    press("g")
    press("Home")
    for place in best[1:]:
        press("ArrowRight")
        assert reader.ask("viewer.views[0].graph.selected") == place
    press("ArrowLeft")
    assert reader.ask("viewer.views[0].graph.selected") == best[-2]
    column = [at for at in kept(tree) if tree[at].length == tree[best[-2]].length]
    press("ArrowDown")
    assert reader.ask("viewer.views[0].graph.selected") == (column[1] if len(column) > 1 else best[-2])
    press("ArrowUp")
    assert reader.ask("viewer.views[0].graph.selected") == best[-2]
    press("End")
    assert reader.ask("viewer.views[0].graph.selected") == best[-1]
    active = reader.page.locator("#run1").get_attribute("aria-activedescendant")
    assert reader.page.locator(f"#{active}").get_attribute("aria-selected") == "true"


def test_other_keys_and_buttons(opened: Open) -> None:
    reader = opened([BEAM])
    press = reader.page.keyboard.press
    press("n")
    reader.wait_until(f"location.hash === '#sentence=2' && viewer.id === 2 && {SHOWN}")
    press("p")
    reader.wait_until(f"viewer.id === 1 && {SHOWN}")
    reader.page.click("#next")
    reader.wait_until(f"viewer.id === 2 && {SHOWN}")
    press("d")
    assert reader.page.input_value("#dropped") == "path"
    scale = "d3.zoomTransform(document.getElementById('run1')).k"
    before = reader.ask(scale)
    press("-")
    assert reader.ask(scale) == pytest.approx(before * 0.8)
    reader.page.click("#closer")
    assert reader.ask(scale) == pytest.approx(before)
    press("0")
    frame, inner = (reader.page.locator(each).bounding_box() for each in ("#run1", "#run1 > g"))
    assert frame is not None and inner is not None
    assert inner["y"] >= frame["y"] and inner["y"] + inner["height"] <= frame["y"] + frame["height"] + 1
    assert inner["x"] + inner["width"] <= frame["x"] + frame["width"] + 1
    press("/")
    reader.page.keyboard.type("np")
    assert reader.page.input_value("#term") == "np" and reader.ask("viewer.id") == 2, "letters are text there"


def test_search_finds_every_prefix_with_the_token_also_hidden_ones(opened: Open) -> None:
    reader = opened([BEAM])
    tree = tree_of(BEAM)
    places = [at for at, prefix in enumerate(tree) if prefix.token == 7]
    assert any(not tree[at].expansions for at in places)
    reader.page.fill("#term", "W7")
    assert reader.texts("#matches") == [f"{len(places)} found"]
    for turn, place in enumerate([*places, places[0]]):
        reader.page.keyboard.press("Enter")
        assert reader.ask("viewer.views[0].graph.selected") == place
        assert reader.texts("#matches") == [f"{turn % len(places) + 1} of {len(places)}"]
        assert "match" in str(reader.page.locator(f"#run1-{place}").get_attribute("class"))
    reader.page.fill("#term", "no such token")
    assert reader.texts("#matches") == ["0 found"] and reader.count(".match") == 0


def test_dropped_branches_are_shown_on_demand(opened: Open) -> None:
    reader = opened([BEAM])
    tree = tree_of(BEAM)
    dropped = [at for at in range(len(tree)) if at not in kept(tree)]
    best = path(tree, best_place(tree))
    assert drawn(reader) == kept(tree)
    reader.page.select_option("#dropped", "path")
    assert sorted(set(drawn(reader)) - set(kept(tree))) == [at for at in dropped if tree[at].parent in best]
    reader.page.select_option("#dropped", "best")
    parents = Counter(tree[at].parent for at in set(drawn(reader)) - set(kept(tree)))
    assert parents == {p: min(3, n) for p, n in Counter(tree[at].parent for at in dropped).items()}
    reader.page.select_option("#dropped", "all")
    beam = reader.page.locator(".fate[data-fate=beam] input")
    beam.uncheck()
    assert drawn(reader) == [at for at, prefix in enumerate(tree) if prefix.fate != "beam"]
    reader.page.locator(".fate[data-fate=beam] input").check()
    assert drawn(reader) == list(range(len(tree)))
    assert all(" · beam" in text for text in reader.texts("g.node[data-fate=beam] .label"))


def test_the_search_can_be_seen_as_it_was(opened: Open) -> None:
    reader = opened([BEAM])
    tree, most = tree_of(BEAM), len(BEAM.by_id[1].expansions)
    reader.page.select_option("#dropped", "all")
    for count in (1, 5, most):
        reader.page.fill("#until", str(count))
        expected = [
            at for at, prefix in enumerate(tree)
            if prefix.parent is None or tree[prefix.parent].expansions[0] < count
        ]  # fmt: skip
        assert drawn(reader) == expected


def test_the_table_sorts_and_leads_to_sentences(opened: Open) -> None:
    reader = opened([BEAM], "#sentence=3")
    assert reader.ask("viewer.id") == 3 and reader.page.input_value("#number") == "3"
    reader.page.click("#sentences summary")
    reader.page.click("#sentences th:has-text('score') button")
    scores = [number(text) for text in reader.texts("#sentences tbody td:nth-child(5)")]
    expected = sorted((trace.hypotheses[0].rank_score for trace in BEAM.sentences), reverse=True)
    assert scores == pytest.approx(expected, abs=1e-3)
    reader.page.click("#sentences a:has-text('2')")
    reader.wait_until(f"viewer.id === 2 && {SHOWN}")
    assert reader.page.locator("tr[aria-current]").get_attribute("data-sentence") == "2"
    reader.page.fill("#number", "9")
    reader.page.press("#number", "Enter")
    assert reader.texts("#status") == ["There is no sentence 9."]


def test_two_runs_part_where_their_outputs_differ(opened: Open) -> None:
    runs = NAMES["two"]
    outputs = {id: [(*run.by_id[id].hypotheses[0].tokens, 2) for run in runs] for id in (1, 2, 3)}
    id, pair = next((id, pair) for id, pair in outputs.items() if pair[0] != pair[1])
    step = next(at for at, both in enumerate(zip(*pair, strict=False)) if both[0] != both[1])
    reader = opened(runs, f"#sentence={id}")
    said = reader.texts("#parting p")
    words = [runs[0].label(tokens[step]) for tokens in pair]
    assert said[0] == f"The outputs part at token {step + 1}: run 1 has {words[0]}, run 2 has {words[1]}."
    lines = reader.ask("[...document.querySelectorAll('line.parting')].map(x => x.getBoundingClientRect().left)")
    nodes = [
        reader.ask(f"document.querySelectorAll('#run{run} .node.best')[{step + 1}].getBoundingClientRect().left")
        for run in (1, 2)
    ]
    before = [
        reader.ask(f"document.querySelectorAll('#run{run} .node.best')[{step}].getBoundingClientRect().right")
        for run in (1, 2)
    ]
    assert all(left < line < right for left, line, right in zip(before, lines, nodes, strict=True))
    scores = [run.by_id[id].hypotheses[0].score for run in runs]
    total = [number(text) for text in reader.texts(".differences tbody tr:last-child td")]
    assert total == pytest.approx([*scores, scores[1] - scores[0]], abs=1e-3)
    columns = [reader.texts(f".differences tbody td:nth-child({column})") for column in (2, 3, 4)]
    for column in columns:
        *parts, whole = map(number, column)
        assert sum(parts) == pytest.approx(whole, abs=2e-3)
    for run, (text, other) in enumerate(zip(said[1:], (2, 1), strict=True), 1):
        tree, missed = tree_of(runs[run - 1], id), parting_of(runs, id).missed[run - 1]
        assert missed is not None
        verb = "found" if missed.complete else "lost"
        assert text.startswith(f"Run {run} {verb} the output of run {other}")
        reader.page.locator("#parting button").nth(run - 1).click()
        assert reader.ask(f"viewer.views[{run - 1}].graph.selected") == missed.place
        box = reader.page.locator(f"#run{run}-{missed.place}").bounding_box()
        assert box is not None and 0 < box["y"] < 1000, "it is in view"
        fate = tree[missed.place].fate
        assert missed.complete or fate is None or REASONS[fate] in text


def test_a_sentence_of_one_run_alone_is_shown_alone(opened: Open) -> None:
    reader = opened([replace(BEAM, sentences=BEAM.sentences[:1]), BEAM], "#sentence=2")
    assert reader.count("article") == 1 and drawn(reader, 2) == kept(tree_of(BEAM, 2))
    assert reader.texts("#parting") == [""]


def test_the_graphs_of_two_runs_move_together(opened: Open) -> None:
    reader = opened(NAMES["two"])
    reader.page.locator("#run2").scroll_into_view_if_needed()

    def moves() -> list[str]:
        return [reader.ask(f"String(d3.zoomTransform(document.getElementById('run{run}')))") for run in (1, 2)]

    before = moves()
    box = reader.page.locator("#run2").bounding_box()
    assert box is not None and before[0] == before[1]
    reader.page.mouse.move(box["x"] + 300, box["y"] + box["height"] - 5)
    reader.page.mouse.down()
    reader.page.mouse.move(box["x"] + 260, box["y"] + box["height"] - 8)
    reader.page.mouse.up()
    after = moves()
    assert after[0] == after[1] != before[1]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(opened: Open, theme: str) -> None:
    reader = opened([BEAM], theme=theme)
    reader.page.select_option("#dropped", "all")
    reader.page.fill("#term", "w7")
    for node in (".best", ".kept:not(.best):not(.match)", ".dropped:not(.match)", ".kept.match", ".dropped.match"):
        colours = reader.ask(
            f"(node => ['rect', '.label'].map(each => getComputedStyle(node.querySelector(each)).fill))"
            f"(document.querySelector('g.node{node}'))"
        )
        assert contrast(*colours) >= 4.5, node
    reader.page.click("#theme")
    before = luminance(reader.ask("getComputedStyle(document.body).backgroundColor"))
    assert (before > 0.5) == (theme == "dark")


def parting_of(runs: Sequence[TracedRun], id: int) -> Parting:
    return parting(runs, [run.by_id[id] for run in runs], [tree_of(run, id) for run in runs])


def luminance(colour: str) -> float:
    """Relative luminance of rgb(r, g, b) (WCAG 2.2)."""
    parts = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_control_has_a_name(opened: Open) -> None:
    reader = opened(NAMES["two"])
    nameless = reader.ask(
        "[...document.querySelectorAll('button, input, select, svg[role], g[role]')].filter(each =>"
        " !(each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length))"
        ".map(each => each.outerHTML)"
    )
    assert nameless == []


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_text_is_only_text(opened: Open, word: str) -> None:
    runs = [renamed(BEAM, word), replace(renamed(BEAM, word), name=word[:100])]
    tags = "[...document.querySelectorAll('*')].map(x => x.tagName)"
    expected = Counter(opened(PLAIN).ask(tags))
    reader = opened(runs)
    assert Counter(reader.ask(tags)) == expected
    shown = runs[0].label(5)
    assert reader.page.locator(".ledger .token").first.text_content() == shown
    assert reader.page.locator("#source").text_content() == word
    assert reader.ask("document.querySelector('.graph').getBBox().width") < 5000, "labels are cut"
    assert reader.ask("document.documentElement.scrollWidth <= innerWidth"), "nothing makes the page wide"


def test_a_wide_search_is_folded_and_can_be_opened(opened: Open) -> None:
    run = traced(predictors={"nmt": Model(1, 9)}, sources=[[3, 4, 5, 6]], size=60)
    reader = opened([run])
    tree = tree_of(run)

    def hidden() -> int:
        return sum(int(text[1:]) for text in reader.texts(".more") if text)

    def complete() -> bool:
        expanded = sum(bool(tree[at].expansions) for at in drawn(reader))
        return hidden() + expanded == len(run.by_id[1].expansions)

    assert hidden() > 0 and complete()
    before = len(drawn(reader))
    reader.page.locator(".more:not(:empty)").first.click()
    assert len(drawn(reader)) > before and complete()


def long_search(expansions: int) -> SentenceTrace:
    """A best-first search that opens a bush: expansion n is a child of n // 7."""
    records = []
    for n in range(expansions):
        fates = [7 * n + i if 0 < 7 * n + i < expansions else Fate.OPEN for i in range(7)]
        tokens = tuple(range(3, 10))
        records.append(Expansion(
            n, n // 7 if n else None, 3 + n % 7 if n else None, 7, tokens, (-float(n),) * 7, ((-1.0, -1.0),) * 7,
            tuple(fates), Fate.OPEN,
        ))  # fmt: skip
    bounds = tuple(Bound(n, -n / expansions, -1.0) for n in range(1, expansions))
    empty = BEAM.sentences[0]
    return replace(empty, expansions=tuple(records), bounds=bounds, hypotheses=(), counted=expansions, gap=0.5)


def test_a_proof_of_ten_thousand_expansions_does_not_freeze(opened: Open) -> None:
    run = replace(BEAM, sentences=[long_search(10_000)])
    reader = opened([run])
    assert 0 < len(drawn(reader)) <= 200
    assert reader.ask("performance.now()") < 5000
    assert reader.ask("document.querySelector('.gap path').getAttribute('d').length") < 40_000
    assert "a better one by at most 0.500 is possible" in reader.texts("figcaption")[-1]


def test_attention_has_a_cell_for_each_pair_of_tokens(opened: Open) -> None:
    run = traced("greedy", {"nmt": Model(1)}, nbest=1)
    reader = opened([run])
    weights = [weight for expansion in run.by_id[1].expansions for weight in expansion.attention["nmt"]]
    shown = reader.ask("[...document.querySelectorAll('.attention rect')].map(x => +x.getAttribute('fill-opacity'))")
    assert [(each - 0.04) / 0.96 for each in shown] == pytest.approx(weights, abs=1e-3)


def test_recombined_prefixes_are_joined(opened: Open) -> None:
    run = on_lattice(sources=[[3, 4, 5]])
    trace = run.sentences[0]
    last = trace.expansions[-1]
    assert last.parent is not None
    changed = replace(last, into={last.tokens[0]: (0, trace.expansions[0].tokens[0])})
    reader = opened([replace(run, sentences=[replace(trace, expansions=(*trace.expansions[:-1], changed))])])
    reader.page.select_option("#dropped", "all")
    assert reader.count("path.recombined") == 1


def test_a_failed_search_and_an_empty_output_are_shown(opened: Open) -> None:
    (trace,) = traced(sources=[[3, 4]]).sentences
    failed = replace(trace, hypotheses=(), error="no path is left")
    nothing = replace(failed, id=2, expansions=(), counted=0)
    run = replace(BEAM, sentences=[failed, nothing])
    reader = opened([run])
    assert reader.texts(".error") == ["The search failed: no path is left"]
    reader.page.keyboard.press("n")
    reader.wait_until(f"viewer.id === 2 && {SHOWN}")
    assert drawn(reader) == []
    empty = traced("greedy", {"nmt": Model(1, -20)}, sources=[[3]], nbest=1)
    assert empty.sentences[0].hypotheses[0].tokens == ()
    assert opened([empty]).texts(".hypotheses bdi") == ["(empty output)"]


def place_of(reader: Reader, selector: str) -> dict[str, float]:
    """The rectangle of the first such element, in pixels from the beginning of the page."""
    found: dict[str, float] = reader.ask(
        f"(box => ({{left: box.left, right: box.right, top: box.top + scrollY, bottom: box.bottom + scrollY}}))"
        f"(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    return found


@pytest.fixture
def phone(reader: Reader) -> Iterator[None]:
    """A window of 400 by 800 pixels."""
    reader.page.set_viewport_size({"width": 400, "height": 800})
    yield
    reader.page.set_viewport_size({"width": SIZE["width"], "height": SIZE["height"]})


MANY = replace(BEAM, sentences=[replace(trace, id=id) for id in range(1, 51) for trace in BEAM.sentences[:1]])


def test_the_graph_comes_first_and_the_sentences_are_folded(opened: Open) -> None:
    reader = opened([MANY], "#sentence=7")
    assert place_of(reader, "#run1")["top"] < 200
    row = reader.page.locator("tr[aria-current=true]")
    assert reader.texts("#sentences summary") == ["50 sentences"] and not row.is_visible()
    reader.page.click("#sentences summary")
    assert row.is_visible() and row.get_attribute("data-sentence") == "7"


def test_the_ledger_has_the_whole_width(opened: Open) -> None:
    reader = opened(NAMES["lattice"])
    titles = reader.texts(".ledger thead th")
    assert titles[-2:] == ["alone", "place"]
    page, table = place_of(reader, "main"), place_of(reader, ".ledger")
    assert (table["left"], table["right"]) == (page["left"], page["right"])
    reader = opened(NAMES["two"])
    graphs, ledgers = ([place_of(reader, f"{each}:nth-child({run}) {what}") for run in (1, 2)] for each, what in (
        ("article", ".frame"), ("article", ".ledger")))  # fmt: skip
    assert graphs[0]["top"] == graphs[1]["top"] and graphs[0]["right"] < graphs[1]["left"], "side by side"
    assert max(graph["bottom"] for graph in graphs) < ledgers[0]["top"] < ledgers[0]["bottom"] < ledgers[1]["top"]
    assert all((table["left"], table["right"]) == (page["left"], page["right"]) for table in ledgers)


@pytest.mark.usefixtures("phone")
@pytest.mark.parametrize("name", NAMES)
def test_on_a_phone_the_ledger_scrolls_inside_its_box(opened: Open, name: str) -> None:
    reader = opened(NAMES[name])
    assert reader.ask("document.documentElement.scrollWidth") == 400
    box = "document.querySelector('.ledger').parentElement"
    assert reader.ask(f"{box}.scrollWidth > {box}.clientWidth")
    assert reader.ask(f"({box}.scrollLeft = 10000, {box}.scrollLeft > 0)")
    assert place_of(reader, ".ledger tr :last-child")["right"] <= 400


def test_the_slider_is_full_at_all(opened: Open) -> None:
    from matplotlib.image import imread

    reader = opened([BEAM])
    picture = imread(io.BytesIO(reader.page.locator("#until").screenshot()), format="png")  # [height, width, rgb]
    blue = np.flatnonzero((picture[..., 2] - picture[..., 0] > 0.3).any(axis=0))
    assert blue[0] <= 2 and blue[-1] >= picture.shape[1] - 3


@pytest.mark.parametrize("table", ["folded", "open"])
def test_few_stops_of_the_tab_key_lead_to_the_graph_and_to_the_end(opened: Open, table: str) -> None:
    reader = opened([MANY])
    reader.page.evaluate(f"document.getElementById('sentences').open = {'true' if table == 'open' else 'false'}")
    name = "(x => x.id || x.closest('table, ol, div')?.className || x.tagName)(document.activeElement)"
    stops = []
    for _ in range(60):
        reader.page.keyboard.press("Tab")
        stops.append(reader.ask(name))
        if stops[-1] == "BODY" or stops.count("theme") > 1:
            break
    assert stops.index("skip") <= 1 and stops.index("run1") <= 14 and len(stops) <= 20
    assert stops.count("sortable") == (table == "open")
    assert [stops.count(each) for each in ("hypotheses", "ledger", "continuations")] == [1, 1, 0]


def test_the_first_button_leads_to_the_graph(opened: Open) -> None:
    reader = opened([BEAM])
    button = reader.page.locator("#skip")
    button.focus()
    assert reader.ask("getComputedStyle(document.activeElement).clipPath") == "none", "it can be seen now"
    reader.page.keyboard.press("Enter")
    assert reader.ask("document.activeElement.id") == "run1"


@pytest.mark.parametrize("table", [".ledger", ".continuations", ".hypotheses"])
def test_arrows_reach_all_of_a_table(opened: Open, table: str) -> None:
    reader = opened([BEAM])
    reader.page.click("#run1-0" if table == ".continuations" else "#run1-1")
    reader.page.locator(".hypotheses button").first.click()
    if table == ".continuations":
        reader.page.click("#run1-0")
    mark = f"[...document.querySelectorAll('{table} button')].forEach((x, i) => x.dataset.number = i)"
    reader.ask(mark)
    count = reader.count(f"{table} button")
    reader.page.locator(f"{table} button[tabindex='0']").focus()
    here, press = "+document.activeElement.dataset.number", reader.page.keyboard.press
    press("Home")
    seen = [reader.ask(here)]
    for _ in range(count):
        press("ArrowRight")
        seen.append(reader.ask(here))
    assert seen == [*range(count), count - 1] and reader.count(f"{table} button[tabindex='0']") == 1
    rows = [reader.ask("[...document.activeElement.closest('tr, li').parentElement.children]"
                       ".indexOf(document.activeElement.closest('tr, li'))")]  # fmt: skip
    while rows[-1] > 0:
        press("ArrowUp")
        rows.append(reader.ask("[...document.activeElement.closest('tr, li').parentElement.children]"
                               ".indexOf(document.activeElement.closest('tr, li'))"))  # fmt: skip
    assert rows == list(range(rows[0], -1, -1)) and rows[0] > 0
    press("End")
    assert reader.ask(here) == count - 1


def test_down_stays_in_the_column_of_the_runners_up(opened: Open) -> None:
    reader = opened([BEAM])
    cells = "[...document.activeElement.closest('tr').cells].indexOf(document.activeElement.closest('td'))"
    reader.page.locator(".ledger button").first.focus()
    reader.page.keyboard.press("ArrowRight")
    column = reader.ask(cells)
    reader.page.keyboard.press("ArrowDown")
    assert reader.ask(cells) == column != 1
    assert reader.ask("document.activeElement.closest('tr').rowIndex") == 2


def test_the_keyboard_stays_in_the_table_where_a_token_was_chosen(opened: Open) -> None:
    reader = opened([BEAM])
    tree = tree_of(BEAM)
    best = path(tree, best_place(tree))
    reader.page.locator(".ledger button").first.focus()
    reader.page.keyboard.press("Enter")
    assert reader.ask("viewer.views[0].graph.selected") == best[1]
    assert reader.ask("document.activeElement.closest('.ledger tr').dataset.place") == str(best[1])
    reader.page.locator(".continuations button").first.focus()
    reader.page.keyboard.press("Enter")
    assert reader.ask("!!document.activeElement.closest('.continuations')")
    reader.page.select_option("#dropped", "all")
    reader.page.locator(".fate[data-fate=beam] input").focus()
    reader.page.keyboard.press("Space")
    assert reader.ask("document.activeElement.closest('label').dataset.fate") == "beam"
    assert not reader.page.locator(".fate[data-fate=beam] input").is_checked()


def test_the_search_error_is_among_the_facts_if_it_is_known(opened: Open) -> None:
    assert "search error" not in opened([BEAM]).texts(".facts")[0]
    diagnosed = replace(BEAM, diagnosed={1: SearchError(1.25, at_most=False), 2: SearchError(3.0, at_most=True)})
    reader = opened([diagnosed])
    assert reader.texts(".facts")[0].endswith(" · search error 1.250")
    reader.page.keyboard.press("n")
    reader.wait_until(f"viewer.id === 2 && {SHOWN}")
    assert reader.texts(".facts")[0].endswith(" · search error ≤ 3.000")


def test_the_last_sentence_that_was_asked_for_is_shown(opened: Open) -> None:
    texts = ["one", "two", "three"]
    run = replace(BEAM, sentences=[
        replace(trace, text=text) for trace, text in zip(BEAM.sentences, texts, strict=True)])  # fmt: skip
    reader = opened([run])
    reader.page.evaluate(
        "(at => { window.late = false; window.unpacked = async id => {"  # the second comes after the third
        "  const found = await at(id);"
        "  if (id === 2) await new Promise(done => setTimeout(done, 300));"
        "  if (id === 2) setTimeout(() => window.late = true, 50);"
        "  return found; } })(unpacked)"
    )
    for id in (2, 3):
        reader.ask(f"(location.hash = '#sentence={id}', dispatchEvent(new HashChangeEvent('hashchange')))")
    reader.wait_until(f"viewer.id === 3 && {SHOWN}")
    reader.wait_until("late")
    assert reader.texts("#source") == ["three"] and reader.count("article") == 1


def test_a_browser_that_cannot_unpack_says_so_in_one_line(reader: Reader, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page([BEAM]), encoding="utf-8")
    browser = reader.page.context.browser
    assert browser is not None
    old = Reader(browser)
    old.page.add_init_script("delete window.DecompressionStream")
    old.open(file)
    old.wait_until("!document.querySelector('[aria-busy]')")
    assert old.texts("#runs") == ["This browser is too old to unpack the page. Open it with one of 2024 or later."]
    old.page.click("#sentences summary")
    assert old.page.locator("#sentences table").is_visible() and old.complaints == []
    old.page.close()


@pytest.mark.parametrize("damage", ["", "H4sI", "%%%", "eyJzZWFyY2hlcyI6W119"])
def test_a_damaged_sentence_is_one_line_and_others_are_shown(reader: Reader, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "page.html"
    whole = page([BEAM])
    file.write_text(re.sub('(id="sentence-1">)[^<]*', rf"\g<1>{damage}", whole), encoding="utf-8")
    reader.open(file)
    reader.wait_until("!document.querySelector('[aria-busy]')")
    said = "Sentence 1 cannot be read: this file is damaged. Write the page again with sgdec view."
    assert reader.texts("#runs") == [said]
    reader.page.keyboard.press("n")
    reader.wait_until(f"viewer.id === 2 && {SHOWN}")
    assert reader.count("g.node") > 0 and reader.complaints == []

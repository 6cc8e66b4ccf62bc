"""A figure has the shown prefixes as text, in the layout of the page, and the same bytes each time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from sgdec.view.figure import COLOURS, draw, packed
from sgdec.view.layout import best_place, overview, path
from sgdec.view.runs import TracedRun
from sgdec.view.tree import prefixes
from tests.helpers.traced_runs import renamed, traced

pytest.importorskip("matplotlib")

RUN = traced(sources=[[3, 4]], size=2)


def svg(run: TracedRun, *, dropped: int = 0) -> str:
    return packed(draw(run, run.sentences[0], dropped=dropped), "svg").decode("utf-8")


def texts(picture: str) -> list[str]:
    root = ElementTree.fromstring(picture)
    return ["".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_prefixes_of_the_overview_are_text() -> None:
    tree = prefixes(RUN.sentences[0])
    ranked = {at: f" #{rank + 1}" for at, prefix in enumerate(tree) if (rank := prefix.rank) is not None}
    expected = [RUN.label(tree[at].token) + ranked.get(at, "") for at in overview(tree, 150)]
    assert texts(svg(RUN)) == expected and "▁w" in expected[1]


@pytest.mark.slow
def test_dropped_continuations_have_their_fate() -> None:
    found = [text for text in texts(svg(RUN, dropped=2)) if " · " in text]
    tree = prefixes(RUN.sentences[0])
    best = path(tree, best_place(tree))
    assert 0 < len(found) <= 2 * (len(best) - 1) and all(text.endswith(" · beam") for text in found)
    assert set(texts(svg(RUN))) < set(texts(svg(RUN, dropped=2)))


def test_the_best_hypothesis_has_its_own_colour() -> None:
    picture = svg(RUN)
    tree = prefixes(RUN.sentences[0])
    labels = re.findall(rf"<text[^>]*{COLOURS['best']}[^>]*>", picture)
    assert len(labels) == len(path(tree, best_place(tree)))


@pytest.mark.parametrize("kind", ["svg", pytest.param("pdf", marks=pytest.mark.slow)])
def test_a_figure_has_the_same_bytes_each_time(kind: Any) -> None:
    one, other = (packed(draw(RUN, RUN.sentences[0]), kind) for _ in range(2))
    assert one == other != b""


@pytest.mark.slow
@pytest.mark.parametrize("word", ["$x^2$", "\\alpha$", "</svg>", "&amp;", "\x07\x1b", "שלום", "𝄞猫", "w" * 10_000])
def test_any_text_can_be_drawn(word: str) -> None:
    shown = texts(svg(renamed(RUN, word)))
    assert len(shown) > 3
    if word in ("$x^2$", "</svg>", "&amp;", "שלום"):
        assert word in shown


def test_a_search_that_failed_at_once_is_an_empty_figure() -> None:
    empty = replace(RUN.sentences[0], expansions=(), hypotheses=())
    assert texts(svg(replace(RUN, sentences=[empty]))) == []

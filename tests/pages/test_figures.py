"""Figures are SVG elements whose colours are variables of the page, and which cannot clash with each other."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sgdec.pages.figures import SERIES, TEXT, VARIABLES, svg
from sgdec.pages.page import PAGES

pytest.importorskip("matplotlib")


def draw(figure: Any) -> None:
    axes = figure.add_subplot()
    for number, color in enumerate(SERIES):
        axes.bar([number], [1], color=color)
    axes.set(title="a < b")


@pytest.mark.slow
def test_all_colours_are_variables_of_the_page() -> None:
    element = svg(draw, "Bars", "Eight bars.")
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", element))
    assert used >= {"text", "muted", *(f"series-{number}" for number in range(1, 9))}
    defined = set(re.findall(r"--([a-z0-9-]+):", (PAGES / "page.css").read_text()))
    assert used <= defined and set(VARIABLES.values()) <= defined
    assert (
        not re.search(r"#[0-9a-f]{6}\b", re.sub(r"url\(#[^)]*\)|href=\"#[^\"]*\"", "", element))
        and TEXT not in element
    )


@pytest.mark.slow
def test_an_element_has_a_name_and_ids_of_its_own() -> None:
    one, other = svg(draw, "One <plot>", "About 'it' & more."), svg(draw, "Other plot", "")
    assert '<title id="one-plot-title">One &lt;plot&gt;</title>' in one and "&amp; more." in one
    ids = [set(re.findall(r'\bid="([^"]+)"', element)) for element in (one, other)]
    assert not ids[0] & ids[1]
    for element, own in zip((one, other), ids, strict=True):
        assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', element)) <= own
    assert "a &lt; b" in one, "text stays text"
    assert one == svg(draw, "One <plot>", "About 'it' & more."), "the same figure gives the same bytes"

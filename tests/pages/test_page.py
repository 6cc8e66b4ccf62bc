"""A page contains everything that it needs, and no text of a user becomes part of its structure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.pages.page import PAGES, render
from tests.helpers.web_pages import Page, needs_browser, run_in_browser

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>&lt;img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)'",
    "{{ 7 * 7 }}{% raw %}",
    "\u2028\u2029\u202e\0\x1b[31m\ud800",
]
TEMPLATE = """{% extends "page.html" %}
{% block main %}
<p title="{{ text }}">{{ text }}</p>
{% endblock %}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the template and the script of a report."""
    path = tmp_path_factory.mktemp("report")
    (path / "report.html").write_text(TEMPLATE)
    (path / "report.js").write_text('const end = "</script>", start = "<!--";\n')
    return path


def page_of(text: str, folder: Path) -> Page:
    return Page(render("report.html", text, variables={"text": text}, data=[text], folder=folder))


def shown(text: str) -> str:
    """The text as HTML can contain it."""
    return re.sub("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text_and_adds_no_element(text: str, folder: Path) -> None:
    page, plain = page_of(text, folder), page_of("x", folder)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert page.texts["p"] == page.texts["title"] == [shown(text)]
    assert page.attributes("p") == [{"title": shown(text)}]


@given(st.recursive(st.none() | st.text() | st.integers() | st.sampled_from(HOSTILE), st.lists))
def test_a_script_reads_the_data_that_were_given(data: Any) -> None:
    page = Page(render("page.html", "x", data={"data": data}))
    (block,) = (
        text
        for attributes, text in zip(page.attributes("script"), page.texts["script"], strict=True)
        if attributes.get("id") == "data"
    )
    assert json.loads(block) == json.loads(shown(json.dumps({"data": data}, ensure_ascii=False)))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_contain_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        render("page.html", "x", data=[number])


def test_a_browser_may_run_the_given_scripts_only(folder: Path) -> None:
    page = Page(render("report.html", "x", variables={"text": ""}, scripts=["table.js", "report.js"], folder=folder))
    assert len(page.texts["script"]) == 3, "a string in a script does not end it"
    hashes = {b64encode(sha256(code.encode()).digest()).decode() for code in page.texts["script"]}
    (policy,) = (
        str(meta["content"])
        for meta in page.attributes("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert set(re.findall("'sha256-(.*?)'", policy)) == hashes
    assert "default-src 'none'" in policy and "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_a_page_refers_to_no_other_file() -> None:
    html = render("page.html", "x", scripts=["table.js"])
    assert not re.search(r"https?:|src=|<link|@import|url\(", html)


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula_of_contrast_gives_the_known_values() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_have_contrast(theme: int) -> None:
    css = (PAGES / "page.css").read_text()
    colours = {name: values[theme] for name, *values in re.findall(r"--([\w-]+): light-dark\((\S+), (\S+)\)", css)}
    backgrounds = [colours["background"], colours["raised"]]
    for name, background in product(("text", "muted", "accent"), backgrounds):
        assert contrast(colours[name], background) >= 4.5, name
    for name in ("deleted", "inserted"):
        assert contrast(colours[name], colours[f"{name}-background"]) >= 4.5
    series = [name for name in colours if name.startswith("series-")]
    assert len(series) == 8
    for name, background in product(series, backgrounds):
        assert contrast(colours[name], background) >= 3, name


def test_jinja2_is_imported_only_when_a_page_is_rendered() -> None:
    code = "import sys, sgdec.pages.page; assert not {'jinja2', 'markupsafe'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


TABLES = """{% extends "page.html" %}
{% block main %}
{% for _ in range(4) %}
<table class="sortable">
<thead><tr><th>name</th><th>number</th></tr></thead>
<tbody>
{% for name, number in rows %}<tr><td>{{ name }}</td><td>{{ number }}</td></tr>{% endfor %}
</tbody>
</table>
{% endfor %}
{% endblock %}
"""
CLICKS = [
    ([0], "a b c d", "ascending"),
    ([0, 0], "d c b a", "descending"),
    ([1], "c a d b", "descending"),  # 10, 9, 9 and an empty cell; equal rows keep their order
    ([1, 1], "a d c b", "ascending"),
]
"""Columns that are clicked, one after the other, then the names in order, and the direction."""


@pytest.mark.slow
@needs_browser
def test_a_click_on_a_heading_sorts_its_table(tmp_path: Path) -> None:
    """One table for each row of `CLICKS`, since a browser takes a second to start."""
    (tmp_path / "tables.html").write_text(TABLES)
    (tmp_path / "click.js").write_text(
        f"const clicks = {[columns for columns, *_ in CLICKS]};\n"
        "document.querySelectorAll('table').forEach((table, number) => {\n"
        "  for (const column of clicks[number]) table.querySelectorAll('th button')[column].click();\n"
        "});\n"
    )
    rows = [("c", "10"), ("a", "9"), ("b", ""), ("d", "9.0")]
    html = render("tables.html", "x", variables={"rows": rows}, scripts=["table.js", "click.js"], folder=tmp_path)
    page = Page(run_in_browser(html, tmp_path))
    names, headings = page.texts["td"][::2], page.attributes("th")
    assert len(names) == len(rows) * len(CLICKS)
    for number, (columns, expected, direction) in enumerate(CLICKS):
        assert names[4 * number :][:4] == expected.split()
        sorts = [heading["aria-sort"] for heading in headings[2 * number :][:2]]
        assert sorts[columns[-1]] == direction and sorts[1 - columns[-1]] == "none"


@pytest.mark.slow
@needs_browser
def test_the_button_switches_between_light_and_dark(tmp_path: Path) -> None:
    (tmp_path / "click.js").write_text(
        "const theme = document.getElementById('theme');\n"
        "const colours = [];\n"
        "for (let i = 0; i < 3; i++, theme.click())\n"
        "  colours.push(theme.textContent + ' ' + getComputedStyle(document.body).backgroundColor);\n"
        "document.title = colours.join('; ');\n"
    )
    page = Page(run_in_browser(render("page.html", "x", scripts=["click.js"], folder=tmp_path), tmp_path))
    light, dark = "Dark rgb(255, 255, 255)", "Light rgb(22, 24, 28)"
    assert page.texts["title"] == [f"{light}; {dark}; {light}"]

"""The viewer as one HTML file: the searches of one or two runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sgdec.pages.page import render
from sgdec.view.data import packed, page_data, sentence_data
from sgdec.view.runs import TracedRun
from sgdec.view.sentences import table

FOLDER = Path(__file__).parent
TITLE = "Search: "
"""The beginning of the title of all pages."""
D3 = [
    f"d3/d3-{name}.min.js"
    for name in (
        "dispatch", "timer", "ease", "color", "interpolate", "array", "selection", "drag", "transition", "zoom",
    )
]  # fmt: skip
"""The modules of d3, each after those that it needs."""
SCRIPTS = [
    "table.js", *D3, "dom.js", "packed.js", "groups.js", "search.js", "rows.js", "graph.js", "ledger.js", "prefix.js",
    "attention.js", "gap.js", "parting.js", "run.js", "viewer.js",
]  # fmt: skip


def page(runs: Sequence[TracedRun]) -> str:
    """The HTML of one run, or of two runs of the same sources (`sgdec.view.runs.require_same_sources`).

    The address of sentence 12 is the file's with ``#sentence=12``.
    """
    data = page_data(runs)
    return render(
        "view.html",
        TITLE + " and ".join(run.name for run in runs),
        variables={
            "runs": runs,
            "table": table(runs),
            "packed": ((id, packed(sentence_data(runs, id))) for id in data["ids"]),
        },
        data=data,
        styles=["viewer.css"],
        scripts=SCRIPTS,
        folder=FOLDER,
    )

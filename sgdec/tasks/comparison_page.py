"""The page of a comparison: its tables, and all sentences in a table that can be sorted."""

from __future__ import annotations

from sgdec.errors import counted
from sgdec.pages.page import render
from sgdec.tasks.comparison import Comparison
from sgdec.tasks.comparison_tables import tables
from sgdec.tasks.word_diff import word_diff


def page(comparison: Comparison) -> str:
    """The page as text (``sgdec/pages/compare.html``). The sentences that differ most come first."""
    ordered = sorted(comparison.sentences, key=lambda sentence: -abs(sentence.difference))
    rows = [
        (sentence, [word_diff(sentence.outputs[0], output) for output in sentence.outputs[1:]])
        for sentence in ordered
    ]
    names = [system.name for system in comparison.systems]
    return render(
        "compare.html",
        f"Comparison of {len(names)} runs on {counted(len(rows), 'sentence')}",
        variables={"names": names, "tables": list(tables(comparison)), "rows": rows},
        scripts=["table.js"],
    )

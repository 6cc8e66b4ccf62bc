"""The tables of a sweep as text, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sgdec.pages.page import render
from sgdec.tasks.comparison_tables import TextTable
from sgdec.tuning.metrics import CorpusMetric
from sgdec.tuning.sweep import AT_END, FAR, MOVED, SweptCell


def table(cells: Sequence[SweptCell], metric: CorpusMetric, decoded: Sequence[float | None] = ()) -> TextTable:
    """One row for each cell. ``decoded``: the metric of a decode with its settings, if there was one."""
    best = best_cell(cells, metric)
    verified = any(score is not None for score in decoded)
    head = [*cells[0].settings, metric.name, "+-", "at end", "half lists", *(["decoded"] if verified else []), ""]
    rows = [
        [
            *map(shown, cell.settings.values()), f"{cell.score:.2f}", f"{cell.margin:.2f}",
            f"{100 * cell.at_end:.0f} %", f"{cell.half - cell.score:+.2f}",
            *([_number(decoded[place])] if verified else []),
            " ".join(["best"] * (cell is best) + ["?"] * cell.suspicious),
        ]
        for place, cell in enumerate(cells)
    ]  # fmt: skip
    notes = [
        f"+- is half the 95 % confidence interval of {metric.name} (bootstrap over sentences).",
        "at end: outputs from the last tenths of their lists. half lists: the change if lists were half as long. "
        f"? marks cells with more than {100 * AT_END:.0f} % at the end, with a change of {MOVED:g} or more, also in "
        f"a decode, or with other weights and more than {100 * FAR:.0f} % other outputs than the decode: decodes may "
        "differ there. Without a mark they can differ, too: --verify decodes cells.",
    ]
    return TextTable(f"Re-ranked lists: {len(cells):,} settings", head, rows, notes)


def best_cell(cells: Sequence[SweptCell], metric: CorpusMetric) -> SweptCell:
    """The one with the best metric; of equally good ones the first."""
    return max(cells, key=lambda cell: metric.sign * cell.score)


def page(found: TextTable) -> str:
    """The page as text; its table can be sorted."""
    return render("sweep.html", "Sweep", variables={"tables": [found]}, scripts=["table.js"])


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"

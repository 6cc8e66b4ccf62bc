"""The search graph of one sentence as a figure for a paper: SVG with text as text, or PDF with embedded fonts.

The layout is that of the page (`sgdec.view.layout`). The width of a line shows the total of a prefix relative to the
best of its length. Sizes are in points, and text has 9.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sgdec.trace.records import SentenceTrace
from sgdec.view.layout import best_place, overview, path, rows
from sgdec.view.runs import TracedRun
from sgdec.view.tree import TreePrefix, prefixes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT_SIZE = 9
ROW = 17
GAP = 20
"""Between columns."""
PADDING = 4
MARGIN = 6
LONGEST_LABEL = 16
MOST = 150
"""The most prefixes that are drawn, besides dropped ones."""
COLOURS = {"best": "#0a5ca8", "kept": "#4a525c", "dropped": "#767d87"}
EDGES = {"best": "#0a5ca8", "kept": "#9aa3af", "dropped": "#b4bac3"}


class Box(NamedTuple):
    """The place of a prefix, in points; y grows downwards."""

    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + ROW / 2


def draw(run: TracedRun, sentence: SentenceTrace, *, dropped: int = 0) -> Figure:
    """The figure of a sentence; ``dropped``: so many dropped continuations at each prefix of the best hypothesis."""
    from matplotlib.figure import Figure

    tree = prefixes(sentence)
    best = path(tree, best_place(tree))
    shown = sorted({*overview(tree, MOST), *_dropped(tree, best, dropped)})
    labels = {place: _label(run, tree[place]) for place in shown}
    boxes = _boxes(tree, shown, labels)
    width = max((box.x + box.width for box in boxes.values()), default=0) + 2 * MARGIN
    height = max((box.y + ROW for box in boxes.values()), default=0) + 2 * MARGIN
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-MARGIN, width - MARGIN)
    axes.set_ylim(height - MARGIN, -MARGIN)
    axes.set_axis_off()
    kinds = {place: "best" if place in best else _kind(tree[place]) for place in shown}
    for place, line in _widths(tree, shown):
        parent = tree[place].parent
        if parent is not None:
            axes.add_patch(_edge(boxes[parent], boxes[place], kinds[place], line))
    for place in shown:
        axes.add_patch(_frame(boxes[place], kinds[place], round=tree[place].rank is not None))
        weight = "bold" if kinds[place] == "best" else "normal"
        at = (boxes[place].x + PADDING, boxes[place].middle)
        axes.text(*at, labels[place], size=FONT_SIZE, va="center", color=COLOURS[kinds[place]], weight=weight)
    return figure


def packed(figure: Figure, kind: Literal["svg", "pdf"]) -> bytes:
    """The content of the file of a figure. The same figure gives the same bytes."""
    import matplotlib

    date = {"svg": "Date", "pdf": "CreationDate"}[kind]
    file = io.BytesIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "sgdec", "pdf.fonttype": 42}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it; see the guide
        figure.savefig(file, format=kind, metadata={date: None, "Creator": "sgdec"})
    return file.getvalue()


def _dropped(tree: Sequence[TreePrefix], best: Sequence[int], most: int) -> Iterator[int]:
    on_path = set(best)
    counts = dict.fromkeys(best, 0)
    for place, prefix in enumerate(tree):
        if prefix.parent in counts and place not in on_path and not prefix.expansions and prefix.rank is None:
            counts[prefix.parent] += 1
            if counts[prefix.parent] <= most:
                yield place


def _label(run: TracedRun, prefix: TreePrefix) -> str:
    label = run.label(prefix.token)
    if len(label) > LONGEST_LABEL:
        label = f"{label[: LONGEST_LABEL - 1]}…"
    label = label.replace("$", r"\$")  # $ begins a formula
    if prefix.rank is not None:
        return f"{label} #{prefix.rank + 1}"
    return label if prefix.expansions else f"{label} · {prefix.fate}"


def _kind(prefix: TreePrefix) -> str:
    return "kept" if prefix.expansions or prefix.rank is not None else "dropped"


def _boxes(tree: Sequence[TreePrefix], shown: Sequence[int], labels: dict[int, str]) -> dict[int, Box]:
    widths = {place: _width(labels[place]) + 2 * PADDING for place in shown}
    widest: dict[int, float] = {}
    for place in shown:
        length = tree[place].length
        widest[length] = max(widest.get(length, 0.0), widths[place])
    lefts = {0: 0.0}
    for length in range(len(widest)):
        lefts[length + 1] = lefts[length] + widest[length] + GAP
    return {
        place: Box(lefts[tree[place].length], row * ROW, widths[place]) for place, row in rows(tree, shown).items()
    }


def _width(label: str) -> float:
    from matplotlib.textpath import TextPath

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        extents = TextPath((0, 0), label, size=FONT_SIZE).get_extents()
    return float(extents.width) * 1.1 + 2  # bold text is wider


def _widths(tree: Sequence[TreePrefix], shown: Sequence[int]) -> list[tuple[int, float]]:
    """The places with the widths of their edges, in points, in the order in which they are drawn."""
    best: dict[int, float] = {}
    for place in shown:
        prefix = tree[place]
        if prefix.total is not None:
            best[prefix.length] = max(best.get(prefix.length, -math.inf), prefix.total)
    found = []
    for place in reversed(shown):  # the best path is drawn above the others
        prefix = tree[place]
        share = 0.0 if prefix.total is None else math.exp(prefix.total - best[prefix.length])
        found.append((place, 0.5 + 2 * share))
    return found


def _edge(start: Box, end: Box, kind: str, width: float) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    x, bend = end.x - GAP, end.x - GAP / 2
    points = [(start.x + start.width, start.middle), (x, start.middle), (bend, start.middle), (bend, end.middle)]
    codes = [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    curve = Path([*points, (end.x, end.middle)], codes)
    style = (0, (2, 2)) if kind == "dropped" else "solid"
    return PathPatch(curve, fill=False, edgecolor=EDGES[kind], linewidth=width, linestyle=style, capstyle="butt")


def _frame(box: Box, kind: str, *, round: bool) -> Any:
    from matplotlib.patches import FancyBboxPatch

    corner = (ROW - 3) / 2 if round else 2.5
    return FancyBboxPatch(
        (box.x, box.y + 1.5), box.width, ROW - 3, boxstyle=f"round,pad=0,rounding_size={corner}",
        facecolor="#e3effa" if kind == "best" else "white", edgecolor=EDGES[kind],
        linewidth=0.9 if kind == "best" else 0.6, linestyle=(0, (2, 2)) if kind == "dropped" else "solid",
    )  # fmt: skip

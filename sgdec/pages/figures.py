"""Figures of matplotlib as SVG elements for a page: readable in dark and light, and by screen readers.

Colours stand for the variables of ``page.css``: each has a number that no figure uses otherwise, and is replaced by
its variable. Text stays text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT, MUTED, LINE = "#010203", "#010204", "#010205"
SERIES = tuple(f"#0203{number:02x}" for number in range(1, 9))
"""The colours of lines and bars."""
VARIABLES = {TEXT: "text", MUTED: "muted", LINE: "line"} | {
    color: f"series-{number}" for number, color in enumerate(SERIES, 1)
}
SETTINGS: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.titlecolor": TEXT,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "grid.color": LINE,
    "legend.frameon": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": TEXT,
    "ytick.color": MUTED,
    "ytick.labelcolor": TEXT,
}


def svg(
    draw: Callable[[Figure], object], title: str, description: str, *, width: float = 6, height: float = 3.6
) -> str:
    """The SVG element of a figure that ``draw`` fills, in inches. ``description`` says in words what it shows."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with rc_context(SETTINGS | {"svg.hashsalt": title}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    element = buffer.getvalue()
    element = element[element.index("<svg") :]
    for color, variable in VARIABLES.items():
        element = element.replace(color, f"var(--{variable})")
    element = re.sub(r'\bid="', f'id="{_name(title)}-', element)
    element = re.sub(r'(url\(#|href="#)', rf"\g<1>{_name(title)}-", element)
    name = _name(title)
    labels = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    opening, rest = element.split(">", 1)
    fitting = 'style="max-width: 100%; height: auto"'
    return f'{opening} {fitting} role="img" aria-labelledby="{name}-title {name}-desc">{labels}{rest}'


def _name(title: str) -> str:
    return re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")

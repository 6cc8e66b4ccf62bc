"""The logs of a run: metrics.jsonl, TensorBoard events, and a learning curve."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sgdec.errors import SgdecError
from sgdec.io.documents import read_document
from sgdec.io.writing import whole_file, write_whole

Row = dict[str, Any]
METRICS, CURVE = "metrics.jsonl", "curve.png"
LARGEST = 1e100
"""Larger numbers, and those that are not finite, are not drawn: the scales of matplotlib overflow."""


class TrainingReport:
    """The log of one run. A row has a ``step`` and other numbers; the row of a validation has a ``perplexity``."""

    def __init__(self, run: Path, *, step: int = 0) -> None:
        """Continue the log of ``run`` after ``step``; later rows of an interrupted run are dropped."""
        from torch.utils.tensorboard.writer import SummaryWriter

        self.run = run
        self.rows = [row for row in read_metrics(run / METRICS) if row["step"] <= step]
        if not isinstance(threading.excepthook, _LeavesToWriters):
            threading.excepthook = _LeavesToWriters(threading.excepthook)
        try:
            run.mkdir(parents=True, exist_ok=True)
            write_whole(run / METRICS, "".join(map(_line, self.rows)))
            self._events: Any = SummaryWriter(str(run), purge_step=step + 1 if step else None)
        except OSError as error:
            raise SgdecError(f"{run}: cannot be written ({error.strerror}). Give another --output.") from None

    def add(self, row: Row) -> None:
        """Write one row to all logs."""
        self.rows.append(row)
        try:
            with open(self.run / METRICS, "a", encoding="utf-8", newline="\n") as file:
                file.write(_line(row))
            for name, value in row.items():
                if name != "step":
                    self._events.add_scalar(name, value, row["step"])
        except OSError as error:
            raise SgdecError(f"{self.run / METRICS}: cannot be written ({error.strerror}).") from None

    def close(self) -> None:
        """Finish the logs and draw the learning curve."""
        self._events.close()
        draw_curve(self.rows, self.run / CURVE)


class Silence(TrainingReport):
    """The report of a rank that writes no logs."""

    def __init__(self) -> None:
        self.rows = []

    def add(self, row: Row) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class _LeavesToWriters:
    """A hook that stops TensorBoard's threads from printing their exceptions: the next write raises and reports them.

    ``others`` gets all other exceptions of threads.
    """

    def __init__(self, others: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._others = others

    def __call__(self, raised: threading.ExceptHookArgs) -> None:
        if getattr(raised.thread, "exception", None) is not raised.exc_value:
            self._others(raised)


def read_metrics(file: Path) -> list[Row]:
    """The complete rows of a metrics.jsonl; an empty list if the file does not exist.

    An incomplete last line, left by a killed run, is ignored. Raises `SgdecError` if another line is not a row, or
    the file exceeds the limit of a document.
    """
    try:
        lines = read_document(file).splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SgdecError(f"{file}: cannot be read ({error.strerror}).") from None
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return [_row(line, f"{file}, line {number}") for number, line in enumerate(lines, 1)]


def _row(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)
        numbers = isinstance(row, dict) and all(map(_is_number, row.values()))
        if numbers and type(row.get("step")) is int and row["step"] >= 0:
            return cast(Row, row)
    except (ValueError, RecursionError):
        pass
    raise SgdecError(
        f"{where}: expected a JSON object of numbers with a step. The log is damaged: replace it with the copy in "
        "the folder of the last checkpoint, or remove it."
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def draw_curve(rows: list[Row], file: Path) -> None:
    """Draw a PNG of training loss, validation scores and mean reward by step, as far as the rows have them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [
        ("loss", "training loss (nats per token)"),
        ("perplexity", "validation perplexity"),
        ("bleu", "validation BLEU"),
        ("gleu", "validation GLEU"),
        ("reward", "mean reward of samples"),
    ]
    panels = [panel for panel in panels if any(panel[0] in row for row in rows)]
    if not panels:
        return
    figure = Figure(figsize=(4.5 * len(panels), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, label) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        points = [(row["step"], row[name]) for row in rows if name in row and abs(row[name]) < LARGEST]
        axes.plot(*zip(*points, strict=True), marker="." if name != "loss" else "")
        axes.set(xlabel="step", title=label)
        axes.grid(alpha=0.3)
    with whole_file(file) as picture:
        figure.savefig(picture, dpi=100, format="png")


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(3725)
    '1:02:05'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _line(row: Row) -> str:
    return json.dumps(row) + "\n"

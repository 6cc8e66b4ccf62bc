"""The table of all sentences: length, score, search error, expansions and time of each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sgdec.trace.records import SentenceTrace
from sgdec.view.runs import SearchError, TracedRun

TOLERANCE = 1e-5
"""Scores that differ by less are equal: a trace rounds them to six decimals."""


@dataclass(frozen=True)
class Cell:
    """A cell of the table."""

    text: str
    number: bool = True
    value: float | str = ""
    """The key by which a column of numbers is sorted; empty = unknown, which is last."""


@dataclass(frozen=True)
class Row:
    """One sentence."""

    id: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class SentenceTable:
    """A row for each sentence that any of the runs has."""

    headings: tuple[tuple[str, bool], ...]
    """The titles of the columns, with that of the sentence's number, and whether they hold numbers."""
    rows: tuple[Row, ...]


def table(runs: Sequence[TracedRun]) -> SentenceTable:
    """The table without the columns of search errors of which nothing is known."""
    ids = sorted({id for run in runs for id in run.by_id})
    rows = [tuple(_cells(runs, [run.by_id.get(id) for run in runs])) for id in ids]
    titles = list(_titles(runs))
    shown = [
        column for column, (title, _) in enumerate(titles)
        if not title.startswith(ERROR) or any(cells[column].value != "" for cells in rows)
    ]  # fmt: skip
    return SentenceTable(
        (("sentence", True), *(titles[column] for column in shown)),
        tuple(Row(id, tuple(cells[column] for column in shown)) for id, cells in zip(ids, rows, strict=True)),
    )


def _titles(runs: Sequence[TracedRun]) -> Iterator[tuple[str, bool]]:
    """The titles of all cells, and whether they are numbers."""
    yield "source", False
    for name in ("output", *NUMBERS):
        for place in range(1, len(runs) + 1):
            yield name if len(runs) == 1 else f"{name} {place}", name != "output"


def _cells(runs: Sequence[TracedRun], traces: Sequence[SentenceTrace | None]) -> Iterator[Cell]:
    source = next(trace for trace in traces if trace is not None)
    yield Cell(_source(source), number=False)
    for run, trace in zip(runs, traces, strict=True):
        yield Cell(_output(run, trace), number=False)
    errors = search_errors(runs, traces)
    columns = [
        [None if trace is None else measure(trace) for trace in traces] for measure in (_length, _score)
    ]
    for values, digits in zip(columns, (0, 3), strict=True):
        yield from (_number(value, digits) for value in values)
    yield from errors
    yield from (_number(None if trace is None else trace.counted, 0) for trace in traces)
    yield from (_number(None if trace is None else trace.seconds, 3) for trace in traces)


ERROR = "search error"
NUMBERS = ("length", "score", ERROR, "expansions", "seconds")


def search_errors(runs: Sequence[TracedRun], traces: Sequence[SentenceTrace | None]) -> list[Cell]:
    """For each run how much better, as a rank score, another hypothesis is: one of the other run, if both search one
    space and rank its hypotheses alike, or one of a diagnosis; 0 if its own is proven, or the other's is proven and
    not better. Otherwise the column says what the diagnosis or the search itself knows, an upper bound on the
    error."""
    comparable = _comparable(runs, [trace for trace in traces if trace is not None])
    found = []
    for place, trace in enumerate(traces):
        others = [t for at, t in enumerate(traces) if at != place and t is not None] if comparable else []
        found.append(Cell("") if trace is None else _search_error(trace, others, runs[place].diagnosed.get(trace.id)))
    return found


def _comparable(runs: Sequence[TracedRun], traces: Sequence[SentenceTrace]) -> bool:
    """Whether runs have the same predictors, with their files and options, weights, ranking and length limit."""
    heads = [run.header for run in runs]
    ranked = {(head.predictors, head.weights, str(head.ranking), _predictors(head.signature)) for head in heads}
    limits = {trace.max_length for trace in traces}
    return len(ranked) == len(limits) == 1 and all(map(_under_weights_of_the_run, traces))


def _predictors(signature: str) -> str:
    """The part of a signature about predictors: their options, and hashes of their files."""
    return signature.partition("|predictors:")[2].partition("|decoder:")[0]


def _under_weights_of_the_run(trace: SentenceTrace) -> bool:
    """False for a hypothesis of one system of `sepbeam`, which the other predictors have not scored."""
    ends = [found.expansion for found in trace.hypotheses[:1]]
    return all(end is None or trace.expansions[end].weights is None for end in ends)


def _search_error(trace: SentenceTrace, others: Sequence[SentenceTrace], diagnosed: SearchError | None) -> Cell:
    own = _score(trace)
    if own is None:
        return Cell("no output")
    if trace.proven:
        return _number(0.0, 3)
    scores = [(score, other.proven) for other in others if (score := _score(other)) is not None]
    known = 0.0 if diagnosed is None or diagnosed.at_most else diagnosed.by
    best = max([own + known, *(score for score, _ in scores)])
    if best > own + TOLERANCE:
        return _number(best - own, 3)
    if any(proven for _, proven in scores) or (diagnosed is not None and not diagnosed.at_most):
        return _number(0.0, 3)
    bounds = [trace.gap, None if diagnosed is None else diagnosed.by]
    gap = min((bound for bound in bounds if bound is not None), default=None)
    return Cell("") if gap is None else Cell(f"≤ {gap:.3f}", value=gap)


def _score(trace: SentenceTrace) -> float | None:
    return trace.hypotheses[0].rank_score if trace.hypotheses else None


def _length(trace: SentenceTrace) -> int | None:
    return len(trace.hypotheses[0].tokens) if trace.hypotheses else None


def _number(value: float | None, digits: int) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.{digits}f}".replace("-", "−"), value=value)


def _source(trace: SentenceTrace) -> str:
    return " ".join(map(str, trace.tokens)) if trace.text is None else trace.text


def _output(run: TracedRun, trace: SentenceTrace | None) -> str:
    if trace is None:
        return "not in this trace"
    output = run.output(trace)
    if output is None:
        return trace.error or "no output"
    return output or "(empty output)"

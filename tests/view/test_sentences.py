"""The table of sentences has lengths, scores and search errors, and says only what is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sgdec.view.runs import SearchError, TracedRun
from sgdec.view.sentences import Cell, search_errors, table
from tests.helpers.traced_runs import traced

RUN = traced(sources=[[3, 4]])


def with_score(
    score: float | None, *, proven: bool | None = None, gap: float | None = None, run: TracedRun = RUN
) -> TracedRun:
    """A run whose only output has this score; None = no output."""
    (trace,) = run.sentences
    best = replace(trace.hypotheses[0], score=score or 0.0, rank_score=score or 0.0)
    hypotheses = () if score is None else (best,)
    return replace(run, sentences=[replace(trace, hypotheses=hypotheses, proven=proven, gap=gap)])


def errors(*runs: TracedRun) -> list[Cell]:
    return search_errors(runs, [run.sentences[0] for run in runs])


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([with_score(-3.0)], [""]),
        ([with_score(-3.0, proven=True)], ["0.000"]),
        ([with_score(-3.0, gap=0.5)], ["≤ 0.500"]),
        ([with_score(-3.0), with_score(-1.0)], ["2.000", ""]),
        ([with_score(-3.0), with_score(-1.0, proven=True)], ["2.000", "0.000"]),
        ([with_score(-1.0), with_score(-1.0000001, proven=True)], ["0.000", "0.000"]),
        ([with_score(-3.0, gap=5.0), with_score(-1.0)], ["2.000", ""]),
        ([with_score(None), with_score(-1.0)], ["no output", ""]),
    ],
)
def test_a_search_error_is_what_another_hypothesis_is_better_by(runs: list[TracedRun], expected: list[str]) -> None:
    assert [cell.text for cell in errors(*runs)] == expected


@pytest.mark.parametrize(
    ("run", "diagnosed", "expected"),
    [
        (with_score(-3.0), SearchError(2.0, at_most=False), "2.000"),
        (with_score(-3.0), SearchError(0.0, at_most=False), "0.000"),
        (with_score(-3.0), SearchError(2.0, at_most=True), "≤ 2.000"),
        (with_score(-3.0, gap=0.5), SearchError(2.0, at_most=True), "≤ 0.500"),
        (with_score(-3.0, proven=True), SearchError(2.0, at_most=True), "0.000"),
    ],
)
def test_a_diagnosis_tells_what_a_trace_does_not(run: TracedRun, diagnosed: SearchError, expected: str) -> None:
    (trace,) = run.sentences
    assert [cell.text for cell in errors(replace(run, diagnosed={trace.id: diagnosed}))] == [expected]
    assert [cell.text for cell in errors(replace(run, diagnosed={9: diagnosed}))] == [errors(run)[0].text]


def test_the_better_of_two_witnesses_counts() -> None:
    run = replace(with_score(-3.0), diagnosed={1: SearchError(0.5, at_most=False)})
    assert [cell.text for cell in errors(run, with_score(-1.0))] == ["2.000", ""]
    assert [cell.text for cell in errors(run, with_score(-2.75))] == ["0.500", ""]


def test_scores_that_differ_by_rounding_are_equal() -> None:
    cells = errors(with_score(-1.0000001), with_score(-1.0, proven=True))
    assert [cell.value for cell in cells] == [0.0, 0.0]


@pytest.mark.parametrize("what", ["weights", "ranking", "predictors"])
def test_runs_that_score_otherwise_witness_nothing(what: str) -> None:
    changed = {"weights": (1.0, 2.0), "ranking": {"alpha": 0.6}, "predictors": ("nmt", "other")}[what]
    other = with_score(-1.0)
    other = replace(other, header=replace(other.header, **{what: changed}))
    assert [cell.text for cell in errors(with_score(-3.0), other)] == ["", ""]


@pytest.mark.parametrize("what", ["files", "length limit", "system"])
def test_runs_of_other_spaces_witness_nothing(what: str) -> None:
    one, other = with_score(-3.0), with_score(-1.0)
    (trace,) = other.sentences
    if what == "files":
        signed = [f"sgdec:1|predictors:1*fst(path=a.fst#{digits})|decoder:beam" for digits in ("0d3a", "51f2")]
        heads = [replace(RUN.header, signature=each) for each in signed]
        one, other = replace(one, header=heads[0]), replace(other, header=heads[1])
    elif what == "length limit":
        other = replace(other, sentences=[replace(trace, max_length=2)])
    else:  # one of sepbeam's, whose output the other predictors have not scored
        expansions = tuple(replace(each, weights=(1.0, None)) for each in trace.expansions)
        other = replace(other, sentences=[replace(trace, expansions=expansions)])
    assert [cell.text for cell in errors(one, other)] == ["", ""]


def test_each_sentence_is_a_row_with_a_cell_for_each_heading() -> None:
    one, other = traced(sources=[[3, 4], [5]]), traced("greedy", sources=[[3, 4]], nbest=1)
    for runs in ([one], [one, other]):
        found = table(runs)
        assert [row.id for row in found.rows] == [1, 2]
        assert all(len(row.cells) == len(found.headings) - 1 for row in found.rows)
    missing = dict(zip([title for title, _ in found.headings[1:]], found.rows[1].cells, strict=True))
    assert missing.pop("output 2").text == "not in this trace"
    assert {title: cell.text for title, cell in missing.items() if title.endswith("2") and cell.text} == {}


def test_nothing_known_of_search_errors_is_no_column() -> None:
    def titles(*runs: TracedRun) -> list[str]:
        return [title for title, _ in table(runs).headings if "error" in title]

    assert titles(with_score(-3.0)) == titles(with_score(None)) == []
    assert titles(with_score(-3.0, gap=0.5)) == ["search error"]
    assert titles(with_score(-3.0), with_score(-1.0)) == ["search error 1"]
    (row,) = table([with_score(-3.0)]).rows
    assert row.cells[3].value == -3.0 and row.cells[4].value == RUN.sentences[0].counted


def test_the_numbers_are_those_of_the_trace() -> None:
    (row,) = table([RUN]).rows
    (trace,) = RUN.sentences
    best = trace.hypotheses[0]
    length, score, expansions, seconds = row.cells[2:]
    assert [length.value, score.value, expansions.value] == [len(best.tokens), best.rank_score, trace.counted]
    assert seconds.value == trace.seconds
    assert row.cells[1].text == " ".join(f"▁w{token}" for token in best.tokens)


def test_an_empty_output_and_a_failure_have_words() -> None:
    (trace,) = RUN.sentences
    empty = replace(trace, hypotheses=(replace(trace.hypotheses[0], tokens=(), text=""),))
    failed = replace(trace, hypotheses=(), error="no path")
    texts = [table([replace(RUN, sentences=[each])]).rows[0].cells[1].text for each in (empty, failed)]
    assert texts == ["(empty output)", "no path"]

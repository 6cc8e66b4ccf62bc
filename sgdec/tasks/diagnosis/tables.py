"""The tables of a diagnosis as text, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgdec.ranking import ABSOLUTE, RELATIVE
from sgdec.tasks.comparison_tables import NONE, TextTable
from sgdec.tasks.diagnosis.curve import Oracle, Point
from sgdec.tasks.diagnosis.summary import DiagnosisSummary, Errors


def tables(
    summary: DiagnosisSummary, curve: Sequence[Point] = (), oracle: Oracle | None = None
) -> Iterator[TextTable]:
    """All tables, in the order of a report."""
    yield _verdicts(summary)
    yield _errors(summary)
    yield _deciders(summary)
    yield _lengths(summary)
    yield _empty(summary)
    if curve:
        yield _curve(curve, summary.sentences)
    if oracle is not None:
        yield _oracle(oracle)
    yield _calibration(summary)
    yield _agreement(summary)


def _verdicts(summary: DiagnosisSummary) -> TextTable:
    rows = [[verdict, str(count), _percent(count, summary.sentences)] for verdict, count in summary.verdicts.items()]
    return TextTable("Verdicts", ["", "sentences", "share"], rows, [])


def _errors(summary: DiagnosisSummary) -> TextTable:
    def row(name: str, errors: Errors, sign: str = "") -> list[str]:
        mean = NONE if errors.mean is None else f"{sign}{errors.mean:.4g}"
        return [name, str(errors.sentences), _percent(errors.sentences, summary.sentences), mean]

    def plain(name: str, count: int) -> list[str]:
        return [name, str(count), _percent(count, summary.sentences), ""]

    rows = [
        row("search error, proven", summary.proven),
        row("search error, witnessed", summary.witnessed, "at least "),
        plain("no search error, proven", summary.no_search_error),
        row("search unknown", summary.unknown, "at most "),
        row("model error: the reference ranks lower", summary.model_errors),
        plain("model error: the reference is forbidden", summary.forbidden),
        plain("output is the reference", summary.found),
    ]
    others = {
        "reference is longer than the length limit": summary.too_long,
        "reference could not be scored": summary.no_reference,
        "no output": summary.failed,
    }
    rows += [plain(name, count) for name, count in others.items() if count]
    note = f"Rank scores count as equal up to {ABSOLUTE:g}, or {RELATIVE:.3%} of their size."
    return TextTable("Errors", ["", "sentences", "share", "mean difference in rank score"], rows, [note])


def _deciders(summary: DiagnosisSummary) -> TextTable:
    rows = [
        [
            each.name,
            NONE if each.weight is None else f"{each.weight:g}",
            str(each.forbids),
            str(each.model_errors),
            str(each.search_errors),
            str(each.turning),
            NONE if each.turning_weight is None else f"{each.turning_weight:.4g}",
        ]
        for each in summary.deciders
    ]
    head = [
        "",
        "weight",
        "forbids references",
        "decides model errors",
        "decides search errors",
        "can turn",
        "at weight",
    ]
    notes = [
        "A predictor decides if it adds most to the difference.",
        "It can turn a model error if with another weight of it alone (the median is shown) both rank equally.",
    ]
    return TextTable("Which predictor decides", head, rows, notes)


def _lengths(summary: DiagnosisSummary) -> TextTable:
    lengths = summary.lengths
    rows = [[_span(each.shortest, each.longest), str(each.sentences), f"{each.ratio:.3f}"] for each in lengths.bins]
    rows.append(["all", str(lengths.sentences), NONE if lengths.ratio is None else f"{lengths.ratio:.3f}"])
    notes = [f"Outputs that are shorter than their references: {lengths.shorter}; longer: {lengths.longer}."]
    return TextTable(
        "Length of outputs, by tokens of the reference", ["tokens", "sentences", "length ratio"], rows, notes
    )


def _empty(summary: DiagnosisSummary) -> TextTable:
    empty, of = summary.empty, summary.sentences
    rows = [
        ["the output is empty", str(empty.outputs), _percent(empty.outputs, of)],
        ["the empty output ranks higher", str(empty.better), _percent(empty.better, of)],
        ["the empty output is forbidden", str(empty.forbidden), _percent(empty.forbidden, of)],
        ["the best of the space is empty, proven", str(empty.optima), _percent(empty.optima, empty.proven)],
    ]
    note = f"The last share is that among sentences whose best hypothesis is known ({empty.proven})."
    return TextTable("Empty outputs", ["", "sentences", "share"], rows, [note])


def _curve(curve: Sequence[Point], sentences: int) -> TextTable:
    rows = [
        [
            str(each.size),
            f"{each.bleu:.2f}",
            f"{each.chrf:.2f}",
            NONE if each.rank_score is None else f"{each.rank_score:.4f}",
            NONE if each.length_ratio is None else f"{each.length_ratio:.3f}",
            f"{each.search_errors} ({_percent(each.search_errors, sentences)})",
            str(each.expansions),
        ]
        for each in curve
    ]
    head = ["beam", "BLEU", "chrF", "mean rank score", "length ratio", "search errors", "expansions"]
    return TextTable(
        "Beam curve", head, rows, ["A search error here is a sentence of which a better hypothesis is known."]
    )


def _oracle(oracle: Oracle) -> TextTable:
    rows = [
        ["first", f"{oracle.first_bleu:.2f}", f"{oracle.first_chrf:.2f}", "1"],
        ["best by chrF", f"{oracle.bleu:.2f}", f"{oracle.chrf:.2f}", f"{oracle.rank:.2f}"],
    ]
    notes = [f"Lists have {oracle.size:.1f} hypotheses on average. chrF and rank are means over sentences."]
    return TextTable("Oracle of the n-best lists", ["", "BLEU", "chrF", "rank"], rows, notes)


def _calibration(summary: DiagnosisSummary) -> TextTable:
    rows = [
        [name, str(each.steps), *map(_number, (each.accuracy, each.confidence, each.error))]
        for name, each in summary.calibration.items()
    ]
    notes = ["The best token at each step along the references counts. ECE is the expected calibration error."]
    return TextTable("Calibration", ["", "steps", "accuracy", "confidence", "ECE"], rows, notes)


def _agreement(summary: DiagnosisSummary) -> TextTable:
    agreed = summary.agreement
    rows = [[f"{name} and the output", str(each.of), _number(each.share)] for name, each in agreed.taken.items()]
    rows += [[f"{one} and {other}", str(each.of), _number(each.share)] for (one, other), each in agreed.same.items()]
    notes = [
        "The share of steps along the outputs with the same best token. Steps without one best token do not count."
    ]
    return TextTable("Agreement", ["", "steps", "share"], rows, notes)


def _percent(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else NONE


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _span(shortest: int, longest: int | None) -> str:
    return f"{shortest} or more" if longest is None else f"{shortest} to {longest}"

"""The page of a diagnosis (``sgdec/pages/diagnose.html``): its subject, findings, sentences, tables, and plots."""

from __future__ import annotations

from collections.abc import Iterator

from sgdec.errors import counted
from sgdec.pages.kinds import kinds
from sgdec.pages.page import render
from sgdec.tasks.diagnosis.explaining import explain, severity
from sgdec.tasks.diagnosis.findings import findings
from sgdec.tasks.diagnosis.plots import plots
from sgdec.tasks.diagnosis.report import Report
from sgdec.tasks.diagnosis.tables import tables
from sgdec.tasks.diagnosis.verdicts import VERDICTS, JudgedSentence


def page(report: Report, viewer: str | None = None, signature: str | None = None) -> str:
    """The page as text; the sentences that matter most come first (`severity`).

    ``viewer``: the page of ``sgdec view`` that the sentences link to, as a path from this page. ``signature``: that
    of the run (`sgdec.signature.line`).
    """
    sentences = sorted(report.diagnosis.sentences, key=severity, reverse=True)
    return render(
        "diagnose.html",
        f"Diagnosis of {counted(len(sentences), 'sentence')}",
        variables={
            "subject": list(report.diagnosis.subject.lines()),
            "signature": signature,
            "findings": findings(report.summary),
            "tables": list(tables(report.summary, report.curve, report.oracle)),
            "plots": list(plots(report)),
            "rows": [(each, list(explain(each, report.piece, report.weights))) for each in sentences],
            "severity": severity,
            "kinds": kinds([set(_kinds(each)) for each in sentences], _order(report)),
            "viewer": viewer,
        },
        scripts=["table.js", "sentences.js"],
    )


def _kinds(sentence: JudgedSentence) -> Iterator[str]:
    """The kinds of a sentence, in words: those that the findings and the tables of verdicts and predictors count."""
    yield sentence.verdict
    if sentence.failed:
        yield _FAILED
    if sentence.lost:
        yield _LOST
    search, model = sentence.search, sentence.model
    if model.forbidden is not None:
        yield from map(_FORBIDS.format, (*model.forbidden.predictors, *model.forbidden.later))
    if model.error == "error" and model.decision is not None:
        yield _MODEL.format(model.decision.predictor)
    if search.decision is not None:
        yield _SEARCH.format(search.decision.predictor)


def _order(report: Report) -> Iterator[str]:
    """All kinds, those of a predictor together."""
    yield from (*dict.fromkeys(VERDICTS.values()), _FAILED, _LOST)
    for each in report.summary.deciders:
        yield from (kind.format(each.name) for kind in (_FORBIDS, _MODEL, _SEARCH))


_FAILED, _LOST = "no output", "reference lost"
_FORBIDS, _MODEL, _SEARCH = "{} forbids the reference", "{} decides the model error", "{} decides the search error"

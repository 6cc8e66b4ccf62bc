"""The page of a diagnosis (``sgdec/pages/diagnose.html``): findings, tables, plots, and all sentences to sort."""

from __future__ import annotations

from sgdec.errors import counted
from sgdec.pages.page import render
from sgdec.tasks.diagnosis.explaining import explain, severity
from sgdec.tasks.diagnosis.findings import findings
from sgdec.tasks.diagnosis.plots import plots
from sgdec.tasks.diagnosis.report import Report
from sgdec.tasks.diagnosis.tables import tables


def page(report: Report, viewer: str | None = None) -> str:
    """The page as text; the sentences with the largest errors come first.

    ``viewer``: the page of ``sgdec view`` that the sentences link to, as a path from this page.
    """
    sentences = sorted(report.diagnosis.sentences, key=severity, reverse=True)
    return render(
        "diagnose.html",
        f"Diagnosis of {counted(len(sentences), 'sentence')}",
        variables={
            "subject": list(report.diagnosis.subject.lines()),
            "findings": findings(report.summary),
            "tables": list(tables(report.summary, report.curve, report.oracle)),
            "plots": list(plots(report)),
            "rows": [(each, list(explain(each, report.piece, report.weights))) for each in sentences],
            "viewer": viewer,
        },
        scripts=["table.js"],
    )

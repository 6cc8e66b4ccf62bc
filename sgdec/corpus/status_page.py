"""The page of a corpus (``sgdec/pages/status.html``): its progress, with tables that can be sorted."""

from __future__ import annotations

from sgdec.corpus.status import Status
from sgdec.corpus.status_tables import findings, tables
from sgdec.pages.page import render


def page(status: Status) -> str:
    """The page as text."""
    return render(
        "status.html",
        f"Corpus {status.folder}",
        variables={"status": status, "findings": list(findings(status)), "tables": list(tables(status))},
        scripts=["table.js"],
    )

"""The options of commands that can write a trace of their search."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from sgdec.cli.paths import Written
from sgdec.cli.sections import option
from sgdec.errors import UsageError
from sgdec.trace.records import Header, Tracing

if TYPE_CHECKING:
    from sgdec.library import LoadedRun
    from sgdec.trace.writing import TraceWriter

log = logging.getLogger(__name__)

TRACE = "Trace"
OPTIONS = (
    option(
        "--trace", section=TRACE, type=Written(), metavar="FILE",
        help="File to write what the search did to, for 'sgdec view'; .zst and .gz pack it.",
    ),
    option(
        "--trace-sentences", section=TRACE, metavar="A:B",
        help="Trace only sentences A to B, counted from 1, both included.",
    ),
    option(
        "--trace-children", section=TRACE, type=click.IntRange(1), metavar="INT",
        default=Tracing.children, show_default=True,
        help="Children to list for each expansion; the others are a number.",
    ),
    option(
        "--trace-expansions", section=TRACE, type=click.IntRange(1), metavar="INT",
        default=Tracing.expansions, show_default=True,
        help="Expansions to record for each sentence; later ones are only counted.",
    ),
)  # fmt: skip


def tracing(given: Mapping[str, Any]) -> Tracing | None:
    """The traced part of the run; None = nothing. Raises UsageError for options without --trace."""
    from sgdec.io.sources import parse_range

    if given["trace"] is None:
        unset = {"sentences": None, "children": Tracing.children, "expansions": Tracing.expansions}
        for name, default in unset.items():
            if given[f"trace_{name}"] != default:
                raise UsageError(f"--trace-{name} says what --trace FILE records; give both.")
        return None
    if given.get("resume"):
        raise UsageError(
            "--trace: a continued run has no trace of the sentences before. Leave out --trace to continue, or give "
            "--overwrite in place of --resume to begin again."
        )
    try:
        first, last = parse_range(given["trace_sentences"])
    except UsageError as error:
        raise UsageError(str(error).replace("--range", "--trace-sentences")) from None
    return Tracing(given["trace_children"], first, last, given["trace_expansions"])


def header(loaded: LoadedRun, tracing: Tracing, signature: str) -> Header:
    """The first line of a trace of this run."""
    from sgdec import __version__

    parts = loaded.parts
    return Header(
        predictors=parts.constellation.names,
        weights=parts.constellation.weights,
        decoder=parts.config.decoder_name,
        options={name: _plain(value) for name, value in parts.options[parts.config.decoder_name].items()},
        ranking=asdict(parts.decoder.ranking),
        nbest=loaded.settings.nbest,
        signature=signature,
        children=tracing.children,
        expansions=tracing.expansions,
        sgdec=__version__,
    )


@contextmanager
def writing(
    given: Mapping[str, Any], loaded: LoadedRun, tracing: Tracing | None, signature: str
) -> Iterator[TraceWriter | None]:
    """Open the file of --trace; None without one."""
    if tracing is None:
        yield None
        return
    from sgdec.trace.writing import writing_trace

    with writing_trace(given["trace"], header(loaded, tracing, signature), loaded.parts.vocabularies) as writer:
        yield writer
        if not writer.sentences:
            log.warning(f"--trace {given['trace']} has no sentence: --trace-sentences or the input leaves none.")


def _plain(value: Any) -> Any:
    """A value for JSON."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

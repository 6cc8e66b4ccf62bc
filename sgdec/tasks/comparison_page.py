"""The page of a comparison: its tables, and all sentences in a table that can be sorted and filtered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgdec.errors import counted
from sgdec.pages.kinds import kinds
from sgdec.pages.page import render
from sgdec.tasks.comparison import ComparedSentence, Comparison, System
from sgdec.tasks.comparison_tables import tables
from sgdec.tasks.word_diff import word_diff


def page(comparison: Comparison) -> str:
    """The page as text (``sgdec/pages/compare.html``). The sentences that differ most come first; scripts hide those
    that `is_equal` until the reader asks for them."""
    ordered = sorted(comparison.sentences, key=lambda sentence: -abs(sentence.difference))
    rows = [
        (sentence, [word_diff(sentence.outputs[0], output) for output in sentence.outputs[1:]])
        for sentence in ordered
    ]
    names = [system.name for system in comparison.systems]
    listed = [set(_kinds(sentence, comparison.systems)) for sentence in ordered]
    return render(
        "compare.html",
        f"Comparison of {len(names)} runs on {counted(len(rows), 'sentence')}",
        variables={
            "names": names,
            "tables": list(tables(comparison)),
            "rows": rows,
            "kinds": kinds(listed, _order(comparison.systems)),
            "is_equal": is_equal,
            "equal": sum(map(is_equal, ordered)),
        },
        scripts=["table.js", "sentences.js"],
    )


def is_equal(sentence: ComparedSentence) -> bool:
    """Whether all runs have the same output. Two missing ones are not equal."""
    return not any(sentence.missing) and not sentence.differs


def _kinds(sentence: ComparedSentence, systems: Sequence[System]) -> Iterator[str]:
    """The kinds of a sentence, in words: how each run differs from the first, and which runs have no output."""
    first, *others = systems
    for system, chrf, output in zip(others, sentence.chrf[1:], sentence.outputs[1:], strict=True):
        if not sentence.references and output != sentence.outputs[0]:
            yield _other(system, first)
        elif chrf != sentence.chrf[0]:
            yield _higher(system, first) if chrf > sentence.chrf[0] else _lower(system, first)
    yield from (_missing(system) for system, missing in zip(systems, sentence.missing, strict=True) if missing)


def _order(systems: Sequence[System]) -> Iterator[str]:
    """All kinds, those of a run together."""
    first, *others = systems
    for system in others:
        yield from (kind(system, first) for kind in (_higher, _lower, _other))
    yield from map(_missing, systems)


def _higher(system: System, first: System) -> str:
    return f"{system.name}: higher chrF than {first.name}"


def _lower(system: System, first: System) -> str:
    return f"{system.name}: lower chrF than {first.name}"


def _other(system: System, first: System) -> str:
    """Without references chrF is against the first run, so that none is higher."""
    return f"{system.name}: other output than {first.name}"


def _missing(system: System) -> str:
    return f"{system.name}: no output"

"""The state of a corpus in words and tables, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from sgdec.corpus.status import StarterStatus, Status
from sgdec.tasks.comparison_tables import NONE, TextTable

AGES = 10**12
"""The most seconds that are shown; `timedelta` ends soon after."""
NAMED = 10
"""The most chunks that are named in a line."""


def findings(status: Status) -> Iterator[str]:
    """Lines about the corpus as a whole: progress, speed, failed lines, chunks that need attention."""
    share = 100 * status.lines_done / max(status.lines, 1)
    yield (
        f"{status.lines_done:,} of {status.lines:,} lines are done ({share:.1f} %), {status.chunks_done:,} of "
        f"{status.chunks:,} chunks."
    )
    if status.chunks_done < status.chunks:
        yield _speed(status)
    by_pulses = "" if status.records else " by the pulses of starters; --json FILE reads all results"
    retried = " (`sgdec corpus --retry-failed` tries them again)" if status.failed else ""
    yield f"Failed lines: {status.failed:,}{retried}{by_pulses}."
    if status.undecided:
        yield (
            f"Undecided lines, whose workers were killed from outside: {status.undecided:,}. The next start of "
            "`sgdec corpus` tries them again."
        )
    unusable = status.records.unusable if status.records else []
    yield from unusable[:NAMED]
    if len(unusable) > NAMED:
        yield f"{len(unusable) - NAMED:,} more results cannot be used; --json FILE lists them."
    if status.records and status.records.gone:
        yield f"Files of patterns that are gone, so that they could not be compared: {status.records.gone:,}."
    if status.leased:
        yield f"Leased: {_listed(list(status.leased))}."
    if status.split:
        yield f"In parts, because workers died: {_listed(list(status.split))}."
    if status.records and status.records.unrecorded:
        yield f"Results without a record, which the merge will write: {_listed(status.records.unrecorded)}."
    if status.lost:
        yield (
            f"Results that are missing although they were published: {_listed(status.lost)}. Restore them; or start "
            "`sgdec corpus` again, which works on these chunks again."
        )


def troubles(status: Status) -> Iterator[str]:
    """The numbers of lines to try again, and of results that a person has to look at."""
    if status.failed:
        yield f"{status.failed:,} failed"
    if status.undecided:
        yield f"{status.undecided:,} undecided"
    if status.records and status.records.unusable:
        yield f"{len(status.records.unusable):,} results cannot be used"


def tables(status: Status) -> Iterator[TextTable]:
    """Starters, their workers, and the slowest chunks."""
    if status.starters:
        yield _starters(status.starters)
    if any(each.workers for each in status.starters):
        yield _workers(status.starters)
    if status.records and status.records.slowest:
        rows = [
            [str(chunk), f"{record.get('lines')}", f"{record.get('failed')}", f"{record.get('seconds')}",
             f"{record.get('worker')}"]
            for chunk, record in status.records.slowest
        ]  # fmt: skip
        head = ["chunk", "lines", "failed", "seconds", "worker"]
        yield TextTable("Chunks with the most seconds per line", head, rows, [])


def _speed(status: Status) -> str:
    left = status.seconds_left
    unsure = [each for each in status.starters if each.state == "unknown"]
    if left is None and all(each.state in ("ended", "silent") for each in status.starters):
        return "Nobody works on it now, as far as the pulses say."
    if left is None:
        return "The speed is not known yet: no pulse tells of finished lines."
    watched = ", if every starter that has not ended still works" if unsure else ""
    return f"{status.rate:,.1f} lines/s, {timedelta(seconds=round(min(left, AGES)))} left{watched}."


def _listed(chunks: Sequence[int]) -> str:
    more = f" and {len(chunks) - NAMED:,} more" if len(chunks) > NAMED else ""
    kind = "chunk" if len(chunks) == 1 else f"{len(chunks):,} chunks,"
    return f"{kind} {', '.join(map(str, chunks[:NAMED]))}{more}"


def _starters(starters: Sequence[StarterStatus]) -> TextTable:
    rows = [
        [each.name, str(each.pulse), each.state, f"{each.lines:,}", f"{each.underway:,}",
         NONE if each.rate is None else f"{each.rate:,.1f}", f"{each.failed:,}", str(each.deaths), str(each.leased)]
        for each in starters
    ]  # fmt: skip
    notes = []
    if any(each.state == "unknown" for each in starters):
        seconds = 3 * max(each.every for each in starters)
        notes.append(f"A pulse is a counter; to see which starters live, look twice: --watch {seconds:.0f}.")
    head = ["starter", "pulse", "state", "lines", "underway", "lines/s", "failed", "deaths", "leased"]
    return TextTable("Starters", head, rows, notes)


def _workers(starters: Sequence[StarterStatus]) -> TextTable:
    counted = [(count, each.name, place) for each in starters for place, count in each.workers.items()]
    rows = [[f"{name} {place}", f"{count:,}"] for count, name, place in sorted(counted)]
    return TextTable("Workers, those with the fewest lines first", ["starter and worker", "lines"], rows, [])

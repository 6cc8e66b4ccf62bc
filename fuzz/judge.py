"""Decides what is a finding: a run that neither did its work nor said in one line what is wrong.

The rules hold for every command; `Case` has the additional promises of one case.
"""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

from fuzz.case import Case
from fuzz.running import Outcome
from fuzz.zygote import CPU_SECONDS, MEMORY

LONGEST_ERROR = 2100
"""The maximum number of characters of a readable line."""
NOISE = re.compile(r"\w+Warning: |^(ERROR|FATAL|WARNING): |^terminate called|^libgomp|^\[W|Exception ignored", re.M)
"""Text that libraries write on standard error."""
NO_MEMORY = re.compile(r"MemoryError|bad_alloc|can't allocate memory|cannot allocate|unable to allocate", re.I)
BACKTRACE = re.compile(
    r"^(thread .* panicked at .*|stack backtrace:|Fatal Python error: .*|\*\*\* (?:Aborted|Check failure).*|"
    r"C\+\+ CapturedTraceback:|Stack trace:|Exception raised from .*)",
    re.M | re.I,
)
"""The lines that native libraries, the interpreter and processes of the run print about their own crashes."""
FRAME = re.compile(r'File ".*?/((?:sgdec|predictors|decoders)/[^"]+)", line \d+,? in (\S+)')
EXCEPTION = re.compile(r"^([\w.]*(?:Error|Exception|Interrupt|Warning|Exit|Iteration))\b(: .*)?$")
PARTLY = re.compile(r"^Warning: |\b[1-9][0-9]* (failed|undecided)", re.M)
"""Says that some sentences have no output, which does not fail the command."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Finding(NamedTuple):
    """A broken promise of a run."""

    kind: str
    """traceback, backtrace, signal, slow, memory, incomplete, lost, overwritten, unclear, status or noise."""
    where: str
    """Equal findings have equal kinds and places."""
    what: str
    """The finding as text."""

    def __str__(self) -> str:
        return f"{self.kind} ({self.where}): {self.what}"


def judge(case: Case, outcome: Outcome) -> Finding | None:
    """The worst finding about a run, or None."""
    for rule in (_died, _raised, _misspoke, _lost, _overwrote):
        if (found := rule(case, outcome)) is not None:
            return found
    return None


def label(outcome: Outcome) -> str:
    """How a run ended, for the summary: done, partly (some sentences failed), failed, refused."""
    if outcome.status == 1:
        return "failed" if _errors(outcome) else "partly"
    return {0: "done", 2: "refused"}.get(outcome.status, "died")


def _errors(outcome: Outcome) -> list[str]:
    return [line for line in outcome.err.split("\n") if line.startswith("Error: ")]


def _died(case: Case, outcome: Outcome) -> Finding | None:
    """A run that was ended by a signal, took too long, or used too much memory."""
    place = f"{case.target}: {_place(outcome.err)}"
    if NO_MEMORY.search(outcome.err) or outcome.rss > MEMORY:
        return Finding("memory", place, f"{outcome.rss >> 20} MiB in memory; {_tail(outcome)}")
    if outcome.waited or outcome.cpu > CPU_SECONDS - 0.5:
        return Finding("slow", place, f"{outcome.cpu:.0f} s of processor time, {outcome.seconds:.0f} s by the clock")
    if outcome.status < 0:
        return Finding("signal", place, f"{signal.Signals(-outcome.status).name}; {_tail(outcome)}")
    return None


def _raised(case: Case, outcome: Outcome) -> Finding | None:
    """An exception that is not an error of the user."""
    if native := BACKTRACE.search(outcome.err):
        return Finding("backtrace", f"{case.target}: {re.sub(r'[0-9]+', 'N', native[0])[:80]}", native[0][:300])
    if "Traceback (most recent call last)" not in outcome.err:
        return None
    lines = outcome.err.rstrip().split("\n")
    raised = [line for line in lines if EXCEPTION.match(line)]
    name = raised[-1].partition(":")[0] if raised else "?"
    return Finding("traceback", f"{name} in {_place(outcome.err)}", raised[-1][:300] if raised else lines[-1][:300])


def _misspoke(case: Case, outcome: Outcome) -> Finding | None:
    """A wrong exit status; an error that is not one clear line."""
    errors = _errors(outcome)
    if noise := NOISE.search(outcome.err):
        line = outcome.err[outcome.err.rfind("\n", 0, noise.start()) + 1 :].partition("\n")[0]
        return Finding("noise", f"{case.target}: {re.sub(r'[0-9.]+', 'N', line)[:80]}", line[:300])
    if outcome.status not in case.statuses:
        why = (errors or outcome.err.split("\n"))[-1]
        return Finding("status", case.target, f"exit status {outcome.status}: {why[:300]}")
    if outcome.status == 0 and errors:
        return Finding("status", case.target, f"exit status 0 with an error: {errors[0][:300]}")
    if outcome.status == 2 or (outcome.status == 1 and not PARTLY.search(outcome.err) and case.args[0] != "plugins"):
        if len(errors) != 1 or not outcome.err.endswith(f"{errors[0]}\n"):
            return Finding("unclear", case.target, f"expected one line, Error: ..., at the end: {_tail(outcome)}")
        for what, wrong in (
            ("it has control characters", CONTROL.search(errors[0])),
            (f"it has {len(errors[0])} characters", len(errors[0]) > LONGEST_ERROR),
            ("it does not end as a sentence", not errors[0].endswith((".", "?", ")"))),
        ):
            if wrong:
                return Finding("unclear", f"{case.target}: {what}", f"{what}: {errors[0][:300]!r}")
    return None


def _lost(case: Case, outcome: Outcome) -> Finding | None:
    """Output that is missing or wrong."""
    if case.survives and _errors(outcome):
        return Finding("lost", case.target, f"one sentence ended the run: {_errors(outcome)[0][:300]}")
    if 1 in case.closed and case.rows and outcome.status == 0:
        return Finding("lost", f"{case.target}: closed", "exit status 0, though standard output was closed")
    if case.closed or case.rows is None or outcome.status not in (0, 1) or _errors(outcome):
        return None
    lines = outcome.out.decode("utf-8", "surrogateescape").split("\n")
    if len(lines) - 1 != case.rows:
        return Finding("incomplete", case.target, f"{len(lines) - 1} lines of output, expected {case.rows}")
    for row, text in case.kept.items():
        if lines[row - 1] != text:
            return Finding("lost", case.target, f"line {row} is {lines[row - 1][:100]!r}, expected {text!r}")
    return None


def _overwrote(case: Case, outcome: Outcome) -> Finding | None:
    """A changed input file, or any file that a wrong call changed. In an output folder, files written before an error
    may stay.
    """
    failed = bool(_errors(outcome)) or outcome.status not in (0, 1)
    for name in outcome.changed:
        if name.endswith("/.lock"):  # no data
            continue
        inside = any(name.startswith(f"{path}/") for path in case.writes) and outcome.status in (0, 1)
        told = name in case.writes and case.closed  # what a command says at its end may need the closed stream
        if not inside and not told and (failed or name not in case.writes):
            return Finding("overwritten", f"{case.target}: {case.args[0]}", f"{name}; exit status {outcome.status}")
    return None


def _place(err: str) -> str:
    """The innermost function of sgdec in a traceback (its last frame), or in a dump of a crashed process (its first
    frame)."""
    dump = err.rfind("most recent call first")
    frames = FRAME.findall(err[dump:]) if dump >= 0 else FRAME.findall(err)[::-1]
    return ":".join(frames[0]) if frames else "no frame"


def _tail(outcome: Outcome) -> str:
    return repr(outcome.err.rstrip()[-300:])

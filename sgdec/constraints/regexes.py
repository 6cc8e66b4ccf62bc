"""Regular expressions as automata over bytes, compiled by outlines-core (the syntax of Rust's crate regex).

A pattern matches a whole text. It has no look-around, back-references and anchors, because an automaton has none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arcs import DEAD
from sgdec.constraints.byte_automata import BYTES, ByteAutomaton
from sgdec.errors import SgdecError

WORKER = Path(__file__).with_name("regex_worker.py")
SECONDS, MEMORY = 20, 4 << 30
"""Limits for one pattern: processor time and memory."""
SHOWN = 60
"""The characters of a pattern that an error shows."""


def compile_regexes(patterns: Sequence[str]) -> list[ByteAutomaton]:
    """The automata of patterns. Raises SgdecError, with the pattern, for one that cannot be compiled."""
    if find_spec("outlines_core") is None or find_spec("llguidance") is None:
        raise SgdecError(
            "the packages outlines-core and llguidance are missing; install them: pip install 'sgdec[constraints]'."
        )
    for pattern in patterns:
        if not pattern.isprintable() and any("\ud800" <= char <= "\udfff" for char in pattern):
            raise SgdecError(f"the pattern {shown(pattern)} is not text. Expected UTF-8.")
    found = _compiled(patterns)
    if found is None and len(patterns) > 1:  # one of them needs too much; alone, it can be named
        return [automaton for pattern in patterns for automaton in compile_regexes([pattern])]
    if found is None:
        raise SgdecError(
            f"the pattern {shown(patterns[0])} needs more than {SECONDS} seconds or {MEMORY >> 30} GiB to be "
            "compiled. Nested repetitions multiply: give smaller numbers."
        )
    return found


def _compiled(patterns: Sequence[str]) -> list[ByteAutomaton] | None:
    """None if the limits were not enough."""
    command = [sys.executable, "-I", str(WORKER), str(SECONDS), str(MEMORY)]
    try:
        places = [str(Path(place).absolute()) for place in sys.path if place]
        asked = json.dumps({"path": places, "patterns": list(patterns)}).encode()
        done = subprocess.run(command, input=asked, capture_output=True, timeout=4 * SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == 1 and b"MemoryError" not in done.stderr:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise SgdecError(f"the compiler of patterns has failed: {''.join(reason)}. Reinstall 'sgdec[constraints]'.")
    if done.returncode:
        return None
    found, rest = [], done.stdout
    for pattern in patterns:
        line, _, rest = rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SgdecError(
                f"the pattern {shown(pattern)} cannot be compiled: {answer['error']}. Expected a regular expression "
                "for whole texts, without anchors such as ^ and $, word boundaries, look-around and back-references."
            )
        size = 3 * 8 * answer["arcs"]
        found.append(_automaton(answer, np.frombuffer(rest[:size], np.int64).reshape(-1, 3)))
        if not found[-1].states:
            raise SgdecError(f"the pattern {shown(pattern)} matches nothing. Expected one that matches some text.")
        rest = rest[size:]
    return found


def _automaton(answer: dict[str, Any], arcs: npt.NDArray[np.int64]) -> ByteAutomaton:
    """From the arcs ``[n, 3]``: state, byte, state after it; states have any numbers."""
    names = np.unique(np.array([answer["start"], *answer["ends"], *arcs[:, 0], *arcs[:, 2]], np.int64))
    table = np.full((len(names), BYTES), DEAD)
    table[names.searchsorted(arcs[:, 0]), arcs[:, 1]] = names.searchsorted(arcs[:, 2])
    return ByteAutomaton.trimmed(table, np.isin(names, answer["ends"]), int(names.searchsorted(answer["start"])))


def shown(pattern: str) -> str:
    """A pattern as a message shows it."""
    return repr(pattern if len(pattern) <= SHOWN else pattern[:SHOWN] + "...")

"""Regular expressions as automata over bytes, compiled by outlines-core (the syntax of Rust's crate regex).

A pattern matches a whole text. It has no look-around, back-references and anchors, because an automaton has none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sgdec.errors import SgdecError
from sgdec_predictors.texts.byte_automata import BYTES, STATES, ByteAutomaton

WORKER = Path(__file__).with_name("regex_worker.py")
SECONDS, MEMORY = 8, 3 << 29
"""Limits for one pattern, from its text to its smallest automaton: seconds of processor time, and bytes."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Threads of NumPy would reserve memory, which counts."""
SHOWN = 60
"""The characters of a pattern that an error shows."""


def compile_regexes(patterns: Sequence[str], seconds: int = 0, memory: int = 0) -> list[ByteAutomaton]:
    """The automata of patterns. Raises SgdecError, with the pattern, for one that cannot be compiled, or that takes
    more than ``seconds`` of processor time (0 = `SECONDS`), ``memory`` bytes (0 = `MEMORY`), or `STATES` states.
    """
    if find_spec("outlines_core") is None or find_spec("llguidance") is None:
        raise SgdecError(
            "the packages outlines-core and llguidance are missing; install them: pip install 'sgdec[constraints]'."
        )
    for pattern in patterns:
        if not pattern.isprintable() and any("\ud800" <= char <= "\udfff" for char in pattern):
            raise SgdecError(f"the pattern {shown(pattern)} is not text. Expected UTF-8.")
    seconds, memory = seconds or SECONDS, memory or MEMORY
    found = _compiled(patterns, seconds, memory)
    if found is None and len(patterns) > 1:  # one of them needs too much; alone, it can be named
        return [automaton for pattern in patterns for automaton in compile_regexes([pattern], seconds, memory)]
    if found is None:
        raise SgdecError(
            f"the pattern {shown(patterns[0])} needs more than {seconds} seconds or {memory >> 20} MiB to be "
            "compiled. Nested repetitions multiply: give smaller numbers, or raise --regex.effort."
        )
    return found


def _compiled(patterns: Sequence[str], seconds: int, memory: int) -> list[ByteAutomaton] | None:
    """None if the limits were not enough."""
    command = [sys.executable, "-I", str(WORKER), str(seconds), str(memory), str(STATES)]
    try:
        places = [str(Path(place).absolute()) for place in sys.path if place]
        asked = json.dumps({"path": places, "patterns": list(patterns)}).encode()
        done = subprocess.run(
            command, input=asked, capture_output=True, timeout=4 * seconds, check=False, env=os.environ | ONE_THREAD
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == 1 and b"emory" not in done.stderr:  # of Python, or of the libraries of NumPy
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
        if "too_many" in answer:
            raise SgdecError(
                f"the automaton of the pattern {shown(pattern)} has {answer['too_many']:,} states. Expected at most "
                f"{STATES:,}. Nested repetitions multiply: give smaller numbers."
            )
        automaton, rest = _handed_over(answer, rest)
        if not automaton.states:
            raise SgdecError(f"the pattern {shown(pattern)} matches nothing. Expected one that matches some text.")
        found.append(automaton)
    return found


def _handed_over(answer: dict[str, Any], content: bytes) -> tuple[ByteAutomaton, bytes]:
    """An automaton in the content after its answer, and the rest of the content."""
    if "arcs" in answer:
        size = 3 * 8 * answer["arcs"]
        arcs = np.frombuffer(content[:size], np.int64).reshape(-1, 3)
        return ByteAutomaton.of_arcs(arcs, answer["start"], answer["ends"]), content[size:]
    states: int = answer["states"]
    table = np.frombuffer(content, np.int32, states * BYTES).reshape(states, BYTES)
    ends = np.frombuffer(content, np.bool_, states, table.nbytes)
    return ByteAutomaton(table, ends), content[table.nbytes + states :]


def shown(pattern: str) -> str:
    """A pattern as a message shows it."""
    return repr(pattern if len(pattern) <= SHOWN else pattern[:SHOWN] + "...")

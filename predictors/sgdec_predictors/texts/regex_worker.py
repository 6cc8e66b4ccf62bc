"""Compiles regular expressions in a process of its own, because a short pattern can need any time and memory.

An `Index` leaves out bytes within a character that follow a text which could have ended there. So an end mark is
added to each pattern, and no text could have ended before it; a text can end in a state from which the mark leads to
the end.

Reads from standard input JSON: the places of packages, and patterns. Writes for each pattern a line of JSON, and
numbers after it:

    {"error": text}                           what is wrong with the pattern
    {"start": state, "ends": [...], "arcs": n}  3 x n whole numbers of 64 bits: state, byte, next state
    {"states": n}                             n x 256 of 32 bits, the smallest table; and n bytes, whether texts end
    {"too_many": n}                           its smallest automaton has n states, which are more than STATES

This process has limits, and finishes large automata itself. Only small ones are handed over as arcs, so most patterns
need no NumPy here, whose import takes as long as their compilation.

    python -I regex_worker.py SECONDS BYTES STATES < request.json
"""

import json
import sys
from array import array
from contextlib import suppress
from itertools import pairwise
from typing import Any

SMALL = 1 << 10
"""The most states of an automaton that is handed over as arcs."""

MARK = "\U0010ffff"
"""The last code point of Unicode, which is assigned to nothing."""
LOOKS = "it has an anchor or a word boundary"


def limit(seconds: int, memory: int) -> None:
    """End this process when it has used so much processor time; refuse it more memory than this.

    Windows has neither limit, and macOS none on memory. The parent waits only for some time.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory)):
        hard = resource.getrlimit(kind)[1]
        with suppress(ValueError):  # macOS refuses limits on memory
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def check(pattern: str) -> None:
    """Raise ValueError for a pattern that is wrong by itself, such as ``a)|(b``."""
    from outlines_core import Index, Vocabulary

    try:
        Index(pattern, Vocabulary(1, {"a": [0]}))
    except ValueError as error:
        if "vocabulary" not in str(error):
            raise


def grouped(pattern: str) -> str:
    """A pattern as a group. A line end closes the comment with which it ends, if ``(?x)`` allows comments."""
    group = f"(?:{pattern})"
    return f"(?:{pattern}\n)" if mistake(group) else group


def looks_around(group: str) -> bool:
    """Whether a pattern has anchors or word boundaries. An `Index` can ignore those that hold at the end only."""
    return any("lookarounds not supported" in line for line in parsed(f"x{group}x")[:1])


def parsed(pattern: str) -> list[str]:
    """The lines of the error with which llguidance's parser refuses a pattern; none if it does not."""
    from llguidance import LLMatcher

    return LLMatcher.validate_grammar(LLMatcher.grammar_from_regex(pattern)).splitlines()


def mistake(pattern: str) -> str:
    """A mistake in the syntax, and where it is; outlines-core does not say this."""
    for before, line in pairwise(parsed(pattern)):
        if line.startswith("error: "):
            column = len(before) - len(before.lstrip()) - len("    ") + 1
            return f"{line.removeprefix('error: ')}, at character {column}"
    return ""


def explained(pattern: str, error: str) -> str:
    """The reason why a pattern is refused."""
    if "anchored" in error or "look" in error or "boundar" in error:
        error = LOOKS
    return mistake(pattern) or ("it ends with a backslash" if pattern.endswith("\\") else error)


def after_mark(ways: dict[int, dict[int, int]], state: int) -> int | None:
    """The state after the end mark; None if it cannot follow."""
    after: int | None = state
    for byte in MARK.encode():
        after = None if after is None else ways.get(after, {}).get(byte)
    return after


def finished(answer: dict[str, Any], arcs: "array[int]", most: int) -> tuple[dict[str, Any], bytes]:
    """The smallest automaton with these arcs: its answer, and the numbers after it."""
    import numpy as np

    from sgdec_predictors.texts.byte_automata import ByteAutomaton

    automaton = ByteAutomaton.of_arcs(np.frombuffer(arcs, np.int64).reshape(-1, 3), answer["start"], answer["ends"])
    if automaton.states > most:
        return {"too_many": automaton.states}, b""
    return {"states": automaton.states}, automaton.table.tobytes() + automaton.ends.tobytes()


def main() -> None:
    seconds, memory, most = map(int, sys.argv[1:])
    limit(seconds, memory)
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]  # the packages that the parent imports, not others of the same names
    from outlines_core import Index, Vocabulary

    letters = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
    for pattern in request["patterns"]:
        arcs = array("q")
        answer: dict[str, Any]
        try:
            check(pattern)
            group = grouped(pattern)
            if looks_around(group):
                raise ValueError(LOOKS)
            index = Index(f"{group}{MARK}", letters)
        except ValueError as error:
            if "vocabulary" in str(error):
                answer = {"start": 0, "ends": [], "arcs": 0}
            else:
                answer = {"error": explained(pattern, str(error))}
        else:
            ways = index.get_transitions()
            for state, after in ways.items():
                for byte, target in after.items():
                    if byte < 256:
                        arcs.extend((state, byte, target))
            ends = [state for state in ways if after_mark(ways, state) in index.get_final_states()]
            answer = {"start": index.get_initial_state(), "ends": ends, "arcs": len(arcs) // 3}
        content = arcs.tobytes()
        if answer.get("arcs") and len(ways) > SMALL:
            del index, ways
            answer, content = finished(answer, arcs, most)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + content)


if __name__ == "__main__":
    main()

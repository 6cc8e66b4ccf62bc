"""Compiles regular expressions in a process of its own, because a short pattern can need any time and memory.

An `Index` leaves out bytes within a character that follow a text which could have ended there. So an end mark is
added to each pattern, and no text could have ended before it; a text can end in a state from which the mark leads to
the end.

Reads from standard input a JSON list of patterns; writes for each a line of JSON, {"error": ...} or {"start": ...,
"ends": [...], "arcs": n}, and the arcs as 3 x n whole numbers of 64 bits: state, byte, next state.

    python -I regex_worker.py SECONDS BYTES < patterns.json
"""

import json
import sys
from array import array
from itertools import pairwise
from typing import Any

MARK = "\U0010ffff"
"""The last code point of Unicode, which is assigned to nothing. No pattern can match it."""


def limit(seconds: int, memory: int) -> None:
    """End this process when it has used so much processor time; refuse it more memory than this."""
    try:
        import resource
    except ImportError:  # Windows; the parent waits only so long
        return
    for kind, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def check(pattern: str) -> None:
    """Raise ValueError for a pattern that is wrong by itself, such as ``a)|(b``."""
    from outlines_core import Index, Vocabulary

    try:
        Index(pattern, Vocabulary(1, {"a": [0]}))
    except ValueError as error:
        if "vocabulary" not in str(error):
            raise


def explained(pattern: str, error: str) -> str:
    """The mistake in a pattern that outlines-core refuses. It does not say where; llguidance's parser does."""
    from llguidance import LLMatcher

    found = LLMatcher.validate_grammar(LLMatcher.grammar_from_regex(pattern)).splitlines()
    for before, line in pairwise(found):
        if line.startswith("error: "):
            column = len(before) - len(before.lstrip()) - len("    ") + 1
            return f"{line.removeprefix('error: ')}, at character {column}"
    if "anchored" in error or "look" in error or "boundar" in error:
        return "it has an anchor or a word boundary"
    return error


def after_mark(ways: dict[int, dict[int, int]], state: int) -> int | None:
    """The state after the end mark; None if it cannot follow."""
    after: int | None = state
    for byte in MARK.encode():
        after = None if after is None else ways.get(after, {}).get(byte)
    return after


def main() -> None:
    from outlines_core import Index, Vocabulary

    limit(*map(int, sys.argv[1:]))
    letters = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
    for pattern in json.load(sys.stdin):
        arcs = array("q")
        answer: dict[str, Any]
        try:
            check(pattern)
            index = Index(f"(?:{pattern}){MARK}", letters)
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
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + arcs.tobytes())


if __name__ == "__main__":
    main()

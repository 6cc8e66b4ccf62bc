"""Answers questions about a submission: reads a line of JSON, does what it says, and writes a line of JSON.

It holds the submission, and neither spaces nor checks nor right answers. What is answered can be wrong, since the
submission can change all that is in its process. The grader believes none of it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "site")]


def main() -> None:
    """Answer until there are no more questions."""
    questions = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing, end = os.pipe()
    os.close(end)
    os.dup2(nothing, 0)  # `input` finds an end; there may be no /dev/null
    os.dup2(2, 1)  # the answers are not mixed with what a submission prints
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the grader asks so where the submission is
    answerer = import_module("inside.answerer").Answerer()
    for line in questions:
        question: dict[str, Any] = json.loads(line)
        answer = answerer.answer(question)
        answers.write(json.dumps({**answer, "number": question["number"]}) + "\n")
        answers.flush()
    os._exit(0)  # without what a submission may have left to run at the end


if __name__ == "__main__":
    main()

"""A utility that another program computes, in an environment of its own.

For metrics whose packages do not fit beside sgdec, such as COMET. The program is started once for a run. It reads
requests from its standard input and prints to its standard output, each a line of JSON:

    it prints first    {"symmetric": false, "needs_references": true, "aggregates": false}
    request            {"hypotheses": ["...", ...], "references": ["...", ...], "source": "..." or null}
    answer             {"utilities": [[0.8, 0.1], ...]}     or     {"error": "why this sentence has none"}

The first line says that it is ready, and which traits it has; what it leaves out is as above, so ``{}`` is enough.
The matrix has one row per hypothesis and one column per reference, or one column if there are no references. If it
aggregates, a request with ``weights``, one row per mean of references, is answered with one column per mean
(`sgdec.utility.Aggregates`). It ends when its input ends.

Scale: the program's; higher is better. Cost: the program's, and the time to write and read its lines.

If it ends, prints anything else or says nothing for ``seconds``, it is ended, and so is the run. An answer of another
shape or with NaN fails its sentence.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from sgdec.arrays import Floats
from sgdec.errors import SgdecError, UsageError, described, one_line
from sgdec.io.documents import parse_json
from sgdec.plugins.hookspecs import hookimpl
from sgdec.plugins.options import EXECUTES
from sgdec.utilities.process import LineProcess, shown
from sgdec.utility import Utility

TRAITS = ("symmetric", "needs_references", "aggregates")
"""The keys of the program's first line."""


class Program(Utility):
    """Ask a program."""

    name = "command"

    def __init__(
        self,
        command: Annotated[str, Field(description="the program and its arguments; no shell is involved"), EXECUTES],
        seconds: Annotated[
            float, Field(gt=0, le=1e6, description="the longest wait for its first line, and for each answer")
        ] = 600.0,
    ) -> None:
        try:
            words = shlex.split(command, posix=os.name == "posix")
        except ValueError as error:  # an open quotation
            raise UsageError(f"utility command: {command!r} is not a command line: {error}.") from None
        if not words:
            raise UsageError("utility command: the command is empty. Give one, such as 'python comet_utility.py'.")
        self.name = f"command {shown(command.encode())}"
        self._seconds = seconds
        self._process = LineProcess(words, f"utility {self.name}")
        traits = self._parsed(self._process.answer(seconds))
        for key, value in traits.items():
            if key not in TRAITS or not isinstance(value, bool):
                raise self._process.failed(
                    f"printed the trait {one_line(key)!r} = {described(value)} first; expected true or false for "
                    f"{', '.join(TRAITS)}"
                )
        self.symmetric = traits.get("symmetric", False)
        self.needs_references = traits.get("needs_references", True)
        if traits.get("aggregates", False):
            self.aggregated = self._aggregated  # the ability is that of the program

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        return self._ask(hypotheses=list(hypotheses), references=list(references), source=source)

    def _aggregated(
        self, hypotheses: Sequence[str], references: Sequence[str], weights: Floats, source: str | None
    ) -> Floats:
        return self._ask(
            hypotheses=list(hypotheses), references=list(references), weights=weights.tolist(), source=source
        )

    def close(self) -> None:
        """End the program. It also ends when this object or the run does."""
        self._process.close()

    def _ask(self, **request: Any) -> Floats:
        """The matrix as it was answered, of whatever type; `sgdec.utility.pairwise` checks it."""
        answer = self._parsed(self._process.ask(json.dumps(request).encode() + b"\n", self._seconds))
        if set(answer) == {"error"}:
            raise SgdecError(f"utility {self.name}: {one_line(str(answer['error']))}")
        if set(answer) != {"utilities"}:
            keys = ", ".join(map(repr, list(answer)[:5])) or "nothing"
            raise self._process.failed(f"answered with {keys}; expected 'utilities' or 'error'")
        matrix: Floats = answer["utilities"]
        return matrix

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            found = parse_json(line)
        except ValueError:
            raise self._process.failed(
                f"printed {shown(line)}, which is not JSON. Only answers may go to standard output; all else belongs "
                "on standard error"
            ) from None
        if not isinstance(found, dict):
            raise self._process.failed(f"printed {described(found)}; expected a JSON object")
        return found


@hookimpl
def sgdec_utilities() -> dict[str, type[Any]]:
    return {"command": Program}

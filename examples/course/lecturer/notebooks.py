"""A handout as a Jupyter notebook (format 4.5): a cell for each section, and one for each block of commands.

The block that copies the starter file becomes a cell that writes it (``%%writefile``), so that students can edit it
there. Cells of commands run with ``%%bash``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from textwrap import dedent
from typing import Any

BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```\n", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^(?=## )", re.MULTILINE)
PATH = """\
# `python` and `sgdec` in the commands below are those of this notebook
import os, sys
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
"""


def notebook(name: str, handout: str, starter: str) -> str:
    """The JSON of the notebook. ``name``: of the assignment; paths of the handout are relative to the notebook."""
    numbers = count(1)
    cells: list[dict[str, Any]] = []
    for kind, source in _parts(name, handout, starter):
        source = source.rstrip("\n")
        cell: dict[str, Any] = {"cell_type": kind, "id": f"{name}-{next(numbers)}", "metadata": {}, "source": source}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        if source.startswith("%%bash"):  # "run all" continues if the file is not finished
            cell["metadata"] = {"tags": ["raises-exception"]}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _parts(name: str, handout: str, starter: str) -> Iterator[tuple[str, str]]:
    """The type and the text of each cell."""
    title, *sections = SECTION.split(handout)
    yield "markdown", title
    yield "code", PATH
    for section in sections:
        end = 0
        for block in BLOCK.finditer(section):
            if text := section[end : block.start()].strip("\n"):
                yield "markdown", text
            yield from _commands(name, dedent(block[2]), starter)
            end = block.end()
        if text := section[end:].strip("\n"):
            yield "markdown", text


def _commands(name: str, commands: str, starter: str) -> Iterator[tuple[str, str]]:
    copied = re.match(rf"cp {re.escape(name)}/starter\.py (\S+)\n", commands)
    if copied:
        yield "code", f"%%writefile {copied[1]}\n{starter}"
        commands = commands[copied.end() :]
    if commands:
        yield "code", f"%%bash\n{commands}"

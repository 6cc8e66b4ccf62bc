"""The code blocks of a page, and what the page shows of their output.

- `sh` and `python` blocks run.
- An `output` block is what the block before it prints: all of its standard output, and of standard error the lines
  that it shows. `...` stands for any text. `MASKS` are not compared; numbers with a decimal point may differ in their
  last digit, or by a ten-thousandth.
- "It prints `...`" is a part of what the block before it prints.
- A `text recorded` block was printed on another machine or with other data, as the page says; only its form is
  compared, if the page ran the command.
- `text` is no output.

Run as a program, with Python alone, it types the blocks of a page from top to bottom in the current folder, with the
programs of PATH, and ends at the first one that fails or prints something else. A second file has what was printed
before, which recorded blocks are compared with; without it they are not:

    make demo | tee demo.txt && . .venv/bin/activate && python tests/helpers/documentation.py README.md demo.txt
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

BLOCK = re.compile(r"^( *)```(\S*) *([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"It\s+prints\s+`(.*?)`", re.DOTALL)
NAME = re.compile(r"# ([\w/]+\.py)\n")
"""The first line of a Python block that is a file."""
RUNNING = ("sh", "python")
NUMBER = r"-?\d+\.\d+(?:e-?\d+)?"
MASKS = {
    "seconds": r"(?<=\bin )[\d.,]+(?= s\b)|(?<=\"seconds\":)[\d.e-]+",
    "rate": r"[\d.,]+(?= (?:sentences|tokens)/s)",
    "version": r"(?<=\bsgdec:)[\w.+]+|(?<=\bversion:)[\d.]+",
    "hash": r"(?<=#)[0-9a-f]{12}\b",
}


class Printed(NamedTuple):
    """What a block prints."""

    out: str = ""
    err: str = ""


class Example(NamedTuple):
    """A block that runs, with what the page shows of its output."""

    where: str
    """Page and number of the block, from 1."""
    language: str
    code: str
    shown: list[str]
    quoted: list[str]
    recorded: list[str]

    @property
    def file(self) -> str | None:
        """The file that a Python block is."""
        named = NAME.match(self.code) if self.language == "python" else None
        return named and named[1]


class Block(NamedTuple):
    """A block as it stands on a page."""

    where: str
    language: str
    remark: str
    code: str
    prose: str
    """The text up to the next block."""


def blocks(page: Path, root: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    matches = [*BLOCK.finditer(text)]
    ends = [*(match.start() for match in matches), len(text)][1:]
    return [
        Block(f"{page.relative_to(root)}:{number}", *match.groups()[1:3], dedent(match[4]), text[match.end() : end])
        for number, (match, end) in enumerate(zip(matches, ends, strict=True), 1)
    ]


def examples(page: Path, root: Path) -> list[Example]:
    """The blocks that run. Raises AssertionError for output that belongs to none of them."""
    found: list[Example] = []
    before = ""
    for block in blocks(page, root):
        if block.language in RUNNING:
            found.append(Example(block.where, block.language, block.code, [], [], []))
        elif block.language == "output":
            assert found, f"{block.where}: no block before it prints this"
            found[-1].shown.append(block.code)
        elif block.remark == "recorded" and before != "text" and found:
            found[-1].recorded.append(block.code)
        before = block.language
        if found:
            found[-1].quoted.extend(" ".join(quoted.split()) for quoted in QUOTED.findall(block.prose))
    return found


def compare(example: Example, printed: Printed) -> None:
    """Raise AssertionError if a block does not print what the page shows."""
    if example.shown:
        shown = "\n".join(text.strip() for text in example.shown)
        assert _agree(shown, printed), f"{example.where} shows\n{shown}\n\nand prints\n{printed.out}\n{printed.err}"
    everything = " ".join(f"{printed.out} {printed.err}".split())
    for quoted in example.quoted:
        assert quoted in everything, f"{example.where}: {quoted!r} is not in what it prints:\n{everything}"


def compare_form(example: Example, printed: str) -> None:
    """Raise AssertionError if a recorded output has a line that no line of ``printed`` is like."""
    forms = [form(line) for line in printed.splitlines()]
    for line in filter(str.strip, "".join(example.recorded).splitlines()):
        beginning, cut, _ = line.partition("...")
        alike = form(beginning)
        assert any(each.startswith(alike) if cut else each == alike for each in forms), f"{example.where}: {line}"


def form(line: str) -> str:
    """A line without its numbers and words.

    >>> form("5 ||| drei hundert ||| nmt= -6.752469")
    '0 ||| w ||| w= 0'
    """
    line = re.sub(r"-?\d[\d.,]*", "0", line.replace("▁", ""))
    return re.sub(r"w( w)+", "w", " ".join(re.sub(r"[^\W\d]+", "w", line).split()))


def _agree(shown: str, printed: Printed) -> bool:
    if agree(shown, printed.out):
        return True
    errors = printed.err.splitlines()
    rest = [line for line in shown.splitlines() if line == "..." or not any(agree(line, error) for error in errors)]
    return agree("\n".join(rest), printed.out)


def agree(shown: str, printed: str) -> bool:
    """Whether a command that prints ``printed`` may be shown with this output.

    >>> agree("a...", "a 1"), agree("-6.752469", "-6.752471"), agree("21 of 40", "22 of 40"), agree("0.75", "0.78")
    (True, True, False, False)
    """
    parts = re.split(rf"(\.\.\.|{NUMBER})", _masked(shown))
    numbers = [part for part in parts if re.fullmatch(NUMBER, part)]
    pattern = "".join(
        ".*?" if part == "..." else f"({NUMBER})" if re.fullmatch(NUMBER, part) else re.escape(part) for part in parts
    )
    found = re.fullmatch(pattern, _masked(printed), re.DOTALL)
    return found is not None and all(map(_close, numbers, found.groups()))


def _masked(text: str) -> str:
    for name, mask in MASKS.items():
        text = re.sub(mask, f"<{name}>", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _close(shown: str, printed: str) -> bool:
    digits = len(shown.partition("e")[0].partition(".")[2])
    return math.isclose(float(shown), float(printed), rel_tol=1e-4, abs_tol=1.01 * 10.0**-digits)


def type_page(page: list[Example], folder: Path, run: Callable[[Example], Printed], everything: str | None) -> None:
    """Run the blocks of a page from top to bottom in a folder. Python blocks that name their file are saved, and run
    if the page shows what they print.

    ``everything``: what was printed before the first one; None = do not compare recorded blocks.
    """
    for example in page:
        if example.file:
            (folder / example.file).parent.mkdir(exist_ok=True)
            (folder / example.file).write_text(example.code, encoding="utf-8")
            if not example.shown + example.quoted:
                continue
            example = example._replace(language="sh", code=f"python {example.file}")
        printed = run(example)
        compare(example, printed)
        if everything is not None:
            everything += f"{printed.out}\n{printed.err}\n"
            compare_form(example, everything)


def command(example: Example) -> list[str]:
    """The command that runs a block."""
    assert example.language in RUNNING, example.where
    return (
        ["python", "-c", example.code]
        if example.language == "python"
        else ["bash", "-euo", "pipefail", "-c", example.code]
    )


def _run(example: Example) -> Printed:
    print(f"{example.where}\n{example.code}", flush=True)
    done = subprocess.run(command(example), capture_output=True, text=True)
    assert done.returncode == 0, f"{example.where}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return Printed(done.stdout, done.stderr)


if __name__ == "__main__":
    page, *others = map(Path, sys.argv[1:])
    everything = others[0].read_text(encoding="utf-8") if others else None
    try:
        type_page(examples(page, page.parent), Path.cwd(), _run, everything)
    except AssertionError as error:
        sys.exit(str(error))

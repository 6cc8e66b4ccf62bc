"""Files of phrases: a line for each sentence, or one line for all of them.

Phrases are separated by tabs, alternatives of one phrase by a bar between blanks. A bar that belongs to a phrase is
written with a backslash. Blanks around phrases do not count, and an empty line has no phrases.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from sgdec import SgdecError
from sgdec.errors import counted
from sgdec.files import read_lines

Alternatives: TypeAlias = tuple[str, ...]
"""One phrase: the texts that count as it."""
MOST = 1 << 19
"""The most characters on a line, for each of which its automaton takes some 200 bytes."""
BAR = re.compile(r"(?<!\S)\|(?!\S)")


class PhraseLines:
    """The phrases of each sentence."""

    def __init__(self, path: str) -> None:
        """Raises SgdecError if the file cannot be read, or has an empty phrase."""
        self.path = path
        self._lines = [self._split(line, number) for number, line in enumerate(list(read_lines(path)), 1)]

    @property
    def serve_all(self) -> bool:
        """Whether the file has one line, which is for all sentences."""
        return len(self._lines) == 1

    def of(self, sentence: int) -> tuple[Alternatives, ...]:
        """The phrases of a sentence. Raises SgdecError if the file has several lines, but none for it."""
        if self.serve_all:
            return self._lines[0]
        if sentence > len(self._lines):
            raise SgdecError(
                f"{self.path} has {counted(len(self._lines), 'line')}, so none for sentence {sentence}. "
                "Expected one line per source sentence, or one line for all."
            )
        return self._lines[sentence - 1]

    def where(self, sentence: int) -> str:
        """The place of a sentence's phrases, for messages."""
        return f"{self.path}: line {1 if self.serve_all else sentence}"

    def _split(self, line: str, number: int) -> tuple[Alternatives, ...]:
        if not line.strip():
            return ()
        if len(line) > MOST:
            raise SgdecError(
                f"{self.path}: line {number}: {len(line):,} characters of phrases. Expected at most {MOST:,} on one."
            )
        phrases = tuple(
            tuple(text.strip().replace("\\|", "|") for text in BAR.split(phrase)) for phrase in line.split("\t")
        )
        if not all(map(all, phrases)):
            raise SgdecError(
                f"{self.path}: line {number}: an empty phrase. Expected phrases with one tab between them, and ' | ' "
                "between alternatives."
            )
        return phrases

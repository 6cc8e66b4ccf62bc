"""Reading sentences to decode: text through a vocabulary, or token ids; one sentence per line.

A line that cannot be read does not affect the others: it becomes an `Unreadable`, with the file and the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import IO, Literal, TypeAlias

from sgdec.context import Vocabulary
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import whole_number
from sgdec.lengths import LengthRule
from sgdec.protocol import Source
from sgdec.search.outcome import Unreadable
from sgdec.text.lines import WrongEncoding, name_of, open_bytes, text_lines, unpacking_errors
from sgdec.text.two_sources import TwoSources

BETWEEN = {"text": b"\t", "ids": b" 2 "}
"""The separator of the two sources of a sentence, by input format: a tab, or the token ``</s>``."""


Lines: TypeAlias = "Iterable[bytes | SgdecError]"
"""Lines with their line ends; an error takes the place of a line that is too long."""


ENDLESS = 1 << 62
"""More than the sentences of any file."""


@dataclass(frozen=True)
class SourceReader:
    """Turns lines into sources. Raises UsageError if text cannot be read because there is no vocabulary."""

    vocabulary: Vocabulary | None
    """The source vocabulary, which is required for text."""
    format: Literal["text", "ids"] = "text"
    lengths: LengthRule = field(default_factory=LengthRule)
    longest: int = 1000
    """The maximum length of a source in tokens; 0 = no limit."""

    def __post_init__(self) -> None:
        if self.format == "text" and self.vocabulary is None:
            raise UsageError(
                "no predictor brings a source vocabulary, so text cannot be read; "
                "give --tokenizer FILE, or token ids with --input-format ids."
            )

    @contextmanager
    def open(self, paths: Sequence[str]) -> Iterator[Lines]:
        """The lines of a file, or of the two files of two sources side by side.

        Raises UsageError if there are more files than the models read or one is missing, SgdecError if one of two
        files ends before the other.
        """
        if len(paths) > (2 if isinstance(self.vocabulary, TwoSources) else 1):
            raise UsageError(f"{len(paths)} inputs: expected one file; or two, for a model of two sources.")
        with ExitStack() as stack:
            files = [text_lines(stack.enter_context(open_input(path)), name_of(path)) for path in paths]
            yield files[0] if len(files) == 1 else _side_by_side(files, paths, BETWEEN[self.format])

    def read(
        self, lines: Lines, name: str, first: int = 1, last: int | None = None, *, done: int = 0
    ) -> Iterator[Source | Unreadable]:
        """Yields sentences ``first`` to ``last`` (1-based, inclusive) of a file; messages call it ``name``.

        ``done``: sentences up to this one are skipped. If reading the file fails, the last item is an `Unreadable`.
        Raises UsageError if the file ends before sentence ``first`` or ``done``.
        """
        number = 0
        for number, line in enumerate(_guarded(lines), start=1):
            if last is not None and number > last:
                return
            if number <= max(first - 1, done) and not isinstance(line, _BrokenOff):
                continue
            yield self.sentence(number, line, f"{name}, line {number}")
            if isinstance(line, _BrokenOff):
                return
        if first > max(number, 1):
            raise UsageError(f"--range begins at {first}, but {name} has {number} line{'s' * (number != 1)}.")
        if done > number:
            raise UsageError(
                f"{name} has {number} lines, and the unfinished output has sentence {done}: its notes are damaged. "
                "Begin again with --overwrite."
            )

    def sentence(self, number: int, line: bytes | SgdecError, place: str) -> Source | Unreadable:
        """Sentence ``number`` from a line, which messages call ``place``."""
        try:
            if isinstance(line, SgdecError):
                raise line
            return self._source(number, line)
        except SgdecError as error:
            return Unreadable(number, SgdecError(f"{place}: {error}"))

    def _source(self, number: int, line: bytes) -> Source:
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise SgdecError(
                f"not UTF-8 (byte {error.start + 1}); convert the file, for example with iconv."
            ) from None
        if self.format == "text":
            assert self.vocabulary is not None
            return self.source(number, self.vocabulary.encode(text), text)
        return self.source(number, tuple(map(_token, text.split())))

    def source(self, number: int, tokens: tuple[int, ...], text: str | None = None) -> Source:
        """Sentence ``number``. Raises SgdecError if it is empty, too long or has invalid tokens."""
        if self.vocabulary is not None and max(tokens, default=0) >= self.vocabulary.size:
            raise SgdecError(f"token {max(tokens)} is outside the source vocabulary 0..{self.vocabulary.size - 1}.")
        if not tokens:
            raise SgdecError("empty; there is nothing to decode.")
        if self.longest and len(tokens) > self.longest:
            raise SgdecError(
                f"{len(tokens)} tokens, more than --max-source-length {self.longest}; split it, or raise the limit."
            )
        source = Source(number, tokens, text)
        return replace(source, max_length=self.lengths.limit(source))


def _token(word: str) -> int:
    token = whole_number(word)
    if token is None:
        given = repr(word) if len(word) <= 40 else f"{word[:20]!r}... ({len(word)} characters)"
        raise SgdecError(f"{given} is not a token id (0, 1, 2, ...); for text use --input-format text.")
    return token


class _BrokenOff(SgdecError):
    """The error that ended the reading of lines."""


def _guarded(lines: Lines) -> Iterator[bytes | SgdecError]:
    """Yields the lines, and at the end the error that stopped the reading, if there was one."""
    damaged: tuple[type[Exception], ...] = (OSError, *unpacking_errors())
    try:
        yield from lines
    except WrongEncoding:
        raise
    except SgdecError as error:
        yield _BrokenOff(str(error))
    except damaged as error:
        yield _BrokenOff(f"the file cannot be read from here on ({error}); what was before it is decoded.")


@contextmanager
def open_input(path: str) -> Iterator[IO[bytes]]:
    """Open a file, packed or not, or standard input for ``-``. Raises UsageError if it cannot be opened."""
    try:
        file = open_bytes(path)
    except OSError as error:
        raise UsageError(f"input {path}: {error.strerror}; expected a text file, one sentence per line.") from None
    if path == "-":
        yield file
        return
    with file:
        yield file


def _side_by_side(files: Sequence[Lines], paths: Sequence[str], between: bytes) -> Iterator[bytes | SgdecError]:
    for lines in zip_longest(*files):
        if None in lines:
            ended = paths[lines.index(None)]
            raise SgdecError(f"{ended} has ended, another file has not. Line N of all files is about one sentence.")
        read = [line.rstrip(b"\r\n").replace(b"\t", b" ") for line in lines if isinstance(line, bytes)]
        yield between.join(read) if len(read) == len(lines) else next(e for e in lines if isinstance(e, SgdecError))


def parse_range(text: str | None, option: str = "--range") -> tuple[int, int | None]:
    """``A:B`` (inclusive, 1-based), ``A:``, ``:B``, ``:`` or one number.

    >>> parse_range("3:5"), parse_range("7"), parse_range(":2"), parse_range(None)
    ((3, 5), (7, 7), (1, 2), (1, None))
    """
    if text is None:
        return 1, None
    first, colon, last = text.partition(":")
    low = whole_number(first, ENDLESS) if first else 1
    high = (whole_number(last, ENDLESS) if last else ENDLESS) if colon else low
    if not text or not low or not high or high < low:
        raise UsageError(f"{option} {text or repr(text)}: expected A:B with 1 <= A <= B, such as 1:100.")
    return low, None if high == ENDLESS else high

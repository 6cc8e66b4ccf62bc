"""Wrapper: the inner predictor reads another source, such as a second language or another tokenisation.

Score of token w: the inner score, given line i of ``path`` as the source of sentence i. Text is read with the source
vocabulary of the inner predictor's model, otherwise with that of the run; without either, lines are token ids. The
limit on lengths is still that of the decoded sentence, unless a causal model states one: it reads the other source.

State: the inner state. Cost: one look-up per sentence; the file is read once. Relaxations: the inner ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.errors import counted
from sgdec.files import read_lines, whole_number
from sgdec.protocol import LengthLimit, State
from sgdec.wrapping import FORWARDED, Wrapper


class AltSrc(Wrapper):
    """Another source file, line by line.

    >>> import tempfile
    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Forced
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     print("7 8", file=file, flush=True)
    ...     AltSrc(lift(Forced([7])), file.name).source_of(Source(1, (3,), max_length=6))
    Source(id=1, tokens=(7, 8), text='7 8', max_length=6)
    """

    forwards: ClassVar[tuple[str, ...]] = FORWARDED

    def __init__(
        self,
        inner: BatchPredictor,
        path: Annotated[str, Field(description="text or token ids, one line per source sentence; .gz too")],
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the file cannot be read."""
        super().__init__(inner)
        self._path = path
        self._vocabulary = self.vocabularies.source or (context.vocabularies.source if context else None)
        try:
            self._lines = tuple(read_lines(path))
        except SgdecError as error:
            raise SgdecError(f"altsrc: {error}") from None

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        """The inner target vocabulary only: the run reads another source."""
        return Vocabularies(None, inner.target)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """Raises SgdecError if there is no line for a sentence, or it cannot be read."""
        return self.inner.initialize_batch([self.source_of(source) for source in sources])

    def length_limit(self, source: Source) -> int | None:
        return cast(LengthLimit, self.inner).length_limit(self.source_of(source))

    def source_of(self, source: Source) -> Source:
        """The source with the sentence's number in the other file."""
        if source.id > len(self._lines):
            raise SgdecError(
                f"altsrc: {self._path} has {counted(len(self._lines), 'line')}, so none for sentence {source.id}. "
                "Expected one line per source sentence."
            )
        line = self._lines[source.id - 1]
        tokens = self._vocabulary.encode(line) if self._vocabulary is not None else self._ids(line, source.id)
        if not tokens:
            raise SgdecError(f"altsrc: {self._path}: line {source.id} is empty; a source has at least one token.")
        return replace(source, tokens=tokens, text=line)

    def _ids(self, line: str, number: int) -> tuple[int, ...]:
        tokens = []
        for word in line.split():
            token = whole_number(word)
            if token is None:
                raise SgdecError(
                    f"altsrc: {self._path}: line {number}: {word!r} is not a token id. "
                    "Without a source vocabulary, lines are token ids."
                )
            tokens.append(token)
        return tuple(tokens)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"altsrc": AltSrc}

"""Lines of text files as target tokens: through the vocabulary, or as token ids if there is none."""

from __future__ import annotations

from sgdec import Context
from sgdec.files import read_ids


class TokenLines:
    """Reads the words of a line."""

    def __init__(self, context: Context | None) -> None:
        self._vocabulary = context.vocabularies.target if context else None
        self._vocab_size = context.vocab_size if context else None

    def read(self, line: str, where: str) -> tuple[int, ...]:
        """The tokens of a line, without ``<s>`` and ``</s>``; a line of ids may begin and end with these. Errors call
        the line ``where``.

        Raises SgdecError for an unknown token.
        """
        if self._vocabulary is not None:
            return self._vocabulary.encode(line)
        return tuple(read_ids(line, where, self._vocab_size))

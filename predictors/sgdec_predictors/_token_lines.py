"""Lines of text files as target tokens: through the vocabulary, or as token ids if there is none."""

from __future__ import annotations

from sgdec import BOS, EOS, Context, SgdecError
from sgdec.io.limits import whole_number


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
        words = line.split()
        if words[:1] == [str(BOS)]:
            del words[0]
        if words[-1:] == [str(EOS)]:
            del words[-1]
        return tuple(self._token(word, where) for word in words)

    def _token(self, word: str, where: str) -> int:
        token = whole_number(word)
        if token is None:
            raise SgdecError(
                f"{where}: {word!r} is not a token id. Without a target vocabulary, words are token ids."
            )
        if token in (BOS, EOS):
            raise SgdecError(f"{where}: {word} stands for <s> or </s>. Leave both out; they are added.")
        if self._vocab_size is not None and token >= self._vocab_size:
            raise SgdecError(f"{where}: {word} is outside the target vocabulary of {self._vocab_size} tokens.")
        return token

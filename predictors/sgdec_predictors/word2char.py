"""Wrapper: a predictor over words for a decoder over characters (SGNMT's ``word2char``).

A file lists how each word is spelled. Characters that occur in spellings, and ``<unk>``, are inside words; every
other token is a boundary, such as a blank. Let w be the word spelled since the last boundary (``<unk>`` if the file
does not list it), h the words before it, and P the inner predictor:

    score of a character inside a word = 0
    score of a boundary                = log P(w | h)                         0 if no word was begun
    score of </s>                      = log P(w | h) + log P(</s> | h, w)    log P(</s> | h) if no word was begun

So a boundary before a word (SentencePiece's ``▁``) works as well as one after it. Rows are open: only tokens that the
inner predictor forbids are forbidden.

State: the inner prefix and the characters of w. Cost: a look-up per character and an inner step per word; an inner
step per character if ``</s>`` is a candidate. Relaxation: none, because a token is not one inner token.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

import sgdec
from sgdec import EOS, UNK, BatchPredictor, Scores, SgdecError, Source
from sgdec.files import read_lines, whole_number
from sgdec.protocol import Candidates, SparseRow, State, ability
from sgdec_predictors.wrapping.inner_tokens import Inner, InnerPrefix, Translator

Spelled = tuple[int, ...]
"""The characters of a word."""


class SpelledPrefix(NamedTuple):
    """One prefix of characters."""

    words: InnerPrefix
    """The words that are complete."""
    begun: Spelled
    """The characters since the last boundary."""


class Word2Char(Translator):
    """Word scores at word boundaries.

    >>> import tempfile
    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     print("7 3\\n8 3 4", file=file, flush=True)
    ...     words = Word2Char(lift(Bonus({7: -1.0, 8: -0.25, 2: -0.5})), file.name)
    >>> prefix = words.consume_batch(words.initialize_batch([Source(1, (3,))]), [3])
    >>> words.predict_batch(prefix).rows
    [SparseRow({0: 0.0, 2: -1.5, 3: 0.0, 4: 0.0}, default=-1.0)]
    """

    forwards: ClassVar[tuple[str, ...]] = ("best_remaining", "worst_remaining")

    def __init__(
        self,
        inner: BatchPredictor,
        path: Annotated[
            str, Field(description="spellings: 'word character character ...' on each line, all token ids")
        ],
    ) -> None:
        """Raises SgdecError if the file cannot be read, or gives one spelling to two words."""
        super().__init__(inner)
        try:
            self._word_of = _read_spellings(path)
        except SgdecError as error:
            raise SgdecError(f"word2char: {error}") from None
        listed = {UNK, EOS}.union(*self._word_of)
        self._inside = listed - {EOS}
        self._listed = sorted(listed)
        self._inner = Inner(inner, f"word2char: {path}", max(self._word_of.values(), default=EOS))
        self.max_score = max(0.0, 2 * inner.max_score)  # </s> is scored with the word before it
        self._key_of = ability(inner, "state_key")
        if self._key_of:
            self.state_key = self._state_key

    def inner_states(self, states: Sequence[SpelledPrefix]) -> list[State]:
        return self._inner.states(prefix.words for prefix in states)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [SpelledPrefix(empty, ()) for empty in self._inner.begin(sources)]

    def predict_batch(
        self, states: Sequence[SpelledPrefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        wanted = candidates if candidates is not None else [None] * len(states)
        ends = [tokens is None or EOS in tokens for tokens in wanted]
        self._inner.know((prefix.words, self._word(prefix)) for prefix in states if prefix.begun)
        complete = [self._complete(prefix) if end else None for prefix, end in zip(states, ends, strict=True)]
        self._inner.know((words, EOS) for words in complete if words is not None)
        return Scores(rows=[self._row(prefix, words) for prefix, words in zip(states, complete, strict=True)])

    def consume_batch(self, states: Sequence[SpelledPrefix], tokens: Sequence[int]) -> list[State]:
        inside = [token in self._inside for token in tokens]
        self._inner.states(prefix.words for prefix, within in zip(states, inside, strict=True) if not within)
        return [
            SpelledPrefix(prefix.words, (*prefix.begun, token))
            if within
            else SpelledPrefix(self._complete(prefix), ())
            for prefix, token, within in zip(states, tokens, inside, strict=True)
        ]

    def _state_key(self, states: Sequence[SpelledPrefix]) -> list[Hashable]:
        assert self._key_of is not None
        keys = self._key_of(self.inner_states(states))
        return [(key, prefix.begun) for key, prefix in zip(keys, states, strict=True)]

    def _word(self, prefix: SpelledPrefix) -> int:
        return self._word_of.get(prefix.begun, UNK)

    def _complete(self, prefix: SpelledPrefix) -> InnerPrefix:
        """All words, including the incomplete one."""
        return prefix.words.then(self._word(prefix)) if prefix.begun else prefix.words

    def _row(self, prefix: SpelledPrefix, complete: InnerPrefix | None) -> SparseRow:
        """``complete``: all words, if ``</s>`` may follow."""
        boundary = prefix.words.score(self._word(prefix)) if prefix.begun else 0.0
        scores: dict[int, Any] = dict.fromkeys(self._listed, 0.0)
        if complete is not None:
            scores[EOS] = boundary + complete.score(EOS)
        else:
            del scores[EOS]
        return SparseRow(list(scores), list(scores.values()), boundary)


def _read_spellings(path: str) -> dict[Spelled, int]:
    """The word of each spelling. Raises SgdecError, naming file and line, for a malformed file."""
    word_of: dict[Spelled, int] = {}
    for number, line in enumerate(list(read_lines(path)), 1):
        words = line.split()
        if not words:
            continue
        ids = [token for token in map(whole_number, words) if token is not None]
        if len(ids) < len(words):
            raise SgdecError(f"{path}: line {number}: expected 'word character character ...', ids, not {line!r}.")
        word, *spelled = ids
        if not spelled or min(word, *spelled) <= EOS:
            raise SgdecError(
                f"{path}: line {number}: expected a word and its characters, none of them 0, 1 or 2 "
                f"(<unk>, <s>, </s>), not {line!r}."
            )
        known = word_of.setdefault(tuple(spelled), word)
        if known != word:
            raise SgdecError(
                f"{path}: line {number}: not functional: {' '.join(words[1:])} already spells word {known}, not "
                f"{word}. Keep one of the two, or use fsttok, which takes the best or the sum."
            )
    return word_of


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"word2char": Word2Char}

"""Phrases that the text of outputs must contain, in order or not, and phrases that it must not contain.

Score of token w after a prefix: -inf if w completes an avoided phrase; -inf for ``</s>`` as long as a phrase is
missing; otherwise 0. What counts is the text that tokens spell, whatever their segmentation: a phrase is found in the
bytes of the output (Aho and Corasick 1975, "Efficient string matching"). These are the lexical constraints of Hokamp
and Liu 2017, "Lexically constrained decoding for sequence generation using grid beam search", and more. Neither
another case nor parts of words match, unless ``ignore_case`` and ``whole_words`` say so.

A file has a line for each sentence, or one line for all of them: phrases with tabs between them, and alternatives of
one phrase with `` | `` between them. A bar that belongs to a phrase is written as a backslash and a bar. ``<unk>`` is
what decoding makes of it: nothing, so that the texts around it are next to each other, or a word that is part of no
phrase.

State: that of the spelling, the bytes of a character that has not ended, the phrases that have begun, and those that
are met. Cost: per row a look-up, once it is known for its state; per token the characters of its text. Bounds: 0.
Relaxation: the constant 0. `progress`: the number of the vocabulary's own tokens of the phrases that are in the text,
for searches with banks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, SgdecError, Source, UsageError
from sgdec.context import Vocabulary
from sgdec.protocol import Candidates
from sgdec.scores import SparseRow
from sgdec_predictors.texts.characters import fold
from sgdec_predictors.texts.phrase_lines import Alternatives, PhraseLines
from sgdec_predictors.texts.phrase_matcher import START, Matcher, Pattern, Reading
from sgdec_predictors.texts.phrase_tokens import PhraseTokens, SpelledTokens
from sgdec_predictors.texts.spelling import Spelling
from sgdec_predictors.tokens.forbidding import Forbidding

KEPT = 4
"""The number of lines whose phrases are kept for later sentences."""


class State(NamedTuple):
    """A prefix."""

    tokens: PhraseTokens
    """The phrases of its sentence."""
    spelling: int
    reading: Reading


class Phrases(Forbidding[State]):
    """Allows outputs with all phrases of one file and with none of another.

    >>> import os, tempfile
    >>> from sgdec.context import Vocabularies
    >>> from sgdec.vocabularies import WordVocabulary
    >>> words = WordVocabulary(["<unk>", "<s>", "</s>", "art", "nouveau", "deco"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "terms.tsv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("art nouveau | art deco\\n")
    ...     predictor = Phrases(path, context=Context(vocabularies=Vocabularies(words, words)))
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(states).rows
    [SparseRow({2: -inf}, default=0.0)]
    >>> for token in words.encode("art deco"):
    ...     states = predictor.consume_batch(states, [token])
    >>> predictor.predict_batch(states).rows
    [SparseRow({}, default=0.0)]
    """

    def __init__(
        self,
        path: Annotated[
            str, Field(description="file of wanted phrases, a line for each sentence or one line for all")
        ] = "",
        avoid: Annotated[str, Field(description="file of avoided phrases, in the same form")] = "",
        ordered: Annotated[bool, Field(description="true: wanted phrases come in their order, apart")] = False,
        whole_words: Annotated[bool, Field(description="false: parts of words match too: 'art' in 'party'")] = True,
        ignore_case: Annotated[bool, Field(description="true: 'Art' is 'art'")] = False,
        context: Context | None = None,
    ) -> None:
        """Raises UsageError without a file or a vocabulary, SgdecError for a file that cannot be used."""
        if not path and not avoid:
            raise UsageError("phrases: no phrases. Give --phrases.path, --phrases.avoid, or both.")
        vocabulary = context.vocabularies.target if context else None
        self._ordered, self._whole_words, self._ignore_case = ordered, whole_words, ignore_case
        try:
            self._wanted = PhraseLines(path) if path else None
            self._avoided = PhraseLines(avoid) if avoid else None
            if vocabulary is None:
                raise UsageError(
                    "phrases are text, and this run has no target vocabulary: add a model that has one, or give "
                    "--tokenizer FILE."
                )
            self._vocabulary: Vocabulary = vocabulary
            self._spelled = SpelledTokens(vocabulary, Spelling.of(vocabulary), fold if ignore_case else str)
        except UsageError as error:
            raise UsageError(f"phrases: {error}") from None
        except SgdecError as error:
            raise SgdecError(f"phrases: {error}") from None
        self._tokens_of = lru_cache(KEPT)(self._tokens)
        if all(lines is None or lines.serve_all for lines in (self._wanted, self._avoided)):
            self._of_sentence(1)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """Raises SgdecError if there is no line for a sentence, or if no output can satisfy it."""
        found = []
        for source in sources:
            tokens = self._of_sentence(source.id)
            if source.max_length is not None and tokens.least > source.max_length:
                raise SgdecError(
                    f"phrases: {self._where(source.id)}: the phrases take at least {tokens.least} tokens, and the "
                    f"length limit is {source.max_length}. Give a larger --max-length, or fewer phrases."
                )
            found.append(State(tokens, 0, START))
        return found

    def row(self, state: State) -> SparseRow:
        tokens, spelling, reading = state
        return tokens.row(spelling, reading)

    def after(self, state: State, token: int) -> State:
        tokens, spelling, reading = state
        return State(tokens, *tokens.after(spelling, reading, token))

    def progress(self, states: Sequence[State]) -> list[tuple[int, int]]:
        return [(tokens.matcher.progress(reading), tokens.matcher.needed) for tokens, _, reading in states]

    def advancing(self, states: Sequence[State]) -> list[Candidates]:
        return [tokens.advancing(spelling, reading) for tokens, spelling, reading in states]

    def _of_sentence(self, sentence: int) -> PhraseTokens:
        """Raises SgdecError, with the file and the line."""
        try:
            wanted = self._wanted.of(sentence) if self._wanted else ()
            avoided = self._avoided.of(sentence) if self._avoided else ()
        except SgdecError as error:
            raise SgdecError(f"phrases: {error}") from None
        try:
            return self._tokens_of(wanted, avoided)
        except SgdecError as error:
            raise SgdecError(f"phrases: {self._where(sentence)}: {error}") from None

    def _where(self, sentence: int) -> str:
        lines = self._wanted or self._avoided
        assert lines is not None
        return lines.where(sentence)

    def _tokens(self, wanted: Sequence[Alternatives], avoided: Sequence[Alternatives]) -> PhraseTokens:
        """The phrases of one line. Raises SgdecError for those that cannot be spelled, and for a contradiction."""
        to_avoid = [self._pattern(text, -1) for phrase in avoided for text in phrase]
        avoiding = Matcher(to_avoid, False)
        patterns = []
        for number, phrase in enumerate(wanted):
            possible = [text for text in phrase if not contains_one(avoiding, self._fold(text))]
            if not possible:
                raise SgdecError(
                    f"the phrase {phrase[0]!r} is wanted, but it contains one of the avoided ones. Remove one of "
                    "them."
                )
            patterns += [self._pattern(text, number, self._marks(text)) for text in possible]
        matcher = Matcher([*patterns, *to_avoid], self._ordered)
        return PhraseTokens(self._spelled, matcher)

    def _fold(self, text: str) -> str:
        return fold(text) if self._ignore_case else text

    def _pattern(self, text: str, phrase: int, marks: Sequence[int] = ()) -> Pattern:
        return Pattern.of(self._fold(text), phrase, self._whole_words, marks)

    def _marks(self, text: str) -> list[int]:
        """The offsets in the folded phrase at which the vocabulary's own tokens end; empty if these do not spell it.

        Raises SgdecError if no tokens spell the phrase.
        """
        own, data = self._vocabulary.encode(text), text.encode()
        begin = (self._spelled.spelling.text(own) or b"").find(data)  # some tokenizers put a blank before a text
        if begin < 0:
            if self._spelled.speller.spells(self._pattern(text, 0)):
                return []
            instead = self._vocabulary.decode(own)
            raise SgdecError(
                f"the phrase {text!r} cannot be spelled with the target vocabulary, whose text for it is {instead!r}."
            )
        sizes = list(accumulate(len(char.encode()) for char in text))
        folded = [0, *accumulate(len(char.encode()) for char in self._fold(text))]
        marks = set()
        for end in self._spelled.spelling.offsets(own):  # each can be within a character
            offset = min(max(end - begin, 0), len(data))
            whole = bisect_right(sizes, offset)
            marks.add(folded[whole] + offset - (sizes[whole - 1] if whole else 0))
        return sorted(marks - {0})


def contains_one(matcher: Matcher, text: str) -> bool:
    """Whether this text contains an avoided phrase."""
    reading, wrong = matcher.read(START, text)
    return wrong or matcher.at_end(reading)[1]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"phrases": Phrases}

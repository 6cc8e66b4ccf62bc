"""Outputs all of whose words are in a list, or none of them.

Score of token w after prefix p: 0 if the text of p w begins an allowed text that the vocabulary can spell to its end,
otherwise forbidden. Score of ``</s>``: 0 if the text of p is allowed. A word is a longest run of letters, numbers,
marks and ``_``; blanks and punctuation are free, and so is the empty output. The text is what the target vocabulary
decodes the tokens to, so a listed word may be written with any tokens, and parts of words do not count.

State: the number of a state of an automaton over tokens. Bounds: 0. Cost: as for `regex`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, SgdecError
from sgdec.files import read_lines
from sgdec_predictors.texts.stored import StoredAutomata
from sgdec_predictors.texts.text_automaton import Kept, TextAutomatonPredictor
from sgdec_predictors.texts.token_automata import TokenAutomaton
from sgdec_predictors.texts.word_automata import LONGEST, is_one_word, word_automaton

SHOWN = 100
"""The characters of a line that an error shows."""
Mode: TypeAlias = Literal["only", "never"]


class WordlistPredictor(TextAutomatonPredictor):
    """Allows only the words of a list, or all others.

    >>> import os, tempfile
    >>> from sgdec import Source
    >>> from sgdec.context import Vocabularies
    >>> from sgdec.vocabularies import SPECIAL, WordVocabulary
    >>> words = WordVocabulary([*SPECIAL, "no", "yes", "!"])
    >>> context = Context(vocabularies=Vocabularies(target=words))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "words.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("yes\\n")
    ...     predictor = WordlistPredictor(path, cache="none", context=context)
    >>> predictor.predict_batch(predictor.initialize_batch([Source(id=1, tokens=())])).rows
    [SparseRow({2: 0.0, 4: 0.0, 5: 0.0}, default=-inf)]
    """

    name = "wordlist"

    def __init__(
        self,
        path: Annotated[str, Field(description="words, one on each line; {id} is the sentence number")],
        mode: Annotated[Mode, Field(description="only: no other words; never: none of these words")] = "only",
        ignore_case: Annotated[bool, Field(description="true: 'Art' is 'art'")] = False,
        cache: Annotated[
            str, Field(description="folder for built automata; none keeps nothing; default: ~/.cache/sgdec/automata")
        ] = "",
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` is the list of all sentences. Raises SgdecError if it cannot be used."""
        self._path, self._mode, self._ignore_case = path, mode, ignore_case
        words = None if "{id}" in path else self._read(path)
        super().__init__(context)
        self._stored = StoredAutomata(self.spelling, cache)
        self._built = Kept(self._build)
        if words is not None:
            self.shared = self._automaton(path, words)

    def automaton_of(self, sentence: int) -> TokenAutomaton:
        if self.shared is not None:
            return self.shared
        try:
            path = self._path.replace("{id}", str(sentence))
            return self._automaton(path, self._read(path))
        except SgdecError as error:
            raise SgdecError(
                f"{str(error).rstrip('.')} (sentence {sentence}). Expected a list for each sentence."
            ) from None

    def _read(self, path: str) -> tuple[str, ...]:
        """The words of a list. One sentence can have no words that it forbids; a list of all sentences has words."""
        try:
            return words_of(path, empty=self._mode == "never" and path != self._path)
        except SgdecError as error:
            raise SgdecError(f"wordlist: {error}") from None

    def _automaton(self, path: str, words: tuple[str, ...]) -> TokenAutomaton:
        """Raises SgdecError, with the file, if the list is too large."""
        try:
            return self._built(words)
        except SgdecError as error:
            raise SgdecError(f"wordlist: {path}: {error}") from None

    def _build(self, words: tuple[str, ...]) -> TokenAutomaton:
        only = self._mode == "only"
        name = " ".join(["wordlist", self._mode, str(self._ignore_case), *words])
        return self._stored.of(name, lambda: word_automaton(words, only=only, ignore_case=self._ignore_case))


def words_of(path: str, *, empty: bool = False) -> tuple[str, ...]:
    """The words of a list, each once, in order.

    Raises SgdecError for a file with other texts, and for one without words, unless it can be ``empty``.
    """
    words = set()
    for number, line in enumerate(list(read_lines(path)), 1):
        word = line.strip()
        if len(word) > LONGEST:
            raise SgdecError(
                f"{path}: line {number}: a word of {len(word):,} characters ({word[:20]!r}...). Expected at most "
                f"{LONGEST:,} characters."
            )
        if word and not is_one_word(word):
            raise SgdecError(
                f"{path}: line {number}: {word[:SHOWN]!r} is not one word. Expected letters, numbers, marks and _; "
                "the predictor phrases takes other texts."
            )
        words.add(word)
    words.discard("")
    if not words and not empty:
        raise SgdecError(f"{path}: no words. Expected one word on each line.")
    return tuple(sorted(words))


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"wordlist": WordlistPredictor}

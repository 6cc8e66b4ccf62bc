"""Outputs whose text matches a regular expression.

Score of token w after prefix p: 0 if the text of p w begins a text that matches and that the vocabulary can spell to
its end, otherwise forbidden. Score of ``</s>``: 0 if the text of p matches. The text is what the target vocabulary
decodes the tokens to, so every tokenisation of a text that matches is allowed, and nothing else; the page on
constraints has the few exceptions. The syntax is that of Rust's crate regex. A pattern matches whole texts, and
Unicode characters. It has no anchors, word boundaries, look-around and back-references, as an automaton has none.

State: the number of a state of an automaton over tokens. Bounds: 0. Cost: per row a look-up, once it is known for its
state; to know it, one walk along the prefix tree of all tokens (Willard and Louf 2023, "Efficient guided generation
for large language models", section 3). Patterns are compiled when they are first used, and kept on the disk.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, SgdecError, UsageError
from sgdec.errors import counted
from sgdec.files import read_lines
from sgdec_predictors.texts.regexes import MEMORY, SECONDS, compile_regexes, shown
from sgdec_predictors.texts.stored import StoredAutomata
from sgdec_predictors.texts.text_automaton import Kept, TextAutomatonPredictor
from sgdec_predictors.texts.token_automata import TokenAutomaton

log = logging.getLogger("sgdec.predictors.regex")

PATIENCE, HURRY = 60, 1
"""When patterns that cannot be used have taken so many seconds, later ones have so many seconds of processor time."""


class RegexPredictor(TextAutomatonPredictor):
    """Allows the texts that match a pattern, or for each sentence those that match its own.

    >>> from sgdec import Source
    >>> from sgdec.context import Vocabularies
    >>> from sgdec.vocabularies import SPECIAL, WordVocabulary
    >>> words = WordVocabulary([*SPECIAL, "no", "yes", "please"])
    >>> context = Context(vocabularies=Vocabularies(target=words))
    >>> predictor = RegexPredictor("(yes|no)( please)?", cache="none", context=context)
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(predictor.consume_batch(states, [4])).rows
    [SparseRow({2: 0.0, 5: 0.0}, default=-inf)]
    """

    name = "regex"

    def __init__(
        self,
        pattern: Annotated[str | None, Field(description="pattern of all outputs")] = None,
        path: Annotated[str | None, Field(description="file of patterns instead, a line for each sentence")] = None,
        cache: Annotated[
            str, Field(description="folder for built automata; none keeps nothing; default: ~/.cache/sgdec/automata")
        ] = "",
        effort: Annotated[
            float, Field(ge=1, le=1000, description="factor of the limits on the time and memory for a pattern")
        ] = 1.0,
        context: Context | None = None,
    ) -> None:
        """The empty pattern allows the empty text only. Raises UsageError unless there is either a pattern or a file,
        SgdecError for one that cannot be used."""
        if (pattern is None) == (path is None):
            raise UsageError("regex: give either --regex.pattern PATTERN or --regex.path FILE.")
        self._path = path
        try:
            self._patterns = [pattern] if pattern is not None else list(read_lines(path or ""))
        except SgdecError as error:
            raise SgdecError(f"regex: {error}") from None
        super().__init__(context)
        self._stored = StoredAutomata(self.spelling, cache)
        self._seconds, self._memory = math.ceil(SECONDS * effort), int(MEMORY * effort)
        self._kept = Kept(self._compile)
        self._refused: dict[str, str] = {}
        """The patterns that cannot be used, and why."""
        self._wasted = 0.0
        """The seconds that they have taken."""
        if pattern is not None:
            self.shared = self.automaton_of(1)

    def automaton_of(self, sentence: int) -> TokenAutomaton:
        if self._path is None:
            sentence = 1
        elif sentence > len(self._patterns):
            raise SgdecError(
                f"regex: {self._path} has {counted(len(self._patterns), 'line')}, so none for sentence {sentence}. "
                "Expected one pattern per source sentence."
            )
        try:
            return self._automaton(self._patterns[sentence - 1])
        except SgdecError as error:
            where = f"{self._path}: line {sentence}: " if self._path is not None else ""
            raise SgdecError(f"regex: {where}{error}") from None

    def _automaton(self, pattern: str) -> TokenAutomaton:
        """Raises SgdecError for a pattern that cannot be used; the second time it is not tried again."""
        if pattern in self._refused:
            raise SgdecError(self._refused[pattern])
        began = time.monotonic()
        try:
            return self._kept(pattern)
        except SgdecError as error:
            self._refused[pattern] = str(error)
            self._waste(time.monotonic() - began)
            raise

    def _waste(self, seconds: float) -> None:
        if self._wasted < PATIENCE <= self._wasted + seconds:
            log.warning(
                f"regex: patterns of {self._path} that cannot be used have taken {PATIENCE} seconds. Each later "
                f"pattern has {HURRY} second to be compiled."
            )
        self._wasted += seconds

    def _compile(self, pattern: str) -> TokenAutomaton:
        seconds = self._seconds if self._wasted < PATIENCE else HURRY
        automaton = self._stored.of(f"regex {pattern}", lambda: compile_regexes([pattern], seconds, self._memory)[0])
        if automaton.is_empty:
            raise SgdecError(
                f"no text that matches the pattern {shown(pattern)} can be spelled with the target vocabulary."
            )
        return automaton


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"regex": RegexPredictor}

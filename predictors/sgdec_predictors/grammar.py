"""Outputs whose text is in the language of a grammar: a Lark grammar or a JSON schema (llguidance).

Score of token w after prefix p: 0 if the text of p w begins a text of the language, otherwise forbidden. Score of
``</s>``: 0 if the text of p is in the language, otherwise forbidden. The text is what the target vocabulary decodes
the tokens to. So every tokenisation of an allowed text is allowed, and nothing else; the page on constraints has the
few exceptions. Tokens without text, such as ``<unk>``, are forbidden. If a text is not complete, but no token spells
what can be next, nothing can follow.

State: the text, and a matcher that has read it: a copy of that of an earlier prefix, made when it is first needed and
never changed. Prefixes with the same text have the same key. There are no arcs, and nothing to compose: the states of
a grammar are not finitely many. Bounds: 0. Cost: one copy and one mask per prefix, microseconds each, whatever the
size of the vocabulary; rows of equal masks are shared. Source: Moskal et al. 2025, "llguidance".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Scores, SgdecError, Source
from sgdec.protocol import FORBIDDEN, Candidates
from sgdec.scores import SparseScores
from sgdec_predictors.texts.grammars import Grammar, Kind, Whitespace, read_grammar
from sgdec_predictors.texts.matchers import Language, MatchedPrefix, Tokens
from sgdec_predictors.texts.spelling import Spelling


class GrammarPredictor(BatchPredictor):
    """Allows the texts of a Lark grammar or a JSON schema.

    >>> import os, tempfile
    >>> from sgdec.context import Vocabularies
    >>> from sgdec.vocabularies import SPECIAL, WordVocabulary
    >>> words = WordVocabulary([*SPECIAL, "no", "yes", "please"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "answers.lark")
    ...     with open(path, "w") as file:
    ...         _ = file.write('start: ("yes" | "no") " please"?')
    ...     predictor = GrammarPredictor(path, context=Context(vocabularies=Vocabularies(target=words)))
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(predictor.consume_batch(states, [4])).rows
    [SparseRow({2: 0.0, 5: 0.0}, default=-inf)]
    """

    max_score = 0.0
    independent_rows = True

    def __init__(
        self,
        path: Annotated[str, Field(description="Lark grammar, or JSON schema (.json); {id} is the sentence number")],
        kind: Annotated[Kind, Field(description="of the files; auto: as their names say")] = "auto",
        whitespace: Annotated[
            Whitespace,
            Field(description='JSON: any blanks between parts (flexible), {"a": 1} (spaced), or {"a":1} (compact)'),
        ] = "flexible",
        lenient: Annotated[bool, Field(description="JSON: ignore unsupported keywords and formats")] = False,
        effort: Annotated[
            float, Field(gt=0, le=1000, description="factor of llguidance's limits on the work per grammar and token")
        ] = 1.0,
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` is the grammar of all sentences. Raises SgdecError if it cannot be used."""
        self._path = path
        self._kind: Kind = kind
        self._whitespace: Whitespace = whitespace
        self._lenient = lenient
        try:
            grammar = None if "{id}" in path else self._read(path)
            self._tokens = _tokens_of(context, effort)
            self._shared = grammar and Language(self._tokens, grammar).empty
        except SgdecError as error:
            raise SgdecError(f"grammar: {error}") from None

    def initialize_batch(self, sources: Sequence[Source]) -> list[MatchedPrefix]:
        """Raises SgdecError if the grammar of a sentence cannot be used."""
        return [self._shared or self._language_of(source).empty for source in sources]

    def predict_batch(
        self, states: Sequence[MatchedPrefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        """Raises SgdecError if llguidance's limits are exceeded."""
        try:
            return SparseScores([state.row() for state in states])
        except SgdecError as error:
            raise SgdecError(f"grammar: {error}") from None

    def consume_batch(self, states: Sequence[MatchedPrefix], tokens: Sequence[int]) -> list[MatchedPrefix]:
        return [state.then(token) for state, token in zip(states, tokens, strict=True)]

    def best_remaining(self, states: Sequence[MatchedPrefix]) -> list[float]:
        """0; -inf if a token of the prefix has no text."""
        return [FORBIDDEN if state.text is None else 0.0 for state in states]

    def worst_remaining(self, states: Sequence[MatchedPrefix]) -> list[float]:
        return [-FORBIDDEN if state.text is None else 0.0 for state in states]

    def state_key(self, states: Sequence[MatchedPrefix]) -> list[Hashable]:
        """The text, the state of the spelling after it, and the grammar, which can be of one sentence."""
        return [state.key for state in states]

    def _language_of(self, source: Source) -> Language:
        try:
            return Language(self._tokens, self._read(self._path.replace("{id}", str(source.id))))
        except SgdecError as error:
            raise SgdecError(
                f"grammar: {str(error).rstrip('.')} (sentence {source.id}). Expected a grammar for each sentence."
            ) from None

    def _read(self, path: str) -> Grammar:
        return read_grammar(path, self._kind, self._whitespace, self._lenient)


def _tokens_of(context: Context | None, effort: float) -> Tokens:
    vocabulary = context.vocabularies.target if context else None
    if context is None or vocabulary is None:
        raise SgdecError(
            "there is no target vocabulary, so tokens have no text. Give --tokenizer, or add a model that has one."
        )
    return Tokens(Spelling.of(vocabulary), max(vocabulary.size, context.vocab_size or 0), effort)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"grammar": GrammarPredictor}

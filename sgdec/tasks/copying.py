"""Copying unknown words: each unknown token of an output is replaced by the source word that it attends to most.

GNMT (Wu et al. 2016), section 4: words outside a word vocabulary, such as names and numbers, are often the same in
both languages. The attention at the prediction of a token decides which source word it stands for. With several
predictors that have attention, the mean is taken over those that were consulted for that token (whose weight is not
None; weight 0 is consulted). If none was consulted, as in a system of `sepbeam` without attention, the token is not
replaced. The attention is computed again, only for outputs with an unknown token.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sgdec.arrays import Floats
from sgdec.context import Vocabularies
from sgdec.errors import UsageError
from sgdec.protocol import Hypothesis, Source, ability
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.text.words import WordVocabulary


class Copier:
    """Copies words into the outputs of a constellation whose vocabularies are words on both sides."""

    def __init__(self, constellation: Constellation, vocabularies: Vocabularies) -> None:
        """Raises UsageError unless both vocabularies are word vocabularies and a consulted predictor has
        attention."""
        source, target = (
            vocabulary if isinstance(vocabulary, WordVocabulary) else None for vocabulary in vocabularies
        )
        if source is None or target is None:
            raise UsageError(
                "words can be copied only from words to words: omit --copy-unknown, or train tokenizer and model "
                "with --kind word."
            )
        self._target = target
        self._weights = constellation.weights
        self._attentive = {k: constellation.predictors[k] for k in constellation.attentive(constellation.weights)}
        if not self._attentive:
            raise UsageError("words are copied by attention, and no predictor has it; add an nmt model.")

    def respell(self, outcome: Outcome) -> Outcome:
        """The same outcome, with a text for each hypothesis that has an unknown token."""
        hypotheses = [replace(found, text=self.spell(outcome.source, found)) for found in outcome.result.hypotheses]
        return replace(outcome, result=replace(outcome.result, hypotheses=hypotheses))

    def spell(self, source: Source, hypothesis: Hypothesis) -> str | None:
        """The output with copied words; None if it has no unknown token, or if no attention is known."""
        words = source.text.split() if source.text is not None else []
        if len(words) != len(source.tokens) or not any(map(self._target.is_unknown, hypothesis.tokens)):
            return None
        attention = self._attention(source, hypothesis)
        if not attention.any():
            return None
        return " ".join(
            words[row.argmax()] if self._target.is_unknown(token) and row.any() else self._target.piece(token)
            for token, row in zip(hypothesis.tokens, attention, strict=True)  # ties: the first word
        )

    def _attention(self, source: Source, hypothesis: Hypothesis) -> Floats:
        """``[tokens, source]``: the attention at the prediction of each token, summed over the consulted
        predictors."""
        tokens = hypothesis.tokens
        weights = hypothesis.weights[: len(tokens)] or [self._weights] * len(tokens)
        total = np.zeros((len(tokens), len(source.tokens)))
        for k, predictor in self._attentive.items():
            attend = ability(predictor, "attention")
            assert attend is not None
            states = predictor.initialize_batch([source])
            for row, token, by_predictor in zip(total, tokens, weights, strict=True):
                if by_predictor[k] is None:
                    break
                row += np.asarray(attend(states)[0], dtype=np.float64)
                states = predictor.consume_batch(states, [token])
        return total

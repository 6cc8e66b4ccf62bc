"""Copying unknown words: each unknown token of an output is spelled as the source word that it attends to.

GNMT (Wu et al. 2016), section 4: what a word vocabulary does not hold, names and numbers above all, is often the same
in both languages. The attention with which a token was predicted says which source word it stands for; with several
predictors that have attention, their mean. It is computed once more for outputs that hold an unknown token, and only
for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sgdec.constellation import Constellation
from sgdec.context import Vocabularies
from sgdec.errors import UsageError
from sgdec.outcome import Outcome
from sgdec.protocol import Hypothesis, Source, ability
from sgdec.text.words import WordVocabulary


class Copier:
    """Spells outputs of a constellation, from words to words."""

    def __init__(self, constellation: Constellation, vocabularies: Vocabularies) -> None:
        """Raises UsageError unless both vocabularies are of words and a predictor has attention."""
        source, target = (
            vocabulary if isinstance(vocabulary, WordVocabulary) else None for vocabulary in vocabularies
        )
        if source is None or target is None:
            raise UsageError(
                "words can be copied only from words to words; train tokenizer and model with --kind word."
            )
        self._target = target
        self._attentive = [p for p in constellation.predictors if ability(p, "attention") is not None]
        if not self._attentive:
            raise UsageError("words are copied by attention, and no predictor has it; add an nmt model.")

    def respell(self, outcome: Outcome) -> Outcome:
        """The same outcome, with the text of each hypothesis that holds something unknown."""
        hypotheses = [replace(found, text=self.spell(outcome.source, found)) for found in outcome.result.hypotheses]
        return replace(outcome, result=replace(outcome.result, hypotheses=hypotheses))

    def spell(self, source: Source, hypothesis: Hypothesis) -> str | None:
        """The output with copied words; None where it holds nothing unknown, or no text to copy from is known."""
        words = source.text.split() if source.text is not None else []
        if len(words) != len(source.tokens) or not any(map(self._target.is_unknown, hypothesis.tokens)):
            return None
        places = self._attention(source, hypothesis.tokens).argmax(axis=1)  # ties: the first word
        return " ".join(
            words[place] if self._target.is_unknown(token) else self._target.piece(token)
            for token, place in zip(hypothesis.tokens, places, strict=True)
        )

    def _attention(self, source: Source, tokens: Sequence[int]) -> npt.NDArray[np.float64]:
        """``[tokens, source]``: the mean attention with which each token was predicted."""
        total = np.zeros((len(tokens), len(source.tokens)))
        for predictor in self._attentive:
            attend = ability(predictor, "attention")
            assert attend is not None
            states = predictor.initialize_batch([source])
            for row, token in zip(total, tokens, strict=True):
                row += np.asarray(attend(states)[0], dtype=np.float64)
                states = predictor.consume_batch(states, [token])
        return total / len(self._attentive)

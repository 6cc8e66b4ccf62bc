"""Outputs that the target vocabulary itself would segment in this way: one tokenisation for each text.

Score of ``</s>`` after tokens p: 0 if ``encode(decode(p))`` equals p, otherwise forbidden. Score of another token w:
0, or forbidden if `sgdec_predictors.texts.segmentation` knows that no continuation of p w is canonical: w begins a
word and p is not canonical, or w never stands after the last token of p. So outputs are exactly the canonical ones.
Most prefixes that cannot become canonical end early with SentencePiece models and word vocabularies, and with BPE of
Hugging Face many (`sgdec_predictors.texts.merges`); with other tokenizers of Hugging Face they end only at ``</s>``.
``<unk>`` is forbidden, because it stands for many texts.

State and key: the tokens of the prefix. Cost: one decoding and encoding of each prefix that is expanded; rows with
the same last token are shared. Bounds: 0. Relaxation: the constant 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import sgdec
from sgdec import BOS, EOS, UNK, BatchPredictor, Context, SgdecError, Source, UsageError
from sgdec.arrays import Ints
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec_predictors.texts.segmentation import Segmentation
from sgdec_predictors.tokens.forbidding import Forbidding

State = tuple[int, ...]
"""The tokens of the prefix."""
KEPT = 1 << 14
"""The number of prefixes that are kept, and the most rows."""
ROOM, ENTRY = 64 << 20, 16
"""The bytes of all rows that are kept, and of a token and its score in a row."""


class Canonical(Forbidding[State]):
    """Allows only the target vocabulary's own segmentation of each text.

    >>> from sgdec.context import Vocabularies
    >>> from sgdec.vocabularies import SPECIAL, MixedVocabulary
    >>> letters = MixedVocabulary([*SPECIAL, "ab", "<B>a", "<E>a", "<B>b", "<E>b"])
    >>> letters.encode("ab"), letters.decode((4, 7))
    ((3,), 'ab')
    >>> predictor = Canonical(Context(vocabularies=Vocabularies(target=letters)))
    >>> states = predictor.consume_batch(predictor.initialize_batch([Source(1, ())]), [4])
    >>> states = predictor.consume_batch(states, [7])
    >>> predictor.predict_batch(states).rows[0].get(2)
    -inf
    """

    def __init__(self, context: Context | None = None) -> None:
        """Raises UsageError without a vocabulary, SgdecError for one that segments no text by itself."""
        vocabulary = context.vocabularies.target if context else None
        if vocabulary is None:
            raise UsageError(
                "canonical: there is no target vocabulary, whose segmentation is wanted: give --tokenizer FILE, or "
                "add a model that has one."
            )
        try:
            self._segmentation = Segmentation(vocabulary)
        except SgdecError as error:
            raise SgdecError(f"canonical: {error}") from None
        self._is_canonical = lru_cache(KEPT)(self._segmentation.is_canonical)
        self._never = np.zeros(vocabulary.size, bool)
        self._never[[UNK, BOS, *self._segmentation.never]] = True
        self._begins: Ints = np.array(sorted(self._segmentation.begins), np.int64)
        self._row_after = lru_cache(max(1, min(KEPT, ROOM // (ENTRY * vocabulary.size))))(self._row)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [()] * len(sources)

    def row(self, state: State) -> SparseRow:
        return self._row_after(state[-1] if state else None, self._is_canonical(state))

    def after(self, state: State, token: int) -> State:
        return (*state, token)

    def _row(self, last: int | None, canonical: bool) -> SparseRow:
        """The row after this token, of a prefix that is canonical so far or is not."""
        forbidden = self._never.copy()
        forbidden[list(self._segmentation.never_after.get(last, ()))] = True
        if not canonical:
            forbidden[EOS] = True
            if last in self._segmentation.closed:
                forbidden[self._begins] = True
        tokens: Any = forbidden.nonzero()[0]
        scores: Any = np.full(len(tokens), FORBIDDEN)
        return SparseRow(tokens, scores, 0.0)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"canonical": Canonical}

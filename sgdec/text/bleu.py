"""BLEU and chrF of a set of translations, with sacreBLEU and its signatures. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Score


class ScoredText(NamedTuple):
    """One corpus-level score and the signature that reproduces it."""

    name: str
    value: float
    text: str
    signature: str


def bleu_and_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[ScoredText]:
    """sacreBLEU's corpus BLEU (13a, cased) and chrF, with signatures."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    scored = []
    for metric in (BLEU(), CHRF()):
        score: Score = metric.corpus_score(list(hypotheses), [list(references)])
        scored.append(ScoredText(score.name, float(score.score), str(score), str(metric.get_signature())))
    return scored


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The BLEU of `bleu_and_chrf` alone, from 0 to 100."""
    return bleu_and_chrf(hypotheses, references)[0].value

"""BLEU and chrF of a set of translations, with sacreBLEU and its signatures. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sgdec.errors import UsageError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Score
    from sacrebleu.metrics.bleu import BLEU

TOKENIZERS = "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"
"""SacreBLEU's tokenizers, apart from those that download a vocabulary when they are used."""
SMOOTHING = "exp", "floor", "add-k", "none"
"""SacreBLEU's ways to smooth n-gram precisions of zero."""


class ScoredText(NamedTuple):
    """One corpus-level score and the signature that reproduces it."""

    name: str
    value: float
    text: str
    signature: str


def bleu_and_chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = TOKENIZERS[0],
    smooth_method: str = SMOOTHING[0],
) -> list[ScoredText]:
    """sacreBLEU's corpus BLEU (cased) and chrF, with signatures.

    ``tokenize`` and ``smooth_method`` concern BLEU only: one of `TOKENIZERS` and of `SMOOTHING`. With ``none`` for
    both, BLEU is that of Moses' multi-bleu.perl, over the text's own tokens. Raises `UsageError` for a tokenizer
    whose packages are not installed.
    """
    from sacrebleu.metrics.chrf import CHRF

    scored = []
    for metric in (_bleu(tokenize, smooth_method), CHRF()):
        score: Score = metric.corpus_score(list(hypotheses), [list(references)])
        scored.append(ScoredText(score.name, float(score.score), str(score), str(metric.get_signature())))
    return scored


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The BLEU of `bleu_and_chrf` alone, from 0 to 100."""
    return bleu_and_chrf(hypotheses, references)[0].value


def tokenizer(name: str) -> Callable[[str], str]:
    """One of `TOKENIZERS`: it puts spaces between the words of a text.

    Raises `UsageError` if the tokenizer's packages are not installed.

    >>> tokenizer("13a")("No, 1.5.")
    'No , 1.5 .'
    """
    found: Callable[[str], str] = _bleu(name, SMOOTHING[0]).tokenizer
    return found


def _bleu(tokenize: str, smooth_method: str) -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    try:
        # SacreBLEU warns about text that is tokenised already, unless it is forced.
        return BLEU(tokenize=tokenize, smooth_method=smooth_method, force=tokenize == "none")
    except RuntimeError as error:
        command = str(error).strip().splitlines()[-1].strip()
        if not command.startswith("pip install"):
            raise
        raise UsageError(f"--tokenize {tokenize}: its packages are not installed ({command}).") from None

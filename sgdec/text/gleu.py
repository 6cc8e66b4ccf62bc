"""GLEU: the share of n-grams that an output has in common with its reference (Wu et al. 2016, section 5).

    GLEU = min(precision, recall) = matches / max(n-grams of the output, n-grams of the reference)

over all n-grams of 1 to 4 tokens together; the number of matches of an n-gram is the smaller of its two counts.
Unlike BLEU, which is a measure of a corpus, GLEU is meaningful for a single sentence. It is symmetric: 0 = nothing in
common, 1 = equal.

Tokens are those of the model, as in the paper, without detokenisation, so a reward costs microseconds and is a
function of the model's choices. Use GLEU to compare models with one vocabulary; to compare across vocabularies use
BLEU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

LONGEST = 4


def gleu(output: Sequence[int], reference: Sequence[int]) -> float:
    """GLEU of one output, 0 to 1; two empty sequences are equal.

    >>> gleu([5, 6, 7], [5, 6, 8])  # 3 of 6: (5), (6), (5, 6)
    0.5
    """
    return gleu_of_each([output], reference)[0]


def gleu_of_each(outputs: Sequence[Sequence[int]], reference: Sequence[int]) -> list[float]:
    """`gleu` of several outputs against one reference, whose n-grams are counted once."""
    wanted = ngram_counts(reference)
    scores = []
    for output in outputs:
        got = ngram_counts(output)
        matches = sum(min(count, wanted[ngram]) for ngram, count in got.items() if ngram in wanted)
        most = max(got.total(), wanted.total())
        scores.append(matches / most if most else 1.0)
    return scores


def mean_gleu(outputs: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> float:
    """The mean of `gleu` over at least one sentence."""
    return sum(map(gleu, outputs, references)) / len(outputs)


def ngram_counts(tokens: Sequence[int]) -> Counter[tuple[int, ...]]:
    """The count of each n-gram of 1 to 4 tokens.

    >>> sorted(ngram_counts([5, 6, 5]).items())
    [((5,), 2), ((5, 6), 1), ((5, 6, 5), 1), ((6,), 1), ((6, 5), 1)]
    """
    counts: Counter[tuple[int, ...]] = Counter()
    for n in range(1, LONGEST + 1):
        counts.update(zip(*(tokens[first:] for first in range(n)), strict=False))
    return counts

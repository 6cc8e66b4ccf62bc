"""Batch MIRA: margins between hypotheses of high and low quality (Cherry and Foster 2012).

For each sentence in random order, with g(h) the gain of hypothesis h in the metric:

    hope = argmax w f(h) + g(h),    fear = argmax w f(h) - g(h)

If w separates them by less than their gains differ, w moves towards f(hope) - f(fear), as little as separates them,
by at most ``step`` times this difference. The result is the mean of w over all steps of an epoch, of the epoch that
is best on the whole set (Cherry and Foster 2012, "Batch Tuning Strategies for Statistical Machine Translation").

The gain of a hypothesis is the metric of a pseudo-document with it, times its number of sentences. The document has
the hopes of earlier steps, and forgets at each step: its statistics fade by ``DECAY``.
"""

from __future__ import annotations

import numpy as np

from sgdec.arrays import Floats
from sgdec.tuning.lists import FeatureLists

DECAY = 0.999
"""That of Cherry and Foster."""


def mira(
    lists: FeatureLists,
    weights: Floats,
    bounds: Floats,
    *,
    epochs: int = 200,
    step: float = 0.05,
    generator: np.random.Generator,
) -> Floats:
    """The weights ``[F]`` of the best epoch, scaled so that the first one keeps its value.

    ``bounds`` ``[F, 2]``: the lowest and highest value of each weight, which hold after each step. Returns the
    weights given if no epoch is better, or if the first weight does not keep its sign.
    """
    fixed = weights[0]
    best, highest = weights, lists.score(weights)
    current, document, size = weights.copy(), np.zeros(lists.statistics.shape[1]), 0.0
    for _ in range(epochs):
        summed = np.zeros(len(weights))
        for sentence in generator.permutation(lists.sentences).tolist():
            own = slice(*lists.starts[sentence : sentence + 2].tolist())
            features, statistics = lists.features[own], lists.statistics[own]
            gains = lists.metric.sign * lists.metric.scores(document + statistics) / 100 * (size + 1)
            scores = features @ current
            hope, fear = int(np.argmax(scores + gains)), int(np.argmax(scores - gains))
            apart = features[hope] - features[fear]
            missing = gains[hope] - gains[fear] - apart @ current
            if missing > 0 and (length := float(apart @ apart)):
                current = np.clip(current + min(step, missing / length) * apart, bounds[:, 0], bounds[:, 1])
            document, size = DECAY * (document + statistics[hope]), DECAY * (size + 1)
            summed += current
        if fixed * summed[0] > 0:
            mean = np.clip(summed * (fixed / summed[0]), bounds[:, 0], bounds[:, 1])
            mean[0] = fixed  # whatever rounding does
            if (score := lists.score(mean)) > highest:
                best, highest = mean, score
    return best

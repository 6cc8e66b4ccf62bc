"""How much do estimates from a few draws vary: of `sample`, and of `stochastic` with both methods?

Random bigrams of 20 words with at most 10 words an output, flat or peaked, whose true values are computed exactly:
the mean length, the entropy, and the probability that word 5 occurs. Each cell is the root mean squared error of an
estimate from N draws over all runs, as a share of that of `sample` with N draws; below 1 is better. ``gumbel`` is the
unbiased weighted sum, ``gumbel, normalised`` the same divided by the sum of the weights, which is only consistent.
The means of the unbiased estimates are asserted to be within four standard errors of the true values.

    python benchmarks/draws.py [--runs 400]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.stochastic import StochasticDecoder

from sgdec import BOS, EOS, Decoder, Hypothesis, Source
from sgdec.arrays import Floats
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import Table

WORDS, LIMIT, WORD = 20, 10, 5
DRAWS = (2, 8, 32)
QUANTITIES: dict[str, Callable[[Hypothesis], float]] = {
    "length": lambda found: float(len(found.tokens)),
    "entropy": lambda found: -(found.log_q or 0.0),
    f"word {WORD}": lambda found: float(WORD in found.tokens),
}


def bigram(scale: float, seed: int = 0) -> Floats:
    """``[V, V]``: log-probabilities of the next token by the last one; ``<unk>`` and ``<s>`` never follow."""
    logits = np.random.default_rng(seed).normal(0.0, scale, (WORDS + 3, WORDS + 3))
    logits[:, :EOS] = -np.inf
    logits[:, EOS] += 1.0
    found: Floats = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return found


def true_values(table: Floats) -> list[float]:
    p = np.exp(table)
    terms = np.where(p > 0, p * np.where(p > 0, table, 0.0), 0.0)
    here = np.zeros((2, len(table)))  # [has the word, last token]
    here[0, BOS] = 1.0
    length = entropy = occurs = 0.0
    for step in range(LIMIT + 1):
        if step == LIMIT:
            occurs += here[1].sum()
            break
        entropy -= float((here.sum(axis=0) * terms.sum(axis=1)).sum())
        occurs += float((here[1] * p[:, EOS]).sum())
        after = here @ np.where(np.arange(len(table)) == EOS, 0.0, p)
        after[1, WORD], after[0, WORD] = after[:, WORD].sum(), 0.0
        length += float(after.sum())
        here = after
    return [length, entropy, occurs]


def estimates(decoder: Decoder, constellation: Constellation, runs: int) -> tuple[Floats, Floats]:
    """``[runs, quantities]``: unbiased, and divided by the sum of the weights."""
    plain, normalised = [], []
    for seed in range(runs):
        (root,) = constellation.roots([Source(1, (3,), max_length=LIMIT)])
        result = decoder.decode(SearchSpace(constellation, root, seed=seed, nbest=10**6))
        weights = np.array([weight(found, result.drawn or 1) for found in result.hypotheses])
        values = np.array([[f(found) for f in QUANTITIES.values()] for found in result.hypotheses])
        plain.append(weights @ values)
        normalised.append(weights @ values / weights.sum())
    return np.array(plain), np.array(normalised)


def weight(found: Hypothesis, drawn: int) -> float:
    return (found.count or 0) / drawn if found.log_weight is None else math.exp(found.log_weight)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args(given).runs
    print(f"| bigram | draws | method | {' | '.join(QUANTITIES)} |\n|---|---:|---|{'---:|' * len(QUANTITIES)}")
    for name, scale in (("flat", 0.5), ("peaked", 3.0)):
        table = bigram(scale)
        truth, constellation = np.array(true_values(table)), Constellation.of({"bigram": Table(table)})
        for n in DRAWS:
            found = {"sample": estimates(SampleDecoder(samples=n), constellation, runs)[0]}
            gumbel = estimates(StochasticDecoder(samples=n), constellation, runs)
            found["gumbel"], found["gumbel, normalised"] = gumbel
            arithmetic = StochasticDecoder(samples=n, method="arithmetic")
            found["arithmetic"] = estimates(arithmetic, constellation, runs)[0]
            errors = {method: np.sqrt(np.mean((each - truth) ** 2, axis=0)) for method, each in found.items()}
            for method, each in found.items():
                bias = np.abs(each.mean(axis=0) - truth)
                assert "normalised" in method or np.all(bias < 4 * each.std(axis=0) / math.sqrt(runs) + 1e-12)
                shares = " | ".join(f"{share:.2f}" for share in errors[method] / errors["sample"])
                print(f"| {name} | {n} | {method} | {shares} |")
    print(f"{runs} runs; numpy {np.__version__}")


if __name__ == "__main__":
    main()

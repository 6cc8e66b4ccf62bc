"""The rules of `generate()` in transformers: its own classes forbid and score as our predictors do.

Formulas of our own are the oracles in the files of the predictors; these tests need transformers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.minlength import MinLength
from sgdec_predictors.norepeat import NoRepeat
from sgdec_predictors.repetition import Repetition
from sgdec_predictors.temperature import Temperature

from sgdec import EOS, BatchPredictor, Source
from sgdec.protocol import State
from sgdec.testing import BatchTable

pytestmark = pytest.mark.slow  # transformers takes seconds to import
V = 7


@pytest.fixture(scope="module")
def processors() -> Any:
    return pytest.importorskip("transformers.generation.logits_process", reason="transformers is an optional oracle")


def after(predictor: BatchPredictor, prompt: list[int], tokens: list[int]) -> list[State]:
    states = predictor.initialize_batch([Source(1, tuple(prompt))])
    for token in tokens:
        states = predictor.consume_batch(states, [token])
    return states


def drawn(seed: int) -> tuple[list[int], list[int]]:
    """A prompt and a prefix, with many repetitions."""
    rng = np.random.default_rng(seed)
    words = [0, 3, 4, 5, 6][: rng.integers(1, 6)]
    prompt, tokens = (rng.choice(words, rng.integers(least, 10)).tolist() for least in (1, 0))
    return prompt, tokens


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_norepeat_forbids_the_same_tokens(processors: Any, order: int) -> None:
    import torch

    processor, forbidden = processors.NoRepeatNGramLogitsProcessor(order), 0
    for seed in range(100):
        prompt, tokens = drawn(seed)
        expected = processor(torch.tensor([prompt + tokens]), torch.zeros(1, V))[0].tolist()
        (row,) = NoRepeat(order, prompt=True).predict_batch(after(NoRepeat(order, prompt=True), prompt, tokens)).rows
        assert [row.get(token) for token in range(V)] == expected
        if tokens:
            expected = processor(torch.tensor([tokens]), torch.zeros(1, V))[0].tolist()
            (row,) = NoRepeat(order).predict_batch(after(NoRepeat(order), prompt, tokens)).rows
            assert [row.get(token) for token in range(V)] == expected
        forbidden += expected.count(-math.inf)
    assert forbidden > 10


@pytest.mark.parametrize("prompt", [0, 1, 4])
@pytest.mark.parametrize("least", [0, 1, 3])
def test_minlength_forbids_the_end_of_the_same_prefixes(processors: Any, least: int, prompt: int) -> None:
    import torch

    new_tokens = processors.MinNewTokensLengthLogitsProcessor(prompt, least, EOS)
    in_all = processors.MinLengthLogitsProcessor(prompt + least, EOS)
    for length in range(5):
        (row,) = MinLength(least).predict_batch(after(MinLength(least), [3] * prompt, [3] * length)).rows
        ids = torch.full((1, prompt + length), 3)
        for processor in (new_tokens, in_all):
            assert processor(ids, torch.zeros(1, V))[0].tolist() == [row.get(token) for token in range(V)]


def rows_of(seed: int, log_probabilities: bool) -> Any:
    """``[V, V]``: scores by the last token."""
    import torch

    logits = torch.from_numpy(np.random.default_rng(seed).normal(0.5, 2.0, (V, V)))
    return logits.log_softmax(1) if log_probabilities else logits


@pytest.mark.parametrize("log_probabilities", [True, False], ids=["beam search", "greedy search"])
@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.3, 4.0])
def test_repetition_scores_the_same(processors: Any, penalty: float, log_probabilities: bool) -> None:
    import torch

    start = 3
    with_prompt = processors.RepetitionPenaltyLogitsProcessor(penalty)
    for seed in range(50):
        prompt, tokens = drawn(seed)
        scores = rows_of(seed, log_probabilities)
        last = scores[[tokens[-1] if tokens else 1]]
        inner = BatchTable(scores.numpy())
        for given, counted in (({"prompt": True}, prompt), ({"seen": (start,)}, [start])):
            predictor = Repetition(inner, penalty, **given)
            expected = with_prompt(torch.tensor([counted + tokens]), last)
            found = predictor.predict_batch(after(predictor, prompt, tokens)).values
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)
            normal = Repetition(inner, penalty, normalize=True, **given)
            found = normal.predict_batch(after(normal, prompt, tokens)).values
            np.testing.assert_allclose(found, expected.log_softmax(1).numpy(), rtol=1e-9)


@pytest.mark.parametrize("log_probabilities", [True, False])
@pytest.mark.parametrize("value", [0.2, 1.0, 3.0])
def test_temperature_gives_the_distribution_that_is_sampled(
    processors: Any, value: float, log_probabilities: bool
) -> None:
    import torch

    scores = rows_of(1, log_probabilities)
    scores[:, 5] = -math.inf
    predictor = Temperature(BatchTable(scores.numpy()), value)
    for token in (3, 4, 6):
        warped = processors.TemperatureLogitsWarper(value)(torch.tensor([[token]]), scores[[token]])
        found = predictor.predict_batch(after(predictor, [3], [token])).values
        np.testing.assert_allclose(found, warped.log_softmax(1).numpy(), rtol=1e-9)

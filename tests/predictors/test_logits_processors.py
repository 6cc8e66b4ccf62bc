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

from sgdec import EOS, BatchPredictor, Source
from sgdec.protocol import State

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

"""Models whose products are all packed have the same scores, bit for bit, with any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from sgdec_predictors.nmt import NmtPredictor
from sgdec_predictors.rnnlm import RnnlmPredictor

from sgdec import BatchPredictor, Context, Source
from sgdec.checkpoints.loading import make_ready
from sgdec.context import Vocabularies
from sgdec.models.base import Model, ModelContext, Seq2Seq
from sgdec.models.kernels import MatrixProducts
from sgdec.plugins.host import Host
from tests.helpers.breadth import some

pytestmark = pytest.mark.slow

V = 700
FAMILIES = [
    entry.name
    for entry in Host(autoload=False).names("model")
    if entry.name not in ("multi-source", "multi-source-hard", "nplm")  # other inputs, and the layers of the others
]


@pytest.fixture(autouse=True)
def number() -> Iterator[None]:
    """Restores PyTorch's number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def model_of(family: str, precision: str) -> Model:
    torch.manual_seed(1)
    cls = Host(autoload=False).load("model", family)
    return make_ready(cls(ModelContext(V, V), width=96), device="cpu", precision=precision)


def predictor_of(model: Model, precision: str) -> BatchPredictor:
    seq2seq = isinstance(model, Seq2Seq)
    name = "load_model" if seq2seq else "load_language_model"
    words: Any = SimpleNamespace(size=V)
    with patch(f"sgdec.checkpoints.loading.{name}", return_value=(model, Vocabularies(words, words))):
        return (NmtPredictor if seq2seq else RnnlmPredictor)("in memory", Context(precision=precision, vocab_size=V))


def scores(predictor: BatchPredictor) -> list[np.ndarray]:
    """Of 16 sentences with up to 22 tokens, for three steps."""
    draw = np.random.default_rng(3)
    sources = [Source(n, tuple(draw.integers(3, V, size=n + 6).tolist())) for n in range(1, 17)]
    states, found = predictor.initialize_batch(sources), []
    for _ in range(3):
        found.append(np.asarray(predictor.predict_batch(states).values))
        states = predictor.consume_batch(states, draw.integers(3, V, size=len(states)).tolist())
    return found


@pytest.mark.parametrize(
    ("family", "precision"), some([*((family, "fp32") for family in FAMILIES), ("transformer", "int8")])
)
def test_a_model_that_says_so_scores_the_same_with_any_number_of_threads(family: str, precision: str) -> None:
    predictor = predictor_of(model_of(family, precision), precision)
    products = predictor.products  # type: ignore[attr-defined]
    if not products.agree((1, 2)):
        assert family == "luong"  # whose encoder is PyTorch's LSTM
        return
    expected = None
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found = scores(predictor)
        expected = expected or found
        assert all(map(np.array_equal, found, expected))


def test_products_in_other_precisions_do_not_agree() -> None:
    """Their sums are split among threads."""
    for precision, packed in (("bf16", True), ("fp64", True), ("fp32", False), ("int8", False)):
        assert not MatrixProducts(precision, "cpu", packed).agree((1, 2))
    assert MatrixProducts("bf16", "cuda", packed=False).agree((1, 2))  # whatever the CPU does

"""Shared code of benchmarks with random weights: a GNMT model in memory as `nmt`, sentences, timed decoding.

Random weights have no quality, but cost the same time as trained ones if outputs are equally long. So the bias of
``</s>`` is the lowest possible logit, -25: no beam prefers it to thousands of tokens with logits near 0, and every
output ends at its length limit, where ``</s>`` is the only candidate. So all lengths are known in advance.
"""

from __future__ import annotations

import gc
import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from unittest.mock import patch

import torch
from sgdec_predictors.nmt import NmtPredictor

from sgdec.context import EOS, Context, Vocabularies
from sgdec.decoder import Decoder
from sgdec.models.base import ModelContext
from sgdec.models.gnmt import GAMMA, GNMT
from sgdec.models.kernels import Kernels
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

SPREAD = 2.0
"""Initial weights are uniform in +-SPREAD / sqrt(width): the logits of all widths then differ equally."""


class Numbers:
    """A vocabulary whose words are the numbers of its tokens."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fingerprint = f"numbers below {size}"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split()))

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def piece(self, token: int) -> str:
        return str(token)

    def token(self, piece: str) -> int:
        return int(piece)


def random_gnmt(layers: int, width: int, vocabulary: int, *, constrained: bool = False, seed: int = 1) -> GNMT:
    """A model of ``layers`` + ``layers`` with ``width`` units that ends only at the length limit; can be quantised if
    ``constrained``."""
    torch.manual_seed(seed)
    context = ModelContext(vocabulary, vocabulary)
    model = GNMT(context, layers=layers, width=width, init=SPREAD / width**0.5, constrained=constrained).eval()
    if constrained:
        model.anneal(math.inf, 1)
    with torch.no_grad():
        model.softmax.bias[EOS] = -GAMMA
    return model


def frozen(model: GNMT, kernels: Kernels | None = None) -> GNMT:
    """The model, with products by ``kernels``, in fp32 packed for the processor unless given."""
    model.freeze(kernels or Kernels())
    return model


def nmt(model: GNMT, device: str = "cpu") -> NmtPredictor:
    """The predictor `nmt`, made by its own constructor, with a model that is in memory only."""
    size = model.softmax.out_features
    loaded = model, Vocabularies(Numbers(size), Numbers(size))
    loading = import_module("sgdec.checkpoints.loading")  # older trees have only this name (`former`)
    with patch.object(loading, "load_model", return_value=loaded):
        return NmtPredictor("in memory", Context(device=device, vocab_size=size))


def sentences(lengths: Iterable[int], vocabulary: int) -> list[Source]:
    """Random tokens; each output is as long as its source."""
    generator = torch.Generator().manual_seed(1)
    return [
        Source(n, tuple(torch.randint(3, vocabulary, (length,), generator=generator).tolist()), max_length=length)
        for n, length in enumerate(lengths, 1)
    ]


def decode(
    constellation: Constellation,
    decoder: Decoder,
    sources: Sequence[Source],
    batch_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, list[tuple[int, ...]]]:
    """The seconds and the best output of each sentence; asserts that each output has the expected length."""
    started = clock()
    outcomes = list(Scheduler(constellation, decoder, batch_size=batch_size).run(sources))
    spent = clock() - started
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    outputs = [outcome.result.hypotheses[0].tokens for outcome in outcomes]
    assert [len(output) for output in outputs] == [source.max_length for source in sources]
    return spent, outputs


def output_tokens(sources: Iterable[Source]) -> int:
    """With ``</s>``."""
    return sum((source.max_length or 0) + 1 for source in sources)


def share_of_equals(found: Mapping[str, list[tuple[int, ...]]]) -> float:
    """The share of sentences with the same output on all sides."""
    sides = list(zip(*found.values(), strict=True))
    return sum(len(set(outputs)) == 1 for outputs in sides) / len(sides)


def settle() -> None:
    """Collect garbage once, then exclude the remaining objects from later collections, as `sgdec decode` does."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def signature(**settings: object) -> str:
    """The line that reproduces a run: versions and settings."""
    given = "|".join(f"{name}:{value}" for name, value in settings.items())
    return f"signature: torch:{torch.__version__}|python:{platform.python_version()}|{given}"

"""Refinement by expected reward (GNMT, Wu et al. 2016, section 5): the model's own outputs are rewarded.

For a source X with reference Y*, the objective to maximise is

    O = alpha log P(Y*|X) + sum_Y P(Y|X) r(Y, Y*)                                      (equations 7, 8 and 9)

with r = sentence GLEU in the model's tokens (`sgdec.text.gleu`). The sum is over all outputs Y of at most twice as
many tokens as X; a longer output is cut at that length and has the probability of the remaining prefix. The gradient
of the sum is estimated (REINFORCE, Williams 1992) from N outputs Y_1 ... Y_N drawn from P(.|X), at temperature 1:

    g = 1/(N-1) sum_n (r_n - mean r) grad log P(Y_n|X)

The mean is over the same N samples; the paper does not say which it takes (our interpretation). It contains r_n
itself, so division by N would give (N-1)/N of the gradient. Division by N-1 makes the estimate unbiased: it equals
1/N times the sum with the mean of the *other* samples as baseline. Without baseline the estimate is 1/N sum_n r_n
grad log P(Y_n|X), which is unbiased as well but much noisier.

Scale: the objective is summed over sentences, as in the equations, and divided by the number of target tokens of the
references, as in maximum likelihood training. So alpha has the same meaning as in the paper, and a learning rate of
SGD means the same in both objectives. There is no dropout (section 8.3), so the outputs are drawn from the same
distribution whose gradient is computed.

An update costs the translation of each source into N outputs, all at once by the model's inference step, and a
forward and backward pass over them. The memory is that of a batch N times as large. The samples of a pair depend only
on seed, update and line, so an update of several small batches (``accumulate``) equals that of one large batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from sgdec.models.base import Model, Seq2Seq
from sgdec.text.gleu import gleu_of_each
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import STAND_IN, TrainingBatch, pad_targets
from sgdec.training.validation import LENGTH_FACTOR, batch_nll, unroll

Outputs = list[list[list[int]]]
"""[B][N] tokens without ``<s>`` and ``</s>``."""


class ExpectedReward:
    """The objective of a run, which also records the mean reward of its samples."""

    def __init__(self, config: TrainConfig) -> None:
        self.samples, self.alpha, self.baseline = config.samples, config.alpha, config.baseline
        self.label_smoothing, self.seed = config.label_smoothing or 0.0, config.seed
        self._rewards, self._sources = 0.0, 0

    def loss(self, model: Model, batch: TrainingBatch, step: int) -> Tensor:
        """-O summed over the pairs of a batch, estimated from samples; its gradient estimates that of -O."""
        seq2seq = cast(Seq2Seq, model)
        without_dropout(model)
        outputs = draw(seq2seq, batch, self.samples, seed=self.seed, step=step)
        rewards = gleu_rewards(outputs, batch)
        real = torch.tensor([line != STAND_IN for line in batch.lines])
        self._rewards += float(rewards.mean(1)[real].sum())
        self._sources += int(real.sum())
        loss = sampled_loss(seq2seq, batch, outputs, rewards, baseline=self.baseline)
        if self.alpha:
            loss = loss + self.alpha * batch_nll(model, batch, self.label_smoothing)
        return loss

    def collect(self) -> dict[str, float]:
        """The sum of "rewards" and the number of "sources" since the last call.

        The reward of a source is the mean over its samples.
        """
        collected = {"rewards": self._rewards, "sources": self._sources}
        self._rewards, self._sources = 0.0, 0
        return collected


def without_dropout(model: Model) -> None:
    """Set evaluation mode, except in LSTMs and GRUs, whose gradients cuDNN computes only in training mode."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.dropout = 0.0
            module.train()


@torch.no_grad()
def draw(model: Seq2Seq, batch: TrainingBatch, count: int, *, seed: int, step: int) -> Outputs:
    """Draw ``count`` outputs for each source from P(.|X), token by token, all rows at once."""
    assert batch.source is not None and batch.lengths is not None
    limits = LENGTH_FACTOR * batch.lengths
    uniforms = np.zeros((len(limits), count, int(limits.max())))  # [B, N, longest]
    for row, line, limit in zip(uniforms, batch.lines, limits.tolist(), strict=True):
        row[:, :limit] = np.random.default_rng((seed, step, line)).random((count, limit))
    numbers = torch.from_numpy(uniforms).flatten(0, 1).to(batch.source.device)  # [B N, longest]

    def choose(logits: Tensor, rows: Tensor, length: int) -> Tensor:
        return pick(logits, numbers[rows, length])

    owners = torch.arange(len(limits), device=batch.source.device).repeat_interleave(count)
    memory = model.encode(batch.source, batch.lengths).at(owners)
    outputs = unroll(model, memory, limits.repeat_interleave(count), choose)
    torch.clear_autocast_cache()  # it holds weights without gradient, which the next pass would otherwise use
    return [outputs[first : first + count] for first in range(0, len(outputs), count)]


def pick(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Tokens [R] drawn from softmax(logits [R, V]) by inverse transform sampling, with ``uniforms`` [R] in [0, 1).

    >>> pick(torch.zeros(5, 4), torch.tensor([0.0, 0.24, 0.26, 0.74, 0.99]).double()).tolist()
    [0, 0, 1, 2, 3]
    """
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    cumulative = torch.softmax(logits, -1).cumsum(-1, dtype=torch.float64)
    passed = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    return passed[:, 0].clamp(max=logits.size(-1) - 1)


def gleu_rewards(outputs: Outputs, batch: TrainingBatch) -> Tensor:
    """[B, N] the sentence GLEU of each output."""
    lengths = (batch.mask.sum(1) - 1).tolist()  # without </s>
    references = [row[:length] for row, length in zip(batch.target_out.tolist(), lengths, strict=True)]
    return torch.tensor([gleu_of_each(*pair) for pair in zip(outputs, references, strict=True)], dtype=torch.float64)


def advantages(rewards: Tensor, *, baseline: bool) -> Tensor:
    """The weights [B, N] of each sample's grad log P in the estimate g, from rewards [B, N].

    >>> advantages(torch.tensor([[0.0, 0.5, 1.0]]), baseline=True)
    tensor([[-0.2500,  0.0000,  0.2500]])
    """
    count = rewards.size(1)
    return (rewards - rewards.mean(1, keepdim=True)) / (count - 1) if baseline else rewards / count


def sampled_loss(
    model: Seq2Seq, batch: TrainingBatch, outputs: Outputs, rewards: Tensor, *, baseline: bool
) -> Tensor:
    """Minus the mean reward of each pair's samples (rewards [B, N]), summed over the pairs; its gradient is -g."""
    surrogate = batch_nll(model, as_batch(batch, outputs, advantages(rewards, baseline=baseline)))
    value = -rewards.mean(1).sum()
    return surrogate + (value - surrogate.detach())


def as_batch(batch: TrainingBatch, outputs: Outputs, weights: Tensor) -> TrainingBatch:
    """The outputs as targets of their sources; all tokens of an output have its weight, from ``weights`` [B, N].

    ``</s>`` counts only for outputs below the length limit: at the limit an output ends with probability 1.
    """
    assert batch.source is not None and batch.lengths is not None
    count = weights.size(1)
    lengths = batch.lengths.repeat_interleave(count)
    flat: Sequence[list[int]] = [output for of_one in outputs for output in of_one]
    target_in, target_out, mask = pad_targets(flat)
    cut = torch.tensor([len(output) for output in flat]) == LENGTH_FACTOR * lengths
    mask &= torch.arange(mask.size(1)) < (mask.sum(1) - cut.long())[:, None]
    spread = weights.flatten()[:, None].expand(mask.shape)
    lines = [line for line in batch.lines for _ in range(count)]
    source = batch.source.repeat_interleave(count, 0)
    samples = TrainingBatch(None, lengths, target_in, target_out, mask, lines, spread)
    return samples.to(str(source.device))._replace(source=source)

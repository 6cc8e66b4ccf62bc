"""Refinement by expected reward (GNMT, Wu et al. 2016, section 5): what is rewarded is what the model would say.

For a source X with reference Y* the objective, which is to grow, is

    O = alpha log P(Y*|X) + sum_Y P(Y|X) r(Y, Y*)                                      (equations 7, 8 and 9)

with r = sentence GLEU in the model's tokens (`sgdec.text.gleu`). Y goes over all outputs of at most twice as many
tokens as X; one that has not ended by then is cut there, with the probability of what it has. The gradient of the sum
is estimated (REINFORCE, Williams 1992) from N outputs Y_1 ... Y_N drawn from P(.|X), at temperature 1:

    g = 1/(N-1) sum_n (r_n - mean r) grad log P(Y_n|X)

The mean is that of the same N samples, as in the paper. As it contains r_n itself, dividing by N would give
(N-1)/N of the gradient; divided by N-1 the estimate has no bias (it is that of the mean of the *other* samples).
Without baseline it is 1/N sum_n r_n grad log P(Y_n|X): without bias as well, and far noisier.

Scale: sums over sentences, as in the equations, divided by the number of target tokens of the references, as in
maximum likelihood training. So alpha weighs what the paper's alpha weighs, and a rate of SGD means the same in both.
There is no dropout (section 8.3): outputs are drawn from the model whose probabilities are learnt.

An update costs a translation of N outputs a source, all at once by the model's inference step, and a forward and
backward pass over them; memory is that of a batch N times as large. An update of several small batches
(``accumulate``) is that of one large one: what is drawn for a pair depends on seed, update and line alone.
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
from sgdec.training.data.batch import STAND_IN, Batch, pad_targets
from sgdec.training.validation import LENGTH_FACTOR, batch_nll, unroll

Outputs = list[list[list[int]]]
"""[B][N] tokens without ``<s>`` and ``</s>``."""


class ExpectedReward:
    """The objective of a run, and how much reward it has met."""

    def __init__(self, config: TrainConfig) -> None:
        self.samples, self.alpha, self.baseline = config.samples, config.alpha, config.baseline
        self.label_smoothing, self.seed = config.label_smoothing or 0.0, config.seed
        self._rewards, self._sources = 0.0, 0

    def loss(self, model: Model, batch: Batch, step: int) -> Tensor:
        """-O summed over the pairs of a batch, as estimated from samples; its gradient is the estimate of -O's."""
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
        """Since it was last asked: the "rewards" of all "sources", each the mean of its samples, and their number."""
        collected = {"rewards": self._rewards, "sources": self._sources}
        self._rewards, self._sources = 0.0, 0
        return collected


def without_dropout(model: Model) -> None:
    """Evaluation mode, but for LSTMs and GRUs, which cuDNN differentiates in training mode alone."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.dropout = 0.0
            module.train()


@torch.no_grad()
def draw(model: Seq2Seq, batch: Batch, count: int, *, seed: int, step: int) -> Outputs:
    """``count`` outputs for each source from P(.|X), token by token, all rows at once."""
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
    torch.clear_autocast_cache()  # it holds weights without gradient, which the pass to come would use
    return [outputs[first : first + count] for first in range(0, len(outputs), count)]


def pick(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Tokens [R] from softmax(logits [R, V]): where the cumulative probability passes the number [R] in [0, 1).

    >>> pick(torch.zeros(5, 4), torch.tensor([0.0, 0.24, 0.26, 0.74, 0.99]).double()).tolist()
    [0, 0, 1, 2, 3]
    """
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    cumulative = torch.softmax(logits, -1).cumsum(-1, dtype=torch.float64)
    passed = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    return passed[:, 0].clamp(max=logits.size(-1) - 1)


def gleu_rewards(outputs: Outputs, batch: Batch) -> Tensor:
    """[B, N] the GLEU of each output."""
    lengths = (batch.mask.sum(1) - 1).tolist()  # without </s>
    references = [row[:length] for row, length in zip(batch.target_out.tolist(), lengths, strict=True)]
    return torch.tensor([gleu_of_each(*pair) for pair in zip(outputs, references, strict=True)], dtype=torch.float64)


def advantages(rewards: Tensor, *, baseline: bool) -> Tensor:
    """What each sample's grad log P counts in the estimate g, of rewards [B, N].

    >>> advantages(torch.tensor([[0.0, 0.5, 1.0]]), baseline=True)
    tensor([[-0.2500,  0.0000,  0.2500]])
    """
    count = rewards.size(1)
    return (rewards - rewards.mean(1, keepdim=True)) / (count - 1) if baseline else rewards / count


def sampled_loss(model: Seq2Seq, batch: Batch, outputs: Outputs, rewards: Tensor, *, baseline: bool) -> Tensor:
    """Minus the samples' mean reward [B, N], summed over the pairs; its gradient is -g."""
    surrogate = batch_nll(model, as_batch(batch, outputs, advantages(rewards, baseline=baseline)))
    value = -rewards.mean(1).sum()
    return surrogate + (value - surrogate.detach())


def as_batch(batch: Batch, outputs: Outputs, weights: Tensor) -> Batch:
    """The outputs as targets of their sources, all tokens of an output with its weight [B, N].

    The end counts only where an output was free to go on: at its limit it ends with probability 1.
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
    samples = Batch(None, lengths, target_in, target_out, mask, lines, spread)
    return samples.to(str(source.device))._replace(source=source)

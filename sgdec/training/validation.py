"""Evaluation of a model: the perplexity of held-out text, and BLEU and GLEU of greedy translations of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from logging import Logger

import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.context import BOS, EOS, UNK, Vocabularies, Vocabulary
from sgdec.models.base import Memory, Model, Seq2Seq
from sgdec.terminal import Bar, track
from sgdec.text.bleu import bleu
from sgdec.text.gleu import mean_gleu
from sgdec.text.steps import Stepping
from sgdec.training.data.batch import TrainingBatch, pad, take
from sgdec.training.data.budget import BatchBudget
from sgdec.training.data.text import ParallelText, Text
from sgdec.training.log import LOG
from sgdec.training.out_of_memory import in_halves

LENGTH_FACTOR = 2
"""Limit on the tokens of an output, as a multiple of its source's."""


def batch_nll(model: Model, batch: TrainingBatch, label_smoothing: float = 0.0) -> Tensor:
    """Sum of -ln P over the target tokens of a batch, including ``</s>``, each times its weight if there are weights.

    No logits are computed for padding.
    """
    outputs = model(*batch.inputs)[batch.mask]  # [tokens, H]
    weights = None if batch.weights is None else batch.weights[batch.mask]
    return summed_nll(model.project(outputs), batch.target_out[batch.mask], weights, label_smoothing)


def summed_nll(logits: Tensor, targets: Tensor, weights: Tensor | None, label_smoothing: float) -> Tensor:
    """Sum of -ln P of the targets [tokens] under logits [tokens, V], each times its weight [tokens]."""
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    if weights is None:
        return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)
    losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=label_smoothing)
    return (losses * weights).sum()


@torch.inference_mode()
def perplexity(
    model: Model, data: Text, *, budget: int | BatchBudget = 4096, device: str = "cpu", log: Logger = LOG
) -> float:
    """exp of the mean -ln P per target token, including ``</s>``; a batch that does not fit in memory is split."""

    def nll(batch: TrainingBatch) -> float:
        rows = range(len(batch.lines))
        return sum(in_halves(lambda some: [float(batch_nll(model, take(batch, some).to(device)))], rows))

    model.eval()
    total, tokens = 0.0, 0
    batches = data.batches(budget)
    for examples in track(batches, "perplexity", log, unit="batches", total=len(batches)):
        batch = data.batch(examples)
        total += nll(batch)
        tokens += int(batch.mask.sum())
    mean = total / tokens
    return math.exp(mean) if mean < 700 else math.inf


@torch.inference_mode()
def translate(
    model: Seq2Seq,
    vocabularies: Vocabularies,
    lines: Sequence[str],
    *,
    device: str = "cpu",
    batch_size: int = 64,
) -> list[str]:
    """The `greedy` translations of lines of text, in their order; an empty line stays empty."""
    assert vocabularies.source is not None and vocabularies.target is not None
    sources = [vocabularies.source.encode(line) for line in lines]
    return [
        vocabularies.target.decode(tokens) for tokens in greedy(model, sources, device=device, batch_size=batch_size)
    ]


@torch.inference_mode()
def greedy(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    *,
    device: str = "cpu",
    batch_size: int = 64,
    log: Logger = LOG,
) -> list[list[int]]:
    """Greedy search: the most probable token at every step. Sources may be in any order; an empty one stays empty.

    A translation ends with ``</s>`` or after `LENGTH_FACTOR` times as many tokens as its source. Models with step
    symbols (`Model.steps`) may generate one more symbol per source token. ``<unk>`` is never chosen.
    """

    def choose(logits: Tensor, rows: Tensor, length: int) -> Tensor:
        logits[:, [UNK, BOS]] = -math.inf
        return logits.argmax(-1)

    def searched(chosen: Sequence[int]) -> list[list[int]]:
        padded, lengths = pad([sources[n] for n in chosen])
        memory = model.encode(padded.to(device), lengths)
        return unroll(model, memory, (LENGTH_FACTOR + model.steps) * lengths, choose)

    model.eval()
    order = sorted((n for n in range(len(sources)) if sources[n]), key=lambda n: len(sources[n]))
    translations: list[list[int]] = [[] for _ in sources]
    with Bar("translating", log, unit="lines", total=len(order)) as bar:
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            for n, tokens in zip(chosen, in_halves(searched, chosen), strict=True):
                translations[n] = tokens
            bar.advance(len(chosen))
    return translations


def unroll(
    model: Seq2Seq, memory: Memory, limits: Tensor, choose: Callable[[Tensor, Tensor, int], Tensor]
) -> list[list[int]]:
    """An output for each of the R rows of ``memory``, step by step; a row is removed from the batch when it ends.

    ``choose`` receives logits [r, V], the rows that they belong to [r], and the number of tokens of these outputs so
    far. It returns the next tokens [r]. An output ends before ``</s>``, or when it reaches its limit of tokens
    (``limits`` [R], on the CPU).
    """
    device = memory.values.device
    state = model.start(memory)
    rows = torch.arange(len(limits), device=device)
    tokens = torch.full((len(limits),), BOS, device=device)
    outputs: list[list[int]] = [[] for _ in limits]
    longest, limits = int(limits.max()), limits.to(device)
    for length in range(longest):
        state, output, _ = model.step(memory, state, tokens)
        tokens = choose(model.project(output), rows, length)
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            if token != EOS:
                outputs[row].append(token)
        going = ((tokens != EOS) & (length + 1 < limits[rows])).nonzero().squeeze(-1)
        if not len(going):
            break
        if len(going) < len(rows):
            rows, tokens = rows[going], tokens[going]
            memory = memory.at(going)
            state = tuple(tensor[going] for tensor in state)
    return outputs


def of_translations(
    model: Seq2Seq, target: Vocabulary, text: ParallelText, count: int, *, device: str = "cpu", log: Logger = LOG
) -> dict[str, float]:
    """BLEU (0 to 100) and mean token GLEU (0 to 1) of greedy translations of the first ``count`` sources.

    Empty if ``count`` is 0.
    """
    if not count:
        return {}
    outputs, references = greedy(model, text.sources[:count], device=device, log=log), text.targets[:count]
    translations = [target.decode(tokens) for tokens in outputs]
    if isinstance(target, Stepping):
        outputs, references = ([target.without_steps(tokens) for tokens in side] for side in (outputs, references))
    return {"bleu": bleu(translations, text.target_lines[:count]), "gleu": mean_gleu(outputs, references)}

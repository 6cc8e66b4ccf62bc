"""How good a model is: perplexity of held-out text, and BLEU of real translations of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.context import BOS, EOS, UNK, Vocabularies
from sgdec.models.base import Model, Seq2Seq
from sgdec.training.data import Batch, Text, pad

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Score


class Scored(NamedTuple):
    """One corpus-level score and the signature that reproduces it."""

    name: str
    value: float
    text: str
    signature: str


def batch_nll(model: Model, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """Sum of -ln P over the target tokens of a batch, ``</s>`` included; padding is not even projected."""
    outputs = model(*batch.inputs)[batch.mask]  # [tokens, H]
    logits = model.project(outputs)  # [tokens, V]
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    targets = batch.target_out[batch.mask]
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)


@torch.inference_mode()
def perplexity(model: Model, data: Text, *, batch_tokens: int = 4096, device: str = "cpu") -> float:
    """exp of the mean -ln P of a target token, ``</s>`` included."""
    model.eval()
    total, tokens = 0.0, 0
    for examples in data.batches(batch_tokens):
        batch = data.batch(examples).to(device)
        total += float(batch_nll(model, batch))
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
    """Greedy translations, in the order of the lines; an empty line stays empty.

    A translation ends with ``</s>`` or after twice as many tokens as its source; ``<unk>`` is never chosen.
    """
    assert vocabularies.source is not None and vocabularies.target is not None
    model.eval()
    sources = [vocabularies.source.encode(line) for line in lines]
    order = sorted((n for n in range(len(lines)) if sources[n]), key=lambda n: len(sources[n]))
    translations = [""] * len(lines)
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        outputs = _greedy(model, [sources[n] for n in chosen], device)
        for n, tokens in zip(chosen, outputs, strict=True):
            translations[n] = vocabularies.target.decode(tokens)
    return translations


def _greedy(model: Seq2Seq, sources: Sequence[Sequence[int]], device: str) -> list[list[int]]:
    """The likeliest token at every step; rows leave the batch as they end."""
    padded, lengths = pad(sources)
    memory = model.encode(padded.to(device), lengths)
    state = model.start(memory)
    rows = torch.arange(len(sources), device=device)  # which sentence a row belongs to
    tokens = torch.full((len(sources),), BOS, device=device)
    limits = 2 * lengths.to(device)
    outputs: list[list[int]] = [[] for _ in sources]
    for length in range(2 * int(lengths.max())):
        state, output, _ = model.step(memory, state, tokens)
        logits = model.project(output)
        logits[:, [UNK, BOS]] = -math.inf
        tokens = logits.argmax(-1)
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


def bleu_and_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[Scored]:
    """sacreBLEU's corpus BLEU (13a, cased) and chrF, with signatures."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    scored = []
    for metric in (BLEU(), CHRF()):
        score: Score = metric.corpus_score(list(hypotheses), [list(references)])
        scored.append(Scored(score.name, float(score.score), str(score), str(metric.get_signature())))
    return scored


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """`bleu_and_chrf`'s BLEU alone, 0 to 100."""
    return bleu_and_chrf(hypotheses, references)[0].value

"""Trains the course's model and writes its weights: ``python examples/course/models/train.py``.

Needs torch and safetensors. All random numbers come from ``--seed``; equal settings on the same machine give the same
file. Takes about two minutes on one core. The corpus is drawn as it is needed (`language`), so no sentence is seen
twice.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from models.language import SOURCE_SIZE, TARGET_SIZE, Tokens, draw_source, draw_target
from sgdec import BOS, EOS

WEIGHTS = Path(__file__).resolve().parent / "small.safetensors"
PAD = 0


class Translator(nn.Module):
    """The model of `models.small`, over batches: R sentences, I source and J target positions."""

    def __init__(self, embedding: int = 24, encoder: int = 32, decoder: int = 64) -> None:
        super().__init__()
        self.source = nn.Embedding(SOURCE_SIZE, embedding)
        self.target = nn.Embedding(TARGET_SIZE, embedding)
        self.encoder = nn.GRU(embedding, encoder, bidirectional=True, batch_first=True)
        self.start = nn.Linear(2 * encoder, decoder)
        self.decoder = nn.GRU(embedding, decoder, batch_first=True)
        self.attention = nn.Linear(2 * encoder, decoder, bias=False)
        self.mix = nn.Linear(decoder + 2 * encoder, decoder)
        self.output = nn.Linear(decoder, TARGET_SIZE)

    def forward(self, sources: Tensor, lengths: Tensor, prefixes: Tensor) -> Tensor:
        """``[R, J, V]``: log-probabilities of the next token, from ``[R, I]``, ``[R]`` and ``[R, J]``."""
        packed = pack_padded_sequence(self.source(sources), lengths, batch_first=True, enforce_sorted=False)
        memory, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)  # [R, I, 2H]
        start = torch.tanh(self.start(memory.sum(1) / lengths[:, None]))
        hidden, _ = self.decoder(self.target(prefixes), start[None])  # [R, J, D]
        scores = hidden @ self.attention(memory).transpose(1, 2)  # [R, J, I]
        scores = scores.masked_fill((torch.arange(memory.shape[1]) >= lengths[:, None])[:, None], -torch.inf)
        context = scores.softmax(-1) @ memory
        mixed = torch.tanh(self.mix(torch.cat([hidden, context], -1)))
        logits: Tensor = self.output(mixed)
        return logits.log_softmax(-1)


def train(steps: int, batch: int = 64, rate: float = 4e-3, seed: int = 1) -> Translator:
    """A model after this many updates, with a rate that falls to zero."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng, model = np.random.default_rng(seed), Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for step in range(steps):
        loss = negative_log_likelihood(model, draw_pairs(rng, batch))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            print(f"update {step}: {loss.item():.3f} per sentence", file=sys.stderr)
    return model


def draw_pairs(rng: np.random.Generator, count: int) -> list[tuple[Tokens, Tokens]]:
    """Sentences with one noisy translation each."""
    sources = [draw_source(rng) for _ in range(count)]
    return [(source, draw_target(rng, source)) for source in sources]


def negative_log_likelihood(model: Translator, pairs: list[tuple[Tokens, Tokens]]) -> Tensor:
    """The mean over sentences of -log P(y | x)."""
    sources, lengths = padded([source for source, _ in pairs])
    prefixes, _ = padded([(BOS, *target) for _, target in pairs])
    targets, _ = padded([(*target, EOS) for _, target in pairs])
    scores = model(sources, lengths, prefixes).gather(-1, targets[..., None])[..., 0]
    total: Tensor = (scores * (targets != PAD)).sum()
    return -total / len(pairs)


def padded(rows: list[Tokens]) -> tuple[Tensor, Tensor]:
    """``[R, longest]`` and the lengths ``[R]``."""
    lengths = torch.tensor([len(row) for row in rows])
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, PAD), lengths


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the course's model.")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=WEIGHTS)
    given = parser.parse_args()
    model = train(given.steps, seed=given.seed)
    given.output.write_bytes(save({name: tensor.contiguous() for name, tensor in model.state_dict().items()}))


if __name__ == "__main__":
    main()

"""A small translation model in NumPy: log P(y_j | y_1 .. y_{j-1}, x), from `small.safetensors`.

A bidirectional GRU reads the source, and a GRU with attention writes the target (Bahdanau et al. 2015, with the
attention of Luong et al. 2015: the score of source position i is h' W m_i). State: the hidden vector after the
prefix. The scores are log-probabilities, so no total rises, and there is no better bound than 0.

It is also a plugin: ``--plugin-file examples/course/models/small.py --predictors small``, with tokens as input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import sgdec
from sgdec import BOS, BatchPredictor, Scores, Source

Floats: TypeAlias = npt.NDArray[np.float64]
WEIGHTS = Path(__file__).resolve().parent / "small.safetensors"


class State(NamedTuple):
    """A prefix."""

    memory: Floats
    """``[I, 2H]``: the encoded source, one row per position."""
    keys: Floats
    """``[I, D]``: W m_i."""
    hidden: Floats
    """``[D]``: the decoder's state."""


class SmallModel(BatchPredictor):
    """Scores the next target token."""

    max_score = 0.0

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [self._encode(source.tokens) for source in sources]

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        hidden = np.array([state.hidden for state in states])  # [R, D]
        context = np.array([self._attend(state) for state in states])  # [R, 2H]
        weights = read_weights()
        mixed = np.tanh(np.concatenate([hidden, context], 1) @ weights["mix.weight"].T + weights["mix.bias"])
        logits = mixed @ weights["output.weight"].T + weights["output.bias"]  # [R, V]
        logits -= logits.max(1, keepdims=True)
        return Scores.dense(logits - np.log(np.exp(logits).sum(1, keepdims=True)))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        before = np.array([state.hidden for state in states])
        embedded = read_weights()["target.weight"][list(tokens)]
        return [
            state._replace(hidden=hidden)
            for state, hidden in zip(states, gru("decoder", "l0", embedded, before), strict=True)
        ]

    def _encode(self, tokens: Sequence[int]) -> State:
        """The state of the empty prefix."""
        weights = read_weights()
        embedded = weights["source.weight"][list(tokens)]  # [I, E]
        ways = []
        for direction, places in (("l0", range(len(tokens))), ("l0_reverse", reversed(range(len(tokens))))):
            hidden = np.zeros((1, weights["encoder.weight_hh_l0"].shape[1]))
            found = np.zeros((len(tokens), hidden.shape[1]))
            for place in places:
                hidden = gru("encoder", direction, embedded[place : place + 1], hidden)
                found[place] = hidden[0]
            ways.append(found)
        memory = np.concatenate(ways, 1)
        start = np.tanh(memory.mean(0) @ weights["start.weight"].T + weights["start.bias"])
        (hidden,) = gru("decoder", "l0", weights["target.weight"][[BOS]], start[None])
        return State(memory, memory @ weights["attention.weight"].T, hidden)

    def _attend(self, state: State) -> Floats:
        """``[2H]``: the mean of the memory under the attention."""
        scores = state.keys @ state.hidden
        shares = np.exp(scores - scores.max())
        found: Floats = shares @ state.memory / shares.sum()
        return found


def gru(layer: str, part: str, inputs: Floats, hidden: Floats) -> Floats:
    """``[R, D]``: the states after one more input each (Cho et al. 2014, with the reset gate after the product)."""
    weights = read_weights()
    given = inputs @ weights[f"{layer}.weight_ih_{part}"].T + weights[f"{layer}.bias_ih_{part}"]
    held = hidden @ weights[f"{layer}.weight_hh_{part}"].T + weights[f"{layer}.bias_hh_{part}"]
    size = hidden.shape[1]
    gates = _sigmoid(given[:, : 2 * size] + held[:, : 2 * size])
    reset, update = gates[:, :size], gates[:, size:]
    return (1 - update) * np.tanh(given[:, 2 * size :] + reset * held[:, 2 * size :]) + update * hidden


def _sigmoid(values: Floats) -> Floats:
    return 0.5 * (1.0 + np.tanh(0.5 * values))


@cache
def read_weights() -> dict[str, Floats]:
    """The arrays of a safetensors file: the length of the header, the header in JSON, then all numbers."""
    raw = WEIGHTS.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    return {
        name: np.frombuffer(raw[start + begin : start + end], "<f4").reshape(entry["shape"]).astype(np.float64)
        for name, entry in header.items()
        if name != "__metadata__"
        for begin, end in [entry["data_offsets"]]
    }


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"small": SmallModel}

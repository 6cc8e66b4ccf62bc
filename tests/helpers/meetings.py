"""Predictors of every form meeting over several nodes, and what comes of it by the definition.

The oracle is the definition over dictionaries, one token at a time. Scores are quarters and weights are halves, so
that sums are exact and ties are many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, SparseRow, State
from sgdec.search.combining import Combined
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node

INF = math.inf
Form = Literal[
    "float64", "float32", "torch float64", "torch float32", "sparse", "on demand", "dense on demand", "flat on demand"
]
FORMS: tuple[Form, ...] = (
    "float64", "float32", "torch float64", "torch float32", "sparse", "on demand", "dense on demand",
    "flat on demand",
)  # fmt: skip
WEIGHTS = (1.0, 0.0, -1.0, 0.5, -0.5, 2.0, None)
POISON = 77.0
"""What a predictor on demand says about tokens that are no candidates."""


@dataclass(frozen=True)
class Said:
    """One row, token by token: the tokens that are listed, and the default of the others."""

    listed: Mapping[int, float]
    default: float

    def score(self, token: int) -> float:
        return self.listed.get(token, self.default)


class Says(BatchPredictor):
    """Row i belongs to sentence i; the state is the sentence number."""

    def __init__(self, form: Form, rows: Sequence[Said], vocab_size: int) -> None:
        self.form = form
        self.rows = rows
        self.vocab_size = vocab_size
        self.on_demand = "on demand" in form  # type: ignore[misc]

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [source.id for source in sources]

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        raise AssertionError("nothing is expanded here")

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        if self.form == "sparse":
            return Scores(rows=[_sparse(self.rows[i]) for i in states])
        if self.form == "on demand":
            wanted = candidates if candidates is not None else [None] * len(states)
            return Scores(rows=[self._on_demand(self.rows[i], c) for i, c in zip(states, wanted, strict=True)])
        if self.form == "flat on demand" and candidates is not None and None not in candidates:
            flat = [self.rows[i].score(w) for i, c in zip(states, candidates, strict=True) for w in c or ()]
            return Scores.of_candidates(candidates, np.array(flat))
        values = np.array([[self.rows[i].score(w) for w in range(self.vocab_size)] for i in states])
        if self.form.startswith("torch"):
            return Scores.dense(torch.from_numpy(values).to(getattr(torch, self.form.split()[1])))
        return Scores.dense(values.astype(np.float32 if self.form == "float32" else np.float64))

    def _on_demand(self, row: Said, candidates: Candidates | None) -> SparseRow:
        if candidates is None:
            return _sparse(row)
        assert list(candidates) == sorted(set(candidates)), "candidates come in ascending order, each once"
        if row.default == -INF:  # restricts also among candidates
            listed = [token for token in candidates if token in row.listed]
            return SparseRow(listed, [row.listed[token] for token in listed])
        return SparseRow(candidates, [row.score(token) for token in candidates], POISON)


def _sparse(row: Said) -> SparseRow:
    tokens = sorted(row.listed, key=lambda token: (token * 7) % 11)  # in no particular order
    return SparseRow(tokens, [row.listed[token] for token in tokens], row.default)


@dataclass
class Meeting:
    """Predictors with what they say to each of several nodes."""

    forms: list[Form]
    said: list[list[Said]]
    """By predictor, then node."""
    weights: list[tuple[float | None, ...]]
    """By node, then predictor."""
    at_limit: list[bool]
    vocab_size: int

    def combined(self) -> Combined:
        constellation, nodes = self.opened()
        return constellation.combine(nodes)

    def opened(self) -> tuple[Constellation, list[Node]]:
        """The nodes that are asked about."""
        predictors = {
            f"p{k}": Says(form, rows, self.vocab_size)
            for k, (form, rows) in enumerate(zip(self.forms, self.said, strict=True))
        }
        constellation = Constellation.of(predictors, vocab_size=self.vocab_size)
        sources = [Source(i, (), max_length=0 if limit else None) for i, limit in enumerate(self.at_limit)]
        nodes = constellation.roots(sources)
        return constellation, [node.with_weights(w) for node, w in zip(nodes, self.weights, strict=True)]

    def expected(self, node: int) -> list[tuple[int, float, tuple[float, ...]]]:
        """All continuations of a node by the definition, best first, lower token first."""
        rows = [said[node] for said in self.said]
        weights = self.weights[node]
        candidates = {EOS} if self.at_limit[node] else set(range(self.vocab_size))
        for form, row, weight in zip(self.forms, rows, weights, strict=True):
            if weight is not None and row.default == -INF and form in ("sparse", "on demand"):
                candidates &= set(row.listed)
        found = []
        for token in sorted(candidates):
            scores = tuple(
                0.0 if weight is None else row.score(token) for row, weight in zip(rows, weights, strict=True)
            )
            if -INF not in scores:
                total = sum(w * s for w, s in zip(weights, scores, strict=True) if w is not None)
                found.append((token, float(total), scores))
        return sorted(found, key=lambda continuation: (-continuation[1], continuation[0]))


@st.composite
def meetings(draw: st.DrawFn, vocab_sizes: Sequence[int] = (1, 3, 5, 70, 150)) -> Meeting:
    vocab_size = draw(st.sampled_from(vocab_sizes))
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=4))
    nodes = draw(st.integers(1, 4))
    weights = [tuple(draw(st.sampled_from(WEIGHTS)) for _ in forms) for _ in range(nodes)]
    at_limit = [vocab_size > EOS and draw(st.integers(0, 5)) == 0 for _ in range(nodes)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    said = [[_said(rng, form, vocab_size) for _ in range(nodes)] for form in forms]
    return Meeting(forms, said, weights, at_limit, vocab_size)


def _said(rng: np.random.Generator, form: Form, vocab_size: int) -> Said:
    everything = form not in ("sparse", "on demand")
    share = 1.0 if everything else rng.choice([0.0, 0.1, 0.5, 1.0])
    forbidden = rng.choice([0.0, 0.2, 0.9])
    listed = {
        token: -INF if rng.random() < forbidden else float(rng.integers(-12, 5)) / 4
        for token in range(vocab_size)
        if rng.random() < share
    }
    return Said(listed, -INF if rng.random() < 0.5 and not everything else float(rng.integers(-8, 3)) / 4)


def plain(found: Any) -> list[tuple[int, float, tuple[float, ...]]]:
    return [(token, score, tuple(scores)) for token, score, scores in found]


def everything(combined: Combined, node: int, size: int) -> list[tuple[int, float, tuple[float, ...]]]:
    """All continuations of a node, block after block."""
    block = combined.blocks(size)[node]
    found = block.continuations(0, len(block))
    while block.more:
        block = combined.block_after(node, np.array([token for token, _, _ in found]), size)
        found += block.continuations(0, len(block))
    return plain(found)

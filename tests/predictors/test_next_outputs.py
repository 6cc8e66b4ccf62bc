"""What a transducer can write next, against plain recursion over drawn ones; and its scores, against float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.automata.semirings import TROPICAL
from sgdec_predictors.wrapping.inner_tokens import Inner, InnerPrefix
from sgdec_predictors.wrapping.lookahead import log_sums, maxima
from sgdec_predictors.wrapping.transducer import SILENT, Machine, NextOutputs

from sgdec import EOS, Source
from sgdec.files import LatticeError
from sgdec.io.transducer import TransducerArc
from sgdec.protocol import FORBIDDEN
from sgdec.testing import BatchTable
from tests.helpers.drawn_transducers import Drawn

LABELS = [3, 4, EOS]


def drawn(rng: np.random.Generator) -> Drawn:
    """Up to six states, mostly arcs that write nothing, ends as final states and as arcs that read ``</s>``."""
    states = int(rng.integers(2, 7))
    arcs: dict[int, list[TransducerArc]] = {}
    for _ in range(states * int(rng.integers(1, 5))):
        origin, target = (int(each) for each in rng.integers(states, size=2))
        label = int(rng.choice(LABELS, p=[0.45, 0.45, 0.1]))
        written = EOS if label == EOS else int(rng.choice([0, 0, 0, 3, 4, 5]))
        cost = float(np.float32(rng.choice([0.0, 0.5, 1.25, np.inf], p=[0.4, 0.3, 0.25, 0.05])))
        arcs.setdefault(origin, []).append(TransducerArc(label, written, cost, target))
    final = {state: float(rng.choice([0.0, 0.5])) for state in range(states) if rng.random() < 0.4}
    return Drawn(arcs, final or {0: 0.25})


def leads_to_an_end(found: Drawn, state: int, steps: int = 6) -> bool:
    return state in found.final or any(
        leads_to_an_end(found, arc.target, steps - 1)
        for arc in (found.arcs.get(state, []) if steps else [])
        if arc.cost < math.inf
    )


def outputs(found: Drawn, state: int, last: int | None, steps: int = 6) -> dict[int, float]:
    """By token the score of the best path that writes it first. Without cycles a path has few steps."""
    if state == last:
        return {SILENT: 0.0}
    best = {EOS: -found.final[state]} if state in found.final else {}
    for arc in found.arcs.get(state, []) if steps else ():
        if arc.input == EOS:
            after = {EOS: -found.final[arc.target]} if arc.target in found.final else {}
        elif arc.cost == math.inf or not leads_to_an_end(found, arc.target):
            after = {}
        else:
            after = {arc.output: 0.0} if arc.output else outputs(found, arc.target, last, steps - 1)
        for token, score in after.items():
            if score - arc.cost > best.get(token, FORBIDDEN):
                best[token] = score - arc.cost
    return best


def test_the_next_outputs_are_those_of_the_best_paths(tmp_path: Path) -> None:
    tried = 0
    for seed in range(120):
        found = drawn(np.random.default_rng(seed))
        try:
            machine = Machine(found.write(str(tmp_path / "t.fst")), TROPICAL)
        except LatticeError:
            continue  # no end can be reached
        for state in {0, *found.arcs, *found.final}:
            if not leads_to_an_end(found, state):
                continue
            for last, tokens in ((None, machine.outputs(state)), (0, machine.pending(state))):
                expected = outputs(found, state, last)
                assert tokens.tokens.tolist() == sorted(expected), (seed, state, last)
                assert tokens.scores.tolist() == [expected[token] for token in sorted(expected)]
                tried += len(expected) > 1
    assert tried > 100


def prefix(scores: list[float]) -> InnerPrefix:
    """An inner prefix with these scores of the next tokens."""
    inner = Inner(BatchTable(np.array([scores] * len(scores))), "here", len(scores) - 1)
    (empty,) = inner.begin([Source(1, (3,))])
    inner.know([(empty, EOS)])
    return empty


def written(tokens: list[int], scores: list[float]) -> NextOutputs:
    return NextOutputs(np.array(tokens), np.array(scores), np.exp(np.array(scores)))


@pytest.mark.parametrize(
    "scores",
    [
        [-1.0, -2.0, -3.0, -0.5, -4.0],
        [-1.0, -2.0, -800.0, 0.0, -790.0],  # sums that underflow beside the highest score
        [-5000.0, -5001.0, -5002.0, -5000.5, -4999.0],
        [700.0, 690.0, -700.0, 650.0, 1.0],
        [FORBIDDEN] * 5,
    ],
)
def test_sums_and_maxima_are_those_of_plain_logarithms(scores: list[float]) -> None:
    everything: Any = written([SILENT, 0, 1, 2, 3, 4, 2, 4], [-0.25, 0.0, -1.5, -0.5, -2.0, 0.0, -1.0, -3.0])
    starts = np.array([0, 3, 5, 6])
    terms = [
        cost + (0.0 if token == SILENT else scores[token])
        for token, cost in zip(everything.tokens.tolist(), everything.scores.tolist(), strict=True)
    ]
    parts = [terms[a:b] for a, b in zip(starts, [*starts[1:], len(terms)], strict=True)]
    inner = prefix(scores)
    assert log_sums(everything, inner, starts) == pytest.approx([np.logaddexp.reduce(part) for part in parts])
    assert maxima(everything, inner, starts).tolist() == [max(part) for part in parts]
    assert log_sums(everything, inner) == pytest.approx([np.logaddexp.reduce(terms)])

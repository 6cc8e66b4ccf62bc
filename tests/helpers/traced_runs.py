"""Traced searches of small models, and random traces: what the viewer shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import sgdec
from sgdec import EOS, Predictor, Scores, Source
from sgdec.context import Vocabularies
from sgdec.protocol import Candidates, State
from sgdec.testing.toys import Lattice
from sgdec.trace import writing_trace
from sgdec.trace.records import Ended, Expansion, Fate, Header, SentenceTrace, Tracing
from sgdec.view.runs import TracedRun

V = 12
PIECES = {token: f"▁w{token}" for token in range(3, V)}
SOURCES = [[3, 4, 5, 6], [7, 8, 9], [10, 11, 3]]
SHOWN = "viewer.views.length > 0 && !document.querySelector('[aria-busy]')"
"""In a page of the viewer: whether the data of the sentence have been unpacked and drawn."""
LATTICE = {
    0: {3: (-0.5, 1), 4: (-0.7, 1), 5: (-0.1, 2)},
    1: {6: (-0.2, 2), 7: (-0.9, 3)},
    2: {8: (-0.3, 3), 10: (-0.4, 4), EOS: (-2.0, 9)},
    3: {9: (-0.4, 4), EOS: (-0.1, 9)},
    4: {EOS: (-0.3, 9)},
}


class Model(Predictor):
    """Random log-probabilities that depend on the source and the prefix; random attention."""

    max_score = 0.0

    def __init__(self, seed: int = 1, length: int = 6) -> None:
        self.seed, self.length = seed, length

    def initialize(self, source: Source) -> None:
        self.source, self.prefix = source.tokens, ()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        row = np.random.default_rng([self.seed, *self.source, *self.prefix]).normal(0, 2, V)
        row[:3] = -9, -9, len(self.prefix) - self.length
        return Scores.dense(row - np.log(np.exp(row).sum()))

    def consume(self, token: int) -> None:
        self.prefix = (*self.prefix, token)

    def get_state(self) -> tuple[int, ...]:
        return self.prefix

    def set_state(self, state: tuple[int, ...]) -> None:
        self.prefix = state

    def attention(self, states: Sequence[State]) -> list[Any]:
        return [np.random.default_rng([self.seed, *s]).dirichlet(np.full(len(self.source), 0.5)) for s in states]


def traced(
    decoder: str = "beam",
    predictors: dict[str, Any] | None = None,
    *,
    sources: Sequence[Sequence[int]] = SOURCES,
    name: str = "run.jsonl",
    pieces: bool = True,
    weights: Sequence[float] = (1.0, 0.5),
    nbest: int = 3,
    children: int = 20,
    max_length: int | None = None,
    **options: Any,
) -> TracedRun:
    """The trace of a search. By default two models; the weights are theirs."""
    predictors = predictors or {"nmt": Model(1), "lm": Model(2)}
    parts = {part: {"weight": weight} for part, weight in zip(predictors, weights, strict=False)}
    run = sgdec.load(predictors, decoder, nbest=nbest, max_length=max_length, **parts, **{decoder: options})
    tracing = Tracing(children=children)
    traces = [found.trace for found in run.decode(sources, trace=tracing)]
    header = Header(
        run.parts.constellation.names, run.parts.constellation.weights, decoder, options,
        {"alpha": run.parts.decoder.ranking.alpha}, nbest, run.signature, children, 10_000, "0.1.0",
    )  # fmt: skip
    assert all(trace is not None for trace in traces)
    return TracedRun(name, header, PIECES if pieces else {}, tuple(trace for trace in traces if trace is not None))


def on_lattice(decoder: str = "beam", **options: Any) -> TracedRun:
    """A model on a lattice, which restricts and has states."""
    return traced(decoder, {"nmt": Model(1), "fst": Lattice(LATTICE)}, **options)


def write_trace(file: Path, run: TracedRun | None = None) -> TracedRun:
    """Write the trace of a run, by default of one small search."""
    run = run or traced("greedy", {"nmt": Model(1)}, sources=[[3, 4]], nbest=1)
    with writing_trace(file, run.header, Vocabularies(None, None)) as writer:
        for trace in run.sentences:
            writer.write(trace)
    return run


def renamed(run: TracedRun, word: str) -> TracedRun:
    """The same run with other text everywhere: all tokens, sources and outputs are the word."""
    sentences = [
        replace(
            trace, text=word, pieces=(word,) * len(trace.tokens), stopped=word,
            hypotheses=tuple(replace(hypothesis, text=word) for hypothesis in trace.hypotheses),
        )
        for trace in run.sentences
    ]  # fmt: skip
    return TracedRun(run.name, run.header, dict.fromkeys(run.pieces, word), sentences)


@st.composite
def random_traces(draw: st.DrawFn, most: int = 12) -> SentenceTrace:
    """A trace of a search that expands children in any order, with one or two roots."""
    expansions: list[dict[str, Any]] = []
    open_: list[tuple[int | None, int | None]] = [(None, None)] * draw(st.integers(1, 2))
    for number in range(draw(st.integers(1, most))):
        if not open_:
            break
        parent, token = open_.pop(draw(st.integers(0, len(open_) - 1)))
        tokens = draw(st.lists(st.integers(3, 8), max_size=4, unique=True))
        totals = [-float(draw(st.integers(0, 9))) for _ in tokens]
        expansions.append({
            "number": number, "parent": parent, "token": token, "candidates": 9, "tokens": tokens, "totals": totals,
            "fates": [draw(st.sampled_from([Fate.BEAM, Fate.OPEN, "own"])) for _ in tokens],
            "weights": None if parent is not None or number == 0 else (1.0 + number,),
        })  # fmt: skip
        if parent is not None:
            above = expansions[parent]
            above["fates"][above["tokens"].index(token)] = number
        open_ += [(number, child) for child in tokens]
    hypotheses = []
    for at in draw(st.lists(st.sampled_from(range(len(expansions))), max_size=3, unique=True)):
        expansion = expansions[at]
        for key, value in (("tokens", EOS), ("totals", -1.0), ("fates", Fate.LISTED)):
            expansion[key].append(value)
        hypotheses.append(at)
    records = tuple(
        Expansion(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in expansion.items()},
            scores=tuple((total,) for total in expansion["totals"]), rest=Fate.LIMIT,
        )
        for expansion in expansions
    )  # fmt: skip
    empty = SentenceTrace(1, (3,), None, None, records, (), (), None, len(records), None, None, None)
    ended = tuple(Ended(empty.path(at), -1.0, -1.0 - rank, at) for rank, at in enumerate(hypotheses))
    return replace(empty, hypotheses=ended)

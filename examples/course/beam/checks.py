"""The checks that grade assignment ``beam``.

The bundled `greedy` and `beam` give the expected results, on random spaces that each isolate one line of Algorithm 2:
hypotheses of equal length (which ones are kept), many equal totals (ties), scores that never rise (the slots of
finished hypotheses), one early end that is by far the best (when to stop), and length normalisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from grader.assignment import Assignment, Make
from models.claims import true_total
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import EOS, Constellation, Decoder, Hypothesis, Result, SearchSpace, Source
from sgdec.testing import DecoderContract, Lattice, TinySpace, random_space, tiny_spaces

V = 6
"""Tokens of the spaces below."""
SIZES = (1, 2, 3, 5)
END = 10_000
"""The state that </s> leads to."""
Arcs: TypeAlias = dict[int, dict[int, tuple[float, int]]]
"""Arcs in the form that `sgdec.testing.Lattice` takes."""
ASSIGNMENT = Assignment("decoder", "mybeam")


class BeamContract(DecoderContract):
    """sgdec's own contract, in its own and in random spaces."""

    def __init__(self, make: Make, rng: np.random.Generator) -> None:
        self._make = make
        self.spaces = [*tiny_spaces(), *(random_space(rng) for _ in range(5)), *(falling(rng, 4) for _ in range(3))]
        self.most_expansions = 500

    def make(self) -> Decoder:
        decoder: Decoder = self._make(size=3, alpha=0.7)
        return decoder

    def _search_all(self) -> Iterator[tuple[str, SearchSpace, Result]]:
        """Promises about hypotheses are kept by a decoder that finds some."""
        searches = [*super()._search_all()]
        assert any(result.hypotheses for _, _, result in searches), "a search must find something, found nothing"
        assert any(space.expansions for _, space, _ in searches), "a search must expand hypotheses, expanded none"
        yield from searches

    def test_an_empty_space_gives_an_empty_list(self) -> None:
        """A decoder that never finds anything does not keep it."""
        assert self._results
        super().test_an_empty_space_gives_an_empty_list()


def layered(rng: np.random.Generator, length: int, coarse: bool = False) -> TinySpace:
    """A space with hypotheses of one length; with ``coarse`` totals are integers, and therefore often equal."""
    arcs: Arcs = {state: {EOS: (-1.0, END)} for state in range(3 * length, 3 * length + 3)}
    for state in range(3 * length):
        scores = rng.integers(-2, 0, V - 3) if coarse else rng.normal(-1.0, 1.0, V - 3)
        arcs[state] = next_layer(rng, state, scores.tolist())
    return space_of(Lattice(arcs), f"{length} tokens")


def falling(rng: np.random.Generator, length: int) -> TinySpace:
    """A space with hypotheses of all lengths up to this one, with log-probabilities: no total ever rises."""
    arcs: Arcs = {state: {EOS: (0.0, END)} for state in range(3 * length, 3 * length + 3)}
    for state in range(3 * length):
        scores = rng.normal(0.0, 1.5, V - 2)
        scores -= np.log(np.exp(scores).sum())
        arcs[state] = {EOS: (float(scores[-1]), END), **next_layer(rng, state, scores[:-1].tolist())}
    return space_of(Lattice(arcs), f"at most {length} tokens")


def next_layer(rng: np.random.Generator, state: int, scores: Sequence[float]) -> dict[int, tuple[float, int]]:
    """Arcs with tokens 3, 4, ... to states of the next layer, three in each."""
    first = 3 * (state // 3 + 1)
    return {token: (score, first + int(rng.integers(3))) for token, score in enumerate(scores, start=3)}


def early_end(rng: np.random.Generator, length: int) -> TinySpace:
    """A space with one hypothesis that ends immediately and beats all others, which have ``length`` tokens."""
    (first, *others) = rng.permutation(np.arange(3, V)).tolist()
    arcs: Arcs = {
        0: {first: (-0.5, 99), **{token: (rng.uniform(-6, -5), 1) for token in others}},
        99: {EOS: (-0.5, END)},
        length: {EOS: (-0.1, END)},
    }
    for state in range(1, length):
        arcs[state] = {token: (rng.uniform(-0.5, -0.1), state + 1) for token in range(3, V)}
    return space_of(Lattice(arcs), f"one early end, else {length} tokens")


def space_of(lattice: Lattice, name: str) -> TinySpace:
    return TinySpace(name, partial(Constellation.of, {"lattice": lattice}), Source(1, (3, 4, 5)))


def search(decoder: Decoder, tiny: TinySpace, nbest: int = 1) -> tuple[Result, int]:
    """The result, and the number of expansions."""
    space = tiny.open(ranking=decoder.ranking, nbest=nbest, most=1_000)
    return decoder.decode(space), space.expansions


def compare(decoder: Decoder, expected: Decoder, tiny: TinySpace, nbest: int = 1, note: str = "") -> None:
    """Compare the list of hypotheses, in order, with that of the reference."""
    wanted, found = search(expected, tiny, nbest)[0].hypotheses, search(decoder, tiny, nbest)[0].hypotheses
    same = [(h.tokens, round(h.rank_score, 6)) for h in found] == [(h.tokens, round(h.rank_score, 6)) for h in wanted]
    assert same, f"expected {describe(wanted)}, found {describe(found)} ({tiny.name}{note})"


def describe(hypotheses: list[Hypothesis]) -> str:
    return ", ".join(f"{h.tokens} with {h.rank_score:.3f}" for h in hypotheses) or "nothing"


def with_sizes(make: Make, alpha: float = 0.0) -> Iterator[tuple[Decoder, Decoder, str]]:
    """Submission and reference, by size."""
    for size in SIZES:
        reference = BeamDecoder(size, alpha=alpha, stop="full" if alpha else "best")
        yield make(size=size, alpha=alpha), reference, f", size {size}"


@ASSIGNMENT.check("with size 1 it is greedy search (Algorithm 1)", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (1, 2, 4) * 10:
        for space in (layered(rng, length), falling(rng, length)):
            compare(make(size=1), GreedyDecoder(), space)


@ASSIGNMENT.check("the n best hypotheses are kept, whichever parents they have (line 11)", points=3)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (1, 2, 3, 4, 5) * 3:
        space = layered(rng, length)
        for mine, reference, note in with_sizes(make):
            compare(mine, reference, space, note=note)
            spent, enough = search(mine, space)[1], search(reference, space)[1]
            assert spent == enough, f"{spent} hypotheses were expanded, not {enough} ({space.name}{note})"


@ASSIGNMENT.check("among equal totals the first in the beam is kept, then the lower token (line 11)", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (2, 3, 4) * 5:
        space = layered(rng, length, coarse=True)
        for mine, reference, note in with_sizes(make):
            compare(mine, reference, space, note=note)


@ASSIGNMENT.check(
    "finished hypotheses keep their places in the beam, and are remembered when pushed out (lines 11 to 15)",
    points=3,
)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (3, 4, 5, 6) * 5:
        space = falling(rng, length)
        for mine, reference, note in with_sizes(make):
            compare(mine, reference, space, nbest=3, note=note)


@ASSIGNMENT.check("it stops as soon as the best of the beam ends with </s> (line 16)", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (4, 6, 8):
        space = early_end(rng, length)
        for mine, reference, note in with_sizes(make):
            (found, spent), (_, enough) = search(mine, space), search(reference, space)
            assert found.hypotheses, f"a search must find something, found nothing ({space.name}{note})"
            true_total(space, found.hypotheses[0])
            assert spent <= enough, f"{spent} hypotheses were expanded where {enough} are enough ({space.name}{note})"


@ASSIGNMENT.check("with length normalisation it continues until all of the beam is finished", points=3)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (3, 4, 5, 6) * 4:
        space = falling(rng, length)
        for mine, reference, note in with_sizes(make, alpha=float(rng.choice([0.6, 1.0, 2.0]))):
            compare(mine, reference, space, nbest=3, note=f"{note}, alpha {mine.ranking.alpha:g}")


ASSIGNMENT.contract(
    BeamContract,
    points={
        "hypotheses come best first": 1,
        "a list is no longer than asked for": 1,
        "hypotheses are complete and within the length limit": 1,
        "scoring the tokens again gives the same numbers": 1,
        "an empty space gives an empty list": 1,
        "one decoder searches many spaces side by side": 1,
    },
)

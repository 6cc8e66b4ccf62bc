"""The checks that grade assignment ``decode_this``.

Points depend on the way from a beam search of size 4 to the best hypotheses, which A* finds with recombination and
many more expansions. Spaces count expansions, and stop a search that exceeds its budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from grader.assignment import Assignment, Make, Share
from models.claims import true_total
from models.mixes import Mix, draw_mixes
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder

from sgdec import Decoder, Result, SearchSpace
from sgdec.testing import DecoderContract, enumerate_space, random_space, tiny_spaces

BUDGET = {"model": 10, "bigrams": 10, "lattices": 6}
"""For each kind the expansions for each token of the output, </s> included."""
SENTENCES = {"model": 10, "bigrams": 10, "lattices": 24}
"""For each kind how many are graded."""
WORST = -10.0
"""The score of each token of a sentence without output, </s> included."""
LEVELS = {0.0: 0.25, 0.5: 0.5, 0.7: 0.75, 0.85: 1.0}
"""The share of the points, for the share of the way from a beam of size 4 to the best."""
MOST = 1_000
"""Expansions of the search for the best; where they do not suffice, the sentence is left out."""
ASSIGNMENT = Assignment("decoder", "mydecoder")


class Sentence(NamedTuple):
    """A sentence of known difficulty."""

    mix: Mix
    budget: int
    beam: float
    """The total that a beam of size 4 finds."""
    best: float
    """The highest total."""


@cache
def draw_sentences(kind: str, seed: int, count: int) -> list[Sentence]:
    """Sentences of one kind whose best hypothesis is known."""
    found: list[Sentence] = []
    for mix in draw_mixes(kind, np.random.default_rng(seed)):
        result = AStarDecoder(recombine=True, max_expansions=MOST).decode(mix.open())
        if result.proven:
            beam = total_of(BeamDecoder(4, stop="length").decode(mix.open()), mix)
            found.append(Sentence(mix, BUDGET[kind] * (mix.length + 1), beam, result.hypotheses[0].score))
        if len(found) == count:
            break
    return found


def graded_sentences(kind: str, rng: np.random.Generator) -> list[Sentence]:
    return draw_sentences(kind, int(rng.integers(1 << 32)), SENTENCES[kind])


def total_of(result: Result, mix: Mix) -> float:
    """The total of the first hypothesis, or that of a sentence without output."""
    return true_total(mix, result.hypotheses[0]) if result.hypotheses else WORST * (mix.length + 1)


def decode(make: Make, mix: Mix, budget: int) -> tuple[float, str | None]:
    """The total that a submission finds, and why it finds none."""
    space = mix.open(most=budget)
    try:
        result = make(budget=budget).decode(space)
    except AssertionError:
        if space.expansions <= budget:
            raise
        return total_of(Result([]), mix), f"more than {budget} expansions ({mix.name} {mix.source.id})"
    return total_of(result, mix), None if result.hypotheses else f"no output ({mix.name} {mix.source.id})"


def measure(make: Make, sentences: Sequence[Sentence]) -> tuple[float, Share]:
    """The score, and the points that it gives."""
    decoded = [decode(make, sentence.mix, sentence.budget) for sentence in sentences]
    wrong = [problem for _, problem in decoded if problem]
    assert len(wrong) < len(sentences), f"no sentence has an output within its budget; the first: {wrong[0]}"
    score = sum(total for total, _ in decoded)
    beam, best = sum(sentence.beam for sentence in sentences), sum(sentence.best for sentence in sentences)
    way = (score - beam) / (best - beam)
    share = max((share for level, share in LEVELS.items() if way >= level - 1e-9), default=0.0)
    why = f"score {score:.2f}; a beam of 4 has {beam:.2f}, the best {best:.2f}: {100 * way:.0f} % of the way"
    note = f"; {len(wrong)} without output, the first: {wrong[0]}" if wrong else ""
    assert share > 0, f"the score must be at least that of a beam of size 4: {why}{note}"
    return score, Share(share, f"{why}{note}")


def compete(make: Make, kind: str, rng: np.random.Generator) -> Share:
    """The points for one kind of sentences, with the score for the leaderboard."""
    decode(make, next(draw_mixes(kind, np.random.default_rng(0))), 100)  # what does not work at all is told at once
    score, share = measure(make, graded_sentences(kind, rng))
    return replace(share, values={kind: round(score, 4)})


@ASSIGNMENT.check("model: the translation model and a lattice", points=4)
def _(make: Make, rng: np.random.Generator) -> Share:
    return compete(make, "model", rng)


@ASSIGNMENT.check("bigrams: a lattice and a bigram table", points=4)
def _(make: Make, rng: np.random.Generator) -> Share:
    return compete(make, "bigrams", rng)


@ASSIGNMENT.check("lattices: two lattices and a bigram table", points=4)
def _(make: Make, rng: np.random.Generator) -> Share:
    return compete(make, "lattices", rng)


@ASSIGNMENT.check("the budget is never exceeded, however small it is", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    outputs = 0
    for kind in BUDGET:
        for mix in islice(draw_mixes(kind, rng), 3):
            for budget in (1, 2, mix.length, mix.length + 1, 3 * mix.length):
                space = mix.open(most=100 * budget)
                outputs += len(make(budget=budget).decode(space).hypotheses)
                assert 0 < space.expansions <= budget, (
                    f"{space.expansions} expansions with a budget of {budget} ({mix.name} {mix.source.id})"
                )
    assert outputs, "a search must find something, found nothing within any budget"


@ASSIGNMENT.check(
    "a budget of one expansion per token is enough for an output, if there are no dead ends", points=2
)
def _(make: Make, rng: np.random.Generator) -> None:
    for kind in ("model", "bigrams"):
        for mix in islice(draw_mixes(kind, rng), 5):
            _, problem = decode(make, mix, mix.length + 1)
            assert problem is None, problem


@ASSIGNMENT.check("with a large budget it finds the best of all paths", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for _ in range(60):
        tiny = random_space(rng, highest=1.0)
        paths = enumerate_space(tiny.constellation(), tiny.source)
        found = make(budget=100_000).decode(tiny.open(most=100_000)).hypotheses
        best = f"{paths[0].tokens} with {paths[0].total:.3f}" if paths else "nothing"
        mine = f"{found[0].tokens} with {found[0].score:.3f}" if found else "nothing"
        totals = [path.total for path in paths[:1]]
        same = np.shape(totals) == np.shape(found[:1]) and np.allclose([each.score for each in found[:1]], totals)
        assert same, f"the best is {best}, found {mine} ({tiny.name}, at most {tiny.source.max_length} tokens)"


class BudgetContract(DecoderContract):
    """sgdec's own contract."""

    nbests = (1,)

    def __init__(self, make: Make, rng: np.random.Generator) -> None:
        self._make = make
        self.spaces = tiny_spaces()

    def make(self) -> Decoder:
        decoder: Decoder = self._make(budget=1_000)
        return decoder

    def _search_all(self) -> Iterator[tuple[str, SearchSpace, Result]]:
        """Promises about hypotheses are kept by a decoder that searches and finds some."""
        searches = [*super()._search_all()]
        assert any(result.hypotheses for _, _, result in searches), "a search must find something, found nothing"
        assert any(space.expansions for _, space, _ in searches), "a search must expand hypotheses, expanded none"
        yield from searches


ASSIGNMENT.contract(
    BudgetContract,
    points={
        "hypotheses are complete and within the length limit": 1,
        "one decoder searches many spaces side by side": 1,
    },
)

"""The checks that grade assignment ``curse``.

The reference of all stopping rules is one beam search to the length limit (`sgdec_decoders.beam` with ``stop
length``): its list has all hypotheses that any rule can see, and `Record` has the open ones of each length. The true
best comes from trying all paths of small spaces, and from A* with the translation model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from grader.assignment import Assignment, Make, Share
from models.claims import true_total
from models.language import Tokens, draw_source, f1
from models.small import SmallModel
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import EOS, Constellation, Decoder, Hypothesis, Node, Source
from sgdec.ranking import Ranking
from sgdec.testing import DecoderContract, Lattice, TinySpace, enumerate_space, tiny_spaces
from sgdec.testing.limited import LimitedSpace

V = 6
"""Tokens of the random spaces."""
SENTENCES = 12
"""Sentences for the translation model."""
END = 10_000
"""The state that </s> leads to."""
ASSIGNMENT = Assignment("decoder", "mysearch")


class Rules(NamedTuple):
    """The options of a beam search."""

    size: int = 4
    stop: str = "optimal"
    alpha: float = 0.0
    reward: float = 0.0
    shortest: float = 0.0

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items() if value or name == "size")


class Record(LimitedSpace):
    """A space that remembers the nodes that were expanded."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.opened: dict[int, list[tuple[float, float]]] = defaultdict(list)
        """For each length the total of each expanded prefix, and the bound on what can still be added."""

    def _count(self, nodes: Sequence[Node]) -> None:
        super()._count(nodes)
        for node, bound in zip(nodes, self.bound(nodes), strict=True):
            self.opened[node.length].append((node.total, bound))


@dataclass(frozen=True)
class Reference:
    """A beam search to the length limit."""

    source: Source
    finished: list[Hypothesis]
    opened: dict[int, list[tuple[float, float]]]

    @classmethod
    def of(cls, tiny: TinySpace, size: int) -> Reference:
        constellation = tiny.constellation()
        (root,) = constellation.roots([tiny.source])
        space = Record(constellation, root, nbest=1_000_000, most=100_000)
        return cls(tiny.source, BeamDecoder(size, stop="length").decode(space).hypotheses, space.opened)

    def search(self, rules: Rules, nbest: int) -> tuple[list[Hypothesis], int]:
        """The list under these rules, and the number of expansions."""
        ranking, least = Ranking(rules.alpha), rules.shortest * len(self.source.tokens)

        def score(hypothesis: Hypothesis) -> float:
            length = len(hypothesis.tokens)
            return ranking.score(hypothesis.score, length + 1) + rules.reward * length

        ranked = sorted((h for h in self.finished if len(h.tokens) >= least), key=score, reverse=True)
        wanted = {"first": 1, "full": rules.size, "optimal": nbest}[rules.stop]
        limit = self.source.max_length
        assert limit is not None
        spent = 0
        for length in range(limit + 1):
            seen = [hypothesis for hypothesis in ranked if len(hypothesis.tokens) < length]
            possible = [
                ranking.best_possible(total + bound, length + 1, limit + 1) + rules.reward * limit
                for total, bound in self.opened.get(length, [])
            ]
            if len(seen) >= wanted and (
                rules.stop != "optimal" or max(possible, default=-math.inf) <= score(seen[wanted - 1])
            ):
                return seen[:nbest], spent
            spent += len(possible)
        return ranked[:nbest], spent


def falling(rng: np.random.Generator, length: int, name: str = "lattice") -> TinySpace:
    """A space with hypotheses of all lengths up to this one, with log-probabilities."""
    arcs = {state: {EOS: (0.0, END)} for state in range(3 * length, 3 * length + 3)}
    for state in range(3 * length):
        scores = rng.normal(0.0, 1.5, V - 2)
        scores -= np.log(np.exp(scores).sum())
        first = 3 * (state // 3 + 1)
        arcs[state] = {token: (float(score), first + int(rng.integers(3))) for token, score in enumerate(scores, 2)}
    source = Source(1, tuple(rng.integers(3, V, length).tolist()), max_length=length)
    return TinySpace(f"{name} of at most {length} tokens", partial(_lattice, arcs), source)


def rising(rng: np.random.Generator, length: int) -> TinySpace:
    """The same with scores of both signs."""
    arcs = {state: {EOS: (float(rng.normal(0.0, 1.0)), END)} for state in range(3 * length, 3 * length + 3)}
    for state in range(3 * length):
        first = 3 * (state // 3 + 1)
        scores = rng.normal(0.3, 1.0, V - 2).tolist()
        arcs[state] = {token: (score, first + int(rng.integers(3))) for token, score in enumerate(scores, 2)}
    source = Source(1, tuple(rng.integers(3, V, length).tolist()), max_length=length)
    return TinySpace(f"lattice with rising totals, at most {length} tokens", partial(_lattice, arcs), source)


def _lattice(arcs: dict[int, dict[int, tuple[float, int]]]) -> Constellation:
    return Constellation.of({"lattice": Lattice(arcs)})


def sentences(rng: np.random.Generator, count: int) -> Iterator[TinySpace]:
    """Sentences of six words and more for the translation model; outputs have at most twice as many, and two."""
    for number in range(1, count + 1):
        tokens = draw_source(rng, shortest=6)
        source = Source(number, tokens, max_length=2 * len(tokens) + 2)
        yield TinySpace(f"sentence {number}", _small_model, source)


def _small_model() -> Constellation:
    return Constellation.of({"small": SmallModel()})


@cache
def find_mode(tiny: TinySpace) -> tuple[Hypothesis, int]:
    """The mode of a sentence, and the expansions that A* needs for it."""
    (mode,), least = search(AStarDecoder(), tiny)
    return mode, least


def search(decoder: Decoder, tiny: TinySpace, nbest: int = 1, most: int = 2_000) -> tuple[list[Hypothesis], int]:
    """The list of hypotheses, and the number of expansions."""
    space = tiny.open(ranking=decoder.ranking, nbest=nbest, most=most)
    return decoder.decode(space).hypotheses, space.expansions


def beam(make: Make, rules: Rules) -> Decoder:
    decoder: Decoder = make(search="beam", **rules._asdict())
    return decoder


def exact(make: Make, shortest: float = 0.0) -> Decoder:
    decoder: Decoder = make(search="exact", size=4, stop="optimal", alpha=0.0, reward=0.0, shortest=shortest)
    return decoder


def compare(make: Make, tiny: TinySpace, every: Sequence[Rules], nbest: int = 1, cost: bool = False) -> None:
    """Compare lists of hypotheses, in order, with those of the reference; with ``cost`` also the expansions."""
    references = {size: Reference.of(tiny, size) for size in {rules.size for rules in every}}
    for rules in every:
        wanted, enough = references[rules.size].search(rules, nbest)
        found, spent = search(beam(make, rules), tiny, nbest)
        same = [(h.tokens, round(h.score, 6)) for h in found] == [(h.tokens, round(h.score, 6)) for h in wanted]
        assert same, f"expected {describe(wanted)}, found {describe(found)} ({tiny.name}, {rules})"
        assert not cost or spent == enough, f"{spent} hypotheses were expanded, not {enough} ({tiny.name}, {rules})"


def describe(hypotheses: Sequence[Hypothesis]) -> str:
    return ", ".join(f"{h.tokens} with {h.score:.3f}" for h in hypotheses) or "nothing"


SIZES = (1, 2, 3, 5)


@ASSIGNMENT.check("finished hypotheses are set aside, and the n best open ones are kept", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (2, 3, 4, 5, 6) * 3:
        compare(make, falling(rng, length), [Rules(size) for size in SIZES], nbest=3)


@ASSIGNMENT.check("stop first: it ends after the position at which a hypothesis has finished", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    _check_stop(make, rng, "first")


@ASSIGNMENT.check("stop full: it ends once n hypotheses have finished", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    _check_stop(make, rng, "full")


@ASSIGNMENT.check("stop optimal: it ends once no open hypothesis can win, and no sooner", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    _check_stop(make, rng, "optimal")
    for length in (3, 4, 5) * 4:
        compare(make, rising(rng, length), [Rules(3)], cost=True)


def _check_stop(make: Make, rng: np.random.Generator, stop: str) -> None:
    for length in (3, 4, 5, 6) * 3:
        every = [Rules(size, stop, alpha) for size in SIZES for alpha in (0.0, 1.0)]
        compare(make, falling(rng, length), every, cost=True)


@ASSIGNMENT.check("alpha: finished hypotheses are compared under length normalisation", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (3, 4, 5, 6) * 5:
        alphas = rng.choice([0.6, 1.0, 2.0], 2).tolist()
        compare(make, falling(rng, length), [Rules(size, alpha=alpha) for size in SIZES for alpha in alphas], nbest=3)


@ASSIGNMENT.check("reward: each token of the output adds it to the score of a finished hypothesis", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (3, 4, 5, 6) * 5:
        rewards = rng.choice([0.5, 1.0, 2.0], 2).tolist()
        compare(make, falling(rng, length), [Rules(size, reward=reward) for size in SIZES for reward in rewards])


@ASSIGNMENT.check("shortest: no output is shorter than this share of the source", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for length in (3, 4, 5, 6) * 3:
        shares = (0.5, 0.8)
        compare(make, falling(rng, length), [Rules(size, shortest=share) for size in SIZES for share in shares])


class SearchContract(DecoderContract):
    """sgdec's own contract."""

    nbests = (1,)

    def __init__(self, make: Make, rng: np.random.Generator) -> None:
        self._make = make
        self.spaces = [tiny for tiny in tiny_spaces() if tiny.empty]
        assert search(self.make(), falling(rng, 3))[0], "a search must find something, found nothing"

    def make(self) -> Decoder:
        return beam(self._make, Rules(3))


ASSIGNMENT.contract(SearchContract, points={"an empty space gives an empty list": 1})


@ASSIGNMENT.check("exact: it finds the best of all paths", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    _check_exact(make, rng, shares=(0.0,))


@ASSIGNMENT.check("exact: it finds the best of all paths that are long enough", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    _check_exact(make, rng, shares=(0.5, 0.8))


def _check_exact(make: Make, rng: np.random.Generator, shares: Sequence[float]) -> None:
    for length in (2, 3, 4, 5) * 5:
        for tiny in (falling(rng, length), rising(rng, length)):
            paths = enumerate_space(tiny.constellation(), tiny.source)
            for share in shares:
                expected = next(path for path in paths if len(path.tokens) >= share * length)
                found, _ = search(exact(make, share), tiny)
                assert found and math.isclose(found[0].score, expected.total, abs_tol=1e-6), (
                    f"the best is {expected.tokens} with {expected.total:.3f}, found {describe(found)} ({tiny.name}, "
                    f"shortest {share:g})"
                )


@ASSIGNMENT.check("exact: it finds the mode of the translation model", points=2)
def _(make: Make, rng: np.random.Generator) -> Share:
    tested = list(sentences(rng, SENTENCES))
    found = [search(exact(make), tiny)[0] for tiny in tested]
    modes = [find_mode(tiny)[0] for tiny in tested]
    right = [
        bool(each) and true_total(tiny, each[0]) >= mode.score - 1e-6
        for tiny, each, mode in zip(tested, found, modes, strict=True)
    ]
    first = f"the mode of {tested[0].source.tokens} is {describe(modes[:1])}, found {describe(found[0])}"
    assert any(right), first
    return Share(
        sum(right) / len(right),
        f"the mode of {sum(right)} of {len(right)} sentences; {sum(not mode.tokens for mode in modes)} are empty",
    )


@ASSIGNMENT.check("exact: it expands at most twice as many prefixes as an exact search must", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for tiny in sentences(rng, SENTENCES):
        found, spent = search(exact(make), tiny)
        mode, least = find_mode(tiny)
        assert found and true_total(tiny, found[0]) >= mode.score - 1e-6, (
            f"the mode of {tiny.source.tokens} is {describe([mode])}, found {describe(found)}"
        )
        room = 4 * (len(tiny.source.tokens) + 1)
        assert spent <= 2 * least + room, (
            f"{spent} prefixes were expanded for {tiny.source.tokens}, not at most 2 * {least} + {room}: only "
            f"prefixes whose total is above {mode.score:.3f} must be, and those of a first beam search"
        )


class Figures(NamedTuple):
    """The means over some sentences, and shares of them."""

    score: float
    """Log-probability, in nats per sentence."""
    length: float
    """Output tokens per source token."""
    f1: float
    errors: float
    """The share of search errors: sentences whose mode has a higher score."""
    empty: float

    @classmethod
    def of(
        cls, found: Sequence[tuple[Tokens, float]], tested: Sequence[TinySpace], modes: Sequence[float]
    ) -> Figures:
        """From tokens and score of each sentence."""
        sources = [tiny.source.tokens for tiny in tested]
        return cls(
            float(np.mean([score for _, score in found])),
            sum(len(tokens) for tokens, _ in found) / sum(map(len, sources)),
            float(np.mean([f1(source, tokens) for source, (tokens, _) in zip(sources, found, strict=True)])),
            float(np.mean([score < mode - 1e-6 for (_, score), mode in zip(found, modes, strict=True)])),
            float(np.mean([not tokens for tokens, _ in found])),
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3f}" for name, value in self._asdict().items())


ROWS = (
    *map(Rules, (1, 4, 8, 16, 32)),
    Rules(16, stop="first"), Rules(16, alpha=1.0), Rules(16, reward=0.5), Rules(16, shortest=0.8),
)  # fmt: skip
"""The rows of the table in the handout."""


def figures(
    decode: Callable[[Rules, TinySpace], Sequence[Hypothesis]], tested: Sequence[TinySpace]
) -> dict[Rules, Figures]:
    """The figures of each row."""
    return {rules: figures_of([decode(rules, tiny) for tiny in tested], tested, str(rules)) for rules in ROWS}


def figures_of(found: Sequence[Sequence[Hypothesis]], tested: Sequence[TinySpace], note: str) -> Figures:
    """The figures of the first hypotheses of all sentences."""
    missing = [tiny.name for tiny, hypotheses in zip(tested, found, strict=True) if not hypotheses]
    assert not missing, f"every sentence must have an output; {missing[0]} has none ({note})"
    best = [(each[0].tokens, true_total(tiny, each[0])) for tiny, each in zip(tested, found, strict=True)]
    return Figures.of(best, tested, [find_mode(tiny)[0].score for tiny in tested])


@cache
def reference_figures(tested: tuple[TinySpace, ...]) -> dict[Rules, Figures]:
    """The right figures of each row."""
    references = {(tiny, size): Reference.of(tiny, size) for tiny in tested for size in {row.size for row in ROWS}}
    return figures(lambda rules, tiny: references[tiny, rules.size].search(rules, 1)[0], tested)


@ASSIGNMENT.check("the figures of the table are those of the reference", points=3)
def _(make: Make, rng: np.random.Generator) -> Share:
    tested = tuple(sentences(rng, SENTENCES))
    found = figures(lambda rules, tiny: search(beam(make, rules), tiny)[0], tested)
    expected = reference_figures(tested)
    wrong = [rules for rules in ROWS if not np.allclose(found[rules], expected[rules], atol=0.02)]
    assert len(wrong) < len(ROWS), f"{wrong[0]}: expected {expected[wrong[0]]}; found {found[wrong[0]]}"
    why = f"; {wrong[0]}: expected {expected[wrong[0]]}; found {found[wrong[0]]}" if wrong else ""
    return Share(1 - len(wrong) / len(ROWS), f"{len(ROWS) - len(wrong)} of {len(ROWS)} rows{why}")


@ASSIGNMENT.check(
    "the default options break the curse: F1 of 0.9, and more probable outputs than greedy search", points=1
)
def _(make: Make, rng: np.random.Generator) -> Share:
    tested = list(sentences(rng, SENTENCES))
    greedy = np.mean([search(GreedyDecoder(), tiny)[0][0].score for tiny in tested])
    mine = figures_of([search(make(), tiny)[0] for tiny in tested], tested, "default options")
    assert mine.f1 >= 0.9, f"F1 must be at least 0.9, not {mine.f1:.3f} ({mine})"
    assert mine.score > greedy, (
        f"the mean score must be above {greedy:.3f}, that of greedy search, not {mine.score:.3f}"
    )
    return Share(1.0, str(mine), {"F1": mine.f1, "log-probability": mine.score})

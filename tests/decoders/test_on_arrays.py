"""Beam and greedy searches over automata find the same on arrays as over nodes, number for number.

Nodes walk automata one prefix at a time with `steps`, arrays with `arcs`: so this holds the two forms to each other.
"""

from __future__ import annotations

import math
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram

from sgdec import BOS, EOS, Context, Decoder, Result, SearchSpace, Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from tests.helpers.automata import compiled
from tests.helpers.both_beams import OPTIONS, compare, options
from tests.helpers.breadth import examples, some

SENTENCES = 12
LABELS = range(3, 9)


def lattice(rng: random.Random, *, cyclic: bool, ties: bool) -> Any:
    """Deterministic; with and without <s>, ends in </s>, in final states, or both; some dead ends."""
    states = rng.randint(3, 9)

    def cost() -> float:
        return rng.choice([0.0, 0.5, 1.0]) if ties else rng.uniform(-1, 3)

    begin = int(rng.random() < 0.6)
    lines = [f"0 1 {BOS} {rng.choice([0.0, 0.75])}"] * begin
    lines.append(f"{begin} {states} {LABELS[0]} {cost()}")  # so that there is a path
    for state in range(begin, states):
        for label in rng.sample(LABELS[1:] if state == begin else LABELS, rng.randint(1, 4)):
            target = rng.randrange(begin, states) if cyclic else rng.randint(state + 1, states)
            lines.append(f"{state} {target} {label} {cost()}")
        if rng.random() < 0.4:
            lines.append(f"{state} {states + 1} {EOS} {cost()}")
        if rng.random() < 0.2:
            lines.append(f"{state} {cost()}")
    return compiled("\n".join([*lines, f"{states} {cost()}", f"{states + 1} {cost()}"]) + "\n")


def model(rng: random.Random, path: Path, *, ties: bool) -> Path:
    """A trigram model over the labels, with positive back-offs too."""
    words = ["<s>", "</s>", "<unk>", *map(str, LABELS)]

    def number() -> float:
        return rng.choice([-1.0, -0.5]) if ties else rng.uniform(-2, 0)

    uni = [(word,) for word in words]
    bi = sorted({(rng.choice(["<s>", *words[3:]]), rng.choice(["</s>", *words[3:]])) for _ in range(20)})
    inner = [pair for pair in bi if pair[1] != "</s>"]
    tri = sorted({(*rng.choice(inner), rng.choice(words[3:])) for _ in range(20)})
    orders = [uni, bi, tri]
    lines = ["\\data\\", *(f"ngram {n}={len(order)}" for n, order in enumerate(orders, 1)), ""]
    for n, order in enumerate(orders, 1):
        lines.append(f"\\{n}-grams:")
        lines += [f"{number()}\t{' '.join(words)}\t{rng.uniform(-1, 0.3) if n < 3 else 0}" for words in order]
        lines.append("")
    path.write_text("\n".join([*lines, "\\end\\", ""]))
    return path


MIXES = {
    "fst": (["fst"], [1.0]),
    "fst, a negative weight": (["fst"], [-0.5]),
    "fst,ngram": (["fst", "ngram"], [1.0, 1.0]),
    "ngram,fst": (["ngram", "fst"], [0.7, 0.3]),
    "fst,fst2,ngram": (["fst", "fst2", "ngram"], [1.0, 0.0, 2.0]),
    "shared,fst": (["shared", "fst"], [0.25, 1.0]),
}


def constellation(folder: Path, mix: str, seed: int, *, cyclic: bool = False, ties: bool = False) -> Constellation:
    """``folder``: its files are written if they are not there yet."""
    folder, lm = folder / f"{seed} {cyclic} {ties} {mix}", folder / f"{seed} {cyclic} {ties} {mix}" / "lm.arpa"
    if not lm.is_file():
        folder.mkdir(exist_ok=True)  # it is there if a test was skipped while it wrote
        rng = random.Random(f"{mix} {seed}")
        for name in ("a", "b"):
            for sentence in range(1, SENTENCES + 1):
                lattice(rng, cyclic=cyclic, ties=ties).write(str(folder / f"{name}{sentence}.fst"))
        model(rng, lm, ties=ties)
    known = {
        "fst": lambda: FstPredictor(str(folder / "a{id}.fst")),
        "fst2": lambda: FstPredictor(str(folder / "b{id}.fst"), normalize=True),
        "shared": lambda: FstPredictor(str(folder / "b1.fst"), use_weights=False),
        "ngram": lambda: NGram(str(lm), context=Context(vocab_size=9)),
    }
    names, weights = MIXES[mix]
    found = Constellation.of({name: known[name]() for name in names}, weights=weights, vocab_size=9)
    assert found.product is not None
    assert found.automaton is not None
    return found


def sources(rng: random.Random) -> list[Source]:
    return [Source(i, (3,) * rng.randint(1, 4), max_length=rng.randint(0, 9)) for i in range(1, SENTENCES + 1)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


COMPARED = [*OPTIONS, {"size": 2, "prune_final": 0.3, "stop": "length"}]


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("options", COMPARED, ids=str)
def test_arrays_give_what_nodes_give(files: Path, mix: str, options: dict[str, Any]) -> None:
    """Without cycles, with cycles, and with ties; in `make test` one of these, another for the next mix."""
    for seed in some(range(3), [*MIXES].index(mix) + COMPARED.index(options)):
        space = constellation(files, mix, seed, cyclic=seed == 1, ties=seed == 2)
        compare(space, sources(random.Random(seed)), options, tolerance=0.0)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(options(), st.sampled_from([*MIXES]), st.integers(0, 10**6), st.booleans(), st.booleans(), st.integers(1, 4))
def test_arrays_give_what_nodes_give_with_any_options(
    tmp_path_factory: pytest.TempPathFactory,
    options: dict[str, Any],
    mix: str,
    seed: int,
    cyclic: bool,
    ties: bool,
    nbest: int,
) -> None:
    space = constellation(tmp_path_factory.mktemp("lattices"), mix, seed, cyclic=cyclic, ties=ties)
    compare(space, sources(random.Random(seed)), options, nbest, tolerance=0.0)


DECODERS = GreedyDecoder(), BeamDecoder(size=4), BeamDecoder(size=3, stop="full", alpha=0.7)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("mix", MIXES)
def test_batches_that_refill_give_what_one_sentence_at_a_time_gives(
    files: Path, mix: str, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences of different lengths end at different times, and others begin in their places."""
    monkeypatch.setattr("sgdec_decoders._streaming.MANY", 1)
    for batch_size in (2, 5):
        one, many = (constellation(files, mix, 7) for _ in range(2))
        many_sources = [Source(s.id, s.tokens, max_length=s.max_length) for s in sources(random.Random(3))] * 3
        assert decoder.in_batches(batch_size, automata=True) is not None
        alone = [outcome.result for outcome in Scheduler(one, decoder, nbest=2, batch_size=1).run(many_sources)]
        batched = [
            outcome.result for outcome in Scheduler(many, decoder, nbest=2, batch_size=batch_size).run(many_sources)
        ]
        assert [result.expansions for result in batched] == [result.expansions for result in alone]
        assert batched == alone


def test_few_hypotheses_in_flight_are_nodes() -> None:
    assert BeamDecoder(size=2).in_batches(8, automata=True) is None
    assert GreedyDecoder().in_batches(8, automata=True) is None
    assert isinstance(BeamDecoder(size=5).in_batches(64, automata=True), VanillaDecoder)
    assert BeamDecoder(size=5).in_batches(64, automata=False) is None
    assert BeamDecoder(size=5, recombine=True).in_batches(64, automata=True) is None


def test_a_search_derived_from_a_bundled_one_is_that_search_in_batches_too(tmp_path: Path) -> None:
    class Worst(GreedyDecoder):
        def decode(self, space: SearchSpace) -> Result:
            node = space.root
            while not node.finished:
                (children,) = space.expand([node], limit=99)
                node = children[-1]
            return Result([space.finish(node)])

    space = constellation(tmp_path, "fst", 3)
    every = [Source(1 + i % SENTENCES, (3,), max_length=6) for i in range(64)]
    alone, batched = (
        [outcome.result.hypotheses for outcome in Scheduler(space, Worst(), batch_size=size).run(every)]
        for size in (1, 64)
    )
    assert batched == alone


def test_a_score_that_is_not_a_number_fails_its_sentence_alone(tmp_path: Path) -> None:
    space = constellation(tmp_path, "fst,ngram", 5)
    ngram = space.predictors[1]
    right = ngram.arcs  # type: ignore[attr-defined]

    def arcs(states: Any, candidates: Any) -> Any:
        offsets, tokens, scores, after = right(states, candidates)
        return offsets, tokens, np.where(tokens == 5, math.nan, scores), after

    ngram.arcs = arcs  # type: ignore[attr-defined]
    broken = Constellation(space.members, vocab_size=9)
    decoder = VanillaDecoder(size=4)
    outcomes = list(Scheduler(broken, decoder, batch_size=12).run(sources(random.Random(1))))
    errors = [str(outcome.error) for outcome in outcomes if outcome.error is not None]
    assert any("predictor 'ngram' gave NaN as the score of token 5" in error for error in errors)
    assert any(outcome.result.hypotheses for outcome in outcomes)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda o, t, s, a: (o, t, s[:-1], a), "predictor 'fst': arcs returned 2 offsets, 3 tokens, 2 scores and 3"),
        (lambda o, t, s, a: (o[:-1], t, s, a), "predictor 'fst': arcs returned 1 offsets"),
        (lambda o, t, s, a: (o, t + 90, s, a), "predictor 'fst' scores token 9"),
        (lambda o, t, s, a: None, "predictor 'fst': TypeError"),
    ],
)
def test_a_malformed_answer_is_one_line_that_names_the_predictor(tmp_path: Path, wrong: Any, said: str) -> None:
    compiled(f"0 1 3 1\n0 1 4 2\n0 1 5 2\n1 1\n1 2 {EOS} 1\n2\n").write(str(tmp_path / "1.fst"))
    fst = FstPredictor(str(tmp_path / "{id}.fst"))
    right = fst.arcs
    fst.arcs = lambda states, candidates: wrong(*right(states, candidates))  # type: ignore[method-assign]
    space = Constellation.of({"fst": fst}, vocab_size=9)
    (outcome,) = Scheduler(space, VanillaDecoder(), batch_size=2).run([Source(1, (3,), max_length=3)])
    assert said in str(outcome.error)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_sentences(tmp_path: Path) -> None:
    space = constellation(tmp_path, "fst,ngram", 11)
    fst = space.predictors[0]
    begin = fst.initialize_batch
    fst.initialize_batch = lambda sources: begin(  # type: ignore[method-assign]
        [Source(1 + source.id % SENTENCES, ()) for source in sources]
    )

    def peak(sentences: int) -> int:
        every = (Source(n, (3,), max_length=8) for n in range(sentences))
        tracemalloc.start()
        try:
            scheduler = Scheduler(space, BeamDecoder(size=8), batch_size=8, window=16)
            assert sum(1 for _ in scheduler.run(every)) == sentences
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    first = peak(200)
    assert peak(1200) < 1.5 * first

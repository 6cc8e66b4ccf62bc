"""`diverse` finds what its paper's algorithm and the group search of transformers find; one group is `beam`.

``tests/data/group_beams.json`` was recorded with transformers 4.56.2 by the script beside it.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.diverse import DiverseDecoder

from sgdec import BOS, EOS, Decoder, Result, Source, UsageError
from sgdec.chain import Chain
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import Lattice, Table, tiny_spaces
from tests.helpers.breadth import examples, some
from tests.helpers.chi_squared import critical, statistic
from tests.helpers.oracles import leaves, tiny
from tests.helpers.places import ROOT
from tests.helpers.random_spaces import search

RECORDED = json.loads((ROOT / "tests" / "data" / "group_beams.json").read_text())
Tokens = tuple[int, ...]


def log_probabilities(logits: Any) -> Any:
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def decode(decoder: Decoder, table: Any, limit: int, nbest: int) -> Result:
    constellation = Constellation.of({"table": Table(table)}, vocab_size=len(table))
    (root,) = constellation.roots([Source(1, (3,), max_length=limit)])
    return decoder.decode(SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest))


def test_the_list_is_that_of_transformers() -> None:
    assert RECORDED["transformers"] == "4.56.2"
    differing = 0  # from the list without groups
    for case in RECORDED["cases"]:
        table = log_probabilities(np.array(RECORDED["tables"][case["table"]]))
        options = {"alpha": case["alpha"], "normalize": "length", "stop": case["stop"]}
        groups = {"groups": case["groups"], "strength": case["strength"]}
        found = decode(DiverseDecoder(case["size"], **groups, **options), table, RECORDED["limit"], case["size"])
        assert [list(h.tokens) for h in found.hypotheses] == [tokens for tokens, _ in case["found"]], case
        assert [h.rank_score for h in found.hypotheses] == pytest.approx([s for _, s in case["found"]], abs=1e-4)
        beam = decode(BeamDecoder(case["size"], **options), table, RECORDED["limit"], case["size"])
        differing += [h.tokens for h in beam.hypotheses] != [h.tokens for h in found.hypotheses]
    assert differing > 70


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["full", "best"])
def test_one_group_is_beam(stop: Any) -> None:
    for space in some(tiny_spaces()):
        for size in (1, 3):
            for options in ({}, {"alpha": 0.7, "normalize": "length", "length_offset": 1}):
                alone = DiverseDecoder(size, groups=1, strength=9.0, stop=stop, **options)  # type: ignore[arg-type]
                (found, here), (beam, there) = (
                    search(decoder, space, 4) for decoder in (alone, BeamDecoder(size, stop=stop, **options))  # type: ignore[arg-type]
                )
                assert found == beam and here.expansions == there.expansions, (space, size, options)
    assert alone.ranks_by == "ranking" and DiverseDecoder().ranks_by != "ranking"


def hamming(before: float, y: Tokens, held: list[Tokens]) -> float:
    return before + sum(h[len(y) - 1 : len(y)] == y[-1:] for h in held)


def cumulative(before: float, y: Tokens, held: list[Tokens]) -> float:
    return sum(math.exp(-sum(h[at : at + 1] != y[at : at + 1] for at in range(len(y))) / 1.5) for h in held)


def bigrams(before: float, y: Tokens, held: list[Tokens]) -> float:
    return sum(h[i : i + 2] == y[j : j + 2] for h in held for i in range(len(h) - 1) for j in range(len(y) - 1))


def plain(
    table: Any, size: int, groups: int, strength: float, similarity: Callable[..., float], limit: int
) -> list[tuple[Tokens, float]]:
    """Algorithm 1 over all continuations: hypotheses are tokens, totals, similarities."""
    beams: list[list[tuple[Tokens, float, float]]] = [[((), 0.0, 0.0)] for _ in range(groups)]
    finished: dict[Tokens, float] = {}
    while any(y[-1:] != (EOS,) for beam in beams for y, _, _ in beam):
        for g in range(groups):
            held = [y for beam in beams[:g] for y, _, _ in beam]
            candidates = [slot for slot in beams[g] if slot[0][-1:] == (EOS,)]
            for y, total, before in beams[g]:
                if y[-1:] != (EOS,):
                    for token in (EOS,) if len(y) == limit else range(len(table)):
                        grown = (*y, token)
                        score = total + table[y[-1] if y else BOS][token]
                        candidates.append((grown, score, similarity(before, grown, held)))
            candidates.sort(key=lambda slot: slot[1] - strength * slot[2], reverse=True)
            beams[g] = candidates[: size // groups]
            for y, total, found in beams[g]:
                if y[-1:] == (EOS,):
                    finished[y] = max(finished.get(y, -math.inf), total - strength * found)
    return sorted(finished.items(), key=lambda each: -each[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "similarity"), [("hamming", hamming), ("cumulative", cumulative), ("ngram", bigrams)]
)
def test_the_list_is_that_of_a_plain_loop(name: Any, similarity: Callable[..., float]) -> None:
    differing = 0
    for seed in range(examples(30)):
        table = log_probabilities(np.random.default_rng(seed).normal(0.0, 1.0, (5, 5)))
        for size, groups, strength in ((2, 2, 0.5), (6, 3, 1.5)):
            expected = plain(table, size, groups, strength, similarity, limit=5)
            decoder = DiverseDecoder(size, groups=groups, strength=strength, diversity=name, gamma=1.5)
            found = decode(decoder, table, 5, nbest=99).hypotheses
            assert [(*h.tokens, EOS) for h in found] == [y for y, _ in expected]
            assert [h.rank_score for h in found] == pytest.approx([score for _, score in expected])
            totals = [table[[BOS, *h.tokens], [*h.tokens, EOS]].sum() for h in found]
            assert [h.score for h in found] == pytest.approx(totals)
            differing += expected != plain(table, size, groups, 0.0, similarity, limit=5)
    assert differing > examples(30)


RUNS = examples(1500)
SPACE = tiny(
    a=Lattice(
        {
            0: {3: (-0.2, 1), 4: (-1.6, 2), 5: (-3.0, 2)},
            1: {3: (-0.3, 2), 4: (-1.5, 2), EOS: (-1.1, 3)},
            2: {EOS: (0.0, 3)},
        }
    )
)


def drawn(decoder: Decoder, constellation: Constellation, source: Source, seed: int) -> Result:
    (root,) = constellation.roots([source])
    return decoder.decode(SearchSpace(constellation, root, seed=seed, nbest=9))


def pairs(shares: dict[Any, float]) -> dict[frozenset[Any], float]:
    """The law of two that are drawn one after the other without replacement."""
    whole, law = sum(shares.values()), defaultdict[frozenset[Any], float](float)
    for (a, p), (b, q) in permutations(shares.items(), 2):
        law[frozenset((a, b))] += p / whole * q / (whole - p)
    return law


@pytest.mark.slow
def test_one_slot_of_one_group_is_a_draw_of_the_chained_distribution() -> None:
    chain = Chain.parse("temperature=2+top_k=2")
    decoder = DiverseDecoder(1, groups=1, sampling=True, chain=chain)
    results = (drawn(decoder, SPACE.constellation(), SPACE.source, seed) for seed in range(RUNS))
    counts = Counter((*h.tokens, EOS) for result in results for h in result.hypotheses)
    found, freedom = statistic(counts, leaves(SPACE, chain))
    assert freedom == 2 and found < critical(freedom)


@pytest.mark.slow
def test_groups_draw_without_replacement_what_the_groups_before_have_not_drawn() -> None:
    """Two of four tokens twice: the law of all that is drawn."""
    shares, strength = {3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}, 1.0
    space = tiny(a=Lattice({0: {t: (math.log(p), 1) for t, p in shares.items()}, 1: {EOS: (0.0, 2)}}))
    law: defaultdict[frozenset[int], float] = defaultdict(float)
    for first, p in pairs(shares).items():
        penalised = {t: share * math.exp(-strength * (t in first)) for t, share in shares.items()}
        for second, q in pairs(penalised).items():
            law[first | second] += p * q
    decoder, constellation = DiverseDecoder(4, groups=2, strength=strength, sampling=True), space.constellation()
    results = (drawn(decoder, constellation, space.source, seed) for seed in range(RUNS))
    counts = Counter(frozenset(h.tokens[0] for h in result.hypotheses) for result in results)
    found, freedom = statistic(counts, law)
    assert freedom >= 7 and found < critical(freedom)


@pytest.mark.slow
def test_children_of_different_prefixes_are_drawn_by_whole_probabilities() -> None:
    """Both first tokens have a slot; of the four prefixes that follow, two are drawn without replacement."""
    halves = {0: (3, 0.7), 1: (4, 0.3)}
    then = {0: {5: 0.5, 6: 0.5}, 1: {5: 0.9, 6: 0.1}}
    arcs = {0: {t: (math.log(p), 1 + way) for way, (t, p) in halves.items()}, 3: {EOS: (0.0, 4)}}
    for way, shares in then.items():
        arcs[1 + way] = {t: (math.log(p), 3) for t, p in shares.items()}
    space = tiny(a=Lattice(arcs))
    law = pairs({(t, u): p * q for way, (t, p) in halves.items() for u, q in then[way].items()})
    decoder, constellation = DiverseDecoder(2, groups=1, sampling=True), space.constellation()
    results = (drawn(decoder, constellation, space.source, seed) for seed in range(RUNS))
    counts = Counter(frozenset(h.tokens for h in result.hypotheses) for result in results)
    found, freedom = statistic(counts, law)
    assert freedom == 5 and found < critical(freedom)


def test_batches_and_their_order_change_nothing() -> None:
    decoder = DiverseDecoder(4, sampling=True)
    sources = [Source(number, (3, 4, 3)) for number in range(1, 9)]

    def run(batch_size: int, order: int) -> dict[int, Result]:
        scheduler = Scheduler(SPACE.constellation(), decoder, nbest=9, batch_size=batch_size, seed=5)
        return {outcome.source.id: outcome.result for outcome in scheduler.run(sources[::order])}

    alone = run(1, 1)
    assert alone == run(5, -1)
    assert len({tuple(h.tokens for h in result.hypotheses) for result in alone.values()}) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 6, "groups": 4}, "4 groups do not divide a beam of size 6 into equal parts; .* as 2, .* as 8"),
        ({"size": 2, "groups": 4}, "4 groups do not divide a beam of size 2 .* as 2, .* as 4"),
        ({"chain": Chain.parse("top_k=5")}, "chain top_k=5 changes what is drawn: add sampling true, or omit it"),
        ({"stop": "hf-true", "beta": 0.1}, "where beta has no counterpart"),
        ({"stop": "hf-false", "alpha": 0.5}, "add normalize length"),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        DiverseDecoder(**options)


def test_a_search_without_a_limit_that_needs_one_is_refused() -> None:
    decoder = DiverseDecoder(stop="hf-never", alpha=1.0, normalize="length")
    with pytest.raises(UsageError, match=r"stop hf-never with alpha above 0 .* give --max-length N"):
        search(decoder, tiny(vocab_size=5, a=Table(np.zeros((5, 5)))))

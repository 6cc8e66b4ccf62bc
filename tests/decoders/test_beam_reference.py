"""`beam`, `vanilla`, `sepbeam` and `bestfirst` find what the definition of beam search finds, option by option.

The definition is `tests.helpers.beam_reference`. Compared are hypotheses with their order, totals, rank scores and
expansions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.bestfirst import BestFirstDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.syncbeam import SyncBeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec import EOS, Decoder, SearchSpace, Source
from sgdec.search.constellation import Constellation
from tests.helpers.beam_reference import (
    SOURCE,
    Definition,
    Hypothesis,
    Table,
    Tabled,
    random_definition,
    random_table,
)
from tests.helpers.breadth import examples

SEEDS = range(examples(60))
UNUSED = 1
"""A token that no table has."""


def without_banks(definition: Definition) -> dict[str, Any]:
    """The options, for decoders that have no banks."""
    options = asdict(definition)
    del options["banks"]
    return options


def found_by(decoder: Decoder, tables: Sequence[Table], nbest: int) -> tuple[list[Any], int]:
    """As `Definition.search` has it: system and tokens, total, rank score; and expansions."""
    constellation = Constellation.of({f"t{i}": Tabled(table) for i, table in enumerate(tables)})
    (root,) = constellation.roots([Source(1, (3,) * SOURCE, max_length=tables[0].limit)])
    space = SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest)
    found = decoder.decode(space).hypotheses
    systems = [next(k for k, weight in enumerate(h.weights[0]) if weight is not None) for h in found]
    return [
        (system, (*h.tokens, EOS), h.score, h.rank_score) for system, h in zip(systems, found, strict=True)
    ], space.expansions


def agree(
    decoder: Decoder, definition: Definition, tables: Sequence[Table], nbest: int, where: object
) -> tuple[int, int]:
    """Returns how many expansions there were, and are by the definition, which are compared elsewhere."""
    listed, defined = definition.search(tables, nbest)
    found, expansions = found_by(decoder, tables, nbest)
    at = f"{definition}, nbest {nbest}, {where}"
    assert [(system, tokens) for system, tokens, _, _ in found] == [(h.system, h.tokens) for h, _ in listed], at
    assert [total for _, _, total, _ in found] == pytest.approx([h.total for h, _ in listed], abs=1e-9), at
    assert [rank for *_, rank in found] == pytest.approx([rank for _, rank in listed], abs=1e-9), at
    return expansions, defined


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["best", "full", "length", "proven"])
@pytest.mark.parametrize("highest", [0.0, 1.0])
@pytest.mark.parametrize("make", [BeamDecoder, VanillaDecoder])
def test_each_stop_rule_with_all_prunings(make: type[Decoder], highest: float, stop: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng([seed, int(highest)])
        table = random_table(rng, highest, coarse=seed % 3 == 0)
        for nbest in (1, 3):
            definition = random_definition(rng, stop=stop)
            expansions, defined = agree(make(**asdict(definition)), definition, [table], nbest, seed)
            assert expansions == defined


def test_best_first_search() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng([seed, 7])
        table = random_table(rng, coarse=seed % 3 == 0)
        for nbest in (1, 1, 3):
            definition = random_definition(rng, stop="best", prune_final=0.0)
            options = without_banks(definition)
            del options["stop"], options["prune_final"]
            expansions, defined = agree(BestFirstDecoder(**options), definition, [table], nbest, seed)
            assert expansions <= defined


@pytest.mark.parametrize("make", [BeamDecoder, VanillaDecoder, BestFirstDecoder])
def test_long_lists_of_equal_rank_scores(make: type[Decoder]) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng([seed, 6])
        table = random_table(rng, coarse=True)
        size, alpha = 3 + seed % 3, float(seed % 4 == 0)
        definition = Definition(size, alpha=alpha, normalize="length")
        agree(make(size=size, alpha=alpha, normalize="length"), definition, [table], 5, seed)  # type: ignore[call-arg]


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["best", "full", "length", "proven"])
def test_separate_beam_search(stop: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng([seed, 8])
        tables = [random_table(rng, 1.0, coarse=seed % 3 == 0) for _ in range(2)]
        definition = random_definition(rng, stop=stop)
        expansions, defined = agree(SepBeamDecoder(**without_banks(definition)), definition, tables, 3, seed)
        assert expansions == defined


def test_an_inner_beam_of_whole_hypotheses_is_beam_search_that_finishes_all() -> None:
    """No token ends a word: the first word is the hypothesis. Final prunings are those of the outer beam."""
    for seed in SEEDS:
        rng = np.random.default_rng([seed, 9])
        table = random_table(rng, 1.0, coarse=seed % 3 == 0)
        definition = random_definition(rng, stop="full", prune_final=0.0)
        decoder = SyncBeamDecoder(symbol=UNUSED, **without_banks(definition))
        agree(decoder, definition, [table], 3, seed)


@pytest.mark.parametrize("stop", ["length", "proven"])
def test_the_definition_with_a_wide_beam_lists_the_best_of_all_hypotheses(stop: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng([seed, 10])
        table = random_table(rng, 1.0)
        definition = random_definition(rng, size=500, stop=stop, prune_local=0.0, prune_final=0.0)
        listed, _ = definition.search([table], 5)
        every = sorted((definition.rank(h, table) for h in hypotheses(table)), reverse=True)
        assert [rank for _, rank in listed] == pytest.approx(every[:5], abs=1e-9)


def hypotheses(table: Table, prefix: tuple[int, ...] = (), total: float = 0.0) -> Iterator[Hypothesis]:
    """All there are."""
    for token, score in table.following(prefix):
        if token == EOS:
            yield Hypothesis(0, (*prefix, EOS), total + score)
        else:
            yield from hypotheses(table, (*prefix, token), total + score)

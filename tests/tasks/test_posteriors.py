"""n-gram posteriors of lattices and n-best lists are what an enumeration of all paths gives."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec import BOS, EOS, SgdecError
from sgdec.io.lattice import Lattice, read_lattice
from sgdec.io.ngrams import read_ngrams
from sgdec.tasks.posteriors import lattice_posteriors, nbest_posteriors
from tests.helpers.breadth import examples
from tests.helpers.lattice_files import write_automaton

Paths = list[tuple[tuple[int, ...], float]]
"""Tokens without ``<s>`` and ``</s>``, and the natural-log score."""


def by_enumeration(paths: Paths, order: int, scale: float, counts: bool) -> dict[tuple[int, ...], float]:
    found: defaultdict[tuple[int, ...], float] = defaultdict(float)
    whole = math.fsum(math.exp(scale * score) for _, score in paths)
    for tokens, score in paths:
        string = (BOS, *tokens, EOS)
        ngrams = Counter(string[i : i + n] for n in range(1, order + 1) for i in range(len(string) - n + 1))
        for ngram, times in ngrams.items():
            found[ngram] += math.exp(scale * score) / whole * (times if counts else 1)
    return dict(found)


def paths_of(lattice: Lattice) -> Paths:
    def walk(
        state: int, tokens: tuple[int, ...], score: float, begun: bool
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        if lattice.final[state] < math.inf:
            yield tokens, score - lattice.final[state]
        for label, cost, target in lattice.arcs[state]:
            if label == EOS:
                if lattice.final[target] < math.inf:
                    yield tokens, score - cost - lattice.final[target]
            elif label == 0:
                yield from walk(target, tokens, score - cost, begun)
            elif label == BOS and not begun:
                yield from walk(target, tokens, score - cost, True)
            else:
                yield from walk(target, (*tokens, label), score - cost, True)

    return list(walk(lattice.start, (), 0.0, False)) if lattice.start >= 0 else []


def random_lattice(rng: np.random.Generator, path: Path) -> Lattice:
    """Few words, so that n-grams repeat; epsilons, dead ends, two arcs of one label, ends of both kinds."""
    states = 6
    arcs, final = [], {states: 1.0}
    for state in range(states):
        for _ in range(rng.integers(0, 4)):
            label = int(rng.choice([0, 1, 3, 3, 4, 4]))
            target = int(rng.integers(state + 1, states + 1))
            cost = float(rng.choice([0.25, 0.5, -0.75, 2.0]))
            arcs.append((state, label, cost, target))
        if rng.random() < 0.5:
            arcs.append((state, EOS, 0.5, states))
        if rng.random() < 0.3:
            final[state] = 0.25
    write_automaton(path, arcs, final)
    return read_lattice(path)


@settings(max_examples=examples(80))
@given(
    seed=st.integers(0, 2**32), order=st.integers(1, 4), scale=st.sampled_from([1.0, 0.5, 0.0]), counts=st.booleans()
)
def test_a_lattice_has_the_posteriors_of_its_paths(
    tmp_path_factory: pytest.TempPathFactory, seed: int, order: int, scale: float, counts: bool
) -> None:
    lattice = random_lattice(np.random.default_rng(seed), tmp_path_factory.mktemp("lattice") / "1.fst")
    paths = paths_of(lattice)
    expected = by_enumeration(paths, order, scale, counts) if paths else {}
    found = lattice_posteriors(lattice, order, scale=scale, counts=counts)
    assert found == {ngram: pytest.approx(posterior, abs=1e-12) for ngram, posterior in expected.items()}


@given(
    entries=st.lists(
        st.tuples(st.lists(st.integers(3, 4), max_size=5), st.sampled_from([-1.0, -2.5, 0.0, 3.0])),
        min_size=1,
        max_size=6,
    ),
    order=st.integers(1, 4),
    scale=st.sampled_from([1.0, 0.3, 0.0]),
    counts=st.booleans(),
)
@settings(max_examples=examples(40))
def test_a_list_has_the_posteriors_of_its_entries(
    entries: Sequence[tuple[list[int], float]], order: int, scale: float, counts: bool
) -> None:
    paths = [(tuple(tokens), score) for tokens, score in entries]
    found = nbest_posteriors([*paths, ((7,), -math.inf)], order, scale=scale, counts=counts)
    assert found == {ngram: pytest.approx(p) for ngram, p in by_enumeration(paths, order, scale, counts).items()}


def test_an_ngram_that_every_path_has_has_posterior_one_however_often() -> None:
    found = nbest_posteriors([((3, 3, 3), -1.0), ((3,), -2.0)], 2)
    assert found[(3,)] == pytest.approx(1.0)
    assert found[(3, 3)] == pytest.approx(math.exp(-1) / (math.exp(-1) + math.exp(-2)))
    assert nbest_posteriors([((3, 3, 3), -1.0), ((3,), -1.0)], 1, counts=True)[(3,)] == pytest.approx(2.0)


def test_totals_far_from_zero_do_not_overflow() -> None:
    assert nbest_posteriors([((3,), -5000.0), ((4,), -5000.0)], 1)[(3,)] == pytest.approx(0.5)
    assert nbest_posteriors([((3,), 5000.0)], 1)[(3,)] == 1.0


def test_a_lattice_without_a_path_and_a_list_without_entries_have_no_ngrams(tmp_path: Path) -> None:
    write_automaton(tmp_path / "empty.fst", [], {})
    assert lattice_posteriors(read_lattice(tmp_path / "empty.fst"), 3) == {}
    write_automaton(tmp_path / "dead.fst", [(0, 3, 0.0, 1)], {})
    assert lattice_posteriors(read_lattice(tmp_path / "dead.fst"), 3) == {}
    assert nbest_posteriors([], 3) == nbest_posteriors([((3,), -math.inf)], 3) == {}


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    write_automaton(tmp_path / "cycle.fst", [(0, 3, 0.0, 1), (1, 3, 0.0, 0)], {1: 0.0})
    with pytest.raises(SgdecError, match="state 0 is on a cycle"):
        lattice_posteriors(read_lattice(tmp_path / "cycle.fst"), 3)


def test_recorded_posteriors_of_lattices(data_folder: Path) -> None:
    """The cases' n-gram files hold those of their lattices down to 0.001, with six digits."""
    cases = data_folder / "cases"
    for number in range(1, 17):
        found = lattice_posteriors(read_lattice(cases / "inputs" / "det" / f"{number}.fst"), 4)
        recorded = read_ngrams(cases / "groups" / "g12_counts" / "ngrams" / f"{number}.txt")
        likely = {ngram for ngram, posterior in found.items() if posterior >= 0.001}
        assert likely <= set(recorded) <= set(found)
        assert {ngram: found[ngram] for ngram in recorded} == pytest.approx(recorded, abs=1e-6)

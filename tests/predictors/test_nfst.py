"""The predictor of non-deterministic lattices scores token sequences by all of their paths together.

Oracles: every path listed by recursion, and pynini: composition with the tokens, shortest distances, determinisation.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.nfst import NfstPredictor

from sgdec import EOS, Context, SgdecError, Source
from tests.helpers.automata import (
    Automaton,
    check_bounds,
    compiled,
    log_sum,
    nodes_of,
    random_automaton,
    space_of,
    totals_of,
    totals_of_paths,
)
from tests.helpers.breadth import some
from tests.helpers.contracts import PluginContract, SearchContract
from tests.helpers.optional import optional

pytestmark = pytest.mark.slow

SEEDS = range(20)
both = pytest.mark.parametrize("semiring", ["tropical", "log"])


def automaton(seed: int) -> Automaton:
    return random_automaton(np.random.default_rng(seed))


def nfst(folder: Path, fst: Automaton | str, **options: Any) -> NfstPredictor:
    path = folder / "all.fst"
    (Automaton.parsed(fst) if isinstance(fst, str) else fst).write(path)
    return NfstPredictor(str(path), **options)


@both
@pytest.mark.parametrize("seed", SEEDS)
def test_the_space_is_the_set_of_paths_and_totals_are_all_their_scores_together(
    tmp_path: Path, seed: int, semiring: str
) -> None:
    expected = totals_of_paths(automaton(seed), semiring)
    found = totals_of(space_of(nfst(tmp_path, automaton(seed), semiring=semiring)))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("semiring", "arc_type"), [("tropical", "standard"), ("log", "log64")])
@pytest.mark.parametrize("seed", SEEDS)
def test_cyclic_lattices_score_what_pynini_composes(tmp_path: Path, seed: int, semiring: str, arc_type: str) -> None:
    """Five states with any arcs between them, ``</s>`` to final ones; costs are high enough for sums to converge."""
    rng = np.random.default_rng(seed)
    arcs = []
    for origin in [state for state in range(5) for _ in range(3)]:
        label = int(rng.choice([0, 0, 3, 4, EOS]))
        target = int(rng.choice([2, 4]) if label == EOS else rng.integers(5))
        arcs.append((origin, target, label, float(rng.uniform(1.2, 3.0))))
    fst = Automaton(arcs, {4: 0.5, 2: 0.1})
    path = fst.write(tmp_path / "all.fst", arc_type)
    try:
        predictor = NfstPredictor(str(path), semiring=semiring)
    except SgdecError as error:
        assert "is empty" in str(error) and all(math.isinf(cost) for cost in all_costs(fst, arc_type).values())
        return
    space = space_of(predictor)
    found = {}
    level = [space.root]
    for _ in range(4):
        children = [child for node in level for child in next(iter(space.expand([node])))]
        found |= {node.tokens[:-1]: -node.total for node in children if node.finished}
        level = [node for node in children if not node.finished]
    expected = {tokens: cost for tokens, cost in all_costs(fst, arc_type).items() if math.isfinite(cost)}
    assert found == pytest.approx(expected, abs=1e-4)


def all_costs(fst: Automaton, arc_type: str) -> dict[tuple[int, ...], float]:
    """Of all sequences of up to three tokens, by composition; </s> last or not at all, and nothing after it."""
    pynini = optional("pynini")
    costs = {}
    lattice = fst.compile(arc_type)
    for tokens in itertools.chain.from_iterable(itertools.product([3, 4], repeat=n) for n in range(4)):
        ends = []
        for labels in (tokens, (*tokens, EOS)):
            lines = [f"{i} {i + 1} {label} 0" for i, label in enumerate(labels)]
            linear = compiled("\n".join([*lines, f"{len(labels)} 0", ""]), arc_type)
            both = pynini.compose(linear, lattice)
            distance = pynini.shortestdistance(both, delta=1e-12, reverse=True)
            ends.append(-float(distance[both.start()]) if both.start() >= 0 else -math.inf)
        costs[tokens] = -(max(ends) if arc_type == "standard" else log_sum(ends))
    return costs


@pytest.mark.parametrize("options", [{}, {"use_weights": False}, {"normalize": True}])
@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_deterministic_lattice_it_says_what_fst_says(
    tmp_path: Path, seed: int, options: dict[str, bool]
) -> None:
    rows = {}
    for origin, target, label, cost in automaton(seed).arcs:
        if label:
            rows[origin, label] = (origin, target, label, cost)
    path = str(Automaton(list(rows.values()), automaton(seed).final).write(tmp_path / "all.fst"))
    try:
        fst = FstPredictor(path, **options)
    except SgdecError as error:
        with pytest.raises(SgdecError, match="is empty"):
            NfstPredictor(path, **options)
        assert "is empty" in str(error)
        return
    ours, theirs = (
        {node.tokens: node.total for node in nodes_of(space_of(predictor))}
        for predictor in (NfstPredictor(path, **options), fst)
    )
    assert ours == pytest.approx(theirs, abs=1e-9)
    if not options.get("normalize"):
        for weight in (1.0, -1.0):
            spaces = space_of(NfstPredictor(path, **options), weight), space_of(fst, weight)
            assert spaces[0].bound([spaces[0].root]) == pytest.approx(spaces[1].bound([spaces[1].root]), abs=1e-9)


@pytest.mark.parametrize("make", [FstPredictor, NfstPredictor])
def test_a_cost_of_zero_is_a_score_without_a_sign(tmp_path: Path, make: type[FstPredictor | NfstPredictor]) -> None:
    Automaton([(0, 1, 3, 0.0), (1, 2, 4, 0.0)], {2: 0.0}).write(tmp_path / "all.fst")
    _, *nodes = nodes_of(space_of(make(str(tmp_path / "all.fst"))))
    assert [str(node.scores[0]) for node in nodes] == ["0.0", "0.0", "0.0"]


@pytest.mark.parametrize("semiring", ["tropical", "log"])
@pytest.mark.parametrize("weight", [1.0, -0.5])
@pytest.mark.parametrize("options", [{}, {"use_weights": False}, {"normalize": True}])
@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_and_that_on_the_best_path_is_exact(
    tmp_path: Path, seed: int, options: dict[str, bool], weight: float, semiring: str
) -> None:
    space = space_of(nfst(tmp_path, automaton(seed), semiring=semiring, **options), weight)
    exact = weight == 1.0 and not options.get("normalize") and (semiring == "tropical" or bool(options))
    check_bounds(space, nodes_of(space), exact=exact)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_bound_is_the_log_sum_of_all_that_can_follow(tmp_path: Path, seed: int) -> None:
    space = space_of(nfst(tmp_path, automaton(seed), semiring="log"))
    nodes = nodes_of(space)
    for node in nodes:
        if not node.finished:
            below = [n.total for n in nodes if n.finished and n.tokens[: node.length] == node.tokens]
            assert space.bound([node]) == pytest.approx([log_sum(below) - node.total], abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_stochastic_lattice_log_scores_are_conditional_probabilities(tmp_path: Path, seed: int) -> None:
    """Of all paths that leave a state the probabilities sum to one; cyclic, with epsilons."""
    rng = np.random.default_rng(seed)
    arcs, final = [], {}
    for state in range(4):
        shares = rng.dirichlet(np.ones(5))
        final[state] = -math.log(shares[4])
        for share in shares[:4]:
            arcs.append((state, int(rng.integers(4)), int(rng.choice([0, 0, 3, 4, 5])), -math.log(share)))
    path = Automaton(arcs, final).write(tmp_path / "all.fst", "log")
    predictor = NfstPredictor(str(path), semiring="log")
    states = predictor.initialize_batch([Source(1, ())])
    for _ in range(4):
        rows = predictor.predict_batch(states).rows
        for row in rows:
            assert math.fsum(map(math.exp, row.scores)) == pytest.approx(1.0, abs=1e-5)  # the file rounds
        steps = [
            (state, token) for state, row in zip(states, rows, strict=True) for token in row.tokens if token != EOS
        ]
        states = predictor.consume_batch([state for state, _ in steps], [token for _, token in steps])
    assert predictor.best_remaining(states) == pytest.approx([0.0] * len(states), abs=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_there_are_as_many_keys_as_states_of_the_determinised_lattice(tmp_path: Path, seed: int) -> None:
    fst = automaton(seed)
    open_ended = Automaton([arc for arc in fst.arcs if arc[2] not in (1, EOS)], fst.final)
    start = min(arc[0] for arc in open_ended.arcs)
    moved = Automaton([(o - start, t - start, label, c) for o, t, label, c in open_ended.arcs], {})
    moved = moved._replace(final={s - start: c for s, c in fst.final.items() if s >= start})
    pynini = optional("pynini")
    lattice = pynini.connect(moved.compile())
    if lattice.num_states() == 0:
        return
    lattice.write(str(tmp_path / "all.fst"))
    space = space_of(NfstPredictor(str(tmp_path / "all.fst")))
    keys = {key for node in nodes_of(space) if not node.finished for key in space.keys([node])}
    determinised = pynini.determinize(pynini.rmepsilon(lattice), delta=1e-6)
    assert len(keys) == determinised.num_states()


def test_prefixes_that_differ_by_a_constant_have_one_key(tmp_path: Path) -> None:
    text = "0 1 3 1\n0 2 3 2\n0 1 4 5\n0 2 4 6\n1 3 5 0\n2 3 6 0\n3 0\n"
    space = space_of(nfst(tmp_path, text))
    (children,) = space.expand([space.root])
    three, four = space.keys(list(children))
    assert three == four


@both
def test_normalized_scores_sum_to_one_after_each_prefix(tmp_path: Path, semiring: str) -> None:
    predictor = nfst(tmp_path, automaton(3), semiring=semiring, normalize=True)
    space = space_of(predictor)
    for node in nodes_of(space):
        if not node.finished:
            (children,) = space.expand([node])
            scores = [child.total - node.total for child in children]
            assert not scores or log_sum(scores) == pytest.approx(0.0, abs=1e-9)


@both
def test_without_weights_the_paths_stay_and_every_score_is_zero(tmp_path: Path, semiring: str) -> None:
    space = space_of(nfst(tmp_path, automaton(3), use_weights=False, semiring=semiring))
    assert totals_of(space) == dict.fromkeys(totals_of_paths(automaton(3)), 0.0)


def test_epsilons_before_and_after_both_ends_count(tmp_path: Path) -> None:
    text = "0 1 0 0.5\n1 2 1 0.25\n2 3 0 0.5\n3 4 3 1\n4 5 0 1\n5 6 2 1\n6 7 0 2\n7 0.5\n"
    assert totals_of(space_of(nfst(tmp_path, text))) == {(3,): -6.75}


def test_a_geometric_series_of_epsilons_is_summed_exactly(tmp_path: Path) -> None:
    """With p = 1/2 at each of two states: 1 + 1/4 + 1/16 + ... = 4/3 on the way in, half of that and 3 on."""
    half = math.log(2)
    text = f"0 1 0 {half}\n1 0 0 {half}\n0 2 3 0\n2 2 0 {half}\n2 3 2 0\n3 0\n"
    assert totals_of(space_of(nfst(tmp_path, text, semiring="log"))) == pytest.approx(
        {(3,): math.log(4 / 3) + math.log(2)}, abs=1e-6
    )


def test_an_epsilon_cycle_of_no_cost_changes_nothing_on_the_best_path(tmp_path: Path) -> None:
    text = "0 1 0 -1\n1 0 0 1\n1 2 3 0\n2 2 0 0\n2 0\n"
    assert totals_of(space_of(nfst(tmp_path, text))) == {(3,): 1.0}


def test_a_token_cycle_that_gains_has_no_bound_and_leaves_others_alone(tmp_path: Path) -> None:
    space = space_of(nfst(tmp_path, "0 1 3 1\n1 1 4 -0.5\n1 2 2 0\n0 3 5 1\n3 2 2 0.25\n2 0\n"))
    (children,) = space.expand([space.root])
    gains, other = sorted(children, key=lambda node: node.last)
    assert space.bound([space.root, gains, other]) == [math.inf, math.inf, -0.25]


def test_sentences_choose_their_lattices(tmp_path: Path) -> None:
    for number, label in ((1, 3), (2, 4)):
        Automaton.parsed(f"0 1 {label} 1\n1 0\n").write(tmp_path / f"{number}.fst")
    predictor = NfstPredictor(str(tmp_path / "{id}.fst"))
    assert [set(totals_of(space_of(predictor, sentence=number))) for number in (2, 1)] == [{(4,)}, {(3,)}]


def test_a_long_chain_of_epsilons_is_no_matter(tmp_path: Path) -> None:
    lines = [f"{i} {i + 1} 0 0.001" for i in range(3000)] + ["3000 3001 3 1", "3001 0"]
    assert totals_of(space_of(nfst(tmp_path, "\n".join(lines) + "\n"))) == pytest.approx({(3,): -4.0}, abs=1e-4)


@both
@pytest.mark.parametrize("seed", SEEDS)
def test_steps_are_scores_and_states_in_one(tmp_path: Path, seed: int, semiring: str) -> None:
    predictor = nfst(tmp_path, automaton(seed), semiring=semiring)
    states = predictor.initialize_batch([Source(1, ())])
    while states:
        state = states.pop()
        (row,) = predictor.predict_batch([state]).rows
        tokens, scores, after = predictor.steps(state, None)
        assert (list(tokens), list(scores)) == (sorted(row.tokens), row.at(sorted(row.tokens)))
        assert after == predictor.consume_batch([state] * len(tokens), tokens)
        wanted, scores, after = predictor.steps(state, [2, 4, 5])
        assert (list(wanted), list(scores)) == ([2, 4, 5], [row.get(token) for token in (2, 4, 5)])
        assert after == predictor.consume_batch([state] * 3, [2, 4, 5])
        states += [next_state for token, next_state in zip(wanted, after, strict=True) if next_state[1]]


@pytest.mark.slow
def test_real_lattices_are_searched_as_well_as_by_fst(data_folder: Path) -> None:
    """The 60 lattices of HiFST, which are deterministic; A* with an exact bound goes straight to the best path."""
    path = str(data_folder / "data" / "lattices" / "hifst_ruen" / "fst" / "{id}.fst.gz")
    for sentence in some(range(1, 61)):
        best = [
            AStarDecoder().decode(space_of(predictor, sentence=sentence)).hypotheses[0]
            for predictor in (NfstPredictor(path), FstPredictor(path))
        ]
        assert best[0].tokens == best[1].tokens and best[0].score == pytest.approx(best[1].score, abs=1e-9)


MISTAKES = {
    "gaining epsilons": ("tropical", "0 1 0 1\n1 0 0 -1.5\n1 2 3 0\n2 0\n", "diverges (a cycle of negative cost)"),
    "certain epsilons": ("log", "0 0 0 0\n0 1 3 1\n1 0\n", "diverges (their probabilities have no finite sum)"),
    "likely epsilons": (
        "log",
        "0 1 0 0.1\n1 0 0 0.7\n0 0 0 0.5\n1 2 3 0\n2 0\n",
        "diverges (their probabilities have no finite sum)",
    ),
    "label outside the vocabulary": ("tropical", "0 1 100 1\n1 0\n", "label 100, but there are 100 target tokens"),
    "no final state": ("tropical", "0 1 3 1\n", "is empty: no path leads to a final state"),
    "only tokens after </s>": ("tropical", "0 1 2 1\n1 2 3 0\n2 0\n", "continues after </s>: state 0 has an arc"),
    "no state at all": ("tropical", "", "is empty: no path leads to a final state"),
    "<s> on some paths only": ("tropical", "0 1 1 0\n0 2 3 1\n1 2 3 1\n2 0\n", "has paths with and without <s>"),
    "<s> or the end": ("tropical", "0 1 1 0\n0 1\n1 2 3 1\n2 0\n", "has paths with and without <s>"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_unfit_lattice_is_one_line_with_file_sentence_and_way_out(tmp_path: Path, mistake: str) -> None:
    semiring, text, complaint = MISTAKES[mistake]
    Automaton.parsed(text).write(tmp_path / "7.fst")
    predictor = NfstPredictor(str(tmp_path / "{id}.fst"), semiring=semiring, context=Context(vocab_size=100))  # type: ignore[arg-type]
    with pytest.raises(SgdecError) as error:
        predictor.initialize_batch([Source(7, ())])
    message = str(error.value)
    assert message.startswith(f"nfst: {tmp_path}/7.fst: ") and complaint in message
    assert "(sentence 7). " in message and message.endswith(".") and "\n" not in message


def test_a_missing_lattice_names_file_sentence_and_option(tmp_path: Path) -> None:
    with pytest.raises(SgdecError) as error:
        NfstPredictor(str(tmp_path / "{id}.fst")).initialize_batch([Source(17, ())])
    assert str(error.value) == (
        f"nfst: {tmp_path}/17.fst: no such file (sentence 17). "
        "Expected one lattice for each input line (--nfst.path)."
    )


class TestNfstInSearch(SearchContract):
    vocab_size = 7
    limits = (4, 3, 2, 0)
    semiring = "tropical"

    def draw(self, rng: np.random.Generator) -> NfstPredictor:
        fst = random_automaton(rng, states=5, coarse=bool(rng.random() < 0.5))
        return nfst(self.folder, fst, semiring=self.semiring, normalize=bool(rng.random() < 0.5))


class TestLogNfstInSearch(TestNfstInSearch):
    semiring = "log"


class NfstContract(PluginContract):
    plugin = "nfst"


class TestNfst(NfstContract):
    def prepare(self, folder: Path) -> dict[str, Any]:
        for number in range(1, 4):
            random_automaton(np.random.default_rng(number + 10), states=7).write(folder / f"{number}.fst")
        return {"path": f"{folder}/{{id}}.fst"}


class TestNfstOfLogSums(TestNfst):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "semiring": "log"}


class TestNormalizedNfst(TestNfst):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "normalize": True}


class TestUnweightedNfst(TestNfst):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "use_weights": False}


class TestCyclicNfst(TestNfst):
    def prepare(self, folder: Path) -> dict[str, Any]:
        text = "0 1 0 0.5\n1 0 0 0.9\n0 1 3 0.4\n1 2 3 0.7\n2 0 4 1.5\n2 2 0 1.0\n2 0.25\n1 3 2 0.5\n3 0\n"
        for number in range(1, 4):
            Automaton.parsed(text).write(folder / f"{number}.fst")
        return {"path": f"{folder}/{{id}}.fst", "semiring": "log"}


def test_a_label_names_the_states_of_the_lattice(tmp_path: Path) -> None:
    arcs = [f"0 {target} 3 3" for target in range(1, 8)] + ["1 8 4 4"] + [f"{state}" for state in range(2, 9)]
    predictor = nfst(tmp_path, "\n".join(arcs))
    (root,) = predictor.initialize_batch([Source(1, ())])
    (after,) = predictor.consume_batch([root], [3])
    (end, nowhere) = predictor.consume_batch([after, after], [4, 5])
    assert predictor.state_label([root, after, end, nowhere]) == ["0", "1 2 3 4 5 ...", "8", None]

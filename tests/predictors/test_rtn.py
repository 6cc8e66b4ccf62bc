"""The predictor of recurrent transition networks scores the lattice in which every call is replaced.

Oracles: every path listed by recursion, calls replaced in all ways, and pynini's own replacement under `nfst`.
"""

from __future__ import annotations

import gzip
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.nfst import NfstPredictor
from sgdec_predictors.rtn import RtnPredictor

from sgdec import BOS, EOS, Context, SgdecError, Source
from tests.helpers.automata import Automaton, Totals, check_bounds, nodes_of, space_of, totals_of
from tests.helpers.contracts import PluginContract, SearchContract
from tests.helpers.optional import optional

pytestmark = pytest.mark.slow

ROOT = 1001000005
CALLED = (1003001002, 1003003001, 1004003002)
"""Each may call those after it."""
SEEDS = range(10)
Networks = Mapping[int, Automaton]


def random_networks(seed: int, *, cyclic: bool = False, coarse: bool = False) -> dict[int, Automaton]:
    """With epsilons, tokens and calls, and costs of both signs; now and then </s>, also in a network that is called.

    Cyclic ones have </s> only at the end of the root: `nfst` reads their expansion, and refuses paths that go on
    after </s>.
    """
    rng = np.random.default_rng(seed)

    def cost() -> float:
        value = rng.uniform(0.5, 3.0) if cyclic else rng.uniform(-2.0, 3.0)
        return float(np.floor(2 * value) / 2 if coarse else np.float32(value))

    networks = {}
    for place, name in enumerate((ROOT, *CALLED)):
        labels = [0, 3, 4, 5, *CALLED[place:], *CALLED[place:]]
        states = int(rng.integers(2, 4))
        arcs = []
        for origin in range(states):
            arcs.append((origin, origin + 1, int(rng.choice([3, 4])), cost()))
            for _ in range(rng.integers(1, 3)):
                target = int(rng.integers(0 if cyclic else origin + 1, states + 1))
                arcs.append((origin, target, int(rng.choice(labels)), cost()))
        if rng.random() < 0.25 and not cyclic:
            arcs.append((states - 1, states, EOS, cost()))
        final = {state: cost() for state in range(states) if rng.random() < 0.3}
        networks[name] = Automaton(arcs, final | {states: cost()})
    if rng.random() < 0.5:
        networks[ROOT] = with_ends(networks[ROOT])
    return networks


def with_ends(root: Automaton) -> Automaton:
    """Behind a <s> arc, and with </s> arcs in the place of final states."""
    end = max(target for _, target, _, _ in root.arcs) + 2
    arcs = [(origin + 1, target + 1, label, cost) for origin, target, label, cost in root.arcs]
    ends = [(state + 1, end, EOS, cost) for state, cost in root.final.items()]
    return Automaton([(0, 1, BOS, 0.25), *arcs, *ends], {end: 0.5})


def write(networks: Networks, folder: Path, sentence: int = 1) -> Path:
    (folder / "ntmap").write_text("S 1\nX 3\nV 4\n")
    (folder / str(sentence)).mkdir(exist_ok=True)
    for name, network in networks.items():
        network.write(folder / str(sentence) / f"{name}.fst")
    return folder


def rtn(networks: Networks, folder: Path, **options: Any) -> RtnPredictor:
    return RtnPredictor(str(write(networks, folder)), **options)


def replaced(networks: Networks, folder: Path, **options: Any) -> NfstPredictor:
    """The same by pynini, as one lattice with epsilons."""
    pairs = [(name, network.compile()) for name, network in networks.items()]
    fst = optional("pywrapfst").replace(pairs, epsilon_on_replace=True)
    fst.write(str(folder / "replaced.fst"))
    return NfstPredictor(str(folder / "replaced.fst"), **options)


def totals_of_networks(networks: Networks) -> Totals:
    """The best score of each token sequence, without <s> and </s>."""

    def paths(name: int) -> Iterator[tuple[tuple[int, ...], float]]:
        for labels, cost in networks[name].paths():
            parts = [listed.get(label, [((label,), 0.0)]) for label in labels]
            for combination in itertools.product(*parts):
                tokens = tuple(token for more, _ in combination for token in more)
                yield tokens, cost + math.fsum(more for _, more in combination)

    listed: dict[int, list[tuple[tuple[int, ...], float]]] = {}
    for name in reversed(networks):
        listed[name] = list(paths(name))
    found: Totals = {}
    for tokens, cost in listed[ROOT]:
        inner = tokens[1:] if tokens[:1] == (BOS,) else tokens
        inner = inner[:-1] if inner[-1:] == (EOS,) else inner
        if EOS not in inner:
            found[inner] = max(-cost, found.get(inner, -math.inf))
    return found


@pytest.mark.parametrize("minimize", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_space_is_the_set_of_paths_with_calls_replaced(tmp_path: Path, seed: int, minimize: bool) -> None:
    networks = random_networks(seed)
    expected = totals_of_networks(networks)
    assert totals_of(space_of(rtn(networks, tmp_path, minimize=minimize))) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("options", [{}, {"use_weights": False}, {"normalize": True}])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_prefix_scores_as_on_the_lattice_that_pynini_expands(
    tmp_path: Path, seed: int, options: dict[str, bool]
) -> None:
    networks = random_networks(seed)
    ours, theirs = (
        {node.tokens: node.total for node in nodes_of(space_of(make(networks, tmp_path, **options)))}
        for make in (rtn, replaced)
    )
    assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_networks_with_cycles_score_and_bound_as_the_lattice_that_pynini_expands(tmp_path: Path, seed: int) -> None:
    networks = random_networks(seed, cyclic=True)
    ours, theirs = space_of(rtn(networks, tmp_path)), space_of(replaced(networks, tmp_path))
    level = [(ours.root, theirs.root)]
    for _ in range(3):
        for first, second in level:
            assert ours.bound([first]) == pytest.approx(theirs.bound([second]), abs=1e-5)
        pairs = []
        for first, second in level:
            mine, other = (
                sorted(*space.expand([node]), key=lambda child: child.last)
                for space, node in ((ours, first), (theirs, second))
            )
            assert [child.last for child in mine] == [child.last for child in other]
            assert [child.total for child in mine] == pytest.approx([child.total for child in other], abs=1e-5)
            pairs += zip(mine, other, strict=True)
        level = [pair for pair in pairs if not pair[0].finished][:20]


@pytest.mark.parametrize("weight", [1.0, -0.5])
@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"use_weights": False, "minimize": False}])
@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_hold_and_that_on_the_best_path_is_exact(
    tmp_path: Path, seed: int, options: dict[str, bool], weight: float
) -> None:
    space = space_of(rtn(random_networks(seed), tmp_path, **options), weight)
    check_bounds(space, nodes_of(space), exact=weight > 0 and not options.get("normalize"))


@pytest.mark.parametrize("seed", SEEDS)
def test_minimizing_changes_no_score_and_adds_no_keys(tmp_path: Path, seed: int) -> None:
    networks = random_networks(seed, coarse=True)
    totals, keys = [], []
    for minimize in (False, True):
        space = space_of(rtn(networks, tmp_path, minimize=minimize))
        nodes = nodes_of(space)
        totals.append({node.tokens: node.total for node in nodes})
        keys.append({key for node in nodes if not node.finished for key in space.keys([node])})
    assert totals[0] == pytest.approx(totals[1], abs=1e-9)
    assert len(keys[1]) <= len(keys[0])


def test_minimizing_lets_prefixes_meet(tmp_path: Path) -> None:
    """Two copies of one ending."""
    twice = Automaton([(0, 1, 3, 1.0), (0, 2, 4, 2.0), (1, 3, 5, 0.5), (2, 4, 5, 0.5)], {3: 0.0, 4: 0.0})
    networks = {ROOT: Automaton([(0, 1, CALLED[0], 0.0)], {1: 0.0}), CALLED[0]: twice}
    for minimize in (True, False):
        space = space_of(rtn(networks, tmp_path, minimize=minimize))
        (children,) = space.expand([space.root])
        three, four = space.keys(list(children))
        assert (three == four) is minimize


def test_a_score_is_that_of_the_token_and_not_of_the_prefix(tmp_path: Path) -> None:
    """SGNMT's accumulates."""
    networks = {
        ROOT: Automaton([(0, 1, CALLED[0], 1.0), (1, 2, 4, 0.25)], {2: 0.5}),
        CALLED[0]: Automaton([(0, 1, 3, 2.0)], {1: 4.0}),
    }
    predictor = rtn(networks, tmp_path)
    states = predictor.initialize_batch([Source(1, ())])
    scores = []
    for token in (3, 4, EOS):
        scores.append(predictor.predict_batch(states).rows[0].get(token))
        states = predictor.consume_batch(states, [token])
    assert scores == [-3.0, -4.25, -0.5]


def test_calls_are_followed_only_where_a_prefix_goes(tmp_path: Path) -> None:
    """Forty levels, each calling the next one twice: 2^40 paths and, expanded, as many states."""
    names = [1003000000 + level for level in range(40)]
    networks = {ROOT: Automaton([(0, 1, names[0], 0.0)], {1: 0.0})}
    for name, callee in itertools.pairwise(names):
        networks[name] = Automaton([(0, 1, callee, 0.5), (1, 2, callee, 0.25)], {2: 0.0})
    networks[names[-1]] = Automaton([(0, 1, 3, 0.0)], {1: 0.0})
    space = space_of(rtn(networks, tmp_path))
    assert space.bound([space.root]) == pytest.approx([-0.75 * (2**39 - 1)])
    (children,) = space.expand([space.root])
    (child,) = children
    assert (child.last, child.total) == (3, -0.5 * 39)


def test_a_long_chain_of_calls_is_no_matter(tmp_path: Path) -> None:
    names = [1003000000 + level for level in range(300)]
    networks = {ROOT: Automaton([(0, 1, names[0], 0.0)], {1: 0.0})}
    for name, callee in itertools.pairwise(names):
        networks[name] = Automaton([(0, 1, callee, 0.0)], {1: 0.0})
    networks[names[-1]] = Automaton([(0, 1, 3, 1.0)], {1: 0.0})
    assert totals_of(space_of(rtn(networks, tmp_path))) == {(3,): -1.0}


def test_a_call_of_a_network_without_states_is_no_way(tmp_path: Path) -> None:
    networks = {
        ROOT: Automaton([(0, 1, CALLED[0], 1.0), (0, 1, 4, 2.0)], {1: 0.0}),
        CALLED[0]: Automaton([], {}),
    }
    space = space_of(rtn(networks, tmp_path))
    assert totals_of(space) == {(4,): -2.0} and space.bound([space.root]) == [-2.0]


def test_the_root_is_the_file_of_the_sentence_or_the_longest_span_of_s(tmp_path: Path) -> None:
    call = Automaton([(0, 1, CALLED[0], 0.0)], {1: 0.0})
    other = Automaton([(0, 1, 4, 0.0)], {1: 0.0})
    called = Automaton([(0, 1, 3, 0.0)], {1: 0.0})
    write({1001000002: other, ROOT: call, 1003000009: other, CALLED[0]: called}, tmp_path)
    assert totals_of(space_of(RtnPredictor(str(tmp_path)))) == {(3,): 0.0}
    other.write(tmp_path / "1.fst")
    assert totals_of(space_of(RtnPredictor(str(tmp_path)))) == {(4,): 0.0}
    call.write(tmp_path / "1.fst")
    assert totals_of(space_of(RtnPredictor(str(tmp_path)))) == {(3,): 0.0}


def test_networks_may_be_gzipped(tmp_path: Path) -> None:
    write(random_networks(1), tmp_path)
    expected = totals_of(space_of(RtnPredictor(str(tmp_path))))
    for path in (tmp_path / "1").iterdir():
        path.with_suffix(".fst.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert totals_of(space_of(RtnPredictor(str(tmp_path)))) == expected


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(SgdecError) as error:
        RtnPredictor(str(folder), **options).initialize_batch([Source(7, ())])
    message = str(error.value)
    assert "\n" not in message and message.endswith(".") and message.startswith(f"rtn: {folder}")
    return message


def simple(*labels: int, cost: float = 0.0) -> Automaton:
    return Automaton([(i, i + 1, label, cost) for i, label in enumerate(labels)], {len(labels): 0.0})


@pytest.mark.parametrize("options", [{}, {"minimize": False}])
def test_networks_that_call_themselves_are_one_line_that_names_the_cycle(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    first, second, third = CALLED
    networks = {ROOT: simple(first), first: simple(3, second), second: simple(third), third: simple(4, first)}
    message = refusal(write(networks, tmp_path, 7), **options)
    assert f"in a cycle, {first} -> {second} -> {third} -> {first} (sentence 7)" in message
    message = refusal(write({ROOT: simple(ROOT)}, tmp_path, 7), **options)
    assert f"in a cycle, {ROOT} -> {ROOT} (sentence 7)" in message


def test_unfit_networks_are_one_line_with_file_and_sentence(tmp_path: Path) -> None:
    assert f"{tmp_path}/7.fst: no such file (sentence 7), nor {tmp_path}/ntmap" in refusal(tmp_path)
    (tmp_path / "ntmap").write_text("X 3\n")
    assert "no line 'S NUMBER'" in refusal(tmp_path)
    (tmp_path / "ntmap").write_text("S 1\n")
    assert f"{tmp_path}/7.fst: no such file, nor any {tmp_path}/7/1001000*.fst (sentence 7)" in refusal(tmp_path)
    write({ROOT: simple(CALLED[0])}, tmp_path, 7)
    assert f"{tmp_path}/7/{CALLED[0]}.fst: no such file (sentence 7)" in refusal(tmp_path)
    write({ROOT: simple(CALLED[0]), CALLED[0]: simple(100)}, tmp_path, 7)
    message = refusal(tmp_path, context=Context(vocab_size=100))
    assert f"{CALLED[0]}.fst: state 0 has an arc with label 100, but there are 100 target tokens" in message
    write({ROOT: simple(CALLED[0]), CALLED[0]: Automaton([(0, 1, 3, 0.0)], {})}, tmp_path, 7)
    assert f"{ROOT}.fst: is empty: no path leads to a final state (sentence 7)" in refusal(tmp_path)
    write({ROOT: simple(CALLED[0]), CALLED[0]: Automaton([(0, 1, 1, 0.0), (0, 1, 3, 0.0)], {1: 0.0})}, tmp_path, 7)
    assert "has paths with and without <s> (label 1) (sentence 7)" in refusal(tmp_path)


def test_a_call_that_passes_silently_can_close_an_epsilon_cycle_that_gains(tmp_path: Path) -> None:
    root = Automaton([(0, 0, CALLED[0], 0.5), (0, 1, 3, 0.0)], {1: 0.0})
    write({ROOT: root, CALLED[0]: Automaton([(0, 1, 0, -0.25), (0, 1, 4, 0.0)], {1: -0.5})}, tmp_path, 7)
    assert f"{ROOT}.fst: the cost of the best epsilon path from state 0 diverges" in refusal(tmp_path)
    write({ROOT: root, CALLED[0]: Automaton([(0, 1, 0, 0.25), (0, 1, 4, 0.0)], {1: 0.5})}, tmp_path, 7)
    predictor = RtnPredictor(str(tmp_path))
    (state,) = predictor.initialize_batch([Source(7, ())])
    assert dict(predictor.predict_batch([state]).rows[0].lookup) == {3: 0.0, 4: -0.5}


def test_a_folder_that_is_not_there_is_found_out_at_once(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"rtn: .*/none: no such folder\. Give --rtn.path the folder"):
        RtnPredictor(str(tmp_path / "none"))


class TestRtnInSearch(SearchContract):
    vocab_size = 6
    limits = (4, 3, 2, 0)
    cyclic = False

    def draw(self, rng: np.random.Generator) -> RtnPredictor:
        networks = random_networks(int(rng.integers(2**32)), cyclic=self.cyclic, coarse=bool(rng.random() < 0.5))
        return rtn(networks, self.folder, normalize=bool(rng.random() < 0.3))


class TestCyclicRtnInSearch(TestRtnInSearch):
    cyclic = True


class TestRtn(PluginContract):
    plugin = "rtn"
    networks_are_cyclic = False

    def prepare(self, folder: Path) -> dict[str, Any]:
        for sentence in range(1, 4):
            write(random_networks(sentence + 10, cyclic=self.networks_are_cyclic), folder, sentence)
        return {"path": str(folder)}


class TestRtnWithCycles(TestRtn):
    networks_are_cyclic = True


class TestNormalizedRtn(TestRtn):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "normalize": True, "minimize": False}


class TestUnweightedRtn(TestRtn):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "use_weights": False}

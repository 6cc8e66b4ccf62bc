"""The lattice predictor scores exactly the paths of its lattice.

Oracles: the paths of small random lattices, listed by recursion and by pynini, and pynini's shortest distances.
"""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.fst import FstPredictor

from sgdec.context import BOS, EOS, Context
from sgdec.errors import SgdecError
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from tests.helpers.automata import Automaton
from tests.helpers.lattice_files import automaton_bytes
from tests.helpers.optional import optional

SEEDS = range(30)


def random_lattice(seed: int) -> Automaton:
    """Deterministic and acyclic, some costs negative; with and without <s>, ending in </s>, in final states or both.

    State 0 starts, the last state is where </s> leads to. There may be dead ends.
    """
    rng = random.Random(seed)
    size = rng.randint(3, 8)
    end = size
    lines = []
    begin = 0
    if rng.random() < 0.7:
        begin = 1
        lines.append(f"0 1 {BOS} {rng.uniform(-2, 3):.3f}")
    for state in range(begin, size):
        for label in rng.sample(range(3, 9), rng.randint(0, 4) if state > begin else 3):
            if state + 1 < size:
                lines.append(f"{state} {rng.randint(state + 1, size - 1)} {label} {rng.uniform(-2, 3):.3f}")
        if rng.random() < 0.6 or state == size - 1:
            lines.append(f"{state} {end} {EOS} {rng.uniform(-2, 3):.3f}")
        if rng.random() < 0.3:
            lines.append(f"{state} {rng.uniform(-2, 3):.3f}")
    if rng.random() < 0.9:
        lines.append(f"{end} {rng.uniform(-2, 3):.3f}")
    else:
        lines.append(f"{size - 1} 0.25")
    return Automaton.parsed("\n".join(lines))


def paths_of(fst: Automaton) -> dict[tuple[int, ...], float]:
    """The cost of each token sequence; of two ways to end the better one counts."""
    found: dict[tuple[int, ...], float] = {}
    for labels, cost in fst.paths():
        tokens = tuple(label for label in labels if label not in (BOS, EOS))
        found[tokens] = min(cost, found.get(tokens, math.inf))
    return found


def space_of(path: Path, weight: float = 1.0, **options: Any) -> SearchSpace:
    constellation = Constellation.of({"fst": FstPredictor(str(path), **options)}, weights=[weight])
    (root,) = constellation.roots([Source(7, (3, 4))])
    return SearchSpace(constellation, root)


def nodes_of(space: SearchSpace) -> Iterator[Node]:
    """Every node of an acyclic space."""
    waiting = [space.root]
    while waiting:
        node = waiting.pop()
        yield node
        if not node.finished:
            (children,) = space.expand([node])
            waiting.extend(children)


def totals_of(space: SearchSpace) -> dict[tuple[int, ...], float]:
    return {node.tokens[:-1]: node.total for node in nodes_of(space) if node.finished}


def written(fst: Automaton, folder: Path, name: str = "7.fst", arc_type: str = "standard") -> Path:
    return fst.write(folder / name, arc_type)


@pytest.mark.slow
@pytest.mark.parametrize("arc_type", ["standard", "log"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_space_is_the_set_of_paths_and_totals_are_their_costs(tmp_path: Path, seed: int, arc_type: str) -> None:
    fst = random_lattice(seed)
    expected = {tokens: -cost for tokens, cost in paths_of(fst).items()}
    assert expected
    assert totals_of(space_of(written(fst, tmp_path, arc_type=arc_type))) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_pynini_lists_the_same_paths(tmp_path: Path, seed: int) -> None:
    pynini = optional("pynini")
    fst = random_lattice(seed)
    paths = pynini.connect(pynini.Fst.read(str(written(fst, tmp_path)))).paths()  # without that, with dead ends
    found: dict[tuple[int, ...], float] = {}
    while not paths.done():
        tokens = tuple(label for label in paths.ilabels() if label not in (BOS, EOS))
        found[tokens] = min(float(paths.weight()), found.get(tokens, math.inf))
        paths.next()
    assert found == pytest.approx(paths_of(fst), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1.0, -0.5])
@pytest.mark.parametrize("options", [{}, {"use_weights": False}, {"normalize": True}])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_is_exactly_what_the_best_continuation_adds(
    tmp_path: Path, seed: int, options: dict[str, bool], weight: float
) -> None:
    space = space_of(written(random_lattice(seed), tmp_path), weight, **options)
    nodes = list(nodes_of(space))
    for node in nodes:
        if not node.finished:
            below = [n.total for n in nodes if n.finished and n.tokens[: node.length] == node.tokens]
            expected = max(below, default=-math.inf) - node.total
            assert space.bound([node]) == pytest.approx([expected], abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_root_bound_is_the_shortest_distance(tmp_path: Path, seed: int) -> None:
    path = written(random_lattice(seed), tmp_path)
    space = space_of(path)
    assert -space.bound([space.root])[0] == pytest.approx(_shortest(path)[0], abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_distances_on_cyclic_lattices_are_shortest_distances(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    arcs = [(s, rng.randrange(6), label, rng.random()) for s in range(6) for label in rng.sample(range(3, 9), 3)]
    path = written(Automaton(arcs, {5: 0.5}), tmp_path)
    predictor = FstPredictor(str(path))
    waiting = predictor.initialize_batch([Source(7, ())])
    reached = set(waiting)
    while waiting:
        found = {after for token in range(2, 9) for after in predictor.consume_batch(waiting, [token] * len(waiting))}
        waiting = list(found - reached)
        reached |= found
    shortest = _shortest(path)
    own = [state for state in reached if state >= 0]  # of the lattice itself: the first one, numbered as in the file
    assert own
    expected = [-shortest[number] for number in own]
    assert predictor.best_remaining(own) == pytest.approx(expected, abs=1e-5)


def _shortest(path: Path) -> list[float]:
    pynini = optional("pynini")
    return [float(weight) for weight in pynini.shortestdistance(pynini.Fst.read(str(path)), reverse=True)]


def test_a_cycle_that_gains_has_no_bound_and_leaves_others_alone(tmp_path: Path) -> None:
    fst = Automaton.parsed("0 1 3 1\n1 1 4 -0.5\n1 2 2 0\n0 3 5 1\n3 2 2 0.25\n2 0\n")
    space = space_of(written(fst, tmp_path))
    (children,) = space.expand([space.root])
    gains, other = sorted(children, key=lambda node: node.last)
    assert space.bound([space.root, gains, other]) == [math.inf, math.inf, -0.25]


def test_a_cycle_that_loses_has_no_lower_bound(tmp_path: Path) -> None:
    space = space_of(written(Automaton.parsed("0 0 3 1\n0 1 2 0\n1 0\n"), tmp_path), weight=-1.0)
    assert space.bound([space.root]) == [math.inf]


@pytest.mark.parametrize("seed", SEEDS)
def test_normalized_lattices_without_dead_ends_sum_to_one(tmp_path: Path, seed: int) -> None:
    fst = random_lattice(seed)
    optional("pynini").connect(fst.compile()).write(str(tmp_path / "connected.fst"))
    totals = totals_of(space_of(tmp_path / "connected.fst", normalize=True))
    assert set(totals) == set(paths_of(fst))
    assert math.fsum(map(math.exp, totals.values())) == pytest.approx(1.0, abs=1e-9)


def test_normalization_takes_arcs_and_end_together_and_keeps_ratios(tmp_path: Path) -> None:
    # At state 1: a cost of 1 for token 4, and the better of 2 + 1 (</s> arc and final) and 2 (own final) to end.
    fst = Automaton.parsed("0 1 3 7\n1 2 4 1\n1 3 2 2\n1 2\n2 3 2 5\n3 1\n")
    space = space_of(written(fst, tmp_path), normalize=True)
    norm = math.log(math.exp(-1) + math.exp(-2))
    expected = {(3,): -2 - norm, (3, 4): -1 - norm}
    assert totals_of(space) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_weights_the_paths_stay_and_every_score_is_zero(tmp_path: Path, seed: int) -> None:
    fst = random_lattice(seed)
    assert totals_of(space_of(written(fst, tmp_path), use_weights=False)) == dict.fromkeys(paths_of(fst), 0.0)


def test_a_leading_bos_arc_counts_towards_the_first_token(tmp_path: Path) -> None:
    space = space_of(written(Automaton.parsed("0 1 1 0.5\n1 2 3 0.25\n2 3 2 0.125\n3 0\n"), tmp_path))
    (child,) = next(iter(space.expand([space.root])))
    assert (child.last, child.total) == (3, -0.75)
    (end,) = next(iter(space.expand([child])))
    assert (end.last, end.total) == (EOS, -0.875)


def test_the_empty_sentence_bears_the_score_of_bos(tmp_path: Path) -> None:
    space = space_of(written(Automaton.parsed("0 1 1 0.5\n1 2 2 0.25\n2 0\n"), tmp_path))
    assert totals_of(space) == {(): -0.75}


def test_an_end_arc_into_a_state_that_is_not_final_is_no_end(tmp_path: Path) -> None:
    space = space_of(written(Automaton.parsed("0 1 3 1\n0 2 2 0\n1 3 2 1\n3 0\n"), tmp_path))
    assert totals_of(space) == {(3,): -2.0}


def test_after_the_end_and_off_the_lattice_nothing_is_allowed(tmp_path: Path) -> None:
    predictor = FstPredictor(str(written(Automaton.parsed("0 1 3 1\n1 2 2 1\n2 0\n"), tmp_path)))
    (start,) = predictor.initialize_batch([Source(7, ())])
    off, middle = predictor.consume_batch([start, start], [8, 3])
    (ended,) = predictor.consume_batch([middle], [EOS])
    for row in predictor.predict_batch([off, ended]).rows:
        assert dict(row.lookup) == {}
        assert row.restricts
    assert predictor.best_remaining([off, ended]) == [-math.inf, 0.0]
    assert predictor.worst_remaining([off, ended]) == [math.inf, 0.0]
    assert predictor.consume_batch([off, ended, start], [3, 3, EOS]) == [off] * 3  # there is no such arc


def test_rows_list_tokens_ascending_and_are_made_once(tmp_path: Path) -> None:
    predictor = FstPredictor(str(written(Automaton.parsed("0 1 9 1\n0 1 3 2\n0 1 5 0\n0 1 2 1\n1 0\n"), tmp_path)))
    states = predictor.initialize_batch([Source(7, ())])
    (row,) = predictor.predict_batch(states).rows
    assert row.tokens == [2, 3, 5, 9]
    assert predictor.predict_batch(states).rows == [row]


def test_paths_that_meet_in_a_state_have_the_same_key(tmp_path: Path) -> None:
    fst = Automaton.parsed("0 1 3 1\n0 1 4 2\n0 2 5 0\n1 3 2 0\n2 3 2 0\n3 0\n")
    space = space_of(written(fst, tmp_path))
    (children,) = space.expand([space.root])
    by_token = {node.last: node for node in children}
    three, four, five, root = space.keys([by_token[3], by_token[4], by_token[5], space.root])
    assert three == four
    assert len({three, five, root}) == 3


def test_the_sentence_number_chooses_the_lattice_plain_or_gzipped(tmp_path: Path) -> None:
    for number, label in ((1, 3), (2, 4)):
        data = automaton_bytes([(0, label, 1.0, 1)], {1: 0.0})
        (tmp_path / f"{number}.fst.gz").write_bytes(gzip.compress(data))
    constellation = Constellation.of({"fst": FstPredictor(str(tmp_path / "{id}.fst.gz"))})
    roots = constellation.roots([Source(2, ()), Source(1, ())])
    assert [set(totals_of(SearchSpace(constellation, root))) for root in roots] == [{(4,)}, {(3,)}]


def test_a_path_without_a_number_is_read_once_for_all_sentences(tmp_path: Path) -> None:
    path = written(Automaton.parsed("0 1 3 1\n1 0\n"), tmp_path)
    constellation = Constellation.of({"fst": FstPredictor(str(path))})
    path.unlink()
    roots = constellation.roots([Source(1, ()), Source(2, ())])
    assert [totals_of(SearchSpace(constellation, root)) for root in roots] == [{(3,): -1.0}] * 2


MISTAKES = {
    "two arcs of one label": ("0 1 3 1\n0 2 3 2\n1 0\n2 0\n", "not deterministic: state 0 has two arcs with label 3"),
    "epsilon": ("0 1 0 1\n1 0\n", "state 0 has an epsilon arc (label 0)"),
    "label outside the vocabulary": ("0 1 100 1\n1 0\n", "arc with label 100, but there are 100 target tokens"),
    "no final state": ("0 1 3 1\n", "is empty: no path leads to a final state"),
    "no state at all": ("", "is empty: no path leads to a final state"),
    "<s> on some paths only": ("0 1 1 0\n0 2 3 1\n1 2 3 1\n2 0\n", "has paths with and without <s>"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_unfit_lattice_is_one_line_with_file_sentence_and_way_out(tmp_path: Path, mistake: str) -> None:
    text, complaint = MISTAKES[mistake]
    written(Automaton.parsed(text), tmp_path)
    predictor = FstPredictor(str(tmp_path / "{id}.fst"), context=Context(vocab_size=100))
    with pytest.raises(SgdecError) as error:
        predictor.initialize_batch([Source(7, ())])
    message = str(error.value)
    assert message.startswith(f"fst: {tmp_path}/7.fst: ")
    assert f"{complaint} (sentence 7). " in message or f"{complaint} (label 1) (sentence 7). " in message
    assert message.endswith(".") and "\n" not in message
    assert error.value.exit_status == 1


def test_a_missing_lattice_names_file_sentence_and_option(tmp_path: Path) -> None:
    with pytest.raises(SgdecError) as error:
        FstPredictor(str(tmp_path / "{id}.fst")).initialize_batch([Source(17, ())])
    assert str(error.value) == (
        f"fst: {tmp_path}/17.fst: no such file (sentence 17). "
        "Expected one lattice for each input line (--fst.path)."
    )


def test_a_missing_lattice_of_all_sentences_is_found_out_at_once(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"fst: .*/%d.fst: no such file\. Give --fst.path a pattern such as .*{id}"):
        FstPredictor(str(tmp_path / "%d.fst"))


@pytest.mark.parametrize(("there", "wanted"), [("1.fst.gz", "{id}.fst"), ("1.fst", "{id}.fst.gz")])
def test_a_lattice_with_the_other_ending_is_named(tmp_path: Path, there: str, wanted: str) -> None:
    (tmp_path / there).write_bytes(b"")
    with pytest.raises(SgdecError, match=rf"no such file \(sentence 1\)\. There is {tmp_path / there}\.$"):
        FstPredictor(str(tmp_path / wanted)).initialize_batch([Source(1, ())])


def test_any_label_is_allowed_while_nobody_knows_the_vocabulary(tmp_path: Path) -> None:
    assert totals_of(space_of(written(Automaton.parsed("0 1 123456 1\n1 0\n"), tmp_path))) == {(123456,): -1.0}


def test_lattices_of_a_batch_are_read_together_as_each_alone(tmp_path: Path) -> None:
    """Also if one has another type of arcs; a faulty one has the error that it has alone."""
    sources = [Source(i + 1, ()) for i in range(30)]
    usable, bad = [], sources[-1]
    for seed, source in enumerate(sources):
        random_lattice(seed).write(tmp_path / f"{source.id}.fst", "log" if seed == 7 else "standard")
        if source is bad:
            Automaton.parsed("0 1 0 1\n1 0\n").write(tmp_path / f"{source.id}.fst")
        try:
            FstPredictor(str(tmp_path / "{id}.fst")).initialize_batch([source])
            usable.append(source)
        except SgdecError:
            pass
    assert 20 < len(usable) < 30
    for number in (1, 3, len(usable)):
        together, alone = (FstPredictor(str(tmp_path / "{id}.fst")) for _ in range(2))
        ours = together.initialize_batch(usable[:number])
        theirs = [alone.initialize_batch([source])[0] for source in usable[:number]]
        for _ in range(4):
            rows, expected = (
                [row.lookup for row in predictor.predict_batch(states).rows]
                for predictor, states in ((together, ours), (alone, theirs))
            )
            assert rows == expected
            assert together.best_remaining(ours) == alone.best_remaining(theirs)
            tokens = [max(row, default=3) for row in rows]
            ours, theirs = together.consume_batch(ours, tokens), alone.consume_batch(theirs, tokens)
    errors = []
    for batch in ([bad], [usable[0], bad, usable[1]]):
        with pytest.raises(SgdecError) as error:
            FstPredictor(str(tmp_path / "{id}.fst")).initialize_batch(batch)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_an_arc_out_of_one_lattice_into_another_of_its_batch_is_damage(tmp_path: Path) -> None:
    for number in (1, 2):
        Automaton.parsed("0 1 3 1\n1 0\n").write(tmp_path / f"{number}.fst")
    data = bytearray((tmp_path / "1.fst").read_bytes())
    assert int.from_bytes(data[-16:-12], "little") == 1  # the target of its only arc, before the last state
    data[-16:-12] = (2).to_bytes(4, "little")
    (tmp_path / "1.fst").write_bytes(data)
    predictor = FstPredictor(str(tmp_path / "{id}.fst"))
    for batch in ([Source(1, ())], [Source(1, ()), Source(2, ())]):
        with pytest.raises(SgdecError, match=r"1\.fst: cut short, or not an OpenFst file"):
            predictor.initialize_batch(batch)

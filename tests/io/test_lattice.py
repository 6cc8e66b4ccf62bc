"""Lattice files: what pynini wrote is what is read, what is written rescores to the same totals, and a damaged file
is one clear line of ours and nothing on standard error.
"""

from __future__ import annotations

import gzip
import math
import os
import random
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.fst import FstPredictor

from sgdec.context import BOS, EOS
from sgdec.errors import SgdecError
from sgdec.io.lattice import Arc, read_lattice, require_ends, write_nbest
from sgdec.io.openfst import LatticeError
from sgdec.protocol import Hypothesis, Source
from sgdec.search.constellation import Constellation
from sgdec.testing.enumeration import enumerate_space
from tests.helpers.automata import Automaton
from tests.helpers.lattice_files import automaton_bytes, paths_bytes, write_paths
from tests.helpers.optional import optional


def compiled(text: str, **options: Any) -> Any:
    """By OpenFst, from AT&T text."""
    compiler = optional("pywrapfst").Compiler(**options)
    compiler.write(text)
    return optional("pynini").Fst.from_pywrapfst(compiler.compile())


def hypothesis(
    tokens: tuple[int, ...],
    ledger: tuple[tuple[float, ...], ...],
    weights: tuple[float | None, ...] = (1.0, 1.0),
) -> Hypothesis:
    total = sum(weight * score for row in ledger for weight, score in zip(weights, row, strict=True) if weight)
    return Hypothesis(tokens, total, total, ledger, tuple(weights for _ in ledger))


def totals_in(path: Path) -> dict[tuple[int, ...], float]:
    """All paths of a lattice, as the predictor reads them."""
    paths = enumerate_space(Constellation.of({"fst": FstPredictor(str(path))}), Source(1, ()))
    return {found.tokens: found.total for found in paths}


@pytest.mark.parametrize("arc_type", ["standard", "log", "log64"])
@pytest.mark.parametrize("packed", [False, True])
def test_states_arcs_and_final_costs_are_read(tmp_path: Path, arc_type: str, packed: bool) -> None:
    fst = compiled("0 1 7 0.5\n0 2 3 -1.5\n1 2 2 0\n2 0.25\n0 4\n", acceptor=True, arc_type=arc_type)
    data = fst.write_to_string()
    (tmp_path / "a.fst").write_bytes(gzip.compress(data) if packed else data)
    lattice = read_lattice(tmp_path / "a.fst")
    assert lattice.start == 0
    assert lattice.arcs == ((Arc(3, -1.5, 2), Arc(7, 0.5, 1)), (Arc(2, 0.0, 2),), ())
    assert lattice.final.tolist() == [4.0, math.inf, 0.25]


def test_symbol_tables_do_not_matter(tmp_path: Path) -> None:
    fst = compiled("0 1 7 0.5\n1\n", acceptor=True)
    symbols = optional("pywrapfst").SymbolTable()
    symbols.add_symbol("seven", 7)
    fst.set_input_symbols(symbols)
    fst.write(str(tmp_path / "a.fst"))
    assert read_lattice(tmp_path / "a.fst").arcs == ((Arc(7, 0.5, 1),), ())


def _write(path: Path, what: str) -> None:
    data = paths_bytes([((3,) * 50, 1.0)])
    if what == "transducer":
        data = automaton_bytes([(0, (3, 4), 0.0, 1)], {1: 0.0})
    elif what == "not a number":
        data = automaton_bytes([(0, 3, math.nan, 1)], {1: 0.0})
    elif what == "gzip cut short":
        data = gzip.compress(data)[:-20]
    elif what == "gzip damaged":
        data = gzip.compress(data)[:30] + b"\xff" * 40
    elif what == "cut short":
        data = data[:-20]
    elif what == "text":
        data = b"0 1 3 3 0.5\n1\n"
    elif what == "nothing":
        data = b""
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("transducer", "is a transducer: state 0 has an arc 3:4. Expected an acceptor"),
        ("not a number", "a weight at state 0 is nan. Expected costs"),
        ("gzip cut short", "the gzip file is damaged or cut short."),
        ("gzip damaged", "the gzip file is damaged or cut short."),
        ("cut short", "cut short, or not an OpenFst file."),
        ("text", "cut short, or not an OpenFst file."),
        ("nothing", "cut short, or not an OpenFst file."),
    ],
)
def test_a_bad_file_is_one_clear_line_and_openfst_stays_silent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], what: str, complaint: str
) -> None:
    _write(tmp_path / "3.fst", what)
    with pytest.raises(LatticeError) as error:
        read_lattice(tmp_path / "3.fst")
    assert str(error.value).startswith(f"{tmp_path}/3.fst: {complaint}")
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_standard_error_works_again_after_reading(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path / "3.fst", "cut short")
    with pytest.raises(LatticeError):
        read_lattice(tmp_path / "3.fst")
    os.write(2, b"heard\n")
    assert capfd.readouterr().err == "heard\n"


@pytest.mark.parametrize("path", ["missing.fst", "."])
def test_what_cannot_be_opened_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(LatticeError, match=r"no such file|cannot be read \(Is a directory\)"):
        read_lattice(tmp_path / path)


def test_other_formats_of_openfst_hold_the_same_lattice(tmp_path: Path) -> None:
    fst = compiled("0 1 7 0.5\n0 2 3 -1.5\n1 2 2 0\n2 0.25\n0 4\n", acceptor=True)
    optional("pywrapfst").convert(fst, "const").write(str(tmp_path / "const.fst"))
    fst.write(str(tmp_path / "vector.fst"))
    const, vector = (read_lattice(tmp_path / f"{name}.fst") for name in ("const", "vector"))
    assert const.arcs == vector.arcs
    assert (const.start, const.final.tolist()) == (vector.start, vector.final.tolist())


def test_pynini_is_needed_neither_to_read_nor_to_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fst = compiled("0 1 7 0.5\n1\n", acceptor=True)
    fst.write(str(tmp_path / "vector.fst"))
    optional("pywrapfst").convert(fst, "const").write(str(tmp_path / "const.fst"))
    monkeypatch.setitem(sys.modules, "pynini", None)
    assert read_lattice(tmp_path / "vector.fst").arcs == ((Arc(7, 0.5, 1),), ())
    assert read_lattice(tmp_path / "const.fst").arcs == ((Arc(7, 0.5, 1),), ())
    assert write_nbest(tmp_path / "1.fst", []) == 0
    assert read_lattice(tmp_path / "1.fst").start == -1


@pytest.mark.parametrize("arc_type", ["standard", "log64"])
def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, arc_type: str) -> None:
    fst = compiled("0 1 7 0.5\n0 2 3 -1.5\n1 2 2 0\n2 0.25\n0 4\n", acceptor=True, arc_type=arc_type)
    whole = fst.write_to_string()
    for length in range(len(whole)):
        (tmp_path / "a.fst").write_bytes(whole[:length])
        with pytest.raises(LatticeError, match="cut short, or not an OpenFst file"):
            read_lattice(tmp_path / "a.fst")


@pytest.mark.parametrize("target", [-1, 3, 1 << 30])
def test_an_arc_that_leads_nowhere_is_refused(tmp_path: Path, target: int) -> None:
    data = automaton_bytes([(0, 7, 0.5, 1)], {1: 0.0})
    arc = struct.pack("<iifi", 7, 7, 0.5, 1)
    assert arc in data
    (tmp_path / "a.fst").write_bytes(data.replace(arc, struct.pack("<iifi", 7, 7, 0.5, target)))
    with pytest.raises(LatticeError, match="cut short, or not an OpenFst file"):
        read_lattice(tmp_path / "a.fst")


@pytest.mark.parametrize("name", ["1.fst", "1.fst.gz"])
@pytest.mark.parametrize("seed", range(10))
def test_a_written_list_rescores_to_the_same_totals(tmp_path: Path, seed: int, name: str) -> None:
    rng = random.Random(seed)
    scores: dict[tuple[int, ...], tuple[float, ...]] = {}  # of each prefix, so that equal prefixes score the same
    hypotheses = []
    for tokens in {tuple(rng.choices(range(3, 6), k=rng.randint(0, 6))) for _ in range(20)}:
        prefixes = [(*tokens, EOS)[:length] for length in range(1, len(tokens) + 2)]
        ledger = tuple(scores.setdefault(p, (rng.uniform(-9, 9), rng.uniform(-9, 9))) for p in prefixes)
        hypotheses.append(hypothesis(tokens, ledger, (0.7, -0.2)))
    assert write_nbest(tmp_path / name, hypotheses) == 0
    assert totals_in(tmp_path / name) == pytest.approx({h.tokens: h.score for h in hypotheses}, abs=1e-5)


def test_arcs_bear_the_weighted_scores_of_their_tokens(tmp_path: Path) -> None:
    write_nbest(
        tmp_path / "1.fst",
        [
            hypothesis((5, 3), ((-1.0, -2.0), (-0.5, 0.0), (-0.25, -1.0)), (1.0, 0.5)),
            hypothesis((5, 4), ((-1.0, -2.0), (-4.0, 0.0), (-0.5, 0.0)), (1.0, 0.5)),
        ],
    )
    lattice = read_lattice(tmp_path / "1.fst")
    (begin,) = lattice.arcs[lattice.start]
    (shared,) = lattice.arcs[begin.target]
    three, four = lattice.arcs[shared.target]
    (end,) = lattice.arcs[three.target]
    assert [(arc.label, arc.cost) for arc in (begin, shared, three, four, end)] == [
        (BOS, 0.0),
        (5, 2.0),
        (3, 0.5),
        (4, 4.0),
        (EOS, 0.75),
    ]
    assert lattice.final[end.target] == 0.0


def test_pynini_finds_the_best_hypothesis_as_shortest_path(tmp_path: Path) -> None:
    worse = hypothesis((5, 3), ((-1.0, 0.0), (-2.0, 0.0), (-1.0, 0.0)))
    best = hypothesis((7,), ((-1.0, -1.0), (0.5, 0.0)))
    write_nbest(tmp_path / "1.fst", [worse, best])
    pynini = optional("pynini")
    path = pynini.shortestpath(pynini.Fst.read(str(tmp_path / "1.fst"))).paths()
    assert (path.ilabels(), float(path.weight())) == ([BOS, 7, EOS], 1.5)


def test_equal_prefixes_with_different_scores_keep_their_totals(tmp_path: Path) -> None:
    first = hypothesis((5, 3), ((-1.0, -2.0), (-0.5, 0.0), (0.0, 0.0)), (1.0, None))
    second = hypothesis((5, 4), ((-1.0, -2.0), (-4.0, -1.0), (-0.5, 0.0)), (None, 1.0))
    write_nbest(tmp_path / "1.fst", [first, second])
    assert totals_in(tmp_path / "1.fst") == pytest.approx({(5, 3): -1.5, (5, 4): -3.0}, abs=1e-6)


def test_of_equal_hypotheses_the_best_counts(tmp_path: Path) -> None:
    pair = [hypothesis((5,), ((-3.0,), (0.0,)), (1.0,)), hypothesis((5,), ((-2.0,), (0.0,)), (1.0,))]
    for number, hypotheses in enumerate((pair, pair[::-1])):
        write_nbest(tmp_path / f"{number}.fst", hypotheses)
        assert totals_in(tmp_path / f"{number}.fst") == {(5,): -2.0}


def test_a_hypothesis_without_a_ledger_has_its_total_at_the_end(tmp_path: Path) -> None:
    write_nbest(tmp_path / "1.fst", [Hypothesis((5, 6), -2.5, -2.5), Hypothesis((), -0.5, -0.5)])
    assert totals_in(tmp_path / "1.fst") == {(5, 6): -2.5, (): -0.5}


def test_long_hypotheses_do_not_gather_rounding_errors(tmp_path: Path) -> None:
    rng = random.Random(1)
    long = hypothesis(tuple([4] * 300), tuple((rng.uniform(-9e3, 0),) for _ in range(301)), (1.0,))
    write_nbest(tmp_path / "1.fst", [long])
    assert totals_in(tmp_path / "1.fst")[long.tokens] == pytest.approx(long.score, abs=1e-2)  # of a million


def test_hypotheses_with_the_unknown_token_are_left_out_and_counted(tmp_path: Path) -> None:
    known = hypothesis((5,), ((-3.0,), (0.0,)), (1.0,))
    unknown = hypothesis((0, 5), ((-1.0,), (-1.0,), (0.0,)), (1.0,))
    assert write_nbest(tmp_path / "1.fst", [unknown, known]) == 1
    assert totals_in(tmp_path / "1.fst") == {(5,): -3.0}


def test_no_hypotheses_are_an_empty_lattice(tmp_path: Path) -> None:
    assert write_nbest(tmp_path / "1.fst", []) == 0
    assert read_lattice(tmp_path / "1.fst").start == -1


def test_a_full_disk_or_a_missing_folder_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "missing" / "1.fst", Path("/dev/full")):
        with pytest.raises(SgdecError, match=rf"{path}: cannot be written \(No s"):
            write_nbest(path, [hypothesis((5,), ((-3.0,), (0.0,)), (1.0,))])
    assert capfd.readouterr().err == ""


def test_equal_lists_are_equal_files(tmp_path: Path) -> None:
    for name in ("a.fst.gz", "b.fst.gz"):
        write_nbest(tmp_path / name, [hypothesis((5,), ((-3.0,), (0.0,)), (1.0,))])
    first, second = ((tmp_path / name).read_bytes() for name in ("a.fst.gz", "b.fst.gz"))
    assert first == second
    assert first[4:8] == bytes(4)  # gzip would keep the time of writing there


def read_and_required(path: Path) -> None:
    require_ends(read_lattice(path), path)


WORDS = ("the", "cat", "sat", "on", "mat")


@pytest.mark.parametrize("names", [("<eps>", *WORDS), ("<eps>", "<s>", *WORDS), ("<s>", "<pad>", "</s>", *WORDS)])
@pytest.mark.parametrize("text", ["the cat sat on mat", "on mat", "mat the cat"])
def test_a_lattice_whose_own_symbols_number_words_otherwise_is_refused(
    tmp_path: Path, names: tuple[str, ...], text: str
) -> None:
    """Whether 1 and 2 are in it or not: the next lattice of the same table has them."""
    pynini = optional("pynini")
    table = pynini.SymbolTable()
    for name in names:
        table.add_symbol(name)
    fst = pynini.accep(text, token_type=table)
    fst.set_input_symbols(table)
    fst.set_output_symbols(table)
    fst.write(str(tmp_path / "a.fst"))
    with pytest.raises(LatticeError, match=r"has a symbol table in which .* set_input_symbols\(None\)\.$"):
        read_lattice(tmp_path / "a.fst")
    fst.set_input_symbols(None)
    fst.write(str(tmp_path / "a.fst"))
    read_lattice(tmp_path / "a.fst")


@pytest.mark.parametrize("names", [("<eps>", "<s>", "</s>", *WORDS), ("-", "<BOS>", "<EOS>", *WORDS), ("<unk>",)])
def test_a_symbol_table_of_our_numbering_is_accepted(tmp_path: Path, names: tuple[str, ...]) -> None:
    pynini = optional("pynini")
    table = pynini.SymbolTable()
    for name in names:
        table.add_symbol(name)
    fst = pynini.accep("[3][4]")
    fst.set_input_symbols(table)
    fst.write(str(tmp_path / "a.fst"))
    read_and_required(tmp_path / "a.fst")


@pytest.mark.parametrize("path", [(1, 2, 3, 4, 5), (5, 1, 2, 3), (3, 2, 4)])
def test_a_lattice_in_which_2_is_a_word_is_refused(tmp_path: Path, path: tuple[int, ...]) -> None:
    """Beside a path that ends properly: without this check it would be the only one."""
    write_paths(tmp_path / "a.fst", [(path, 0.0), ((6, 7), 0.0)])
    with pytest.raises(LatticeError, match=r"continues after </s>: state \d+ has an arc with label 2"):
        read_and_required(tmp_path / "a.fst")


@pytest.mark.parametrize("text", ["0 1 3\n1 2 2\n2\n", "0 1 2\n1\n1 2 3\n2\n", "0 1 2\n1 2 0\n1 3 4\n2\n3\n"])
def test_paths_may_end_at_an_arc_of_the_end_of_sentence(tmp_path: Path, text: str) -> None:
    """In a final state, in one with arcs, and by epsilon."""
    Automaton.parsed(text).write(tmp_path / "a.fst")
    read_and_required(tmp_path / "a.fst")

"""What is written without OpenFst is what OpenFst itself would write: equal after reading, with true properties."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.io.openfst_writing import OpenFstState, openfst_bytes, write_openfst
from sgdec.io.transducer import read_transducer
from tests.helpers.optional import optional

pynini = optional("pynini")
pywrapfst = optional("pywrapfst")


@st.composite
def automata(draw: st.DrawFn) -> list[OpenFstState]:
    number = draw(st.integers(0, 6))
    costs = st.floats(allow_nan=False, width=32).filter(lambda cost: cost > -math.inf)
    labels = st.integers(0, 2**31 - 1)
    acceptor = draw(st.booleans())
    states: list[OpenFstState] = []
    for _ in range(number):
        arcs = draw(st.lists(st.tuples(labels, labels, costs, st.integers(0, number - 1)), max_size=5))
        states.append((draw(costs), [(i, i if acceptor else o, cost, target) for i, o, cost, target in arcs]))
    return states


@given(automata())
def test_pynini_reads_what_it_would_have_built(states: list[OpenFstState]) -> None:
    read = pynini.Fst.read_from_string(openfst_bytes(states))
    built = pynini.Fst()
    built.add_states(len(states))
    if states:
        built.set_start(0)
    for state, (final, arcs) in enumerate(states):
        if final != math.inf:
            built.set_final(state, final)
        for arc in arcs:
            built.add_arc(state, pynini.Arc(*arc))
    assert read.verify()
    assert pynini.equal(read, built, delta=0.0)
    names = (pywrapfst.FstProperties.ACCEPTOR, pywrapfst.FstProperties.NOT_ACCEPTOR)
    is_acceptor = all(arc[0] == arc[1] for _, arcs in states for arc in arcs)
    for test in (False, True):  # as the file says, and as OpenFst finds
        stated = [read.properties(name, test) == name for name in names]
        assert stated == [is_acceptor, not is_acceptor]


@given(automata())
def test_our_own_reader_reads_it(tmp_path_factory: pytest.TempPathFactory, states: list[OpenFstState]) -> None:
    path = tmp_path_factory.mktemp("written") / "a.fst.gz"
    write_openfst(path, states)
    assert gzip.decompress(path.read_bytes()) == openfst_bytes(states)
    found = read_transducer(path)
    assert found.start == (0 if states else -1)
    assert found.final.tolist() == [final for final, _ in states]
    for state, (_, arcs) in enumerate(states):
        assert sorted(map(tuple, found.arcs(state))) == sorted(arcs)


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    from sgdec.errors import SgdecError

    with pytest.raises(SgdecError, match=r"1.fst: cannot be written \(No such file or directory\)"):
        write_openfst(tmp_path / "none" / "1.fst", [])

"""Lattices in two forms with the same paths and costs: as they are, and with all costs moved to the front.

    python lattices.py FOLDER|random WORK

FOLDER has the lattices 1.fst, 2.fst, ... (or .fst.gz): OpenFst acceptors over token ids, whose costs are negated
natural logs. ``random`` makes random lattices. Writes WORK/plain/{id}.fst, WORK/pushed/{id}.fst and the input of the
searches, WORK/input.ids: one line for each lattice, whose content does not matter.

Weight pushing (Mohri 2009, "Weighted Automata Algorithms") changes no path and no total. After it the best path from
any state but the first to the end costs nothing: a prefix has already paid for its best continuation in the lattice.
"""

from __future__ import annotations

import gzip
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from sgdec.plugins.host import install_hint

try:
    import pynini
except ModuleNotFoundError as error:
    sys.exit(f"{error.msg}{install_hint('pynini')}.")

SENTENCES, STATES, WORDS = int(os.environ.get("SENTENCES", 60)), int(os.environ.get("STATES", 40)), range(3, 103)


def main(source: str, work: Path) -> None:
    for kind in ("plain", "pushed"):
        (work / kind).mkdir(parents=True, exist_ok=True)
        for old in (work / kind).glob("*.fst"):
            old.unlink()
    states = arcs = number = 0
    for number, lattice in enumerate(made() if source == "random" else read(Path(source)), start=1):
        lattice.write(f"{work}/plain/{number}.fst")
        pynini.push(lattice, push_weights=True, reweight_type="to_initial").write(f"{work}/pushed/{number}.fst")
        states += lattice.num_states()
        arcs += sum(lattice.num_arcs(state) for state in lattice.states())
    (work / "input.ids").write_text("0\n" * number)
    print(f"lattices: {number}; states: {states / number:.0f} each; arcs: {arcs / number:.0f} each")


def read(folder: Path) -> Iterator[pynini.Fst]:
    """Lattices 1, 2, ... of a folder, deterministic, without epsilons and dead ends."""
    names = {path.name.removesuffix(".gz").removesuffix(".fst"): path for path in folder.glob("*.fst*")}
    if not names:
        sys.exit(f"{folder}: no lattices. Name them 1.fst, 2.fst, ... (or .fst.gz).")
    for number in range(1, len(names) + 1):
        if str(number) not in names:
            sys.exit(f"{folder}: {len(names)} lattices, but no {number}.fst. Number them from 1 without gaps.")
        data = names[str(number)].read_bytes()
        lattice = pynini.Fst.read_from_string(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        if not lattice.properties(pynini.I_DETERMINISTIC, True) or lattice.properties(pynini.I_EPSILONS, True):
            lattice = pynini.determinize(pynini.rmepsilon(lattice))
        if lattice.connect().num_states() == 0:
            sys.exit(f"{names[str(number)]}: no path leads to a final state.")
        yield lattice


def made() -> Iterator[pynini.Fst]:
    """Random lattices: up to four words lead from a state to one of the next three."""
    rng = random.Random(1)
    for _ in range(SENTENCES):
        lattice = pynini.Fst()
        lattice.add_states(STATES + 1)
        lattice.set_start(0)
        lattice.set_final(STATES)
        for state in range(STATES):
            for word in rng.sample(WORDS, rng.randint(1, 4)):
                following = min(state + rng.randint(1, 3), STATES)
                lattice.add_arc(state, pynini.Arc(word, word, rng.expovariate(0.5), following))
        yield lattice.connect()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

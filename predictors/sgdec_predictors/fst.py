"""Lattice rescoring: the arcs of a deterministic weighted acceptor (Stahlberg et al. 2017, Table 1).

Score of token w at state q: minus the cost of q's arc with label w; tokens without an arc are forbidden. A leading
``<s>`` arc consumes no token, and its score is added to that of the first token. Score of ``</s>``: the better of
minus (cost of q's ``</s>`` arc + final cost of its target) and minus (q's own final cost). So a total is minus the
cost of a path.

State: a number, which stands for a state of one lattice, or for having ended or left the lattice. Cost: a lattice is
read as arrays; after that each prefix is a look-up, one by one or, for all hypotheses of many sentences together, as
array operations. Bounds take time linear in the arcs, once per lattice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Scores, SgdecError, Source
from sgdec.arcs import DEAD, Automata, Automaton
from sgdec.arrays import Ints
from sgdec.files import Lattice, LatticeError, read_lattices, require_ends
from sgdec.protocol import FORBIDDEN, Arcs, Candidates, Listed, SparseRow, Steps
from sgdec_predictors.automata.walkable import ENDED, WalkableLattice, WalkableWays, walkable

MANY = 32
"""At least this many rows are gathered as arrays; fewer are looked up one by one."""
NOWHERE = WalkableWays([], [], [])
NO_ROW = SparseRow([], [])
"""After ``</s>`` and off the lattice nothing can follow."""


class FstPredictor(BatchPredictor):
    """Scores along the paths of one lattice per sentence; all tokens without an arc are forbidden.

    >>> import tempfile
    >>> from math import inf
    >>> from sgdec.files import write_openfst
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_openfst(f"{folder}/1.fst", [(inf, [(7, 7, 0.0, 1)]), (inf, [(2, 2, 0.5, 2)]), (0.0, [])])
    ...     predictor = FstPredictor(folder + "/{id}.fst")
    ...     states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(predictor.consume_batch(states, [7])).rows
    [SparseRow({2: -0.5}, default=-inf)]
    """

    independent_rows = True
    arcs_of_tensors = True

    def __init__(
        self,
        path: Annotated[str, Field(description="lattice, .fst or .fst.gz; {id} is the sentence number")],
        use_weights: Annotated[
            bool, Field(description="use the costs of the arcs; false: every arc scores 0")
        ] = True,
        normalize: Annotated[
            bool, Field(description="apply log-softmax at each state, over its arcs and its end")
        ] = False,
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` is the lattice of all sentences, and is read at once."""
        self._path = path
        self._use_weights = use_weights
        self._normalize = normalize
        self._vocab_size = context.vocab_size if context else None
        self._lattices = Automata[WalkableLattice]()
        self._shared = None if "{id}" in path else self._begin(self._load(path, ""))
        """The empty prefix, if all sentences have one lattice."""

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        """Raises SgdecError if a lattice cannot be read or used."""
        if self._shared is not None:
            return [self._shared] * len(sources)
        paths = [self._path.replace("{id}", str(source.id)) for source in sources]
        try:
            found = self._read(paths) if len(paths) > 1 else None
        except LatticeError:  # one of them, and each alone knows its error
            found = None
        if found is None:
            found = [self._load(path, f" (sentence {s.id})") for path, s in zip(paths, sources, strict=True)]
        return list(map(self._begin, found))

    def predict_batch(self, states: Sequence[int], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        if len(states) < MANY:
            return Scores(rows=list(map(self._row, states)))
        offsets, tokens, scores, _ = self._lattices.arcs(np.array(states, np.int64), None)
        return Scores.listed(offsets, tokens, scores)

    def consume_batch(self, states: Sequence[int], tokens: Sequence[int]) -> list[int]:
        return [self._ways(state).target(token) for state, token in zip(states, tokens, strict=True)]

    def steps(self, state: int, candidates: Candidates | None) -> Steps:
        ways = self._ways(state)
        return ways if candidates is None else ways.among(candidates)

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        return self._lattices.arcs(states, candidates)

    def whole(self, state: int) -> tuple[Automaton, int]:
        return self._lattices.find(state)

    def release(self, roots: Sequence[int]) -> None:
        if self._shared is None:
            for root in roots:
                self._lattices.release(root)

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """The exact score of the best path to the end; infinite if a cycle adds without limit."""
        return [self._extreme(state, "best") for state in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [self._extreme(state, "worst") for state in states]

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def state_label(self, states: Sequence[int]) -> list[str | None]:
        """The numbers of the states in their lattices; None after the end and off the lattice."""
        return [None if state < 0 else str(state - self._lattices.find(state)[1]) for state in states]

    def _ways(self, state: int) -> WalkableWays:
        if state < 0:
            return NOWHERE
        lattice, start = self._lattices.find(state)
        return lattice.ways(state - start, start)

    def _row(self, state: int) -> SparseRow:
        if state < 0:
            return NO_ROW
        lattice, start = self._lattices.find(state)
        return lattice.row(state - start, start)

    def _extreme(self, state: int, which: Literal["best", "worst"]) -> float:
        if state == ENDED:
            return 0.0
        if state == DEAD:
            return FORBIDDEN if which == "best" else -FORBIDDEN
        lattice, start = self._lattices.find(state)
        found: float = getattr(lattice, which)[state - start]
        return found

    def _begin(self, lattice: WalkableLattice) -> int:
        """The state of the empty prefix in a lattice, which gets numbers of its own."""
        return self._lattices.add(lattice) + lattice.root

    def _load(self, path: str, sentence: str) -> WalkableLattice:
        """The lattice of one file."""
        try:
            found = self._read([path])
        except LatticeError as error:
            way_out = error.way_out or (
                "Expected one lattice for each input line (--fst.path)."
                if sentence
                else "Give --fst.path a pattern such as 'lattices/{id}.fst': {id} is the number of the input line."
            )
            raise SgdecError(f"fst: {path}: {error.what}{sentence}. {way_out}") from None
        assert found is not None
        return found[0]

    def _read(self, paths: Sequence[str]) -> list[WalkableLattice] | None:
        """The lattices of these files, or None if their files cannot be read together. Raises LatticeError."""
        lattices = read_lattices(paths)
        if lattices is None:
            return None
        require_ends(lattices.all, paths[0])
        _require_deterministic(lattices.all, paths[0], self._vocab_size)
        return walkable(lattices, paths[0], self._use_weights, self._normalize)


def _require_deterministic(lattice: Lattice, path: str, vocab_size: int | None) -> None:
    """Raises LatticeError for epsilon, for two arcs of one label, and for labels outside the vocabulary."""
    labels = lattice.labels
    if not labels.all():
        raise LatticeError(
            path,
            f"state {lattice.state_of(int(labels.argmin()))} has an epsilon arc (label 0)",
            "Use nfst, which follows them, or remove them with pynini.rmepsilon.",
        )
    repeats = labels[1:] == labels[:-1]
    if repeats.any():
        repeats[lattice.first[(lattice.first > 0) & (lattice.first < len(labels))] - 1] = False  # of another state
    if repeats.any():
        arc = int(repeats.argmax())
        raise LatticeError(
            path,
            f"not deterministic: state {lattice.state_of(arc)} has two arcs with label {labels[arc]}",
            "Use nfst, which follows both, or pynini.determinize.",
        )
    if vocab_size is not None and (labels >= vocab_size).any():
        arc = int((labels >= vocab_size).argmax())
        raise LatticeError(
            path,
            f"state {lattice.state_of(arc)} has an arc with label {labels[arc]}, "
            f"but there are {vocab_size} target tokens",
            "Lattices and models must share one vocabulary.",
        )


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"fst": FstPredictor}

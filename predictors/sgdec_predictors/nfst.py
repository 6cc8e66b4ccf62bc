"""Lattices that are not deterministic or have epsilons (Stahlberg et al. 2017, Table 2).

The total of a token sequence combines the scores of all its paths: the best one (``semiring`` tropical), or the log
of the sum of their probabilities (log). Score of token w: the change of that total. The rest is as in `fst`, with
which it agrees on deterministic lattices: costs are negated; a leading ``<s>`` arc consumes no token, and its score
is added to that of the first token; ``</s>`` needs a final state, which a ``</s>`` arc may lead to. Label 0 is
epsilon.

State: the lattice, and those of its states that the prefix leads to, each with its residual (`_subsets`). Cost: that
of determinisation and epsilon removal, for visited parts only. Bounds, and the check that epsilon cycles converge,
take time linear in the arcs for a lattice without cycles (`_semirings`), once per lattice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, SgdecError, Source
from sgdec.files import LatticeError, read_lattice, require_ends
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.automata.networks import Network, NetworkArc, Paths, refuse_unfit
from sgdec_predictors.automata.semirings import LOG, TROPICAL, Semiring, Ways, distances_to_end
from sgdec_predictors.automata.subsets import State, SubsetPredictor, SubsetPrefixes

MOST_NAMED = 5
"""States of a prefix that its label in a trace names."""


class NfstPredictor(SubsetPredictor):
    """Scores along the paths of one lattice per sentence; tokens that continue no path are forbidden.

    >>> import tempfile
    >>> from math import inf
    >>> from sgdec.files import write_openfst
    >>> lattice = [(inf, [(7, 7, 0.0, 1), (7, 7, 0.5, 2)]), (inf, [(8, 8, 0.0, 2)]), (0.0, [])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_openfst(f"{folder}/1.fst", lattice)
    ...     predictor = NfstPredictor(folder + "/{id}.fst")
    ...     states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(predictor.consume_batch(states, [7])).rows
    [SparseRow({2: -0.5, 8: 0.0}, default=-inf)]
    """

    def __init__(
        self,
        path: Annotated[str, Field(description="lattice, .fst or .fst.gz; {id} is the sentence number")],
        use_weights: Annotated[bool, Field(description="false: every token scores 0")] = True,
        normalize: Annotated[
            bool, Field(description="apply log-softmax after each prefix, over all continuations and the end")
        ] = False,
        semiring: Annotated[
            Literal["tropical", "log"],
            Field(description="score of several paths with the same tokens: the best, or their log-sum"),
        ] = "tropical",
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` is the lattice of all sentences, and is read at once."""
        self._path = path
        self._use_weights = use_weights
        self._normalize = normalize
        self._semiring = LOG if semiring == "log" and use_weights else TROPICAL
        self._vocab_size = context.vocab_size if context else None
        self._shared = None if "{id}" in path else self._load(path, "")

    def open(self, source: Source) -> SubsetPrefixes:
        """Raises SgdecError if a lattice cannot be read or used."""
        if self._shared is not None:
            return self._shared.afresh()
        return self._load(self._path.replace("{id}", str(source.id)), f" (sentence {source.id})")

    def state_label(self, states: Sequence[State]) -> list[str | None]:
        """The numbers of the lattice's states after the prefix, at most `MOST_NAMED`; None = there is none."""
        return [_numbers([node for node, _ in subset]) if subset else None for _, subset in states]

    def _load(self, path: str, sentence: str) -> SubsetPrefixes:
        try:
            lattice = read_lattice(path)
            require_ends(lattice, path)
            network = Network.of(lattice, self._use_weights)
            refuse_unfit(network, path, self._semiring, self._vocab_size)
            return SubsetPrefixes(_Automaton(network, self._semiring), path, self._semiring, self._normalize)
        except LatticeError as error:
            way_out = error.way_out or (
                "Expected one lattice for each input line (--nfst.path)."
                if sentence
                else "Give --nfst.path a pattern such as 'lattices/{id}.fst': {id} is the number of the input line."
            )
            raise SgdecError(f"nfst: {path}: {error.what}{sentence}. {way_out}") from None


def _numbers(nodes: list[int]) -> str:
    return " ".join(map(str, nodes[:MOST_NAMED])) + " ..." * (len(nodes) > MOST_NAMED)


class _Automaton:
    """A lattice with the distances from its states to the end."""

    def __init__(self, network: Network, semiring: Semiring) -> None:
        self.start = network.start
        self._network = network
        self._semiring = semiring

    def arcs(self, node: int) -> list[NetworkArc]:
        return self._network.arcs[node]

    def silent(self, node: int) -> Ways[int]:
        return self._network.silent[node]

    def final(self, node: int) -> float:
        return self._network.final[node]

    def best(self, node: int) -> float:
        return self._best.get(node, FORBIDDEN)  # a lattice may have no start

    def worst(self, node: int) -> float:
        return -self._highest_cost[node]

    @cached_property
    def _best(self) -> dict[int, float]:
        return distances_to_end(self._semiring, range(len(self._network)), self._scores, self._ends.__getitem__)

    @cached_property
    def _highest_cost(self) -> dict[int, float]:
        """The best score of ending after any path of the prefix."""
        costs = [score if score == FORBIDDEN else -score for score in self._ends]
        return distances_to_end(TROPICAL, range(len(costs)), self._costs, costs.__getitem__)

    @cached_property
    def _ends(self) -> list[float]:
        """By state: the score of ending there, by ``</s>`` arcs or without one."""
        silent = Paths(self._network, self._semiring).silent_exits()
        return [
            self._semiring.plus([final, *(score + silent[target] for label, score, target in arcs if label == EOS)])
            for final, arcs in zip(self._network.final, self._network.arcs, strict=True)
        ]

    def _scores(self, node: int) -> Ways[int]:
        tokens = [(score, target) for label, score, target in self._network.arcs[node] if label != EOS]
        return tokens + self._network.silent[node]

    def _costs(self, node: int) -> Ways[int]:
        return [(-score, target) for score, target in self._scores(node)]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"nfst": NfstPredictor}

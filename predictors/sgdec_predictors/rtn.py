"""Recurrent transition networks in HiFST's format (Allauzen et al. 2014; Stahlberg et al. 2017, Table 2).

A network's arcs are tokens, or calls: a non-terminal, a label of ten digits that begins with 1, stands for all paths
of another network. The root of sentence N is ``PATH/N.fst``, otherwise ``PATH/N/1SSS000LLL.fst`` with the highest LLL
(SSS is the number of S in ``PATH/ntmap``); networks that are called are ``PATH/N/LABEL.fst``. All may be gzipped.

Scores are those of `nfst` on the lattice in which every call is replaced by the best path of the called network for
each token sequence. That lattice can be exponentially larger and is never built: a call is followed when a prefix
reaches it (late expansion). A node of that lattice is a stack: a state of a network, then the states to return to,
innermost first.

Cost: reading the networks, and determinising the parts that prefixes visit. Bounds need no expansion: the distance to
the end is the distance to the exit of the state's network, plus that of each return state, computed once per network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, SgdecError, Source
from sgdec.files import LatticeError, read_lattice, read_lines, whole_number
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.automata.networks import Exit, Network, NetworkArc, Paths, refuse_unfit
from sgdec_predictors.automata.semirings import TROPICAL, Ways, times
from sgdec_predictors.automata.subsets import SubsetPredictor, SubsetPrefixes

NONTERMINALS = range(1_000_000_000, 2_000_000_000)
"""The labels that are calls."""
NETWORK_FILE = re.compile(r"\d{10}\.fst(\.gz)?")
ROOT = 0
"""The label of the root, which no network calls."""

Place: TypeAlias = tuple[int, int]
"""The label of a network, and one of its states."""
Stack: TypeAlias = tuple[Place, ...]
"""The current place of a path, and the places to return to, innermost first."""


class RtnPredictor(SubsetPredictor):
    """Scores along the paths of one recurrent transition network per sentence; tokens that continue no path are
    forbidden.

    >>> import os, tempfile
    >>> from math import inf
    >>> from sgdec.files import write_openfst
    >>> call = 1003001002
    >>> root = [(inf, [(7, 7, 0.0, 1)]), (inf, [(call, call, 0.0, 2)]), (inf, [(9, 9, 0.0, 3)]), (0.0, [])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.mkdir(f"{folder}/1")
    ...     write_openfst(f"{folder}/1.fst", root)
    ...     write_openfst(f"{folder}/1/{call}.fst", [(inf, [(8, 8, 0.0, 1)]), (0.5, [])])
    ...     predictor = RtnPredictor(folder)
    ...     states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> for token in (7, 8):
    ...     states = predictor.consume_batch(states, [token])
    ...     print(*predictor.predict_batch(states).rows)
    SparseRow({8: 0.0}, default=-inf)
    SparseRow({9: -0.5}, default=-inf)
    """

    def __init__(
        self,
        path: Annotated[str, Field(description="folder of the networks, in HiFST's layout")],
        use_weights: Annotated[bool, Field(description="false: every token scores 0")] = True,
        normalize: Annotated[
            bool, Field(description="apply log-softmax after each prefix, over all continuations and the end")
        ] = False,
        minimize: Annotated[
            bool, Field(description="merge equivalent states of a network; changes no score")
        ] = True,
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if there is no such folder."""
        self._folder = Path(path)
        self._use_weights = use_weights
        self._normalize = normalize
        self._minimize = minimize
        self._vocab_size = context.vocab_size if context else None
        if not self._folder.is_dir():
            raise SgdecError(f"rtn: {path}: no such folder. Give --rtn.path the folder with 1.fst, 2.fst, ...")

    def open(self, source: Source) -> SubsetPrefixes:
        """Raises SgdecError if networks cannot be read or used, or call themselves."""
        root = _root_file(self._folder, source.id)
        networks = self._read_networks(root, source.id)
        expansion = _Expansion(networks)
        for label, network in networks.items():
            path = self._file(root, label, source.id)
            with _naming(path, source.id):
                refuse_unfit(network, str(path), TROPICAL, self._vocab_size, expansion.callees())
        with _naming(root, source.id):
            return SubsetPrefixes(expansion, str(root), TROPICAL, self._normalize)

    def _read_networks(self, root: Path, sentence: int) -> dict[int, Network]:
        """The networks by label, each after those that it calls, the root last."""
        label = _label_of(root)
        calling = {label: self._read(root, sentence)}
        left = [_callees(calling[label])]
        found: dict[int, Network] = {}
        while left:
            called = next(left[-1], None)
            if called is None:
                left.pop()
                label, network = calling.popitem()
                found[label] = network
            elif called in calling:
                chain = [*calling, called]
                circle = " -> ".join(map(str, chain[chain.index(called) :]))
                raise SgdecError(
                    f"rtn: {root}: cyclic: networks call each other in a cycle, {circle} (sentence {sentence}). "
                    "Only networks without cyclic calls can be expanded."
                )
            elif called not in found:
                calling[called] = self._read(self._file(root, called, sentence), sentence)
                left.append(_callees(calling[called]))
        return found

    def _file(self, root: Path, label: int, sentence: int) -> Path:
        if label == _label_of(root):
            return root
        plain = self._folder / str(sentence) / f"{label}.fst"
        zipped = plain.with_suffix(".fst.gz")
        return zipped if zipped.exists() and not plain.exists() else plain

    def _read(self, path: Path, sentence: int) -> Network:
        with _naming(path, sentence):
            network = Network.of(read_lattice(path), self._use_weights, NONTERMINALS.__contains__)
        return network.merged() if self._minimize else network


class _Expansion:
    """The lattice of a network, expanded lazily."""

    def __init__(self, networks: Mapping[int, Network]) -> None:
        """``networks``: each after those that it calls, the root last."""
        self._networks = networks
        label, root = list(networks.items())[-1]
        self.start: Stack = ((label, root.start),)

    def arcs(self, node: Stack) -> list[NetworkArc]:
        (name, state), *left = node
        return [
            NetworkArc(label, score, ((name, target), *left))
            for label, score, target in self._networks[name].arcs[state]
        ]

    def silent(self, node: Stack) -> Ways[Stack]:
        """Epsilons, calls, and returns."""
        (name, state), *left = node
        network = self._networks[name]
        ways: list[tuple[float, Stack]] = [
            (score, ((name, target), *left)) for score, target in network.silent[state]
        ]
        for label, score, target in network.calls[state]:
            if self._networks[label].start >= 0:
                ways.append((score, ((label, self._networks[label].start), (name, target), *left)))
        if left and network.final[state] != FORBIDDEN:
            ways.append((network.final[state], tuple(left)))
        return ways

    def final(self, node: Stack) -> float:
        (name, state), *left = node
        return FORBIDDEN if left else self._networks[name].final[state]

    def best(self, node: Stack) -> float:
        return _way_out(node, self._exits)

    def worst(self, node: Stack) -> float:
        return -_way_out(node, self._costly_exits)

    def callees(self) -> dict[int, Exit]:
        """The combined score of a call, by label."""
        return {label: _first(network, self._exits[label]) for label, network in self._networks.items()}

    @cached_property
    def _exits(self) -> dict[int, list[Exit]]:
        return _all_exits(self._networks, sign=1)

    @cached_property
    def _costly_exits(self) -> dict[int, list[Exit]]:
        return _all_exits(self._networks, sign=-1)


def _all_exits(networks: Mapping[int, Network], sign: int) -> dict[int, list[Exit]]:
    """The exits by label and state. ``networks`` has each network after those that it calls."""
    found: dict[int, list[Exit]] = {}
    callees: dict[int, Exit] = {}
    for label, network in networks.items():
        found[label] = Paths(network, TROPICAL, callees, sign).exits()
        callees[label] = _first(network, found[label])
    return found


def _first(network: Network, exits: Sequence[Exit]) -> Exit:
    return exits[network.start] if network.start >= 0 else Exit(FORBIDDEN, FORBIDDEN, FORBIDDEN)


def _way_out(node: Stack, exits: Mapping[int, Sequence[Exit]]) -> float:
    """The distance from a node to the end, through its return places, before and after ``</s>``."""
    before = after = 0.0
    for name, state in reversed(node):
        if state < 0:  # the network has no state
            return FORBIDDEN
        silent, through, ended = exits[name][state]
        before, after = max(times(through, before), times(ended, after)), times(silent, after)
    return before


def _callees(network: Network) -> Iterator[int]:
    """The labels of the called networks, each once."""
    return iter(dict.fromkeys(arc.label for calls in network.calls for arc in calls))


def _label_of(root: Path) -> int:
    """The label of a root; a root named by its sentence number has none."""
    label = whole_number(root.name.partition(".")[0])
    return label if label is not None and label in NONTERMINALS else ROOT


def _root_file(folder: Path, sentence: int) -> Path:
    for name in (f"{sentence}.fst", f"{sentence}.fst.gz"):
        if (folder / name).exists():
            return folder / name
    pattern = f"1{_number_of_s(folder, sentence):03d}000*.fst*"
    found = [path for path in (folder / str(sentence)).glob(pattern) if NETWORK_FILE.fullmatch(path.name)]
    if not found:
        raise SgdecError(
            f"rtn: {folder}/{sentence}.fst: no such file, nor any {folder}/{sentence}/{pattern[:-1]} (sentence "
            f"{sentence}). Give --rtn.path the folder that holds the networks of sentence N under the name N."
        )
    return max(found)


def _number_of_s(folder: Path, sentence: int) -> int:
    path = folder / "ntmap"
    if not path.exists():
        raise SgdecError(
            f"rtn: {folder}/{sentence}.fst: no such file (sentence {sentence}), nor {path}, which determines which "
            "networks are roots. Give --rtn.path the folder that holds them."
        )
    for line in read_lines(path):
        match line.split():
            case ["S", word] if (number := whole_number(word)) is not None:
                return number
    raise SgdecError(f"rtn: {path}: no line 'S NUMBER', which determines the roots. Add one.")


@contextmanager
def _naming(path: Path, sentence: int) -> Iterator[None]:
    """Turn a file error into one that also names the sentence."""
    try:
        yield
    except LatticeError as error:
        way_out = error.way_out or "Every called network needs its own file."
        raise SgdecError(f"rtn: {path}: {error.what} (sentence {sentence}). {way_out}") from None


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"rtn": RtnPredictor}

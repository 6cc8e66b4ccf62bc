"""A transducer for wrappers: arcs indexed by decoder token, scores instead of costs, dead ends removed.

The arcs of a state are prepared on its first visit. Bounds are computed on first use, in time linear in the arcs.
"""

from __future__ import annotations

import math
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec import BOS, EOS, UNK
from sgdec.arrays import Flags, Floats, Ints
from sgdec.files import EPSILON, OTHERWISE, UNK_LABEL, LatticeError, Transducer, read_transducer
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.automata.semirings import TROPICAL, Semiring, distances_to_end

READS_NOTHING = (EPSILON, BOS, OTHERWISE)
WRITES_NOTHING = (EPSILON, BOS)
SILENT = -1
"""Writes nothing."""
ENDED = -1
"""The state after ``</s>``."""

Mask = Flags


class WrittenArc(NamedTuple):
    """The output, score and target of one arc."""

    output: int
    """A token of the inner predictor, or `SILENT`."""
    score: float
    target: int


class TransducerWays(NamedTuple):
    """All arcs of a state."""

    arcs: dict[int, tuple[WrittenArc, ...]]
    """By decoder token; ending is an arc that reads and writes ``</s>``."""
    writing: dict[int, tuple[WrittenArc, ...]]
    """The arcs of tokens that have a writing arc."""
    quiet: dict[int, float]
    """For all other tokens of ``arcs``, the combined score of their arcs."""
    silent: tuple[WrittenArc, ...]
    """The arcs that read nothing."""
    otherwise: tuple[WrittenArc, ...]
    """The failure arcs, which read nothing, for tokens that are not in ``arcs``."""


class Flat(NamedTuple):
    """The reading arcs of a state, as arrays ``[arcs]``."""

    tokens: Ints
    outputs: Ints
    scores: Floats


class NextOutputs(NamedTuple):
    """The tokens that can be written next after a state, whatever is read before."""

    tokens: Ints
    """``[outputs]``, ascending, each once; ``</s>`` too, and `SILENT` for a path that writes nothing."""
    scores: Floats
    """``[outputs]``: the score of the best path that ends with the arc that writes it."""
    shares: Floats
    """``[outputs]``: exp of these scores."""


class QuietArcs(NamedTuple):
    """The arcs among `Flat` that write nothing, with what is `Machine.pending` after each, one after the other."""

    places: Ints
    """``[quiet arcs]``: their indices in `Flat`."""
    starts: Ints
    """``[quiet arcs]``: where the outputs of each begin."""
    outputs: NextOutputs


class Machine(dict[int, TransducerWays]):
    """The arcs of each state, prepared on first use."""

    def __init__(self, path: str, semiring: Semiring, vocab_size: int | None = None) -> None:
        """``vocab_size``: that of the decoder, or None if unknown. Raises LatticeError for an unusable transducer."""
        super().__init__()
        found = read_transducer(path)
        self.start = found.start
        self._raw = found
        self._semiring = semiring
        self._flat: dict[int, Flat] = {}
        self._next: dict[int, NextOutputs] = {}
        self._pending: dict[int, NextOutputs] = {}
        self._quiet: dict[int, QuietArcs | None] = {}
        _check(found, path, vocab_size)
        self._alive = _alive(found)
        if found.start < 0 or not self._alive[found.start]:
            raise LatticeError(path, "is empty: no path leads to a final state", "Check how it was made.")
        _refuse_cycles(found, path, self._alive)

    def __missing__(self, state: int) -> TransducerWays:
        by_token: dict[int, list[WrittenArc]] = {}
        silent: list[WrittenArc] = []
        otherwise: list[WrittenArc] = []
        ends = [-float(self._raw.final[state])]
        for arc in self._raw.arcs(state):
            if arc.input == EOS:
                ends.append(-arc.cost - float(self._raw.final[arc.target]))
            elif self._alive[arc.target] and arc.cost < math.inf:
                bearer = {EPSILON: silent, BOS: silent, OTHERWISE: otherwise}.get(arc.input)
                if bearer is None:
                    bearer = by_token.setdefault(UNK if arc.input == UNK_LABEL else arc.input, [])
                bearer.append(WrittenArc(_output(arc.output), -arc.cost, arc.target))
        end = self._semiring.plus(ends)
        if end != FORBIDDEN:
            by_token[EOS] = [WrittenArc(EOS, end, ENDED)]
        arcs = {token: tuple(several) for token, several in by_token.items()}
        writing = {token: several for token, several in arcs.items() if any(arc.output >= 0 for arc in several)}
        quiet = {
            token: self._semiring.plus([arc.score for arc in several])
            for token, several in arcs.items()
            if token not in writing
        }
        ways = self[state] = TransducerWays(arcs, writing, quiet, tuple(silent), tuple(otherwise))
        return ways

    def flat(self, state: int) -> Flat:
        """The arcs of ``self[state].arcs``."""
        found = self._flat.get(state)
        if found is None:
            arcs = [(token, arc.output, arc.score) for token, several in self[state].arcs.items() for arc in several]
            tokens, outputs, scores = zip(*arcs, strict=True) if arcs else ((), (), ())
            found = self._flat[state] = Flat(np.array(tokens, int), np.array(outputs, int), np.array(scores, float))
        return found

    def outputs(self, state: int) -> NextOutputs:
        """The outputs that can come next after a state; no cost may be negative. Each state is computed once."""
        if state not in self._next:
            self._next[state] = self._outputs_from(state, -1)
        return self._next[state]

    def pending(self, state: int) -> NextOutputs:
        """The same, but paths end in the start state, in which all that was read has been written."""
        if state not in self._pending:
            self._pending[state] = self._outputs_from(state, self.start)
        return self._pending[state]

    def quiet(self, state: int) -> QuietArcs | None:
        """The quiet arcs of a state, for states with many arcs; None if there are none."""
        if state not in self._quiet:
            arcs = enumerate(arc for several in self[state].arcs.values() for arc in several)
            after = {place: self.pending(arc.target) for place, arc in arcs if arc.output < 0}
            self._quiet[state] = _quiet_arcs(after) if after else None
        return self._quiet[state]

    def _outputs_from(self, state: int, last: int) -> NextOutputs:
        """Dijkstra's algorithm over the arcs that write nothing; paths end in the state ``last``."""
        first, outputs, costs, targets = self._as_lists
        found: dict[int, float] = {}
        nearest = {state: 0.0}
        waiting = [(0.0, state)]
        while waiting:
            cost, here = heappop(waiting)
            if cost > nearest[here]:
                continue
            if here == last:
                found[SILENT] = cost
                continue
            for arc in range(first[here], first[here + 1]):
                through, target = cost + costs[arc], targets[arc]
                if outputs[arc] >= 0:
                    if through < found.get(outputs[arc], math.inf):
                        found[outputs[arc]] = through
                elif through < nearest.get(target, math.inf):
                    nearest[target] = through
                    heappush(waiting, (through, target))
            end = cost + self._ends[here]
            if end < found.get(EOS, math.inf):
                found[EOS] = end
        order = sorted(found)
        scores = -np.array([found[token] for token in order], float)
        return NextOutputs(np.array(order, np.int64), scores, np.exp(scores))

    @cached_property
    def _as_lists(self) -> tuple[list[int], list[int], list[float], list[int]]:
        """The index of the first arc of each state; and each arc's output, cost and target.

        Costs are infinite for arcs into dead ends, and for arcs that read ``</s>``, which `_ends` has.
        """
        raw = self._raw
        kinds = [np.isin(raw.outputs, WRITES_NOTHING), raw.outputs == UNK_LABEL]
        outputs = np.select(kinds, [SILENT, UNK], raw.outputs)
        costs = np.where(self._alive[raw.targets] & (raw.inputs != EOS), raw.costs, np.inf)
        return raw.first.tolist(), outputs.tolist(), costs.tolist(), raw.targets.tolist()

    @cached_property
    def _ends(self) -> list[float]:
        """By state: the least cost of ending there."""
        raw = self._raw
        ends = raw.inputs == EOS
        least = raw.final.copy()
        origins = np.repeat(np.arange(len(raw.final)), np.diff(raw.first))[ends]
        np.minimum.at(least, origins, raw.costs[ends] + raw.final[raw.targets[ends]])
        return list(least.tolist())

    @cached_property
    def rewards(self) -> bool:
        """Whether an arc or an end has a negative cost."""
        return bool((self._raw.costs < 0).any() or (self._raw.final < 0).any())

    @cached_property
    def highest_output(self) -> int:
        """The highest token that the transducer writes."""
        outputs = self._raw.outputs
        return int(outputs[outputs != UNK_LABEL].max(initial=EOS))

    @cached_property
    def highest_input(self) -> int:
        """The highest token that the transducer reads."""
        inputs = self._raw.inputs
        return int(inputs[(inputs != UNK_LABEL) & (inputs != OTHERWISE)].max(initial=EOS))

    def highest_score(self, of_output: float) -> float:
        """The highest score of any one token, with the outputs before it; each output adds at most ``of_output``.

        Computed by state, for the best path over arcs that read nothing to an arc that reads, or to the end.
        """
        if of_output == math.inf:
            return math.inf
        raw = self._raw
        walkable = self._alive[raw.targets] & (raw.costs < math.inf)
        written = np.where(np.isin(raw.outputs, WRITES_NOTHING), 0.0, of_output)
        scores = np.where(walkable, written - raw.costs, FORBIDDEN)
        ends = walkable & (raw.inputs == EOS)
        scores[ends] = -raw.costs[ends] - raw.final[raw.targets[ends]] + of_output
        origins = np.repeat(np.arange(len(raw.final)), np.diff(raw.first))
        reads = ~np.isin(raw.inputs, READS_NOTHING)
        highest = np.where(raw.final < math.inf, of_output - raw.final, FORBIDDEN)
        np.maximum.at(highest, origins[reads], scores[reads])
        origins, scores, targets = origins[~reads], scores[~reads], raw.targets[~reads]
        while True:  # silent arcs form no cycle
            further = highest.copy()
            np.maximum.at(further, origins, scores + highest[targets])
            if (further == highest).all():
                return float(highest.max())
            highest = further

    @cached_property
    def best(self) -> dict[int, float]:
        """By state: the highest score of any path to the end, +inf if a cycle adds without limit."""
        return self._extreme(1.0)

    @cached_property
    def worst(self) -> dict[int, float]:
        """By state: the lowest score of any path to the end."""
        return {state: -score for state, score in self._extreme(-1.0).items()}

    def _extreme(self, sign: float) -> dict[int, float]:
        def ways(state: int) -> list[tuple[float, int]]:
            return [(sign * arc.score, arc.target) for arc in self._all(state) if arc.target != ENDED]

        def end(state: int) -> float:
            ending = self[state].arcs.get(EOS)
            return sign * ending[0].score if ending else FORBIDDEN

        return distances_to_end(TROPICAL, [self.start], ways, end)

    def _all(self, state: int) -> list[WrittenArc]:
        ways = self[state]
        return [*(arc for several in ways.arcs.values() for arc in several), *ways.silent, *ways.otherwise]


def _quiet_arcs(after: dict[int, NextOutputs]) -> QuietArcs:
    tokens, scores, shares = map(np.concatenate, zip(*after.values(), strict=True))
    sizes = [len(outputs.tokens) for outputs in after.values()]
    return QuietArcs(np.array(list(after)), np.cumsum([0, *sizes[:-1]]), NextOutputs(tokens, scores, shares))


def _output(label: int) -> int:
    return {EPSILON: SILENT, BOS: SILENT, UNK_LABEL: UNK}.get(label, label)


def _check(found: Transducer, path: str, vocab_size: int | None) -> None:
    """Raises LatticeError for invalid ``</s>`` arcs, and for labels that the decoder does not have."""

    def complain(wrong: Mask, what: str, way_out: str) -> None:
        if wrong.any():
            place = int(wrong.argmax())
            arc = f"{found.inputs[place]}:{found.outputs[place]}"
            raise LatticeError(path, f"state {found.state_of(place)} has an arc {arc}; {what}", way_out)

    ends = found.inputs == EOS
    complain(
        np.where(ends, ~np.isin(found.outputs, (EOS, EPSILON)), found.outputs == EOS),
        "</s> is read and written together, or not at all",
        "Write 2:2 arcs, or make states final.",
    )
    if vocab_size is not None:
        complain(
            (found.inputs >= vocab_size) & (found.inputs != UNK_LABEL) & (found.inputs != OTHERWISE),
            f"but the decoder has {vocab_size} target tokens",
            "Is it inverted? Its input side must have the decoder's tokens.",
        )


def _alive(found: Transducer) -> Mask:
    """The states that can reach a final state."""
    alive = found.final < math.inf
    origins = np.repeat(np.arange(len(alive)), np.diff(found.first))
    walkable = found.costs < math.inf
    while True:
        more = np.zeros_like(alive)
        more[origins[walkable & alive[found.targets]]] = True
        if not (more & ~alive).any():
            return alive
        alive = alive | more


def _refuse_cycles(found: Transducer, path: str, alive: Mask) -> None:
    """Raises LatticeError for a cycle of arcs that read nothing. Found by repeatedly removing states without such
    arcs."""
    origins: npt.NDArray[Any] = np.repeat(np.arange(len(alive)), np.diff(found.first))
    left = np.isin(found.inputs, READS_NOTHING) & (found.costs < math.inf)
    left &= alive[origins] & alive[found.targets]
    while left.any():
        goes_on = np.zeros_like(alive)
        goes_on[origins[left]] = True
        fewer = left & goes_on[found.targets]
        if fewer.sum() == left.sum():
            raise LatticeError(
                path,
                f"has a cycle of input epsilons (label 0) through state {origins[int(fewer.argmax())]}, "
                "so it writes infinitely many outputs for one input",
                "Every cycle must read a token; pynini.rmepsilon removes cycles of 0:0 arcs.",
            )
        left = fewer

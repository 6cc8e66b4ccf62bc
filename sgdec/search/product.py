"""The intersection of automata for many prefixes at once, as arrays.

`sgdec.search.automata` walks one prefix at a time, which costs least for few of them. Here all prefixes that are in
flight are rows of arrays, and each predictor answers for all of them in one call (`sgdec.protocol.ArcsAhead`). Both
give the same numbers, bit for bit. The arrays are NumPy's, or torch tensors of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from sgdec import arrays
from sgdec.arrays import Flags, Floats, Ints, namespace
from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Arcs, Listed
from sgdec.search.blame import blamed
from sgdec.search.combination.columns import not_in_vocabulary
from sgdec.search.combination.faults import fault, first_fault

ArcsOf: TypeAlias = Callable[[Ints, Listed | None], Arcs]


class JointArcs(NamedTuple):
    """The n continuations of R prefixes, by prefix; ascending tokens; forbidden ones are left out."""

    row: Ints
    """``[n]``: the prefix."""
    token: Ints
    score: Floats
    """``[n]``: the combined score."""
    ledger: list[Floats]
    """For each of K predictors its unweighted scores ``[n]``."""
    after: list[Ints]
    """For each of K predictors its states ``[n]`` after the token."""

    def at(self, places: Ints | Flags) -> JointArcs:
        """The continuations at these places."""
        row, token, score, ledger, after = self
        return JointArcs(
            row[places],
            token[places],
            score[places],
            [scores[places] for scores in ledger],
            [states[places] for states in after],
        )


class Product:
    """The intersection of K automata."""

    def __init__(
        self,
        names: Sequence[str],
        weights: Sequence[float | None],
        arcs: Sequence[tuple[int, ArcsOf]],
        vocab_size: int | None,
    ) -> None:
        """``weights``: ``[K]``, none of them None.

        ``arcs``: pairs of a predictor's number and its method ``arcs``, in call order; the first one lists tokens.
        """
        self._names = names
        self._weights = weights
        self._arcs = arcs
        self._vocab_size = vocab_size

    def arcs(self, states: Sequence[Ints], ending: Flags) -> JointArcs:
        """The continuations of R prefixes. ``states``: those of each predictor ``[R]``.

        ``ending [R]``: the prefixes that only ``</s>`` can follow. Tensors give tensors on the same device.
        Raises SgdecError for a score that is NaN or +inf, for a sum that overflows, and for a malformed answer;
        UsageError for tensors if a predictor answers for arrays only (`sgdec.protocol.Traits.arcs_of_tensors`).
        """
        xp, device = namespace(ending), ending.device
        if not isinstance(ending, np.ndarray):
            self._require_arcs_of_tensors()
        ledger: list[Floats] = [np.empty(0)] * len(states)
        after: list[Ints] = [np.empty(0, np.int64)] * len(states)
        listed: Listed | None = None
        for k, method in self._arcs:
            offsets, tokens, scores, then = self._ask(k, method, states[k], listed)
            if listed is None:
                row = xp.repeat(xp.arange(len(states[k]), device=device), offsets[1:] - offsets[:-1])
                if ending.any():
                    kept = (tokens == EOS) | ~ending[row]
                    row, tokens, scores, then = row[kept], tokens[kept], scores[kept], then[kept]
                    offsets = xp.searchsorted(row, xp.arange(len(states[k]) + 1, device=device))
                self._require_in_vocabulary(k, tokens)
                listed = offsets, tokens
            ledger[k], after[k] = scores, then
        assert listed is not None
        tokens = listed[1]
        score = self._total(tokens, ledger)
        found = JointArcs(row, tokens, score, ledger, after)
        possible = score > FORBIDDEN
        return found if possible.all() else found.at(possible)

    def _ask(self, k: int, method: ArcsOf, states: Ints, listed: Listed | None) -> Arcs:
        """Predictor k's answer, checked."""
        try:
            answer = method(states, listed)
            offsets, tokens, scores, after = answer
            sizes = {len(tokens), len(scores), len(after)} | ({int(offsets[-1])} if len(offsets) else set())
            fits = len(offsets) == len(states) + 1 and len(sizes) == 1
        except Exception as error:
            raise blamed(self._names[k], getattr(method, "__self__", None), error) from error
        if not fits or (listed is not None and len(tokens) != len(listed[1])):
            wanted = "" if listed is None else f" and {len(listed[1])} candidates"
            raise SgdecError(
                f"predictor {self._names[k]!r}: arcs returned {len(offsets)} offsets, {len(tokens)} tokens, "
                f"{len(scores)} scores and {len(after)} states for {len(states)} states{wanted}; expected one offset "
                "per state and the end, and one score and one state per token."
            )
        return answer

    def _require_arcs_of_tensors(self) -> None:
        for k, method in self._arcs:
            if not getattr(getattr(method, "__self__", None), "arcs_of_tensors", False):
                raise UsageError(
                    f"predictor {self._names[k]!r} has arcs of NumPy arrays only (arcs_of_tensors is not set), but "
                    "was asked with tensors; ask with arrays."
                )

    def _require_in_vocabulary(self, k: int, tokens: Ints) -> None:
        lowest, highest = (int(tokens.min()), int(tokens.max())) if len(tokens) else (0, -1)
        if lowest < 0 or (self._vocab_size is not None and highest >= self._vocab_size):
            raise not_in_vocabulary(self._names[k], lowest if lowest < 0 else highest, self._vocab_size)

    def _total(self, tokens: Ints, ledger: Sequence[Floats]) -> Floats:
        """The combined scores ``[n]``, added up in the order of the predictors."""

        xp = namespace(tokens)

        def add_up() -> Floats:
            total: Floats = xp.zeros(len(tokens), dtype=xp.float64, device=tokens.device)
            for scores, weight in zip(ledger, self._weights, strict=True):
                total += scores if weight == 1.0 else arrays.weigh(scores, np.float64(weight))
            return total

        def refuse(total: Floats) -> None:
            columns = list(map(arrays.to_numpy, ledger))
            wrong = first_fault(arrays.to_numpy(total), columns)
            if wrong is not None:
                scores = [float(column[wrong]) for column in columns]
                raise fault(int(tokens[wrong]), self._names, self._weights, scores)

        total: Floats = arrays.checked(add_up, refuse)
        if len(total) and not total.max() < np.inf:  # NaN or inf
            refuse(total)
        return total

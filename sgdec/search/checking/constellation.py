"""``--check-bounds``: every claim that bounds rest on is checked at each expansion of a search.

Predictors make claims: their relaxations bound their scores and follow their states, an automaton known as a whole
has their scores, no score is above `max_score`, and no completion adds more than `best_remaining`. A search that
relies on a wrong claim can prove a wrong result. `CheckedConstellation` asks for all scores of each prefix that a
search expands and compares them with the claims; what is claimed about a whole completion is compared when a
hypothesis ends. The first violation ends the search of that sentence.

The search is otherwise unchanged. Besides the prefixes that it expands, those of the greedy path are checked; other
prefixes that a wrong bound cuts off at once remain unseen.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from sgdec.arrays import Floats, Ints
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import Source
from sgdec.relaxations import Relaxation
from sgdec.search.answers import require_automaton
from sgdec.search.bounds.declared import bound_of
from sgdec.search.bounds.folding import DEAD_END, UNKNOWN, Folded, Folder
from sgdec.search.bounds.relaxed import Relaxed, require_relaxation
from sgdec.search.checking.checked_paths import TOGETHER, CheckedPath, CheckedSentence, Claim, Claims
from sgdec.search.checking.claims import (
    Here,
    Refuted,
    check_max_score,
    check_relaxation,
    check_subset,
    check_whole,
    exceeds,
)
from sgdec.search.combining import Combined
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.requests import Request
from sgdec.sparse import Wanted

ALL = 1 << 60
"""More than the tokens of any vocabulary."""
LONGEST = 200
"""The length of the path that is checked besides the search, if there is no other limit."""


class CheckedConstellation(Constellation):
    """A constellation that checks the claims of its predictors whenever it expands a node."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sentences: dict[int, CheckedSentence] = {}
        """By identity of the source, which each root has for itself."""
        self._checked = 0

    def roots(
        self, sources: Sequence[Source], weights: Sequence[Sequence[float | None]] | None = None
    ) -> list[Node]:
        return super().roots(list(map(copy.copy, sources)), weights)

    def release(self, roots: Sequence[Node]) -> None:
        super().release(roots)
        for root in roots:
            self._sentences.pop(id(root.source), None)

    def perform(self, request: Request) -> Sequence[Any]:
        if request.question in ("children", "best", "draw", "distributions"):
            self.check(request.nodes)
        elif request.question == "bounds":
            self._begin(request.nodes)
        return super().perform(request)

    def summary(self) -> str | None:
        checked = f"check-bounds: claims checked at {self._checked:,} prefixes"
        products = super().summary()
        return checked if products is None else f"{products}; {checked}"

    def check(self, nodes: Sequence[Node]) -> None:
        """Check the claims at these open nodes. Raises SgdecError for the first that does not hold."""
        self._begin(nodes)
        combined = self.combine(nodes)
        for place, node in enumerate(nodes):
            self._check(node, *_continuations(combined, place, len(self.members)))

    def _begin(self, nodes: Sequence[Node]) -> None:
        """Check the greedy path after empty prefixes: a bound that is too low can keep a search from all ends."""
        for node in nodes:
            begun = self._sentence(node).begun
            if not node.length and node.weights not in begun:
                self._check_greedy_path(node)
                begun.add(node.weights)

    def _check_greedy_path(self, node: Node) -> None:
        for _ in range(LONGEST):
            combined = self.combine([node])
            self._check(node, *_continuations(combined, 0, len(self.members)))
            (best,) = combined.best(1)
            if not best or best[0][0] == EOS:
                return
            (node,) = node.children(best, ())

    def _sentence(self, node: Node) -> CheckedSentence:
        return self._sentences.setdefault(id(node.source), CheckedSentence(node.source))

    def _check(self, node: Node, tokens: Ints, scores: Floats) -> None:
        """``tokens [n]``, ascending: those that can follow; ``scores [n, K]``: by predictor."""
        self._checked += 1
        sentence = self._sentence(node)
        path = CheckedPath.of(node)
        for k, weight in enumerate(node.weights):
            if weight is None:
                continue
            try:
                self._check_predictor(sentence, node, k, weight, tokens, scores[:, k])
            except Refuted as refuted:
                raise SgdecError(f"predictor {self.names[k]!r}, {_after(path.tokens)}: {refuted}") from None
            except SgdecError as error:
                raise SgdecError(f"{error} ({_after(path.tokens)})") from None
        claims = sentence.claims[path.key] = self._claims(sentence, node, path)
        if EOS in tokens:
            self._check_end(claims, node, path, scores[tokens.searchsorted(EOS)].tolist())

    def _claims(self, sentence: CheckedSentence, node: Node, path: CheckedPath) -> Claims:
        """The tightest claims of this prefix and all shorter ones."""
        claims = sentence.claims_before(path)

        def add(k: int | None, name: str, before: float, most: float) -> None:
            claim, known = Claim(before + most, most, len(path.tokens)), claims.get((k, name))
            if known is None or claim.limit < known.limit:
                claims[k, name] = claim

        for k, weight, _ in self.bounds_under(node.weights).own:
            (most,) = self._own_bounds(k, weight, [node])
            sign = _sign(bound_of(weight))
            add(k, bound_of(weight), sign * path.sums[k], sign * float(most))
        if self.folding_under(node.weights).helps:
            (most,) = self.bounds([node])
            add(TOGETHER, "", node.total, most)
        return claims

    def _check_end(self, claims: Claims, node: Node, path: CheckedPath, scores: Sequence[float]) -> None:
        """Check the claims about the hypothesis that ends now. ``scores [K]``: those of ``</s>``."""
        for (k, name), claim in claims.items():
            if k is TOGETHER:
                weighted = (weight * score for weight, score in zip(node.weights, scores, strict=True) if weight)
                reached = node.total + sum(weighted)
            else:
                reached = _sign(name) * (path.sums[k] + scores[k])
            if exceeds(reached, claim.limit):
                added = claim.most + reached - claim.limit if math.isfinite(claim.limit) else reached
                raise self._wrong_bound(k, name, claim, added, path.tokens)

    def _wrong_bound(self, k: int | None, name: str, claim: Claim, added: float, tokens: Sequence[int]) -> SgdecError:
        """The error for a claim that a hypothesis with these tokens refutes: it adds ``added`` after the prefix."""
        where = _after(tokens[: claim.length])
        rest = " ".join(map(str, (*tokens[claim.length :], EOS)))
        if k is TOGETHER:
            return SgdecError(
                f"predictors {', '.join(self.names)}, {where}: their product bound claims that they add at most "
                f"{claim.most:g} together, but tokens {rest} add {added:g}. --bounds sum does without it."
            )
        sign = _sign(name)
        most = "most" if sign > 0 else "least"
        return SgdecError(
            f"predictor {self.names[k]!r}, {where}: {name} claims that it adds at {most} {sign * claim.most:g}, but "
            f"tokens {rest} add {sign * added:g}. Correct {name}; decoders without proofs, such as beam, ignore it."
        )

    def _check_predictor(
        self, sentence: CheckedSentence, node: Node, k: int, weight: float, tokens: Ints, scores: Floats
    ) -> None:
        predictor, member = self.predictors[k], self.members[k]
        (state,) = self.states(k, [node])
        going = tokens[tokens != EOS].tolist()

        def scores_of(wanted: Ints) -> Floats:
            listed = [wanted.tolist()]
            return self._ask(k, [node], listed).scores_of(Wanted.of([0], listed))

        after = cache(lambda: member.consume([state] * len(going), going) if going else [])
        here = Here(predictor, state, tokens, scores, after, scores_of)
        check_max_score(here)
        if self.bounds_kind == "sum":
            return
        for level, relaxation in enumerate(self._relaxations(sentence, k, here)):
            check_relaxation(here, Relaxed(weight, relaxation, self.names[k], predictor), level)
        folder = Folder.of(k, weight, self.names[k], predictor)
        if folder is not None:
            self._check_automaton(sentence, folder, here)

    def _relaxations(self, sentence: CheckedSentence, k: int, here: Here) -> Sequence[Relaxation]:
        if not getattr(here.predictor, "relaxations", None):
            return ()
        found = Folded(k, 1.0, self.names[k], here.predictor).levels(here.state)
        if k not in sentence.relaxations:
            for relaxation in found:
                require_relaxation(self.names[k], relaxation)
        known = sentence.relaxations.setdefault(k, found)
        if len(found) != len(known) or any(one is not other for one, other in zip(found, known, strict=True)):
            raise Refuted(
                "relaxations returns other objects than at first; expected the same in all states of a sentence. "
                "Build them once; --bounds sum does without them."
            )
        return found

    def _check_automaton(self, sentence: CheckedSentence, folder: Folder, here: Here) -> None:
        ((automaton, at),) = folder.places([here.state])
        if automaton is UNKNOWN:
            return
        if automaton is DEAD_END:
            if len(here.tokens):
                raise Refuted(
                    f"its state is {here.state}, which claims that nothing can follow, but token {here.tokens[0]} "
                    f"scores {here.scores[0]:g}. Use negative states for dead ends only."
                )
            return
        if sentence.automata.get(folder.k) is not automaton:
            require_automaton(folder.name, automaton)
            if folder.k in sentence.automata:
                raise Refuted(
                    "its whole automaton is another object than at first; expected the same in all states of a "
                    "sentence. Build it once; --bounds sum does without it."
                )
            sentence.automata[folder.k] = automaton
        if folder.whole is not None:
            check_whole(here, automaton, here.state - at)
        else:
            check_subset(here, automaton, at, folder.find)


def _continuations(combined: Combined, place: int, predictors: int) -> tuple[Ints, Floats]:
    """The tokens ``[n]`` that can follow the node at ``place``, ascending, and their scores ``[n, K]``."""
    block = combined.block_after(place, np.zeros(0, np.int64), ALL)
    rows = block.ranked
    if isinstance(rows, list):
        rows = np.array([(token, total, *scores) for token, total, scores in rows]).reshape(-1, 2 + predictors)
    rows = rows[rows[:, 0].argsort()]
    return rows[:, 0].astype(np.int64), rows[:, 2:]


def _sign(ability: str) -> float:
    return 1.0 if ability == "best_remaining" else -1.0


def _after(tokens: Sequence[int]) -> str:
    return f"after tokens {' '.join(map(str, tokens))}" if tokens else "before the first token"

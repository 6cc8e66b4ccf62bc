"""Tests of the optional abilities of predictors. A test passes if the predictor does not have the ability."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from sgdec.context import EOS
from sgdec.lifting import lift
from sgdec.protocol import ABILITIES, FORBIDDEN, BatchPredictor, Source, State, ability
from sgdec.testing.reading import plain, read_row, require_hashable, where
from sgdec.testing.snapshot import snapshot
from sgdec.testing.subject import TestSubject
from sgdec.testing.walks import Visit, any_of, can_follow, completions, follow, go_far, visits


class AbilityChecks(TestSubject):
    """The part of `PredictorContract` that tests bounds, keys, attention and labels."""

    def test_best_remaining_is_never_exceeded(self) -> None:
        self._check_bound("best_remaining", sign=1)

    def test_worst_remaining_is_never_undercut(self) -> None:
        self._check_bound("worst_remaining", sign=-1)

    def test_no_score_is_above_max_score(self) -> None:
        """Tried after short random prefixes, on long walks that mostly take the best token, and at ``extremes``."""
        predictor = lift(self.make())
        highest = predictor.max_score
        assert not math.isnan(highest), "max_score must be a number; +inf = unknown"
        if highest == math.inf:
            return
        for source in self._with_limits(None):
            for prefix, _, row in chain.from_iterable(self._ways(predictor, source, sign=1)):
                assert row.max() <= highest + self.tolerance, (
                    f"no score must be above max_score = {highest:g}: token {row.argmax()} scores {row.max():g} "
                    f"{where(source, prefix)}"
                )

    def test_equal_state_keys_have_equal_futures(self) -> None:
        """With a length limit, only prefixes of equal length are compared, because the search adds it to the key."""
        predictor = lift(self.make())
        method = ability(predictor, "state_key")
        if method is None:
            return
        for source in self._with_limits(None):
            groups: defaultdict[Hashable, list[tuple[tuple[int, ...], State]]] = defaultdict(list)
            for prefix, state in self._states(predictor, source, walks=3 * self.walks):
                key = method([state])[0]
                require_hashable(key, "state_key must return keys", where(source, prefix))
                groups[key if source.max_length is None else (key, len(prefix))].append((prefix, state))
            for group in groups.values():
                self._check_futures(predictor, source, group)

    def test_attention_is_a_distribution_over_the_source(self) -> None:
        predictor = lift(self.make())
        method = ability(predictor, "attention")
        if method is None:
            return
        for source in self.sources:
            expected = self.attention_length(source)
            for prefix, state in self._states(predictor, source):
                row = plain(method([state])[0])
                assert row.shape == (expected,), (
                    f"attention must have a weight for each of {expected} source tokens, not shape "
                    f"{row.shape} {where(source, prefix)}"
                )
                assert (row >= 0).all() and abs(row.sum() - 1) <= 1e-4, (
                    f"attention must be a distribution: its weights sum to {row.sum():g} {where(source, prefix)}"
                )

    def test_state_labels_are_texts_or_none(self) -> None:
        predictor = lift(self.make())
        method = ability(predictor, "state_label")
        if method is None:
            return
        for source in self.sources:
            for prefix, state in self._states(predictor, source):
                label = method([state])[0]
                assert label is None or (isinstance(label, str) and label), (
                    f"state_label must give a text that is not empty, or None, not {label!r} {where(source, prefix)}"
                )

    def test_progress_is_complete_where_an_output_can_end(self) -> None:
        predictor = lift(self.make())
        method = ability(predictor, "progress")
        if method is None:
            return
        for source in self.sources:
            total = None
            for prefix, state in self._states(predictor, source):
                met, needed = method([state])[0]
                assert 0 <= met <= needed, f"progress must be from 0 to {needed}, not {met} {where(source, prefix)}"
                assert total in (None, needed), (
                    f"progress must have one total for a sentence, not {needed} and {total} {where(source, prefix)}"
                )
                total = needed
                row = read_row(predictor.predict_batch([state]), 0, self.vocab_size)
                assert met == needed or row[EOS] == FORBIDDEN, (
                    f"</s> must be forbidden as long as progress is {met} of {needed} {where(source, prefix)}"
                )

    def test_advancing_tokens_make_progress(self) -> None:
        predictor = lift(self.make())
        method, progress = ability(predictor, "advancing"), ability(predictor, "progress")
        assert (method is None) == (progress is None), "progress and advancing must be declared together"
        if method is None or progress is None:
            return
        for source in self.sources:
            for prefix, state in self._states(predictor, source):
                row = read_row(predictor.predict_batch([state]), 0, self.vocab_size)
                for token in method([state])[0]:
                    at = where(source, prefix)
                    assert token != EOS and row[token] != FORBIDDEN, f"advancing must not list token {token} {at}"
                    before, after = progress([state])[0], progress(predictor.consume_batch([state], [token]))[0]
                    assert after[0] > before[0], (
                        f"progress must rise with advancing token {token}: {before[0]}, then {after[0]} {at}"
                    )

    def test_abilities_answer_each_state_on_its_own(self) -> None:
        predictor = lift(self.make())
        found = [pair for source in self.sources for pair in self._states(predictor, source)]
        for name in ABILITIES:
            method = ability(predictor, name)
            if method is None:
                continue
            together = method([state for _, state in found])
            assert len(together) == len(found), f"{name} must give one answer per state"
            for (prefix, state), answer in zip(found, together, strict=True):
                alone = method([state])[0]
                assert self._alike(name, alone, answer), (
                    f"{name} must be the same for a state alone and in a batch: {alone}, but {answer} after {prefix}"
                )

    def test_abilities_change_nothing(self) -> None:
        predictor = lift(self.make())
        for source in self.sources:
            for prefix, state in self._states(predictor, source):
                before = read_row(predictor.predict_batch([state]), 0, self.vocab_size)
                image = snapshot(state)
                for name in ABILITIES:
                    method = ability(predictor, name)
                    if method is not None:
                        method([state])
                after = read_row(predictor.predict_batch([state]), 0, self.vocab_size)
                self._same(before, after, "calling abilities must not change scores", source, prefix)
                assert snapshot(state) == image, f"calling abilities must not change states {where(source, prefix)}"

    def _alike(self, name: str, first: Any, second: Any) -> bool:
        if name in ("state_key", "state_label", "progress", "advancing"):
            return bool(first == second)
        return bool(np.allclose(plain(first), plain(second), rtol=self.tolerance, atol=self.tolerance))

    def _check_bound(self, name: str, sign: int) -> None:
        """Compare the bound of each prefix with many completions of it; ``sign``: 1 = upper, -1 = lower bound."""
        predictor = lift(self.make())
        method = ability(predictor, name)
        if method is None:
            return
        for source in self._with_limits(3):
            longest = 2 * self.walk_length if source.max_length is None else source.max_length
            found = self._states(predictor, source)
            states = [state for _, state in found]
            bounds = [float(bound) for bound in method(states)]
            left = [longest - len(prefix) for prefix, _ in found]
            for added in completions(
                predictor, states, left, self.vocab_size, self._rng(), sign=sign, tries=20, tokens=self.tokens
            ):
                for (prefix, _), bound, reached in zip(found, bounds, added, strict=True):
                    if reached is not None:
                        slack = self.tolerance * (1 + abs(reached))
                        assert sign * bound >= sign * reached - slack, (
                            f"{name} must bound the score of every completion: it is {bound:g}, but one "
                            f"completion adds {reached:g} {where(source, prefix)}"
                        )

            for way in self._ways(predictor, source, sign):
                along = [float(bound) for bound in method([visit.state for visit in way])]
                self._check_along(way, along, name, sign, source)

    def _check_along(
        self, way: Sequence[Visit], bounds: Sequence[float], name: str, sign: int, source: Source
    ) -> None:
        """Compare the bound at each prefix of a walk with all hypotheses that leave the walk later with ``</s>``."""
        totals = [0.0]
        for before, after in pairwise(way):
            totals.append(totals[-1] + float(before.row[after.prefix[-1]]))
        best = FORBIDDEN
        for visit, total, bound in reversed(list(zip(way, totals, bounds, strict=True))):
            if visit.row[EOS] != FORBIDDEN:
                best = max(best, sign * (total + float(visit.row[EOS])))
            if best != FORBIDDEN:
                self._require_bound(name, sign, bound, sign * best - total, source, visit.prefix)

    def _require_bound(
        self, name: str, sign: int, bound: float, reached: float, source: Source, prefix: tuple[int, ...]
    ) -> None:
        assert sign * bound >= sign * reached - self.tolerance * (1 + abs(reached)), (
            f"{name} must bound the score of every completion: it is {bound:g}, but one "
            f"completion adds {reached:g} {where(source, prefix)}"
        )

    def _ways(self, predictor: BatchPredictor, source: Source, sign: int) -> Iterator[list[Visit]]:
        """Walks: random prefixes, ``extremes``, and two long walks that mostly take the best (worst) token."""
        rng = self._rng()
        for prefix in [*self._prefixes_of(source, self.walks), *self.extremes]:
            yield list(visits(predictor, source, follow(prefix), self.vocab_size))
        for _ in range(2):
            yield list(visits(predictor, source, go_far(rng, sign, self.tokens), self.vocab_size))

    def _check_futures(
        self, predictor: BatchPredictor, source: Source, group: Sequence[tuple[tuple[int, ...], State]]
    ) -> None:
        """Check that prefixes with equal keys have equal scores, now and after the same further tokens."""
        rng = self._rng()
        states = [state for _, state in group]
        for _ in range(4 if len(group) > 1 else 0):
            scores = predictor.predict_batch(states)
            rows = [read_row(scores, i, self.vocab_size) for i in range(len(states))]
            for (prefix, _), row in zip(group, rows, strict=True):
                promise = f"prefixes with equal state keys must have equal futures, here that of {group[0][0]}"
                self._same(rows[0], row, promise, source, prefix)
            choice = can_follow(rows[0], self.tokens)
            if not choice:
                return
            states = predictor.consume_batch(states, [any_of(choice, rng)] * len(states))

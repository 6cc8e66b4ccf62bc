"""Tests of states that are numbers: what they stand for, and that their sentences can be released (`sgdec.protocol`).

A test passes if the predictor does not have the ability.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np

from sgdec.context import EOS
from sgdec.lifting import lift
from sgdec.protocol import ABILITIES, BatchPredictor, Candidates, ability
from sgdec.testing.automaton_checks import AutomatonChecks, CheckedPlace, call_arcs, listed_arrays
from sgdec.testing.reading import Row, read_row

ROUNDS = 100
"""The number of times that all sentences begin and end between two looks at the memory."""
FIRST_ROUNDS = 20
"""As many before the first look: memory that they leave too little time to settle costs another look, no error."""
SLACK = 24
"""Up to this many bytes per sentence may stay: NumPy caches small blocks. One more number in a list needs 36."""


class ReleaseChecks(AutomatonChecks):
    """The part of `PredictorContract` that tests `release`, and the numbers of states."""

    def test_a_number_stands_for_the_same_state_in_all_sentences(self) -> None:
        """States are numbers if there are ``arcs``. Each sentence ends before the next one begins."""
        predictor: Any = lift(self.make())
        if not hasattr(predictor, "arcs"):
            return
        met: dict[int, tuple[CheckedPlace, bytes]] = {}
        for source in (*self.sources, *self.sources):
            places = [CheckedPlace(source, *found) for found in self._states(predictor, source)]
            for place in places:
                row = read_row(predictor.predict_batch([place.state]), 0, self.vocab_size).tobytes()
                first, expected = met.setdefault(int(place.state), (place, row))
                assert row == expected, (
                    f"a number must never stand for another state: {place.state} stood for one {first}, "
                    f"and later for another {place}"
                )
            if hasattr(predictor, "release"):
                predictor.release([places[0].state])

    def test_releasing_a_sentence_changes_no_other(self) -> None:
        predictor: Any = lift(self.make())
        if not hasattr(predictor, "release"):
            return
        everything: Candidates = range(self.vocab_size)
        for gone in self.sources:
            what = f"releasing sentence {gone.id} must not change the states of others"
            places = self._places(predictor)
            rows = [self._row(predictor, place, what) for place in places]
            roots = [place for place in places if place.prefix == ()]
            predictor.release([place.state for place in roots if place.source is gone])
            for place, row in zip(places, rows, strict=True):
                if place.source is not gone:
                    self._same(row, self._row(predictor, place, what), what, place.source, place.prefix)
            if hasattr(predictor, "arcs"):
                others = [place for place in places if place.source is not gone]
                request = [everything] * len(others)
                self._check_tokens_and_scores(predictor, others, request, call_arcs(predictor, others, request))
            predictor.release([place.state for place in roots if place.source is not gone])

    def test_released_sentences_leave_nothing(self) -> None:
        """Memory may grow once, for example for a cache, but not again and again."""
        predictor: Any = lift(self.make())
        if not hasattr(predictor, "release"):
            return
        tracing = tracemalloc.is_tracing()
        if not tracing:
            tracemalloc.start()
        gc.freeze()  # what there was before need not be searched for garbage
        try:
            growth = self._smallest_growth(predictor, looks=4)
        finally:
            gc.unfreeze()
            if not tracing:
                tracemalloc.stop()
        assert growth <= SLACK, (
            f"a released sentence must leave nothing: {growth:.0f} bytes stay in memory for each sentence"
        )

    def _row(self, predictor: BatchPredictor, place: CheckedPlace, promise: str) -> Row:
        try:
            return read_row(predictor.predict_batch([place.state]), 0, self.vocab_size)
        except Exception as error:
            raise AssertionError(f"{promise}: {error!r} {place}") from error

    def _smallest_growth(self, predictor: Any, looks: int) -> float:
        """The bytes per sentence by which memory grows between two looks; looks end once they are at most `SLACK`."""
        smallest, before = np.inf, self._memory_after_rounds(predictor, FIRST_ROUNDS)
        for _ in range(looks - 1):
            now = self._memory_after_rounds(predictor, ROUNDS)
            smallest = min(smallest, (now - before) / (ROUNDS * len(self.sources)))
            if smallest <= SLACK:
                break
            before = now
        return smallest

    def _memory_after_rounds(self, predictor: Any, rounds: int) -> int:
        """The bytes in use after all sentences began and ended ``rounds`` times."""
        for _ in range(rounds):
            roots = predictor.initialize_batch(self.sources)
            candidates = [[EOS]] * len(roots)
            predictor.predict_batch(roots, candidates)
            for name in ABILITIES:
                if method := ability(predictor, name):
                    method(roots)
            for name in ("relaxations", "whole"):
                if method := ability(predictor, name):
                    method(roots[0])
            if hasattr(predictor, "steps"):
                predictor.steps(roots[0], [EOS])
            if hasattr(predictor, "arcs"):
                predictor.arcs(np.array(roots, np.int64), listed_arrays(candidates))
            predictor.release(roots[1:])
            predictor.release(roots[:1])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

"""The subject of a predictor contract: a predictor, and the sentences and prefixes to test it with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from sgdec.lifting import Lowered
from sgdec.protocol import BatchPredictor, Predictor, Source, State
from sgdec.testing.reading import Row, difference, where
from sgdec.testing.shared import Shared
from sgdec.testing.walks import random_prefix


class TestSubject(ABC):
    """The configuration of `PredictorContract`, and helpers for its tests."""

    vocab_size: int
    """V, the number of target tokens."""
    sources: Sequence[Source] = (
        Source(1, (3, 4, 5), max_length=5),
        Source(2, (4,), max_length=3),
        Source(3, (5, 5)),
    )
    """At least two sentences, with and without a length limit."""
    tokens: Collection[int] | None = None
    """The tokens of random prefixes; None = all tokens that the predictor allows."""
    prefixes: Sequence[tuple[int, ...]] = ()
    """Further prefixes to test in each sentence: special cases that random prefixes would miss."""
    extremes: Sequence[tuple[int, ...]] = ()
    """Hypotheses with the highest and lowest scores that the predictor's file allows, to test bounds with."""
    walk_length: int = 6
    """The length of random prefixes."""
    walks: int = 3
    """The number of random prefixes per sentence."""
    tolerance: float = 1e-5
    """The largest allowed difference, absolute and relative, between two numbers that must be equal."""

    @abstractmethod
    def make(self) -> Predictor | BatchPredictor:
        """Return a new predictor at each call."""

    def attention_length(self, source: Source) -> int:
        """The number of source tokens that attention has weights for."""
        return len(source.tokens)

    @Shared
    def _prefixes(self) -> list[tuple[Source, tuple[int, ...]]]:
        """The pairs of sentence and prefix that every promise is tested with."""
        return [(source, prefix) for source in self.sources for prefix in self._prefixes_of(source, self.walks)]

    def _prefixes_of(self, source: Source, walks: int) -> list[tuple[int, ...]]:
        if (source, walks) not in self._walked:
            self._walked[source, walks] = self._walk_randomly(source, walks)
        return self._walked[source, walks]

    @Shared
    def _walked(self) -> dict[tuple[Source, int], list[tuple[int, ...]]]:
        """The results of `_prefixes_of`."""
        return {}

    def _walk_randomly(self, source: Source, walks: int) -> list[tuple[int, ...]]:
        rng = self._rng()
        predictor = self._simple()
        length = self.walk_length if source.max_length is None else min(self.walk_length, source.max_length)
        found = [random_prefix(predictor, source, self.vocab_size, length, rng, self.tokens) for _ in range(walks)]
        return [*found, *(prefix[:length] for prefix in self.prefixes)]

    def _states(
        self, predictor: BatchPredictor, source: Source, walks: int | None = None
    ) -> list[tuple[tuple[int, ...], State]]:
        """Different prefixes of one sentence with their states, the empty prefix first."""
        found: dict[tuple[int, ...], State] = {(): predictor.initialize_batch([source])[0]}
        for whole in self._prefixes_of(source, walks or self.walks):
            for t, token in enumerate(whole):
                if whole[: t + 1] not in found:
                    found[whole[: t + 1]] = predictor.consume_batch([found[whole[:t]]], [token])[0]
        return list(found.items())

    def _with_limits(self, limit: int | None) -> list[Source]:
        """The sentences, followed by those that have another limit with this length limit."""
        others = (source for source in self.sources if source.max_length != limit)
        return [*self.sources, *(replace(source, max_length=limit) for source in others)]

    def _simple(self) -> Predictor:
        predictor = self.make()
        return predictor if isinstance(predictor, Predictor) else Lowered(predictor)

    def _begin(self, source: Source) -> Predictor:
        predictor = self._simple()
        predictor.initialize(source)
        return predictor

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(20170804)

    def _same(
        self,
        first: Row,
        second: Row,
        promise: str,
        source: Source,
        prefix: Sequence[int],
        tokens: Sequence[int] | None = None,
    ) -> None:
        """Fail with the promise as the message if two rows differ; compare only ``tokens`` if given."""
        found = difference(first, second, self.tolerance, tokens)
        assert found is None, f"{promise}: {found} {where(source, prefix)}"

"""The bytes sent per step, measured, next to the prediction of the strategy's formula."""

from __future__ import annotations

from collections.abc import Sequence

from sgdec.training.data.batch import TrainingBatch
from sgdec.training.parallel.strategy import Strategy


class Volume:
    """The bytes sent by purpose in the updates that `add` records; empty in a group of one."""

    def __init__(self, strategy: Strategy) -> None:
        """Start counting: bytes sent earlier are dropped."""
        self._strategy, self._group = strategy, strategy.group
        self._steps = 0
        self._expected: dict[str, float] = {}
        self._group.sent.clear()

    def add(self, batches: Sequence[TrainingBatch]) -> None:
        """Record an update of these batches."""
        self._steps += 1
        for purpose, amount in self._strategy.expected(batches).items():
            self._expected[purpose] = self._expected.get(purpose, 0.0) + amount

    @property
    def row(self) -> dict[str, float]:
        """For the log: the megabytes per step that this rank has sent for the purposes that the formula covers."""
        if self._group.size == 1 or not self._steps:
            return {}
        sent = sum(self._group.sent.get(purpose, 0.0) for purpose in self._expected)
        return {"sent_mb_per_step": round(sent / 1e6 / self._steps, 3)}

    def lines(self) -> list[str]:
        """Lines for the log: what all ranks together sent per step, one line per purpose. Collective."""
        if self._group.size == 1 or not self._steps:
            return []
        sent, expected = self._group.total(self._group.sent), self._group.total(self._expected)
        header = f"sent per step by {self._group.size} ranks together, and by the formula ({self._strategy.formula}):"
        return [header] + [
            f"  {purpose}: {_megabytes(amount / self._steps)}"
            + (f", formula {_megabytes(expected[purpose] / self._steps)}" if purpose in expected else ", no formula")
            for purpose, amount in sorted(sent.items(), key=lambda item: -item[1])
        ]


def _megabytes(volume: float) -> str:
    """A number of bytes in readable form.

    >>> _megabytes(1234567.0), _megabytes(42.0)
    ('1.235 MB', '0.000042 MB')
    """
    return f"{volume / 1e6:.3f} MB" if volume >= 1e4 else f"{volume / 1e6:.6f} MB"

"""The subject of a diagnosis: predictors with their weights, the decoder with its options, and the exact search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sgdec.errors import counted
from sgdec.library import LoadedRun
from sgdec.signature import exact
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.stopping import Stopping, options_of


@dataclass(frozen=True)
class Subject:
    """The parts of a run that decide its outputs."""

    predictors: Mapping[str, str]
    """By name the plugin, with its wrappers: ``{"english": "ngram"}``."""
    weights: Mapping[str, float | None]
    decoder: str
    options: Mapping[str, Any]
    """All options of the decoder."""
    stop: str | None
    """Its stop rule; None if it has no option for it."""
    proof: str
    """The exact search with its limits, in words."""

    @classmethod
    def of(cls, run: LoadedRun, budget: ProofBudget, stopping: Stopping) -> Subject:
        parts = run.parts
        plugins = {entry.name: entry.said(lambda part: _plugin(part.plugin)) for _, entry in parts.entries}
        weights = dict(zip(parts.constellation.names, parts.constellation.weights, strict=True))
        return cls(
            plugins, weights, parts.config.decoder_name, options_of(run), stopping.rule, _proof(budget)
        )

    def lines(self) -> Iterator[tuple[str, str]]:
        """The head of a report: labels and texts."""
        predictors = (
            f"{name if name == plugin else f'{name}={plugin}'} ({_weight(self.weights[name])})"
            for name, plugin in self.predictors.items()
        )
        yield "predictors", ", ".join(predictors)
        options = ", ".join(f"{name} {_said(value)}" for name, value in self.options.items())
        yield "decoder", f"{self.decoder} ({options})" if options else self.decoder
        yield "stop rule", f"{self.decoder} has no option for it" if self.stop is None else self.stop
        yield "exact search", self.proof

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for `json`."""
        options = {name: _plain(value) for name, value in self.options.items()}
        return {
            "predictors": self.predictors,
            "weights": self.weights,
            "decoder": {"name": self.decoder, "options": options},
            "stop": self.stop,
            "exact_search": self.proof,
        }


def _plugin(plugin: Any) -> str:
    return plugin if isinstance(plugin, str) else (plugin if isinstance(plugin, type) else type(plugin)).__name__


def _weight(weight: float | None) -> str:
    return "no weight" if weight is None else f"weight {exact(weight)}"


def _proof(budget: ProofBudget) -> str:
    if budget.proof == "none":
        return "none"
    expansions = [counted(budget.max_expansions, "expansion")] if budget.max_expansions else []
    listed = " and ".join([*expansions, *([f"{budget.max_seconds:g} s"] if budget.max_seconds else [])])
    return f"{budget.proof}, at most {listed} for each sentence" if listed else f"{budget.proof} without limits"


def _said(value: Any) -> str:
    """As on a command line."""
    return str(value).lower() if isinstance(value, bool) else exact(value) if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """A value that JSON has; others as text."""
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)

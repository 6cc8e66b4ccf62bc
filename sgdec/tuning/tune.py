"""Weights for a metric, by rounds of decoding and optimising on all lists so far (Och 2003).

A round decodes with the present weights, adds what is new to the lists, and optimises on all of them. For each alpha
of a grid the features are the scores by predictor, divided by the length penalty; if beta is tuned, the coverage
penalty is one more. The first weight keeps its value: the best outputs of lists depend on the ratios of weights
alone, but penalties and draws see their size. Optimising is repeated with several seeds, whose spread says how far a
result is chance (Clark et al. 2011, "Better Hypothesis Testing for Statistical Machine Translation"). What is best on
the lists is decoded next; the rounds end when the lists have nothing new.

The result is the round whose *decode* is the best on the development set. Held-out sentences are decoded with the
same weights, and decide nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from sgdec.arrays import Floats
from sgdec.errors import SgdecError, UsageError
from sgdec.files import parse_json, read_document
from sgdec.io.writing import write_whole
from sgdec.signature import DIGITS, LIBRARIES
from sgdec.tuning.lists import FeatureLists
from sgdec.tuning.mert import grid, mert
from sgdec.tuning.metrics import METRICS, CorpusMetric
from sgdec.tuning.mira import mira
from sgdec.tuning.scored_lists import ScoredLists, read_rows

if TYPE_CHECKING:
    from sgdec.found import Found
    from sgdec.library import LoadedRun, Sentence

Method: TypeAlias = Literal["mert", "mira", "grid"]
Row: TypeAlias = dict[str, Any]
POINTS = 11
"""The values of each weight in a grid."""
MOST_POINTS = 100_000
BETA = "beta"
SETTINGS = "tuning.json"
"""The file of a folder that says what it belongs to."""
VOLATILE = ("sgdec", "batch_size", "window", "max_rows", "threads")
"""Fields of a signature that do not decide what a round finds."""


@dataclass(frozen=True)
class Tuning:
    """The settings of a tuning."""

    metric: str = "bleu"
    method: Method = "mert"
    rounds: int = 5
    """The most decodes of the development set."""
    seeds: int = 3
    alphas: tuple[float, ...] = ()
    """The grid of alpha; empty = that of the run."""
    beta: bool = False
    """Whether beta is tuned."""
    bounds: Mapping[str, tuple[float, float]] | None = None
    """The lowest and highest weight by predictor, and of beta; those that are not named are at least 0."""

    def __post_init__(self) -> None:
        """Raises UsageError for an unknown metric or method, and for invalid numbers."""
        for name, value, known in (("metric", self.metric, METRICS), ("method", self.method, get_args(Method))):
            if value not in known:
                raise UsageError(f"{name} {value!r}: expected {', '.join(known)}.")
        for name, count in (("rounds", self.rounds), ("seeds", self.seeds)):
            if not isinstance(count, int) or count < 1:
                raise UsageError(f"{name} {count!r}: expected at least 1.")
        if isinstance(self.alphas, str) or not all(isinstance(each, (int, float)) for each in self.alphas):
            raise UsageError(f"alphas {self.alphas!r}: expected numbers, such as (0.0, 0.5, 1.0).")
        for name, ends in (self.bounds or {}).items():
            pair = isinstance(ends, (tuple, list)) and len(ends) == 2
            if not (pair and all(isinstance(end, (int, float)) for end in ends) and ends[0] <= ends[1]):
                raise UsageError(f"bounds of {name!r}: expected LOW,HIGH with LOW at most HIGH, not {ends!r}.")


@dataclass(frozen=True)
class Round:
    """A decode of both sets, and what the lists promise of the next one."""

    weights: Mapping[str, float]
    options: Mapping[str, float]
    """Options of the decoder that are tuned: alpha, beta."""
    development: float
    """The metric."""
    held_out: float | None
    new: int
    """The number of hypotheses that no list had before."""
    promised: tuple[float, ...]
    """The metric on all lists so far of the best point of each seed; empty in the last round."""
    constant: tuple[str, ...]
    """The features that have one value in each list, so that their weights decide nothing."""
    outputs: tuple[str, ...]
    held_out_outputs: tuple[str, ...]


@dataclass(frozen=True)
class Tuned:
    """All rounds."""

    run: LoadedRun
    """The run with the best weights."""
    rounds: tuple[Round, ...]
    best: Round
    """The round whose decode is the best on the development set; of equally good ones the first."""


Watch: TypeAlias = Callable[[Iterator["Found"], str], Iterable["Found"]]


def tune(
    run: LoadedRun,
    sources: Sequence[Sentence],
    references: Sequence[str],
    *,
    held_out: tuple[Sequence[Sentence], Sequence[str]] = ((), ()),
    folder: str | None = None,
    watch: Watch = lambda found, work: found,
    ended: Callable[[Round], object] = lambda each: None,
    **tuning: Any,
) -> Tuned:
    """Tune the weights of a run on a development set; its lists should have many hypotheses (``nbest``).

    ``tuning``: the fields of `Tuning`. ``held_out``: other sources with their references; their numbers (``{id}``)
    follow those of the development set. ``folder``: keeps the lists of each decode; what it already has is not
    decoded again. ``watch`` sees the results of each decode; ``ended`` is called after each round.

    Raises UsageError for settings that the run does not have, or a folder of something else; SgdecError for a
    sentence without a hypothesis, and for lists of which `ScoredLists` or `FeatureLists` say why they cannot be used.
    """
    asked = Tuning(**tuning)
    for what, lines, expected in (("sources", sources, references), ("held-out sources", *held_out)):
        if len(lines) != len(expected):
            raise SgdecError(f"{len(lines):,} {what} and {len(expected):,} references: expected one for each.")
    if not sources:
        raise SgdecError("there are no sentences to tune on.")
    space = _Space(run, asked)
    kept = None if folder is None else _Folder(folder, _identity(run, asked, [sources, references, *held_out]))
    rounds = []
    for each in _rounds(run, space, sources, references, held_out, kept, watch):
        rounds.append(each)
        ended(each)
    sign = METRICS[asked.metric].sign
    best = max(rounds, key=lambda each: sign * each.development)
    return Tuned(run.with_weights(best.weights, **best.options), tuple(rounds), best)


def _identity(run: LoadedRun, tuning: Tuning, text: Sequence[Sequence[Any]]) -> Row:
    """The settings on which the rounds of a folder depend, without versions of libraries and sizes of batches."""
    fields = dict(field.partition(":")[::2] for field in run.signature.split("|"))
    found = {name: value for name, value in fields.items() if name not in (*LIBRARIES, *VOLATILE)}
    asked = {name: value for name, value in asdict(tuning).items() if name != "rounds"}
    digest = hashlib.sha256(json.dumps(text, default=list).encode()).hexdigest()
    return {**found, **json.loads(json.dumps(asked)), "sentences": digest[:DIGITS]}


def _rounds(
    run: LoadedRun,
    space: _Space,
    sources: Sequence[Sentence],
    references: Sequence[str],
    held_out: tuple[Sequence[Sentence], Sequence[str]],
    kept: _Folder | None,
    watch: Watch,
) -> Iterator[Round]:
    tuning = space.tuning
    metric = METRICS[tuning.metric]
    weights, options = space.start
    lists: list[dict[tuple[int, ...], Row]] = [{} for _ in references]
    for number in range(1, tuning.rounds + 1):
        changed = run.with_weights(weights, **options)
        both = _decoded(changed, weights, [*sources, *held_out[0]], number, kept, watch)
        rows, others = both[: len(sources)], both[len(sources) :]
        new = sum(_merged(own, row, space.start[0]) for own, row in zip(lists, rows, strict=True))
        found = space.optima(lists, references, weights, options, number) if new and number < tuning.rounds else {}
        yield Round(
            weights, options, _score(metric, rows, references),
            _score(metric, others, held_out[1]) if others else None, new,
            tuple(metric.sign * score for score, _, _ in found.values()), space.constant, _outputs(rows),
            _outputs(others),
        )  # fmt: skip
        if not found:
            return
        _, weights, options = max(found.values(), key=lambda each: each[0])


def _decoded(
    run: LoadedRun,
    weights: Mapping[str, float],
    lines: Sequence[Sentence],
    number: int,
    kept: _Folder | None,
    watch: Watch,
) -> list[Row]:
    """The rows of a decode with these weights, or those that the folder has of it."""
    if kept is not None and (rows := kept.read(number, len(lines), weights)) is not None:
        return rows
    rows = [each.to_dict(ledger=False) for each in watch(run.decode(lines, errors="raise"), f"round {number}")]
    _require(rows, weights, f"round {number}")
    if kept is not None:
        kept.write(number, rows)
    return rows


class _Space:
    """The space of weights and options that are tuned."""

    def __init__(self, run: LoadedRun, tuning: Tuning) -> None:
        constellation, ranking = run.parts.constellation, run.parts.decoder.ranking
        self.tuning, self._ranking, self._metric = tuning, ranking, METRICS[tuning.metric]
        weights = dict(zip(constellation.names, (weight or 0.0 for weight in constellation.weights), strict=True))
        if BETA in weights:
            raise UsageError("a predictor is named beta, as the coverage penalty is: give it another name.")
        self.constant: tuple[str, ...] = ()
        """The features that have one value in each list, after `optima`."""
        covered = run.settings.coverage or ranking.uses_coverage
        self._names = (*weights, *([BETA] if covered else []))
        self._alphas = tuning.alphas or (ranking.alpha,)
        if len(weights) == 1 and len(self._alphas) == 1 and not tuning.beta:
            raise UsageError("there is nothing to tune: one predictor, one alpha, no beta. Give --alphas or --beta.")
        if tuning.beta and not covered:
            raise UsageError("beta is tuned by the coverage of hypotheses: load the run with coverage=True.")
        given = dict(tuning.bounds or {})
        if unknown := [name for name in given if name not in self._names]:
            raise UsageError(f"bounds of {unknown[0]!r}, which is not tuned. Available: {', '.join(self._names)}.")
        own = {} if tuning.beta else {BETA: (ranking.beta, ranking.beta)}
        self._bounds = np.array([{**given, **own}.get(name, (0.0, np.inf)) for name in self._names])
        first = weights[self._names[0]]
        if self._names[0] in given:
            raise UsageError(f"bounds of {self._names[0]!r}, the first predictor, whose weight keeps its value.")
        if not first:
            raise UsageError(f"the first weight, that of {self._names[0]}, stays 0: list another predictor first.")
        self._bounds[0] = first
        if tuning.method == "grid" and (
            not np.isfinite(self._bounds).all() or POINTS ** (len(self._names) - 1) > MOST_POINTS
        ):
            raise UsageError(
                f"method grid tries {POINTS} values of each weight, {MOST_POINTS:,} points at most: give bounds for "
                f"each of {', '.join(self._names[1:])}, or method mert."
            )
        for alpha in tuning.alphas:
            run.with_weights(weights, alpha=alpha)  # raises UsageError for a number that alpha cannot be
        start = np.clip([*weights.values(), *([ranking.beta] if covered else [])], *self._bounds.T)
        inside = dict(zip(self._names, start.tolist(), strict=True))
        penalties = {"alpha": ranking.alpha, BETA: inside.pop(BETA, 0.0)}
        asked = {"alpha": bool(tuning.alphas), BETA: tuning.beta}
        self.start = inside, {name: value for name, value in penalties.items() if asked[name]}
        """The weights and options of the first round, within the bounds."""

    def optima(
        self,
        lists: Sequence[Mapping[tuple[int, ...], Row]],
        references: Sequence[str],
        weights: Mapping[str, float],
        options: Mapping[str, float],
        number: int,
    ) -> dict[int, tuple[float, dict[str, float], dict[str, float]]]:
        """For each seed the best metric on the lists, higher = better, with its weights and options."""
        rows = ({"id": id, "hypotheses": list(own.values())} for id, own in enumerate(lists, 1))
        scored = ScoredLists.of(rows, "the lists")
        statistics = scored.statistics(self._metric, references)
        betas = [options.get(BETA, self._ranking.beta)] if BETA in self._names else []
        start = np.clip([*weights.values(), *betas], *self._bounds.T)
        found: dict[int, tuple[float, dict[str, float], dict[str, float]]] = {}
        for seed, alpha in product(range(self.tuning.seeds), self._alphas):
            own = scored.lists(replace(self._ranking, alpha=alpha), statistics, self._metric)
            self.constant = tuple(own.constant)
            best = self._optimised(own, start, np.random.default_rng([number, seed]))
            if seed not in found or own.score(best) > found[seed][0]:
                named = dict(zip(self._names, best.tolist(), strict=True))
                beta = named.pop(BETA, 0.0)
                found[seed] = own.score(best), named, {name: beta if name == BETA else alpha for name in options}
        return found

    def _optimised(self, lists: FeatureLists, start: Floats, generator: np.random.Generator) -> Floats:
        if self.tuning.method == "grid":
            axes = [np.linspace(low, high, POINTS) for low, high in self._bounds[1:]]
            return grid(lists, [start.tolist(), *([start[0], *point] for point in product(*axes))])
        if self.tuning.method == "mira":
            return mira(lists, start, self._bounds, generator=generator)
        return mert(lists, start, self._bounds, generator=generator)


class _Folder:
    """The lists of all rounds, one file for each."""

    def __init__(self, path: str, settings: Row) -> None:
        """Raises UsageError if the folder is there and belongs to another run or other settings."""
        self._path = path
        file = os.path.join(path, SETTINGS)
        if os.path.exists(file):
            try:
                known = parse_json(read_document(file))
                names = sorted(name for name in {*known, *settings} if known.get(name) != settings.get(name))
            except (OSError, ValueError, TypeError, AttributeError):
                raise SgdecError(f"{file}: expected the settings of a tuning. Give a new folder.") from None
            if names:
                raise UsageError(f"{path} has rounds with other settings ({', '.join(names)}): give a new folder.")
        else:
            if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
                raise UsageError(f"{path} is not empty, and has no {SETTINGS}; give a new folder.")
            os.makedirs(path, exist_ok=True)
            write_whole(file, json.dumps(settings, indent=1, ensure_ascii=False, sort_keys=True) + "\n")

    def read(self, number: int, lines: int, weights: Mapping[str, float]) -> list[Row] | None:
        """The rows of a decode of this number of sentences with these weights; None if they are not there yet."""
        path = self._file(number)
        if not os.path.exists(path):
            return None
        rows = list(read_rows(path))
        if len(rows) != lines:
            raise SgdecError(f"{path}: expected {lines:,} lists, one on each line. Delete it: it is decoded again.")
        _require(rows, weights, path)
        return rows

    def write(self, number: int, rows: Sequence[Row]) -> None:
        write_whole(self._file(number), "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))

    def _file(self, number: int) -> str:
        return os.path.join(self._path, f"round-{number}.jsonl")


def _require(rows: Sequence[Row], weights: Mapping[str, float], where: str) -> None:
    """Raise SgdecError unless each row is the list of its sentence, decoded with these weights."""
    lists = ScoredLists.of(rows, where)
    if lists.weights != weights:
        raise SgdecError(
            f"{where}: the hypotheses have the weights {dict(lists.weights)}, and this round {dict(weights)}. Delete "
            "the file: it is decoded again."
        )


def _merged(known: dict[tuple[int, ...], Row], row: Row, weights: Mapping[str, float]) -> int:
    """Add the hypotheses of a row to a list, and return how many are new; all have the weights of the start."""
    before = len(known)
    for each in row["hypotheses"]:
        known.setdefault(tuple(each["tokens"]), {**each, "weights": dict(weights)})
    return len(known) - before


def _outputs(rows: Sequence[Row]) -> tuple[str, ...]:
    firsts = [row["hypotheses"][0] for row in rows]
    return tuple(" ".join(map(str, each["tokens"])) if each["text"] is None else each["text"] for each in firsts)


def _score(metric: CorpusMetric, rows: Sequence[Row], references: Sequence[str]) -> float:
    return float(metric.scores(metric.statistics(_outputs(rows), references).sum(axis=0)))

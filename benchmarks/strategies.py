"""Quality against expansions: of one output, of lists, and of draws from a known posterior, with many decoders.

Three questions about a translation model, each with the decoders that answer it:

- ``one``: how good is the first output? BLEU, chrF and TER of the whole test set;
- ``lists``: how good is the best of 16 outputs, and how much do the 16 differ? The mean over sentences of the highest
  sentence chrF of a list to the reference, and of 100 minus chrF between two outputs of a list;
- ``closed``: the output has to be one of the references of the test set (a trie). A beam that is wider than the trie
  lists the whole space, so the posterior exp(total) / Z is known. How often is the first output the reference, how
  often the one with the highest total, and how far are the draws from the posterior? The last is the mean total
  variation between the posterior and the weighted list.

Each model is decoded with a seed of its own number; figures are means over the models, with the standard error.

    python benchmarks/strategies.py one lists closed --models RUN... --source FILE --reference FILE
        [--sentences 1000] [--closed-sentences 100] [--plot FILE] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

import sgdec
from sgdec.found import Found
from sgdec.text.lines import read_lines
from sgdec.utility import pairwise

LISTED = 16
LENGTH = 60
Options = Mapping[str, Any]
Figures = dict[str, float]


class Strategy(NamedTuple):
    """A decoder with options: one point of a line in the picture."""

    line: str
    size: str
    """The difference between the points of a line."""
    decoder: str
    options: Options = MappingProxyType({})
    nbest: int = 1

    @property
    def label(self) -> str:
        return f"{self.line}, {self.size}" if self.size else self.line


BEAM: Options = {"stop": "full", "alpha": 0.6}
EPSILON = "epsilon=0.02"


def mbr(line: str, samples: int, candidates: str = "sample", **more: Any) -> Strategy:
    """``candidates``: a decoder with its options, but for the number of samples."""
    given = f"{candidates}{',' if ':' in candidates else ':'}samples={samples}"
    return Strategy(line, str(samples), "mbr", {"candidates": given, **more})


ONE = [
    Strategy("greedy", "", "greedy"),
    *(Strategy("beam", str(size), "beam", {"size": size, **BEAM}) for size in (2, 4, 8, 16, 64)),
    *(Strategy("best total of samples", str(n), "sample", {"samples": n}) for n in (1, 16, 64)),
    Strategy("one draw with epsilon", "", "sample", {"chain": EPSILON}),
    *(mbr("mbr, samples", n) for n in (16, 64)),
    *(mbr("mbr, epsilon, arithmetic", n, f"stochastic:method=arithmetic,chain={EPSILON}") for n in (16, 64)),
    *(mbr("mbr, epsilon", n, f"sample:chain={EPSILON}") for n in (16, 64)),
]
LISTS = [
    Strategy("beam", "", "beam", {"size": LISTED, **BEAM}, LISTED),
    Strategy("diverse", "4 groups", "diverse", {"size": LISTED, "groups": 4, "strength": 0.5, **BEAM}, LISTED),
    Strategy("diverse", "16 groups", "diverse", {"size": LISTED, "groups": LISTED, "strength": 0.5, **BEAM}, LISTED),
    Strategy("sample", "", "sample", {"samples": LISTED}, LISTED),
    Strategy("sample", "epsilon", "sample", {"samples": LISTED, "chain": EPSILON}, LISTED),
    Strategy("stochastic", "gumbel", "stochastic", {"samples": LISTED}, LISTED),
    Strategy("stochastic", "gumbel, epsilon", "stochastic", {"samples": LISTED, "chain": EPSILON}, LISTED),
    Strategy("stochastic", "arithmetic", "stochastic", {"samples": LISTED, "method": "arithmetic"}, LISTED),
]
DRAWS = (16, 64, 256)
CLOSED = [
    Strategy("greedy", "", "greedy"),
    *(Strategy("beam", str(size), "beam", {"size": size, "stop": "full"}) for size in (2, 4, 16, 64)),
    Strategy("astar", "proven", "astar"),
    Strategy("dfs", "proven", "dfs"),
    *(Strategy("sample", str(n), "sample", {"samples": n}, n) for n in DRAWS),
    *(Strategy("particles", str(n), "particles", {"particles": n}, n) for n in DRAWS),
    *(Strategy("mcmc", str(n), "mcmc", {"steps": n, "walks": 1}, n) for n in DRAWS),
]


class Task(NamedTuple):
    """Sentences with references, and the models that translate them."""

    models: Sequence[str]
    sources: Sequence[str]
    references: Sequence[str]

    def decode(self, model: int, strategy: Strategy, predictors: str = "nmt", **options: Any) -> list[Found]:
        given = {strategy.decoder: dict(strategy.options)} if strategy.options else {}
        run = sgdec.load(
            predictors, strategy.decoder, nmt={"model": self.models[model]}, nbest=strategy.nbest, seed=model + 1,
            max_length=LENGTH, batch_size=16, **given, **options,
        )  # fmt: skip
        return list(run.decode(self.sources, errors="raise"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", choices=("one", "lists", "closed"))
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--closed-sentences", type=int, default=100)
    parser.add_argument("--plot", help="file to draw; .png or .svg")
    parser.add_argument("--json", help="file for all figures; those that it already has are not measured again")
    given = parser.parse_args()
    sources, references = list(read_lines(given.source)), list(read_lines(given.reference))
    task = Task(given.models, sources[: given.sentences], references[: given.sentences])
    known = Path(given.json) if given.json else None
    found: dict[str, Any] = json.loads(known.read_text()) if known and known.exists() else {}

    def measured(question: str, strategies: Sequence[Strategy], measure: Callable[[int, Strategy], Figures]) -> None:
        print(f"\n{question}", flush=True)
        for strategy in strategies:
            for model in range(len(task.models)):
                key = f"{question} | {strategy.label} | {model + 1}"
                if key not in found:
                    found[key] = measure(model, strategy)
                    if known:
                        known.write_text(json.dumps(found, indent=1))
            print(row(strategy, summary(found, question, strategy, len(task.models))), flush=True)

    if "one" in given.questions:
        measured("one", ONE, lambda model, strategy: quality(task, model, strategy))
    if "lists" in given.questions:
        measured("lists", LISTS, lambda model, strategy: list_quality(task, model, strategy))
    if "closed" in given.questions:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "closed.txt"
            path.write_text("".join(f"{line}\n" for line in sorted(set(references))), encoding="utf-8")
            few = task._replace(sources=sources[: given.closed_sentences], references=references)
            spaces = [Closed(few, model, str(path)) for model in range(len(task.models))]
            measured("closed", CLOSED, lambda model, strategy: spaces[model].measure(strategy))
    if given.plot:
        draw(found, len(task.models), given.plot)


def quality(task: Task, model: int, strategy: Strategy) -> Figures:
    """Figures of the first outputs."""
    start = time.process_time()
    found = task.decode(model, strategy)
    seconds = time.process_time() - start
    texts = [each.best.text if each.hypotheses else "" for each in found]
    references = [list(task.references)]
    return {
        "BLEU": BLEU().corpus_score(texts, references).score,
        "chrF": CHRF().corpus_score(texts, references).score,
        "TER": TER().corpus_score(texts, references).score,
        **costs(found, seconds),
    }


def list_quality(task: Task, model: int, strategy: Strategy) -> Figures:
    """Figures of lists: the best output of each, how much they differ, and their number."""
    start = time.process_time()
    found = task.decode(model, strategy)
    seconds = time.process_time() - start
    chrf = sgdec.load_utility("chrf")
    best, differ, sizes = [], [], []
    for each, reference in zip(found, task.references, strict=True):
        texts = [one.text or "" for one in each.hypotheses] or [""]
        best.append(float(pairwise(chrf, texts, [reference]).max()))
        among = pairwise(chrf, texts, texts)
        others = len(texts) * (len(texts) - 1)
        differ.append(float(100.0 - (among.sum() - np.trace(among)) / others) if others else 0.0)
        sizes.append(float(len(texts)))
    means = {"best chrF": best, "differ": differ, "outputs": sizes}
    return {name: float(np.mean(values)) for name, values in means.items()} | costs(found, seconds)


class Closed:
    """The space of all references, with the posterior of each sentence."""

    def __init__(self, task: Task, model: int, path: str) -> None:
        self.task, self.model = task, model
        self.options: Options = {"trie": {"path": path, "use_weights": False}}
        self._posteriors: list[dict[tuple[int, ...], float]] | None = None

    @property
    def posteriors(self) -> list[dict[tuple[int, ...], float]]:
        """For each sentence the probability of each output."""
        if self._posteriors is None:
            size = len(set(self.task.references))
            whole = Strategy("whole space", "", "beam", {"size": size, "stop": "full"}, size)
            found = self.task.decode(self.model, whole, "nmt,trie", **self.options)
            self._posteriors = [normalised({one.tokens: one.score for one in each.hypotheses}) for each in found]
        return self._posteriors

    def measure(self, strategy: Strategy) -> Figures:
        posteriors = self.posteriors
        start = time.process_time()
        found = self.task.decode(self.model, strategy, "nmt,trie", **self.options)
        seconds = time.process_time() - start
        right = [
            bool(each.hypotheses) and first(each).text == reference
            for each, reference in zip(found, self.task.references, strict=False)
        ]
        optimal = [
            bool(each.hypotheses) and posterior[first(each).tokens] >= max(posterior.values())
            for each, posterior in zip(found, posteriors, strict=True)
        ]
        figures = {"reference first": 100 * float(np.mean(right)), "optimum first": 100 * float(np.mean(optimal))}
        if any(each.drawn for each in found):
            far = [variation(shares(each), posterior) for each, posterior in zip(found, posteriors, strict=True)]
            figures["variation"] = float(np.mean(far))
        return figures | costs(found, seconds)


def normalised(logs: Mapping[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    whole = np.logaddexp.reduce(list(logs.values()))
    return {key: math.exp(value - whole) for key, value in logs.items()}


def shares(found: Found) -> dict[tuple[int, ...], float]:
    """The weighted list of a sentence, normalised."""
    logs = {
        one.tokens: math.log(one.count or 1) if one.log_weight is None else one.log_weight for one in found.hypotheses
    }
    return normalised(logs) if logs else {}


def first(found: Found) -> Any:
    """The first hypothesis of the list, which has the highest total of all that were found."""
    return found.hypotheses[0]


def variation(ours: Mapping[tuple[int, ...], float], posterior: Mapping[tuple[int, ...], float]) -> float:
    return 0.5 * sum(abs(ours.get(key, 0.0) - posterior.get(key, 0.0)) for key in ours.keys() | posterior.keys())


def costs(found: Sequence[Found], seconds: float) -> Figures:
    return {
        "expansions": float(np.mean([each.expansions for each in found])),
        "CPU ms": 1000 * seconds / len(found),
    }


def summary(
    found: Mapping[str, Figures], question: str, strategy: Strategy, models: int
) -> dict[str, tuple[float, float]]:
    """For each figure its mean over the models, and the standard error."""
    each = [found[f"{question} | {strategy.label} | {model + 1}"] for model in range(models)]
    return {
        name: (
            float(np.mean(values := [one[name] for one in each])),
            float(np.std(values, ddof=1) / math.sqrt(models)) if models > 1 else 0.0,
        )
        for name in each[0]
    }


def row(strategy: Strategy, figures: Mapping[str, tuple[float, float]]) -> str:
    shown = (
        f"{name} {mean:,.0f}" if name in ("expansions", "CPU ms") else f"{name} {mean:.2f} ({error:.2f})"
        for name, (mean, error) in figures.items()
    )
    return f"{strategy.label:32} " + "  ".join(shown)


def draw(found: Mapping[str, Figures], models: int, path: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3)
    plots = (("one", ONE, "chrF"), ("closed", CLOSED, "optimum first"), ("closed", CLOSED, "variation"))
    for axes, (question, strategies, name) in zip(panels, plots, strict=True):
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for strategy in strategies:
            if f"{question} | {strategy.label} | 1" in found:
                figures = summary(found, question, strategy, models)
                if name in figures:
                    lines.setdefault(strategy.line, []).append((figures["expansions"][0], *figures[name]))
        for (line, points), marker in zip(lines.items(), islice("os^vD*PX<>", len(lines)), strict=True):
            x, y, error = zip(*points, strict=True)
            axes.errorbar(x, y, yerr=error, marker=marker, markersize=4, linewidth=1, capsize=2, label=line)
        axes.set(xlabel="expansions per sentence", xscale="log")
        axes.legend(fontsize="x-small")
    panels[0].set(title="one output: chrF")
    panels[1].set(title="closed set: optimum first (%)")
    panels[2].set(title="closed set: distance of the draws\nfrom the posterior", ylim=(0, None))
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()

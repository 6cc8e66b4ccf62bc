"""How does the time grow with the work: batch size, beam, vocabulary, number of predictors, length of a sentence?

GNMT models with random weights, whose outputs are as long as their sources (see `common`); `beam` through the
scheduler and `vanilla`, one axis at a time, all else as in the middle of each: batch 32, beam 5, 8,000 words, one
model, 20 tokens. First both decoders have to find the same. For each point: output tokens/s, the time for each
(token x hypothesis), medians of ``--runs``; for each axis the exponent e of time ~ size^e, by least squares over all
points, and between the last two. 1 is linear; time is that of a batch, for a beam, vocabulary or ensemble of that
size, or of a sentence of that length. Plotted as tokens/s, with what linear growth from the first point would give.

    python benchmarks/scaling.py [--plot docs/figures/scaling.png] [--threads 2] [--runs 3] [--axes beam length]
        [--layers 2 --width 512] [--batch-size 32] [--cpu-time]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from common import decode, frozen, nmt, output_tokens, random_gnmt, sentences, settle, share_of_equals, signature
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.nmt import NmtPredictor

from sgdec.decoder import Decoder
from sgdec.search.constellation import Constellation

DECODERS: Mapping[str, type[BeamDecoder | VanillaDecoder]] = {"beam": BeamDecoder, "vanilla": VanillaDecoder}
FEWEST = 8
"""Sentences of a run: small batches follow each other."""


@dataclass(frozen=True)
class Case:
    """One point. Names of fields are those of the axes."""

    batch_size: int
    beam: int = 5
    vocabulary: int = 8_000
    predictors: int = 1
    length: int = 20


@dataclass(frozen=True)
class Axis:
    """One field of a case that is varied."""

    label: str
    sizes: Sequence[int]
    per_token: bool
    """Whether doubling the size should double the time per output token; if not, it doubles the number of output
    tokens."""


AXES: Mapping[str, Axis] = {
    "batch_size": Axis("batch size (sentences)", (1, 4, 16, 64), False),
    "beam": Axis("beam size", (1, 2, 5, 10, 20), True),
    "vocabulary": Axis("vocabulary (words)", (1_000, 4_000, 8_000, 16_000, 32_000), True),
    "predictors": Axis("predictors (models)", (1, 2, 3, 4), True),
    "length": Axis("sentence length (tokens)", (5, 10, 20, 40, 80), False),
}
Seconds = dict[str, list[float]]
"""By decoder, the time of one output token for each size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plot", default="scaling.png", help="file to draw; .png or .svg")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=32, help="for all axes except the batch size itself")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time of one thread")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.cpu_time else time.perf_counter

    @cache
    def model(vocabulary: int, seed: int) -> NmtPredictor:
        return nmt(frozen(random_gnmt(given.layers, given.width, vocabulary, seed=seed)))

    middle = Case(given.batch_size)
    measured: dict[str, Seconds] = {}
    for name in given.axes:
        axis = AXES[name]
        measured[name] = {decoder: [] for decoder in DECODERS}
        print(f"\n{axis.label:<26}{'decoder':<9}{'tokens/s':>10}{'(range)':>18}{'us / (token x hypothesis)':>27}")
        for size in axis.sizes:
            case = replace(middle, **{name: size})
            models = {f"nmt{seed}": model(case.vocabulary, seed) for seed in range(1, case.predictors + 1)}
            constellation = Constellation.of(models, vocab_size=case.vocabulary)
            for decoder, times in measure(constellation, case, given.runs, clock).items():
                seconds = statistics.median(times)
                measured[name][decoder].append(seconds)
                spread = f"({1 / max(times):,.0f} - {1 / min(times):,.0f})"
                print(f"{size:<26,}{decoder:<9}{1 / seconds:>10,.0f}{spread:>18}{1e6 * seconds / case.beam:>27,.0f}")
        for decoder, times in measured[name].items():
            whole, last = exponents(axis, times)
            verdict = "more than linear" if max(whole, last) > 1 else "linear or better"
            print(f"{decoder}: time ~ size^{whole:.2f}, between the last two size^{last:.2f}: {verdict}", flush=True)
        model.cache_clear()
    draw(measured, middle, given.plot)
    print(signature(**{**vars(given), **asdict(middle)}))


def measure(
    constellation: Constellation, case: Case, runs: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds per output token by decoder, ``runs`` of each alternately; the first round is a warm-up, and its
    outputs are compared."""
    sources = sentences([case.length] * max(case.batch_size, FEWEST), case.vocabulary)
    decoders: dict[str, Decoder] = {name: make(size=case.beam) for name, make in DECODERS.items()}
    settle()
    found = {name: decode(constellation, decoder, sources, case.batch_size)[1] for name, decoder in decoders.items()}
    assert share_of_equals(found) >= 0.98, f"{case}: the decoders differ"
    times: dict[str, list[float]] = {name: [] for name in decoders}
    for _ in range(runs):
        for name, decoder in decoders.items():
            spent, _ = decode(constellation, decoder, sources, case.batch_size, clock)
            times[name].append(spent / output_tokens(sources))
    return times


def exponents(axis: Axis, seconds: Sequence[float]) -> tuple[float, float]:
    """The e of time ~ size^e, over all sizes and between the last two."""
    sizes = np.log(axis.sizes)
    times = np.log(seconds) + (0 if axis.per_token else sizes)
    slope, _ = np.polyfit(sizes, times, 1)
    return float(slope), float((times[-1] - times[-2]) / (sizes[-1] - sizes[-2]))


def draw(measured: Mapping[str, Seconds], middle: Case, file: str) -> None:
    """One panel per axis: tokens/s by size, both logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    columns = min(3, len(measured))
    rows = math.ceil(len(measured) / columns)
    figure = Figure(figsize=(3.3 * columns, 2.7 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    rates = [1 / t for by_decoder in measured.values() for times in by_decoder.values() for t in times]
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
    for (name, by_decoder), axes in zip(measured.items(), panels, strict=False):  # in this order: zip keeps no panel
        axis = AXES[name]
        sizes = np.array(axis.sizes)
        first = 1 / by_decoder["vanilla"][0]
        linear = first * (sizes[0] / sizes if axis.per_token else np.ones(len(sizes)))
        axes.plot(sizes, linear, color="0.6", linestyle=":", label="linear")
        for (decoder, seconds), marker in zip(by_decoder.items(), "o^", strict=True):
            axes.plot(sizes, 1 / np.array(seconds), marker=marker, markersize=4, label=decoder)
        axes.axvline(getattr(middle, name), color="0.85", zorder=0)
        axes.set(xlabel=axis.label, xscale="log", yscale="log", ylim=(0.7 * min(rates), 1.4 * max(rates)))
        axes.set_xticks(sizes, [f"{size // 1000}k" if size >= 1000 else str(size) for size in axis.sizes])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.25)
    for unused in panels:
        unused.axis("off")
        unused.legend(*axes.get_legend_handles_labels(), loc="center", frameon=False)
    if len(measured) == rows * columns:
        axes.legend()
    figure.supylabel("output tokens / s", fontsize="medium")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()

"""What do vocabulary clusters gain, and what do they miss?

Two commands. The time of the clusters includes everything that they need: finding centroids, the union of active
sets, the products, the mask, scattering. Weights are packed on both sides if packing is possible (the full
projection, and the columns that clusters always multiply). The sides alternate in one process; medians with the range
in brackets. ``--clock cpu`` counts the seconds of all threads, and is fairer to both sides on a busy machine.

    python benchmarks/clusters.py shapes [--vocab-size 128000 250000 --active 0.16 0.124]
        One projection at the shapes of "Fast Vocabulary Projection Method via Clustering", Table 2: d = 1024, 40 rows
        (beam 2, batch 20), 2,000 centroids, random numbers, other outputs in each run. The full projection to logits,
        and to log-probabilities, which is where the clusters have to arrive; both sides must agree on them first.

    python benchmarks/clusters.py model --model RUN/best --text TRAIN.SRC --lines 10000 --test TEST.SRC TEST.REF
        [--centroids 100 300 1000 --k 10 --decode-k 5 --decoder beam --beam 5 --batch-size 64 --plot miss-rate.png]
        [--shortlist FOLDER]
        A trained model. First what is missed: for each number of centroids, by K, how often the true arg-max token is
        outside the active set of its context on the test's source, and the mean active share; as a plot. Then what is
        gained: decoding the test with nmt, with clusternmt at each number of centroids, and with one cluster, which
        is the model with its never-used columns removed: sentences/s, BLEU, share of identical outputs, the share of
        the vocabulary active, and the resident memory of a process that decodes with nothing else. Each number of
        centroids is tried in two ways: each row has its own active set, and, as in the paper, all rows share the
        union. The paper's settings (section 3.3) are --beam 2 --batch-size 20 and --beam 1 --batch-size 1, with
        --decode-k 1 or 5. ``--shortlist`` adds the predictor shortlist, with a folder that `sgdec shortlist` wrote.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import signature
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.clusternmt import ClusterNmtPredictor
from sgdec_predictors.nmt import NmtPredictor
from sgdec_predictors.shortlist import ShortlistPredictor
from torch import Tensor

from sgdec.checkpoints.clusters import checksum, save_clusters
from sgdec.checkpoints.loading import load_model
from sgdec.cli.cluster import own_outputs
from sgdec.context import EOS
from sgdec.estimation.clusters import POINTS_PER_CENTROID, Recorded, collect, contexts, miss_rates
from sgdec.estimation.kmeans import kmeans
from sgdec.models.active import OutputLayer
from sgdec.models.clusters import ClusterProjection, Clusters
from sgdec.models.kernels import packed_linear
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.text.bleu import bleu
from sgdec.text.lines import read_lines

WIDTH, ROWS, CENTROIDS = 1024, 40, 2000
OWN_SHARE = 0.02
"""The share of the vocabulary that is active for one cluster: Figure 4, K = 1."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
DECODERS = {"beam": BeamDecoder, "vanilla": VanillaDecoder}
PREDICTORS = {"nmt": NmtPredictor, "clusternmt": ClusterNmtPredictor, "shortlist": ShortlistPredictor}
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    commands = parser.add_subparsers(required=True)
    shapes = commands.add_parser("shapes")
    shapes.add_argument("--vocab-size", type=int, nargs="+", default=[128_000, 250_000])
    shapes.add_argument("--active", type=float, nargs="+", default=[0.16, 0.124])
    shapes.set_defaults(work=measure_shapes)
    model = commands.add_parser("model")
    model.add_argument("--model", required=True)
    model.add_argument("--text", required=True, help="unlabelled source text to build clusters from")
    model.add_argument("--lines", type=int, help="number of lines of the text to use; default: all")
    model.add_argument("--test", required=True, nargs=2, metavar=("SRC", "REF"))
    model.add_argument("--centroids", type=int, nargs="+", default=[100, 300, 1000])
    model.add_argument("--k", type=int, default=10, help="the largest K of the plot")
    model.add_argument("--decode-k", type=int, default=5, help="K to decode with")
    model.add_argument("--decoder", choices=DECODERS, default="beam")
    model.add_argument("--beam", type=int, default=5)
    model.add_argument("--batch-size", type=int, default=64)
    model.add_argument("--shortlist", help="folder that `sgdec shortlist` wrote for the model")
    model.add_argument("--plot", default="miss-rate.png")
    model.set_defaults(work=measure_model)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    with torch.inference_mode():
        given.work(given)
    print(signature(device="cpu", threads=given.threads, precision="fp32", runs=given.runs, clock=given.clock))


def alternate(sides: Mapping[str, Callable[[], object]], runs: int, clock: str) -> dict[str, list[float]]:
    """Seconds of each side, run alternately; the first round is a warm-up."""
    now = CLOCKS[clock]
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(-1, runs):
        for name, work in sides.items():
            started = now()
            work()
            if run >= 0:
                seconds[name].append(now() - started)
    return seconds


def measure_shapes(given: argparse.Namespace) -> None:
    for size, active in zip(given.vocab_size, given.active, strict=True):
        weight, bias = torch.randn(size, WIDTH).mul_(0.03), torch.randn(size)
        clusters = random_clusters(size, active)
        clustered = ClusterProjection(clusters, 1, OutputLayer(weight, bias))
        full = packed_linear(weight, bias)
        output = near(clusters.centroids)
        scores, logits = clustered(output)[0], full(output)
        allowed = scores > float("-inf")
        normaliser = torch.where(allowed, logits, float("-inf")).logsumexp(1)[:, None]
        assert torch.allclose(scores[allowed], (logits - normaliser)[allowed], atol=1e-3), "the two sides differ"

        outputs = [near(clusters.centroids) for _ in range(given.runs + 1)]
        sides = {
            "full": projecting(full, outputs),
            "full, log-probabilities": projecting(lambda x, full=full: full(x).log_softmax(-1), outputs),  # type: ignore[misc]
            "clusters, log-probabilities": projecting(lambda x, ours=clustered: ours(x)[0], outputs),  # type: ignore[misc]
        }
        share = statistics.mean(clustered(output)[1] / size for output in outputs)
        print(f"V = {size:,}, {ROWS} rows: {share:.1%} active, {len(clustered.common) / size:.1%} always multiplied")
        seconds = alternate(sides, given.runs, given.clock)
        ours = statistics.median(seconds["clusters, log-probabilities"])
        for name, times in seconds.items():
            middle = statistics.median(times)
            spread = f"[{1e3 * min(times):.1f} to {1e3 * max(times):.1f}]"
            print(f"  {name}: {1e3 * middle:.1f} ms {spread}, {middle / ours:.2f} x clusters", flush=True)


def projecting(project: Callable[[Tensor], Tensor], outputs: list[Tensor]) -> Callable[[], Tensor]:
    """A function that projects another output at each call."""
    waiting = iter(outputs)
    return lambda: project(next(waiting))


def near(centroids: Tensor) -> Tensor:
    """Outputs [rows, d] near centroids drawn at random."""
    return centroids[torch.randint(len(centroids), (ROWS,))] + 0.1 * torch.randn(ROWS, WIDTH)


def random_clusters(size: int, active: float) -> Clusters:
    """`CENTROIDS` clusters in which token number t is active with probability min(1, (t / a)^-b).

    a and b are chosen so that `OWN_SHARE` of the vocabulary is active for one cluster, and ``active`` for a union of
    `ROWS`: two published numbers, and the shape of token frequencies in between.
    """
    order = torch.arange(1, size + 1, dtype=torch.float64)

    def law(b: float) -> Tensor:
        low, high = 1e-3, float(size)  # of a, by bisection: more active with a larger one
        for _ in range(60):
            a = (low + high) / 2
            chances = (order / a).pow(-b).clamp(max=1)
            low, high = (a, high) if float(chances.mean()) < OWN_SHARE else (low, a)
        return chances

    low, high = 1.01, 20.0  # of b: a steeper law repeats the same tokens, so that unions are smaller
    for _ in range(40):
        b = (low + high) / 2
        chances = law(b)
        union = float((1 - (1 - chances).pow(ROWS)).mean())
        low, high = (b, high) if union > active else (low, b)
    names = torch.cat([torch.tensor([EOS]), torch.tensor([0, 1]), 3 + torch.randperm(size - 3)])
    sets = [names[torch.rand(size) < chances].sort().values for _ in range(CENTROIDS)]
    return Clusters(
        torch.randn(CENTROIDS, WIDTH),
        torch.tensor([0, *map(len, sets)]).cumsum(0),
        torch.cat(sets),
        torch.ones(sum(map(len, sets)), dtype=torch.uint8),
        torch.ones(CENTROIDS, dtype=torch.long),
        size,
    )


def measure_model(given: argparse.Namespace) -> None:
    if not 1 <= given.decode_k <= given.k:
        raise SystemExit("--decode-k must be from 1 to --k")
    clusters = build_all(given)
    with tempfile.TemporaryDirectory() as folder:
        sides = {"nmt": Side("nmt", {"model": given.model})}
        for r, built in clusters.items():
            save_clusters(f"{folder}/{r}", built, model=checksum(given.model), about={})
            options = {"model": given.model, "clusters": f"{folder}/{r}", "k": given.decode_k}
            sides[label(r)] = Side("clusternmt", options)
            if r > 1:
                sides[f"{label(r)}, shared"] = Side("clusternmt", {**options, "shared": True})
        if given.shortlist:
            sides["shortlist"] = Side("shortlist", {"model": given.model, "path": given.shortlist})
        compare(given, sides)


def build_all(given: argparse.Namespace) -> dict[int, Clusters]:
    """Clusters by number of centroids, including 1; prints and plots their miss rates."""
    model, vocabularies = load_model(given.model)
    assert vocabularies.target is not None

    def recorded(text: str, lines: int | None, k: int) -> list[Recorded]:
        started = time.perf_counter()
        found = list(contexts(model, own_outputs(given.model, text, lines=lines), k))
        count = sum(len(outputs) for outputs, _ in found)
        print(f"{text}: {count:,} contexts, recorded in {time.perf_counter() - started:.0f} s", flush=True)
        return found

    training, held_out = recorded(given.text, given.lines, given.k), recorded(given.test[0], None, 1)
    vectors = torch.cat([outputs for outputs, _ in training])
    vectors = vectors[torch.randperm(len(vectors))]
    built, rates, shares = {}, {}, {}
    for r in sorted({1, *given.centroids}):
        started = time.perf_counter()
        centroids = kmeans(vectors[: r * POINTS_PER_CENTROID], r)
        built[r] = collect(training, centroids, vocabularies.target.size)
        rates[r], shares[r] = miss_rates(built[r], held_out)
        print(f"{label(r)}: built and tried in {time.perf_counter() - started:.0f} s")
        for k, (rate, share) in enumerate(zip(rates[r], shares[r], strict=True), 1):
            print(f"  K = {k}: {rate:.3%} missed, {share:.2%} active for one context", flush=True)
    draw(rates, shares, given.plot)
    return built


def label(r: int) -> str:
    return "never-used columns removed" if r == 1 else f"{r} centroids"


class Side(NamedTuple):
    """A predictor by its name, with its options."""

    name: str
    options: dict[str, Any]

    def load(self) -> NmtPredictor:
        return PREDICTORS[self.name](**self.options)


def compare(given: argparse.Namespace, sides: Mapping[str, Side]) -> None:
    """Decode the test set with each predictor."""
    predictors = {name: side.load() for name, side in sides.items()}
    source, target = predictors["nmt"].vocabularies
    assert source is not None and target is not None
    sources = [
        Source(n, tokens := source.encode(line), line, 2 * len(tokens))
        for n, line in enumerate(read_lines(given.test[0]), 1)
    ]
    references = list(read_lines(given.test[1]))
    found: dict[str, list[str]] = {}

    def decode(name: str) -> None:
        found[name] = [target.decode(tokens) for tokens in best(predictors[name], given, sources)]

    seconds = alternate({name: lambda name=name: decode(name) for name in sides}, given.runs, given.clock)  # type: ignore[misc]
    setting = f"{given.decoder} {given.beam}, batches of {given.batch_size}, K = {given.decode_k}"
    print(f"{setting}, {len(sources)} sentences; ratios to nmt:")
    usual, plain = bleu(found["nmt"], references), 0.0
    for name, of in sides.items():
        middle, times, side = statistics.median(seconds[name]), seconds[name], predictors[name]
        same = statistics.mean(a == b for a, b in zip(found[name], found["nmt"], strict=True))
        memory = resident(given, of, sources[:64])
        plain = plain or memory
        scored = bleu(found[name], references)
        share = getattr(side, "active_share", None)
        active = "all active" if share is None else f"{share:.2%} active"
        print(
            f"  {name}: {len(sources) / middle:.1f} sentences/s "
            f"[{len(sources) / max(times):.1f} to {len(sources) / min(times):.1f}], "
            f"ratio {statistics.median(seconds['nmt']) / middle:.2f}; BLEU {scored:.2f} ({scored - usual:+.2f}), "
            f"{same:.1%} identical; {active}; {memory:.0f} MiB ({memory / plain - 1:+.1%})", flush=True,
        )  # fmt: skip


def best(side: NmtPredictor, given: argparse.Namespace, sources: Sequence[Source]) -> list[tuple[int, ...]]:
    """The best output of each sentence."""
    assert side.vocabularies.target is not None
    constellation = Constellation.of({"nmt": side}, vocab_size=side.vocabularies.target.size)
    decoder = DECODERS[given.decoder](size=given.beam)
    outcomes = list(Scheduler(constellation, decoder, batch_size=given.batch_size).run(sources))
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.result.hypotheses[0].tokens for outcome in outcomes]


def resident(given: argparse.Namespace, side: Side, sources: Sequence[Source]) -> float:
    """MiB of memory that a fresh process has after it has loaded one predictor and decoded some sentences."""
    fresh = multiprocessing.get_context("spawn")
    with fresh.Pool(1) as process:
        return process.apply(resident_here, (given, side, sources))


def resident_here(given: argparse.Namespace, side: Side, sources: Sequence[Source]) -> float:
    torch.set_num_threads(given.threads)
    best(side.load(), given, sources)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def draw(rates: dict[int, list[float]], shares: dict[int, list[float]], file: str) -> None:
    """Plot the miss rate against K and against the mean active share, one line per number of centroids; PNG or SVG by
    file name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for r, missed in rates.items():
        percent = [100 * rate for rate in missed]
        left.plot(range(1, len(missed) + 1), percent, marker=".", label=label(r))
        right.plot([100 * share for share in shares[r]], percent, marker=".", label=label(r))
    left.set(xlabel="K, likely tokens of a context", ylabel="true arg-max not active (%)", title="Miss rate")
    right.set(
        xlabel="a context's active tokens (% of the vocabulary)", title="Miss rate by what it costs", xscale="log"
    )
    left.xaxis.get_major_locator().set_params(integer=True)
    right.xaxis.set_major_formatter("{x:g}")
    right.xaxis.set_minor_formatter("")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.legend()
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    main()

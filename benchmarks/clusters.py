"""What do vocabulary clusters gain, and what do they miss?

Two commands. Everything that clusters need is inside their time: finding centroids, the union of active sets,
gathering columns, the product, the mask, scattering. Weights are packed on both sides where packing is possible (the
full projection, centroids aside). Sides alternate in one process; medians with the range in brackets.

    python benchmarks/clusters.py shapes [--vocab-size 128000 250000 --active 0.16 0.124]
        One projection at the shapes of "Fast Vocabulary Projection Method via Clustering", Table 2: d = 1024, 40 rows
        (beam 2, batch 20), 2,000 centroids, random numbers, other outputs in each run. The full projection to logits,
        and to log-probabilities, which is where the clusters have to arrive; both sides must agree on them first.

    python benchmarks/clusters.py model --model RUN/best --text TRAIN.SRC --test TEST.SRC TEST.REF --plot miss.png
        A trained model: for each number of centroids the miss rate (how often the true arg-max token is outside the
        active set of its context, on the test's source) and the mean active share by K, as a plot; then decoding the
        test with nmt, with clusternmt, and with one cluster, which is the model with its never-used columns removed:
        sentences/s, BLEU, share of identical outputs, active share, memory.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.clusternmt import ClusterNmtPredictor
from sgdec_predictors.nmt import NmtPredictor
from torch import Tensor

from sgdec.cli.cluster import own_outputs
from sgdec.constellation import Constellation
from sgdec.context import EOS
from sgdec.models.clusters import ClusterProjection, Clusters, OutputLayer
from sgdec.models.kernels import packed_linear
from sgdec.protocol import Source
from sgdec.scheduler import Scheduler
from sgdec.text.lines import read_lines
from sgdec.training.checkpoint import load_model
from sgdec.training.cluster_files import checksum, save_clusters
from sgdec.training.clusters import build_clusters, miss_rates
from sgdec.training.validation import bleu

WIDTH, ROWS, CENTROIDS = 1024, 40, 2000
OWN_SHARE = 0.02
"""Of the vocabulary, active for one cluster: Figure 4, K = 1."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    commands = parser.add_subparsers(required=True)
    shapes = commands.add_parser("shapes")
    shapes.add_argument("--vocab-size", type=int, nargs="+", default=[128_000, 250_000])
    shapes.add_argument("--active", type=float, nargs="+", default=[0.16, 0.124])
    shapes.set_defaults(work=measure_shapes)
    model = commands.add_parser("model")
    model.add_argument("--model", required=True)
    model.add_argument("--text", required=True, help="unlabelled source text to build clusters from")
    model.add_argument("--test", required=True, nargs=2, metavar=("SRC", "REF"))
    model.add_argument("--centroids", type=int, nargs="+", default=[100, 300, 1000], help="the last one decodes")
    model.add_argument("--k", type=int, default=10)
    model.add_argument("--beam", type=int, default=5)
    model.add_argument("--plot", default="miss-rate.png")
    model.set_defaults(work=measure_model)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    with torch.inference_mode():
        given.work(given)
    print(f"torch {torch.__version__}, cpu, {given.threads} threads, fp32, {given.runs} runs")


def alternate(sides: Mapping[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    """Seconds of each side, run in turn; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(-1, runs):
        for name, work in sides.items():
            started = time.perf_counter()
            work()
            if run >= 0:
                seconds[name].append(time.perf_counter() - started)
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
        print(f"V = {size:,}, {ROWS} rows: {share:.1%} active, {len(clustered.core) / size:.1%} always multiplied")
        seconds = alternate(sides, given.runs)
        ours = statistics.median(seconds["clusters, log-probabilities"])
        for name, times in seconds.items():
            middle = statistics.median(times)
            spread = f"[{1e3 * min(times):.1f} to {1e3 * max(times):.1f}]"
            print(f"  {name}: {1e3 * middle:.1f} ms {spread}, {middle / ours:.2f} x clusters", flush=True)


def projecting(project: Callable[[Tensor], Tensor], outputs: list[Tensor]) -> Callable[[], Tensor]:
    """Another output at each call."""
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
    model, vocabularies = load_model(given.model)
    source, target = vocabularies
    assert source is not None and target is not None
    outputs, held_out = own_outputs(given.model, given.text), own_outputs(given.model, given.test[0])
    built = {}
    rates: dict[int, list[float]] = {}
    shares: dict[int, list[float]] = {}
    for r in (1, *given.centroids):
        built[r] = build_clusters(model, outputs, centroids=r, k=given.k, vocab_size=target.size)
        rates[r], shares[r] = miss_rates(built[r], model, held_out)
        for k in range(given.k):
            print(f"{r} centroids, k = {k + 1}: {rates[r][k]:.3%} missed, {shares[r][k]:.2%} active", flush=True)
    draw(rates, shares, given.plot)

    folder, chosen = Path(tempfile.mkdtemp()), given.centroids[-1]
    for r in (1, chosen):
        save_clusters(folder / str(r), built[r], model=checksum(given.model), about={})
    predictors = {
        "nmt": NmtPredictor(given.model),
        "never-used columns removed": ClusterNmtPredictor(given.model, str(folder / "1")),
        f"clusternmt, {chosen} centroids": ClusterNmtPredictor(given.model, str(folder / str(chosen))),
    }
    sources = [
        Source(n, tokens := source.encode(line), line, 2 * len(tokens))
        for n, line in enumerate(read_lines(given.test[0]), 1)
    ]
    found: dict[str, list[str]] = {}

    def decode(name: str) -> None:
        constellation = Constellation.of({"nmt": predictors[name]}, vocab_size=target.size)
        outcomes = Scheduler(constellation, BeamDecoder(size=given.beam)).run(sources)
        found[name] = [target.decode(o.result.hypotheses[0].tokens) if o.result.hypotheses else "" for o in outcomes]

    seconds = alternate({name: lambda name=name: decode(name) for name in predictors}, given.runs)  # type: ignore[misc]
    references = list(read_lines(given.test[1]))
    for name, predictor in predictors.items():
        same = statistics.mean(a == b for a, b in zip(found[name], found["nmt"], strict=True))
        times = seconds[name]
        line = (
            f"{name}: {len(sources) / statistics.median(times):.1f} sentences/s "
            f"[{len(sources) / max(times):.1f} to {len(sources) / min(times):.1f}], "
            f"ratio {statistics.median(seconds['nmt']) / statistics.median(times):.3f}, "
            f"BLEU {bleu(found[name], references):.2f}, {same:.1%} identical"
        )
        if isinstance(predictor, ClusterNmtPredictor):
            clusters = built[1 if "removed" in name else chosen]
            line += f", {predictor.summary()}, clusters of {size(clusters) / 2**20:.1f} MiB"
        print(line, flush=True)


def size(clusters: Clusters) -> int:
    """Bytes that the tensors of some clusters take."""
    return sum(value.nbytes for value in vars(clusters).values() if isinstance(value, Tensor))


def draw(rates: dict[int, list[float]], shares: dict[int, list[float]], file: str) -> None:
    """A PNG: miss rate by K, and by the mean active share, one line a number of centroids."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for r, missed in rates.items():
        label = "never-used columns removed" if r == 1 else f"{r} centroids"
        left.plot(range(1, len(missed) + 1), [100 * rate for rate in missed], marker=".", label=label)
        right.plot([100 * share for share in shares[r]], [100 * rate for rate in missed], marker=".", label=label)
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
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()

"""What does generality cost? Decoding with one trained model: whole tensors, any decoder in the scheduler, any mix.

Cases alternate in one process, each over the same sentences, model loading excluded and lattice loading included;
medians of output tokens/s and sentences/s with the range in brackets, and the time of each case divided by that of
``vanilla`` or ``beam``. The floor is computed by `floor`: the matrix products of the decoder alone, with packed
weights. Run it on an idle machine:

    python benchmarks/decoding.py --model run/best --input test.en.gz [--sentences 1000] [--runs 3] [--threads 2]
        [--lattices 'lattices/{id}.fst'] [--lm lm.arpa]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from sgdec.io.sources import SourceReader, open_input
from sgdec.lengths import LengthRule
from sgdec.plugins.assembly import Run, RunConfig, assemble
from sgdec.plugins.host import Host
from sgdec.protocol import Source
from sgdec.search.scheduler import Scheduler

BEAM = {"size": "5"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--lattices")
    parser.add_argument("--lm")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)

    def run(predictors: str, decoder: str, **options: Mapping[str, Any]) -> Run:
        models = {"nmt": {"model": given.model}, decoder: {} if decoder == "greedy" else BEAM}
        config = RunConfig(predictors=predictors, decoder=decoder, options={**models, **options})
        return assemble(config, Host())

    dense = run("nmt", "vanilla")
    reader = SourceReader(dense.vocabularies.source, "text", LengthRule(2.0, None), 1000)
    with open_input(given.input) as lines:
        sources = [s for s in reader.read(lines, given.input, 1, given.sentences) if isinstance(s, Source)]

    cases: dict[str, tuple[Run, int]] = {
        "vanilla": (dense, given.batch_size),
        "beam": (run("nmt", "beam"), given.batch_size),
        "greedy": (run("nmt", "greedy"), given.batch_size),
    }
    if given.lattices:
        cases["beam, nmt,fst"] = (run("nmt,fst", "beam", fst={"path": given.lattices}), given.batch_size)
    if given.lm:
        lm = run("nmt,ngram", "beam", ngram={"path": given.lm, "weight": "0.1"})
        cases["beam, nmt,ngram"] = (lm, given.batch_size)
    cases["vanilla, one at a time"] = (dense, 1)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    tokens: dict[str, float] = {}
    gc.collect()
    gc.freeze()  # as `sgdec decode` does
    gc.set_threshold(100_000, 20, 100)
    for _ in range(given.runs):
        for name, (case, batch_size) in cases.items():
            some = sources[:100] if batch_size == 1 else sources
            spent, tokens[name] = decode(case, some, batch_size)
            seconds[name].append(spent / len(some))
    step = floor(dense, 5 * given.batch_size, given.threads)
    print(f"{len(sources)} sentences, beam 5, batch {given.batch_size}, {given.threads} threads, {given.runs} runs")
    print(f"{'case':<26}{'tokens/s':>9}{'(range)':>18}{'sentences/s':>12}{'time / vanilla':>16}{'/ beam':>8}")
    for name, times in seconds.items():
        middle = statistics.median(times)
        rate = [tokens[name] / t for t in (middle, max(times), min(times))]
        against = [
            statistics.median(ours / theirs for ours, theirs in zip(times, seconds[other], strict=True))
            for other in ("vanilla", "beam")
        ]
        print(
            f"{name:<26}{rate[0]:>9.0f}{f'({rate[1]:.0f} - {rate[2]:.0f})':>18}{1 / middle:>12.1f}"
            f"{against[0]:>16.2f}{against[1]:>8.2f}"
        )
    print(f"{'floor: decoder products':<26}{given.batch_size / step:>9.0f}")
    length = round(statistics.mean(len(source.tokens) for source in sources))
    begun = encoder_floor(dense, given.batch_size, length)
    whole = tokens["vanilla"] * given.batch_size / (tokens["vanilla"] * step + begun)
    print(f"{'floor: and encoder':<26}{whole:>9.0f}")


def decode(case: Run, sources: list[Source], batch_size: int) -> tuple[float, float]:
    """The total seconds, and the mean number of output tokens per sentence."""
    started = time.perf_counter()
    outcomes = list(Scheduler(case.constellation, case.decoder, batch_size=batch_size).run(sources))
    spent = time.perf_counter() - started
    hypotheses = [outcome.result.hypotheses[0] for outcome in outcomes if outcome.result.hypotheses]
    return spent, sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses) / len(sources)


def floor(case: Run, rows: int, threads: int) -> float:
    """Seconds of the matrix products of one decoder step: LSTM gates, query and softmax, with packed weights."""
    from sgdec.models.kernels import packed_linear

    (predictor,) = case.constellation.predictors
    model = predictor._model  # type: ignore[attr-defined]
    products: list[tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = []
    for weights in (lstm.all_weights[0] for lstm in model.decoder):
        joint = torch.cat([weights[0], weights[1]], 1)
        products.append((packed_linear(joint), torch.randn(rows, joint.shape[1])))
    for layer in (model.query, model.softmax):
        products.append((packed_linear(layer.weight), torch.randn(rows, layer.weight.shape[1])))
    return timed(products)


def encoder_floor(case: Run, sentences: int, length: int) -> float:
    """Seconds of the matrix products with which GNMT's encoder reads a batch: inputs of all tokens at once, hidden
    states token by token, and the keys of the attention."""
    from sgdec.models.kernels import packed_linear

    (predictor,) = case.constellation.predictors
    model = predictor._model  # type: ignore[attr-defined]
    products: list[tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = []
    for inputs, hidden, *_ in (weights for lstm in model.encoder for weights in lstm.all_weights):
        products.append((packed_linear(inputs), torch.randn(sentences * length, inputs.shape[1])))
        products += [(packed_linear(hidden), torch.randn(sentences, hidden.shape[1]))] * length
    products.append((packed_linear(model.key.weight), torch.randn(sentences * length, model.key.weight.shape[1])))
    return timed(products)


def timed(products: list[tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]]) -> float:
    """The median of the seconds that all products take together."""
    times = []
    with torch.inference_mode():
        for _ in range(12):
            started = time.perf_counter()
            for product, inputs in products:
                product(inputs)
            times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


if __name__ == "__main__":
    main()

"""What do 8 bits cost a trained model in quality, and what do they gain in speed? (GNMT, section 6 and Table 1)

A checkpoint, preferably one trained with ``--gnmt.constrained true``, is quantised into a temporary folder. Then
these are measured for fp32, int8 and, if the processor has instructions for it, bf16:

- log-perplexity of a validation set: the mean -ln P of a target token, ``</s>`` included, predicted step by step;
- BLEU of beam 5 (sacreBLEU), and the share of outputs that equal those of fp32;
- output tokens/s of ``vanilla`` and of the general ``beam``, one sentence at a time and 64 at once.

All speeds alternate in one process; medians, the range in brackets, and the median of the ratios to fp32 in the same
round. ``vanilla`` and ``beam`` must have the same outputs, and so must all rounds. A loss of 0.01 in log-perplexity
and of 0.1 BLEU is allowed; the paper lost 0.0072 and nothing. Run it on an idle machine:

    python benchmarks/quantised_model.py --model run/best --input test.en.gz --reference test.de.gz
        --valid val.en.gz val.de.gz [--sentences 1000] [--single 100] [--runs 3] [--threads 2]
        [--alpha 0.6 --beta 0.2] [--calibrate train.en.gz train.de.gz] [--cpu-time]
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import torch

from sgdec.checkpoints.loading import load_model
from sgdec.io.sources import SourceReader, open_input
from sgdec.lengths import LengthRule
from sgdec.plugins.assembly import Run, RunConfig, assemble
from sgdec.plugins.host import Host
from sgdec.protocol import Source
from sgdec.search.scheduler import Scheduler
from sgdec.text.bleu import bleu
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.training.data.text import ParallelText
from sgdec.training.quantising import quantise_checkpoint
from sgdec.training.validation import perplexity

DECODERS, BATCHES = ("vanilla", "beam"), (1, 64)
SAME = 0.99
"""The minimum share of equal outputs of the two decoders: another order of summation can change the order of near
ties."""

Outputs = list[tuple[int, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--valid", required=True, nargs=2, metavar=("SRC", "TGT"))
    parser.add_argument("--calibrate", nargs=2, metavar=("SRC", "TGT"), help="for a model without constraints")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--single", type=int, default=100, help="sentences decoded one at a time")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--alpha", default="0.6", help="of the length penalty")
    parser.add_argument("--beta", default="0.2", help="of the coverage penalty")
    parser.add_argument("--bf16", action="store_true", help="even where the processor only imitates it")
    parser.add_argument("--cpu-time", action="store_true", help="of the process, not of the clock; for one thread")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.cpu_time else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        int8 = Path(folder) / "int8"
        quantise_checkpoint(given.model, int8, text=given.calibrate)
        models = {"fp32": given.model, "int8": str(int8)}
        if given.bf16 or torch.cpu._is_avx512_bf16_supported():
            models["bf16"] = given.model
        else:
            print("bf16: this processor has no instructions for it; left out")
        options = {"size": "5", "alpha": given.alpha, "beta": given.beta}
        runs = {
            (precision, decoder): make_run(model, precision, decoder, options)
            for (precision, model), decoder in product(models.items(), DECODERS)
        }
        losses = {name: log_perplexity(model, name, given.valid) for name, model in models.items()}
    sources = read(runs["fp32", "vanilla"], given.input, given.sentences)
    with open_input(given.reference) as lines:
        references = [line.decode().rstrip("\n") for line in lines][: given.sentences]
    assert len(sources) == len(references), "sources that cannot be translated, or another number of references"
    outputs, seconds = measure(runs, sources, given.single, given.runs, clock)
    print(f"{len(sources)} sentences, {given.runs} runs, {torch.get_num_threads()} threads")
    report_quality(losses, outputs, references, runs)
    report_speed(seconds, outputs, len(sources), given.single)


def make_run(model: str, precision: str, decoder: str, options: Mapping[str, str]) -> Run:
    """``nmt`` alone, in one precision."""
    parts = {"nmt": {"model": model}, decoder: options}
    return assemble(RunConfig(predictors="nmt", decoder=decoder, options=parts, precision=precision), Host())


def log_perplexity(model: str, precision: str, valid: tuple[str, str]) -> float:
    """The mean -ln P per token."""
    module, vocabularies = load_model(model, precision=precision)
    source, target = vocabularies
    assert isinstance(source, SentencePieceVocabulary) and isinstance(target, SentencePieceVocabulary)
    return math.log(perplexity(module, ParallelText.read(valid, source, target)))


def read(run: Run, file: str, sentences: int) -> list[Source]:
    """The first sentences of a file."""
    reader = SourceReader(run.vocabularies.source, "text", LengthRule(2.0, None), 1000)
    with open_input(file) as lines:
        return [source for source in reader.read(lines, file, 1, sentences) if isinstance(source, Source)]


Case = tuple[str, str, int]
"""Precision, decoder, batch size."""


def measure(
    runs: Mapping[tuple[str, str], Run],
    sources: Sequence[Source],
    single: int,
    rounds: int,
    clock: Callable[[], float],
) -> tuple[dict[Case, Outputs], dict[Case, list[float]]]:
    """The outputs, and the seconds by round, of all cases; the cases alternate."""
    cases = [(precision, decoder, batch) for batch in BATCHES for decoder in DECODERS for precision in by_name(runs)]
    outputs: dict[Case, Outputs] = {}
    seconds: dict[Case, list[float]] = {case: [] for case in cases}
    for run in runs.values():
        decode(run, sources[:5], 5)  # warm up
    gc.collect()
    gc.freeze()  # as `sgdec decode` does
    gc.set_threshold(100_000, 20, 100)
    for _ in range(rounds):
        for case in cases:
            precision, decoder, batch = case
            started = clock()
            found = decode(runs[precision, decoder], sources[:single] if batch == 1 else sources, batch)
            seconds[case].append(clock() - started)
            assert outputs.setdefault(case, found) == found, f"{case}: not the same in every run"
    for precision, batch in product(by_name(runs), BATCHES):
        share = same(*(outputs[precision, decoder, batch] for decoder in DECODERS))
        assert share >= SAME, f"{precision}, batch {batch}: {share:.1%} of outputs of vanilla and beam are the same"
    return outputs, seconds


def by_name(runs: Mapping[tuple[str, str], Run]) -> list[str]:
    """The precisions, in their order."""
    return list(dict.fromkeys(precision for precision, _ in runs))


def decode(run: Run, sources: Sequence[Source], batch_size: int) -> Outputs:
    """The best hypothesis of each source."""
    outcomes = Scheduler(run.constellation, run.decoder, batch_size=batch_size).run(sources)
    return [outcome.result.hypotheses[0].tokens if outcome.result.hypotheses else () for outcome in outcomes]


def same(some: Outputs, others: Outputs) -> float:
    """The share of equal outputs."""
    return sum(map(tuple.__eq__, some, others)) / len(some)


def report_quality(
    losses: Mapping[str, float],
    outputs: Mapping[Case, Outputs],
    references: Sequence[str],
    runs: Mapping[tuple[str, str], Run],
) -> None:
    """Print one line per precision."""
    target = runs["fp32", "beam"].vocabularies.target
    assert target is not None
    best = {precision: outputs[precision, "beam", BATCHES[-1]] for precision in losses}
    scores = {name: bleu([target.decode(tokens) for tokens in found], references) for name, found in best.items()}
    print(f"\n{'precision':<10}{'log-perplexity':>15}{'loss':>9}{'BLEU':>8}{'loss':>7}{'same outputs':>14}")
    for name, loss in losses.items():
        print(
            f"{name:<10}{loss:>15.4f}{loss - losses['fp32']:>9.4f}{scores[name]:>8.2f}"
            f"{scores['fp32'] - scores[name]:>7.2f}{same(best['fp32'], best[name]):>14.1%}"
        )


def report_speed(
    seconds: Mapping[Case, list[float]], outputs: Mapping[Case, Outputs], sentences: int, single: int
) -> None:
    """Print one line per case."""
    print(f"\nbatch {'decoder':<9}{'precision':<10}{'tokens/s':>9}{'(range)':>18}{'sentences/s':>12}{'x fp32':>8}")
    for case, times in seconds.items():
        precision, decoder, batch = case
        tokens = sum(len(found) + 1 for found in outputs[case])
        middle, least, most = statistics.median(times), min(times), max(times)
        base = seconds["fp32", decoder, batch]
        ratio = statistics.median(theirs / ours for ours, theirs in zip(times, base, strict=True))
        spread = f"({tokens / most:.0f} - {tokens / least:.0f})"
        count = min(single, sentences) if batch == 1 else sentences
        print(
            f"{batch:>5} {decoder:<9}{precision:<10}{tokens / middle:>9.0f}{spread:>18}{count / middle:>12.1f}"
            f"{ratio:>8.2f}"
        )


if __name__ == "__main__":
    main()

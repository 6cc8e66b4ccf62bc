"""How fast are `hf` and `nmt` beside CTranslate2, and are their outputs the same?

A random Marian model of 6 + 6 layers of width 512 (feed-forward 2,048, 8,000 pieces), 128 sources of 15 to 24 tokens,
20 output tokens, 64 sentences in flight. All sides alternate in one run; each line is one round, in output tokens per
second of wall-clock time, and the last lines are medians of the ratios. With ``--cores 2`` the peer has two workers
or two threads, whichever is faster; sgdec has two threads, and two processes with half the sentences each. With
``--nmt`` a Transformer of ``sgdec train`` of the same shape is measured, too; its weights should be random, and its
outputs as long.

CTranslate2 needs an environment of its own: ``python -m venv peer``, ``peer/bin/pip install ctranslate2 transformers
torch``. Its converter drops the padding token from the vocabulary, so it has a bias of -inf here.

    python benchmarks/peer_ctranslate2.py --peer peer/bin/python [--cores 1] [--beam 5] [--precisions fp32,bf16,int8]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.hf import HfPredictor
from sgdec_predictors.nmt import NmtPredictor

from sgdec.collector import collector_spared
from sgdec.context import Context
from sgdec.decoder import Decoder
from sgdec.protocol import Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

V, PAD = 8_000, 7_999
IN_FLIGHT, TOKENS, SENTENCES = 64, 20, 128
COMPUTE = {"fp32": "float32", "bf16": "float32", "int8": "int8_float32"}
"""CTranslate2 refuses bf16 on most processors."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="Python of an environment with ctranslate2")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--precisions", default="fp32,bf16,int8")
    parser.add_argument("--nmt", help="checkpoint of a Transformer")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(given.cores)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    precisions = given.precisions.split(",")
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        parts: dict[tuple[str, str], Any] = {
            ("hf", each): HfPredictor(folder, context=Context(precision=each)) for each in precisions
        }
        if given.nmt:
            for each in precisions:
                if each != "int8":
                    parts["nmt", each] = NmtPredictor(given.nmt, Context(precision=each))
        peer = Peer(given.peer, folder)
        pool = Processes(given.cores, {"hf": folder, "nmt": given.nmt})
        sources = make_sources()
        read = [parts["hf", precisions[0]]._read(source) for source in sources]
        ratios: dict[str, list[float]] = {}
        for round in range(given.rounds + 1):  # the first one warms up
            speeds: dict[str, float] = {}
            outputs: dict[str, tuple[list[tuple[int, ...]], list[float]]] = {}
            for precision in precisions:
                ways = [(1, given.cores), (given.cores, 1)][: given.cores]
                theirs = [peer.ask(read, given.beam, COMPUTE[precision], *way) for way in ways]
                best = min(theirs, key=lambda each: each["seconds"])
                name = f"CTranslate2 {precision}"
                speeds[name] = SENTENCES * TOKENS / best["seconds"]
                outputs[name] = [tuple(each) for each in best["outputs"]], best["scores"]
                for (kind, of), predictor in parts.items():
                    if of != precision:
                        continue
                    for decoder in decoders(given.beam):
                        seconds, found = timed(predictor, decoder, sources)
                        label = f"{kind} {precision} {type(decoder).__name__.removesuffix('Decoder').lower()}"
                        speeds[label] = SENTENCES * TOKENS / seconds
                        if kind == "hf":
                            ids = predictor._roles.numbering.ids
                            outputs[label] = (
                                [tuple(ids[list(each.hypotheses[0].tokens)].tolist()) for each in found],
                                [each.hypotheses[0].score for each in found],
                            )
                        if given.cores > 1 and isinstance(decoder, BeamDecoder | GreedyDecoder):
                            both = f"{label}, {given.cores} processes"
                            speeds[both] = SENTENCES * TOKENS / pool.seconds(kind, of, given.beam)
                            if round:
                                ratios.setdefault(both, []).append(speeds[both] / speeds[name])
                        if round:
                            ratios.setdefault(label, []).append(speeds[label] / speeds[name])
            if round:
                print(", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items()), flush=True)
        compare(outputs, precisions)
        for label, all in ratios.items():
            print(f"{label} / CTranslate2: {statistics.median(all):.2f} ({min(all):.2f} to {max(all):.2f})")


def make(folder: str) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": V, "d_model": 512, "max_position_embeddings": 128}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
    config = transformers.MarianConfig(
        pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=0, bos_token_id=0, forced_eos_token_id=0,
        activation_function="relu", **sizes,
    )  # fmt: skip
    model: Any = transformers.MarianMTModel(config)
    with torch.no_grad():
        model.model.shared.weight.normal_(std=0.1)  # so that the best outputs are not nearly equal
        model.model.shared.weight[PAD] = 0.0  # decoders start from a zero embedding
        model.final_logits_bias[:, PAD] = float("-inf")
    model.generation_config.forced_eos_token_id = 0  # its score at the limit is not in the totals of CTranslate2
    model.save_pretrained(folder)


def make_sources() -> list[Source]:
    rng = random.Random(2)
    return [
        Source(i, tuple(rng.randrange(3, V - 3) for _ in range(15 + i % 10)), max_length=TOKENS)
        for i in range(1, SENTENCES + 1)
    ]


def decoders(beam: int) -> list[Decoder]:
    return [GreedyDecoder()] if beam == 1 else [BeamDecoder(size=beam), VanillaDecoder(size=beam)]


def timed(predictor: Any, decoder: Decoder, sources: Sequence[Source]) -> tuple[float, list[Result]]:
    scheduler = Scheduler(Constellation.of({"model": predictor}), decoder, batch_size=IN_FLIGHT)
    began = time.perf_counter()
    with collector_spared():
        found = [outcome.result for outcome in scheduler.run(sources)]
    return time.perf_counter() - began, found


class Processes:
    """Workers with one thread, of which each decodes its share of the sentences."""

    def __init__(self, count: int, models: dict[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(count if count > 1 else 0)]
        self._ends = [own for own, _ in ends]
        for number, (_, other) in enumerate(ends):
            context.Process(target=serve, args=(other, models, number, count), daemon=True).start()

    def seconds(self, kind: str, precision: str, beam: int) -> float:
        for end in self._ends:
            end.send((kind, precision, beam, False))
        for end in self._ends:
            end.recv()  # all are loaded
        began = time.perf_counter()
        for end in self._ends:
            end.send((kind, precision, beam, True))
        for end in self._ends:
            end.recv()
        return time.perf_counter() - began


def serve(end: Any, models: dict[str, str], number: int, count: int) -> None:
    torch.set_num_threads(1)
    loaded: dict[tuple[str, str], Any] = {}
    sources = make_sources()[number::count]
    while True:
        kind, precision, beam, decode = end.recv()
        if (kind, precision) not in loaded:
            make = HfPredictor if kind == "hf" else NmtPredictor
            loaded[kind, precision] = make(models[kind], context=Context(precision=precision))
        if decode:
            timed(loaded[kind, precision], decoders(beam)[0], sources)
        end.send(None)


class Peer:
    """CTranslate2 in its own process."""

    def __init__(self, python: str, folder: str) -> None:
        worker = str(Path(__file__).with_name("peer_ctranslate2_worker.py"))
        self._process = subprocess.Popen(
            [python, worker, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
        )  # fmt: skip
        self._folder = folder
        while self._read() != "ready":
            pass

    def ask(
        self, sources: Sequence[Sequence[int]], beam: int, compute: str, workers: int, threads: int
    ) -> dict[str, Any]:
        asked = {
            "sources": sources, "beam": beam, "batch": IN_FLIGHT, "tokens": TOKENS,
            "compute": compute, "workers": workers, "threads": threads,
        }  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._read())
        return found

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the process of CTranslate2 has ended")
        return line.strip()


def compare(
    outputs: dict[str, tuple[list[tuple[int, ...]], list[float]]], precisions: Sequence[str]
) -> None:
    for label, (found, scores) in outputs.items():
        precision = label.split()[1]
        theirs, totals = outputs[f"CTranslate2 {precision}"]
        if label.startswith("CTranslate2"):
            continue
        equal = sum(a == b for a, b in zip(found, theirs, strict=True))
        apart = max(abs(a - b) for a, b in zip(scores, totals, strict=True))
        print(f"{label}: {equal} of {len(found)} outputs equal; totals differ by at most {apart:.1e}")


if __name__ == "__main__":
    main()

"""How fast are `hf` and `nmt` beside CTranslate2, and are their outputs the same?

A random Marian model of 6 + 6 layers of width 512 (feed-forward 2,048, 8,000 pieces), 128 sources of 15 to 24 tokens,
20 output tokens, 64 sentences in flight. All sides alternate in one run; each line is one round, in output tokens per
second of wall-clock time, and the last lines are medians of the ratios. With ``--cores 2`` the peer has two workers
or two threads, whichever is faster; sgdec has two threads, and two processes with half the sentences each. `nmt` is a
Transformer of ``sgdec train`` with the same weights, so that it has the same outputs.

CTranslate2 needs an environment of its own: ``python -m venv peer``, ``peer/bin/pip install ctranslate2 transformers
torch``. Its converter drops the padding token from the vocabulary, so it has a bias of -inf here.

    python benchmarks/peer_ctranslate2.py --peer peer/bin/python [--cores 1] [--beam 5] [--precisions fp32,bf16,int8]
        [--models hf,nmt]
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
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers
from common import Numbers
from safetensors.torch import load_file
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.hf import HfPredictor
from sgdec_predictors.nmt import NmtPredictor
from torch import Tensor

from sgdec.checkpoints.loading import make_ready
from sgdec.collector import collector_spared
from sgdec.context import Context, Vocabularies
from sgdec.decoder import Decoder
from sgdec.models.base import ModelContext
from sgdec.models.transformer import Transformer
from sgdec.protocol import Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

V, HEADS = 8_000, 8
IN_FLIGHT, TOKENS, SENTENCES = 64, 20, 128
COMPUTE = {"fp32": "float32", "bf16": "float32", "int8": "int8_float32"}
"""CTranslate2 refuses bf16 on most processors."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="Python of an environment with ctranslate2")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--precisions", default="fp32,bf16,int8")
    parser.add_argument("--models", default="hf,nmt")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(given.cores)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    precisions = given.precisions.split(",")
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        parts = {(kind, each): load(kind, folder, each) for kind in given.models.split(",") for each in precisions}
        peer = Peer(given.peer, folder)
        pool = Processes(given.cores, folder)
        sources = make_sources()
        read = [source.tokens for source in sources]
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
                        best_of = [each.hypotheses[0] for each in found]
                        totals = [each.score - sum(each.ledger[-1]) for each in best_of]  # theirs are without </s>
                        outputs[label] = [each.tokens for each in best_of], totals
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


def load(kind: str, folder: str, precision: str) -> Any:
    """The predictor `hf` or `nmt` with the weights of a Marian model; their tokens from 3 on are its ids."""
    if kind == "hf":
        return HfPredictor(folder, context=Context(precision=precision))
    model = make_ready(transformer(load_file(Path(folder, "model.safetensors"))), device="cpu", precision=precision)
    loaded = model, Vocabularies(Numbers(model.softmax.out_features), Numbers(model.softmax.out_features))
    with patch("sgdec.checkpoints.loading.load_model", return_value=loaded):
        return NmtPredictor("in memory", Context(precision=precision))


def transformer(marian: dict[str, Tensor]) -> Transformer:
    """Our Transformer that computes what a Marian model computes.

    Its positions have sine and cosine in turn, Marian's have all sines first, so the units of all layers are arranged
    in another order. Its embeddings are multiplied by the square root of the width, which they are divided by.
    """
    size, width = marian["model.shared.weight"].shape
    layers = sum(name.startswith("model.decoder.") and name.endswith("fc1.weight") for name in marian)
    feed_forward = len(marian["model.decoder.layers.0.fc1.weight"])
    context = ModelContext(size + 2, size + 2)
    model = Transformer(context, layers=layers, width=width, heads=HEADS, feed_forward=feed_forward)
    order = torch.arange(width).view(2, -1).T.flatten()
    ids = torch.tensor([size - 1, size - 1, 0, *range(3, size), 1, 2])  # by token: <unk>, <s>, </s>, the others
    shared = marian["model.shared.weight"][ids][:, order]
    bias = marian["final_logits_bias"][0, ids]
    own = {"softmax.weight": shared, "softmax.bias": bias}
    own |= {f"{side}_embedding.weight": shared / width**0.5 for side in ("source", "target")}
    sources = []
    for side in ("encoder", "decoder"):
        for layer in range(layers):
            theirs, ours = f"model.{side}.layers.{layer}.", f"{side}.layers.{layer}."

            def read(
                *names: str, rows: bool = False, columns: bool = False, theirs: str = theirs
            ) -> dict[str, Tensor]:
                """Weight and bias of one linear layer, or of several below each other."""
                weight, bias = (
                    torch.cat([marian[f"{theirs}{name}.{part}"] for name in names]) for part in ("weight", "bias")
                )
                if rows:
                    weight, bias = weight[order], bias[order]
                return {"weight": weight[:, order] if columns else weight, "bias": bias}

            parts = {
                "keys_values": read("self_attn.k_proj", "self_attn.v_proj", columns=True),
                "attention.query": read("self_attn.q_proj", columns=True),
                "attention.output": read("self_attn.out_proj", rows=True),
                "around_attention.norm": read("self_attn_layer_norm", rows=True),
                "feed_forward.0": read("fc1", columns=True),
                "feed_forward.3": read("fc2", rows=True),
                "around_feed_forward.norm": read("final_layer_norm", rows=True),
            }
            if side == "decoder":
                sources.append(read("encoder_attn.k_proj", "encoder_attn.v_proj", columns=True))
                parts |= {
                    "source.query": read("encoder_attn.q_proj", columns=True),
                    "source.output": read("encoder_attn.out_proj", rows=True),
                    "around_source.norm": read("encoder_attn_layer_norm", rows=True),
                }
            own |= {f"{ours}{name}.{part}": tensor for name, both in parts.items() for part, tensor in both.items()}
    own |= {f"decoder.source.{part}": torch.cat([each[part] for each in sources]) for part in ("weight", "bias")}
    model.load_state_dict(own)
    return model


def make(folder: str, *, layers: int = 6, width: int = 512, vocabulary: int = V) -> Any:
    """A random Marian model, also written; its last token is the padding, its inner layers have 4 ``width`` units."""
    torch.manual_seed(0)
    padding = vocabulary - 1
    sizes: dict[str, Any] = {"vocab_size": vocabulary, "d_model": width, "max_position_embeddings": 128}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": 4 * width}
    config = transformers.MarianConfig(
        pad_token_id=padding, decoder_start_token_id=padding, eos_token_id=0, bos_token_id=0, forced_eos_token_id=0,
        activation_function="relu", **sizes,
    )  # fmt: skip
    model: Any = transformers.MarianMTModel(config)
    with torch.no_grad():
        model.model.shared.weight.normal_(std=0.1)  # so that the best outputs are not nearly equal
        model.model.shared.weight[padding] = 0.0  # decoders start from a zero embedding
        model.final_logits_bias[:, padding] = float("-inf")
    model.generation_config.forced_eos_token_id = 0  # its score at the limit is not in the totals of CTranslate2
    model.save_pretrained(folder)
    return model.eval()


def make_sources(sentences: int = SENTENCES, *, vocabulary: int = V, longest: int = TOKENS) -> list[Source]:
    rng = random.Random(2)
    return [
        Source(i, tuple(rng.randrange(3, vocabulary - 3) for _ in range(15 + i % 10)), max_length=longest)
        for i in range(1, sentences + 1)
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

    def __init__(self, count: int, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(count if count > 1 else 0)]
        self._ends = [own for own, _ in ends]
        for number, (_, other) in enumerate(ends):
            context.Process(target=serve, args=(other, folder, number, count), daemon=True).start()

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


def serve(end: Any, folder: str, number: int, count: int) -> None:
    torch.set_num_threads(1)
    loaded: dict[tuple[str, str], Any] = {}
    sources = make_sources()[number::count]
    while (asked := _asked(end)) is not None:
        kind, precision, beam, decode = asked
        if (kind, precision) not in loaded:
            loaded[kind, precision] = load(kind, folder, precision)
        if decode:
            timed(loaded[kind, precision], decoders(beam)[0], sources)
        end.send(None)


def _asked(end: Any) -> Any:
    try:
        return end.recv()
    except EOFError:  # the benchmark is over
        return None


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

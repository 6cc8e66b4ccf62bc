"""How fast are searches with models of Hugging Face transformers, beside `generate()` of transformers?

Random models of the shapes of Marian (6 + 6 layers of width 512), GPT-2 (12 layers of width 768) and Llama (12 layers
of width 768, 12 heads of queries and 4 of keys) in fp32 on one thread of a CPU. All outputs have the same number of
tokens, so both sides do the same work. Each line is one round; within a round the sides alternate. Times are CPU
times in seconds; on a GPU they are seconds of wall-clock time.

    python benchmarks/pretrained.py search [--shape marian] [--beam 5] [--sentences 64] [--generate 16,64]
        [--source 15,24] [--device cpu|cuda] [--precision fp32|bf16]
    python benchmarks/pretrained.py trie [--entries 1000000] [--beam 1000]
    python benchmarks/pretrained.py ensemble
    python benchmarks/pretrained.py memory
    python benchmarks/pretrained.py loading [--shape marian] [--precision fp32|bf16|int8]

``search``: `beam` or `greedy`, 64 sentences in flight, and ``generate()`` at several batch sizes; the ratio is to the
fastest. ``trie``: `hf,trie`, and ``generate()`` with ``prefix_allowed_tokens_fn``; both lists must be equal. It also
prints the time of the matrix products. ``ensemble``: two models together, and one after the other. ``memory``: what
the keys and values of 64 x 5 prefixes of 50 tokens take. ``loading``: the resident memory that a model adds.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_predictors.hf import HfPredictor
from sgdec_predictors.trie import TriePredictor

from sgdec.context import Context
from sgdec.decoder import Decoder
from sgdec.io.entries import read_entries
from sgdec.io.trie import build_trie
from sgdec.protocol import Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

V = {"marian": 8_000, "gpt2": 50_257, "llama": 32_000}
IN_FLIGHT, TOKENS = 64, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measure", choices=["search", "trie", "ensemble", "memory", "loading"])
    parser.add_argument("--shape", choices=V, default="marian")
    parser.add_argument("--beam", type=int)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--generate", default="16,64", help="batch sizes of generate()")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="of search")
    parser.add_argument("--precision", choices=["fp32", "bf16", "int8"], default="fp32", help="of search and loading")
    parser.add_argument("--source", default="15,24", help="lowest and highest number of source tokens in search")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    measures = {"search": search, "trie": trie, "ensemble": ensemble, "memory": memory, "loading": loading}
    measures[given.measure](given)


def search(given: argparse.Namespace) -> None:
    beam = given.beam or 5
    model, predictor = make(given.shape, device=given.device, precision=given.precision)
    low, high = map(int, given.source.split(","))
    sources = make_sources(given.shape, given.sentences, low=low, high=high)
    sizes = [int(size) for size in given.generate.split(",")]
    decoder: Decoder = GreedyDecoder() if beam == 1 else BeamDecoder(size=beam)
    ratios = []
    for _ in range(given.rounds):
        theirs = {
            size: timed(lambda size=size: generate(model, predictor, sources, beam, size), given.device)[0]
            for size in sizes
        }
        ours, found = timed(lambda: run({"hf": predictor}, decoder, sources), given.device)
        ratios.append(ours / min(theirs.values()))
        expansions = sum(result.expansions for result in found)
        sides = f"generate {rounded(theirs)}, sgdec {ours:.2f} ({expansions} expansions)"
        print(f"{given.shape}, beam {beam}: {sides}, ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")


def trie(given: argparse.Namespace) -> None:
    beam = given.beam or 1000
    model, predictor = make("marian", max_length=6)
    numbers = predictor._roles.numbering.numbers
    rng = random.Random(1)
    entries = {tuple(rng.randrange(10, 110) for _ in range(5)) for _ in range(given.entries)}
    follows: dict[tuple[int, ...], set[int]] = defaultdict(set)
    eos = model.generation_config.eos_token_id
    for entry in entries:
        for length, id in enumerate((*entry, eos)):
            follows[entry[:length]].add(id)
    allowed = {prefix: list(ids) for prefix, ids in follows.items()}
    with tempfile.TemporaryDirectory() as folder:
        lines = (" ".join(str(int(numbers[id])) for id in entry) for entry in entries)
        build_trie(read_entries(lines, "entries")).write(Path(folder, "trie"))
        listed = TriePredictor(str(Path(folder, "trie")))
        source = make_sources("marian", 1, longest=6)
        products, decoder = Stopwatch(predictor), BeamDecoder(size=beam, stop="length")
        for _ in range(given.rounds):
            theirs, sequences = timed(
                lambda: model.generate(
                    input_ids=torch.tensor([predictor._read(source[0])]), num_beams=beam, max_new_tokens=6,
                    num_return_sequences=beam, do_sample=False, forced_eos_token_id=None,
                    prefix_allowed_tokens_fn=lambda _, ids: allowed.get(tuple(ids[1:].tolist()), [eos]),
                )
            )  # fmt: skip
            products.seconds = 0.0
            ours, (found,) = timed(lambda: run({"hf": predictor, "trie": listed}, decoder, source, nbest=beam))
            mine = [tuple(predictor._roles.numbering.ids[list(each.tokens)].tolist()) for each in found.hypotheses]
            same = sum(a == tuple(b) for a, b in zip(mine, sequences[:, 1:6].tolist(), strict=True))
            print(f"generate {theirs:.2f}, sgdec {ours:.2f}, of it products {products.seconds:.2f}; "
                  f"ratio {ours / theirs:.2f}; {same} of {beam} places equal, "
                  f"{len(set(mine) & set(map(tuple, sequences[:, 1:6].tolist())))} outputs", flush=True)  # fmt: skip


def ensemble(given: argparse.Namespace) -> None:
    parts = [make("marian", seed=seed)[1] for seed in (0, 1)]
    sources = make_sources("marian", given.sentences)
    for _ in range(given.rounds):
        alone = [timed(lambda part=part: run({"hf": part}, BeamDecoder(size=5), sources))[0] for part in parts]
        both, _ = timed(lambda: run({"hf": parts[0], "hf2": parts[1]}, BeamDecoder(size=5), sources))
        print(f"alone {alone[0]:.2f} and {alone[1]:.2f}, together {both:.2f}: {both / sum(alone):.2f} of the sum",
              flush=True)  # fmt: skip


def memory(given: argparse.Namespace) -> None:
    model, predictor = make(given.shape, max_length=50)
    sources = make_sources(given.shape, IN_FLIGHT, longest=50)
    most = {"used": 0.0, "reserved": 0.0, "cross": 0.0}
    step = predictor.predict_batch

    def watched(states: Sequence[Any], candidates: Any = None) -> Any:
        pool = predictor._prefixes._past
        reserved = sum(part.nbytes for part in pool._tensors)
        sentences = {id(state.prefix.sentence): state.prefix.sentence for state in states}.values()
        cross = sum(part.nbytes for each in sentences for layer in each.cross for part in layer)
        now = {"used": reserved * pool.used / max(pool.capacity, 1), "reserved": reserved, "cross": cross}
        most.update({name: max(most[name], value) for name, value in now.items()})
        return step(states, candidates)

    predictor.predict_batch = watched  # type: ignore[method-assign]
    run({"hf": predictor}, BeamDecoder(size=5), sources)
    output = generate(model, predictor, sources, 5, IN_FLIGHT, 50, return_dict_in_generate=True)
    cache = output.past_key_values
    crossed = getattr(cache, "cross_attention_cache", None)
    sides = [cache] if crossed is None else [cache.self_attention_cache, crossed]
    theirs = [sum(part.nbytes for layer in side.layers for part in (layer.keys, layer.values)) for side in sides]
    print("sgdec, MiB:", {name: round(value / 2**20, 1) for name, value in most.items()})
    print("transformers, MiB:", [round(value / 2**20, 1) for value in theirs])


RESIDENT = """
import gc, sys, torch, transformers
from pathlib import Path
from sgdec import Context
from sgdec_predictors.hf import HfPredictor

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

HfPredictor(sys.argv[2], context=Context(precision=sys.argv[3]))  # imports what loading needs
before = resident()
kept = HfPredictor(sys.argv[1], context=Context(precision=sys.argv[3]))
print(resident() - before)
"""


def loading(given: argparse.Namespace) -> None:
    """In a fresh process, so that nothing else has been loaded or freed."""
    model, _ = make(given.shape)
    sizes = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 20, "bos_token_id": 0, "eos_token_id": 0}
    tiny = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as small:
        model.save_pretrained(folder)
        tiny.save_pretrained(small)
        command = [sys.executable, "-c", RESIDENT, folder, small, given.precision]
        added = int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        weights = Path(folder, "model.safetensors").stat().st_size
    print(f"{given.shape}, {given.precision}: {added / 2**20:.0f} MiB, {added / weights:.2f} of the weights in fp32")


def make(
    shape: str, *, max_length: int = TOKENS, seed: int = 0, device: str = "cpu", precision: str = "fp32"
) -> tuple[Any, HfPredictor]:
    """A model, and a predictor of the same weights, which are read from a folder."""
    torch.manual_seed(seed)
    size = V[shape]
    if shape == "marian":
        roles = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0, "bos_token_id": 0}
        sizes: dict[str, Any] = {"vocab_size": size, "d_model": 512, "max_position_embeddings": 128}
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
        config = transformers.MarianConfig(forced_eos_token_id=None, **roles, **sizes)
        model: Any = transformers.MarianMTModel(config)
    elif shape == "llama":
        config = transformers.LlamaConfig(
            vocab_size=size, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
            num_key_value_heads=4,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        context = Context(device=device, precision=precision)
        return model.eval().to(device, dtype), HfPredictor(folder, context=context)


def make_sources(
    shape: str, number: int, *, longest: int = TOKENS, low: int = 15, high: int = 24
) -> list[Source]:
    rng = random.Random(2)
    lengths = [low + i % (high - low + 1) for i in range(1, number + 1)]
    return [
        Source(i, tuple(rng.randrange(3, V[shape] - 3) for _ in range(lengths[i - 1])), max_length=longest)
        for i in range(1, number + 1)
    ]


def run(predictors: dict[str, Any], decoder: Decoder, sources: Sequence[Source], nbest: int = 1) -> list[Result]:
    scheduler = Scheduler(Constellation.of(predictors), decoder, batch_size=IN_FLIGHT, nbest=nbest)
    return [outcome.result for outcome in scheduler.run(sources)]


def generate(
    model: Any,
    predictor: HfPredictor,
    sources: Sequence[Source],
    beam: int,
    size: int,
    tokens: int = TOKENS,
    **more: Any,
) -> Any:
    """`generate()` for batches of ``size`` sentences: as many steps as our search has with the limit ``tokens``."""
    ids = [predictor._read(source) for source in sources]
    output = None
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        longest = max(map(len, part))
        pads = [[0] * (longest - len(row)) for row in part]
        rows, marks = zip(*((row, [1] * len(row)) for row in part), strict=True)
        if model.config.is_encoder_decoder:
            padded, mask = (torch.tensor([a + b for a, b in zip(each, pads, strict=True)]) for each in (rows, marks))
        else:
            padded, mask = (torch.tensor([b + a for a, b in zip(each, pads, strict=True)]) for each in (rows, marks))
        output = model.generate(
            input_ids=padded.to(model.device), attention_mask=mask.to(model.device), num_beams=beam,
            max_new_tokens=tokens + 1, do_sample=False, pad_token_id=0, **more,
        )  # fmt: skip
    return output


class Stopwatch:
    """The CPU time in the linear layers of a predictor's model."""

    def __init__(self, predictor: HfPredictor) -> None:
        self.seconds = 0.0
        for layer in predictor._prefixes.module.modules():
            if type(layer) is torch.nn.Linear:
                layer.forward = self._timed(layer.forward)

    def _timed(self, product: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            started = time.process_time()
            found = product(x)
            self.seconds += time.process_time() - started
            return found

        return call


def timed(work: Callable[[], Any], device: str = "cpu") -> tuple[float, Any]:
    clock = time.process_time if device == "cpu" else time.perf_counter
    gc.collect()
    started = clock()
    with torch.inference_mode():
        found = work()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - started, found


def rounded(times: dict[int, float]) -> str:
    return ", ".join(f"{seconds:.2f} (batches of {size})" for size, seconds in times.items())


if __name__ == "__main__":
    main()

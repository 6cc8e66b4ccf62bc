"""The figures that the ratchet watches: speeds, ratios of speeds and memory, one small function each.

The two sides of a ratio are timed alternately in one process, so a ratio is the same on an idle and on a busy
machine. All times are CPU time of one thread, which other work on the machine affects little. To add a figure, write
a function with the decorator `figure`.

    python benchmarks/figures.py [--only "beam / vanilla" ...] [--tiny]

prints each figure's value as a line of JSON; `benchmarks/ratchet.py` runs this file once a round and side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from former import know_by_new_names

if TYPE_CHECKING:
    from sgdec.decoder import Decoder
    from sgdec.protocol import BatchPredictor


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model and data in a benchmark."""

    layers: int
    width: int
    vocab_size: int
    sentences: int
    length: int
    wide_vocab_size: int
    """The vocabulary size of the figures that time only the search."""
    wide_beam: int
    choices: int
    """For each of six tokens of an identifier."""
    expansions: int
    lattices: int
    pairs: int
    product: int
    repeats: int


FULL = Sizes(
    layers=2, width=512, vocab_size=8_000, sentences=64, length=10, wide_vocab_size=32_000, wide_beam=400,
    choices=6, expansions=400, lattices=100, pairs=64, product=1024, repeats=3,
)  # fmt: skip
TINY = Sizes(
    layers=1, width=16, vocab_size=50, sentences=2, length=3, wide_vocab_size=600, wide_beam=30,
    choices=2, expansions=24, lattices=2, pairs=2, product=64, repeats=1,
)  # fmt: skip
BEAM = 5

Measure: TypeAlias = Callable[[Sizes], float]


@dataclass(frozen=True)
class Figure:
    """One figure, with its unit and the direction that is better."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    measure: Measure


FIGURES: dict[str, Figure] = {}


def figure(name: str, unit: str, better: Literal["higher", "lower"]) -> Callable[[Measure], Measure]:
    """Register the function that measures a figure. The function imports its dependencies itself, since an older
    commit may lack them."""

    def register(measure: Measure) -> Measure:
        FIGURES[name] = Figure(name, unit, better, measure)
        return measure

    return register


def in_turn(cases: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """The median seconds of each case, after one more repeat as a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats + 1):
        for name, case in cases.items():
            seconds[name].append(case())
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}


@figure("vanilla / floor", "of the speed of packed products alone", "higher")
def vanilla_by_floor(sizes: Sizes) -> float:
    times = _decoding(sizes)
    return times["floor"] / times["vanilla"]


@figure("beam / vanilla", "times as long", "lower")
def beam_by_vanilla(sizes: Sizes) -> float:
    times = _decoding(sizes)
    return times["beam"] / times["vanilla"]


@figure("nmt,ngram / nmt", "times as long", "lower")
def mix_by_nmt(sizes: Sizes) -> float:
    times = _decoding(sizes)
    return times["nmt,ngram"] / times["beam"]


@cache
def _decoding(sizes: Sizes) -> dict[str, float]:
    """Seconds of `vanilla`, of `beam` through the scheduler, with an n-gram model too, and of the products alone."""
    import torch
    from common import decode, frozen, nmt, output_tokens, random_gnmt, sentences, settle
    from deep import floor, kernels_for, step_products
    from sgdec_decoders.beam import BeamDecoder
    from sgdec_decoders.vanilla import VanillaDecoder

    from sgdec.search.constellation import Constellation

    model = random_gnmt(sizes.layers, sizes.width, sizes.vocab_size)
    work = step_products(model, kernels_for("cpu", "fp32"))
    inputs = [torch.rand(BEAM * sizes.sentences, size) * 2 - 1 for _, size in work]
    predictor = nmt(frozen(model))
    alone = Constellation.of({"nmt": predictor}, vocab_size=sizes.vocab_size)
    mixed = Constellation.of(
        {"nmt": predictor, "ngram": _ngram(sizes.vocab_size)}, weights=[1.0, 0.1], vocab_size=sizes.vocab_size
    )
    sources = sentences([sizes.length] * sizes.sentences, sizes.vocab_size)
    beam, vanilla = BeamDecoder(size=BEAM), VanillaDecoder(size=BEAM)
    settle()
    clock = time.process_time
    times = in_turn(
        {
            "vanilla": lambda: decode(alone, vanilla, sources, sizes.sentences, clock)[0],
            "beam": lambda: decode(alone, beam, sources, sizes.sentences, clock)[0],
            "nmt,ngram": lambda: decode(mixed, beam, sources, sizes.sentences, clock)[0],
            "floor": lambda: floor(work, inputs, clock),
        },
        sizes.repeats,
    )
    steps = output_tokens(sources) / sizes.sentences
    return {**times, "floor": steps * times["floor"]}


@figure("hf / generate", "times as long", "lower")
def hf_by_generate(sizes: Sizes) -> float:
    """A beam with a model of transformers, and its own `generate()`."""
    times = _transformers(sizes)
    return times["hf fp32"] / times["generate"]


@figure("hf bf16 / generate", "times as long", "lower")
def hf_bf16(sizes: Sizes) -> float:
    times = _transformers(sizes)
    return times["hf bf16"] / times["generate"]


@figure("hf 8 bits / generate", "times as long", "lower")
def hf_int8(sizes: Sizes) -> float:
    times = _transformers(sizes)
    return times["hf int8"] / times["generate"]


@figure("nmt / generate", "times as long", "lower")
def transformer_by_generate(sizes: Sizes) -> float:
    """Our own Transformer with the same weights, and `generate()` in fp32."""
    times = _transformers(sizes)
    return times["nmt fp32"] / times["generate"]


@cache
def _transformers(sizes: Sizes) -> dict[str, float]:
    """Seconds of one core: beams with one random Transformer, as `hf` and as `nmt`, and `generate()`."""
    import pretrained
    import transformers
    from peer_ctranslate2 import load, make, make_sources
    from sgdec_decoders.beam import BeamDecoder

    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model = make(folder, layers=sizes.layers, width=sizes.width, vocabulary=sizes.vocab_size)
        ways = {"hf fp32": "hf", "hf bf16": "hf", "hf int8": "hf", "nmt fp32": "nmt"}
        predictors = {way: load(kind, folder, way.split()[1]) for way, kind in ways.items()}
    sources = make_sources(sizes.sentences, vocabulary=sizes.vocab_size, longest=sizes.length)

    def search(way: str) -> float:
        part = {"model": predictors[way]}
        return pretrained.timed(lambda: pretrained.run(part, BeamDecoder(size=BEAM), sources))[0]

    def generate() -> float:
        reader = predictors["hf fp32"]
        return pretrained.timed(
            lambda: pretrained.generate(model, reader, sources, BEAM, sizes.sentences, sizes.length)
        )[0]

    cases: dict[str, Callable[[], float]] = {way: lambda way=way: search(way) for way in ways}  # type: ignore[misc]
    return in_turn({**cases, "generate": generate}, sizes.repeats)


def _ngram(vocab_size: int) -> BatchPredictor:
    """A trigram model of random text, whose word frequencies follow Zipf's law."""
    import numpy as np
    from sgdec_predictors.ngram import NGram

    from sgdec.context import Context
    from sgdec.estimation.kneser_ney import estimate, join
    from sgdec.io.arpa import write_arpa

    ranks = np.arange(1, vocab_size - 2)
    drawn = np.random.default_rng(1).choice(ranks + 2, size=(2_000, 15), p=1 / ranks / np.sum(1 / ranks))
    words = ["<unk>", "<s>", "</s>", *map(str, range(3, vocab_size))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lm.arpa")
        write_arpa(path, estimate(join(drawn.tolist()), words, order=3, fallback=True).model)
        return NGram(str(path), context=Context(vocab_size=vocab_size))


@figure("free predictor", "microseconds per expansion", "lower")
def free_predictor(sizes: Sizes) -> float:
    """Beam search over rows that cost nothing, which measures the core alone."""
    return _free(sizes, beam=4, length=5 * sizes.length, sentences=10)


@figure("free predictor, wide", "microseconds per expansion", "lower")
def free_predictor_wide(sizes: Sizes) -> float:
    """The same with a wide beam."""
    return _free(sizes, beam=sizes.wide_beam, length=5, sentences=1)


@figure("free predictor with a trie, wide", "microseconds per expansion", "lower")
def free_predictor_with_trie(sizes: Sizes) -> float:
    """The same with a list of allowed outputs."""
    from wide import identifiers

    return _free(sizes, beam=sizes.wide_beam, length=7, sentences=1, trie=identifiers(sizes.choices))


def _free(
    sizes: Sizes, *, beam: int, length: int, sentences: int, trie: BatchPredictor | None = None
) -> float:
    """One sentence at a time."""
    from free_predictor import Free, free_scores, search

    from sgdec.search.constellation import Constellation

    free = Free(free_scores(sizes.wide_vocab_size))
    constellation = Constellation.of({"free": free} if trie is None else {"free": free, "trie": trie})
    made = 0

    def decode() -> float:
        nonlocal made
        started = time.process_time()
        outcomes = search(constellation, beam, length, sentences, batch=1)
        spent = time.process_time() - started
        made = sum(outcome.result.expansions for outcome in outcomes)
        return spent

    return in_turn({"beam": decode}, sizes.repeats)["beam"] / made * 1e6


@figure("fst,ngram", "sentences per second", "higher")
def lattices_with_ngram(sizes: Sizes) -> float:
    """Beam search, one sentence at a time, including reading the lattices."""
    return _lattices(sizes, batch_size=1)


@figure("fst,ngram, batches", "sentences per second", "higher")
def lattices_with_ngram_in_batches(sizes: Sizes) -> float:
    """The same in batches of 64."""
    return _lattices(sizes, batch_size=64)


@figure("fst,ngram, proven", "sentences per second", "higher")
def proven_lattices(sizes: Sizes) -> float:
    """Exact searches of the same lattices, with loading and bounds."""
    from sgdec_decoders.astar import AStarDecoder

    return _lattices(sizes, batch_size=1, decoder=AStarDecoder())


def _lattices(sizes: Sizes, *, batch_size: int, decoder: Decoder | None = None) -> float:
    from sgdec_decoders.beam import BeamDecoder
    from symbolic import search, sentences, write_inputs

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, sizes.lattices, states=60, seed=1)
        sources = sentences(sizes.lattices)
        case = {"search": lambda: search(folder, sources, decoder or BeamDecoder(size=BEAM), batch_size)[0]}
        return sizes.lattices / in_turn(case, sizes.repeats)["search"]


@figure("training / products", "of the speed of one large product", "higher")
def training_by_products(sizes: Sizes) -> float:
    """One update of GNMT 2+2 x 512 with 8,000 words, as floating-point operations per second."""
    from training_peer import MFLOP_PER_TOKEN, peak
    from training_step import Updates

    clock = time.process_time
    updates = Updates(sizes.pairs)
    speeds: list[float] = []

    def product() -> float:
        speeds.append(peak(1, sizes.product, clock))
        return 0.0

    cases = {"product": product, "update": lambda: updates.update(updates.model, clock)}
    spent = in_turn(cases, sizes.repeats)["update"]
    return updates.tokens * MFLOP_PER_TOKEN / 1000 / spent / statistics.median(speeds)


@figure("astar", "microseconds per expansion", "lower")
def astar(sizes: Sizes) -> float:
    """An exact search over rows of 32,000 scores, whose only cost is a copy."""
    from memory import search_exactly

    def search() -> float:
        started = time.process_time()
        search_exactly("astar", sizes.wide_vocab_size, 1, sizes.expansions)
        return time.process_time() - started

    return in_turn({"astar": search}, sizes.repeats)["astar"] / sizes.expansions * 1e6


@figure("astar, memory", "bytes per expansion", "lower")
def astar_memory(sizes: Sizes) -> float:
    """The memory that an open prefix keeps, over rows of 32,000 scores."""
    from memory import bytes_an_expansion

    return bytes_an_expansion("astar", sizes.wide_vocab_size, 1, sizes.expansions // 4, sizes.expansions // 2)


@figure("grammar mask / llguidance", "times as long", "lower")
def grammar_mask(sizes: Sizes) -> float:
    """A mask of a JSON schema as a row of scores, and the mask alone."""
    from constraints import mask_by_llguidance

    return mask_by_llguidance(sizes.wide_vocab_size, sizes.repeats * 10)


@figure("nmt,regex / nmt", "times as long", "lower")
def with_regex(sizes: Sizes) -> float:
    """A beam of 5 per expansion, with a pattern that allows half of the tokens."""
    from regexes import SHARES, price

    size, sentences = sizes.wide_vocab_size, max(2, sizes.sentences // 8)
    (ratios,) = price([SHARES["half"]], sizes.layers, sizes.width, size, sentences, sizes.repeats)
    return statistics.median(ratios)


@figure("nmt,phrases / nmt", "times as long", "lower")
def with_phrases(sizes: Sizes) -> float:
    """A beam of 5 per expansion, with one wanted phrase."""
    from phrases import Price

    price = Price(sizes.layers, sizes.width, sizes.wide_vocab_size, max(2, sizes.sentences // 8))
    return statistics.median(price.of("path", 1, False, sizes.repeats)[0])


@figure("regex, building", "seconds", "lower")
def building_regex(sizes: Sizes) -> float:
    """A pattern for records until its first row is known, after the spelling of the vocabulary is."""
    from regexes import GROWING, context_of, first_row

    context = context_of(sizes.wide_vocab_size)
    first_row("a", context, "none")
    return statistics.median(first_row(GROWING["record"], context, "none") for _ in range(sizes.repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES), metavar="FIGURE")
    parser.add_argument("--tiny", action="store_true", help="sizes that show that figures run, and nothing else")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy or torch is imported
    know_by_new_names()
    for name in given.only:
        try:
            found: dict[str, object] = {"value": FIGURES[name].measure(TINY if given.tiny else FULL)}
        except Exception as error:  # a figure that a commit cannot run must not hide the others
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps({"name": name, **found}), flush=True)


if __name__ == "__main__":
    main()

"""Are the estimates of `particles` unbiased, how fast do they converge, what does masking alone cost, and the time?

    python benchmarks/particles.py unbiased [--runs 10000]
    python benchmarks/particles.py variation [--runs 200]
    python benchmarks/particles.py time [--rounds 7]

``unbiased``: small spaces, which are enumerated, with dead ends, forced ends, proposals, twists and all schemes of
resampling. Each line has Z, the mean of its estimates, and how many standard errors they are apart; then the same for
Z times the length and Z times the share of outputs of two tokens. All must be less than four, and about one in twenty
is more than two.

``variation``: two random bigram models together, and a third one with a list of allowed outputs (`trie`), and with a
grammar. First the distance (total variation) of the law of `sample` from the posterior, both exact. For each number N
of draws: the mean distance of one weighted list of `particles` from the posterior, the same for N draws of `sample`,
and the distance of the mean of all lists of `particles`; then the slope of the logarithm of the first over that of N,
which comes close to -0.5 where N is large beside the outputs.

``time``: a random GPT-2 (6 layers of width 384, 4,000 tokens) with a grammar: 64 particles beside 64 draws of
`sample`, outputs of up to 24 tokens, on one thread. Within a round the sides alternate. Without resampling nine
tenths of the outputs must be the same; not all, because batches of other sizes are rounded differently.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import platform
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sgdec_decoders.particles import ParticlesDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_predictors.grammar import GrammarPredictor
from sgdec_predictors.trie import TriePredictor

from sgdec import EOS, Context, Decoder, Result, Source
from sgdec.arrays import FORBIDDEN
from sgdec.chain import Chain
from sgdec.context import Vocabularies
from sgdec.io.entries import read_entries
from sgdec.io.trie import build_trie
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import Bonus, Lattice, Table, enumerate_space
from sgdec.vocabularies import SPECIAL, WordVocabulary

Tokens = tuple[int, ...]
Law = dict[Tokens, float]
SIZES = (4, 16, 64, 256, 1024)
WORDS = 9


def run(decoder: Decoder, constellation: Constellation, source: Source, seed: int) -> Result:
    (root,) = constellation.roots([source])
    return decoder.decode(SearchSpace(constellation, root, seed=seed, nbest=10**6))


def weights_of(result: Result) -> Law:
    """exp(`log_weight`) of each output, or its share of the draws."""
    return {
        found.tokens: (found.count or 0) / (result.drawn or 1)
        if found.log_weight is None
        else math.exp(found.log_weight)
        for found in result.hypotheses
    }


def normalised(law: Law) -> Law:
    total = sum(law.values())
    return {tokens: share / total for tokens, share in law.items()}


def targets(constellation: Constellation, source: Source) -> Law:
    return {path.tokens: math.exp(path.total) for path in enumerate_space(constellation, source)}


# Unbiased.


def unbiased(given: argparse.Namespace) -> None:
    rng, worst = np.random.default_rng(28), []
    model = np.where(np.arange(5) < EOS, FORBIDDEN, rng.normal(-0.4, 1.0, (5, 5)))
    guide, other = rng.normal(-0.4, 1.0, (5, 5)), rng.normal(0.0, 0.6, (5, 5))
    lattice = Lattice(
        {
            0: {3: (0.0, 1), 4: (-0.6, 2)},
            1: {3: (0.2, 3), 4: (-0.9, 3), EOS: (-0.7, 9)},
            2: {3: (-0.1, 3), 4: (-0.2, 8)},
            3: {EOS: (0.7, 9), 4: (-0.4, 4)},
            4: {EOS: (-1.0, 9)},
        }
    )
    dead = {"lattice": lattice, "bonus": Bonus({3: 0.8}, default=-0.2), "guide": Table(guide)}
    forced = {"model": Table(model), "other": Table(other), "guide": Table(guide)}
    spaces = {
        "dead ends": (Constellation.of(dead, weights=[1.0, -0.5, 0.0], vocab_size=5), Source(1, (3,), max_length=5)),
        "forced ends": (Constellation.of(forced, weights=[1.0, 0.7, 0.0]), Source(1, (3,), max_length=3)),
    }
    cases: list[tuple[str, dict[str, Any]]] = [
        ("dead ends", {"threshold": 0.0}),
        ("dead ends", {"threshold": 0.5}),
        ("dead ends", {"threshold": 1.0}),
        ("dead ends", {"threshold": 1.0, "resampling": "stratified"}),
        ("dead ends", {"threshold": 1.0, "resampling": "multinomial"}),
        ("dead ends", {"threshold": 1.0, "propose": ("lattice",)}),
        ("dead ends", {"threshold": 1.0, "twist": "bound"}),
        ("dead ends", {"threshold": 0.8, "twist": "guide", "resampling": "multinomial"}),
        ("forced ends", {"threshold": 0.0}),
        ("forced ends", {"threshold": 0.7}),
        ("forced ends", {"threshold": 1.0, "resampling": "stratified"}),
        ("forced ends", {"threshold": 1.0, "chain": Chain.parse("temperature=2")}),
        ("forced ends", {"threshold": 0.9, "propose": ("other", "guide"), "twist": "guide"}),
        ("forced ends", {"threshold": 1.0, "propose": ("model",), "twist": "bound", "resampling": "multinomial"}),
    ]
    print(f"{given.runs:,} runs of 6 particles; numpy {np.__version__}")
    print("| space | options | Z | mean | errors: Z, Z x length, Z x two tokens |\n|---|---|---:|---:|---|")
    for number, (name, options) in enumerate(cases):
        constellation, source = spaces[name]
        truth = targets(constellation, source)
        values = {tokens: np.array([1.0, len(tokens), len(tokens) == 2]) for tokens in truth}
        expected = np.sum([share * values[tokens] for tokens, share in truth.items()], axis=0)
        decoder, found = ParticlesDecoder(particles=6, **options), np.zeros((given.runs, 3))
        for seed in range(given.runs):
            result = run(decoder, constellation, source, number * given.runs + seed)
            for tokens, weight in weights_of(result).items():
                found[seed] += weight * values[tokens]
        off = (found.mean(axis=0) - expected) / (found.std(axis=0) / math.sqrt(given.runs))
        worst += np.abs(off).tolist()
        said = ", ".join(f"{key} {value}" for key, value in options.items())
        apart = ", ".join(f"{each:+.2f}" for each in off)
        print(f"| {name} | {said} | {expected[0]:.4f} | {found[:, 0].mean():.4f} | {apart} |", flush=True)
        assert np.all(np.abs(off) < 4)
    print(f"{len(worst)} means: {sum(each < 2 for each in worst)} within 2 standard errors, at most {max(worst):.2f}")


# Variation.


def variation(given: argparse.Namespace) -> None:
    for name, constellation, source in varied():
        posterior = normalised(targets(constellation, source))
        bias = distance(normalised(law_of_sample(constellation, source)), posterior)
        print(f"{name}: {len(posterior):,} outputs; law of sample: {bias:.3f} from the posterior; {given.runs} runs")
        print("| draws | particles, one list | sample, one list | particles, mean of lists |\n|---:|---:|---:|---:|")
        means = []
        for size in SIZES:
            ours, both = defaultdict[Tokens, float](float), []
            for seed in range(given.runs):
                pair = []
                for decoder in (ParticlesDecoder(particles=size), SampleDecoder(samples=size)):
                    found = weights_of(run(decoder, constellation, source, seed))
                    pair.append(distance(normalised(found), posterior) if found else 1.0)
                    if isinstance(decoder, ParticlesDecoder):
                        for tokens, share in (normalised(found) if found else found).items():
                            ours[tokens] += share / given.runs
                both.append(pair)
            one, drawn = np.mean(both, axis=0)
            means.append(one)
            print(f"| {size} | {one:.4f} | {drawn:.4f} | {distance(ours, posterior):.4f} |", flush=True)
        slope = np.polyfit(np.log(SIZES[2:]), np.log(means[2:]), 1)[0]
        print(f"slope from {SIZES[2]} particles on: {slope:.3f}")


def varied() -> Iterator[tuple[str, Constellation, Source]]:
    rng, words = np.random.default_rng(0), WordVocabulary([*SPECIAL, *"abcdefghi"])
    both = {name: Table(np.random.default_rng(seed).normal(0.0, 1.0, (6, 6))) for seed, name in enumerate("ab")}
    yield "two models", Constellation.of(both, weights=[0.7, 0.5]), Source(1, (3,), max_length=2)
    logits = rng.normal(0.0, 1.5, (WORDS + 3, WORDS + 3))
    logits[:, :EOS] = FORBIDDEN
    model = Table(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    chosen = random.Random(0).sample(list(itertools.product(range(3, 3 + WORDS), repeat=4)), 60)
    with tempfile.TemporaryDirectory() as folder:
        build_trie(read_entries((" ".join(map(str, each)) for each in chosen), "entries")).write(Path(folder, "trie"))
        trie = TriePredictor(str(Path(folder, "trie")))
        yield "trie", Constellation.of({"model": model, "trie": trie}), Source(1, (3,))
        path = Path(folder, "grammar.lark")
        path.write_text('start: ("a" | "b") (" " ("c" | "d" | "e"))* (" f" " g"? | " h" " a" " b")\n')
        grammar = GrammarPredictor(str(path), context=Context(vocabularies=Vocabularies(words, words)))
        yield "grammar", Constellation.of({"model": model, "grammar": grammar}), Source(1, (3,), max_length=5)


def law_of_sample(constellation: Constellation, source: Source) -> Law:
    """The probability of each output, by recursion; less than 1 in all if there are dead ends."""
    (root,) = constellation.roots([source])
    space, law = SearchSpace(constellation, root), Law()
    stack = [(root, 1.0)]
    while stack:
        node, share = stack.pop()
        if node.finished:
            law[node.tokens[:-1]] = share
            continue
        (family,) = space.distributions([node])
        children = family.children(range(len(family.tokens)))
        stack += zip(children, (share * np.exp(family.log_probs)).tolist(), strict=True)
    return law


def distance(law: Law, other: Law) -> float:
    """Total variation."""
    return sum(abs(law.get(tokens, 0.0) - other.get(tokens, 0.0)) for tokens in law.keys() | other.keys()) / 2


# Time.

LAYERS, WIDTH, V, DRAWS, TOKENS = 6, 384, 4_000, 64, 24


def timing(given: argparse.Namespace) -> None:
    with language_model() as predictors:
        constellation = Constellation.of(predictors)
        source = Source(1, tuple(range(100, 116)), max_length=TOKENS)
        sample: Decoder = SampleDecoder(samples=DRAWS)
        draws = run(sample, constellation, source, 0)
        same = run(ParticlesDecoder(threshold=0.0), constellation, source, 0)
        equal = weights_of(draws).keys() & weights_of(same).keys()
        assert len(equal) > 0.9 * len(draws.hypotheses)
        sides: dict[str, Decoder] = {
            "particles": ParticlesDecoder(), "threshold 0": ParticlesDecoder(threshold=0.0), "sample": sample
        }  # fmt: skip
        seconds = defaultdict[str, list[float]](list)
        for number in range(given.rounds):
            for name, decoder in sides.items() if number % 2 else reversed(sides.items()):
                began = time.process_time()
                result = run(decoder, constellation, source, number)
                seconds[name].append(time.process_time() - began)
                assert result.drawn == DRAWS
            print(", ".join(f"{name} {each[-1]:.2f}" for name, each in seconds.items()), flush=True)
        medians = {name: statistics.median(each) for name, each in seconds.items()}
        for name in ("particles", "threshold 0"):
            print(f"{name}: {medians[name]:.3f} s, sample {medians['sample']:.3f} s; ratio "
                  f"{medians[name] / medians['sample']:.2f}")  # fmt: skip
        print(f"numpy {np.__version__}, {platform.processor() or platform.machine()}, one thread, CPU time")


@contextmanager
def language_model() -> Iterator[dict[str, Any]]:
    """`hf` with random weights, and `grammar`: words of letters with single blanks between them."""
    import torch
    import transformers
    from sgdec_predictors.hf import HfPredictor

    torch.manual_seed(0)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    config = transformers.GPT2Config(
        vocab_size=V, n_layer=LAYERS, n_embd=WIDTH, n_head=6, bos_token_id=V - 1, eos_token_id=V - 1
    )
    vocabulary = Syllables(V + 2)  # <unk> and <s> are not tokens of the model
    with tempfile.TemporaryDirectory() as folder:
        transformers.GPT2LMHeadModel(config).save_pretrained(folder)
        path = Path(folder, "grammar.lark")
        path.write_text('start: WORD (" " WORD)*\nWORD: /[a-z]+/\n')
        grammar = GrammarPredictor(str(path), context=Context(vocabularies=Vocabularies(vocabulary, vocabulary)))
        yield {"hf": HfPredictor(folder), "grammar": grammar}


class Syllables:
    """A vocabulary of random strings of syllables, with and without a blank before them."""

    def __init__(self, size: int) -> None:
        rng, pieces = random.Random(1), dict.fromkeys(map(chr, range(32, 127)))
        syllables = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "in")]
        while len(pieces) < size - len(SPECIAL):
            pieces[rng.choice(("", " ")) + "".join(rng.choices(syllables, k=rng.randint(1, 3)))] = None
        self.pieces = [*SPECIAL, *pieces]
        self.size = size
        self.fingerprint = f"{size} pieces of syllables"

    def encode(self, text: str) -> Tokens:
        return tuple(map(self.pieces.index, text))

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in tokens if token >= len(SPECIAL))

    def piece(self, token: int) -> str:
        return self.pieces[token]

    def token(self, piece: str) -> int:
        return self.pieces.index(piece)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures = parser.add_subparsers(required=True)
    for name, measure, option, number in (
        ("unbiased", unbiased, "--runs", 10_000), ("variation", variation, "--runs", 200),
        ("time", timing, "--rounds", 7),
    ):  # fmt: skip
        command = measures.add_parser(name)
        command.add_argument(option, type=int, default=number)
        command.set_defaults(measure=measure)
    given = parser.parse_args(arguments)
    given.measure(given)


if __name__ == "__main__":
    main()

"""What do masks, forks and states of `grammar` cost, against llguidance alone?

Three JSON schemas (2, 16 and 86 parts; of 0.15, 0.8 and 4.5 kB), and vocabularies of 32,000 and 128,000 tokens: all
bytes, all pairs of JSON's punctuation and digits, and strings of syllables with and without a blank before them.
Random JSON texts of each schema are walked token by token, each time the longest token first; the first half of them
warms up. At each step one mask is computed by the predictor (from the state to the row of scores) and one by a
matcher of llguidance of its own, with the same options, in turn; which is first alternates. Then a fork (a state
after one more token, with its matcher) is timed against llguidance's own copy. Last, all states of these walks are
kept, and their memory is divided by their number; what states share is there already.

With ``--nmt`` a random GNMT model is searched with and without a grammar that forbids the tokens with a quotation
mark, by beams of 5 and greedily, in turn: milliseconds per expansion.

    python benchmarks/constraints.py [--texts 40] [--sizes 32000,128000] [--nmt]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from common import frozen, nmt, random_gnmt, sentences, settle
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_predictors.grammar import GrammarPredictor

from sgdec.context import Context, Vocabularies
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

SPECIAL = ("<unk>", "<s>", "</s>")
MARKS = '{}[]":,.-0123456789'
SYLLABLES = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "on", "ut")]
SOURCE = Source(1, ())


class Pieces:
    """A vocabulary whose text is the concatenation of its pieces."""

    def __init__(self, size: int) -> None:
        rng = random.Random(size)
        pieces = dict.fromkeys([*map(chr, range(32, 127)), *map("".join, itertools.product(MARKS, repeat=2))])
        while len(pieces) < size - len(SPECIAL):
            word = "".join(rng.choices(SYLLABLES, k=rng.randint(1, 4)))
            pieces[rng.choice(("", " ")) + word] = None
        self._pieces = [*SPECIAL, *pieces]
        self._tokens = {piece: token for token, piece in enumerate(self._pieces)}
        self.size = len(self._pieces)
        self.fingerprint = f"pieces {size}"

    def encode(self, text: str) -> tuple[int, ...]:
        """The longest token first."""
        tokens, place = [], 0
        while place < len(text):
            lengths = range(min(16, len(text) - place), 0, -1)
            length = next(n for n in lengths if text[place : place + n] in self._tokens)
            tokens.append(self._tokens[text[place : place + length]])
            place += length
        return tuple(tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self._pieces[token] for token in tokens)

    def piece(self, token: int) -> str:
        return self._pieces[token]

    def token(self, piece: str) -> int:
        return self._tokens.get(piece, 0)


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


STRING, INTEGER, NUMBER, BOOLEAN = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
COLOUR = {"enum": ["red", "green", "blue"]}
PERSON = record(name=STRING, age=INTEGER)
ORDER = record(
    **{f"field{n}": (STRING, INTEGER, BOOLEAN, NUMBER)[n % 4] for n in range(12)},
    colours={"type": "array", "items": COLOUR, "maxItems": 4},
    customer=PERSON,
)
ORDERS = record(**{f"order{n}": ORDER for n in range(5)}, notes={"type": "array", "items": STRING})
SCHEMAS = {"small": PERSON, "medium": ORDER, "large": ORDERS}


def value_of(schema: dict[str, Any], rng: random.Random) -> Any:
    """A random value that satisfies one of the schemas here."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "string":
            return " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 5)))
        case "integer":
            return rng.randint(0, 9999)
        case "number":
            return rng.randint(0, 9999) / 100
        case "boolean":
            return rng.random() < 0.5
        case "array":
            return [value_of(schema["items"], rng) for _ in range(rng.randint(0, schema.get("maxItems", 4)))]
    return {name: value_of(inner, rng) for name, inner in schema["properties"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--sizes", default="32000,128000")
    parser.add_argument("--nmt", action="store_true")
    given = parser.parse_args()
    if given.nmt:
        return with_nmt()
    print(f"processor: {processor()}; microseconds, median and 99th percentile")
    for size in map(int, given.sizes.split(",")):
        vocabulary = Pieces(size)
        for name, schema in SCHEMAS.items():
            predictor = predictor_of(json.dumps(schema), "schema.json", vocabulary)
            print(f"V {size:,}, {name} schema: {compare(predictor, random_walks(schema, vocabulary, given.texts))}")


def predictor_of(text: str, name: str, vocabulary: Pieces) -> GrammarPredictor:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text)
        context = Context(vocabularies=Vocabularies(target=vocabulary), vocab_size=vocabulary.size)
        return GrammarPredictor(str(path), whitespace="compact", context=context)


def random_walks(schema: dict[str, Any], vocabulary: Pieces, number: int) -> list[Sequence[int]]:
    rng = random.Random(1)
    texts = [json.dumps(value_of(schema, rng), separators=(",", ":")) for _ in range(number)]
    return [vocabulary.encode(text) for text in texts]


def mask_by_llguidance(size: int, texts: int) -> float:
    """The median time of a mask of the medium schema, relative to llguidance alone."""
    vocabulary = Pieces(size)
    predictor = predictor_of(json.dumps(ORDER), "schema.json", vocabulary)
    walks = random_walks(ORDER, vocabulary, texts)
    ours, alone = zip(*(masks for masks, _ in steps(predictor, walks)), strict=True)
    return statistics.median(ours) / statistics.median(alone)


def with_nmt(size: int = 32_000, repeats: int = 5) -> None:
    vocabulary = Pieces(size)
    grammar = predictor_of(r'start: /[^"]*/', "no_quotes.lark", vocabulary)
    model = nmt(frozen(random_gnmt(2, 512, size)))
    sources = sentences([20] * 8, size)
    cases = {
        f"{name}, {kind}": (Constellation.of(predictors, vocab_size=size), decoder)
        for name, predictors in {"nmt": {"nmt": model}, "nmt,grammar": {"nmt": model, "grammar": grammar}}.items()
        for kind, decoder in {"beam 5": BeamDecoder(size=5), "greedy": GreedyDecoder()}.items()
    }
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for name in [*cases] * (repeats + 1):
        settle()
        started = time.perf_counter()
        outcomes = list(Scheduler(*cases[name], batch_size=1).run(sources))
        seconds = time.perf_counter() - started
        spent[name].append(1000 * seconds / sum(outcome.result.expansions for outcome in outcomes))
    for name, times in spent.items():
        print(f"{name}: {statistics.median(times[1:]):.2f} ms ({min(times[1:]):.2f} to {max(times[1:]):.2f})")


def compare(predictor: GrammarPredictor, walks: Sequence[Sequence[int]]) -> str:
    """Masks and forks by both sides, and the memory of a state."""
    ours, alone, forks, copies = [], [], [], []
    for masks, copied in [*steps(predictor, walks)][sum(map(len, walks[: len(walks) // 2])) :]:
        ours.append(masks[0])
        alone.append(masks[1])
        forks.append(copied[0])
        copies.append(copied[1])
    masks = ratios(ours, alone)
    return (
        f"{len(ours)} masks: predictor {spread(ours)}, llguidance {spread(alone)}, ratio {masks}; "
        f"fork {spread(forks)}, llguidance's copy and token {spread(copies)}, ratio {ratios(forks, copies)}; "
        f"{memory_of_a_state(predictor, walks):.1f} kB a state"
    )


def steps(
    predictor: GrammarPredictor, walks: Sequence[Sequence[int]]
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The seconds of a mask, and of a fork, by the predictor and by llguidance alone, at each step of each walk."""
    language = predictor._shared._language  # type: ignore[union-attr]
    roots = [language.tokens.matcher(language.grammar, spelled) for spelled in (0, 1)]
    for walk in walks:
        (state,) = predictor.initialize_batch([SOURCE])
        matcher = roots[0]
        for place, token in enumerate(walk):
            first, second = (predictor.predict_batch, [state]), (matcher.compute_bitmask,)
            state._row = None
            if place % 2:
                mask = timed(*first), timed(*second)
            else:
                mask = timed(*second), timed(*first)
                mask = mask[1], mask[0]
            (state,) = predictor.consume_batch([state], [token])
            fork = timed(state._matched)
            started = time.perf_counter()
            after = (matcher if place else roots[1]).deep_copy()
            after.consume_token(256 + token)
            copy = time.perf_counter() - started
            matcher = after
            if place:  # the first mask and fork are of the other tokenizer
                yield mask, (fork, copy)


def timed(function: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def memory_of_a_state(predictor: GrammarPredictor, walks: Sequence[Sequence[int]]) -> float:
    """Kilobytes, with all states of the walks in memory at once."""
    kept, before = [], allocated()
    for walk in walks:
        (state,) = predictor.initialize_batch([SOURCE])
        for token in walk:
            (state,) = predictor.consume_batch([state], [token])
            predictor.predict_batch([state])
            kept.append(state)
    return (allocated() - before) / 1024 / len(kept)


class Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc: ten sizes, of which the fifth is in mapped and the eighth in other blocks."""

    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]


def allocated() -> int:
    """The bytes that this process has from malloc (glibc), those of llguidance included."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    found = mallinfo()
    return int(found.e + found.h)


def spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e6:.1f} / {percentile(seconds) * 1e6:.1f}"


def percentile(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))]


def ratios(first: Sequence[float], second: Sequence[float]) -> str:
    median = statistics.median(first) / statistics.median(second)
    return f"{median:.2f} / {percentile(first) / percentile(second):.2f}"


def processor() -> str:
    """The name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()

"""Do two trees search alike? Runs the same random searches in this tree and at an earlier commit.

    python benchmarks/differential.py --base COMMIT [--runs 20000] [--seed 0] [--jobs 2] [--only K]

For a change of code that must change no result. A run is one decoder with random options over a mix of predictors
(`MIXES`): dense, sparse, listed in arrays, marked, on demand, automata, wrapped or renormalised, with weights of both
signs, on a batch of 1 to 12 sentences; traced, checked or neither. Everything that comes out is compared, bit for
bit: tokens, totals, rank scores, ledgers, weights, order, proofs, gaps, expansions, traces, messages and errors.

The earlier commit is checked out into a temporary worktree. Both sides run this file with their own library. The exit
status is 1 if a run differs; the first few are shown, and ``--only K`` shows run K of both sides.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import itertools
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = (".", "predictors", "decoders")
SHOWN = 3
"""The most runs that differ of which the difference is shown."""
V = 9
MIXES = [mix.split() for mix in (
    "table", "float32", "tensor", "batch", "open table", "lattice", "listed", "marked", "fst", "ngram fst",
    "table lattice", "float32 listed", "tensor marked", "batch fst", "tensor lattice", "batch batch", "table table",
    "float32 float32", "tensor tensor", "batch open", "table demand", "lattice demand", "candidates fst",
    "candidates batch", "tensor candidates", "listed marked", "listed listed", "marked open batch", "fst fst ngram",
    "fst wc", "ngram forcedlst length", "trie ngram", "ngram minlength fst", "table fst ngram", "temperature:batch",
    "maskvocab:table lattice", "rank:batch lattice", "batch phrases", "tensor phrases open", "fst phrases ngram",
)]  # fmt: skip
"""Names of `KINDS`; wrappers with a colon."""
NEGATIVE = {"table", "batch", "open", "lattice", "fst", "wc"}
"""Kinds that can have a negative weight in an exact search."""
EXACT = ("astar", "dfs", "lendfs", "restarting", "bucket")
DECODERS = (
    *EXACT, "greedy", "beam", "beam", "vanilla", "vanilla", "bestfirst", "sepbeam", "syncbeam", "diverse", "sample",
    "stochastic",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", help="with which to compare")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", type=int, metavar="K", help="show run K of both sides")
    parser.add_argument("--emit", metavar="A:B", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.emit:
        first, last = map(int, given.emit.split(":"))
        emit(given.seed, first, last, text=given.only is not None)
        return 0
    if not given.base:
        parser.error("give --base COMMIT")
    with worktree(given.base) as base:
        if given.only is not None:
            texts = [shown(root, given.seed, given.only) for root in (base, ROOT)]
            print(difference(*texts) or texts[0])
            return int(texts[0] != texts[1])
        return compare(base, given.runs, given.seed, given.jobs)


def compare(base: Path, runs: int, seed: int, jobs: int) -> int:
    """Compare all runs, and print what differs."""
    began, size = time.monotonic(), max(min(500, runs // jobs), 1)
    parts = [(first, min(first + size, runs)) for first in range(0, runs, size)]
    kinds: Counter[str] = Counter()
    differing: list[int] = []
    with ThreadPoolExecutor(jobs) as pool:
        asked = [(root, seed, *part) for part in parts for root in (base, ROOT)]
        found = pool.map(lambda each: lines(*each), asked)
        for (_, last), before, after in zip(parts, found, found, strict=False):
            kinds.update(line.split()[1] for line in after)
            pairs = zip(before, after, strict=True)
            differing += [int(line.split()[0]) for line, other in pairs if line != other]
            seconds = time.monotonic() - began
            print(f"{last} runs, {len(differing)} differ, {seconds:.0f} s", file=sys.stderr, flush=True)
    for number in differing[:SHOWN]:
        print(f"run {number}:\n{difference(*(shown(root, seed, number) for root in (base, ROOT)))}\n")
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{runs} runs ({counts}): {len(differing)} differ")
    return int(bool(differing))


def lines(root: Path, seed: int, first: int, last: int, *more: str) -> list[str]:
    """The lines that one side prints for runs ``first`` to ``last - 1``."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(str(root / each) for each in SOURCE_ROOTS), "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, __file__, "--emit", f"{first}:{last}", "--seed", str(seed), *more]
    done = subprocess.run(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def shown(root: Path, seed: int, number: int) -> list[str]:
    return lines(root, seed, number, number + 1, "--only", str(number))


def difference(before: list[str], after: list[str]) -> str:
    found = difflib.unified_diff(before, after, "before", "after", lineterm="", n=1)
    return "\n".join(line[:300] for line in found)


class worktree:
    """A temporary worktree of a commit."""

    def __init__(self, commit: str) -> None:
        self._commit = commit

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="base-")
        self._path = Path(self._folder.name) / "tree"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", self._path, self._commit], cwd=ROOT, check=True)
        return self._path

    def __exit__(self, *raised: object) -> None:
        subprocess.run(["git", "worktree", "remove", "--force", self._path], cwd=ROOT, check=True)
        self._folder.cleanup()


# One side.


def emit(seed: int, first: int, last: int, *, text: bool) -> None:
    """Print a line for each run: its number, how it ended, and a hash of all that came out; or the text itself."""
    from sgdec.search import space

    logging.getLogger("sgdec").setLevel(logging.INFO)
    space.ENDLESS = 300  # a traced search without an end takes minutes up to the usual length
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_files(Path(folder), random.Random(seed))
        for number in range(first, last):
            said = list(outcome(random.Random(f"{seed} {number}")))
            kind = said[-1]
            if text:
                print("\n".join(said))
            else:
                print(number, kind, hashlib.sha256("\n".join(said).encode()).hexdigest()[:24])


def outcome(rng: random.Random) -> Iterator[str]:
    """All that comes out of a random run, line by line; the last line is one word for its kind."""
    import sgdec

    heard = Heard()
    logging.getLogger("sgdec").addHandler(heard)
    try:
        mix = rng.choice(MIXES)
        predictors, decoder, settings, trace, sources = drawn(mix, rng)
        yield f"{' '.join(mix)}: {decoder} {settings} {'traced' if trace else ''} {sources}"
        failed = done = 0
        try:
            run = sgdec.load(predictors, decoder, **settings)
            for found in run.decode(sources, trace=trace):
                done += 1
                failed += found.error is not None
                yield from described(found)
            yield f"signature {run.caveat}"
        except sgdec.SgdecError as error:
            yield f"{type(error).__name__}: {error}"
            failed = -1
        yield from heard.lines
        yield "refused" if failed < 0 else "failing" if failed else "proving" if decoder in EXACT else "searching"
    finally:
        logging.getLogger("sgdec").removeHandler(heard)


def described(found: Any) -> Iterator[str]:
    """A result, with the bits of its numbers."""
    proof = found.proven, None if found.gap is None else float(found.gap).hex()
    yield f"sentence {found.id}: {proof} {found.expansions} {found.error}"
    for each in found.hypotheses:
        hypothesis = each.found
        yield f"  {hypothesis.tokens} {float(hypothesis.score).hex()} {float(hypothesis.rank_score).hex()}"
        for scores, weights in zip(hypothesis.ledger, hypothesis.weights, strict=True):
            yield f"    {[float(score).hex() for score in scores]} {weights}"
    if found.trace is not None:
        trace = found.trace
        yield f"  {trace.stopped} {trace.counted} {trace.proven} {trace.gap} {trace.error} {trace.max_length}"
        yield from (f"  {bound.expansions} {bound.bound} {bound.best}" for bound in trace.bounds)
        for at in trace.expansions:
            yield (
                f"  {at.number} {at.parent} {at.token} {at.candidates} {at.tokens} {at.totals} {at.scores} "
                f"{at.fates} {at.rest} {dict(at.into)} {at.alone} {at.ending} {at.weights} {dict(at.attention)} "
                f"{dict(at.place)}"
            )


class Heard(logging.Handler):
    """Collects messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


def drawn(
    mix: Sequence[str], rng: random.Random
) -> tuple[dict[str, Any], str, dict[str, Any], bool, list[list[int]]]:
    """Predictors of a mix, decoder, settings, whether to trace, and sources of a run."""
    decoder = rng.choice(DECODERS)
    predictors = {f"p{k}": made(kind, rng) for k, kind in enumerate(mix)}
    options = decoder_options(decoder, rng, banks="phrases" in mix, attention="batch" in mix)
    settings: dict[str, Any] = {
        "vocab_size": V, "batch_size": rng.choice([1, 64]), "nbest": rng.choice([1, 1, 3]), "seed": rng.randrange(9),
        "max_length": rng.choice([0, 2, 4, 5]), decoder: options,
    }  # fmt: skip
    for k, kind in enumerate(mix):
        signs = [1.0, 1.0, 0.5, 0.0, *([-0.5] if kind in NEGATIVE or decoder not in EXACT else [])]
        settings[f"p{k}"] = {"weight": rng.choice(signs)}
        if rng.random() < 0.08:
            settings[f"p{k}"]["renormalize"] = True
    if settings["max_length"] == 0 and not {"lattice", "fst", "listed", "trie", "forcedlst"} & set(mix):
        settings["max_length"] = 4
    for name, share in (("check_bounds", 0.1), ("deterministic", 0.1)):
        if rng.random() < share:
            settings[name] = True
    if rng.random() < 0.2:
        settings["bounds"] = "sum"
    if rng.random() < 0.1 and decoder != "vanilla":
        settings["max_rows"] = rng.choice([1, 2, 5])
    sources = [[rng.randrange(3, V) for _ in range(rng.randint(1, 4))] for _ in range(rng.choice([1, 3, 12]))]
    return predictors, decoder, settings, rng.random() < 0.2, sources


def decoder_options(name: str, rng: random.Random, *, banks: bool, attention: bool) -> dict[str, Any]:
    """Options of a decoder; about half of them are the defaults."""
    pick = rng.choice
    found: dict[str, Any] = {}

    def maybe(option: str, *values: Any, share: float = 0.5) -> None:
        if rng.random() < share:
            found[option] = pick(values)

    if name == "sample":
        maybe("samples", 1, 4)
        maybe("temperature", 0.5, 2.0)
        maybe("top_k", 2, 3)
        maybe("top_p", 0.5, 0.9)
        return found
    if name == "stochastic":
        maybe("samples", 1, 4)
        maybe("method", "arithmetic")
        return found
    if name == "greedy":
        return found
    maybe("alpha", 0.6, 1.0, -0.5, share=0.3)
    maybe("normalize", "length", share=0.2)
    if attention:
        maybe("beta", 0.3, share=0.3)
    if name in EXACT:
        maybe("max_expansions", 5, 60, share=0.3)
        maybe("recombine", True, share=0.3)
        found.setdefault("max_expansions", 2000)
    if name == "astar":
        maybe("capacity", 3, 10, share=0.2)
        maybe("heuristic", "none", share=0.2)
    if name == "diverse":
        maybe("size", 2, 6, share=0.8)
        maybe("diversity", "cumulative", "ngram")
        maybe("sampling", True)
        maybe("stop", "best")
    if name == "bucket":
        maybe("selector", "iter", "maxscore", "score", share=0.5)
    if name in ("beam", "vanilla", "sepbeam", "syncbeam", "bestfirst", "bucket"):
        maybe("size", 1, 2, 3, 7, 60, share=0.8)
    if name in ("beam", "vanilla", "sepbeam", "syncbeam"):
        maybe("stop", "best", "full", "length", "proven", share=0.6)
        maybe("prune_final", 0.5, 2.0, share=0.2)
    if name in ("beam", "vanilla", "sepbeam", "syncbeam", "bestfirst"):
        maybe("prune_local", 0.7, 2.0, share=0.2)
    if name in ("beam", "sepbeam", "syncbeam", "bestfirst"):
        maybe("recombine", True, share=0.3)
    if name in ("beam", "vanilla") and banks:
        maybe("banks", True, share=0.6)
    if name == "syncbeam":
        found["symbol"] = pick([3, 4])
    return found


def made(kind: str, rng: random.Random) -> Any:
    """A predictor of a kind."""
    wrapper, _, inner = kind.rpartition(":")
    if wrapper:
        from sgdec.lifting import lift

        options: dict[str, Any] = {"temperature": {"value": 2.0}, "maskvocab": {"tokens": "4"}, "rank": {}}[wrapper]
        return plugin(wrapper, lift(made(inner, rng)), **options)
    return KINDS[kind](np.random.default_rng(rng.randrange(2**32)))


def plugin(name: str, *inner: Any, **options: Any) -> Any:
    from sgdec.plugins.host import Host

    return Host(autoload=False).load("predictor", name)(*inner, **options)


def scores(rng: np.random.Generator, rows: int = V) -> Any:
    """``[rows, V]``: log-probabilities, at times coarse, so that many are equal, at times with forbidden tokens."""
    values = np.log(rng.dirichlet(np.ones(V), rows))
    if rng.random() < 0.4:
        values = np.floor(2 * values) / 2
    if rng.random() < 0.3:
        values[rng.random(values.shape) < 0.15] = -np.inf
    return values


def toy(name: str, rng: np.random.Generator) -> Any:
    from sgdec.testing import toys

    if name == "open":
        return toys.Bonus({2: float(rng.normal()), 4: 0.5, 5: -0.25}, default=-0.5)
    if name == "lattice":
        arcs: dict[int, dict[int, tuple[float, int]]] = {}
        for state in range(6):
            tokens = rng.permutation(V)[: rng.integers(1, 6)].tolist()
            targets = rng.integers(state + 1, 7, len(tokens)).tolist()
            arcs[state] = {
                token: (round(float(rng.normal()), 1), 99 if token == 2 else target)
                for token, target in zip(tokens, targets, strict=True)
            }
        arcs[6] = {2: (-0.5, 99)}
        return toys.Lattice(arcs)
    values = scores(rng)
    if name == "table":
        return capped(toys.Table, values)
    if name == "float32":
        return capped(toys.Table, values.astype(np.float32), np.float32)
    if name == "demand":
        return capped(toys.OnDemandTable, values)
    return capped(toys.BatchTable, values)


def capped(cls: type[Any], values: Any, dtype: Any = np.float64) -> Any:
    """A table of scores that are not positive, and says so."""
    made = cls(values)
    made.max_score = 0.0
    if dtype is np.float32:
        made.table = values
    return made


def batch_form(form: str, rng: np.random.Generator) -> Any:
    """A bigram model in the batch form that answers in a given form."""
    import torch

    from sgdec import BatchPredictor, Scores

    table = scores(rng)
    listed = rng.random((V, V)) < 0.5
    listed[:, 2] |= rng.random(V) < 0.7
    listed[7] = listed[8] = False
    listed[7:, 2] = True  # so that lists end

    class Answers(BatchPredictor):
        max_score = 0.0
        on_demand = form == "candidates"

        def initialize_batch(self, sources: Sequence[Any]) -> list[Any]:
            return [(1, 0)] * len(sources)

        def consume_batch(self, states: Sequence[Any], tokens: Sequence[int]) -> list[Any]:
            return [(token, steps + 1) for (_, steps), token in zip(states, tokens, strict=True)]

        def state_key(self, states: Sequence[Any]) -> list[Any]:
            return list(states)

        def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Any:
            last = [token for token, _ in states]
            if form == "tensor":
                return Scores.dense(torch.tensor(table[last], dtype=torch.float32))
            if form == "marked":
                return Scores.allowing(self._allowed(states))
            if form == "candidates" and candidates is not None:
                asked = [range(V) if row is None else row for row in candidates]
                flat = [table[token, other] for token, row in zip(last, asked, strict=True) for other in row]
                return Scores.of_candidates(asked, np.array(flat, np.float64))
            if form == "candidates":
                return Scores.dense(table[last])
            marks = self._allowed(states)
            rows, tokens = marks.nonzero()
            offsets = np.append(0, np.cumsum(marks.sum(axis=1))).astype(np.int64)
            values = np.maximum(table[np.array(last)[rows], tokens], -9.0)
            return Scores.listed(offsets, tokens.astype(np.int64), values)

        @staticmethod
        def _allowed(states: Sequence[Any]) -> Any:
            """After six tokens only the end can follow."""
            marks = listed[[token for token, _ in states]].copy()
            for row, (_, steps) in zip(marks, states, strict=True):
                if steps >= 6:
                    row[:] = False
                    row[2] = True
            return marks

    return Answers()


def phrases(rng: np.random.Generator) -> Any:
    from sgdec import Context
    from sgdec.context import Vocabularies
    from sgdec.text.words import SPECIAL, WordVocabulary

    letters = WordVocabulary([*SPECIAL, *"abcdef"])
    path = f"wanted.{rng.integers(3)}"
    return plugin("phrases", path=path, context=Context(vocabularies=Vocabularies(letters, letters), vocab_size=V))


KINDS: Mapping[str, Callable[[np.random.Generator], Any]] = {
    **{name: partial(toy, name) for name in ("table", "float32", "batch", "open", "lattice", "demand")},
    **{name: partial(batch_form, name) for name in ("tensor", "listed", "marked", "candidates")},
    "fst": lambda rng: plugin("fst", path=f"{{id}}.{rng.integers(3)}.fst"),
    "ngram": lambda rng: plugin("ngram", path=f"lm.{rng.integers(3)}.arpa"),
    "forcedlst": lambda rng: plugin("forcedlst", path="nbest"),
    "trie": lambda rng: plugin("trie", path=f"allowed.{rng.integers(2)}"),
    "wc": lambda rng: plugin("wc"),
    "length": lambda rng: plugin("length", weights="0,0,0,0,0,0,0,0,0,0,1.5,-0.1"),
    "minlength": lambda rng: plugin("minlength", tokens=2),
    "phrases": phrases,
}


def write_files(folder: Path, rng: random.Random) -> None:
    """The files of the bundled predictors: lattices, models and lists for 12 sentences."""
    import pynini

    for sentence, number in itertools.product(range(1, 13), range(3)):
        fst = pynini.Fst()
        fst.add_states(7)
        fst.set_start(0)
        for state in range(6):
            for label in sorted(rng.sample(range(3, V), rng.randint(2, 4))):
                fst.add_arc(state, pynini.Arc(label, label, round(rng.gauss(0, 1), 1), rng.randint(state + 1, 6)))  # type: ignore[attr-defined]
            if rng.random() < 0.5:
                fst.set_final(state, round(rng.gauss(0, 1), 1))
        fst.set_final(6, 0.5)
        fst.write(str(folder / f"{sentence}.{number}.fst"))
    words = ["<unk>", "</s>", *map(str, range(3, V))]
    for number in range(3):
        unigrams = [f"{-rng.uniform(0.2, 1.5):.3f}\t{word}\t{-rng.uniform(0, 0.5):.3f}" for word in words]
        pairs = [(one, two) for one in ("<s>", *words[2:]) for two in words[1:] if rng.random() < 0.4]
        bigrams = [f"{-rng.uniform(0.1, 1):.3f}\t{one} {two}" for one, two in pairs]
        head = f"\\data\\\nngram 1={len(unigrams) + 1}\nngram 2={len(bigrams)}\n"
        parts = [["\\1-grams:", "-99\t<s>\t-0.25", *unigrams], ["\\2-grams:", *bigrams], ["\\end\\"]]
        text = "\n".join(f"{line}\n" if line == part[-1] else line for part in parts for line in part)
        (folder / f"lm.{number}.arpa").write_text(f"{head}\n{text}")
    entries = [f"{id} ||| {sequence(rng)} ||| {rng.gauss(0, 1):.2f}" for id in range(1, 13) for _ in range(5)]
    (folder / "nbest").write_text("\n".join(entries) + "\n")
    for number in range(2):
        listed = sorted({sequence(rng) for _ in range(30)})
        (folder / f"allowed.{number}").write_text("".join(f"{line}\t{rng.gauss(0, 1):.2f}\n" for line in listed))
    for number, wanted in enumerate(("a", "a b", "c | b")):
        (folder / f"wanted.{number}").write_text(f"{wanted}\n" * 12)


def sequence(rng: random.Random) -> str:
    return " ".join(str(rng.randrange(3, V)) for _ in range(rng.randint(1, 4)))


if __name__ == "__main__":
    sys.exit(main())

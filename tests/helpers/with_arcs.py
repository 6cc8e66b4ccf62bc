"""Every bundled predictor with the ability `arcs`, over small random data of a dozen sentences."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from sgdec import BOS, EOS, BatchPredictor, Source
from sgdec.io.arpa import Arpa, NGrams, write_arpa
from sgdec.io.entries import read_entries
from sgdec.io.trie import build_trie
from sgdec.plugins.host import Host
from tests.helpers.lattice_files import write_automaton

V = 7
HOST = Host(autoload=False)
SENTENCES = [Source(n, (3,) * (n % 4) + (0,) * (n % 3), max_length=(None, 2, 4)[n % 3]) for n in range(1, 13)]
LISTING = ("fst", "forced", "forcedlst", "trie", "tries", "unweighted")
PLUGINS = {"tries": "trie", "unweighted": "trie"}
"""The predictors that are in the tests by another name."""
LENGTH = (0.0, 0.5, 0.0, 0.0, 0.0, 0.0, -0.1, 0.0, 0.0, 0.0)


def predictors_with_arcs(folder: Path) -> dict[str, BatchPredictor]:
    """By name. Their files are in ``folder``."""
    rng = np.random.default_rng(3)
    for source in SENTENCES:
        write_lattice(folder / f"{source.id}.fst", rng)
    references = [
        " ".join(map(str, rng.choice([0, 3, 4, 5, 6], rng.integers(4)))) for _ in SENTENCES for _ in range(5)
    ]
    entries = [f"{1 + i // 5} ||| {text} ||| {rng.normal():.3f}" for i, text in enumerate(references)]
    short = [" ".join(map(str, tokens)) for n in range(4) for tokens in itertools.product((3, 4, 5, 6), repeat=n)]
    for name in ("trie", *(f"trie.{source.id}" for source in SENTENCES)):
        lines = [f"{text}\t{rng.normal():.3f}" for text in rng.choice(short, 30)]
        build_trie(read_entries(lines, name)).write(folder / name)
    lengths = [" ".join(f"{n}:{rng.normal():.3f}" for n in range(rng.integers(2, 5))) for _ in SENTENCES]
    raw = [" ".join(map(str, source.tokens)) for source in SENTENCES]
    files = {"references": references[::5], "nbest": entries, "lengths": lengths, "raw": raw}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    write_model(folder / "lm.arpa", rng)
    options: dict[str, dict[str, Any]] = {
        "fst": {"path": f"{folder}/{{id}}.fst"},
        "forced": {"path": str(folder / "references")},
        "forcedlst": {"path": str(folder / "nbest")},
        "wc": {},
        "unkc": {"lambdas": (0.5, 2.0)},
        "length": {"weights": LENGTH, "text": str(folder / "raw")},
        "extlength": {"path": str(folder / "lengths")},
        "minlength": {"tokens": 2},
        "maxlength": {"tokens": 3},
        "trie": {"path": str(folder / "trie")},
        "tries": {"path": f"{folder}/trie.{{id}}"},
        "unweighted": {"path": str(folder / "trie"), "use_weights": False},
        "ngram": {"path": str(folder / "lm.arpa")},
    }
    return {name: HOST.load("predictor", PLUGINS.get(name, name))(**given) for name, given in options.items()}


def write_lattice(path: Path, rng: np.random.Generator) -> None:
    arcs, final = [], {4: 0.5}
    for state in range(4):
        for label in sorted(rng.choice([3, 4, 5, 6], 3, replace=False).tolist()):
            arcs.append((state, label, rng.normal(), int(rng.integers(state + 1, 5))))
        final[state] = rng.normal()
    write_automaton(path, arcs, final)


def write_model(path: Path, rng: np.random.Generator) -> None:
    """A trigram model without token 6."""
    words = [BOS, EOS, 3, 4, 5]
    grams: list[list[tuple[int, ...]]] = [[(word,) for word in range(len(words))]]
    for _ in range(2):
        longer = [(*gram, word) for gram in grams[-1] if words[gram[-1]] != EOS for word in range(1, len(words))]
        grams.append([longer[i] for i in sorted(rng.choice(len(longer), 8, replace=False).tolist())])
    orders = [
        NGrams(np.array(each, np.int32), rng.uniform(-5, -0.1, len(each)), rng.uniform(-1, 0, len(each)) * (n < 3))
        for n, each in enumerate(grams, 1)
    ]
    write_arpa(path, Arpa(["<s>", "</s>", "3", "4", "5"], orders))

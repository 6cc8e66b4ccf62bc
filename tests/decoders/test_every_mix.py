"""Exact decoders find the true n-best in any mix of the bundled symbolic predictors, as enumeration says.

Each predictor is its own random case in the tests of its own name; here they meet each other, with weights of both
signs, negative costs among them. The oracle, `sgdec.testing.enumerate_space`, shares no code with searches.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec import BatchPredictor, Context, Predictor, Source
from sgdec.context import Vocabularies
from sgdec.lifting import lift
from sgdec.plugins.host import Host
from sgdec.search.constellation import Constellation
from sgdec.testing import TinySpace
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.breadth import examples
from tests.helpers.lattice_files import write_automaton, write_paths
from tests.helpers.random_spaces import expect_the_nbest, search

pytestmark = pytest.mark.slow

V = 6
HOST = Host(autoload=False)
LETTERS = WordVocabulary([*SPECIAL, "a", "b", "c"])
Made = Predictor | BatchPredictor
Rng = np.random.Generator


def load(name: str, *inner: BatchPredictor, **options: Any) -> Made:
    cls = HOST.load("predictor", name)
    if "context" in inspect.signature(cls).parameters:
        options.setdefault("context", Context(vocab_size=V))
    made: Made = cls(*inner, **options)
    return made


def sequence(rng: Rng, *tokens: int) -> str:
    """Up to three of these, some perhaps more than once."""
    return " ".join(map(str, rng.choice(tokens, rng.integers(4))))


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def lattice(folder: Path, rng: Rng, name: str, *, deterministic: bool) -> str:
    arcs, final = [], {4: 0.5}
    for state in range(4):
        labels = rng.choice([3, 4, 5], 3, replace=not deterministic)
        for label in labels[: rng.integers(1, 4)]:
            arcs.append((state, int(label), rng.integers(-4, 5) / 2, int(rng.integers(state + 1, 5))))
        if rng.random() < 0.3:
            final[state] = rng.integers(-2, 3) / 2
    write_automaton(folder / name, arcs, final)
    return str(folder / name)


def network(folder: Path, rng: Rng) -> str:
    (folder / "1").mkdir(exist_ok=True)
    write_paths(folder / "1" / "1003001002.fst", [((3,), -0.5), ((4, 5), rng.integers(-2, 3) / 2)])
    write_paths(folder / "1.fst", [((1003001002, 4), 0.0), ((5, 1003001002), 1.0), ((3,), 0.0)])
    return str(folder)


def arpa(folder: Path, rng: Rng) -> str:
    words = ["<unk>", "</s>", "3", "4", "5"]
    unigrams = [f"{-rng.uniform(0.2, 1.5):.3f}\t{word}\t{-rng.uniform(0, 0.5):.3f}" for word in words]
    pairs = itertools.product(("<s>", "3", "4"), words[1:4])
    bigrams = [f"{-rng.uniform(0.1, 1):.3f}\t{first} {second}" for first, second in pairs]
    sections = [["\\1-grams:", "-99\t<s>\t-0.25", *unigrams], ["\\2-grams:", *bigrams]]
    head = f"\\data\\\nngram 1={len(unigrams) + 1}\nngram 2={len(bigrams)}\n\n"
    text = head + "\n\n".join("\n".join(section) for section in sections) + "\n\n\\end\\\n"
    return written(folder, "lm.arpa", text)


def ngrams(folder: Path, rng: Rng) -> str:
    listed = {" ".join(map(str, rng.choice([0, 3, 4, 5, 2], rng.integers(1, 3)))) for _ in range(6)}
    kept = sorted(ngram for ngram in listed if not ngram.startswith("2 "))
    return written(folder, "ngrams", "".join(f"{ngram} : {rng.integers(-2, 5) / 4}\n" for ngram in kept or ["3"]))


def entries(folder: Path, rng: Rng) -> str:
    listed = [f"1 ||| {sequence(rng, 0, 3, 4, 5)} ||| {rng.integers(-4, 5) / 2}\n" for _ in range(6)]
    return written(folder, "nbest", "".join(listed))


def allowed(folder: Path, rng: Rng) -> str:
    listed = [f"{sequence(rng, 0, 3, 4, 5)}\t{rng.integers(-4, 5) / 2}\n" for _ in range(6)]
    written(folder, "allowed-1", "".join(listed))
    return str(folder / rng.choice(["allowed-1", "allowed-{id}"]))


RULES = "S 1_X1_2 1_X1_2 0\nX X1_X2 {} -0.5\nX 3 3 -1\nX 3 4_5 0.25\nX 4 5 {}\nX 4 <dr> -2\n"

GRAMMARS = ["/[ab ]*/", '"a" (" b" | " c")+', '("a" | "b c")?']

MAKERS: dict[str, Callable[[Path, Rng], Made]] = {
    "bow": lambda d, rng: load(
        "bow",
        path=written(d, "bag", sequence(rng, 3, 4, 5) + "\n"),
        accept_subsets=bool(rng.integers(2)),
        accept_duplicates=bool(rng.integers(2)),
    ),
    "canonical": lambda d, rng: load(
        "canonical", context=Context(vocabularies=Vocabularies(LETTERS, LETTERS), vocab_size=V)
    ),
    "extlength": lambda d, rng: load("extlength", path=written(d, "lengths", f"0 1:{rng.integers(3)} 3:-0.5\n")),
    "forced": lambda d, rng: load("forced", path=written(d, "reference", sequence(rng, 0, 3, 4, 5) + "\n")),
    "forcedlst": lambda d, rng: load("forcedlst", path=entries(d, rng), match_unk=bool(rng.integers(2))),
    "fst": lambda d, rng: load("fst", path=lattice(d, rng, "d.fst", deterministic=True)),
    "grammar": lambda d, rng: load(
        "grammar",
        path=written(d, "grammar", f"start: {rng.choice(GRAMMARS)}"),
        context=Context(vocabularies=Vocabularies(LETTERS, LETTERS), vocab_size=V),
    ),
    "length": lambda d, rng: load("length", weights=",".join(["0"] * 10 + [str(rng.uniform(0, 4)), "0"])),
    "lrhiero": lambda d, rng: load(
        "lrhiero", path=written(d, "rules", RULES.format(rng.choice(["X1_X2", "X2_X1"]), rng.integers(-2, 3) / 2))
    ),
    "maxlength": lambda d, rng: load("maxlength", tokens=int(rng.integers(4))),
    "minlength": lambda d, rng: load("minlength", tokens=int(rng.integers(4))),
    "nfst": lambda d, rng: load("nfst", path=lattice(d, rng, "n.fst", deterministic=False)),
    "ngram": lambda d, rng: load("ngram", path=arpa(d, rng)),
    "ngramc": lambda d, rng: load("ngramc", path=ngrams(d, rng), discount=float(rng.choice([0.0, 0.5, 1.0]))),
    "norepeat": lambda d, rng: load("norepeat", order=int(rng.integers(1, 4)), prompt=bool(rng.integers(2))),
    "phrases": lambda d, rng: load(
        "phrases",
        path=written(d, "wanted", f"{rng.choice(['a', 'a b', 'c | b'])}\n"),
        avoid=written(d, "avoided", f"{rng.choice(['a a', 'b c', ''])}\n"),
        ordered=bool(rng.integers(2)),
        context=Context(vocabularies=Vocabularies(LETTERS, LETTERS), vocab_size=V),
    ),
    "regex": lambda d, rng: load(
        "regex",
        pattern=f"[abc ]{{0,4}}|{rng.choice(['a b', 'b.*'])}",
        context=Context(vocabularies=Vocabularies(LETTERS, LETTERS), vocab_size=V),
    ),
    "rtn": lambda d, rng: load("rtn", path=network(d, rng)),
    "trie": lambda d, rng: load("trie", path=allowed(d, rng), use_weights=bool(rng.integers(2))),
    "unkc": lambda d, rng: load("unkc", lambdas=(float(rng.uniform(0.1, 3)),)),
    "wc": lambda d, rng: load("wc"),
    "wordlist": lambda d, rng: load(
        "wordlist",
        path=written(d, "words", f"a\n{rng.choice(['b', 'c'])}\n"),
        mode=str(rng.choice(["only", "never"])),
        context=Context(vocabularies=Vocabularies(LETTERS, LETTERS), vocab_size=V),
    ),
    "maskvocab": lambda d, rng: load("maskvocab", lift(load("ngram", path=arpa(d, rng))), tokens="4"),
    "repetition": lambda d, rng: load(
        "repetition",
        lift(load("ngram", path=arpa(d, rng))),
        penalty=float(rng.choice([0.5, 1.5])),
        prompt=bool(rng.integers(2)),
        normalize=bool(rng.integers(2)),
    ),
    "interpolate": lambda d, rng: load(
        "interpolate",
        {name: lift(load("ngram", path=arpa(d, rng))) for name in "ab"},
        weights=(0.75, 0.25),
        scheme=str(rng.choice(["fixed", "bayesian", "entropy"])),
        context=Context(vocab_size=V),
    ),
    "contrast": lambda d, rng: load(
        "contrast",
        {"a": lift(load("ngram", path=arpa(d, rng))), "b": lift(load("wc"))},
        weights=(1.0, float(rng.choice([-0.5, 0.5]))),
        plausibility=float(rng.choice([0.0, 0.2])),
        normalize=True,
        context=Context(vocab_size=V),
    ),
    "topk": lambda d, rng: load(
        "topk", lift(load("ngram", path=arpa(d, rng))), k=int(rng.integers(1, V)), context=Context(vocab_size=V)
    ),
    "temperature": lambda d, rng: load(
        "temperature", lift(load("ngram", path=arpa(d, rng))), value=float(rng.choice([0.5, 2.0]))
    ),
}
BOUNDLESS_BELOW = {
    "lrhiero", "ngram", "maskvocab", "repetition", "temperature", "interpolate", "contrast", "topk"
}  # fmt: skip
"""Those without `worst_remaining`, which so cannot have a negative weight in an exact search."""


@pytest.mark.parametrize("decoder", ["dfs", "astar", "restarting", "bucket"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_exact_decoders_find_the_true_nbest_in_any_mix(
    tmp_path_factory: pytest.TempPathFactory, decoder: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    names = data.draw(st.lists(st.sampled_from(sorted(MAKERS)), min_size=1, max_size=3, unique=True))
    signs = {name: (1.0, 0.5) if name in BOUNDLESS_BELOW else (1.0, 0.5, -0.75) for name in names}
    weights = [data.draw(st.sampled_from(signs[name])) for name in names]
    predictors = {name: MAKERS[name](folder, rng) for name in names}
    space = TinySpace(
        " and ".join(names),
        lambda: Constellation.of(predictors, weights=weights, vocab_size=V),
        Source(1, (3, 4), "3 4", max_length=3),
    )
    made = HOST.load("decoder", decoder)(recombine=data.draw(st.booleans()))
    nbest = data.draw(st.integers(1, 4))
    result, _ = search(made, space, nbest)
    expect_the_nbest(result, space, made, nbest)
    assert result.proven


def test_every_symbolic_predictor_takes_part() -> None:
    neural = {"nmt", "hf", "clusternmt", "shortlist", "rnnlm", "nplm"}
    other_names = {"kenlm", "srilm"}
    # These are in tests of their own.
    wrappers = {"aligned", "altsrc", "bytes", "fsttok", "idxmap", "rank", "skipvocab", "word2char"}
    names = {entry.name for entry in HOST.names("predictor")}
    assert names == set(MAKERS) | neural | other_names | wrappers

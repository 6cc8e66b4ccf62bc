"""The promise: predictors whose states are numbers give one space in all three ways in which a search can ask them.

As arrays for all hypotheses of many sentences; one prefix at a time, through `steps`; and by the general combination,
which `PassThrough` enforces because it has neither ability.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pynini
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import EOS, UNK, BatchPredictor, Hypothesis, Source
from sgdec.arcs import Numbers
from sgdec.errors import SgdecError
from sgdec.io.entries import read_entries
from sgdec.io.trie import build_trie
from sgdec.models.length import LengthWeights
from sgdec.plugins.host import Host
from sgdec.protocol import Decoder
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import PassThrough

V = 7
HOST = Host(autoload=False)
SENTENCES = [Source(n, (3,) * (n % 4) + (0,) * (n % 3), max_length=(None, 2, 4)[n % 3]) for n in range(1, 13)]
LISTING = ("fst", "forced", "forcedlst", "trie", "tries")
PLUGINS = {"tries": "trie"}
"""The predictors that are in the tests by another name."""
LENGTH = (0.0, 0.5, 0.0, 0.0, 0.0, 0.0, -0.1, 0.0, 0.0, 0.0)
DECODERS: dict[str, Callable[[], Decoder]] = {
    "greedy": GreedyDecoder,
    "beam": lambda: BeamDecoder(size=3),
    "full beam": lambda: BeamDecoder(size=4, stop="full"),
}


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BatchPredictor]:
    folder = tmp_path_factory.mktemp("numbered")
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
    files = {"references": references[::5], "nbest": entries, "lengths": lengths}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    options: dict[str, dict[str, Any]] = {
        "fst": {"path": f"{folder}/{{id}}.fst"},
        "forced": {"path": str(folder / "references")},
        "forcedlst": {"path": str(folder / "nbest")},
        "wc": {},
        "unkc": {"lambdas": (0.5, 2.0)},
        "length": {"weights": LENGTH},
        "extlength": {"path": str(folder / "lengths")},
        "trie": {"path": str(folder / "trie")},
        "tries": {"path": f"{folder}/trie.{{id}}"},
    }
    return {name: HOST.load("predictor", PLUGINS.get(name, name))(**given) for name, given in options.items()}


def write_lattice(path: Path, rng: np.random.Generator) -> None:
    fst = pynini.Fst()
    fst.add_states(5)
    fst.set_start(0)
    for state in range(4):
        for label in sorted(rng.choice([3, 4, 5, 6], 3, replace=False).tolist()):
            arc = pynini.Arc(label, label, rng.normal(), int(rng.integers(state + 1, 5)))
            fst.add_arc(state, arc)
        fst.set_final(state, rng.normal())
    fst.set_final(4, 0.5)
    fst.write(str(path))


def decoded(constellation: Constellation, decoder: Decoder, batch_size: int) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence; none where a limit is too short."""
    found = [out.result for out in Scheduler(constellation, decoder, nbest=3, batch_size=batch_size).run(SENTENCES)]
    return [result.hypotheses for result in found if result is not None]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    "names",
    [
        "fst wc",
        "wc fst",
        "forced",
        "forcedlst unkc",
        "length forcedlst",
        "extlength fst length",
        "wc unkc forcedlst fst",
        "trie",
        "tries wc",
        "fst trie",
        "unkc tries trie",
    ],
)
def test_arrays_steps_and_the_general_combination_find_the_same(
    predictors: dict[str, BatchPredictor], names: str, decoder: str
) -> None:
    chosen = {name: predictors[name] for name in names.split()}
    weights = [(1.0, 0.5, -0.25)[i % 3] if name not in LISTING else 1.0 for i, name in enumerate(chosen)]
    automata = Constellation.of(chosen, weights=weights, vocab_size=V)
    assert automata.automaton is not None and automata.product is not None
    general = Constellation.of(
        {name: PassThrough(predictor) for name, predictor in chosen.items()}, weights=weights, vocab_size=V
    )
    assert general.automaton is None and general.product is None
    expected = decoded(general, DECODERS[decoder](), 1)
    assert sum(map(len, expected)) > 4
    for batch_size in (1, 5):
        assert decoded(automata, DECODERS[decoder](), batch_size) == expected


def test_without_a_predictor_that_lists_tokens_there_is_no_automaton(
    predictors: dict[str, BatchPredictor], tmp_path: Path
) -> None:
    for names in ("wc", "wc unkc", "length extlength"):
        constellation = Constellation.of({name: predictors[name] for name in names.split()}, vocab_size=V)
        assert constellation.automaton is None and constellation.product is None
    (tmp_path / "list").write_text("3 0\n")
    fuzzy = HOST.load("predictor", "forcedlst")(str(tmp_path / "list"), match_unk=True)
    assert Constellation.of({"forcedlst": fuzzy}).automaton is None
    both = Constellation.of({"forcedlst": fuzzy, "fst": predictors["fst"]})
    assert both.automaton is not None and both.product is None, "an unknown word's arcs are not in arrays"


FAR = 20_000


def test_sentences_of_any_length_have_states_of_their_own(predictors: dict[str, BatchPredictor]) -> None:
    """Also beyond the 10,000 tokens at which the framework ends a sentence without a limit."""
    first, second = Source(1, (0, 3)), Source(2, (0,))
    length, unkc, wc = (predictors[name] for name in ("length", "unkc", "wc"))
    states = {name: predictors[name].initialize_batch([first, second])[:1] for name in ("length", "unkc", "wc")}
    others = length.initialize_batch([second])
    before = length.predict_batch(others).rows[0].get(EOS)
    for _ in range(FAR):
        states = {name: predictors[name].consume_batch(state, [UNK]) for name, state in states.items()}
    numbers = LengthWeights.of_numbers(LENGTH).distribution("0 3")
    hazard = numbers.log_probability(FAR) - numbers.log_tail(FAR)
    assert length.predict_batch(states["length"]).rows[0].get(EOS) == pytest.approx(hazard, abs=1e-9)
    assert length.predict_batch(others).rows[0].get(EOS) == before
    expected = FAR * math.log(2.0) - 2.0 - math.lgamma(FAR + 1)
    assert unkc.predict_batch(states["unkc"]).rows[0].get(EOS) == pytest.approx(expected)
    assert unkc.worst_remaining(states["unkc"]) == wc.worst_remaining(states["wc"]) == [-math.inf]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["fst", "forced", "forcedlst", "tries", "extlength"])
def test_a_batch_with_a_refused_sentence_takes_no_numbers(
    predictors: dict[str, BatchPredictor], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(Numbers, "take", lambda self, size: taken.append(size))
    with pytest.raises(SgdecError, match="13"):
        predictors[name].initialize_batch([SENTENCES[1], Source(13, (3,)), SENTENCES[0]])
    assert not taken

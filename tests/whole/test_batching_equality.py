"""The promise: what a search finds does not depend on how many sentences are in flight.

Every registered decoder and the tests' own, with mixtures of the real predictors, one sentence at a time against 8
and 64: in fp32 the same tokens for at least 99.9 % of the sentences and scores within 1e-4, in fp64 the same tokens
for all and scores within 1e-9. Outcomes come in the order of the sentences, and each failure costs its sentence
alone. Small random models; with ``SGDEC_DATA`` also real captions and lattices.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from sgdec.context import EOS, UNK, Context
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Scores, Source
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome, Unreadable
from sgdec.search.scheduler import Scheduler
from tests.helpers.breadth import examples, some
from tests.helpers.places import DATA
from tests.helpers.scheduling import DECODERS, HOST, Dense, Failing, V, or_refusal
from tests.helpers.tiny_models import WIDTH, characters, write_checkpoint, write_lattice

pytestmark = pytest.mark.slow

TOLERANCE = {"fp32": 1e-4, "fp64": 1e-9}
IDENTICAL = {"fp32": 0.999, "fp64": 1.0}
"""The share of sentences whose tokens have to be the same: of few sentences, all."""
ALL: dict[str, Callable[[], Decoder]] = {**DECODERS, "one that raises": Failing}
LETTERS = "abcdefghijklmnopqrstuvwxyz"

SENTENCES: list[Source | Unreadable] = [
    Source(n, tuple(3 + (n * k) % 4 for k in range(1 + n % 5)), max_length=1 + (n % 3 == 1)) for n in range(1, 14)
]
SENTENCES[2] = Source(3, (3, V), max_length=2)  # no token of the models
SENTENCES[5] = Source(6, (), max_length=2)
SENTENCES[7] = Unreadable(8, SgdecError("not UTF-8"))
NO_LATTICE, STRANGE, NO_REFERENCE = 10, 11, 13


class Stranger(Dense):
    """Another model's opinion, in the simple form; cannot do one of the sentences."""

    def initialize(self, source: Source) -> None:
        super().initialize(source)
        self._broken = source.id == STRANGE

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        if self._broken and self.get_state():
            raise ZeroDivisionError("a stranger's mistake")
        return super().predict_next(candidates)


@cache
def nmt(model: str, precision: str) -> BatchPredictor:
    """Loaded once: its slots serve one run after the other."""
    predictor: BatchPredictor = HOST.load("predictor", "nmt")(model, Context(precision=precision))
    return predictor


class Mixes:
    """Constellations over files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for seed in (1, 2):
            write_checkpoint(folder / f"model{seed}", seed=seed, options={"layers": 2, "width": WIDTH})
        for n in range(1, len(SENTENCES) + 1):
            if n != NO_LATTICE:
                paths = [(), (3,), (4,), (5,), (6,), (3, 4), (4, 6), (5, 3 + n % 4), (5, 3 + n % 4, 6)]
                write_lattice(folder / f"{n}.fst", [(path, 0.3 * (n + i) % 1.7) for i, path in enumerate(paths)])
        references = [f"{3 + n % 4}" for n in range(1, NO_REFERENCE)]
        (folder / "references.ids").write_text("".join(f"{line}\n" for line in references))

    def make(self, mix: str, precision: str = "fp32") -> Constellation:
        """``mix`` as on a command line; a stranger has a name there too."""
        available: dict[str, Callable[[], Predictor | BatchPredictor]] = {
            "nmt": partial(nmt, str(self._folder / "model1"), precision),
            "nmt2": partial(nmt, str(self._folder / "model2"), precision),
            "fst": partial(HOST.load("predictor", "fst"), f"{self._folder}/{{id}}.fst"),
            "forced": partial(HOST.load("predictor", "forced"), str(self._folder / "references.ids")),
            "ngram": partial(
                HOST.load("predictor", "ngram"),
                str(DATA / "tiny.arpa"),
                context=Context(vocab_size=V),
            ),
            "wc": HOST.load("predictor", "wc"),
            "unkc": partial(HOST.load("predictor", "unkc"), (0.5,)),
            "stranger": Stranger,
        }
        names = mix.split(",")
        weights = [{"nmt2": 0.6, "ngram": 0.4, "wc": -0.2}.get(name, 1.0) for name in names]
        return Constellation.of({name: available[name]() for name in names}, weights=weights, vocab_size=V)


CASES = {
    "fp32": ["nmt,nmt2", "nmt,ngram", "nmt,fst"],
    "fp64": ["nmt", "nmt,nmt2", "nmt,stranger,wc,unkc", "nmt,ngram", "nmt,fst", "nmt,forced", "fst,ngram,stranger"],
}
"""Mixes by precision of the models."""
DENSE = ("nmt", "nmt,nmt2", "nmt,stranger,wc,unkc")
"""What every decoder can search: scores for all tokens."""
MIXES = [(precision, mix) for precision, mixes in CASES.items() for mix in mixes]
COMPARED = [(name, *mix) for i, name in enumerate(ALL) for mix in some(MIXES, -i)]
"""Every third mix for a decoder, other ones for the next: each mix meets a third of the decoders of each kind."""


@pytest.fixture(scope="module")
def mixes(tmp_path_factory: pytest.TempPathFactory) -> Mixes:
    return Mixes(tmp_path_factory.mktemp("mixes"))


def decode(
    constellation: Constellation, decoder: Decoder, sentences: Sequence[Source | Unreadable], batch_size: int
) -> list[Outcome]:
    return list(Scheduler(constellation, decoder, nbest=3, seed=7, batch_size=batch_size).run(sentences))


def assert_same(found: Sequence[Outcome], expected: Sequence[Outcome], precision: str) -> None:
    """As the promise says."""
    assert [outcome.source for outcome in found] == [outcome.source for outcome in expected]
    assert [repr(outcome.error) for outcome in found] == [repr(outcome.error) for outcome in expected]
    close = partial(np.testing.assert_allclose, rtol=0, atol=TOLERANCE[precision])
    identical = 0
    for outcome, alone in zip(found, expected, strict=True):
        ours, theirs = outcome.result.hypotheses, alone.result.hypotheses
        if [hypothesis.tokens for hypothesis in ours] != [hypothesis.tokens for hypothesis in theirs]:
            continue
        identical += 1
        assert outcome.result.proven == alone.result.proven
        for one, other in zip(ours, theirs, strict=True):
            close((one.score, one.rank_score), (other.score, other.rank_score))
            close(one.ledger, other.ledger)
            assert one.weights == other.weights
    assert identical >= IDENTICAL[precision] * len(expected)


@pytest.mark.parametrize(("name", "precision", "mix"), COMPARED)
def test_any_number_of_sentences_in_flight_finds_the_same(
    mixes: Mixes, name: str, precision: str, mix: str
) -> None:
    decoder, constellation = ALL[name](), mixes.make(mix, precision)
    alone = or_refusal(lambda: decode(constellation, decoder, SENTENCES, 1))
    if isinstance(alone, str):
        assert mix not in DENSE, f"{name} refuses {mix}: {alone}"
    else:
        assert [outcome.source.id for outcome in alone] == list(range(1, len(SENTENCES) + 1))
        assert sum(outcome.error is None for outcome in alone) >= len(SENTENCES) / 3
    for batch_size in (8, 64):
        found = or_refusal(lambda size=batch_size: decode(constellation, decoder, SENTENCES, size))  # type: ignore[misc]
        if isinstance(alone, str) or isinstance(found, str):
            assert found == alone
        else:
            assert_same(found, alone, precision)


@pytest.mark.parametrize(
    ("name", "mix", "failing"),
    [
        ("beam", "nmt", {3, 6, 8}),
        ("vanilla", "nmt,nmt2", {3, 6, 8}),
        ("greedy", "nmt,forced", {3, 6, 8, NO_REFERENCE}),
        ("depth first", "nmt,fst", {3, 6, 8, NO_LATTICE}),
        ("beam that finishes all", "nmt,stranger,wc,unkc", {3, 6, 8, STRANGE}),
        ("one that raises", "nmt", {3, 6, 8, 9, 12}),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_each_failure_costs_its_sentence_alone(
    mixes: Mixes, name: str, mix: str, failing: set[int], batch_size: int
) -> None:
    outcomes = decode(mixes.make(mix), ALL[name](), SENTENCES, batch_size)
    assert {outcome.source.id for outcome in outcomes if outcome.error is not None} == failing
    assert all(outcome.result.hypotheses for outcome in outcomes if outcome.error is None)


CAPTIONS = examples(12)


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> tuple[Constellation, list[Source]]:
    """Captions, letter by letter, and a random model over letters."""
    vocabulary = characters(LETTERS)
    with gzip.open(data_folder / "data" / "multi30k" / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        encoded = [vocabulary.encode(next(file).lower()) for _ in range(CAPTIONS)]
    model = write_checkpoint(tmp_path_factory.mktemp("letters"), source=LETTERS, target=LETTERS)
    sources = [Source(n, tokens, max_length=len(tokens) // 10) for n, tokens in enumerate(encoded, 1)]
    return Constellation.of({"nmt": nmt(str(model), "fp32")}, vocab_size=vocabulary.size), sources


@pytest.mark.parametrize("name", ["greedy", "beam", "vanilla", "sampling"])
def test_real_captions_too(captions: tuple[Constellation, list[Source]], name: str) -> None:
    constellation, sources = captions
    alone = decode(constellation, DECODERS[name](), sources, 1)
    assert_same(decode(constellation, DECODERS[name](), sources, CAPTIONS - 1), alone, "fp32")
    assert all(outcome.result.hypotheses for outcome in alone)


@pytest.fixture(scope="module")
def lattices(data_folder: Path) -> tuple[Constellation, list[Source]]:
    """The 12 smallest of 60 translation lattices over integer ids, and a language model over some of these."""
    folder = data_folder / "data" / "lattices" / "hifst_ruen" / "fst"
    smallest = sorted(range(1, 61), key=lambda n: (folder / f"{n}.fst.gz").stat().st_size)[:12]
    predictors = {
        "fst": HOST.load("predictor", "fst")(str(folder / "{id}.fst.gz")),
        "ngram": HOST.load("predictor", "ngram")(str(data_folder / "data" / "lm" / "ucam_trivial.ids.arpa.gz")),
    }
    return Constellation.of(predictors, weights=[1.0, 0.2]), [Source(n, ()) for n in smallest]


@pytest.mark.parametrize("name", ["greedy", "beam", "beam with proof", "beam that finishes all", "sampling"])
def test_real_lattices_with_a_real_language_model_too(
    lattices: tuple[Constellation, list[Source]], name: str
) -> None:
    constellation, sources = lattices
    alone = decode(constellation, DECODERS[name](), sources, 1)
    assert_same(decode(constellation, DECODERS[name](), sources, 5), alone, "fp64")
    assert all(outcome.result.hypotheses for outcome in alone)


assert (UNK, EOS) == (0, 2)  # tokens 3 to 6 are words

"""The promise: predictors whose states are numbers give one space in all three ways in which a search can ask them.

As arrays for all hypotheses of many sentences; one prefix at a time, through `steps`; and by the general combination,
which `PassThrough` enforces because it has neither ability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import EOS, UNK, BatchPredictor, Hypothesis, Source
from sgdec.arcs import Numbers
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.models.length import LengthWeights
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import PassThrough
from tests.helpers.with_arcs import HOST, LENGTH, LISTING, SENTENCES, V, predictors_with_arcs

DECODERS: dict[str, Callable[[], Decoder]] = {
    "greedy": GreedyDecoder,
    "beam": lambda: BeamDecoder(size=3),
    "full beam": lambda: BeamDecoder(size=4, stop="full"),
}


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BatchPredictor]:
    return predictors_with_arcs(tmp_path_factory.mktemp("numbered"))


def decoded(constellation: Constellation, decoder: Decoder, batch_size: int) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence; none where a limit is too short."""
    found = [out.result for out in Scheduler(constellation, decoder, nbest=3, batch_size=batch_size).run(SENTENCES)]
    return [result.hypotheses for result in found if result is not None]


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    "names",
    [
        "fst wc",
        "wc fst",
        "forced",
        "minlength fst maxlength",
        "tries maxlength",
        "forcedlst unkc",
        "length forcedlst",
        "extlength fst length",
        "wc unkc forcedlst fst",
        "trie",
        "tries wc",
        "fst trie",
        "unkc tries trie",
        "ngram fst wc",
        "tries ngram",
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

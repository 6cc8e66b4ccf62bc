"""The stops of `generate()` and ``length_offset`` in `beam`: what they find in small spaces, and what is refused.

`tests/whole/test_generate.py` compares them with transformers itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.syncbeam import SyncBeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec import BOS, EOS, Decoder, Result, SearchSpace, Source, UsageError
from sgdec.plugins.options import configure
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing.toys import Table
from tests.helpers.breadth import examples

V, LIMIT = 6, 5
STOPS = ("hf-true", "hf-false", "hf-never")
ALPHAS = (-0.5, 0.0, 0.6, 1.0, 2.0)


def bigram(seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """``[V, V]``: log-probabilities by the last token, of the tokens after it. Every second end is likely."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, 1.5, (V, V))
    logits[:, EOS] += rng.choice([0.0, 2.0])
    found: np.ndarray[Any, np.dtype[np.float64]] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return found


def decode(decoder: Decoder, scores: Any, nbest: int, limit: int | None = LIMIT) -> Result:
    constellation = Constellation.of({"table": Table(scores)}, vocab_size=V)
    (root,) = constellation.roots([Source(1, (3,), max_length=limit)])
    return decoder.decode(SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest))


def as_defined(
    scores: Any, size: int, alpha: float, early: bool | str, offset: int
) -> list[tuple[tuple[int, ...], float]]:
    """The list of `generate()`: all continuations are sorted in each step, and ``2 * size`` of them are looked at."""
    running: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[tuple[tuple[int, ...], float]] = []
    for length in range(1, LIMIT + 2):
        last = length == LIMIT + 1
        grown = [
            ((*tokens, token), total + scores[tokens[-1] if tokens else BOS][token])
            for tokens, total in running
            for token in (range(EOS, EOS + 1) if last else range(V))
        ]
        kept = sorted(grown, key=lambda each: -each[1])[: 2 * size]
        ended = [(tokens, total / (length + offset) ** alpha) for tokens, total in kept[:size] if tokens[-1] == EOS]
        finished = sorted(finished + ended, key=lambda each: -each[1])[:size]
        running = [each for each in kept if each[0][-1] != EOS][:size]
        if len(finished) == size and running:
            assumed = LIMIT + 1 if early == "never" and alpha > 0 else length
            best = running[0][1] / (assumed + offset) ** alpha
            if early is True or best <= finished[-1][1]:
                break
    return finished


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
def test_the_list_is_that_of_the_definition(stop: Any) -> None:
    early = {"hf-true": True, "hf-false": False, "hf-never": "never"}[stop]
    ended_early = 0
    for seed in range(examples(15)):
        scores = bigram(seed)
        for alpha in ALPHAS:
            for size, offset in ((1, 0), (2, 1), (3, 0), (5, 2)):
                decoder = BeamDecoder(size, alpha=alpha, normalize="length", stop=stop, length_offset=offset)
                found = decode(decoder, scores, nbest=size).hypotheses
                expected = as_defined(scores, size, alpha, early, offset)
                assert [(*h.tokens, EOS) for h in found] == [tokens for tokens, _ in expected]
                assert [h.rank_score for h in found] == pytest.approx([score for _, score in expected], rel=1e-12)
                ended_early += max(len(h.tokens) for h in found) < LIMIT
                (best,) = decode(decoder, scores, nbest=1).hypotheses
                assert best == found[0]
    assert ended_early > examples(40)


def test_stops_differ_in_when_they_end() -> None:
    found = {}
    for stop in STOPS:
        decoder = BeamDecoder(3, alpha=1.0, normalize="length", stop=stop)  # type: ignore[arg-type]
        found[stop] = [[h.tokens for h in decode(decoder, bigram(seed), 3).hypotheses] for seed in range(40)]
    assert found["hf-true"] != found["hf-false"] != found["hf-never"] != found["hf-true"]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beta": 0.2}, "where beta has no"),
        ({"prune_local": 2.0, "prune_final": 1.0}, "where prune_local and prune_final have no"),
        ({"recombine": True}, "where recombine has no"),
        ({"alpha": 0.6}, "add normalize length"),
    ],
)
def test_options_that_generate_lacks_are_refused(stop: Any, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"stop {stop} .*{named}"):
        BeamDecoder(stop=stop, **options)
    BeamDecoder(stop="full", **options)


def test_only_never_with_a_positive_alpha_needs_a_limit() -> None:
    scores = bigram(3)
    for stop in STOPS:
        for alpha in (-0.5, 0.0, 0.6):
            decoder = BeamDecoder(2, alpha=alpha, normalize="length", stop=stop)  # type: ignore[arg-type]
            if stop == "hf-never" and alpha > 0:
                with pytest.raises(UsageError, match=r"no length limit: give --max-length N\.$"):
                    decode(decoder, scores, 2, limit=None)
            else:
                assert len(decode(decoder, scores, 2, limit=None).hypotheses) == 2


def test_a_beam_without_continuations_ends_with_a_shorter_list() -> None:
    scores = np.full((V, V), -math.inf)
    scores[BOS, 3], scores[BOS, EOS], scores[3, EOS] = -1.0, -2.0, -0.5
    for stop in STOPS:
        found = decode(BeamDecoder(4, stop=stop), scores, 4).hypotheses  # type: ignore[arg-type]
        assert [h.tokens for h in found] == [(3,), ()]


def test_an_open_hypothesis_that_could_only_equal_the_worst_does_not_go_on() -> None:
    scores = np.full((V, V), -math.inf)
    scores[BOS, EOS], scores[BOS, 3], scores[3, EOS] = -1.0, -1.0, 0.0
    decoder = BeamDecoder(1, alpha=1.0, normalize="length", stop="hf-false")
    assert [h.tokens for h in decode(decoder, scores, 1).hypotheses] == [()]


def test_the_note_says_why_a_search_can_end_too_early() -> None:
    def why(stop: Any, alpha: float = 0.0, falls: bool = True) -> str | None:
        said = BeamDecoder(stop=stop, alpha=alpha, normalize="length").caveat(4, falls)
        if said is None:
            return None
        begin, end = f"with stop {stop} the search can end too early, because ", "."
        assert said.startswith(begin) and said.endswith(end)
        return said[len(begin) : -len(end)]

    assert why("hf-true") == why("hf-true", 1.0, False) == "it ends as soon as its list is full"
    assert why("hf-false") is why("hf-false", -1.0) is why("hf-never") is why("hf-never", 1.0) is None
    assert why("hf-false", 1.0) == "alpha is above 0"
    assert why("hf-false", 1.0, False) == "alpha is above 0 and totals can rise"
    assert why("hf-never", 1.0, False) == "totals can rise"


@pytest.mark.parametrize("decoder", [VanillaDecoder, SepBeamDecoder, SyncBeamDecoder])
def test_other_beam_searches_do_not_offer_these_stops(decoder: type[Decoder]) -> None:
    with pytest.raises(UsageError, match="stop"):
        configure(decoder, {"stop": "hf-true", **({"symbol": "3"} if decoder is SyncBeamDecoder else {})}, name="it")
    assert configure(BeamDecoder, {"stop": "hf-true"}, name="beam") == {"stop": "hf-true"}


@pytest.mark.parametrize("normalize", ["gnmt", "length"])
def test_the_length_offset_counts_as_tokens_of_the_output(normalize: Any) -> None:
    plain, longer = (Ranking(0.7, normalize=normalize, length_offset=offset) for offset in (0, 3))
    assert longer.score(-5.0, 4) == plain.score(-5.0, 7) != plain.score(-5.0, 4)
    assert longer.best_possible(-5.0, 2, 9) == plain.best_possible(-5.0, 5, 12)
    assert Ranking(length_offset=3).score(-5.0, 4) == -5.0


@pytest.mark.parametrize("stop", ["best", "full", "length", "proven"])
def test_the_length_offset_holds_on_arrays_too(stop: Any) -> None:
    from sgdec_predictors.wc import WordCount

    decoder = BeamDecoder(50, alpha=1.0, normalize="length", stop=stop, length_offset=2)
    arrays = decoder.in_batches(4, automata=True)
    assert isinstance(arrays, VanillaDecoder)
    for search in (decoder, arrays):
        constellation = Constellation.of({"wc": WordCount()}, weights=[-1.0], vocab_size=V)
        sources = [Source(number, (3,), max_length=3) for number in (1, 2)]
        for outcome in Scheduler(constellation, search, nbest=4).run(sources):
            for h in outcome.result.hypotheses:
                assert h.rank_score == pytest.approx(h.score / (len(h.tokens) + 1 + 2))


def test_the_stops_of_generate_do_not_go_to_arrays() -> None:
    assert BeamDecoder(50).in_batches(64, automata=True) is not None
    for stop in STOPS:
        assert BeamDecoder(50, stop=stop).in_batches(64, automata=True) is None  # type: ignore[arg-type]

"""Each verdict on an output is what the list of all hypotheses of its space says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.sample import SampleDecoder

import sgdec
from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.library import LoadedRun
from sgdec.protocol import BatchPredictor, Source
from sgdec.ranking import Ranking, is_better
from sgdec.search.constellation import Constellation
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.run import diagnose
from sgdec.tasks.diagnosis.verdicts import JudgedSentence
from sgdec.testing import TinySpace, enumerate_space
from sgdec.testing.enumeration import followers
from tests.helpers.breadth import examples
from tests.helpers.random_spaces import V, random_spaces

pytestmark = pytest.mark.slow

Tokens = tuple[int, ...]


def loaded(space: TinySpace, decoder: Decoder) -> LoadedRun:
    """The space as a run."""
    constellation = space.constellation()
    weights = dict(zip(constellation.names, constellation.weights, strict=True))
    return sgdec.load(
        dict(zip(constellation.names, constellation.predictors, strict=True)),
        decoder,
        vocab_size=V,
        **{name: {"weight": weight} for name, weight in weights.items()},
    )


def hypotheses(space: TinySpace, ranking: Ranking, longest: int = 0) -> dict[Tokens, float]:
    """All hypotheses with their rank scores; ``longest`` raises the length limit."""
    limit = space.source.max_length
    source = replace(space.source, max_length=None if limit is None else max(limit, longest))
    paths = enumerate_space(space.constellation(), source, ranking=ranking)
    return {path.tokens: path.rank_score(ranking) for path in paths}


def forbidden_at(predictor: BatchPredictor, source: Source, tokens: Tokens) -> float:
    """The number of tokens before the first one that the predictor forbids; infinite if there is none."""
    alone = Constellation.of({"alone": predictor}, vocab_size=V)
    states: Sequence[object] = predictor.initialize_batch([source])
    for place, token in enumerate((*tokens, EOS)):
        if token not in dict(followers(alone, replace(source, max_length=None), states, place)):
            return place
        if token != EOS:
            states = predictor.consume_batch(states, [token])
    return math.inf


decoders = st.one_of(
    st.builds(
        BeamDecoder,
        size=st.sampled_from([1, 2]),
        alpha=st.sampled_from([0.0, 0.6, 1.0]),
        normalize=st.sampled_from(["gnmt", "length"]),
    ),
    st.builds(GreedyDecoder),
    st.builds(SampleDecoder),
)
outputs = st.lists(st.sampled_from([0, 1, 3]), max_size=4).map(tuple)
budgets = st.builds(ProofBudget, st.sampled_from(["dfs", "astar"]), st.sampled_from([0, 1, 3]))


@st.composite
def diagnosed(draw: st.DrawFn) -> tuple[TinySpace, Decoder, ProofBudget, JudgedSentence, Tokens, list[Tokens]]:
    space, decoder = draw(random_spaces()), draw(decoders)
    budget = draw(budgets | st.just(ProofBudget("none")))
    inside = st.sampled_from(sorted(hypotheses(space, decoder.ranking)) or [()])
    reference = draw(outputs | inside)
    witnesses = draw(st.lists(outputs | inside, max_size=2))
    case = Case(space.source, reference, "", tuple(("other run", tokens) for tokens in witnesses))
    (sentence,) = diagnose(loaded(space, decoder), [case], budget).sentences
    return space, decoder, budget, sentence, reference, witnesses


many = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(diagnosed())
def test_a_search_error_is_one_by_enumeration(found) -> None:  # type: ignore[no-untyped-def]
    space, decoder, budget, sentence, reference, witnesses = found
    ranks = hypotheses(space, decoder.ranking)
    optimum = max(ranks.values(), default=-math.inf)
    rank = -math.inf if sentence.output is None else ranks[sentence.output.tokens]
    search = sentence.search
    assert (search.error in ("proven", "witnessed")) <= is_better(optimum, rank)
    assert (search.error == "none") <= (not is_better(optimum, rank))
    assert search.by <= optimum - rank + 1e-6 or optimum == rank
    assert search.gap >= optimum - rank - 1e-4 or optimum == rank
    if search.error == "proven":
        assert search.better is not None
        assert search.by == pytest.approx(optimum - rank, abs=1e-4)
        assert ranks[search.better.scored.tokens] == pytest.approx(optimum, abs=1e-4)
    if budget.proof != "none" and budget.max_expansions == 0:
        assert search.error in ("proven", "none")
    known = [ranks[tokens] for tokens in [reference, (), *witnesses] if tokens in ranks]
    if any(is_better(each, rank) for each in known):
        assert search.error in ("proven", "witnessed") and search.by >= max(known) - rank - 1e-4
    if search.error in ("proven", "none") and ranks:
        assert sentence.optimum is not None
        assert ranks[sentence.optimum.tokens] == pytest.approx(optimum, abs=1e-4)


@many
@given(diagnosed())
def test_a_model_error_is_one_by_enumeration(found) -> None:  # type: ignore[no-untyped-def]
    space, decoder, _, sentence, reference, _ = found
    ranks = hypotheses(space, decoder.ranking, longest=len(reference))
    constellation = space.constellation()
    stops = [forbidden_at(each, space.source, reference) for each in constellation.predictors]
    assert (sentence.model.error == "forbidden") == (reference not in ranks)
    limit = space.source.max_length
    assert sentence.too_long == (limit is not None and len(reference) > limit)
    if reference not in ranks:
        forbidden = sentence.model.forbidden
        assert forbidden is not None and sentence.reference is None
        assert forbidden.position == min(stops) + 1
        assert forbidden.token == (*reference, EOS)[int(min(stops))]
        assert forbidden.predictors == tuple(
            name for name, stop in zip(constellation.names, stops, strict=True) if stop == min(stops)
        )
        return
    assert sentence.reference is not None
    assert sentence.reference.rank_score == pytest.approx(ranks[reference], abs=1e-6)
    if sentence.output is not None:
        by = hypotheses(space, decoder.ranking)[sentence.output.tokens] - ranks[reference]
        assert sentence.model.by == pytest.approx(by, abs=1e-6)
        assert (sentence.model.error == "error") == is_better(by, 0)


@many
@given(diagnosed())
def test_contributions_add_up_and_the_turning_weight_makes_both_equal(found) -> None:  # type: ignore[no-untyped-def]
    space, decoder, _, sentence, reference, _ = found
    why = sentence.model.decision
    if why is None:
        return
    assert sum(why.contributions.values()) == pytest.approx(why.difference, abs=1e-6)
    assert why.contributions[why.predictor] == max(why.contributions.values())
    if why.turning_weight is None:
        return
    constellation = space.constellation()
    weights = list(constellation.weights)
    weights[constellation.names.index(why.predictor)] = why.turning_weight
    turned = Constellation.of(
        dict(zip(constellation.names, constellation.predictors, strict=True)), weights=weights, vocab_size=V
    )
    limit = space.source.max_length
    source = replace(space.source, max_length=None if limit is None else max(limit, len(reference)))
    ranks = {
        path.tokens: path.rank_score(decoder.ranking)
        for path in enumerate_space(turned, source, ranking=decoder.ranking)
    }
    assert sentence.output is not None
    scale = max(abs(why.turning_weight), 1.0)
    assert ranks[sentence.output.tokens] == pytest.approx(ranks[reference], abs=1e-6 * scale)

"""The promise: beam search of `generate()` with rules on tokens and lengths is `beam` with the predictors and
wrappers that stand for these rules, or with a model whose generation settings have them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_predictors.hf import HfPredictor
from sgdec_predictors.minlength import MinLength
from sgdec_predictors.norepeat import NoRepeat
from sgdec_predictors.repetition import Repetition

from sgdec import BatchPredictor
from tests.helpers.generate import Found, assert_same, forced_first, lists_of, of_generate, with_bias
from tests.helpers.pretrained import V, tiny_model

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
LONGEST = 8
BIASES = (0.0, 0.7)
"""Of the end: outputs are long, and short."""
FAMILY_BIASES = {"t5": (0.0, 4.0), "mamba": (0.0, 2.5)}
FAMILIES = ("marian", "mbart", "bart", "t5", "llama", "mamba")
FORCED_FIRST = {"bart": 0, "mbart": 5}
SIZE, ALPHA = 4, 1.0
Lists = list[list[Found]]


def prompts() -> list[list[int]]:
    rng = random.Random(4)
    return [[rng.choice(range(3, V - 3)) for _ in range(rng.randint(2, 6))] for _ in range(3)]


def model_of(family: str, bias: float, **settings: Any) -> Any:
    """A model that does not write the tokens with which its outputs begin."""
    model = tiny_model(family)
    first = FORCED_FIRST.get(family)
    if model.config.is_encoder_decoder:
        start = model.generation_config.decoder_start_token_id
        ends = model.generation_config.eos_token_id
        words = [[id] for id in {start, first} - {None, ends}]
        settings["bad_words_ids"] = [*settings.get("bad_words_ids", ()), *words] or None
    return with_bias(model, bias, forced_bos_token_id=first, **settings)


def generated(model: Any, **options: Any) -> Lists:
    """The lists of beam search with `early_stopping=False`; one sentence at a time with causal models: in a batch of
    their prompts, rules also count the padding."""
    options |= {"num_beams": SIZE, "length_penalty": ALPHA}
    batches = [prompts()] if model.config.is_encoder_decoder else [[prompt] for prompt in prompts()]
    return [found for batch in batches for found in of_generate(model, batch, LONGEST, **options)]


def decoded(model: Any, *rules: BatchPredictor, repetition: float | None = None) -> Lists:
    """The same of `beam`. ``repetition``: the penalty of a wrapper around the model."""
    scorer = HfPredictor.of(model)
    outer: BatchPredictor = scorer
    if repetition is not None:
        outer = Repetition(scorer, repetition, **counted(model, scorer))
    decoder = BeamDecoder(SIZE, stop="hf-false", alpha=ALPHA, normalize="length", length_offset=forced_first(model))
    predictors = {"hf": outer, **{f"rule{i}": rule for i, rule in enumerate(rules)}}
    return lists_of(predictors, scorer, prompts(), LONGEST, decoder, SIZE)


def counted(model: Any, scorer: HfPredictor) -> dict[str, Any]:
    """The options of `repetition` that count what precedes an output."""
    if not model.config.is_encoder_decoder:
        return {"prompt": True}
    config = model.generation_config
    ids = [id for id in (config.decoder_start_token_id, config.forced_bos_token_id) if id is not None]
    return {"seen": tuple(scorer._roles.numbering.numbers[ids].tolist())}


@cache
def without_rules(family: str, bias: float) -> Lists:
    return generated(model_of(family, bias))


def assert_same_and_different(family: str, compared: Sequence[tuple[float, Lists, Lists]]) -> None:
    """Both sides found the same, which are not always the lists without rules. Also given: the bias."""
    different = 0
    for bias, found, expected in compared:
        assert_same(found, expected, (family, bias))
        different += [h.ids for h in chain(*expected)] != [h.ids for h in chain(*without_rules(family, bias))]
    assert different


@pytest.mark.parametrize("family", FAMILIES)
def test_min_new_tokens_is_minlength(family: str) -> None:
    compared = []
    for bias in FAMILY_BIASES.get(family, BIASES):
        model = model_of(family, bias)
        found = decoded(model, MinLength(4))
        compared.append((bias, found, generated(model, min_new_tokens=4 + forced_first(model))))
        if model.config.is_encoder_decoder:
            compared.append((bias, found, generated(model, min_length=1 + 4 + forced_first(model))))
    assert_same_and_different(family, compared)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_repeat_ngram_size_is_norepeat(family: str, order: int) -> None:
    if order == 1 and family in ("bart", "mbart"):
        pytest.skip("the start token is </s>, which generate() then forbids")
    compared = []
    for bias in FAMILY_BIASES.get(family, BIASES):
        model = model_of(family, bias)
        found = decoded(model, NoRepeat(order, prompt=not model.config.is_encoder_decoder))
        compared.append((bias, found, generated(model, no_repeat_ngram_size=order)))
    assert_same_and_different(family, compared)


@pytest.mark.parametrize("family", FAMILIES)
def test_repetition_penalty_is_the_wrapper_repetition(family: str) -> None:
    models = [(bias, model_of(family, bias)) for bias in FAMILY_BIASES.get(family, BIASES)]
    compared = [(bias, decoded(m, repetition=1.7), generated(m, repetition_penalty=1.7)) for bias, m in models]
    assert_same_and_different(family, compared)


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_of_the_generation_settings_hold_in_the_beam(family: str) -> None:
    bias = BIASES[0]
    first, token = next(h.ids[:2] for each in without_rules(family, bias) for h in each if len(h.ids) > 1)
    for settings in (
        {"suppress_tokens": [token]},
        {"begin_suppress_tokens": [first]},
        {"bad_words_ids": [[first, token]]},
    ):
        model = model_of(family, bias, **settings)
        assert_same_and_different(family, [(bias, decoded(model), generated(model))])


@pytest.mark.parametrize("family", FAMILIES)
def test_all_rules_together(family: str) -> None:
    compared = []
    for bias in FAMILY_BIASES.get(family, BIASES):
        model = model_of(family, bias, suppress_tokens=[7], begin_suppress_tokens=[9, 10])
        rules = MinLength(3), NoRepeat(2, prompt=not model.config.is_encoder_decoder)
        options = {"min_new_tokens": 3 + forced_first(model), "no_repeat_ngram_size": 2, "repetition_penalty": 1.3}
        compared.append((bias, decoded(model, *rules, repetition=1.3), generated(model, **options)))
    assert_same_and_different(family, compared)


def test_a_second_end_is_an_end_but_no_other_hypothesis() -> None:
    ends = [V - 2, V - 4]
    model = with_bias(tiny_model("qwen2", eos_token_id=ends))
    expected = [of_generate(model, [prompt], LONGEST, num_beams=1)[0][0].ids for prompt in prompts()]
    scorer = HfPredictor.of(model)
    found = lists_of({"hf": scorer}, scorer, prompts(), LONGEST, GreedyDecoder(), 1)
    assert [each[0].ids for each in found] == expected

    repeated = generated(model)  # a list of generate() can have one output twice, with each end
    assert any(len({h.ids for h in each}) < len(each) for each in repeated)
    assert all(len({h.ids for h in each}) == len(each) == SIZE for each in decoded(model))

    for end in ends:
        model.generation_config.forced_eos_token_id = sum(ends) - end
        model.generation_config.suppress_tokens = [end]
        assert_same(decoded(model), generated(model), f"only {sum(ends) - end} ends outputs")


def test_what_generate_leaves_unfinished_at_the_limit_is_finished_here() -> None:
    model = model_of("marian", 0.0, forced_eos_token_id=None)
    with pytest.raises(AssertionError, match="unfinished"):
        generated(model)
    assert all(len(each) == SIZE for each in decoded(model))


def test_what_generate_fills_a_list_with_is_not_listed_here() -> None:
    model = model_of("t5", 0.0)
    end = model.generation_config.eos_token_id
    model.generation_config.suppress_tokens = [id for id in range(V) if id not in (end, 5)]
    ids = torch.tensor(prompts()[:1])
    options = {"num_beams": SIZE, "num_return_sequences": SIZE, "max_new_tokens": 3, "early_stopping": "never"}
    listed = model.generate(ids, **options, output_scores=True, return_dict_in_generate=True)
    scores = listed.sequences_scores.tolist()
    assert scores[-1] < -1e8

    scorer = HfPredictor.of(model)
    decoder = BeamDecoder(SIZE, stop="hf-never", alpha=1.0, normalize="length")
    (found,) = lists_of({"hf": scorer}, scorer, prompts()[:1], 2, decoder, SIZE)
    assert [h.score for h in found] == pytest.approx(scores[:-1], rel=1e-5)
    assert {h.ids for h in found} == {(), (5,), (5, 5)}

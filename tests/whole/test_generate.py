"""The promise: with the stops ``hf-true``, ``hf-false`` and ``hf-never``, `beam` finds what `generate()` of
transformers finds with the same model: all hypotheses of the n-best list, in its order, with its scores.

The models are tiny ones of every architecture, whose ends have a bias so that lists fill up before the length limit
in some sentences and at the limit in others, and a Marian model that learns to reverse its source. What differs, and
why, is tested too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.generate import Found, assert_same, forced_first, of_generate, of_sgdec, with_bias
from tests.helpers.loaded_once import probe_models_once
from tests.helpers.pretrained import FAMILIES, V, tiny_model

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
STOPS: dict[str, bool | str] = {"hf-true": True, "hf-false": False, "hf-never": "never"}
"""With the values of ``early_stopping``."""
ALPHAS = (0.0, 0.6, 1.0, 2.0)
EVERYTHING = ("m2m", "llama")
"""The families with which every stop meets every penalty in `make test`; with the others, each stop meets one or
two penalties, and each penalty one stop, which are others in the next family."""
LANGUAGE = 5
FORCED_FIRST = {"bart": 0, "mbart": LANGUAGE, "m2m": LANGUAGE}
LONGEST = 9
REVERSED = 12
"""The number of ids of the model that reverses."""
Lists = list[list[Found]]


def compared_at(family: str) -> list[tuple[float, str]]:
    """The penalties and stops that a family is compared at with 4 hypotheses."""
    if EXHAUSTIVE or family in EVERYTHING:
        return list(product(ALPHAS, STOPS))
    return [(alpha, one_stop(family, place)) for place, alpha in enumerate(ALPHAS)]


def one_stop(family: str, place: int = 0) -> str:
    """A stop; others for the next family and place."""
    return [*STOPS][([*FAMILIES].index(family) + place) % len(STOPS)]


def stops(family: str) -> list[str]:
    return [*STOPS] if EXHAUSTIVE else [one_stop(family)]


@pytest.fixture(scope="module", autouse=True)
def probed_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        probe_models_once(patch)
        yield


@cache
def tiny(family: str) -> Any:
    return with_bias(tiny_model(family), forced_bos_token_id=FORCED_FIRST.get(family))


@cache
def reversing() -> Any:
    """A Marian model after some updates: it mostly knows how outputs go on, and when they end."""
    torch.manual_seed(1)
    rng = random.Random(2)
    start = REVERSED - 1
    roles = {"pad_token_id": start, "decoder_start_token_id": start, "eos_token_id": 0, "bos_token_id": 0}
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": REVERSED}
    others = {"max_position_embeddings": 32, "forced_eos_token_id": 0, "dropout": 0.0, "init_std": 0.1}
    config = transformers.MarianConfig(**roles, **sizes, **others)
    model = transformers.MarianMTModel(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(200):
        length = rng.randint(2, 6)
        read = torch.tensor([[rng.randrange(3, REVERSED - 1) for _ in range(length)] + [0] for _ in range(32)])
        labels = torch.cat((read[:, :-1].flip(1), read[:, -1:]), dim=1)
        loss = model(input_ids=read, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.generation_config.bad_words_ids = [[start]]  # as Marian models on the hub have it
    return model.eval()


def prompts(number: int = 5, words: range = range(3, V - 3), longest: int = 6) -> list[list[int]]:
    rng = random.Random(5)
    return [[rng.choice(words) for _ in range(rng.randint(2, longest))] for _ in range(number)]


def to_reverse() -> list[list[int]]:
    return [[*source, 0] for source in prompts(5, range(3, REVERSED - 1))]


def beam(model: Any, size: int, stop: str, alpha: float = 0.0) -> BeamDecoder:
    offset = forced_first(model)
    return BeamDecoder(size, stop=stop, alpha=alpha, normalize="length", length_offset=offset)  # type: ignore[arg-type]


@cache
def lists(family: str, size: int, alpha: float, stop: str) -> Lists:
    """The n-best lists of `generate()`, with prompts in one padded batch."""
    model, read = (reversing(), to_reverse()) if family == "reversing" else (tiny(family), prompts())
    return of_generate(model, read, LONGEST, num_beams=size, length_penalty=alpha, early_stopping=STOPS[stop])


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_nbest_list_of_every_architecture_is_that_of_generate(family: str, size: int) -> None:
    model = tiny(family)
    for alpha, stop in compared_at(family) if size == 4 else [(0.6, stop) for stop in stops(family)]:
        found = of_sgdec(model, prompts(), LONGEST, beam(model, size, stop, alpha), size)
        assert_same(found, lists(family, size, alpha, stop), (family, size, alpha, stop))


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", [4, 16])
def test_the_nbest_list_of_a_trained_model_is_that_of_generate(size: int, alpha: float, stop: str) -> None:
    found = of_sgdec(reversing(), to_reverse(), LONGEST, beam(reversing(), size, stop, alpha), size)
    assert_same(found, lists("reversing", size, alpha, stop), (size, alpha, stop))


def test_the_lists_that_are_compared_are_full_and_differ_between_stops_and_penalties() -> None:
    for family in FAMILIES:
        compared = {(alpha, stop): lists(family, 4, alpha, stop) for alpha, stop in compared_at(family)}
        assert all(len(each) == 4 for found in compared.values() for each in found), family
        orders = {tuple(h.ids for each in found for h in each) for found in compared.values()}
        assert len(orders) >= 2, f"{family}: neither penalties nor stops change the order"
        early = [h for found in compared.values() for each in found for h in each if len(h.ids) < LONGEST]
        assert early, f"{family}: all hypotheses end at the limit"
    whole = [family for family in FAMILIES if len(compared_at(family)) == len(ALPHAS) * len(STOPS)]
    for family in (*whole, "reversing"):
        assert all(len(each) == 4 for alpha in ALPHAS for stop in STOPS for each in lists(family, 4, alpha, stop))
        best = {tuple(found[0].ids for found in lists(family, 4, alpha, "hf-never")) for alpha in ALPHAS}
        assert len(best) >= 2 or family == "reversing", f"{family}: penalties do not change the best hypotheses"
        orders = {tuple(h.ids for each in lists(family, 4, alpha, "hf-never") for h in each) for alpha in ALPHAS}
        assert len(orders) >= 2, f"{family}: penalties do not change the order"
        early = [h for each in lists(family, 4, 1.0, "hf-true") for h in each if len(h.ids) < LONGEST]
        assert early, f"{family}: all hypotheses end at the limit"
    for one, other in (("hf-true", "hf-false"), ("hf-false", "hf-never"), ("hf-true", "hf-never")):
        differ = [f for f in whole if any(lists(f, 4, a, one) != lists(f, 4, a, other) for a in ALPHAS)]
        assert len(differ) >= (8 if EXHAUSTIVE else 1), (one, other, differ)
    outputs = [found[0].ids for found in lists("reversing", 4, 1.0, "hf-false")]
    right = [output == tuple(source[-2::-1]) for output, source in zip(outputs, to_reverse(), strict=True)]
    assert sum(right) >= 2, "the model has learned nothing"


@pytest.mark.parametrize("family", ["marian", "mbart", "t5", "gpt2", "llama", "mamba"])
def test_one_sentence_at_a_time_gives_the_lists_of_a_batch(family: str) -> None:
    model = tiny(family)
    for stop in stops(family):
        options = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": STOPS[stop]}
        singly = [of_generate(model, [prompt], LONGEST, **options)[0] for prompt in prompts()]
        found = of_sgdec(model, prompts(), LONGEST, beam(model, 4, stop, 0.6), 4, batch_size=1)
        assert_same(found, singly, (family, stop))


@pytest.mark.parametrize("family", [*FAMILIES, "reversing"])
def test_one_beam_is_greedy_search(family: str) -> None:
    model, read = (reversing(), to_reverse()) if family == "reversing" else (tiny(family), prompts())
    expected = [[h.ids for h in each] for each in of_generate(model, read, LONGEST, num_beams=1)]
    beams = [(stop, 0.0) for stop in (STOPS if family == "reversing" else stops(family))]
    for decoder in (GreedyDecoder(), *(beam(model, 1, *options) for options in [*beams, ("hf-true", 1.0)])):
        found = of_sgdec(model, read, LONGEST, decoder, 1)
        assert [[h.ids for h in each] for each in found] == expected, decoder


@pytest.mark.parametrize("family", ["marian", "bart", "mbart", "llama"])
def test_without_a_forced_end_lists_are_equal_if_the_search_ends_before_the_limit(family: str) -> None:
    model = with_bias(tiny_model(family), forced_bos_token_id=FORCED_FIRST.get(family), forced_eos_token_id=None)
    with torch.no_grad():
        model.get_output_embeddings().bias *= 3
    for alpha in (0.0, 0.6):
        for stop in ("hf-true", "hf-false"):
            options = {"num_beams": 4, "length_penalty": alpha, "early_stopping": STOPS[stop]}
            expected = of_generate(model, prompts(), 25, **options)  # refuses unfinished hypotheses
            found = of_sgdec(model, prompts(), 25, beam(model, 4, stop, alpha), 4)
            assert_same(found, expected, (family, alpha, stop))

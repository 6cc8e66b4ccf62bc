"""`generate()` of transformers and `beam` of sgdec on one model, with results in one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from sgdec_predictors.hf import HfPredictor

from sgdec import Decoder, Source
from sgdec.protocol import BatchPredictor
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

FILLER = -1e8
"""Below this are scores with which generate() fills lists that have too few hypotheses (-1e9, or a share of it)."""

BIAS = 0.7
"""Added to the logit of the end by default."""


class Found(NamedTuple):
    """A hypothesis."""

    ids: tuple[int, ...]
    """The model's ids, without the end and a forced first token."""
    score: float
    """Its rank score."""


def with_bias(model: Any, bias: float = BIAS, **settings: Any) -> Any:
    """The model with a bias for its end, and these generation settings. The end is forced at the length limit."""
    config = model.generation_config
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    head = model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(len(head.weight)))
    with torch.no_grad():
        head.bias[ends] = bias
    defaults = {"forced_eos_token_id": ends[0], "pad_token_id": config.pad_token_id or ends[0]}
    for name, value in {**defaults, **settings}.items():
        setattr(config, name, value)
    return model


def forced_first(model: Any) -> int:
    """The number of tokens with which every output of a model begins."""
    return int(model.config.is_encoder_decoder and model.generation_config.forced_bos_token_id is not None)


def of_generate(model: Any, prompts: Sequence[Sequence[int]], longest: int, **options: Any) -> list[list[Found]]:
    """The n-best lists of one call, with prompts padded to one length; unfinished hypotheses raise AssertionError.

    ``longest``: the largest number of tokens before the end, without a forced first token.
    """
    settings = model.generation_config
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), settings.pad_token_id)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        place = slice(0, len(prompt)) if model.config.is_encoder_decoder else slice(width - len(prompt), width)
        ids[row, place], mask[row, place] = torch.tensor(prompt), 1
    options = {"num_return_sequences": options.get("num_beams", 1), "do_sample": False, **options}
    new_tokens = longest + 1 + forced_first(model)
    found = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=new_tokens,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    begin = 1 if model.config.is_encoder_decoder else width
    rows = [row[begin + forced_first(model) :] for row in found.sequences.tolist()]
    scores = [0.0] * len(rows) if options["num_beams"] == 1 else found.sequences_scores.tolist()
    ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    each = options["num_return_sequences"]
    return [
        [
            Found(_until_end(rows[i], ends), scores[i])
            for i in range(each * sentence, each * (sentence + 1))
            if scores[i] > FILLER
        ]
        for sentence in range(len(prompts))
    ]


def of_sgdec(
    model: Any,
    prompts: Sequence[Sequence[int]],
    longest: int,
    decoder: Decoder,
    nbest: int,
    batch_size: int = 4,
    **others: BatchPredictor,
) -> list[list[Found]]:
    """The n-best lists of a decoder, with a predictor of the model and others."""
    scorer = HfPredictor.of(model)
    return lists_of({"hf": scorer, **others}, scorer, prompts, longest, decoder, nbest, batch_size)


def lists_of(
    predictors: Mapping[str, BatchPredictor],
    scorer: HfPredictor,
    prompts: Sequence[Sequence[int]],
    longest: int,
    decoder: Decoder,
    nbest: int,
    batch_size: int = 4,
) -> list[list[Found]]:
    """The same with any mix of predictors. ``scorer``: the one that numbers the model's ids."""
    numbering = scorer._roles.numbering
    sources = [
        Source(number, tuple(numbering.numbers[list(prompt)].tolist()), max_length=longest)
        for number, prompt in enumerate(prompts, start=1)
    ]
    search = Scheduler(Constellation.of(dict(predictors)), decoder, batch_size=batch_size, nbest=nbest)
    outcomes = list(search.run(sources))
    outcomes.sort(key=lambda outcome: outcome.source.id)
    return [
        [Found(tuple(numbering.ids[list(h.tokens)].tolist()), h.rank_score) for h in outcome.result.hypotheses]
        for outcome in outcomes
    ]


def assert_same(found: list[list[Found]], expected: list[list[Found]], where: object) -> None:
    for sentence, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        at = (where, sentence)
        assert [h.ids for h in ours] == [h.ids for h in theirs], at
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=1e-5, abs=1e-6), at


def _until_end(ids: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
    for place, token in enumerate(ids):
        if token in ends:
            return tuple(ids[:place])
    raise AssertionError(f"unfinished: {ids}")

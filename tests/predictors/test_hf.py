"""The promise: every search scores with a Hugging Face model as the model itself does, without its caches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.restarting import RestartingDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.hf import HfPredictor

from sgdec import EOS, Source
from sgdec.protocol import Decoder
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from tests.helpers.pretrained import FAMILIES, V, tiny_model

pytest.importorskip("transformers")
DECODERS: dict[str, Decoder] = {
    "greedy": GreedyDecoder(),
    "beam": BeamDecoder(size=4),
    "vanilla": VanillaDecoder(size=4),
    "dfs": DfsDecoder(max_expansions=40),
    "astar": AStarDecoder(max_expansions=40),
    "restarting": RestartingDecoder(max_expansions=40),
    "sample": SampleDecoder(),
}


def sources(number: int = 6) -> list[Source]:
    """Sources of different lengths."""
    rng = random.Random(3)
    return [
        Source(i, tuple(rng.randrange(3, V - 3) for _ in range(rng.randint(1, 7))), max_length=6)
        for i in range(1, number + 1)
    ]


def scores_without_cache(predictor: HfPredictor, model: Any, source: Source, prefix: Sequence[int]) -> torch.Tensor:
    """ln p of every id of the model."""
    names = predictor._roles.numbering.ids
    ids, before = ([int(names[token]) for token in tokens] for tokens in (source.tokens, prefix))
    config = model.generation_config
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            start = torch.tensor([[config.decoder_start_token_id, *before]])
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=start, use_cache=False).logits
        else:
            logits = model(input_ids=torch.tensor([[*ids, *before]]), use_cache=False).logits
    return torch.log_softmax(logits[0, -1].double(), dim=-1)


@pytest.mark.parametrize(
    ("decoder", "batch_size"),
    [*(("beam", size) for size in (1, 8)), ("greedy", 8), ("vanilla", 8), ("dfs", 1), ("astar", 8),
     ("restarting", 1), ("sample", 8)],
)  # fmt: skip
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_model_without_caches(decoder: str, batch_size: int, family: str) -> None:
    model = tiny_model(family)
    predictor = HfPredictor.of(model)
    constellation = Constellation.of({"hf": predictor})
    for outcome in Scheduler(constellation, DECODERS[decoder], batch_size=batch_size, nbest=2).run(sources()):
        for found in outcome.result.hypotheses:
            tokens = [*found.tokens, EOS]
            rows = [scores_without_cache(predictor, model, outcome.source, tokens[:i]) for i in range(len(tokens))]
            expected = [
                float(row[predictor._roles.numbering.ids[token]]) for row, token in zip(rows, tokens, strict=True)
            ]
            assert found.score == pytest.approx(sum(expected), abs=1e-4)
    assert predictor._prefixes.used == 0  # no state is left

"""The Transformer language model: its layers are a Transformer's own, it learns, and `rnnlm` scores with it where
prefixes of all lengths meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.rnnlm import RnnlmPredictor
from torch import nn

from sgdec.checkpoints.loading import load_language_model
from sgdec.context import BOS, Context
from sgdec.models.base import LanguageModel, ModelContext
from sgdec.models.kernels import Kernels
from sgdec.models.transformer import Transformer
from sgdec.models.transformer_lm import TransformerLM
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.training import train
from tests.helpers.lm_case import make_lm_config, write_lm

pytestmark = pytest.mark.slow

OPTIONS = {"layers": 2, "width": 8, "heads": 2, "feed_forward": 12}
TARGETS = torch.tensor([[1, 9, 8, 7, 22], [1, 3, 3, 2, 2], [1, 5, 4, 3, 2]])

norms = pytest.mark.parametrize("norm", ["post", "pre"])


def make(**options: Any) -> TransformerLM:
    torch.manual_seed(7)
    model = TransformerLM(ModelContext(0, 23), **{**OPTIONS, **options})
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lm(tmp_path_factory.mktemp("lm"), "transformer-lm", OPTIONS)


@norms
def test_it_is_pytorchs_encoder_that_looks_back(norm: str) -> None:
    """Stacked layers behind a causal mask; a last normalisation with ``pre``."""
    model = make(norm=norm)
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre"),
        2,
        nn.LayerNorm(8) if norm == "pre" else None,
        enable_nested_tensor=False,
    ).double()
    for own, their in zip(model.layers, theirs.layers, strict=True):
        query, both = own.attention.query, own.keys_values
        their.self_attn.in_proj_weight.data = torch.cat([query.weight, both.weight]).detach()
        their.self_attn.in_proj_bias.data = torch.cat([query.bias, both.bias]).detach()
        their.self_attn.out_proj.load_state_dict(own.attention.output.state_dict())
        their.linear1.load_state_dict(own.feed_forward[0].state_dict())
        their.linear2.load_state_dict(own.feed_forward[3].state_dict())
        their.norm1.load_state_dict(own.around_attention.norm.state_dict())
        their.norm2.load_state_dict(own.around_feed_forward.norm.state_dict())
    if norm == "pre":
        theirs.norm.load_state_dict(model.norm.state_dict())
    x = model.inputs(model.target_embedding(TARGETS), torch.zeros(3, dtype=torch.long))
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(model(TARGETS), theirs(x, mask=mask, is_causal=False))


def test_its_layers_are_part_of_a_transformers_decoder() -> None:
    """By name and size, so that a decoder can start from a language model."""
    decoder = Transformer(ModelContext(23, 23), **OPTIONS).decoder.state_dict()
    own = {name: tensor for name, tensor in make().state_dict().items() if name.startswith(("layers.", "norm."))}
    assert own and all(decoder[name].shape == tensor.shape for name, tensor in own.items())


def test_a_frozen_model_is_the_same_model() -> None:
    model = make().float()
    expected = model.project(model(TARGETS))
    model.freeze(Kernels())
    torch.testing.assert_close(model.project(LanguageModel.forward(model, TARGETS)), expected, rtol=0, atol=2e-5)


def test_its_scores_are_its_own_where_prefixes_of_all_lengths_meet(checkpoint: Path) -> None:
    predictor = RnnlmPredictor(str(checkpoint), Context(precision="fp64"))
    model, _ = load_language_model(checkpoint, precision="fp64")
    draw = np.random.default_rng(3)
    (root,) = predictor.initialize_batch([Source(1, ())])
    known: list[tuple[tuple[int, ...], Any]] = [((), root)]
    for _ in range(5):
        chosen = [known[i] for i in draw.integers(len(known), size=5)]
        tokens = draw.integers(7, size=5).tolist()
        after = predictor.consume_batch([state for _, state in chosen], tokens)
        known += [((*prefix, token), state) for (prefix, _), token, state in zip(chosen, tokens, after, strict=True)]
    assert len({len(prefix) for prefix, _ in known}) > 2
    rows = predictor.predict_batch([state for _, state in known]).values
    assert isinstance(rows, torch.Tensor)
    for row, (prefix, _) in zip(rows, known, strict=True):
        with torch.inference_mode():
            expected = torch.log_softmax(model.project(model(torch.tensor([[BOS, *prefix]])))[0, -1], -1)
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-10)


def test_an_exact_search_finds_what_a_wide_beam_finds(checkpoint: Path) -> None:
    constellation = Constellation.of({"rnnlm": RnnlmPredictor(str(checkpoint))}, vocab_size=7)
    roots = [constellation.roots([Source(1, (), max_length=3)])[0] for _ in range(2)]
    exact = DfsDecoder().decode(SearchSpace(constellation, roots[0]))
    wide = BeamDecoder(size=600, stop="full").decode(SearchSpace(constellation, roots[1]))
    assert exact.proven and exact.hypotheses[0].tokens == wide.hypotheses[0].tokens


def test_it_learns_a_text_by_heart(tmp_path: Path) -> None:
    options = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "norm": "pre", "dropout": 0.0}
    config = make_lm_config(tmp_path, model="transformer-lm", options=options, lr=0.02, max_steps=60, cooldown=0.5)
    assert train(config, quiet=True).scores["perplexity"] < 3, "of 20 words, each of which decides the next"

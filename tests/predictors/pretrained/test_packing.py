"""A packed model of transformers has the same scores, bit for bit, with any number of threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sgdec_predictors.pretrained.packing import is_packed, pack

from tests.helpers.breadth import some
from tests.helpers.pretrained import FAMILIES, tiny_model

pytestmark = pytest.mark.slow

OTHERS = {"mamba", "jamba"}
"""Architectures with weights that are neither layers nor embeddings."""
WIDER: dict[str, Any] = {
    "vocab_size": 400, "hidden_size": 96, "d_model": 96, "intermediate_size": 192, "num_attention_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_heads": 4, "n_head": 4, "d_ff": 192,
}  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("family", some(sorted(FAMILIES)))
def test_a_packed_model_scores_the_same_with_any_number_of_threads(family: str, precision: str) -> None:
    settings = FAMILIES[family][1]
    names = {"mamba": {"hidden_size"}, "t5": {"d_model", "d_ff", "num_heads"}}.get(family, {*settings})
    model = tiny_model(family, **{name: value for name, value in WIDER.items() if name in {*names, "vocab_size"}})
    pack(model, precision)
    assert is_packed(model) == (family not in OTHERS)
    if family in OTHERS:
        return
    ids = torch.arange(3, 3 + 16 * 20).view(16, 20)
    read = {"input_ids": ids, **({"decoder_input_ids": ids[:, :7]} if model.config.is_encoder_decoder else {})}
    before, logits = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with torch.inference_mode():
                logits.append(model(**read, use_cache=False).logits)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*logits)


def test_a_model_with_unpacked_weights_is_not_packed() -> None:
    model = tiny_model("gpt2")
    assert not is_packed(model)

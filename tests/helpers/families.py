"""Every translation model, tiny, and encoders with decoders of another kind: what tests of all models run over."""

from __future__ import annotations

from typing import Any

import torch

from sgdec.models.base import ModelContext, Seq2Seq
from sgdec.plugins.host import Host

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gnmt": ("gnmt", {"width": 8, "layers": 3}),
    "transformer": ("transformer", {"layers": 2, "width": 8, "heads": 2, "feed_forward": 12}),
    "transformer pre": ("transformer", {"layers": 2, "width": 8, "heads": 4, "feed_forward": 12, "norm": "pre"}),
    "luong": ("luong", {"width": 8, "layers": 2}),
    "luong fed": ("luong", {"width": 8, "layers": 3, "embedding": 6, "input_feeding": True}),
    "shallow": ("shallow", {"width": 7, "embedding": 6}),
    "deep": ("deep-transition", {"encoder_depth": 2, "decoder_depth": 4, "width": 6, "embedding": 8}),
    "multi-source": ("multi-source", {"width": 7, "embedding": 6}),
    "multi-source hard": ("multi-source-hard", {"width": 6, "embedding": 8}),
    "hard": ("hard-attention", {"width": 7, "embedding": 6}),
    "hard and soft": ("hard-attention", {"width": 6, "embedding": 8, "soft": True, "layer_norm": True}),
    "gru to transformer": (
        "transformer", {"layers": 2, "width": 8, "heads": 2, "feed_forward": 12, "encoder": "gru"},
    ),
    "lstm to transformer": (
        "transformer", {"layers": 2, "width": 8, "heads": 2, "feed_forward": 12, "encoder": "lstm"},
    ),
    "transformer to luong": ("luong", {"width": 8, "layers": 1, "embedding": 6, "encoder": "transformer"}),
    "gru to luong": ("luong", {"width": 8, "layers": 2, "encoder": "gru", "input_feeding": True}),
    "transformer to gru": (
        "deep-transition",
        {"width": 8, "embedding": 6, "encoder_depth": 2, "decoder_depth": 3, "encoder": "transformer"},
    ),
    "lstm to gru": ("shallow", {"width": 8, "embedding": 6, "encoder": "lstm"}),
}  # fmt: skip
"""Name of the plugin, and options."""
OWN = [
    "gnmt", "transformer", "transformer pre", "luong", "luong fed", "shallow", "deep", "multi-source",
    "multi-source hard", "hard", "hard and soft",
]  # fmt: skip
"""Those with an encoder of their own kind."""


def make(family: str, *, source: int = 23, target: int = 29, shared: bool = False, **options: Any) -> Seq2Seq:
    """A model in float64, not training, with weights that are far from their starting point; given options win."""
    name, own = FAMILIES[family]
    torch.manual_seed(7)
    model: Seq2Seq = Host().load("model", name)(ModelContext(source, target, shared), **{**own, **options})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.to(torch.float64).eval()

"""Tiny random models of Hugging Face's architectures, built from configurations without any download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

V = 20
"""The number of ids."""
SIZES: dict[str, Any] = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
}  # fmt: skip
T5_SIZES = {"d_model": 16, "d_kv": 8, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2, "d_ff": 32}
CAUSAL: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
MAMBA_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
BY_TYPE = {
    "t5": T5_SIZES, "mamba": MAMBA_SIZES, "qwen2": {**CAUSAL, "layer_types": ["full_attention"] * 2},
    **dict.fromkeys(("marian", "bart", "mbart", "m2m_100"), SIZES),
}  # fmt: skip
"""The sizes of models by the ``model_type`` of a config; the others have those of ``CAUSAL``."""

_MARIAN = {"pad_token_id": V - 1, "decoder_start_token_id": V - 1, "bos_token_id": 0, "eos_token_id": 0}
_JAMBA: dict[str, Any] = {
    "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1, "use_mamba_kernels": False,
    "mamba_d_state": 4, "mamba_dt_rank": 4,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("MarianMTModel", {**SIZES, **_MARIAN, "forced_eos_token_id": None}),
    "bart": ("BartForConditionalGeneration", {**SIZES, "forced_eos_token_id": None}),
    "mbart": ("MBartForConditionalGeneration", {**SIZES, "decoder_start_token_id": 2, "forced_eos_token_id": None}),
    "m2m": ("M2M100ForConditionalGeneration", {**SIZES, "decoder_start_token_id": 2}),  # the architecture of NLLB
    "t5": ("T5ForConditionalGeneration", {**T5_SIZES, "decoder_start_token_id": 0}),
    "gpt2": ("GPT2LMHeadModel", {**CAUSAL, "bos_token_id": V - 1, "eos_token_id": V - 1}),
    "llama": ("LlamaForCausalLM", {**CAUSAL, "bos_token_id": 1, "eos_token_id": 2}),
    "qwen2": ("Qwen2ForCausalLM", {**CAUSAL, "bos_token_id": None, "eos_token_id": V - 2}),
    # Most prefixes are longer than the window.
    "mistral": ("MistralForCausalLM", {**CAUSAL, "sliding_window": 3, "bos_token_id": 1, "eos_token_id": 2}),
    # Without position embeddings: attention depends on distances.
    "bloom": ("BloomForCausalLM", {"hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "mamba": ("MambaForCausalLM", {**MAMBA_SIZES, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}),
    # Recurrent layers and attention.
    "jamba": ("JambaForCausalLM", {**CAUSAL, **_JAMBA, "bos_token_id": 1, "eos_token_id": 2}),
}
"""By family: its class in transformers, and the config of a model."""


def tiny_model(family: str, **changed: Any) -> Any:
    """A model of one family; ``changed`` are entries of its config."""
    import transformers

    name, settings = FAMILIES[family]
    architecture = getattr(transformers, name)
    torch.manual_seed(7)
    return sharpened(architecture(architecture.config_class(**{"vocab_size": V, **settings, **changed})).eval())


def sharpened(model: Any) -> Any:
    """The model with clearly different scores: its matrices are three times as large as at the start of training."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    return model


def write_model(folder: Path) -> Any:
    """A tiny model that is added to the tokenizer and config of a folder (`tests.helpers.pretrained_tokenizers`)."""
    import transformers

    sizes = BY_TYPE.get(json.loads((folder / "config.json").read_text())["model_type"], CAUSAL)
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, **sizes)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    torch.manual_seed(7)
    model = sharpened(auto.from_config(config).eval())
    if (folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    model.save_pretrained(folder)
    return auto.from_pretrained(folder).eval()  # what is computed, such as Marian's positions, is not in the folder

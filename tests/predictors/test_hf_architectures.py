"""The promise: an architecture of transformers scores with its memory, in batches, as it does for all tokens at once;
one that cannot is refused in one line."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sgdec_predictors.hf import HfPredictor

from sgdec import Context, SgdecError, Source, UsageError
from tests.helpers.pretrained import CAUSAL, FAMILIES, SIZES, T5_SIZES, V, tiny_model

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CAUSAL_SIZES: dict[str, Any] = {**CAUSAL, **IDS}
PAIR = {**SIZES, **IDS, "decoder_start_token_id": 2}
T5_PAIR = {**T5_SIZES, **IDS, "eos_token_id": 1, "decoder_start_token_id": 0}
LATENT = {**CAUSAL_SIZES, "num_key_value_heads": 4, "q_lora_rank": 4, "kv_lora_rank": 4, "qk_rope_head_dim": 4,
          "qk_nope_head_dim": 4, "v_head_dim": 4, "head_dim": 4}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
           "topk_group": 1, "moe_intermediate_size": 8, "first_k_dense_replace": 1}  # fmt: skip
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1, "mamba_chunk_size": 4}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 4,
          "linear_value_head_dim": 4}  # fmt: skip
WINDOW = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 4}
LONG = {"attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64,
        "max_position_embeddings": None}  # fmt: skip
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}

AGREE: dict[str, dict[str, Any]] = {
    # Encoders and decoders.
    "PegasusForConditionalGeneration": PAIR,
    "BlenderbotForConditionalGeneration": PAIR,
    "BlenderbotSmallForConditionalGeneration": PAIR,
    "BigBirdPegasusForConditionalGeneration": PAIR,
    "MvpForConditionalGeneration": PAIR,
    "PLBartForConditionalGeneration": PAIR,
    "LEDForConditionalGeneration": {**PAIR, **LONG},
    "MT5ForConditionalGeneration": {**T5_PAIR, **BUCKETS},
    "UMT5ForConditionalGeneration": {**T5_PAIR, **BUCKETS},
    "LongT5ForConditionalGeneration": {**T5_PAIR, **BUCKETS, "local_radius": 2},
    # Positions: learned, with offsets, rotary, partly rotary, ALiBi.
    "OPTForCausalLM": {**CAUSAL_SIZES, "ffn_dim": 32, "word_embed_proj_dim": 16},
    "XGLMForCausalLM": {**IDS, "d_model": 16, "num_layers": 2, "attention_heads": 2, "ffn_dim": 32},
    "BioGptForCausalLM": CAUSAL_SIZES,
    "GPTNeoForCausalLM": {**IDS, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "window_size": 3,
                          "attention_types": [[["global", "local"], 1]]},
    "GPTBigCodeForCausalLM": {**IDS, "n_embd": 16, "n_layer": 2, "n_head": 2},
    "CTRLLMHeadModel": {**IDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "dff": 32},
    "GPTNeoXForCausalLM": CAUSAL_SIZES,
    "GPTJForCausalLM": {**IDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4},
    "CodeGenForCausalLM": {**IDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "PhiForCausalLM": CAUSAL_SIZES,
    "StableLmForCausalLM": CAUSAL_SIZES,
    "CohereForCausalLM": CAUSAL_SIZES,
    "FalconForCausalLM": {**CAUSAL_SIZES, "alibi": True},
    "MptForCausalLM": {**IDS, "d_model": 16, "n_layers": 2, "n_heads": 2},
    # Windows, chunks, caps, sinks, several caches.
    "Gemma2ForCausalLM": {**CAUSAL_SIZES, **WINDOW},
    "Gemma3ForCausalLM": {**CAUSAL_SIZES, **WINDOW},
    "Cohere2ForCausalLM": {**CAUSAL_SIZES, **WINDOW},
    "Llama4ForCausalLM": {**CAUSAL_SIZES, "head_dim": 4, "intermediate_size_mlp": 32, "attention_chunk_size": 3},
    "GptOssForCausalLM": {**CAUSAL_SIZES, **WINDOW, **EXPERTS},
    "DeepseekV3ForCausalLM": {**LATENT, **EXPERTS},
    "MixtralForCausalLM": {**CAUSAL_SIZES, **EXPERTS},
    "BertLMHeadModel": {**CAUSAL_SIZES, "is_decoder": True},
    # Recurrent layers, alone and between attention.
    "Mamba2ForCausalLM": {**IDS, "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 8,
                          "state_size": 4, "n_groups": 1, "chunk_size": 4},
    "FalconMambaForCausalLM": {**IDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    "BambaForCausalLM": {**CAUSAL_SIZES, **MAMBA2, "attn_layer_indices": [1]},
    "GraniteMoeHybridForCausalLM": {**CAUSAL_SIZES, **MAMBA2, **EXPERTS, "shared_intermediate_size": 8,
                                    "layer_types": ["linear_attention", "full_attention"]},
    "Qwen3NextForCausalLM": {**CAUSAL_SIZES, **LINEAR, **EXPERTS, "head_dim": 4,
                             "layer_types": ["linear_attention", "full_attention"]},
    "Lfm2ForCausalLM": {**CAUSAL_SIZES, "layer_types": ["conv", "full_attention"]},
}  # fmt: skip
"""By architecture: the config of a tiny model."""

LIKE_OTHERS = {
    "BlenderbotForConditionalGeneration", "BlenderbotSmallForConditionalGeneration", "MvpForConditionalGeneration",
    "PLBartForConditionalGeneration", "UMT5ForConditionalGeneration", "BioGptForCausalLM", "XGLMForCausalLM",
    "CodeGenForCausalLM", "PhiForCausalLM", "StableLmForCausalLM", "Gemma3ForCausalLM", "MixtralForCausalLM",
    "FalconMambaForCausalLM", "BambaForCausalLM",
}  # fmt: skip
"""Each has the positions, windows, caches and recurrent layers of another one; `make exhaustive` tries them."""

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    # Without a cache, or with one of another form.
    "OpenAIGPTLMHeadModel": ({**IDS, "n_embd": 16, "n_layer": 2, "n_head": 2}, "cannot be read token by token"),
    "RwkvForCausalLM": ({**IDS, "hidden_size": 16, "num_hidden_layers": 2}, "cannot be read token by token"),
    "Zamba2ForCausalLM": (
        {**CAUSAL_SIZES, "mamba_headdim": 8, "n_mamba_heads": 4, "mamba_ngroups": 1, "mamba_d_state": 4,
         "num_key_value_heads": 4, "layers_block_type": ["mamba", "hybrid"], "chunk_size": 4, "num_mem_blocks": 1},
        "cannot be shared",
    ),
    # Every token attends to those after it.
    "BertLMHeadModel": ({**CAUSAL_SIZES, "is_decoder": False}, "would differ"),
    # Positions begin after the id of the padding.
    "RobertaForCausalLM": ({**CAUSAL_SIZES, "is_decoder": True}, "would differ"),
    # The ends of n-grams of the future depend on the length.
    "ProphetNetForCausalLM": (
        {**IDS, "hidden_size": 16, "num_decoder_layers": 2, "num_decoder_attention_heads": 2, "decoder_ffn_dim": 32,
         "num_buckets": 8, "is_decoder": True, "is_encoder_decoder": False},
        "cannot be read token by token",
    ),
}  # fmt: skip


def made(name: str, config: dict[str, Any]) -> Any:
    """A model with random weights, whose scores are clearly different."""
    import transformers

    architecture = getattr(transformers, name)
    torch.manual_seed(7)
    model = architecture(architecture.config_class(**{"vocab_size": V, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.std() < 0.1:
                parameter.mul_(8)
    return model


def at_once(model: Any, source: Sequence[int], prefix: Sequence[int]) -> torch.Tensor:
    """ln p of every id, ``[V]``, by one pass without a cache."""
    if model.config.is_encoder_decoder:
        start = [model.generation_config.decoder_start_token_id, *prefix]
        given = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([start])}
    else:
        given = {"input_ids": torch.tensor([[*source, *prefix]])}
    with torch.inference_mode():
        return torch.log_softmax(model(**given, use_cache=False).logits[0, -1].double(), dim=-1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if name in LIKE_OTHERS else []) for name in AGREE]
)
def test_batches_of_old_and_new_prefixes_score_as_tokens_at_once(name: str) -> None:
    model = made(name, AGREE[name])
    predictor = HfPredictor.of(model)
    numbers = predictor._roles.numbering.numbers
    rng = random.Random(3)
    read = [[rng.randrange(3, V) for _ in range(length)] for length in (1, 6, 3)]
    sources = [Source(i, tuple(numbers[ids].tolist()), max_length=20) for i, ids in enumerate(read, start=1)]
    known = [(state, ids, []) for state, ids in zip(predictor.initialize_batch(sources), read, strict=True)]
    newest: list[Any] = known
    for _ in range(4):
        batch = [*newest, *rng.sample(known, 2)]
        rng.shuffle(batch)
        found = torch.as_tensor(predictor.predict_batch([state for state, *_ in batch]).values).double()
        for row, (_, ids, prefix) in zip(found[:, numbers], batch, strict=True):
            torch.testing.assert_close(row, at_once(model, ids, prefix), rtol=0, atol=1e-4)
        chosen = batch[:3]
        ids = [rng.randrange(3, V) for _ in chosen]
        states = predictor.consume_batch([state for state, *_ in chosen], numbers[ids].tolist())
        newest = [
            (state, ids, [*prefix, id]) for state, (_, ids, prefix), id in zip(states, chosen, ids, strict=True)
        ]
        known = known + newest


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_other_architectures_are_refused_in_one_line(name: str) -> None:
    config, message = REFUSED[name]
    with pytest.raises(SgdecError, match=message) as error:
        HfPredictor.of(made(name, config))
    assert "\n" not in str(error.value)


def test_damaged_weights_are_refused() -> None:
    model = tiny_model("gpt2")
    model.transformer.h[0].mlp.c_fc.weight.data[0, 0] = float("nan")
    with pytest.raises(SgdecError, match="is NaN"):
        HfPredictor.of(model)


def test_a_layer_that_the_decoder_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="no layer 2 of attention: the decoder has 2 layers"):
        HfPredictor.of(tiny_model("marian", attn_implementation="eager"), attention=2)


def test_the_factors_of_rotary_embeddings_do_not_change_within_a_text() -> None:
    """LongRoPE with 8 positions of the first training: all positions of a text of 9 tokens would be others."""
    rotary = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 2, "long_factor": [3.0, 9.0]}
    config = {**CAUSAL_SIZES, "rope_parameters": rotary, "original_max_position_embeddings": 8}
    model = made("Phi3ForCausalLM", config)
    predictor = HfPredictor.of(model)
    numbers = predictor._roles.numbering.numbers
    ids = [5, 9, 13, 4, 7, 6]
    states = predictor.initialize_batch([Source(1, tuple(numbers[ids].tolist()), max_length=20)])
    for output in ([], [3]):
        row = torch.as_tensor(predictor.predict_batch(states).values)[0, numbers].double()
        torch.testing.assert_close(row, at_once(model, ids, output), rtol=0, atol=1e-4)
        states = predictor.consume_batch(states, [int(numbers[3])])
    assert int(torch.as_tensor(predictor.predict_batch(states).values).isfinite().sum()) == 1  # only </s>
    with pytest.raises(SgdecError, match="8 positions"):
        predictor.initialize_batch([Source(1, tuple(range(3, 12)), max_length=20)])


@pytest.mark.parametrize("setting", ["suppress_tokens", "begin_suppress_tokens", "bad_words_ids"])
def test_forbidden_ids_that_the_model_lacks_change_nothing(setting: str) -> None:
    plain, model = tiny_model("gpt2"), tiny_model("gpt2")
    ids = [V, -1, 9999]
    setattr(model.generation_config, setting, [[id] for id in ids] + [[3, V]] if "words" in setting else ids)
    rows = []
    for each in (plain, model):
        predictor = HfPredictor.of(each)
        states = predictor.initialize_batch([Source(1, (3, 4), max_length=5)])
        rows.append(torch.as_tensor(predictor.predict_batch(predictor.consume_batch(states, [3])).values))
        rows.append(torch.as_tensor(predictor.predict_batch(states).values))
    assert torch.equal(rows[0], rows[2]) and torch.equal(rows[1], rows[3])


@pytest.mark.parametrize("family", ["bart", "m2m"])
def test_a_step_that_fails_leaves_no_trace(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler repeats the requests of a batch that failed, and goes on with other sentences."""
    model = tiny_model(family)
    weights = set(model.state_dict())
    predictor = HfPredictor.of(model)
    assert set(model.state_dict()) == weights  # a model in memory can still be saved
    numbers = predictor._roles.numbering.numbers
    sources = [Source(i, tuple(range(3, 5 + i)), max_length=9) for i in (1, 2)]
    begun = predictor.initialize_batch(sources)
    (longer,) = predictor.consume_batch(predictor.consume_batch(begun[:1], [5]), [6])
    with monkeypatch.context() as changes:
        changes.setattr(model.lm_head, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            predictor.predict_batch([longer, begun[1]])
    again = predictor.initialize_batch(sources)
    for state, source, tokens in ((longer, sources[0], (5, 6)), (again[1], sources[1], ())):
        row = torch.as_tensor(predictor.predict_batch([state]).values)[0].double()
        ids = predictor._roles.numbering.ids
        expected = at_once(model, ids[list(source.tokens)].tolist(), ids[list(tokens)].tolist())
        torch.testing.assert_close(row[numbers], expected, rtol=0, atol=1e-4)
    del state, longer, begun, again
    assert predictor._prefixes.used == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_models_that_multiply_with_the_weights_of_their_layers_keep_them(precision: str, tmp_path: Path) -> None:
    """Mamba does; Marian does not, and gives them up once they are packed."""
    for family, kept in (("mamba", True), ("marian", False)):
        model = tiny_model(family)
        model.save_pretrained(tmp_path / family)
        module = HfPredictor(str(tmp_path / family), context=Context(precision=precision))._prefixes.module
        layers = [each for each in module.modules() if type(each) is torch.nn.Linear and each is not module.lm_head]
        assert layers and {bool(each.weight.isfinite().all()) for each in layers} == {kept}


SHARING = {
    "MarianMTModel", "BartForConditionalGeneration", "M2M100ForConditionalGeneration", "LlamaForCausalLM",
    "GPT2LMHeadModel", "OPTForCausalLM", "GPTNeoXForCausalLM", "MixtralForCausalLM",
}  # fmt: skip
"""Architectures whose attention can be replaced."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", [*FAMILIES, *AGREE])
def test_prefixes_share_keys_where_attention_is_plain(family: str) -> None:
    model = made(family, AGREE[family]) if family in AGREE else tiny_model(family)
    predictor = HfPredictor.of(model)
    if type(model).__name__ in SHARING:
        assert predictor._prefixes.shares
    if any(part in family.lower() for part in ("t5", "gemma", "mamba", "jamba", "gptoss")):
        assert not predictor._prefixes.shares  # distances, windows, sinks, and recurrent layers
    assert model.config._attn_implementation in ("sdpa", "eager")  # as it was


@pytest.mark.parametrize("family", ["marian", "llama", "qwen2"])
def test_sharing_keys_changes_the_rounding_only(family: str) -> None:
    rng, found = random.Random(5), []
    for shares in (True, False):
        predictor = HfPredictor.of(tiny_model(family))
        assert predictor._prefixes.shares
        predictor._prefixes.shares = shares
        numbers = predictor._roles.numbering.numbers
        rng.seed(5)
        sources = [Source(i, tuple(numbers[3 : 4 + 2 * i].tolist()), max_length=20) for i in range(1, 5)]
        states = predictor.initialize_batch(sources)
        rows = []
        for _ in range(6):  # sentences have between 1 and 12 prefixes, of different lengths
            rows.append(torch.as_tensor(predictor.predict_batch(states).values))
            chosen = [rng.choice(states) for _ in range(12)]
            states = [*states[:3], *predictor.consume_batch(chosen, [rng.randrange(4, 12) for _ in chosen])]
        found.append(torch.cat(rows))
    finite = found[0].isfinite()
    assert torch.equal(finite, found[1].isfinite())
    torch.testing.assert_close(found[0][finite], found[1][finite], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "places", "readable"),
    [("LEDForConditionalGeneration",
      {"max_encoder_position_embeddings": 12, "max_decoder_position_embeddings": 6}, 12),
     ("BartForConditionalGeneration", {"max_position_embeddings": 6}, 6),
     ("MptForCausalLM", {"max_seq_len": 6}, 6),
     ("OPTForCausalLM", {"max_position_embeddings": 6}, 6)],
)  # fmt: skip
def test_sources_and_outputs_end_with_the_positions(name: str, places: dict[str, int], readable: int) -> None:
    config = AGREE.get(name, PAIR)
    predictor = HfPredictor.of(made(name, {**config, **places}))
    with pytest.raises(SgdecError, match=f"{readable} positions"):
        predictor.initialize_batch([Source(1, (5,) * (readable + 1), max_length=99)])
    if predictor._roles.seq2seq:
        predictor.initialize_batch([Source(1, (5,) * readable, max_length=99)])
    states = predictor.initialize_batch([Source(1, (5, 7), max_length=99)])
    for _ in range(99):
        row = torch.as_tensor(predictor.predict_batch(states).values)[0]
        if row.isfinite().sum() == 1:
            break
        states = predictor.consume_batch(states, [4])
    assert states[0].length == 6 - (1 if predictor._roles.seq2seq else 2) and bool(row[2].isfinite())


def test_an_object_that_is_not_a_language_model_is_refused() -> None:
    with pytest.raises(UsageError, match="not a GPT2Model"):
        HfPredictor.of(tiny_model("gpt2").transformer)

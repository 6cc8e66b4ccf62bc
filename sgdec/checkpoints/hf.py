"""Writes a checkpoint of the model ``transformer`` as a folder that Hugging Face's transformers loads.

    FOLDER/config.json               the class and its sizes
           generation_config.json    the roles of tokens, and the greatest length
           model.safetensors         the weights (`sgdec.checkpoints.hf_tensors`)
           spiece.model, ...         the tokenizer of the source (`sgdec.text.hf_files`)
           target/                   the tokenizer of the target, if it is another one

Models with ``norm`` post become `MarianMTModel`. Marian has no normalisation before sublayers, so models with
``norm`` pre become `PegasusForConditionalGeneration`, whose equations are otherwise Marian's.

Tokens keep their numbers. The decoder starts with ``<s>``, which is also the padding. It occurs in no source, so a
mask that is derived from padding hides no token, and a loss without padding still counts ``</s>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sgdec.checkpoints import files, layout, loading
from sgdec.checkpoints.quantised import SECTION
from sgdec.context import BOS, EOS
from sgdec.errors import UsageError
from sgdec.text.hf_files import tokenizer_files
from sgdec.text.model_folder import TARGET
from sgdec.text.vocabulary import Trained

if TYPE_CHECKING:
    from sgdec.models.transformer import Transformer
    from sgdec.models.transformer_layers import DecoderLayer, TransformerDecoder, TransformerEncoder

MODEL = "transformer"
"""The model that can be exported, and the kind of its encoder."""
ROLES = {
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": BOS,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": None,
}


def export(path: str | Path, output: str | Path, *, positions: int, tokenizer: bool = True) -> str:
    """Write a checkpoint to a new folder for transformers; return the name of the class that loads it.

    ``positions``: the most tokens of a source and of an output of the new model. Without ``tokenizer`` only the model
    is written. Raises `SgdecError` if a file is missing or damaged, `UsageError` if transformers has no counterpart
    of the model or of its tokenizer, or if ``output`` exists.
    """
    from sgdec.checkpoints.hf_tensors import tensors_of

    folder, config, final = layout.find_checkpoint(path), layout.read_config(path), Path(output)
    _refuse_others(config, folder)
    files.require_new(final)
    tokenizers = _tokenizers(folder, positions) if tokenizer else {}
    model = cast("Transformer", loading.stored_model(folder, config))
    described = describe(model, positions)

    def write(partial: Path) -> None:
        files.save_tensors(partial / "model.safetensors", tensors_of(model, described))
        files.write_json(partial / "config.json", described)
        files.write_json(partial / "generation_config.json", {**ROLES, "max_length": positions})
        for name, content in tokenizers.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_bytes(content)

    files.write_folder(final, write, advice="Give another --output.")
    return str(described["architectures"][0])


def _refuse_others(config: Mapping[str, Any], folder: Path) -> None:
    """Raises UsageError if no class of transformers computes this model."""
    name, encoder = config["model"], config["options"].get("encoder", MODEL)
    if name != MODEL:
        raise UsageError(
            f"{folder}: only the model {MODEL} can be exported, because no class of transformers computes {name}. "
            "To use it in a program, load it with sgdec.load."
        )
    if encoder != MODEL:
        raise UsageError(
            f"{folder}: encoder is {encoder}, and no class of transformers combines it with the decoder of a "
            f"Transformer. Train with --transformer.encoder {MODEL}."
        )
    if config.get("right_left"):
        raise UsageError(
            f"{folder}: right_left is true, and transformers would show the outputs of this model in reverse order. "
            "Train without right_left."
        )
    if SECTION in config:
        raise UsageError(f"{folder}: this model is quantised. Export the model that it was made from.")


def _tokenizers(folder: Path, positions: int) -> dict[str, bytes]:
    """The tokenizer files by their path in the new folder."""
    source, target = (cast(Trained, vocabulary) for vocabulary in layout.load_vocabularies(folder))
    found = tokenizer_files(source, positions, where=f"{folder}: the source tokenizer")
    if target is not source:
        for name, content in tokenizer_files(target, positions, where=f"{folder}: the target tokenizer").items():
            found[f"{TARGET}/{name}"] = content
    return found


def describe(model: Transformer, positions: int) -> dict[str, Any]:
    """The content of config.json."""
    encoder, decoder = cast("TransformerEncoder", model.encoder), cast("TransformerDecoder", model.decoder)
    layer = cast("DecoderLayer", decoder.layers[0])
    source, target = model.source_embedding.weight, model.target_embedding.weight
    tied = target is model.softmax.weight
    shared = tied and source is target
    inner, _, dropout, _ = cast(Any, layer.feed_forward)
    config = {
        "is_encoder_decoder": True,
        "dtype": "float32",
        "d_model": decoder.width,
        "scale_embedding": True,
        "activation_function": "relu",
        "max_position_embeddings": positions,
        "dropout": layer.around_attention.dropout.p,
        "attention_dropout": layer.attention.p,
        "activation_dropout": dropout.p,
        **ROLES,
    }
    for side, layers in (("encoder", encoder.layers), ("decoder", decoder.layers)):
        config[f"{side}_layers"] = len(layers)
        config[f"{side}_attention_heads"] = layer.attention.heads
        config[f"{side}_ffn_dim"] = inner.out_features
        config[f"{side}_layerdrop"] = 0.0
    if layer.around_attention.pre:
        return config | {
            "architectures": ["PegasusForConditionalGeneration"],
            "model_type": "pegasus",
            "vocab_size": max(len(source), len(target)),
            "tie_word_embeddings": shared,
        }
    return config | {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": tied,
    }

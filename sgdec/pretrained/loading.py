"""Load a model of Hugging Face transformers: from its own files, without code of others and without pickle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sgdec.context import Context
from sgdec.errors import SgdecError, UsageError
from sgdec.pretrained.packing import pack
from sgdec.text.model_folder import CONFIG, quiet, read_config

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64, "int8": torch.float32}
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def load_module(folder: Path, context: Context, *, attention: bool = False) -> Any:
    """The model of a folder, ready to predict. ``attention``: whether its attention will be asked for.

    Raises `SgdecError` if the folder has no weights, or only pickled ones, or weights that do not fit the config,
    UsageError for a precision that it cannot have.
    """
    import transformers

    library: Any = transformers
    configs = read_config(folder)
    if configs is None:
        raise SgdecError(f"{folder}: there is no {CONFIG}. Expected the folder of a Hugging Face model.")
    config, generation = configs
    if context.precision not in DTYPES:
        available = ", ".join(DTYPES)
        raise UsageError(f"a model cannot be loaded in precision {context.precision!r}. Available: {available}.")
    if not any((folder / name).is_file() for name in WEIGHTS):
        pickled = sorted(path.name for path in folder.glob("*.bin"))
        what = (
            f"{pickled[0]} is pickled, which can run code; save the model as safetensors" if pickled else "none found"
        )
        raise SgdecError(f"{folder}: expected weights in {WEIGHTS[0]}: {what}.")
    auto = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else library.AutoModelForCausalLM
    if type(config) not in auto._model_mapping:
        kind = "sequence-to-sequence" if config.is_encoder_decoder else "language"
        raise SgdecError(f"{folder}: transformers has no {kind} model of the architecture {config.model_type}.")
    try:
        with quiet(), _no_bars():
            module, loading = auto.from_pretrained(
                str(folder.absolute()),
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=DTYPES[context.precision],
                attn_implementation="eager" if attention else None,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are reported below
            )
    except (ModuleNotFoundError, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # the library raises errors of many types for damaged files
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise SgdecError(f"{folder}: the weights cannot be used: {reason}.") from None
    for kind, names in (("is missing", loading["missing_keys"]), ("has another shape", loading["mismatched_keys"])):
        if names:
            name = min(found[0] if isinstance(found, tuple) else found for found in names)
            raise SgdecError(f"{folder}: tensor {name} {kind}. Are {CONFIG} and the weights of the same model?")
    module.generation_config = generation
    module = module.eval().requires_grad_(False)
    if context.precision == "int8":
        return in_8_bits(module, context.device, str(folder))
    if context.precision == "fp32" and context.device == "cpu":
        pack(module)
    return module.to(context.device)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Context manager: `transformers` shows no progress."""
    from transformers.utils import logging

    library: Any = logging
    shown = library.is_progress_bar_enabled()
    library.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            library.enable_progress_bar()


def in_8_bits(module: Any, device: str, name: str) -> Any:
    """The model with its linear layers in 8 bits: weights once, inputs at each step, as PyTorch quantises them.

    Raises `UsageError` if PyTorch has no such layers.
    """
    import warnings

    if device != "cpu":
        raise UsageError(f"--precision int8 runs on a CPU only. Give --device cpu, not {device}.")
    quantisation = getattr(torch.ao.quantization, "quantize_dynamic", None)
    linear = [layer for layer in module.modules() if type(layer) is nn.Linear]
    if quantisation is None:
        raise UsageError("--precision int8: this PyTorch has no dynamic quantisation. Give --precision bf16.")
    if len(linear) < 2:
        raise UsageError(f"{name}: PyTorch has no 8 bits for the layers of this model. Give --precision bf16.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it will move to another package
        return quantisation(module, {nn.Linear}, dtype=torch.qint8)

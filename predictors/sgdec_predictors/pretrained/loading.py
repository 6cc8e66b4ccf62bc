"""Load a model of Hugging Face transformers: from its own files, without code of others and without pickle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sgdec.context import Context
from sgdec.errors import SgdecError, UsageError
from sgdec.vocabularies import CONFIG, quiet, read_config, reason
from sgdec_predictors.pretrained.packing import pack
from sgdec_predictors.pretrained.weights import map_weights

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64, "int8": torch.float32}
MOST_POSITIONS = 1 << 20
"""The number of rows of a table that is computed and not loaded, such as sinusoidal positions."""
FEW_NUMBERS, FEW_BYTES = 1 << 20, 1 << 26
"""The sizes that any model may have."""


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
    if context.precision == "int8" and context.device != "cpu":
        raise UsageError(f"--precision int8 runs on a CPU only. Give --device cpu, not {context.device}.")
    auto = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else library.AutoModelForCausalLM
    if type(config) not in auto._model_mapping:
        kind = "sequence-to-sequence" if config.is_encoder_decoder else "language"
        raise SgdecError(f"{folder}: transformers has no {kind} model of the architecture {config.model_type}.")
    weights = map_weights(folder)
    try:
        with quiet(), _no_bars(), _no_larger_than(weights, folder):
            architecture, config = _architecture(auto, config)
            module, loading = architecture.from_pretrained(
                None,  # no path, so that nothing in the folder leads to other weights
                state_dict=weights,
                config=config,
                local_files_only=True,
                dtype=DTYPES[context.precision],
                attn_implementation="eager" if attention else None,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are reported below
            )
    except (MemoryError, torch.OutOfMemoryError, SgdecError):
        raise
    except Exception as error:  # of many types: for damaged files, and for what quantised weights need
        raise SgdecError(f"{folder}: the weights cannot be used: {reason(error)}.") from None
    for kind, names in (("is missing", loading["missing_keys"]), ("has another shape", loading["mismatched_keys"])):
        if names:
            name = min(found[0] if isinstance(found, tuple) else found for found in names)
            raise SgdecError(f"{folder}: tensor {name} {kind}. Are {CONFIG} and the weights of the same model?")
    unused = _other_layers(loading["unexpected_keys"], module)
    if unused:
        raise SgdecError(f"{folder}: {CONFIG} has fewer layers than the weights: tensor {min(unused)} is not used.")
    module.generation_config = generation
    module = module.eval().requires_grad_(False)
    if context.device == "cpu":
        weights.forget(pack(module, context.precision))
    return module.to(context.device)


def _other_layers(unused: Iterable[str], module: Any) -> list[str]:
    """The unused tensors whose names differ only in numbers from those of the module; those with numbers, if none of
    the module's has one."""
    prefix = f"{module.base_model_prefix}."
    forms = {re.sub(r"\d+", "#", name.removeprefix(prefix)) for name in module.state_dict()}
    layers = any("#" in form for form in forms)
    found = {name: re.sub(r"\d+", "#", name.removeprefix(prefix)) for name in unused}
    return [name for name, form in found.items() if "#" in form and (form in forms or not layers)]


def _architecture(auto: Any, config: Any) -> tuple[Any, Any]:
    """The class of a model and its config, as the library's own ``auto.from_pretrained``, which needs a path, finds
    them."""
    from transformers.models.auto.auto_factory import _get_model_class

    architecture = _get_model_class(config, auto._model_mapping)
    text = config.sub_configs.get("text_config")
    if text is not None and architecture.config_class == text:
        quantization = getattr(config, "quantization_config", None)
        config = config.get_text_config()
        if quantization is not None:
            config.quantization_config = quantization
    return architecture, config


@contextmanager
def _no_larger_than(weights: Mapping[str, Tensor], folder: Path) -> Iterator[None]:
    """Context manager: `SgdecError` as soon as a model is built that cannot be that of the weights.

    `transformers` builds it without memory, on the device ``meta``, then loads the weights and makes what is missing,
    so the build is the place to stop. Tied tensors are counted several times, one tensor of a file can become several
    of the model, and a byte can hold two numbers: the number and size of parameters are compared with a margin. Names
    and shapes are compared exactly afterwards.
    """
    size = sum(tensor.nbytes for tensor in weights.values())
    longest = max((max(tensor.shape, default=1) for tensor in weights.values()), default=1)
    parameters, numbers, computed = 0, 0, 0

    def refuse(what: str) -> NoReturn:
        raise SgdecError(f"{folder / CONFIG}: {what}. Are {CONFIG} and the weights of the same model?")

    def parameter(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal parameters, numbers
        if tensor is None or not tensor.is_meta:
            return
        parameters, numbers = parameters + 1, numbers + tensor.numel()
        where = f"{type(module).__name__}.{name} {list(tensor.shape)}"
        if parameters > 4 * len(weights) + 1000:
            refuse(f"the model has more than {parameters - 1} tensors, but the weights only {len(weights)}")
        if numbers > 4 * size + FEW_NUMBERS:
            refuse(f"the model with {where} is larger than its weights, which have {size} bytes")
        if not tensor.requires_grad and tensor.numel() > max(size // 16, FEW_NUMBERS):
            refuse(f"{where}, which is computed, is larger than its weights, which have {size} bytes")
        bounded(where, tensor)

    def buffer(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal computed
        if tensor is None:
            return
        computed += tensor.nbytes
        where = f"{type(module).__name__}.{name} {list(tensor.shape)}"
        if computed > size + FEW_BYTES:
            refuse(f"the model with {where}, which is computed, is larger than its weights, which have {size} bytes")
        bounded(where, tensor)

    def bounded(where: str, tensor: Tensor) -> None:
        if max(tensor.shape, default=0) > max(longest, MOST_POSITIONS):
            refuse(f"{where} is longer than all tensors of its weights and than {MOST_POSITIONS}")

    hooks = (
        nn.modules.module.register_module_parameter_registration_hook(parameter),
        nn.modules.module.register_module_buffer_registration_hook(buffer),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


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

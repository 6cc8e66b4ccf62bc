"""Load a checkpoint's model for prediction.

A checkpoint may be damaged, or made to do harm. So its model is first built without memory and compared with the
file of weights: names, shapes, and that the weights are finite. No option can make a model larger than its file.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sgdec.checkpoints.files import load_tensors
from sgdec.checkpoints.layout import CONFIG, WEIGHTS, find_checkpoint, load_vocabularies, read_config
from sgdec.checkpoints.quantised import SECTION, checkpoint_bounds
from sgdec.context import Plugins, Vocabularies
from sgdec.errors import SgdecError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.base import LanguageModel, Model, Seq2Seq
    from sgdec.models.kernels import Kernels

    AModel = TypeVar("AModel", bound=Model)

SPARE = 10_000
"""Limit on the parameters that a model may register beyond the tensors of its file, such as those that it ties."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp64": "float64"}
"""Precisions of weights, and torch's names for them."""


def load_model(
    path: str | Path,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    host: Plugins | None = None,
    joint: bool = False,
) -> tuple[Seq2Seq, Vocabularies]:
    """The translation model of a checkpoint, ready to predict, and its vocabularies.

    ``precision`` is that of the weights: fp32, bf16, fp64, or, on a CPU, int8 for a quantised checkpoint or a model
    that needs none (`Model.int8_by_row`). On a CPU weights are packed in all but fp64 (`Model.freeze`): they cannot
    be trained or changed. ``joint``: with `JointKernels`, so that sentences can share only matrix products. Raises
    `SgdecError`, naming the file, if a file is missing, damaged, of another kind or does not fit, and if weights are
    not finite.
    """
    from sgdec.models.base import Seq2Seq

    return _load(Seq2Seq, path, device, precision, host, joint)  # type: ignore[type-abstract]  # only compared


def load_language_model(
    path: str | Path,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    host: Plugins | None = None,
    joint: bool = False,
) -> tuple[LanguageModel, Vocabularies]:
    """`load_model` for the checkpoint of a language model, which cannot have 8 bits."""
    from sgdec.models.base import LanguageModel

    if precision == "int8":
        raise UsageError(f"{path}: a language model cannot be loaded in 8 bits. Give --precision fp32.")
    return _load(LanguageModel, path, device, precision, host, joint)  # type: ignore[type-abstract]  # only compared


def _load(
    kind: type[AModel], path: str | Path, device: str, precision: str, host: Plugins | None, joint: bool
) -> tuple[AModel, Vocabularies]:
    if precision not in (*DTYPES, "int8"):
        available = ", ".join([*DTYPES, "int8"])
        raise UsageError(f"a model cannot be loaded in precision {precision!r}. Available: {available}.")
    folder = find_checkpoint(path)
    config, vocabularies = read_config(folder), load_vocabularies(folder)
    if precision == "int8" and device != "cpu":
        raise UsageError(f"--precision int8 runs on a CPU only. Give --device cpu, not {device}.")
    if SECTION in config:
        if precision == "int8":
            return _of_kind(kind, _load_quantised(folder, config, host, joint), path), vocabularies
        raise SgdecError(f"{path}: this model is quantised. Give --precision int8, or the model that it was made of.")
    model = _of_kind(kind, stored_model(folder, config, host), path)
    if precision == "int8" and not model.int8_by_row:
        raise SgdecError(
            f"{folder}: --precision int8 needs a quantised model, which this is not. "
            f"Quantise it first: sgdec quantize {folder} --output FOLDER."
        )
    return make_ready(model, device=device, precision=precision, joint=joint), vocabularies


def _load_quantised(folder: Path, config: Mapping[str, Any], host: Plugins | None, joint: bool) -> Model:
    """The model of a quantised checkpoint, ready to predict; see `sgdec.checkpoints.quantised`."""
    from sgdec.models.quantisation import Int8Kernels

    bounds = checkpoint_bounds(config[SECTION], str(folder / CONFIG))
    model, tensors = outline(folder, config, host)  # the replaced parameters stay without memory
    products = {name: tensors.pop(name) for name in list(tensors) if name.startswith(model.replaced)}
    model.load_state_dict(tensors, strict=False, assign=True)
    freeze(model, Int8Kernels(products, bounds, str(folder / WEIGHTS)), joint=joint)
    return model.eval()


def make_ready(model: AModel, *, device: str, precision: str, joint: bool = False) -> AModel:
    """Prepare a model in floating point, with its weights, for prediction; arguments as in `load_model`."""
    import torch

    from sgdec.models.kernels import Kernels, RowKernels, packs

    model = model.to(device=device, dtype=getattr(torch, DTYPES.get(precision, "float32"))).eval()
    if device != "cpu":
        torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32: LSTMs would multiply with 10 bits of mantissa
        # PyTorch advises to arrange LSTMs for cuDNN, and does so itself in all types but bf16.
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
    if precision == "int8":
        freeze(model, RowKernels(), joint=joint)
    elif device == "cpu" and (precision == "fp32" or (precision == "bf16" and packs(torch.bfloat16))):
        freeze(model, Kernels(), joint=joint)
    return model


def _of_kind(kind: type[AModel], model: Model, path: str | Path) -> AModel:
    if not isinstance(model, kind):
        raise SgdecError(
            f"{path}: this is a {model.kind}, expected a {kind.kind}. Give another checkpoint, or another predictor."
        )
    return model


def freeze(model: Model, kernels: Kernels, *, joint: bool) -> None:
    """Call `Model.freeze`; with ``joint`` sentences can share products."""
    from sgdec.models.jointly import JointKernels

    model.kernels = JointKernels(kernels) if joint else kernels
    model.freeze(model.kernels)


def build_model(config: Mapping[str, Any], *, where: str, host: Plugins | None = None) -> Model:
    """The model that a config describes, with fresh weights. Raises `SgdecError` if it describes no valid model."""
    from sgdec.models.base import ModelContext
    from sgdec.plugins.host import Host, name_of, no_exit
    from sgdec.plugins.options import configure

    name = config["model"]
    try:
        cls = (host or Host()).load("model", name)
        options = configure(cls, config["options"], name=name_of(name))
        context = ModelContext(
            config["source_vocab_size"], config["target_vocab_size"], bool(config.get("shared", False))
        )
        with no_exit(name):
            model: Model = cls(context, **options)
    except UsageError as error:
        raise SgdecError(f"{where}: {error}") from None
    return model


def stored_model(folder: Path, config: Mapping[str, Any], host: Plugins | None = None) -> Model:
    """The model of a checkpoint that is not quantised, with its weights: processes share the pages of the file.

    Raises the errors of `outline`.
    """
    _, tensors = outline(folder, config, host)
    model = _build_untrusted(folder, config, host)
    weights = dict(model.named_parameters(remove_duplicate=False))
    for name in tensors.keys() & weights.keys():
        weights[name].data = tensors[name].to(weights[name].dtype)
    model.load_state_dict({name: tensors[name] for name in tensors.keys() - weights.keys()}, strict=False)
    return model


def outline(
    folder: Path, config: Mapping[str, Any], host: Plugins | None = None
) -> tuple[Model, dict[str, Tensor]]:
    """The model of a checkpoint without memory for its weights, and the tensors of its file, which fit the model.

    The tensors of quantised products have no counterpart in the model. Raises `SgdecError` if a file is missing or
    damaged, if the config describes no valid model, or another one than the weights.
    """
    from sgdec.models.shapes import TooManyParameters, shapes_only

    file = folder / WEIGHTS
    tensors = load_tensors(file)
    try:
        with shapes_only(len(tensors) + SPARE):
            model = _build_untrusted(folder, config, host)
    except TooManyParameters:
        raise SgdecError(
            f"{folder / CONFIG}: its options would make a model far larger than {WEIGHTS}. One of the two files is "
            "damaged."
        ) from None
    replaced = model.replaced if SECTION in config else ()
    rest = {name: tensor for name, tensor in tensors.items() if not name.startswith(replaced)}
    check_weights(model, rest, str(file), optional=replaced)
    return model, tensors


def _build_untrusted(folder: Path, config: Mapping[str, Any], host: Plugins | None) -> Model:
    """`build_model` for options that nobody has tried; no size is too large for an error in one line."""
    try:
        return build_model(config, where=str(folder / CONFIG), host=host)
    except (MemoryError, OverflowError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise SgdecError(
            f"{folder / CONFIG}: no model can be built from it ({type(error).__name__}: {reason})."
        ) from None


def load_weights(model: Model, file: Path) -> None:
    """Copy the weights of a safetensors file to a model. Raises the errors of `check_weights` and `load_tensors`."""
    tensors = load_tensors(file)
    check_weights(model, tensors, str(file))
    model.load_state_dict(tensors, strict=False)


def check_weights(
    model: Model, tensors: Mapping[str, Tensor], where: str, optional: tuple[str, ...] = ()
) -> None:
    """Raise SgdecError unless these are the weights of a model; those whose names begin with ``optional`` may be
    missing."""
    own = model.state_dict(keep_vars=True)
    for name, tensor in tensors.items():
        if name not in own:
            raise SgdecError(f"{where}: tensor {name} does not belong to this model. Is {CONFIG} of the same run?")
        if own[name].shape != tensor.shape:
            expected = "x".join(map(str, own[name].shape))
            raise SgdecError(f"{where}: tensor {name} is {'x'.join(map(str, tensor.shape))}, expected {expected}.")
        if not tensor.isfinite().all():
            raise SgdecError(f"{where}: tensor {name} holds NaN or infinite weights. Take an earlier checkpoint.")
    filled = {id(own[name]) for name in tensors}  # tied weights are one parameter under several names
    missing = [n for n, parameter in own.items() if id(parameter) not in filled and not n.startswith(optional)]
    if missing:
        raise SgdecError(f"{where}: tensor {missing[0]} is missing. Is {CONFIG} of the same run?")


def model_tensors(model: Model) -> dict[str, Tensor]:
    """The weights by name, as `load_weights` reads them; tied weights only once."""
    seen: set[int] = set()
    tensors = {}
    for name, parameter in model.state_dict(keep_vars=True).items():
        if id(parameter) not in seen:
            tensors[name] = parameter.detach().contiguous()
            seen.add(id(parameter))
    return tensors

"""Load a checkpoint's model for prediction.

A model's weights are checked before they are used: their names and shapes, and that they are finite.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sgdec.checkpoints.files import Stored, load_tensors, stored_in
from sgdec.checkpoints.layout import CONFIG, WEIGHTS, find_checkpoint, load_vocabularies, read_config
from sgdec.checkpoints.quantised import SECTION, checkpoint_bounds
from sgdec.context import Plugins, Vocabularies
from sgdec.errors import SgdecError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.base import LanguageModel, Model, Seq2Seq
    from sgdec.models.kernels import Kernels

    AModel = TypeVar("AModel", bound=Model)

SLACK = 4
"""Limit on the tensors and numbers of a model, as a multiple of those in its file: tied tables are stored once."""
MOST_UPDATES = 10_000_000
"""The limit on options that do not affect the size of the model, such as numbers of updates."""
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
    weights = folder / WEIGHTS
    model = _of_kind(kind, build_model(config, where=str(folder / CONFIG), host=host, weights=weights), path)
    if precision == "int8" and not model.int8_by_row:
        raise SgdecError(
            f"{folder}: --precision int8 needs a quantised model, which this is not. "
            f"Quantise it first: sgdec quantize {folder} --output FOLDER."
        )
    map_weights(model, weights)
    return make_ready(model, device=device, precision=precision, joint=joint), vocabularies


def _load_quantised(folder: Path, config: Mapping[str, Any], host: Plugins | None, joint: bool) -> Model:
    """The model of a quantised checkpoint, ready to predict; see `sgdec.checkpoints.quantised`."""
    import torch

    from sgdec.models.quantisation import Int8Kernels

    file = folder / WEIGHTS
    bounds = checkpoint_bounds(config[SECTION], str(folder / CONFIG))
    with torch.device("meta"):  # the replaced parameters stay on it, without memory
        model = build_model(config, where=str(folder / CONFIG), host=host, weights=file)
    tensors = load_tensors(file)
    products = {name for name in tensors if name.startswith(model.replaced)}
    fill(model, {name: tensor for name, tensor in tensors.items() if name not in products}, str(file), assign=True)
    freeze(model, Int8Kernels({name: tensors[name] for name in products}, bounds, str(file)), joint=joint)
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


def build_model(
    config: Mapping[str, Any], *, where: str, host: Plugins | None = None, weights: Path | None = None
) -> Model:
    """The model that a config describes, with fresh weights.

    ``weights`` is the file with its weights; if given, the config is untrusted, and its model must not be much larger
    than the file. Raises `SgdecError` if the config does not describe a valid model.
    """
    from sgdec.models.base import ModelContext
    from sgdec.plugins.host import Host, name_of, no_exit
    from sgdec.plugins.options import configure

    name = config["model"]
    stored = None if weights is None else stored_in(weights)
    try:
        cls = (host or Host()).load("model", name)
        options = configure(cls, config["options"], name=name_of(name))
        context = ModelContext(
            config["source_vocab_size"], config["target_vocab_size"], bool(config.get("shared", False))
        )
        if stored is not None:
            _require_sizes(options, stored)
        with no_exit(name), nullcontext() if stored is None else _at_most(stored):
            model: Model = cls(context, **options)
    except (UsageError, _TooLarge) as error:
        raise SgdecError(f"{where}: {error}") from None
    except (MemoryError, OverflowError, RuntimeError) as error:
        if weights is None:
            raise
        reason = str(error).partition("\n")[0]
        raise SgdecError(f"{where}: no model can be built from it ({type(error).__name__}: {reason}).") from None
    return model


class _TooLarge(Exception):
    def __init__(self, what: str = "its options") -> None:
        super().__init__(f"{what} would make a model far larger than {WEIGHTS}. One of the two files is damaged.")


def _require_sizes(options: Mapping[str, Any], stored: Stored) -> None:
    """Raises `_TooLarge` for an option larger than the number of all values in the model."""
    for name, value in options.items():
        if isinstance(value, int) and value > max(stored.numbers, MOST_UPDATES):
            raise _TooLarge(f"{name} {value}")


@contextmanager
def _at_most(stored: Stored) -> Iterator[None]:
    """Raises `_TooLarge` while a model is built if it has too many parameters, or too many numbers in them."""
    from torch import nn
    from torch.nn.modules.module import register_module_parameter_registration_hook

    parameters = numbers = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal parameters, numbers
        parameters += 1
        numbers += 0 if parameter is None else parameter.numel()
        if parameters > SLACK * stored.tensors or numbers > SLACK * stored.numbers:
            raise _TooLarge

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def load_weights(model: Model, file: Path) -> None:
    """Load a model's weights from a safetensors file. Raises the errors of `load_model`."""
    fill(model, load_tensors(file), str(file))


def map_weights(model: Model, file: Path) -> None:
    """`load_weights` without a copy, for models that only predict: processes share the pages of the file."""
    tensors = load_tensors(file)
    check_weights(model, tensors, str(file))
    weights = dict(model.named_parameters(remove_duplicate=False))
    for name in tensors.keys() & weights.keys():
        weights[name].data = tensors[name].to(weights[name].dtype)
    model.load_state_dict({name: tensors[name] for name in tensors.keys() - weights.keys()}, strict=False)


def fill(model: Model, tensors: Mapping[str, Tensor], where: str, *, assign: bool = False) -> None:
    """Give a model these weights; errors call them ``where``. Raises the errors of `load_model`.

    With ``assign`` the model uses the tensors without a copy, and those that `Model.replaced` names may be missing.
    """
    check_weights(model, tensors, where, optional=model.replaced if assign else ())
    model.load_state_dict(dict(tensors), strict=False, assign=assign)


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

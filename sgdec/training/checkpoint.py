"""Checkpoints: folders of safetensors, readable JSON and tokenizers; never a pickle.

    RUN/best -> step-1900          links, replaced in one operation
    RUN/last -> step-2000
    RUN/step-2000/model.safetensors      the weights
                  config.json            model, options, vocabulary sizes (a language model's source: 0),
                                         training settings, scores so far
                  tokenizer.spm          or source.spm and target.spm; source2.spm where two sources differ
                  metrics.jsonl          the log up to here
                  optimizer.safetensors  what training needs to go on
                  raw.safetensors        likewise, where model.safetensors is the moving average (--ema)
                  progress.json          likewise

A checkpoint is written beside the others under a name that nobody reads and takes its place when it is
complete: whatever interrupts the writing leaves the previous one intact.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sgdec.context import Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.text.two_sources import TwoSources
from sgdec.text.vocabulary import StoredVocabulary, load_vocabulary
from sgdec.training import sides

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.base import LanguageModel, Model, Seq2Seq
    from sgdec.models.kernels import Kernels
    from sgdec.plugins import Host

    AModel = TypeVar("AModel", bound=Model)

INTACT = "The checkpoint before it is intact."
FORMAT = 1
"""Of config.json; a reader refuses what it does not know."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp64": "float64"}
"""Precisions of weights, and torch's names for them."""
WEIGHTS, CONFIG, SHARED, SOURCE, SECOND, TARGET = (
    "model.safetensors", "config.json", "tokenizer.spm", "source.spm", "source2.spm", "target.spm",
)  # fmt: skip


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint folder behind a path: itself, or the best (else the last) of a run's folder.

    Raises `SgdecError` if there is none.
    """
    folder = Path(path)
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / CONFIG).is_file():
            return candidate
    if not folder.is_dir():
        raise SgdecError(f"{path}: no such folder. Expected a checkpoint, as `sgdec train` writes it.")
    raise SgdecError(
        f"{path}: this is no checkpoint, {CONFIG} is missing. Expected a folder that `sgdec train` wrote."
    )


def read_config(path: str | Path) -> dict[str, Any]:
    """The content of config.json. Raises `SgdecError` if it is missing, damaged or of another format."""
    folder = find_checkpoint(path)
    config = read_json(folder / CONFIG)
    if config.get("format") != FORMAT:
        raise SgdecError(f"{folder / CONFIG}: format {config.get('format')!r}, expected {FORMAT}. Use another sgdec.")
    missing = {"model", "options", "source_vocab_size", "target_vocab_size"} - config.keys()
    if missing:
        raise SgdecError(f"{folder / CONFIG}: {', '.join(sorted(missing))} missing. Train again, or copy it anew.")
    return config


def load_vocabularies(path: str | Path) -> Vocabularies:
    """The tokenizers of a checkpoint, one value twice if it is shared; a language model has no source's.

    Imports no torch. Raises `SgdecError` if a file is missing, damaged, or of another size than the model's
    vocabulary.
    """
    folder, config = find_checkpoint(path), read_config(path)
    names = [SHARED] if (folder / SHARED).exists() else [SOURCE, TARGET]
    if (folder / SECOND).exists():
        names.insert(1, SECOND)
    if not all((folder / name).exists() for name in names):
        raise SgdecError(f"{folder}: the tokenizer is missing: neither {SHARED} nor {SOURCE} and {TARGET}.")
    source, target = sides.arranged(
        [load_vocabulary(folder / name) for name in names],
        sources=config.get("sources", 1) if config["source_vocab_size"] else 0,
        right_left=bool(config.get("right_left")),
        steps=bool(config.get("steps")),
    )
    for side, vocabulary in (("source", source), ("target", target)):
        expected = config[f"{side}_vocab_size"]
        if vocabulary is not None and vocabulary.size != expected:
            raise SgdecError(f"{folder}: the {side} tokenizer has {vocabulary.size} pieces, the model {expected}.")
    return Vocabularies(source, target)


def load_model(
    path: str | Path,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    host: Host | None = None,
    joint: bool = False,
) -> tuple[Seq2Seq, Vocabularies]:
    """The translation model of a checkpoint, ready to predict, and its vocabularies.

    ``precision`` is that of the weights: fp32, bf16, fp64, or int8 for a quantised checkpoint (on a CPU). In fp32 on
    a CPU the weights are packed (`Model.freeze`): they cannot be trained or changed. ``joint``: with
    `JointKernels`, so that sentences can share products and nothing else. Raises `SgdecError`, naming the file, for
    whatever is missing, damaged, of another kind or does not fit, and for weights that are not finite.
    """
    from sgdec.models.base import Seq2Seq

    return _load(Seq2Seq, path, device, precision, host, joint)  # type: ignore[type-abstract]


def load_language_model(
    path: str | Path, *, device: str = "cpu", precision: str = "fp32", host: Host | None = None, joint: bool = False
) -> tuple[LanguageModel, Vocabularies]:
    """`load_model` for the checkpoint of a language model; there are none in 8 bits."""
    from sgdec.models.base import LanguageModel

    if precision == "int8":
        raise UsageError(f"{path}: a language model cannot be loaded in 8 bits. Give --precision fp32.")
    return _load(LanguageModel, path, device, precision, host, joint)  # type: ignore[type-abstract]


def _load(
    kind: type[AModel], path: str | Path, device: str, precision: str, host: Host | None, joint: bool
) -> tuple[AModel, Vocabularies]:
    if precision not in (*DTYPES, "int8"):
        available = ", ".join([*DTYPES, "int8"])
        raise UsageError(f"a model cannot be loaded in precision {precision!r}. Available: {available}.")
    folder = find_checkpoint(path)
    config, vocabularies = read_config(folder), load_vocabularies(folder)
    if precision == "int8":
        from sgdec.training.quantise import load_quantised

        if device != "cpu":
            raise UsageError(f"--precision int8 runs on a CPU only. Give --device cpu, not {device}.")
        return _of_kind(kind, load_quantised(folder, config, host=host, joint=joint), path), vocabularies
    if "quantised" in config:
        raise SgdecError(f"{path}: this model is quantised. Give --precision int8, or the model that it was made of.")
    model = _of_kind(kind, build_model(config, where=str(folder / CONFIG), host=host), path)
    load_weights(model, folder / WEIGHTS)
    return make_ready(model, device=device, precision=precision, joint=joint), vocabularies


def make_ready(model: AModel, *, device: str, precision: str, joint: bool = False) -> AModel:
    """A model that has its weights, made such that it can predict; arguments as in `load_model`, without int8."""
    import torch

    from sgdec.models.kernels import Kernels

    model = model.to(device=device, dtype=getattr(torch, DTYPES[precision])).eval()
    if device == "cpu" and precision == "fp32":
        freeze(model, Kernels(), joint=joint)
    return model


def _of_kind(kind: type[AModel], model: Model, path: str | Path) -> AModel:
    if not isinstance(model, kind):
        raise SgdecError(
            f"{path}: this is a {model.kind}, expected a {kind.kind}. Give another checkpoint, or another predictor."
        )
    return model


def freeze(model: Model, kernels: Kernels, *, joint: bool) -> None:
    """`Model.freeze`, such that sentences can share products if ``joint``."""
    from sgdec.models.jointly import JointKernels

    model.kernels = JointKernels(kernels) if joint else kernels
    model.freeze(model.kernels)


def build_model(config: Mapping[str, Any], *, where: str, host: Host | None = None) -> Model:
    """The model that a config describes, with fresh weights."""
    from sgdec.models.base import ModelContext
    from sgdec.options import configure
    from sgdec.plugins import Host

    name = config["model"]
    cls = (host or Host()).load("model", name)
    try:
        options = configure(cls, config["options"], name=name)
        context = ModelContext(
            config["source_vocab_size"], config["target_vocab_size"], bool(config.get("shared", False))
        )
        model: Model = cls(context, **options)
    except UsageError as error:
        raise SgdecError(f"{where}: {error}") from None
    return model


def load_weights(model: Model, file: Path) -> None:
    """Fill a model from a safetensors file. Raises `SgdecError` as `load_model` says."""
    fill(model, load_tensors(file), str(file))


def fill(model: Model, tensors: Mapping[str, Tensor], where: str, *, assign: bool = False) -> None:
    """Give a model these weights; ``where`` names them in errors. Raises `SgdecError` as `load_model` says.

    With ``assign`` the tensors become the model's own, and those that `Model.replaced` names may be missing.
    """
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
    optional = model.replaced if assign else ()
    missing = [n for n, parameter in own.items() if id(parameter) not in filled and not n.startswith(optional)]
    if missing:
        raise SgdecError(f"{where}: tensor {missing[0]} is missing. Is {CONFIG} of the same run?")
    model.load_state_dict(dict(tensors), strict=False, assign=assign)


def model_tensors(model: Model) -> dict[str, Tensor]:
    """The weights by name, tied ones once, as `load_weights` takes them."""
    seen: set[int] = set()
    tensors = {}
    for name, parameter in model.state_dict(keep_vars=True).items():
        if id(parameter) not in seen:
            tensors[name] = parameter.detach().contiguous()
            seen.add(id(parameter))
    return tensors


def save_vocabularies(folder: Path, source: StoredVocabulary | None, target: StoredVocabulary) -> None:
    """Write one tokenizer, of a language model or shared, or two. The direction is for the config to say."""
    if source is None or sides.same_pieces(source, target):
        (folder / SHARED).write_bytes(target.serialized)
    else:
        (folder / SOURCE).write_bytes(source.serialized)
        (folder / TARGET).write_bytes(target.serialized)
    if isinstance(source, TwoSources) and not source.shared:
        (folder / SECOND).write_bytes(source.second.serialized)


def save_checkpoint(
    run: Path, name: str, write: Callable[[Path], None], links: tuple[str, ...], *, keep: int = 0
) -> None:
    """Make ``run/name`` a complete folder with what ``write`` puts there, then point ``links`` at it.

    Folders of earlier steps that no link points at any more are removed, but for the ``keep`` latest. Raises
    `SgdecError` if the disk is full or cannot be written; links then still point where they did.
    """
    final = run / name
    write_folder(final, write)
    try:
        for link in links:
            fresh = run / f".{link}.partial"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(name)
            fresh.replace(run / link)
        _flush(run)
    except OSError as error:
        raise _unwritten(final, error) from None
    used = {entry.resolve() for entry in run.iterdir() if entry.is_symlink()}
    steps = step_folders(run)
    for folder in [*steps[: max(0, len(steps) - keep)], *run.glob(".step-*.partial")]:
        if folder.resolve() not in used:
            shutil.rmtree(folder, ignore_errors=True)


def step_folders(run: Path) -> list[Path]:
    """The complete checkpoints of a run, in the order of their steps."""
    steps = [folder for folder in run.glob("step-*") if folder.name.removeprefix("step-").isdecimal()]
    return sorted(steps, key=lambda folder: int(folder.name.removeprefix("step-")))


def require_new(folder: Path) -> None:
    """Raises `UsageError` if there is something already where a command is to write."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output {folder}: there is something already. Give a new folder.")


def write_folder(final: Path, write: Callable[[Path], None], *, advice: str = INTACT) -> None:
    """Make ``final`` a complete folder with what ``write`` puts there, in place of one that may be there.

    Raises `SgdecError` if the disk is full or cannot be written; what was there is then left as it was.
    """
    from safetensors import SafetensorError

    partial = final.parent / f".{final.name}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write(partial)
        _flush(*partial.iterdir(), partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        _flush(final.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, (OSError, SafetensorError)):
            raise _unwritten(final, error, advice) from None
        raise


def _unwritten(final: Path, error: Exception, advice: str = INTACT) -> SgdecError:
    reason = getattr(error, "strerror", None) or str(error)
    return SgdecError(f"{final}: cannot be written ({reason}). {advice}")


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().cpu() for name, tensor in tensors.items()}, file)


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file; `SgdecError` if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except FileNotFoundError:
        raise SgdecError(f"{file}: no such file. The checkpoint is incomplete; copy the whole folder.") from None
    except (SafetensorError, OSError) as error:
        raise SgdecError(f"{file}: the tensor file is damaged ({error}). Copy it anew or train again.") from None


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; `SgdecError` if it is missing or damaged."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SgdecError(f"{file}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise SgdecError(f"{file}: this is not JSON ({error}).") from None
    if not isinstance(value, dict):
        raise SgdecError(f"{file}: expected a JSON object.")
    return value


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object, readable."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flush(*paths: Path) -> None:
    """Have files, and the names in folders, on the disk before anything else happens."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""Quantised checkpoints: like others (`sgdec.training.checkpoint`), but for

    model.safetensors    8-bit weights and their scales in place of those that the products need
    config.json          ``quantised``: ``bounds``, the range of each product's inputs, and ``from``, the original

They load in precision int8 only, on a CPU; others never load in int8.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import Model, Seq2Seq
from sgdec.models.quantisation import Int8Kernels, Quantised, quantise
from sgdec.plugins import Host
from sgdec.text.vocabulary import StoredVocabulary
from sgdec.training import checkpoint, files, loading
from sgdec.training.data import ParallelText

SECTION = "quantised"
"""The key of config.json that only these checkpoints have."""
CALIBRATION_LINES = 1000
"""At most so many pairs are looked at to measure ranges."""


def quantise_checkpoint(
    path: str | Path, output: str | Path, *, text: tuple[str, str] | None = None, host: Host | None = None
) -> Quantised:
    """Write the 8-bit twin of a checkpoint to a new folder, and return what it holds.

    ``text``: source and target file on which ranges are measured where the model does not know them. Raises
    `SgdecError` and `UsageError` for what is missing, damaged, in the way or not possible.
    """
    folder, config, final = checkpoint.find_checkpoint(path), checkpoint.read_config(path), Path(output)
    if SECTION in config:
        raise UsageError(f"{folder}: this model is quantised already. Give the model that it was made of.")
    files.require_new(final)
    vocabularies = checkpoint.load_vocabularies(folder)
    source, target = (cast(StoredVocabulary, vocabulary) for vocabulary in vocabularies)
    weights = folder / checkpoint.WEIGHTS
    model = loading.build_model(config, where=str(folder / checkpoint.CONFIG), host=host, weights=weights).eval()
    if not isinstance(model, Seq2Seq):
        raise UsageError(f"{folder}: this is a {model.kind}; only translation models can be quantised.")
    loading.load_weights(model, weights)
    data = None if text is None else ParallelText.read(text, source, target)
    quantised = quantise(model, None if data is None else lambda frozen: run(frozen, data))

    def write(partial: Path) -> None:
        files.save_tensors(partial / checkpoint.WEIGHTS, {**quantised.tensors, **quantised.rest})
        checkpoint.save_vocabularies(partial, source, target)
        section = {"bounds": quantised.bounds, "from": str(path)}
        files.write_json(partial / checkpoint.CONFIG, {**config, SECTION: section})

    files.write_folder(final, write)
    return quantised


def load_quantised(
    folder: Path,
    config: Mapping[str, Any],
    *,
    host: Host | None = None,
    joint: bool = False,
) -> Model:
    """The model of a quantised checkpoint, ready to predict; ``joint`` as in `loading.load_model`.

    Raises `SgdecError`, naming the file.
    """
    file = folder / checkpoint.WEIGHTS
    if SECTION not in config:
        raise SgdecError(
            f"{folder}: --precision int8 needs a quantised model, which this is not. "
            f"Quantise it first: sgdec quantize {folder} --output FOLDER."
        )
    bounds = checkpoint_bounds(config[SECTION], str(folder / checkpoint.CONFIG))
    with torch.device("meta"):  # the replaced parameters stay there, without memory
        model = loading.build_model(config, where=str(folder / checkpoint.CONFIG), host=host, weights=file)
    tensors = files.load_tensors(file)
    products = {name for name in tensors if name.startswith(model.replaced)}
    rest = {name: tensor for name, tensor in tensors.items() if name not in products}
    loading.fill(model, rest, str(file), assign=True)
    kernels = Int8Kernels({name: tensors[name] for name in products}, bounds, str(file))
    loading.freeze(model, kernels, joint=joint)
    return model.eval()


def checkpoint_bounds(section: Any, where: str) -> dict[str, float]:
    """The bounds by product. Raises `SgdecError` if there are none, or other things than numbers."""
    bounds = section.get("bounds") if isinstance(section, dict) else None
    if not isinstance(bounds, dict) or not all(isinstance(bound, (int, float)) for bound in bounds.values()):
        raise SgdecError(f"{where}: {SECTION} holds no bounds. Quantise the model again.")
    return bounds


@torch.inference_mode()
def run(model: Seq2Seq, data: ParallelText) -> None:
    """Predict some targets step by step."""
    seen = 0
    for pairs in data.batches(1024):
        batch = data.batch(pairs)
        model.project(Seq2Seq.forward(model, *batch.inputs)[batch.mask])
        seen += len(pairs)
        if seen >= CALIBRATION_LINES:
            break

"""Makes quantised checkpoints (`sgdec.checkpoints.quantised`); measures value ranges on text if necessary."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch

from sgdec.checkpoints import files, layout, loading
from sgdec.checkpoints.quantised import SECTION
from sgdec.errors import UsageError
from sgdec.models.base import Seq2Seq
from sgdec.models.quantisation import Quantised, quantise
from sgdec.plugins.host import Host
from sgdec.text.vocabulary import StoredVocabulary
from sgdec.training.data.text import ParallelText

CALIBRATION_LINES = 1000
"""Ranges are measured on about this many pairs at most."""


def quantise_checkpoint(
    path: str | Path, output: str | Path, *, text: tuple[str, str] | None = None, host: Host | None = None
) -> Quantised:
    """Write the 8-bit version of a checkpoint to a new folder, and return its contents.

    ``text``: source and target file to measure the ranges of values that the model does not bound. Raises
    `SgdecError` if a file is missing or damaged, `UsageError` if the model cannot be quantised or ``output`` exists.
    """
    folder, config, final = layout.find_checkpoint(path), layout.read_config(path), Path(output)
    if SECTION in config:
        raise UsageError(f"{folder}: this model is quantised already. Give the model that it was made from.")
    files.require_new(final)
    vocabularies = layout.load_vocabularies(folder)
    source, target = (cast(StoredVocabulary, vocabulary) for vocabulary in vocabularies)
    model = loading.stored_model(folder, config, host).eval()
    if not isinstance(model, Seq2Seq):
        raise UsageError(f"{folder}: this is a {model.kind}; only translation models can be quantised.")
    data = None if text is None else ParallelText.read(text, source, target)
    quantised = quantise(model, None if data is None else lambda frozen: run(frozen, data))

    def write(partial: Path) -> None:
        files.save_tensors(partial / layout.WEIGHTS, {**quantised.tensors, **quantised.rest})
        layout.save_vocabularies(partial, source, target)
        section = {"bounds": quantised.bounds, "from": str(path)}
        files.write_json(partial / layout.CONFIG, {**config, SECTION: section})

    files.write_folder(final, write)
    return quantised


@torch.inference_mode()
def run(model: Seq2Seq, data: ParallelText) -> None:
    """Predict the targets of about `CALIBRATION_LINES` pairs step by step, as decoding does."""
    seen = 0
    for pairs in data.batches(1024):
        batch = data.batch(pairs)
        model.project(Seq2Seq.forward(model, *batch.inputs)[batch.mask])
        seen += len(pairs)
        if seen >= CALIBRATION_LINES:
            break

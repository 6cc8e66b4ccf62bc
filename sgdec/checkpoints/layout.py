"""The layout of checkpoints: folders of safetensors, readable JSON and tokenizers; no pickles.

    RUN/best -> step-1900          links, replaced in one operation
    RUN/last -> step-2000
    RUN/step-2000/model.safetensors      the weights
                  config.json            model, options, vocabulary sizes (a language model's source: 0),
                                         training settings, scores so far
                  tokenizer.spm          or source.spm and target.spm; source2.spm where two sources differ
                  metrics.jsonl          the log up to here
                  optimizer.safetensors  state that resumed training needs
                  raw.safetensors        likewise, if model.safetensors is the moving average (--ema)
                  progress.json          likewise

A checkpoint is written under a temporary name and renamed when it is complete, so an interruption leaves the previous
one intact.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgdec.checkpoints.files import read_json, settle, unwritten, write_folder
from sgdec.checkpoints.links import linked, point
from sgdec.context import Vocabularies
from sgdec.errors import SgdecError
from sgdec.io.descriptors import flush
from sgdec.io.limits import TOKENS, whole_number
from sgdec.text import sides
from sgdec.text.two_sources import TwoSources
from sgdec.text.vocabulary import StoredVocabulary, load_trained

FORMAT = 1
"""The version of config.json; a reader refuses unknown versions."""

WEIGHTS, CONFIG, SHARED, SOURCE, SECOND, TARGET = (
    "model.safetensors", "config.json", "tokenizer.spm", "source.spm", "source2.spm", "target.spm",
)  # fmt: skip
LOADED = (WEIGHTS, CONFIG, SHARED, SOURCE, SECOND, TARGET)
"""The files that a model is loaded from; the rest of a checkpoint is for resuming training."""


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint that a path names: the folder itself, or the best (otherwise the last) checkpoint of a run's
    folder.

    Raises `SgdecError` if there is none.
    """
    folder = Path(path)
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / CONFIG).is_file():
            return candidate
    if not folder.is_dir():
        raise SgdecError(f"{path}: no such folder. Expected a checkpoint, as `sgdec train` writes it.")
    raise SgdecError(
        f"{path}: this is not a checkpoint, {CONFIG} is missing. Expected a folder that `sgdec train` wrote."
    )


def read_config(path: str | Path) -> dict[str, Any]:
    """The content of config.json. Raises `SgdecError` if it is missing, damaged or has another format."""
    folder = find_checkpoint(path)
    config = read_json(folder / CONFIG)
    if config.get("format") != FORMAT:
        raise SgdecError(f"{folder / CONFIG}: format {config.get('format')!r}, expected {FORMAT}. Use another sgdec.")
    missing = {"model", "options", "source_vocab_size", "target_vocab_size"} - config.keys()
    if missing:
        raise SgdecError(f"{folder / CONFIG}: {', '.join(sorted(missing))} missing. Train again, or copy it again.")
    for key, fits in KEYS.items():
        if key in config and not fits(config[key]):
            raise SgdecError(f"{folder / CONFIG}: {key} is {config[key]!r}. The file is damaged; copy it again.")
    return config


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < TOKENS


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


KEYS: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: isinstance(value, str),
    "options": lambda value: isinstance(value, dict),
    "source_vocab_size": _is_size,
    "target_vocab_size": _is_size,
    "sources": lambda value: type(value) is int and 0 <= value <= 2,
    "shared": _is_flag,
    "right_left": _is_flag,
    "steps": _is_flag,
}
"""The entries of config.json about the model, and the types of their values."""


def load_vocabularies(path: str | Path) -> Vocabularies:
    """The tokenizers of a checkpoint; a shared one is both source and target, and a language model has no source
    tokenizer.

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
        [load_trained(folder / name) for name in names],
        sources=config.get("sources", 1) if config["source_vocab_size"] else 0,
        right_left=bool(config.get("right_left")),
        steps=bool(config.get("steps")),
    )
    for side, vocabulary in (("source", source), ("target", target)):
        expected = config[f"{side}_vocab_size"]
        if vocabulary is not None and vocabulary.size != expected:
            raise SgdecError(f"{folder}: the {side} tokenizer has {vocabulary.size} pieces, the model {expected}.")
    return Vocabularies(source, target)


def save_vocabularies(folder: Path, source: StoredVocabulary | None, target: StoredVocabulary) -> None:
    """Write one tokenizer, shared or of a language model, or two. The direction is stored in config.json."""
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
    """Make ``run/name`` a complete folder with the files that ``write`` creates, then point ``links`` at it, in
    order.

    The link that a resumed run uses comes last: if the process is killed between two links, the run repeats the step,
    and makes this folder again. Folders of earlier steps without a link are removed, except the ``keep`` latest.
    Raises `SgdecError` if the disk is full or cannot be written; links are then unchanged.
    """
    final = run / name
    write_folder(final, write)
    try:
        for link in links:
            point(run / link, name)
        flush(run)
    except OSError as error:
        raise unwritten(final, error) from None
    used = linked(run)
    steps = step_folders(run)
    for before in run.glob(".step-*.before"):  # left by a process that was killed while it replaced a folder
        settle(run / before.name.removeprefix(".").removesuffix(".before"))
    for folder in [*steps[: max(0, len(steps) - keep)], *run.glob(".step-*.partial")]:
        if folder.resolve() not in used:
            shutil.rmtree(folder, ignore_errors=True)


def step_folders(run: Path) -> list[Path]:
    """The complete checkpoints of a run, in the order of their steps."""
    steps = ((whole_number(folder.name.removeprefix("step-"), 1 << 63), folder) for folder in run.glob("step-*"))
    return [folder for _, folder in sorted((step, folder) for step, folder in steps if step is not None)]

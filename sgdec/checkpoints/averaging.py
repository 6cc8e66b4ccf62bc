"""Checkpoint averaging: one model whose weights are the mean of several models' weights, usually the last ones of a
run.

    theta = 1/n sum_i theta_i                                          (Vaswani et al. 2017, section 6.1)

The mean is computed in double precision. All checkpoints must be the same function of their weights: different
architectures, vocabularies or directions are refused. Stored data that is not learnt comes from the last checkpoint
given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sgdec.checkpoints import files, layout, loading
from sgdec.checkpoints.quantised import SECTION
from sgdec.errors import UsageError
from sgdec.plugins.host import Host

SAME = ("model", "source_vocab_size", "target_vocab_size", "shared", "right_left", "sources", "steps", "options")
"""Keys of config.json."""
KEPT = (*SAME, "format")
SOURCES = "averaged"
"""The key of config.json that names the checkpoints."""
ONE_MODEL = "Only checkpoints of one model have an average."


def average_checkpoints(
    paths: Sequence[str | Path], output: str | Path, *, last: int = 0, host: Host | None = None
) -> list[Path]:
    """Write the mean of checkpoints to a new folder; return the folders of these checkpoints.

    ``paths`` are checkpoints, and folders of runs, which stand for all checkpoints in them, or for the ``last``
    latest ones if ``last`` is not 0. Raises `UsageError` or `SgdecError` if there are fewer than two checkpoints, if
    models differ, if a file is missing or damaged, and if the new folder exists.
    """
    final, folders = Path(output), list(dict.fromkeys(f for path in paths for f in _checkpoints(Path(path), last)))
    files.require_new(final)
    if len(folders) < 2:
        raise UsageError(
            f"{folders[0]} is one checkpoint, and an average takes two. Give more, or train with --keep: a run holds "
            "only its best and its last otherwise."
        )
    configs = [layout.read_config(folder) for folder in folders]
    vocabularies = [layout.load_vocabularies(folder) for folder in folders]
    for folder, config, (source, target) in zip(folders, configs, vocabularies, strict=True):
        _refuse_different(folders[0], configs[0], folder, config)
        for side, own, first in (("source", source, vocabularies[0][0]), ("target", target, vocabularies[0][1])):
            if own is not None and first is not None and own.fingerprint != first.fingerprint:
                raise UsageError(f"{folder}: its {side} tokenizer is not that of {folders[0]}. {ONE_MODEL}")
    tensors = _mean(folders, configs[0], host)

    def write(partial: Path) -> None:
        files.save_tensors(partial / layout.WEIGHTS, tensors)
        for name in (layout.SHARED, layout.SOURCE, layout.SECOND, layout.TARGET):
            if (folders[0] / name).exists():
                (partial / name).write_bytes((folders[0] / name).read_bytes())
        kept = {key: configs[0][key] for key in KEPT if key in configs[0]}
        files.write_json(partial / layout.CONFIG, {**kept, SOURCES: [str(folder) for folder in folders]})

    files.write_folder(final, write)
    return folders


def _checkpoints(path: Path, last: int) -> list[Path]:
    """The folders that an argument stands for. Links are followed, so that no checkpoint counts twice."""
    steps = [] if (path / layout.CONFIG).is_file() else layout.step_folders(path)
    return [folder.resolve() for folder in steps[-last:] or [layout.find_checkpoint(path)]]


def _refuse_different(first: Path, expected: Mapping[str, Any], folder: Path, config: Mapping[str, Any]) -> None:
    if SECTION in config:
        raise UsageError(f"{folder}: this model is quantised. Average before you quantise.")
    for key in SAME:
        before, now = expected.get(key, False), config.get(key, False)
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            said = {option: (_value(before, option), _value(now, option)) for option in {**before, **now}}
            different = {option: values for option, values in said.items() if values[0] != values[1]}
            key, (before, now) = next(iter(different.items()), (key, (before, now)))
        name = key if key.isidentifier() else repr(key)
        raise UsageError(f"{folder}: {name} is {now}, but {before} in {first}. {ONE_MODEL}")


def _value(options: Mapping[str, Any], name: str) -> str:
    return repr(options[name]) if name in options else "absent"


def _mean(folders: Sequence[Path], config: Mapping[str, Any], host: Host | None) -> dict[str, Tensor]:
    """The averaged weights, in their stored precision."""
    sums: dict[str, Tensor] = {}
    for folder in folders:
        model, tensors = loading.outline(folder, config, host)
        for name in tensors.keys() & dict(model.named_parameters()).keys():
            sums[name] = sums.get(name, 0.0) + tensors[name].double()
    return {
        name: (sums[name] / len(folders)).to(tensor.dtype) if name in sums else tensor
        for name, tensor in tensors.items()
    }

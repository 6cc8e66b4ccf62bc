"""Starting a run from the weights of another, to refine it with another objective, text or learning rate.

The model must compute the same function of the same weights: the same kind, options, vocabularies and direction.
Dropout options are not part of this function and may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.checkpoints import layout, loading
from sgdec.checkpoints.averaging import SAME
from sgdec.checkpoints.quantised import SECTION
from sgdec.context import Vocabularies
from sgdec.errors import UsageError
from sgdec.plugins.options import describe

if TYPE_CHECKING:
    from sgdec.models.base import Model
    from sgdec.plugins.host import Host


def config_of(path: str | Path, *, resumed: str | Path | None = None, host: Host | None = None) -> dict[str, Any]:
    """The config of the checkpoint ``path``, or of the last checkpoint of the ``resumed`` run if it has one.

    Raises `SgdecError` if there is no checkpoint, or its config does not fit its weights.
    """
    last = None if resumed is None else Path(resumed) / "last"
    folder = layout.find_checkpoint(last if last is not None and last.exists() else path)
    config = layout.read_config(folder)
    loading.outline(folder, config, host)  # a new model is built without that check
    return config


def start_from(path: str | Path, model: Model, config: Mapping[str, Any], vocabularies: Vocabularies) -> None:
    """Load the weights of a checkpoint into a new model. ``config``: the model's part of config.json.

    Raises `UsageError`, listing all differences, if the checkpoint is of another model; `SgdecError` for files that
    are missing or damaged.
    """
    folder = layout.find_checkpoint(path)
    earlier = layout.read_config(folder)
    if SECTION in earlier:
        raise UsageError(f"--start-from {path}: this model is quantised. Start from the one that it was made from.")
    differences = _differences(earlier, config, {option.name: option.default for option in describe(type(model))})
    different = [f"{name} is {before} there, here {now}" for name, before, now in differences]
    if different:
        raise UsageError(f"--start-from {path}: {'; '.join(different)}. The weights fit only the same model.")
    stored = layout.load_vocabularies(folder)
    for side, before, now in zip(("source", "target"), stored, vocabularies, strict=True):
        if now is not None and (before is None or before.fingerprint != now.fingerprint):
            raise UsageError(f"--start-from {path}: its {side} tokenizer is another. Give that one to --tokenizer.")
    loading.load_weights(model, folder / layout.WEIGHTS)


def _differences(
    earlier: Mapping[str, Any], config: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Name, value in ``earlier`` and value in ``config`` of each difference.

    Options are compared only between models of the same kind; an option that is not stored has its default.
    """
    for name in SAME:
        before, now = earlier.get(name, False), config.get(name, False)
        if name != "options":
            if before != now:
                yield name, before, now
        elif earlier["model"] == config["model"]:
            before, now = {**defaults, **before}, {**defaults, **now}
            for option in [*now, *(before.keys() - now.keys())]:
                if "dropout" not in option and before.get(option) != now.get(option):
                    yield f"{config['model']}.{option}", before.get(option), now.get(option)

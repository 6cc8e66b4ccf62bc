"""A run that starts from the weights of another: for refinement by another objective, on other text, at other rates.

The model must be the same function of the same weights: its kind, options, vocabularies and direction. Options of
dropout are not part of the function and may be others.
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
    """The config of a checkpoint, which says what the model is; of a run to be ``resumed``, the one it has by now.

    Raises `SgdecError` if there is no checkpoint, or its config is not that of its weights.
    """
    last = None if resumed is None else Path(resumed) / "last"
    folder = layout.find_checkpoint(last if last is not None and last.exists() else path)
    config = layout.read_config(folder)
    # Built once and discarded, to check its sizes against these weights: a new model is built without that check.
    loading.build_model(config, where=str(folder / layout.CONFIG), host=host, weights=folder / layout.WEIGHTS)
    return config


def start_from(path: str | Path, model: Model, config: Mapping[str, Any], vocabularies: Vocabularies) -> None:
    """Give a new model, which ``config`` describes as config.json does, the weights of a checkpoint.

    Raises `UsageError` with every difference if it is another model, `SgdecError` for what is missing or damaged.
    """
    folder = layout.find_checkpoint(path)
    earlier = layout.read_config(folder)
    if SECTION in earlier:
        raise UsageError(f"--start-from {path}: this model is quantised. Start from the one that it was made of.")
    differences = _differences(earlier, config, {option.name: option.default for option in describe(type(model))})
    different = [f"{name} is {before} there, here {now}" for name, before, now in differences]
    if different:
        raise UsageError(f"--start-from {path}: {'; '.join(different)}. Weights are of use to the same model only.")
    stored = layout.load_vocabularies(folder)
    for side, before, now in zip(("source", "target"), stored, vocabularies, strict=True):
        if now is not None and (before is None or before.fingerprint != now.fingerprint):
            raise UsageError(f"--start-from {path}: the {side} tokenizer is not the one here. Give that --tokenizer.")
    loading.load_weights(model, folder / layout.WEIGHTS)


def _differences(
    earlier: Mapping[str, Any], config: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Name, value there and value here; options only of models of one kind, those not stored being ``defaults``."""
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

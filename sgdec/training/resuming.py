"""May a run be taken up? Only as what it was: a difference that would change its numbers is refused, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgdec.context import Vocabularies
from sgdec.errors import UsageError
from sgdec.training import checkpoint
from sgdec.training.config import DEFAULTS, TrainConfig
from sgdec.training.data import Text

TEXT = "training_text"
"""The key of config.json that holds `Text.fingerprint`."""


def earlier_config(folder: Path, resume: bool) -> dict[str, Any]:
    """What a run's folder holds: nothing for a new run, the config of the last checkpoint for one to be resumed.

    Raises `UsageError` where it should be the other way round.
    """
    last = folder / "last"
    if not resume:
        if last.exists():
            raise UsageError(f"{folder} holds a run already. Go on with it: --resume, or give another --output.")
        return {}
    if not last.exists():
        raise UsageError(f"--resume: {folder} holds no checkpoint yet. Start without --resume.")
    return checkpoint.read_config(last)


def refuse_other_settings(config: TrainConfig, earlier: Mapping[str, Any]) -> None:
    """Raises `UsageError` with every setting that may not change and did."""
    changed = list(_differences(config, earlier.get("training", {})))
    if changed:
        (name, before, now), *rest = changed
        others = "".join(f"; {name} was {before}, now {now}" for name, before, now in rest)
        raise UsageError(
            f"--resume: {name} was {before} in {config.output}, now it is {now}{others}. "
            "Give the same settings, or another --output."
        )


def _differences(config: TrainConfig, earlier: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, earlier and present value; of the same model's options, each by itself."""
    for name in config.differences(earlier):
        before, now = earlier.get(name, DEFAULTS.get(name)), getattr(config, name)
        if name != "options":
            yield name, before, now
        elif earlier.get("model") == config.model:
            for option in [*now, *sorted(before.keys() - now.keys())]:
                if before.get(option) != now.get(option):
                    yield f"{config.model}.{option}", before.get(option), now.get(option)


def refuse_other_text(
    config: TrainConfig, earlier: Mapping[str, Any], vocabularies: Vocabularies, data: Text
) -> None:
    """Raises `UsageError` if a tokenizer or the training text is another; only the paths of files may change."""
    folder = Path(config.output)
    stored = checkpoint.load_vocabularies(folder / "last")
    for side, before, now in (
        ("source", stored.source, vocabularies.source),
        ("target", stored.target, vocabularies.target),
    ):
        if now is not None and (before is None or before.fingerprint != now.fingerprint):
            raise UsageError(f"--resume: the {side} tokenizer is not the one of {folder}. Give that one again.")
    text = earlier.get(TEXT, data.fingerprint)  # sgdec once stored none
    if text != data.fingerprint:
        raise UsageError(
            f"--resume: the training text is not the one of {folder}: it was {text}, now it is {data.fingerprint}. "
            "Give the same text (in shards: also the same --shard-tokens), or another --output."
        )

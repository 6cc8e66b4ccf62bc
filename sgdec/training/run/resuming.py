"""Refuses to resume a run with settings that would change its results; the error names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args

from sgdec.checkpoints import layout
from sgdec.context import Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.threads import set_by_user, usable_cores
from sgdec.training.config import DEFAULTS, Metric, TrainConfig
from sgdec.training.data.text import Text
from sgdec.training.data.workspace import WORKSPACE, Workspace

TEXT, VALID = "training_text", "validation_text"
"""The keys of config.json that hold `Text.fingerprint`."""


CHANGEABLE = frozenset(
    {
        "epochs",
        "max_steps",
        "patience",
        "validate_every",
        "save_every",
        "keep",
        "bleu",
        "cooldown",
        "device",
        "compile",
        "parallel",
        "shard_tokens",
        "threads",
        "token_weights",
    }
)
"""The settings that a resumed run may change. The contents of files are compared separately."""

PATHS = frozenset(
    {
        "train",
        "valid",
        "tokenizer",
        "output",
        "start",
        "start_decoder",
        "embeddings_source",
        "embeddings_target",
        "embeddings_output",
    }
)
"""Files that may have moved when the run is resumed; but a file may not be added or left out."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and abs(value) < 1e300


def _is_workspace(value: object) -> bool:
    """Whether the fields of a `Workspace` are finite numbers."""
    if not isinstance(value, dict) or set(value) != set(Workspace._fields) or not isinstance(value["terms"], list):
        return False
    numbers = [value["room"], value["floor"], *value["terms"], value["ranks"]]
    return type(value["ranks"]) is int and value["ranks"] > 0 and all(map(_is_finite, numbers))


KEYS: dict[str, Callable[[Any], bool]] = {
    "step": lambda value: type(value) is int and value >= 0,
    "precision": lambda value: isinstance(value, str),
    "threads": lambda value: type(value) is int and value > 0,
    TEXT: lambda value: isinstance(value, str),
    VALID: lambda value: isinstance(value, str),
    "training": lambda value: isinstance(value, dict) and isinstance(value.get("options", {}), dict),
    WORKSPACE: _is_workspace,
    **dict.fromkeys(get_args(Metric), _is_number),
}
"""The entries of config.json about the run, and the types of their values."""


def earlier_config(folder: Path, resume: bool) -> dict[str, Any]:
    """The config of the last checkpoint in a run's folder; empty for a new run.

    Raises `UsageError` if a new run's folder has a checkpoint, or a resumed run's has none; `SgdecError` if the
    config is damaged.
    """
    last = folder / "last"
    if not resume:
        if last.exists():
            raise UsageError(f"{folder} holds a run already. Continue it with --resume, or give another --output.")
        return {}
    if not last.exists():
        raise UsageError(f"--resume: {folder} holds no checkpoint yet. Start without --resume.")
    config = layout.read_config(last)
    for key, fits in KEYS.items():
        if key in config and not fits(config[key]):
            raise SgdecError(f"{last / layout.CONFIG}: {key} is {config[key]!r}. The file is damaged; copy it again.")
    return config


def refuse_other_settings(config: TrainConfig, earlier: Mapping[str, Any]) -> None:
    """Raises `UsageError`, listing every setting that changed although it must not."""
    changed = list(_differences(config, earlier.get("training", {})))
    if changed:
        (name, before, now), *rest = changed
        others = "".join(f"; {name} was {before}, now {now}" for name, before, now in rest)
        raise UsageError(
            f"--resume: {name} was {before} in {config.output}, now it is {now}{others}. "
            "Give the same settings, or another --output."
        )


def _differences(config: TrainConfig, earlier: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, earlier and present value of each changed setting; options of the same model are compared one by one."""
    free = CHANGEABLE - {"bleu"} if config.metric != "perplexity" else CHANGEABLE
    stored = {**DEFAULTS, **earlier}
    for name in [field.name for field in fields(config) if field.name in stored.keys() - free]:
        before, now = stored[name], getattr(config, name)
        if (bool(before) == bool(now)) if name in PATHS else (before == now):
            continue
        if name != "options":
            yield name, before, now
        elif earlier.get("model") == config.model:
            for option in [*now, *sorted(before.keys() - now.keys())]:
                if before.get(option) != now.get(option):
                    yield f"{config.model}.{option}", before.get(option), now.get(option)


def refuse_other_files(
    config: TrainConfig, earlier: Mapping[str, Any], vocabularies: Vocabularies, valid: Text
) -> None:
    """Raises `UsageError` if the contents of a tokenizer or of the held-out text changed; their paths may change.

    Also raises it if ``--shard-tokens`` shows that the training text changed, because reading it can take hours.
    """
    folder = Path(config.output)
    stored = layout.load_vocabularies(folder / "last")
    for side, before, now in (
        ("source", stored.source, vocabularies.source),
        ("target", stored.target, vocabularies.target),
    ):
        if now is not None and (before is None or before.fingerprint != now.fingerprint):
            raise UsageError(f"--resume: the {side} tokenizer is not the one of {folder}. Give the same tokenizer.")
    if earlier.get(VALID, valid.fingerprint) != valid.fingerprint:
        raise UsageError(
            f"--resume: the held-out text is not the one of {folder}: it was {earlier[VALID]}, now it is "
            f"{valid.fingerprint}. Scores on two texts cannot be compared. Give the same text, or another --output."
        )
    shard_tokens = earlier.get("training", {}).get("shard_tokens", config.shard_tokens)
    if earlier.get(TEXT, "").endswith(" shards") and shard_tokens != config.shard_tokens:
        raise UsageError(
            f"--resume: the training text of {folder} is in shards, whose size decides the order of examples: "
            f"--shard-tokens was {shard_tokens}, now it is {config.shard_tokens}. Give the same, or another --output."
        )


def refuse_other_text(config: TrainConfig, earlier: Mapping[str, Any], data: Text) -> None:
    """Raises `UsageError` if the training text is not that of the earlier run."""
    text = earlier.get(TEXT, data.fingerprint)  # missing in a new run and in checkpoints of early versions
    if text != data.fingerprint:
        raise UsageError(
            f"--resume: the training text is not the one of {config.output}: it was {text}, now it is "
            f"{data.fingerprint}. Give the same text (in shards: also the same --shard-tokens), or another --output."
        )


def precision(config: TrainConfig, earlier: Mapping[str, Any]) -> str:
    """The precision of the settings; for auto, that of the resumed run, even if this machine would choose another."""
    stored: str = earlier.get("precision", "auto")
    return stored if config.precision == "auto" else config.precision


def threads(config: TrainConfig, earlier: Mapping[str, Any]) -> int | Literal["auto"]:
    """The threads of the settings; for auto, those of the resumed run, so that it equals one uninterrupted run,
    unless the environment names another number."""
    stored: int | None = earlier.get("threads")
    if config.threads != "auto" or stored is None or set_by_user():
        return config.threads
    return min(stored, usable_cores())


def scores(earlier: Mapping[str, Any]) -> dict[str, float]:
    """The scores of the last checkpoint; empty if it was saved without a validation."""
    return {name: earlier[name] for name in get_args(Metric) if name in earlier}


def last_good(folder: Path) -> str:
    """A clause that names the last good checkpoint, for error messages."""
    last = folder / "last"
    return f"the last good checkpoint is {last.resolve()}" if last.exists() else "there is no checkpoint yet"

"""Training as a library call: the settings of ``sgdec train`` as keyword arguments. The command uses it, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.errors import UsageError
from sgdec.plugins.host import Host, name_of, spelled_alike
from sgdec.plugins.options import configure, describe, refuse_unused
from sgdec.settings import plain
from sgdec.suggest import suggest
from sgdec.training import recipes
from sgdec.training.config import BATCH_SIZES, TrainConfig, flag, refuse_two_sizes

if TYPE_CHECKING:
    from sgdec.training.trainer import Trained

Files = str | Path | Sequence[str | Path]


def train(
    *,
    train: Files,
    valid: Files,
    tokenizer: Files,
    output: str | Path,
    model: str | None = None,
    preset: str | None = None,
    recipe: str | None = None,
    resume: bool = False,
    quiet: bool = False,
    plugin_file: Files = (),
    **settings: Any,
) -> Trained:
    """Train a model, as ``sgdec train`` does: all further settings are its options, such as ``max_steps=500``.

    ``train``, ``valid``: the files of both sides, or one for a language model. ``tokenizer``: a file for both sides,
    or one per side. ``output``: the folder of the run. ``model``: the name of a model plugin; by default the model of
    ``start``, or gnmt. The model's options are a mapping under its name: ``gnmt={"layers": 2}``. ``preset``: a named
    set of these options. ``recipe``: a paper's settings (``sgdec recipes``), which given ones override. The
    logger ``sgdec.training`` reports progress; with ``quiet`` it reports only errors.

    Returns the path of the best checkpoint and its scores. Raises UsageError and SgdecError in the same cases as the
    command line.
    """
    host = Host(_files(plugin_file))
    own = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    options = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    texts = {"train": _files(train), "valid": _files(valid), "tokenizer": _files(tokenizer), "output": str(output)}
    config = make_config(
        {**texts, **own}, options, model=model, preset=preset, recipe=recipe, resume=resume, host=host
    )
    from sgdec.training import preparing

    return preparing.train(config, resume=resume, host=host, quiet=quiet)


def make_config(
    settings: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
    *,
    model: str | None,
    preset: str | None,
    recipe: str | None,
    resume: bool,
    host: Host,
) -> TrainConfig:
    """A run's settings with all options of its model.

    A given option takes precedence over that of preset or recipe, and theirs over that of ``start``. ``settings``:
    values by name, without ``model`` and ``options``; a missing one is that of the recipe, if it has one, or the
    default, except that ``right_left`` is taken from ``start``. Raises UsageError for unknown names and invalid
    values, and if the recipe contradicts what is given.
    """
    settings = {name: plain(value) for name, value in settings.items()}
    known = [option.name for option in describe(TrainConfig) if option.name not in ("model", "options")]
    for name in settings:
        if name not in known:
            raise UsageError(f"no option {flag(name)}. {suggest(name, known)}")
    refuse_two_sizes([name for name in BATCH_SIZES if settings.get(name)])
    named: Mapping[str, Any] = {}
    if recipe is not None:
        chosen_recipe = recipes.find(recipe)
        _refuse_contradictions(recipe, chosen_recipe.model, settings, model, preset)
        model, named, settings = model or chosen_recipe.model, chosen_recipe.options, chosen_recipe.under(settings)
    start: dict[str, Any] = {}
    if settings.get("start"):
        from sgdec.training.run.starting import config_of

        start = config_of(settings["start"], resumed=settings["output"] if resume else None, host=host)
        settings.setdefault("right_left", bool(start.get("right_left")))
    model = spelled_alike(model or start.get("model", TrainConfig.model))
    cls = host.load("model", model)
    name = name_of(model)
    refuse_unused(options, [name])
    if preset is not None and preset not in cls.presets:
        raise UsageError(f"{model} has no preset {preset!r}. {suggest(preset, cls.presets)}")
    given = {key: plain(value) for key, value in options.get(name, {}).items()}
    chosen = {**named, **(cls.presets[preset] if preset else {}), **given}
    defaults = {option.name: option.default for option in describe(cls) if not option.required}
    if start and spelled_alike(start["model"]) == model:
        defaults |= start["options"]
    return TrainConfig(**settings, model=model, options={**defaults, **configure(cls, chosen, name=name)})


def _refuse_contradictions(
    recipe: str, its_model: str, settings: Mapping[str, Any], model: str | None, preset: str | None
) -> None:
    """Raises UsageError, naming both, if the recipe cannot be combined with the model, preset or objective given."""
    if model is not None and name_of(model) != its_model:
        raise UsageError(f"--recipe {recipe} trains a model {its_model}, not --model {model}. Give only one of them.")
    if preset is not None:
        raise UsageError(
            f"--recipe {recipe} and --preset {preset} both choose the options of {its_model}. Give only one of them; "
            "single options override it."
        )
    objective = settings.get("objective", TrainConfig.objective)
    if objective != TrainConfig.objective:
        raise UsageError(
            f"--recipe {recipe} is a schedule of maximum likelihood, and --objective {objective} refines a trained "
            "model. Leave --recipe out: --start-from has the model's options."
        )


def _files(given: Files) -> tuple[str, ...]:
    return tuple(map(str, [given] if isinstance(given, (str, Path)) else given))

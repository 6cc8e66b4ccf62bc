"""Models that are loaded once for many tests: a contract makes a predictor for every prefix that it tries."""

from __future__ import annotations

from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from sgdec.checkpoints import loading
from sgdec.models.jointly import JointKernels


def load_models_once(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone, a checkpoint is read once for all predictors of equal precision.

    A loaded model keeps nothing of what it predicts. Whether its products are independent is tried once, too.
    """
    load, independent = loading.load_model, cache(JointKernels.independent)
    loaded: dict[tuple[Any, ...], Any] = {}

    def load_once(path: Any, *, host: Any = None, **settings: Any) -> Any:
        key = (str(path), *settings.values())
        if key not in loaded:
            loaded[key] = load(path, host=host, **settings)
        return loaded[key]

    patch.setattr(loading, "load_model", load_once)
    patch.setattr(JointKernels, "independent", independent)


def load_pretrained_once(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone, a Hugging Face model is read once for all its predictors of equal precision."""
    from sgdec_predictors.pretrained import loading as module

    load = module.load_module
    loaded: dict[tuple[Any, ...], Any] = {}

    def load_once(folder: Any, context: Any, **more: Any) -> Any:
        key = (str(folder.absolute()), context.precision, context.device, *more.values())
        if key not in loaded:
            loaded[key] = load(folder, context, **more)
        return loaded[key]

    patch.setattr(module, "load_module", load_once)


def probe_models_once(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone, a Hugging Face model is compared with itself once for all its predictors."""
    from sgdec_predictors.pretrained import probe as module

    compare, compared = module.probe, WeakKeyDictionary[Any, bool]()

    def probe_once(prefixes: Any, *given: Any, **more: Any) -> None:
        if prefixes.module not in compared:
            compare(prefixes, *given, **more)
            compared[prefixes.module] = prefixes.shares
        prefixes.shares = compared[prefixes.module] and prefixes.may_share

    patch.setattr(module, "probe", probe_once)

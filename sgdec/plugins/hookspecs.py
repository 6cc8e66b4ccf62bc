"""The whole surface that a plugin extends: three functions, each of which names classes.

A plugin is a module with one or more of them, marked with ``@sgdec.hookimpl``; an entry point ``KIND.NAME``
of the group ``sgdec`` names that module (or ``--plugin-file`` does):

    [project.entry-points.sgdec]
    "predictor.repeat" = "sgdec_repeat"

The constructor of each class is its configuration (`sgdec.plugins.options`); what else a class can declare is on one
page, `sgdec.protocol`. A module may state the version of that page which it was written for (``sgdec_api = 1``); it
is then refused, with the way out, by an sgdec that has another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from sgdec.models.base import Model
    from sgdec.protocol import BatchPredictor, Decoder, Predictor

hookspec = pluggy.HookspecMarker("sgdec")
hookimpl = pluggy.HookimplMarker("sgdec")
"""Marks the functions of a plugin that answer the hooks below."""


@hookspec
def sgdec_predictors() -> dict[str, type[Predictor] | type[BatchPredictor]]:  # type: ignore[empty-body]
    """Predictors by name. One with a constructor parameter ``inner`` is a wrapper."""


@hookspec
def sgdec_decoders() -> dict[str, type[Decoder]]:  # type: ignore[empty-body]
    """Decoders by name."""


@hookspec
def sgdec_models() -> dict[str, type[Model]]:  # type: ignore[empty-body]
    """Trainable models by name; their constructor takes the vocabulary sizes beside its options."""

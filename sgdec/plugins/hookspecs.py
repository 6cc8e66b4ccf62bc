"""All hooks that a plugin can implement: five functions, each of which returns classes by name.

A plugin is a module with one or more of these functions, marked with ``@sgdec.hookimpl``. An entry point
``KIND.NAME`` of the group ``sgdec`` (or the option ``--plugin-file``) names that module:

    [project.entry-points.sgdec]
    "predictor.repeat" = "sgdec_repeat"

The constructor of each class is its configuration (`sgdec.plugins.options`). Everything else that a class can declare
is in `sgdec.protocol`. A module may state the version of the protocol that it was written for (``sgdec_api = 1``); an
sgdec with another version then refuses it, with a message that says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from sgdec.corpus.engine import Engine
    from sgdec.decoder import Decoder
    from sgdec.models.base import Model
    from sgdec.protocol import BatchPredictor, Predictor
    from sgdec.utility import Utility

hookspec = pluggy.HookspecMarker("sgdec")
hookimpl = pluggy.HookimplMarker("sgdec")
"""Marks the functions of a plugin that implement the hooks below."""


@hookspec
def sgdec_predictors() -> dict[str, type[Predictor] | type[BatchPredictor]]:
    """Predictors by name. A predictor with a constructor parameter ``inner`` is a wrapper."""
    raise NotImplementedError


@hookspec
def sgdec_decoders() -> dict[str, type[Decoder]]:
    """Decoders by name."""
    raise NotImplementedError


@hookspec
def sgdec_models() -> dict[str, type[Model]]:
    """Trainable models by name. Their constructors take the vocabulary sizes besides the options."""
    raise NotImplementedError


@hookspec
def sgdec_engines() -> dict[str, type[Engine]]:
    """Engines of ``sgdec corpus`` by name."""
    raise NotImplementedError


@hookspec
def sgdec_utilities() -> dict[str, type[Utility]]:
    """Utilities by name, which compare hypotheses for minimum Bayes risk decoding."""
    raise NotImplementedError

"""sgdec: predictors score the next token, decoders search the space they span together.

This module has the public names. Each is imported when it is first used, so ``import sgdec`` is fast:

>>> import sgdec
>>> sgdec.EOS
2
"""

from __future__ import annotations

TYPE_CHECKING = False  # its module takes most of the time before a command can be interrupted silently (cli/start.py)
if TYPE_CHECKING:
    from typing import Any

    from sgdec.context import BOS, EOS, UNK, Context, Vocabulary
    from sgdec.decoder import BatchDecoder, Decoder
    from sgdec.errors import SgdecError, UsageError
    from sgdec.inside_generate import custom_generate
    from sgdec.io.lattice import read_lattice
    from sgdec.library import load, load_utility
    from sgdec.lifting import lift
    from sgdec.nesting import DecoderSpec, UtilitySpec
    from sgdec.plugins.hookspecs import hookimpl
    from sgdec.protocol import API, BatchPredictor, Hypothesis, Predictor, Result, Scores, Source
    from sgdec.search.constellation import Constellation
    from sgdec.search.node import Node
    from sgdec.search.sampling import Distribution
    from sgdec.search.space import SearchSpace
    from sgdec.text.vocabulary import load_vocabulary
    from sgdec.training.library import train
    from sgdec.tuning.tune import tune
    from sgdec.utility import Utility

    __version__: str

__all__ = [
    "API",
    "BOS",
    "EOS",
    "UNK",
    "BatchDecoder",
    "BatchPredictor",
    "Constellation",
    "Context",
    "Decoder",
    "DecoderSpec",
    "Distribution",
    "Hypothesis",
    "Node",
    "Predictor",
    "Result",
    "Scores",
    "SearchSpace",
    "SgdecError",
    "Source",
    "UsageError",
    "Utility",
    "UtilitySpec",
    "Vocabulary",
    "__version__",
    "custom_generate",
    "hookimpl",
    "lift",
    "load",
    "load_utility",
    "load_vocabulary",
    "read_lattice",
    "train",
    "tune",
]

_HOMES = {
    "sgdec.context": ("BOS", "EOS", "UNK", "Context", "Vocabulary"),
    "sgdec.errors": ("SgdecError", "UsageError"),
    "sgdec.plugins.hookspecs": ("hookimpl",),
    "sgdec.decoder": ("BatchDecoder", "Decoder"),
    "sgdec.protocol": ("API", "BatchPredictor", "Hypothesis", "Predictor", "Result", "Scores", "Source"),
    "sgdec.lifting": ("lift",),
    "sgdec.nesting": ("DecoderSpec", "UtilitySpec"),
    "sgdec.search.constellation": ("Constellation",),
    "sgdec.search.node": ("Node",),
    "sgdec.search.sampling": ("Distribution",),
    "sgdec.search.space": ("SearchSpace",),
    "sgdec.inside_generate": ("custom_generate",),
    "sgdec.library": ("load", "load_utility"),
    "sgdec.io.lattice": ("read_lattice",),
    "sgdec.text.vocabulary": ("load_vocabulary",),
    "sgdec.training.library": ("train",),
    "sgdec.tuning.tune": ("tune",),
    "sgdec.utility": ("Utility",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("sgdec")
    elif name in _HOME:
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'sgdec' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

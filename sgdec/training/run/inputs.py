"""Reads the inputs of a run: tokenizers, training and held-out text, token weights. A resumed run needs the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Any

from sgdec.checkpoints import layout
from sgdec.context import Vocabularies
from sgdec.models.base import Model
from sgdec.text import sides
from sgdec.text.vocabulary import StoredVocabulary, load_trained
from sgdec.training.config import TrainConfig
from sgdec.training.data.reading import LengthLimits
from sgdec.training.data.stream import open_text
from sgdec.training.data.text import Text, read_text
from sgdec.training.data.weights import TOKEN_WEIGHTS, Weighting
from sgdec.training.run import resuming


@dataclass(frozen=True)
class Inputs:
    """The inputs of one run."""

    source: StoredVocabulary | None
    """None for a language model."""
    target: StoredVocabulary
    train: Text
    valid: Text
    weighting: Weighting
    model_config: Mapping[str, Any]
    """The model's part of config.json, from which the model can be built with new weights."""

    @property
    def vocabularies(self) -> Vocabularies:
        return Vocabularies(self.source, self.target)

    @property
    def fingerprints(self) -> dict[str, str | None]:
        """The fingerprints of texts and token weights for config.json; None without token weights."""
        return {
            resuming.TEXT: self.train.fingerprint,
            resuming.VALID: self.valid.fingerprint,
            TOKEN_WEIGHTS: self.weighting.fingerprint,
        }


def read_vocabularies(
    config: TrainConfig, family: type[Model], earlier: Mapping[str, Any]
) -> tuple[StoredVocabulary | None, StoredVocabulary]:
    """The vocabularies of source and target, from the tokenizers.

    ``earlier``: the config of the resumed run; empty for a new run. Raises `UsageError` for settings that do not work
    with this class of models (``family``) or differ from the earlier run's; `SgdecError` for files that cannot be
    read.
    """
    config.require_fit(family)
    tokenizers = [load_trained(path) for path in config.tokenizer]
    source, target = sides.arranged(
        tokenizers, sources=family.sources, right_left=config.right_left, steps=family.steps
    )
    if earlier:
        resuming.refuse_other_settings(config, earlier)
    return source, target


def read_inputs(
    config: TrainConfig,
    source: StoredVocabulary | None,
    target: StoredVocabulary,
    model_config: Mapping[str, Any],
    earlier: Mapping[str, Any],
    log: Logger,
) -> Inputs:
    """Read the texts that ``config`` names. ``earlier``: as for `read_vocabularies`.

    Raises `UsageError` if the texts differ from the earlier run's; `SgdecError` for files that cannot be read.
    """
    vocabularies = Vocabularies(source, target)
    valid = read_text(config.valid, source, target)
    if earlier:
        resuming.refuse_other_files(config, earlier, vocabularies, valid)
    train = open_text(
        config.train,
        source,
        target,
        LengthLimits(config.max_line, config.max_ratio),
        run=Path(config.output),
        shard_tokens=config.shard_tokens,
        log=log,
        accept=lambda text: resuming.refuse_other_text(config, earlier, text),
    )
    weighting = Weighting(config, vocabularies, train)
    if earlier:
        weighting.refuse_others(config, earlier)
    return Inputs(source, target, train, valid, weighting, model_config)


def describe_model(
    config: TrainConfig, family: type[Model], source: StoredVocabulary | None, target: StoredVocabulary
) -> dict[str, Any]:
    """The model's part of config.json."""
    return {
        "format": layout.FORMAT,
        "model": config.model,
        "options": dict(config.options),
        "source_vocab_size": 0 if source is None else source.size,
        "target_vocab_size": target.size,
        "shared": sides.same_pieces(source, target),
        "right_left": config.right_left,
        **({"sources": family.sources} if family.sources > 1 else {}),
        **({"steps": True} if family.steps else {}),
    }

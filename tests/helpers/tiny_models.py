"""Tiny checkpoints with random weights, as `sgdec train` would write them, for tests of the real thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sgdec.checkpoints import files, layout, loading
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.text import sides
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from sgdec.text.vocabulary import StoredVocabulary
from tests.helpers.lattice_files import write_paths

WIDTH = 8


@cache
def characters(letters: str) -> SentencePieceVocabulary:
    """A vocabulary of single letters and the blank: len(letters) + 4 tokens."""
    return train_vocabulary([" ".join(letters), letters], len(letters) + 4, kind="char")


def write_checkpoint(
    folder: Path,
    *,
    seed: int = 1,
    source: str = "abc",
    target: str = "abc",
    model: str = "gnmt",
    options: Mapping[str, Any] = MappingProxyType({"layers": 3, "width": WIDTH}),
    vocabulary: StoredVocabulary | None = None,
) -> Path:
    """A model of width 8 between the letters ``source`` and ``target``, or within one ``vocabulary``; other seeds,
    other weights."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    kind = Host().load("model", model)
    given = [vocabulary] if vocabulary else [characters(source), characters(target)]
    vocabularies = sides.arranged(given, sources=kind.sources, steps=kind.steps)
    layout.save_vocabularies(folder, *vocabularies)
    config = {
        "format": layout.FORMAT,
        "model": model,
        "options": dict(options),
        "source_vocab_size": 0 if vocabularies[0] is None else vocabularies[0].size,
        "target_vocab_size": vocabularies[1].size,
        "shared": sides.same_pieces(*vocabularies),
        "sources": kind.sources,
        "steps": kind.steps,
    }
    files.write_json(folder / layout.CONFIG, config)
    torch.manual_seed(seed)
    built = loading.build_model(config, where="the test's own model")
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.6)  # far from uniform
    files.save_tensors(folder / layout.WEIGHTS, loading.model_tensors(built))
    return folder


def small_options(model: type[Any]) -> dict[str, Any]:
    """Options with which every layer of a model has about 8 units."""
    small = {"width": 8, "embedding": 8, "hidden": 8, "output": 8, "feed_forward": 8, "heads": 2, "soft": True}
    return {option.name: small[option.name] for option in describe(model) if option.name in small}


def write_lattice(path: Path, paths: Sequence[tuple[Sequence[int], float]]) -> None:
    """A deterministic acceptor of these token sequences with their costs, ``<s>`` and ``</s>`` included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_paths(path, [((1, *tokens, 2), cost) for tokens, cost in paths])

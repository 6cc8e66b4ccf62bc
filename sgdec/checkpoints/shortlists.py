"""Lexical shortlists on disk: a folder with tensors and a readable JSON file; no pickles.

FOLDER/shortlist.safetensors    starts [S + 1], tokens [n], frequent [f]
       shortlist.json           sizes, what they were built from, the fingerprints of the two vocabularies
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sgdec.checkpoints.tensor_folders import TensorFolder
from sgdec.context import Vocabularies
from sgdec.errors import SgdecError
from sgdec.models.shortlists import Shortlist

FOLDER = TensorFolder("shortlist", "a shortlist", "the shortlist is damaged", "sgdec shortlist", format=1)


def save_shortlist(
    folder: str | Path, shortlist: Shortlist, vocabularies: Vocabularies, *, about: Mapping[str, Any]
) -> None:
    """Write the folder; ``about`` has further entries for the JSON file.

    An existing shortlist is replaced, both files at once. Raises `UsageError` if the folder contains anything else,
    `SgdecError` if it cannot be written.
    """
    tensors = {name: getattr(shortlist, name) for name in ("starts", "tokens", "frequent")}
    sizes = {"source_vocab_size": len(shortlist.starts) - 1, "vocab_size": shortlist.vocab_size}
    FOLDER.write(folder, tensors, {**_fingerprints(vocabularies), **sizes, **about})


def load_shortlist(folder: str | Path, vocabularies: Vocabularies) -> Shortlist:
    """Read what `save_shortlist` wrote, for a model with these vocabularies.

    Raises `SgdecError`, naming the file, if a file is missing or damaged, and if the shortlist is of other
    vocabularies.
    """
    description = FOLDER.describe(folder)
    for side, expected in _fingerprints(vocabularies).items():
        if description.get(side) != expected:
            raise SgdecError(
                f"{folder}: this shortlist is of another {side} vocabulary than the model's. "
                "Run `sgdec shortlist` for the model."
            )
    tensors = FOLDER.load(folder)
    with FOLDER.checking(folder):
        shortlist = Shortlist(**tensors, vocab_size=description["vocab_size"])
        _check(shortlist, vocabularies)
    return shortlist


def _fingerprints(vocabularies: Vocabularies) -> dict[str, str]:
    assert vocabularies.source is not None and vocabularies.target is not None
    return {"source": vocabularies.source.fingerprint, "target": vocabularies.target.fingerprint}


def _check(shortlist: Shortlist, vocabularies: Vocabularies) -> None:
    """Raises ValueError if the tensors do not belong together; other damage raises errors elsewhere."""
    starts, tokens, frequent = shortlist.starts, shortlist.tokens, shortlist.frequent
    assert vocabularies.source is not None and vocabularies.target is not None
    if any(part.dtype != torch.int64 or part.dim() != 1 for part in (starts, tokens, frequent)):
        raise ValueError("expected lists of int64")
    if len(starts) != vocabularies.source.size + 1 or shortlist.vocab_size != vocabularies.target.size:
        raise ValueError("its sizes are not those of the vocabularies")
    if int(starts[0]) != 0 or int(starts[-1]) != len(tokens) or bool((starts.diff() < 0).any()):
        raise ValueError("starts do not lead from 0 to the number of tokens")
    for part in (tokens, frequent):
        if len(part) and (int(part.min()) < 0 or int(part.max()) >= shortlist.vocab_size):
            raise ValueError("a token is out of range")

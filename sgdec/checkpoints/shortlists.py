"""Lexical shortlists on disk: a folder with tensors and a readable JSON file; no pickles.

FOLDER/shortlist.safetensors    starts [S + 1], tokens [n], frequent [f]
       shortlist.json           sizes, what they were built from, the fingerprints of the two vocabularies
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sgdec.checkpoints.files import load_tensors, read_json, save_tensors, write_folder, write_json
from sgdec.context import Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.models.shortlists import Shortlist

FORMAT = 1
"""The version of shortlist.json; a reader refuses unknown versions."""
TENSORS, DESCRIPTION = "shortlist.safetensors", "shortlist.json"


def save_shortlist(
    folder: str | Path, shortlist: Shortlist, vocabularies: Vocabularies, *, about: Mapping[str, Any]
) -> None:
    """Write the folder; ``about`` has further entries for the JSON file.

    An existing shortlist is replaced, both files at once. Raises `UsageError` if the folder contains anything else,
    `SgdecError` if it cannot be written.
    """
    folder = Path(folder)
    require_room(folder)
    tensors = {name: getattr(shortlist, name) for name in ("starts", "tokens", "frequent")}
    description = {
        "format": FORMAT,
        **_fingerprints(vocabularies),
        "source_vocab_size": len(shortlist.starts) - 1,
        "vocab_size": shortlist.vocab_size,
        **about,
    }

    def write(partial: Path) -> None:
        save_tensors(partial / TENSORS, tensors)
        write_json(partial / DESCRIPTION, description)

    write_folder(folder.resolve(), write, advice="Give another --output.")


def require_room(folder: str | Path) -> None:
    """Raises `UsageError` if a shortlist would replace anything other than a shortlist."""
    folder = Path(folder)
    if folder.exists() and (
        not folder.is_dir() or {entry.name for entry in folder.iterdir()} - {TENSORS, DESCRIPTION}
    ):
        raise UsageError(f"--output {folder}: there is something other than a shortlist. Give a separate folder.")


def load_shortlist(folder: str | Path, vocabularies: Vocabularies) -> Shortlist:
    """Read what `save_shortlist` wrote, for a model with these vocabularies.

    Raises `SgdecError`, naming the file, if a file is missing or damaged, and if the shortlist is of other
    vocabularies.
    """
    folder = Path(folder)
    if not (folder / DESCRIPTION).is_file():
        raise SgdecError(f"{folder}: no {DESCRIPTION} here. Expected a folder that `sgdec shortlist` wrote.")
    description = read_json(folder / DESCRIPTION)
    if description.get("format") != FORMAT:
        raise SgdecError(
            f"{folder / DESCRIPTION}: format {description.get('format')!r}, expected {FORMAT}. Use another sgdec."
        )
    for side, expected in _fingerprints(vocabularies).items():
        if description.get(side) != expected:
            raise SgdecError(
                f"{folder}: this shortlist is of another {side} vocabulary than the model's. "
                "Run `sgdec shortlist` for the model."
            )
    tensors = load_tensors(folder / TENSORS)
    try:
        shortlist = Shortlist(**tensors, vocab_size=description["vocab_size"])
        _check(shortlist, vocabularies)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise SgdecError(f"{folder}: the shortlist is damaged ({error}). Run `sgdec shortlist` again.") from None
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

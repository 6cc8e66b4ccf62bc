"""Vocabulary clusters on disk: a folder with tensors and a readable JSON file; no pickles.

FOLDER/clusters.safetensors    centroids [r, d], starts [r + 1], tokens [n], ranks [n], members [r]
       clusters.json           sizes, what they were built from, the checksum of the model they belong to
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sgdec.checkpoints.layout import WEIGHTS, find_checkpoint
from sgdec.checkpoints.tensor_folders import TensorFolder
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.models.clusters import Clusters

FOLDER = TensorFolder("clusters", "clusters", "the clusters are damaged", "sgdec cluster", format=1)


def save_clusters(folder: str | Path, clusters: Clusters, *, model: str, about: Mapping[str, Any]) -> None:
    """Write the folder. ``model`` is the `checksum` of the model; ``about`` has further entries for the JSON file.

    Existing clusters are replaced, both files at once. Raises `UsageError` if the folder contains anything else,
    `SgdecError` if it cannot be written.
    """
    tensors = {name: getattr(clusters, name) for name in ("centroids", "starts", "tokens", "ranks", "members")}
    description = {
        "model": model,
        "vocab_size": clusters.vocab_size,
        "dimension": clusters.centroids.shape[1],
        "centroids": len(clusters.centroids),
        "k": clusters.k,
    }
    FOLDER.write(folder, tensors, {**description, **about})


def load_clusters(folder: str | Path, *, model: str | Path | None = None) -> Clusters:
    """Read what `save_clusters` wrote.

    Raises `SgdecError`, naming the file, if a file is missing or damaged, and if the clusters do not belong to the
    checkpoint ``model``, if one is given.
    """
    description = FOLDER.describe(folder)
    if model is not None and description.get("model") != checksum(model):
        raise SgdecError(f"{folder}: these clusters are of another model than {model}; run `sgdec cluster` for it.")
    tensors = FOLDER.load(folder)
    with FOLDER.checking(folder):
        clusters = Clusters(**tensors, vocab_size=description["vocab_size"])
        _check(clusters)
    return clusters


def checksum(model: str | Path) -> str:
    """A hash of a checkpoint's weights, which identifies its clusters. Raises `SgdecError` if there is no
    checkpoint."""
    file = find_checkpoint(model) / WEIGHTS
    try:
        with open(file, "rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:16]
    except OSError as error:
        raise SgdecError(f"{file}: cannot be read ({error.strerror}). Copy the whole folder.") from None


def _check(clusters: Clusters) -> None:
    """Raises ValueError if the tensors do not belong together; other damage raises errors elsewhere."""
    r, n = len(clusters.centroids), len(clusters.tokens)
    starts, tokens, ranks = clusters.starts, clusters.tokens, clusters.ranks
    if not (len(starts) == r + 1 and len(clusters.members) == r and len(ranks) == n):
        raise ValueError("the numbers of centroids, tokens and ranks differ")
    whole = {tensor.dtype for tensor in (starts, tokens, clusters.members)} | ({ranks.dtype} - {torch.uint8})
    if clusters.centroids.dtype != torch.float32 or whole != {torch.int64}:
        raise ValueError("expected centroids in float32, ranks in uint8 or int64, and all else in int64")
    if not clusters.centroids.isfinite().all():
        raise ValueError("a centroid is not finite")
    if int(starts[0]) != 0 or int(starts[-1]) != n or bool((starts.diff() < 1).any()):
        raise ValueError("starts do not lead from 0 to the number of tokens")
    if int(tokens.min()) < 0 or int(tokens.max()) >= clusters.vocab_size or int(ranks.min()) < 1:
        raise ValueError("a token or a rank is out of range")
    keys = torch.repeat_interleave(torch.arange(r), starts.diff()) * clusters.vocab_size + tokens
    if bool((keys.diff() <= 0).any()):
        raise ValueError("the tokens of a cluster do not ascend")
    if int(((tokens == EOS) & (ranks == 1)).sum()) != r:
        raise ValueError("a cluster is without </s>")

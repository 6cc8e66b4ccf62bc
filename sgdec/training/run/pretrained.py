"""Pretrained initial weights: embeddings that were trained elsewhere, and a decoder that was trained as a language
model. Marian has both (Junczys-Dowmunt et al. 2018, section 3.3), after Ramachandran, Liu and Le 2017, "Unsupervised
Pretraining for Sequence to Sequence Learning".

Embeddings are read from text in the format of word2vec, GloVe and fastText: one row per piece, the piece followed by
its numbers, optionally after a header row with their count and size. Rows of pieces that the vocabulary does not have
are ignored, and so is every row of a piece after its first. Pieces without a row are initialised at random as usual.

A decoder receives all parameters of a language model; the model class says which parameters correspond
(`Seq2Seq.language_models`). Parameters that only the decoder has, above all its attention to the source, are
initialised at random as usual.

This applies to new runs only: a resumed run has its weights from its checkpoint and reads none of these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sgdec.arrays import Floats
from sgdec.checkpoints import layout, loading
from sgdec.context import Vocabularies, Vocabulary
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import whole_number
from sgdec.models.base import Correspondence, Model, Seq2Seq
from sgdec.plugins.host import Host
from sgdec.text.lines import read_lines
from sgdec.training.config import TrainConfig, flag

TABLES = ("embeddings_source", "embeddings_target", "embeddings_output")
"""The settings that name a file of embeddings."""


def start(config: TrainConfig, model: Model, vocabularies: Vocabularies, host: Host) -> Iterator[str]:
    """Initialise a new model from the files that the settings name; yields a line for the log per file.

    Raises `SgdecError` for files that cannot be read or do not fit, `UsageError` if the model cannot use them.
    """
    filled: dict[int, str] = {}
    for setting in TABLES:
        if path := getattr(config, setting):
            side = setting.removeprefix("embeddings_")
            table = model.output_layer()[0].weight if side == "output" else model.embedding_layer(side).weight
            if before := filled.get(id(table)):
                raise UsageError(f"{flag(before)} and {flag(setting)}: the model ties both. Give only one of them.")
            filled[id(table)] = setting
            vocabulary = vocabularies.source if side == "source" else vocabularies.target
            assert vocabulary is not None
            yield f"{flag(setting)}: {fill_rows(table, path, vocabulary)}"
    if config.start_decoder:
        assert isinstance(model, Seq2Seq)
        yield start_decoder(config.start_decoder, model, config.model, vocabularies, host)


def fill_rows(table: Tensor, path: str, vocabulary: Vocabulary) -> str:
    """Copy the rows of a file into a table [V, width]; returns a line for the log.

    Raises `SgdecError` as `read_rows` does, and if no row is of a piece of the vocabulary.
    """
    rows = dict(read_rows(path, vocabulary, table.size(1)))
    if not rows:
        raise SgdecError(
            f"{path}: it has no row for any of the {vocabulary.size} pieces. Train vectors on text that is cut into "
            "the pieces of the --tokenizer."
        )
    values = torch.from_numpy(np.stack(list(rows.values())))
    with torch.no_grad():
        table[list(rows)] = values.to(table)
    return f"{len(rows)} of {vocabulary.size} pieces start from {path}"


def read_rows(path: str, vocabulary: Vocabulary, width: int) -> Iterator[tuple[int, Floats]]:
    """The tokens of a file and their vectors [``width``], each token once.

    Raises `SgdecError`, naming the line, for vectors of another size and for invalid numbers.
    """
    seen: set[int] = set()
    for number, line in enumerate(list(read_lines(path)), 1):
        word, *fields = re.split("[ \t]", line.rstrip())
        if number == 1 and len(fields) == 1 and whole_number(word) is not None:
            size = whole_number(fields[0])
            if size not in (None, width):
                raise _unequal(f"{path}:1", size, width)
            if size is not None:
                continue
        token = vocabulary.token(word)
        known = vocabulary.piece(token) == word and token not in seen
        if not known and number > 2:
            continue
        if len(fields) != width:
            if len(fields) > width and _numbers(fields[: len(fields) - width]) is None:
                continue  # a row for several words, which are not a piece
            raise _unequal(f"{path}:{number}", len(fields), width)
        vector = _numbers(fields)
        if vector is None or not np.isfinite(vector).all():
            raise SgdecError(f"{path}:{number}: expected a piece and {width} numbers, separated by blanks.")
        if known:
            seen.add(token)
            yield token, vector


def start_decoder(path: str, model: Seq2Seq, name: str, vocabularies: Vocabularies, host: Host) -> str:
    """Copy the parameters of a language model to the corresponding ones of a decoder.

    Returns a line for the log that names the remaining parameters. ``name``: the model's name, for messages. Nothing
    is copied unless all parameters fit. Raises `UsageError` for a language model of another kind, size or vocabulary,
    `SgdecError` for a checkpoint that is missing or damaged.
    """
    where = f"--start-decoder {path}"
    folder = layout.find_checkpoint(path)
    config = layout.read_config(folder)
    if config["model"] not in model.language_models:
        kinds = " or ".join(model.language_models) or "no language model"
        raise UsageError(f"{where}: this is a {config['model']}; {name} can start from {kinds}.")
    stored, target = layout.load_vocabularies(folder).target, vocabularies.target
    assert stored is not None and target is not None
    if stored.fingerprint != target.fingerprint:
        raise UsageError(
            f"{where}: its tokenizer or direction differs from the target side's. Train the language model with the "
            "--tokenizer, and the --right-left, of the translation model."
        )
    given = loading.stored_model(folder, config, host).state_dict()
    own = model.state_dict(keep_vars=True)
    taken = dict(_pairs(where, given, own, model.language_models[config["model"]]))
    _refuse_unequal_ties(where, given, taken, own)
    with torch.no_grad():
        for there, here in taken.items():
            tensor = given[there]
            place = own[here] if tensor.dim() < 2 else own[here][:, : tensor.size(1)]
            place.copy_(tensor)
    filled = {id(own[here]) for here in taken.values()}
    new = dict.fromkeys(_part(key) for key, parameter in own.items() if id(parameter) not in filled)
    return f"{where}: {len(taken)} tensors of the {config['model']}; new are {', '.join(new)}"


class _Row(NamedTuple):
    """The names of two corresponding parameters."""

    there: str
    """In the language model."""
    here: str
    """In the translation model."""


def _pairs(
    where: str, given: Mapping[str, Tensor], own: Mapping[str, Tensor], same: Correspondence
) -> Iterator[_Row]:
    """For each tensor of the language model, the corresponding one of the decoder.

    Raises `UsageError` for the first tensor that has none, or one of another size.
    """
    for there, tensor in given.items():
        here = next(match.expand(to) for pattern, to in same.names.items() if (match := re.fullmatch(pattern, there)))
        if here not in own:
            raise UsageError(f"{where}: the decoder has no parameter for its {there}. Give both as many layers.")
        shape = own[here].shape
        reads_more = re.fullmatch(same.wider, here) and shape[0] == tensor.size(0) and shape[1] > tensor.size(1)
        if shape != tensor.shape and not reads_more:
            sizes = ["x".join(map(str, size)) for size in (tensor.shape, shape)]
            raise UsageError(f"{where}: its {there} is {sizes[0]}, the model's {here} {sizes[1]}. Give equal sizes.")
        yield _Row(there, here)


def _refuse_unequal_ties(
    where: str, given: Mapping[str, Tensor], taken: Mapping[str, str], own: Mapping[str, Tensor]
) -> None:
    """Raises `UsageError` if two tensors of the language model map to one parameter and are not equal."""
    first: dict[int, str] = {}
    for there, here in taken.items():
        other = first.setdefault(id(own[here]), there)
        if not torch.equal(given[other], given[there]):
            raise UsageError(
                f"{where}: its {other} and {there} differ, but the model ties them. Tie them in both or in none."
            )


def _part(name: str) -> str:
    """The module of a parameter, for a readable list: all layers share a name, and so does the whole encoder.

    >>> _part("encoder.layers.0.attention.query.bias"), _part("decoder.layers.3.source.query.bias")
    ('encoder', 'decoder.layers.*.source.query')
    """
    if not name.startswith("decoder."):
        return name.partition(".")[0]
    return re.sub(r"\.\d+\b", ".*", name.rpartition(".")[0])


def _unequal(where: str, given: int, width: int) -> SgdecError:
    return SgdecError(
        f"{where}: vectors of {given} numbers, but the model's have {width}. Train vectors of that size, or change "
        "the model's (its option embedding or width)."
    )


def _numbers(fields: list[str]) -> Floats | None:
    """The fields as numbers; None if one is not a number."""
    try:
        return np.array(fields, dtype=np.float64)
    except ValueError:
        return None

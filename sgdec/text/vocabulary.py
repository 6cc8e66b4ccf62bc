"""Vocabularies of any kind: the content of a file or folder decides how it is read, the name of a kind how it is
trained."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args

from sgdec.context import Vocabulary
from sgdec.errors import SgdecError
from sgdec.io.documents import read_document
from sgdec.text.model_folder import is_checkpoint
from sgdec.text.pretrained import PretrainedVocabulary, load_pretrained
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from sgdec.text.words import MixedVocabulary, WordVocabulary, read_words

Kind = Literal["bpe", "unigram", "char", "word", "mixed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Trained: TypeAlias = SentencePieceVocabulary | WordVocabulary | MixedVocabulary
"""The kinds of vocabulary that `sgdec tokenizer` makes."""
Tokenizer: TypeAlias = Trained | PretrainedVocabulary
"""All kinds of vocabulary."""


_SYMBOL_TABLE = re.compile(rb"(\xef\xbb\xbf)?\S+[ \t]+[0-9]+\r?\n")


class StoredVocabulary(Vocabulary, Protocol):
    """A vocabulary with a file, for training and for checkpoints."""

    @property
    def serialized(self) -> bytes:
        """The content of the file."""

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines."""


def load_vocabulary(path: str | Path) -> Tokenizer:
    """Read a file that `sgdec tokenizer` wrote, or a folder with a Hugging Face model or tokenizer: its target side.

    Raises `SgdecError` if it is missing or damaged.
    """
    return load_sides(path)[1]


def load_sides(path: str | Path) -> tuple[Tokenizer, Tokenizer]:
    """`load_vocabulary` for sources and for targets, which some tokenizers split in different ways."""
    if not os.path.isdir(path):
        found = load_trained(path)
        return found, found
    if is_checkpoint(path):
        raise SgdecError(
            f"{path}: this is a folder of `sgdec train`. Give a tokenizer in it, such as tokenizer.spm or target.spm."
        )
    return load_pretrained(path)


def load_trained(path: str | Path) -> Trained:
    """Read a file that `sgdec tokenizer` wrote. Raises `SgdecError` if it is missing or damaged."""
    if os.path.isdir(path):
        raise SgdecError(f"{path}: this is a folder. Expected a file that `sgdec tokenizer` wrote.")
    try:
        serialized = read_document(path)
    except OSError as error:
        raise SgdecError(f"{path}: cannot be read ({error.strerror}). `sgdec tokenizer` trains one.") from None
    if serialized[:1] == b"{":  # JSON; SentencePiece's files are protocol buffers
        return read_words(serialized, str(path))
    if _SYMBOL_TABLE.match(serialized):
        raise SgdecError(
            f"{path}: this is a symbol table (a word and its number on each line), not a vocabulary that "
            "`sgdec tokenizer` wrote. Lattices and n-gram models need none: give --input-format ids, and the table "
            "as --ngram.words."
        )
    return SentencePieceVocabulary(serialized, name=str(path))


def train(
    lines: Iterable[str], size: int, kind: Kind, *, coverage: float = 1.0, normalization: str = "nmt_nfkc"
) -> Trained:
    """A vocabulary of at most ``size`` tokens; coverage and normalization are SentencePiece's.

    Raises `UsageError` if the text cannot give one.
    """
    if kind == "word":
        return WordVocabulary.train(lines, size)
    if kind == "mixed":
        return MixedVocabulary.train(lines, size)
    return train_vocabulary(lines, size, kind=kind, coverage=coverage, normalization=normalization)

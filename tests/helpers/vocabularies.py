"""A small vocabulary of every kind of tokenizer, with its spelling."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sgdec_predictors.texts.spelling import Spelling

from sgdec.context import Vocabulary
from sgdec.text.pretrained import load_pretrained
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.text.words import MixedVocabulary, WordVocabulary
from tests.helpers.pretrained_tokenizers import FAMILIES, TEXT


def trained(text: Sequence[str] = TEXT, **options: Any) -> SentencePieceVocabulary:
    """A SentencePiece vocabulary with the trainer's ``options``."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, hard_vocab_limit=False, minloglevel=2,
        **{"vocab_size": 110, **options},
    )  # fmt: skip
    return SentencePieceVocabulary(model.getvalue())


def pretrained(family: str) -> Vocabulary:
    pytest.importorskip("transformers")
    with TemporaryDirectory() as folder:
        FAMILIES[family](Path(folder))
        return load_pretrained(folder)[1]


KINDS: dict[str, Callable[[], Vocabulary]] = {
    "unigram": trained,
    "bpe": lambda: trained(model_type="bpe"),
    "char": lambda: trained(model_type="char"),
    "no first blank": lambda: trained(add_dummy_prefix=False),
    "all blanks": lambda: trained(remove_extra_whitespaces=False),
    "text as it is": lambda: trained(add_dummy_prefix=False, remove_extra_whitespaces=False),
    "bytes": lambda: trained(vocab_size=400, byte_fallback=True),
    "bytes and all blanks": lambda: trained(vocab_size=400, byte_fallback=True, remove_extra_whitespaces=False),
    "blanks end words": lambda: trained(treat_whitespace_as_suffix=True),
    "word": lambda: WordVocabulary.train(TEXT, 40),
    "mixed": lambda: MixedVocabulary.train(TEXT, 1200),
    **{family: lambda family=family: pretrained(family) for family in FAMILIES},  # type: ignore[misc]
}


@cache
def made(kind: str) -> tuple[Vocabulary, Spelling]:
    vocabulary = KINDS[kind]()
    return vocabulary, Spelling.of(vocabulary)

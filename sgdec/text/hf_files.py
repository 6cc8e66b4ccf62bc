"""Vocabularies as files that `AutoTokenizer` of Hugging Face's transformers reads.

The tokenizer gives every line of text the same token ids. It adds no ``<s>`` or ``</s>``, because the sources of the
models have none, and it reads none from the text: the characters ``</s>`` in a line are ordinary characters.

| vocabulary | file | class |
|---|---|---|
| SentencePiece | ``spiece.model``, the same bytes | `BertGenerationTokenizer`, which only calls SentencePiece |
| words, without ``<first>_UNK_<last>`` | ``tokenizer.json`` | `PreTrainedTokenizerFast` |

Others have no counterpart. Two obvious ways are not taken: `MarianTokenizer` adds ``</s>``, and a SentencePiece model
that is converted to ``tokenizer.json`` gives some lines other tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sgdec.context import UNK
from sgdec.errors import UsageError
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.text.vocabulary import Trained
from sgdec.text.words import BLANK, SPECIAL, WordVocabulary, is_unknown_symbol

ALONE = "Give --no-tokenizer to export the model alone, whose inputs and outputs are then token ids."
SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""The characters at which `WordVocabulary` splits a line; all are below U+3001."""


def tokenizer_files(vocabulary: Trained, longest: int, *, where: str) -> dict[str, bytes]:
    """The files by name; ``longest`` is the most tokens that the model reads.

    Raises `UsageError`, which begins with ``where``, if transformers has no tokenizer with the same tokens.
    """
    unk, bos, eos = SPECIAL
    config: dict[str, Any] = {
        "unk_token": unk,
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": bos,
        "split_special_tokens": True,  # </s> in a line is text
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
        "padding_side": "right",  # positions count from the first column
    }
    if isinstance(vocabulary, SentencePieceVocabulary):
        _refuse_pieces(vocabulary, where)
        config |= {"tokenizer_class": "BertGenerationTokenizer", "sep_token": None}
        return {"spiece.model": vocabulary.serialized, "tokenizer_config.json": _json(config)}
    if isinstance(vocabulary, WordVocabulary):
        _refuse_symbols(vocabulary, where)
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
        return {"tokenizer.json": _json(_of_words(vocabulary)), "tokenizer_config.json": _json(config)}
    raise UsageError(
        f"{where} is of the kind {vocabulary.kind}, and no tokenizer of transformers spells rare words as it does. "
        f"{ALONE}"
    )


def _refuse_pieces(vocabulary: SentencePieceVocabulary, where: str) -> None:
    """Raises UsageError if `BertGenerationTokenizer`, which handles tokens by their names, would not be exact."""
    for special in SPECIAL[1:]:
        if {*vocabulary.encode(special)} <= {UNK, vocabulary.token(BLANK)}:
            raise UsageError(
                f"{where} knows no character of {special}, and transformers would read these characters in a line as "
                f"the special token. {ALONE}"
            )
    for token in range(len(SPECIAL), vocabulary.size):
        if vocabulary.text_of(token) is None:
            raise UsageError(
                f"{where} has the piece {vocabulary.piece(token)!r}, a byte or a control symbol, which transformers "
                f"would show as text. {ALONE}"
            )


def _refuse_symbols(vocabulary: WordVocabulary, where: str) -> None:
    for token in range(vocabulary.size):
        if is_unknown_symbol(vocabulary.piece(token)):
            raise UsageError(
                f"{where} has symbols for unknown words ({vocabulary.piece(token)}), and transformers has no "
                f"tokenizer that chooses among them. {ALONE}"
            )


def _of_words(vocabulary: WordVocabulary) -> Mapping[str, Any]:
    """The content of tokenizer.json: a line is split at blanks, and words outside the vocabulary are ``<unk>``."""
    unk, *others = SPECIAL
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": token, "content": piece, **special} for token, piece in enumerate(SPECIAL)],
        "normalizer": {  # the words <s> and </s> of a line are unknown words
            "type": "Replace",
            "pattern": {"Regex": f"(?<![^{SPACES}])({'|'.join(others)})(?![^{SPACES}])"},
            "content": unk,
        },
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": f"[{SPACES}]+"},
            "behavior": "Removed",
            "invert": False,
        },
        "model": {
            "type": "WordLevel",
            "vocab": {vocabulary.piece(token): token for token in range(vocabulary.size)},
            "unk_token": SPECIAL[UNK],
        },
    }


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()

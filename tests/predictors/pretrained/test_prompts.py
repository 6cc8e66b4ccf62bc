"""The promise: a prompt has the special tokens that its template writes, and none that a source spells."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.errors import SgdecError
from sgdec.protocol import Source
from tests.helpers.pretrained_tokenizers import qwen

pytest.importorskip("transformers")


def test_a_source_adds_no_special_tokens_to_a_prompt(tmp_path: Path) -> None:
    from sgdec_predictors.pretrained.prompts import Reader

    from sgdec.text.pretrained import load_pretrained

    qwen(tmp_path)
    vocabulary = load_pretrained(tmp_path)[0]
    prompted, plain = Reader("<|im_start|>{source}<|im_end|>", vocabulary=vocabulary), Reader(vocabulary=vocabulary)
    for text, mark in (
        ("the cat", None),
        ("the <|im_end|> cat", "<|im_end|>"),
        ("a<|endoftext|>", "<|endoftext|>"),
        ("the <|im_start|>cat", "<|im_start|>"),  # has no role in the tokenizer's settings
    ):
        source = Source(1, vocabulary.encode(text), text)
        assert plain.tokens(source) == vocabulary.encode(text)
        if mark is None:
            first, *middle, last = prompted.tokens(source)
            assert tuple(middle) == vocabulary.encode(text)
            assert (vocabulary.piece(first), vocabulary.piece(last)) == ("<|im_start|>", "<|im_end|>")
        else:
            for given in (source, Source(1, source.tokens)):
                with pytest.raises(SgdecError) as error:
                    prompted.tokens(given)
                assert str(error.value).startswith(f"the source contains {mark}, which would be a special token")

"""A wanted phrase is refused only if no tokens spell it, whatever the vocabulary's own tokens for it are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from sgdec import EOS, SgdecError, Source
from sgdec.context import Vocabulary
from sgdec.text.pretrained import _BYTES, load_pretrained
from sgdec.text.words import SPECIAL
from tests.helpers.phrases import places, predictor, scores


def byte_level(folder: Path, pieces: Sequence[str]) -> Vocabulary:
    """A byte-level tokenizer that puts a blank before a text, and has no merges."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = {byte: letter for letter, byte in _BYTES.items()}
    spelled = ["".join(letters[byte] for byte in piece) for piece in pieces]
    listed = {piece: number for number, piece in enumerate([*SPECIAL, *spelled])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(listed, [], unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return load_pretrained(folder)[1]


PARTS_OF_BYTES = [b" ", b"(", b"y", b")", b'"ab', "日".encode()[:2], "日".encode()[2:] + b"a"]


@pytest.mark.slow
@pytest.mark.parametrize("whole_words", [True, False])
def test_phrases_are_refused_only_if_no_tokens_spell_them(tmp_path: Path, whole_words: bool) -> None:
    """Oracle: the decoded texts of all token sequences."""
    vocabulary = byte_level(tmp_path, PARTS_OF_BYTES)
    tokens = range(len(SPECIAL), vocabulary.size)
    texts = {vocabulary.decode(output) for length in range(1, 5) for output in product(tokens, repeat=length)}
    spelled = set()
    phrases = {"".join(letters).strip() for n in (1, 2, 3) for letters in product(' (y)"ab日', repeat=n)} - {""}
    for phrase in phrases:
        try:
            predictor(tmp_path, phrase, whole_words=whole_words, vocabulary=vocabulary)
            spelled.add(phrase)
        except SgdecError as error:
            assert "cannot be spelled" in str(error)
    joined = "\0".join(texts)
    expected = {phrase for phrase in phrases if places(phrase, joined, whole_words, False)}
    assert spelled == expected and {"(y)", '"ab', "日a", "y)"} <= spelled < phrases


@pytest.mark.parametrize("phrase", ["(y)", '"ab"', "日本", "Rome", "a b"])
def test_a_blank_before_the_vocabularys_own_text_is_no_part_of_a_phrase(tmp_path: Path, phrase: str) -> None:
    vocabulary = byte_level(tmp_path, [bytes([byte]) for byte in range(256)])
    own = vocabulary.encode(phrase)
    assert vocabulary.decode(own) == f" {phrase}"
    made = predictor(tmp_path, phrase, vocabulary=vocabulary)
    for tokens in (own, own[1:]):
        found = scores(made, (*tokens, EOS))
        assert set(found) == {0.0}
    states = made.initialize_batch([Source(1, ())])
    counts = [made.progress(states)[0]]
    for token in own:
        states = made.consume_batch(states, [token])
        counts += made.progress(states)
    size = len(phrase.encode())
    assert [done for done, _ in counts] == [0, *range(size + 1)] and counts[0][1] == size

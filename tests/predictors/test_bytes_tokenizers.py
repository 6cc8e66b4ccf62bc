"""The promise of `bytes` and `canonical` with tokenizers whose steps before the segmentation look ahead.

With ``tokenisations canonical`` the total of a text is the score of exactly the tokens that the tokenizer itself
writes for it; with ``all`` it is the sum over all sequences that spell it. Oracles: the tokenizers themselves, and
sums over the places of a text, where each kind of vocabulary says in a few lines what its tokens spell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.bytes import Bytes
from sgdec_predictors.canonical import Canonical

from sgdec import EOS, BatchPredictor, Context, Source
from sgdec.arrays import Floats
from sgdec.context import Vocabularies, Vocabulary
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN
from sgdec.testing import Table
from sgdec.text.pretrained import load_pretrained
from sgdec.text.words import SPECIAL
from sgdec.vocabularies import ByteVocabulary
from tests.helpers.breadth import examples
from tests.helpers.spelled_ids import BYTES, of_byte_level, of_cleaned_word_pieces, of_metaspace, of_word_pieces
from tests.helpers.toy_spellings import Tokens, probabilities, score

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

TEXT = [
    "the cat, the dog; the  end", "a\n\nb \n c", "in 2024 and 12345 or 67", "don't! can't?", "là où été 🙂 🙂",
    "ab abab  abab", "(the) the. the, the", "\tthe\n   the   cat", "999 1000 100000", "THE The tHe", "日本 日",
] * 3  # fmt: skip
DIGITS_IN_THREES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern of Llama 3's tokenizer."""
Spelled = Callable[[str, bool], bytes]
"""What a piece spells; the second argument: whether it is the first of its text."""


def byte_level(*steps: Any) -> tuple[Any, list[str]]:
    """Byte-level BPE after these steps, with all 256 letters."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(list(steps)) if len(steps) > 1 else steps[0]
    backend.decoder = decoders.ByteLevel()
    return backend, pre_tokenizers.ByteLevel.alphabet()


def gpt2() -> Any:
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


ADDED = ("  ", "the cat", "12")
"""Text that is read before everything else, as the runs of blanks of GPT-NeoX."""


def of_added_tokens(piece: str, first: bool) -> bytes:
    return piece.encode() if piece in ADDED else of_byte_level(piece, first)


def with_first_blank() -> Any:
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))


def digits_in_threes() -> Any:
    split = pre_tokenizers.Split(tokenizers.Regex(DIGITS_IN_THREES), "isolated")
    return byte_level(split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))


def digits_from_the_end() -> Any:
    """Groups of three digits, counted from the last one: a digit that follows moves all boundaries before it."""
    split = pre_tokenizers.Split(tokenizers.Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated")
    return byte_level(split, pre_tokenizers.ByteLevel(add_prefix_space=False))


def metaspace() -> Any:
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend, []


def whole_text() -> Any:
    """As Llama's: BPE of the whole text at once, so that blanks can be anywhere in a piece."""
    backend, letters = metaspace()
    backend.pre_tokenizer = None
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return backend, letters


def unigram() -> Any:
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return backend, []


def word_pieces() -> Any:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    return backend, []


def cleaned_word_pieces() -> Any:
    """As BERT's: what decodes them writes a comma next to the word before it."""
    backend, letters = word_pieces()
    backend.decoder = decoders.WordPiece(cleanup=True)
    return backend, letters


KINDS: dict[str, tuple[Callable[[], Any], Spelled, int]] = {
    "gpt2": (gpt2, of_byte_level, 330),
    "first blank": (with_first_blank, of_byte_level, 330),
    "digits in threes": (digits_in_threes, of_byte_level, 330),
    "digits from the end": (digits_from_the_end, of_byte_level, 330),
    "added tokens": (gpt2, of_added_tokens, 330),
    "metaspace": (metaspace, of_metaspace, 330),
    "whole text": (whole_text, of_metaspace, 330),
    "unigram": (unigram, of_metaspace, 100),
    "word pieces": (word_pieces, of_word_pieces, 120),
    "word pieces, cleaned": (cleaned_word_pieces, of_cleaned_word_pieces, 120),
}


def trainer_of(backend: Any, size: int, letters: Sequence[str]) -> Any:
    common = {"vocab_size": size, "show_progress": False}
    if isinstance(backend.model, models.Unigram):
        return trainers.UnigramTrainer(special_tokens=list(SPECIAL), unk_token="<unk>", **common)
    if isinstance(backend.model, models.WordPiece):
        return trainers.WordPieceTrainer(special_tokens=list(SPECIAL), **common)
    special = [*SPECIAL, *(() if letters else BYTES)]
    return trainers.BpeTrainer(special_tokens=special, initial_alphabet=list(letters), **common)


@cache
def made(kind: str) -> tuple[Vocabulary, Any, Floats]:
    """The vocabulary of a trained tokenizer, the tokenizer, and the scores of a bigram."""
    make, _, size = KINDS[kind]
    backend, letters = make()
    backend.train_from_iterator(TEXT, trainer_of(backend, size, letters))
    content = json.loads(backend.to_str())
    content["added_tokens"] = content["added_tokens"][: len(SPECIAL)]  # bytes are ordinary pieces
    if kind == "added tokens":
        backend.add_tokens(list(ADDED))
        content = json.loads(backend.to_str())
    with TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(json.dumps(content))
        roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
        Path(folder, "tokenizer_config.json").write_text(json.dumps(config))
        vocabulary = load_pretrained(folder)[1]
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    backend.encode_special_tokens = True
    return vocabulary, backend, probabilities(np.random.default_rng(len(kind)), vocabulary.size)


@cache
def around(kind: str, tokenisations: str) -> Bytes:
    vocabulary, _, table = made(kind)
    inner = lift(Table(table))
    inner.vocabularies = Vocabularies(target=vocabulary)
    return Bytes(inner, width=0, tokenisations=tokenisations)  # type: ignore[arg-type]


def total(predictor: BatchPredictor, tokens: Sequence[int]) -> float:
    (state,), found = predictor.initialize_batch([Source(1, (3,))]), 0.0
    for token in (*tokens, EOS):
        scores = predictor.predict_batch([state], [[token]])
        found += float(scores.values[0][token]) if scores.values is not None else scores.rows[0].get(token)
        if found == FORBIDDEN:
            break
        if token != EOS:
            (state,) = predictor.consume_batch([state], [token])
    return found


def total_of_text(kind: str, tokenisations: str, text: str) -> float:
    return total(around(kind, tokenisations), ByteVocabulary().encode(text))


def own_tokens(kind: str, text: str) -> Tokens | None:
    """The tokens that the tokenizer writes for a text; None if it does not read them as this text."""
    _, backend, _ = made(kind)
    found = backend.encode(text, add_special_tokens=False)
    return tuple(found.ids) if backend.decode(found.ids) == text and "<unk>" not in found.tokens else None


def sum_over_all(kind: str, text: bytes) -> float:
    """The log of the probability of all sequences that spell a text, summed place by place."""
    _, backend, table = made(kind)
    spelled = KINDS[kind][1]
    pieces = [(id, piece) for piece, id in backend.get_vocab().items() if id >= len(SPECIAL)]
    chances = np.exp(table)
    at: list[dict[int, float]] = [{} for _ in range(len(text) + 1)]
    """By place and last token the probability of the sequences that end there."""

    def extend(place: int, before: dict[int, float], first: bool) -> None:
        for id, piece in pieces:
            own = spelled(piece, first)
            if text.startswith(own, place) and (own or first):
                chance = sum(chance * float(chances[last, id]) for last, chance in before.items())
                end = at[place + len(own)]
                end[id] = end.get(id, 0.0) + chance

    extend(0, {1: 1.0}, True)
    for place in range(len(text)):
        extend(place, dict(at[place]), False)  # at place 0 there can be a blank that is not written
    ends = sum(chance * float(chances[last, EOS]) for last, chance in at[len(text)].items())
    ends += float(chances[1, EOS]) if not text else 0.0
    return math.log(ends) if ends else FORBIDDEN


PARTS = (
    "the", "cat", "ab", "a", "b", "T", " ", "  ", "\n", "\t", "1", "23", "456", "0", ",", ".", "'t", "!", "(", "é",
    "à", "🙂", "日",
)  # fmt: skip
MANY = ("metaspace", "whole text")
"""Each letter is also a byte, so that even short texts have thousands of spellings."""


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(75), deadline=None)
@given(data=st.data())
def test_totals(kind: str, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(PARTS), max_size=3 if kind in MANY else 6)))
    every, own = total_of_text(kind, "all", text), total_of_text(kind, "canonical", text)
    tokens, table = own_tokens(kind, text), made(kind)[2]
    expected = FORBIDDEN if tokens is None else score(table, (*tokens, EOS))
    assert own == pytest.approx(expected, abs=1e-9)
    assert every == pytest.approx(sum_over_all(kind, text.encode()), abs=1e-9)
    assert every >= own - 1e-9


MOVED = {
    "gpt2": ("a  ", "b"), "added tokens": ("the c", "at"), "digits in threes": ("a  ", "b"),
    "digits from the end": ("1234", "5"), "first blank": (" a  ", "b"),
    **dict.fromkeys(("metaspace", "whole text", "unigram", "word pieces", "word pieces, cleaned"), ("th", "e")),
}  # fmt: skip
"""By kind a text, and one that moves a boundary of its tokens if it follows."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_moves_boundaries(kind: str) -> None:
    """Tokens that are not the tokenizer's own of a prefix can be its own of the whole text."""
    prefix, rest = MOVED[kind]
    vocabulary, _, table = made(kind)
    own, whole = own_tokens(kind, prefix), own_tokens(kind, prefix + rest)
    assert own is not None and whole is not None and whole[: len(own)] != own
    canonical = Canonical(Context(vocabularies=Vocabularies(target=vocabulary), vocab_size=vocabulary.size))
    for text, tokens in ((prefix, own), (prefix + rest, whole)):
        assert total_of_text(kind, "canonical", text) == pytest.approx(score(table, (*tokens, EOS)), abs=1e-9)
        assert total(canonical, tokens) == 0.0

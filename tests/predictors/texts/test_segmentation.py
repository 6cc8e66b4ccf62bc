"""What `Segmentation` knows early is true: it excludes no prefix of a canonical output, and finds what it promises.

Oracle: ``encode(decode(tokens)) == tokens``, without ``<unk>``, for all short outputs, and for texts.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.texts.segmentation import Segmentation

from sgdec.context import Vocabulary
from sgdec.errors import SgdecError
from sgdec.text.pieces import read_model
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.text.steps import Stepping
from tests.helpers import spelled_vocabularies
from tests.helpers.pretrained_tokenizers import FAMILIES, TEXT
from tests.helpers.vocabularies import KINDS, made, trained


def excluded(segmentation: Segmentation, tokens: Sequence[int]) -> bool:
    """Whether one of the tokens cannot follow those before it."""
    return any(
        token in segmentation.never_after.get(tokens[place], ())
        or (
            token in segmentation.begins
            and tokens[place] in segmentation.closed
            and not segmentation.is_canonical(tokens[: place + 1])
        )
        for place, token in enumerate(tokens[1:])
    )


def is_canonical(vocabulary: Vocabulary, tokens: Sequence[int]) -> bool:
    return 0 not in tokens and tuple(vocabulary.encode(vocabulary.decode(tokens))) == tuple(tokens)


@pytest.mark.slow
@pytest.mark.parametrize("kind", spelled_vocabularies.KINDS)
def test_no_canonical_output_is_excluded(kind: str) -> None:
    vocabulary = spelled_vocabularies.vocabulary(kind)
    segmentation, tokens = Segmentation(vocabulary), (0, *spelled_vocabularies.letters(kind)[:9])
    early = late = 0
    for output in itertools.chain.from_iterable(itertools.product(tokens, repeat=length) for length in range(5)):
        canonical, known = is_canonical(vocabulary, output), excluded(segmentation, output)
        assert segmentation.is_canonical(output) == canonical
        assert not (canonical and known), output
        early, late = early + known, late + (not canonical and not known)
    assert early and (late or kind == "word")


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char", "word"])
@pytest.mark.parametrize("options", [{}, {"treat_whitespace_as_suffix": True}, {"add_dummy_prefix": False}], ids=repr)
def test_blanks_can_be_on_either_side_of_a_word(model_type: str, options: dict[str, Any]) -> None:
    """As pieces of their own they are not among the last characters of any piece."""
    blank = {"user_defined_symbols": ["▁"]} if model_type in ("unigram", "bpe") else {}
    vocabulary = trained(["a b ab ba", "aab abb"] * 5, vocab_size=16, model_type=model_type, **blank, **options)
    segmentation = Segmentation(vocabulary)
    outputs = itertools.chain.from_iterable(itertools.product(range(3, vocabulary.size), repeat=n) for n in range(4))
    canonical = [output for output in outputs if is_canonical(vocabulary, output)]
    assert len(canonical) > 1 and not [output for output in canonical if excluded(segmentation, output)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - FAMILIES.keys()))
@settings(max_examples=30)
@given(data=st.data())
def test_nothing_of_the_segmentation_of_a_text_is_excluded(kind: str, data: st.DataObject) -> None:
    vocabulary, _ = made(kind)
    segmentation = Segmentation(vocabulary)
    words = data.draw(st.lists(st.sampled_from([word for line in TEXT for word in line.split()]), max_size=8))
    own = vocabulary.encode(" ".join(words))
    assert not (is_canonical(vocabulary, own) and excluded(segmentation, own))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model_type": "bpe"},
        {"user_defined_symbols": ["ab"]},
        {"model_type": "bpe", "user_defined_symbols": ["ab"]},
        {"normalization_rule_name": "nmt_nfkc_cf"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("seed", range(4))
def test_random_texts_of_few_letters_agree(seed: int, options: dict[str, Any]) -> None:
    """Their words have many segmentations, which compete."""
    rng = random.Random(seed)
    lines = [" ".join("".join(rng.choices("abc", k=rng.randint(1, 6))) for _ in range(5)) for _ in range(60)]
    vocabulary = trained(lines, vocab_size=40, **options)
    segmentation = Segmentation(vocabulary)
    for line in lines:
        own = vocabulary.encode(line)
        assert is_canonical(vocabulary, own) and not excluded(segmentation, own)
    assert segmentation.never_after and segmentation.begins


def test_unigram_models_can_prefer_two_pieces_to_their_concatenation() -> None:
    """All pieces of two letters become improbable, so they are never used, and their letters stay apart."""
    vocabulary = trained(["ab abab ab b a", "aab abb"] * 5, vocab_size=12)
    serialized = vocabulary.serialized
    long = {token for token, piece in enumerate(read_model(serialized).pieces) if len(piece.text.lstrip("▁")) > 1}
    for token in long - {0, 1, 2}:
        serialized = serialized.replace(
            struct.pack("<f", read_model(serialized).pieces[token].score), b"\0\0\xc6\xc2"
        )
    improbable = SentencePieceVocabulary(serialized)
    own = improbable.encode("ab aab")
    assert not set(own) & long and len(own) > len(vocabulary.encode("ab aab"))
    assert not excluded(Segmentation(improbable), own) and excluded(Segmentation(vocabulary), own)


def test_steps_of_hard_attention_are_refused() -> None:
    with pytest.raises(SgdecError, match="steps of monotone hard attention"):
        Segmentation(Stepping(trained()))

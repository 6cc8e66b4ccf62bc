"""``canonical`` allows exactly the outputs that the vocabulary would segment in the same way.

Oracle: ``encode(decode(tokens)) == tokens``, without ``<unk>``, for all outputs of a few tokens.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sgdec_predictors.canonical
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.canonical import Canonical

from sgdec import EOS, BatchPredictor, Context, Predictor, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.scores import SparseRow
from sgdec.testing import Bonus, Table
from sgdec.text.steps import Stepping
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.vocabularies import ByteVocabulary
from tests.helpers.contracts import PluginContract, SearchContract
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search
from tests.helpers.spelled_vocabularies import FAMILIES_OF_MODELS, KINDS, context_of, letters, vocabulary
from tests.helpers.vocabularies import trained

LONGEST = 3


class TestCanonicalContract(PluginContract):
    plugin = "canonical"
    vocab_size = vocabulary("bpe").size
    context = context_of("bpe")

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"context": self.context}

    def make(self) -> Predictor | BatchPredictor:
        return Canonical(**self.options)


@pytest.mark.slow
class TestCanonicalPieces(TestCanonicalContract):
    vocab_size = vocabulary("unigram").size
    context = context_of("unigram")


@pytest.mark.slow
class TestCanonicalInSearch(SearchContract):
    vocab_size = vocabulary("bpe").size
    spaces = 10

    def draw(self, rng: np.random.Generator) -> Predictor | BatchPredictor:
        return Canonical(TestCanonicalContract.context)


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in FAMILIES_OF_MODELS]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *SLOW])
def test_a_search_finds_exactly_the_canonical_outputs_in_order_of_score(kind: str) -> None:
    own, size = vocabulary(kind), vocabulary(kind).size
    tokens = (0, *letters(kind)[:9])
    scores = np.random.default_rng(3).normal(size=(size, size)).round(2)
    only = Bonus(dict.fromkeys((*tokens, 2), 0.0), default=-np.inf)
    space = tiny(LONGEST, None, size, model=Table(scores), canonical=Canonical(context_of(kind)), few=only)
    expected = {
        output
        for length in range(LONGEST + 1)
        for output in itertools.product(tokens, repeat=length)
        if 0 not in output and tuple(own.encode(own.decode(output))) == output
    }
    for decoder in (DfsDecoder(), BeamDecoder(5_000, stop="length")):
        result, _ = search(decoder, space, nbest=10_000)
        assert {hypothesis.tokens for hypothesis in result.hypotheses} == expected
        totals = [hypothesis.score for hypothesis in result.hypotheses]
        assert totals == sorted(totals, reverse=True)
    assert len(expected) > 1 or kind == "marian"
    texts = [own.decode(output) for output in expected]
    assert len(set(texts)) == len(texts)


def test_beams_on_arrays_find_the_same() -> None:
    size = vocabulary("bpe").size
    scores = np.random.default_rng(5).normal(size=(size, size)).round(2)
    space = tiny(LONGEST, None, size, model=Table(scores), canonical=Canonical(context_of("bpe")))
    lists = [
        [hypothesis.tokens for hypothesis in search(decoder, space, nbest=50)[0].hypotheses]
        for decoder in (BeamDecoder(200, stop="length"), VanillaDecoder(200, stop="length"))
    ]
    assert lists[0] == lists[1] and lists[0]


def test_prefixes_that_cannot_become_canonical_end_early() -> None:
    """With SentencePiece the space is smaller than one whose outputs are checked at their end."""
    size = vocabulary("bpe").size
    scores = np.random.default_rng(5).normal(size=(size, size))
    canonical = Canonical(context_of("bpe"))
    space = tiny(LONGEST, None, size, model=Table(scores), canonical=canonical)
    _, opened = search(BeamDecoder(5_000, stop="length"), space, nbest=1)
    assert opened.expansions < sum((size - 2) ** length for length in range(LONGEST + 1)) * 2 / 3


def test_bytes_that_cannot_become_utf8_end_early() -> None:
    """Nothing of any character is excluded, and a character is complete before the next one begins."""
    own = ByteVocabulary()
    canonical = Canonical(Context(vocabularies=Vocabularies(target=own), vocab_size=own.size))

    def allowed(output: Sequence[int]) -> int:
        """The number of bytes up to the first that is forbidden, </s> included."""
        (state,) = canonical.initialize_batch([Source(1, (3,))])
        for place, token in enumerate((*output, EOS)):
            if canonical.predict_batch([state]).rows[0].get(token) < 0:
                return place
            state = state if token == EOS else canonical.consume_batch([state], [token])[0]
        return len(output) + 1

    for character in map(chr, [*range(0x800), *range(0x800, 0x11000, 61), 0x10FFFF, 0xFFFD, 0xE000]):
        if not "\ud800" <= character <= "\udfff":
            tokens = own.encode(character + "a" + character)
            assert allowed(tokens) == len(tokens) + 1, character
    bad = {
        b"\x80": 0, b"a\x80": 1, b"\xc3a": 1, b"\xc3\xc3": 1, b"\xe6\x97a": 2, b"\xed\xa0\x80a": 3, b"\xffa": 1,
        b"\xc3": 1,
    }  # fmt: skip
    assert {text: allowed([3 + byte for byte in text]) for text in bad} == bad


@pytest.mark.slow
def test_rows_are_kept_within_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row can forbid most of the vocabulary, and there is one for each last token."""
    words = WordVocabulary([*SPECIAL, *map(str, range(297))])
    monkeypatch.setattr(sgdec_predictors.canonical, "ROOM", 30_000)
    predictor = Canonical(Context(vocabularies=Vocabularies(target=words)))
    states = [(0, token) for token in range(3, 300)]
    assert all(len(row.tokens) == 300 for row in predictor.predict_batch(states).rows)
    gc.collect()
    kept = [each for each in gc.get_objects() if type(each) is SparseRow and len(each.tokens) == 300]
    assert 0 < len(kept) <= 30_000 / (16 * 300)


def test_it_needs_a_vocabulary_that_segments_text_by_itself() -> None:
    with pytest.raises(UsageError, match=r"canonical: there is no target vocabulary.*--tokenizer FILE"):
        Canonical()
    with pytest.raises(SgdecError, match="canonical: the target has steps of monotone hard attention"):
        Canonical(Context(vocabularies=Vocabularies(target=Stepping(trained()))))

"""`syncbeam` compares hypotheses after whole words, and is `beam` where every token is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.syncbeam import SyncBeamDecoder, token_of

from sgdec import EOS, UNK, BatchPredictor, Context, Scores, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.plugins.options import configure
from sgdec.protocol import FORBIDDEN, SparseRow, State
from sgdec.search.constellation import Constellation
from sgdec.testing import Lattice, TinySpace
from sgdec.testing.random_spaces import KINDS, V
from sgdec.testing.reading import read_row
from tests.helpers.breadth import examples
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import random_spaces, search

SPACE = 9
"""Ends a word."""
WORDS = Lattice(
    {
        0: {3: (-1.0, 1), 4: (-0.1, 2)},
        1: {SPACE: (-0.1, 3)},  # the word "3": -1.1
        2: {4: (-0.1, 4)},
        4: {4: (-0.1, 5), SPACE: (-2.0, 3)},  # "4 4": -2.2
        5: {SPACE: (-5.0, 3)},  # "4 4 4": -5.3
        3: {EOS: (0.0, 99)},
    }
)
"""The better word begins worse."""


def test_words_are_compared_when_they_are_complete() -> None:
    """After one token "4" is ahead, and a beam of two over tokens has lost "3" after three."""
    tokens, _ = search(BeamDecoder(1), tiny(a=WORDS))
    words, _ = search(SyncBeamDecoder(symbol=SPACE, size=2), tiny(a=WORDS))
    assert tokens.hypotheses[0].tokens[0] == 4
    assert words.hypotheses[0].tokens == (3, SPACE)


def test_a_word_that_does_not_end_in_time_is_dropped() -> None:
    wide = {"symbol": SPACE, "size": 9, "stop": "full"}
    found, _ = search(SyncBeamDecoder(**wide, max_word_length=3), tiny(a=WORDS), nbest=9)  # type: ignore[arg-type]
    assert [h.tokens for h in found.hypotheses] == [(3, SPACE), (4, 4, SPACE)]
    found, _ = search(SyncBeamDecoder(**wide, max_word_length=1), tiny(a=WORDS), nbest=9)  # type: ignore[arg-type]
    assert found.hypotheses == []


class Spaced(BatchPredictor):
    """What the inner predictor says, with a `SPACE` of score 0 after each token: every token is a word of its own."""

    def __init__(self, inner: BatchPredictor) -> None:
        self.inner = inner
        self.max_score = max(inner.max_score, 0.0)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        halves = [None if s.max_length is None else s.max_length // 2 for s in sources]
        inner = [replace(source, max_length=half) for source, half in zip(sources, halves, strict=True)]
        return [(state, False) for state in self.inner.initialize_batch(inner)]

    def predict_batch(self, states: Sequence[State], candidates: object = None) -> Scores:
        answer = self.inner.predict_batch([state for state, _ in states])
        rows = []
        for i, (_, ends) in enumerate(states):
            row = read_row(answer, i, V)
            allowed = np.flatnonzero(row > FORBIDDEN).tolist()
            rows.append(SparseRow([SPACE], [0.0]) if ends else SparseRow(allowed, row[allowed].tolist()))
        return Scores(rows=rows)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [
            (state, False) if token == SPACE else (self.inner.consume_batch([state], [token])[0], True)
            for (state, _), token in zip(states, tokens, strict=True)
        ]

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return self.inner.best_remaining([state for state, _ in states])  # type: ignore[attr-defined, no-any-return]

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        return self.inner.worst_remaining([state for state, _ in states])  # type: ignore[attr-defined, no-any-return]


def spaced(space: TinySpace) -> TinySpace:
    here, limit = space.constellation(), space.source.max_length
    members = [replace(member, predictor=Spaced(member.predictor)) for member in here.members]
    source = replace(space.source, max_length=None if limit is None else 2 * limit)
    return TinySpace(space.name, lambda: Constellation(members, vocab_size=SPACE + 1), source)


with_bounds = random_spaces(kinds=[kind for kind in KINDS if kind != "capped"])


@settings(max_examples=examples(60))
@given(space=with_bounds, size=st.integers(1, 4), stop=st.sampled_from(["best", "full", "length", "proven"]))
def test_where_each_word_is_one_token_it_is_beam_search(space: TinySpace, size: int, stop: Any) -> None:
    assume(stop != "length" or space.source.max_length is not None)
    beam, _ = search(BeamDecoder(size, stop=stop), space, 3)
    words, _ = search(SyncBeamDecoder(symbol=SPACE, size=size, stop=stop), spaced(space), 3)
    without_spaces = [(tuple(token for token in h.tokens if token != SPACE), h.score) for h in words.hypotheses]
    assert without_spaces == [(h.tokens, h.score) for h in beam.hypotheses]
    assert all(h.tokens[1::2] == (SPACE,) * (len(h.tokens) // 2) for h in words.hypotheses)


def test_the_inner_beams_are_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from sgdec.search.space import SearchSpace

    batches = []
    expand = SearchSpace.expand

    def noted(self: SearchSpace, nodes: Any, *args: Any, **kwargs: Any) -> Any:
        batches.append(len(nodes))
        return expand(self, nodes, *args, **kwargs)

    monkeypatch.setattr(SearchSpace, "expand", noted)
    search(SyncBeamDecoder(symbol=SPACE, size=2, stop="full"), tiny(a=WORDS))
    assert max(batches) > 1 and batches[0] == 1


class Pieces:
    def token(self, piece: str) -> int:
        return {"▁": 7}.get(piece, UNK)


def test_a_symbol_is_a_token_id_or_a_piece() -> None:
    context = Context(vocabularies=Vocabularies(None, Pieces()))  # type: ignore[arg-type]
    assert token_of(13, context) == token_of("13", context) == 13
    assert token_of("▁", context) == 7
    assert SyncBeamDecoder(**configure(SyncBeamDecoder, {"symbol": "13"}, name="syncbeam")).symbol == 13
    assert SyncBeamDecoder(**configure(SyncBeamDecoder, {"symbol": 13}, name="syncbeam")).symbol == 13
    with pytest.raises(UsageError, match="no piece '</w>'"):
        token_of("</w>", context)
    with pytest.raises(UsageError, match=r"symbol 99 is outside the target vocabulary of 99 tokens\."):
        token_of("99", Context(vocab_size=99))
    for symbol in (-1, "-1"):
        with pytest.raises(UsageError, match=r"symbol -1 is outside the target vocabulary\."):
            token_of(symbol, Context())
    with pytest.raises(UsageError, match="needs a vocabulary"):
        token_of("</w>", Context())
    with pytest.raises(UsageError, match=r"--syncbeam\.symbol is missing"):
        configure(SyncBeamDecoder, {}, name="syncbeam")

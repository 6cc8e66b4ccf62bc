"""The promise: a node of the trie is the range of the entries that begin with its bytes, in every state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.spelled.trie import SpellingTrie, log_sums, log_sums_by_place
from sgdec_predictors.texts.spelling import Spelling

from sgdec import SgdecError

PIECES = st.none() | st.text("ab\0\xff", max_size=4).map(lambda text: text.encode("latin-1"))
TABLES = st.integers(1, 6).flatmap(
    lambda size: st.lists(st.lists(PIECES, min_size=size, max_size=size), min_size=1, max_size=3)
)


@given(adds=TABLES, data=st.data())
def test_each_node_is_what_begins_with_its_bytes(adds: list[list[bytes | None]], data: st.DataObject) -> None:
    later = st.integers(0, len(adds) - 1)
    after = [[data.draw(later) if piece else len(adds) - 1 for piece in row] for row in adds]
    try:
        trie = SpellingTrie(Spelling(adds, after))
    except SgdecError:
        assert any(b"" in row for row in adds)
        return
    for state, row in enumerate(adds):
        entries = sorted((piece, token) for token, piece in enumerate(row) if piece is not None)
        prefixes = {piece[:end] for piece, _ in entries for end in range(len(piece) + 1)}
        for prefix in {b"", *prefixes, *(prefix + b"a" for prefix in prefixes)}:
            node = state
            for byte in prefix:
                node = trie.child(node, byte) if node >= 0 else -1
            inside = [(piece, token) for piece, token in entries if piece.startswith(prefix)]
            assert (node >= 0) == bool(inside or not prefix)
            if node >= 0:
                first, middle, last = (int(array[node]) for array in (trie.first, trie.inside, trie.last))
                assert trie.tokens[first:last].tolist() == [token for _, token in inside]
                assert middle - first == sum(piece == prefix for piece, _ in inside)
                assert trie.after[first:last].tolist() == [after[state][token] for _, token in inside]


def test_tokens_without_text_must_not_repeat() -> None:
    once = Spelling([[b"", b"a"], [None, b"a"]], [[1, 1], [1, 1]])
    assert SpellingTrie(once).states == 2
    for repeated in ([[0, 0], [0, 0]], [[1, 0], [0, 0]]):
        with pytest.raises(SgdecError, match="tokens without text, such as token 0, can be repeated without an end"):
            SpellingTrie(Spelling([[b"", b"a"], [b"", b"b"]], repeated))


SCORES = st.floats(-2000.0, 0.0) | st.just(-math.inf)


def plain_sum(scores: list[float]) -> float:
    highest = max(scores, default=-math.inf)
    if highest == -math.inf:
        return highest
    return highest + math.log(math.fsum(math.exp(score - highest) for score in scores))


@given(parts=st.lists(st.lists(SCORES, min_size=1, max_size=9), min_size=1, max_size=9))
def test_sums_have_the_precision_of_their_own_terms(parts: list[list[float]]) -> None:
    values = np.array([score for part in parts for score in part])
    lengths = np.array(list(map(len, parts)))
    expected = [plain_sum(part) for part in parts]
    starts = np.cumsum(lengths) - lengths
    assert log_sums(values, starts).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    places = (2 * np.arange(len(parts))).repeat(lengths)
    found = log_sums_by_place(places, values, 2 * len(parts))
    assert found[::2].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert (found[1::2] == -math.inf).all()

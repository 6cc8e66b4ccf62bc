"""Beginnings of patterns in a text, and what phrases can share, against comparisons of all pairs."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.texts.characters import is_word
from sgdec_predictors.texts.phrase_matcher import Matcher, Pattern
from sgdec_predictors.texts.phrase_prefixes import PhrasePrefixes
from sgdec_predictors.texts.phrase_tokens import least_bytes

WORDS = st.text("ab é", min_size=1, max_size=5)


@given(st.lists(WORDS, min_size=1, max_size=5), st.text("ab é", max_size=12), st.booleans())
def test_a_node_is_all_beginnings_with_which_a_text_ends(texts: list[str], read: str, whole_words: bool) -> None:
    tree = PhrasePrefixes(texts, whole_words)
    beginnings = {text[:size] for text in texts for size in range(1, len(text) + 1)}
    node = 0
    for end, char in enumerate(read, 1):
        node = tree.after(node, char, end > 1 and is_word(read[end - 2]))
        found = [
            read[begin:end] for begin in range(end)
            if read[begin:end] in beginnings
            and not (whole_words and is_word(read[begin]) and begin and is_word(read[begin - 1]))
        ]  # fmt: skip
        assert [tree.sizes[each] for each in tree.suffixes(node)] == list(map(len, found))
        for each, text in zip(tree.suffixes(node), found, strict=True):
            assert sorted(tree.beginning(each)) == [n for n, whole in enumerate(texts) if whole.startswith(text)]
        assert sorted(tree.ending(node)) == [n for n, whole in enumerate(texts) if whole in found]


@given(st.lists(st.tuples(st.integers(0, 3), WORDS), min_size=1, max_size=8))
def test_phrases_take_what_none_of_them_shares_with_another(drawn: list[tuple[int, str]]) -> None:
    phrases = [[text for _, text in group] for _, group in groupby(sorted(drawn), lambda pair: pair[0])]
    patterns = [Pattern.of(text, number, True) for number, texts in enumerate(phrases) for text in texts]

    def shared(earlier: str, text: str) -> str:
        sizes = range(min(len(earlier), len(text)) - 1, 0, -1)
        return text if text in earlier else next((text[:n] for n in sizes if earlier.endswith(text[:n])), "")

    added = []
    for number, texts in enumerate(phrases):
        others = [text for other, more in enumerate(phrases) if other != number for text in more]
        added.append(
            min(len(t.encode()) - max((len(shared(each, t).encode()) for each in others), default=0) for t in texts)
        )
    shortest = max(min(len(text.encode()) for text in texts) for texts in phrases)
    assert least_bytes(Matcher(patterns, False)) == max(sum(added), shortest)

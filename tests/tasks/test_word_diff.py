"""A difference contains the words of both outputs, in order, and marks no word that is in both."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sgdec.tasks.word_diff import MOST, WORD, Span, word_diff

TEXTS = st.text("ab \u3000\t中国é", max_size=12) | st.text(max_size=12)


def words(text: str) -> list[str]:
    return [word.rstrip() for word in WORD.findall(text.strip())]


@given(TEXTS, TEXTS)
def test_the_spans_are_the_words_of_both(old: str, new: str) -> None:
    spans = word_diff(old, new)
    for text, left_out in ((old, "inserted"), (new, "deleted")):
        assert [word for span in spans if span.kind != left_out for word in words(span.text)] == words(text)
    assert all(span.text for span in spans)
    assert all(one.kind != other.kind for one, other in pairwise(spans))


@given(TEXTS)
def test_equal_texts_have_one_span(text: str) -> None:
    assert [span.kind for span in word_diff(text, text)] == ["same"] * bool(text.strip())


def test_known_differences() -> None:
    assert word_diff("a b c", "a c") == [Span("same", "a "), Span("deleted", "b "), Span("same", "c")]
    assert word_diff("a b", "a") == [Span("same", "a "), Span("deleted", "b")], "with the space between the words"
    assert word_diff("a", "a b") == [Span("same", "a "), Span("inserted", "b")]
    assert word_diff("", "a") == [Span("inserted", "a")]


def test_characters_of_chinese_are_words() -> None:
    assert word_diff("我爱你", "我恨你") == [
        Span("same", "我"), Span("deleted", "爱"), Span("inserted", "恨"), Span("same", "你"),
    ]  # fmt: skip


def test_frequent_words_are_compared_too() -> None:
    text = "a b " * 150
    assert [span.kind for span in word_diff(text, f"x {text}")] == ["inserted", "same"]


def test_very_long_outputs_differ_as_a_whole() -> None:
    long = "a b " * (MOST // 1000)
    assert word_diff(long, f"{long}c") == [Span("deleted", long.strip()), Span("inserted", f"{long}c")]
    assert word_diff(long, long) == [Span("same", long.strip())]

"""The promise of `sgdec.text.transducers`: what is read in one tokenizer's tokens is written as another cuts it.

Paths are listed one by one: a canonical transducer has one for each sentence of listed words, the inner tokenizer's
own segmentation; one of all segmentations has each of them once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.fsttok import FstTok

from sgdec import UNK, Source, UsageError
from sgdec.io.transducer import write_transducer
from sgdec.lifting import lift
from sgdec.testing import Bonus
from sgdec.text.transducers import Drawing, all_segmentations, canonical, eager, spellings, words_of
from sgdec.text.vocabulary import Kind, Tokenizer, train
from tests.helpers.drawn_transducers import Drawn

pytestmark = pytest.mark.slow

TEXT = [
    "der Hund und der Hunderte Mann",
    "ein Mann und eine Frau und ein Hund im Haus",
    "die Hunde im Haus der Frau",
    "Hausfrau und Hausmann",
    "in der Hand",
]
SIZES: dict[Kind, int] = {"char": 100, "word": 100, "bpe": 36, "unigram": 30, "mixed": 1100}
KINDS: tuple[Kind, ...] = tuple(SIZES)
WORDS = sorted({word for line in TEXT for word in line.split()})


@cache
def vocabulary(kind: Kind) -> Tokenizer:
    return train(TEXT, SIZES[kind], kind)


def drawn(drawing: Drawing) -> Drawn:
    found = Drawn({}, {0: 0.0})
    for state, arc in drawing.arcs:
        found.arcs.setdefault(state, []).append(arc)
    return found


def written(transducer: Drawn, tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """What each path writes."""
    return [tokens for _, tokens in transducer.paths(tokens)]


@pytest.mark.parametrize("draw", [canonical, eager])
@pytest.mark.parametrize("outer", KINDS)
@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("unlisted", ["unk", "spell", "forbid"])
def test_a_sentence_of_listed_words_has_one_path_the_inner_tokenizers_own(
    draw: Callable[..., tuple[Drawing, int]], outer: Kind, inner: Kind, unlisted: str
) -> None:
    drawing, skipped = draw(vocabulary(outer), vocabulary(inner), WORDS, unlisted)
    assert skipped == 0
    transducer, rng = drawn(drawing), random.Random(7)
    for length in (0, 1, 1, 2, 3, 5):
        sentence = " ".join(rng.choice(WORDS) for _ in range(length))
        read = vocabulary(outer).encode(sentence)
        assert written(transducer, read) == [vocabulary(inner).encode(sentence)], sentence


@pytest.mark.parametrize("inner", ["bpe", "unigram", "word", "mixed"])
def test_a_canonical_transducer_needs_one_inner_prefix_a_prefix(inner: Kind, tmp_path: Path) -> None:
    drawing, _ = canonical(vocabulary("char"), vocabulary(inner), WORDS)
    write_transducer(tmp_path / "t.fst", drawing.arcs, {0: 0.0})
    wrapper = FstTok(lift(Bonus({}, default=-1.0)), str(tmp_path / "t.fst"), max_states=1)
    states = wrapper.initialize_batch([Source(1, (3,))])
    for token in vocabulary("char").encode("der Hund und der Hundertmann"):
        states = wrapper.consume_batch(states, [token])
        assert len(states[0].pairs) == 1
    assert wrapper.summary() is None


@pytest.mark.parametrize("inner", ["bpe", "unigram", "word", "mixed"])
def test_an_eager_transducer_writes_each_token_as_soon_as_its_text_is_read(inner: Kind) -> None:
    """And nothing before: after each prefix of a word's characters, some path has written just the tokens read."""
    outer, there = vocabulary("char"), vocabulary(inner)
    transducer = drawn(eager(outer, there, WORDS, "forbid")[0])
    for word in ("Hausfrau", "Hunderte", "der"):
        read, text, tokens = outer.encode(word), "▁" + word, there.encode(word)
        places: set[tuple[int, tuple[int, ...]]] = {(0, ())}
        for number, token in enumerate(read, 1):
            places = {
                (arc.target, (*before, arc.output) if arc.output else before)
                for state, before in places
                for arc in transducer.arcs.get(state, [])
                if arc.input == token
            }
            full = [n for n in range(len(tokens) + 1) if text[:number].startswith(spelled(there, tokens[:n]))]
            assert tokens[: max(full)] in {before for _, before in places}
            assert all(text[:number].startswith(spelled(there, before)) for _, before in places)


def spelled(vocabulary: Tokenizer, tokens: Sequence[int]) -> str:
    return "".join(vocabulary.text_of(token) or "?" for token in tokens)


@pytest.mark.parametrize("inner", ["bpe", "word"])
def test_words_share_what_is_read_and_written_alike(inner: Kind) -> None:
    """So a prefix has no two paths that have written the same."""
    drawing, _ = eager(vocabulary("char"), vocabulary(inner), WORDS, "forbid")
    arcs = [(state, arc.input, arc.output) for state, arc in drawing.arcs]
    inside = [each for each, (_, arc) in zip(arcs, drawing.arcs, strict=True) if arc.target != 0]
    assert len(inside) == len(set(inside)) > 20


@pytest.mark.parametrize("draw", [canonical, eager])
def test_words_that_begin_unlike_all_listed_ones_are_replaced(draw: Callable[..., tuple[Drawing, int]]) -> None:
    outer, inner = vocabulary("bpe"), vocabulary("word")
    transducer = drawn(draw(outer, inner, ["der"], "unk")[0])
    for sentence in ("Hund", "der Hund der"):
        (tokens,) = written(transducer, outer.encode(sentence))
        assert [inner.piece(token) for token in tokens] == [
            "der" if word == "der" else "<unk>" for word in sentence.split()
        ]


@pytest.mark.parametrize(
    ("unlisted", "expected"), [("unk", ["<unk>"]), ("spell", list("▁Hundemann")), ("forbid", None)]
)
def test_an_eager_transducer_replaces_unlisted_words_as_a_whole(unlisted: str, expected: list[str] | None) -> None:
    outer, inner = vocabulary("char"), vocabulary("bpe")
    transducer = drawn(eager(outer, inner, WORDS, unlisted)[0])  # type: ignore[arg-type]
    for before, after in (("", ""), ("der ", " und"), ("Hund ", "")):
        found = written(transducer, outer.encode(f"{before}Hundemann{after}"))
        own = [list(map(inner.piece, inner.encode(part))) for part in (before, after)]
        assert [list(map(inner.piece, tokens)) for tokens in found] == (
            [] if expected is None else [own[0] + expected + own[1]]
        )


@pytest.mark.parametrize("outer", ["char", "bpe", "mixed"])
def test_a_word_that_is_not_listed_is_unknown_from_where_it_leaves_the_list(outer: Kind) -> None:
    listed = [word for word in WORDS if word not in ("Hausmann", "Frau")]
    for sentence in ("der Hausmann und", "Frau", "Frau Hausmann", "der Frau"):
        read = vocabulary(outer).encode(sentence)
        transducer = drawn(canonical(vocabulary(outer), vocabulary("bpe"), listed)[0])
        (tokens,) = written(transducer, read)
        assert tokens.count(UNK) == sum(word in sentence for word in ("Frau", "Hausmann"))
        known = [token for token in tokens if token != UNK]
        left = iter(vocabulary("bpe").encode(sentence))
        assert all(token in left for token in known)  # what is written before <unk> begins the word
        assert written(drawn(canonical(vocabulary(outer), vocabulary("word"), listed)[0]), read) == [
            tuple(
                UNK if word in ("Frau", "Hausmann") else vocabulary("word").encode(word)[0]
                for word in sentence.split()
            )
        ]


@pytest.mark.parametrize("outer", ["char", "bpe", "unigram"])
@pytest.mark.parametrize("inner", ["char", "bpe", "unigram", "mixed"])
def test_spelled_words_spell_the_same_text(outer: Kind, inner: Kind) -> None:
    """Also words that are a beginning of a listed one, and other segmentations of listed ones."""
    transducer = drawn(canonical(vocabulary(outer), vocabulary(inner), WORDS[::2], "spell")[0])
    letters = [token for token in range(vocabulary(outer).size) if len(vocabulary(outer).text_of(token) or "") == 1]
    by_text = {vocabulary(outer).text_of(token): token for token in letters}
    for sentence in ("dieHausfrau", "Hau Hunder", "ei in im", "Frauen Hund Hunde"):
        cuts = [vocabulary(outer).encode(sentence), [by_text[c] for c in "▁" + sentence.replace(" ", "▁")]]
        for read in cuts:
            (tokens,) = written(transducer, read)
            spelled = "".join(vocabulary(inner).text_of(token) or "?" for token in tokens)
            assert spelled.replace("▁", " ").strip() == sentence or UNK in tokens
            assert "?" not in spelled or inner == "mixed"  # which has no character for a blank


def test_unknown_characters_in_a_row_are_one_unknown_token() -> None:
    inner = train(["der"], 50, "char")
    transducer = drawn(canonical(vocabulary("char"), inner, ["der"], "spell")[0])
    (tokens,) = written(transducer, vocabulary("char").encode("dem Haus der"))
    pieces = [inner.piece(token) for token in tokens]
    assert pieces == ["▁", "d", "e", "<unk>", "▁", "<unk>", "▁", "d", "e", "r"]


def test_forbidden_words_have_no_path() -> None:
    transducer = drawn(canonical(vocabulary("char"), vocabulary("bpe"), ["der", "Hund"], "forbid")[0])
    assert written(transducer, vocabulary("char").encode("der Hund"))
    for sentence in ("die", "de", "der Hunde", "Hun"):
        assert not written(transducer, vocabulary("char").encode(sentence))


def test_what_is_certain_is_written_at_once_where_other_words_are_forbidden() -> None:
    """`Frau` is certain after its first character; where others may follow, after its last."""
    outer, inner = vocabulary("char"), vocabulary("word")
    for unlisted, expected in (("forbid", 2), ("unk", 5)):
        drawing, _ = canonical(outer, inner, ["Frau", "der"], unlisted)  # type: ignore[arg-type]
        transducer = drawn(drawing)
        places, when = {0}, None
        for number, token in enumerate(outer.encode("Frau"), 1):
            arcs = [arc for state in places for arc in transducer.arcs.get(state, []) if arc.input == token]
            places = {arc.target for arc in arcs}
            if when is None and any(arc.output == inner.encode("Frau")[0] for arc in arcs):
                when = number
        ends = [arc for state in places for arc in transducer.arcs.get(state, []) if arc.input == 0]
        assert when == expected or (when is None and any(arc.output for arc in ends))


def segmentations(text: str, pieces: dict[str, int]) -> Iterator[tuple[int, ...]]:
    if not text:
        yield ()
    for end in range(1, len(text) + 1):
        if text[:end] in pieces:
            for rest in segmentations(text[end:], pieces):
                yield (pieces[text[:end]], *rest)


@pytest.mark.parametrize("pair", ["char bpe", "char unigram", "bpe unigram", "word bpe"])
def test_all_segmentations_are_there_each_once(pair: str) -> None:
    outer: Any
    inner: Any
    outer, inner = pair.split()
    transducer = drawn(all_segmentations(vocabulary(outer), vocabulary(inner)))
    there = vocabulary(inner)
    pieces = {text: token for token in range(there.size) if (text := there.text_of(token)) is not None}
    for sentence in ("der", "Hund im", "Haus"):
        expected = sorted(segmentations("▁" + sentence.replace(" ", "▁"), pieces))
        assert len(expected) > 1
        assert sorted(written(transducer, vocabulary(outer).encode(sentence))) == expected


def test_words_are_those_of_the_text_and_of_a_vocabulary_of_words() -> None:
    outer = vocabulary("char")
    assert words_of(outer, vocabulary("bpe"), TEXT[:1]) == ["der", "Hund", "und", "Hunderte", "Mann"]
    assert set(words_of(outer, vocabulary("word"))) == set(WORDS)
    assert words_of(outer, vocabulary("bpe")) == []


def test_words_with_characters_that_the_decoder_lacks_are_left_out() -> None:
    drawing, skipped = canonical(vocabulary("char"), vocabulary("bpe"), ["der", "Qualität"])
    assert skipped == 1
    assert written(drawn(drawing), vocabulary("char").encode("der")) == [vocabulary("bpe").encode("der")]


def test_spellings_are_the_characters_of_each_word() -> None:
    found, skipped = spellings(vocabulary("char"), vocabulary("word"))
    assert skipped == 0 and len(found) == len(WORDS)
    for word, letters in found.items():
        assert vocabulary("char").decode(letters) == vocabulary("word").decode([word])


def test_spellings_need_characters_and_words() -> None:
    with pytest.raises(UsageError, match="need an inner vocabulary of words"):
        spellings(vocabulary("char"), vocabulary("bpe"))
    with pytest.raises(UsageError, match="need an outer vocabulary of characters"):
        spellings(vocabulary("word"), vocabulary("word"))

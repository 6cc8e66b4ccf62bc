"""`phrases` allows exactly the outputs whose text has all wanted phrases and none of the others.

Oracle: the places of a phrase in the decoded text, by Python's ``str.find``, and the characters beside them.
"""

from __future__ import annotations

import codecs
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.phrases import Phrases

from sgdec import EOS, Context, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.breadth import examples
from tests.helpers.contracts import PluginContract, SearchContract
from tests.helpers.phrases import WORDS, is_allowed, predictor, row_after, scores
from tests.helpers.pretrained_tokenizers import TEXT
from tests.helpers.vocabularies import KINDS, made


@cache
def outputs(kind: str) -> list[tuple[int, ...]]:
    """Outputs of a tokenizer whose text has phrases."""
    vocabulary, _ = made(kind)
    return [tokens for line in TEXT if 0 not in (tokens := vocabulary.encode(line))]


PARTS = st.sampled_from([line for line in TEXT if line.strip()]).flatmap(
    lambda line: st.tuples(st.integers(0, len(line) - 1), st.integers(1, 9)).map(
        lambda span: line[span[0] : span[0] + span[1]].strip()
    )
).filter(lambda text: bool(text) and "|" not in text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_exactly_the_texts_with_all_wanted_phrases_and_no_other_are_allowed(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    vocabulary, spelling = made(kind)
    folder = tmp_path_factory.mktemp("phrases")
    wanted = data.draw(st.lists(st.lists(PARTS, min_size=1, max_size=2), max_size=3))
    avoid = data.draw(st.lists(st.lists(PARTS, min_size=1, max_size=1), max_size=2))
    ordered, whole_words, ignore_case = (data.draw(st.booleans()) for _ in range(3))
    pieces = data.draw(st.lists(st.sampled_from(outputs(kind)), max_size=2))
    tokens = tuple(token for piece in pieces for token in piece)
    cut = data.draw(st.integers(0, len(tokens)))
    tokens = (*tokens[cut:], *data.draw(st.lists(st.integers(3, vocabulary.size - 1), max_size=3)))
    text = spelling.text(tokens)
    lines = ["\t".join(" | ".join(phrase) for phrase in phrases) + "\n" for phrases in (wanted, avoid)]
    options = {"ordered": ordered, "whole_words": whole_words, "ignore_case": ignore_case}
    try:
        phrases = predictor(folder, *lines, **options, vocabulary=vocabulary)
    except SgdecError as error:
        assert "cannot be spelled" in str(error) or "one of the avoided" in str(error)
        return
    found = scores(phrases, (*tokens, EOS))
    assert set(found) <= {0.0, -math.inf}
    if text is not None:
        expected = is_allowed(vocabulary.decode(tokens), wanted, avoid, ordered, whole_words, ignore_case)
        assert (set(found) == {0.0}) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_a_row_forbids_just_the_tokens_that_complete_a_phrase(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    """After each prefix of an output, all tokens are tried; the oracle reads the text that they would give."""
    vocabulary, spelling = made(kind)
    avoid = data.draw(st.lists(PARTS, min_size=1, max_size=3))
    whole_words = data.draw(st.booleans())
    tokens = data.draw(st.sampled_from(outputs(kind)))
    tokens = tokens[: data.draw(st.integers(0, len(tokens)))]
    phrases = predictor(
        tmp_path_factory.mktemp("avoid"), None, "\t".join(avoid), whole_words=whole_words, vocabulary=vocabulary
    )
    row = row_after(phrases, tokens)
    if row is None:
        return
    for token in range(3, vocabulary.size):
        text = spelling.text((*tokens, token))
        if text is not None:
            # what follows is not known: a phrase at the end is one only if it is not a part of a word, and the bytes
            # of a character that has only begun are of no character yet; others that are invalid are U+FFFD
            begun = codecs.getincrementaldecoder("utf-8")("replace").decode(text)
            known = f"{begun}x" if whole_words else text.decode("utf-8", "replace")
            if getattr(vocabulary, "byte_runs", ()):
                if token in vocabulary.byte_runs:  # see `test_phrase_bytes.py`
                    continue
                known = vocabulary.decode((*tokens, token)) + ("x" if whole_words else "")
            expected = is_allowed(known, [], [[each] for each in avoid], False, whole_words, False)
            assert (row.get(token) == 0.0) == expected, (text, token)


def forbidden(made: Phrases, text: str) -> set[str]:
    """The words that cannot follow a text."""
    states = made.initialize_batch([Source(1, ())])
    for token in WORDS.encode(text):
        states = made.consume_batch(states, [token])
    row = made.predict_batch(states).rows[0]
    return {WORDS.piece(token) for token in range(EOS, WORDS.size) if row.get(token) == -math.inf}


def test_a_phrase_at_the_end_is_complete_only_if_no_word_goes_on(tmp_path: Path) -> None:
    """Whole words are known to end when the next character is read, or the text ends."""
    vocabulary = WordVocabulary([*SPECIAL, "art", "arty"])
    made = predictor(tmp_path, None, "art", vocabulary=vocabulary)
    assert set(scores(made, (*vocabulary.encode("arty arty"), EOS))) == {0.0}
    assert scores(made, (*vocabulary.encode("art"), EOS)) == [0.0, -math.inf]
    assert scores(made, vocabulary.encode("art arty")) == [0.0, -math.inf]


def test_the_end_is_forbidden_until_every_phrase_is_met(tmp_path: Path) -> None:
    made = predictor(tmp_path, "art deco | art nouveau\tparty")
    for text, left in (("", {"</s>"}), ("party art", {"</s>"}), ("party art deco", set()), ("art nouveau", {"</s>"})):
        assert forbidden(made, text) == left


def test_phrases_in_order_do_not_overlap(tmp_path: Path) -> None:
    made = predictor(tmp_path, "art deco\tdeco party", ordered=True)
    assert forbidden(made, "art deco party") == {"</s>"}
    assert forbidden(made, "art deco art deco party") == set()
    assert forbidden(predictor(tmp_path, "art deco\tdeco party"), "art deco party") == set()


def test_marks_belong_to_words(tmp_path: Path) -> None:
    """A vowel sign is no letter, but a word does not end before it."""
    vocabulary = WordVocabulary([*SPECIAL, "क", "की"])
    made = predictor(tmp_path, "क", vocabulary=vocabulary)
    assert scores(made, (*vocabulary.encode("की"), EOS))[-1] == -math.inf
    assert scores(made, (*vocabulary.encode("क"), EOS))[-1] == 0.0


def test_symbols_at_the_ends_of_phrases_need_no_boundary(tmp_path: Path) -> None:
    vocabulary = WordVocabulary([*SPECIAL, "c++17", "c+"])
    made = predictor(tmp_path, "c++", vocabulary=vocabulary)
    assert scores(made, (*vocabulary.encode("c++17"), EOS))[-1] == 0.0


def test_an_unknown_word_is_part_of_no_phrase(tmp_path: Path) -> None:
    made = predictor(tmp_path, "art deco", "party deco")
    art, party, deco = WORDS.encode("art party deco")
    assert scores(made, (art, 0, deco, EOS))[-1] == -math.inf
    assert scores(made, (party, 0, deco)) == [0.0] * 3


def test_a_line_for_each_sentence_or_one_for_all(tmp_path: Path) -> None:
    made = predictor(tmp_path, "art\n\ndeco\n")
    assert [scores(made, (EOS,), n)[0] for n in (1, 2, 3)] == [-math.inf, 0.0, -math.inf]
    with pytest.raises(SgdecError, match=r"path has 3 lines, so none for sentence 4\. Expected one line per source"):
        scores(made, (EOS,), 4)
    for text in ("art\n", "art", "\ufeffart\r\n"):  # the last one as some editors write it
        assert scores(predictor(tmp_path, text), (EOS,), 4) == [-math.inf]


def test_a_bar_in_a_phrase_is_escaped(tmp_path: Path) -> None:
    vocabulary = WordVocabulary([*SPECIAL, "a", "|", "b"])
    made = predictor(tmp_path, r"a \| b", vocabulary=vocabulary)
    assert scores(made, (*vocabulary.encode("a | b"), EOS))[-1] == 0.0
    assert scores(made, (*vocabulary.encode("a b"), EOS))[-1] == -math.inf


WRONG = {
    "an empty phrase": (("art\t\tdeco", None), r"path: line 1: an empty phrase\. Expected phrases with one tab"),
    "an empty alternative": (("art | | deco", None), r"line 1: an empty phrase"),
    "one that cannot be spelled": (("art\tzebra", None), r"line 1: the phrase 'zebra' cannot be spelled with the"),
    "a contradiction": (("art", "art"), r"line 1: the phrase 'art' is wanted, but it contains one of the avoided"),
    "one within it": (("art deco | deco", "deco"), r"the phrase 'art deco' is wanted, but it contains one of"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_phrases_that_no_output_can_satisfy_are_refused_in_one_line(tmp_path: Path, wrong: str) -> None:
    (wanted, avoid), message = WRONG[wrong]
    with pytest.raises(SgdecError, match=message) as error:
        predictor(tmp_path, wanted, avoid)
    assert str(error.value).startswith("phrases: ") and "\n" not in str(error.value)


def test_an_alternative_that_is_avoided_leaves_the_others(tmp_path: Path) -> None:
    made = predictor(tmp_path, "art deco | art nouveau", "deco")
    assert forbidden(made, "art") == {"</s>"}
    assert forbidden(made, "art deco") >= {"</s>", "art"}
    assert forbidden(made, "art nouveau") == set()


def test_phrases_that_take_more_tokens_than_the_limit_cost_their_sentence(tmp_path: Path) -> None:
    made = predictor(tmp_path, "nouveau\tparty\tdeco\t- -")
    made.initialize_batch([Source(1, (), max_length=6)])
    with pytest.raises(SgdecError, match=r"path: line 1: the phrases take at least 3 tokens.* is 2\. Give"):
        made.initialize_batch([Source(1, (), max_length=2)])


def test_a_run_without_a_vocabulary_or_without_phrases_is_refused(tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("art\n")
    with pytest.raises(UsageError, match=r"^phrases: phrases are text, and this run has no target vocabulary"):
        Phrases(str(tmp_path / "terms"))
    with pytest.raises(UsageError, match=r"Give --phrases\.path, --phrases\.avoid, or both"):
        Phrases()


LETTERS = WordVocabulary([*SPECIAL, *"abcdef"])


@pytest.mark.slow
class TestPhrases(PluginContract):
    plugin = "phrases"
    prefixes = ((3, 4, 3), (3, 4, 4, 5), (5, 6), (7, 8, 3))

    def prepare(self, folder: Path) -> dict[str, Any]:
        (folder / "wanted").write_text("a b\tc | d e\n")
        (folder / "avoid").write_text("b b\tf\n")
        context = Context(vocabularies=Vocabularies(LETTERS, LETTERS))
        return {"path": str(folder / "wanted"), "avoid": str(folder / "avoid"), "context": context}


@pytest.mark.slow
class TestPhrasesInOrder(TestPhrases):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "ordered": True}


@pytest.mark.slow
class TestPhrasesInSearch(SearchContract):
    vocab_size = 6
    limits = (4, 3, 2)

    def draw(self, rng: np.random.Generator) -> Phrases:
        letters = WordVocabulary([*SPECIAL, *"abc"])
        wanted = "\t".join(rng.choice(["a", "b a", "c | b"], rng.integers(1, 3), replace=False))
        return predictor(self.folder, wanted, rng.choice(["b b", "c a", ""]), vocabulary=letters)

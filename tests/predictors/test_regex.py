"""The promise of ``regex``: a search finds exactly the token sequences whose text matches, best first."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.regex import RegexPredictor

from sgdec import EOS, Context, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor
from sgdec.testing import Table
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.characters import CHARACTERS
from tests.helpers.compiled_once import compile_once
from tests.helpers.contracts import PluginContract, V
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search
from tests.helpers.spelled_vocabularies import KINDS, context_of, letters, spelling, vocabulary

pytest.importorskip("outlines_core")
pytest.importorskip("llguidance")

LETTERS = WordVocabulary([*SPECIAL, "a", "b", "c", "ab", "d", "ba"])
assert LETTERS.size == V


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        compile_once(patch)
        yield


@pytest.mark.slow
class TestRegexContract(PluginContract):
    plugin = "regex"
    context = Context(vocabularies=Vocabularies(target=LETTERS), vocab_size=V)

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"pattern": "(a|b|ab|c d)( (a|b|ab|c d))*", "cache": str(folder), "context": self.context}

    def make(self) -> Predictor | BatchPredictor:
        return RegexPredictor(**self.options)


@pytest.mark.slow
class TestRegexOfEachSentence(TestRegexContract):
    own_sentences = True

    def prepare(self, folder: Path) -> dict[str, Any]:
        (folder / "patterns.txt").write_text("".join(f"[ab ]{{{n % 3},}}\n" for n in range(1, 99)))
        return {"path": str(folder / "patterns.txt"), "cache": "none", "context": self.context}


@pytest.mark.slow
class TestRegexOfPieces(TestRegexContract):
    """The tokens of a SentencePiece model, of which most have two spellings. Many of them can follow each prefix."""

    vocab_size = vocabulary("unigram").size
    context = context_of("unigram")


@pytest.mark.slow
class TestRegexOfBytes(TestRegexContract):
    vocab_size = vocabulary("bytes").size
    context = context_of("bytes")

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"pattern": "(?:a|é|b+ )*", "cache": str(folder), "context": self.context}


FINITE = ("(a|ab|b)( b|é)?", "a|ab|b b", "a{1,3}", "ab ba", "[b é]{2}", "[ab é]{0,2}")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", FINITE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_all_sequences_that_match_in_order_of_score(kind: str, pattern: str) -> None:
    longest, size = 3, vocabulary(kind).size
    scores = np.random.default_rng(3).normal(size=(size, size)).round(2)
    texts = {
        sequence: spelling(kind).text(sequence)
        for length in range(longest + 1)
        for sequence in itertools.product(letters(kind), repeat=length)
    }
    expected = {sequence for sequence, text in texts.items() if matches(pattern, text)}
    if not expected:
        with pytest.raises(SgdecError, match=r"can be spelled|shortest output that is allowed"):
            RegexPredictor(pattern, context=context_of(kind)).initialize_batch([Source(1, (3,), max_length=longest)])
        return
    regex = RegexPredictor(pattern, context=context_of(kind))
    space = tiny(longest, None, size, model=Table(scores), regex=regex)
    result, _ = search(DfsDecoder(), space, nbest=100_000)
    found = {hypothesis.tokens for hypothesis in result.hypotheses}
    assert {tokens for tokens in found if set(tokens) <= set(letters(kind))} == expected
    assert all(matches(pattern, spelling(kind).text(tokens)) for tokens in found)
    totals = [hypothesis.score for hypothesis in result.hypotheses]
    paths = [(1, *hypothesis.tokens, EOS) for hypothesis in result.hypotheses]
    assert totals == sorted(totals, reverse=True)
    assert totals == pytest.approx([sum(scores[a, b] for a, b in itertools.pairwise(path)) for path in paths])


def matches(pattern: str, text: bytes | None) -> bool:
    try:
        return text is not None and re.fullmatch(pattern, text.decode()) is not None
    except UnicodeDecodeError:
        return False


ATOMS = st.sampled_from(["a", "b", "[a-c]", "[^b]", ".", r"\d", "é", "(?:ab|c)", r"\.", "x?"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(lambda two: f"(?:{two[0]}){two[1]}"),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(PATTERNS, st.lists(st.text("abcé.1x\n", max_size=6), min_size=9, max_size=20))
def test_it_allows_what_pythons_own_engine_matches(pattern: str, texts: list[str]) -> None:
    regex = RegexPredictor(pattern, cache="none", context=CHARACTERS_CONTEXT)
    for text in texts:
        assert accepts(regex, text) == (re.fullmatch(pattern, text) is not None)


CHARACTERS_CONTEXT = Context(vocabularies=Vocabularies(target=CHARACTERS))


def accepts(regex: RegexPredictor, text: str) -> bool:
    (state,) = regex.initialize_batch([Source(1, (3,))])
    for token in CHARACTERS.encode(text):
        if regex.predict_batch([state]).rows[0].get(token) == FORBIDDEN:
            return False
        (state,) = regex.consume_batch([state], [token])
    return regex.predict_batch([state]).rows[0].get(EOS) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["[ab]*", ".*", "a+b?( é)?"])
@pytest.mark.parametrize("kind", ["unigram", "bytes", "mixed"])
def test_lists_marks_and_arcs_agree(kind: str, pattern: str) -> None:
    regex = RegexPredictor(pattern, context=context_of(kind))
    states, seen = regex.initialize_batch([Source(1, (3,))]), set[int]()
    for _ in range(3):
        rows = regex.predict_batch(states).rows
        offsets, tokens, scores, after = regex.arcs(np.array(states), None)
        assert [list(row.candidates) for row in rows] == [
            tokens[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())
        ]
        assert not scores.any()
        listed = np.repeat(states, np.diff(offsets)).tolist()
        assert regex.consume_batch(listed, tokens.tolist()) == after.tolist()
        everything = list(range(vocabulary(kind).size))
        for state, row in zip(states, rows, strict=True):
            steps = regex.steps(state, everything)
            assert [token for token, score in zip(*steps[:2], strict=True) if score == 0.0] == list(row.candidates)
            assert steps[2] == regex.consume_batch([state] * len(everything), everything)
            assert regex.steps(state, everything[:9])[1:] == (steps[1][:9], steps[2][:9])
        seen.update(states)
        states = sorted({state for state in after.tolist() if state >= 0} - seen) or states


@pytest.mark.parametrize("kind", ["unigram", "bytes"])
def test_every_search_finds_the_best_text_that_matches(kind: str) -> None:
    size = vocabulary(kind).size
    scores = np.log(np.random.default_rng(5).dirichlet(np.ones(size), size))
    regex = RegexPredictor("a+b?( é| b)*", context=context_of(kind))
    space = tiny(4, None, size, model=Table(scores), regex=regex)
    exact, _ = search(DfsDecoder(), space, nbest=3)
    assert exact.proven and len(exact.hypotheses) == 3
    for decoder in (AStarDecoder(), BeamDecoder(size=3000, stop="full"), VanillaDecoder(size=3000, stop="full")):
        found, _ = search(decoder, space, nbest=3)
        assert found.hypotheses == exact.hypotheses


def test_two_patterns_are_composed() -> None:
    """Bounds of the product are exact, so the search expands only the prefixes of what it finds."""
    first, second = (RegexPredictor(p, context=context_of("unigram")) for p in ("a[ab]{0,3}", "[ab]*b"))
    size = vocabulary("unigram").size
    found, _ = search(AStarDecoder(), tiny(4, None, size, first=first, second=second), nbest=10_000)
    texts = {spelling("unigram").text(hypothesis.tokens) for hypothesis in found.hypotheses}
    assert texts == {
        "".join(text).encode()
        for length in range(1, 5)
        for text in itertools.product("ab", repeat=length)
        if matches("a[ab]{0,3}", "".join(text).encode()) and text[-1] == "b"
    }


def test_an_automaton_that_is_too_large_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = vocabulary("unigram").size
    scores = np.log(np.random.default_rng(5).dirichlet(np.ones(size), size))
    results = []
    for most in (1 << 22, 3):
        monkeypatch.setattr("sgdec_predictors.texts.text_automaton.WHOLE", most)
        regex = RegexPredictor("a+b?( é| b)*", context=context_of("unigram"))
        (state,) = regex.initialize_batch([Source(1, (3,))])
        assert (regex.whole(state) is None) == (most == 3)
        results.append(search(AStarDecoder(), tiny(4, None, size, model=Table(scores), regex=regex), nbest=3)[0])
    assert results[0].hypotheses == results[1].hypotheses and results[0].hypotheses


def test_automata_are_kept_on_the_disk(tmp_path: Path) -> None:
    def rows() -> list[Any]:
        regex = RegexPredictor("a+( b)*", cache=str(tmp_path / "x"), context=context_of("unigram"))
        states = regex.initialize_batch([Source(1, (3,))])
        first = regex.predict_batch(states).rows
        return [list(row.candidates) for row in [*first, *regex.predict_batch(regex.consume_batch(states, [4])).rows]]

    built = rows()
    (file,) = (tmp_path / "x").iterdir()
    written, content = file.stat().st_mtime_ns, file.read_bytes()
    assert rows() == built and file.stat().st_mtime_ns == written
    for damaged in (b"", content[:100], content[:-40], b"PK\x03\x04" + content[4:][::-1]):
        file.write_bytes(damaged)
        assert rows() == built and file.read_bytes() == content


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    RegexPredictor("a+", cache=str(tmp_path / "file"), context=context_of("unigram"))


def test_numbers_of_sentences_that_have_ended_are_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a+\nb+\na+\n")
    regex = RegexPredictor(path=str(tmp_path / "p.txt"), context=context_of("unigram"))
    one, two, three = regex.initialize_batch([Source(n, (3,)) for n in (1, 2, 3)])
    assert one == three != two
    offsets, tokens, _, after = regex.arcs(np.array([one, two]), None)
    assert regex.consume_batch(np.repeat([one, two], np.diff(offsets)).tolist(), tokens.tolist()) == after.tolist()
    before = [list(row.candidates) for row in regex.predict_batch([two, one, two]).rows]
    regex.release([one])
    assert [list(row.candidates) for row in regex.predict_batch([two, three, two]).rows] == before
    regex.release([three])
    assert [list(row.candidates) for row in regex.predict_batch([two]).rows] == before[:1]
    (again,) = regex.initialize_batch([Source(1, (3,))])
    assert again > max(two, three)
    assert [list(row.candidates) for row in regex.predict_batch([again]).rows] == before[1:2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("a(b", "the pattern 'a(b' cannot be compiled: unclosed group, at character 2. Expected"),
        ("ab[z-a]", "at character 4"),
        ("(?=a)b", "look-around"),
        (r"(a)\1", "backreferences"),
        ("^ab", "anchor"),
        (r"\bab", "word boundary"),
        ("ab$", "anchor"),
        ("z+", "no text that matches the pattern 'z+' can be spelled with the target vocabulary."),
    ],
)
def test_a_pattern_that_cannot_be_used_is_one_clear_line(pattern: str, says: str) -> None:
    with pytest.raises(SgdecError, match=r"^regex: ") as caught:
        RegexPredictor(pattern, context=context_of("bpe"))
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_pattern_that_needs_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec_predictors.regex.SECONDS", 0.4)
    with pytest.raises(SgdecError, match=r"needs more than 1 seconds or 3072 MiB .* or raise --regex.effort"):
        RegexPredictor("([a-z]{99}){199}", cache="none", effort=2, context=context_of("unigram"))


def test_a_pattern_fails_once_and_many_failures_shorten_the_time_of_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def fail(patterns: list[str], seconds: int, memory: int) -> None:
        tried.append((*patterns, seconds))
        raise SgdecError("it needs too much.")

    monkeypatch.setattr("sgdec_predictors.regex.compile_regexes", fail)
    monkeypatch.setattr("time.monotonic", iter(range(0, 10_000, 25)).__next__)
    (tmp_path / "p.txt").write_text("a{99}\na{99}\na{98}\na{97}\na{96}\na{99}\n")
    regex = RegexPredictor(path=str(tmp_path / "p.txt"), cache="none", context=context_of("unigram"))
    for sentence in range(1, 7):
        with pytest.raises(SgdecError, match=rf"p.txt: line {sentence}: it needs too much."):
            regex.initialize_batch([Source(sentence, (3,))])
    assert tried == [("a{99}", 8), ("a{98}", 8), ("a{97}", 8), ("a{96}", 1)]
    (record,) = caplog.records
    assert "that cannot be used have taken 60 seconds. Each later pattern has 1 second" in record.getMessage()


def test_the_automata_of_the_sentences_in_flight_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.txt").write_text("a{9}\na{9}\na{8}\n")
    regex = RegexPredictor(path=str(tmp_path / "p.txt"), cache="none", context=context_of("unigram"))
    monkeypatch.setattr("sgdec_predictors.texts.text_automaton.IN_USE", 18)
    roots = regex.initialize_batch([Source(n, (3,)) for n in (1, 2)])
    with pytest.raises(SgdecError, match="have more than 18 states"):
        regex.initialize_batch([Source(3, (3,))])
    regex.release(roots)
    assert regex.initialize_batch([Source(3, (3,))])


def test_a_pattern_that_takes_too_long_to_be_joined_with_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec_predictors.texts.token_automata.MOST_ARCS", 100)
    with pytest.raises(SgdecError, match=r"^regex: 300 states of text are too many for a vocabulary of \d+ tokens"):
        RegexPredictor("[a-z]{299}", cache="none", context=context_of("unigram"))


def test_the_empty_pattern_allows_the_empty_output_only(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("\n")
    context = context_of("text as it is")
    for pattern, path in (("", None), (None, str(tmp_path / "p.txt"))):
        regex = RegexPredictor(pattern, path, cache="none", context=context)
        (row,) = regex.predict_batch(regex.initialize_batch([Source(1, (3,))])).rows
        assert row.tokens == [EOS]


def test_options_and_sentences_that_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_bytes("\ufeffa+\r\nb(".encode())
    context = context_of("unigram")
    for options in ({}, {"pattern": "a", "path": str(file)}, {"pattern": "", "path": str(file)}):
        with pytest.raises(UsageError, match="either --regex"):
            RegexPredictor(**options, context=context)
    with pytest.raises(UsageError, match="no target vocabulary"):
        RegexPredictor("a")
    regex = RegexPredictor(path=str(file), context=context)
    assert regex.initialize_batch([Source(1, (3,))])
    with pytest.raises(SgdecError, match=r"p.txt: line 2: the pattern 'b\('"):
        regex.initialize_batch([Source(2, (3,))])
    with pytest.raises(SgdecError, match="has 2 lines, so none for sentence 3"):
        regex.initialize_batch([Source(3, (3,))])
    with pytest.raises(SgdecError, match=r"regex: .*none.txt"):
        RegexPredictor(path=str(tmp_path / "none.txt"), context=context)
    long = RegexPredictor("a( a){7}", context=context)
    with pytest.raises(SgdecError, match="shortest output that is allowed has 8 tokens, and the length limit of"):
        long.initialize_batch([Source(1, (3,), max_length=7)])
    long.initialize_batch([Source(1, (3,), max_length=8)])


def test_letters_of_all_scripts() -> None:
    regex = RegexPredictor(r"\w+", context=CHARACTERS_CONTEXT)
    assert all(accepts(regex, text) for text in (*string.ascii_letters, "aé1_"))
    assert not any(accepts(regex, text) for text in ("", "a b", ".", "\n"))

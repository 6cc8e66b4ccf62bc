"""The promise of `bytes`: the total of a text is the log of its probability, the sum over all its tokenisations.

Oracle: enumeration of token sequences (`tests.helpers.toy_spellings`), over random vocabularies of every kind.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.bytes import Bytes
from sgdec_predictors.canonical import Canonical
from sgdec_predictors.fsttok import FstTok
from sgdec_predictors.texts.spelling import Spelling

import sgdec
from sgdec import EOS, BatchPredictor, Context, Decoder, Predictor, Scores, SgdecError, Source, UsageError
from sgdec.arrays import Floats
from sgdec.context import Vocabularies, Vocabulary
from sgdec.io.transducer import TransducerArc, write_transducer
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, Candidates, State
from sgdec.testing import (
    BatchTable,
    Bonus,
    OnDemandTable,
    PassThrough,
    PredictorContract,
    PredictorSearchContract,
    Table,
)
from sgdec.text.pretrained import load_pretrained
from sgdec.text.right_left import RightToLeft
from sgdec.text.words import SPECIAL, MixedVocabulary, WordVocabulary
from sgdec.vocabularies import ByteVocabulary
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search
from tests.helpers.tiny_models import write_checkpoint
from tests.helpers.toy_spellings import (
    Pieces,
    Tokens,
    Toy,
    WordPieces,
    drawn,
    log_of_sum,
    probabilities,
    score,
    sentencepiece_of,
)
from tests.helpers.vocabularies import made, trained

OWN = ByteVocabulary()
SOURCE = Source(1, (3, 4))
SEEDS = range(1000 if EXHAUSTIVE else 50)


class Keyless(BatchTable):
    """Does not say which prefixes have the same future."""

    state_key = None  # type: ignore[assignment]


INNER: tuple[Callable[[Floats], Predictor | BatchPredictor], ...] = (Table, Keyless, OnDemandTable)


def around(inner: Predictor | BatchPredictor, vocabulary: Vocabulary, **options: Any) -> Bytes:
    lifted = lift(inner)
    lifted.vocabularies = Vocabularies(target=vocabulary)
    return Bytes(lifted, **{"width": 0, **options})


def plain(pieces: Sequence[bytes]) -> Toy:
    vocabulary = Pieces(pieces)
    letters = bytes(sorted({*b"".join(pieces)}))
    return Toy(vocabulary, lambda tokens: b"".join(pieces[token - 3] for token in tokens), letters)


def tokens_of(text: bytes) -> Tokens:
    return tuple(3 + byte for byte in text)


def after(predictor: BatchPredictor, prefix: bytes) -> State:
    (state,) = predictor.initialize_batch([SOURCE])
    for token in tokens_of(prefix):
        (state,) = predictor.consume_batch([state], [token])
    return state


def row_after(predictor: BatchPredictor, prefix: bytes) -> Floats:
    return np.asarray(predictor.predict_batch([after(predictor, prefix)]).values)[0]


def total(predictor: BatchPredictor, text: bytes) -> float:
    """As a plain walk says; -inf as soon as a token is forbidden."""
    (state,), found = predictor.initialize_batch([SOURCE]), 0.0
    for token in (*tokens_of(text), EOS):
        scores = predictor.predict_batch([state], [[token]])
        step = float(scores.values[0][token]) if scores.values is not None else scores.rows[0].get(token)
        if step == FORBIDDEN:
            return FORBIDDEN
        found += step
        if token != EOS:
            (state,) = predictor.consume_batch([state], [token])
    return found


def require_close(found: float, expected: float, where: object) -> None:
    assert found == expected or abs(found - expected) < 1e-9, (where, found, expected)


# Sums.


@pytest.mark.slow
def test_each_row_is_the_distribution_of_the_next_byte() -> None:
    for seed in SEEDS:
        toy, rng = drawn(seed), random.Random(seed)
        table = probabilities(np.random.default_rng(seed), toy.vocabulary.size, allowed=0.9)
        texts = around(INNER[seed // 3 % 3](table), toy.vocabulary)
        text, found = bytes(rng.choices(toy.letters, k=3)), 0.0
        for end in range(len(text) + 1):
            prefix, row = text[:end], row_after(texts, text[:end])
            here = toy.log_of_prefix(table, prefix)
            for byte in toy.letters:
                further = toy.log_of_prefix(table, prefix + bytes([byte]))
                require_close(row[3 + byte], further - here if here > FORBIDDEN else FORBIDDEN, (seed, prefix, byte))
            whole = toy.log_of_text(table, prefix)
            require_close(found + float(row[EOS]), whole, (seed, prefix))
            assert whole == FORBIDDEN or total(texts, prefix) == pytest.approx(whole, abs=1e-9)
            found += float(row[3 + text[end]]) if end < len(text) else 0.0


@pytest.mark.slow
def test_the_best_texts_are_found_and_proven() -> None:
    """A beam that drops nothing finds the same, and claims nothing."""
    searches: list[Callable[[], Decoder]] = [
        DfsDecoder, AStarDecoder, lambda: AStarDecoder(recombine=True), lambda: BeamDecoder(size=1000, stop="proven")
    ]  # fmt: skip
    longest = 3
    for seed in SEEDS if EXHAUSTIVE else SEEDS[:40]:
        toy = drawn(seed)
        table = probabilities(np.random.default_rng(seed), toy.vocabulary.size, allowed=0.9)
        few = Bonus(dict.fromkeys((EOS, *tokens_of(toy.letters)), 0.0), default=-math.inf)
        space = tiny(longest, None, OWN.size, text=around(INNER[seed // 3 % 3](table), toy.vocabulary), letters=few)
        totals = {tokens_of(text): toy.log_of_text(table, text) for text in toy.texts(longest)}
        expected = sorted((value for value in totals.values() if value > FORBIDDEN), reverse=True)[:3]
        result, _ = search(searches[seed % 4](), space, nbest=3)
        assert [found.score for found in result.hypotheses] == pytest.approx(expected, abs=1e-9), seed
        assert [totals[found.tokens] for found in result.hypotheses] == pytest.approx(expected, abs=1e-9), seed
        assert result.proven or seed % 4 == 3, seed


def test_the_oracle_spells_what_vocabularies_decode() -> None:
    for seed in range(60):
        toy, rng = drawn(seed), random.Random(seed)
        letters = [token for token in range(3, toy.vocabulary.size) if toy.vocabulary.piece(token)[:3] != "<0x"]
        for length in (1, 2, 3, 4):
            tokens = tuple(rng.choices(letters, k=length))
            spelled = toy.spell(tokens)
            if spelled is not None and "\ufffd" not in spelled.decode(errors="replace"):
                assert spelled.decode() == toy.vocabulary.decode(tokens), (seed, tokens)


def test_scores_that_are_all_tiny_keep_their_digits() -> None:
    """A sum has the precision of its own terms, however probable other bytes are."""
    toy = plain([b"a", b"b", b"ab", b"a"])
    table = np.full((7, 7), -math.inf)
    table[:, EOS], table[:, 3:] = -1e-12, [-900.0, -901.5, -1802.0, -903.0]
    texts = around(Table(table), toy.vocabulary)
    first = np.logaddexp.reduce([-900.0, -903.0])
    expected = np.logaddexp(first - 901.5, -1802.0) - 1e-12
    assert total(texts, b"ab") == pytest.approx(expected, abs=1e-9)


def test_of_equal_futures_there_is_one_element() -> None:
    """After a bigram only the last token counts, so that texts of any length have few elements."""
    toy = plain([b"a", b"aa", b"aaa", b"aaaa"])
    table = probabilities(np.random.default_rng(0), 7)
    few, many = around(Table(table), toy.vocabulary), around(Keyless(table), toy.vocabulary)
    assert len(after(few, b"a" * 12).elements) <= 16 < 500 < len(after(many, b"a" * 12).elements)
    assert total(few, b"a" * 12) == pytest.approx(total(many, b"a" * 12), abs=1e-9)


def test_keys_tell_prefixes_apart_that_differ_in_the_begun_token() -> None:
    texts = around(Table(np.log(np.full((4, 4), 0.25))), Pieces([b"aba"]))
    keys = texts.state_key([after(texts, prefix) for prefix in (b"", b"a", b"ab", b"aba", b"abaaba")])
    assert len({*keys}) == 4 and keys[3] == keys[4]


def test_no_score_is_above_0_if_rounded_probabilities_are_above_1() -> None:
    texts = around(Bonus({3: 0.0, 4: -3.5}, FORBIDDEN), Pieces([b"ab", b"ac"]))
    row = row_after(texts, b"")
    assert row.max() == 0.0 == row[3 + ord("a")] and texts.max_score == 0.0 and not texts.on_demand


def test_the_row_of_a_token_is_not_kept_beside_the_scores_that_are_read() -> None:
    texts = around(Keyless(probabilities(np.random.default_rng(1), 5)), Pieces([b"ab", b"b"]))
    state = after(texts, b"a")
    texts.predict_batch([state])
    (element,) = state.elements
    assert element.inner.values is None and element.inner.row is None
    assert element.values is not None and len(element.values) == 1


# What is part of a text, and what ends it.


def test_special_tokens_are_no_part_of_a_text_and_their_probability_is_lost() -> None:
    toy = plain([b"a", b"b"])
    table = np.log(np.array([[0.25, 0.05, 0.1, 0.4, 0.2]] * 5))
    texts = around(Table(table), toy.vocabulary)
    assert np.exp(row_after(texts, b"a")).sum() == pytest.approx(0.7)
    assert total(texts, b"ab") == pytest.approx(math.log(0.4 * 0.2 * 0.1))


def test_a_text_ends_only_where_a_token_does() -> None:
    texts = around(Bonus({3: math.log(0.75), EOS: math.log(0.25)}, FORBIDDEN), Pieces([b"ab"]))
    assert row_after(texts, b"")[EOS] == pytest.approx(math.log(0.25))
    assert row_after(texts, b"a")[EOS] == FORBIDDEN and row_after(texts, b"a")[3 + ord("b")] == 0.0
    assert row_after(texts, b"ab")[EOS] == pytest.approx(math.log(0.25))


def test_tokens_with_the_same_bytes_all_count() -> None:
    """A letter and its byte; in a row, and as the beginnings of what follows."""
    vocabulary = sentencepiece_of({"a": -1.0, "b": -1.0})
    same = [vocabulary.token("a"), vocabulary.token("<0x61>")]
    shares = {same[0]: 0.5, same[1]: 0.125, vocabulary.token("b"): 0.125, EOS: 0.25}
    texts = around(Bonus({token: math.log(share) for token, share in shares.items()}, FORBIDDEN), vocabulary)
    assert total(texts, b"aab") == pytest.approx(math.log(0.625**2 * 0.125 * 0.25))


def test_a_prefix_may_end_inside_a_character() -> None:
    toy = plain(["é".encode(), "é".encode()[:1], "é".encode()[1:], b"a"])
    table = probabilities(np.random.default_rng(3), 7)
    texts = around(Table(table), toy.vocabulary)
    row = row_after(texts, b"a\xc3")
    possible = (row > FORBIDDEN).nonzero()[0].tolist()
    assert possible == [EOS, *tokens_of(b"a\xa9\xc3")]
    first = toy.log_of_prefix(table, b"a\xc3")
    assert row[3 + 0xA9] == pytest.approx(toy.log_of_prefix(table, b"a\xc3\xa9") - first, abs=1e-9)
    assert OWN.decode(tokens_of(b"a\xc3")) == "a\ufffd"


def test_beside_canonical_all_outputs_are_utf8() -> None:
    toy = plain(["é".encode(), "é".encode()[:1], "é".encode()[1:], b"a"])
    texts = around(Table(probabilities(np.random.default_rng(3), 7)), toy.vocabulary)
    canonical = Canonical(Context(vocabularies=Vocabularies(target=OWN), vocab_size=OWN.size))
    result, _ = search(DfsDecoder(), tiny(3, None, OWN.size, texts=texts, canonical=canonical), nbest=1000)
    found = {OWN.decode(each.tokens) for each in result.hypotheses}
    assert found == {"", "a", "aa", "aaa", "é", "aé", "éa"}


def test_after_a_prompt_of_bytes_tokens_may_reach_over_its_end() -> None:
    """A prompt of tokens would end with a token of its own: after ``ab`` there would be no ``abc``."""
    toy = plain([b"a", b"b", b"c", b"abc", b"bcd"])
    table = probabilities(np.random.default_rng(1), toy.vocabulary.size)
    found = np.exp(row_after(around(Table(table), toy.vocabulary), b"ab")[3 + ord("c")])
    ending = math.exp(score(table, (3, 4, 5)))
    reaching = math.exp(score(table, (6,))) + math.exp(score(table, (3, 7)))
    mass = math.exp(score(table, (3, 4))) + reaching
    assert found == pytest.approx((ending + reaching) / mass) and reaching > 0.01


# Only the tokenizer's own tokens.


def canonical_sums(vocabulary: Vocabulary, table: Floats, texts: Sequence[str]) -> dict[str, float]:
    """The score of the tokenizer's own tokens, if they spell the text again."""
    own = {text: vocabulary.encode(text) for text in texts}
    return {
        text: score(table, (*tokens, EOS)) if vocabulary.decode(tokens) == text and 0 not in tokens else FORBIDDEN
        for text, tokens in own.items()
    }


def texts_of(letters: str, longest: int) -> list[str]:
    return ["".join(text) for n in range(longest + 1) for text in itertools.product(letters, repeat=n)]


@pytest.mark.parametrize("kind", [1, 2], ids=["unigram", "bpe"])
def test_canonical_texts_have_the_probability_of_their_own_tokens(kind: int) -> None:
    pieces = {"▁": -3.0, "a": -2.0, "b": -2.1, "ab": -3.0, "▁a": -3.5, "ba": -4.0, "é": -2.5, "▁ab": -5.0}
    vocabulary = sentencepiece_of(pieces, kind)
    table = probabilities(np.random.default_rng(kind), vocabulary.size)
    texts = around(Table(table), vocabulary, tokenisations="canonical")
    for text, expected in canonical_sums(vocabulary, table, texts_of("ab é", 3)).items():
        require_close(total(texts, text.encode()), expected, text)


def test_what_cannot_become_canonical_is_left_out_early() -> None:
    vocabulary = sentencepiece_of({"▁": -3.0, "a": -2.0, "b": -2.1, "ab": -3.0, "▁a": -3.5})
    table = probabilities(np.random.default_rng(1), vocabulary.size)
    every, own = (
        after(around(Keyless(table), vocabulary, tokenisations=kind), b"ab ab ab") for kind in ("all", "canonical")
    )
    assert len(own.elements) < len(every.elements) / 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("tokenisations", ["all", "canonical"])
def test_with_tokenizers_that_look_ahead(kind: str, tokenisations: str) -> None:
    """Their own tokens of a text are known when the text is complete."""
    vocabulary, spelling = made(kind)
    table = probabilities(np.random.default_rng(1), vocabulary.size)
    texts = around(Table(table), vocabulary, tokenisations=tokenisations)
    examples = ["a", " the", "cat\n", "là", "🙂", "a  b"]
    own = canonical_sums(vocabulary, table, examples)
    toy = Toy(vocabulary, spelling.text, b"")
    for text in examples:
        expected = own[text] if tokenisations == "canonical" else toy.log_of_text(table, text.encode())
        require_close(total(texts, text.encode()), expected, text)


@pytest.mark.slow
def test_word_pieces_of_a_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    pieces = [*SPECIAL, "a", "b", "ab", "##a", "##b", "##ab", "é"]
    listed = {piece: token for token, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(listed, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.decoder = tokenizers.decoders.WordPiece(cleanup=False)
    backend.save(str(tmp_path / "tokenizer.json"))
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(kind))
    vocabulary = load_pretrained(tmp_path)[1]
    table = probabilities(np.random.default_rng(1), vocabulary.size)
    texts = around(Table(table), vocabulary)
    a, b, ab, more_a, more_b, more_ab, _ = range(3, 10)
    ways = {"ab a": [(ab, a), (a, more_b, a)], "aab": [(a, more_ab), (a, more_a, more_b)], "b é": [(b, 9)]}
    for text, sequences in ways.items():
        expected = log_of_sum([score(table, (*z, EOS)) for z in sequences])
        assert total(texts, text.encode()) == pytest.approx(expected, abs=1e-9)


# The same sums by a transducer.


def write_spelling(path: Path, spelling: Spelling) -> str:
    """The transducer that reads bytes and writes the tokens that they spell; its first states are the spelling's."""
    arcs, states = [], itertools.count(spelling.states)
    for state, pieces in enumerate(spelling.adds):
        for token, piece in enumerate(pieces):
            if piece is None:
                continue
            target, here, written = int(spelling.after[state, token]), state, token
            for place, byte in enumerate(piece or b"\0"):
                there = target if place >= len(piece) - 1 else next(states)
                arcs.append((here, TransducerArc(3 + byte if piece else 0, written, 0.0, there)))
                here, written = there, 0
    write_transducer(path, arcs, dict.fromkeys(range(spelling.states), 0.0))
    return str(path)


@pytest.mark.slow
def test_fsttok_sums_to_the_same(tmp_path: Path) -> None:
    for seed in range(30 if EXHAUSTIVE else 12):
        toy = drawn(seed)
        table = probabilities(np.random.default_rng(seed), toy.vocabulary.size)
        path = write_spelling(tmp_path / f"{seed}.fst", Spelling.of(toy.vocabulary))
        texts, transduced = around(Table(table), toy.vocabulary), FstTok(lift(Table(table)), path, semiring="log")
        for text in toy.texts(2):
            require_close(total(texts, text), total(transduced, text), (seed, text))


# Limits.


def test_with_a_width_totals_are_at_most_the_exact_ones_and_the_loss_is_reported() -> None:
    toy = plain([b"a", b"aa", b"aaa", b"ab", b"b"])
    table = probabilities(np.random.default_rng(2), toy.vocabulary.size)
    exact = around(Keyless(table), toy.vocabulary)
    for width in (1, 2, 4):
        bounded = around(Keyless(table), toy.vocabulary, width=width)
        assert bounded.summary() is None
        assert total(bounded, b"aaaab") < total(exact, b"aaaab")
        complete = [element.values is None for element in after(bounded, b"aaaa").elements]
        assert (sum(complete), complete.count(False)) == (width, min(2 * width, 6))
        assert f"width {width} dropped token sequences: a mean of 0." in (bounded.summary() or "")
    assert total(around(Keyless(table), toy.vocabulary, width=100), b"aaaab") == total(exact, b"aaaab")


def test_elements_inside_of_tokens_have_a_limit_of_their_own() -> None:
    toy = plain([b"a" * size for size in range(1, 7)])
    table = probabilities(np.random.default_rng(2), toy.vocabulary.size)
    counts = {}
    for width in (0, 1, 2):
        elements = after(around(Keyless(table), toy.vocabulary, width=width), b"aaaaaa").elements
        counts[width] = sum(each.values is not None for each in elements)
    assert (counts[1], counts[2]) == (2, 4) and counts[0] > 4


def test_sequences_with_a_small_share_are_dropped() -> None:
    """The most probable one is kept in any case."""
    inner = Keyless(np.log(np.tile([1e-9, 1e-9, 0.5, 0.1, 0.4], (5, 1))))
    kept = {
        share: len(after(around(inner, Pieces([b"ab", b"ab"]), min_share=share), b"ab").elements)
        for share in (0.0, 0.19, 0.21, 0.99)
    }
    assert kept == {0.0: 2, 0.19: 2, 0.21: 1, 0.99: 1}
    best = around(inner, Pieces([b"ab", b"abc"]), min_share=0.21)  # ab stays as the best complete one
    assert len(after(best, b"ab").elements) == 2 and best.summary() is None


def test_what_is_lost_is_what_a_row_lacks() -> None:
    toy = plain([b"a", b"a"])
    table = np.log(np.array([[0.0001, 0.0001, 0.2998, 0.4, 0.3]] * 5))
    texts = around(Keyless(table), toy.vocabulary, width=1)
    lost = 1 - float(np.exp(row_after(texts, b"a")).sum())
    assert lost == pytest.approx(0.3 / 0.7 + 0.0002 * 0.4 / 0.7)  # of the second token, and of special ones
    assert "a mean of 0.43 of the probability was lost with each of 1 bytes" in (texts.summary() or "")


def test_equally_probable_elements_are_kept_in_their_order() -> None:
    texts = around(Keyless(np.log(np.full((6, 6), 1 / 6))), Pieces([b"a", b"ab", b"a"]), width=1)
    first, longer = after(texts, b"a").elements
    assert (first.inner.token, longer.inner.token) == (3, -1)
    texts = around(Keyless(np.log(np.full((6, 6), 1 / 6))), Pieces([b"a", b"aab", b"ab"]), width=2)
    longer, *_ = (each for each in after(texts, b"aa").elements if each.values is not None)
    assert longer.inner.token == -1  # of aab, before ab behind a


@pytest.mark.parametrize("limits", [{"width": 1}, {"min_share": 0.1}, {"width": 2, "min_share": 0.9}])
def test_no_text_is_forbidden_if_each_byte_is_a_token(limits: dict[str, Any]) -> None:
    """Although the tokens of one byte are the least probable ones."""
    pieces = [b"a", b"b", b"abab", b"aba", b"bb", b"bab"]
    row = np.log([1e-9, 1e-9, 0.1, 1e-9, 1e-9, 0.3, 0.2, 0.2, 0.2])
    texts = around(Keyless(np.tile(row, (9, 1))), Pieces(pieces), **limits)
    for text in itertools.product(b"ab", repeat=6):
        assert total(texts, bytes(text)) > FORBIDDEN, text


def test_limits_count_bytes_and_the_inner_predictor_has_none() -> None:
    class Unlimited(Table):
        def initialize(self, source: Source) -> None:
            assert source.max_length is None
            super().initialize(source)

    toy = plain([b"ab", b"b"])
    texts = around(Unlimited(probabilities(np.random.default_rng(1), 5)), toy.vocabulary)
    result, _ = search(DfsDecoder(), tiny(3, None, OWN.size, texts=texts), nbest=50)
    assert {OWN.decode(found.tokens) for found in result.hypotheses} == {"", "b", "bb", "bbb", "ab", "abb", "bab"}


# Batches.


class Counting(BatchTable):
    """Notes how many rows each question has."""

    def __init__(self, table: Floats) -> None:
        super().__init__(table)
        self.asked: list[int] = []

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.asked.append(len(states))
        return super().predict_batch(states, candidates)


def test_all_prefixes_of_all_sentences_are_one_question_to_the_inner_predictor() -> None:
    toy = plain([b"a", b"aa", b"b"])
    inner = Counting(probabilities(np.random.default_rng(1), 6))
    texts = around(inner, toy.vocabulary)
    states = texts.initialize_batch([SOURCE, Source(2, (4,)), Source(3, (5,))])
    texts.predict_batch([*states, states[0]])
    assert inner.asked == [3]
    states = texts.consume_batch(states, tokens_of(b"aab"))
    texts.predict_batch(states)
    states = texts.consume_batch(states, tokens_of(b"aba"))
    texts.predict_batch(states)
    assert inner.asked == [3, 3, 4]  # aa has two sequences that end, ab and ba one


class TestContract(PredictorContract):
    plugin = "bytes"
    vocab_size = OWN.size
    options: ClassVar[dict[str, Any]] = {}
    walk_length = 5

    def inner(self) -> Predictor | BatchPredictor:
        return Table(probabilities(np.random.default_rng(1), 8))

    def make(self) -> BatchPredictor:
        inner = PassThrough(lift(self.inner()))
        inner.vocabularies = Vocabularies(target=Pieces([b"a", b"ab", b"ba", "é".encode()[:1], "é".encode()[1:]]))
        return Bytes(inner, **self.options)


@pytest.mark.slow
class TestContractOnDemand(TestContract):
    options: ClassVar[dict[str, Any]] = {"width": 2}

    def inner(self) -> Predictor | BatchPredictor:
        return OnDemandTable(probabilities(np.random.default_rng(1), 8))


@pytest.mark.slow
class TestContractOfSearches(PredictorSearchContract):
    vocab_size = OWN.size
    spaces = 25 if EXHAUSTIVE else 8

    def draw(self, rng: np.random.Generator) -> BatchPredictor:
        pieces = [bytes(rng.choice(list(b"ab"), rng.integers(1, 4)).tolist()) for _ in range(3)]
        kind = INNER[rng.integers(3)]
        return around(kind(probabilities(rng, 7)), Pieces([*pieces, b"a"]), width=int(rng.integers(3)))


# In a run.


@pytest.mark.slow
def test_a_run_is_in_bytes(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model")
    plugin = tmp_path / "texts.py"
    plugin.write_text(
        "import sgdec\nfrom sgdec_predictors.bytes import Bytes\n\n"
        "@sgdec.hookimpl\ndef sgdec_predictors():\n    return {'texts': Bytes}\n"
    )
    run = sgdec.load(
        "texts:nmt", "dfs", plugin_file=plugin, max_length=3, nmt={"model": str(checkpoint)}, texts={"width": 0}
    )
    (found,) = run.decode(["a b"])
    assert found.best.text == OWN.decode(found.best.tokens) and len(found.best.tokens) <= 3 and found.proven
    target = run.parts.vocabularies.target
    assert target is not None and target.fingerprint == OWN.fingerprint
    assert "|lengths:in bytes|" in run.signature


class Releasing(BatchTable):
    """Notes which sentences end."""

    def __init__(self, table: Floats) -> None:
        super().__init__(table)
        self.released: list[State] = []

    def release(self, roots: Sequence[State]) -> None:
        self.released += roots


def test_sentences_end_for_the_inner_predictor_without_their_tokens() -> None:
    """A blank at the beginning adds no text, so it is a second element of the empty prefix."""
    vocabulary = sentencepiece_of({"▁": -1.0, "a": -1.0})
    inner = Releasing(probabilities(np.random.default_rng(1), vocabulary.size))
    texts = around(inner, vocabulary)
    roots = texts.initialize_batch([SOURCE, Source(2, (3,))])
    texts.predict_batch(roots)
    assert len(roots[0].elements) == 2
    assert texts.state_key(roots[:1]) == texts.state_key(texts.initialize_batch([SOURCE]))  # read or not
    texts.release(roots)
    assert inner.released == inner.initialize_batch([SOURCE, Source(2, (3,))])
    assert not hasattr(around(Keyless(inner._simple.table), vocabulary), "release")


def test_the_source_stays_that_of_the_inner_predictor() -> None:
    source, target = Pieces([b"x"]), Pieces([b"y"])
    found = Bytes.read_vocabularies(Vocabularies(source, target))
    assert found.source is source and found.target is not None and found.target.fingerprint == OWN.fingerprint


def test_an_inner_predictor_without_a_vocabulary_gets_one(tmp_path: Path) -> None:
    vocabulary = trained(vocab_size=310, byte_fallback=True)
    path = tmp_path / "pieces.spm"
    path.write_bytes(vocabulary.serialized)
    context = Bytes.inner_context(Context(vocabularies=Vocabularies(target=OWN), vocab_size=259), str(path))
    assert context.vocab_size == vocabulary.size
    table = probabilities(np.random.default_rng(1), vocabulary.size)
    texts = Bytes(lift(Table(table)), tokenizer=str(path), width=0)
    assert total(texts, b"the") == total(around(Table(table), vocabulary), b"the")
    assert Bytes.inner_context(Context(vocab_size=259)).vocab_size is None


def test_sources_are_split_for_an_inner_predictor_that_cannot(tmp_path: Path) -> None:
    """The run's source tokens can be those of another model."""
    read: list[Source] = []

    class Reader(BatchTable):
        def initialize_batch(self, sources: Any) -> Any:
            read.extend(sources)
            return super().initialize_batch(sources)

    vocabulary = trained(vocab_size=310, byte_fallback=True)
    path = tmp_path / "pieces.spm"
    path.write_bytes(vocabulary.serialized)
    inner = Reader(probabilities(np.random.default_rng(1), vocabulary.size))
    run = Context(vocabularies=Vocabularies(Pieces([b"t", b"he"])))
    sources = [Source(1, (3, 4), "the"), Source(2, (3, 4))]
    Bytes(inner, tokenizer=str(path), context=run).initialize_batch(sources)
    Bytes(inner, tokenizer=str(path)).initialize_batch([Source(3, (7, 8), "7 8")])  # of a run of token ids
    inner.vocabularies = Vocabularies(vocabulary, vocabulary)
    Bytes(inner, tokenizer=str(path), context=run).initialize_batch(sources[:1])
    assert [source.tokens for source in read] == [vocabulary.encode("the")] * 2 + [(7, 8), (3, 4)]


# Bad input.


class EndMarks(WordPieces):
    """A blank follows a mark, unless the text ends there."""

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(self.piece, tokens)).replace("</w>", " ").rstrip()


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (lambda: WordVocabulary([*SPECIAL, "dog", "a_UNK_b"]), "such as 'dog'. Any other word is <unk>"),
        (lambda: trained(["dog a", "dog"] * 9, model_type="word", vocab_size=9), "only whole words, such as 'dog'"),
        (lambda: RightToLeft(trained()), "written from right to left"),
        (lambda: EndMarks(["a", "b", "a</w>", "b</w>"]), "depends on tokens after them"),
    ],
    ids=["words", "words of SentencePiece", "right to left", "marks at ends"],
)
def test_vocabularies_that_do_not_spell_are_refused(vocabulary: Callable[[], Vocabulary], expected: str) -> None:
    with pytest.raises(SgdecError, match=expected) as error:
        around(Bonus({}), vocabulary())
    line = str(error.value)
    assert line.startswith("bytes: ") and line.endswith("The predictor fsttok takes spellings from a transducer.")
    assert "\n" not in line


def test_a_vocabulary_with_a_lone_blank_is_not_one_of_words() -> None:
    shares = {3: 0.5, 4: 0.25, EOS: 0.25}
    inner = Bonus({token: math.log(share) for token, share in shares.items()}, FORBIDDEN)
    assert total(around(inner, Pieces([b" ", b" a"])), b"  a") == pytest.approx(math.log(0.5 * 0.25 * 0.25))


def test_words_and_characters_are_spelled() -> None:
    vocabulary = MixedVocabulary([*SPECIAL, "<B>a", "<E>b", "ab", "<B>b"])
    table = probabilities(np.random.default_rng(1), 7)
    ways = [(3, 4, 5), (5, 3, 4), (3, 4, 3, 4), (5, 5)]
    expected = log_of_sum([score(table, (*z, EOS)) for z in ways])
    assert total(around(Table(table), vocabulary), b"ab ab") == pytest.approx(expected, abs=1e-9)


def test_a_predictor_without_a_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match=r"bytes: the inner predictor has no vocabulary.*: give --bytes\.tokenizer"):
        Bytes(lift(Bonus({})))


def test_a_tokenizer_beside_another_vocabulary_is_refused(tmp_path: Path) -> None:
    own, other = sentencepiece_of({"a": -1.0}), sentencepiece_of({"a": -1.0, "b": -1.0})
    (tmp_path / "t.spm").write_bytes(other.serialized)
    with pytest.raises(UsageError, match=r"brings another vocabulary \(260 tokens\) than .*t\.spm \(261 tokens\)"):
        around(Bonus({}), own, tokenizer=str(tmp_path / "t.spm"))


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none.spm")
    with pytest.raises(SgdecError, match=r"none\.spm: cannot be read \(No such file"):
        Bytes(lift(Bonus({})), tokenizer=path)
    with pytest.raises(SgdecError, match=r"none\.spm: cannot be read \(No such file"):
        Bytes.inner_context(Context(), path)


@pytest.mark.parametrize(("scores", "found"), [({}, "1.21"), ({3: math.nan}, "inf"), ({2: math.inf}, "inf")])
def test_scores_that_are_not_log_probabilities_are_refused(scores: dict[int, float], found: str) -> None:
    texts = around(Bonus(scores, -0.5), Pieces([b"a"]))
    with pytest.raises(SgdecError, match=f"bytes: the inner scores are not log-probabilities.*add up to {found}"):
        row_after(texts, b"")


def test_a_vocabulary_with_more_tokens_than_the_inner_predictor_is_refused() -> None:
    texts = around(Table(np.log(np.full((5, 5), 0.2))), Pieces([b"a", b"b", b"c", b"d"]))
    with pytest.raises(UsageError, match="bytes writes token 6, but the inner predictor has 5 tokens"):
        row_after(texts, b"")


@pytest.mark.parametrize("byte", [b"c", b"\xff"])
def test_a_byte_that_no_token_spells_is_a_dead_end(byte: bytes) -> None:
    texts = around(Bonus({3: math.log(0.5), EOS: math.log(0.5)}, FORBIDDEN), Pieces([b"ab"]))
    for prefix in (byte, b"a" + byte, b"aba" + byte):
        state = after(texts, prefix)
        assert texts.best_remaining([state]) == [FORBIDDEN]
        assert (np.asarray(texts.predict_batch([state]).values) == FORBIDDEN).all()
        assert texts.consume_batch([state], [3 + ord("a")])[0].elements == ()

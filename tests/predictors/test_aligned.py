"""The promise of `aligned`: the total of an output is the follower's probability of its text.

Oracle: enumeration of the follower's token sequences (`tests.helpers.toy_spellings`), for random vocabularies of
every kind on both sides.
"""

from __future__ import annotations

import math
import random
from typing import Any, ClassVar

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.aligned import Aligned
from sgdec_predictors.topk import TopTokens

from sgdec import EOS, BatchPredictor, Context, SgdecError, Source, UsageError
from sgdec.arrays import Floats
from sgdec.context import Vocabularies, Vocabulary
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import BatchTable, Bonus, OnDemandTable, PassThrough, PredictorContract, Table
from sgdec.testing.enumeration import enumerate_space
from sgdec.text.right_left import RightToLeft
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.wrapping import Wrapper
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.toy_spellings import Pieces, Tokens, Toy, drawn, probabilities

SOURCE = Source(1, (3, 4))
SEEDS = range(1000 if EXHAUSTIVE else 45)


def in_tokens_of(leader: Vocabulary, table: Floats, follower: Vocabulary, **options: Any) -> Aligned:
    inner = lift(Table(table))
    inner.vocabularies = Vocabularies(target=follower)
    context = Context(vocabularies=Vocabularies(target=leader), vocab_size=leader.size)
    return Aligned(inner, **{"width": 0, "min_share": 0.0, **options}, context=context)


def pair(seed: int) -> tuple[Toy, Toy, Floats]:
    """A leader and a follower with the same letters, and the follower's scores."""
    leader = drawn(seed)
    follower = next(
        toy for other in range(seed + 1, seed + 400) if set((toy := drawn(other)).letters) == set(leader.letters)
    )
    return leader, follower, probabilities(np.random.default_rng(seed), follower.vocabulary.size, allowed=0.9)


def walk(aligned: BatchPredictor, tokens: Tokens) -> list[float]:
    """The score of each token."""
    (state,), found = aligned.initialize_batch([SOURCE]), []
    for token in tokens:
        found.append(aligned.predict_batch([state], [[token]]).rows[0].get(token))
        if token != EOS and found[-1] > FORBIDDEN:
            (state,) = aligned.consume_batch([state], [token])
        elif token != EOS:
            break
    return found


@pytest.mark.slow
def test_scores_are_probabilities_of_texts() -> None:
    compared = 0
    for seed in SEEDS:
        leader, follower, table = pair(seed)
        aligned, rng = in_tokens_of(leader.vocabulary, table, follower.vocabulary), random.Random(seed)
        for _ in range(4):
            tokens = tuple(rng.choices(range(3, leader.vocabulary.size), k=rng.randint(0, 3)))
            text = leader.spell(tokens)
            if text is None or len(text) > 6:
                continue
            expected = follower.log_of_text(table, text)
            found = walk(aligned, (*tokens, EOS))
            if expected == FORBIDDEN:
                assert FORBIDDEN in found, (seed, tokens)
                continue
            compared += 1
            assert math.fsum(found) == pytest.approx(expected, abs=1e-9), (seed, tokens, text)
    assert compared > len(SEEDS) // 2


@pytest.mark.slow
def test_a_row_is_the_same_for_all_candidates_and_for_some() -> None:
    for seed in SEEDS[:30]:
        leader, follower, table = pair(seed)
        aligned = in_tokens_of(leader.vocabulary, table, follower.vocabulary)
        states = aligned.initialize_batch([SOURCE, SOURCE])
        states[1] = aligned.consume_batch(states[:1], [leader.vocabulary.size - 1])[0]
        every = aligned.predict_batch(states).rows
        some = aligned.predict_batch(states, [[EOS, leader.vocabulary.size - 1], [3]]).rows
        alone = [aligned.predict_batch([state]).rows[0] for state in states]
        for row, few, own in zip(every, some, alone, strict=True):
            assert [own.get(token) for token in own.tokens] == [row.get(token) for token in row.tokens]
            assert list(few.scores) == [row.get(token) for token in few.tokens], seed


@pytest.mark.slow
def test_the_best_output_of_both_models_is_proven() -> None:
    """A leader's bigram plus the follower's probability of the text, against enumeration."""
    for seed in SEEDS[: 60 if EXHAUSTIVE else 30]:
        leader, follower, table = pair(seed)
        if leader.vocabulary.size > 20:  # with a token for each byte: too many outputs
            continue
        size, source = leader.vocabulary.size, Source(1, (3, 4), max_length=2)
        own = probabilities(np.random.default_rng(seed + 1), size)
        own[:, 0] = own[:, 1] = FORBIDDEN
        aligned = in_tokens_of(leader.vocabulary, table, follower.vocabulary)
        space = Constellation.of({"own": BatchTable(own), "aligned": aligned}, vocab_size=size)
        paths = enumerate_space(space, source)
        for path in paths[:5]:
            text = leader.spell(path.tokens)
            assert text is not None
            rest = path.total - sum(step[0] for step in path.ledger)
            assert rest == pytest.approx(follower.log_of_text(table, text), abs=1e-9), seed
        for decoder in (AStarDecoder(), BeamDecoder(size=100, stop="proven")):
            result = next(iter(Scheduler(space, decoder).run([source]))).result
            assert result.proven if isinstance(decoder, AStarDecoder) else True
            assert result.hypotheses[0].score == pytest.approx(paths[0].total, abs=1e-9), seed


def test_topk_around_the_leader_limits_what_is_scored() -> None:
    asked: list[Any] = []

    class Watched(Aligned):
        def predict_batch(self, states: Any, candidates: Any = None) -> Any:
            asked.extend(candidates)
            return super().predict_batch(states, candidates)

    letters = [b"a", b"b", b"ab", b"ba", b"aab"]
    leader, follower = Pieces(letters), Pieces([b"a", b"b", b"bb"])
    inner = lift(Table(probabilities(np.random.default_rng(1), follower.size)))
    inner.vocabularies = Vocabularies(target=follower)
    aligned = Watched(inner, context=Context(vocabularies=Vocabularies(target=leader), vocab_size=leader.size))
    own = probabilities(np.random.default_rng(2), leader.size)
    space = {"leader": TopTokens(BatchTable(own), k=2), "aligned": aligned}
    scheduler = Scheduler(Constellation.of(space, vocab_size=leader.size), BeamDecoder(size=3))
    result = next(iter(scheduler.run([Source(1, (3,), max_length=3)]))).result
    assert result.hypotheses and asked and all(len(tokens) <= 3 for tokens in asked if tokens is not None)
    said = space["leader"].summary()
    assert said is not None and said.startswith("k 2: tokens with a mean of 0.")


def test_dropped_sequences_only_lower_totals_and_are_reported() -> None:
    leader, follower = Pieces([b"abab", b"ab", b"a"]), Pieces([b"a", b"b", b"ab", b"ba", b"aba", b"bab"])
    table = probabilities(np.random.default_rng(3), follower.size)
    exact, few = (in_tokens_of(leader, table, follower, width=width) for width in (0, 1))
    tokens = (3, 4, EOS)
    assert math.fsum(walk(few, tokens)) < math.fsum(walk(exact, tokens))
    said = few.summary()
    assert exact.summary() is None and said is not None and "of the probability was lost" in said


def pieces(rng: random.Random) -> Pieces:
    """Both letters, and some longer pieces."""
    longer = {bytes(rng.choices(b"ab", k=rng.randint(2, 5))) for _ in range(rng.randint(2, 6))}
    return Pieces([b"a", b"b", *sorted(longer)])


def test_no_text_is_forbidden_because_its_sequences_were_dropped() -> None:
    """Each text has a sequence, and totals are never above the exact ones."""
    lower = 0
    for seed in range(60):
        rng = random.Random(seed)
        leader, follower = pieces(rng), pieces(rng)
        table = probabilities(np.random.default_rng(seed), follower.size, allowed=1.0)
        exact = in_tokens_of(leader, table, follower)
        few = in_tokens_of(leader, table, follower, width=rng.randint(1, 2), min_share=rng.choice([0.0, 0.1, 0.5]))
        for _ in range(4):
            tokens = (*rng.choices(range(3, leader.size), k=rng.randint(1, 4)), EOS)
            total, most = math.fsum(walk(few, tokens)), math.fsum(walk(exact, tokens))
            assert FORBIDDEN < total <= most + 1e-9, (seed, tokens)
            lower += total < most - 1e-6
    assert lower > 20


def by_the_rules(pieces: Pieces, table: Floats, text: bytes, width: int, least: float) -> tuple[float, float, float]:
    """The score of a text at the beginning; the sum of what was left out; and the score of the best of it."""
    total, lost, best_lost = FORBIDDEN, 0.0, FORBIDDEN
    level: list[tuple[float, Tokens, int]] = [(0.0, (), 0)]
    while level:
        steps: list[tuple[float, Tokens, int]] = []
        for weight, tokens, done in level:
            for token, piece in enumerate(pieces.pieces, 3):
                score = weight + float(table[tokens[-1] if tokens else 1, token])
                if piece.startswith(text[done:]):
                    total = float(np.logaddexp(total, score))
                elif text[done:].startswith(piece):
                    steps.append((score, (*tokens, token), done + len(piece)))
        steps.sort(key=lambda step: -step[0])
        best = steps[0][0] if steps else FORBIDDEN
        enough = min(least, least + best) if total == FORBIDDEN else least
        level = []
        for step in steps:
            if step[0] >= enough and sum(other[2] == step[2] for other in level) < width:
                level.append(step)
            else:
                lost, best_lost = lost + math.exp(step[0]), max(best_lost, step[0])
    return total, lost, best_lost


def test_few_sequences_are_followed_by_the_rules() -> None:
    """Random vocabularies, in which all sequences have different probabilities."""
    left_out = 0
    for seed in range(400 if EXHAUSTIVE else 60):
        rng = random.Random(seed)
        leader, follower = pieces(rng), pieces(rng)
        width, share = rng.randint(1, 3), rng.choice([0.001, 0.05, 0.2, 0.6])
        table = probabilities(np.random.default_rng(seed), follower.size)
        aligned = in_tokens_of(leader, table, follower, width=width, min_share=share)
        (state,) = aligned.initialize_batch([SOURCE])
        (row,) = aligned.predict_batch([state]).rows
        for token, piece in enumerate(leader.pieces, 3):
            expected = by_the_rules(follower, table, piece, width, math.log(share))
            known, place = state.continued, state.continued.place(aligned._texts.of[0, token])
            found = row.get(token), known.lost[place], known.left_out.weight[place]
            assert found == pytest.approx(expected, abs=1e-9), (seed, piece)
            left_out += expected[1] > 0
    assert left_out > 60


@pytest.mark.parametrize("tokens", [(3, 3), (3, 4, 3), (5, 3), (3, 4, 4, 3), (6, 3), (6, EOS), (5, 7, 3)])
def test_a_sequence_that_was_dropped_is_used_if_no_other_one_fits(tokens: Tokens) -> None:
    """The follower's abbb is most probable by far, so that a, a b and a b b are dropped."""
    leader, follower = Pieces([b"a", b"b", b"ab", b"abb", b""]), Pieces([b"a", b"b", b"abbb"])
    table = np.log([[1e-9, 1e-9, 0.1, 0.004, 0.006, 0.89]] * 6)
    text = b"".join(leader.pieces[token - 3] for token in tokens if token != EOS)
    spelled = [follower.pieces.index(bytes([byte])) + 3 for byte in text]
    total = sum(table[0, token] for token in spelled[: len(spelled) - (tokens[-1] != EOS)])
    total += table[0, EOS] if tokens[-1] == EOS else np.logaddexp(table[0, 3], table[0, 5])  # a, or abbb
    aligned = in_tokens_of(leader, table, follower, min_share=0.01)
    assert math.fsum(walk(aligned, tokens)) == pytest.approx(total, abs=1e-9)


def test_a_sequence_that_is_kept_aside_counts_as_lost() -> None:
    """The token a has 0.2 of the probability of its byte, and ab the rest."""
    table = np.log([[1e-9, 1e-9, 0.5, 0.1, 0.4]] * 5)
    aligned = in_tokens_of(Pieces([b"a"]), table, Pieces([b"a", b"ab"]), min_share=0.3)
    aligned.consume_batch(aligned.initialize_batch([SOURCE]), [3])
    said = aligned.summary()
    assert said is not None and "a mean of at most 0.2 of the probability was lost with each of 1 tokens" in said


def test_a_score_depends_on_no_other_candidate() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        leader, follower = pieces(rng), pieces(rng)
        table = probabilities(np.random.default_rng(seed), follower.size)
        first, every = rng.randrange(3, leader.size), range(3, leader.size)
        found = []
        for candidates in (every, *([token] for token in every)):
            aligned = in_tokens_of(leader, table, follower, min_share=0.1)
            states = aligned.consume_batch(aligned.initialize_batch([SOURCE]), [first])
            found.append(aligned.predict_batch(states, [list(candidates)]).rows[0])
        assert [row.get(token) for row, token in zip(found[1:], every, strict=True)] == list(map(found[0].get, every))


def test_one_state_can_be_asked_about_several_candidates_at_once() -> None:
    leader, follower = Pieces([b"ab", b"a", b"b"]), Pieces([b"a", b"b", b"ab"])
    table = probabilities(np.random.default_rng(1), follower.size)
    (state,) = in_tokens_of(leader, table, follower).initialize_batch([SOURCE])
    rows = in_tokens_of(leader, table, follower).predict_batch([state] * 3, [[3], [4], [3, 5]]).rows
    found = [rows[0].get(3), rows[1].get(4), rows[2].get(3), rows[2].get(5)]
    assert found == [walk(in_tokens_of(leader, table, follower), (token,))[0] for token in (3, 4, 3, 5)]


def test_what_was_read_inside_of_candidates_is_not_read_again() -> None:
    rows: list[int] = []

    class Counted(Wrapper):
        def predict_batch(self, states: Any, candidates: Any = None) -> Any:
            rows.append(len(states))
            return super().predict_batch(states, candidates)

    leader, follower = Pieces([b"ab", b"a"]), Pieces([b"a", b"b"])
    inner = Counted(lift(Table(probabilities(np.random.default_rng(1), follower.size))))
    inner.vocabularies = Vocabularies(target=follower)
    aligned = Aligned(inner, context=Context(vocabularies=Vocabularies(target=leader), vocab_size=leader.size))
    states = aligned.initialize_batch([SOURCE])
    aligned.predict_batch(states)  # the beginning; after a, inside of ab
    states = aligned.consume_batch(states * 2, [3, 4])
    aligned.predict_batch(states)  # after a, which is known; after ab; and after both inside of ab
    assert rows == [1, 1, 1, 2]


def test_tokens_that_are_no_text_are_forbidden_and_silent_ones_cost_nothing() -> None:
    leader, follower = Pieces([b"a", b""]), Pieces([b"a"])
    aligned = in_tokens_of(leader, np.log([[0.1, 0.1, 0.4, 0.4]] * 4), follower)
    (row,) = aligned.predict_batch(aligned.initialize_batch([SOURCE])).rows
    assert [row.get(token) for token in (0, 1, 4)] == [FORBIDDEN, FORBIDDEN, 0.0]
    assert row.get(EOS) == pytest.approx(math.log(0.4)) and row.get(3) == pytest.approx(math.log(0.4))


def test_wrong_sides_are_one_line() -> None:
    table = probabilities(np.random.default_rng(1), 5)
    pieces, words = Pieces([b"a", b"b"]), WordVocabulary([*SPECIAL, "a", "dog"])
    inner = lift(Table(table))
    with pytest.raises(UsageError, match="aligned: no predictor of the run says how its tokens are spelled"):
        Aligned(inner)
    with pytest.raises(UsageError, match=r"aligned: the inner predictor has no vocabulary.* --aligned.tokenizer"):
        Aligned(inner, context=Context(vocabularies=Vocabularies(target=pieces)))
    with pytest.raises(SgdecError, match=r"aligned: the inner vocabulary has only whole words"):
        in_tokens_of(pieces, table, words)
    with pytest.raises(SgdecError, match=r"aligned: outputs are written from right to left"):
        in_tokens_of(RightToLeft(pieces), table, pieces)


def test_scores_that_are_no_probabilities_are_refused() -> None:
    """At the beginning, or inside of a candidate."""
    pieces = Pieces([b"a", b"ab"])
    table = probabilities(np.random.default_rng(1), pieces.size)
    table[1] += 3.0
    for rows in (table, np.roll(table, 2, axis=0)):
        aligned = in_tokens_of(pieces, rows, Pieces([b"a", b"b"]))
        with pytest.raises(SgdecError, match=r"aligned: the inner scores are not log-probabilities.* aligned:temper"):
            aligned.predict_batch(aligned.initialize_batch([SOURCE]))


def test_very_long_tokens_are_refused() -> None:
    """Of either side, before a trie with a level for each byte is built."""
    table, short = probabilities(np.random.default_rng(1), 5), Pieces([b"a", b"b"])
    long = Pieces([b"a", b"b" * 10_001])
    with pytest.raises(SgdecError, match="aligned: token 4 of the vocabulary spells 10,001 bytes"):
        in_tokens_of(long, table, short)
    with pytest.raises(SgdecError, match="aligned: token 4 of the vocabulary spells 10,001 bytes"):
        in_tokens_of(short, table, long)


class TestContract(PredictorContract):
    plugin = "aligned"
    vocab_size = 8
    options: ClassVar[dict[str, Any]] = {}
    walk_length = 4
    kind: ClassVar[Any] = Table

    def make(self) -> BatchPredictor:
        inner = PassThrough(lift(self.kind(probabilities(np.random.default_rng(1), 8))))
        inner.vocabularies = Vocabularies(target=Pieces([b"a", b"ab", b"ba", "é".encode()[:1], "é".encode()[1:]]))
        leader = Pieces([b"a", b"b", b"aba", "é".encode(), b"ab"])
        context = Context(vocabularies=Vocabularies(target=leader), vocab_size=8)
        return Aligned(inner, **{"width": 0, **self.options}, context=context)


@pytest.mark.slow
class TestContractOnDemand(TestContract):
    kind: ClassVar[Any] = OnDemandTable
    options: ClassVar[dict[str, Any]] = {"width": 2}


class TestTopTokens(PredictorContract):
    plugin = "topk"
    vocab_size = 8

    def make(self) -> BatchPredictor:
        return TopTokens(PassThrough(BatchTable(probabilities(np.random.default_rng(1), 8))), k=3)


def test_topk_keeps_the_lowest_of_equal_tokens_and_the_end() -> None:
    rows = np.log(np.array([[0.1, 0.1, 0.05, 0.25, 0.25, 0.25]]))
    best = TopTokens(BatchTable(np.repeat(rows, 6, axis=0)), k=2)
    (row,) = best.predict_batch(best.initialize_batch([SOURCE])).rows
    assert list(row.candidates) == [2, 3, 4]
    said = best.summary()
    assert said is not None and "a mean of 0.45 of the probability" in said
    sparse = TopTokens(lift(Bonus({3: 1.0, 5: 2.0}, default=0.0)), k=2, context=Context(vocab_size=7))
    (row,) = sparse.predict_batch(sparse.initialize_batch([SOURCE])).rows
    assert {token: row.get(token) for token in row.candidates} == {2: 0.0, 3: 1.0, 5: 2.0}
    with pytest.raises(UsageError, match="topk: the number of tokens"):
        unknown = TopTokens(lift(Bonus({3: 1.0}, default=0.0)), k=2)
        unknown.predict_batch(unknown.initialize_batch([SOURCE]))

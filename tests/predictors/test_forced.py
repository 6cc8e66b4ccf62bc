"""The forced predictor allows its reference and nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_predictors.forced import ForcedPredictor
from sgdec_predictors.unkc import UnkCount
from sgdec_predictors.wc import WordCount

from sgdec.context import EOS, Context, Vocabularies
from sgdec.errors import SgdecError
from sgdec.protocol import Hypothesis, Source
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing.enumeration import enumerate_space, score_path


class Letters:
    """A vocabulary of letters: a is 3, b is 4, and z is 28."""

    size = 29
    fingerprint = "letters"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(letter) - ord("a") + 3 for letter in text if letter != " ")

    def decode(self, tokens: object) -> str:
        raise NotImplementedError

    def piece(self, token: int) -> str:
        raise NotImplementedError

    def token(self, piece: str) -> int:
        raise NotImplementedError


def references(folder: Path, text: str) -> str:
    (folder / "references").write_text(text, encoding="utf-8")
    return str(folder / "references")


def test_each_sentence_has_one_hypothesis_its_line(tmp_path: Path) -> None:
    path = references(tmp_path, "17 4 4\n\n0 9\n")
    constellation = Constellation.of({"forced": ForcedPredictor(path)})
    for number, tokens in ((1, (17, 4, 4)), (2, ()), (3, (0, 9))):
        (found,) = enumerate_space(constellation, Source(number, ()))
        assert (found.tokens, found.total) == (tokens, 0.0)
        (root,) = constellation.roots([Source(number, ())])
        for decoder in (GreedyDecoder(), BeamDecoder(), BeamDecoder(stop="proven", recombine=True)):
            (hypothesis,) = decoder.decode(SearchSpace(constellation, root)).hypotheses
            assert (hypothesis.tokens, hypothesis.score) == (tokens, 0.0)


def test_forced_decoding_gives_other_predictors_scores_of_the_reference(tmp_path: Path) -> None:
    others = {"wc": WordCount(), "unkc": UnkCount(lambdas=(0.5,))}
    source, tokens = Source(1, (3,)), (0, 4, 0)
    constellation = Constellation.of(
        {"forced": ForcedPredictor(references(tmp_path, "0 4 0\n")), **others}, weights=[1.0, 0.25, 2.0]
    )
    (root,) = constellation.roots([source])
    hypothesis: Hypothesis = GreedyDecoder().decode(SearchSpace(constellation, root)).hypotheses[0]
    total, ledger = score_path(Constellation.of(others, weights=[0.25, 2.0]), source, tokens)
    assert hypothesis.tokens == tokens
    assert hypothesis.score == pytest.approx(total)
    assert [row[1:] for row in hypothesis.ledger] == [tuple(row) for row in ledger]


def test_lines_are_text_where_there_is_a_target_vocabulary(tmp_path: Path) -> None:
    context = Context(vocabularies=Vocabularies(None, Letters()))
    predictor = ForcedPredictor(references(tmp_path, "b a\n"), context)
    (found,) = enumerate_space(Constellation.of({"forced": predictor}), Source(1, ()))
    assert found.tokens == (4, 3)


def test_sentence_marks_at_the_ends_may_be_written(tmp_path: Path) -> None:
    constellation = Constellation.of({"forced": ForcedPredictor(references(tmp_path, "1 5 6 2\n1 2\n"))})
    for number, tokens in ((1, (5, 6)), (2, ())):
        assert [found.tokens for found in enumerate_space(constellation, Source(number, ()))] == [tokens]


def test_off_the_reference_and_after_it_nothing_is_allowed(tmp_path: Path) -> None:
    predictor = ForcedPredictor(references(tmp_path, "5 6\n"))
    (start,) = predictor.initialize_batch([Source(1, ())])
    for wrong in (6, EOS):
        (off,) = predictor.consume_batch([start], [wrong])
        (row,) = predictor.predict_batch([off]).rows
        assert len(row) == 0 and row.restricts
        assert predictor.consume_batch([off], [5]) == [off]
    states = [start]
    for token in (5, 6, EOS):
        assert predictor.predict_batch(states).rows[0].lookup == {token: 0.0}
        states = predictor.consume_batch(states, [token])
    assert len(predictor.predict_batch(states).rows[0]) == 0
    (ended,) = states
    assert predictor.best_remaining([start, off, ended]) == [0.0, -math.inf, 0.0]
    assert predictor.worst_remaining([start, off, ended]) == [0.0, math.inf, 0.0]
    assert len(set(predictor.state_key([start, off, ended]))) == 3


def test_a_reference_beyond_the_length_limit_has_no_hypothesis(tmp_path: Path) -> None:
    constellation = Constellation.of({"forced": ForcedPredictor(references(tmp_path, "5 6\n"))})
    assert enumerate_space(constellation, Source(1, (), None, max_length=1)) == []
    assert len(enumerate_space(constellation, Source(1, (), None, max_length=2))) == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("5 six", "line 1: 'six' is not a token id. Without a target vocabulary, words are token ids."),
        ("-5", "line 1: '-5' is not a token id."),
        ("5 2 6", "line 1: 2 stands for <s> or </s>. Leave both out; they are added."),
        ("5 1 6", "line 1: 1 stands for <s> or </s>."),
        ("5 100", "line 1: 100 is outside the target vocabulary of 100 tokens."),
    ],
)
def test_a_line_that_is_no_list_of_tokens_costs_only_its_sentence(tmp_path: Path, line: str, complaint: str) -> None:
    path = references(tmp_path, f"{line}\n7\n")
    predictor = ForcedPredictor(path, Context(vocab_size=100))
    with pytest.raises(SgdecError) as error:
        predictor.initialize_batch([Source(1, ()), Source(2, ())])
    assert str(error.value).startswith(f"forced: {path}: {complaint}")
    assert "\n" not in str(error.value)
    states = predictor.initialize_batch([Source(2, ())])
    assert predictor.predict_batch(states).rows[0].lookup == {7: 0.0}


def test_too_few_lines_are_named_with_their_number(tmp_path: Path) -> None:
    predictor = ForcedPredictor(references(tmp_path, "5\n6\n"))
    with pytest.raises(SgdecError, match=r"forced: .*/references has 2 lines, so none for sentence 3\."):
        predictor.initialize_batch([Source(3, ())])


def test_a_missing_file_and_invalid_utf8_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"forced: .*/missing: cannot be read \(No such file or directory\)"):
        ForcedPredictor(str(tmp_path / "missing"))
    (tmp_path / "latin").write_bytes(b"5\n\xe9\n")
    with pytest.raises(SgdecError, match=r"forced: .*/latin: line 2 is not UTF-8"):
        ForcedPredictor(str(tmp_path / "latin"))

"""The n-best list predictor allows exactly the listed hypotheses, and scores each as the list does."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.forcedlst import ForcedList

from sgdec import Context, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.testing import score_path
from tests.helpers.automata import check_bounds, nodes_of, space_of, totals_of
from tests.helpers.breadth import some
from tests.helpers.contracts import PluginContract, SearchContract
from tests.helpers.oracles import tiny

pytestmark = pytest.mark.slow

LIST = """\
1 ||| 3 4 ||| lm= -2.5 tm= -1 -0.5 ||| -1.5
1 ||| 3 4 5 ||| lm= -3 tm= 0.25 0 ||| 2.25
1 ||| ||| lm= -9 tm= -9 -9 ||| -4
1 ||| 3 4 ||| lm= -7 tm= -1 -2 ||| -1.25
2 ||| 6 ||| lm= 0 tm= 0 0 ||| 0
"""


def written(folder: Path, text: str, name: str = "list.ids") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def totals(folder: Path, text: str = LIST, sentence: int = 1, **options: Any) -> dict[tuple[int, ...], float]:
    return totals_of(space_of(ForcedList(written(folder, text), **options), sentence=sentence))


def test_the_space_is_the_list_and_totals_are_its_scores_the_best_of_equal_hypotheses(tmp_path: Path) -> None:
    assert totals(tmp_path) == {(3, 4): -1.25, (3, 4, 5): 2.25, (): -4.0}
    assert totals(tmp_path, sentence=2) == {(6,): 0.0}


def test_a_feature_stands_for_the_total(tmp_path: Path) -> None:
    assert totals(tmp_path, feature="lm") == {(3, 4): -2.5, (3, 4, 5): -3.0, (): -9.0}
    assert totals(tmp_path, feature="tm.2") == {(3, 4): -0.5, (3, 4, 5): 0.0, (): -9.0}


def test_without_weights_every_hypothesis_scores_zero_and_no_score_is_needed(tmp_path: Path) -> None:
    assert totals(tmp_path, use_weights=False) == {(3, 4): 0.0, (3, 4, 5): 0.0, (): 0.0}
    assert totals(tmp_path, "1 ||| 3 4\n", use_weights=False) == {(3, 4): 0.0}


def test_scores_are_on_the_end_alone(tmp_path: Path) -> None:
    predictor = ForcedList(written(tmp_path, LIST))
    states = predictor.initialize_batch([Source(1, ())])
    rows = []
    for token in (3, 4, 5):
        rows.append(dict(predictor.predict_batch(states).rows[0].lookup))
        states = predictor.consume_batch(states, [token])
    assert rows == [{3: 0.0, 2: -4.0}, {4: 0.0}, {5: 0.0, 2: -1.25}]


def test_ids_count_from_zero_if_zero_is_among_them(tmp_path: Path) -> None:
    text = "0||| 3 ||| 1\n1 ||| 4 ||| x= 2 ||| 2\n"
    assert [totals(tmp_path, text, sentence) for sentence in (1, 2)] == [{(3,): 1.0}, {(4,): 2.0}]
    assert totals(tmp_path, text.partition("\n")[2], 1) == {(4,): 2.0}


def test_the_total_is_before_the_alignment(tmp_path: Path) -> None:
    assert totals(tmp_path, "1 ||| 3 ||| lm= -1 ||| -2.5 ||| 0-0\n") == {(3,): -2.5}


def test_sentence_marks_at_the_ends_are_left_out(tmp_path: Path) -> None:
    assert totals(tmp_path, "1 ||| 1 3 2 ||| 1\n1 ||| 1 4 ||| 2\n1 ||| 5 2 ||| 3\n") == {(3,): 1, (4,): 2, (5,): 3}


def test_plain_lines_belong_to_the_sentences_of_their_numbers(tmp_path: Path) -> None:
    assert [totals(tmp_path, "3 4\n\n5\n", sentence) for sentence in (1, 2, 3)] == [{(3, 4): 0}, {(): 0}, {(5,): 0}]


def test_a_file_of_one_sentence_is_its_list(tmp_path: Path) -> None:
    written(tmp_path, "3 4\n3 5\n", "1.ids")
    written(tmp_path, "17 ||| 6 ||| -1\n", "2.ids")
    predictor = ForcedList(str(tmp_path / "{id}.ids"))
    assert totals_of(space_of(predictor)) == {(3, 4): 0.0, (3, 5): 0.0}
    assert totals_of(space_of(predictor, sentence=2)) == {(6,): -1.0}


def test_an_unknown_word_matches_any_token_and_the_best_match_counts(tmp_path: Path) -> None:
    text = "1 ||| 3 0 ||| -1\n1 ||| 3 4 5 ||| -2\n1 ||| 3 6 ||| -0.5\n1 ||| 0 0 5 ||| -3\n1 ||| 3 5 ||| -7\n"
    space = tiny(vocab_size=7, it=ForcedList(written(tmp_path, text), match_unk=True))
    constellation, source = space.constellation(), Source(1, (), max_length=3)

    def total(*tokens: int) -> float:
        return score_path(constellation, source, tokens)[0]

    assert [total(3, token) for token in (0, 4, 5, 6)] == [-1.0, -1.0, -1.0, -0.5]
    assert [total(*tokens, 5) for tokens in ((3, 4), (4, 4), (0, 0))] == [-2.0, -3.0, -3.0]
    for tokens in ((4, 3), (3,), (4, 0), (3, 5, 6), ()):
        assert total(*tokens) == -math.inf, tokens


def test_without_match_unk_an_unknown_word_is_itself(tmp_path: Path) -> None:
    assert totals(tmp_path, "1 ||| 3 0 ||| -1\n") == {(3, 0): -1.0}


@pytest.mark.parametrize("weight", [1.0, -0.5])
@pytest.mark.parametrize("options", [{}, {"feature": "lm"}, {"use_weights": False}])
def test_bounds_are_exact(tmp_path: Path, options: dict[str, Any], weight: float) -> None:
    space = space_of(ForcedList(written(tmp_path, LIST), **options), weight)
    check_bounds(space, nodes_of(space), exact=True)


PLAIN = "3 4\n5\n"
MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no feature of that name": (LIST, {"feature": "ml"}, "line 1: has no feature 'ml'. It has lm, tm."),
    "no features": ("1 ||| 3 ||| 0.5\n", {"feature": "lm"}, "line 1: has no feature 'lm'. It has none."),
    "no feature field": ("1 ||| 3\n", {"feature": "lm"}, "line 1: has no feature 'lm'. It has none."),
    "features of plain lines": (PLAIN, {"feature": "lm"}, "line 1: has no features, only text."),
    "several values": (LIST, {"feature": "tm"}, "line 1: feature 'tm' has 2 values. Expected one; of several choose"),
    "too few values": (LIST, {"feature": "tm.3"}, "line 1: has no feature 'tm.3'. It has lm, tm."),
    "no value": ("1 ||| 3 ||| lm= ||| 1\n", {"feature": "lm"}, "line 1: feature 'lm' has 0 values"),
    "value that is no number": ("1 ||| 3 ||| lm= low ||| 1\n", {"feature": "lm"}, "line 1: 'low' is not a score."),
    "total that is no number": (LIST + "1 ||| 3 ||| x= 1 ||| nan\n", {}, "line 6: 'nan' is not a score."),
    "total that is infinite": (LIST + "1 ||| 3 ||| x= 1 ||| -inf\n", {}, "line 6: -inf is not a score."),
    "feature without a name": (LIST + "1 ||| 3 ||| 4 x= 1 ||| 1\n", {}, "line 6: the score '4' has no name."),
    "no total": (LIST + "1 ||| 3\n", {}, "line 6: has no total. Expected 'id ||| tokens ||| features ||| total'"),
    "id that is no number": ("one ||| 3 ||| 1\n", {}, "line 1 does not begin with a sentence id"),
    "a plain line among others": (LIST + "3 4\n", {}, "line 6 is plain, but others are not."),
    "no such sentence": ("2 ||| 3 ||| 1\n", {}, "no hypothesis for sentence 1."),
    "word that is no id": (LIST + "1 ||| word ||| 1\n", {}, "line 6: 'word' is not a token id."),
    "id outside the vocabulary": (LIST + "1 ||| 9 ||| 1\n", {}, "line 6: 9 is outside the target vocabulary of 9"),
    "</s> in between": (LIST + "1 ||| 3 2 4 ||| 1\n", {}, "line 6: 2 stands for <s> or </s>."),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_unfit_list_is_one_line_with_file_and_line(tmp_path: Path, mistake: str) -> None:
    text, options, complaint = MISTAKES[mistake]
    path = written(tmp_path, text)
    with pytest.raises(SgdecError) as error:
        ForcedList(path, **options, context=Context(vocab_size=9)).initialize_batch([Source(1, ())])
    message = str(error.value)
    assert message.startswith(f"forcedlst: {path}: ") and complaint in message
    assert "\n" not in message and message.endswith(".")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"^forcedlst: none\.ids: cannot be read"):
        ForcedList("none.ids")
    with pytest.raises(SgdecError, match=r"^forcedlst: .*/7\.ids: cannot be read"):
        ForcedList(str(tmp_path / "{id}.ids")).initialize_batch([Source(7, ())])


class WordTable:
    """A vocabulary that grows with what it reads."""

    size = 10_000
    fingerprint = "words"

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(self.token, text.split()))

    def decode(self, tokens: Any) -> str:
        return " ".join(map(self.piece, tokens))

    def piece(self, token: int) -> str:
        return list(self.words)[token - 3]

    def token(self, piece: str) -> int:
        return self.words.setdefault(piece, len(self.words) + 3)


@pytest.mark.slow
@pytest.mark.parametrize("number", some(range(1, 6)))
def test_moses_own_lists_are_read_and_their_best_hypotheses_found(tmp_path: Path, number: int) -> None:
    if "SGDEC_DATA" not in os.environ:
        pytest.skip("SGDEC_DATA does not name the data folder")
    path = Path(os.environ["SGDEC_DATA"]) / "data" / "nbest_moses" / f"nbest.{number}.gz"
    expected: dict[int, dict[str, dict[str, list[float]]]] = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        sentence, text, features, total = line.split("|||")
        words = features.split()
        scores = {"": float(total), "lm": float(words[words.index("lm=") + 1])}
        scores["tm.3"] = float(words[words.index("tm=") + 3])
        found = expected.setdefault(int(sentence) + 1, {}).setdefault(" ".join(text.split()), {})
        for name, score in scores.items():
            found.setdefault(name, []).append(score)
    vocabulary = WordTable()
    context = Context(vocabularies=Vocabularies(target=vocabulary))
    for feature in ("", "lm", "tm.3"):
        predictor = ForcedList(str(path), feature=feature, context=context)
        for sentence, hypotheses in expected.items():
            found = {
                vocabulary.decode(tokens): total
                for tokens, total in totals_of(space_of(predictor, sentence=sentence)).items()
            }
            assert found == {text: max(scores[feature]) for text, scores in hypotheses.items()}


class TestForcedListInSearch(SearchContract):
    vocab_size = 6

    def draw(self, rng: np.random.Generator) -> ForcedList:
        lines = []
        for _ in range(rng.integers(1, 7)):
            tokens = " ".join(map(str, rng.choice([0, 3, 4, 5], rng.integers(0, 4))))
            lines.append(f"1 ||| {tokens} ||| {np.floor(2 * rng.uniform(-2, 2)) / 2}\n")
        return ForcedList(written(self.folder, "".join(lines)), match_unk=bool(rng.random() < 0.5))


class TestForcedList(PluginContract):
    plugin = "forcedlst"
    options_given: dict[str, Any] = {}  # noqa: RUF012 - as the kit has it

    def prepare(self, folder: Path) -> dict[str, Any]:
        path = written(folder, LIST + "3 ||| 4 0 7 8 ||| lm= 1 ||| -1\n3 ||| 4 0 ||| lm= 2 ||| -0.5\n")
        return {"path": path, **self.options_given}


class TestForcedListByFeature(TestForcedList):
    options_given = {"feature": "lm"}  # noqa: RUF012


class TestForcedListThatMatchesUnknownWords(TestForcedList):
    options_given = {"match_unk": True}  # noqa: RUF012
    prefixes = ((4, 5), (4, 5, 7), (4, 0, 7, 8), (6,), (4, 6, 7))

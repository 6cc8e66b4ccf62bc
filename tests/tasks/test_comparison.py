"""A comparison says by how much runs differ, and where; the first run is the baseline."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.errors import SgdecError, UsageError
from sgdec.io.outputs import Outputs, StoredHypothesis
from sgdec.tasks.comparison import Comparison, compare

sacrebleu = pytest.importorskip("sacrebleu")


def run(name: str, *texts: str | tuple[str, float]) -> Outputs:
    """A run with one output per sentence, with or without scores."""
    given = [(text, None) if isinstance(text, str) else text for text in texts]
    return Outputs(name, "text", [[StoredHypothesis(*each)] for each in given])


def listed(name: str, *lists: Sequence[str]) -> Outputs:
    """A run with n-best lists, whose scores are minus the rank."""
    return Outputs(
        name,
        "nbest",
        [[StoredHypothesis(text, -float(rank)) for rank, text in enumerate(texts, 1)] for texts in lists],
    )


ONE = run("one", "the cat sat", "a dog ran off", "yes")
OTHER = run("other", "the cat lay down", "a dog ran off", "no")
REFERENCES = ["the cat lay down", "a dog ran off", "yes"]


def test_lengths_are_those_of_bleu() -> None:
    """8 and 9 words against 9; the shorter one has the penalty exp(1 - 9/8)."""
    first, second = compare([ONE, OTHER], [REFERENCES], test="none").systems
    assert first.length_ratio == pytest.approx(8 / 9) and second.length_ratio == 1
    assert first.brevity_penalty == pytest.approx(2.718281828 ** (1 - 9 / 8)) and second.brevity_penalty == 1


def test_overlap_by_hand() -> None:
    """8 words and 27 characters, then 9 and 31; one output of three is equal."""
    (overlap,) = compare([ONE, OTHER]).overlaps
    assert overlap.equal == 1 and overlap.scores is None
    assert overlap.words == 9 / 8 and overlap.characters == 31 / 27
    assert overlap.bleu == sacrebleu.corpus_bleu(OTHER.texts, [ONE.texts]).score
    assert overlap.chrf == sacrebleu.corpus_chrf(OTHER.texts, [ONE.texts]).score


def test_scores_of_the_files_are_compared_if_both_have_them() -> None:
    one = run("one", ("a", -1.0), ("b", -2.0), ("c", -3.0), "d")
    other = run("other", ("a", -0.5), ("b", -2.0), ("c", -4.0), ("d", -1.0))
    (overlap,) = compare([one, other]).overlaps
    assert overlap.scores is not None
    assert (overlap.scores.sentences, overlap.scores.higher, overlap.scores.lower) == (3, 1, 1)
    assert overlap.scores.mean == pytest.approx(-0.5 / 3)


def test_the_oracle_by_hand() -> None:
    """The best hypotheses are second and first; the third sentence failed, and the fourth in the other run."""
    lists = listed("lists", ["the cat sat", "the cat lay down", "x"], ["a dog ran off", "a dog ran off"], [], ["x"])
    other = Outputs("other", "nbest", [[StoredHypothesis(text, None)] for text in REFERENCES])
    system, single = compare([lists, other], [[*REFERENCES, "y"]], test="none").systems
    assert system.lists is not None and single.lists is None
    assert (system.lists.smallest, system.lists.mean, system.lists.largest) == (0, 6 / 4, 3)
    assert system.lists.sentences == 2 and (system.missing, single.missing) == (1, 1)
    first = sacrebleu.sentence_chrf("the cat sat", [REFERENCES[0]]).score
    assert system.lists.first_chrf == pytest.approx((first + 100) / 2)
    assert system.lists.best_chrf == pytest.approx(100) and system.lists.best_rank == 1.5


def test_lists_without_references_have_sizes_alone() -> None:
    (system, _) = compare([listed("lists", ["a", "b"]), run("other", "a")]).systems
    assert system.lists is not None and system.lists.largest == 2
    assert system.lists.first_chrf is system.lists.best_chrf is system.lists.best_rank is None


def test_sentences_are_scored_against_all_references() -> None:
    others = ["the cat sat", "dogs", "yes"]
    comparison = compare([ONE, OTHER], [REFERENCES, others], test="none")
    sentence = comparison.sentences[0]
    assert sentence.references == (REFERENCES[0], others[0])
    assert sentence.chrf == (100, 100) and sentence.difference == 0 and sentence.differs
    assert [each.number for each in comparison.most_different(5)] == [3, 1], "equal outputs are left out"


def test_without_references_the_first_run_takes_their_place() -> None:
    comparison = compare([ONE, OTHER, run("third", "the cat sat", "cats", "yes")], source=["x", "y", "z"])
    assert [sentence.chrf[0] for sentence in comparison.sentences] == [100] * 3
    assert comparison.sentences[1].chrf[2] == sacrebleu.sentence_chrf("cats", ["a dog ran off"]).score
    assert [sentence.source for sentence in comparison.sentences] == ["x", "y", "z"]
    assert not comparison.has_references and set(comparison.overlap_signatures) == {"bleu", "chrf"}
    assert [each.number for each in comparison.most_different(2)] == [3, 2]


TEXTS = st.lists(st.text("ab .", max_size=8), min_size=2, max_size=2)


@given(TEXTS, TEXTS, TEXTS)
def test_a_swap_negates_every_difference(one: list[str], other: list[str], references: list[str]) -> None:
    def of(*texts: list[str]) -> Comparison:
        return compare([run(str(place), *each) for place, each in enumerate(texts)], [references], samples=3)

    there, back = of(one, other), of(other, one)
    for first, second in zip(there.sentences, back.sentences, strict=True):
        assert first.chrf == second.chrf[::-1] and first.difference == -second.difference
    assert there.overlaps[0].equal == back.overlaps[0].equal
    assert there.systems[0].length_ratio == back.systems[1].length_ratio
    if there.overlaps[0].words and back.overlaps[0].words:
        assert there.overlaps[0].words == pytest.approx(1 / back.overlaps[0].words)


@given(TEXTS, st.booleans())
def test_a_run_does_not_differ_from_itself(texts: list[str], with_references: bool) -> None:
    itself = compare([run("one", *texts)] * 2, [texts] if with_references else [], samples=5)
    assert itself.overlaps[0].equal == 2 and itself.most_different(9) == []
    assert {sentence.difference for sentence in itself.sentences} == {0}
    for score in itself.systems[1].scores.values():
        assert score.difference == 0 and score.p_value == 1


def test_all_numbers_are_json() -> None:
    lists = listed("lists", ["a", "b"], ["c"])
    for comparison in (compare([lists, run("x", "a", "c")], [["a", "c"]], samples=5), compare([lists, lists])):
        row = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
        assert [each["number"] for each in row["sentences"]] == [1, 2]
        assert row["systems"][0]["lists"]["largest"] == 2


def test_one_run_and_other_numbers_of_sentences_are_refused() -> None:
    with pytest.raises(UsageError, match="two runs or more"):
        compare([ONE])
    with pytest.raises(SgdecError, match="one has 3 sentences but short has 1"):
        compare([ONE, run("short", "a")])
    with pytest.raises(SgdecError, match="one has 3 sentences but a reference has 1"):
        compare([ONE, OTHER], [["a"]])

"""Training data: every pair in one batch an epoch, an order that (seed, epoch) decides, bad files in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.context import BOS, EOS
from sgdec.errors import SgdecError
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from sgdec.training.data.budget import ExampleCounts
from sgdec.training.data.reading import LengthLimits
from sgdec.training.data.text import ParallelText

LINES = [" ".join(["ab", "cd", "e"][: n % 3 + 1] * (n % 5 + 1)) for n in range(100)]


@pytest.fixture(scope="module")
def vocabulary() -> SentencePieceVocabulary:
    return train_vocabulary(LINES, 20, kind="char")


def read(
    folder: Path,
    vocabulary: SentencePieceVocabulary,
    source: list[str],
    target: list[str],
    limits: LengthLimits | None = None,
):  # type: ignore[no-untyped-def]
    paths = str(folder / "s"), str(folder / "t")
    for path, lines in zip(paths, (source, target), strict=True):
        Path(path).write_text("".join(line + "\n" for line in lines))
    return ParallelText.read(paths, vocabulary, vocabulary, limits)


@pytest.mark.parametrize("limit", [1, 40, 100, 10_000])
def test_an_epoch_holds_every_pair_once_within_the_limit(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, limit: int
) -> None:
    data = read(tmp_path, vocabulary, LINES, LINES[::-1])
    for order in (None, (1, 0)):
        batches = data.batches(limit, order=order)
        assert sorted(n for batch in batches for n in batch) == list(range(100))
        for batch in batches:
            longest = max(max(len(data.sources[n]), len(data.targets[n])) + 1 for n in batch)
            assert len(batch) == 1 or len(batch) * longest <= limit


@pytest.mark.parametrize("pairs", [1, 7, 50, 1000])
def test_batches_of_pairs_have_that_many_whatever_their_lengths(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, pairs: int
) -> None:
    data = read(tmp_path, vocabulary, LINES, LINES[::-1])
    for order in (None, (1, 0), (1, 1)):
        batches = data.batches(ExampleCounts(pairs), order=order)
        assert sorted(n for batch in batches for n in batch) == list(range(100))
        sizes = sorted(map(len, batches), reverse=True)
        assert sizes == [pairs] * (100 // pairs) + [100 % pairs] * (100 % pairs > 0), "the last ones are left over"


def test_seed_and_epoch_decide_the_order(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    data = read(tmp_path, vocabulary, LINES, LINES)
    orders = [data.batches(60, order=order) for order in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] != orders[3] != orders[0]
    assert {len(order) for order in orders} == {len(orders[0])}, "an epoch has always the same number of steps"


def test_batches_hardly_pad(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    data = read(tmp_path, vocabulary, LINES, LINES)
    batches = [data.batch(pairs) for pairs in data.batches(200, order=(1, 0))]
    assert sum(int(batch.mask.sum()) for batch in batches) > 0.85 * sum(batch.mask.numel() for batch in batches)


def test_a_batch_is_its_pairs_between_the_sentence_marks(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    data = read(tmp_path, vocabulary, ["ab", "", "ab cd e"], ["e", "ab", "cd"])
    assert (len(data), data.left_out, data.lines) == (2, {"empty": 1}, [1, 3])
    batch = data.batch([1, 0])
    assert batch.lines == [3, 1]
    assert batch.lengths.tolist() == [len(data.sources[1]), len(data.sources[0])]
    for row, pair in enumerate((1, 0)):
        length, target = len(data.sources[pair]), data.targets[pair]
        assert batch.source[row, :length].tolist() == data.sources[pair]
        assert batch.target_in[row][batch.mask[row]].tolist() == [BOS, *target]
        assert batch.target_out[row][batch.mask[row]].tolist() == [*target, EOS]


def test_pairs_with_an_empty_or_overlong_side_are_left_out_and_counted(
    tmp_path: Path, vocabulary: SentencePieceVocabulary
) -> None:
    data = read(tmp_path, vocabulary, ["ab", "", "ab", "ab"], ["ab", "ab", "  ", "ab " * 9], LengthLimits(10))
    assert (data.lines, data.left_out) == ([1], {"empty": 2, "too long": 1})


def test_unequal_files_say_their_lengths(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    with pytest.raises(SgdecError, match=r"s has 3 lines but .*t has 2\. Line N"):
        read(tmp_path, vocabulary, ["ab"] * 3, ["ab"] * 2)
    with pytest.raises(SgdecError, match=r"no pair is left of 2: 2 empty\."):
        read(tmp_path, vocabulary, ["ab", ""], ["", "ab"])
    with pytest.raises(SgdecError, match=r"no pair is left of 2: 1 too long, 1 empty\. .*--max-line"):
        read(tmp_path, vocabulary, ["ab", ""], ["ab", "ab"], LengthLimits(1))

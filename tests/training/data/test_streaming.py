"""Long training text on disk: the shards hold every example once, in an order that (seed, epoch) decides and that can
be taken up anywhere; memory need not hold more than one of them; what is half written is never used.
"""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sgdec.checkpoints import files
from sgdec.errors import SgdecError, UsageError
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from sgdec.training import train
from sgdec.training.data import dealing, stream
from sgdec.training.data.budget import ExampleCounts, TokenCounts
from sgdec.training.data.reading import LengthLimits
from sgdec.training.data.shards import ShardedText
from sgdec.training.data.stream import open_text
from sgdec.training.data.text import MonolingualText, ParallelText, Text, TextInMemory, read_text
from sgdec.training.log import QUIET
from sgdec.training.preparing import prepare
from tests.helpers.training_case import losses, make_config

pytestmark = pytest.mark.slow

LIMITS = LengthLimits(40, 8.0)


@pytest.fixture(scope="module")
def vocabulary() -> SentencePieceVocabulary:
    return train_vocabulary(["one two three four five six"], 24, kind="char")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.training.data.reading.BLOCK", 37)


def write_lines(folder: Path, count: int = 400, *, seed: int = 1) -> tuple[str, str]:
    """Two files of random lines, some of them bad."""
    draw = random.Random(seed)
    words = ["one", "two", "three", "four", "five", "six"]
    sides = [[" ".join(draw.choices(words, k=draw.randint(1, 6))).encode() for _ in range(count)] for _ in "st"]
    sides[0][3], sides[1][count // 2], sides[0][count - 1] = b"", b"one \xff", b"one " * 30
    for name, lines in zip("st", sides, strict=True):
        (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return str(folder / "s"), str(folder / "t")


def opened(run: Path, paths: tuple[str, ...], vocabulary: Any, shard_tokens: int = 1500) -> Text:
    source = None if len(paths) == 1 else vocabulary
    return open_text(paths, source, vocabulary, LIMITS, run=run, shard_tokens=shard_tokens, log=QUIET)


def examples_of(text: Text, batches: Any) -> list[tuple[Any, ...]]:
    """Line number, source and target of each example, in order."""
    found = []
    for numbers in batches:
        batch = text.batch(numbers)
        for row, line in enumerate(batch.lines):
            source = () if batch.source is None else tuple(batch.source[row, : batch.lengths[row]].tolist())  # type: ignore[index]
            found.append((line, source, tuple(batch.target_out[row][batch.mask[row]].tolist())))
    return found


@pytest.mark.parametrize("sides", [1, 2])
def test_an_epoch_of_shards_is_the_text_in_another_order(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, sides: int
) -> None:
    paths = write_lines(tmp_path)[:sides]
    whole = read_text(paths, vocabulary if sides == 2 else None, vocabulary, LIMITS)
    text = opened(tmp_path / "run", paths, vocabulary)
    assert isinstance(text, ShardedText) and len(text.examples) > 3
    assert (len(text), text.unit, text.left_out) == (len(whole), whole.unit, dict(whole.left_out))
    assert text.left_out.keys() >= {"empty", "too long"}
    expected = sorted(examples_of(whole, whole.batches(100)))
    for order in (None, (1, 0), (1, 1)):
        assert sorted(examples_of(text, text.batches(100, order=order))) == expected
    assert torch.equal(text.log_frequencies(vocabulary.size), whole.log_frequencies(vocabulary.size))


def test_batches_are_within_the_budget_and_hardly_pad(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    text = opened(tmp_path / "run", write_lines(tmp_path, 2000), vocabulary, 20_000)
    batches = [text.batch(numbers) for numbers in text.batches(300, order=(1, 0))]
    assert all(max(batch.source.size(1) + 1, batch.mask.size(1)) * len(batch.lines) <= 300 for batch in batches)  # type: ignore[union-attr]
    assert sum(int(batch.mask.sum()) for batch in batches) > 0.9 * sum(batch.mask.numel() for batch in batches)


def test_shards_are_cut_into_pairs_and_their_counts_are_not_those_of_tokens(
    tmp_path: Path, vocabulary: SentencePieceVocabulary
) -> None:
    """The folder stores the counts of the latest budget: 40 tokens are not 40 pairs."""
    paths = write_lines(tmp_path)
    text = opened(tmp_path / "run", paths, vocabulary)
    assert isinstance(text, ShardedText)
    in_tokens = len(text.batches(TokenCounts(40)))
    for again in (text, opened(tmp_path / "run", paths, vocabulary)):
        batches = list(again.batches(ExampleCounts(40), order=(1, 0)))
        assert sorted(n for batch in batches for n in batch) == list(range(len(text)))
        assert len(batches) == sum(-(-int(examples) // 40) for examples in text.examples) < in_tokens
        assert max(map(len, batches)) == 40


def test_seed_and_epoch_decide_the_order_and_any_batch_can_be_had_alone(
    tmp_path: Path, vocabulary: SentencePieceVocabulary
) -> None:
    paths = write_lines(tmp_path)
    text = opened(tmp_path / "run", paths, vocabulary)
    orders = [list(text.batches(100, order=order)) for order in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert orders[0] == orders[1] and orders[0] != orders[2] != orders[3] != orders[0]
    assert len({len(order) for order in orders}) == 1, "an epoch has always the same number of steps"
    for n in (len(orders[0]) - 1, 7, 20, 0):
        again = opened(tmp_path / "run", paths, vocabulary)
        assert again.batches(100, order=(1, 0))[n] == orders[0][n]
    assert text.batches(100, order=(1, 0))[5:9] == orders[0][5:9]
    other = opened(tmp_path / "other", paths, vocabulary)
    assert other.fingerprint == text.fingerprint
    assert list(other.batches(100, order=(1, 0))) == orders[0], "shards depend on the text alone"


def test_inside_a_shard_too_seed_and_epoch_decide_the_order(
    tmp_path: Path, vocabulary: SentencePieceVocabulary
) -> None:
    text = opened(tmp_path / "run", write_lines(tmp_path, 2000), vocabulary, 10_000)
    assert isinstance(text, ShardedText)
    end = int(text.first[1])  # of the first shard
    orders = [
        [batch for batch in text.batches(300, order=order) if batch[0] < end] for order in ((1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert len({frozenset(map(frozenset, order)) for order in orders}) == 3, "who is in a batch with whom changes too"


def test_each_shard_is_a_sample_of_the_whole_text(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    """Files are often one corpus after another: no shard is of one alone."""
    text = opened(tmp_path / "run", write_lines(tmp_path, 2000), vocabulary, 10_000)
    assert isinstance(text, ShardedText)
    for number in range(len(text.examples)):
        lines = text._shard(number).lines
        assert lines.mean() == pytest.approx(1000, abs=4 * 577 / np.sqrt(len(lines)))


def test_short_text_stays_in_memory_as_it_always_was(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    paths = write_lines(tmp_path)
    for shard_tokens in (0, 1_000_000):
        text = opened(tmp_path / "run", paths, vocabulary, shard_tokens)
        whole = ParallelText.read(paths, vocabulary, vocabulary, LIMITS)
        assert isinstance(text, ParallelText) and text == whole and text.fingerprint == whole.fingerprint
        assert isinstance(opened(tmp_path / "run", paths[:1], vocabulary, shard_tokens), MonolingualText)
    assert not (tmp_path / "run").exists()


def test_shards_are_made_once_and_anew_when_anything_changes(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    write = dealing.write_shards
    monkeypatch.setattr(stream, "write_shards", lambda *args, **options: (made.append(1), write(*args, **options)))
    paths, run = write_lines(tmp_path), tmp_path / "run"
    first = opened(run, paths, vocabulary).fingerprint
    assert opened(run, paths, vocabulary).fingerprint == first and len(made) == 1
    os.utime(paths[0], ns=(1, 1))
    assert opened(run, paths, vocabulary).fingerprint == first and len(made) == 2, "touched, but the same"
    write_lines(tmp_path, seed=2)
    assert opened(run, paths, vocabulary).fingerprint != first and len(made) == 3
    next((run / "text").glob("*.side-1")).unlink()
    opened(run, paths, vocabulary)
    assert len(made) == 4, "a part was missing"
    opened(run, paths, vocabulary, 1600)
    assert len(made) == 5


def test_of_two_processes_one_prepares_and_the_other_finds_it(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is done while this one waits for the lock."""
    paths, run = write_lines(tmp_path), tmp_path / "run"
    others: list[Text] = []

    def wait(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        others.append(opened(run, paths, vocabulary))
        monkeypatch.setattr(stream, "write_shards", lambda *args, **options: pytest.fail("prepared twice"))

    monkeypatch.setattr("fcntl.flock", wait)
    assert opened(run, paths, vocabulary).fingerprint == others[0].fingerprint


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_was_prepared_in_part_is_never_taken_for_whole(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    paths, run = write_lines(tmp_path), tmp_path / "run"
    append, left = dealing._append, [7]

    def failing(*args: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise fault
        append(*args)

    monkeypatch.setattr(dealing, "_append", failing)
    expected = (SgdecError, r"run/text: cannot be written \(No space left on device\)\. Give an --output on a disk")
    with pytest.raises(expected[0] if isinstance(fault, OSError) else KeyboardInterrupt) as caught:
        opened(run, paths, vocabulary)
    if isinstance(fault, OSError):
        caught.match(expected[1])
    assert not (run / "text").exists() and not list(run.glob(".text*")), "and nothing is left behind"
    monkeypatch.undo()
    assert sum(map(len, opened(run, paths, vocabulary).batches(100))) == len(
        ParallelText.read(paths, vocabulary, vocabulary, LIMITS)
    )


def test_bad_files_are_one_line_in_shards_too(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    source, target = write_lines(tmp_path)
    with open(target, "ab") as file:
        file.write(b"one\n")
    with pytest.raises(SgdecError, match=r"s has 400 lines but .*t has 401\. Line N"):
        opened(tmp_path / "run", (source, target), vocabulary)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    child = os.fork()
    if not child:
        pipe.write_bytes(Path(source).read_bytes())
        os._exit(0)
    with pytest.raises(UsageError, match=r"--train: .* which needs regular files\. Give files, or --shard-tokens 0"):
        opened(tmp_path / "run", (str(pipe),), vocabulary)
    os.waitpid(child, 0)


def test_memory_does_not_grow_with_the_text(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    """Python's and numpy's allocations at the most, for a text and one four times as long, after one that imports."""
    peaks = []
    for count in (600, 1000, 4000):
        folder = tmp_path / str(count)
        folder.mkdir()
        paths = write_lines(folder, count)
        tracemalloc.start()
        text = opened(folder / "run", paths, vocabulary, 10_000)
        for numbers in text.batches(500, order=(1, 0)):
            text.batch(numbers)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert isinstance(text, ShardedText)
    assert peaks[2] < 1.3 * peaks[1]


@pytest.mark.parametrize(("killed_after", "size"), [(5, {}), (18, {"batch_pairs": 4})], ids=str)
def test_a_killed_run_over_shards_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, killed_after: int, size: dict[str, int]
) -> None:
    settings: dict[str, Any] = {"max_steps": 24, "save_every": 4, "shard_tokens": 200, "accumulate": 2, "bleu": 0}
    settings |= size
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, "killed", **settings)
    assert losses(config, steps=killed_after) == whole[:killed_after]
    step = files.read_json(tmp_path / "killed" / "last" / "progress.json")["step"]
    assert losses(config, resume=True) == whole[step:]
    with pytest.raises(UsageError, match=r"--shard-tokens was 200, now it is 300\. Give the same"):
        losses(make_config(tmp_path, "killed", **{**settings, "shard_tokens": 300}), resume=True)


def test_the_run_says_what_is_prepared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sgdec")
    config = make_config(tmp_path, shard_tokens=200, max_steps=2, bleu=0)
    train(config)
    said = caplog.messages
    assert said[0].endswith(f"109 pairs have more than 200 tokens: preparing shards in {config.output}/text")
    manifest = json.loads((Path(config.output) / "text" / "manifest.json").read_text())
    assert len(manifest["examples"]) == 5 and sum(manifest["examples"]) == 109 and "109 pairs" in said[1]
    assert isinstance(prepare(config, resume=True, quiet=True).inputs.valid, TextInMemory)

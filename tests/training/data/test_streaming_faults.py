"""Training text in shards, where things are not as they should be: a run that may not be resumed keeps its shards, a
shard is as small as it was to be whatever the order of the text, a death leaves the old folder or the new one whole,
and batches are counted once.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgdec.checkpoints import files
from sgdec.errors import SgdecError, UsageError
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from sgdec.training.data import shards, stream
from sgdec.training.data.budget import BatchBudget, TokenCounts, cut
from sgdec.training.data.reading import LengthLimits
from sgdec.training.data.shards import ShardedText
from sgdec.training.data.stream import open_text
from sgdec.training.data.workspace import Workspace
from sgdec.training.log import LOG
from sgdec.training.run.alone import in_turn
from tests.helpers.training_case import PAIRS, losses, make_config, write_text

pytestmark = pytest.mark.slow

WORDS = ("one", "two", "three", "four", "five", "six")


@pytest.fixture(scope="module")
def vocabulary() -> SentencePieceVocabulary:
    return train_vocabulary([" ".join(WORDS)], 24, kind="char")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.training.data.reading.BLOCK", 37)


def opened(folder: Path, vocabulary: Any, shard_tokens: int = 2000) -> ShardedText:
    """The text in a folder's files s and t."""
    text = open_text(
        [str(folder / "s"), str(folder / "t")],
        vocabulary,
        vocabulary,
        LengthLimits(400),
        run=folder / "run",
        shard_tokens=shard_tokens,
        log=LOG,
    )
    assert isinstance(text, ShardedText)
    return text


def write_pairs(folder: Path, lengths: list[int]) -> None:
    """Pairs of so many words each."""
    draw = random.Random(1)
    for name in "st":
        lines = (" ".join(draw.choices(WORDS, k=length)) for length in lengths)
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """What each file of a folder holds, and when it was written."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def other_text(folder: Path) -> dict[str, Any]:
    return {"train": write_text(folder, "other", PAIRS[::-1])}


def other_tokenizer(folder: Path) -> dict[str, Any]:
    tokenizer = train_vocabulary([line for pair in PAIRS for line in pair], 21, kind="char")
    (folder / "other.spm").write_bytes(tokenizer.serialized)
    return {"tokenizer": (str(folder / "other.spm"),)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: {"shard_tokens": 300}, r"--resume: .*shard.tokens"),
        (lambda folder: {"shard_tokens": 0}, r"--resume: .*shard.tokens"),
        (lambda folder: {"max_line": 4}, r"--resume: max_line was 250"),
        (other_tokenizer, r"--resume: the source tokenizer is not"),
        (other_text, r"--resume: the training text is not the one of .*\. Give the same text"),
    ],
)
def test_a_refused_resume_leaves_the_folder_byte_for_byte_as_it_was(
    tmp_path: Path, change: Callable[[Path], dict[str, Any]], message: str
) -> None:
    settings: dict[str, Any] = {"max_steps": 12, "save_every": 4, "shard_tokens": 200, "bleu": 0}
    whole = losses(make_config(tmp_path, "whole", **settings))
    other = make_config(tmp_path, "run", **{**settings, **change(tmp_path)})
    config = make_config(tmp_path, "run", **settings)
    losses(config, steps=5)
    before = contents(tmp_path / "run")
    assert "text/manifest.json" in before
    with pytest.raises(UsageError, match=message):
        losses(other, resume=True)
    assert contents(tmp_path / "run") == before
    assert losses(config, resume=True) == whole[4:], "and the right one goes on with its shards"
    after = contents(tmp_path / "run")
    assert all(after[name] == content for name, content in before.items() if name.startswith("text/"))


@pytest.mark.parametrize("other", [{"shard_tokens": 300}, {}])
def test_a_text_that_is_refused_is_not_tokenised_where_its_settings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"max_steps": 12, "save_every": 4, "shard_tokens": 200, "bleu": 0}
    losses(make_config(tmp_path, "run", **settings), steps=5)
    other = other or other_tokenizer(tmp_path)
    monkeypatch.setattr(stream, "read_blocks", lambda *args: pytest.fail("read"))
    with pytest.raises(UsageError, match="--resume"):
        losses(make_config(tmp_path, "run", **{**settings, **other}), resume=True)


def test_a_run_with_its_text_in_memory_is_not_resumed_in_shards(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 12, "save_every": 4, "bleu": 0}
    losses(make_config(tmp_path, "run", **settings), steps=5)
    before = contents(tmp_path / "run")
    with pytest.raises(UsageError, match=r"--resume: the training text is not .*same --shard-tokens"):
        losses(make_config(tmp_path, "run", shard_tokens=200, **settings), resume=True)
    assert contents(tmp_path / "run") == before and not list((tmp_path / "run").glob("*text*"))


def test_a_touched_text_is_prepared_anew_and_goes_on(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 12, "save_every": 4, "shard_tokens": 200, "bleu": 0}
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, "run", **settings)
    losses(config, steps=5)
    before = contents(tmp_path / "run" / "text")
    os.utime(config.train[0], ns=(1, 1))
    assert losses(config, resume=True) == whole[4:]
    after = contents(tmp_path / "run" / "text")
    assert before["manifest.json"] != after["manifest.json"] and before.keys() == after.keys()


SHORT, LONG = [1] * 1200, [60] * 600


@pytest.mark.parametrize("shard_tokens", [20_000, 4_000])
@pytest.mark.parametrize("lengths", [SHORT + LONG, LONG + SHORT, (SHORT[:2] + LONG[:1]) * 600, [400] * 300 + LONG])
def test_a_shard_is_as_small_as_it_was_to_be_in_any_order_of_the_text(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, lengths: list[int], shard_tokens: int
) -> None:
    """Sorted either way, mixed, and after lines that are all too long: never more but by chance, as documented."""
    write_pairs(tmp_path, lengths)
    text = opened(tmp_path, vocabulary, shard_tokens)
    tokens = np.sum(text.manifest["tokens"], axis=0)
    assert tokens.mean() <= shard_tokens and len(tokens) == -(-tokens.sum() // shard_tokens) > 5
    longest = max(int(text._rows(number)[:, 1:].sum(1).max(initial=0)) for number in range(len(tokens)))
    deviation = (shard_tokens * longest) ** 0.5
    assert tokens.max() < shard_tokens + 4 * deviation
    assert tokens.tolist() == [sum(map(len, text._shard(number).tokens)) for number in range(len(tokens))]


def test_where_examples_go_is_part_of_the_fingerprint(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy may draw otherwise in another version: then batches are others, and a run is not the same."""
    write_pairs(tmp_path, [5] * 400)
    first = opened(tmp_path, vocabulary).fingerprint
    default_rng = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed: default_rng((seed, 1)))
    os.utime(tmp_path / "s", ns=(1, 1))
    assert opened(tmp_path, vocabulary).fingerprint != first


def fill(word: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in ("a", "b"):
            (folder / name).write_text(word)

    return write


def whole(folder: Path) -> str | None:
    """What a folder is full of; None if it is not there. Fails if it is of two things, or has parts only."""
    if not folder.exists():
        return None
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    (word,) = {path.read_text() for path in folder.iterdir()}
    return word


OPERATIONS = ("mkdir", "fsync", "rename", "unlink", "rmdir")
"""That a death may come before."""


def dying(n: int, die: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """``die`` comes before the n-th operation on the disk; the names of all, as they come."""
    done: list[str] = []

    def before(name: str) -> Callable[..., Any]:
        operation = getattr(os, name)

        def run(*args: Any, **options: Any) -> Any:
            done.append(name)
            if len(done) == n:
                die()
            return operation(*args, **options)

        return run

    for name in OPERATIONS:
        monkeypatch.setattr(os, name, before(name))
    return done


@pytest.mark.parametrize("n", range(1, 12))
def test_a_death_at_any_point_leaves_the_old_folder_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    final = tmp_path / "final"
    files.write_folder(final, fill("old"))
    child = os.fork()
    if not child:
        dying(n, lambda: os._exit(7), monkeypatch)
        files.write_folder(final, fill("new"))
        os._exit(0)
    died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    files.settle(final)
    assert whole(final) in (("old", "new") if died else ("new",))
    files.write_folder(final, fill("newer"))
    assert whole(final) == "newer" and list(tmp_path.iterdir()) == [final], "and nothing is left over"


def test_nothing_is_removed_before_what_replaces_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the operations; the test above has a death for each of them."""
    files.write_folder(tmp_path / "final", fill("old"))
    done = dying(0, lambda: None, monkeypatch)
    files.write_folder(tmp_path / "final", fill("new"))
    of_contents, of_names = ["fsync"] * 3, ["fsync"]
    assert done == ["mkdir", *of_contents, "rename", "rename", *of_names, "unlink", "unlink", "rmdir"]


@pytest.mark.parametrize("n", range(1, 12))
@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_error_at_any_point_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, fault: BaseException
) -> None:
    final = tmp_path / "final"
    files.write_folder(final, fill("old"))

    def die() -> None:
        raise fault

    with monkeypatch.context() as patch:
        dying(n, die, patch)
        try:
            files.write_folder(final, fill("new"))
        except (SgdecError, KeyboardInterrupt):
            failed = True
        else:
            failed = False
    interrupted = isinstance(fault, KeyboardInterrupt)  # maybe while what was there was being removed
    assert whole(final) in (("old", "new") if interrupted and failed else ("old",) if failed else ("new",))
    assert list(tmp_path.iterdir()) == [final] or interrupted or not failed, "what fails leaves nothing behind"


def test_a_death_between_two_renames_does_not_cost_the_shards(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path, [5] * 400)
    fingerprint = opened(tmp_path, vocabulary).fingerprint
    status = (tmp_path / "s").stat()
    child = os.fork()
    if not child:
        rename = Path.rename
        monkeypatch.setattr(Path, "rename", lambda *args: (rename(*args), os._exit(0)))
        os.utime(tmp_path / "s", ns=(1, 1))
        opened(tmp_path, vocabulary)
    os.waitpid(child, 0)
    os.utime(tmp_path / "s", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not (tmp_path / "run" / "text").exists()
    monkeypatch.setattr(stream, "write_shards", lambda *args, **options: pytest.fail("prepared again"))
    assert opened(tmp_path, vocabulary).fingerprint == fingerprint


@pytest.mark.parametrize("place", [".text.partial", ".text.before"])
def test_what_a_death_left_is_removed_although_nothing_is_prepared(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, place: str
) -> None:
    write_pairs(tmp_path, [5] * 400)
    fingerprint = opened(tmp_path, vocabulary).fingerprint
    (tmp_path / "run" / place).mkdir()
    (tmp_path / "run" / place / "shard-00000.examples").write_bytes(b"half")
    assert opened(tmp_path, vocabulary).fingerprint == fingerprint
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["text"]


BUDGETS = [
    TokenCounts(300),
    Workspace(2.0e5, 100.0, (10.0, 3.5, 0.1, 0.2, 0.3)),
    Workspace(2.0e5, 100.0, (9.0,) * 5, 2),
]


@pytest.mark.parametrize("budget", BUDGETS)
def test_batches_are_counted_once(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch, budget: BatchBudget
) -> None:
    write_pairs(tmp_path, [length % 9 + 1 for length in range(400)])
    text = opened(tmp_path, vocabulary)
    first = list(text.batches(budget, order=(1, 0)))
    made = []
    monkeypatch.setattr(shards, "cut", lambda *args: made.append(1) or cut(*args))
    again = opened(tmp_path, vocabulary)
    batches = again.batches(budget, order=(1, 0))
    assert len(batches) == len(first) and not made
    assert list(batches) == first and len(made) == len(text.examples)


def test_counts_of_another_budget_or_text_are_not_taken(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    write_pairs(tmp_path, [length % 9 + 1 for length in range(400)])
    text = opened(tmp_path, vocabulary)
    counted = {budget: text.counts(budget).tolist() for budget in BUDGETS}
    for budget in BUDGETS:
        expected = [len(text.cut(number, budget)) for number in range(len(text.examples))]
        assert counted[budget] == opened(tmp_path, vocabulary).counts(budget).tolist() == expected
    before = (tmp_path / "run" / "text" / shards.COUNTS).read_bytes()
    write_pairs(tmp_path, [length % 5 + 1 for length in range(400)])
    other = opened(tmp_path, vocabulary)
    (tmp_path / "run" / "text" / shards.COUNTS).write_bytes(before)
    expected = [len(other.cut(number, BUDGETS[-1])) for number in range(len(other.examples))]
    assert other.counts(BUDGETS[-1]).tolist() == expected != counted[BUDGETS[-1]]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"text": 1}'])
def test_damaged_counts_are_made_anew(tmp_path: Path, vocabulary: SentencePieceVocabulary, damage: str) -> None:
    write_pairs(tmp_path, [5] * 400)
    expected = opened(tmp_path, vocabulary).counts(TokenCounts(300)).tolist()
    file = tmp_path / "run" / "text" / shards.COUNTS
    good = file.read_text()
    file.write_text(damage)
    assert opened(tmp_path, vocabulary).counts(TokenCounts(300)).tolist() == expected
    assert file.read_text() == good


def test_counts_that_do_not_fit_the_batches_are_an_error(tmp_path: Path, vocabulary: SentencePieceVocabulary) -> None:
    write_pairs(tmp_path, [5] * 400)
    opened(tmp_path, vocabulary).counts(TokenCounts(300))
    file = tmp_path / "run" / "text" / shards.COUNTS
    stored = files.read_json(file)
    files.write_json(file, {**stored, "batches": [count + 1 for count in stored["batches"]]})
    with pytest.raises(SgdecError, match=rf"{shards.COUNTS}: .* Remove"):
        list(opened(tmp_path, vocabulary).batches(300))


def test_counting_needs_no_room_on_the_disk(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path, [5] * 400)
    text = opened(tmp_path, vocabulary)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_json", full)
    assert text.counts(TokenCounts(300)).sum() == len(text.batches(300))
    assert not list(text.folder.glob(f"*{shards.COUNTS}*"))


def test_a_file_system_without_locks_is_one_line(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    write_pairs(tmp_path, [5] * 400)
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(SgdecError, match=r"cannot be locked .*\(No locks available\)\. Give another --output"):
        opened(tmp_path, vocabulary)


def test_only_a_process_that_waits_says_so(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    write_pairs(tmp_path, [5] * 400)
    caplog.set_level("INFO", "sgdec")
    waiting = "waiting for the process that prepares the text"
    opened(tmp_path, vocabulary)
    assert waiting not in caplog.messages and "preparing shards" in caplog.messages[0]
    with ThreadPoolExecutor() as threads:
        with in_turn(tmp_path / "run", lambda: pytest.fail("it is alone")):
            reader = threads.submit(opened, tmp_path, vocabulary, 3000)
            while waiting not in caplog.messages:
                assert not reader.done()
                time.sleep(0.01)
        assert len(reader.result()) == 400

"""Faults of the world: a death at any moment of a checkpoint's writing leaves a whole one behind, a run is only taken
up as what it was, and bad training lines cost those lines.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgdec.checkpoints import files, layout, loading
from sgdec.errors import SgdecError, UsageError
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from sgdec.training import train
from sgdec.training.data.reading import LengthLimits
from sgdec.training.data.text import MonolingualText, ParallelText
from sgdec.training.preparing import prepare
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow


class Died(BaseException):
    """As a kill or a power cut: nothing that the writer would do about an error is done."""


def save(run: Path, step: int, keep: int) -> None:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_text(f"weights of {step}")
        (folder / "config.json").write_text(f"config of {step}")

    layout.save_checkpoint(run, f"step-{step}", write, ("last", "best"), keep=keep)


@pytest.mark.parametrize("keep", [0, 2])
def test_a_death_at_any_call_of_the_system_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    """At the k-th call that touches the disk, for every k; a write dies half way."""
    left = [10**9]

    def mortal(function: Any, *, halves: bool = False) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                if halves:
                    function(args[0], args[1][: len(args[1]) // 2])
                raise Died
            return function(*args, **options)

        return call

    for owner, name in ((Path, "mkdir"), (Path, "rename"), (Path, "symlink_to"), (Path, "replace"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, mortal(getattr(owner, name)))
    monkeypatch.setattr(Path, "write_text", mortal(Path.write_text, halves=True))
    monkeypatch.setattr(os, "fsync", mortal(os.fsync))
    monkeypatch.setattr(shutil, "rmtree", mortal(shutil.rmtree))
    calls, seen = 0, set()
    while True:
        left[0] = 10**9
        run = tmp_path / f"run{calls}"
        save(run, 1, keep)
        left[0] = calls
        died = False
        try:
            save(run, 2, keep)
        except Died:
            died = True
        for link in ("last", "best"):
            step = (run / link).resolve().name.removeprefix("step-")
            seen.add(step)
            for name, what in (("model.safetensors", "weights"), ("config.json", "config")):
                assert (run / link / name).read_text() == f"{what} of {step}", f"after {calls} calls"
        left[0] = 10**9
        save(run, 3, keep)  # the next run clears what the dead one left
        names = {path.name for path in run.iterdir()}
        assert not any(name.endswith(".partial") for name in names), names
        if not died:
            break
        calls += 1
    assert calls > 12 and seen == {"1", "2"}


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From the checkpoint of step 4 on, no file may grow past 8 kB: the log fits, weights and figures do not."""
    save, limits = layout.save_checkpoint, resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_disk(run: Path, name: str, *args: Any, **options: Any) -> None:
        if name == "step-4":
            resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, limits[1]))
        save(run, name, *args, **options)

    monkeypatch.setattr(layout, "save_checkpoint", fill_disk)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_one_line_about_the_checkpoint_and_the_one_before_it_is_whole(
    tmp_path: Path, limited: None
) -> None:
    config = make_config(tmp_path, max_steps=6, validate_every=2, bleu=0)
    trainer = prepare(config, quiet=True)
    with pytest.raises(
        SgdecError, match=r"run/step-4: cannot be written \(.*\)\. The checkpoint before it is intact"
    ):
        trainer.run()
    assert layout.read_config(tmp_path / "run" / "last")["step"] == 2
    loading.load_model(tmp_path / "run")


def test_every_changed_setting_is_shown(tmp_path: Path) -> None:
    train(make_config(tmp_path, max_steps=2, bleu=0), quiet=True)

    def refusal(**settings: Any) -> str:
        with pytest.raises(UsageError) as caught:
            train(make_config(tmp_path, **settings), resume=True, quiet=True)
        return str(caught.value).replace(str(tmp_path / "run"), "RUN")

    way_out = "Give the same settings, or another --output."
    assert refusal(lr=0.5, clip=1.0, ema=0.1) == (
        f"--resume: clip was 5.0 in RUN, now it is 1.0; lr was 0.001, now 0.5; ema was 0.0, now 0.1. {way_out}"
    )
    assert refusal(options={"width": 24, "dropout": 0.1}) == (
        f"--resume: gnmt.width was 16 in RUN, now it is 24. {way_out}"
    )
    assert refusal(accumulate=2).startswith("--resume: accumulate was 1 in RUN, now it is 2.")


def test_a_run_of_an_sgdec_that_knew_fewer_settings_had_their_defaults(tmp_path: Path) -> None:
    train(make_config(tmp_path, max_steps=2, bleu=0), quiet=True)
    file = tmp_path / "run" / "last" / "config.json"
    config = files.read_json(file)
    for name in ("ema", "accumulate", "max_ratio"):
        del config["training"][name]
    del config["training_text"]
    files.write_json(file, config)
    with pytest.raises(UsageError, match=r"--resume: ema was 0\.0 in .*, now it is 0\.1\."):
        train(make_config(tmp_path, ema=0.1), resume=True, quiet=True)
    assert train(make_config(tmp_path, max_steps=3, bleu=0), resume=True, quiet=True).steps == 3


def test_other_text_and_another_tokenizer_of_the_same_size_are_refused_wherever_they_lie(tmp_path: Path) -> None:
    config = make_config(tmp_path, max_steps=2, bleu=0)
    train(config, quiet=True)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (*config.train, *config.tokenizer):
        shutil.copy(path, moved)
    paths = {"train": tuple(str(moved / Path(p).name) for p in config.train), "tokenizer": (str(moved / "tok.spm"),)}
    assert train(make_config(tmp_path, max_steps=3, bleu=0, **paths), resume=True, quiet=True).steps == 3
    with open(paths["train"][0], "a") as source, open(paths["train"][1], "a") as target:
        source.write("one\n")
        target.write("eins\n")
    with pytest.raises(
        UsageError, match=rf"text is not the one of .*run: it was {len(PAIRS)} pairs \w+, now it is 110"
    ):
        prepare(make_config(tmp_path, max_steps=4, **paths), resume=True, quiet=True)
    swapped = train_vocabulary([word[::-1] for pair in PAIRS for word in " ".join(pair).split()], 20, kind="word")
    (moved / "tok.spm").write_bytes(swapped.serialized)
    with pytest.raises(
        UsageError, match=r"--resume: the source tokenizer is not the one of .*run\. Give the same tokenizer"
    ):
        prepare(make_config(tmp_path, max_steps=4, **paths), resume=True, quiet=True)


@pytest.fixture(scope="module")
def vocabulary() -> SentencePieceVocabulary:
    return train_vocabulary(["ab cd e"] * 5, 20, kind="char")


def write(folder: Path, *sides: list[bytes], ending: str = "") -> tuple[str, str]:
    paths = str(folder / f"s{ending}"), str(folder / f"t{ending}")
    for path, lines in zip(paths, sides, strict=True):
        content = b"".join(line + b"\n" for line in lines)
        Path(path).write_bytes(gzip.compress(content) if ending else content)
    return paths


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_bad_training_lines_are_left_out_and_counted(
    tmp_path: Path, vocabulary: SentencePieceVocabulary, ending: str
) -> None:
    source = [b"ab", b"a\xffb", b"", b"ab", b"ab ab ab ab ab", b"ab cd", b"\xff", b"ab ab ab"]
    target = [b"cd", b"cd", b"cd", b"\xc3", b"cd cd cd cd cd", b"cd ab", b"\xff", b"a"]
    paths = write(tmp_path, source, target, ending=ending)
    data = ParallelText.read(paths, vocabulary, vocabulary, LengthLimits(12, 4.0))
    assert data.lines == [1, 6]
    assert data.left_out == {"not UTF-8": 3, "empty": 1, "too long": 1, "of absurd lengths": 1}
    assert data.source_lines == ["ab", "ab cd"] and data.target_lines == ["cd", "cd ab"]
    alone = MonolingualText.read(paths[0], vocabulary, LengthLimits(12))
    assert (alone.lines, alone.left_out) == ([1, 4, 6, 8], {"not UTF-8": 2, "empty": 1, "too long": 1})


def test_a_ratio_counts_in_both_directions_and_only_beyond_the_limit() -> None:
    assert [LengthLimits(99, 3.0).fault(*sides) for sides in ((3, 1), (4, 1), (1, 4), (7, 2), (6, 2))] == [
        None, *["of absurd lengths"] * 3, None,
    ]  # fmt: skip
    assert LengthLimits(99).fault(98, 1) is None


def test_a_run_says_what_it_left_out_and_refuses_held_out_text_that_it_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sgdec")
    config = make_config(tmp_path, max_ratio=1.5, max_steps=1, bleu=0)
    with open(config.train[0], "ab") as source, open(config.train[1], "ab") as target:
        source.write(b"one\none \xe9\n\n")
        target.write(b"eins zwei drei\neins\neins\n")
    prepare(config).run()
    said = caplog.messages[0]
    assert f"{len(PAIRS)} pairs, 1 of absurd lengths left out, 1 not UTF-8 left out, 1 empty left out;" in said
    with open(config.valid[1], "ab") as held_out:
        held_out.write(b"\xe9\n")
    with pytest.raises(SgdecError, match=r"valid\.de: line 17 is not UTF-8"):
        prepare(config.__class__(**{**config.__dict__, "output": str(tmp_path / "other")}), quiet=True)


def test_unequal_files_are_refused_even_where_lines_cannot_be_read(
    tmp_path: Path, vocabulary: SentencePieceVocabulary
) -> None:
    paths = write(tmp_path, [b"ab", b"\xff", b"ab"], [b"ab", b"ab"])
    with pytest.raises(SgdecError, match=r"s has 3 lines but .*t has 2\. Line N"):
        ParallelText.read(paths, vocabulary, vocabulary, LengthLimits(12))


def test_a_text_of_bad_lines_alone_says_what_is_wrong_with_them(
    tmp_path: Path, vocabulary: SentencePieceVocabulary
) -> None:
    paths = write(tmp_path, [b"\xff", b"", b"ab"], [b"ab", b"ab", b"a" * 30])
    with pytest.raises(SgdecError, match=r"no pair is left of 3: 1 not UTF-8, 1 empty, 1 too long\. .*--max-line"):
        ParallelText.read(paths, vocabulary, vocabulary, LengthLimits(12))

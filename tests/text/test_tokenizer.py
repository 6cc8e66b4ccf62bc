"""The text units: SentencePiece vocabularies of every kind, trained on one or more files, and lines read safely."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import sentencepiece
from click.testing import CliRunner

from sgdec.cli.tokenizer import command
from sgdec.context import BOS, EOS, UNK
from sgdec.errors import SgdecError, UsageError
from sgdec.text.lines import read_lines
from sgdec.text.sentencepiece import KINDS, Kind, SentencePieceVocabulary, train_vocabulary

ENGLISH = ["one two three", "two three four", "three four five", "five one four"] * 5
GERMAN = ["eins zwei drei", "zwei drei vier", "drei vier fünf", "fünf eins vier"] * 5
SIZES: dict[Kind, int] = {"unigram": 27, "bpe": 40, "char": 40, "word": 20}


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, Path]:
    english, german = tmp_path / "text.en", tmp_path / "text.de.gz"
    english.write_text("\n".join(ENGLISH) + "\n")
    german.write_bytes(gzip.compress(("\n".join(GERMAN) + "\n").encode()))
    return english, german


def run(*args: str | Path) -> int:
    """The command as the program runs it; `SgdecError` comes out as it is raised."""
    result = CliRunner().invoke(command, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_back_its_training_text(kind: Kind) -> None:
    vocabulary = train_vocabulary(ENGLISH + GERMAN, SIZES[kind], kind=kind)
    assert [vocabulary.piece(token) for token in (UNK, BOS, EOS)] == ["<unk>", "<s>", "</s>"]
    for line in ENGLISH + GERMAN:
        tokens = vocabulary.encode(line)
        assert min(tokens) > EOS, "special tokens are no part of a line"
        assert vocabulary.decode(tokens) == line
    assert vocabulary.encode_all(ENGLISH) == [list(vocabulary.encode(line)) for line in ENGLISH]


def test_units_are_what_their_kind_says() -> None:
    word = train_vocabulary(ENGLISH, 20, kind="word")
    assert [word.piece(token) for token in word.encode("one two")] == ["▁one", "▁two"]
    char = train_vocabulary(ENGLISH, 40, kind="char")
    assert [char.piece(token) for token in char.encode("one")] == ["▁", "o", "n", "e"]


def test_pieces_and_tokens_are_inverse_and_bounded() -> None:
    vocabulary = train_vocabulary(ENGLISH, 30)
    assert vocabulary.size == 30
    assert [vocabulary.token(vocabulary.piece(token)) for token in range(30)] == list(range(30))
    assert vocabulary.token("no such piece") == UNK
    for outside in (-1, 30):
        with pytest.raises(IndexError, match="outside the vocabulary"):
            vocabulary.piece(outside)


def test_equal_fingerprints_mean_equal_pieces() -> None:
    first, same = train_vocabulary(ENGLISH, 30), train_vocabulary(ENGLISH, 30)
    assert first.fingerprint == same.fingerprint
    assert first.fingerprint != train_vocabulary(ENGLISH, 29).fingerprint
    assert first.fingerprint != train_vocabulary(GERMAN, 30).fingerprint


def test_the_command_trains_one_vocabulary_from_several_files(text: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "tok.spm"
    assert run("--input", text[0], "--input", text[1], "--output", output, "--vocab-size", 40) == 0
    vocabulary = SentencePieceVocabulary.load(output)
    assert vocabulary.size == 40
    assert vocabulary.fingerprint == train_vocabulary(ENGLISH + GERMAN, 40).fingerprint
    assert UNK not in vocabulary.encode("fünf") + vocabulary.encode("five")


def test_a_vocabulary_that_the_text_cannot_give_is_refused_in_one_line() -> None:
    with pytest.raises(
        UsageError, match=r"a bpe vocabulary of 5000 pieces cannot be made .*too high.*<= \d+"
    ) as caught:
        train_vocabulary(ENGLISH, 5000)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot be made"):
        train_vocabulary(["", "  "], 100)


def test_files_that_are_no_vocabulary_are_named(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"none\.spm: cannot be read"):
        SentencePieceVocabulary.load(tmp_path / "none.spm")
    (tmp_path / "bad.spm").write_text("hello")
    with pytest.raises(SgdecError, match=r"bad\.spm: this is not a SentencePiece model"):
        SentencePieceVocabulary.load(tmp_path / "bad.spm")


def test_other_numbers_for_special_tokens_are_refused(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH), model_prefix=str(tmp_path / "other"), vocab_size=30, model_type="bpe",
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(SgdecError, match=r"other\.model: <unk>, <s>, </s> are numbered 1, 2, 3, expected 0, 1, 2"):
        SentencePieceVocabulary.load(tmp_path / "other.model")


def test_lines_end_only_at_newlines(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("a\u2028b\x0cc\r\n\nd".encode())
    assert list(read_lines(tmp_path / "text")) == ["a\u2028b\x0cc", "", "d"]


def test_invalid_utf8_names_the_file_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"good\nbad \xff\n")
    with pytest.raises(SgdecError, match=r"text: line 2 is not UTF-8 \(byte 5"):
        list(read_lines(tmp_path / "text"))


def test_damaged_and_missing_files_are_one_line(tmp_path: Path) -> None:
    whole = gzip.compress(b"a line\n" * 1000)
    for name, content in {
        "cut.gz": whole[:-9],
        "none.gz": b"hello",
        "flip.gz": whole[:20] + b"??" + whole[22:],
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SgdecError, match=rf"{name}: the gzip file is damaged"):
            list(read_lines(tmp_path / name))
    with pytest.raises(SgdecError, match="absent: cannot be read"):
        list(read_lines(tmp_path / "absent"))
    with pytest.raises(SgdecError, match="cannot be written"):
        (tmp_path / "text").write_text("\n".join(ENGLISH))
        run("--input", tmp_path / "text", "--output", tmp_path / "no" / "tok.spm", "--vocab-size", 30)

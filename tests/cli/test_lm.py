"""The promise: ``sgdec lm`` makes a model that KenLM and the predictor read, and names what is wrong in one line."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sgdec_predictors.ngram import NGram

from sgdec.cli.lm import repeat_options
from sgdec.cli.main import main
from sgdec.context import BOS, EOS, Context, Vocabularies
from sgdec.io.arpa import LN_10, read_arpa
from sgdec.protocol import Source
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from tests.helpers.optional import optional
from tests.helpers.places import DATA

TEXT = DATA / "numbers.txt"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tok.spm"
    path.write_bytes(train_vocabulary([*TEXT.read_text().splitlines(), "quiz"], 60).serialized)
    return path


def run(*args: str | Path) -> int:
    return main(["lm", *map(str, args)])


def all_rows(predictor: NGram, prefixes: Sequence[Sequence[int]]) -> np.ndarray:
    rows = []
    for prefix in prefixes:
        states = predictor.initialize_batch([Source(1, (3,))])
        for token in prefix:
            states = predictor.consume_batch(states, [token])
        values = predictor.predict_batch(states).values
        assert isinstance(values, np.ndarray)
        rows.append(values[0].astype(np.float64))
    return np.stack(rows)


@pytest.mark.parametrize("words", ["ids", "pieces"])
def test_a_model_over_tokens_scores_every_token_in_both_readers(tmp_path: Path, tokenizer: Path, words: str) -> None:
    output = tmp_path / "lm.arpa.gz"
    arguments = ("--tokenizer", tokenizer, "--output", output, "--order", "4", "--discount-fallback")
    assert run("--input", TEXT, *arguments, "--words", words) == 0
    vocabulary = SentencePieceVocabulary.load(tokenizer)
    context = Context(vocabularies=Vocabularies(target=vocabulary), vocab_size=vocabulary.size)
    predictor = NGram(str(output), words, context=context)
    spelled = [str(token) if words == "ids" else vocabulary.piece(token) for token in range(vocabulary.size)]
    spelled[:3] = ["<unk>", "<s>", "</s>"]
    assert read_arpa(output).words == spelled

    rng = random.Random(3)
    sentences = [vocabulary.encode(line) for line in TEXT.read_text().splitlines()[:20]]
    prefixes = [sentence[: rng.randint(0, len(sentence))] for sentence in sentences]
    rows = all_rows(predictor, prefixes)
    assert np.abs(np.delete(np.exp(rows), BOS, axis=1).sum(axis=1) - 1).max() < 1e-5
    assert (np.delete(rows, BOS, axis=1) > -20).all()  # no token is without a probability
    oracle = optional("kenlm").Model(str(output))
    for prefix, row in zip(prefixes, rows, strict=True):
        text = " ".join(spelled[token] for token in prefix)
        whole = oracle.score(text, bos=True, eos=True) * LN_10
        parts = all_rows(predictor, [prefix[:i] for i in range(len(prefix))]) if prefix else np.empty((0, 1))
        total = sum(parts[i, token] for i, token in enumerate(prefix)) + row[EOS]
        assert total == pytest.approx(whole, abs=1e-4)


def test_without_a_tokenizer_words_are_those_of_the_text(tmp_path: Path) -> None:
    output = tmp_path / "lm.arpa"
    assert run("--input", TEXT, "--output", output, "--order", "3", "--discount-fallback") == 0
    model = read_arpa(output)
    assert set(model.words) == {"<unk>", "<s>", "</s>", *TEXT.read_text().split()}
    assert [len(ngrams.scores) for ngrams in model.orders] == [19, 75, 113]  # as lmplz


def test_kenlm_reads_a_model_of_words(tmp_path: Path) -> None:
    output = tmp_path / "lm.arpa"
    assert run("--input", TEXT, "--output", output, "--order", "3", "--discount-fallback") == 0
    assert optional("kenlm").Model(str(output)).score("nine hundred zero") < 0


def test_only_ascii_blanks_separate_words(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("zehn\u00a0Uhr \u3000 b\n")
    assert run("--input", text, "--output", tmp_path / "lm.arpa", "--order", "2", "--discount-fallback") == 0
    assert read_arpa(tmp_path / "lm.arpa").words == ["<unk>", "<s>", "</s>", "zehn\u00a0Uhr", "\u3000", "b"]


def test_several_files_count_as_one_text(tmp_path: Path) -> None:
    lines = TEXT.read_text().splitlines(keepends=True)
    (tmp_path / "first").write_text("".join(lines[:30]))
    with gzip.open(tmp_path / "second.gz", "wt") as file:
        file.write("\n" + "".join(lines[30:]))
    options = ("--order", "3", "--prune", "0", "0", "1", "--discount-fallback")
    assert run("--input", TEXT, "--output", tmp_path / "one.arpa", *options) == 0
    parts = (tmp_path / "first", tmp_path / "second.gz")
    assert run("--input", *parts, "--output", tmp_path / "two.arpa", *options) == 0
    assert (tmp_path / "one.arpa").read_text() == (tmp_path / "two.arpa").read_text()
    assert len(read_arpa(tmp_path / "one.arpa").orders[2].scores) == 36


def test_given_discounts_take_the_place_of_the_texts_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "lm.arpa"
    assert run("--input", TEXT, "--output", output, "--order", "2", "--discounts", "0.4", "0.8", "1.2") == 0
    assert capsys.readouterr().err.count("discounts 0.400, 0.800, 1.200") == 2


def test_several_values_are_spread_over_their_option() -> None:
    assert repeat_options(["--input", "a", "-", "--prune", "0", "0", "1", "--order", "3", "x"]) == [
        *("--input", "a", "--input", "-", "--prune", "0", "--prune", "0", "--prune", "1", "--order", "3", "x")
    ]
    assert repeat_options(["--prune", "0", "--prune", "1"]) == ["--prune", "0", "--prune", "1"]


@pytest.mark.parametrize(
    ("options", "status", "complaint"),
    [
        (("--input", "{folder}/none"), 1, "none: cannot be read (No such file or directory)"),
        (("--input", "{folder}/latin1"), 1, "latin1: line 2 is not UTF-8"),
        (("--input", "{folder}/marked"), 1, "marked: line 2: <s> and </s> are added around each line"),
        (("--input", "{folder}/empty"), 2, "there is no sentence"),
        (("--input", "{text}", "--order", "9"), 2, "--order"),
        (("--input", "{text}", "--order", "x"), 2, "--order: 'x' should be a number"),
        (("--input", "{text}", "--order", "0_3"), 2, "--order: '0_3' should be a number"),
        (("--input", "{text}", "--order", "٣"), 2, "--order: '٣' should be a number"),
        (("--input", "{text}", "--discounts", "0.4", "0_1.8", "1"), 2, "--discounts: '0_1.8' should be a number"),
        (("--input", "{text}", "--order", "6"), 2, "set --discount-fallback"),
        (("--input", "{text}", "--prune", "1"), 2, "--prune 1: expected"),
        (("--input", "{text}", "--prune", "x"), 2, "--prune"),
        (("--input", "{text}", "--discounts", "0.5"), 2, "expected D1, D2, D3+"),
        (("--input", "{text}", "--words", "pieces"), 2, "--words pieces needs --tokenizer"),
        (("--input", "{text}", "--tokenizer", "{folder}/none"), 1, "none: cannot be read"),
        (("--input", "{text}", "--tokenizer", "{text}"), 1, "not a SentencePiece model"),
        (("--input", "{text}", "--output", "{folder}/no/lm.arpa"), 1, "lm.arpa: cannot be written (no such folder)"),
        (("--input", "{text}", "--discount-fallback", "--output", "{folder}"), 1, "cannot be written"),
        ((), 2, "--input"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], status: int, complaint: str
) -> None:
    (tmp_path / "latin1").write_bytes(b"one\ncaf\xe9\n")
    (tmp_path / "marked").write_text("one two\n<s> one two </s>\n")
    (tmp_path / "empty").write_text("\n \n")
    arguments = [option.format(folder=tmp_path, text=TEXT) for option in options]
    if "--output" not in arguments:
        arguments += ["--output", str(tmp_path / "lm.arpa")]
    assert run(*arguments) == status
    error = capsys.readouterr().err
    assert error.startswith("Error: ")
    assert error.count("\n") == 1
    assert complaint.lower() in error.lower()
    assert not (tmp_path / "lm.arpa").exists()

"""The promise: ``sgdec transducer`` makes what `fsttok` and `word2char` read, and models over characters, words and
pieces then decode together; each of them scores the output as it does alone, in its own tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.ngram import NGram
from sgdec_predictors.nmt import NmtPredictor

from sgdec.checkpoints import files, layout, loading
from sgdec.cli.main import main
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.testing import score_path
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary

pytestmark = pytest.mark.slow

TEXT = ["ab ba abc", "cab a ab", "abcab cab", "a ba ba ab", "abc abcab a"]
KINDS: Mapping[str, Any] = {"char": 20, "word": 30, "bpe": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text; for each kind a tokenizer, a translation model with random weights and a bigram model."""
    folder = tmp_path_factory.mktemp("levels")
    (folder / "text").write_text("\n".join(TEXT) + "\n")
    (folder / "in.txt").write_text("ab cab\nba\na abc ab\n")
    for seed, (kind, size) in enumerate(KINDS.items()):
        vocabulary = train_vocabulary(TEXT, size, kind=kind)
        (folder / f"{kind}.voc").write_bytes(vocabulary.serialized)
        write_model(folder / kind, vocabulary, seed)
        given = ["--input", str(folder / "text"), "--tokenizer", str(folder / f"{kind}.voc"), "--order", "2"]
        assert main(["lm", *given, "--discount-fallback", "--output", str(folder / f"{kind}.arpa")]) == 0
    return folder


def write_model(folder: Path, vocabulary: SentencePieceVocabulary, seed: int) -> None:
    import torch

    folder.mkdir()
    layout.save_vocabularies(folder, vocabulary, vocabulary)
    sizes = {f"{side}_vocab_size": vocabulary.size for side in ("source", "target")}
    options = {"layers": 3, "width": 8}
    config = {"format": layout.FORMAT, "model": "gnmt", "options": options, **sizes, "shared": True}
    files.write_json(folder / layout.CONFIG, config)
    torch.manual_seed(seed)
    model = loading.build_model(config, where="the test's own model")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    files.save_tensors(folder / layout.WEIGHTS, loading.model_tensors(model))


def build(folder: Path, outer: str, inner: str, *more: str) -> str:
    output = str(folder / f"{outer}-{inner}.fst")
    given = ["--from", str(folder / f"{outer}.voc"), "--to", str(folder / f"{inner}.voc"), "--output", output]
    assert main(["transducer", *given, "--text", str(folder / "text"), *more]) == 0
    return output


def decode(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    status = main(["decode", "--output-format", "jsonl", "--nbest", "3", "--max-length", "14", *args])
    out, err = capsys.readouterr()
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()]


def vocabulary(folder: Path, kind: str) -> SentencePieceVocabulary:
    return SentencePieceVocabulary.load(folder / f"{kind}.voc")


def alone(folder: Path, kind: str, source: str, target: str) -> float:
    """What one model says of a translation in its own tokens."""
    own = vocabulary(folder, kind)
    constellation = Constellation.of({"nmt": NmtPredictor(str(folder / kind))})
    return score_path(constellation, Source(1, own.encode(source)), own.encode(target))[0]


@pytest.mark.parametrize("decoder", ["syncbeam", "beam"])
@pytest.mark.parametrize("batch_size", ["1", "64"])
def test_models_over_characters_words_and_pieces_decode_together(
    folder: Path, capsys: pytest.CaptureFixture[str], decoder: str, batch_size: str
) -> None:
    word, bpe = (build(folder, "char", kind, "--unlisted", "forbid") for kind in ("word", "bpe"))
    models = {"nmt": "char", "nmt2": "word", "nmt3": "bpe"}
    found = decode(
        capsys, "--predictors", "nmt,fsttok:nmt,fsttok:nmt", "--decoder", decoder, "--batch-size", batch_size,
        *(part for name, kind in models.items() for part in (f"--{name}.model", str(folder / kind))),
        "--fsttok.path", word, "--fsttok2.path", bpe, "--fsttok2.weight", "0.5",
        *(["--syncbeam.symbol", "▁"] if decoder == "syncbeam" else []), str(folder / "in.txt"),
    )  # fmt: skip
    lines = (folder / "in.txt").read_text().splitlines()
    assert len(found) == len(lines)
    for line, row in zip(lines, found, strict=True):
        assert row["hypotheses"]
        for hypothesis in row["hypotheses"]:
            expected = [alone(folder, kind, line, hypothesis["text"]) for kind in models.values()]
            assert list(hypothesis["scores"].values()) == pytest.approx(expected, abs=1e-4)
            assert hypothesis["score"] == pytest.approx(expected[0] + expected[1] + 0.5 * expected[2], abs=1e-4)


def test_wrappers_nest_and_take_options_by_their_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Characters to pieces to words: as characters to words."""
    pieces, words, direct = (build(folder, *pair.split()) for pair in ("char bpe", "bpe word", "char word"))
    (folder / "ids").write_text("3 3 3\n")
    found = [
        decode(
            capsys, "--predictors", predictors, *paths, "--ngram.path", str(folder / "word.arpa"),
            "--decoder", "beam", "--beam.size", "40", "--beam.stop", "proven",
            "--tokenizer", str(folder / "char.voc"), "--input-format", "ids", str(folder / "ids"),
        )[0]["hypotheses"]
        for predictors, paths in (
            ("fsttok:fsttok:ngram", ("--fsttok.path", pieces, "--fsttok2.path", words)),
            ("fsttok:ngram", ("--fsttok.path", direct)),
        )
    ]  # fmt: skip
    assert any(hypothesis["text"] for hypothesis in found[0])
    for nested, plain in zip(*found, strict=True):
        assert (nested["tokens"], nested["score"]) == (plain["tokens"], pytest.approx(plain["score"]))


def test_words_behind_characters_score_as_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spellings = str(folder / "words.txt")
    given = ["--from", str(folder / "char.voc"), "--to", str(folder / "word.voc"), "--word2char"]
    assert main(["transducer", *given, "--output", spellings]) == 0
    found = decode(
        capsys, "--predictors", "nmt,word2char:ngram", "--nmt.model", str(folder / "char"),
        "--word2char.path", spellings, "--ngram.path", str(folder / "word.arpa"), str(folder / "in.txt"),
    )  # fmt: skip
    words = vocabulary(folder, "word")
    bigram = Constellation.of({"ngram": NGram(str(folder / "word.arpa"))})
    for row in found:
        for hypothesis in row["hypotheses"]:
            tokens = [words.token("▁" + word) for word in hypothesis["text"].split()]
            expected, _ = score_path(bigram, Source(1, (3,)), tokens)
            assert hypothesis["scores"]["word2char"] == pytest.approx(expected, abs=1e-4)


def test_limited_states_are_reported_at_the_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder / "all.fst")
    given = ["--from", str(folder / "char.voc"), "--to", str(folder / "bpe.voc"), "--segmentations", "all"]
    assert main(["transducer", *given, "--output", path]) == 0
    (folder / "ids").write_text("3 3 3\n")
    capsys.readouterr()
    status = main([
        "decode", "--predictors", "fsttok:ngram", "--fsttok.path", path, "--ngram.path", str(folder / "bpe.arpa"),
        "--fsttok.max-states", "1", "--fsttok.semiring", "log", "--tokenizer", str(folder / "char.voc"),
        "--input-format", "ids", str(folder / "ids"),
    ])  # fmt: skip
    assert status == 0
    assert "fsttok: max_states 1 was too few for " in capsys.readouterr().err


def test_it_says_what_it_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(folder, "char", "bpe")
    assert "char-bpe.fst: 6 words, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        (["--to", "bpe.voc"], 2, "no words to list; give --text FILE"),
        (["--to", "bpe.voc", "--segmentations", "all", "--text", "text"], 2, "lists no words; omit --text"),
        (["--to", "none.voc"], 1, "none.voc: cannot be read"),
        (["--to", "bpe.voc", "--text", "none.txt"], 1, "none.txt: cannot be read"),
        (["--to", "bpe.voc", "--word2char"], 2, "need an inner vocabulary of words"),
        (["--to", "word.voc", "--output", "none/x.fst"], 1, "none/x.fst: cannot be written"),
        (["--to", "word.voc", "--unlisted", "guess"], 2, "'guess' is not one of 'unk', 'spell', 'forbid'"),
    ],
)
def test_a_wrong_call_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    given: list[str], status: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert main(["transducer", "--from", "char.voc", "--output", "x.fst", *given]) == status
    err = capsys.readouterr().err
    assert err.startswith("Error: ") and err.count("\n") == 1 and message in err


def test_a_transducer_of_other_tokenizers_is_a_wrong_call(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Upside down: its labels are not those of the decoder."""
    path = build(folder, "word", "char")
    capsys.readouterr()
    status = main([
        "decode", "--predictors", "nmt,fsttok:nmt", "--nmt.model", str(folder / "char"), "--fsttok.path", path,
        "--nmt2.model", str(folder / "word"), str(folder / "in.txt"),
    ])  # fmt: skip
    size = vocabulary(folder, "char").size
    assert status != 0 and f"but the decoder has {size} target tokens" in capsys.readouterr().err

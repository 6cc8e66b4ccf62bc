"""Models of every kind of vocabulary, and of both directions, are trained, decoded and scored alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgdec.checkpoints.layout import load_vocabularies
from sgdec.cli.main import main
from sgdec.text.vocabulary import KINDS, Kind, load_vocabulary
from sgdec.training import train
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow

SIZES: dict[Kind, int] = {"bpe": 60, "unigram": 28, "char": 40, "word": 12, "mixed": 900}
QUICK: dict[str, Any] = {"options": {"width": 32, "dropout": 0.0, "init": 0.3}, "lr": 0.01, "label_smoothing": 0.0}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*args: str, status: int = 0) -> str:
        found = main(list(args))
        out, err = capsys.readouterr()
        assert found == status, err
        return out if status == 0 else err

    return command


def tokenizer(folder: Path, kind: Kind) -> Path:
    """Trained by the command."""
    lines = "".join(f"{line}\n" for pair in PAIRS for line in pair)
    (folder / "text").write_text(lines)
    path = folder / "tok"
    size = str(SIZES[kind])
    assert main(["tokenizer", "--kind", kind, "--vocab-size", size, "--input", f"{folder}/text",
                 "--output", str(path)]) == 0  # fmt: skip
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_each_kind_of_tokens_is_trained_and_decodes(kind: Kind, tmp_path: Path, run: Any) -> None:
    path = tokenizer(tmp_path, kind)
    tokens = {"char": 400, "unigram": 200, "bpe": 200}.get(kind, 100)
    config = make_config(tmp_path, tokenizer=(str(path),), max_steps=30, bleu=2, batch_tokens=tokens, **QUICK)
    done = train(config, quiet=True)
    capacity = load_vocabulary(path).size
    assert done.scores["perplexity"] < capacity / 2
    assert load_vocabularies(done.best).target.fingerprint == load_vocabulary(path).fingerprint  # type: ignore[union-attr]
    (tmp_path / "in.txt").write_text("one two\nfive\n")
    out = run("decode", "--predictors", "nmt", "--nmt.model", str(done.best), str(tmp_path / "in.txt"))
    assert len(out.splitlines()) == 2


@pytest.fixture(scope="module")
def backwards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right-to-left model that has learnt the toy task."""
    folder = tmp_path_factory.mktemp("backwards")
    config = make_config(folder, right_left=True, max_steps=250, cooldown=0.5, bleu=30, **QUICK)
    assert train(config, quiet=True).scores["bleu"] > 80
    return folder


def test_what_a_right_to_left_model_writes_reads_from_left_to_right(backwards: Path, run: Any) -> None:
    (backwards / "in.txt").write_text("".join(f"{pair[0]}\n" for pair in PAIRS))
    out = run(
        "decode", "--predictors", "nmt", "--nmt.model", f"{backwards}/run/best", "--output-format", "jsonl",
        f"{backwards}/in.txt",
    )  # fmt: skip
    rows = [json.loads(line)["hypotheses"][0] for line in out.splitlines()]
    assert sum(row["text"] == pair[1] for row, pair in zip(rows, PAIRS, strict=True)) > 0.8 * len(PAIRS)
    forwards = load_vocabulary(backwards / "tok.spm")
    for row in rows:
        assert forwards.decode(row["tokens"][::-1]) == row["text"]


def test_a_right_to_left_model_scores_text_from_its_end(backwards: Path, run: Any) -> None:
    pairs = [pair for pair in PAIRS if len(set(pair[1].split())) == 2]
    (backwards / "one.txt").write_text("".join(f"{pair[0]}\n" * 2 for pair in pairs))
    outputs = [text for _, target in pairs for text in (target, " ".join(reversed(target.split())))]
    (backwards / "out.txt").write_text("".join(f"{text}\n" for text in outputs))
    options = ["--predictors", "nmt", "--nmt.model", f"{backwards}/run/best"]
    out = run("score", *options, "--output-format", "jsonl", f"{backwards}/one.txt", f"{backwards}/out.txt")
    rows = [json.loads(line) for line in out.splitlines()]
    better = [row["score"] > other["score"] for row, other in zip(rows[::2], rows[1::2], strict=True)]
    assert sum(better) > len(pairs) / 2
    forwards = load_vocabulary(backwards / "tok.spm")
    assert [row["tokens"][::-1] for row in rows] == [list(forwards.encode(text)) for text in outputs]


def test_models_of_two_directions_do_not_score_one_prefix(backwards: Path, run: Any) -> None:
    done = train(make_config(backwards, "forwards", max_steps=1, **QUICK), quiet=True)
    message = run(
        "decode", "--predictors", "nmt,nmt", "--nmt.model", f"{backwards}/run/best", "--nmt2.model", str(done.best),
        f"{backwards}/in.txt", status=2,
    )  # fmt: skip
    assert "write in opposite directions. Decode with one and let the other rescore: sgdec score" in message


def test_a_right_to_left_model_can_share_its_embeddings_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    options = {**QUICK["options"], "tied": "all"}
    settings = {**QUICK, "options": options, "right_left": True}
    train(make_config(tmp_path, max_steps=2, **settings), quiet=True)
    done = train(make_config(tmp_path, max_steps=4, **settings), resume=True, quiet=True)
    assert done.steps == 4


def test_unknown_words_are_copied_where_it_is_asked_for(tmp_path: Path, run: Any) -> None:
    path = tokenizer(tmp_path, "word")
    done = train(make_config(tmp_path, tokenizer=(str(path),), max_steps=2, batch_tokens=100, **QUICK), quiet=True)
    (tmp_path / "in.txt").write_text("Miki one\n")
    (tmp_path / "ref.ids").write_text("0\n")
    options = ["--predictors", "nmt", "--nmt.model", str(done.best), "--max-length", "2"]
    plain = run("decode", *options, f"{tmp_path}/in.txt")
    copied = run("decode", *options, "--copy-unknown", f"{tmp_path}/in.txt")
    vocabulary = load_vocabulary(path)
    known = {vocabulary.piece(token) for token in range(3, vocabulary.size)}
    for before, after in zip(plain.split(), copied.split(), strict=True):
        unknown = before == "<unk>" or "_UNK_" in before
        assert after in ({"Miki", "one"} if unknown else known & {before})
    message = run("decode", "--predictors", "wc", "--vocab-size", "9", "--copy-unknown", "--input-format", "ids",
                  f"{tmp_path}/ref.ids", status=2)  # fmt: skip
    assert "words can be copied only from words to words" in message
    message = run("decode", *options, "--copy-unknown", "--input-format", "ids", f"{tmp_path}/ref.ids", status=2)
    assert "token ids have no text. Give text with --input-format text, or omit --copy-unknown." in message

"""`multi-source`: each attention sees its own source, both are needed and used, and text with two sources is trained
on, scored and decoded as any other."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdec.checkpoints import files, layout, loading
from sgdec.cli.main import main
from sgdec.context import EOS, UNK
from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import Memory
from sgdec.models.multi_source import DualGRUDecoder, MultiSource, cut
from sgdec.text.two_sources import TwoSources
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.training import train
from sgdec.training.config import TrainConfig
from sgdec.training.data.noise import SourceNoise
from sgdec.training.data.reading import LengthLimits
from sgdec.training.data.shards import ShardedText
from sgdec.training.data.stream import open_text
from sgdec.training.data.text import ParallelText, read_text
from sgdec.training.log import QUIET
from tests.helpers.families import make

pytestmark = pytest.mark.slow

SOURCES, LENGTHS = torch.tensor([[5, 6, 2, 8, 9], [10, 2, 4, 7, 7]]), torch.tensor([5, 3])

POINTERS, LETTERS = ("first", "second", "third"), ("a", "b", "c", "d", "e")
EXAMPLES = [
    (" ".join(pointers), " ".join(letters), " ".join(letters[POINTERS.index(pointer)] for pointer in pointers))
    for count in (1, 2)
    for pointers in itertools.product(POINTERS, repeat=count)
    for letters in itertools.product(LETTERS, repeat=3)
]
"""What the first source points at in the second: neither tells it alone."""
random.Random(1).shuffle(EXAMPLES)


def write(folder: Path, name: str, examples: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """A file per side."""
    paths = tuple(str(folder / f"{name}.{side}") for side in range(len(examples[0])))
    for path, lines in zip(paths, zip(*examples, strict=True), strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in lines))
    return paths


def words(folder: Path, name: str, *known: str) -> str:
    """The file of a vocabulary of these words."""
    file = folder / name
    file.write_bytes(WordVocabulary([*SPECIAL, *known]).serialized)
    return str(file)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(3, 9), min_size=1), st.lists(st.integers(3, 9), min_size=1)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 9),
)
def test_sources_are_cut_and_joined_again(pairs: list[tuple[list[int], list[int]]], padding: int) -> None:
    rows = [[*first, EOS, *second] for first, second in pairs]
    longest = max(map(len, rows))
    source = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
    parts = cut(source, torch.tensor([len(row) for row in rows]))
    joined = parts.join(parts.first.tokens[..., None], parts.second.tokens[..., None])[..., 0]
    for n, (first, second) in enumerate(pairs):
        assert parts.first.tokens[n][parts.first.mask[n]].tolist() == [*first, EOS]
        assert parts.second.tokens[n][parts.second.mask[n]].tolist() == second
        assert joined[n][parts.mask[n]].tolist() == rows[n]
        assert source[n][parts.in_second[n]].tolist() == second


@pytest.mark.parametrize("tokens", [[5, 6], [5, 2], [2, 5], [2]])
def test_a_missing_source_is_one_clear_line(tokens: list[int]) -> None:
    with pytest.raises(SgdecError, match="expected two sources as one sequence of tokens with </s>"):
        make("multi-source").encode(torch.tensor([tokens]), torch.tensor([len(tokens)]))


def test_a_step_attends_to_both_sources_between_its_blocks() -> None:
    """In the order of the paper; what each encoder says of its source alone."""
    model = cast(MultiSource, make("multi-source"))
    decoder = cast(DualGRUDecoder, model.decoder)
    memory = model.encode(SOURCES, LENGTHS)
    (state,), tokens = decoder.start(memory), torch.tensor([4, 5])
    (after,), output, attention = model.step(memory, (state,), tokens)
    for row, (first, second) in enumerate([([5, 6, 2], [8, 9]), ([10, 2], [4])]):
        values = [
            encoder(model.source_embedding(torch.tensor([part])), torch.ones(1, len(part)) > 0).values
            for encoder, part in ((model.encoder, first), (model.second_encoder, second))
        ]
        means = torch.cat([part.mean(1) for part in values], -1)
        torch.testing.assert_close(state[row : row + 1], torch.tanh(decoder.initial(means)))
        embedded = model.target_embedding(tokens[row : row + 1])
        asked = decoder.first(decoder.first.read(embedded), state[row : row + 1])
        found = [
            attend(asked[:, None], Memory(part, attend.keys(part), torch.ones(part.shape[:2]) > 0, part[:, 0]))
            for attend, part in zip((decoder.attention, decoder.second_attention), values, strict=True)
        ]
        context = torch.cat([contexts[:, 0] for contexts, _ in found], -1)
        hidden = decoder.second(decoder.second.read(context), asked)
        expected = torch.tanh(decoder.readout(torch.cat([hidden, embedded, context], -1)))
        weights = torch.cat([weights[0, 0] for _, weights in found]) / 2
        torch.testing.assert_close(after[row : row + 1], hidden)
        torch.testing.assert_close(output[row : row + 1], expected)
        torch.testing.assert_close(attention[row, : len(weights)], weights)


def test_the_second_source_can_have_embeddings_of_its_own() -> None:
    model = cast(MultiSource, make("multi-source", own_embeddings=True))
    before = model(SOURCES, LENGTHS, torch.tensor([[1], [1]]))
    assert model.second_embedding is not None
    with torch.no_grad():
        model.source_embedding.weight[8:10] = 0.0  # tokens of the first row's second source
    torch.testing.assert_close(model(SOURCES, LENGTHS, torch.tensor([[1], [1]])), before)
    with torch.no_grad():
        model.second_embedding.weight[8:10] = 0.0
    assert not torch.allclose(model(SOURCES, LENGTHS, torch.tensor([[1], [1]]))[0], before[0])


def test_a_vocabulary_of_two_is_undone() -> None:
    english, german = WordVocabulary([*SPECIAL, "dog", "a"]), WordVocabulary([*SPECIAL, "Hund"])
    for both, tokens in (
        (TwoSources(english, english), (3, 4, EOS, 4)),
        (TwoSources(english, german), (3, 4, EOS, english.size + 3)),
    ):
        text = "dog a\ta" if both.shared else "dog a\tHund"
        assert both.encode(text) == tokens and both.decode(tokens) == text
        assert max(tokens) < both.size and [both.token(both.piece(token)) for token in tokens] == list(tokens)
    assert TwoSources(english, german).fingerprint != TwoSources(german, english).fingerprint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dog", "expected two sources with one tab between them; here are 1"),
        ("dog\tdog\tdog", "here are 3"),
        ("\tdog", "the first of two sources is empty"),
        ("dog\t", "the second of two sources is empty"),
    ],
)
def test_a_line_that_has_not_two_sources_is_refused(line: str, message: str) -> None:
    english = WordVocabulary([*SPECIAL, "dog"])
    with pytest.raises(SgdecError, match=message):
        TwoSources(english, english).encode(line)


BAD = [("dog", "dog a", "a"), ("", "dog", "a"), ("dog", "", "a"), ("dog a dog", "a", "dog"), ("a\ta", "dog", "dog")]


def test_three_files_are_read_and_bad_lines_left_out(tmp_path: Path) -> None:
    english = WordVocabulary([*SPECIAL, "dog", "a"])
    both, paths = TwoSources(english, english), write(tmp_path, "text", BAD)
    text = read_text(paths, both, english, LengthLimits(2))
    assert isinstance(text, ParallelText)
    assert text.sources == [[3, EOS, 3, 4], [4, 4, EOS, 3]] and text.lines == [1, 5]
    assert text.source_lines == ["dog\tdog a", "a a\tdog"], "a tab inside a line is a blank"
    assert text.left_out == {"empty": 2, "too long": 1}
    Path(paths[1]).write_text("dog\n" * 4)
    with pytest.raises(SgdecError, match=r"text\.0 has 5 lines but .*text\.1 has 4 and .*text\.2 has 5"):
        read_text(paths, both, english, LengthLimits(2))


def test_a_text_in_shards_has_the_same_sources(tmp_path: Path) -> None:
    english = WordVocabulary([*SPECIAL, *POINTERS, *LETTERS])
    both, paths = TwoSources(english, english), write(tmp_path, "text", EXAMPLES[:200])
    whole = read_text(paths, both, english, LengthLimits(9))
    sharded = open_text(
        paths, both, english, LengthLimits(9), run=tmp_path / "run", shard_tokens=400, log=QUIET
    )
    assert isinstance(sharded, ShardedText) and isinstance(whole, ParallelText)
    found = {}
    for examples in sharded.batches(100):
        batch = sharded.batch(examples)
        assert batch.source is not None and batch.lengths is not None
        for line, row, length in zip(batch.lines, batch.source.tolist(), batch.lengths.tolist(), strict=True):
            found[line] = row[:length]
    assert found == dict(zip(whole.lines, whole.sources, strict=True))


def test_noise_leaves_the_sources_apart(tmp_path: Path) -> None:
    english = WordVocabulary([*SPECIAL, *POINTERS, *LETTERS])
    text = read_text(write(tmp_path, "text", EXAMPLES[:50]), TwoSources(english, english), english)
    batch = SourceNoise(0.9, "unknown", 1)(text.batch(range(50)), 1)
    assert batch.source is not None and batch.lengths is not None
    for row, length in zip(batch.source.tolist(), batch.lengths.tolist(), strict=True):
        assert row[:length].count(EOS) == 1
    assert UNK in batch.source


def config(folder: Path, output: str, **settings: object) -> TrainConfig:
    """A run that learns to follow pointers."""
    tokenizer = words(folder, "all.json", *POINTERS, *LETTERS)
    given: dict[str, object] = {
        "train": write(folder, "train", EXAMPLES[100:]),
        "valid": write(folder, "valid", EXAMPLES[:100]),
        "tokenizer": (tokenizer,),
        "output": str(folder / output),
        "model": "multi-source",
        "options": {"width": 24, "embedding": 16},
        "batch_tokens": 256,
        "max_steps": 350,
        "lr": 0.015,
        "cooldown": 0.5,
        "label_smoothing": 0.0,
        "bleu": 0,
        "threads": 1,
        "precision": "fp32",
    }
    return TrainConfig(**{**given, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model, and files of unseen examples."""
    folder = tmp_path_factory.mktemp("pointers")
    done = train(config(folder, "run"), quiet=True)
    assert done.scores["perplexity"] < 1.2, "of five letters"
    return folder


def decode(folder: Path, *args: str) -> list[str]:
    output = folder / "out"
    output.unlink(missing_ok=True)
    model = ["decode", "--predictors", "nmt", "--nmt.model", str(folder / "run" / "best"), "--threads", "1"]
    assert main([*model, "--output", str(output), *args]) == 0
    return output.read_text().splitlines()


def test_it_learns_what_takes_both_sources_and_the_command_decodes_it(run: Path) -> None:
    found = decode(run, str(run / "valid.0"), str(run / "valid.1"))
    right = sum(a == b for a, (_, _, b) in zip(found, EXAMPLES[:100], strict=True))
    assert right >= 90, right
    (run / "both.txt").write_text("".join(f"{first}\t{second}\n" for first, second, _ in EXAMPLES[:100]))
    assert decode(run, str(run / "both.txt")) == found
    assert decode(run, str(run / "both.txt"), "--batch-size", "1", "--range", "1:20") == found[:20]
    swapped = decode(run, "--input-format", "ids", "--output-format", "ids", str(ids(run, 0)), str(ids(run, 1)))
    pieces = layout.load_vocabularies(run / "run").target
    assert pieces is not None
    assert [pieces.decode(list(map(int, line.split()))) for line in swapped] == found


def ids(run: Path, side: int) -> Path:
    """A validation file as token ids."""
    target = layout.load_vocabularies(run / "run").target
    assert target is not None
    file = run / f"ids.{side}"
    lines = (run / f"valid.{side}").read_text().splitlines()
    file.write_text("".join(" ".join(map(str, target.encode(line))) + "\n" for line in lines))
    return file


def test_the_command_scores_what_it_decodes(run: Path) -> None:
    (run / "both.txt").write_text("".join(f"{first}\t{second}\n" for first, second, _ in EXAMPLES[:20]))
    rows = [json.loads(line) for line in decode(run, str(run / "both.txt"), "--output-format", "jsonl")]
    (run / "found.txt").write_text("".join(row["hypotheses"][0]["text"] + "\n" for row in rows))
    scores = run / "scores.txt"
    model = ["--predictors", "nmt", "--nmt.model", str(run / "run" / "best"), "--threads", "1"]
    (run / "first.txt").write_text("".join(f"{first}\n" for first, _, _ in EXAMPLES[:20]))
    (run / "second.txt").write_text("".join(f"{second}\n" for _, second, _ in EXAMPLES[:20]))
    expected = [row["hypotheses"][0]["score"] for row in rows]
    for sources in (["both.txt"], ["first.txt", "second.txt"]):
        files = [str(run / name) for name in (*sources, "found.txt")]
        assert main(["score", *model, "--output", str(scores), *files]) == 0
        assert list(map(float, scores.read_text().split())) == pytest.approx(expected, abs=1e-4)


def test_three_sources_are_refused_in_scoring(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(run / name) for name in ("valid.0", "valid.1", "valid.0", "valid.1")]
    assert main(["score", "--predictors", "nmt", "--nmt.model", str(run / "run" / "best"), *files]) == 2
    assert "3 inputs: expected one file; or two, for a model of two sources." in capsys.readouterr().err


def test_bad_inputs_are_one_clear_line_each(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "one").write_text("first\nsecond\n")
    (run / "other").write_text("a b c\n")
    model = ["decode", "--predictors", "nmt", "--nmt.model", str(run / "run" / "best"), "--threads", "1"]
    assert main([*model, str(run / "one"), str(run / "other")]) == 1
    out, err = capsys.readouterr()
    assert out == "a\n\n"
    assert f"sentence 2: {run}/one and {run}/other, line 2: {run}/other has ended, another file has not." in err
    assert main([*model, str(run / "one")]) == 1
    assert "line 1: expected two sources with one tab between them; here are 1." in capsys.readouterr().err
    assert main([*model, *3 * [str(run / "one")]]) == 2
    assert "3 inputs: expected one file; or two, for a model of two sources." in capsys.readouterr().err
    assert main(["decode", "--predictors", "wc", "--vocab-size", "5", "--input-format", "ids", "a", "b"]) == 2
    assert "2 inputs: expected one file" in capsys.readouterr().err


def test_each_side_can_have_a_tokenizer_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    tokenizers = (
        words(tmp_path, "pointers.json", *POINTERS),
        words(tmp_path, "letters.json", *LETTERS),
        words(tmp_path, "target.json", *reversed(LETTERS)),
    )
    settings: dict[str, object] = {"tokenizer": tokenizers, "options": {"width": 8, "embedding": 8}, "cooldown": 0.0}
    done = train(config(tmp_path, "whole", max_steps=6, **settings), quiet=True)
    train(config(tmp_path, "parts", max_steps=4, **settings), quiet=True)
    train(config(tmp_path, "parts", max_steps=6, **settings), resume=True, quiet=True)
    whole, parts = (files.load_tensors(tmp_path / name / "last" / layout.WEIGHTS) for name in ("whole", "parts"))
    assert all(torch.equal(whole[tensor], parts[tensor]) for tensor in whole)
    model, vocabularies = loading.load_model(done.best)
    assert vocabularies.source is not None and vocabularies.target is not None
    assert vocabularies.source.encode("third\tb") == (5, EOS, 6 + 4)
    assert vocabularies.target.encode("b") == (6,)
    assert len(cast(MultiSource, model).source_embedding.weight) == 6 + 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": ("a", "b")}, r"--train: multi-source is a model of two sources and takes three files.*, not 2"),
        ({"model": "gnmt"}, r"--train: gnmt is a translation model and takes two files, source and target, not 3"),
        ({"source_noise": 0.1, "source_noise_kind": "deletion"}, "reads two sources, and a short one would lose"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train(config(tmp_path, "run", **settings), quiet=True)

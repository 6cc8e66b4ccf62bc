"""`bytes`, `aligned` and `topk` as they are typed, with models whose tokenizers differ: batches change nothing, wrong
commands are one line that says what to do, and the last lines of a run say whose they are."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sgdec_predictors.topk import TopTokens

from sgdec import Source
from sgdec.cli.main import main
from sgdec.testing import BatchTable
from sgdec.vocabularies import load_vocabulary
from tests.helpers.loaded_once import load_pretrained_once, probe_models_once
from tests.helpers.pretrained import write_model
from tests.helpers.pretrained_tokenizers import FAMILIES
from tests.helpers.toy_spellings import probabilities

tokenizers = pytest.importorskip("tokenizers")
LINES = ["the cat", "a dog là", "in the park 12"]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A byte-level model, one of pieces and bytes, the same without its tokenizer, and tokenizers that spell nothing
    or whole words only."""
    found = tmp_path_factory.mktemp("models")
    with contextlib.chdir(found), pytest.MonkeyPatch.context() as patch:
        load_pretrained_once(patch)
        probe_models_once(patch)
        for family in ("gpt2", "llama"):
            Path(family).mkdir()
            FAMILIES[family](Path(family))
            write_model(Path(family))
        shutil.copytree("llama", "bare", ignore=shutil.ignore_patterns("tokenizer*"))
        for name, words in (("nothing", []), ("words", ["the", "cat"])):
            listed = {piece: id for id, piece in enumerate(["<unk>", "<s>", "</s>", *words])}
            backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(listed, unk_token="<unk>"))
            backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
            Path(name).mkdir()
            backend.save(f"{name}/tokenizer.json")
            roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
            config = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
            Path(name, "tokenizer_config.json").write_text(json.dumps(config))
        Path("in").write_text("\n".join(LINES) + "\n")
        yield found


def run(capsys: pytest.CaptureFixture[str], command: str, *more: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["decode", *command.split(), *more, "in"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


TWO = "--hf.model gpt2 --hf2.model llama --max-length 2"
RUNS = [
    "--predictors bytes:hf --hf.model llama --max-length 6",
    "--predictors bytes:hf,canonical --hf.model gpt2 --max-length 6 --bytes.tokenisations canonical",
    f"--predictors topk:hf,aligned:hf {TWO} --topk.k 6",
    f"--predictors interpolate:topk:hf+aligned:hf {TWO} --topk.k 20 --aligned.tokenisations canonical",
    f"--predictors bytes:hf,aligned:hf {TWO}",
]


@pytest.mark.parametrize("command", RUNS)
def test_sentences_in_a_batch_find_what_they_find_alone(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for size in ("1", "64"):
        status, out, err = run(capsys, command, "--nbest", "2", "--output-format", "jsonl", "--batch-size", size)
        assert status == 0, err
        found.append([each for line in out.splitlines() for each in json.loads(line)["hypotheses"]])
    assert [each["tokens"] for each in found[0]] == [each["tokens"] for each in found[1]] and len(found[0]) == 6
    assert [each["score"] for each in found[0]] == pytest.approx([each["score"] for each in found[1]], abs=1e-5)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bytes:hf --hf.model bare", "the inner predictor has no vocabulary"),
        ("bytes:hf --hf.model bare --bytes.tokenizer llama", "give --tokenizer FILE, or token ids"),
        ("bytes:hf --hf.model bare --bytes.tokenizer nothing", "no token of the target vocabulary has a text"),
        ("bytes:hf --hf.model bare --bytes.tokenizer words", "has only whole words, such as 'the'.*fsttok"),
        ("bytes:hf --hf.model llama --tokenizer gpt2", "same tokenizer, or omit --tokenizer"),
        ("hf,hf --hf.model gpt2 --hf2.model llama", "same tokenizer, or write aligned:NAME for one of them"),
        ("interpolate:bytes:hf+bytes:hf --hf.model gpt2 --hf2.model llama", "or write aligned:NAME for one of them"),
        ("topk:hf --hf.model gpt2 --topk.k 0", "--topk.k: '0' should be at least 1"),
        ("topk:hf --hf.model gpt2 --topk.k 5000", r"topk: k 5000 is more than the \d+ tokens of the vocabulary"),
        ("hf,hf=aligned:hf --hf.model gpt2", "'hf' names two parts. Rename one"),
    ],
)
def test_wrong_commands_are_one_line(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, f"--predictors {command}")
    assert status in (1, 2) and err.count("\n") == 1
    assert err.startswith("Error: ")
    assert re.search(message, err), err


def test_with_bytes_a_tokenizer_of_the_run_is_that_of_sources(capsys: pytest.CaptureFixture[str]) -> None:
    """A model without a tokenizer, and its tokenizer in a folder of its own."""
    bare = "--predictors bytes:hf --hf.model bare --bytes.tokenizer llama --max-length 6"
    status, out, err = run(capsys, f"{bare} --tokenizer llama")
    assert status == 0, err
    ids = [" ".join(map(str, load_vocabulary("llama").encode(line))) for line in LINES]
    Path("ids").write_text("\n".join(ids) + "\n")
    capsys.readouterr()
    assert main(["decode", *bare.split(), "--input-format", "ids", "ids"]) == 0
    assert capsys.readouterr().out == out


def test_the_last_lines_name_the_parts_of_a_mix(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, f"--predictors interpolate:bytes:hf+aligned:hf {TWO} --bytes.width 1")
    (line,) = (line for line in err.splitlines() if line.startswith("interpolate: "))
    assert line.startswith("interpolate: bytes: width 1 dropped") and "; aligned: width 4 and min_share" in line


def test_topk_with_k_above_v_leaves_nothing_out_and_says_nothing() -> None:
    """Not even what rounding makes of it."""
    table = probabilities(np.random.default_rng(1), 40)
    for k, said in ((99, None), (40, None), (39, "k 39: tokens with a mean of "), (3, "k 3: tokens with a mean of ")):
        best = TopTokens(BatchTable(table.astype(np.float32)), k=k)
        roots = best.initialize_batch([Source(1, (3,))] * 37)
        best.predict_batch(best.consume_batch(roots, range(3, 40)))
        found = best.summary()
        assert found is None if said is None else found is not None and found.startswith(said)

"""The promise: with ``hf`` in a mix, whatever the search, a total is the weighted sum of what the predictors give the
output alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from tests.helpers.loaded_once import load_pretrained_once, probe_models_once
from tests.helpers.pretrained import CAUSAL, SIZES, sharpened

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
LINES = ["zwei Katzen schlafen", "ein Hund"]
OUTPUTS = ["two cats sleep", "a dog runs", "a dog sleeps"]


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        load_pretrained_once(patch)
        probe_models_once(patch)
        yield


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a seq2seq and a causal model of one tokenizer, with a trie and n-grams."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("mixes")
    spelling = Tokenizer(models.BPE(unk_token="<unk>"))
    spelling.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=40, special_tokens=special, show_progress=False)
    spelling.train_from_iterator([*LINES, *OUTPUTS], trainer)
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=spelling, **roles)
    ids = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    start = {"decoder_start_token_id": 1, "forced_eos_token_id": None}
    for name, model in (
        ("marian", transformers.MarianMTModel(transformers.MarianConfig(**ids, **SIZES, **start))),
        ("llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(**ids, **CAUSAL))),
    ):
        torch.manual_seed(len(name))
        model.generation_config.suppress_tokens = [0, 1]  # a trained model does not write <s> either
        sharpened(model).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    (folder / "in").write_text("\n".join(LINES) + "\n")
    (folder / "list").write_text("\n".join(OUTPUTS) + "\n")
    with contextlib.chdir(folder):
        for words in (
            "trie list --tokenizer marian --output list.trie",
            "lm --tokenizer marian --input list --order 2 --discount-fallback --output list.arpa",
        ):
            assert main(words.split()) == 0
    return folder



OPTIONS = {
    "hf": "--hf.model marian",
    "hf2": "--hf2.model llama --hf2.weight 2",
    "lm": "--lm.model llama --lm.source false --lm.weight 0.5",
    "trie": "--trie.path list.trie",
    "ngram": "--ngram.path list.arpa --ngram.weight 0.3",
    "wc": "--wc.weight 0.2",
    "norepeat": "--norepeat.order 2",
    "minlength": "--minlength.tokens 2",
    "maxlength": "--maxlength.tokens 3",
    "repetition": "--repetition.penalty 1.5",
    "temperature": "--temperature.value 0.7",
}
"""By the name of a predictor."""
MIXES: dict[str, list[str]] = {
    "hf,hf": ["hf", "hf2"],
    "hf,lm=hf": ["hf", "lm"],
    "hf,trie": ["hf", "trie"],
    "lm=hf,hf,trie,wc": ["lm", "hf", "trie", "wc"],
    "hf,ngram": ["hf", "ngram"],
    "hf,norepeat,minlength,maxlength": ["hf", "norepeat", "minlength", "maxlength"],
    "repetition:hf,lm=hf": ["repetition:hf", "lm"],
    "temperature:hf,ngram,wc": ["temperature:hf", "ngram", "wc"],
}
"""By the predictors of a run: its parts."""
DECODERS = {
    "greedy": "", "beam": "--beam.size 3", "vanilla": "--vanilla.size 3", "astar": "--astar.max_expansions 40",
    "dfs": "--dfs.max_expansions 40", "restarting": "--restarting.max_expansions 40", "sample": "",
    "syncbeam": "--syncbeam.size 3 --syncbeam.symbol 5", "bucket": "--bucket.max_expansions 40",
    "bestfirst": "--bestfirst.size 3", "lendfs": "--lendfs.max_expansions 40",
}  # fmt: skip


def options_of(names: list[str]) -> list[str]:
    return " ".join(OPTIONS[name] for part in names for name in part.split(":")).split()


def alone(part: str, rows: list[Any], capsys: pytest.CaptureFixture[str]) -> list[float]:
    """What one predictor gives to outputs."""
    Path("outputs").write_text("".join(" ".join(map(str, row["tokens"])) + "\n" for _, row in rows))
    Path("sources").write_text("".join(LINES[line] + "\n" for line, _ in rows))
    name = part.split(":")[-1]
    written = part.removesuffix(name) + (f"{name}=hf" if name in ("hf2", "lm") else name)
    words = ["score", "--predictors", written, *options_of([part]), "--target-format", "ids"]
    if not name.startswith(("hf", "lm")):
        words += ["--tokenizer", "marian"]
    capsys.readouterr()
    assert main([*words, "sources", "outputs"]) == 0
    return [float(line) for line in capsys.readouterr().out.split()]


@pytest.mark.parametrize(
    ("mix", "decoder"), [*((mix, "beam") for mix in MIXES), *(("hf,ngram", decoder) for decoder in DECODERS)]
)
def test_totals_are_sums_of_what_the_parts_give_alone(
    mix: str, decoder: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    words = ["decode", "--predictors", mix, *options_of(MIXES[mix]), "--decoder", decoder, *DECODERS[decoder].split()]
    capsys.readouterr()
    status = main([*words, "--max-length", "9", "--nbest", "2", "--output-format", "jsonl", "in"])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    found = [json.loads(line)["hypotheses"] for line in captured.out.splitlines()]
    rows = [(line, row) for line, every in enumerate(found) for row in every]
    assert {line for line, _ in rows} == {0, 1}
    totals = [sum(scores) for scores in zip(*(alone(part, rows, capsys) for part in MIXES[mix]), strict=True)]
    assert totals == pytest.approx([row["score"] for _, row in rows], abs=1e-3)

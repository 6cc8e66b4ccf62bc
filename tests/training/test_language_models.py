"""Training a language model: it learns from one text file, can be killed and resumed without a trace, and says in one
line where the files do not fit the kind of model.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sgdec.checkpoints import files, layout
from sgdec.checkpoints.files import load_tensors
from sgdec.checkpoints.loading import load_language_model
from sgdec.cli.main import main
from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import LanguageModel
from sgdec.training import train, validation
from sgdec.training.data.text import MonolingualText
from sgdec.training.device import trains_in_bf16
from sgdec.training.preparing import prepare
from tests.helpers.lm_case import LINES, make_lm_config
from tests.helpers.training_case import losses, make_config

pytestmark = pytest.mark.slow

MODELS = ("rnnlm", "nplm")


def unigram_perplexity(data: MonolingualText) -> float:
    """Of the text's own frequencies: the best that a model without a history can do."""
    counts = Counter(token for target in data.targets for token in (*target, 2))
    total = sum(counts.values())
    return math.exp(-sum(count * math.log(count / total) for count in counts.values()) / total)


@pytest.mark.parametrize("model", MODELS)
def test_a_tiny_model_learns_what_follows_what(tmp_path: Path, model: str) -> None:
    config = make_lm_config(tmp_path, model=model, lr=0.02, max_steps=120, cooldown=0.5)
    trainer = prepare(config, quiet=True)
    assert isinstance(trainer.inputs.valid, MonolingualText)
    done = trainer.run()
    assert done.scores.keys() == {"perplexity"}, "there is nothing to translate"
    assert done.scores["perplexity"] < unigram_perplexity(trainer.inputs.valid) / 3
    loaded, vocabularies = load_language_model(done.best)
    assert vocabularies.source is None and vocabularies.target is not None
    assert validation.perplexity(loaded, trainer.inputs.valid) == pytest.approx(done.scores["perplexity"], rel=1e-4)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("killed_after", [5, 8])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, model: str, killed_after: int) -> None:
    """Losses and weights, bit for bit; checkpoints at steps 4, 8, ..., and at the end of the epoch."""
    settings: dict[str, Any] = {"model": model, "max_steps": 14, "save_every": 4, "unigram_bias": True}
    whole = losses(make_lm_config(tmp_path, "whole", **settings))
    config = make_lm_config(tmp_path, "killed", **settings)
    before = losses(config, steps=killed_after)
    resumed_from = files.read_json(tmp_path / "killed" / "last" / "progress.json")["step"]
    assert before == whole[:killed_after]
    assert losses(config, resume=True) == whole[resumed_from:]
    weights = [load_tensors(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "killed")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("model", MODELS)
def test_perplexity_counts_each_token_and_the_end_once(tmp_path: Path, model: str) -> None:
    trainer = prepare(make_lm_config(tmp_path, model=model, precision="fp64"), quiet=True)
    module, data = trainer.model.eval(), trainer.inputs.valid
    assert isinstance(module, LanguageModel)
    total = tokens = 0.0
    for n in range(len(data)):
        one = data.batch([n])
        with torch.no_grad():
            logs = F.log_softmax(module.project(LanguageModel.forward(module, one.target_in)[0]), -1)
        total -= float(logs.gather(-1, one.target_out.T).sum())
        tokens += len(data.targets[n]) + 1
    assert validation.perplexity(module, data) == pytest.approx(math.exp(total / tokens), rel=1e-9)


def test_the_output_bias_can_start_from_frequencies(tmp_path: Path) -> None:
    for model in MODELS:
        trainer = prepare(make_lm_config(tmp_path, model, model=model, unigram_bias=True), quiet=True)
        bias = trainer.model.output_layer()[0].bias.detach()
        torch.testing.assert_close(bias, trainer.data.log_frequencies(trainer.inputs.target.size))


@pytest.mark.parametrize("limit", [1, 20, 10_000])
def test_an_epoch_holds_every_line_once_within_the_limit(tmp_path: Path, limit: int) -> None:
    data = prepare(make_lm_config(tmp_path), quiet=True).data
    orders = [data.batches(limit, order=order) for order in (None, (1, 0), (1, 0), (1, 1))]
    for batches in orders:
        assert sorted(n for batch in batches for n in batch) == list(range(len(LINES)))
        assert all(len(b) == 1 or len(b) * (max(len(data.targets[n]) for n in b) + 1) <= limit for b in batches)
    assert orders[1] == orders[2]
    assert limit == 10_000 or orders[1] != orders[3]


def test_empty_and_overlong_lines_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sgdec")
    config = make_lm_config(tmp_path, max_line=5)
    Path(config.train[0]).write_text("ae\n\nbe ce\n" + "ae " * 9 + "\n   \n")
    trainer = prepare(config)
    data = trainer.data
    assert (data.lines, data.left_out) == ([1, 3], {"empty": 2, "too long": 1})
    batch = data.batch([1, 0])
    assert batch.source is None and batch.inputs == (batch.target_in,) and batch.lines == [3, 1]
    next(trainer.steps())
    trainer._introduce()
    assert "2 lines, 2 empty left out, 1 too long left out;" in "\n".join(caplog.messages)
    Path(config.train[0]).write_text("\n\n")
    with pytest.raises(SgdecError, match=r"train\.txt: no line is left of 2: 2 empty\."):
        prepare(make_lm_config(tmp_path, "other"), quiet=True)


def test_a_checkpoint_says_that_there_is_no_source(tmp_path: Path) -> None:
    done = train(make_lm_config(tmp_path, max_steps=2), quiet=True)
    config = json.loads((done.best / "config.json").read_text())
    assert (config["model"], config["source_vocab_size"], config["shared"]) == ("rnnlm", 0, False)
    assert {path.name for path in done.best.iterdir() if path.suffix == ".spm"} == {"tokenizer.spm"}


def test_the_command_takes_one_file_for_a_language_model_and_two_for_translation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_lm_config(tmp_path)
    pair = make_config(tmp_path)
    common = ["--tokenizer", config.tokenizer[0], "--precision", "fp32", "--batch-tokens", "48", "--max-steps", "2"]
    text, held_out = config.train[0], config.valid[0]

    def run(output: str, *args: str) -> tuple[int, str]:
        status = main(["train", *common, "--output", str(tmp_path / output), *args])
        return status, capsys.readouterr().err

    small = ["--preset", "small", "--rnnlm.width", "8", "--rnnlm.layers", "1"]
    status, said = run("lm", "--model", "rnnlm", "--train", text, "--valid", held_out, *small)
    assert status == 0 and "64 lines" in said and "BLEU" not in said and (tmp_path / "lm" / "curve.png").exists()
    options = layout.read_config(tmp_path / "lm")["options"]
    assert (options["init"], options["width"]) == (0.1, 8), "of the preset, and of the command line"
    status, said = run("mt", "--train", *pair.train, "--valid", *pair.valid, "--gnmt.width", "8", "--bleu", "2")
    assert status == 0 and "109 pairs" in said
    wrong = {
        ("--model", "rnnlm", "--train", *pair.train, "--valid", held_out): (
            "Error: --train: rnnlm is a language model and takes one text file, not 2.\n"
        ),
        ("--model", "nplm", "--train", text, "--valid", *pair.valid): (
            "Error: --valid: nplm is a language model and takes one text file, not 2.\n"
        ),
        ("--train", text, "--valid", held_out): (
            "Error: --train: gnmt is a translation model and takes two files, source and target, not 1.\n"
        ),
        ("--train", text, text, text, "--valid", *pair.valid): (
            "Error: --train: gnmt is a translation model and takes two files, source and target, not 3.\n"
        ),
        ("--model", "rnnlm", "--train", text, "--valid", held_out, "--metric", "bleu"): (
            "Error: --metric bleu: rnnlm is a language model and translates nothing. Use perplexity.\n"
        ),
        ("--model", "rnnlm", "--train", text, "--valid", held_out, "--tokenizer", config.tokenizer[0]): (
            "Error: --tokenizer: rnnlm is a language model and has one vocabulary; give it once.\n"
        ),
    }
    for args, message in wrong.items():
        assert run("none", *args) == (2, message)
    status, said = run("none", "--train", "--valid", held_out)
    assert status == 2 and "Missing option '--train'" in said


BIGRAM = """
from torch import nn

from sgdec import hookimpl
from sgdec.models.base import LanguageModel


class Bigram(LanguageModel):
    def __init__(self, context, *, scale: float = 1.0):
        super().__init__()
        self.table, self.scale = nn.Embedding(context.target_vocab_size, context.target_vocab_size), scale

    def start(self, rows):
        return ()

    def step(self, state, tokens):
        return state, self.table(tokens)

    def project(self, output):
        return self.scale * output


@hookimpl
def sgdec_models():
    return {"bigram": Bigram}
"""


def test_a_new_language_model_is_one_file_with_one_inference_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bigram.py").write_text(BIGRAM)
    config = make_lm_config(tmp_path)
    files = ["--train", *config.train, "--valid", *config.valid, "--tokenizer", *config.tokenizer]
    command = [
        "train",
        "--plugin-file",
        str(tmp_path / "bigram.py"),
        "--model",
        "bigram",
        "--bigram.scale",
        "2",
        *files,
    ]
    more = ["--output", str(tmp_path / "run"), "--max-steps", "60", "--lr", "0.1", "--label-smoothing", "0"]
    assert main([*command, *more]) == 0
    assert "perplexity" in capsys.readouterr().err
    found = layout.read_config(tmp_path / "run")
    assert found["options"] == {"scale": 2.0} and found["perplexity"] < 5


def test_a_language_model_that_is_resumed_as_another_is_refused(tmp_path: Path) -> None:
    train(make_lm_config(tmp_path, max_steps=2), quiet=True)
    with pytest.raises(UsageError, match=r"--resume: model was rnnlm in .*run, now it is nplm\. Give the same"):
        train(make_lm_config(tmp_path, model="nplm"), resume=True, quiet=True)


@pytest.mark.skipif(not trains_in_bf16(), reason="this processor has no AVX-512")
def test_bf16_autocast_learns_the_same(tmp_path: Path) -> None:
    for model in MODELS:
        half = losses(make_lm_config(tmp_path, f"half-{model}", model=model, precision="bf16", max_steps=4))
        full = losses(make_lm_config(tmp_path, f"full-{model}", model=model, precision="fp32", max_steps=4))
        assert half == pytest.approx(full, rel=0.02)

"""The promise: a run with a Hugging Face model names the generation settings that it does not follow by itself, and
the options that it names find what `generate()` of transformers finds with these settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.hf import HfPredictor

from sgdec.cli.main import main
from tests.helpers import pretrained_tokenizers
from tests.helpers.pretrained import tiny_model, write_model

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]
LINES = ["the cat sat on the mat", "a dog ran", "the"]
PLAIN: dict[str, Any] = {"max_new_tokens": 9}
BEAMS: dict[str, Any] = {**PLAIN, "num_beams": 4}
SETTINGS = [
    PLAIN,
    BEAMS,
    {**BEAMS, "length_penalty": 2.0, "early_stopping": True},
    {**BEAMS, "length_penalty": 0.0, "early_stopping": "never"},
    {**BEAMS, "min_new_tokens": 4, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "length_penalty": -0.5},
    {"num_beams": 3, "max_length": 9, "min_length": 5, "early_stopping": "never"},
]


BEGIN = "the model's generation settings take effect only as options: "
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8}
LINES_OF_SETTINGS = [
    ("bart", {}, None),
    ("bart", {"num_beams": 1, "length_penalty": 2.0, "early_stopping": True, "temperature": 0.7, "top_k": 5}, None),
    (
        "gpt2",
        {**SAMPLING, "repetition_penalty": 1.05},
        "for repetition_penalty 1.05, do_sample true, temperature 0.7, top_k 20, top_p 0.8 give "
        "--predictors repetition:hf --repetition.penalty 1.05 --repetition.prompt true "
        "--decoder sample --sample.temperature 0.7 --sample.top_k 20 --sample.top_p 0.8",
    ),
    (
        "gpt2",
        {"do_sample": True, "typical_p": 0.9, "min_p": 0.1},
        "for do_sample true, min_p 0.1, typical_p 0.9 give "
        "--decoder sample --sample.chain temperature=1+top_k=50+top_p=1+min_p=0.1+typical=0.9",
    ),
    ("gpt2", {"max_length": 50}, "for max_length 50 (which counts the prompt) there is no option"),
    (
        "mbart",
        {"num_beams": 2, "max_new_tokens": 8, "forced_bos_token_id": 5, "do_sample": True, "guidance_scale": 2.0},
        "for max_new_tokens 8, num_beams 2 give --max-length 6 --decoder beam --beam.size 2 --beam.alpha 1 "
        "--beam.normalize length --beam.length_offset 1 --beam.stop hf-false; "
        "for guidance_scale 2.0, do_sample true there is no option",
    ),
    ("bart", {"num_beams": "many", "no_repeat_ngram_size": [3]}, None),
]


@pytest.mark.parametrize(("family", "settings", "line"), LINES_OF_SETTINGS)
def test_the_line_of_settings(family: str, settings: dict[str, Any], line: str | None) -> None:
    model = tiny_model(family)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    said = HfPredictor.of(model).summary()
    assert said == (line and f"{BEGIN}{line}")


def line_of(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[str, str]:
    """What is written, and the line of the predictor without its beginning."""
    (tmp_path / "in").write_text("\n".join(LINES) + "\n")
    words = ["decode", "--predictors", "hf", "--hf.model", str(folder), *options, str(tmp_path / "in")]
    assert main(words) == 0
    said = capsys.readouterr()
    begin = f"hf: {BEGIN}for "
    named = [line.removeprefix(begin) for line in said.err.splitlines() if line.startswith(begin)]
    return said.out, "".join(named)


@pytest.mark.parametrize("family", [pytest.param("bart", marks=pytest.mark.exhaustive), "marian", "gpt2"])
def test_the_named_options_find_what_generate_finds(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import transformers

    folder = tmp_path / family
    folder.mkdir()
    pretrained_tokenizers.FAMILIES[family](folder)
    model = write_model(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ends = model.generation_config.eos_token_id
    common = {"forced_eos_token_id": ends, "pad_token_id": model.generation_config.pad_token_id or ends}
    outputs = set()
    for settings in SETTINGS:
        if "max_length" in settings and not model.config.is_encoder_decoder:
            continue
        both = {**common, **settings}
        words = [[common["pad_token_id"]]] if family == "marian" else None
        first = model.generation_config.forced_bos_token_id
        model.generation_config = transformers.GenerationConfig(
            **both, bad_words_ids=words, eos_token_id=ends, forced_bos_token_id=first,
            decoder_start_token_id=model.config.to_dict().get("decoder_start_token_id"),
        )  # fmt: skip
        model.generation_config.save_pretrained(folder)
        expected = ""
        for line in LINES:
            given = tokenizer(line, return_tensors="pt", return_token_type_ids=False)
            ids = model.generate(**given)[0]
            begin = 1 if model.config.is_encoder_decoder else given["input_ids"].shape[1]
            text = tokenizer.decode(ids[begin:], skip_special_tokens=True, clean_up_tokenization_spaces=False)
            expected += text.replace("\n", " ") + "\n"
        _, named = line_of(folder, tmp_path, capsys, "--max-length", "3")
        asked, options = named.split(" give ")
        assert asked.split(", ") == [
            f"{name} {str(value).lower() if value is True else value}"
            for name, value in sorted(settings.items(), key=lambda each: asked.index(each[0]))
        ]
        if "--decoder" not in options:
            options += " --decoder greedy"
        found, _ = line_of(folder, tmp_path, capsys, *shlex.split(options))
        assert found == expected, (settings, options)
        outputs.add(found)
    assert len(outputs) >= 3

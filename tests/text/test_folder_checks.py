"""The files of a tokenizer are refused if they make texts far longer or name what they lack; those in use are not."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sgdec.errors import SgdecError
from sgdec.text.folder_checks import check_config, check_tokenizer

MODEL = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
WORDS = {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizers(*steps: Any) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def charsmap(*texts: str) -> dict[str, Any]:
    data = (4).to_bytes(4, "little") + b"\0" * 4 + b"".join(text.encode() + b"\0" for text in texts)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


LLAMA = normalizers({"type": "Prepend", "prepend": "▁"}, replace("▁", String=" "))
T5 = normalizers(charsmap("صلى الله عليه وسلم"), {"type": "Strip"}, replace("▁", Regex=" {2,}"))
GOOD: dict[str, dict[str, Any]] = {
    "no steps": {},
    "Llama": LLAMA,
    "T5": T5,
    "shorter": normalizers(*[replace("x", String="long")] * 100),
    "as long": normalizers(*[replace("yy", String="xx")] * 100),
    "64": normalizers(*[replace("aa", String="a")] * 6),
    "words": {"model": WORDS},
    "SentencePiece": {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0]], "unk_id": 0}},
    "marks": {"post_processor": {"type": "BertProcessing", "sep": ["a", 0], "cls": ["c", 7]},
              "added_tokens": [{"id": 7, "content": "c"}]},
    "no truncation": {"truncation": {"max_length": 10**30, "stride": 0, "strategy": "LongestFirst"}},
}  # fmt: skip
DOUBLING = replace("aa", String="a")
TEMPLATE = {"type": "TemplateProcessing", "special_tokens": {"x": {"id": "x", "ids": [0, 2], "tokens": ["a", "x"]}}}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "seven times": (normalizers(*[DOUBLING] * 7), "normalizer"),
    "nested": (normalizers(*[normalizers(*[DOUBLING] * 3)["normalizer"]] * 3), "normalizer"),
    "without types": (
        {"normalizer": {"normalizers": [{"pattern": {"String": "a"}, "content": "aa"}] * 7}},
        "normalizer",
    ),
    "long at once": ({"normalizer": replace("a" * 65, String="a")}, "normalizer"),
    "nothing": ({"normalizer": replace("a" * 64, Regex="x*")}, "normalizer"),
    "between": ({"normalizer": replace("a" * 64, Regex="(?=x)")}, "normalizer"),
    "before": (normalizers(*[{"type": "Prepend", "prepend": "aa"}] * 4), "normalizer"),
    "decoder": ({"decoder": {"type": "Sequence", "decoders": [DOUBLING] * 7}}, "decoder"),
    "a map": ({"normalizer": charsmap("a" * 5000)}, "normalizer"),
    "maps": (normalizers(*[charsmap("a" * 18)] * 3), "normalizer"),
    "no unknown word": ({"model": {**WORDS, "unk_token": "<x>"}}, "the unknown token '<x>'"),
    "no unknown word, no type": ({"model": {"vocab": {"a": 0}, "unk_token": "<x>"}}, "the unknown token '<x>'"),
    "long words": ({"model": {**WORDS, "max_input_chars_per_word": 10**9}}, "max_input_chars_per_word"),
    "a mark": ({"post_processor": {"type": "RobertaProcessing", "sep": ["x", 0], "cls": ["y", -1]}}, "the id -1"),
    "a template": ({"post_processor": {"type": "Sequence", "processors": [TEMPLATE]}}, "the id 2"),
    "padding": ({"padding": {"strategy": {"Fixed": 10**9}}}, "padding: Fixed is"),
    "no trie": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="}}, "not a tokenizer"),
    "no model": ({"model": None}, "not a tokenizer"),
    "no step": ({"normalizer": 3}, "not a tokenizer"),
}


def write(folder: Path, **keys: Any) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": [], "model": MODEL, **keys}))
    return folder


@pytest.mark.parametrize("kind", GOOD)
def test_usual_tokenizers_are_accepted(kind: str, tmp_path: Path) -> None:
    check_tokenizer(write(tmp_path, **GOOD[kind]))


@pytest.mark.parametrize("kind", BAD)
def test_bad_tokenizers_are_refused(kind: str, tmp_path: Path) -> None:
    keys, message = BAD[kind]
    with pytest.raises(SgdecError, match=rf"tokenizer\.json: .*{message}"):
        check_tokenizer(write(tmp_path, **keys))


def test_other_forms_of_the_file_are_checked_too(tmp_path: Path) -> None:
    write(tmp_path, **BAD["seven times"][0]).joinpath("tokenizer.json").rename(tmp_path / "tokenizer.4.0.json")
    with pytest.raises(SgdecError, match=r"tokenizer\.4\.0\.json: normalizer"):
        check_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"fast_tokenizer_files": ["../tokenizer.4.0.json"]}')
    with pytest.raises(SgdecError, match="fast_tokenizer_files names a file outside of the folder"):
        check_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"n_layer": 10**9}, "n_layer is 1000000000; expected 0 to 16384"),
        ({"text_config": {"num_hidden_layers": -1}}, "num_hidden_layers is -1"),
        ({"decoder_layers": 1e308}, r"decoder_layers is 1e\+308"),
        ({"attention_types": [[["global"], 10**9]]}, "attention_types is 1000000000"),
        ({"configuration_files": ["config.4.0.json"]}, "configuration_files leads to other configs"),
        ([], "expected a JSON object"),
    ],
)
def test_configs_that_would_build_long_lists_are_refused(config: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SgdecError, match=rf"config\.json: {message}"):
        check_config(tmp_path)


def test_other_numbers_of_configs_are_free(tmp_path: Path) -> None:
    config = {"n_layer": 96, "num_decoder_layers": None, "feature_layer": -2, "layer_norm_eps": 1e-5, "seed": 10**12}
    (tmp_path / "config.json").write_text(json.dumps({**config, "encoder_layerdrop": 0.0, "max_length": 10**30}))
    check_config(tmp_path)

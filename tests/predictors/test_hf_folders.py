"""The promise: `sgdec decode` with the folder of a Hugging Face model writes the text that the tokenizer and
`generate()` of transformers give, for the tokenizers and roles of each family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from tests.helpers.pretrained import write_model
from tests.helpers.pretrained_tokenizers import FAMILIES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]
LINES = ["the cat sat on the mat", "a dog ran", "Ünïcödé 🙂 tést", "the", "le chat est là, 日本語"]
LONGEST = 12


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model whose generation config forbids the ids without spelling, so that outputs are text."""
    import transformers

    found = tmp_path_factory.mktemp("model") / request.param
    found.mkdir()
    FAMILIES[request.param](found)
    model = write_model(found)
    tokenizer = transformers.AutoTokenizer.from_pretrained(found)
    unspelled = set(range(model.get_output_embeddings().weight.shape[0])).difference(tokenizer.get_vocab().values())
    if found.name == "marian-separate":
        model.generation_config.bad_words_ids = [[tokenizer.target_encoder["<pad>"]]]
    elif unspelled:
        model.generation_config.suppress_tokens = sorted(unspelled)
    model.generation_config.save_pretrained(found)
    return found


def load(folder: Path) -> tuple[Any, Any]:
    """The tokenizer and the model."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    return tokenizer, auto.from_pretrained(folder).eval()


def generated(folder: Path, line: str, before: str = "") -> str:
    """The text that transformers gives with at most ``LONGEST`` tokens, greedily."""
    tokenizer, model = load(folder)
    given = tokenizer(before + line, return_tensors="pt", return_token_type_ids=False)
    first = given["input_ids"].shape[1]
    if model.config.is_encoder_decoder:
        first = 1 + (model.generation_config.forced_bos_token_id is not None)
    ids = model.generate(**given, do_sample=False, num_beams=1, max_length=first + LONGEST + 1)[0]
    ids = ids[first:][:LONGEST]  # without </s>, which ends our longest outputs
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.replace("\n", " ")  # a line of output


def decoded(folder: Path, tmp_path: Path, *options: str) -> list[str]:
    (tmp_path / "in").write_text("\n".join(LINES) + "\n")
    words = ["decode", "--predictors", "hf", "--hf.model", str(folder), "--decoder", "greedy", *options]
    words += ["--max-length", str(LONGEST), "--output", str(tmp_path / "out"), str(tmp_path / "in")]
    assert main(words) == 0
    return (tmp_path / "out").read_text().split("\n")[:-1]


def test_greedy_search_writes_what_generate_does(folder: Path, tmp_path: Path) -> None:
    assert decoded(folder, tmp_path) == [generated(folder, line) for line in LINES]

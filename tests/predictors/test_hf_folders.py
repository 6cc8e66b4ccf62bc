"""The promise: `sgdec decode` with the folder of a Hugging Face model writes the text that the tokenizer and
`generate()` of transformers give, for the tokenizers and roles of each family."""

from __future__ import annotations

import json
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.hf import _note_chat_template

from sgdec.cli.main import main
from tests.helpers.pretrained import write_model
from tests.helpers.pretrained_tokenizers import FAMILIES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")]
LINES = ["the cat sat on the mat", "a dog ran", "Ünïcödé 🙂 tést", "the", "le chat est là, 日本語"]
LONGEST = 12


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model whose outputs are text."""
    found = tmp_path_factory.mktemp("model") / request.param
    found.mkdir()
    FAMILIES[request.param](found)
    without_unspelled(write_model(found), found)
    return found


def without_unspelled(model: Any, folder: Path) -> None:
    """Forbid, in the folder's generation config, the ids that the tokenizer does not have."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    unspelled = set(range(model.get_output_embeddings().weight.shape[0])).difference(tokenizer.get_vocab().values())
    if folder.name == "marian-separate":
        model.generation_config.bad_words_ids = [[tokenizer.target_encoder["<pad>"]]]
    elif unspelled:
        model.generation_config.suppress_tokens = sorted(unspelled)
    model.generation_config.save_pretrained(folder)


@lru_cache(maxsize=1)
def load(folder: Path) -> tuple[Any, Any]:
    """The tokenizer and the model, read once for all lines of a test."""
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


# What the model reads besides the source.


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model with a chat template."""
    found = tmp_path_factory.mktemp("causal") / "qwen"
    found.mkdir()
    FAMILIES["qwen"](found)
    without_unspelled(write_model(found), found)
    template = "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    (found / "chat_template.jinja").write_text(template + "<|im_start|>assistant{{ '\\n' }}")
    return found


def test_a_prompt_surrounds_the_source(causal: Path, tmp_path: Path) -> None:
    found = decoded(causal, tmp_path, "--hf.prompt", r"cat: {source}\ndog:")
    assert found == [generated(causal, f"cat: {line}\ndog:") for line in LINES]


def test_the_source_can_be_a_message_of_a_chat(causal: Path, tmp_path: Path) -> None:
    found = decoded(causal, tmp_path, "--hf.chat", "true", "--hf.prompt", "the {source}")
    form = "<|im_start|>user\nthe {}<|im_end|>\n<|im_start|>assistant\n"
    assert found == [generated(causal, form.format(line)) for line in LINES]


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        ((), True),
        (("--hf.prompt", "the {source}"), True),
        (("--hf.chat", "true"), False),
        (("--hf.prompt", "<|im_start|>user {source}"), False),
        (("--hf.source", "false"), False),
    ],
)
def test_a_chat_template_that_is_not_used_is_noted(
    causal: Path, tmp_path: Path, options: tuple[str, ...], noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    _note_chat_template.cache_clear()
    decoded(causal, tmp_path, *options)
    assert capsys.readouterr().err.count("has a chat template, which is not used.") == noted


def test_without_the_source_a_causal_model_is_a_language_model(causal: Path, tmp_path: Path) -> None:
    found = decoded(causal, tmp_path, "--hf.source", "false", "--hf.prompt", "the cat")
    assert found == [generated(causal, "the cat")] * len(LINES)
    found = decoded(causal, tmp_path, "--hf.source", "false")
    assert found == [generated(causal, "<|endoftext|>")] * len(LINES)  # <s> of this model


def test_a_seq2seq_model_can_have_a_prompt_too(tmp_path: Path) -> None:
    """T5 reads its task before the source."""
    (tmp_path / "t5").mkdir()
    FAMILIES["t5"](tmp_path / "t5")
    without_unspelled(write_model(tmp_path / "t5"), tmp_path / "t5")
    found = decoded(tmp_path / "t5", tmp_path, "--hf.prompt", "the park: {source}")
    assert found == [generated(tmp_path / "t5", f"the park: {line}") for line in LINES]


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_without_a_tokenizer_nothing_is_added_to_source_ids_which_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    FAMILIES[name](folder)
    model = write_model(folder)
    bare = tmp_path / f"bare-{name}"  # pytest may give a path twice, and the note comes once for each folder
    model.save_pretrained(bare)
    (tmp_path / "in").write_text("5 6\n5 6 2\n")
    words = ["--decoder", "greedy", "--max-length", "3", "--input-format", "ids", "--output-format", "jsonl"]
    words += ["--output", str(tmp_path / "out"), str(tmp_path / "in")]
    scores = {}
    for given in (folder, bare):
        predictors = ["--predictors", "hf,again=hf", "--hf.model", str(given), "--again.model", str(given)]
        assert main(["decode", *predictors, *words]) == 0
        rows = map(json.loads, (tmp_path / "out").read_text().splitlines())
        scores[given] = [row["hypotheses"][0]["score"] for row in rows]
        notes = capsys.readouterr().err.count("has no tokenizer, so nothing is added to sources.")
        assert notes == (given == bare)
    assert scores[bare][1] == pytest.approx(scores[folder][0])  # the tokenizer adds 2
    assert scores[bare][0] != pytest.approx(scores[folder][0])


def test_a_name_is_looked_up_in_the_local_cache(
    causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    place = tmp_path / "models--maker--small"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    shutil.copytree(causal, place / "snapshots" / ("0" * 40))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    by_folder = decoded(causal, tmp_path)
    assert decoded(Path("maker/small"), tmp_path) == by_folder


# Bad input: one line that says what, where, and the way out.


def change(name: str, **values: Any) -> Any:
    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **values}))

    return damage


def only_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def adapter(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "config.json").unlink()
    adapter_beside(folder)


def adapter_beside(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "some/model"}')


def of_llama_cpp(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-q4.gguf")


def without_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


DAMAGES = {
    "no config": (lambda folder: (folder / "config.json").unlink(), [], "there is no config.json"),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        [],
        "expected weights in model.safetensors",
    ),
    "pickled weights": (only_pickled, [], "pytorch_model.bin is pickled"),
    "an adapter": (adapter, [], "merge_and_unload().save_pretrained(FOLDER)"),
    "an adapter beside a model": (adapter_beside, [], "If this folder has the merged model, remove the file."),
    "weights of llama.cpp": (of_llama_cpp, [], "model-q4.gguf: files .gguf of llama.cpp are not read."),
    "a file of llama.cpp": (lambda folder: None, ["--hf.model", "some/m.gguf"], "some/m.gguf: files .gguf of llama"),
    "cut weights": (cut, [], "the weights cannot be used"),
    "a missing tensor": (without_a_tensor, [], "tensor model.layers.1.mlp.up_proj.weight is missing"),
    "other sizes": (change("config.json", intermediate_size=48), [], "has another shape"),
    "unknown": (change("config.json", model_type="nonsense"), [], "nonsense"),
    "code": (
        change("config.json", model_type="nonsense", auto_map={"AutoConfig": "a.B", "AutoModelForCausalLM": "a.C"}),
        [],
        "needs code",
    ),
    "not a language model": (change("config.json", model_type="clip"), [], "has no language model"),
    "a small model": (change("config.json", vocab_size=100), [], "the tokenizer has the id"),
    "no place for the source": (lambda folder: None, ["--hf.prompt", "German:"], "has no {source}"),
    "a place for no source": (lambda folder: None, ["--hf.source", "false", "--hf.prompt", "{source}"], "not read"),
    "attention": (lambda folder: None, ["--hf.attention", "-1"], "is a causal model"),
    "too long": (lambda folder: None, ["--hf.prompt", "{source}" + "the cat " * 80], "64 positions"),
    "no such folder": (lambda folder: None, ["--hf.model", "./nowhere"], "no such folder"),
    "not in the cache": (lambda folder: None, ["--hf.model", "some/model"], "--hf.download true"),
    "another precision": (lambda folder: None, ["--precision", "int4"], "int4"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_bad_input_is_one_line(
    kind: str, causal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    damage, options, message = DAMAGES[kind]
    folder = tmp_path / "model"
    shutil.copytree(causal, folder)
    damage(folder)
    (tmp_path / "in").write_text("the cat\n")
    words = ["decode", "--predictors", "hf", "--hf.model", str(folder), *options, "--decoder", "greedy"]
    assert main([*words, str(tmp_path / "in")]) in (1, 2)
    lines = [line for line in capsys.readouterr().err.splitlines() if message in line]
    assert len(lines) == 1 and lines[0].startswith(("Error: ", "Warning: sentence 1: ")), lines


@pytest.mark.parametrize(("option", "value"), [("chat", "true"), ("source", "false")])
def test_options_of_causal_models_are_refused_for_others(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FAMILIES["t5"](tmp_path)
    write_model(tmp_path)
    words = ["decode", "--predictors", "hf", "--hf.model", str(tmp_path), f"--hf.{option}", value]
    assert main([*words, "nothing"]) == 2
    assert f"{option}{' false' * (option == 'source')} is for causal models" in capsys.readouterr().err

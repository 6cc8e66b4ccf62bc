"""The promise: from text to text, a search with ``hf`` and a trie scores entries as the model itself does on the ids
of its own tokenizer, so that text, trie and model share one numbering."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from tests.helpers.pretrained_tokenizers import FAMILIES

transformers = pytest.importorskip("transformers")

SMALL = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "d_kv": 8, "d_ff": 16,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "num_layers": 1, "num_heads": 2,
    "num_decoder_layers": 1, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "n_embd": 16,
    "num_key_value_heads": 2, "intermediate_size": 16, "n_layer": 1, "n_head": 2,
}  # fmt: skip
SOURCES = ["the park", "a dog läuft"]
ENTRIES = ["the cat sat", "a dog ran in the park", "the cat"]


def add_model(folder: Path) -> Any:
    """Add random weights of the folder's architecture; the model."""
    import torch

    settings = json.loads((folder / "config.json").read_text())
    kind = type(transformers.AutoConfig.for_model(settings["model_type"]))
    sizes = {name: size for name, size in SMALL.items() if name in kind().to_dict()}
    (folder / "config.json").write_text(json.dumps(settings := {**settings, **sizes}))
    config = kind(**settings)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    torch.manual_seed(3)
    model = auto.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    from safetensors.torch import save_model

    save_model(model, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return model


def log_probability(model: Any, folder: Path, source: str, entry: str) -> float:
    """Of an entry and its end, as the model says in one pass over the ids of its own tokenizer."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    read = tokenizer(source)["input_ids"]
    ids = tokenizer(text_target=entry, add_special_tokens=False)["input_ids"]
    settings = json.loads((folder / "config.json").read_text())
    generation = folder / "generation_config.json"
    settings |= json.loads(generation.read_text()) if generation.exists() else {}
    with torch.inference_mode():
        if settings.get("is_encoder_decoder"):
            first = [settings["decoder_start_token_id"]]
            first += [settings["forced_bos_token_id"]] if "forced_bos_token_id" in settings else []
            output = model(input_ids=torch.tensor([read]), decoder_input_ids=torch.tensor([first + ids]))
        else:
            output = model(input_ids=torch.tensor([read + ids]))
    rows = output.logits[0, -len(ids) - 1 :].double().log_softmax(-1)
    ends = settings["eos_token_id"]
    end = rows[-1][[ends] if isinstance(ends, int) else ends].max()
    return float(rows[torch.arange(len(ids)), ids].sum() + end)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["t5", "marian", "marian-separate", "bart", "mbart", "gpt2", "llama", "qwen"])
def test_entries_are_scored_as_by_the_model_alone(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("model")
    folder.mkdir()
    FAMILIES[family](folder)
    model = add_model(folder)
    Path("in").write_text("\n".join(SOURCES) + "\n")
    Path("list").write_text("\n".join(ENTRIES) + "\n")
    assert main(["trie", "list", "--tokenizer", "model", "--output", "trie"]) == 0
    call = ["decode", "--predictors", "hf,trie", "--hf.model", "model", "--trie.path", "trie", "--nbest", "3"]
    call += ["--tokenizer", "model", "--decoder", "beam", "--beam.size", "9", "--beam.stop", "full"]
    assert main([*call, "--max-length", "40", "--output-format", "jsonl", "in"]) == 0
    rows = [json.loads(line)["hypotheses"] for line in capsys.readouterr().out.splitlines()]
    for source, hypotheses in zip(SOURCES, rows, strict=True):
        scores = {found["text"]: found["scores"]["hf"] for found in hypotheses}
        expected = {entry: log_probability(model, folder, source, entry) for entry in ENTRIES}
        assert scores == pytest.approx(expected, abs=1e-4)

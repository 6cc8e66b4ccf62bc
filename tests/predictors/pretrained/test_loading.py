"""A config that does not fit the weights is refused before memory is allocated; weights that fit are mapped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sgdec_predictors.pretrained.loading import load_module
from sgdec_predictors.pretrained.weights import WHOLE

from sgdec import Context, SgdecError
from sgdec.text.model_folder import reason
from tests.helpers.pretrained import V, tiny_model

pytestmark = pytest.mark.slow  # importing transformers takes seconds


@pytest.fixture(scope="module", params=["marian", "llama", "gpt2", "t5"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("loading") / request.param
    tiny_model(request.param).save_pretrained(found)
    return found


def changed(folder: Path, place: Path, **values: Any) -> Path:
    """A folder with the same weights and another config."""
    place.mkdir()
    (place / WHOLE).write_bytes((folder / WHOLE).read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, **values}))
    return place


HUGE: dict[str, dict[str, Any]] = {
    "marian": {"max_position_embeddings": 300_000_000, "vocab_size": 10**9, "d_model": 10**6, "decoder_layers": 9000},
    "llama": {"vocab_size": 10**9, "hidden_size": 10**8, "intermediate_size": 10**9, "num_hidden_layers": 9000},
    "gpt2": {"n_positions": 300_000_000, "n_embd": 10**7, "n_inner": 10**9, "n_layer": 9000},
    "t5": {"vocab_size": 10**9, "d_ff": 10**9, "num_layers": 9000, "relative_attention_num_buckets": 10**9},
}


def test_a_config_that_is_too_large_for_the_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    for key, value in HUGE[folder.name].items():
        place = changed(folder, tmp_path / key, **{key: value})
        with pytest.raises(SgdecError, match=r"config\.json: .* the weights of the same model"):
            load_module(place, Context())


def test_fewer_layers_than_those_of_the_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    keys = {"marian": "encoder_layers", "llama": "num_hidden_layers", "gpt2": "n_layer", "t5": "num_layers"}
    with pytest.raises(SgdecError, match=r"has fewer layers than the weights: tensor .*1.* is not used"):
        load_module(changed(folder, tmp_path / "one", **{keys[folder.name]: 1}), Context())
    if folder.name in ("llama", "gpt2"):
        with pytest.raises(SgdecError, match=r"has fewer layers than the weights: tensor .*0.* is not used"):
            load_module(changed(folder, tmp_path / "none", **{keys[folder.name]: 0}), Context())


def test_rotary_positions_take_no_memory(tmp_path: Path) -> None:
    """Llama computes them for each token."""
    model = tiny_model("llama")
    model.save_pretrained(tmp_path / "model")
    place = changed(tmp_path / "model", tmp_path / "more", max_position_embeddings=300_000_000)
    found = load_module(place, Context())
    assert sum(buffer.numel() for buffer in found.buffers()) < 100
    ids = torch.arange(V)[None]
    assert torch.allclose(found(ids).logits, model(ids).logits, atol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_weights_stay_in_their_file(folder: Path) -> None:
    """Processes that load the same file share its pages, but for weights that are packed."""
    module = load_module(folder, Context())
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(folder / WHOLE)):
            ranges.append(range(*(int(end, 16) for end in line.split()[0].split("-"))))
    positions = {name for name, _ in module.named_parameters() if "embed_positions" in name}  # Marian computes them
    outside = {
        name
        for name, parameter in module.named_parameters()
        if not any(parameter.data_ptr() in place for place in ranges) and 0 not in parameter.stride()
    }
    assert outside <= (positions if folder.name == "marian" else set())


def test_a_message_of_a_library_loses_its_advice_on_arguments() -> None:
    unsafe = (
        "Weights only load failed. Re-running `torch.load` with `weights_only` set to `False` will succeed. Hm.\nx"
    )
    assert reason(RuntimeError(unsafe)) == "Weights only load failed. Hm"
    assert reason(ValueError("Pass trust_remote_code=True.")) == "ValueError"
    assert reason(ValueError("Field 'n_layer':\n  expected int")) == "Field 'n_layer': expected int"
    assert reason(KeyError()) == "KeyError"

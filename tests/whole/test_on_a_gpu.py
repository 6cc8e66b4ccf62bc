"""What a processor computes, a GPU computes: the same hypotheses, losses and weights; and memory is kept.

Everything here needs a CUDA device: ``pytest -m gpu``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.nmt import NmtPredictor
from sgdec_predictors.wc import WordCount

from sgdec.checkpoints.loading import load_model
from sgdec.context import Context
from sgdec.decoder import Decoder
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.training import train
from sgdec.training.data.workspace import MIB, peak_bytes
from sgdec.training.preparing import prepare
from tests.helpers.tiny_models import write_checkpoint
from tests.helpers.training_case import PAIRS, losses, make_config, write_text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

V = 7
SOURCES = [
    Source(n, tokens, max_length=4)
    for n, tokens in enumerate([(5,), (3, 4, 5, 3, 6, 4, 4), (6, 6), (3, 4), (4, 3, 5), (5,), (4, 6, 3, 3)] * 3, 1)
]
MODELS: dict[str, dict[str, Any]] = {
    "gnmt": {"layers": 3, "width": 8},
    "luong": {"layers": 2, "width": 8},
    "transformer": {"layers": 2, "width": 8, "heads": 2},
}
DECODERS: dict[str, Decoder] = {
    "beam": BeamDecoder(size=3),
    "vanilla": VanillaDecoder(size=3),
    "greedy": GreedyDecoder(),
    "dfs": DfsDecoder(),
    "astar": AStarDecoder(),
}


def searched(
    checkpoint: Path, decoder: Decoder, batch_size: int, *, deterministic: bool = False, **context: Any
) -> list[list[tuple[Any, float]]]:
    """For each sentence its hypotheses with their scores, by the model and a word count."""
    nmt = NmtPredictor(str(checkpoint), Context(vocab_size=V, deterministic=deterministic, **context))
    constellation = Constellation.of({"nmt": nmt, "wc": WordCount()}, weights=[1.0, -0.3], vocab_size=V)
    scheduler = Scheduler(constellation, decoder, batch_size=batch_size, nbest=3, deterministic=deterministic)
    outcomes = scheduler.run(SOURCES)
    return [[(each.tokens, each.score) for each in outcome.result.hypotheses] for outcome in outcomes]


@pytest.mark.parametrize("batch_size", [1, 8, 64])
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("model", MODELS)
def test_searches_find_what_they_find_on_a_processor(
    model: str, decoder: str, batch_size: int, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path, model=model, options=MODELS[model])
    there, here = (
        searched(checkpoint, DECODERS[decoder], batch_size, device=device, precision="fp64")
        for device in ("cuda", "cpu")
    )
    assert [[tokens for tokens, _ in found] for found in there] == [[tokens for tokens, _ in found] for found in here]
    scores = [[[score for _, score in found] for found in side] for side in (there, here)]
    for given, expected in zip(*scores, strict=True):
        assert given == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_deterministic_runs_are_equal_for_every_batch_size(model: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, model=model, options=MODELS[model])
    found = [
        searched(checkpoint, DECODERS["beam"], size, device="cuda", precision="fp32", deterministic=True)
        for size in (1, 3, 8)
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_scores_in_fewer_bits_are_near(model: str, precision: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, model=model, options=MODELS[model])
    exact, rounded = (
        searched(checkpoint, DECODERS["beam"], 8, device=device, precision=bits)
        for device, bits in (("cpu", "fp64"), ("cuda", precision))
    )
    tolerance = {"fp32": 1e-5, "bf16": 0.2}[precision]
    pairs = [(dict(one), dict(other)) for one, other in zip(exact, rounded, strict=True)]
    same = [(one[tokens], other[tokens]) for one, other in pairs for tokens in one.keys() & other.keys()]
    assert len(same) > len(SOURCES) / 2
    assert [given for _, given in same] == pytest.approx([expected for expected, _ in same], abs=tolerance)


@pytest.mark.parametrize("model", MODELS)
def test_losses_of_a_training_are_those_of_a_processor(model: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": model, "precision": "fp64", "options": {**MODELS[model], "dropout": 0.0}}
    there, here = (losses(make_config(tmp_path, device, device=device, **settings)) for device in ("cuda", "cpu"))
    assert there == pytest.approx(here, rel=1e-8)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_trained_on_a_gpu_and_loaded_on_a_processor(model: str, precision: str, tmp_path: Path) -> None:
    options = {**MODELS[model], "dropout": 0.1}
    done = train(make_config(tmp_path, model=model, options=options, device="cuda", precision=precision), quiet=True)
    on_cpu, on_gpu = (load_model(done.best, device=device)[0] for device in ("cpu", "cuda"))
    for name, value in on_cpu.state_dict().items():
        assert torch.equal(value, on_gpu.state_dict()[name].cpu())


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = losses(make_config(tmp_path, "whole", device="cuda", save_every=4))
    config = make_config(tmp_path, "killed", device="cuda", save_every=4)
    first = losses(config, steps=6)
    assert [*first[:4], *losses(config, resume=True)] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_updates_stay_within_the_workspace(model: str, tmp_path: Path) -> None:
    budget = 24
    options = {"dropout": 0.1, **({"width": 64} | ({"heads": 2} if model == "transformer" else {}))}
    pairs = write_text(tmp_path, "many", PAIRS * 20)
    config = make_config(
        tmp_path, model=model, options=options, device="cuda", workspace=budget, train=pairs, max_steps=8
    )
    run = prepare(config, quiet=True)
    peaks: list[float] = []
    steps = iter(run.steps())
    while True:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        if next(steps, None) is None:
            break
        peaks.append((torch.cuda.max_memory_allocated() - before) / MIB)
    assert len(peaks) == 8
    assert 0.3 * budget < max(peaks[1:]) <= 1.1 * budget  # the first step allocates the optimiser's state, too


def test_a_batch_that_does_not_fit_is_split_and_learns_the_same(tmp_path: Path) -> None:
    """A limit on the memory of this process stands for a small GPU."""
    options = {"width": 256, "dropout": 0.0}
    pairs = write_text(tmp_path, "long", [(" ".join([one] * 20), " ".join([other] * 20)) for one, other in PAIRS])
    settings: dict[str, Any] = {"options": options, "train": pairs, "batch_tokens": 4000, "max_steps": 3}
    settings["max_line"] = 500
    plenty = losses(make_config(tmp_path, "plenty", device="cuda", **settings))
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    run = prepare(make_config(tmp_path, "little", device="cuda", **settings), quiet=True)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 160 * MIB) / total)
    try:
        little = list(run.steps())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert run.updater.splitter.ceiling < float("inf")
    assert little == pytest.approx(plenty, rel=1e-3)


def test_the_peak_is_that_of_the_allocator() -> None:
    def work() -> None:
        held = torch.zeros(8 * MIB // 4, device="cuda")
        del held

    assert peak_bytes(work, "cuda") == pytest.approx(8 * MIB, rel=0.01)

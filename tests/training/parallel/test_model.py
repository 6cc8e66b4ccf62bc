"""Layers on several ranks compute what one process computes: losses, norms, gradients, weights, checkpoints; and they
send what the formulas say, to the byte.

All of it runs once on 2 and once on 4 ranks (`parallel_ranks.py`), on CPUs, in float64, over a few updates of batches
of unequal lengths; the tests look at what came of it. `python -m pytest -s` shows the volumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.errors import UsageError
from sgdec.models.luong import Luong
from sgdec.training.device import trains_in_bf16
from sgdec.training.objectives.likelihood import Likelihood
from sgdec.training.parallel.group import ProcessGroup, ring
from sgdec.training.parallel.partitioned import partitioned_nll
from sgdec.training.parallel.staged import Staged
from sgdec.training.parallel.strategy import Strategy, make_strategy
from sgdec.training.parallel.transfer import Transfers
from tests.helpers.families import make
from tests.helpers.parallel_ranks import (
    CASES,
    IN_BF16,
    ON_SIZE,
    SIZES,
    STEPS,
    TARGET,
    TRAINED,
    WIDTH,
    WITH_DROPOUT,
    Case,
    batches_of,
    make_updater,
    run_ranks,
)

on_ranks = pytest.mark.parametrize("size", [pytest.param(size, marks=pytest.mark.slow) for size in SIZES])
with_cases = pytest.mark.parametrize(
    ("size", "name"),
    [pytest.param(size, name, marks=pytest.mark.slow) for size in SIZES for name in ON_SIZE[size]],
)
with_cases_of_luong = pytest.mark.parametrize(
    ("size", "name"),
    [
        pytest.param(size, name, marks=pytest.mark.slow)
        for size in SIZES
        for name in ON_SIZE[size]
        if name.startswith("luong")
    ],
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    reference = tmp_path_factory.mktemp("one")
    return {size: run_ranks(size, reference, tmp_path_factory.mktemp(f"ranks{size}")) for size in SIZES}


@with_cases
def test_losses_gradients_and_weights_are_those_of_one_process(
    results: dict[int, dict[str, Any]], size: int, name: str
) -> None:
    """In all updates; then the weights and Adam's memory, and one update that each side makes from the other's."""
    for what, difference in results[size][name]["worst"].items():
        assert difference < 1e-9, what


@with_cases
def test_each_rank_sends_what_its_formula_predicts(results: dict[int, dict[str, Any]], size: int, name: str) -> None:
    result = results[size][name]
    assert result["volumes as predicted"]  # in every update, on every rank, to the byte
    print(f"\n{name}, {size} ranks: {result['formula']}")
    for purpose, volume in result["sent"].items():
        print(f"  {purpose}: {volume:.0f} bytes a step, formula {result['expected'][purpose]:.0f}")


@with_cases_of_luong
def test_volumes_of_luong_are_those_of_its_table(results: dict[int, dict[str, Any]], size: int, name: str) -> None:
    """Written once more, by hand, for all ranks together: the last of the `STEPS` updates."""
    case, (batch,) = CASES[name], batches_of(CASES[name], STEPS)[-1:]
    assert case.accumulate == 1 or name == "luong model"
    n = sum(int(b.lengths.sum()) for b in batches_of(case, STEPS) if b.lengths is not None)
    m = sum(int(b.mask.sum()) for b in batches_of(case, STEPS))
    numbers = (size - 1) * (n + m) * WIDTH
    if case.options.get("input_feeding"):
        numbers += (m - len(batch.mask)) * WIDTH
    if case.mode == "hybrid":
        order = batch.mask.sum(1).argsort(descending=True, stable=True).tolist()
        top = [sentence for place, sentence in enumerate(order) if place % size == size - 1]
        assert batch.lengths is not None
        own = int(batch.lengths[top].sum() + batch.mask[top].sum())
        if case.options.get("input_feeding"):
            numbers += (m - (m - m * (size - 1) // size)) * WIDTH
        else:
            numbers += (n + m - own) * WIDTH
    sent = results[size][name]["sent"]
    assert sent["activations"] == sent["activation gradients"] == 8 * numbers


@on_ranks
def test_volumes_of_gnmt_are_those_of_its_table(results: dict[int, dict[str, Any]], size: int) -> None:
    case = CASES["gnmt model"]
    n = sum(int(b.lengths.sum()) for b in batches_of(case, STEPS) if b.lengths is not None)
    m = sum(int(b.mask.sum()) for b in batches_of(case, STEPS))
    above = {2: [1], 4: [2, 1, 1]}[size]  # in widths: 4 layers on 4 ranks put both directions on the first link
    encoder = sum(above) * n * WIDTH + n * WIDTH  # and the top, to rank 0
    decoder = (size - 1) * m * 2 * WIDTH
    outputs = (size - 1) * m * WIDTH
    sent = results[size]["gnmt model"]["sent"]
    assert sent["activations"] == sent["activation gradients"] == 8 * (encoder + decoder + outputs)
    assert sent["softmax"] == pytest.approx(2 * (size - 1) * 4 * m * 8)


@on_ranks
def test_hybrid_adds_up_the_gradients_of_attention_and_softmax_alone(
    results: dict[int, dict[str, Any]], size: int
) -> None:
    attention = WIDTH * WIDTH + 2 * WIDTH * WIDTH  # W_a, W_c
    softmax = (WIDTH + 1) * TARGET
    for name, numbers in (("luong hybrid", attention + softmax), ("luong hybrid fed", softmax)):
        assert results[size][name]["sent"]["gradients"] == pytest.approx(size * ring(size, 8 * numbers))


@pytest.mark.slow
@pytest.mark.parametrize("size", WITH_DROPOUT)
def test_with_dropout_it_trains_and_repeats_itself(results: dict[int, dict[str, Any]], size: int) -> None:
    for name in TRAINED:
        first, second = results[size][f"{name}, dropout"]["runs"]
        assert first[: len(second)] == second
        assert first[-1] < 0.9 * first[0]


@pytest.mark.skipif(not trains_in_bf16(), reason="this processor has no AVX-512")
@pytest.mark.slow
@pytest.mark.parametrize("size", IN_BF16)
def test_in_bf16_losses_are_near_those_of_fp64(results: dict[int, dict[str, Any]], size: int) -> None:
    for name in TRAINED:
        result = results[size][f"{name}, bf16"]
        assert result["bf16"] == pytest.approx(result["fp64"], rel=0.03)


@pytest.mark.slow
def test_ranks_own_parts_that_make_up_the_whole() -> None:
    """Each parameter is updated by one rank, or by several that have the same gradient; rows of a softmax by one."""
    for case in CASES.values():
        counts: dict[str, int] = {}
        for rank in range(4):
            strategy = make_updater(case, ProcessGroup(rank, 4)).strategy
            for name, parameter in strategy.owned.items():
                counts[name] = counts.get(name, 0) + parameter.numel()
        whole = {name: parameter.numel() for name, parameter in make_updater(case, None).model.named_parameters()}
        assert counts.keys() == whole.keys()
        assert all(counts[name] % number == 0 for name, number in whole.items())
        if case.model == "gnmt":
            assert counts == whole


@pytest.mark.parametrize(("model", "layers"), [("luong", 3), ("gnmt", 4)])
def test_a_rank_hands_each_chunk_on_before_it_takes_the_next(model: str, layers: int) -> None:
    """So that all ranks are at work at once: a wavefront."""
    case = Case("model", model, {"layers": layers}, chunk=2)
    stages, batch = cast(Staged, make_updater(case, ProcessGroup(1, 4)).strategy), batches_of(case, 1)[0]
    events: list[str] = []

    def receive(shape: Sequence[int], source: int) -> Tensor:
        events.append(f"from {source}")
        return torch.zeros(*shape, dtype=torch.float64)

    stages.transfers.receive = receive  # type: ignore[method-assign]
    stages.transfers.send = lambda x, to: events.append(f"to {to}")  # type: ignore[method-assign]
    stages.transfers.broadcast = lambda x, shape, root: torch.zeros(*shape).double()  # type: ignore[method-assign]
    stages.transfers.largest = lambda x, purpose: x  # type: ignore[method-assign]
    stages.transfers.sum = lambda x, purpose: x  # type: ignore[method-assign]
    stages.forward(batch)
    assert batch.lengths is not None
    chunks = sum(-(-int(longest) // 2) for longest in (batch.lengths.max(), batch.mask.sum(1).max()))
    assert chunks > 3
    assert events == ["from 0", "to 2"] * chunks


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_softmax_in_one_part_is_pytorchs(smoothing: float) -> None:
    """Also for logits whose exponentials are out of range. (In several parts: in all runs of gnmt above.)"""
    logits, targets = torch.randn(5, 9, dtype=torch.float64) * 500, torch.tensor([0, 8, 3, 3, 1])
    ours = partitioned_nll(logits, targets, slice(0, 9), 9, Transfers(ProcessGroup()), smoothing)
    theirs = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)


def strategy(mode: str, family: str, size: int, **options: Any) -> Strategy:
    model = make(family, **options)
    return make_strategy(mode, ProcessGroup(0, size), model, Likelihood(model, 0.0, "cpu", "fp64"))


@pytest.mark.parametrize(
    ("mode", "family", "size", "options", "message"),
    [
        ("hybrid", "gnmt", 2, {}, "--parallel hybrid works with luong only. For gnmt give --parallel data or model"),
        ("model", "transformer", 2, {}, "--parallel model works with gnmt, luong only. For transformer .*data"),
        ("model", "luong", 4, {}, "luong's 2 layers cannot be spread over 3 ranks.*Start 3"),
        ("hybrid", "luong", 3, {}, "luong's 2 layers cannot be spread over 3 ranks.*Start 2"),
        ("model", "gnmt", 4, {}, "gnmt's 3 layers cannot be spread over 4 ranks.*Start 3"),
        ("model", "gnmt", 2, {"tied": "target"}, "partitioned over symbols.*--gnmt.tied none"),
        ("hybrid", "gru to luong", 2, {}, "--luong.encoder lstm"),
        ("model", "luong", 1, {}, "at least 2 ranks"),
    ],
)
def test_what_cannot_be_spread_is_refused_in_one_line(
    mode: str, family: str, size: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        strategy(mode, family, size, **options)
    assert "\n" not in str(raised.value)


def test_another_objective_is_refused() -> None:
    model = cast(Luong, make("luong"))
    with pytest.raises(UsageError, match="only be trained with maximum likelihood"):
        make_strategy("model", ProcessGroup(0, 2), model, lambda batch: torch.zeros(()))

"""Data-parallel training is the training of a single process, faster: the same losses, gradients, and checkpoints.

The checks run on 2 and on 4 ranks of this machine (gloo), all of them in `make exhaustive`; batches have unequal
lengths, some of them fewer sentences than there are ranks, some updates two batches. Dropout is off where numbers are
compared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from sgdec.checkpoints.files import load_tensors
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.preparing import prepare
from tests.helpers.parallel_data_checks import (
    PRECISIONS,
    STEPS,
    VOCABULARY,
    WITH_RUNS,
    WORKSPACE_MIB,
    equality,
    random_batch,
    run_checks,
)
from tests.helpers.parallel_data_checks import take as taken
from tests.helpers.ranks import on_ranks
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of 12 steps in one process, in double precision, in the folder ``single``; config."""
    folder = tmp_path_factory.mktemp("runs")
    options = {"width": 16, "dropout": 0.0}
    settings: dict[str, Any] = {"options": options, "save_every": 6, "batch_pairs": 7, "accumulate": 2}
    config = make_config(folder, "single", precision="fp64", **settings)
    prepare(config, quiet=True).run()
    return folder, config


@pytest.fixture(scope="module")
def worlds(run: Any) -> Callable[[int], Ranks]:
    """What the checks say on every rank of a world of a size; they run once for each."""
    folder, config = run

    @cache
    def world(size: int) -> Ranks:
        return on_ranks(size, run_checks, str(folder / str(size)), config)

    return world


@pytest.fixture(params=[2, 4])
def ranks(request: pytest.FixtureRequest, worlds: Callable[[int], Ranks]) -> Ranks:
    return worlds(request.param)


@pytest.mark.parametrize(
    ("ranks", "precision", "tolerance"),
    [
        (size, precision, {"fp64": 1e-12, "fp32": 1e-5}[precision])
        for size in PRECISIONS
        for precision in PRECISIONS[size]
    ],
    indirect=["ranks"],
)
def test_losses_and_every_gradient_are_those_of_a_single_process(
    ranks: Ranks, precision: str, tolerance: float
) -> None:
    differences = ranks[0]["equality"][precision]
    assert differences["losses"] < tolerance
    assert differences["gradients"] < tolerance
    assert differences["weights"] < tolerance, f"after {STEPS} updates, averaged"


def test_a_mean_of_means_would_be_noticed(ranks: Ranks) -> None:
    differences = ranks[0]["mean of means"]
    assert differences["gradients"] > 0.01


def test_weights_of_tokens_count_over_all_ranks(ranks: Ranks) -> None:
    assert ranks[0]["weights"]["gradients"] < 1e-12


def test_a_parameter_that_nothing_depends_on_stays_as_it_is(ranks: Ranks) -> None:
    assert ranks[0]["spare"]["gradients"] < 1e-12
    assert ranks[0]["spare"]["weights"] < 1e-12


def test_gradients_that_are_missing_in_some_updates_are_refused_and_never_left_unsummed(ranks: Ranks) -> None:
    for rank in ranks:
        assert rank["forgetful"].startswith(
            "--parallel data: GNMT had gradients for all its parameters in the first step"
        )


def test_dropout_differs_between_ranks_and_is_repeatable(ranks: Ranks) -> None:
    for rank in ranks:
        one, other = rank["dropout"]["runs"]
        assert one == other == ranks[0]["dropout"]["runs"][0], "all ranks know the same losses"
    seeds = ranks[0]["dropout"]["seeds"]
    assert seeds[0] == 11, "rank 0 draws what a single process draws"
    assert len(set(seeds)) == len(ranks)


def test_what_is_sent_is_what_the_formula_says(ranks: Ranks) -> None:
    size = len(ranks)
    for rank in ranks:
        sent, expected = rank["volume"]["sent"], rank["volume"]["expected"]
        assert sent == pytest.approx(expected)
        by_hand = 2 * (size - 1) / size * 4 * rank["volume"]["parameters"]
        assert sent["gradients"] == pytest.approx(STEPS * by_hand)


def test_a_loss_that_is_not_finite_on_one_rank_stops_all_before_the_update(ranks: Ranks) -> None:
    assert sum(7 in rank["not finite"]["mine"] for rank in ranks) == 1
    (message,) = {rank["not finite"]["message"] for rank in ranks}
    assert message.startswith("step 1: the loss is nan, on lines 1, 2, 3, 4, 5, 6, 7, 8 of a and b. Nothing was")
    assert all(rank["not finite"]["kept"] for rank in ranks)


@pytest.mark.parametrize("ranks", WITH_RUNS, indirect=True)
@pytest.mark.parametrize("way", ["to", "from"])
def test_a_run_goes_on_with_another_number_of_ranks(ranks: Ranks, run: Any, way: str) -> None:
    """Checkpoints are those of a single process, the optimiser's memory included."""
    assert ranks[0]["resumed"][way]
    folder = run[0]
    for file in ("model.safetensors", "optimizer.safetensors"):
        single = load_tensors(folder / "single" / "last" / file)
        other = load_tensors(folder / str(len(ranks)) / way / "last" / file)
        assert single.keys() == other.keys()
        for name, tensor in single.items():
            assert float((tensor - other[name]).abs().max()) < 1e-12, name


@pytest.mark.parametrize("ranks", WITH_RUNS, indirect=True)
def test_batches_are_filled_to_the_memory_of_each_rank(ranks: Ranks) -> None:
    for rank in ranks:
        assert rank["workspace"]["order"] == ranks[0]["workspace"]["order"], "rank 0 measures for all"
        assert rank["workspace"]["stored"]["ranks"] == len(ranks)
    peaks = [rank["workspace"]["peak"] / (WORKSPACE_MIB << 20) for rank in ranks]
    assert max(peaks) < 1.05
    assert min(peaks) > 0.6


def test_a_world_of_one_needs_no_process_group() -> None:
    assert equality(ProcessGroup(), "fp64") == {"losses": 0.0, "gradients": 0.0, "weights": 0.0}


def test_a_share_of_a_batch_has_no_more_padding_than_it_needs() -> None:
    batch = random_batch(9, 1)
    for rows in ([0], [3, 4], list(range(9))):
        share = taken(batch, rows)
        assert share.source is not None and share.lengths is not None and batch.lengths is not None
        assert share.lengths.tolist() == batch.lengths[rows].tolist()
        assert share.source.size(1) == int(share.lengths.max())
        assert share.target_in.size(1) == int(share.mask.sum(1).max()) == share.target_out.size(1)
        assert int(share.mask.sum()) == int(batch.mask[rows].sum())
        assert int(share.source.max()) < VOCABULARY

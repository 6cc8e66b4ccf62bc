"""The promise: a search that cannot fit into memory is one line with a remedy, and one that can is never refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.io.limits import BATCH
from sgdec.protocol import BatchPredictor, Candidates, Result, Scores, Source, State
from sgdec.search import memory
from sgdec.search.combination.choosing import Choice
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.search.requests import Request, answer
from sgdec.search.scheduler import Scheduler
from sgdec.testing import Bonus

V = 4096
SIZE = 1100
"""A beam whose scores are 18 MB in float32: above the size from which batches are checked."""
SOURCES = [Source(n, (3,), max_length=2) for n in (1, 2, 3)]
LIMIT = str(12 << 20)


class Wide(BatchPredictor):
    """The same dense row for each prefix; notes the sizes of its batches."""

    independent_rows = True

    def __init__(self, tensors: bool = False, repeated: bool = False) -> None:
        scores = np.random.default_rng(4).normal(-9.0, 1.0, V).astype(np.float32)
        self._row: Any = torch.from_numpy(scores) if tensors else scores
        self._repeated = repeated
        self.asked: list[int] = []

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [0 for _ in sources]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.asked.append(len(states))
        if isinstance(self._row, torch.Tensor):
            return Scores.dense(self._row.repeat(len(states), 1))
        rows = np.broadcast_to(self._row, (len(states), V))
        return Scores.dense(rows if self._repeated else rows.copy())

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [state + 1 for state in states]


def decoded(decoder: Decoder, *predictors: BatchPredictor, **options: Any) -> list[Outcome]:
    constellation = Constellation.of({f"p{k}": each for k, each in enumerate(predictors)}, vocab_size=V)
    return list(Scheduler(constellation, decoder, **{"batch_size": 1, **options}).run(SOURCES[:2]))


DECODERS: list[Decoder] = [BeamDecoder(size=SIZE), SepBeamDecoder(size=SIZE), VanillaDecoder(size=SIZE)]
each_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=["beam", "sepbeam", "vanilla"])


@each_decoder
@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2])
def test_scores_beyond_memory_are_refused_before_the_predictor_is_asked(
    decoder: Decoder, tensors: bool, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BATCH.variable, LIMIT)
    predictor = Wide(tensors)
    outcomes = decoded(decoder, predictor, batch_size=batch_size)
    assert max(predictor.asked) <= 2
    for outcome in outcomes:
        assert str(outcome.error) == (
            "predictor 'p0': the scores of 1,099 prefixes need 17.2 MiB, but SGDEC_MAX_BATCH_BYTES allows 12.0 MiB. "
            "Use a smaller beam, or score fewer prefixes in one call with --max-rows or a smaller --batch-size, "
            "such as --max-rows 256."
        )


@pytest.mark.parametrize("decoder", DECODERS[:2], ids=["beam", "sepbeam"])
def test_with_few_rows_in_a_call_the_same_beam_fits(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = decoded(decoder, Wide())
    monkeypatch.setenv(BATCH.variable, LIMIT)
    found = decoded(decoder, Wide(), max_rows=256)
    assert [outcome.result for outcome in found] == [outcome.result for outcome in expected]
    assert [outcome.error for outcome in found] == [None, None]


def test_sentences_that_fit_only_alone_are_decoded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = BeamDecoder(size=SIZE)
    expected = decoded(decoder, Wide())
    monkeypatch.setenv(BATCH.variable, str(20 << 20))
    predictor = Wide()
    found = decoded(decoder, predictor, batch_size=2)
    assert [outcome.result for outcome in found] == [outcome.result for outcome in expected]
    assert max(predictor.asked) == SIZE - 1, "one of the hypotheses is finished"


def test_rows_that_share_their_memory_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BATCH.variable, LIMIT)
    outcomes = decoded(BeamDecoder(size=SIZE), Wide(repeated=True))
    assert [outcome.error for outcome in outcomes] == [None, None]


def test_sums_are_checked_where_no_predictor_has_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BATCH.variable, LIMIT)
    for outcome in decoded(BeamDecoder(size=SIZE, stop="full"), Bonus({3: 0.5, 4: -0.5, 2: -99.0})):
        assert str(outcome.error).startswith("the combined scores of 1,100 prefixes need 34.4 MiB, but ")


@pytest.mark.slow
def test_children_are_checked_before_they_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BATCH.variable, LIMIT)
    for outcome in decoded(BeamDecoder(size=60_000), Wide(), max_rows=256):
        assert "children of beams need 22.9 MiB, but SGDEC_MAX_BATCH_BYTES allows 12.0 MiB" in str(outcome.error)


@pytest.mark.parametrize("all_ends", [False, True])
def test_a_beam_in_many_batches_keeps_no_more_children_than_twice_its_size(all_ends: bool) -> None:
    constellation = Constellation.of({"a": Wide(), "b": Bonus({2: 5.0})}, vocab_size=V)
    (root,) = constellation.roots(SOURCES[:1])
    choice = Choice(50, 50, all_ends=all_ends)
    shared = choice, False, None, False
    (beam,) = constellation.perform(Request("best", [root], shared=shared))
    request = Request("best", [node for node in beam if not node.finished], shared=shared)
    (whole,), (pieces,) = (answer(constellation.perform, [request], rows) for rows in (None, 1))
    best = [
        sorted(((node.total, node.tokens) for family in found for node in family), reverse=True)[:50]
        for found in (whole, pieces)
    ]
    assert best[0] == best[1]
    assert len(pieces) == len(request.nodes)
    assert sum(map(len, pieces)) <= 2 * choice.size + all_ends * len(beam)


# Allocators that refuse.


class Refused(Wide):
    """Its allocator refuses batches of more than one row; such batches take a large array first."""

    def __init__(self, error: Exception, most: int) -> None:
        super().__init__()
        self._error = error
        self._most = most
        self.held: list[weakref.ref[Any]] = []

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        assert not any(array() is not None for array in self.held), "memory of a batch that failed is still held"
        found = super().predict_batch(states, candidates)
        if len(states) > self._most:
            large = np.zeros((len(states), V))
            self.held.append(weakref.ref(large))
            raise type(self._error)(*self._error.args)
        return found


ERRORS = [
    MemoryError("Unable to allocate 9.31 GiB for an array"),
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nGPU 0 has 1 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("decoder", [BeamDecoder(size=3), VanillaDecoder(size=3)], ids=["beam", "vanilla"])
def test_a_refused_allocation_is_one_line_and_leaves_nothing_behind(
    error: Exception, batch_size: int, decoder: Decoder
) -> None:
    gc.disable()  # what is held by circles must be let go, too
    try:
        outcomes = decoded(decoder, Refused(error, 2), batch_size=batch_size)
    finally:
        gc.enable()
    for outcome in outcomes:
        assert isinstance(outcome.error, SgdecError)
        text = str(outcome.error)
        assert text.startswith("predictor 'p0': out of memory (") and "--max-rows" in text and "\n" not in text
        assert str(error).partition(".")[0] in text


def test_a_refused_allocation_of_the_search_is_one_line_too() -> None:
    class Hungry(Decoder):
        def decode(self, space: Any) -> Result:
            raise MemoryError("Unable to allocate 1 TiB")

    for batch_size in (1, 2):
        for outcome in decoded(Hungry(), Wide(), batch_size=batch_size):
            assert isinstance(outcome.error, SgdecError)
            assert str(outcome.error).startswith("out of memory (Unable to allocate 1 TiB). Use a smaller beam")


# The memory that is available.

MEMINFO = "MemTotal: 24000000 kB\nMemFree: 1000 kB\nMemAvailable: 2048 kB\nSwapFree: 1024 kB\nHugePages_Total: 0\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 3 << 20),
        ({"memory.max": "max\n", "memory.current": "7\n", "memory.stat": "anon 5\n"}, 3 << 20),
        ({"memory.max": "1000\n", "memory.current": "900\n", "memory.stat": "active_file 50\n"}, 150 + (1 << 20)),
        ({"memory.max": "1000\n", "memory.current": "9000\n", "memory.stat": "anon 50\n"}, 1 << 20),
        ({"memory.max": "9999999999\n", "memory.current": "0\n", "memory.stat": ""}, 3 << 20),
    ],
)
def test_available_is_what_the_system_and_the_container_leave(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    assert memory.available() == expected


@pytest.mark.parametrize("text", [None, "", "MemFree: 3 kB\n", "MemAvailable: many\n"])
def test_without_a_number_nothing_is_refused(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "meminfo")
    assert memory.available() is None
    memory.require_room(1 << 40, 1 << 20, "the", "rows")


def test_the_memory_of_the_machine_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 64 << 20)
    memory.require_room(64, 1 << 20, "the", "rows")
    with pytest.raises(SgdecError, match=r"^the 65 rows need 65.0 MiB, but there is room for 64.0 MiB\. .* 32\.$"):
        memory.require_room(65, 1 << 20, "the", "rows")

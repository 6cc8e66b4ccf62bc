"""The simulated corpus agrees with formulas wherever there are any."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.corpus.checking import lines_of
from sgdec.corpus.engine import Done, Engine, Event, Job, Limits, Task
from sgdec.corpus.leases import Leases
from sgdec.corpus.manifest import existing_manifest
from sgdec.corpus.results import ChunkResult, publish_result
from sgdec.corpus.starter import Starter
from sgdec.corpus.stores import FolderStore
from sgdec.io.limits import DOCUMENT, Limit
from tests.helpers.corpora import write_corpus
from tests.helpers.places import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from corpus_costs import CLAIM, PUBLISH, RESCAN, SETTLE, SKIP, Costs
from corpus_model import Case, Simulation, lost, run, young
from corpus_simulation import main

FREE = Costs(line=1.0, load=0.0, operation=0.0, sync=0.0, message=0.0)
EQUAL = Case(costs=FREE, failures=0.0, starter_failures=0.0, spread=0.0, slow=0.0, leapfrog=False)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 6), st.integers(1, 3), st.integers(0, 2))
@settings(deadline=None)
def test_without_failures_and_costs_it_is_waves_of_chunks(
    chunks: int, workers: int, chunk: int, starters: int, ahead: int
) -> None:
    case = replace(
        EQUAL, lines=chunks * chunk, chunk=chunk, workers=workers, starters=min(starters, workers), ahead=ahead,
        costs=replace(FREE, load=7.0),
    )  # fmt: skip
    ran = run(case)
    waves = math.ceil(chunks / workers)
    if ahead and starters > 1:  # a chunk that waits at one worker is not given to another
        assert 7 + waves * chunk <= ran.seconds <= 7 + (waves + ahead) * chunk
    else:
        assert ran.seconds <= 7 + (waves + ahead) * chunk
        assert ahead or ran.seconds == 7 + waves * chunk
    assert ran.wasted == 0 and ran.ideal == pytest.approx(chunks * chunk / workers)


def test_the_last_chunk_may_be_shorter() -> None:
    assert run(replace(EQUAL, lines=25, chunk=10, workers=1)).seconds == 25


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.1, 1.0, 2.0])
def test_losses_are_those_of_the_exponential_formula(ratio: float) -> None:
    """A chunk of T seconds that is done when no death falls into it: (e^(rate T) - 1) / rate seconds on average, and
    each death costs the loading of another process."""
    seconds = 100.0
    rate, chunks = ratio / seconds, round(4000 / math.expm1(ratio))
    costs = replace(FREE, load=30.0)
    case = replace(
        EQUAL, lines=chunks * 100, chunk=100, workers=1, failures=rate, splitting=False, costs=costs, ahead=0
    )
    ran = Simulation(case, case.chunks).run()
    expected = lost(seconds, rate)
    assert ran.wasted * case.lines / chunks == pytest.approx(expected, rel=0.1)
    deaths = math.expm1(ratio)
    assert ran.seconds / chunks == pytest.approx(seconds + expected + 30 * deaths, rel=0.1)


class Instant(Engine):
    """One worker that publishes at once."""

    def __init__(self, store: FolderStore) -> None:
        self._store, self._manifest = store, existing_manifest(store)
        self._done: list[Event] = []

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        pass

    def wanted(self) -> int:
        return 1 - len(self._done)

    def submit(self, task: Task) -> None:
        ids = lines_of(self._manifest, task)
        receipt = publish_result(self._store, task, ChunkResult(1, b"x\n", run=self._manifest.run, id=ids.start))
        self._done.append(Done("1.1", task, receipt))

    def events(self, seconds: float) -> list[Event]:
        found, self._done = self._done, []
        return found

    def close(self) -> None:
        pass


class Counting(FolderStore):
    """Counts operations of the file system as `corpus_costs` does: a new file takes seven, another content six."""

    count = 0

    def create(self, name: str, data: bytes) -> bool:
        new = super().create(name, data)
        self.count += 7 if new else 1
        return new

    def write(self, name: str, data: bytes) -> None:
        self.count += 6
        super().write(name, data)

    def read(self, name: str, limit: Limit = DOCUMENT) -> bytes | None:
        self.count += 1
        return super().read(name, limit)


def test_a_starter_does_the_operations_that_are_counted(tmp_path: Path) -> None:
    store, plain = Counting(str(tmp_path)), FolderStore(str(tmp_path))
    write_corpus(tmp_path, [1] * 10, done=[])
    manifest = existing_manifest(plain)
    other = Leases(plain)
    other.pulse()
    assert [other.claim(chunk) for chunk in (0, 1, 2)] == ["mine"] * 3
    starter = Starter(store, manifest, Instant(plain), Leases(store), clock=lambda: 0.0)
    store.count = 0
    for _ in range(20):
        starter.step(0)
    assert starter.progress.chunks == 7
    assert store.count == 7 * (CLAIM.count + SETTLE.count) + 3 * SKIP.count
    for chunk in (0, 1, 2):
        other.settle(chunk, {})
    store.count = 0
    assert [Leases(store).claim(chunk) for chunk in (0, 1, 2)] == ["done"] * 3
    assert store.count == 3 * RESCAN.count


def test_chunks_are_handed_out_no_faster_than_one_thread_can() -> None:
    costs = replace(FREE, line=0.001, operation=0.25, sync=0.5, operations=1e6, message=0.125)
    ran = run(replace(EQUAL, lines=4000, chunk=10, workers=5, costs=costs))
    each = costs.seconds(CLAIM) + costs.seconds(SETTLE) + 0.125
    assert ran.seconds == pytest.approx(400 * each, rel=0.05) and ran.busy == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_storage_serves_no_more_operations_than_it_can() -> None:
    costs = replace(FREE, line=0.001, operation=0.1, sync=0.1, operations=100.0)
    ran = run(replace(EQUAL, lines=20_000, chunk=10, workers=200, starters=200, costs=costs))
    operations = CLAIM.count + SETTLE.count + PUBLISH.count
    assert ran.seconds == pytest.approx(2000 * operations / 100, rel=0.05)
    assert ran.storage == pytest.approx(1, abs=0.05)


def test_starters_at_different_places_pay_for_a_folder_of_others_once(tmp_path: Path) -> None:
    """Of 100 chunks that another starter has done since, one is claimed in vain; a list of their folder tells the
    rest."""
    store, plain = Counting(str(tmp_path)), FolderStore(str(tmp_path))
    write_corpus(tmp_path, [1] * 100, done=[])
    starter = Starter(store, existing_manifest(plain), Instant(plain), Leases(store), clock=lambda: 0.0)
    write_corpus(tmp_path, [1] * 100, done=range(100))
    store.count = 0
    starter.step(0)
    assert starter.finished and starter.progress.chunks == 100
    assert store.count <= SKIP.count + 2


def test_starters_begin_at_different_places(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    write_corpus(tmp_path, [1] * 500, done=[])
    firsts: list[str] = []
    for name in "abcdef":
        leases = Leases(store)
        leases.name = name
        leases.pulse()
        Starter(store, existing_manifest(store), Instant(store), leases).step(0)
        (first,) = set(store.names("results/000000")) - set(firsts)
        firsts.append(first)
    distances = [abs(int(one[:9]) - int(other[:9])) for one, other in pairwise(firsts)]
    assert firsts[0] == "000000000.zip" and min(distances) > 5


def test_starters_that_try_the_same_chunks_find_those_of_others_one_by_one() -> None:
    """Each starter claims one of ``starters`` chunks and skips the others, and looks at all of those once more."""
    costs = replace(FREE, line=0.001, operation=0.1, sync=0.1, operations=1e6)
    case = replace(EQUAL, lines=8000, chunk=10, workers=8, starters=4, costs=costs, leapfrog=True)
    own, others = 200, 600
    ran = run(case)
    each = own * (costs.seconds(CLAIM) + costs.seconds(SETTLE)) + costs.seconds(SKIP, others)
    assert ran.seconds == pytest.approx(each + costs.seconds(RESCAN, others), rel=0.05)
    assert run(replace(case, leapfrog=False)).seconds < ran.seconds / 1.5


def test_a_slow_worker_ends_last_with_the_chunk_that_waited_for_it() -> None:
    """Speeds 1/5, 1, 1, ...: the slow one begins its second chunk at 5 T, and ends it at 10 T."""
    case = replace(EQUAL, lines=90 * 10, chunk=10, workers=20, slow=0.05)
    assert run(case).seconds == 100
    assert run(replace(case, ahead=0)).seconds == 50


@pytest.mark.slow
@pytest.mark.parametrize("starters", [1, 4])
def test_what_is_left_out_is_extrapolated(starters: int) -> None:
    costs = Costs(operation=0.02, sync=0.02, operations=200.0, line=0.1)
    case = Case(
        lines=2_000_000, chunk=200, workers=50, starters=starters, costs=costs, starter_failures=0,
        failures=0.5 / 3600,
    )  # fmt: skip
    exact, estimated = run(case, most=case.chunks), run(case, most=2000)
    assert estimated.seconds == pytest.approx(exact.seconds, rel=0.02)
    assert estimated.busy == pytest.approx(exact.busy, rel=0.03)
    assert estimated.ideal == exact.ideal


@pytest.mark.slow
def test_a_dead_starter_loses_what_its_workers_had_and_the_corpus_is_complete() -> None:
    case = replace(
        EQUAL, lines=200_000, chunk=100, workers=20, starters=2, starter_failures=1 / 2000, patience=60, restart=300
    )
    found = [Simulation(replace(case, seed=seed), case.chunks).run() for seed in range(10)]
    deaths = 2 * sum(each.seconds for each in found) / (2000 + 300)
    lines = sum(each.wasted for each in found) * case.lines
    assert lines / deaths == pytest.approx(10 * 50, rel=0.3), "half of the chunk of each of its workers"


def test_a_chunk_that_takes_longer_than_machines_live_ends_only_because_it_is_split() -> None:
    case = replace(EQUAL, lines=8000, chunk=8000, workers=1, failures=1 / 1000)
    assert run(case).wasted < 3
    assert lost(8000, 1 / 1000) / 8000 > 300


@given(st.floats(0.01, 10), st.floats(1e-6, 1e-4))
def test_youngs_interval_costs_least(overhead: float, failures: float) -> None:
    def cost(seconds: float) -> float:
        return overhead / seconds + failures * seconds / 2

    best = young(overhead, failures)
    assert cost(best) <= min(cost(best * 1.1), cost(best / 1.1))


def test_equal_seeds_give_equal_runs() -> None:
    case = Case(lines=100_000, chunk=1000, workers=10, failures=1 / 3600)
    assert run(case) == run(case) != run(replace(case, seed=2))


@pytest.mark.slow
def test_the_script_runs_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.svg"
    main(["--tiny", "--plot", str(file)])
    assert file.read_text().startswith("<?xml")
    assert "fast storage, one starter (100,000 lines" in capsys.readouterr().out

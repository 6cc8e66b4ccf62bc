"""What all engines promise: tasks are done by workers that may die, hang or grow, and nothing is left at the end.

The engine ``ray`` works on a cluster of one or two nodes of one core.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from sgdec.corpus.engine import Advanced, Died, Done, Engine, Limits, Ready, Refused, Task
from sgdec.corpus.manifest import read_manifest
from sgdec.corpus.merging import merge
from sgdec.corpus.starting import Plan, start
from sgdec.corpus.stores import FolderStore
from sgdec.engines.local import Local
from sgdec.engines.ray import Ray
from tests.helpers.background import short_folder
from tests.helpers.engine_runs import MARK, corpus, gone, marked, ready, rows, started, until, work
from tests.helpers.freezing import FREEZE
from tests.helpers.trap import ABORT, BLOAT, KILL, SLOW

pytestmark = [pytest.mark.slow, pytest.mark.background]

WORKER = "sgdec.engines.process"
TEXT = [f"{number} 20" for number in range(3, 15)]
Made = Callable[..., Engine]


@pytest.fixture(scope="module", autouse=True)
def mark() -> Iterator[str]:
    """Marks all processes of this module, of which none is left at its end."""
    with pytest.MonkeyPatch.context() as patch:
        name = f"{os.getpid()}-{time.time()}"
        patch.setenv(MARK, name)
        yield name
    assert gone(name), marked(name, "")


@pytest.fixture(scope="module")
def cluster(mark: str) -> Iterator[Any]:
    """A cluster with one node of one core; this process is connected to it."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        Path(gettempdir(), "ray").mkdir(exist_ok=True)  # `Cluster` writes a file there, and does not make the folder
        node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        with short_folder() as folder:
            made = Cluster(initialize_head=True, head_node_args={**node, "temp_dir": str(folder)})
            made.node = node
            try:
                ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
                yield made
            finally:
                ray.shutdown()
                made.shutdown()


@pytest.fixture(params=["local", "ray"])
def make(request: pytest.FixtureRequest) -> Made:
    """Makes an engine; two workers fit on a core."""
    if request.param == "local":
        return Local
    request.getfixturevalue("cluster")
    return lambda **options: Ray(num_cpus=0.5, **options)


def test_all_tasks_are_done_and_no_worker_has_more_than_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Made, mark: str
) -> None:
    job = corpus(tmp_path, TEXT, 2)
    (tmp_path / "random.py").write_text("raise SystemExit('a file of the user, not the library')")
    monkeypatch.chdir(tmp_path)
    with started(make(ahead=1), job, workers=2) as engine:
        assert {event.worker for event in ready(engine, 2)} == {"1.1", "2.1"}
        assert engine.wanted() == 4
        engine.submit(Task(0))
        assert engine.wanted() == 3
        until(engine, lambda event: isinstance(event, Done))
        events = work(engine, [Task(chunk) for chunk in range(1, 6)])
        assert engine.wanted() == 4
        (again,) = (event for event in work(engine, [Task(3)]) if isinstance(event, Done))
        assert again.receipt is None  # the first result counts
    assert gone(mark, WORKER)
    done = [event for event in events if isinstance(event, Done)]
    assert sorted(event.task.chunk for event in done) == [1, 2, 3, 4, 5]
    assert all(event.receipt is not None and event.receipt.lines == 2 for event in done)
    assert [line for chunk in range(6) for line in rows(job, chunk)] == TEXT


def test_progress_is_told_within_a_task(tmp_path: Path, make: Made) -> None:
    job = corpus(tmp_path, [f"{number} {SLOW}" for number in range(3, 30)], 27)
    with started(make(), job) as engine:
        ready(engine)
        lines = [event.lines for event in work(engine, [Task(0)]) if isinstance(event, Advanced)]
    assert lines
    assert lines == sorted(set(lines))
    assert lines[0] < 27


@pytest.mark.parametrize(
    ("tokens", "seconds"), [((KILL, ABORT, BLOAT), 120.0), ((FREEZE,), 3.0)], ids=["deadly", "endless"]
)
def test_a_deadly_line_costs_one_worker_which_is_replaced(
    tmp_path: Path, make: Made, mark: str, tokens: tuple[int, ...], seconds: float
) -> None:
    """Each has seconds enough to take 400 MiB, or to do a line that is not deadly."""
    reasons = {
        KILL: "killed by SIGKILL",
        ABORT: "killed by SIGABRT",
        FREEZE: "finished no line in 3 s (--line-seconds)",
        BLOAT: "MiB of memory, more than 400 (--worker-memory)",
    }
    deadly = {token: reasons[token] for token in tokens}
    job = corpus(tmp_path, [*(f"3 {token}" for token in deadly), "4"], 1)
    last = Task(len(deadly))
    with started(make(ahead=1), job, limits=Limits(seconds, 400 << 20)) as engine:
        ready(engine)
        for deaths, reason in enumerate(deadly.values(), 1):
            engine.submit(Task(deaths - 1))
            engine.submit(last)
            *_, died = until(engine, lambda event: isinstance(event, Died))
            assert isinstance(died, Died)
            assert (died.worker, died.task) == (f"1.{deaths}", Task(deaths - 1))
            assert reason in died.reason and died.outside == ("SIGKILL" in reason)
            events = until(engine, lambda event: isinstance(event, Ready))
            assert [event.worker for event in events if isinstance(event, Ready)] == [f"1.{deaths + 1}"]
            if died.waiting:
                assert died.waiting == (last,)
            elif not any(isinstance(event, Done) for event in events):  # it came to an actor after the death
                until(engine, lambda event: isinstance(event, Done))
        work(engine, [last])
    assert gone(mark, WORKER)
    assert rows(job, last.chunk) == ["4"]


def test_a_worker_that_does_not_become_ready_is_killed_and_replaced(tmp_path: Path, make: Made, mark: str) -> None:
    (tmp_path / "hanging.py").write_text("import time\ntime.sleep(1000)\n")
    job = corpus(tmp_path, TEXT, 2, plugin_files=(str(tmp_path / "hanging.py"),))
    with started(make(), job, limits=Limits(load_seconds=1.0)) as engine:
        for generation in (1, 2):
            (died,) = (event for event in until(engine, lambda event: isinstance(event, Died)))
            assert died == Died(f"1.{generation}", None, "was not ready after 1 s (--load-seconds)")
    assert gone(mark, WORKER)


def test_tasks_given_while_a_worker_is_loading_again_are_done(tmp_path: Path, make: Made, mark: str) -> None:
    job = corpus(tmp_path, TEXT, 2)
    with started(make(), job) as engine:
        ready(engine)
        (worker,) = marked(mark, WORKER)
        os.kill(worker, signal.SIGKILL)
        engine.submit(Task(3))  # the engine may know of the death, or not
        events = until(engine, lambda event: isinstance(event, Died | Done))
        (died,) = (event for event in events if isinstance(event, Died))
        if Task(3) in (died.task, *died.waiting):
            engine.submit(Task(3))
        events = until(engine, lambda event: isinstance(event, Done))
        assert [event.task for event in events if isinstance(event, Done)] == [Task(3)]


def test_workers_end_at_once_while_native_code_holds_them(tmp_path: Path, make: Made, mark: str) -> None:
    job = corpus(tmp_path, [f"3 {FREEZE}"], 1)
    with started(make(), job) as engine:
        ready(engine)
        engine.submit(Task(0))
        engine.events(1.0)
        assert marked(mark, WORKER)
    assert not marked(mark, WORKER)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"options": {"freezing": {"twice": 1}}}, "no option --freezing.twice"),
        ({"token": "tokens/other"}, "worker 1.1 does not see {folder}/d: its file tokens/other is missing there"),
    ],
)
def test_a_run_that_cannot_work_is_refused_with_one_line(
    tmp_path: Path, make: Made, changed: dict[str, Any], reason: str
) -> None:
    with started(make(), corpus(tmp_path, TEXT, 6, **changed)) as engine:
        event = until(engine, lambda event: isinstance(event, Ready | Refused | Died))[0]
    assert isinstance(event, Refused)
    assert reason.format(folder=tmp_path) in event.reason
    assert "\n" not in event.reason
    assert event.exit_status == 2


def test_a_lost_node_costs_its_tasks_and_the_run_goes_on_with_the_others(
    tmp_path: Path, cluster: Any, caplog: pytest.LogCaptureFixture, mark: str
) -> None:
    """The merged output is the input, which the predictor copies: each line is in it once."""
    lines = [f"{number % 90 + 3} {SLOW}" for number in range(40)]
    (tmp_path / "run").mkdir()
    job = replace(corpus(tmp_path, lines, 5), store=str(tmp_path / "run"))
    second = cluster.add_node(**{name: value for name, value in cluster.node.items() if name != "include_dashboard"})
    workers: list[int] = []

    def shown(manifest: Any, progress: Any) -> None:
        if len(progress.by_worker) == 2 and not workers:
            workers.extend(marked(mark, WORKER))
            cluster.remove_node(second, allow_graceful=False)

    ended = start(Plan([str(tmp_path / "in.ids")], job, [], 5, 2, Ray(), Limits(), 60.0), shown)
    assert len(workers) == 2
    assert ended.complete
    assert ended.progress.deaths == 1
    (warning,) = (message for message in caplog.messages if "was lost with its Ray actor" in message)
    assert "node" in warning
    store = FolderStore(job.store)
    manifest = read_manifest(store)
    assert manifest is not None
    with open(tmp_path / "out", "wb") as out:
        assert merge(store, manifest, out, print) == 0
    assert (tmp_path / "out").read_text().splitlines() == lines

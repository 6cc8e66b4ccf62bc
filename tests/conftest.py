"""What all tests share: one thread, equal properties on every run, the data folder, and what saves time."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.helpers.breadth import EXHAUSTIVE, examples
from tests.helpers.distributions import Site
from tests.helpers.forked_commands import forked_commands
from tests.helpers.places import ROOT

PATHS = os.pathsep.join([str(ROOT), str(ROOT / "predictors"), str(ROOT / "decoders")])
"""The PYTHONPATH of this tree."""

SLOWEST = 10
"""The number of files whose times are printed at the end."""

PROGRAMS = pytest.StashKey[Path]()

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch

settings.register_profile("sgdec", max_examples=examples(25), deadline=None, derandomize=True, database=None)
settings.load_profile("sgdec")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: the garbage collector would look through all of it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each worker of xdist the programs of this session."""
    config = node.config
    if PROGRAMS not in config.stash:
        opened = ExitStack()
        config.stash[PROGRAMS] = opened.enter_context(forked_commands(PATHS))
        config.add_cleanup(opened.close)
    node.workerinput["programs"] = str(config.stash[PROGRAMS])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` leaves out what is marked ``exhaustive``."""
    if not EXHAUSTIVE:
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The files that take most of the time, fixtures included; a file's tests run one after the other."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > SLOWEST:
        total = sum(seconds.values())
        terminalreporter.write_sep("-", f"the {SLOWEST} slowest of {len(seconds)} files, {total:.0f} s in all")
        for name, spent in seconds.most_common(SLOWEST):
            terminalreporter.write_line(f"{spent:7.1f} s  {name}")


@pytest.fixture(scope="session", autouse=True)
def files_in_memory() -> Iterator[None]:
    """To wait for the disk protects files from a power failure only; tests write tens of thousands of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What sgdec keeps between runs is in a temporary folder, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder that holds data/ and cases/; the test is skipped if SGDEC_DATA does not name one."""
    if "SGDEC_DATA" not in os.environ:
        pytest.skip("SGDEC_DATA does not name the data folder")
    folder = Path(os.environ["SGDEC_DATA"])
    assert folder.is_dir(), f"SGDEC_DATA names {folder}, which is no folder"
    return folder


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Iterator[Path]:
    """The folder of `sgdec` and `python`. All workers share the process that forks: it takes seconds to start."""
    if hasattr(pytestconfig, "workerinput"):
        yield Path(pytestconfig.workerinput["programs"])
    else:
        with forked_commands(PATHS) as folder:
            yield folder


@pytest.fixture(scope="session")
def commands(programs: Path) -> dict[str, str]:
    """An environment in which `sgdec` and `python` are this tree's, and start fast."""
    return {**os.environ, "PYTHONPATH": PATHS, "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}


@pytest.fixture(scope="module", autouse=True)
def curves() -> Iterator[Callable[..., None] | None]:
    """Learning curves are empty files: to draw them takes most of the time of a tiny run. The value draws them."""
    report = sys.modules.get("sgdec.training.run.report")
    if report is None:
        yield None
        return
    from tests.helpers.empty_curves import leave_empty

    draw = report.draw_curve
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "draw_curve", leave_empty)
        yield draw


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder on ``sys.path``; what was imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("SGDEC_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    loaded = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - loaded:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]

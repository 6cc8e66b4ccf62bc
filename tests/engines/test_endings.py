"""The end of a starter is the end of its workers, and of the cluster that was started for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.helpers.background import short_folder
from tests.helpers.engine_runs import PLUGIN, descendants, lives
from tests.helpers.freezing import FREEZE
from tests.helpers.places import ROOT
from tests.helpers.trap import SLOW

pytestmark = [pytest.mark.slow, pytest.mark.background]

LISTEN = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Processes of Ray that end by themselves, but a minute after their raylet, if that was killed."""


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The folder of temporary files, whose name leaves no room for sockets, and the one that has room."""
    with short_folder() as folder:
        places = [folder / "long" / ("e" * 60), folder / "short"]
        for variable, place in zip(("TMPDIR", "XDG_RUNTIME_DIR"), places, strict=True):
            place.mkdir(parents=True)
            monkeypatch.setenv(variable, str(place))
        yield places


def listening(processes: list[int]) -> set[str]:
    """The addresses on which processes listen (Linux)."""
    theirs = set()
    for process in processes:
        for file in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):  # it has been closed, or the process has ended
                theirs.add(os.readlink(file))
    found = set()
    for table in ("tcp", "tcp6"):
        for _, local, _, state, *_, inode in (
            line.split()[:10] for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        ):
            if state == LISTEN and f"socket:[{inode}]" in theirs:
                words = bytes.fromhex(local.partition(":")[0])  # each four bytes in reverse
                address = ip_address(b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4)))
                found.add(str(getattr(address, "ipv4_mapped", None) or address))
    return found


@pytest.mark.parametrize(("engine", "killed"), [("local", True), ("ray", True), ("ray", False)])
def test_all_processes_end_with_their_starter(
    tmp_path: Path, places: list[Path], engine: str, killed: bool
) -> None:
    """They also do so if it is killed while native code holds a worker."""
    if engine == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
    lines = ["3 4", "5", *[f"6 {FREEZE if killed else SLOW}"] * 20]
    (tmp_path / "in.ids").write_text("".join(f"{line}\n" for line in lines))
    paths = [str(ROOT), str(ROOT / "predictors"), str(ROOT / "decoders"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "RAY_AUTH_MODE": "disabled"}
    command = [
        *("corpus", "in.ids", "--output", "d", "--chunk", "1", "--engine", engine, "--output-format", "ids", "--"),
        *("--predictors", "freezing", "--plugin-file", PLUGIN, "--input-format", "ids", "--decoder", "greedy"),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "sgdec.cli", *command], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as starter:  # fmt: skip
        limit = time.monotonic() + 120
        while len(list(tmp_path.glob("d/results/*/*.zip"))) < 2:
            assert time.monotonic() < limit and starter.poll() is None
            time.sleep(0.1)
        family = descendants(starter.pid)
        assert sum("sgdec.engines.process" in lives(process) for process in family) == 1
        assert listening(family) == ({"127.0.0.1"} if engine == "ray" else set())
        if killed:
            time.sleep(0.5)  # it has begun the line that never ends
            starter.send_signal(signal.SIGKILL)
            starter.wait()
        else:
            said, _ = starter.communicate(timeout=180)
            assert starter.returncode == 0, said
            assert [line.partition(":")[0] for line in said.splitlines()] == ["d", "d"], said
            assert not [file for place in places for file in place.iterdir()]
    limit = time.monotonic() + 30
    while left := [process for process in family if lives(process)]:
        if all(lives(process) in AGENTS for process in left):
            assert killed
            break
        assert time.monotonic() < limit, list(map(lives, left))
        time.sleep(0.1)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not [folder for place in places for folder in place.glob("sgdec-ray-*")]

"""Connecting to Ray: addresses that do not answer, and what needs no cluster."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from sgdec.engines import ray_clusters
from sgdec.engines.ray import Ray, _Host
from sgdec.engines.ray_clusters import Head, check_answer, import_ray
from sgdec.errors import SgdecError, UsageError
from sgdec.plugins.host import install_hint
from tests.helpers.background import short_folder
from tests.helpers.places import ROOT

pytestmark = pytest.mark.background


@contextmanager
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces `ray status` by a program."""
    return lambda code: monkeypatch.setattr(ray_clusters, "STATUS", (sys.executable, "-S", "-c", code))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken",
            "the cluster asks for a token. Set",
        ),
        ("Check failed: Ray couldn't find an authentication token.", "the cluster asks for a token. Set"),
        ("ConnectionError: Could not find any running Ray instance.", "no Ray cluster runs on this machine"),
        ("Trace\nRuntimeError: Version mismatch:\n here 1\n there 2\n", ": Version mismatch: here 1 there 2"),
        ("", "ray status ends with 1"),
    ],
)
def test_what_ray_status_says_is_one_line(status: Callable[[str], None], said: str, message: str) -> None:
    status(f"import sys; sys.exit({said!r} or 1)")
    with silent() as address:
        for where in (address, "auto"):
            with pytest.raises(UsageError, match=re.escape(message)) as caught:
                check_answer(where)
            assert "\n" not in str(caught.value)


def test_a_cluster_that_answers_ray_status_is_taken(status: Callable[[str], None]) -> None:
    with silent() as address:
        status(f"import sys; assert sys.argv[1:] == ['--address', '{address}']")
        check_answer(address)
    status("import sys; assert sys.argv[1:] == []")
    check_answer("auto")


def test_auto_takes_the_token_of_this_machine(status: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    status("import os, sys; 'RAY_AUTH_MODE' in os.environ or sys.exit('AuthenticationError: no')")
    check_answer("auto")
    with silent() as address, pytest.raises(UsageError, match="asks for a token"):
        check_answer(address)


@pytest.mark.parametrize("protocol", ["", "ray://"])
def test_a_silent_server_is_given_up_after_some_seconds(
    status: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    if protocol:
        pytest.importorskip("grpc", reason="grpcio is not installed")
    assert ray_clusters.ANSWER + ray_clusters.IMPORT == 15.0
    monkeypatch.setattr(ray_clusters, "ANSWER", 0.3)
    monkeypatch.setattr(ray_clusters, "IMPORT", 0.0)
    status("import time; time.sleep(100)")
    begun = time.monotonic()
    with silent() as address, pytest.raises(UsageError, match=f"{protocol}{address}: no Ray cluster answers there"):
        check_answer(protocol + address)
    assert time.monotonic() - begun < 5


def test_a_head_that_has_answered_and_stops_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_clusters, "PULSE", 0.01)
    with silent() as address:
        head = Head(address)
        head.check()
        monkeypatch.setattr(ray_clusters, "LOST", -1.0)
        head.check()  # it has looked just before, or it is there
    time.sleep(0.02)
    with pytest.raises(SgdecError, match=f"{address}, has not answered for") as caught:
        head.check()
    assert "\n" not in str(caught.value)
    Head(address).check()  # out of reach from the beginning


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "127.0.0.1:1: Connection refused. Does `ray status`"),
        ("nowhere.invalid:6379", "nowhere.invalid:6379: "),
        *((bad, "expected HOST:PORT") for bad in ("host", "http://a:1", "[::1:3", "a:99999", "")),
    ],
)
def test_an_address_without_a_server_is_one_clear_line(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        check_answer(address)
    assert "\n" not in str(caught.value)


def test_a_private_cluster_gets_a_token_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without one in the environment Ray would keep it in the home; every later `ray start` would then ask for it."""
    for name in (*ray_clusters.TOKENS, ray_clusters.LOOPBACK):
        monkeypatch.setenv(name, "")  # what the code sets ends with the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "chosen")
    ray_clusters._keep_private()
    assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    ray_clusters._keep_private()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert (os.environ["RAY_AUTH_MODE"], os.environ[ray_clusters.LOOPBACK]) == ("token", "0")


def test_the_folder_of_a_private_cluster_is_closed_to_others_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_clusters, "REMOVER", ray_clusters.REMOVER.replace("2", "0.01"))
    with ray_clusters._session_folder() as folder:
        os.makedirs(folder)
        above = Path(folder).parent
        assert above.stat().st_mode & 0o777 == 0o700
    assert not above.exists()
    with suppress(KeyboardInterrupt), ray_clusters._session_folder() as folder:
        os.makedirs(folder)
        raise KeyboardInterrupt
    assert not Path(folder).parent.exists()


def test_the_folder_of_a_private_cluster_has_room_for_its_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system says how long the path of a socket can be."""
    with short_folder() as folder:
        other = folder / "runtime"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
        chosen = []
        for place in [other, *(folder / ("t" * letters) for letters in range(1, 12))]:
            place.mkdir()
            monkeypatch.setattr(tempfile, "tempdir", str(place))
            made = Path(ray_clusters._short_folder())
            assert made.stat().st_mode & 0o777 == 0o700
            assert _has_room(made / ray_clusters.SOCKET)
            chosen.append(made.parent)
            if made.parent != place:
                assert made.parent == other and not list(place.iterdir())
                assert not _has_room(place / made.name / ray_clusters.SOCKET)
        assert chosen.count(other) in range(2, 11)


def _has_room(path: Path) -> bool:
    """Whether a socket can have this path."""
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(str(path))
        except OSError as error:
            assert "too long" in str(error)
            return False
    return True


def test_without_a_place_for_sockets_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ray_clusters, "LONGEST", 10)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"Set TMPDIR to such a folder, give the --ray.address of a") as caught:
        ray_clusters._short_folder()
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers are those of Linux")
def test_sigterm_ends_the_process_by_the_handler_that_ray_sets_in_python() -> None:
    def init(**given: object) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
        ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(1))  # natively: ignored

    before = signal.getsignal(signal.SIGTERM)
    try:
        ray_clusters._init(SimpleNamespace(init=init))
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_reports_have_their_own_thread_at_ray_addresses_too() -> None:
    """An option of the call would be refused there."""
    ray = pytest.importorskip("ray", reason="ray is not installed")

    @ray.method(concurrency_group="reports")
    def expected() -> None:
        pass

    assert {**vars(expected)}.items() <= vars(_Host.events).items()


def test_ray_accepts_the_cluster_file_of_the_guide() -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    import yaml
    from ray.autoscaler._private.util import prepare_config, validate_config

    found = re.search(r"```yaml\n(cluster_name.*?)```", (ROOT / "docs" / "howto" / "scale.md").read_text(), re.DOTALL)
    assert found is not None
    config = yaml.safe_load(found[1])
    validate_config(prepare_config(config))
    assert len(config["provider"]["worker_ips"]) == config["min_workers"] == config["max_workers"]
    assert all("\n" not in command for name, each in config.items() if "commands" in name for command in each)


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as caught:
        import_ray()
    assert str(caught.value) == f"the engine ray takes Ray, which is not installed{install_hint('ray')}."


def test_the_engine_imports_ray_only_when_it_starts() -> None:
    code = "import sys, sgdec.engines.ray as engine; engine.Ray(address='auto'); assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_closing_an_engine_that_was_never_started_does_nothing() -> None:
    Ray().close()

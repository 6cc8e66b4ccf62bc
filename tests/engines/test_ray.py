"""Connecting to Ray: addresses that do not answer, and what needs no cluster."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from sgdec.engines import ray_clusters
from sgdec.engines.ray import Ray, _Host
from sgdec.engines.ray_clusters import HELLO, check_answer, check_token, find_cluster, import_ray
from sgdec.errors import UsageError
from sgdec.plugins.host import install_hint
from tests.helpers.places import ROOT


@contextmanager
def serving(reply: Callable[[socket.socket], object]) -> Iterator[str]:
    """The address of a server that answers one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):  # the other side may have gone
                reply(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_server_that_speaks_http_2_is_taken_for_ray() -> None:
    settings = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9))
    got: list[bytes] = []

    def reply(connection: socket.socket) -> None:
        got.append(connection.recv(100))
        for at in range(0, len(settings), 4):
            connection.sendall(settings[at : at + 4])

    for protocol in ("", "ray://"):
        with serving(reply) as address:
            check_answer(protocol + address)
    assert got == [HELLO, HELLO]


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH", b""])
def test_another_service_is_refused(reply: bytes) -> None:
    with (
        serving(lambda connection: (connection.recv(100), connection.sendall(reply))) as address,
        pytest.raises(UsageError, match=f"--ray.address {address}: it is not Ray that answers there"),
    ):
        check_answer(address)


def test_a_silent_server_is_given_up_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ray_clusters.ANSWER == 10.0
    monkeypatch.setattr(ray_clusters, "ANSWER", 0.3)
    begun = time.monotonic()
    with serving(lambda connection: time.sleep(1)) as address, pytest.raises(UsageError, match="no answer in 0"):
        check_answer(address)
    assert time.monotonic() - begun < 5


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


def test_auto_is_the_cluster_of_the_environment_or_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_cluster("a:1") == "a:1"
    monkeypatch.setenv("RAY_ADDRESS", "ray://b:2")
    assert find_cluster("auto") == "ray://b:2"
    pytest.importorskip("ray", reason="ray is not installed")
    from ray._private import services

    def none(address: str) -> str:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(services, "canonicalize_bootstrap_address", none)
    with pytest.raises(UsageError, match="Start one with `ray start --head`"):
        find_cluster("auto")
    monkeypatch.setattr(services, "canonicalize_bootstrap_address", lambda address: "10.0.0.1:6379")
    assert find_cluster("auto") == "10.0.0.1:6379"


def test_a_cluster_that_asks_for_a_token_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    from ray import _raylet

    class AuthenticationError(Exception):
        pass

    def client(address: str) -> None:
        raise {"a:1": AuthenticationError(), "b:2": OSError()}[address]

    monkeypatch.setattr(_raylet, "GcsClient", client)
    with pytest.raises(UsageError, match=r"address auto: the cluster asks for a token\. Set RAY_AUTH_MODE=token"):
        check_token("a:1", "auto")
    check_token("b:2", "b:2")  # Ray reports all else


def test_a_private_cluster_leaves_no_token_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would write one, and every later `ray start` of the user would ask for it."""
    for name in ray_clusters.TOKENS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "chosen")
    with ray_clusters._started(SimpleNamespace(init=init, shutdown=init, cluster_resources=dict), 1, 0):
        assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")  # what the code sets ends with the test
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    with ray_clusters._started(SimpleNamespace(init=init, shutdown=init, cluster_resources=dict), 1, 0):
        assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def init(**given: object) -> None:
    """Of a Ray that does nothing."""


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

"""The cluster of Ray that a run works on: one that is there, or one of this machine that lasts as long as the run."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

from sgdec.errors import SgdecError, UsageError, one_line
from sgdec.plugins.host import install_hint

ANSWER = 10.0
"""Seconds in which an address has to answer."""
OBJECTS = 80 << 20
"""Bytes of the object store of a cluster of our own, about the least that Ray takes: nothing large travels."""
QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
TOKENS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""The variables by which a user decides about the token of clusters."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How HTTP/2 begins (RFC 9113, section 3.4), which Ray speaks: a preface, and a frame of settings, here none."""
FRAME, SETTINGS = 9, 4
"""The length of the head of a frame, and the type of the frame with which a server begins its answer."""
_NUMBER = re.compile(r"\t(class_name|actor_id|pid|name|namespace|ip): ")
"""A line of a message of Ray that only helps to find something in its logs."""


def cluster_at(address: str | None, cpus: int, gpus: float) -> ExitStack:
    """Connect to a cluster, or start one with ``cpus`` CPUs; leaving the context disconnects and stops it.

    A process that is connected to a cluster already stays so. Raises UsageError if the address does not answer, or if
    this machine has fewer than ``gpus`` GPUs, SgdecError if no cluster can be started.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ExitStack()
    _silence()
    return _started(ray, cpus, gpus) if address is None else _joined(ray, address)


def _silence() -> None:
    """Keep Ray's own messages from the terminal: those that matter are told by events."""
    from ray._private import worker

    logging.getLogger("ray").setLevel(logging.ERROR)
    worker._worker_logs_enabled = False  # what daemons say, at length; log_to_driver does not cover them


def _joined(ray: Any, address: str) -> ExitStack:
    with ExitStack() as stack:
        found = find_cluster(address)
        check_answer(found)
        here = address == "auto" and not os.environ.get("RAY_ADDRESS")
        if not here and "://" not in found:
            check_token(found, address)
        stack.callback(ray.shutdown)
        try:
            ray.init(address="auto" if here else found, **QUIET)  # for auto Ray uses the token of this machine
        except Exception as error:  # for other versions, a missing token...: each has a type of its own
            raise UsageError(f"--ray.address {address}: {reason_of(error)}") from None
        return stack.pop_all()


def _started(ray: Any, cpus: int, gpus: float) -> ExitStack:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not any(name in os.environ for name in TOKENS):  # Ray would keep one in the home, which changes `ray start`
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    with ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="sgdec-ray-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(ray.shutdown)
        small = {"include_dashboard": False, "object_store_memory": OBJECTS, "_temp_dir": folder}
        try:
            ray.init(address="local", num_cpus=cpus, **small, **QUIET)
        except Exception as error:
            raise SgdecError(f"Ray does not start on this machine: {reason_of(error)}.") from None
        if gpus > (found := ray.cluster_resources().get("GPU", 0)):
            raise UsageError(
                f"a worker takes {gpus:g} GPUs, and Ray finds {found:g} here. Give --device cpu, or the "
                "--ray.address of a cluster that has them."
            )
        return stack.pop_all()


def import_ray() -> Any:
    """Ray, which takes a second to import. Raises UsageError if it is not installed."""
    try:
        import ray
    except ModuleNotFoundError as error:
        hint = install_hint(error.name or "")
        raise UsageError(f"the engine ray takes Ray, which is not installed{hint}.") from None
    return ray


def find_cluster(address: str) -> str:
    """The address itself; for ``auto`` that of RAY_ADDRESS or of a cluster that runs on this machine.

    Raises UsageError if there is none.
    """
    if address != "auto":
        return address
    if given := os.environ.get("RAY_ADDRESS"):
        return given
    from ray._private.services import canonicalize_bootstrap_address  # ray.init would wait for one that has ended

    found = None
    with suppress(ConnectionError):
        found = canonicalize_bootstrap_address("auto")
    if found is None:
        raise UsageError(
            "--ray.address auto: no Ray cluster runs on this machine. Start one with `ray start --head`, give "
            "HOST:PORT, or leave the address out for a cluster that lasts as long as the run."
        )
    return str(found)


def check_answer(address: str) -> None:
    """Raises UsageError if no server answers at an address within `ANSWER` seconds; Ray itself waits for minutes."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.scheme not in ("", "ray"):
        raise UsageError(f"--ray.address {address}: expected HOST:PORT, ray://HOST:PORT or auto.")
    try:
        answer = _greeting(host, port)
    except OSError as error:
        why = f"no answer in {ANSWER:g} s" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise UsageError(
            f"--ray.address {address}: {why}. Does `ray status` show the cluster on its head, and is the port open?"
        ) from None
    if answer[3:4] != bytes((SETTINGS,)):
        raise UsageError(f"--ray.address {address}: it is not Ray that answers there.")


def check_token(cluster: str, address: str) -> None:
    """Raises UsageError if a cluster asks for a token; Ray itself would try for 20 s, and not say why it failed."""
    from ray import _raylet

    try:
        getattr(_raylet, "GcsClient")(address=cluster)  # noqa: B009 - its types are not declared
    except Exception as error:
        if type(error).__name__ == "AuthenticationError":  # Ray 2.50 does not have it
            raise UsageError(
                f"--ray.address {address}: the cluster asks for a token. Set RAY_AUTH_MODE=token, with the token of "
                "its head in ~/.ray/auth_token or RAY_AUTH_TOKEN."
            ) from None


def _greeting(host: str, port: int) -> bytes:
    """The head of the first frame that a server sends. Raises OSError."""
    end = time.monotonic() + ANSWER
    with socket.create_connection((host, port), ANSWER) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":  # then it is encrypted, and that it listens has to do
            return bytes((0, 0, 0, SETTINGS))
        connection.sendall(HELLO)
        answer = b""
        while len(answer) < FRAME:
            connection.settimeout(max(end - time.monotonic(), 0.001))
            if not (part := connection.recv(FRAME - len(answer))):
                break
            answer += part
        return answer


def reason_of(error: BaseException) -> str:
    """The gist of an error of Ray, whose messages have many lines, as one.

    >>> reason_of(Exception("The actor died.\\n\\tpid: 7\\nIts node has died. Some common causes include: (1)..."))
    'The actor died. Its node has died'
    >>> reason_of(Exception("ray::Host()\\n  File 'a.py', line 1\\nOSError: no memory"))
    'OSError: no memory'
    """
    text = str(error).partition("Some common causes include")[0]
    lines = [line.strip() for line in text.splitlines() if not _NUMBER.match(line)]
    traced = any(line.startswith("File ") for line in lines)
    return one_line(" ".join(lines[-1:] if traced else lines)).strip(" .") or type(error).__name__

"""The cluster of Ray that a run works on: one that is there, or one of this machine that lasts as long as the run."""

from __future__ import annotations

import logging
import math
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from sgdec.errors import SgdecError, UsageError, one_line
from sgdec.plugins.host import install_hint

ANSWER = 10.0
"""Seconds in which an address has to answer."""
IMPORT = 5.0
"""Seconds that the command `ray status` may take besides."""
PULSE = 5.0
"""Seconds between two looks at the head of a cluster, and those that it may take."""
LOST = 40.0
"""Seconds without the head after which a run ends. After 60 s Ray would end the process, with a line of its own."""
OBJECTS = 80 << 20
"""Bytes of the object store of a cluster of our own, about the least that Ray takes: nothing large travels."""
QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
TOKENS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""The variables by which a user decides about the token of clusters."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""The variable by which Ray listens on 127.0.0.1 only if it is 0, in spite of its name on all systems."""
STATUS = (sys.executable, "-P", "-m", "ray.scripts.scripts", "status")
"""The command ``ray status``, which need not be on the path."""
SOCKET = "s/session_2026-01-31_12-00-00_123456_4194304/sockets/plasma_store"
"""The longest path of a socket in the folder of a cluster."""
LONGEST = 103 if sys.platform == "darwin" else 107
"""The most bytes of the path of a socket."""
REMOVER = 'cat; sleep 2; rm -rf "$0"'
"""Waits for the end of its input, and for that of Ray's processes."""
_NO_TOKEN = re.compile("AuthenticationError|find an authentication token")
"""In the messages of Ray for a wrong token, and for none."""
_NUMBER = re.compile(r"\t(class_name|actor_id|pid|name|namespace|ip): ")
"""A line of a message of Ray that only helps to find something in its logs."""


def cluster_at(address: str | None, cpus: int, gpus: float) -> ExitStack:
    """Connect to a cluster, or start one with ``cpus`` CPUs; leaving the context disconnects and stops it.

    A process that is connected to a cluster already stays so. Raises UsageError if the address does not answer, or if
    this machine has fewer than ``gpus`` GPUs, SgdecError if no cluster can be started.
    """
    if address is None:
        _keep_private()
    ray = import_ray()
    if ray.is_initialized():
        return ExitStack()
    _silence()
    return _started(ray, cpus, gpus) if address is None else _joined(ray, address)


class Head:
    """The process of a cluster that knows all others, without which Ray's drivers end."""

    def __init__(self, address: str) -> None:
        """``address``: HOST:PORT. It may be out of reach if the cluster is one at ray://."""
        self._address = address
        self._asked = -math.inf
        self._heard = math.inf

    def check(self) -> None:
        """Look whether it still listens, unless that was done just before. Raises SgdecError if it no longer does."""
        if (now := time.monotonic()) - self._asked < PULSE:
            return
        self._asked = now
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PULSE).close()
            self._heard = now
        except OSError:
            if now - self._heard > LOST:
                raise SgdecError(
                    f"the head of the Ray cluster, {self._address}, has not answered for {LOST:g} s. Start the same "
                    "command again, on another cluster or with --engine local: it continues."
                ) from None


def _keep_private() -> None:
    """Let a cluster of our own listen on the loopback only, and ask for a token. Ray has to be imported after this.

    An imported Ray listens on all addresses. Without a token in the environment it would keep one in the home, which
    changes `ray start`.
    """
    os.environ[LOOPBACK] = "0"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not any(name in os.environ for name in TOKENS):
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _silence() -> None:
    """Keep Ray's own messages from the terminal: those that matter are told by events."""
    from ray._private import worker

    logging.getLogger("ray").setLevel(logging.ERROR)
    # No public option: a thread that every driver starts prints what raylets say of dead workers, whatever
    # log_to_driver is.
    worker._worker_logs_enabled = False


def _init(ray: Any, **how: Any) -> None:
    """As ``ray.init``, but silent, also at a later SIGTERM."""
    with warnings.catch_warnings(action="ignore"):  # some versions announce what later ones change
        ray.init(**how, **QUIET)
    with suppress(ValueError):  # only the main thread may set handlers
        # Ray's handler raises SystemExit; its native one, which is set later, prints a stack before that.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _joined(ray: Any, address: str) -> ExitStack:
    found = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
    check_answer(found)
    with ExitStack() as stack:
        stack.callback(ray.shutdown)
        try:
            _init(ray, address=found)
        except Exception as error:  # each has a type of its own
            raise UsageError(f"--ray.address {address}: {reason_of(error)}") from None
        return stack.pop_all()


def _started(ray: Any, cpus: int, gpus: float) -> ExitStack:
    with ExitStack() as stack:
        folder = stack.enter_context(_session_folder())
        stack.callback(ray.shutdown)
        small = {"include_dashboard": False, "object_store_memory": OBJECTS, "_temp_dir": folder}
        try:
            _init(ray, address="local", num_cpus=cpus, **small)
        except Exception as error:
            raise SgdecError(f"Ray does not start on this machine: {reason_of(error)}.") from None
        if gpus > (found := ray.cluster_resources().get("GPU", 0)):
            raise UsageError(
                f"a worker takes {gpus:g} GPUs, and Ray finds {found:g} here. Give --device cpu, or the "
                "--ray.address of a cluster that has them."
            )
        return stack.pop_all()


@contextmanager
def _session_folder() -> Iterator[str]:
    """A folder that is removed at the end, or by a process that outlives this one, if this one is killed.

    Raises UsageError without a POSIX shell, or without a place for the folder.
    """
    if shutil.which("sh") is None:
        raise UsageError(
            "the engine ray starts a cluster only where there is a POSIX shell (sh). Give the --ray.address of a "
            "cluster, or --engine local."
        )
    folder = _short_folder()
    with subprocess.Popen(
        ["sh", "-c", REMOVER, folder], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as remover:
        yield os.path.join(folder, "s")  # Ray lets all users write to it, and its sockets are in it
        shutil.rmtree(folder, ignore_errors=True)
        remover.kill()


def _short_folder() -> str:
    """A new folder that is closed to other users, with room for the names of sockets.

    It is among the temporary files, or if their folder has a long name, as on macOS, elsewhere. Raises UsageError if
    there is no such place.
    """
    for place in (None, os.environ.get("XDG_RUNTIME_DIR"), "/tmp"):
        with suppress(OSError):
            folder = tempfile.mkdtemp(prefix="sgdec-ray-", dir=place)
            if len(os.fsencode(os.path.join(folder, SOCKET))) <= LONGEST:
                return folder
            os.rmdir(folder)
    room = LONGEST - len(f"/sgdec-ray-12345678/{SOCKET}")
    raise UsageError(
        f"the engine ray puts sockets into a folder that can be written and has a name of at most {room} bytes. Set "
        "TMPDIR to such a folder, give the --ray.address of a cluster, or --engine local."
    )


def import_ray() -> Any:
    """Ray, which takes a second to import. Raises UsageError if it is not installed."""
    try:
        import ray
    except ModuleNotFoundError as error:
        hint = install_hint(error.name or "")
        raise UsageError(f"the engine ray takes Ray, which is not installed{hint}.") from None
    return ray


def check_answer(address: str) -> None:
    """Raises UsageError if no cluster answers at HOST:PORT, ray://HOST:PORT or auto, or if it asks for another token.

    Ray itself waits for minutes, prints what it tries, and may end the process.
    """
    if address == "auto":
        return _check_status(address)
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.scheme not in ("", "ray"):
        raise UsageError(f"--ray.address {address}: expected HOST:PORT, ray://HOST:PORT or auto.")
    try:
        socket.create_connection((host, port), ANSWER).close()
    except OSError as error:
        why = f"no answer in {ANSWER:g} s" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise _unanswered(address, why) from None
    if parts.scheme != "ray":
        _check_status(address)
    elif os.environ.get("RAY_USE_TLS", "0") == "0":  # otherwise it is encrypted, and that it listens has to do
        _check_client(address, parts.netloc)


def _check_status(address: str) -> None:
    """Look at a cluster by `ray status`."""
    said = _status(address)
    if _NO_TOKEN.search(said) and address == "auto" and "RAY_AUTH_MODE" not in os.environ:
        said = _status(address, RAY_AUTH_MODE="token")  # ray.init then uses the token of this machine, too
    if _NO_TOKEN.search(said):
        raise UsageError(
            f"--ray.address {address}: the cluster asks for a token. Set RAY_AUTH_MODE=token, with the token of "
            "its head in ~/.ray/auth_token or RAY_AUTH_TOKEN."
        )
    if "Could not find any running Ray" in said:
        raise UsageError(
            "--ray.address auto: no Ray cluster runs on this machine. Start one with `ray start --head`, give "
            "HOST:PORT, or leave the address out for a cluster that lasts as long as the run."
        )
    if said:
        raise UsageError(f"--ray.address {address}: {one_line(' '.join(said.rpartition('Error: ')[2].split()))}")


def _status(address: str, **environment: str) -> str:
    """The words of `ray status` if it fails; none if the cluster answers. Raises UsageError if no cluster does."""
    command = STATUS if address == "auto" else (*STATUS, "--address", address)
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
            encoding="utf-8", errors="replace", timeout=IMPORT + ANSWER,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _unanswered(address, "no Ray cluster answers there") from None
    return done.stderr.strip() or f"ray status ends with {done.returncode}" if done.returncode else ""


def _check_client(address: str, target: str) -> None:
    """Raises UsageError if no server of gRPC, which Ray's clients speak, answers."""
    try:
        import grpc
    except ModuleNotFoundError:  # ray.init says what to install
        return
    try:
        with grpc.insecure_channel(target) as channel:
            grpc.channel_ready_future(channel).result(timeout=ANSWER)
    except grpc.FutureTimeoutError:
        raise _unanswered(address, "no Ray cluster answers there") from None


def _unanswered(address: str, why: str) -> UsageError:
    return UsageError(
        f"--ray.address {address}: {why}. Does `ray status` show the cluster on its head, and is the port open?"
    )


def reason_of(error: BaseException) -> str:
    """The gist of an error of Ray, whose messages have many lines, as one.

    >>> reason_of(Exception("The actor died.\\n\\tpid: 7\\nIts node has died. Some common causes include: (1)..."))
    'The actor died. Its node has died'
    >>> reason_of(Exception("ray::Host()\\n  File 'a.py', line 1\\nOSError: no memory"))
    'OSError: no memory'
    >>> reason_of(Exception("The actor died in its creation task, ray::Host()\\n  ^^^^^\\nImportError: no sgdec"))
    'ImportError: no sgdec'
    """
    text = str(error).partition("Some common causes include")[0]
    lines = [line.strip() for line in text.splitlines() if not _NUMBER.match(line)]
    traced = any(line.startswith(("File ", "^^")) for line in lines)
    return one_line(" ".join(lines[-1:] if traced else lines)).strip(" .") or type(error).__name__

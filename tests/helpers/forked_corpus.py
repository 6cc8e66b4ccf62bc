"""Commands of ``sgdec``, among them starters of corpora with their workers, without the time that a start takes.

    with forked_starters(environment) as begin:
        process = begin(folder, "corpus", "in.ids", ...)
        out, err = process.communicate(120)

A process that has imported what they need forks for each command, and a starter forks for each worker. All of them
are processes of their own, with their own folder, limits, signals and standard streams, and a worker is in a session
of its own. That `sgdec` and its workers start as new interpreters is tested in tests/engines.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

PRELOADED = (
    "numpy", "sentencepiece", "kenlm", "pynini", "sgdec.cli.start", "sgdec.cli.main", "sgdec.cli.corpus",
    "sgdec.cli.corpus_merge", "sgdec.cli.decode", "sgdec.cli.score", "sgdec.cli.lm", "sgdec.cli.tokenizer",
    "sgdec.corpus.work", "sgdec.corpus.merging", "sgdec.engines.local", "sgdec.engines.process",
    "sgdec_decoders.greedy", "sgdec_decoders.beam", "sgdec_decoders.sample", "sgdec_predictors.ngram",
    "sgdec_predictors.wc",
)  # fmt: skip
"""Without torch: of memory that all have, only their own is to count."""
SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG in linux/prctl.h."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PACKET = 1 << 18


class Process:
    """A command, a child of the process that forks."""

    def __init__(
        self, server: socket.socket, ended: dict[int, int], request: dict[str, Any], out: int | None
    ) -> None:
        """``out``: a descriptor instead of a pipe for standard output."""
        self._server, self._ended = server, ended
        pipes = [os.pipe() if out is None else (None, out), os.pipe()]
        self._read = [read for read, _ in pipes]
        socket.send_fds(server, [json.dumps(request).encode("utf-8", "surrogateescape")], [end for _, end in pipes])
        for read, write in pipes:
            if read is not None:
                os.close(write)
        self.pid = self._hear("pid", 120)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, seconds: float) -> tuple[int, str, str]:
        """Wait for the end: exit status (negative: the signal), and what was written, which has to fit in pipes."""
        limit = time.monotonic() + seconds
        while self.pid not in self._ended:
            self._hear("status", limit - time.monotonic())
        said = []
        for read in self._read:
            if read is None:
                said.append("")
            else:
                with os.fdopen(read, encoding="utf-8", errors="surrogateescape") as pipe:
                    said.append(pipe.read())
        out, err = said
        return self._ended[self.pid], out, err

    def _hear(self, key: str, seconds: float) -> int:
        """The next message of this kind; those about ends are noted."""
        while True:
            self._server.settimeout(max(seconds, 0.01))
            message = json.loads(self._server.recv(PACKET))
            if "status" in message:
                self._ended[message["of"]] = message["status"]
            if key in message:
                return int(message[key])


Begin = Callable[..., Process]


@contextmanager
def forked_starters(environment: dict[str, str]) -> Iterator[Begin]:
    """Begins commands; ``limits``: of resources, by their numbers."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ended: dict[int, int] = {}

    def begin(folder: Path, *args: str, limits: dict[int, int] | None = None, out: int | None = None) -> Process:
        request = {"folder": str(folder), "args": args, "limits": list((limits or {}).items())}
        return Process(ours, ended, request, out)

    command = [sys.executable, "-m", "tests.helpers.forked_corpus", str(theirs.fileno())]
    server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()
    try:
        yield begin
    finally:
        ours.close()
        server.wait(60)


def serve(server: socket.socket) -> None:
    """Begin what is asked for, and tell what has ended, until nobody asks any more."""
    for module in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(module)
    assert "torch" not in sys.modules
    os.fsync = lambda _: None  # as in the process of the tests
    gc.collect()
    gc.freeze()
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    request, streams, _, _ = socket.recv_fds(server, PACKET, 2)
                    if not request:
                        return
                    child = os.fork()
                    if child == 0:
                        _run(json.loads(request.decode("utf-8", "surrogateescape")), streams)
                    for stream in streams:
                        os.close(stream)
                    selector.register(os.pidfd_open(child), selectors.EVENT_READ, child)
                    server.send(json.dumps({"pid": child}).encode())
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    status = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
                    server.send(json.dumps({"of": key.data, "status": status}).encode())


def _run(request: dict[str, Any], streams: list[int]) -> None:
    """One command, in this process; never returns."""
    from sgdec.cli.start import start
    from sgdec.engines import processes

    status: Any = 1
    try:
        _connect(os.open(os.devnull, os.O_RDONLY), *streams)
        os.chdir(request["folder"])
        for limit, most in request["limits"]:
            resource.setrlimit(limit, (most, most))
        processes.subprocess = Subprocess  # type: ignore[assignment]
        sys.argv = ["sgdec", *request["args"]]
        status = start()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _connect(*streams: int) -> None:
    """Make these the standard streams, and close all others."""
    kept = [os.dup(stream) for stream in streams]
    for number, stream in enumerate(kept):
        os.dup2(stream, number)
    os.closerange(3, 1 << 12)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)


class Worker:
    """What `sgdec.engines.processes` asks of `subprocess.Popen`, with a process that is forked from its starter."""

    def __init__(self, words: list[str], *, stderr: IO[bytes], env: dict[str, str], **_: Any) -> None:
        """``words``: of ``python -P -m sgdec.engines.process NAME``."""
        assert words[1:4] == ["-P", "-m", "sgdec.engines.process"]
        self.returncode: int | None = None
        orders, their_orders = os.pipe()
        their_answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _work(words[4], env, (orders, answers, stderr.fileno()))
        os.close(orders)
        os.close(answers)
        self.stdin = os.fdopen(their_orders, "w", encoding="utf-8")
        self.stdout = os.fdopen(their_answers, encoding="utf-8")

    def wait(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while self.returncode is None:
            process, status = os.waitpid(self.pid, os.WNOHANG)
            if process:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > limit:
                raise subprocess.TimeoutExpired("a worker", seconds)
            else:
                time.sleep(0.01)


def _work(name: str, environment: dict[str, str], streams: tuple[int, int, int]) -> None:
    """A worker, in this process; never returns."""
    from sgdec.engines.process import main

    status = 1
    try:
        os.setsid()
        _connect(*streams)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(environment)
        status = main(name)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


Subprocess = SimpleNamespace(Popen=Worker, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    serve(socket.socket(fileno=int(sys.argv[1])))

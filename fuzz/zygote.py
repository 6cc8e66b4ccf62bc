"""Runs commands, each in a separate process that starts in milliseconds: this one imports modules first and forks.

It reads one request per line of JSON, and writes one line as the answer. A child has the limits of `CPU_SECONDS`,
`WALL_SECONDS` and `MEMORY`. Neither its work nor a signal that ends it affects the next child.

The cases of a target differ in one file. So a *station* is forked for them: it runs the undamaged command in its own
process, which loads modules and fills caches, and then forks the cases. That halves their time. A process without
torch forks in a quarter of the time of one with torch.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

CPU_SECONDS = 10
"""The limit on the processor time of one command."""
WALL_SECONDS = 120
"""The limit on wall-clock time: a command that only waits uses no processor time. It is high because every command is
slow on a busy machine."""
MEMORY = 2 << 30
"""Bytes of address space that each process of a command may use beyond what is loaded, and of memory that all of them
may use together."""
LOOK_SECONDS = 0.25
"""The time between two looks at the memory of a command that has started processes."""
MOST_ERRORS = 1 << 20
"""Bytes of standard error that are kept."""
PATTERN_SECONDS, PATTERN_MEMORY = 1, 1 << 28
"""The limits of a process that compiles a pattern, in place of 8 seconds and 1.5 GiB, which many patterns reach."""
FILE_SIZE = 64 << 20
"""Bytes of one file that it may write."""


LIGHT = ("sgdec.cli.main", "sgdec.cli.decode", "sgdec.library", "numpy", "pynini", "kenlm", "sentencepiece")
"""The modules of commands that need no torch; others are imported in their stations."""


def preload(*, light: bool = False) -> None:
    """Import all modules that a command could import, including installed optional ones; or those of `LIGHT`."""
    if light:
        for name in LIGHT:
            with suppress(ImportError):
                importlib.import_module(name)
    else:
        _import_all()
    regex: Any = importlib.import_module("sgdec_predictors.regex")
    regex.SECONDS, regex.MEMORY = PATTERN_SECONDS, PATTERN_MEMORY
    threads = _settled()
    assert threads == 1, f"{threads} threads, and a fork copies only one"


def _import_all() -> None:
    for package in ("sgdec", "sgdec_predictors", "sgdec_decoders"):
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not found.name.startswith("sgdec.testing") and not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    for name in ("kenlm", "pynini", "safetensors.torch", "sacrebleu", "torch.utils.tensorboard", "matplotlib.pyplot",
                 "backports.zstd", "torch._dynamo", "transformers.models.auto", "transformers.generation",
                 "transformers.models.gpt2.modeling_gpt2", "transformers.models.gpt2.tokenization_gpt2",
                 "transformers.models.marian.tokenization_marian"):  # fmt: skip
        with suppress(ImportError):
            importlib.import_module(name)


def _settled() -> int:
    """The number of threads. What is loaded is left out of garbage collections, which would copy its memory."""
    gc.collect()
    gc.freeze()
    return len(os.listdir("/proc/self/task"))


def main() -> None:
    """Answer requests until standard input ends."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    preload(light="light" in sys.argv)
    print("{}", file=answers, flush=True)
    serve(requests, answers)


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more, or until the runner leaves this station."""
    _adopt_orphans()
    while line := requests.readline():
        request = json.loads(line)
        if request == "leave":
            return
        if request.pop("station"):
            _work_in_station(request, requests, answers)
            answer: dict[str, Any] = {"station": False}
        else:
            answer = run(request)
        print(json.dumps(answer), file=answers, flush=True)


def _work_in_station(request: dict[str, Any], requests: TextIO, answers: TextIO) -> None:
    """Let a station answer, until the runner leaves it.

    It ends at once if the command does not do its work, or leaves a thread, which a fork would lose.
    """
    station = os.fork()
    if station == 0:
        try:
            if _warmed(request):
                print(json.dumps({"station": True}), file=answers, flush=True)
                serve(requests, answers)
        finally:
            os._exit(0)
    os.waitpid(station, 0)


def _warmed(request: dict[str, Any]) -> bool:
    """Run an undamaged command in this process. Returns whether it did its work and left no thread."""
    kept = [(os.dup(number), number) for number in (0, 1, 2)]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _connect(request)
    status = _status(request["args"])
    os.chdir("/")
    for copy, number in kept:
        os.dup2(copy, number)
        os.close(copy)
    return status == 0 and _settled() == 1


def _adopt_orphans() -> None:
    """Make processes that outlive a command children of this process, so that it finds and ends them."""
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER in linux/prctl.h
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one command. ``status`` is negative after a signal, as in `subprocess`."""
    started = time.monotonic()
    err, written = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _become(request, written)
        finally:
            os._exit(99)
    os.close(written)
    ended, said, together = _wait(child, err, started + WALL_SECONDS)
    for process in _descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    with suppress(ChildProcessError):
        while True:  # what outlived the command
            os.wait()
    return {
        "err": said.decode("utf-8", "surrogateescape"),
        "status": os.waitstatus_to_exitcode(status),
        "waited": not ended,
        "cpu": used.ru_utime + used.ru_stime,
        "rss": max(used.ru_maxrss << 10, together),  # ru_maxrss: of the largest process, children included
        "seconds": time.monotonic() - started,
    }


def _wait(child: int, err: int, until: float) -> tuple[bool, bytes, int]:
    """Whether the command ended, its standard error, and the most memory that its processes used together.

    Standard error is not a file, because the simulated full disk would affect it.
    """
    said = []
    length = together = 0
    descriptor = os.pidfd_open(child)
    ended = False
    look = time.monotonic() + LOOK_SECONDS
    while not ended and (now := time.monotonic()) < until:
        if now > look:
            together = max(together, _memory(child))
            look = now + LOOK_SECONDS
        ready, _, _ = select.select([descriptor, err], [], [], max(0, min(look, until) - now))
        ended = descriptor in ready
        if err in ready and (data := os.read(err, 1 << 16)) and length < MOST_ERRORS:
            said.append(data)
            length += len(data)
    os.set_blocking(err, False)
    with suppress(BlockingIOError):
        while data := os.read(err, 1 << 16):
            said.append(data)
    os.close(err)
    os.close(descriptor)
    return ended, b"".join(said), together


def _memory(child: int) -> int:
    """Bytes that a command uses together with the processes that it has started; 0 if it has started none. Memory
    that processes share is divided among them."""
    processes = [child, *_descendants(child)]
    if len(processes) == 1:
        return 0
    kilobytes = 0
    for process in processes:
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            kilobytes += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return kilobytes << 10


def _descendants(process: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have started."""
    with suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            for child in Path(f"/proc/{process}/task/{task}/children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def _become(request: dict[str, Any], err: int) -> None:
    """Run the console script in the folder of the case; never returns."""
    os.setsid()
    os.dup2(err, 2)
    _connect(request)
    faulthandler.enable()
    faulthandler.register(signal.SIGXCPU, chain=True)
    for number in request["closed"]:
        os.close(number)
        setattr(sys, ("stdin", "stdout")[number], None)  # as Python does when it starts
    size = request["file_size"] or FILE_SIZE
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + MEMORY
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails, as on a full disk
    for limit, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, size, size),
        (resource.RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + 5),
        (resource.RLIMIT_AS, memory, memory),
    ):
        resource.setrlimit(limit, (soft, hard))
    status = _status(request["args"])
    with suppress(Exception):
        sys.stderr.flush()
    os._exit(status)


def _connect(request: dict[str, Any]) -> None:
    """Connect standard input and output with the files of a case, and go to its folder."""
    for path, flags, number in ((request["stdin"], os.O_RDONLY, 0), (request["stdout"], os.O_WRONLY | os.O_CREAT, 1)):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["folder"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the old one may have read ahead


def _status(args: list[str]) -> Any:
    """The exit status of the console script."""
    from sgdec.cli.main import main
    from sgdec.cli.streams import occupy_closed

    status: Any = 1
    try:
        occupy_closed()  # as sgdec.cli.start
        status = main(args)
        sys.stdout.flush()
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    return status


if __name__ == "__main__":
    main()

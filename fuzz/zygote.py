"""Runs commands, each in a separate process that starts in milliseconds: this one imports everything and forks.

It reads one request per line of JSON, and writes one line as the answer. A child has the limits of `CPU_SECONDS`,
`WALL_SECONDS` and `MEMORY`. Neither its work nor a signal that ends it affects the next child.
"""

from __future__ import annotations

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
from contextlib import suppress
from pathlib import Path
from typing import Any

CPU_SECONDS = 10
"""The limit on the processor time of one command."""
WALL_SECONDS = 120
"""The limit on wall-clock time: a command that only waits uses no processor time. It is high because every command is
slow on a busy machine."""
MEMORY = 2 << 30
"""Bytes of address space that a command may use beyond what is loaded."""
MOST_ERRORS = 1 << 20
"""Bytes of standard error that are kept."""
FILE_SIZE = 64 << 20
"""Bytes of one file that it may write."""


def preload() -> None:
    """Import all modules that a command could import, including installed optional ones."""
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
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads, and a fork copies only one"


def serve() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    preload()
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)


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
    ended, said = _wait(child, err, started + WALL_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and whatever it has started
    if not ended:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return {
        "err": said.decode("utf-8", "surrogateescape"),
        "status": os.waitstatus_to_exitcode(status),
        "waited": not ended,
        "cpu": used.ru_utime + used.ru_stime,
        "rss": used.ru_maxrss << 10,
        "seconds": time.monotonic() - started,
    }


def _wait(child: int, err: int, until: float) -> tuple[bool, bytes]:
    """Whether the command ended, and its standard error. This is not a file, because the simulated full disk would
    affect it."""
    said = []
    length = 0
    descriptor = os.pidfd_open(child)
    ended = False
    while not ended and (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor, err], [], [], left)
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
    return ended, b"".join(said)


def _become(request: dict[str, Any], err: int) -> None:
    """Run the console script in the folder of the case; never returns."""
    os.setsid()
    os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
    os.dup2(os.open(request["stdout"], os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(err, 2)
    os.chdir(request["folder"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - this process reads requests from the old one
    faulthandler.enable()
    faulthandler.register(signal.SIGXCPU, chain=True)
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
    from sgdec.cli.main import main

    status: Any = 1
    try:
        status = main(request["args"])
        sys.stdout.flush()
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    with suppress(Exception):
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()

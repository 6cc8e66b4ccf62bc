"""``sgdec`` and ``python`` for scripts, without the seconds that importing torch takes at each start.

One process imports large libraries and all modules of sgdec, and forks for each command of all workers of xdist. The
command then runs as in a new process: with its own arguments, folder, environment, limits and standard streams. What
a new process imports has tests of its own, in new processes. ``python`` with an option other than ``-c`` and ``-m``,
or with another PYTHONPATH, is a new process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import selectors
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.helpers.background import short_folder

LIBRARIES = ("torch", "torch._dynamo", "torch.utils.tensorboard", "matplotlib.pyplot", "numpy",
             "matplotlib.backends.backend_agg", "pydantic.dataclasses", "pydantic.type_adapter", "pluggy",
             "click.shell_completion", "safetensors.torch", "sacrebleu.tokenizers.tokenizer_13a", "sentencepiece",
             "greenlet", "pynini", "tokenizers", "transformers.generation.utils",
             "transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto")  # fmt: skip
PACKAGES = ("sgdec", "sgdec_predictors", "sgdec_decoders")
if hasattr(os, "pidfd_open"):  # Linux
    import resource

    LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
CLIENT = """#!{python} -SE
import marshal, os, resource, socket, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
plain = name == "sgdec" or words[:1] in (["-c"], ["-m"]) or words and not words[0].startswith("-")
if not plain or os.environ.get("PYTHONPATH") != {paths!r}:
    os.execv({python!r}, [{python!r}, *(["-m", "sgdec"] if name == "sgdec" else []), *words])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"x"], [0, 1, 2])
    limits = [resource.getrlimit(limit) for limit in {limits}]
    server.sendall(marshal.dumps([name, words, os.getcwd(), dict(os.environ), limits]))
    server.shutdown(socket.SHUT_WR)
    status = int(server.recv(10) or 1)
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextmanager
def forked_commands(paths: str) -> Iterator[Path]:
    """A folder for the front of PATH, with the programs ``sgdec`` and ``python``. ``paths``: their PYTHONPATH.

    The libraries are imported when the first command comes; commands that come meanwhile wait. Systems other than
    Linux get the programs of this environment, which take seconds to start.
    """
    if not hasattr(os, "pidfd_open"):
        yield Path(sys.executable).parent
        return
    with short_folder() as folder:
        address = str(folder / "socket")
        client = CLIENT.format(python=sys.executable, paths=paths, address=address, limits=LIMITS)
        for name in ("sgdec", "python"):
            (folder / name).write_text(client)
            (folder / name).chmod(0o755)
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen()
            command = [sys.executable, __file__, str(listening.fileno())]
            server = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                pass_fds=[listening.fileno()], process_group=0,
            )  # fmt: skip
        try:
            yield folder
        finally:
            server.kill()
            server.communicate()


def serve(listening: socket.socket) -> None:
    """Run commands until this process is killed."""
    with listening, selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.select()
        for library in (*LIBRARIES, *_modules()):
            with suppress(ImportError):
                importlib.import_module(library)
        gc.collect()
        gc.freeze()  # collections in commands then leave the memory that they share with this process alone
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    caller, _ = listening.accept()
                    command = os.fork()
                    if command == 0:
                        _close(selector)
                        os._exit(_answer(caller))
                    selector.register(os.pidfd_open(command), selectors.EVENT_READ, (command, caller))
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _report(*key.data)


def _modules() -> Iterator[str]:
    """The names of all modules of sgdec."""
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        names = (module.name for module in pkgutil.walk_packages(path, f"{package}."))
        yield from (name for name in names if not name.endswith("__main__"))


def _close(selector: selectors.BaseSelector) -> None:
    """In a new process: leave alone what belongs to the server and to other commands."""
    for key in [*selector.get_map().values()]:
        os.close(key.fd)
        if key.data is not None:
            key.data[1].close()
    selector.close()


def _report(command: int, caller: socket.socket) -> None:
    """Send the exit status of a command that has ended; negative = the signal that ended it."""
    _, ended = os.waitpid(command, 0)
    with caller, suppress(OSError):  # the caller may have been killed
        caller.send(str(os.waitstatus_to_exitcode(ended)).encode())


def _answer(caller: socket.socket) -> int:
    """Run the command that a caller asks for, with its standard streams."""
    with caller:
        _, streams, _, _ = socket.recv_fds(caller, 1, 3)
        request = b"".join(iter(lambda: caller.recv(1 << 16), b""))
    for stream, standard in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, standard)
        os.close(stream)
    return _run(*marshal.loads(request))


def _run(
    name: str, words: list[str], folder: str, environment: dict[str, str], limits: list[tuple[int, int]]
) -> int:
    """The exit status of one command, in this process."""
    for limit, (soft, hard) in zip(LIMITS, limits, strict=True):
        resource.setrlimit(limit, (soft, hard))
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        sys.dont_write_bytecode = True  # else Python keeps the part that fits, and later processes cannot import it
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status: Any = 0
    try:
        if name == "sgdec":
            sys.argv = [name, *words]
            runpy.run_module("sgdec", run_name="__main__", alter_sys=True)
        elif words[0] == "-m":
            sys.argv, sys.path[0], sys.modules["__main__"] = words[1:], os.getcwd(), ModuleType("__main__")
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        else:
            module = sys.modules["__main__"] = ModuleType("__main__")
            if words[0] == "-c":
                sys.argv, sys.path[0] = ["-c", *words[2:]], ""
                code = compile(words[1], "<string>", "exec")
            else:
                sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
                module.__file__ = os.path.join(folder, words[0])
                code = compile(Path(words[0]).read_bytes(), words[0], "exec")
            exec(code, vars(module))
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for written in (sys.stdout, sys.stderr):
        if not written.closed:
            written.flush()
    return int(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

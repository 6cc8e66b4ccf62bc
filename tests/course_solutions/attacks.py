"""Submissions that cheat or do harm: bodies of `decode` for assignment ``beam``, and what becomes of them.

None of them finds a hypothesis by searching, so an honest grader gives no point to any.
"""

from __future__ import annotations

from textwrap import indent
from typing import NamedTuple

FILE = '''
import sgdec
from sgdec import Decoder, Hypothesis, Result


class MyBeam(Decoder):
    def __init__(self, size=4, alpha=0.0):
        self.size = size

    def decode(self, space):
{body}
        return Result([])


@sgdec.hookimpl
def sgdec_decoders():
    return {{"mybeam": MyBeam}}
'''


class Attack(NamedTuple):
    """One attack."""

    name: str
    body: str
    outcome: str
    """Part of what the report says of each check, behind a boundary."""
    seconds: float = 2.0
    """The time of each check; less for an attack that uses all of it on a processor."""

    @property
    def text(self) -> str:
        """The submitted file."""
        return FILE.format(body=indent(self.body.strip(), " " * 8))


NOTHING = "found nothing"
"""What the checks of the tests say of an empty list: the attack has changed nothing."""
MIXED_UP = "something else wrote in the place of an answer"

ATTACKS = [
    Attack(
        "rewrites all objects that it can find",
        """
import gc, json, math
for thing in gc.get_objects():
    for name in ("failure", "points", "share", "checks", "test", "most", "_most"):
        try:
            if hasattr(thing, name):
                setattr(thing, name, None)
        except Exception:
            pass
math.isclose = lambda *_, **__: True
""",
        "",  # it can also end its own process
    ),
    Attack(
        "writes a report to all descriptors",
        """
import os
for descriptor in range(3, 256):
    try:
        os.write(descriptor, b'{"failure": null}\\n' * 12)
    except OSError:
        pass
""",
        MIXED_UP,
    ),
    Attack(
        "writes answers to all descriptors",
        """
import json, os
claim = {"tokens": [3], "score": 0.0, "rank_score": 0.0, "ledger": [[0.0], [0.0]], "weights": [[1.0], [1.0]]}
lines = [{"number": n, "result": {"hypotheses": [claim], "proven": True, "gap": None}} for n in range(30)]
for descriptor in range(3, 256):
    try:
        os.write(descriptor, "".join(json.dumps(line) + "\\n" for line in lines).encode())
    except OSError:
        pass
""",
        MIXED_UP,
    ),
    Attack(
        "writes a pickle to all descriptors",
        """
import os, pickle
class Run:
    def __reduce__(self):
        return os.system, ("touch /tmp/pickled",)
for descriptor in range(3, 256):
    try:
        os.write(descriptor, pickle.dumps(Run()) + b"\\n")
    except OSError:
        pass
""",
        MIXED_UP,
    ),
    Attack("prints a report", "print('beam: 20 of 20 points', flush=True)", NOTHING),
    Attack(
        "raises a report",
        r"raise sgdec.SgdecError('\x1b[2J\nbeam: 20 of 20 points\r\n' + 'x' * 100_000)",
        "[2J beam: 20 of 20 points xxx",  # within the line of the failure, without moving a cursor
    ),
    Attack(
        "claims a perfect score",
        "return Result([Hypothesis((3,), 0.0, 0.0, ((0.0,), (0.0,)), ((1.0,), (1.0,)))], proven=True)",
        "found (3,) with 0.000",
    ),
    Attack(
        "takes over the program that answers",
        """
import sys
answerer = sys.modules["inside.answerer"].Answerer
said = {"hypotheses": [], "proven": True, "gap": None}
answerer.answer = lambda *_: {"it": 0, "result": said, "ranking": {}, "exact": True, "ranks_by": "score"}
""",
        NOTHING,
    ),
    Attack("ends its process", "import os\nos._exit(0)", "the process died (exit status 0)"),
    Attack(
        "answers from two processes",
        "import os\nif os.fork() == 0:\n    return Result([])",
        "",  # whichever comes first: the same answer, or one too many
    ),
    Attack(
        "forks as often as it can",
        """
import os, time
for _ in range(1000):
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        break
else:
    raise RuntimeError("a thousand processes")
""",
        NOTHING,
    ),
    Attack(
        "leaves processes in sessions of their own",
        """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(1000)
        os._exit(0)
""",
        NOTHING,
    ),
    Attack(
        "leaves processes whose first thread has ended",
        """
import ctypes, os, threading, time
exit_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
if os.fork() == 0:
    os.setsid()
    threading.Thread(target=time.sleep, args=[1000]).start()
    ctypes.CDLL(None).syscall(exit_thread, 0)
time.sleep(0.3)
""",
        NOTHING,
    ),
    Attack(
        "stops the process that ends its processes",
        """
import os, time
if os.fork() == 0:
    while True:
        try:
            os.kill(-1, 19)
        except OSError:
            pass
time.sleep(0.3)
""",
        "no end after 1 seconds",  # it has stopped itself too
        1.0,
    ),
    Attack("kills the grader", "import os\nos.kill(GRADER, 9)", "Error: [Errno"),
    Attack(
        "traces the grader",
        """
import ctypes, os
if ctypes.CDLL(None).ptrace(0x4206, GRADER, None, None) != 0:
    raise OSError("no tracing")
""",
        "OSError: no tracing",
    ),
    Attack("reads the checks", "open(COURSE + '/beam/checks.py').read()", "FileNotFoundError"),
    Attack("reads other processes", "open(f'/proc/{GRADER}/environ').read()", "FileNotFoundError"),
    Attack(
        "imports the reference by a computed name",
        "return __import__('sgdec_' + 'decoders.beam', fromlist=['x']).BeamDecoder(self.size).decode(space)",
        "ModuleNotFoundError",
    ),
    Attack(
        "runs the reference from its file",
        """
import sys
sys.path[:0] = [DECODERS]
from sgdec_decoders.beam import BeamDecoder
return BeamDecoder(2).decode(space)
""",
        "ModuleNotFoundError",
    ),
    Attack("calls home", "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1)", "PermissionError"),
    Attack(
        "leaves memory behind",
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0, 1 << 20, 0o1600) < 0:  # IPC_PRIVATE, IPC_CREAT; segments outlive processes
    raise OSError(ctypes.get_errno(), "no shared memory")
""",
        "PermissionError: [Errno 1] no shared memory",
    ),
    Attack(
        "keeps memory that is in no process",
        "import os\nos.write(os.memfd_create('held'), b'x' * 100_000)",
        "PermissionError: [Errno 1]",
    ),
    Attack(
        "meets another submission at a socket",
        """
import ctypes
libc, pair = ctypes.CDLL(None, use_errno=True), (ctypes.c_int * 2)()
name = b"\\1\\0\\0meeting"  # AF_UNIX, and a name that is in no folder
if libc.socketpair(1, 2, 0, pair) < 0 or libc.bind(pair[0], name, len(name)) < 0:
    raise OSError(ctypes.get_errno(), "no socket")
""",
        "PermissionError: [Errno 1] no socket",
    ),
    Attack(
        "has rights in a namespace of its own",
        """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
child = libc.syscall(clone, 0x10000000 | 0x00020000 | 17, 0, 0, 0, 0)  # CLONE_NEWUSER, CLONE_NEWNS, SIGCHLD
if child == 0:
    os._exit(0)
if child < 0:
    raise OSError(ctypes.get_errno(), "no namespace")
""",
        "PermissionError: [Errno 1] no namespace",
    ),
    Attack("changes its own file", "open(__file__, 'w').write('')", "Error: [Errno"),
    Attack("changes the library", "open(sgdec.__file__, 'a').write('x = 1')", "Error: [Errno"),
    Attack("prints without end", "while True:\n    print('x' * 1_000_000)", "OSError: [Errno 27]"),
    Attack("takes memory without end", "b'x' * (1 << 40)", "MemoryError"),
    Attack("waits without end", "import time\ntime.sleep(1000)", "no end after 1 seconds (in decode)", 1.0),
    Attack("searches without end", "while True:\n    space.expand([space.root], 1)", "a search must end"),
    Attack("asks without end", "while True:\n    space.keys([space.root])", "no end after 0.5 seconds", 0.5),
    Attack(
        "asks for more than a pipe holds and never reads it",
        """
import os, time
for descriptor in range(3, 16):
    try:
        line = '{"number": 4, "needs": "keys", "with": {"nodes": ' + str([0] * 100_000) + '}}\\n'
        os.write(descriptor, line.encode())
    except OSError:
        pass
time.sleep(1000)
""",
        "no end after 1 seconds",
        1.0,
    ),
    Attack(
        "asks about more nodes than anyone can look up",
        "space._ask('keys', nodes=[0] * 200_000)",
        "a question about more than 100,000 nodes",
    ),
    Attack(
        "answers more than can be read",
        "return Result([Hypothesis(('x' * (17 << 20),), 0.0, 0.0)])",
        "an answer of more than 16 MiB",
    ),
    Attack(
        "answers with more hypotheses than anyone can check",
        "return Result([Hypothesis((), 0.0, 0.0)] * 20_000)",
        "a list of more than 10,000 hypotheses",
    ),
    Attack(
        "answers with a hypothesis that has no end",
        "return Result([Hypothesis((3,) * 50_000, 0.0, 0.0)])",
        "a hypothesis of more than 10,000 tokens",
    ),
    Attack(
        "asks for what does not exist",
        "space._ask('expand', nodes=[10**9], limit=1, above=0.0, bounded=False, lazy=False)",
        "expand was called with wrong arguments",
    ),
    Attack("calls another verb", "space._ask('_known', numbers=[0])", MIXED_UP),
]

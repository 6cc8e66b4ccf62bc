"""Makes the environment .venv and installs sgdec into it, as `make` asks.

    python3 install.py demo     what `sgdec demo` needs, and the commands of the README after it
    python3 install.py all      everything, for the tests, the documentation and the examples

The environment has the Python that runs this; one of another Python is made again. Does nothing if what is asked for
is there and the dependencies, their pinned versions and the entry points are the same. Prints a line at least every
five seconds. Older Pythons have to read this file to say that they are too old: its syntax is that of Python 3.6.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
DOWNLOADS = VENV / "downloads"
"""pip's temporary folder."""
INSTALLED = VENV / ".installed"
"""Has the parts that are installed, and the hash of the files that determine them."""
SIZES = {
    "demo": "the demo needs: 280 MB to fetch, 1.0 GB installed (PyTorch: 190 MB, 750 MB)",
    "all": "tests, documentation and examples need: 700 MB to fetch, 2.8 GB installed (the demo: 280 MB, 1.0 GB)",
}
"""What the parts are for, and how large they are, on Linux."""
PERIOD = 5.0
"""Seconds between two lines."""
LARGE = re.compile(r"^ *Downloading .*\(.* [MG]B\)$")
"""A line of pip about a file of a megabyte or more."""


def main(part: str) -> int:
    if sys.version_info < OLDEST:
        older = "{} is Python {}.{}".format(sys.executable, *sys.version_info)
        sys.stderr.write(f"sgdec needs Python 3.11 or newer, but {older}. Name one: make demo PYTHON=python3.11\n")
        return 1
    if not is_of_this_python():
        print(f"Making .venv with Python {sys.version.split()[0]}.", flush=True)
        status = run(sys.executable, "-m", "venv", "--clear", str(VENV))
        if status:
            return status
    texts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    state = hashlib.sha256(b"".join(texts)).hexdigest()
    there = INSTALLED.read_text().split() if INSTALLED.exists() else []
    if state in there and part in there:
        return 0
    INSTALLED.unlink(missing_ok=True)
    print(f"Installing into .venv what {SIZES[part]}.", flush=True)
    if sys.platform == "linux" and "PIP_EXTRA_INDEX_URL" not in os.environ:
        print("CUDA is gigabytes more, unless pip finds PyTorch's build for the CPU (README, Install).", flush=True)
    status = install_demo() if part == "demo" else install_all()
    if status == 0:
        INSTALLED.write_text(f"{state} demo" if part == "demo" else f"{state} demo all")
    return status


def is_of_this_python() -> bool:
    """Whether .venv is an environment of the Python that runs this, and has pip."""
    pip = VENV / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages" / "pip"
    return os.path.realpath(PYTHON) == os.path.realpath(sys.executable) and pip.is_dir()


def install_demo() -> int:
    """Modules are compiled when they are first imported, which are a part of all: that takes a third less time."""
    return pip("--no-compile", "-c", "constraints.txt", "-e", ".[nmt,constraints]")


def install_all() -> int:
    """Of g2p-en only the weights and a list of words are used, so what it depends on is left out. kenlm comes last,
    because it has to be compiled, which sgdec can do without."""
    status = pip("-c", "constraints.txt", "-e", ".[all,test,docs]") or pip("--no-deps", "g2p-en==2.1.0")
    if status:
        return status
    without = "sgdec does without; tests that compare with it are skipped."
    if pip("-c", "constraints.txt", "kenlm", quiet=True):
        print(f"kenlm was not installed, which needs a C++ compiler and cmake. {without}")
    if subprocess.run([PYTHON, "-c", "import pynini"], stderr=subprocess.DEVNULL).returncode:
        print(f"pynini was not installed, which has no wheel for this system. {without}")
    return 0


def pip(*arguments: str, quiet: bool = False) -> int:
    """Install. Returns pip's exit status."""
    DOWNLOADS.mkdir(exist_ok=True)
    words = ["-m", "pip", "install", "--disable-pip-version-check", *arguments]
    status = run(str(PYTHON), *words, quiet=quiet, TMPDIR=str(DOWNLOADS))
    shutil.rmtree(DOWNLOADS, ignore_errors=True)
    return status


def run(*command: str, quiet: bool = False, **variables: str) -> int:
    """Run a command, and report. Returns its exit status; its output is shown if it fails, unless it may."""
    errors = subprocess.DEVNULL if quiet else None
    environment = {**os.environ, **variables}
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        threading.Thread(target=report, args=(process, time.monotonic()), daemon=True).start()
        for line in process.stdout or ():
            lines.append(line)
            if LARGE.match(line):
                print(line.rstrip(), flush=True)
    if process.returncode and not quiet:
        print("".join(lines))
    return process.returncode


def report(process: "subprocess.Popen[str]", start: float) -> None:
    """Print a line in each period until the process ends."""
    due = start + PERIOD
    while True:
        try:
            process.wait(max(0.0, due - time.monotonic()))
            return
        except subprocess.TimeoutExpired:
            due = time.monotonic() + PERIOD  # to look at all files can take seconds
            fetched, total = megabytes(DOWNLOADS), megabytes(VENV)
            seconds = time.monotonic() - start
            print(f"  {seconds:4.0f} s: {fetched:,.0f} MB fetched, {total - fetched:,.0f} MB installed", flush=True)


def megabytes(folder: Path) -> float:
    """The size of the files in a folder, which may come and go."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total / 1e6


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)

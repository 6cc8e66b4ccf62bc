"""The signature that reproduces a run: versions, plugins, and parts with their options and a hash of each file.

    sgdec:0.1.0|numpy:2.1.0|predictors:1*nmt(model=run/best#0d3adf1b0c5e)|decoder:beam(size=4)|precision:fp32|...

The 12 digits after ``#`` are the start of a SHA-256 hash. It covers a file; a checkpoint's weights, config and
tokenizers; the same of a Hugging Face model; the names and contents of the files in any other folder; or the first
file of a pattern. An option's value
counts as a file if a file or folder of this name exists (`patterns.named`). In a checkout, the version ends with the
current commit and a hash of the source files, which also covers uncommitted changes. The version of a wheel that was
built between releases ends with its commit (``hatch_version.py``).
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.io import patterns
from sgdec.nesting import PluginSpec, configured
from sgdec.plugins.host import name_of, normal, spelled_alike

if TYPE_CHECKING:
    from sgdec.plugins.host import Entry

DIGITS = 12
LIBRARIES = ("numpy", "torch", "sentencepiece", "tokenizers", "transformers", "pynini", "kenlm", "llguidance")
"""The libraries that can affect numbers; a signature lists those that are loaded."""
SOURCES = ("sgdec", "predictors/sgdec_predictors", "decoders/sgdec_decoders")
"""The source folders of a checkout."""
CACHE = "cache"
"""The option for a folder that a plugin fills for later runs. What is in it changes no output, so it has no hash."""
COMMIT = re.compile(r"[0-9a-f]{40,64}")


def versions(third_parties: Iterable[Entry]) -> dict[str, str]:
    """The versions of sgdec, of the loaded libraries, and of third-party plugins."""
    import sgdec

    found = {"sgdec": _version_of(sgdec.__version__, _checkout(Path(sgdec.__file__).parent.parent))}
    found |= {name: _version(name) for name in LIBRARIES if name in sys.modules}
    plugins = dict.fromkeys(map(_plugin, third_parties))
    return found | ({"plugins": ",".join(plugins)} if plugins else {})


def part(name: str, plugin: Any, given: Mapping[str, Any], checked: Mapping[str, Any]) -> str:
    """A predictor or decoder as text: its name, and its options as they were ``given``, with the hashes of files.

    ``plugin``: ``NAME`` or ``NAME@DISTRIBUTION``, or a class or object. ``checked``: these options after conversion
    for the constructor, so that text differs from numbers.
    """
    said = {key: _value(key, value, checked.get(key)) for key, value in given.items() if key != "weight"}
    listed = ",".join(f"{key}={value}" for key, value in said.items())
    if not isinstance(plugin, str):
        cls = plugin if isinstance(plugin, type) else type(plugin)
        listed = listed if cls is plugin else "..."  # the constructor arguments of an object are unknown
        plugin = f"{cls.__module__}.{cls.__qualname__}{_source(cls)}"
    else:
        plugin = spelled_alike(plugin)
    called = plugin if name == name_of(plugin) else f"{name}={plugin}"
    return f"{called}({listed})" if listed else called


def _value(option: str, given: Any, checked: Any) -> str:
    """The value of an option with the hashes of files; a decoder inside another as a part of its own."""
    if isinstance(checked, PluginSpec):
        return part(checked.name, checked.plugin, checked.options, configured(checked))
    return f"{given}{'' if option == CACHE else hashes(checked)}"


def exact(number: float) -> str:
    """The shortest text that is read as this number.

    >>> exact(1.0), exact(-0.25), exact(0.123456789), exact(1234567.0)
    ('1', '-0.25', '0.123456789', '1234567')
    """
    return repr(float(number)).removesuffix(".0")


def line(signature: Mapping[str, str]) -> str:
    """Format a signature as one line.

    >>> line({"sgdec": "0.1.0", "seed": "0"})
    'sgdec:0.1.0|seed:0'
    """
    whole = "|".join(f"{name}:{value}" for name, value in signature.items())
    return whole.replace("\r", "\\r").replace("\n", "\\n")  # a regular expression can have several lines


def _source(cls: type[Any]) -> str:
    """``#`` and a hash of a class's source code; "" if the source is unavailable."""
    try:
        return f"#{hashlib.sha256(inspect.getsource(cls).encode()).hexdigest()[:DIGITS]}"
    except (OSError, TypeError):
        return ""


def hashes(value: Any, *, weights: bool = True) -> str:
    """``#`` and a hash for each file that a value names, in order; "" if it names no file.

    ``weights``: as for `digest`.
    """
    return "".join(f"#{digest(path, weights=weights)}" for path in patterns.named(value))


def digest(path: str | Path, *, weights: bool = True) -> str:
    """The hash of a file, a folder, or a pattern's first file; ``none`` if nothing can be read.

    A pipe is not read, because its data could not be read again. Without ``weights`` the weights of a Hugging Face
    model are left out.
    """
    if patterns.is_pattern(str(path)):
        numbers = patterns.numbers_of_files(str(path))
        return digest(patterns.path_of(str(path), numbers[0])) if numbers else "none"
    try:
        return _of_folder(Path(path), weights) if os.path.isdir(path) else _of_file(Path(path))[:DIGITS]
    except OSError:
        return "none"


def content_hash(path: str | Path) -> str | None:
    """The whole SHA-256 of a file; None for standard input and other inputs that cannot be read twice."""
    try:
        return None if str(path) == "-" else _of_file(Path(path))
    except OSError:
        return None


def _of_folder(folder: Path, weights: bool) -> str:
    whole = hashlib.sha256()
    for file in _members(folder, weights):
        whole.update(f"{file.name} {_of_file(file)}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()[:DIGITS]


def _members(folder: Path, weights: bool) -> Iterator[Path]:
    """The files of a folder to hash; for a run, a checkpoint or a Hugging Face model, only the files that a model is
    loaded from."""
    from sgdec.checkpoints import layout
    from sgdec.errors import SgdecError
    from sgdec.text import model_folder

    names: Sequence[str] = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    if model_folder.is_foreign(folder):
        tensors = [name for name in names if weights and name.endswith(".safetensors")]
        return (folder / name for name in sorted([*model_folder.text_files(folder), *tensors]))
    with contextlib.suppress(SgdecError):
        folder = layout.find_checkpoint(folder)
        names = [name for name in layout.LOADED if (folder / name).is_file()]
    return (folder / name for name in names)


def _of_file(path: Path) -> str:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("no file")
    return _content(str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _content(path: str, *_: int) -> str:
    """The SHA-256 of a file, cached. The arguments after the path change if the file does, so it is hashed again."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plugin(entry: Entry) -> str:
    """A distribution with its version, or a plugin file with its hash."""
    if os.path.isfile(entry.distribution):
        return f"{entry.distribution}#{digest(entry.distribution)}"
    return f"{normal(entry.distribution)}:{_version(entry.distribution)}"


@cache
def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _version_of(installed: str, checkout: str) -> str:
    """The version of sgdec with its commit. In a checkout the current one counts, not that of the installation.

    >>> _version_of("0.2.0.dev0+gfc6de18d89c7", "")
    '0.2.0.dev0+gfc6de18d89c7'
    >>> _version_of("0.2.0.dev0+gfc6de18d89c7", "+g1f8a82ea42eb.c53644cf45a9")
    '0.2.0.dev0+g1f8a82ea42eb.c53644cf45a9'
    """
    return installed.partition("+")[0] + checkout if checkout else installed


@cache
def _checkout(folder: Path) -> str:
    """``+gCOMMIT.SOURCE`` for a package in a checkout; "" for an installed package, whose version identifies it."""
    head = commit(folder)
    if head is None:
        return ""
    source = hashlib.sha256()
    for file in sorted(file for part in SOURCES for file in (folder / part).rglob("*.py")):
        source.update(f"{file.relative_to(folder).as_posix()}\n".encode() + file.read_bytes())
    return f"+g{head[:DIGITS]}.{source.hexdigest()[:DIGITS]}"


def commit(folder: Path) -> str | None:
    """The current commit of a checkout, read without calling git; None if ``folder`` is not a readable checkout."""
    git = folder / ".git"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if git.is_file():  # a worktree
            git = folder / git.read_text("utf-8").removeprefix("gitdir:").strip()
        shared = git / (git / "commondir").read_text("utf-8").strip() if (git / "commondir").is_file() else git
        head = (git / "HEAD").read_text("utf-8").strip()
        if head.startswith("ref: "):
            head = _ref(head.removeprefix("ref: "), git, shared)
        return head if COMMIT.fullmatch(head) else None
    return None


def _ref(name: str, git: Path, shared: Path) -> str:
    for folder in (git, shared):
        if (folder / name).is_file():
            return (folder / name).read_text("utf-8").strip()
    lines = (shared / "packed-refs").read_text("utf-8").splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")

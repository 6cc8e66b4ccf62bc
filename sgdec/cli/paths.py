"""The files that a command reads and writes: declared with its parameters, compared before any is opened.

A parameter that names a file or a folder has the type `Read` or `Written`. A `Command` (or a `Group`) refuses to run
if it would write a file that it reads: the same file by its name, a link or a pattern, or by the shell's redirection
of standard input and output. Nor does it begin if a parameter names a closed stream. Any value of a plugin's options
that names an existing file counts as read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from itertools import combinations
from typing import Any

import click

from sgdec.cli import streams
from sgdec.cli.sections import Sectioned
from sgdec.cli.values import refuse_lax_numbers, refuse_unfit
from sgdec.errors import UsageError
from sgdec.io import patterns
from sgdec.io.writing import descriptor_of

STREAMS = {0: "standard input", 1: "standard output", 2: "standard error"}
Identity = tuple[int, int]
"""Device and inode, which all links to one file share."""


class _PathType(click.Path):
    def __init__(self) -> None:
        super().__init__(allow_dash=True, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "\0" in str(value):
            self.fail(f"{value!r} is not a file name", param, ctx)
        return super().convert(_without_scheme(value), param, ctx)


class Read(_PathType):
    """A file or folder that the command reads; ``-`` is standard input, and a path with ``{id}`` is a pattern.

    ``default_stdin``: the command reads standard input if there is no value.
    """

    def __init__(self, *, default_stdin: bool = False) -> None:
        super().__init__()
        self.default_stdin = default_stdin


class Written(_PathType):
    """A file, a pattern or a folder that the command writes.

    ``beside`` returns the other files that are written with this one. If ``inside`` is given, the path is a folder,
    which may exist, and these are the names (or shell patterns of names) that the command writes there. With ``new``
    the path is a folder that must be new or empty.
    """

    def __init__(
        self,
        *,
        beside: Callable[[str], Iterable[str]] = lambda path: (),
        inside: Iterable[str] = (),
        new: bool = False,
    ) -> None:
        super().__init__()
        self.beside, self.inside, self.new = beside, tuple(inside), new


class _Guarded(Sectioned):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # then a shell asks for completions
            refuse_lax_numbers(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        refuse_unfit(ctx)
        refuse_closed(ctx)
        refuse_overwriting(ctx)
        if "logging" not in sys.modules:  # slow to import; a command that logs has imported it already
            return super().invoke(ctx)
        from sgdec.cli.console import console

        with console():
            return super().invoke(ctx)


class Command(_Guarded):
    """A command that never writes a file that it reads."""


class Group(_Guarded, click.Group):
    """A `Command` with subcommands."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def refuse_closed(ctx: click.Context) -> None:
    """Raises UsageError if a parameter of the command names standard input or output, and that is closed."""
    read, written = places(ctx)
    for place in [*read, *(place for place in written if place.path)]:
        number = place.descriptor if place.descriptor is not None else descriptor_of(place.path)
        if number in (0, 1) and streams.is_closed(number):
            streams.refuse(number)


def refuse_overwriting(ctx: click.Context) -> None:
    """Raises UsageError if the command would write what it reads, or two outputs are one file."""
    read, written = places(ctx)
    for output in written:
        for source in read:
            if output.is_where(source):
                raise UsageError(_overwritten(output, source))
    for one, other in combinations(written, 2):
        if one.is_where(other) and not (one.is_stream and other.is_stream) and one.flag != other.flag:
            raise UsageError(f"{one} and {other} are the same file. Write to two files.")


def places(ctx: click.Context) -> tuple[list[Place], list[Place]]:
    """All files that a call reads, and all that it writes."""
    read: list[Place] = []
    written = [Place(STREAMS[number], descriptor=number) for number in (1, 2)]
    for parameter in ctx.command.params:
        kind, flag = parameter.type, _flag(parameter)
        values = list(_flat(ctx.params.get(parameter.name or "")))
        if isinstance(kind, Read):
            read += [_read(flag, value) for value in values or (["-"] if kind.default_stdin else [])]
        elif isinstance(kind, Written):
            for value in values:
                written.append(Place(flag, value, folder=kind.new or bool(kind.inside), inside=kind.inside))
                written += [Place(flag, path) for path in kind.beside(value)]
    for part, options in ctx.meta.get("dotted", {}).items():
        for option, value in options.items():
            read += [_read(f"--{part}.{option}", path) for path in patterns.named(value)]
    if "inner" in ctx.meta:  # the context of a command line within this one, for the same run
        read += [place for place in places(ctx.meta["inner"])[0] if place.descriptor is None]
    return read, written


@dataclass(frozen=True)
class Place:
    """A file, a folder, a pattern of files, or a standard stream that a call names."""

    flag: str
    path: str = ""
    descriptor: int | None = None
    """The file descriptor of a stream; ``path`` is then empty."""
    folder: bool = False
    """Whether a folder is written, existing or not."""
    inside: tuple[str, ...] = ()
    """The names that are written in a folder."""

    def is_where(self, other: Place) -> bool:
        """Whether writing here may change what ``other`` reads or writes."""
        if other.folder and not self.folder:
            return other.is_where(self)
        if self.folder:
            name = _below(self.real, other.real)
            return self.real == other.real or any(fnmatch(name, pattern) for pattern in self.inside)
        if self.files and self.files & other.files:
            return True
        if self.is_stream or other.is_stream:
            return False
        return self.real == other.real or self._stands_for(other) or other._stands_for(self) or other._holds(self)

    @property
    def is_stream(self) -> bool:
        return self.descriptor is not None or (bool(self.path) and descriptor_of(self.path) is not None)

    @cached_property
    def real(self) -> str:
        """The path without links; empty for a stream. In small letters where names that differ in case are the same
        file."""
        return _as_compared(os.path.realpath(self.path)) if self.descriptor is None else ""

    @cached_property
    def files(self) -> frozenset[Identity]:
        """The existing files. Pipes and devices are excluded, because writing to them destroys nothing."""
        if patterns.is_pattern(self.path):
            return frozenset(_identities(self.path))
        return frozenset(_identity(self.path if self.descriptor is None else self.descriptor))

    def _stands_for(self, other: Place) -> bool:
        """Whether this is a pattern, and ``other`` is one of its files or inside one of its folders."""
        if not patterns.is_pattern(self.path):
            return False
        name = patterns.names(self.real)
        return any(name.fullmatch(path) for path in _with_parents(other.real))

    def _holds(self, other: Place) -> bool:
        """Whether this is a folder, and ``other`` is inside it."""
        return os.path.isdir(self.real) and other.real.startswith(os.path.join(self.real, ""))

    def __str__(self) -> str:
        return f"{self.flag} {self.path}".rstrip()


def _overwritten(output: Place, source: Place) -> str:
    if output.descriptor is not None:
        emptied = " The shell has already emptied it: restore it." if _is_empty(output.descriptor) else ""
        return f"{output} goes to the file that {source} reads.{emptied} Write to another file."
    if source._holds(output) and not output.folder:
        return f"{output} is in a folder that {source.flag} reads, {source.path}. Write to another folder."
    if source.flag.startswith("-"):
        return f"{output} is what {source.flag} reads. Write to another file."
    return f"{output} is the input. Write to another file."


def _read(flag: str, path: str) -> Place:
    return Place(STREAMS[0], descriptor=0) if path == "-" else Place(flag, path)


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)


def _identity(path: str | int) -> Iterator[Identity]:
    try:
        status = os.stat(path)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        yield status.st_dev, status.st_ino


def _identities(pattern: str) -> Iterator[Identity]:
    """The files of a pattern. A pattern in one folder needs only one listing, since it may have 100,000 files."""
    folder, name = os.path.split(os.path.abspath(pattern))
    if patterns.is_pattern(folder):
        for number in patterns.numbers_of_files(pattern):
            yield from _identity(patterns.path_of(pattern, number))
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        device, expected = os.stat(folder).st_dev, patterns.names(name)
        for entry in entries:
            if expected.fullmatch(entry.name):
                if entry.is_symlink():
                    yield from _identity(entry.path)
                else:
                    yield device, entry.inode()


def _without_scheme(path: Any) -> Any:
    """The path of a URL of this machine's files, so that it is compared as a path.

    >>> _without_scheme("file:///tmp/a.txt"), _without_scheme("s3://bucket/a.txt")
    ('/tmp/a.txt', 's3://bucket/a.txt')
    """
    scheme, separator, rest = str(path).partition("://")
    return rest if separator and scheme in ("file", "local") else path


def _with_parents(path: str) -> Iterator[str]:
    """A path, then the folders that it is in, except the root."""
    while path and path != os.path.dirname(path):
        yield path
        path = os.path.dirname(path)


def _as_compared(path: str) -> str:
    """A path in small letters if it is on a file system that ignores case, as on Windows and macOS."""
    for folder in _with_parents(path):
        if (other := folder.swapcase()) != folder and os.path.exists(folder):
            with contextlib.suppress(OSError):
                return path.lower() if os.path.samefile(folder, other) else path
            return path
    return path


def _below(folder: str, path: str) -> str:
    """The first component of a path below a folder; "" if the path is outside the folder."""
    inside = path.startswith(os.path.join(folder, ""))
    return os.path.relpath(path, folder).split(os.sep)[0] if inside else ""


def _is_empty(descriptor: int) -> bool:
    return os.fstat(descriptor).st_size == 0


def _flag(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return (parameter.name or "").upper()
    return max(parameter.opts, key=len)

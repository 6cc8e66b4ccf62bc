"""Atomic writing of files: a file is written to the disk under a temporary name, then renamed.

If the process is killed, the previous file stays, if there was one. The next process that writes the file removes the
temporary file of a dead process. It does not disturb a running process, which holds a lock that ends with it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, NoReturn

from sgdec.errors import SgdecError
from sgdec.io.descriptors import OWN, flush, let_move, lock

DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]+)")
STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


@contextmanager
def whole_file(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when the block has ended without an error.

    The new file has the mode of the replaced one, and is never more readable while it is written. For a link its
    target is replaced. Pipes, devices and descriptors of this process (``/dev/stdout``) are written directly. With
    ``durable`` the file also survives a loss of power; this takes up to a tenth of a second, which is too much for
    each of very many files. Raises `SgdecError` if something cannot be written, or another process is writing the
    same file.
    """
    with _explained(str(path)):
        target = os.path.realpath(path)
        if writes_directly(path):
            with open_stream(path) as stream:
                yield stream
        else:
            with _beside(target, durable) as file:
                yield file


def write_whole(path: str | Path, data: bytes | str, *, durable: bool = True) -> None:
    """Write a file with the given content, as `whole_file` does; text is encoded as UTF-8."""
    with whole_file(path, durable=durable) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def write_all(contents: Mapping[str, bytes | str]) -> None:
    """Write several files, by path, as `write_whole` does. If one of them cannot be written, none is replaced."""
    with ExitStack() as stack:
        for path, data in contents.items():
            file = stack.enter_context(whole_file(path))
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()


def writes_directly(path: str | Path) -> bool:
    """Whether a path names something that cannot be replaced by a file: a pipe, a device, a descriptor."""
    if descriptor_of(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def descriptor_of(path: str | Path) -> int | None:
    """The descriptor of this process that a path such as ``/dev/stdout`` names, also through links; None for other
    paths."""
    name = os.path.abspath(path)
    for _ in range(40):  # the limit of the system on links
        if name in STANDARD:
            return STANDARD[name]
        if found := DESCRIPTOR.fullmatch(name):
            return int(found[1])
        if not os.path.islink(name):
            return None
        name = os.path.abspath(os.path.join(os.path.dirname(name), os.readlink(name)))
    return None


def open_stream(path: str | Path) -> BinaryIO:
    """Open an output for which `writes_directly` is true, without truncating the file behind a descriptor."""
    descriptor = descriptor_of(path)
    return open(path, "wb") if descriptor is None else os.fdopen(os.dup(descriptor), "wb")


def claim(path: str | Path, mode: int = 0o666, *, new: bool = False) -> io.FileIO | None:
    """A file without a buffer, locked for this process and created if necessary; None if another process has locked
    it.

    ``mode``: the permissions of a file that is created, less the umask. With ``new`` an existing file is removed and
    never written: another process may have it open. The lock ends when the file is closed or the process ends.
    Raises OSError, also if there is something else than a regular file.
    """
    while True:
        file, created = _open(path, mode)
        try:
            if not lock(file.fileno()):
                file.close()
                return None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                    if created or not new:
                        return file
                    let_move(file)
                    os.unlink(path)
        except BaseException:
            file.close()
            raise
        file.close()  # it was removed, or between open and lock its owner renamed it: try again


def _open(path: str | Path, mode: int) -> tuple[io.FileIO, bool]:
    """A file, and whether this has created it."""
    while True:
        with contextlib.suppress(FileExistsError):
            return open_own(path, os.O_CREAT | os.O_EXCL, mode), True
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise OSError(errno.EEXIST, "not a regular file", str(path))
            return open_own(path), False


def open_own(path: str | Path, flags: int = 0, mode: int = 0o666) -> io.FileIO:
    """Open a file, no link, for reading and writing without a buffer. ``flags`` and ``mode``: those of `os.open`."""
    return os.fdopen(os.open(path, os.O_RDWR | OWN | flags, mode), "r+b", buffering=0)


def permissions(target: str) -> int:
    """The mode in which to create a file that will replace ``target``: nobody reads it who cannot read ``target``."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode) & 0o666
    except FileNotFoundError:
        return 0o666


def restrict(file: IO[bytes], mode: int) -> None:
    """Take away the permissions of an open file that ``mode`` does not have. Raises OSError."""
    now = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if now & ~mode:
        os.fchmod(file.fileno(), now & mode)


def put_in_place(file: IO[bytes], partial: str, target: str, *, durable: bool = True) -> None:
    """Flush a complete file to the disk, then rename it to ``target`` with the mode of the previous file."""
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if mode != stat.S_IMODE(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), mode)
    if durable:
        os.fsync(file.fileno())
    let_move(file)
    os.replace(partial, target)
    if durable:
        flush(Path(target).parent)


def refuse_unwritable(target: str) -> None:
    """Raises OSError if ``target`` cannot be written although a file could be renamed to it: a folder, a protected
    file."""
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)


@contextmanager
def _beside(target: str, durable: bool) -> Iterator[BinaryIO]:
    refuse_unwritable(target)
    folder, name = os.path.split(target)
    partial = os.path.join(folder, f".{name}.partial")
    claimed = claim(partial, permissions(target), new=True)
    if claimed is None:
        _busy(target)
    file = io.BufferedWriter(claimed)
    try:
        yield file
        file.flush()
        put_in_place(file, partial, target, durable=durable)
    except BaseException:
        with contextlib.suppress(OSError):
            let_move(file)
            os.unlink(partial)
        raise
    finally:
        with contextlib.suppress(OSError):  # a second failure is of no interest
            file.close()


def reason(error: OSError, target: str) -> str:
    """The reason for which ``target`` cannot be written; it names a partial file that is in the way."""
    why, name = error.strerror or str(error), str(error.filename)
    in_the_way = name != os.path.realpath(target) and ".partial" in os.path.basename(name) and os.path.lexists(name)
    return f"{name} is in the way, remove it: {why}" if in_the_way else why


def _busy(target: str) -> NoReturn:
    raise SgdecError(f"{target}: another process is writing this file. Wait for it, or write to another file.")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError) and not writes_directly(path):
            raise  # of another output: a file has no reader that could go away
        raise SgdecError(f"{path}: cannot be written ({reason(error, path)}).") from None

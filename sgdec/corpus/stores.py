"""The places that all processes of a corpus see: a folder of a file system, or a URL of an object store.

A store has files of at most some megabytes, with names such as ``results/000/000017``. The operation that everything
rests on is `Store.create`: of all processes that create a name, one succeeds, and readers see its complete content or
nothing. File systems offer it as hard links or as a rename that replaces nothing, object stores as a conditional
request. A store without it takes one starter at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sgdec.errors import SgdecError, UsageError, one_line
from sgdec.io.descriptors import AT_ONCE
from sgdec.io.limits import DOCUMENT, Limit, read_all
from sgdec.plugins.host import install_hint

CONDITIONAL = ("memory", "s3", "s3a", "gs", "gcs")
"""The protocols of fsspec whose mode ``create`` is one conditional request."""
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)  # Windows: EINVAL


class Store(ABC):
    """Files by name. Each method raises SgdecError, which names the place, if the store fails."""

    atomic: bool = True
    """Whether `create` lets one of several processes win. Otherwise only one starter may work."""

    def __init__(self, place: str) -> None:
        self.place = place

    @abstractmethod
    def read(self, name: str, limit: Limit = DOCUMENT) -> bytes | None:
        """The content of a file; None if there is none. Raises SgdecError for a pipe or a device, also behind a link,
        and for more bytes than ``limit``."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file; readers see the old content or the new one."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Write a file that does not exist yet. False: it exists, and stays as it is."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if there is no such folder."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def __str__(self) -> str:
        return self.place


def open_store(place: str) -> Store:
    """The store at a path or a URL (``s3://bucket/corpus``); its folder is made when it is first written.

    Raises UsageError for a URL that fsspec cannot open.
    """
    protocol, separator, path = place.partition("://")
    if not separator or protocol in ("file", "local"):
        return FolderStore(path if separator else place)
    return UrlStore(place)


class FolderStore(Store):
    """A folder of a local or shared file system."""

    def read(self, name: str, limit: Limit = DOCUMENT) -> bytes | None:
        with self._explained(name):
            try:
                with open(self._path(name), "rb", opener=without_waiting) as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        raise IsADirectoryError
                    return read_all(file, f"{self.place}/{name}", limit)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except IsADirectoryError:
                raise SgdecError(
                    f"{self.place}/{name}: not a regular file. Restore the one that `sgdec corpus` wrote; or remove "
                    "it, and start again."
                ) from None

    def write(self, name: str, data: bytes) -> None:
        with self._explained(name), self._beside(name, data) as written:
            os.replace(written, self._path(name))

    def create(self, name: str, data: bytes) -> bool:
        with self._explained(name):
            if self._path(name).exists():
                return False
            with self._beside(name, data) as written:
                return publish(written, self._path(name))

    def exists(self, name: str) -> bool:
        with self._explained(name):
            return self._path(name).exists()

    def names(self, folder: str) -> list[str]:
        with self._explained(folder):
            try:
                return sorted(name for name in os.listdir(self._path(folder)) if not name.startswith("."))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def remove(self, name: str) -> None:
        with self._explained(name), contextlib.suppress(FileNotFoundError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return Path(self.place, name)

    @contextmanager
    def _beside(self, name: str, data: bytes) -> Iterator[Path]:
        """A new file with this content on the disk, in the folder of ``name``."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with open(beside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield beside
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SgdecError(f"{self.place}: {name}: {error.strerror or error}.") from None


def without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe does not wait for a writer."""
    return os.open(path, flags | AT_ONCE)


def publish(written: Path, target: Path) -> bool:
    """Give a complete file its name, unless another file has it (the result is then false). Raises OSError."""
    try:
        os.link(written, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename_new(written, target)
    return True


def _rename_new(written: Path, target: Path) -> bool:
    """Rename without replacing anything, for file systems without hard links (Linux, Windows)."""
    if os.name == "nt":
        try:
            os.rename(written, target)
        except FileExistsError:
            return False
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOTSUP, "this file system has neither hard links nor a rename that replaces nothing")
    if renameat2(_AT_FDCWD, os.fsencode(written), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
        return True
    if (number := ctypes.get_errno()) == errno.EEXIST:
        return False
    raise OSError(number, os.strerror(number))


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and its path there. Raises UsageError if fsspec cannot open it."""
    try:
        import fsspec
    except ModuleNotFoundError:
        raise UsageError(f"{url}: a URL takes fsspec, which is not installed{install_hint('fsspec')}.") from None
    try:
        files, place = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: {one_line(str(error)).rstrip('.')}.") from None
    return files, str(place)


class UrlStore(Store):
    """A URL of fsspec: an object store, or another file system that it knows."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._files, self._root = file_system(place)
        self.atomic = place.partition("://")[0] in CONDITIONAL

    def read(self, name: str, limit: Limit = DOCUMENT) -> bytes | None:
        with self._explained(name):
            try:
                data = bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None
        return read_all(io.BytesIO(data), f"{self.place}/{name}", limit)

    def write(self, name: str, data: bytes) -> None:
        with self._explained(name):
            self._make_parent(name)
            self._files.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        with self._explained(name):
            self._make_parent(name)
            try:
                self._files.pipe_file(self._path(name), data, mode="create")
            except FileExistsError:
                return False
            return True

    def exists(self, name: str) -> bool:
        with self._explained(name):
            self._files.invalidate_cache()
            return bool(self._files.exists(self._path(name)))

    def names(self, folder: str) -> list[str]:
        with self._explained(folder):
            self._files.invalidate_cache()
            try:
                listed: list[dict[str, Any]] = self._files.ls(self._path(folder), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return sorted({found["name"].rstrip("/").rpartition("/")[2] for found in listed} - {""})

    def remove(self, name: str) -> None:
        with self._explained(name), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _make_parent(self, name: str) -> None:
        self._files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except (SgdecError, FileNotFoundError):
            raise
        except Exception as error:  # each file system raises errors of its own library
            why = one_line(str(error)) or type(error).__name__
            raise SgdecError(f"{self.place}: {name}: {why}.") from None

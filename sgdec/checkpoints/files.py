"""Files that training writes: safetensors, readable JSON, and folders that are complete or absent."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.errors import SgdecError, UsageError
from sgdec.io.descriptors import flush
from sgdec.io.documents import parse_json, read_document

if TYPE_CHECKING:
    from torch import Tensor

INTACT = "The checkpoint before it is intact."


def require_new(folder: Path) -> None:
    """Raises `UsageError` if the folder that a command will write exists already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output {folder}: there is something already. Give a new folder.")


def write_folder(final: Path, write: Callable[[Path], None], *, advice: str = INTACT) -> None:
    """Make ``final`` a complete folder with the files that ``write`` creates, replacing an existing folder,
    whose mode it has from the start.

    Raises `SgdecError` if the disk is full or cannot be written, and the errors of ``write``; an existing folder is
    then unchanged. If the process is killed, `settle` or the next write restores either the old folder or the new
    one, complete.
    """
    from safetensors import SafetensorError

    partial, _ = _beside(final)
    try:
        settle(final)
        partial.mkdir(parents=True, mode=stat.S_IMODE(final.stat().st_mode) if final.exists() else 0o777)
        write(partial)
        flush(*partial.rglob("*"), partial)
        _replace(final, partial)
    except BaseException as error:
        with contextlib.suppress(OSError):  # only the first failure is reported
            settle(final)
        if isinstance(error, (OSError, SafetensorError)):
            raise unwritten(final, error, advice) from None
        raise


def unsettled(final: Path) -> bool:
    """Whether `write_folder` is running for this folder, or was killed."""
    return any(folder.exists() for folder in _beside(final))


def settle(final: Path) -> None:
    """Clean up after a process was killed inside `write_folder`. Must not be called while another process writes
    there."""
    partial, before = _beside(final)
    if before.exists() and not final.exists():
        before.rename(final)
    for folder in (partial, before):
        shutil.rmtree(folder, ignore_errors=True)


def _beside(final: Path) -> tuple[Path, Path]:
    """The path of a new folder while it is written, and that of the old folder while it is replaced."""
    return final.parent / f".{final.name}.partial", final.parent / f".{final.name}.before"


def _replace(final: Path, partial: Path) -> None:
    """Rename a complete folder to ``final``, and remove the old folder afterwards."""
    _, before = _beside(final)
    if final.exists():
        final.rename(before)
    partial.rename(final)
    try:
        flush(final.parent)
    except BaseException:
        final.rename(partial)  # `settle` does the rest
        raise
    shutil.rmtree(before, ignore_errors=True)


def unwritten(final: Path, error: Exception, advice: str = INTACT) -> SgdecError:
    """The error for a file or folder that could not be written, with the reason."""
    reason = getattr(error, "strerror", None) or str(error)
    return SgdecError(f"{final}: cannot be written ({reason}). {advice}")


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().cpu() for name, tensor in tensors.items()}, file)


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file. Raises `SgdecError` if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except FileNotFoundError:
        raise SgdecError(f"{file}: no such file. The checkpoint is incomplete; copy the whole folder.") from None
    except (SafetensorError, OSError, KeyError, MemoryError) as error:
        raise SgdecError(f"{file}: the tensor file is damaged ({error}). Copy it again or train again.") from None


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises `SgdecError` if the file is missing or damaged."""
    try:
        value = parse_json(read_document(file))
    except OSError as error:
        raise SgdecError(f"{file}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise SgdecError(f"{file}: this is not JSON ({error}).") from None
    if not isinstance(value, dict):
        raise SgdecError(f"{file}: expected a JSON object.")
    return value


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object, indented."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")

"""Files that training writes: safetensors, readable JSON, and folders that are there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.errors import SgdecError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

INTACT = "The checkpoint before it is intact."


def require_new(folder: Path) -> None:
    """Raises `UsageError` if there is something already where a command is to write."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output {folder}: there is something already. Give a new folder.")


def write_folder(final: Path, write: Callable[[Path], None], *, advice: str = INTACT) -> None:
    """Make ``final`` a complete folder with what ``write`` puts there, in place of one that may be there.

    Raises `SgdecError` if the disk is full or cannot be written; what was there is then left as it was.
    """
    from safetensors import SafetensorError

    partial = final.parent / f".{final.name}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write(partial)
        flush(*partial.iterdir(), partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        flush(final.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, (OSError, SafetensorError)):
            raise unwritten(final, error, advice) from None
        raise


def unwritten(final: Path, error: Exception, advice: str = INTACT) -> SgdecError:
    """The error that says what could not be written, and why."""
    reason = getattr(error, "strerror", None) or str(error)
    return SgdecError(f"{final}: cannot be written ({reason}). {advice}")


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().cpu() for name, tensor in tensors.items()}, file)


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file; `SgdecError` if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except FileNotFoundError:
        raise SgdecError(f"{file}: no such file. The checkpoint is incomplete; copy the whole folder.") from None
    except (SafetensorError, OSError) as error:
        raise SgdecError(f"{file}: the tensor file is damaged ({error}). Copy it anew or train again.") from None


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; `SgdecError` if it is missing or damaged."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SgdecError(f"{file}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise SgdecError(f"{file}: this is not JSON ({error}).") from None
    if not isinstance(value, dict):
        raise SgdecError(f"{file}: expected a JSON object.")
    return value


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object, readable."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def flush(*paths: Path) -> None:
    """Have files, and the names in folders, on the disk before anything else happens."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

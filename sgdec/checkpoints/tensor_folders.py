"""Folders with tensors and a readable JSON file, which describes them: what vocabulary clusters and shortlists are on
disk. No pickles.

FOLDER/NAME.safetensors    the tensors
       NAME.json           the version, sizes, what they were built from, what they belong to
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.checkpoints.files import load_tensors, read_json, save_tensors, write_folder, write_json
from sgdec.errors import SgdecError, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TensorFolder:
    """One kind of such folders."""

    name: str
    """The names of both files, without their endings."""
    noun: str
    """The content of the folder, with its article."""
    damaged: str
    """The sentence that says that it is damaged."""
    command: str
    """The command that writes it."""
    format: int
    """The version of the JSON file; a reader refuses unknown versions."""

    @property
    def tensors(self) -> str:
        return f"{self.name}.safetensors"

    @property
    def description(self) -> str:
        return f"{self.name}.json"

    def require_room(self, folder: str | Path) -> None:
        """Raises `UsageError` if writing would replace anything other than a folder of this kind."""
        folder = Path(folder)
        files = {self.tensors, self.description}
        if folder.exists() and (not folder.is_dir() or {entry.name for entry in folder.iterdir()} - files):
            raise UsageError(f"--output {folder}: there is something other than {self.noun}. Give a separate folder.")

    def write(self, folder: str | Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
        """Write both files at once, in place of existing ones.

        Raises `UsageError` as `require_room`, `SgdecError` if the folder cannot be written.
        """
        self.require_room(folder)

        def write(partial: Path) -> None:
            save_tensors(partial / self.tensors, tensors)
            write_json(partial / self.description, {"format": self.format, **description})

        write_folder(Path(folder).resolve(), write, advice="Give another --output.")

    def describe(self, folder: str | Path) -> dict[str, Any]:
        """The JSON file. Raises `SgdecError`, naming the file, if it is missing, damaged, or of another version."""
        file = Path(folder) / self.description
        if not file.is_file():
            raise SgdecError(f"{folder}: no {self.description} here. Expected a folder that `{self.command}` wrote.")
        description = read_json(file)
        if description.get("format") != self.format:
            raise SgdecError(
                f"{file}: format {description.get('format')!r}, expected {self.format}. Use another sgdec."
            )
        return description

    def load(self, folder: str | Path) -> dict[str, Tensor]:
        """The tensors. Raises `SgdecError`, naming the file, if it is missing or damaged."""
        return load_tensors(Path(folder) / self.tensors)

    @contextmanager
    def checking(self, folder: str | Path) -> Iterator[None]:
        """Turns the errors that tensors raise which are not those of such a folder into a `SgdecError`."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise SgdecError(f"{folder}: {self.damaged} ({error}). Run `{self.command}` again.") from None

"""The links in a run's folder, which name its best and its last checkpoint."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

NOT_ALLOWED = 1314
"""The number of Windows' error for users who may not make links (ERROR_PRIVILEGE_NOT_HELD)."""


def point(link: Path, name: str) -> None:
    """Let ``link`` lead to the folder ``name`` beside it, in one operation. Raises OSError.

    Windows replaces no link, so it is removed just before. Users of Windows without the right to make links get a
    junction, which does the same but holds the whole path: it breaks if the run's folder is moved.
    """
    fresh = link.with_name(f".{link.name}.partial")
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(name, target_is_directory=True)
    except OSError as error:
        if getattr(error, "winerror", None) != NOT_ALLOWED:
            raise
        import_module("_winapi").CreateJunction(str(link.parent.resolve() / name), str(fresh))
    try:
        fresh.replace(link)
    except PermissionError:  # Windows
        link.unlink()
        fresh.rename(link)


def linked(folder: Path) -> set[Path]:
    """The places to which links and junctions in a folder lead."""
    here = folder.resolve()
    return {place for entry in folder.iterdir() if (place := entry.resolve()) != here / entry.name}

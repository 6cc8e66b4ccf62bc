"""All targets by name: files that are damaged, and command lines that are wrong."""

from __future__ import annotations

from fuzz import calls, files
from fuzz.campaign import Target

TARGETS: tuple[Target, ...] = (*files.TARGETS, *calls.TARGETS)

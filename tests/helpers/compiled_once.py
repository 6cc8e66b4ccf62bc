"""Regular expressions that are compiled once for many tests: each costs a process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from sgdec_predictors.texts import regexes


def compile_once(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone, equal patterns are compiled once under equal limits."""
    compiled = regexes._compiled

    @cache
    def once(patterns: tuple[str, ...], *limits: int) -> Any:
        return compiled(patterns, *limits)

    def of_patterns(patterns: Sequence[str], *limits: int) -> Any:
        return once(tuple(patterns), *limits)

    patch.setattr(regexes, "_compiled", of_patterns)

"""The promise of ``benchmarks/mutants.py``: a mistake is a program, differs from the original, and is in its code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import mutants

SOURCE = '''
"""A docstring with 1 < 2."""
import os

LIMIT: "int" = 3

def f(a: int = 0, *, é: bool = True) -> "list[int]":
    """Not code: 1 + 1."""
    if a < LIMIT and not é:
        raise ValueError(f"{a + 1} is too few, {LIMIT} or more")
    while a:
        a -= 1
        if a in (7, 8):
            continue
    print(max(a, -LIMIT))
    return [a + 1]
'''
WRONG = {
    (5, "3", "(4)"),
    (7, "0", "(1)"),
    (7, "True", "(False)"),
    (9, "a < LIMIT", "(a <= LIMIT)"),
    (9, "a < LIMIT and not é", "(not (a < LIMIT and (not é)))"),
    (9, "a < LIMIT and not é", "(a < LIMIT or not é)"),
    (9, "not é", "(é)"),
    (11, "a", "(not a)"),
    (12, "1", "(2)"),
    (12, "a -= 1", "a += 1"),
    (13, "7", "(8)"),
    (13, "8", "(9)"),
    (13, "a in (7, 8)", "(a not in (7, 8))"),
    (14, "continue", "pass"),
    (15, "print(max(a, -LIMIT))", "pass"),
    (15, "max(a, -LIMIT)", "(min(a, -LIMIT))"),
    (15, "-LIMIT", "(LIMIT)"),
    (16, "1", "(2)"),
    (16, "a + 1", "(a - 1)"),
}


def test_all_mistakes_of_a_file_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "f.py").write_text(SOURCE, "utf-8")
    found = mutants.mistakes("f.py")
    assert {(mutant.line, mutant.old, mutant.new) for mutant in found} == WRONG
    raw = SOURCE.encode()
    for mutant in found:
        wrong = raw[: mutant.start] + mutant.new.encode() + raw[mutant.end :]
        assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(raw)), mutant

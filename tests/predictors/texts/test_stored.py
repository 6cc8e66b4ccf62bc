"""Automata on the disk: whatever is in the folder, the automaton is the one of its language."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import pytest
from sgdec_predictors.texts.regexes import compile_regexes
from sgdec_predictors.texts.stored import StoredAutomata, default_folder

from tests.helpers.spelled_vocabularies import spelling

pytest.importorskip("outlines_core")
pytest.importorskip("llguidance")


@pytest.mark.slow
def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    """Damage raises many kinds of errors: unknown compression, encryption, a header that is no literal."""
    (letters,) = compile_regexes(["a+( b)*"])
    stored, draw = StoredAutomata(spelling("unigram"), str(tmp_path)), random.Random(0)
    expected = stored.of("a+( b)*", lambda: letters)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(draw.choice([1, 1, 8])):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        file.write_bytes(damaged)
        found = stored.of("a+( b)*", lambda: letters)
        assert (found.letters.table == expected.letters.table).all() and found.least == expected.least


def test_an_entry_is_never_taken_for_another_one(tmp_path: Path) -> None:
    letters = dict(zip("ab", compile_regexes(["a+", "b+"]), strict=True))
    stored = StoredAutomata(spelling("unigram"), str(tmp_path))
    for name in letters:
        stored.of(name, partial(letters.__getitem__, name))
    first, second = tmp_path.iterdir()
    first_content, second_content = first.read_bytes(), second.read_bytes()
    first.write_bytes(second_content)
    second.write_bytes(first_content)
    for name in letters:
        found = stored.of(name, partial(letters.__getitem__, name))
        assert (found.letters.table == letters[name].table).all()
    assert (first.read_bytes(), second.read_bytes()) == (first_content, second_content)


def test_an_entry_that_never_ends_is_not_read(tmp_path: Path) -> None:
    (letters,) = compile_regexes(["a+"])
    stored = StoredAutomata(spelling("unigram"), str(tmp_path))
    stored.of("a+", lambda: letters)
    (file,) = tmp_path.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert not stored.of("a+", lambda: letters).is_empty


def test_a_user_without_a_home_has_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", str)  # as for a number of a user that has no name
    assert default_folder() is None
    (letters,) = compile_regexes(["a"])
    assert not StoredAutomata(spelling("unigram")).of("a", lambda: letters).is_empty

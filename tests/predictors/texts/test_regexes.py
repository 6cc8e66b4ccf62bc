"""Automata of regular expressions: what is refused, by its name, and what a pattern means."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from sgdec_predictors.texts.regexes import compile_regexes

from sgdec.errors import SgdecError

pytest.importorskip("outlines_core")
pytest.importorskip("llguidance")


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", ["name$|names", "name( |$)", "^a", "a$", r"a\z|ab", r"\ba", r"(?-u:a\b)|ab", "(?m)a$\nb|ac", "$"]
)
def test_anchors_and_word_boundaries_are_refused_wherever_they_are(pattern: str) -> None:
    """At an end they would change what matches, or mean nothing."""
    with pytest.raises(SgdecError, match="cannot be compiled: it has an anchor or a word boundary"):
        compile_regexes([pattern])


def test_characters_of_anchors_are_allowed() -> None:
    escaped, listed = compile_regexes([r"\$\^", "[$^]+"])
    assert escaped.accepts(b"$^") and listed.accepts(b"^$^")


def test_a_comment_can_end_a_pattern() -> None:
    commented, only_a_comment = compile_regexes(["(?x) n a me # $ (", "(?x)#"])
    assert commented.accepts(b"name") and not commented.accepts(b"name\n")
    assert only_a_comment.accepts(b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("a\\", "ends with a backslash"),
        ("a)|(vocabulary", "unopened group, at character 2"),
        ("(vocabulary", "unclosed group, at character 1"),
        ("[a&&b]", "matches nothing. Expected one that matches some text."),
        ("a\ud800", "is not text. Expected UTF-8."),
    ],
)
def test_a_mistake_has_its_own_message(pattern: str, says: str) -> None:
    with pytest.raises(SgdecError) as caught:
        compile_regexes([pattern])
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_large_automaton_is_made_small_where_the_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text has an a where 11 characters are left. There are 2^11 states, and each byte but two leads nowhere."""
    (automaton,) = compile_regexes(["(a|b)*a(a|b){10}"])
    assert automaton.states == 2048 and automaton.table.dtype == "int32"
    draw = random.Random(0)
    for length in (0, 10, 11, *range(12, 40)):
        text = "".join(draw.choices("ab", k=length))
        assert automaton.accepts(text.encode()) == (text[-11:-10] == "a")
    monkeypatch.setattr("sgdec_predictors.texts.regexes.STATES", 2047)
    with pytest.raises(SgdecError, match=r"of the pattern .* has 2,048 states\. Expected at most 2,047\. Nested"):
        compile_regexes(["(a|b)*a(a|b){10}"])


def test_memory_has_a_limit() -> None:
    with pytest.raises(SgdecError, match="needs more than 8 seconds or 100 MiB"):
        compile_regexes(["(a|b)*a(a|b){12}"], memory=100 << 20)


def test_a_compiler_that_fails_is_no_limit_that_is_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "worker.py"
    broken.write_text("raise ImportError('no package')\n")
    monkeypatch.setattr("sgdec_predictors.texts.regexes.WORKER", broken)
    with pytest.raises(SgdecError, match="the compiler of patterns has failed: ImportError: no package"):
        compile_regexes(["a"])


def test_packages_are_found_wherever_this_process_finds_them() -> None:
    """In a user's own folder, or one of PYTHONPATH, which isolated processes do not look at."""
    base = Path(sys.base_prefix) / "bin" / "python3"
    if sys.prefix == sys.base_prefix or not base.exists():
        pytest.skip("needs an interpreter without the packages of this one")
    program = "from sgdec_predictors.texts.regexes import compile_regexes as c; print(c(['a+'])[0].states)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([base, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr

"""The promise: public names and their signatures are those of ``public_names.txt``, where a review sees changes."""

from __future__ import annotations

import re
from difflib import unified_diff

import pytest

from tests.helpers.public_modules import public_modules
from tests.helpers.public_names import LIST, listing


@pytest.mark.slow
def test_public_names_and_their_signatures_are_those_of_the_list() -> None:
    recorded, now = LIST.read_text(encoding="utf-8"), listing()
    diff = unified_diff(recorded.splitlines(), now.splitlines(), LIST.name, "the source", lineterm="", n=1)
    if recorded != now:
        pytest.fail("\n".join(["Public names have changed; 'make public-names' records them.", *diff]))


def test_every_public_module_is_in_the_list() -> None:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith(" ")] == public_modules()


@pytest.mark.parametrize(
    ("module", "line"),
    [
        pytest.param("sgdec", "API: see sgdec.protocol", id="public elsewhere"),
        pytest.param("sgdec", "def finish(self, node: Node) -> Hypothesis", id="private, looked up by name"),
        pytest.param("sgdec.protocol", "@dataclass(frozen=True) class Source", id="its own"),
        pytest.param("sgdec.testing", "def tiny_spaces() -> list[TinySpace]", id="private, imported"),
        pytest.param("sgdec.testing", "vocab_size: int", id="of a private base class"),
    ],
)
def test_names_are_listed_where_they_are_public(module: str, line: str) -> None:
    text = LIST.read_text(encoding="utf-8")
    (names,) = re.findall(rf"^{re.escape(module)}\n((?: .*\n)*)", text, re.MULTILINE)
    assert any(listed.strip().startswith(line) for listed in names.splitlines())


def test_signatures_have_no_descriptions_of_options() -> None:
    assert "description=" not in LIST.read_text(encoding="utf-8")

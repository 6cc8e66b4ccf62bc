"""The promise of ``examples/retrieval``: its recipe runs, and beside a trie nothing but products comes out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "retrieval"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory, commands: dict[str, str]) -> tuple[Path, str]:
    """The folder of a tiny run, and its output."""
    work = tmp_path_factory.mktemp("retrieval")
    settings = {"PRODUCTS": "40", "QUERIES": "12", "SIZE": "8", "EPOCHS": "1", "BEAMS": "10", "THREADS": "1"}
    command = [str(EXAMPLE / "recipe.sh"), str(work)]
    done = subprocess.run(command, env={**commands, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return work, done.stdout


def test_the_recall_of_each_mix_and_beam_is_printed_and_a_trie_gives_products_only(printed: tuple[Path, str]) -> None:
    rows = {words[0]: list(map(float, words[1:])) for words in map(str.split, printed[1].splitlines()[-3:])}
    assert list(rows) == ["free.10", "trie.10", "weighted.10"]
    for name, (*recalls, valid) in rows.items():
        assert recalls == sorted(recalls) and min(recalls) >= 0 and max(recalls) <= 1
        assert (valid < 1) if name == "free.10" else (valid == 1)


def test_products_are_different_and_queries_name_some_of_their_words(printed: tuple[Path, str]) -> None:
    work, _ = printed
    products = [line.split("\t")[0] for line in (work / "catalogue.tsv").read_text().splitlines()]
    assert len(set(products)) == len(products) == 40
    for part, count in (("train", 8 * 40), ("valid", 12), ("test", 12)):
        wanted, asked = ((work / f"{part}.{side}").read_text().splitlines() for side in ("id", "query"))
        assert len(wanted) == len(asked) == count and set(wanted) <= set(products) and all(asked)
        overlap = [len(set(one.split()) & set(other.split())) for one, other in zip(wanted, asked, strict=True)]
        assert 1 < sum(overlap) / count < 4


def test_the_data_are_the_same_each_time(printed: tuple[Path, str], tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(EXAMPLE / "catalogue.py"), str(tmp_path), "40", "12"], check=True)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (printed[0] / path.name).read_bytes()

"""A damaged KenLM binary is an error of one line, or a model that answers: never a dead or a waiting process.

The files are read in a child, by the mapped reader and by KenLM's module; the same mutants kill or stop KenLM itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sgdec_predictors.ngrams.kenlm import KenlmModel
from sgdec_predictors.ngrams.kenlm_file import check_kenlm
from sgdec_predictors.ngrams.kenlm_module import KenlmModule

from sgdec.errors import SgdecError
from tests.helpers.mutation import in_child, mutants
from tests.helpers.optional import optional
from tests.helpers.places import DATA

pytestmark = pytest.mark.slow

BINARIES = [DATA / f"tiny.{name}kenlm" for name in ("", "trie.", "quantised.", "atrie.", "qatrie.")]
"""One model of order 3 with the words 3, 4, 5 and ``<unk>``, as `build_binary` writes it: probing, trie, trie -q 8
-b 7, trie -a 22, trie -q 8 -a 22."""
WORDS = ["3", "4", "5", "6", "<s>", "</s>", "<unk>"]


def ask(path: Path) -> None:
    """After every two words for all of them."""
    ask_model(KenlmModel(str(path), WORDS))


def ask_module(path: Path) -> None:
    ask_model(KenlmModule(str(path), WORDS))


def ask_model(model: KenlmModel | KenlmModule) -> None:
    for before in product(WORDS, repeat=2):
        state = model.start
        for word in before:
            _, state = model.step(state, model.symbol(word))
        model.rows([state])


@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.name)
def test_what_build_binary_wrote_passes(path: Path) -> None:
    check_kenlm(path)
    ask(path)


@pytest.mark.parametrize("reader", [ask, ask_module], ids=["mapped", "module"])
@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.name)
def test_mutants_are_errors_or_answer(path: Path, reader: Callable[[Path], None], tmp_path: Path) -> None:
    if reader is ask_module:
        optional("kenlm")
    seed = int(hashlib.sha256(path.name.encode()).hexdigest()[:8], 16)
    files = [*mutants([path.read_bytes()], 60, seed)]
    found = in_child(reader, tmp_path / "mutant.kenlm", files)
    for data, said in zip(files, found, strict=False):  # not so many if one kills the child
        assert said in ("value", "error"), (said, data)
    assert len(found) == len(files)


def replaced(path: Path, place: int, content: bytes) -> bytes:
    data = path.read_bytes()
    return data[:place] + content + data[place + len(content) :]


PROBING, TRIE, QUANTISED, COMPRESSED = BINARIES[:4]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (replaced(PROBING, 88, b"\0"), "its order is 0"),
        (replaced(PROBING, 88, b"\1"), "its order is 1"),
        (replaced(PROBING, 92, b"\0\0\xc0\x7f"), "its hash tables are nan times"),
        (replaced(PROBING, 92, b"\0\0\x80\x7f"), "its hash tables are inf times"),
        (replaced(PROBING, 96, b"\4"), "its layout is 4, version 0"),
        (replaced(PROBING, 96, b"\6"), "its layout is 6, version 0"),
        (replaced(PROBING, 136, b"\7"), "its vocabulary has version 7"),
        (replaced(QUANTISED, 192, b"\7"), "its numbers have version 7, 8 and 7 bits"),
        (replaced(QUANTISED, 193, b"\x1a"), "its numbers have version 2, 26 and 7 bits"),
        (replaced(COMPRESSED, 320, b"\7"), "its compressed pointers have version 7"),
        (replaced(COMPRESSED, 328, b"\1"), "a reference to 3-grams leads out of them"),
        (replaced(TRIE, TRIE.read_bytes().index(b"<unk>"), b"<UNK>"), "its words are not where its sizes say"),
        (b"", "it is empty"),
        (replaced(PROBING, 108, b"\xff" * 8), "it is cut short"),
        (replaced(PROBING, 144, b"\1" * 108), "a word has a number beyond the unigrams|no free place"),
        (PROBING.read_bytes()[:200], "it is cut short"),
        (replaced(TRIE, 136, b"\7"), "it has more words than unigrams"),
        (replaced(TRIE, 200, b"\xff" * 60), "a reference to 2-grams leads out of them"),
        (replaced(TRIE, 0, b"M"), "it is not a binary of version 5"),
        (replaced(TRIE, 61, b"\1"), "it is not a binary of version 5"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "bad.kenlm").write_bytes(data)
    with pytest.raises(SgdecError, match=rf"bad\.kenlm: KenLM cannot read it: .*({complaint}).*\. Build it again"):
        check_kenlm(tmp_path / "bad.kenlm")


def test_a_bad_reference_is_found_when_it_is_followed(tmp_path: Path) -> None:
    """Loading follows none but those of ``<s>``, so that it takes no time; words 1 and 2 can be asked for."""
    path = tmp_path / "bad.kenlm"
    path.write_bytes(replaced(TRIE, 264, b"\xff" * 8))  # where the bigrams of word 4 begin and those of word 3 end
    model = KenlmModel(str(path), [])
    model.step(model.start, 2)
    model.step_all(np.array([model.start]), np.array([2]))
    for ask in (
        lambda: model.step(model.start, 3),
        lambda: model.step(model.start, 4),
        lambda: model.step_all(np.array([model.start] * 2), np.array([2, 4])),
        lambda: KenlmModel(str(path), WORDS).rows([model.start]),
    ):
        with pytest.raises(SgdecError, match=r"bad\.kenlm: KenLM cannot read it: a reference to 2-grams leads"):
            ask()

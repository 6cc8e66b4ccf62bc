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
from sgdec_predictors.ngrams.kenlm_hashed import _Table
from sgdec_predictors.ngrams.kenlm_header import DamagedKenlm, FileParts, KenlmFile, read_header
from sgdec_predictors.ngrams.kenlm_module import KenlmModule
from sgdec_predictors.ngrams.kenlm_sorted import SortedNgrams

from sgdec.errors import SgdecError
from sgdec.files import read_arpa
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


def test_a_word_has_no_number_beyond_the_unigrams(tmp_path: Path) -> None:
    """There are six, and a place for a seventh: KenLM's ``<unk>`` if the model does not list it."""
    data = PROBING.read_bytes()
    place = next(at for at in range(144, 144 + 108, 12) if any(data[at : at + 8]))
    for number, complaint in ((6, ""), (7, "a word has a number beyond the unigrams")):
        path = tmp_path / f"{number}.kenlm"
        path.write_bytes(replaced(PROBING, place + 8, bytes([number])))
        for read in (check_kenlm, lambda path: KenlmModel(str(path), WORDS).symbol("unheard-of")):
            if complaint:
                with pytest.raises(SgdecError, match=complaint):
                    read(path)
            else:
                read(path)


@pytest.mark.parametrize("lost", [1, 4, 8])
def test_the_last_table_is_whole(lost: int, tmp_path: Path) -> None:
    """``bigrams.probing.kenlm`` ends with its last table, because it was built without words."""
    whole = DATA / "layouts" / "bigrams.probing.kenlm"
    check_kenlm(whole)
    (tmp_path / "bad.kenlm").write_bytes(whole.read_bytes()[:-lost])
    with pytest.raises(SgdecError, match="it is cut short"):
        KenlmModel(str(tmp_path / "bad.kenlm"), [])


@pytest.mark.parametrize("name", ["random.trie.kenlm", "random.atrie.kenlm"])
def test_a_reference_beyond_the_longer_ngrams_is_followed_nowhere(name: str) -> None:
    """The references of the trigrams after one are set to 127, beyond its last 4-gram. There are 120 4-grams. In the
    array, all upper bits are 1."""
    path = DATA / "layouts" / name
    ngrams = SortedNgrams(read_header(np.fromfile(path, np.uint8)))
    arpa = read_arpa(path.parent / "random.arpa")
    last, *before = (ngrams.word(arpa.words[word]) for word in arpa.orders[3].words[0, ::-1].tolist())
    (_, _, (place, _, _), _) = ngrams.ending(last, before)
    level = ngrams._levels[1]
    for after in range(place + 1, level._entries + 1):
        for bit in range(after * level._entry_bits + level._next, (after + 1) * level._entry_bits):
            level._bytes[bit >> 3] |= 1 << (bit & 7)
    if name == "random.atrie.kenlm":
        level._firsts[1:] = place + 1
    assert len(ngrams.ending(last, before[:1])) == 2
    arrays = np.array([last]), np.array([before]), np.array([3])
    for follow in (lambda: ngrams.ending(last, before), lambda: [*ngrams.all_ending(*arrays)], ngrams.check):
        with pytest.raises(DamagedKenlm, match="a reference to 4-grams leads out of them"):
            follow()


@pytest.mark.parametrize("free", [1, 7, 20])
def test_a_search_that_wraps_around_finds_what_is_there(free: int) -> None:
    """In tables that are nearly full, ways are long and cross the end."""
    rng = np.random.default_rng(free)
    keys = rng.integers(1, 1 << 63, 200, np.uint64)
    size = len(keys) + free
    rows = np.zeros(size, [("key", "<u8"), ("score", "<f4")])
    places = {}
    for key in keys.tolist():
        place = next(at % size for at in range(key % size, key % size + size) if not rows["key"][at % size])
        rows[place], places[key] = (key, 0.5), place
    file = KenlmFile(rows.view(np.uint8), 0, (len(keys),), (size + 0.5) / len(keys), 0, False)
    table = _Table(file, FileParts(file), len(keys), 4, "words", longest=True)
    absent = rng.integers(1, 1 << 63, 200, np.uint64)
    assert table.size == size and max(places[key] - key % size for key in places) < size
    assert min(places[key] - key % size for key in places) < -1, "a way crosses the end"
    assert table.find_all(np.concatenate([keys, absent])).tolist() == [*places.values(), *[-1] * len(absent)]
    found = [table.find(key) for key in (*keys.tolist(), *absent.tolist())]
    assert [entry and entry[0] for entry in found] == [*places.values(), *[None] * len(absent)]

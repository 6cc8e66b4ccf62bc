"""The promise: what is written is read back, KenLM reads it too, and a file that is wrong is named with its line."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from sgdec.errors import SgdecError
from sgdec.io.arpa import LN_10, Arpa, NGrams, read_arpa, write_arpa
from tests.helpers.optional import optional
from tests.helpers.places import DATA

TINY = DATA / "tiny.arpa"


def altered(folder: Path, old: str, new: str) -> Path:
    """The tiny model with one place changed."""
    text = TINY.read_text()
    assert text.count(old) >= 1
    path = folder / "altered.arpa"
    path.write_text(text.replace(old, new, 1))
    return path


def same(left: Arpa, right: Arpa) -> bool:
    return left.words == right.words and all(
        np.array_equal(a.words, b.words)
        and np.allclose(a.scores, b.scores, rtol=1e-6)
        and np.allclose(a.backoffs, b.backoffs, rtol=1e-6)
        for a, b in zip(left.orders, right.orders, strict=True)
    )


def test_scores_are_natural_logs() -> None:
    model = read_arpa(TINY)
    assert model.words == ["<unk>", "<s>", "</s>", "3", "4", "5"]
    assert [len(ngrams.scores) for ngrams in model.orders] == [6, 7, 3]
    bigrams = model.orders[1]
    assert bigrams.words[2].tolist() == [3, 4]  # "3 4"
    assert math.exp(bigrams.scores[2]) == pytest.approx(10**-0.5)
    assert math.exp(bigrams.backoffs[2]) == pytest.approx(10**-0.2)


def test_a_backoff_that_is_left_out_is_zero() -> None:
    model = read_arpa(TINY)
    assert model.orders[0].backoffs[0] == 0.0
    assert model.orders[0].backoffs[1] == pytest.approx(-0.3 * LN_10)
    assert model.orders[2].backoffs.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    model = read_arpa(TINY)
    write_arpa(tmp_path / name, model)
    assert same(read_arpa(tmp_path / name), model)
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()).startswith(b"\\data\\")


def test_kenlm_scores_what_is_written_as_the_original(tmp_path: Path) -> None:
    write_arpa(tmp_path / "copy.arpa", read_arpa(TINY))
    kenlm = optional("kenlm")
    original, copy = kenlm.Model(str(TINY)), kenlm.Model(str(tmp_path / "copy.arpa"))
    for sentence in ("3 4", "4 5 3 3", "9 5 4", ""):
        assert copy.score(sentence) == pytest.approx(original.score(sentence), abs=1e-5)


def test_words_that_are_not_utf8_survive(tmp_path: Path) -> None:
    path = tmp_path / "latin1.arpa"
    path.write_bytes(b"\\data\\\nngram 1=1\n\n\\1-grams:\n-1\tcaf\xe9\n\n\\end\\\n")
    model = read_arpa(path)
    write_arpa(path, model)
    assert b"caf\xe9" in path.read_bytes()


def test_an_order_may_be_empty(tmp_path: Path) -> None:
    model = read_arpa(TINY)
    nothing = NGrams(np.empty((0, 3), np.int32), np.empty(0), np.empty(0))
    write_arpa(tmp_path / "model.arpa", Arpa(model.words, [*model.orders[:2], nothing]))
    assert len(read_arpa(tmp_path / "model.arpa").orders[2].scores) == 0


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("\\data\\", "data", "line 1: this is not an ARPA file"),
        ("ngram 2=7", "ngram 4=7", "line 3: expected 'ngram 2=COUNT', not 'ngram 4=7'"),
        ("ngram 2=7", "bigrams: 7", "line 3: expected 'ngram 2=COUNT'"),
        ("ngram 1=6", "ngram 1=7", "line 13: expected a 1-gram"),
        ("ngram 1=6", "ngram 1=5", "line 12: expected '\\\\2-grams:'"),
        ("-0.6\t4 </s>", "-0.6\t4", "line 19: expected a 2-gram"),
        ("-0.6\t4 </s>", "-0.6\t4 <5>", "line 19: the word '<5>' is not among the 1-grams"),
        ("-0.6\t4 </s>", "0.6\t4 </s>", "line 19: 0.6 is not the log10 of a probability"),
        ("-0.6\t4 </s>", "nan\t4 </s>", "line 19: nan is not the log10 of a probability"),
        ("-0.6\t4 </s>", "x\t4 </s>", "line 19: expected 'LOG10 WORDS"),
        ("-0.6\t4 </s>", "-1_0\t4 </s>", "line 19: expected 'LOG10 WORDS"),
        ("-0.6\t4 </s>", "-0,6\t4 </s>", "(numbers with a decimal point, not a comma), not '-0,6"),
        ("-0.7\t3", "-0.7\t4", "line 11: the word '4' is listed twice"),
        ("\\3-grams:\n-0.2\t<s> 3 4\n-0.15\t3 4 </s>\n-0.45\t4 5 </s>\n\n\\end\\\n", "\\3-grams:\n-0.2\t<s> 3 4\n",
         "ends after 1 of 3 3-grams: it is cut short"),
        ("\n\\end\\\n", "", "the file ends before '\\\\end\\\\': it is cut short"),
        ("\n\\2-grams:", "", "expected '\\\\2-grams:'"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = altered(tmp_path, old, new)
    with pytest.raises(SgdecError) as caught:
        read_arpa(path)
    assert str(caught.value).startswith(f"{path}: line ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("before", ["\n\n", "# made by a tool\n# in 2012\n\n", "\ufeff", "\ufeffabout\n"])
def test_what_stands_before_the_header_is_skipped(tmp_path: Path, before: str) -> None:
    """SRILM skips it, too; CMU's and Sphinx' tools write such lines, editors a byte order mark."""
    (tmp_path / "a.arpa").write_text(before + TINY.read_text(encoding="utf-8"), encoding="utf-8")
    plain, found = read_arpa(TINY), read_arpa(tmp_path / "a.arpa")
    assert found.words == plain.words
    assert [ngrams.scores.tolist() for ngrams in found.orders] == [ngrams.scores.tolist() for ngrams in plain.orders]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (gzip.compress(TINY.read_bytes()), r": line 1: .* it is gzipped, so its name has to end in \.gz"),
        (TINY.read_text(encoding="utf-8").encode("utf-16"), " is UTF-16, expected UTF-8"),
        (TINY.read_text(encoding="utf-8").encode("utf-16-be"), r": line 1: .*there is no \\data\\"),
    ],
    ids=["gzip", "utf-16", "utf-16-be"],
)
def test_a_file_in_another_encoding_is_named_as_such(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "a.arpa").write_bytes(content)
    with pytest.raises(SgdecError, match=rf"a\.arpa{what}"):
        read_arpa(tmp_path / "a.arpa")


def test_text_is_no_arpa_file_however_long_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a sentence\n" * 5000)
    with pytest.raises(SgdecError, match=r"line 1: this is not an ARPA file: there is no \\data\\ in its first 1000"):
        read_arpa(tmp_path / "a.txt")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"nowhere\.arpa: cannot be read \(No such file"):
        read_arpa(tmp_path / "nowhere.arpa")


def test_a_gzip_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    packed = gzip.compress(TINY.read_bytes())
    path = tmp_path / "cut.arpa.gz"
    for rest in (packed[:-60], packed[:-4], packed[:5], b"no gzip"):
        path.write_bytes(rest)
        with pytest.raises(SgdecError, match=r"cut\.arpa\.gz"):
            read_arpa(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moses_lm.en.arpa.gz", "ucam_trivial.ids.arpa.gz"])
def test_real_models_are_read_whole(data_folder: Path, name: str) -> None:
    path = data_folder / "data" / "lm" / name
    model = read_arpa(path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [line.split() for line in file if "\t" in line]
    at = 0
    for n, ngrams in enumerate(model.orders, 1):
        for words, score in zip(ngrams.words.tolist(), ngrams.scores.tolist(), strict=True):
            assert [model.words[word] for word in words] == lines[at][1 : n + 1]
            assert score == pytest.approx(float(lines[at][0]) * LN_10)
            at += 1
    assert at == len(lines)

"""The promise for what predictors read: one line that names the file and what is wrong with it, nothing made up.

A file that serves all sentences and cannot be used fails the run before it begins (status 1); what concerns one
sentence costs that sentence. The rest of bad input is in `tests.cli.test_bad_input`, and what only one predictor can
get wrong in the tests of that predictor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sgdec.cli.main import main
from sgdec.plugins.host import Host
from tests.helpers.lattice_files import write_automaton, write_paths

pytestmark = pytest.mark.slow

Decode = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Decode:
    """Runs ``sgdec decode`` on two sentences of ids over 9 tokens: status, output, complaints."""
    monkeypatch.chdir(tmp_path)
    Path("in.ids").write_text("3 4\n5\n")

    def run(predictors: str, *args: str) -> tuple[int, list[str], list[str]]:
        common = ["--input-format", "ids", "--vocab-size", "9", "--max-length", "3"]
        status = main(["decode", "--predictors", predictors, *common, *args, "in.ids"])
        out, err = capsys.readouterr()
        lines = [line for line in err.splitlines() if not line.startswith("Note: ")]
        signature = [place for place, line in enumerate(lines) if line.startswith("signature: ")]
        return status, out.splitlines(), lines[: signature[0] - 1] if signature else lines

    return run


READERS = {
    "altsrc": "altsrc:wc", "bow": "bow", "extlength": "extlength,wc", "forced": "forced", "forcedlst": "forcedlst",
    "fst": "fst", "fsttok": "fsttok:wc", "grammar": "grammar", "idxmap": "idxmap:wc", "kenlm": "kenlm",
    "length": "length", "lrhiero": "lrhiero", "nfst": "nfst", "ngram": "ngram", "ngramc": "ngramc",
    "phrases": "phrases,wc", "regex": "regex,wc", "rtn": "rtn", "srilm": "srilm", "trie": "trie",
    "word2char": "word2char:wc", "wordlist": "wordlist,wc",
}  # fmt: skip
"""The predictors that read a file (no checkpoint) for all sentences, in a run."""
READS_NOTHING = {
    "canonical", "contrast", "interpolate", "maskvocab", "maxlength", "minlength", "norepeat", "rank", "repetition",
    "skipvocab", "temperature", "topk", "unkc", "wc",
}  # fmt: skip
READS_CHECKPOINTS = {"clusternmt", "hf", "nmt", "nplm", "rnnlm", "shortlist"}
READS_TOKENIZERS = {"aligned", "bytes"}
"""They bring a vocabulary, so their errors are in their own tests."""
READS_TEXT = {"grammar", "phrases", "regex", "wordlist"}
"""They need a vocabulary, so their other errors are in their own tests."""
READS_LATER = {"altsrc", "bow", "forced"}
"""Lines are understood when their sentence comes."""


def option(name: str) -> str:
    return f"--{name}.{'weights' if name == 'length' else 'path'}"


def test_every_predictor_is_tested_or_reads_no_such_file() -> None:
    names = {entry.name for entry in Host(autoload=False).names("predictor")}
    assert names == {*READERS, *READS_NOTHING, *READS_CHECKPOINTS, *READS_TOKENIZERS}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_there_fails_the_run_in_one_line(decode: Decode, name: str) -> None:
    status, out, (error,) = decode(READERS[name], option(name), "none.txt")
    assert (status, out) == (1, [])
    assert "none.txt: " in error and ("no such" in error.lower()) and error.endswith(".")


@pytest.mark.parametrize("name", sorted({*READERS} - {"rtn", *READS_TEXT}))
def test_a_file_of_another_kind_is_named_with_its_line(decode: Decode, name: str) -> None:
    Path("junk").write_text("x y ||| z\n\x00\n")
    status, out, errors = decode(READERS[name], option(name), "junk")
    assert status == 1
    assert errors[0].count("junk") == 1
    assert "line 1" in errors[0] or "line 2" in errors[0] or "not an OpenFst file" in errors[0]
    assert (len(errors), out) == ((2, ["", ""]) if name in READS_LATER else (1, []))


@pytest.mark.parametrize("name", ["altsrc", "bow", "extlength", "forced", "forcedlst"])
def test_a_file_with_too_few_lines_costs_the_sentences_beyond_its_end(decode: Decode, name: str) -> None:
    Path("short").write_text("2:-0.5\n" if name == "extlength" else "3 4\n")
    status, (_, second), (warning,) = decode(READERS[name], option(name), "short")
    assert (status, second) == (1, "")
    assert warning.startswith(f"Warning: sentence 2: {name}: short")
    assert "Expected one" in warning or "Expected at least one" in warning


def write_two() -> None:
    """Lattices of two sentences."""
    Path("f").mkdir()
    write_paths("f/1.fst", [((3, 44), 0.0)])
    write_paths("f/2.fst", [((3,), 0.0)])


OUTSIDE: dict[str, Callable[[], object]] = {
    "forced,wc --forced.path f": lambda: Path("f").write_text("3 44\n3\n"),
    "bow,wc --bow.path f": lambda: Path("f").write_text("3 44\n3\n"),
    "forcedlst --forcedlst.path f": lambda: Path("f").write_text("1 ||| 3 44 ||| ||| -1\n2 ||| 3 ||| ||| -1\n"),
    "ngramc --ngramc.path f/{id}": lambda: [
        Path("f").mkdir(),
        Path("f/1").write_text("44 : 1\n"),
        Path("f/2").write_text("3 : 1\n"),
    ],
    "trie --trie.path f/{id}": lambda: [
        Path("f").mkdir(),
        Path("f/1").write_text("3 44\n"),
        Path("f/2").write_text("3\n"),
    ],
    "fst --fst.path f/{id}.fst": write_two,
    "nfst --nfst.path f/{id}.fst": write_two,
    "rtn --rtn.path f": write_two,
}
"""What has a token outside the vocabulary in sentence 1."""


@pytest.mark.parametrize("call", OUTSIDE)
def test_a_token_outside_the_vocabulary_costs_its_sentence(decode: Decode, call: str) -> None:
    OUTSIDE[call]()
    status, (first, second), (warning,) = decode(*call.split())
    assert (status, first) == (1, "") and second.split()[0] == "3"
    assert warning.startswith(f"Warning: sentence 1: {call.split()[1][2:].partition('.')[0]}: f")
    assert "44" in warning and "9 t" in warning


OUTSIDE_FOR_ALL: dict[str, Callable[[], object]] = {
    "lrhiero --lrhiero.path f": lambda: Path("f").write_text("S 3 44 1.0\n"),
    "idxmap:wc --idxmap.path f": lambda: Path("f").write_text("".join(f"{i} {i}\n" for i in range(45))),
    "fsttok:wc --fsttok.path f": lambda: write_automaton("f", [(0, (44, 3), 0.0, 1)], {1: 0.0}),
    "maskvocab:wc --maskvocab.tokens 3,44": lambda: None,
    "trie --trie.path f": lambda: Path("f").write_text("3 44\n"),
    "skipvocab:wc --skipvocab.tokens 3,44": lambda: None,
}


@pytest.mark.parametrize("call", OUTSIDE_FOR_ALL)
def test_a_token_outside_the_vocabulary_in_what_serves_all_fails_the_run(decode: Decode, call: str) -> None:
    OUTSIDE_FOR_ALL[call]()
    status, out, (error,) = decode(*call.split())
    assert status in (1, 2) and not out
    assert (
        error.startswith(f"Error: {call.partition(':')[0].split()[0]}: ") and ("9" in error) and error.endswith(".")
    )


def test_characters_outside_the_vocabulary_are_refused_when_they_are_met(decode: Decode) -> None:
    Path("f").write_text("4 3 44\n")
    status, out, warnings = decode("word2char:wc", "--word2char.path", "f")
    assert (status, out, len(warnings)) == (1, ["", ""], 2)
    assert "predictor 'word2char' scores token 44, which is outside the target vocabulary of 9 tokens" in warnings[0]


SEARCHES_TOGETHER = [
    entry.name for entry in Host(autoload=False).names("decoder") if entry.name not in ("sepbeam", "vanilla")
]
SEARCHES_WITH_PROOF = ("astar", "bucket", "dfs", "lendfs", "restarting")


@pytest.mark.parametrize("decoder", SEARCHES_TOGETHER)
def test_what_no_path_satisfies_is_an_empty_list_with_every_decoder(decode: Decode, decoder: str) -> None:
    Path("a").write_text("3 4\n5\n")
    Path("b").write_text("4 3\n5\n")
    search = ["--decoder", decoder, *(["--syncbeam.symbol", "3"] if decoder == "syncbeam" else [])]
    ran = decode("forced,y=forced", "--forced.path", "a", "--y.path", "b", *search)
    proven = decoder in SEARCHES_WITH_PROOF
    path = "no path of at most 3 tokens (--max-length N allows more)"
    what = f"{path} satisfies all predictors" if proven else f"the search found {path} that satisfies all predictors"
    status, out, (warning,) = ran
    assert (status, out) == (1, ["", "5"])
    assert warning in (
        f"Warning: sentence 1: no hypothesis: {what}.",  # of searches on arrays
        f"Warning: sentence 1: no hypothesis: {what}. After the empty prefix: forced allows only 3; y allows only 4.",
    )


def test_a_list_without_features_says_so(decode: Decode) -> None:
    Path("a").write_text("1 ||| 3 ||| ||| -1\n2 ||| 4 ||| lm= -2 ||| -1\n")
    status, out, (warning,) = decode("forcedlst", "--forcedlst.path", "a", "--forcedlst.feature", "lm")
    assert (status, out) == (1, ["", "4"])
    assert warning.startswith("Warning: sentence 1: forcedlst: a: line 1: ") and "lm" in warning

"""The promise of the demo's parts: right number words, lattices that hold them among others, an honest account."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec import Source
from sgdec.cli.main import main
from sgdec.context import BOS, EOS
from sgdec.demo import tour
from sgdec.demo.corpus import LIMIT, draw, english, german, write_corpus
from sgdec.demo.tour import FULL, QUICK, TourRow, TourStep, choose, next_steps, steps, summary
from sgdec.errors import SgdecError, UsageError
from sgdec.lifting import Lowered
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary
from tests.helpers.breadth import examples
from tests.helpers.optional import optional

pytestmark = pytest.mark.slow

NUMBERS = st.integers(0, LIMIT - 1)

# As Duden spells them: "Zahlen und Ziffern", in one word below a million.
DUDEN = {
    0: "null", 1: "eins", 2: "zwei", 3: "drei", 5: "fünf", 6: "sechs", 7: "sieben", 8: "acht", 10: "zehn", 11: "elf",
    12: "zwölf", 13: "dreizehn", 16: "sechzehn", 17: "siebzehn", 19: "neunzehn", 20: "zwanzig",
    21: "einundzwanzig", 30: "dreißig", 31: "einunddreißig", 44: "vierundvierzig", 50: "fünfzig",
    60: "sechzig", 66: "sechsundsechzig", 70: "siebzig", 77: "siebenundsiebzig", 88: "achtundachtzig",
    99: "neunundneunzig", 100: "einhundert", 101: "einhunderteins", 111: "einhundertelf",
    121: "einhunderteinundzwanzig", 201: "zweihunderteins", 999: "neunhundertneunundneunzig",
    1000: "eintausend", 1001: "eintausendeins", 1100: "eintausendeinhundert",
    3421: "dreitausendvierhunderteinundzwanzig", 21000: "einundzwanzigtausend",
    21021: "einundzwanzigtausendeinundzwanzig", 70017: "siebzigtausendsiebzehn", 100000: "einhunderttausend",
    101000: "einhunderteintausend", 101101: "einhunderteintausendeinhunderteins",
    999999: "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
}  # fmt: skip

# Every word by its value, written down apart from the corpus' own tables.
GERMAN_VALUES = {
    "null": 0, "ein": 1, "eins": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8,
    "neun": 9, "zehn": 10, "elf": 11, "zwölf": 12, "dreizehn": 13, "vierzehn": 14, "fünfzehn": 15, "sechzehn": 16,
    "siebzehn": 17, "achtzehn": 18, "neunzehn": 19, "zwanzig": 20, "dreißig": 30, "vierzig": 40, "fünfzig": 50,
    "sechzig": 60, "siebzig": 70, "achtzig": 80, "neunzig": 90,
}  # fmt: skip
ENGLISH_VALUES = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip


def read_german(word: str) -> int:
    """The value of a number written as one word."""
    for name, size in (("tausend", 1000), ("hundert", 100), ("und", 1)):
        before, found, after = word.partition(name)
        if found:
            return read_german(before) * size + (read_german(after) if after else 0)
    return GERMAN_VALUES[word]


def read_english(words: list[str]) -> int:
    for name, size in (("thousand", 1000), ("hundred", 100)):
        if name in words:
            at = words.index(name)
            return read_english(words[:at]) * size + read_english(words[at + 1 :])
    return sum(ENGLISH_VALUES[word] for word in words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus and its vocabulary."""
    folder = tmp_path_factory.mktemp("demo")
    write_corpus(folder, 1, {"train": 300, "test": 20})
    lines = [line for file in folder.glob("train.*") for line in file.read_text("utf-8").splitlines()]
    (folder / "tokenizer.spm").write_bytes(train_vocabulary(lines, 100).serialized)
    return folder


@pytest.fixture(scope="module")
def vocabulary(folder: Path) -> SentencePieceVocabulary:
    return SentencePieceVocabulary.load(folder / "tokenizer.spm")


@pytest.fixture(scope="module")
def grammar(vocabulary: SentencePieceVocabulary) -> Any:
    from sgdec.demo.grammar import CoveringGrammar

    return CoveringGrammar(vocabulary)


@pytest.mark.parametrize("number", DUDEN)
def test_german_number_words_joined_are_those_of_the_dictionary(number: int) -> None:
    assert german(number).replace(" ", "") == DUDEN[number]


@given(NUMBERS)
@settings(max_examples=examples(1000))
def test_number_words_read_back_are_the_number(number: int) -> None:
    assert read_german(german(number).replace(" ", "")) == number
    assert read_english(english(number).split()) == number


@given(NUMBERS)
def test_eins_stands_at_the_end_and_ein_never_does(number: int) -> None:
    *before, last = german(number).split()
    assert "eins" not in before and last != "ein"


def test_a_corpus_follows_from_its_seed_and_repeats_no_number(tmp_path: Path) -> None:
    sizes = {"train": 200, "valid": 30, "test": 40}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_corpus(tmp_path / name, seed, sizes)
    files = [f"{name}.{language}" for name in sizes for language in ("en", "de")]
    texts = {name: [(tmp_path / name / file).read_text("utf-8") for file in files] for name in "abc"}
    assert texts["a"] == texts["b"] != texts["c"]
    lines = [line for name in sizes for line in (tmp_path / "a" / f"{name}.en").read_text("utf-8").splitlines()]
    assert len(lines) == len(set(lines)) == sum(sizes.values())


def test_the_lines_of_a_corpus_are_translations(folder: Path) -> None:
    pairs = zip(*((folder / f"train.{side}").read_text("utf-8").splitlines() for side in ("en", "de")), strict=True)
    assert all(german(read_english(source.split())) == target for source, target in pairs)


def test_numbers_are_drawn_from_the_whole_range_and_no_further() -> None:
    assert set(draw(1, 50, 100)) <= set(range(100))
    assert {0, 99} <= {number for seed in range(100) for number in draw(seed, 50, 100)}
    with pytest.raises(UsageError, match="51 lines in all are too many"):
        draw(1, 51, 100)


def all_candidates(line: str) -> set[str]:
    """The covering grammar's own words, spelled out: exchanges of neighbours, und anywhere, ein or eins."""
    words = line.split()
    found = set()
    for exchanged in product((False, True), repeat=len(words) - 1):
        if any(a and b for a, b in pairwise(exchanged)):
            continue  # one word in two exchanges
        order = list(words)
        for at in (at for at, exchange in enumerate(exchanged) if exchange):
            order[at], order[at + 1] = order[at + 1], order[at]
        values = [ENGLISH_VALUES.get(word) for word in order]
        names = {"hundred": ["hundert"], "thousand": ["tausend"]}
        options = [
            names.get(word) or [name for name, known in GERMAN_VALUES.items() if known == value]
            for word, value in zip(order, values, strict=True)
        ]
        for chosen in product(*options):
            for links in product((" ", " und "), repeat=len(words) - 1):
                found.add("".join(map("".join, zip(chosen, [*links, ""], strict=True))))
    return found


@pytest.mark.parametrize("number", [0, 1, 12, 21, 101, 421, 1011, 71001])
def test_a_lattice_holds_what_the_grammar_says_and_nothing_else(
    number: int, grammar: Any, vocabulary: SentencePieceVocabulary
) -> None:
    line = english(number)
    lattice = grammar.lattice(line)
    labels = [*_paths(lattice)]
    expected = {(BOS, *vocabulary.encode(candidate), EOS) for candidate in all_candidates(line)}
    assert set(labels) == expected
    assert len(labels) == len(expected) == lattice.count()


def _paths(lattice: Any, state: int = 0) -> Iterator[tuple[int, ...]]:
    final, arcs = lattice.states[state]
    if final:
        yield ()
    for token, target in arcs:
        yield from ((token, *path) for path in _paths(lattice, target))


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=3))
def test_a_lattice_is_pyninis_minimal_acceptor_of_its_candidates(numbers: list[int], grammar: Any) -> None:
    pynini = optional("pynini")
    lattice = grammar.lattice(english(min(numbers)))
    paths = [pynini.accep("".join(f"[{token}]" for token in path)) for path in _paths(lattice)]
    minimal = pynini.determinize(pynini.rmepsilon(pynini.union(*paths))).minimize()
    found = pynini.Fst.read_from_string(lattice.openfst())
    assert found.verify()
    assert pynini.isomorphic(found, minimal)


def test_the_docstring_counts_candidates_right(grammar: Any) -> None:
    from sgdec.demo import grammar as module

    said = " ".join((module.__doc__ or "").split())
    assert "For *four hundred twenty one* it accepts 80 candidates" in said
    assert grammar.lattice("four hundred twenty one").count() == 80


@given(number=NUMBERS)
@settings(max_examples=examples(40))
def test_the_reference_is_in_its_lattice_and_fits_the_length_limit(
    number: int, grammar: Any, vocabulary: SentencePieceVocabulary
) -> None:
    source, target = vocabulary.encode(english(number)), vocabulary.encode(german(number))
    states, state = grammar.lattice(english(number)).states, 0
    for token in (BOS, *target, EOS):
        state = dict(states[state][1])[token]
    assert states[state] == (True, ())
    assert len(target) <= 2 * len(source)


def test_fst_takes_the_lattices_and_allows_their_paths_only(
    folder: Path, vocabulary: SentencePieceVocabulary, grammar: Any
) -> None:
    from sgdec_predictors.fst import FstPredictor

    assert main(["demo", "lattices", "--tokenizer", str(folder / "tokenizer.spm"), "--output",
                 str(folder / "{id}.fst"), str(folder / "test.en")]) == 0  # fmt: skip
    predictor = Lowered(FstPredictor(str(folder / "{id}.fst")))
    references = (folder / "test.de").read_text("utf-8").splitlines()
    for number, reference in enumerate(references, 1):
        predictor.initialize(Source(id=number, tokens=()))
        for token in (*vocabulary.encode(reference), EOS):
            row = predictor.predict_next().rows[0]
            assert row.restricts and row.get(token) == 0.0  # no weights
            predictor.consume(token)
    assert len(references) == 20


def test_a_line_that_the_grammar_does_not_cover_is_named(
    tmp_path: Path, folder: Path, grammar: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.en").write_text("two\ntwo millions\n", encoding="utf-8")
    args = ["demo", "lattices", "--tokenizer", str(folder / "tokenizer.spm")]
    assert main([*args, "--output", str(tmp_path / "{id}.fst"), str(tmp_path / "in.en")]) == 1
    error = capsys.readouterr().err
    assert "in.en: line 2: 'two millions'" in error and "number words below a million" in error
    assert main([*args, "--output", str(tmp_path / "one.fst"), str(tmp_path / "in.en")]) == 2
    assert "expected a pattern with {id}" in capsys.readouterr().err


@pytest.mark.parametrize("directory", ["demo", "a folder's name"])
def test_what_is_printed_is_what_runs(directory: str) -> None:
    for step in [*steps(Path(directory), 3, QUICK), *next_steps(Path(directory))]:
        echoed = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {step.shell}"], capture_output=True, text=True, check=True
        )
        assert echoed.stdout.splitlines() == ["sgdec", *step.args]


def test_the_printed_command_survives_copying() -> None:
    step = steps(Path("demo"), 1, QUICK)[5]
    assert shlex.split(step.shell.replace("\\\n", " ")) == ["sgdec", *step.args]
    assert "demo/lattices/{id}.fst" in step.args
    assert all(len(line) < 110 for step in steps(Path("demo"), 1, FULL) for line in step.shell.splitlines())


REPAIRED = TourRow(1, "two", "zwei", "drei", "zwei")
RIGHT = TourRow(2, "three", "drei", "drei", "drei")
WRONG = TourRow(3, "one", "eins", "zwei", "ein")
BROKEN = TourRow(4, "four", "vier", "vier", "und vier")


def test_verdicts_name_what_the_lattice_did() -> None:
    assert [row.verdict for row in (REPAIRED, RIGHT, WRONG, BROKEN)] == [
        "repaired", "right both times", "wrong both times", "broken by the lattice",
    ]  # fmt: skip


def test_the_sentences_shown_hide_no_kind_of_outcome() -> None:
    repaired = [REPAIRED._replace(number=number) for number in range(10, 20)]
    chosen = choose([RIGHT, WRONG, BROKEN, *repaired])
    assert chosen == [RIGHT, WRONG, BROKEN, *repaired[:2]]
    assert choose([RIGHT, BROKEN]) == [RIGHT, BROKEN]


def test_the_summary_counts_every_sentence() -> None:
    text = summary([REPAIRED, RIGHT, WRONG, BROKEN])
    assert "nmt                    50.0%" in text and "nmt,fst                50.0%" in text
    assert "1 repaired, 1 broken by the lattice, 1 wrong both times, 1 right both times" in text
    assert "  + nmt,fst      zwei" in text and "  - nmt,fst      und vier" in text


def pretend(monkeypatch: pytest.MonkeyPatch, nmt: str, nmt_fst: str) -> None:
    """Every step does nothing but the last, which writes the outcome."""

    def run(step: TourStep) -> None:
        if step == steps(tmp, 1, QUICK)[-1]:
            for name, text in (("test.en", "two"), ("test.de", "zwei"), ("nmt.de", nmt), ("nmt-fst.de", nmt_fst)):
                (tmp / name).write_text(text + "\n", encoding="utf-8")

    tmp = Path.cwd()
    monkeypatch.setattr(tour, "run", run)


def test_a_lattice_that_does_not_help_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pretend(monkeypatch, "zwei", "zwei")
    with pytest.raises(SgdecError, match="the lattices did not help: 0 sentences repaired, 0 broken"):
        tour.demo(tmp_path, 1, QUICK, print)
    pretend(monkeypatch, "drei", "zwei")
    tour.demo(tmp_path, 1, QUICK, print)


def test_a_step_that_fails_ends_the_demo_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"exit status 2: sgdec demo corpus --nonsense"):
        tour.run(TourStep("", "sgdec demo corpus --nonsense"))


def test_ctrl_c_in_a_step_is_ctrl_c_in_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "main", lambda args: 130)
    with pytest.raises(KeyboardInterrupt):
        tour.run(TourStep("", "sgdec demo corpus"))


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("x", encoding="utf-8")
    assert main(["demo", "--directory", str(tmp_path)]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["mine"]


def test_the_help_of_the_demo_imports_nothing_heavy() -> None:
    code = (
        "import sys; from sgdec.cli.main import main; main(['demo', '--help'])\n"
        "assert not {'torch', 'pynini', 'sentencepiece', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_end_says_how_the_commands_are_found_where_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", "")
    assert tour._activation() == ", after `. .venv/bin/activate`"
    monkeypatch.setattr("sys.prefix", str(tmp_path / "elsewhere"))
    assert tour._activation() == ""

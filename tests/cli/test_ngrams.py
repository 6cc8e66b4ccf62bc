"""``sgdec ngrams`` writes what `sgdec.tasks.posteriors` says, for lattices and lists, and ngramc reads it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.ngramc import NgramCounts

from sgdec import Source
from sgdec.cli.main import main
from sgdec.io.lattice import read_lattice
from sgdec.io.ngrams import read_ngrams
from sgdec.search.constellation import Constellation
from sgdec.tasks.posteriors import lattice_posteriors, nbest_posteriors
from sgdec.testing import score_path
from sgdec.text.sentencepiece import train_vocabulary
from tests.helpers.lattice_files import write_paths

LISTS = {1: [((3, 4), -1.0), ((3, 3), -2.0)], 2: [((4,), -0.5)]}


def run(*args: str | Path) -> int:
    return main(["ngrams", *map(str, args)])


def lattices(folder: Path) -> str:
    """1: two paths; 2: one; 4: none."""
    for number, paths in {1: {(3, 4): 1.0, (3, 3): 2.0}, 2: {(1, 4, 2): 0.5}, 4: {}}.items():
        write_paths(folder / f"{number}.fst", paths.items())
    return f"{folder}/{{id}}.fst"


def moses(folder: Path, first: int = 1) -> Path:
    path = folder / "list.nbest"
    lines = [
        f"{number - 1 + first} ||| {' '.join(map(str, tokens))} ||| nmt= {score} ||| {score}\n"
        for number, entries in LISTS.items()
        for tokens, score in entries
    ]
    path.write_text("".join(lines))
    return path


def jsonl(folder: Path) -> Path:
    path = folder / "out.jsonl"
    rows = [
        {"id": number, "hypotheses": [{"tokens": tokens, "score": score, "text": ""} for tokens, score in entries]}
        for number, entries in LISTS.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def approximately(ngrams: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], Any]:
    return {ngram: pytest.approx(posterior, rel=1e-8) for ngram, posterior in ngrams.items()}


def test_lattices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern, output = lattices(tmp_path), f"{tmp_path}/new/{{id}}.txt"
    assert run(pattern, "--output", output, "--order", 3, "--scale", 0.5) == 1  # sentence 4 has no path
    error = capsys.readouterr().err
    assert "Warning: sentence 4 has no hypothesis" in error and "3 files" in error
    for number in (1, 2, 4):
        expected = lattice_posteriors(read_lattice(tmp_path / f"{number}.fst"), 3, scale=0.5)
        assert read_ngrams(tmp_path / "new" / f"{number}.txt") == approximately(expected)
    assert (tmp_path / "new" / "4.txt").read_text() == ""


def test_a_range_of_lattices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = lattices(tmp_path)
    assert run(pattern, "--output", f"{tmp_path}/{{id}}.txt", "--range", "2") == 0
    assert [path.name for path in tmp_path.glob("*.txt")] == ["2.txt"]
    assert run(pattern, "--output", f"{tmp_path}/{{id}}.txt", "--range", "2:3") == 1
    assert "3.fst: no such file (sentence 3)" in capsys.readouterr().err


def test_a_lattice_of_another_numbering_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Posteriors would count a word that is 2 as the end of the sentence."""
    write_paths(tmp_path / "1.fst", [((3, 2, 4), 0.0)])
    assert run(f"{tmp_path}/{{id}}.fst", "--output", f"{tmp_path}/{{id}}.txt") == 1
    assert "1.fst: continues after </s>: state 1 has an arc with label 2" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["ours", "from 0", "jsonl"])
def test_lists(tmp_path: Path, form: str) -> None:
    path = jsonl(tmp_path) if form == "jsonl" else moses(tmp_path, 0 if form == "from 0" else 1)
    assert run(path, "--output", f"{tmp_path}/{{id}}.txt", "--order", 2, "--counts") == 0
    for number, entries in LISTS.items():
        expected = nbest_posteriors(entries, 2, counts=True)
        assert read_ngrams(tmp_path / f"{number}.txt") == approximately(expected)


def test_text_needs_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary = train_vocabulary(["ab ba", "aab"], 10, kind="char")
    (tmp_path / "tok.spm").write_bytes(vocabulary.serialized)
    (tmp_path / "list").write_text("1 ||| ab ||| ||| -1\n1 ||| ba ||| ||| -1\n")
    output = f"{tmp_path}/{{id}}.txt"
    assert run(tmp_path / "list", "--output", output) == 1
    assert "line 1: 'ab' is not a token id. For text, give --tokenizer" in capsys.readouterr().err
    assert run(tmp_path / "list", "--output", output, "--tokenizer", tmp_path / "tok.spm") == 0
    a, b = vocabulary.token("a"), vocabulary.token("b")
    assert read_ngrams(tmp_path / "1.txt")[(a, b)] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("ids", "range_", "gaps"),
    [
        ((1, 3), ":", ["sentence 2 is"]),
        ((2, 999_999_999), ":", ["sentence 1 is", "sentences 3 to 999999998 are"]),
        ((2, 5), "2:9", ["sentences 3 to 4 are", "sentences 6 to 9 are"]),
    ],
)
def test_only_sentences_of_the_list_get_a_file_and_a_gap_is_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: tuple[int, ...], range_: str, gaps: list[str]
) -> None:
    (tmp_path / "list").write_text("".join(f"{number} ||| 3 ||| ||| -1\n" for number in ids))
    assert run(tmp_path / "list", "--output", f"{tmp_path}/out/{{id}}.txt", "--range", range_) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{number}.txt" for number in ids}
    warnings = [f"Warning: {gap} not in {tmp_path}/list, so without an output file." for gap in gaps]
    assert capsys.readouterr().err.splitlines()[:-1] == warnings


def test_ngramc_adds_up_what_was_extracted(tmp_path: Path) -> None:
    assert run(moses(tmp_path), "--output", f"{tmp_path}/{{id}}.txt") == 0
    constellation = Constellation.of({"ngramc": NgramCounts(f"{tmp_path}/{{id}}.txt")})
    total, _ = score_path(constellation, Source(1, ()), (3, 4))
    first = math.exp(-1) / (math.exp(-1) + math.exp(-2))
    # 3, <s> 3, 4, 3 4, <s> 3 4, </s>, 4 </s>, 3 4 </s>, <s> 3 4 </s>; of these the second entry has 3, <s> 3, </s>
    assert total == pytest.approx(3 + 6 * first, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("{list}", "--output", "{folder}/out.txt"), 2, "give --output a pattern such as 'ngrams/{id}.txt'"),
        (("{list}", "--output", "{out}", "--order", "0"), 2, "--order"),
        (("{list}", "--output", "{out}", "--scale", "-1"), 2, "--scale"),
        (("{list}", "--output", "{out}", "--scale", "inf"), 2, "--scale: inf should be a finite number"),
        (("{list}", "--output", "{out}", "--range", "5:3"), 2, "--range 5:3"),
        (("{list}", "--output", "{out}", "--range", "5:9"), 1, "there is no sentence in 5:9"),
        (("{folder}/none", "--output", "{out}"), 1, "none: cannot be read (No such file or directory)"),
        (("{folder}/{id}.none", "--output", "{out}"), 1, "there is no sentence"),
        (("{folder}/text", "--output", "{out}"), 1, "text: line 1 does not begin with a sentence id"),
        (("{folder}/bare", "--output", "{out}"), 1, "bare: line 1 has no total"),
        (("{folder}/huge", "--output", "{out}"), 1, "a total of sentence 1 is not a finite number"),
        (("{folder}/bad.jsonl", "--output", "{out}"), 1, "bad.jsonl: line 1 is not a result of `sgdec decode"),
        (("{folder}/twice.jsonl", "--output", "{out}"), 1, "twice.jsonl: line 2: sentence ids do not ascend"),
        (("{list}", "--output", "{folder}/text/{id}"), 1, ""),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, complaint: str
) -> None:
    (tmp_path / "text").write_text("words\n")
    (tmp_path / "bare").write_text("1 ||| 3 4\n")
    (tmp_path / "huge").write_text("1 ||| 3 4 ||| ||| inf\n")
    (tmp_path / "bad.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "twice.jsonl").write_text('{"id": 1, "hypotheses": []}\n' * 2)
    places = {"{folder}": tmp_path, "{list}": moses(tmp_path), "{out}": tmp_path / "{id}.txt"}
    for place, path in places.items():
        arguments = tuple(argument.replace(place, str(path)) for argument in arguments)
    assert run(*arguments) == status
    (error,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Warning")]
    assert error.startswith("Error: ") and complaint in error

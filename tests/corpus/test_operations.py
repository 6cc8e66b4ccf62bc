"""The promise of a corpus that is scored: the merged file is the one that ``sgdec score`` writes, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sgdec.cli.main import main
from tests.helpers.places import ROOT
from tests.helpers.tiny_models import write_lattice

pytestmark = pytest.mark.slow

INLINE = str(ROOT / "tests" / "helpers" / "inline_engine.py")
FST = ["--predictors", "fst,wc", "--fst.path", "{id}.fst", "--input-format", "ids"]
SENTENCES = 7
LINES = [f"{3 + number % 3} 4" for number in range(SENTENCES)]
LINES[3] = "5 5 5"  # forbidden
LINES[4] = "x"  # no token
ENTRIES = [
    f"{number} ||| {text} ||| tm= -1 -2 ||| {-total}"
    for number in (0, 1, 2, 4, 5)  # of two sentences there is no entry
    for text, total in (("3 4", 1), ("4 4", 7), ("9 9", 3), ("5", 0.25), ("x", 2))
    if (number, total) != (1, 2)
]
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command beside two inputs, the outputs to score, and the lattices of their sentences."""
    monkeypatch.chdir(tmp_path)
    for number in range(1, SENTENCES + 1):
        write_lattice(tmp_path / f"{number}.fst", [((3, 4), 0.5), ((4, 4), number / 8), ((5, 4), -1.0), ((5,), 2.0)])
    sources = ["7\n", "8 8\n", "\n", "9\n", "3 3\n", "4\n", "5\n"]  # one cannot be read
    Path("all.ids").write_text("".join(sources))
    Path("a.ids").write_text("".join(sources[:4]))
    Path("b.ids").write_text("".join(sources[4:]))
    Path("lines").write_text("".join(f"{line}\n" for line in LINES))
    Path("list").write_text("".join(f"{entry}\n" for entry in ENTRIES))

    def command(*args: str, status: int = 0) -> str:
        found = main(list(args))
        _, err = capsys.readouterr()
        assert found == status, err
        return err

    return command


def corpus(target: str, *more: str, decode: list[str], chunk: int = 2) -> list[str]:
    start = ["corpus", "a.ids", "b.ids", "--score", target, "--output", "d", "--engine", "inline"]
    return [*start, "--chunk", str(chunk), *more, "--", "--plugin-file", INLINE, *decode]


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize(
    ("target", "output_format", "more"),
    [
        ("lines", "score", []),
        ("lines", "jsonl", ["--alpha", "1"]),
        ("list", "nbest", ["--old-weight", "2", "--alpha", "0.5", "--normalize", "length"]),
        ("list", "text", ["--old-weight", "1"]),
        ("list", "score", []),
        ("list", "jsonl", []),
    ],
)
def test_the_merged_scores_are_those_of_one_process(
    run: Run, target: str, output_format: str, more: list[str], chunk: int
) -> None:
    options = [*FST, *more, *(["--nbest-list"] if target == "list" else [])]
    alone = run("score", *options, "--output-format", output_format, "--output", "one", "all.ids", target, status=1)
    start = corpus(target, "--output-format", output_format, decode=options, chunk=chunk)
    for _ in range(2):  # the second one has nothing to do
        said = run(*start, status=1)
    assert "0 lines scored here" in said
    run("corpus-merge", "d", "--output", "out", status=1)
    assert Path("out").read_bytes() == Path("one").read_bytes() != b""
    failed = [json.loads(line) for line in Path("out.failed.jsonl").read_text().splitlines()]
    warned = dict.fromkeys(map(int, re.findall(r"^Warning: sentence (\d+):", alone, re.MULTILINE)))
    assert [row["id"] for row in failed] == list(warned), "each once, however many of its entries have failed"
    assert failed[-1]["reason"] in alone
    assert target == "lines" or "the predictors forbid" in failed[0]["reason"], "that of the first entry, not of x"


def test_a_target_is_scored_as_text_or_as_ids_and_of_its_length(run: Run) -> None:
    """The formats of input and target differ, and no limit on outputs applies."""
    Path("in.txt").write_text("aab b\nb a\n")
    Path("out.ids").write_text(f"3{' 3' * 20}\n4\n")
    run("tokenizer", "--input", "in.txt", "--kind", "char", "--vocab-size", "6", "--output", "v.spm")
    options = ["--predictors", "wc", "--tokenizer", "v.spm", "--target-format", "ids"]
    run("score", *options, "--output", "one", "in.txt", "out.ids")
    start = ["corpus", "in.txt", "--score", "out.ids", "--output", "d", "--engine", "inline", "--"]
    run(*start, "--plugin-file", INLINE, *options)
    run("corpus-merge", "d", "--output", "out")
    assert Path("out").read_text() == Path("one").read_text() == "-21.000000\n-1.000000\n"


@pytest.mark.parametrize(
    ("output_format", "list_"), [("score", False), ("score", True), ("nbest", True), ("jsonl", True)]
)
def test_failed_lines_are_scored_again(run: Run, output_format: str, list_: bool) -> None:
    """Also in the middle of a chunk, and lines with several rows."""
    options, target = ([*FST, "--nbest-list"], "list") if list_ else (FST, "lines")
    Path("all.ids").write_text("7\n" * 3)
    Path("lines").write_text("3 4\n4 4\n5\n")
    Path("list").write_text("1 ||| 3 4\n1 ||| 5\n2 ||| 5\n2 ||| 4 4\n3 ||| 5\n")
    Path("2.fst").rename("kept.fst")
    start = ["corpus", "all.ids", "--score", target, "--output", "d", "--engine", "inline", "--retry-failed"]
    start += ["--output-format", output_format, "--", "--plugin-file", INLINE, *options]
    assert "3 lines scored here, 1 of them failed" in run(*start, status=1)
    Path("kept.fst").rename("2.fst")
    assert "1 line scored here; 1 of 1 chunks" in run(*start)
    run("corpus-merge", "d", "--output", "out")
    run("score", *options, "--output-format", output_format, "--output", "one", "all.ids", target)
    assert Path("out").read_bytes() == Path("one").read_bytes()
    Path("2.fst").unlink()
    write_lattice(Path("2.fst"), [((5,), 1.0)])
    assert "2.fst changed since chunk 0, line 2 of it was scored. Restore it" in run(*start, status=1)


def test_what_is_scored_belongs_to_the_run(run: Run) -> None:
    """The option --nbest-list and the content of the file are parts of it; what only a search has is not."""
    run(*corpus("lines", decode=FST), status=1)
    for target, decode, difference in [
        ("lines", [*FST, "--alpha", "1"], "was begun with alpha 0.0, this is 1.0"),
        ("lines", [*FST, "--target-format", "text"], "was begun with target_format ids, this is text"),
        ("list", [*FST, "--nbest-list"], "was begun with another content of lines (7 lines, sha256"),
    ]:
        assert difference in run(*corpus(target, decode=decode), status=2)
    plain = ["corpus", "a.ids", "b.ids", "--output", "d", "--engine", "inline", "--chunk", "2", "--"]
    said = run(*plain, "--plugin-file", INLINE, *FST, status=2)
    assert "d: was begun with --score lines, this has none. Give the same, or another folder." in said
    assert "scored here" in run(*corpus("lines", decode=[*FST, "--batch-size", "1"]), status=1)
    Path("lines").write_text(Path("lines").read_text().replace("3 4", "4 4", 1))
    assert "was begun with another content of lines" in run(*corpus("lines", decode=FST), status=2)


def test_merging_does_not_write_over_the_outputs_that_were_scored(run: Run) -> None:
    run(*corpus("lines", decode=FST), status=1)
    before = Path("lines").read_text()
    assert "lines: it is an input of the corpus. Write to another file." in run(
        "corpus-merge", "d", "--output", "lines", status=2
    )
    assert Path("lines").read_text() == before


def test_the_signature_of_scores_is_that_of_one_process(run: Run) -> None:
    run("score", *FST, "--signature", "s", "--nbest-list", "--output", "one", "all.ids", "list", status=1)
    run(*corpus("list", decode=[*FST, "--nbest-list"]), status=1)
    one = dict(part.partition(":")[::2] for part in Path("s").read_text().strip().split("|"))
    ours = json.loads(Path("d/manifest.json").read_text())["signature"]
    assert {name: value for name, value in ours.items() if name in one} == one
    assert ours.keys() - one.keys() == {"nbest_list", "target_format"}, "which a single process keeps elsewhere"


def test_a_list_that_counts_from_zero_gets_numbers_from_one(run: Run) -> None:
    Path("list").write_text("0 ||| 3 4\n6 ||| 5\n")
    assert "Warning: 5 of 7 sentences of a.ids and b.ids have no entry in list." in run(
        *corpus("list", decode=[*FST, "--nbest-list"])
    )
    run("corpus-merge", "d", "--output", "out")
    assert [row.split(" ||| ")[:2] for row in Path("out").read_text().splitlines()] == [["1", "3 4"], ["7", "5"]]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("3\n" * 6, [], "out has 6 lines, and there are 7 in a.ids and b.ids. Expected one output for each; --nbest"),
        ("3\n" * 8, [], "out has 8 lines, and there are 7 in a.ids and b.ids."),
        ("", [], "out has 0 lines, and there are 7 in a.ids and b.ids."),
        ("3\n\xff\n" + "3\n" * 5, [], "out: line 2 is not UTF-8 (byte 1 of it). Convert the file."),
        ("1 ||| 3\n8 ||| 4\n", ["--nbest-list"], "out: line 2: a.ids and b.ids has no sentence 8."),
        ("2 ||| 4\n1 ||| 3\n", ["--nbest-list"], "out: line 2: sentence ids do not ascend."),
        ("1 || 3 4\n", ["--nbest-list"], "out: line 1 does not begin with a sentence id and a text."),
        ("1 ||| 3 ||| lm= x\n", ["--nbest-list"], "out: line 1: 'x' is not a score."),
        ("1 ||| 3 ||| 1\n2 ||| 3\n", ["--nbest-list", "--old-weight", "1"], "out: line 2 has no total for --old-we"),
    ],
)
def test_what_ends_the_scoring_of_one_process_is_found_before_any_work(
    run: Run, content: str, options: list[str], message: str
) -> None:
    Path("out").write_bytes(content.encode("latin-1"))
    said = run(*corpus("out", decode=[*FST, *options]), status=1)
    assert f"Error: {message}" in said and len(said.splitlines()) == 1
    assert not list(Path("d").glob("*.json"))


@pytest.mark.parametrize(
    ("own", "after", "message"),
    [
        ([], ["--beta", "1"], "a coverage penalty (beta = 1) needs a predictor with attention"),
        ([], ["--nbest", "3"], "--nbest is an option of `sgdec decode`, and --score takes those of `sgdec score`."),
        ([], ["--decoder", "greedy"], "--decoder is an option of `sgdec decode`, and --score"),
        ([], ["--chunk", "3"], "--chunk is an option of `sgdec corpus`: these go before `--`."),
        ([], ["other"], "other: input files go before `--`, options of sgdec decode or score after it."),
        ([], ["--output", "x"], "--output after `--`: --output DIR goes before `--`"),
        ([], ["--resume"], "--resume after `--`: a second start with the same options continues by itself."),
        (["--nbest-list"], [], "--nbest-list is an option of `sgdec score`: these go after `--`."),
        (["--ledger"], [], "--ledger: the JSON lines of scores have the score of every token without it."),
        (["--output-format", "fst"], [], "--output-format fst: scores are written as score, jsonl, nbest or text."),
        (["--output-format", "nbest"], [], "--output-format nbest needs --nbest-list after `--`: it has nothing"),
    ],
)
def test_wrong_options_of_scores_are_one_line(run: Run, own: list[str], after: list[str], message: str) -> None:
    (line,) = run(*corpus("lines", *own, decode=[*FST, *after]), status=2).splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.ids", "--output-format", "score"], "--output-format score: lines are decoded. Give --score FILE"),
        (["a.ids", "--", *FST, "--old-weight", "1"], "--old-weight is an option of `sgdec score`: give --score FILE"),
        (["-", "--score", "-", "--", *FST], "standard input is either an INPUT or the --score FILE."),
        (["a.ids", "--score", "no", "--", *FST], "input no: No such file or directory"),
        (["a.ids", "--score", "d/manifest.json", "--", *FST], "--output d is what --score reads."),
    ],
)
def test_scores_need_their_file(run: Run, args: list[str], message: str) -> None:
    args = args if "--" in args else [*args, "--", *FST]
    (line,) = run("corpus", "--output", "d", *args, status=2).splitlines()
    assert message in line

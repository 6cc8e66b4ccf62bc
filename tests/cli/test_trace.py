"""The promise of `sgdec decode --trace`: the file tells what the run did, and the run does what it does without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgdec.cli.main import main
from sgdec.trace import Trace, read_trace
from tests.helpers.tiny_models import characters, write_lattice

Run = Callable[..., str]
SENTENCES = ["3 4", "5", "8", "6 3 4", "9"]
"""The fourth is the longest, so it is searched last; the last has no lattice."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``sgdec decode`` with five lattices and returns the output, or with a status the error."""
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("".join(f"{line}\n" for line in SENTENCES))
    for number in (1, 2, 3, 4):
        write_lattice(Path(f"{number}.fst"), [((3, 4), 0.5), ((3, 5), 0.25 * number), ((6,), 2.0), ((7, 3, 4), 1.0)])

    def decode(*args: str, status: int = 1) -> str:
        """The last sentence fails, so 1 is the usual status."""
        found = main(["decode", *PREDICTORS, *args, *([] if "--config" in args else ["in"])])
        out, err = capsys.readouterr()
        assert found == status, err
        return err if status == 2 else out

    return decode


PREDICTORS = [
    "--predictors", "fst,wc", "--fst.path", "{id}.fst", "--wc.weight", "-0.3", "--input-format", "ids",
    "--output-format", "ids", "--max-length", "6",
]  # fmt: skip


def without_times(path: str) -> tuple[object, ...]:
    read = read_trace(path)
    return read.sentences, read.pieces


def test_a_trace_changes_no_output_and_tells_it(run: Run) -> None:
    before = run("--nbest", "2")
    assert run("--nbest", "2", "--trace", "t") == before
    read = read_trace("t")
    assert [found.id for found in read.sentences] == [1, 2, 3, 4]
    best = [" ".join(map(str, found.hypotheses[0].tokens)) for found in read.sentences]
    assert [*best, ""] == before.splitlines()
    assert all(len(found.hypotheses) == 2 for found in read.sentences)
    header = read.header
    assert (header.predictors, header.weights) == (("fst", "wc"), (1.0, -0.3))
    assert (header.decoder, header.nbest, header.children) == ("beam", 2, 20)
    assert "fst" in header.signature
    first = read.sentences[0]
    assert first.tokens == (3, 4) and first.text is None and first.pieces is None and read.pieces == {}
    assert [child.token for child in first.expansions[0].children] == [3, 6, 7]
    assert all(list(expansion.place) == ["fst"] for expansion in first.expansions)


@pytest.mark.parametrize("decoder", ["beam", "greedy", "astar", "dfs", "sample"])
def test_batches_change_no_trace(run: Run, decoder: str) -> None:
    for size in ("1", "2", "64"):
        run("--decoder", decoder, "--batch-size", size, "--trace", size)
    assert without_times("1") == without_times("2") == without_times("64")


@pytest.mark.parametrize("name", ["t.gz", "t.zst"])
def test_the_name_says_how_it_is_packed(run: Run, name: str) -> None:
    run("--trace", "t")
    run("--trace", name)
    assert Path(name).read_bytes()[:1] in (b"\x1f", b"\x28") and without_times(name) == without_times("t")


@pytest.mark.parametrize(
    ("part", "expected"), [("2:3", [2, 3]), ("3:", [3, 4]), (":1", [1]), ("2", [2]), ("5:9", []), ("7:", [])]
)
def test_only_the_sentences_that_are_named(run: Run, part: str, expected: list[int]) -> None:
    assert run("--trace", "t", "--trace-sentences", part) == run()
    assert [found.id for found in read_trace("t").sentences] == expected


def test_sentences_are_counted_in_the_input(run: Run) -> None:
    run("--trace", "t", "--range", "2:4", "--trace-sentences", "3:9", status=0)
    assert [found.id for found in read_trace("t").sentences] == [3, 4]


def test_the_limits_hold(run: Run) -> None:
    run("--trace", "t", "--trace-children", "1", "--trace-expansions", "2", "--decoder", "astar")
    read: Trace = read_trace("t")
    assert (read.header.children, read.header.expansions) == (1, 2)
    for found in read.sentences:
        assert len(found.expansions) == 2 < found.counted


def test_the_options_can_come_from_a_file(run: Run) -> None:
    Path("run.toml").write_text('input = "in"\ntrace = "t"\ntrace_sentences = "2:3"\ntrace_children = 2\n')
    run("--config", "run.toml")
    read = read_trace("t")
    assert [found.id for found in read.sentences] == [2, 3] and read.header.children == 2


def test_a_vocabulary_gives_pieces_and_texts(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.spm").write_bytes(characters("abcdef").serialized)
    Path("text").write_text("ab\u2028\n")
    assert main(["decode", "--predictors", "wc", "--wc.weight", "-1", "--tokenizer", "c.spm", "--max-length", "2",
                 "--trace", "t", "text"]) == 0, capsys.readouterr().err  # fmt: skip
    read = read_trace("t")
    (found,) = read.sentences
    assert found.text == "ab\u2028" and found.pieces is not None and len(found.pieces) == len(found.tokens)
    assert found.hypotheses[0].text is not None and set(read.pieces) >= {2, *found.hypotheses[0].tokens}


def test_a_sentence_that_cannot_be_read_has_no_trace(run: Run) -> None:
    Path("in").write_text("3 4\nx\n5\n")
    run("--trace", "t")
    assert [found.id for found in read_trace("t").sentences] == [1, 3]


def test_a_run_without_sentences_has_a_trace_without_sentences(run: Run) -> None:
    Path("in").write_text("")
    run("--trace", "t", status=0)
    assert read_trace("t").sentences == ()


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(("part", "noticed"), [("2:3", False), ("70:80", True)])
def test_a_part_without_sentences_is_noticed(
    part: str, noticed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["decode", *PREDICTORS, "--trace", "t", "--trace-sentences", part, "in"])
    assert ("--trace t has no sentence: --trace-sentences" in capsys.readouterr().err) == noticed


def test_a_search_that_breaks_off_tells_so(run: Run) -> None:
    """Within the length limit the lattice has no end."""
    for number in (1, 2, 3, 4):
        write_lattice(Path(f"{number}.fst"), [((3, 4), 0.5)])
    run("--trace", "t", "--max-length", "1")
    found = read_trace("t").sentences
    assert len(found) == 4 and all("no hypothesis" in str(each.error) and not each.hypotheses for each in found)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--trace", "in"], "--trace in is the input. Write to another file."),
        (["--trace", "./o", "--output", "o"], "--output o and --trace ./o are the same file."),
        (["--trace", "3.fst"], "--trace 3.fst is what --fst.path reads."),
        (["--trace", "plug.py", "--plugin-file", "plug.py"], "--trace plug.py is what --plugin-file reads."),
        (["--trace", "t", "--output", "o", "--resume"], "--trace: a continued run has no trace of the sentences bef"),
        (["--trace", "t", "--trace-sentences", "3:2"], "--trace-sentences 3:2"),
        (["--trace", "t", "--trace-sentences", "x"], "--trace-sentences x"),
        (["--trace", "t", "--trace-sentences", "0:2"], "--trace-sentences 0:2"),
        (["--trace", "t", "--trace-children", "0"], "Invalid value for '--trace-children': 0 is not in the range"),
        (["--trace", "t", "--trace-expansions", "x"], "--trace-expansions: 'x' should be a number"),
        (["--trace-sentences", "1:2"], "--trace-sentences says what --trace FILE records; give both."),
        (["--trace-children", "2"], "--trace-children says what --trace FILE records; give both."),
        (["--trace-expansions", "2"], "--trace-expansions says what --trace FILE records; give both."),
    ],
)
def test_wrong_calls_are_one_line_and_write_nothing(run: Run, args: list[str], message: str) -> None:
    Path("plug.py").write_text("")
    before = sorted(Path().iterdir())
    error = run(*args, status=2)
    assert message in error and error.startswith("Error: ") and error.count("\n") == 1
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("name", ["none/t", "folder"])
def test_where_nothing_can_be_written(run: Run, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    assert main(["decode", *PREDICTORS, "--trace", name, "in"]) == 1
    assert f"Error: {name}: cannot be written (" in capsys.readouterr().err


def test_a_run_that_breaks_off_leaves_no_trace(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("t").write_text("an older trace")
    monkeypatch.setattr("sgdec.trace.writing.TraceWriter.write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("--trace", "t")
    assert Path("t").read_text() == "an older trace" and not list(Path().glob("*.partial")) + list(Path().glob(".t*"))


@pytest.mark.slow
def test_an_output_whose_reader_goes_away_is_not_blamed_on_the_trace(run: Run) -> None:
    Path("many").write_text("3 4\n" * 3000)
    command = "decode --predictors wc --vocab-size 6 --max-length 1 --input-format ids --trace t many"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m sgdec {command} | head -n 1"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 1 and "Error" not in done.stderr and not Path("t").exists()


def test_the_lines_are_compact(run: Run) -> None:
    run("--trace", "t")
    for line in Path("t").read_text().splitlines():
        assert json.loads(line)["event"] and ": " not in line.replace('"signature":', "").split('"error"')[0]

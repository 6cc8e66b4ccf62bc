"""`sgdec compare` prints what the library computes, writes all of it, and refuses files that do not fit together."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from tests.helpers.web_pages import Page

sacrebleu = pytest.importorskip("sacrebleu")

REFERENCE = ["Zwei Männer gehen über die Straße.", "Ein Hund läuft am Strand entlang.", "Ja."]
A = ["Zwei Männer gehen auf die Straße.", "Ein Hund läuft am Strand.", "Ja."]
B = ["Zwei Männer gehen über die Straße.", "Ein Hut läuft am Strand.", "Ja."]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("ref", REFERENCE), ("a", A), ("b", B), ("src", ["x", "y", "z"])):
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    Path("short").write_text("one line\n")
    Path("empty").touch()
    Path("long.nbest").write_text("1 ||| a ||| -1\n4 ||| b ||| -1\n")
    Path("latin").write_bytes("Straße\nb\nc\n".encode("latin-1"))
    Path("lists.nbest").write_text(
        "".join(f"{number} ||| {text} ||| {score}\n" for number, pair in enumerate(zip(A, B, strict=True), 1)
                for score, text in zip((-1.5, -2.5), pair, strict=True))
    )  # fmt: skip
    return tmp_path


def sgdec(*args: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    assert main(["compare", *args]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def test_scores_and_signatures_are_those_of_sacrebleu(capsys: pytest.CaptureFixture[str]) -> None:
    printed = sgdec("a", "b", "--reference", "ref", "--test", "none", capsys=capsys)
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line[:2] in ("a ", "b ")}
    for name, outputs in (("a", A), ("b", B)):
        bleu = sacrebleu.corpus_bleu(outputs, [REFERENCE])
        others = (sacrebleu.corpus_chrf(outputs, [REFERENCE]), sacrebleu.corpus_ter(outputs, [REFERENCE]))
        expected = [f"{score.score:.2f}" for score in (bleu, *others)]
        lengths = [f"{bleu.sys_len / bleu.ref_len:.3f}", f"{bleu.bp:.3f}"]
        assert " ".join([name, *expected, *lengths]) in re.sub(" +", " ", printed), rows
    assert "BLEU: nrefs:1|case:mixed|eff:no|tok:13a" in printed and "TER: nrefs:1|case:lc|tok:tercom" in printed


def test_metrics_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    common = ("a", "b", "--reference", "ref", "--test", "none")
    every = sgdec(*common, "--json", "all", capsys=capsys)
    printed = sgdec(*common, "--json", "two", "--metrics", "chrF,bleu", capsys=capsys)
    assert "TER: nrefs" in every and "TER: nrefs" not in printed
    found = [json.loads(Path(name).read_text())["systems"] for name in ("all", "two")]
    scores = [[system["scores"] for system in systems] for systems in found]
    assert [list(each) for each in scores[1]] == [["bleu", "chrf"]] * 2
    assert all(some.items() <= of_all.items() for of_all, some in zip(*scores, strict=True))
    assert "chrF: nrefs" in sgdec(*common, "--metrics", "chrf", capsys=capsys)
    said = sgdec(*common, "--metrics", "bleu,comet", capsys=capsys, status=2)
    assert "'comet' is not a metric; expected a list of bleu, chrf, ter." in said


def test_differences_have_p_values_which_the_seed_decides(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--reference", "ref", "--samples", "50", "--show", "0"]
    printed = [sgdec("a", "b", *options, "--seed", seed, capsys=capsys) for seed in ("1", "1", "2")]
    assert printed[0] == printed[1] != printed[2]
    assert re.search(r"  difference +\+\d+\.\d\d \(p (0\.\d+|1)\)", printed[0]) and "ar:50|seed:1|" in printed[0]
    itself = sgdec("a", "a", *options, capsys=capsys)
    assert itself.count("+0.00 (p 1)") == 3


def test_the_report_says_which_p_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["a", "b", "--reference", "ref", "--samples", "50", "--html", "out.html", "--json", "out"]
    approx = sgdec(*options, capsys=capsys)
    note = "p is that of approximate randomisation, two-sided, with 50 trials."
    assert f"\n{note}\n" in approx and "±" not in approx and "ar:50|seed:12345|" in approx
    assert note in Page(Path("out.html").read_text()).texts["p"]
    found = json.loads(Path("out").read_text())
    assert (found["test"], found["samples"]) == ("approx", 50)
    bootstrap = sgdec(*options, "--test", "bootstrap", capsys=capsys)
    note = "p is that of sacreBLEU's bootstrap with 50 resamples, smaller than the two-sided p of --test approx."
    assert f"\n{note}\n" in bootstrap and "±" in bootstrap and "bs:50|seed:12345|" in bootstrap
    assert note in Page(Path("out.html").read_text()).texts["p"]
    assert json.loads(Path("out").read_text())["test"] == "bootstrap"
    assert "p is that of" not in sgdec("a", "b", "--reference", "ref", "--test", "none", capsys=capsys)


def test_the_sentences_that_differ_most_are_printed_as_changes(capsys: pytest.CaptureFixture[str]) -> None:
    printed = sgdec("a", "b", "--reference", "ref", "--source", "src", "--test", "none", "--show", "1", capsys=capsys)
    *_, paragraph = printed.split("\n\n")
    lines = [re.sub(" +", " ", line).strip() for line in paragraph.strip().splitlines()]
    assert lines[0].startswith("Sentence 1, difference in chrF +") and lines[1] == "source x"
    assert lines[2] == f"reference {REFERENCE[0]}" and lines[3].endswith(A[0])
    assert lines[4] == "b 100.0 Zwei Männer gehen [-auf-] {+über+} die Straße."
    for show, count in (("0", 0), ("9", 2)):
        found = sgdec("a", "b", "--show", show, capsys=capsys)
        assert found.count("Sentence ") == count, "equal outputs are not shown"


@pytest.mark.slow
@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_marks_are_coloured_on_a_terminal(variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | variables
    command = [sys.executable, "-m", "sgdec", "compare", "a", "b"]
    subprocess.run(command, stdout=theirs, env=environment, check=True)
    os.close(theirs)
    printed = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert ("\x1b[31m\x1b[1m[-auf-]\x1b[0m \x1b[32m\x1b[1m{+über+}" in printed) == coloured
    assert "[-auf-]" in printed


def test_control_characters_of_a_file_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a").write_text("\x1b[2Jx y\nb\nc\n")
    for files in (["a", "b"], ["b", "a"]):
        printed = sgdec(*files, "--source", "a", capsys=capsys)
        assert "\x1b" not in printed
        assert "[-\\x1b[2Jx y-]" in printed or "{+\\x1b[2Jx y+}" in printed


def test_formats_are_found_and_lists_have_oracles(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": number, "hypotheses": [{"text": text, "score": -1.0}]} for number, text in enumerate(B, 1)]
    Path("b.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    options = ["--reference", "ref", "--test", "none", "--json", "out.json"]
    printed = sgdec("lists.nbest", "b.jsonl.gz", "a", *options, capsys=capsys)
    found = json.loads(Path("out.json").read_text())
    assert [system["format"] for system in found["systems"]] == ["nbest", "jsonl", "text"]
    assert found["systems"][0]["lists"]["largest"] == 2 and found["systems"][1]["lists"] is None
    best = [max(sacrebleu.sentence_chrf(text, [ref]).score for text in pair)
            for *pair, ref in zip(A, B, REFERENCE, strict=True)]  # fmt: skip
    assert found["systems"][0]["lists"]["best_chrf"] == pytest.approx(sum(best) / 3)
    assert found["overlaps"][0]["scores"] == {"sentences": 3, "mean": 0.5, "higher": 3, "lower": 0}
    assert found["overlaps"][1]["scores"] is None and found["overlaps"][1]["equal"] == 3
    assert "Hypotheses per sentence" in printed and re.search(r"\+0\.5000 +3 of 3 +0 of 3\n", printed)
    forced = sgdec("lists.nbest", "lists.nbest", "--format", "text", "--show", "0", capsys=capsys)
    assert "6 of 6" in forced


def test_sentences_without_an_output_are_missing_and_not_equal(capsys: pytest.CaptureFixture[str]) -> None:
    """The list ends before sentence 3, which failed in both runs; sentence 2 failed in one of them."""
    Path("failed.nbest").write_text(f"1 ||| {A[0]} ||| nmt= -1 ||| -1\n1 ||| {B[0]} ||| nmt= -2 ||| -2\n")
    rows: list[dict[str, Any]] = [{"id": number, "hypotheses": []} for number in (1, 2, 3)]
    for row, text in zip(rows[:2], A[:2], strict=True):
        row["hypotheses"] = [{"text": text, "score": -0.5, "weights": {"nmt": 1.0}}]
    Path("failed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--reference", "ref", "--test", "none", "--json", "out.json", "--html", "out.html"]
    printed = sgdec("failed.nbest", "failed.jsonl", *options, capsys=capsys)
    assert "Missing outputs count as empty ones: failed.nbest 2, failed.jsonl 1.\n" in printed
    assert re.search(r"\nfailed\.jsonl +1 of 1 +100\.00 +100\.00 ", printed)
    assert "failed.jsonl: over the 1 sentence of 3 with an output in both files; neither has one for 1.\n" in printed
    assert "Means of chrF and rank: over the 1 sentence with an output in every file." in printed
    assert re.search(r"\n  failed\.nbest +0\.0  \(no output\)\n", printed) and "not comparable" not in printed
    found = json.loads(Path("out.json").read_text())
    assert [each["missing"] for each in found["sentences"]] == [[False, False], [True, False], [True, True]]
    assert Page(Path("out.html").read_text()).texts["em"].count("no output") == 3


def test_runs_without_a_common_sentence_have_no_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    for name, number in (("1.nbest", 1), ("2.nbest", 2)):
        Path(name).write_text(f"{number} ||| a ||| -1\n{number} ||| b ||| -2\n")
    Path("two").write_text("a\nb\n")
    for options in ([], ["--reference", "two", "--test", "none"]):
        printed = sgdec("1.nbest", "2.nbest", *options, "--json", "out", "--html", "page", capsys=capsys)
        assert re.search(r"\n2\.nbest +0 of 0( +-){4}\n", printed)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"nmt": 1.0, "lm": 0.5}, None),
        ({"nmt": 1.0, "lm": None}, None),
        ({"nmt": 1.0, "lm": 0.25}, "1*nmt, 0.25*lm and 1*nmt, 0.5*lm"),
        ({"nmt": 1.0}, "1*nmt and 1*nmt, 0.5*lm"),
    ],
)
def test_scores_under_other_weights_are_said_not_to_be_comparable(
    weights: dict[str, float], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, given in (("1.jsonl", {"nmt": 1.0, "lm": 0.5}), ("2.jsonl", weights)):
        hypothesis = {"text": "a", "score": -1.0, "weights": given}
        Path(name).write_text(json.dumps({"id": 1, "hypotheses": [hypothesis]}) + "\n")
    printed = sgdec("1.jsonl", "2.jsonl", capsys=capsys)
    note = "2.jsonl: its scores are not comparable with those of 1.jsonl, because predictors or weights differ: "
    assert (f"{note}{said}.\n" in printed) if said else "not comparable" not in printed


def test_why_bleu_of_short_outputs_is_0_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("short").write_text("a b\nc\nd\n")
    Path("four").write_text("a b c d\nc\nd\n")
    options = ["--reference", "short", "--test", "none"]
    said = "even of equal outputs: none has 4 words (13a tokens)"
    assert sgdec("short", "short", *options, capsys=capsys).count(said) == 2
    assert f"BLEU is 0 for short, {said}" in sgdec("four", "short", *options, capsys=capsys)
    assert said not in sgdec("four", "four", *options, capsys=capsys)
    both = sgdec("short", "four", *options, "--metrics", "chrf", capsys=capsys)
    assert said not in both


def test_the_page_has_all_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    sgdec("a", "b", "--reference", "ref", "--source", "src", "--html", "out.html", "--test", "none", capsys=capsys)
    page = Page(Path("out.html").read_text())
    assert page.texts["title"] == ["Comparison of 2 runs on 3 sentences"]
    assert {"x", "y", "z", *REFERENCE, *A} <= set(page.texts["td"])


def test_standard_input_is_read_once(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sgdec", "compare", "a", "-"], input="\n".join(B), capture_output=True, text=True
    )
    assert done.returncode == 0 and "standard input" in done.stdout
    assert "only one of the files" in sgdec("-", "-", capsys=capsys, status=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "status", "message"),
    [
        ("a", 2, "compare needs two files or more. `sgdec evaluate` scores one."),
        ("a short", 1, "a has 3 sentences but short has 1. Sentence N of one must belong to sentence"),
        ("short a", 1, "short has 1 sentence but a has 3."),
        ("a b --reference ref --reference short", 1, "a has 3 sentences but short has 1."),
        ("a b --source short", 1, "a has 3 sentences but short has 1."),
        ("a lists.nbest --format text", 1, "a has 3 sentences but lists.nbest has 6."),
        ("a empty", 1, "empty: the file has no lines."),
        ("a b --reference empty", 1, "empty: the file has no lines."),
        ("a latin", 1, "latin: line 1 is not UTF-8 (byte 5 of it). Convert the file."),
        ("a long.nbest", 1, "a has 3 sentences but long.nbest has 4."),
        ("a none", 1, "none: cannot be read (No such file or directory)."),
        ("a b --format nbest", 1, "a: line 1 does not begin with a sentence id and a text."),
        ("a b --html ./a", 2, "--html ./a is the input. Write to another file."),
        ("a b --reference ref --json ref", 2, "--json ref is what --reference reads. Write to another file."),
        ("a b --source src --json src", 2, "--json src is what --source reads."),
        ("a b --json out --html out", 2, "are the same file. Write to two files."),
        ("a b --test approx", 2, "--test is for the differences between scores, which need --reference FILE."),
        ("a b --seed 0 --reference ref", 2, "0 is not in the range"),
        ("a b --reference ref --html none/out", 1, "none/out: cannot be written (No such file or directory)."),
    ],
)
def test_bad_calls_are_one_line(call: str, status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    error = sgdec(*call.split(), capsys=capsys, status=status)
    assert message in error and error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_sacrebleu_is_imported_late() -> None:
    code = (
        "import sys\nfrom sgdec.cli.main import main\nmain(['compare', '--help'])\n"
        "assert not {'sacrebleu', 'torch', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

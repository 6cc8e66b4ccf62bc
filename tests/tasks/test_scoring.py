"""`sgdec score` says of a given output what decoding says of it, and sorts n-best lists by the new totals."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from tests.helpers.tiny_models import characters, write_checkpoint, write_lattice

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[list[str], str]]
SOURCES = ["ab", "c a b", "bb c"]
FST = ["--predictors", "fst", "--fst.path", "{id}.fst", "--input-format", "ids"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)

    def command(*args: str, status: int = 0) -> tuple[list[str], str]:
        found = main(list(args))
        out, err = capsys.readouterr()
        assert found == status, err
        return out.splitlines(), err

    return command


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture
def lattices(tmp_path: Path) -> None:
    """Token ids in, two sentences."""
    write_lattice(tmp_path / "1.fst", [((3, 4), 0.5), ((3, 5), 0.25), ((6,), 2.0)])
    write_lattice(tmp_path / "2.fst", [((4,), -1.0), ((4, 4, 4), 1.0)])
    (tmp_path / "in.ids").write_text("7\n8 8\n")


@pytest.mark.parametrize("batch", ["1", "64"])
def test_an_output_of_decode_gets_the_score_that_decode_gave_it(run: Run, model: str, batch: str) -> None:
    Path("in.txt").write_text("\n".join(SOURCES) + "\n")
    options = ["--predictors", "nmt,wc", "--nmt.model", model, "--wc.weight", "-0.5", "--precision", "fp64"]
    decoded, _ = run("decode", *options, "--output-format", "jsonl", "--max-length", "6", "in.txt")
    best = [json.loads(line)["hypotheses"][0] for line in decoded]
    Path("out.ids").write_text("".join(f"{_ids(hypothesis)}\n" for hypothesis in best))
    scored, _ = run(
        "score", *options, "--target-format", "ids", "--output-format", "jsonl", "--batch-size", batch,
        "in.txt", "out.ids",
    )  # fmt: skip
    for line, hypothesis in zip(scored, best, strict=True):
        row = json.loads(line)
        assert row["tokens"] == hypothesis["tokens"]
        assert row["score"] == pytest.approx(hypothesis["score"], abs=1e-9)
        assert row["scores"] == pytest.approx(hypothesis["scores"], abs=1e-9)
        assert math.fsum(row["token_scores"]["nmt"]) == pytest.approx(row["scores"]["nmt"], abs=1e-9)
        assert len(row["token_scores"]["nmt"]) == len(row["tokens"]) + 1


def test_scores_of_lines_are_the_costs_of_lattice_paths(run: Run, lattices: None) -> None:
    Path("out.ids").write_text("3 5\n4 4 4\n")
    lines, err = run("score", *FST, "in.ids", "out.ids")
    assert [float(line) for line in lines] == [-0.25, -1.0]
    assert "signature: sgdec:" in err


def test_an_output_that_a_predictor_forbids_is_an_empty_line_and_a_warning(run: Run, lattices: None) -> None:
    Path("out.ids").write_text("5 5\n4\n")
    lines, err = run("score", *FST, "in.ids", "out.ids", status=1)
    assert lines == ["", "1.000000"]
    why = "After the empty prefix: fst allows only 3, 6; (given output) allows only 5."
    assert f"Warning: sentence 1: no hypothesis: the predictors forbid the given output. {why}" in err


def test_deterministic_scores_are_bit_equal_for_every_batch(run: Run, model: str) -> None:
    """Without it, other sentences in the batch change the last bits."""
    rng = random.Random(1)
    for name in ("in.txt", "out.txt"):
        lines = ["".join(rng.choice("abc ") for _ in range(rng.randint(1, 30))).strip() or "a" for _ in range(9)]
        Path(name).write_text("\n".join(lines) + "\n")
    options = ["--predictors", "nmt", "--nmt.model", model, "--output-format", "jsonl", "--deterministic"]
    one, many = (run("score", *options, "--batch-size", size, "in.txt", "out.txt")[0] for size in ("1", "9"))
    assert one == many and len(one) == 9


LIST = """0 ||| 6 ||| fst= -9 tm= -1 -2 ||| -1
0 ||| 3 4 ||| fst= -9 tm= -1 -2 ||| -4
0 ||| 3 5 ||| fst= -9 tm= -1 -2 ||| -3
1 ||| 4 4 4 ||| ||| -2
1 ||| 4 ||| ||| -8
"""


def test_a_list_comes_out_in_the_order_of_the_new_totals_with_a_feature_more(run: Run, lattices: None) -> None:
    Path("list").write_text(LIST)
    lines, _ = run("score", *FST, "--nbest-list", "in.ids", "list")
    assert lines == [
        "1 ||| 3 5 ||| fst= -9 tm= -1 -2 fst2= -0.250000 ||| -0.250000",
        "1 ||| 3 4 ||| fst= -9 tm= -1 -2 fst2= -0.500000 ||| -0.500000",
        "1 ||| 6 ||| fst= -9 tm= -1 -2 fst2= -2.000000 ||| -2.000000",
        "2 ||| 4 ||| fst= 1.000000 ||| 1.000000",
        "2 ||| 4 4 4 ||| fst= -1.000000 ||| -1.000000",
    ]


def test_sentences_without_a_list_are_counted(run: Run, lattices: None) -> None:
    Path("list").write_text("1 ||| 3 4 ||| ||| -1\n")
    lines, said = run("score", *FST, "--nbest-list", "in.ids", "list")
    assert len(lines) == 1 and "Warning: 1 of 2 sentences of in.ids have no entry in list." in said


def test_old_totals_count_as_much_as_they_are_told_to(run: Run, lattices: None) -> None:
    Path("list").write_text(LIST)
    lines, _ = run("score", *FST, "--nbest-list", "--old-weight", "1", "--output-format", "text", "in.ids", "list")
    assert lines == ["6", "4 4 4"]  # -2 - 1 against -3.25 and -4.5; -1 - 2 against 1 - 8


def test_old_and_new_totals_are_divided_by_the_length_together(run: Run, lattices: None) -> None:
    Path("list").write_text(LIST)
    options = ["--nbest-list", "--old-weight", "1", "--alpha", "2", "--normalize", "length"]
    lines, _ = run("score", *FST, *options, "in.ids", "list")
    assert [line.split(" ||| ")[1:4:2] for line in lines] == [
        ["3 5", "-3.250000"],  # over 3^2
        ["3 4", "-4.500000"],  # over 3^2
        ["6", "-3.000000"],  # over 2^2
        ["4 4 4", "-3.000000"],  # over 4^2
        ["4", "-7.000000"],  # over 2^2
    ]


def test_the_list_decode_writes_is_rescored_to_its_own_order(run: Run, lattices: None) -> None:
    decoded, _ = run("decode", *FST, "--nbest", "5", "--beam.size", "9", "--beam.stop", "full", "--max-length", "0",
                     "--output-format", "nbest", "in.ids")  # fmt: skip
    Path("list").write_text("\n".join(decoded) + "\n")
    rescored, _ = run("score", *FST, "--nbest-list", "in.ids", "list")
    assert [line.split(" ||| ")[:2] for line in rescored] == [line.split(" ||| ")[:2] for line in decoded]
    assert [line.split(" ||| ")[3] for line in rescored] == [line.split(" ||| ")[3] for line in decoded]


def test_lines_do_not_shift_where_a_sentence_has_no_entries(run: Run, lattices: None) -> None:
    Path("in.ids").write_text("7\n8 8\n5\n5\n")
    Path("list").write_text("2 ||| 4\n")
    lines, _ = run("score", *FST, "--nbest-list", "--output-format", "text", "in.ids", "list")
    assert lines == ["", "4", "", ""]


def test_an_entry_that_cannot_be_scored_stays_in_the_list(run: Run, lattices: None) -> None:
    Path("list").write_text("1 ||| 9 9\n1 ||| 3 x\n1 ||| 3 4\n")
    lines, err = run("score", *FST, "--nbest-list", "in.ids", "list", status=1)
    assert [line.split(" ||| ")[1] for line in lines] == ["3 4", "9 9", "3 x"]
    assert lines[1].endswith("-inf")
    assert "list: line 2: 'x' is not a token id of an output. Text needs a target vocabulary" in err


@pytest.mark.parametrize("batch", ["1", "4"])
def test_penalties_rank_as_in_decode(run: Run, model: str, batch: str) -> None:
    Path("in.txt").write_text("ab c\n")
    options = ["--predictors", "nmt", "--nmt.model", model, "--precision", "fp64", "--output-format", "jsonl"]
    beam = ["--beam.alpha", "1", "--beam.beta", "0.3", "--beam.stop", "full", "--nbest", "5", "--beam.size", "9"]
    (decoded,), _ = run("decode", *options, *beam, "--max-length", "5", "in.txt")
    hypotheses = json.loads(decoded)["hypotheses"]
    Path("list").write_text("".join(f"1 ||| {_ids(hypothesis)}\n" for hypothesis in hypotheses))
    scored, _ = run(
        "score", *options, "--target-format", "ids", "--nbest-list", "--alpha", "1", "--beta", "0.3",
        "--batch-size", batch, "in.txt", "list",
    )  # fmt: skip
    found = [json.loads(line) for line in scored]
    assert [row["tokens"] for row in found] == [hypothesis["tokens"] for hypothesis in hypotheses]
    ranks = [hypothesis["rank_score"] for hypothesis in hypotheses]
    assert [row["rank_score"] for row in found] == pytest.approx(ranks, abs=1e-9)


def test_text_is_scored_as_the_tokens_it_is_cut_into(run: Run, model: str) -> None:
    Path("in.txt").write_text("ab c\n")
    Path("out.txt").write_text("b c\n")
    options = ["--predictors", "nmt", "--nmt.model", model, "--output-format", "jsonl"]
    (line,), _ = run("score", *options, "in.txt", "out.txt")
    assert json.loads(line)["tokens"] == list(characters("abc").encode("b c"))


def test_targets_have_the_format_of_the_sources_unless_another_is_given(run: Run, model: str) -> None:
    vocabulary = characters("abc")
    for name, text in (("in", "ab c"), ("out", "b c")):
        Path(f"{name}.txt").write_text(f"{text}\n")
        Path(f"{name}.ids").write_text(" ".join(map(str, vocabulary.encode(text))) + "\n")
    options = ["--predictors", "nmt", "--nmt.model", model]
    (score,), _ = run("score", *options, "in.txt", "out.txt")
    ids = [*options, "--input-format", "ids", "in.ids"]
    for form, target in (([], "out.ids"), (["--target-format", "text"], "out.txt")):
        assert run("score", *ids[:-1], *form, "in.ids", target)[0] == [score]
    _, err = run("score", *ids, "out.txt", status=1)
    assert "out.txt: line 1: 'b' is not a token id of an output. For text give --target-format text." in err


def _ids(hypothesis: dict[str, Any]) -> str:
    return " ".join(map(str, hypothesis["tokens"]))


@pytest.mark.parametrize(
    ("target", "options", "status", "message"),
    [
        ("3 4\n", [], 1, "out ends before line 2, the other does not."),
        ("3 4\n4\n4\n", [], 1, "in.ids ends before line 3, the other does not."),
        ("1 ||| 3 4\n3 ||| 4\n", ["--nbest-list"], 1, "out: line 2: in.ids has no sentence 3."),
        ("2 ||| 4\n1 ||| 3 4\n", ["--nbest-list"], 1, "out: line 2: sentence ids do not ascend."),
        ("1 || 3 4\n", ["--nbest-list"], 1, "out: line 1 does not begin with a sentence id and a text."),
        ("1 ||| 3 4 ||| lm= x\n", ["--nbest-list"], 1, "out: line 1: 'x' is not a score."),
        ("1 ||| 3 4 ||| lm= 1_0\n", ["--nbest-list"], 1, "out: line 1: '1_0' is not a score."),
        ("1 ||| 3 4 ||| 7 x= 1\n", ["--nbest-list"], 1, "out: line 1: the score '7' has no name."),
        ("1 ||| 3 4\n", ["--nbest-list", "--old-weight", "1"], 1, "out: line 1 has no total for --old-weight 1."),
        ("3 4\n", ["--output-format", "nbest"], 2, "--output-format nbest needs --nbest-list"),
        ("3 4\n", ["--beta", "1"], 2, "a coverage penalty (beta = 1) needs a predictor with attention"),
        ("3 4\n", ["--output", "out"], 2, "--output out is the input."),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    target: str, options: list[str], status: int, message: str, run: Run, lattices: None
) -> None:
    Path("out").write_text(target)
    _, err = run("score", *FST, *options, "in.ids", "out", status=status)
    assert message in err
    assert "Traceback" not in err

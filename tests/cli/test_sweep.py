"""The promise of ``sgdec sweep`` and ``sgdec tune``: a cell has what its settings choose from the lists."""

from __future__ import annotations

import json
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from sgdec.tuning.metrics import METRICS

RUN = [
    "--predictors", "trie,wc", "--trie.path", "lists/{id}.tsv", "--wc.weight", "0", "--vocab-size", "12",
    "--max-length", "6", "--beam.size", "20",
]  # fmt: skip
OF_RUN = [*RUN, "--input-format", "ids"]
CHRF = ["--metric", "chrf", "in.ids"]
LISTS = {
    1: {"3 4 5": -1.0, "3 4": -0.5, "3 4 5 6 7": -2.5, "8": -3.0},
    2: {"5 6": -1.0, "5 6 7 8": -1.2, "9 9": -0.2},
    3: {"4 4 4 4": -2.0, "4": -0.1, "10 11 4": -2.2},
}
REFERENCES = ["3 4 5", "5 6 7 8", "4 4 4 4"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("lists").mkdir()
    for sentence, entries in LISTS.items():
        Path(f"lists/{sentence}.tsv").write_text("".join(f"{text}\t{score}\n" for text, score in entries.items()))
    Path("in.ids").write_text("3\n3\n3\n")
    Path("ref").write_text("".join(f"{each}\n" for each in REFERENCES))
    return tmp_path


def cells(*args: str) -> list[dict[str, Any]]:
    assert main(["sweep", *args, "--reference", "ref", "--json", "cells.json"]) == 0
    found: list[dict[str, Any]] = json.loads(Path("cells.json").read_text())
    return found


def by_hand(trie: float, wc: float, alpha: float, normalize: str, metric: str) -> float:
    """The metric of the best entries, by a plain loop over the lists."""
    outputs = []
    for entries in LISTS.values():
        def rank(text: str, entries: dict[str, float] = entries) -> float:
            length = len(text.split()) + 1
            total = trie * entries[text] - wc * (length - 1)
            return total / ((5 + length) / 6 if normalize == "gnmt" else length) ** alpha
        outputs.append(max(sorted(entries, key=lambda text: -entries[text]), key=rank))
    found = METRICS[metric]
    return float(found.scores(found.statistics(outputs, REFERENCES).sum(axis=0)))


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_each_cell_is_what_its_settings_choose(metric: str) -> None:
    found = cells(
        *OF_RUN, "--axis", "wc.weight=0,-0.3,-2", "--axis", "alpha=0:1:0.5", "--axis", "normalize=gnmt,length",
        "--metric", metric, "in.ids",
    )  # fmt: skip
    grid = list(product((0.0, -0.3, -2.0), (0.0, 0.5, 1.0), ("gnmt", "length")))
    assert [(each["wc.weight"], each["alpha"], each["normalize"]) for each in found] == grid
    for each, (wc, alpha, normalize) in zip(found, grid, strict=True):
        assert each["score"] == pytest.approx(by_hand(1.0, wc, alpha, normalize, metric)), each


def test_saved_lists_give_the_same_table_without_predictors(capsys: pytest.CaptureFixture[str]) -> None:
    axes = ["--axis", "wc.weight=0,-1", "--axis", "trie.weight=1,2", "--axis", "nbest=1,3"]
    first = cells(*OF_RUN, *axes, "--save", "saved.jsonl", "in.ids")
    table = capsys.readouterr().out
    assert cells("--lists", "saved.jsonl", *axes) == first
    assert table.startswith(capsys.readouterr().out)
    assert table.splitlines()[-1].startswith("the best cell for sgdec decode: --wc.weight")


def test_verified_cells_are_decoded_again(capsys: pytest.CaptureFixture[str]) -> None:
    found = cells(*OF_RUN, "--axis", "wc.weight=0,-0.3,-2", "--verify", "3", "--html", "page.html", "in.ids")
    assert [each["decoded"] for each in found] == pytest.approx([each["score"] for each in found])
    assert "decoded" in capsys.readouterr().out
    assert "Re-ranked lists: 3 settings" in Path("page.html").read_text("utf-8")
    assert sum(each["decoded"] is not None for each in cells(
        *OF_RUN, "--axis", "wc.weight=0,-0.3,-2", "--verify", "1", "in.ids"
    )) == 1  # fmt: skip


def test_penalties_are_verified_too() -> None:
    axes = ["--axis", "wc.weight=-0.8", "--axis", "alpha=0,1", "--axis", "normalize=length,gnmt"]
    found = cells(*OF_RUN, *axes, "--verify", "4", *CHRF)
    assert [each["decoded"] for each in found] == pytest.approx([each["score"] for each in found])
    assert len({each["score"] for each in found}) > 1  # else options of the ranking would not be seen


def rows_of(*lists: list[tuple[str, float, float]]) -> str:
    """JSON lines with these outputs, scores and coverages."""
    return "".join(
        json.dumps({"id": number, "hypotheses": [
            {"tokens": list(map(int, text.split())), "text": None, "score": score, "coverage": coverage,
             "scores": {"lm": score}, "weights": {"lm": 1.0}}
            for text, score, coverage in own
        ]}) + "\n"
        for number, own in enumerate(lists, 1)
    )  # fmt: skip


def test_beta_adds_coverage_and_half_lists_are_the_first_halves() -> None:
    short = [("7", -1.0, -5.0), ("8", -1.5, -4.0), ("3 4 5", -2.0, 0.0)]
    Path("lists.jsonl").write_text(rows_of(short, [("5 6 7 8", -1.0, 0.0)], [("4 4 4 4", -1.0, 0.0)]))
    low, high = cells("--lists", "lists.jsonl", "--axis", "beta=0.1,0.3", "--metric", "chrf")
    assert low["score"] < high["score"] == 100.0  # -1 - 0.5 beside -2, and -1 - 1.5 beside -2
    assert low["half"] == low["score"] > 0 and high["half"] < 100.0 and high["suspicious"]
    assert (low["at_end"], high["at_end"]) == (0.0, pytest.approx(1 / 3))


def test_the_margin_is_half_a_bootstrap_interval_of_95_percent() -> None:
    texts = ["3 4 5 6", "5 6 7 8", "4 4 9 9", "3 3 3 3", "9 8 7 6"] * 8
    Path("lists.jsonl").write_text(rows_of(*[[(text, -1.0, 0.0)] for text in texts]))
    Path("ref").write_text("3 4 5 7\n5 6 7 8\n4 4 4 4\n3 3 3 5\n1 1 1 1\n" * 8)
    (cell,) = cells("--lists", "lists.jsonl", "--axis", "alpha=0", "--metric", "ter")
    edits = [1.0, 0.0, 2.0, 1.0, 4.0] * 8
    spread = 100 * statistics.pstdev(edits) / 4 / len(edits) ** 0.5  # of the mean, each reference having 4 words
    assert cell["margin"] == pytest.approx(1.96 * spread, rel=0.08)


def test_a_cell_that_wants_the_ends_of_lists_is_marked() -> None:
    plain, turned = cells(*OF_RUN, "--axis", "trie.weight=1,-1", "in.ids")
    assert (plain["at_end"], plain["suspicious"]) == (0.0, False)
    assert (turned["at_end"], turned["suspicious"]) == (1.0, True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "--axis: expected one or more axes, each once, with at most 10,000 cells together."),
        (["--axis", "alpha=0", "--axis", "alpha=1"], "--axis: expected one or more axes, each once"),
        (["--axis", "alpha=0:1:0.00001"], "--axis alpha=0:1:0.00001: expected NAME=VALUE,"),
        (["--axis", "alpha"], "--axis alpha: expected NAME=VALUE,"),
        (["--axis", "alpha=gnmt"], "--axis alpha=gnmt: expected numbers."),
        (["--axis", "nbest=1.5"], "--axis nbest=1.5: expected whole numbers from 1."),
        (["--axis", "length_offset=-3"], "--axis length_offset=-3: expected whole numbers from 0."),
        (["--axis", "normalize=1"], "--axis normalize=1: expected gnmt or length."),
        (["--axis", "ngram.weight=1"], "no axis 'ngram.weight'. Available: trie.weight, wc.weight, alpha, beta,"),
        (["--axis", "beta=0.2"], "--coverage needs a predictor with attention"),
        (["--axis", "alpha=0", "--beam.size", "1"], "lists need several hypotheses: give --nbest N."),
    ],
)
def test_wrong_calls_are_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *OF_RUN, *args, "--reference", "ref", "in.ids"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1]["hypotheses"].clear(), "sentence 2 has no hypotheses"),
        (lambda rows: rows[1]["hypotheses"][0].pop("scores"), "sentence 2, hypothesis 1: expected its"),
        (lambda rows: rows[1]["hypotheses"][0]["weights"].update(wc=None), "sentence 2, hypothesis 1: expected its"),
        (lambda rows: rows[1]["hypotheses"][0]["weights"].update(wc="x"), "sentence 2, hypothesis 1: expected its"),
        (lambda rows: rows[1]["hypotheses"][0]["scores"].update(wc=1e999), "sentence 2, hypothesis 1: expected its"),
        (lambda rows: rows.reverse(), "sentence 1: the row has the id 3; expected all sentences in order."),
        (lambda rows: swap(rows[1]["hypotheses"][0]), "sentence 2: a hypothesis has the weights {'wc'"),
        (lambda rows: rows[1]["hypotheses"][0]["weights"].update(wc=3.0), "sentence 2: a hypothesis has the weights"),
        (lambda rows: rows.pop(), "3 references for 2 lists: expected one for each."),
        (lambda rows: rows.clear(), "saved.jsonl has no lists."),
    ],
)
def test_wrong_lists_are_one_line(change: Any, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    cells(*OF_RUN, "--axis", "alpha=0", "--save", "saved.jsonl", "in.ids")
    rows = [json.loads(line) for line in Path("saved.jsonl").read_text().splitlines()]
    change(rows)
    Path("saved.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    capsys.readouterr()
    assert main(["sweep", "--lists", "saved.jsonl", "--axis", "alpha=0", "--reference", "ref"]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def swap(hypothesis: dict[str, Any]) -> None:
    """List its predictors in another order."""
    for name in ("scores", "weights"):
        hypothesis[name] = dict(reversed(hypothesis[name].items()))


def test_a_decode_with_the_options_of_the_best_cell_has_its_score(capsys: pytest.CaptureFixture[str]) -> None:
    found = cells(*OF_RUN, "--axis", "wc.weight=0,-0.3,-2", "--axis", "alpha=0,0.5", "--metric", "chrf", "in.ids")
    options = capsys.readouterr().out.splitlines()[-1].partition(": ")[2].split()
    assert options[-2:] == ["--beam.stop", "full"]
    assert main(["decode", *OF_RUN, *options, "--output-format", "ids", "--output", "out", "in.ids"]) == 0
    metric = METRICS["chrf"]
    score = metric.scores(metric.statistics(Path("out").read_text().splitlines(), REFERENCES).sum(axis=0))
    assert float(score) == pytest.approx(max(each["score"] for each in found))


def test_cells_far_from_the_decode_are_marked() -> None:
    near, far = cells(*OF_RUN, "--axis", "wc.weight=0,-2", "in.ids")
    assert (near["changed"], near["suspicious"]) == (0.0, False)
    assert far["changed"] > 0.25 and far["suspicious"]
    (cell,) = cells(*OF_RUN, "--axis", "alpha=1", "in.ids")
    assert cell["changed"] == 0.0  # a full search does not depend on alpha


def test_a_cell_whose_decode_differs_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    from sgdec.cli import sweep

    monkeypatch.setattr(sweep, "_verified", lambda run, given, cells, references: [cells[0].score + 0.3, None])
    differs, other = cells(*OF_RUN, "--axis", "alpha=0,0.1", "--verify", "1", "in.ids")
    assert differs["suspicious"] and not other["suspicious"]


def test_lists_are_kept_when_references_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ref").write_text("3 4 5\n")
    args = [*OF_RUN, "--axis", "alpha=0", "--save", "saved.jsonl", "--reference", "ref", "in.ids"]
    assert main(["sweep", *args]) == 1
    assert "1 references for 3 lists" in capsys.readouterr().err
    assert Path("saved.jsonl").read_text().count("\n") == 3


def test_lists_leave_no_room_for_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    cells(*OF_RUN, "--axis", "alpha=0", "--save", "saved.jsonl", "in.ids")
    of_lists = ["sweep", "--lists", "saved.jsonl", "--axis", "alpha=0", "--reference", "ref"]
    for more, message in (
        (["in.ids"], "--lists has the lists: leave out INPUT and --predictors"),
        (OF_RUN, "--lists has the lists: leave out INPUT and --predictors"),
        ([*OF_RUN, "--wc.weight", "-1", "--verify", "1", "in.ids"],
         "--verify: the lists have the weights {'trie': 1.0, 'wc': 0.0}, but the run has {'trie': 1.0, 'wc': -1.0}."),
        ([*OF_RUN, "--verify", "1", "-"], "standard input cannot be decoded again"),
    ):  # fmt: skip
        assert main([*of_lists, *more]) == 2
        assert message in capsys.readouterr().err


def test_bounds_may_be_open_and_a_weight_at_its_bound_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    tune = ["tune", *OF_RUN, "--metric", "chrf", "--reference", "ref", "--seeds", "1", "--rounds", "2"]
    assert main([*tune, "--bounds-of", "wc=-inf,inf", "--folder", "open", "in.ids"]) == 0
    assert "is at its bound" not in capsys.readouterr().err
    assert main([*tune, "--bounds-of", "wc=-0.01,1", "--folder", "closed", "in.ids"]) == 0
    assert "the weight of wc" in capsys.readouterr().err


def test_a_beta_needs_lists_with_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    cells(*OF_RUN, "--axis", "alpha=0", "--save", "saved.jsonl", "in.ids")
    assert main(["sweep", "--lists", "saved.jsonl", "--axis", "beta=0,0.2", "--reference", "ref"]) == 2
    assert "beta needs the coverage of hypotheses, and these lists have none" in capsys.readouterr().err


def test_tuning_writes_a_file_whose_options_decode_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    tune = [
        "tune", *OF_RUN, "--bounds-of", "wc=-5,5", "--metric", "chrf", "--reference", "ref", "--held-out", "in.ids",
        "ref", "--folder", "tuned", "--seeds", "1", "in.ids",
    ]  # fmt: skip
    assert main(tune) == 1
    out = capsys.readouterr()
    assert "lists/4.tsv" in out.err  # of held-out sentences, whose numbers follow
    for sentence, entries in LISTS.items():
        Path(f"lists/{sentence + 3}.tsv").write_text("".join(f"{text}\t{score}\n" for text, score in entries.items()))
    assert main(tune) == 0
    out = capsys.readouterr()
    first, *_, last = (line.split() for line in out.out.splitlines() if line.lstrip()[:1].isdigit())
    assert float(first[3]) < float(last[3]) == 100.0
    assert first[3:5] == [first[3]] * 2  # the held-out sentences are the same ones
    assert "the development set has 3 sentences" in out.err and "weights below 0 (wc)" in out.err
    decode = ["decode", "--config", "tuned/tuned.toml", *RUN[:4], *RUN[6:], "--input-format", "ids"]
    assert "stop = 'full'" in Path("tuned/tuned.toml").read_text()
    assert main([*decode, "--output-format", "ids", "--output", "out", "in.ids"]) == 0
    assert Path("out").read_text().splitlines() == REFERENCES


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--alphas", "0,x"], "--alphas 0,x: expected numbers, such as 0,0.6,1."),
        (["--bounds-of", "wc=1"], "--bounds-of wc=1: expected NAME=LOW,HIGH, such as wc=-2,2"),
        (["--bounds-of", "wc=0,1", "--bounds-of", "wc=1,2"], "--bounds-of: expected each name once."),
        (["--bounds-of", "wc=nan,1"], "--bounds-of wc=nan,1: expected NAME=LOW,HIGH"),
        (["--bounds-of", "trie=0,1"], "bounds of 'trie', the first predictor, whose weight keeps its value."),
        (["--bounds-of", "lm=0,1"], "bounds of 'lm', which is not tuned. Available: trie, wc."),
        (["--beta"], "--coverage needs a predictor with attention"),
    ],
)
def test_wrong_tunings_are_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", *OF_RUN, *args, "--reference", "ref", "--folder", "tuned", "in.ids"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_predictor_that_decides_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for sentence in LISTS:
        Path(f"lists/{sentence}.tsv").write_text("3 4\t-1\n5 6\t-2\n")  # of the same length
    tune = ["tune", *OF_RUN, "--reference", "ref", "--folder", "tuned", "--seeds", "1", "--rounds", "2", "in.ids"]
    assert main(tune) == 0
    assert "wc: the same for all hypotheses of each sentence, so the weight decides" in capsys.readouterr().err

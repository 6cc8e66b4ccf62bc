"""The promise: without a length limit every search ends: with a result, refused before it begins, or with an error.

Each decoder runs in a child process with little memory and time, so that a search without end is a failed test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from sgdec import BOS, EOS
from sgdec.io.arpa import Arpa, NGrams, write_arpa
from sgdec.plugins.host import Host
from tests.helpers.lattice_files import write_automaton
from tests.helpers.tiny_models import write_lattice

pytestmark = pytest.mark.slow

CHILD = """
import contextlib, io, json, os, resource, sys
from sgdec.search import space as search
from sgdec.cli.main import main

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for line in sys.stdin:
    folder, search.ENDLESS, call = json.loads(line)
    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(call)
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""
OPTIONS = {"beam": ["--beam.stop", "proven"], "syncbeam": ["--syncbeam.symbol", "3"]}
PROVING = ["astar", "beam", "bucket", "dfs", "lendfs", "restarting"]
"""Those that go on until nothing open can be better."""
OTHERS = ["bestfirst", "diverse", "greedy", "mbr", "mcmc", "sample", "sepbeam", "stochastic", "syncbeam", "vanilla"]
Answer: TypeAlias = tuple[int, str, str]
"""Exit status, standard output, standard error."""


class Runs:
    """Decodes one sentence without a limit, with one decoder after the other, in a child for all of them."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[str] | None = None
        self.folder = Path()

    def __call__(
        self, predictors: list[str], decoders: list[str], *, endless: int = 300, **more: list[str]
    ) -> Iterator[tuple[str, Answer]]:
        """``more``: options by decoder."""
        (self.folder / "in.ids").write_text("3 4\n")
        shared = ["decode", *predictors, "--input-format", "ids", "--max-length", "0", "in.ids"]
        for name in decoders:
            call = [*shared, "--decoder", name, *OPTIONS.get(name, []), *more.get(name, [])]
            yield name, self._answer(json.dumps([str(self.folder), endless, call]))

    def _answer(self, call: str) -> Answer:
        if self.child is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.child = subprocess.Popen([sys.executable, "-c", CHILD], text=True, **pipes)  # type: ignore[call-overload]
        assert self.child is not None and self.child.stdin and self.child.stdout
        self.child.stdin.write(call + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            ended, self.child = self.child.wait(), None
            pytest.fail(f"did not end, or not within its memory (exit status {ended}): {call}")
        status, out, err = json.loads(line)
        return status, out, err

    def end(self) -> None:
        if self.child is not None:
            self.child.communicate()


@pytest.fixture(scope="module")
def all_runs() -> Iterator[Runs]:
    runs = Runs()
    yield runs
    runs.end()


@pytest.fixture
def run(all_runs: Runs, tmp_path: Path) -> Runs:
    all_runs.folder = tmp_path
    return all_runs


def unigrams(folder: Path, **scores: float) -> list[str]:
    """A model of these tokens, t3=ln p ..., and of the end."""
    words = ["<s>", "</s>", *(name[1:] for name in scores if name != "end")]
    values = np.array([-99.0, scores["end"], *(score for name, score in scores.items() if name != "end")])
    write_arpa(folder / "lm.arpa", Arpa(words, [NGrams(np.arange(len(words))[:, None], values, 0.0 * values)]))
    return ["--predictors", "ngram", "--ngram.path", "lm.arpa", "--vocab-size", "5"]


def gaining(folder: Path) -> list[str]:
    """A bigram whose back-off gains each time that 3 follows 3."""
    words = ["<s>", "</s>", "3"]
    one = NGrams(np.arange(3)[:, None], np.array([-99.0, -3.0, -2.5]), np.array([0.0, 0.0, 4.0]))
    write_arpa(folder / "lm.arpa", Arpa(words, [one, NGrams(np.array([[2, 1]]), np.array([-2.0]), np.zeros(1))]))
    return ["--predictors", "ngram", "--ngram.path", "lm.arpa", "--vocab-size", "5"]


def lattice(folder: Path, cost: float) -> str:
    """3, then as many 4 as wanted, for ``cost`` each, then 3 and the end."""
    arcs = [(0, BOS, 0.0, 1), (1, 3, 0.5, 2), (2, 3, 0.5, 3), (2, 4, cost, 2), (3, EOS, 0.0, 4)]
    write_automaton(folder / "cycle.fst", arcs, {4: 0.0})
    return "cycle.fst"


def rewarded(folder: Path) -> list[str]:
    return [*unigrams(folder, t3=-0.7, end=-0.7), "--predictors", "ngram,wc", "--wc.weight", "-5"]


def winning(folder: Path) -> list[str]:
    return ["--predictors", "fst", "--fst.path", lattice(folder, -0.5)]


def winning_epsilons(folder: Path) -> list[str]:
    return ["--predictors", "nfst", "--nfst.path", lattice(folder, -0.5)]


GAINS = {"ngram": gaining, "wc": rewarded, "fst": winning, "nfst": winning_epsilons}
"""By the predictor that can add to a score for ever."""


def test_every_decoder_is_tried() -> None:
    assert sorted(PROVING + OTHERS) == sorted(entry.name for entry in Host(autoload=False).names("decoder"))


@pytest.mark.parametrize("name", GAINS)
def test_what_no_bound_can_end_is_refused_before_it_begins(run: Runs, tmp_path: Path, name: str) -> None:
    proven = {"sepbeam": ["--sepbeam.stop", "proven"], "vanilla": ["--vanilla.stop", "proven"]}
    decoders = [*PROVING, "vanilla", "sepbeam"] if name in ("ngram", "wc") else [*PROVING, "sepbeam"]
    for decoder, (status, out, err) in run(GAINS[name](tmp_path), decoders, **proven):
        assert (status, out) == (2, ""), (decoder, err)
        assert f"Error: '{name}' can add to a score without end" in err and "--max-length N" in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", GAINS)
def test_a_budget_or_a_limit_makes_it_a_search_that_ends(run: Runs, tmp_path: Path, name: str) -> None:
    predictors = [*GAINS[name](tmp_path), "--output-format", "jsonl"]
    budget = {decoder: [f"--{decoder}.max_expansions", "20"] for decoder in PROVING if decoder != "beam"}
    for decoder, (_, out, err) in run(predictors, list(budget), **budget):
        (row,) = map(json.loads, out.splitlines())
        assert row["proven"] is False and row["expansions"] <= 20, (decoder, err)
    limit = {decoder: ["--max-length", "4"] for decoder in budget}
    for decoder, (status, out, _) in run(predictors, list(limit), **limit):
        (row,) = map(json.loads, out.splitlines())
        assert status == 0 and row["proven"] is True, decoder
        assert len(row["hypotheses"][0]["tokens"]) == 4, decoder


@pytest.mark.parametrize("name", GAINS)
def test_what_ends_with_its_prefixes_gives_up_those_that_do_not(run: Runs, tmp_path: Path, name: str) -> None:
    """A draw may come to an end by chance; vanilla takes no lattices."""
    decoders = [decoder for decoder in OTHERS if decoder != "vanilla" or name in ("ngram", "wc")]
    more = {"astar": ["--astar.heuristic", "none", "--astar.max_seconds", "30"]}
    more["syncbeam"] = ["--syncbeam.symbol", "4" if name.endswith("fst") else "3"]
    for decoder, (status, out, err) in run(GAINS[name](tmp_path), [*decoders, "astar"], **more):
        if decoder not in ("mbr", "mcmc", "sample", "stochastic"):
            assert (status, out) == (1, "\n"), (decoder, err)
            assert "sentence 1: no end after 300 tokens, and no length limit: give --max-length N" in err


def test_a_model_that_never_ends_is_given_up_by_all(run: Runs, tmp_path: Path) -> None:
    """No score is positive, so bounds are finite; but the end is as good as impossible."""
    predictors = unigrams(tmp_path, t3=-0.001, end=-220.0)
    for decoder, (status, out, err) in run(predictors, PROVING + OTHERS):
        assert (status, out) == (1, "\n"), (decoder, err)
        assert "no end after 300 tokens" in err


def test_the_real_limit_is_reached_within_little_memory(run: Runs, tmp_path: Path) -> None:
    predictors = unigrams(tmp_path, t3=-0.001, end=-220.0)
    for decoder, (status, _, err) in run(predictors, ["astar"], endless=10_000):
        assert status == 1 and "no end after 10,000 tokens" in err, decoder


@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_a_cycle_that_gains_nothing_needs_no_limit(run: Runs, tmp_path: Path, cost: float) -> None:
    """Where it costs nothing, prefixes have to be recombined: all numbers of rounds are as good as none.

    To `lendfs`, which wants the best of each length, they are not the same.
    """
    proving = PROVING if cost else [decoder for decoder in PROVING if decoder != "lendfs"]
    for name in ("fst", "nfst"):
        more = {decoder: [f"--{decoder}.recombine", "true"] for decoder in proving}
        predictors = ["--predictors", name, f"--{name}.path", lattice(tmp_path, cost)]
        for decoder, (status, out, err) in run(predictors, proving, **more):
            assert (status, out) == (0, "3 3\n"), (decoder, err)


def test_a_finite_space_needs_no_limit(run: Runs, tmp_path: Path) -> None:
    write_lattice(tmp_path / "all.fst", [((3, 4, 3), -0.5), ((4,), 1.0)])
    predictors = ["--predictors", "fst", "--fst.path", "all.fst"]
    for decoder, (status, out, err) in run(predictors, [*PROVING, "greedy", "sepbeam"]):
        assert (status, out) == (0, "3 4 3\n"), (decoder, err)

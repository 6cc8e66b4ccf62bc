"""The promise of ``examples/exact``: its search errors are those that a plain computation counts.

The oracle reads lattices with pynini and the ARPA file as text. It finds the best path by dynamic programming over
lattice states and histories, and has a beam search of its own.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers.optional import optional
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow
pytest.importorskip("matplotlib")
pynini = optional("pynini")

EXAMPLE = ROOT / "examples" / "exact"
DATA = os.environ.get("SGDEC_DATA")
REAL = Path(DATA or "") / "data" / "lattices" / "hifst_ruen" / "fst"
SOME = (1, 3, 5)
"""Small ones among the real lattices."""
BEAMS = (1, 3)
ROW = re.compile(r"\| beam (\d+)(, recombined)? +\| (\d+) +\| (\d+) % +\| (\S+) +\| (\S+) +\| (\S+)")


class Ran(NamedTuple):
    work: Path
    printed: str
    originals: list[Path]


@pytest.fixture(scope="module", params=["random", "real"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, commands: dict[str, str]) -> Ran:
    """The folder and the output of a small run."""
    work = tmp_path_factory.mktemp("exact")
    arguments = [str(work)]
    if request.param == "real":
        if DATA is None:
            pytest.skip("SGDEC_DATA does not name the data folder")
        (work / "given").mkdir()
        for number, name in enumerate(SOME, start=1):
            shutil.copy(REAL / f"{name}.fst.gz", work / "given" / f"{number}.fst.gz")
        arguments.append(str(work / "given"))
    settings = {"SENTENCES": "6", "STATES": "9", "WEIGHTS": "1", "BEAMS": " ".join(map(str, BEAMS)), "SAMPLES": "20"}
    command = [str(EXAMPLE / "recipe.sh"), *arguments]
    done = subprocess.run(command, env={**commands, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    originals = sorted((work / ("given" if request.param == "real" else "plain")).iterdir())
    return Ran(work, done.stdout, originals)


@pytest.mark.parametrize("kind", ["plain", "pushed"])
def test_the_exact_scores_and_the_search_errors_are_those_of_the_oracle(ran: Ran, kind: str) -> None:
    model = Model(ran.work / "lm.arpa.gz")
    spaces = [Space(ran.work / kind / f"{number}.fst", model) for number in range(1, len(ran.originals) + 1)]
    best = [space.best() for space in spaces]
    assert scores(ran.work / "search" / f"{kind}.1.exact.jsonl") == pytest.approx(best, abs=1e-6)

    table = ran.printed.split("\n\n| search")[("plain", "pushed").index(kind) + 1].split("\n\n")[0]
    rows = {(int(size), recombined): row for size, recombined, *row in ROW.findall(table)}
    assert list(rows) == [(size, name) for name in ("", ", recombined") for size in BEAMS]
    for size in BEAMS:
        found = [space.beam(size) for space in spaces]
        assert scores(ran.work / "search" / f"{kind}.1.beam.{size}.jsonl") == pytest.approx(found, abs=1e-6)
        lost = [max(0.0, a - b) for a, b in zip(best, found, strict=True)]
        errors = sum(score > 1e-5 for score in lost)
        assert [int(cell) for cell in rows[size, ""][:2]] == [errors, round(100 * errors / len(lost))]
        assert float(rows[size, ""][2]) == pytest.approx(sum(lost) / len(lost), abs=6e-4)
        assert float(rows[size, ""][3]) == pytest.approx(max(lost), abs=6e-3)
    if kind == "plain":
        assert int(rows[1, ""][0]) > 0, "a beam of 1 makes no error: the run shows nothing"


def test_pushed_lattices_have_the_paths_and_costs_of_the_lattices_given(ran: Ran) -> None:
    for number, original in enumerate(ran.originals, start=1):
        given = unpacked(original)
        for kind in ("plain", "pushed"):
            written = pynini.Fst.read(f"{ran.work}/{kind}/{number}.fst")
            assert pynini.equivalent(given, written, delta=1e-2)
        distances = list(map(float, pynini.shortestdistance(written, reverse=True)))
        assert [cost for state, cost in enumerate(distances) if state != written.start()] == pytest.approx(
            [0.0] * (len(distances) - 1), abs=1e-3
        )


def test_the_plot_shows_every_beam(ran: Ran) -> None:
    picture = (ran.work / "search_errors.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml") and all(f">{size}</text>" in picture for size in BEAMS)


@pytest.mark.parametrize("mistake", ["better beam", "unproven"])
def test_results_that_contradict_each_other_are_refused(ran: Ran, tmp_path: Path, mistake: str) -> None:
    shutil.copytree(ran.work / "search", tmp_path / "search")
    name = "plain.1.exact" if mistake == "unproven" else "pushed.1.recombined.3"
    results = tmp_path / "search" / f"{name}.jsonl"
    found = [json.loads(line) for line in results.read_text().splitlines()]
    if mistake == "unproven":
        found[0]["proven"] = False
    else:
        found[0]["hypotheses"][0]["score"] += 100
    results.write_text("".join(json.dumps(sentence) + "\n" for sentence in found))
    options = ["--weights", "1", "--beams", "1", "3"]
    command = [sys.executable, str(EXAMPLE / "search_errors.py"), str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    message = "better score than the exact" if mistake == "better beam" else "not every sentence is proven"
    assert message in done.stderr


def test_lattices_with_epsilons_and_repeated_labels_are_made_deterministic(
    commands: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "given").mkdir()
    lattice = pynini.union("[5][6]", pynini.accep("[5][7]", weight=0.5), "[8]")
    lattice.write(str(tmp_path / "given" / "1.fst"))
    done = prepare(commands, tmp_path)
    assert done.returncode == 0, done.stderr
    written = pynini.Fst.read(str(tmp_path / "work" / "plain" / "1.fst"))
    wanted = pynini.I_DETERMINISTIC | pynini.NO_EPSILONS
    assert written.properties(wanted, True) == wanted
    assert pynini.equivalent(written, pynini.determinize(pynini.rmepsilon(lattice)))


@pytest.mark.parametrize(
    ("names", "message"), [([], "no lattices"), (["1", "3"], "2 lattices, but no 2.fst"), (["1"], "no path leads")]
)
def test_a_folder_that_cannot_be_used_is_one_line(
    commands: dict[str, str], tmp_path: Path, names: list[str], message: str
) -> None:
    (tmp_path / "given").mkdir()
    for name in names:
        lattice = pynini.Fst() if len(names) == 1 else pynini.accep("[5]")
        lattice.write(str(tmp_path / "given" / f"{name}.fst"))
    done = prepare(commands, tmp_path)
    assert done.returncode == 1
    assert message in done.stderr and done.stderr.count("\n") == 1


def prepare(commands: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "lattices.py"), str(folder / "given"), str(folder / "work")]
    return subprocess.run(command, env=commands, capture_output=True, text=True)


def scores(results: Path) -> list[float]:
    return [json.loads(line)["hypotheses"][0]["score"] for line in results.read_text().splitlines()]


def unpacked(path: Path) -> Any:
    data = path.read_bytes()
    return pynini.Fst.read_from_string(gzip.decompress(data) if path.suffix == ".gz" else data)


class Model:
    """A trigram model, by the definition of back-off: p(w | u v) = p*(u v w), or b(u v) p(w | v)."""

    def __init__(self, path: Path) -> None:
        self.p: dict[tuple[str, ...], float] = {}
        self.b: dict[tuple[str, ...], float] = {}
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            fields = line.split("\t")
            if len(fields) > 1:
                words = tuple(fields[1].split())
                self.p[words] = float(fields[0]) * math.log(10)
                self.b[words] = float(fields[2]) * math.log(10) if len(fields) > 2 else 0.0

    def score(self, history: tuple[str, ...], word: str) -> float:
        word = word if (word,) in self.p else "<unk>"
        if (*history, word) in self.p or not history:
            return self.p[*history, word]
        return self.b.get(history, 0.0) + self.score(history[1:], word)


class Space:
    """One lattice with the model. A place is a state and the last two words; None = the end."""

    def __init__(self, path: Path, model: Model) -> None:
        self.fst, self.model = pynini.Fst.read(str(path)), model
        self.root, self.paid = (self.fst.start(), ("<s>",)), 0.0
        for arc in self.fst.arcs(self.fst.start()):
            if arc.ilabel == 1:
                self.root, self.paid = (arc.nextstate, ("<s>",)), -float(arc.weight)

    @cache  # noqa: B019
    def steps(self, place: Any) -> list[tuple[float, Any]]:
        state, history = place
        end = self.model.score(history, "</s>")
        found: list[tuple[float, Any]] = [(end - float(self.fst.final(state)), None)]
        for arc in self.fst.arcs(state):
            if arc.ilabel == 2:
                found.append((end - float(arc.weight) - float(self.fst.final(arc.nextstate)), None))
            else:
                word = str(arc.ilabel) if (str(arc.ilabel),) in self.model.p else "<unk>"
                score = self.model.score(history, word) - float(arc.weight)
                found.append((score, (arc.nextstate, (*history, word)[-2:])))
        return [(score, after) for score, after in found if score > -math.inf]

    def best(self) -> float:
        @cache
        def remaining(place: Any) -> float:
            rest = (score + (remaining(after) if after else 0.0) for score, after in self.steps(place))
            return max(rest, default=-math.inf)

        return self.paid + remaining(self.root)

    def beam(self, size: int) -> float:
        """The best score of a beam search that ends when all its hypotheses have ended."""
        beam: list[tuple[float, Any]] = [(self.paid, self.root)]
        best = -math.inf
        while any(place for _, place in beam):
            beam = [
                (total + score, after)
                for total, place in beam
                for score, after in (self.steps(place) if place else [(0.0, None)])
            ]
            beam = sorted(beam, key=lambda item: -item[0])[:size]
            best = max([best, *(total for total, place in beam if place is None)])
        return best

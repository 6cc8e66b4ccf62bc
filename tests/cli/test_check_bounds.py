"""The promise: ``sgdec decode --check-bounds`` accuses no bundled predictor and changes no output; a wrong claim of a
plugin is one warning with its sentence, and the exit status is 1."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from sgdec.cli.main import main
from sgdec.io.entries import read_entries
from sgdec.io.trie import build_trie
from sgdec.search.bounds.folding import MOST_ARCS
from tests.helpers.breadth import some
from tests.helpers.lattice_files import write_automaton, write_paths
from tests.helpers.plugin_files import decode, write_plugin
from tests.helpers.with_arcs import predictors_with_arcs

EXACT = ("astar", "bucket", "dfs", "lendfs", "restarting")
OTHERS = ("beam --beam.stop proven", "bestfirst", "greedy", "sample")
MIXES = [
    "fst,ngram",
    "fst,ngram,wc,unkc",
    "fst,length,extlength",
    "nfst,ngram",
    "fst,norepeat,ngram --norepeat.order 1",
    "fst,minlength,maxlength --minlength.tokens 1 --maxlength.tokens 3",
    "nfst,wc --nfst.semiring log",
    "forcedlst,ngram",
    "forced,wc,ngram",
    "trie,ngram,unkc",
    "fst,ngramc",
    "fst,bow --bow.accept_subsets true",
    "fst,forcedlst,wc --forcedlst.match_unk true",
    "fst,maskvocab:ngram --maskvocab.tokens 4",
    "idxmap:fst,ngram,wc",
    "fst,altsrc:unkc",
    "fst,rank:ngram",
    "fst,temperature:ngram --temperature.value 0.5",
    "fst,repetition:ngram --repetition.penalty 1.5",
    "fst,repetition:ngram --repetition.penalty 0.5",
    "fst,skipvocab:wc --skipvocab.tokens 4",
]
ARRAYS = MIXES[:3]
"""Mixes of automata that `vanilla` takes."""
SENTENCES = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("honest")
    predictors_with_arcs(made)
    rng = np.random.default_rng(1)
    for number in range(1, SENTENCES + 1):  # several paths with the same tokens, and epsilons
        paths = rng.choice([3, 4, 5, 6], (8, 3))
        arcs, final = [], {}
        for start, path in enumerate(paths.tolist()):
            places = range(1 + 4 * start, 5 + 4 * start)
            arcs += [(0, 0, 0.0, places[0]), *zip(places, path, (0.0,) * 3, places[1:], strict=False)]
            final[places[-1]] = float(rng.normal())
        write_automaton(made / f"{number}.nfst", arcs, final)
    texts = {
        "in": ["3 4", "5", "3 3 0", "6 4 5", "4"],
        "other": ["0 3", "3", "4 0", "0", "5 5"],
        "bags": ["3 4 5 6 3", "5 4", "6 6 3", "3 4 5", "4 5 6"],
        "ngrams": ["3 : 0.3", "3 4 : 0.1", "4 3 4 : -0.7", "5 : 0.2"],
        "map": [f"{outer} {inner}" for outer, inner in enumerate([0, 1, 2, 4, 3, 6, 5])],
        "lambdas": ["0.5,2.0"],
    }
    for name, lines in texts.items():
        (made / name).write_text("".join(f"{line}\n" for line in lines))
    short = [" ".join(map(str, tokens)) for n in range(1, 4) for tokens in itertools.product((3, 4, 5), repeat=n)]
    build_trie(read_entries([f"{text}\t{rng.normal():.3f}" for text in short[::2]], "e")).write(made / "entries")
    return made


def run(folder: Path, mix: str, decoder: str, *more: str) -> list[str]:
    predictors, *others = mix.split()
    name, *options = decoder.split()
    files = {
        "fst": "{id}.fst", "nfst": "{id}.nfst", "forced": "references", "forcedlst": "nbest", "trie": "entries",
        "ngram": "lm.arpa", "ngramc": "ngrams", "bow": "bags", "extlength": "lengths", "idxmap": "map",
        "altsrc": "other",
    }  # fmt: skip
    words = ["decode", "--predictors", predictors, "--decoder", name, *others, *options]
    parts = predictors.replace(":", ",").split(",")
    for part in parts:
        if part in files:
            words += [f"--{part}.path", str(folder / files[part])]
    if "unkc" in parts:
        words += ["--unkc.lambdas", "0.5,2.0"]
    if "length" in parts:
        words += ["--length.weights", "0,0.5,0,0,0,0,-0.1,0,0,0", "--length.text", str(folder / "in")]
    return [
        *words,
        "--vocab-size",
        "7",
        "--input-format",
        "ids",
        "--max-length-factor",
        "4",
        "--nbest",
        "2",
        *more,
        str(folder / "in"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_no_bundled_predictor_is_accused(mix: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With exact decoders, weights of both signs, products and sums, and length limits."""
    first, second = mix.split()[0].split(",")[:2]
    second = second.split(":")[0]
    choices = itertools.cycle([
        ("--bounds", "product", "--max-length", "6"),
        ("--bounds", "auto", f"--{second}.weight", "-0.5"),
        ("--bounds", "sum", f"--{second}.weight", "2.5", "--batch-size", "1"),
        ("--bounds", "product", f"--{first.split(':')[0]}.weight", "0.3", f"--{second}.weight", "0"),
    ])  # fmt: skip
    others = [OTHERS[(MIXES.index(mix) + i) % len(OTHERS)] for i in (0, 2)]
    statuses = []
    for decoder in (*some(EXACT, MIXES.index(mix)), *others, *(["vanilla"] if mix in ARRAYS else [])):
        more = next(choices)
        found = []
        for check in ([], ["--check-bounds"]):
            status = main(run(folder, mix, decoder, "--output-format", "nbest", *more, *check))
            out, err = capsys.readouterr()
            warnings = [line for line in err.splitlines() if line.startswith(("Warning", "Error"))]
            found.append((status, out, warnings))
            statuses.append(status)
        assert found[0] == found[1], (decoder, more)
        assert ("check-bounds: claims checked at " in err) == (status != 2), err
        assert not any("claims" in line for line in found[1][2])
    assert statuses.count(0) >= 0.7 * len(statuses)  # some exceed a limit, or a predictor declares no bound


LIAR = """
import sgdec
from sgdec import Scores

class Mine(sgdec.Predictor):
    max_score = -1.0
    def predict_next(self, candidates=None):
        return Scores.dense(-__import__("numpy").ones(5) * LOWEST)
"""


@pytest.mark.parametrize("decoder", ["astar", "beam", "vanilla", "greedy", "sample"])
def test_a_liar_is_named(decoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_plugin(tmp_path, "", head=LIAR.replace("LOWEST", "0.25"))
    assert decode(tmp_path, "--decoder", decoder) == (1 if decoder == "astar" else 0)
    assert ("no proof would hold. --check-bounds finds the predictor." in capsys.readouterr().err) == (
        decoder == "astar"
    )
    assert decode(tmp_path, "--decoder", decoder, "--check-bounds") == 1
    expected = (
        "predictor 'mine', before the first token: max_score claims at most -1, but token 0 scores -0.25. Give a "
        "higher max_score; decoders without proofs, such as beam, ignore it."
    )
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Warning")]
    assert warnings == [f"Warning: sentence {number}: {expected}" for number in (1, 2, 3)]


def test_the_signature_says_that_bounds_were_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_plugin(tmp_path, "", head=LIAR.replace("LOWEST", "1.5"))
    assert decode(tmp_path, "--check-bounds") == 0
    assert "|check_bounds:True|" in capsys.readouterr().err


def test_products_above_the_limit_and_their_remedy_are_in_the_last_lines(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_ARCS, "product", 3)
    for bounds, remedy in (("product", ")"), ("auto", ", --bounds product allows 3 arcs)")):
        monkeypatch.setitem(MOST_ARCS, "auto", 3)
        assert main(run(folder, "fst,ngram", "astar", "--bounds", bounds)) == 0
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bounds: 0 products")]
        assert " were too large (more than 3 arcs, or too many sweeps; the largest: 5 states and " in line
        assert (
            " relaxed states of 'ngram'), so coarser relaxations were tried, and 5 times plain sums were left" in line
        )
        assert line.endswith(f"(--bounds sum builds none{remedy}")


@pytest.mark.parametrize("plugin", ["fst", "nfst"])
@pytest.mark.parametrize("arcs", [[], [(0, 1)], [(0, 0)], [(0, 1), (1, 0)]], ids=str)
def test_a_lattice_without_an_end_is_one_line(
    arcs: list[tuple[int, int]], plugin: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its sentence; the others are decoded."""
    for number in range(1, SENTENCES + 1):
        write_paths(tmp_path / f"{number}.fst", [((3, 4), 0.0)])
    write_automaton(tmp_path / "2.fst", [(start, 3, 0.5, end) for start, end in arcs], {})
    words = run(folder, f"{plugin},ngram", "astar", "--bounds", "product", "--output-format", "ids")
    words[words.index(f"--{plugin}.path") + 1] = f"{tmp_path}/{{id}}.fst"
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out.split("\n")[:-1] == ["3 4", "", "3 4", "3 4", "3 4"]
    (warning,) = [line for line in err.splitlines() if line.startswith("Warning")]
    assert warning == (
        f"Warning: sentence 2: {plugin}: {tmp_path}/2.fst: is empty: no path leads to a final state (sentence 2). "
        "Check how it was made."
    )

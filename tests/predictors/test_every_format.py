"""Every predictor runs in every file format that it reads: alone, first and last in a mix, asked for all tokens and
for a few, through the command line; and formats of one model, places in a mix, batch sizes and commands agree.

A predictor beside an open one (``nplm``, ``nmt``) is asked for full rows, beside a lattice for the lattice's tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from sgdec.context import BOS
from sgdec.io.nplm import write_nplm
from sgdec.plugins.host import Host
from tests.helpers.file_formats import CASES, SENTENCES, Case, V
from tests.helpers.lattice_files import write_automaton
from tests.helpers.lm_case import random_file
from tests.helpers.loaded_once import load_models_once, load_pretrained_once, probe_models_once
from tests.helpers.tiny_models import write_checkpoint

pytestmark = pytest.mark.slow

Found = list[dict[tuple[int, ...], float]]
"""For each sentence its hypotheses with their scores, best first."""
SEARCH = ("--decoder", "beam", "--beam.size", "6", "--beam.stop", "full", "--nbest", "6")


@pytest.fixture(scope="module")
def partners(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """What a case meets in a mix: the entry of --predictors and its options."""
    folder = tmp_path_factory.mktemp("partners")
    write_nplm(folder / "nplm", random_file(["<unk>", "<s>", "</s>", "3", "4", "5", "6"], seed=5))
    write_checkpoint(folder / "nmt", seed=6)
    write_automaton(folder / "anything.fst", [(0, token, 0.1 * token, 0) for token in range(3, V)], {0: 0.5})
    return {
        "open": ["other=nplm", "--other.model", str(folder / "nplm")],
        "open, with a vocabulary": ["other=nmt", "--other.model", str(folder / "nmt")],
        "restricting": ["other=fst", "--other.path", str(folder / "anything.fst")],
    }


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        load_models_once(patch)
        load_pretrained_once(patch)
        probe_models_once(patch)
        yield


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path) -> Path:
    """The input, in a folder to which a run may write."""
    path = folder / "input"
    path.write_text("".join(f"{line}\n" for line in SENTENCES))
    return path


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], list[str]]:
    """The options of a case, whose files are written once."""

    @cache
    def written(case: Case) -> list[str]:
        given = case.files(tmp_path_factory.mktemp("files"))
        return [word for name, value in given.items() for word in (f"--{name}", str(value))]

    return written


def run(command: str, predictors: list[str], given: list[str], *rest: object) -> list[dict[str, Any]]:
    """The JSON lines that a command writes; it has to succeed."""
    output = Path(str(rest[-1])).with_name("output")
    words = [command, "--predictors", ",".join(predictors), *given, "--vocab-size", str(V)]
    words += ["--input-format", "ids", "--output-format", "jsonl", "--output", str(output)]
    assert main([*words, *map(str, rest)]) == 0
    return [json.loads(line) for line in output.read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(
    partners: Mapping[str, list[str]],
    options: Callable[[Case], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Case], Found]:
    """What a beam search finds with a case alone; searched once for all tests."""

    @cache
    def found(case: Case) -> Found:
        inputs = written(tmp_path_factory.mktemp("alone"))
        return decode([case.entry], given_alone(case, partners, options), *SEARCH, inputs)

    return found


def given_alone(
    case: Case, partners: Mapping[str, list[str]], options: Callable[[Case], list[str]]
) -> list[str]:
    """The options of a case, with a vocabulary if it needs one."""
    tokenizer = ["--tokenizer", f"{partners['open, with a vocabulary'][2]}/tokenizer.spm"]
    return [*options(case), *(tokenizer if case.vocabulary == "needs" else [])]


def decode(predictors: list[str], given: list[str], *rest: object) -> Found:
    rows = run("decode", predictors, given, "--max-length", "5", *rest)
    assert [row["id"] for row in rows] == [1, 2]
    for row in rows:
        assert row["hypotheses"], "every case has an output in every mix"
        for found in row["hypotheses"]:
            total = sum(found["weights"][name] * score for name, score in found["scores"].items())
            assert found["score"] == pytest.approx(total, abs=1e-9)
    return [{tuple(found["tokens"]): found["score"] for found in row["hypotheses"]} for row in rows]


def expect_equal(first: Found, second: Found) -> None:
    """The best score, and that of every output that both lists have; equal scores may be cut off differently."""
    for one, other in zip(first, second, strict=True):
        assert max(one.values()) == pytest.approx(max(other.values()), rel=1e-5)
        common = one.keys() & other.keys()
        assert len(common) >= len(one) // 2
        assert [one[tokens] for tokens in common] == pytest.approx([other[tokens] for tokens in common], rel=1e-5)


def mixes(case: Case) -> Iterator[str]:
    yield "open, with a vocabulary" if case.vocabulary in ("brings", "needs") else "open"
    if case.vocabulary != "needs":
        yield "restricting"


def marks(case: Case) -> list[pytest.MarkDecorator]:
    """`make test` has one format of each model here; below, every other format scores as this one does."""
    alike = [other for other in CASES if case.says and (other.entry, other.says) == (case.entry, case.says)]
    return [pytest.mark.exhaustive] if case in alike[1:] else []


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id, marks=marks(case)) for case in CASES])
def test_a_predictor_runs_alone(
    case: Case,
    partners: Mapping[str, list[str]],
    options: Callable[[Case], list[str]],
    alone: Callable[[Case], Found],
    inputs: Path,
) -> None:
    given = given_alone(case, partners, options)
    found = alone(case)
    expect_equal(found, decode([case.entry], given, *SEARCH, "--batch-size", "1", inputs))
    decode([case.entry], given, "--decoder", "greedy", inputs)
    targets = inputs.with_name("targets")
    chosen = [next((tokens for tokens in best if BOS not in tokens), (3,)) for best in found]  # <s> is no output
    targets.write_text("".join(" ".join(map(str, tokens)) + "\n" for tokens in chosen))
    scored = run("score", [case.entry], [*given, "--target-format", "ids"], inputs, targets)
    for row, tokens, best in zip(scored, chosen, found, strict=True):
        assert row["score"] == pytest.approx(best.get(tokens, row["score"]), rel=1e-5)


@pytest.mark.parametrize(
    ("case", "mix"),
    [pytest.param(case, mix, id=f"{case.id}-{mix}", marks=marks(case)) for case in CASES for mix in mixes(case)],
)
def test_a_predictor_runs_first_and_last_in_a_mix(
    case: Case,
    mix: str,
    partners: Mapping[str, list[str]],
    options: Callable[[Case], list[str]],
    inputs: Path,
) -> None:
    other, *more = partners[mix]
    given = [*options(case), *more, "--other.weight", "0.7"]
    first = decode([case.entry, other], given, *SEARCH, inputs)
    last = decode([other, case.entry], given, *SEARCH, inputs)
    expect_equal(first, last)


@pytest.mark.parametrize("says", sorted({case.says for case in CASES if case.says}))
def test_formats_of_one_model_score_alike(says: str, alone: Callable[[Case], Found]) -> None:
    results = [alone(case) for case in CASES if case.says == says]
    for result in results[1:]:
        expect_equal(results[0], result)


def test_every_predictor_is_here() -> None:
    """Except those with tests of their own: ``bytes``, whose tokens are bytes, mixes, and what limits others."""
    own = {"aligned", "bytes", "contrast", "interpolate", "topk"}
    entries = [entry.name for entry in Host(autoload=False).names("predictor")]
    assert {case.plugin for case in CASES} == set(entries) - own

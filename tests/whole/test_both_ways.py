"""The library and the command line are one: the same mix, options and input give the same numbers both ways.

What the command line has written is read back as JSON and compared, number by number and without tolerance, with what
the library found in the same process. Both are told of failures by the same words.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import sgdec
from sgdec.cli import decode, score
from sgdec.cli.main import main
from sgdec.found import Found
from sgdec.library import LoadedRun
from sgdec.settings import Penalties, Settings
from tests.helpers.tiny_models import characters, write_checkpoint, write_lattice

TEXT = ["ab", "c a b", "", "bb c", "a" * 30, "cab"]
"""One is empty and one is longer than `SETTINGS` allow."""
IDS = [[3, 4], [5], [6, 3, 3], [4, 2_000_000_000], [], [3, 3]]
"""Sentences 4 and 5 fail; those without a lattice, too."""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, lattices over its tokens, and a vocabulary."""
    folder = tmp_path_factory.mktemp("both")
    write_checkpoint(folder / "model")
    (folder / "abc.spm").write_bytes(characters("abc").serialized)
    for number in (1, 2, 4, 6):
        paths = [((3, 4), 0.5), ((3, 5, 3), 0.25), ((6,), 2.0), ((4, 4, 5, 6), -1.0)]
        write_lattice(folder / f"{number}.fst", [(tokens, cost / number) for tokens, cost in paths])
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


Mix = tuple[str, dict[str, dict[str, Any]]]
MODEL: Mix = ("nmt", {"nmt": {"model": "model"}})
WEIGHTED: Mix = ("nmt,wc", {"nmt": {"model": "model", "weight": 0.5}, "wc": {"weight": -0.25}})
LATTICE: Mix = ("wc,fst", {"fst": {"path": "{id}.fst"}, "wc": {"weight": 0.75}})
BOTH: Mix = ("nmt,fst", {"nmt": {"model": "model"}, "fst": {"path": "{id}.fst", "weight": 0.5}})
WRAPPED: Mix = ("x=rank:nmt,fst", {"x": {"model": "model"}, "fst": {"path": "{id}.fst"}})

DECODED = [
    (MODEL, TEXT, "beam", {"size": 3}, {"nbest": 3, "precision": "fp64"}),
    (MODEL, TEXT, "vanilla", {"size": 2}, {"nbest": 2, "batch_size": 2, "max_source_length": 20}),
    (WEIGHTED, TEXT, "greedy", {}, {"deterministic": True, "batch_size": 3, "max_length": 4}),
    (WEIGHTED, TEXT, "sample", {}, {"nbest": 4, "seed": 7, "max_length_factor": 1.5}),
    (MODEL, TEXT, "sepbeam", {"size": 2}, {"window": 2, "batch_size": 1, "max_rows": 3}),
    (LATTICE, IDS, "beam", {"size": 4, "stop": "full", "alpha": 0.5}, {"nbest": 9, "max_length": 0}),
    (LATTICE, IDS, "dfs", {}, {"nbest": 2, "vocab_size": 7}),
    (LATTICE, IDS, "astar", {}, {"tokenizer": "abc.spm", "max_length": 5, "max_rows": 2}),
    (BOTH, TEXT, "beam", {"size": 4}, {"nbest": 4}),
    (BOTH, IDS, "bucket", {}, {}),
    (WRAPPED, IDS, "restarting", {}, {"batch_size": 2}),
]  # fmt: skip


def command(name: str, mix: Mix, settings: dict[str, Any], others: list[str], files: list[str]) -> list[str]:
    """A command line, worked out apart from the code that reads it."""
    words = [name, "--predictors", mix[0], *others]
    for part, options in mix[1].items():
        for key, value in options.items():
            words += [f"--{part}.{key}", str(value)]
    for key, value in settings.items():
        option = "--" + key.replace("_", "-")
        words += [option] if value is True else [option, str(value)]
    return [*words, "--output-format", "jsonl", *files]


def lines(path: str, sentences: list[Any]) -> list[str]:
    """The file of these sentences, and the option that says what it holds."""
    text = [each if isinstance(each, str) else " ".join(map(str, each)) for each in sentences]
    Path(path).write_text("".join(f"{line}\n" for line in text))
    return ["--input-format", "text" if isinstance(sentences[0], str) else "ids"]


def without_seconds(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "seconds"}


@pytest.mark.slow
@pytest.mark.parametrize(("mix", "sentences", "decoder", "options", "settings"), DECODED)
def test_decoding_gives_the_same_numbers_both_ways(
    mix: Mix, sentences: list[Any], decoder: str, options: dict[str, Any], settings: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    parts = {**mix[1], decoder: options}
    format = lines("in", sentences)
    status = main(command("decode", (mix[0], parts), settings, ["--decoder", decoder, "--ledger", *format], ["in"]))
    out, err = capsys.readouterr()
    run: LoadedRun = sgdec.load(mix[0], decoder, **settings, **parts)
    found = list(run.decode(sentences))
    written = [without_seconds(json.loads(line)) for line in out.splitlines()]
    assert [_as_written(each) for each in found] == written
    assert status == any(each.error is not None for each in found) and status == 1  # each mix has failures, too
    assert any(each.hypotheses for each in found)
    warned = [line for line in err.splitlines() if line.startswith("Warning: sentence ")]
    assert len(warned) == sum(each.error is not None for each in found)
    assert _signature(err) == run.signature.split("|")


def _as_written(found: Found) -> dict[str, Any]:
    """What the command line is expected to write of it: token ids for text where there is no vocabulary."""
    row = without_seconds(json.loads(json.dumps(found.to_dict())))
    for hypothesis in row["hypotheses"]:
        if hypothesis["text"] is None:
            hypothesis["text"] = " ".join(map(str, hypothesis["tokens"]))
    if "error" in row and not found.source_tokens:  # of a line that cannot be read the command line knows the file
        row["error"] = f"in, line {found.id}: {row['error']}"
    return row


def _signature(err: str) -> list[str]:
    (line,) = (line for line in err.splitlines() if line.startswith("signature: "))
    return [part for part in line.removeprefix("signature: ").split("|") if not part.startswith("input_format:")]


SCORED = [
    (MODEL, TEXT, ["ba", "c", "a", "", "b", "abc"], {"precision": "fp64", "alpha": 0.6}),
    (WEIGHTED, TEXT, [[4, 3], [5], [3], [], [3], [1]], {"batch_size": 2, "alpha": 1.0, "normalize": "length"}),
    (LATTICE, IDS, [[3, 4], [6], [3], [4, 4, 5, 6], [3], [3, 3]], {"max_rows": 2}),
    (BOTH, IDS, [[3, 4], [3, 5, 3], [3], [6], [3], [6]], {"seed": 3, "beta": 0.1, "max_source_length": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mix", "sentences", "targets", "settings"), SCORED)
def test_scoring_gives_the_same_numbers_both_ways(
    mix: Mix, sentences: list[Any], targets: list[Any], settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    format = [*lines("in", sentences), "--target-format", lines("out", targets)[1]]
    main(command("score", mix, settings, format, ["in", "out"]))
    written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    penalties = {key: value for key, value in settings.items() if key in Penalties.__dataclass_fields__}
    own = {key: value for key, value in settings.items() if key in Settings.__dataclass_fields__}
    found = list(sgdec.load(mix[0], **own, **mix[1]).score(sentences, targets, **penalties))
    assert [each.error is None for each in found] == [row["score"] is not None for row in written]
    names = ("tokens", "score", "rank_score", "scores", "token_scores")
    for each, row in zip(found, written, strict=True):
        if each.error is None:
            assert {name: row[name] for name in names} == {name: each.best.to_dict()[name] for name in names}
    assert 0 < sum(each.error is None for each in found) < len(found)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"nbest": "0"}, {}),
        ({"nbest": "many"}, {}),
        ({"precision": "fp8"}, {}),
        ({"batch_size": "0"}, {}),
        ({"max_length": "-1"}, {}),
        ({"max_length_factor": "1e9"}, {}),
        ({"max_source_length": "-1"}, {}),
        ({"vocab_size": "2"}, {}),
        ({"vocab_size": "99"}, {}),
        ({"window": "0"}, {}),
        ({"max_rows": "0"}, {}),
        ({"threads": "0"}, {}),
        ({"seed": str(1 << 70)}, {}),
        ({"device": "gpu"}, {}),
        ({"device": "cuda:99"}, {}),
        ({"copy_unknown": True}, {}),
        ({}, {"beam": {"size": "0"}}),
        ({}, {"beam": {"sise": "1"}}),
        ({}, {"beem": {"size": "1"}}),
        ({}, {"nmt": {"model": "model", "weight": "much"}}),
        ({}, {"nmt": {"model": "none"}}),
        ({}, {"nmt": {}}),
    ],
)
def test_what_one_way_refuses_the_other_refuses_in_the_same_words(
    settings: dict[str, Any], parts: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"nmt": {"model": "model"}, **parts}
    lines("in", TEXT)
    status = main(command("decode", ("nmt", parts), settings, [], ["in"]))
    load: Callable[..., LoadedRun] = sgdec.load
    with pytest.raises(sgdec.SgdecError) as error:
        load("nmt", **settings, **parts)
    assert capsys.readouterr().err == f"Error: {error.value}\n"
    assert status == error.value.exit_status


def test_every_setting_is_an_option_and_a_parameter_with_one_default() -> None:
    options = {parameter.name: parameter.default for parameter in decode.command.params}
    parameters = inspect.signature(sgdec.load).parameters
    for field in fields(Settings):
        assert options[field.name] == parameters[field.name].default == field.default
    for field in fields(Penalties):
        scored = {parameter.name: parameter.default for parameter in score.command.params}
        given = inspect.signature(LoadedRun.score).parameters[field.name].default
        assert scored[field.name] == given == field.default


def test_a_ledger_is_refused_where_there_is_no_place_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines("in", TEXT)
    assert main(["decode", "--predictors", "nmt", "--nmt.model", "model", "--ledger", "in"]) == 2
    assert capsys.readouterr().err == "Error: --ledger: text cannot hold it. Give --output-format jsonl.\n"

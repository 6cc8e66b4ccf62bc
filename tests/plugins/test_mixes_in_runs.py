"""Mixes in a run: how they are written, what belongs to their parts, and what the parts say of an output."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.altsrc import AltSrc
from sgdec_predictors.interpolate import Interpolate
from sgdec_predictors.nmt import NmtPredictor

import sgdec
from sgdec.cli.main import main
from sgdec.errors import UsageError
from sgdec.mixing import Mix
from sgdec.plugins.predictor_list import parse_predictors
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.tasks.parts import part_scores
from sgdec.testing.toys import BatchTable
from sgdec.trace.reading import read_trace
from tests.helpers.tiny_models import write_checkpoint


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("models")
    nmt = write_checkpoint(folder / "nmt")
    language_model = {"model": "rnnlm", "options": {"layers": 1, "width": 8}, "seed": 2}
    return str(nmt), str(write_checkpoint(folder / "lm", **language_model))


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "in.txt").write_text("a b c\nb a\n")
    return str(tmp_path / "in.txt")


def decoded(capsys: pytest.CaptureFixture[str], *command: str) -> list[dict[str, Any]]:
    assert main(["decode", "--output-format", "jsonl", *command]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main(["decode", *command]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("interpolate:nmt+rnnlm", "interpolate:nmt+rnnlm"),
        ("fst,both=interpolate:nmt+nmt", "both:nmt+nmt2"),
        ("interpolate:altsrc:nmt+x=nmt", "interpolate:altsrc:nmt+x"),
        ("temperature:(interpolate:nmt+rnnlm)", "temperature:(interpolate:nmt+rnnlm)"),
        ("m=temperature:(interpolate:nmt+rnnlm)", "temperature:(m:nmt+rnnlm)"),
        ("interpolate:nmt+(c=contrast:hf+hf)", "interpolate:nmt+(c:hf+hf2)"),
        (" interpolate : nmt + rnnlm ", "interpolate:nmt+rnnlm"),
    ],
)
def test_a_list_with_mixes(text: str, said: str) -> None:
    assert parse_predictors(text)[-1].said(lambda part: part.name) == said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nmt+rnnlm", r"'nmt\+rnnlm' does not say how its parts are mixed"),
        ("interpolate:nmt+", "a name is missing in entry 1"),
        ("fst,interpolate:+nmt", "a name is missing in entry 2"),
        ("interpolate:nmt+(rnnlm)", "'rnnlm' does not say how its parts are mixed"),
        ("interpolate:nmt+(contrast:hf)", "the mix 'contrast:hf' has one part only"),
        ("interpolate:nmt+(rnnlm", r"a parenthesis of 'interpolate:nmt\+\(rnnlm' has no partner"),
        ("interpolate:nmt)+rnnlm", "a parenthesis of .* has no partner"),
        ("interpolate:nmt=fst+nmt", "'nmt' names two parts"),
        ("a=b=interpolate:nmt+fst", "'a=b' is not a name"),
    ],
)
def test_what_is_no_list_of_mixes_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_predictors(text)


def test_a_mix_is_one_predictor_with_options_of_its_parts(
    models: tuple[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--nmt.model", models[0], "--rnnlm.model", models[1], "--decoder", "beam", "--beam.size", "3", text]
    for row in decoded(
        capsys, "--predictors", "interpolate:nmt+rnnlm,wc", "--interpolate.weights", "0.7,0.3",
        "--interpolate.weight", "0.5", "--wc.weight", "0.1", "--ledger", *common,
    ):  # fmt: skip
        best = row["hypotheses"][0]
        assert [*best["scores"]] == ["interpolate", "wc"]
        assert best["score"] == pytest.approx(0.5 * best["scores"]["interpolate"] + 0.1 * best["scores"]["wc"])
        parts = best["part_scores"]["interpolate"]
        expected = [
            math.log(0.7 * math.exp(nmt) + 0.3 * math.exp(lm))
            for nmt, lm in zip(parts["nmt"], parts["rnnlm"], strict=True)
        ]
        assert best["token_scores"]["interpolate"] == pytest.approx(expected, abs=1e-5)


def test_a_bayesian_total_is_the_mixture_of_sequences(
    models: tuple[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--nmt.model", models[0], "--rnnlm.model", models[1], text, "--ledger"]
    mix = ["--predictors", "interpolate:nmt+rnnlm", "--interpolate.scheme", "bayesian"]
    for row in decoded(capsys, *mix, *common):
        best = row["hypotheses"][0]
        parts = best["part_scores"]["interpolate"].values()
        assert best["score"] == pytest.approx(math.log(sum(0.5 * math.exp(sum(part)) for part in parts)), abs=1e-5)


def test_scoring_recomputes_a_mix(
    models: tuple[str, str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--predictors", "contrast:nmt+rnnlm", "--contrast.weights", "1,-0.5"]
    options += ["--contrast.plausibility", "0.05", "--nmt.model", models[0], "--rnnlm.model", models[1]]
    found = decoded(capsys, *options, text)
    outputs = tmp_path / "out.ids"
    outputs.write_text("".join(" ".join(map(str, row["hypotheses"][0]["tokens"])) + "\n" for row in found))
    arguments = ["--target-format", "ids", "--output-format", "jsonl", text, str(outputs)]
    assert main(["score", *options, *arguments]) == 0
    scored = [json.loads(line)["score"] for line in capsys.readouterr().out.splitlines()]
    assert scored == pytest.approx([row["hypotheses"][0]["score"] for row in found], abs=1e-5)


def test_a_config_file_can_nest_mixes(
    models: tuple[str, str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(
        f"""predictors = "interpolate:nmt+temperature:(contrast:expert=nmt+rnnlm)"
nmt.model = {models[0]!r}
expert.model = {models[0]!r}
rnnlm.model = {models[1]!r}
temperature.value = 2.0
contrast.weights = [1.0, -0.2]
interpolate.weights = [0.5, 0.5]
"""
    )
    for row in decoded(capsys, "--config", str(tmp_path / "run.toml"), "--ledger", text):
        parts = row["hypotheses"][0]["part_scores"]["interpolate"]
        assert [*parts] == ["nmt", "temperature"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["interpolate:nmt+rnnlm", "--nmt.weight", "2"], "--nmt.weight: 'nmt' is a part of the mix 'interpolate'"),
        (["interpolate:nmt+rnnlm", "--rnnlm.renormalize", "true"], "only the entries of --predictors have this"),
        (["interpolate:nmt+rnnlm", "--interpolate.weights", "0.5"], "interpolate: 1 weight for 2 parts (nmt+rnnlm)"),
        (["temperature:nmt+rnnlm"], "'temperature' is not a mix of predictors, such as interpolate or contrast."),
        (["rnnlm,interpolate:nmt"], "'interpolate' mixes several predictors: write interpolate:PREDICTOR+PREDICTOR."),
        (["wc:nmt+rnnlm"], "'wc' is not a mix of predictors"),
    ],
)
def test_a_wrong_mix_is_one_line(
    given: list[str], message: str, models: tuple[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--nmt.model", models[0], "--rnnlm.model", models[1], text]
    assert message in refused(capsys, "--predictors", *given, *options)


def test_parts_with_other_vocabularies_are_refused(
    models: tuple[str, str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_checkpoint(tmp_path / "other", target="abcd")
    options = ["--nmt.model", models[0], "--nmt2.model", str(other), text]
    error = refused(capsys, "--predictors", "interpolate:nmt+nmt", *options)
    assert "predictor 'nmt' and predictor 'nmt2' have different target vocabularies" in error


def test_a_model_that_is_named_twice_is_in_memory_once(models: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("b b\na\n")
    run = sgdec.load(
        {"guided": "contrast:nmt+altsrc:nmt"}, nmt={"model": models[0]}, nmt2={"model": models[0]},
        altsrc={"path": str(tmp_path / "other.txt")}, guided={"weights": (1.5, -0.5)},
    )  # fmt: skip
    (mix,) = run.parts.constellation.predictors
    assert isinstance(mix, Mix)
    conditional, other_source = mix.inner["nmt"], mix.inner["altsrc"]
    assert isinstance(conditional, NmtPredictor) and isinstance(other_source, AltSrc)
    unconditional = other_source.inner
    assert isinstance(unconditional, NmtPredictor) and conditional is not unconditional
    assert conditional._model is unconditional._model
    (found, _) = run.decode(["a b c", "b a"])
    (scores,) = part_scores(run.parts.constellation, Source(1, found.source_tokens, "a b c"), [found.best.tokens])
    expected = [1.5 * a - 0.5 * b for a, b in zip(*scores["guided"].values(), strict=True)]
    assert found.best.score == pytest.approx(sum(expected), abs=1e-5)


def test_a_sentence_that_fails_has_no_parts(
    models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "gap.txt"
    text.write_text("a b\n\nc\n")
    command = ["--predictors", "interpolate:nmt+rnnlm", "--nmt.model", models[0], "--rnnlm.model", models[1]]
    outputs = ["--ledger", "--output-format", "jsonl", "--trace", str(tmp_path / "trace.jsonl")]
    assert main(["decode", *command, *outputs, str(text)]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(row["hypotheses"]) for row in rows] == [1, 0, 1]
    traces = list(read_trace(tmp_path / "trace.jsonl").sentences)  # an empty line is not searched
    assert [(trace.id, len(trace.hypotheses)) for trace in traces] == [(1, 1), (3, 1)]


def test_what_parts_keep_of_a_sentence_is_released() -> None:
    released: list[Any] = []

    class Keeping(BatchTable):
        def release(self, roots: Any) -> None:
            released.extend(roots)

    table = np.log(np.full((4, 4), 0.25))
    mix = Interpolate({"a": Keeping(table), "b": BatchTable(table)})
    constellation = Constellation.of({"mix": mix}, vocab_size=4)
    source = Source(1, (3,), max_length=2)
    (found,) = part_scores(constellation, source, [(3,)])
    assert found["mix"]["a"] == pytest.approx([math.log(0.25)] * 2) and len(released) == 1
    list(Scheduler(constellation, BeamDecoder(size=2)).run([source]))
    assert len(released) == 2


def test_a_trace_has_the_scores_of_parts(
    models: tuple[str, str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--nmt.model", models[0], "--rnnlm.model", models[1], "--trace", str(tmp_path / "trace.jsonl")]
    rows = decoded(capsys, "--predictors", "wc,interpolate:nmt+rnnlm", *options, "--ledger", "--nbest", "2", text)
    traces = list(read_trace(tmp_path / "trace.jsonl").sentences)
    for row, trace in zip(rows, traces, strict=True):
        for found, ended in zip(row["hypotheses"], trace.hypotheses, strict=True):
            assert {mix: {**own} for mix, own in ended.part_scores.items()} == {
                mix: {part: pytest.approx(scores, abs=1e-6) for part, scores in own.items()}
                for mix, own in found["part_scores"].items()
            }


def test_a_diagnosis_says_which_part_decides(
    models: tuple[str, str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The part that a reference lacks: a mean in which only one part can say anything for it."""
    reference = tmp_path / "reference.txt"
    reference.write_text("c c c\nc c\n")
    output = tmp_path / "rows.jsonl"
    options = ["--nmt.model", models[0], "--rnnlm.model", models[1], "--reference", str(reference)]
    command = ["diagnose", "--predictors", "interpolate:nmt+rnnlm", *options, "--output", str(output), text]
    assert main(command) == 0
    assert "inside of it nmt" in capsys.readouterr().out
    for line in output.read_text().splitlines():
        row = json.loads(line)
        inside = row["model"]["decision"]["inside"]
        pair = [row["output"]["tokens"], row["reference"]["tokens"]]
        run = sgdec.load("interpolate:nmt+rnnlm", nmt={"model": models[0]}, rnnlm={"model": models[1]})
        source = run.parts.vocabularies.source
        assert source is not None
        tokens = tuple(source.encode(row["source"]))
        sums = [
            {part: sum(scores) for part, scores in each["interpolate"].items()}
            for each in part_scores(run.parts.constellation, Source(row["id"], tokens, row["source"]), pair)
        ]
        sign = 1.0 if row["model"]["by"] > 0 else -1.0
        expected = {part: sign * (sums[0][part] - sums[1][part]) for part in inside}
        assert inside == pytest.approx(expected, abs=1e-4)


def test_parts_inside_a_wrapper_with_states_of_its_own(models: tuple[str, str], text: str) -> None:
    run = sgdec.load(
        "repetition:(interpolate:nmt+rnnlm)", nmt={"model": models[0]}, rnnlm={"model": models[1]},
        repetition={"penalty": 1.5},
    )  # fmt: skip
    plain = sgdec.load("interpolate:nmt+rnnlm", nmt={"model": models[0]}, rnnlm={"model": models[1]})
    (found,) = run.decode(["a b c"])
    source = Source(1, found.source_tokens, "a b c")
    (wrapped,), (alone,) = (
        part_scores(each.parts.constellation, source, [found.best.tokens]) for each in (run, plain)
    )
    assert [*wrapped] == ["repetition"]
    assert {part: pytest.approx(own) for part, own in wrapped["repetition"].items()} == alone["interpolate"]

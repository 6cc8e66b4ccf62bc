"""The promise: a run whose weights change, as a whole or for each sentence, finds what a fresh run finds.

And hypotheses say what other weights and penalties would make of them.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgdec
from sgdec import SgdecError, Source, UsageError
from sgdec.cli.main import main
from sgdec.io.weights import SentenceWeights
from sgdec.library import LoadedRun
from tests.helpers.attentive import Attentive
from tests.helpers.breadth import examples
from tests.helpers.relaxing import Trigrams, WholeLattice, random_automaton
from tests.helpers.tiny_models import write_lattice

V, SENTENCES = 7, 5
SOURCES = [[3, 4, 5]] * SENTENCES
EXACT = ("astar", "dfs", "lendfs", "bucket", "restarting")
NAMES = ("lattice", "lm", "wc")
WEIGHTS = st.tuples(*[st.sampled_from([-0.7, 0.0, 0.4, 1.0, 1.3])] * len(NAMES))
"""Zero and both signs, of which each asks for other bounds."""


def loaded(seed: int, decoder: str, one_each: Sequence[float], **options: Any) -> LoadedRun:
    """Lattices, a trigram model whose relaxations make product bounds, and the number of words."""
    rng = np.random.default_rng(seed)
    lattices = [random_automaton(rng, int(rng.integers(2, 9)), V, cyclic=False) for _ in range(SENTENCES)]
    predictors = {"lattice": WholeLattice(lattices), "lm": Trigrams(rng.normal(size=(V, V, V)) - 1.0), "wc": "wc"}
    own = {name: {"weight": weight} for name, weight in zip(NAMES, one_each, strict=True)}
    return sgdec.load(predictors, decoder, vocab_size=V, max_length=9, nbest=2, **own, **options)  # type: ignore[arg-type]


def found(run: LoadedRun, sources: Sequence[Any] = SOURCES) -> list[dict[str, Any]]:
    """All but times and what else does not decide a result."""
    return [{key: value for key, value in each.to_dict().items() if key != "seconds"} for each in run.decode(sources)]


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.sampled_from([*EXACT, "beam"]), st.sampled_from([1, 64]), WEIGHTS, WEIGHTS)
def test_a_run_with_other_weights_is_a_fresh_run(
    seed: int, decoder: str, batch_size: int, first: tuple[float, ...], second: tuple[float, ...]
) -> None:
    run = loaded(seed, decoder, first, batch_size=batch_size)
    before = found(run)
    changed = run.with_weights(dict(zip(NAMES, second, strict=True)))
    assert found(changed) == found(loaded(seed, decoder, second, batch_size=batch_size))
    assert found(run) == before  # which keeps its own
    assert changed.signature == loaded(seed, decoder, second, batch_size=batch_size).signature


@settings(max_examples=examples(40))
@given(
    st.integers(0, 2**32),
    st.sampled_from([*EXACT, "beam", "sample"]),
    st.sampled_from([1, 3, 64]),
    st.lists(WEIGHTS, min_size=SENTENCES, max_size=SENTENCES),
)
def test_each_sentence_is_decoded_with_its_own_weights(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    decoder: str,
    batch_size: int,
    weights: list[tuple[float, ...]],
) -> None:
    path = tmp_path_factory.mktemp("weights") / "weights"
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in weights), encoding="utf-8")
    together = found(loaded(seed, decoder, (1.0, 1.0, 1.0), batch_size=batch_size, weights=path))
    for place, own in enumerate(weights):
        assert together[place] == found(loaded(seed, decoder, own, batch_size=1))[place]


def test_options_of_the_decoder_change_too() -> None:
    run = loaded(1, "beam", (1.0, 1.0, 1.0), beam={"size": 3, "stop": "full"})
    changed = run.with_weights({"wc": 0.5}, alpha=0.6, normalize="length")
    options: Mapping[str, Any] = {"size": 3, "stop": "full", "alpha": 0.6, "normalize": "length"}
    assert found(changed) == found(loaded(1, "beam", (1.0, 1.0, 0.5), beam=options))
    assert "alpha=0.6" in changed.signature
    assert "0.5*wc" in changed.signature


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        ({"ngram": 1.0}, {}, "no predictor 'ngram' in this run. Available: lattice, lm, wc."),
        ({"wc": float("nan")}, {}, "--wc.weight nan: expected a number, such as 0.5."),
        ({"wc": "much"}, {}, "--wc.weight much: expected a number, such as 0.5."),
        ({}, {"sise": 2}, "no option --beam.sise. Did you mean '--beam.size'?"),
        ({}, {"size": 0}, "--beam.size: 0 should be at least 1"),
        ({}, {"beta": 0.2}, "needs a predictor with attention"),
    ],
)
def test_wrong_weights_are_one_line(weights: Mapping[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        loaded(1, "beam", (1.0, 1.0, 1.0)).with_weights(weights, **options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1 1 1\n1 1\n", "weights, line 2: '1 1'; expected 3 numbers, the weights of lattice, lm, wc."),
        ("1 1 1\n\n", "weights, line 2: ''; expected 3 numbers"),
        ("1 1 x\n", "weights, line 1: '1 1 x'; expected 3 numbers"),
        ("1 1 inf\n", "weights, line 1: '1 1 inf'; expected 3 numbers"),
        ("lm=1 1 1\n", "weights, line 1: 'lm=1 1 1'; expected 3 numbers"),
    ],
)
def test_a_wrong_file_of_weights_is_one_line(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "weights"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(SgdecError) as raised:
        loaded(1, "beam", (1.0, 1.0, 1.0), weights=path)
    assert message in str(raised.value)


def test_weights_of_each_sentence_are_not_overruled_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("1 1 1\n" * SENTENCES, encoding="utf-8")
    run = loaded(1, "beam", (1.0, 1.0, 1.0), weights=path)
    assert found(run.with_weights({}, size=1)) == found(loaded(1, "beam", (1.0, 1.0, 1.0), beam={"size": 1}))
    with pytest.raises(UsageError, match="; load the run without it"):
        run.with_weights({"wc": 2.0})


def test_a_sentence_without_weights_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("1 1 1\n" * (SENTENCES - 1), encoding="utf-8")
    run = loaded(1, "beam", (1.0, 1.0, 1.0), weights=path)
    *others, last = run.decode(SOURCES)
    assert all(each.error is None for each in others)
    assert str(last.error).endswith("weights has 4 lines, none of them for sentence 5.")


def test_arrays_of_all_sentences_have_one_set_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="--weights does not work with decoders over whole batches"):
        sgdec.load("wc", "vanilla", vocab_size=V, weights=path)


def test_the_command_line_decodes_and_scores_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for sentence in (1, 2):
        write_lattice(Path(f"{sentence}.fst"), [((3, 4), 1.0), ((5,), 2.0)])
    Path("input").write_text("3\n3\n", encoding="utf-8")
    Path("weights").write_text("1 0\n0 -1\n", encoding="utf-8")
    options = [
        "--predictors", "fst,wc", "--fst.path", "{id}.fst", "--input-format", "ids", "--weights", "weights",
    ]  # fmt: skip
    decode = ["decode", *options, "--max-length", "4", "--output", "out", "--output-format", "jsonl"]
    assert main([*decode, "--signature", "signed", "input"]) == 0
    rows = [json.loads(line)["hypotheses"][0] for line in Path("out").read_text("utf-8").splitlines()]
    assert [(row["tokens"], row["score"], row["weights"]) for row in rows] == [
        ([3, 4], -1.0, {"fst": 1.0, "wc": 0.0}),
        ([3, 4], 2.0, {"fst": 0.0, "wc": -1.0}),
    ]
    assert "weights:weights#" in Path("signed").read_text("utf-8")
    Path("outputs").write_text("3 4\n5\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["score", *options, "input", "outputs"]) == 0
    assert capsys.readouterr().out.split() == ["-1.000000", "1.000000"]


def test_a_corpus_has_the_weights_of_its_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("input").write_text("3\n3\n3\n", encoding="utf-8")
    Path("list").write_text("3 4\t-1\n5\t-2\n", encoding="utf-8")
    Path("weights").write_text("1 0\n1 2\n1 -3\n", encoding="utf-8")
    options = [
        "--predictors", "trie,wc", "--trie.path", "list", "--vocab-size", "9", "--input-format", "ids", "--weights",
        "weights",
    ]  # fmt: skip
    assert main(["decode", *options, "--output-format", "ids", "--output", "one", "input"]) == 0
    corpus = ["corpus", "input", "--output", "d", "--chunk", "1", "--workers", "1", "--", *options]
    subprocess.run([sys.executable, "-m", "sgdec", *corpus], check=True, capture_output=True)
    assert main(["corpus-merge", "d", "--output", "merged"]) == 0
    assert Path("merged").read_text("utf-8") == Path("one").read_text("utf-8") == "3 4\n5\n3 4\n"


def test_resume_refuses_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("input").write_text("3\n3\n", encoding="utf-8")
    Path("weights").write_text("1\n1\n", encoding="utf-8")
    decode = [
        "decode", "--predictors", "wc", "--vocab-size", "5", "--input-format", "ids", "--weights", "weights",
        "--batch-size", "1", "--output", "out", "input",
    ]  # fmt: skip
    of, asked = SentenceWeights.of, count(1)

    def interrupted(weights: SentenceWeights, source: Source) -> tuple[float, ...]:
        if next(asked) == 2:
            raise KeyboardInterrupt
        return of(weights, source)

    with monkeypatch.context() as once:
        once.setattr(SentenceWeights, "of", interrupted)
        assert main(decode) != 0
    Path("weights").write_text("1\n-1\n", encoding="utf-8")
    capsys.readouterr()
    assert main([*decode, "--resume"]) == 2
    assert "out was begun with weights weights#" in capsys.readouterr().err
    Path("weights").write_text("1\n1\n", encoding="utf-8")
    assert main([*decode, "--resume"]) == 0


@pytest.mark.parametrize("decoder", ["beam", "greedy", "sample", "diverse"])
def test_hypotheses_say_their_coverage_whether_it_ranks_or_not(decoder: str) -> None:
    sources = [[3, 4], [5, 3, 4, 3]]
    predictors = {"read": Attentive([0, 1, 1, 1, 1, 1], strength=0.9), "wc": "wc"}

    def loaded(**options: Any) -> LoadedRun:
        wc = {"weight": -1.0}
        return sgdec.load(predictors, decoder, vocab_size=5, max_length=3, wc=wc, nbest=3, **options)

    plain, told = loaded(), loaded(coverage=True)
    for one, other in zip(plain.decode(sources), told.decode(sources), strict=True):
        assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]
        assert [each.score for each in one.hypotheses] == [each.score for each in other.hypotheses]
        assert all(each.coverage is None for each in one.hypotheses)
        for each in other.hypotheses:
            assert each.coverage == pytest.approx(cp(len(each.tokens) + 1, len(other.source_tokens)), abs=1e-12)
            assert each.to_dict()["coverage"] == each.coverage


def cp(length: int, source: int) -> float:
    """Equation 14's sum at beta 1 for `Attentive`, which reads the first word and then the second."""
    received = [0.0] * source
    for step in range(length):
        for place in range(source):
            received[place] += 0.9 if place == min(step, 1) else 0.1 / (source - 1)
    return sum(math.log(min(each, 1.0)) for each in received)


def test_the_ranking_adds_beta_times_the_coverage() -> None:
    read = Attentive([0, 1, 1, 1, 1, 1], strength=0.9)
    options: dict[str, Any] = {"beam": {"size": 4, "beta": 0.3, "alpha": 0.6, "stop": "full"}}
    run = sgdec.load({"read": read, "wc": "wc"}, "beam", vocab_size=5, max_length=3, nbest=4, **options)
    for each in next(run.decode([[3, 4, 3]])).hypotheses:
        assert each.coverage is not None
        assert each.rank_score == each.score / ((6 + len(each.tokens)) / 6) ** 0.6 + 0.3 * each.coverage


def test_coverage_needs_attention_and_nodes() -> None:
    with pytest.raises(UsageError, match="--coverage needs a predictor with attention, and none of wc has it: "):
        sgdec.load("wc", vocab_size=5, coverage=True)
    with pytest.raises(UsageError, match="--coverage does not work with decoders over whole batches"):
        sgdec.load({"read": Attentive([0])}, "vanilla", vocab_size=5, coverage=True)

"""The promise of `nmt`: the model's own probabilities, whatever shares a batch; ensembles and mixtures of them."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.nmt import NmtPredictor

from sgdec.checkpoints.loading import load_model
from sgdec.cli.main import main
from sgdec.context import BOS, EOS, Context, Vocabularies
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.plugins.assembly import RunConfig, assemble
from sgdec.plugins.host import Host
from sgdec.protocol import Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.tiny_models import characters, write_checkpoint, write_lattice

V = 7
TOLERANCE = {"fp32": 1e-5, "fp64": 1e-9}
SOURCES = [
    Source(n, tokens, max_length=4)
    for n, tokens in enumerate([(5,), (3, 4, 5, 3, 6, 4, 4), (6, 6), (3, 4), (4, 3, 5), (5,), (4, 6, 3, 3)], 1)
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two models over the same letters."""
    folder = tmp_path_factory.mktemp("models")
    return [str(write_checkpoint(folder / str(seed), seed=seed)) for seed in (1, 2)]


@cache
def module_of(model: str, precision: str) -> Any:
    return load_model(model, precision=precision)[0]


def teacher_forced(model: str, source: Source, tokens: tuple[int, ...], precision: str = "fp64") -> Any:
    """``[T + 1, V]``: the log-probabilities after each prefix of ``tokens``, from the model's own `forward`."""
    module = module_of(model, precision)
    with torch.inference_mode():
        lengths = torch.tensor([len(source.tokens)])
        outputs = module(torch.tensor([source.tokens]), lengths, torch.tensor([(BOS, *tokens)]))
        return torch.log_softmax(module.project(outputs), -1)[0].double().numpy()


def attention_alone(model: str, source: Source, tokens: tuple[int, ...]) -> Any:
    """``[T + 1, source]``: the attention that predicts the token after each prefix, one unpadded step at a time."""
    module = module_of(model, "fp64")
    rows = []
    with torch.inference_mode():
        memory = module.encode(torch.tensor([source.tokens]), torch.tensor([len(source.tokens)]))
        state = module.start(memory)
        for token in (BOS, *tokens):
            state, _, attention = module.step(memory, state, torch.tensor([token]))
            rows.append(attention[0].numpy())
    return np.stack(rows)


def score(model: str, source: Source, tokens: tuple[int, ...]) -> float:
    """log P(tokens </s> | source)."""
    table = teacher_forced(model, source, tokens)
    return float(sum(table[i, token] for i, token in enumerate((*tokens, EOS))))


def decode(
    constellation: Constellation, decoder: Decoder, batch_size: int, nbest: int = 3, **options: Any
) -> list[Outcome]:
    outcomes = list(Scheduler(constellation, decoder, nbest=nbest, batch_size=batch_size, **options).run(SOURCES))
    assert not any(outcome.error for outcome in outcomes)
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_scores_are_the_models_own_along_random_prefixes_of_ragged_batches(
    models: list[str], precision: str, seed: int
) -> None:
    """Rows of several encoder batches and steps meet, in any order, some of them twice."""
    draw = np.random.default_rng(seed)
    predictor = NmtPredictor(models[0], Context(precision=precision))
    states = [*predictor.initialize_batch(SOURCES[:4]), *predictor.initialize_batch(SOURCES[4:])]
    known = [(source, (), state) for source, state in zip(SOURCES, states, strict=True)]
    for _ in range(4):
        chosen = [known[i] for i in draw.integers(len(known), size=6)]
        tokens = draw.integers(V, size=6).tolist()
        after = predictor.consume_batch([state for _, _, state in chosen], tokens)
        known += [
            (source, (*prefix, token), state)
            for (source, prefix, _), token, state in zip(chosen, tokens, after, strict=True)
        ]
    draw.shuffle(known)  # type: ignore[arg-type]
    rows = predictor.predict_batch([state for _, _, state in known]).values
    attention = predictor.attention([state for _, _, state in known])
    assert rows is not None and rows.dtype == (torch.float64 if precision == "fp64" else torch.float32)
    for i, (source, prefix, _) in enumerate(known):
        expected = teacher_forced(models[0], source, prefix, precision)[-1]
        assert np.allclose(rows[i], expected, rtol=0, atol=TOLERANCE[precision]), (source.id, prefix)
        assert attention[i].shape == (len(source.tokens),)
        assert attention[i].sum() == pytest.approx(1.0, abs=TOLERANCE[precision])
        alone = attention_alone(models[0], source, prefix)[-1]
        assert np.allclose(attention[i], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_predictions_are_distributions(models: list[str], precision: str) -> None:
    predictor = NmtPredictor(models[0], Context(precision=precision))
    values = predictor.predict_batch(predictor.initialize_batch(SOURCES)).values
    assert isinstance(values, torch.Tensor)
    assert torch.allclose(values.exp().sum(-1), torch.ones(len(SOURCES), dtype=values.dtype))


def test_half_precision_still_scores_in_single(models: list[str]) -> None:
    predictor = NmtPredictor(models[0], Context(precision="bf16"))
    values = predictor.predict_batch(predictor.initialize_batch(SOURCES)).values
    assert isinstance(values, torch.Tensor) and values.dtype == torch.float32
    for row, source in zip(values, SOURCES, strict=True):
        assert np.allclose(row, teacher_forced(models[0], source, ())[0], rtol=0, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [2, 64])
@pytest.mark.parametrize("decoder", [BeamDecoder(), BeamDecoder(size=3, stop="full", alpha=0.6, beta=0.4)])
def test_sentences_decode_together_as_they_decode_alone(
    models: list[str], decoder: BeamDecoder, batch_size: int
) -> None:
    constellation = Constellation.of({"nmt": NmtPredictor(models[0], Context(precision="fp64"))}, vocab_size=V)
    for ours, theirs in zip(
        decode(constellation, decoder, batch_size), decode(constellation, decoder, 1), strict=True
    ):
        assert len(ours.result.hypotheses) == len(theirs.result.hypotheses)
        for one, other in zip(ours.result.hypotheses, theirs.result.hypotheses, strict=True):
            assert one.tokens == other.tokens
            assert one.score == pytest.approx(other.score, abs=1e-9)
            assert one.rank_score == pytest.approx(other.rank_score, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("decoder", [BeamDecoder(), VanillaDecoder(size=3, stop="full", alpha=0.6, beta=0.4)])
def test_a_deterministic_run_does_not_depend_on_the_batch_size_in_the_last_bit(
    models: list[str], decoder: Decoder, together: bool
) -> None:
    """Neither where sentences share products, nor where each question has to be a job of its own."""

    def run(batch_size: int, deterministic: bool = True) -> list[Any]:
        predictor = NmtPredictor(models[0], Context(deterministic=deterministic and together))
        assert predictor.independent_rows == (deterministic and together)
        constellation = Constellation.of({"nmt": predictor}, vocab_size=V)
        return [outcome.result for outcome in decode(constellation, decoder, batch_size, deterministic=deterministic)]

    alone = run(1, deterministic=False)
    for batch_size in (1, 3, 64):
        assert run(batch_size) == alone


def test_a_deterministic_run_says_what_it_costs(models: list[str]) -> None:
    shared = NmtPredictor(models[0], Context(deterministic=True))
    decode(Constellation.of({"nmt": shared}, vocab_size=V), BeamDecoder(), 64, deterministic=True)
    said = r"deterministic: shared products \d+\.\d s; the rest, sentence by sentence, \d+\.\d s"
    assert re.fullmatch(said, shared.summary() or "")
    other = NmtPredictor(models[0])
    scheduler = Scheduler(Constellation.of({"nmt": other}, vocab_size=V), GreedyDecoder(), deterministic=True)
    outcomes = list(scheduler.run(SOURCES))
    jobs = len(SOURCES) + sum(outcome.result.expansions for outcome in outcomes)
    rounds = 1 + max(outcome.result.expansions for outcome in outcomes)
    assert other.summary() is None and scheduler.summary() == f"deterministic: {jobs} batches instead of {rounds}"


MOST = 2000 if EXHAUSTIVE else 600


@pytest.mark.slow
def test_a_long_search_keeps_no_more_states_than_it_can_still_use(models: list[str]) -> None:
    """Depth first, children of every node: the states of nodes that are left behind give their slots back."""

    class DepthFirst(Decoder):
        def decode(self, space: SearchSpace) -> Result:
            stack = [space.root]
            while stack and space.expansions < MOST:
                (children,) = space.expand([stack.pop()], limit=3)
                stack += [child for child in children if not child.finished]
            return Result([space.finish(child) for child in children if child.finished])

    predictor = NmtPredictor(models[0])
    constellation = Constellation.of({"nmt": predictor}, vocab_size=V)
    (root,) = constellation.roots([Source(1, (4, 5, 6), max_length=20)])
    space = SearchSpace(constellation, root)
    DepthFirst().decode(space)
    assert space.expansions == MOST
    assert predictor._pool.capacity <= 256


def test_rank_scores_are_equation_14_over_the_models_attention(models: list[str]) -> None:
    constellation = Constellation.of({"nmt": NmtPredictor(models[0], Context(precision="fp64"))}, vocab_size=V)
    alpha, beta = 0.6, 0.4
    for outcome in decode(constellation, BeamDecoder(size=3, stop="full", alpha=alpha, beta=beta), 64):
        assert outcome.result.hypotheses
        for found in outcome.result.hypotheses:
            length = len(found.tokens) + 1
            received = attention_alone(models[0], outcome.source, found.tokens).sum(0)
            expected = (
                score(models[0], outcome.source, found.tokens) / ((5 + length) ** alpha / (5 + 1) ** alpha)
                + beta * np.log(np.minimum(received, 1.0)).sum()
            )
            assert found.rank_score == pytest.approx(expected, abs=1e-8)


def test_an_ensemble_is_the_weighted_sum_of_its_models_by_brute_force(models: list[str]) -> None:
    options = {
        "nmt": {"model": models[0], "weight": 0.3},
        "nmt2": {"model": models[1], "weight": 0.7},
        "beam": {"size": 500, "stop": "full"},
    }
    run = assemble(RunConfig("nmt,nmt", options=options, precision="fp64"), Host(autoload=False))
    source = Source(1, (3, 4, 5), max_length=3)
    (outcome,) = Scheduler(run.constellation, run.decoder, nbest=20).run([source])
    every = {
        tokens: [score(model, source, tokens) for model in models]
        for length in range(3)
        for tokens in itertools.product([0, 1, 3, 4, 5, 6], repeat=length)
    }
    best = sorted(every, key=lambda tokens: -(0.3 * every[tokens][0] + 0.7 * every[tokens][1]))
    found = [hypothesis for hypothesis in outcome.result.hypotheses if len(hypothesis.tokens) < 3]
    assert len(found) >= 5
    assert [hypothesis.tokens for hypothesis in found] == best[: len(found)]
    for hypothesis in found:
        assert hypothesis.scores == pytest.approx(every[hypothesis.tokens], abs=1e-9)
        total = 0.3 * hypothesis.scores[0] + 0.7 * hypothesis.scores[1]
        assert hypothesis.score == pytest.approx(total, abs=1e-9)


TEXTS = ["ab", "ab c", "b", "c a b"]


def run_cli(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    assert main(["decode", "--output-format", "jsonl", *args]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
def test_a_lattice_restricts_the_model_and_forced_rescoring_gives_the_same_ledger(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vocabulary = characters("abc")
    paths = [(vocabulary.encode(text), 0.25 * i) for i, text in enumerate(TEXTS)]
    for sentence in (1, 2):
        write_lattice(tmp_path / f"{sentence}.fst", paths[: 2 * sentence])
    source = tmp_path / "source.txt"
    source.write_text("ab c\nc\n")
    model = ["--nmt.model", models[0]]
    lattices = ["--fst.path", f"{tmp_path}/{{id}}.fst"]
    found = run_cli(
        capsys, "--predictors", "nmt,fst", "--nbest", "9", "--beam.stop", "full", "--beam.size", "9",
        "--max-length", "0", *model, *lattices, str(source),
    )  # fmt: skip
    for sentence in found:
        allowed = dict(paths[: 2 * sentence["id"]])
        assert {tuple(h["tokens"]) for h in sentence["hypotheses"]} == set(allowed)
        for hypothesis in sentence["hypotheses"]:
            tokens = tuple(hypothesis["tokens"])
            text = {"ab c": (3, 4, 5, 3, 6), "c": (3, 6)}[["ab c", "c"][sentence["id"] - 1]]
            assert hypothesis["scores"]["fst"] == pytest.approx(-allowed[tokens], abs=1e-6)
            assert hypothesis["scores"]["nmt"] == pytest.approx(score(models[0], Source(1, text), tokens), abs=1e-4)
            assert hypothesis["score"] == pytest.approx(sum(hypothesis["scores"].values()), abs=1e-6)
            assert hypothesis["text"] == TEXTS[[tokens for tokens, _ in paths].index(tokens)]

    for rank in range(2):
        references = tmp_path / "references.txt"
        references.write_text("".join(sentence["hypotheses"][rank]["text"] + "\n" for sentence in found))
        forced = run_cli(
            capsys, "--predictors", "nmt,fst,forced", "--forced.path", str(references), "--max-length", "0",
            *model, *lattices, str(source),
        )  # fmt: skip
        for sentence, again in zip(found, forced, strict=True):
            (hypothesis,) = again["hypotheses"]
            assert hypothesis["tokens"] == sentence["hypotheses"][rank]["tokens"]
            expected = {**sentence["hypotheses"][rank]["scores"], "forced": 0.0}
            assert hypothesis["scores"] == pytest.approx(expected, abs=1e-4)


def test_source_and_target_vocabularies_may_differ(tmp_path: Path) -> None:
    model = str(write_checkpoint(tmp_path, source="abcde", target="xy"))
    run = assemble(RunConfig("nmt", options={"nmt": {"model": model}}), Host(autoload=False))
    assert run.vocabularies.source is not None and run.vocabularies.source.size == 9
    assert run.constellation.vocab_size == 6
    outcomes = list(Scheduler(run.constellation, run.decoder).run([Source(1, (8, 3), max_length=3)]))
    assert all(token < 6 for token in outcomes[0].result.hypotheses[0].tokens)


@pytest.mark.parametrize("text", ["ab c", None])
def test_a_model_inside_a_wrapper_cuts_the_source_as_it_was_trained(text: str | None, models: list[str]) -> None:
    of_the_run = characters("Aabc")
    own = characters("abc").encode("ab c")
    inside = NmtPredictor(models[0], Context(precision="fp64", vocabularies=Vocabularies(of_the_run, of_the_run)))
    alone = NmtPredictor(models[0], Context(precision="fp64"))
    source = Source(1, of_the_run.encode("ab c"), text)
    assert source.tokens != own
    found = inside.predict_batch(inside.initialize_batch([source]))
    wanted = alone.predict_batch(alone.initialize_batch([Source(1, own)]))
    np.testing.assert_array_equal(found.values, wanted.values)


def test_models_of_different_vocabularies_are_refused_with_both_names(models: list[str], tmp_path: Path) -> None:
    same_size = str(write_checkpoint(tmp_path / "abd", source="abd", target="abd"))
    smaller = str(write_checkpoint(tmp_path / "ab", source="abc", target="ab"))
    for other, message in [
        (same_size, r"predictor 'nmt' and predictor 'other' have different source vocabularies \(7 tokens each, but"),
        (smaller, r"predictor 'nmt' and predictor 'other' have different target vocabularies \(7 and 6 tokens\)"),
    ]:
        options = {"nmt": {"model": models[0]}, "other": {"model": other}}
        with pytest.raises(UsageError, match=message):
            assemble(RunConfig("nmt,other=nmt", options=options), Host(autoload=False))


@pytest.mark.parametrize(
    ("tokens", "message"), [((), "the source is empty"), ((3, 7), r"source token 7 is outside .* 0\.\.6")]
)
def test_sources_that_the_model_cannot_read_fail_alone(
    models: list[str], tokens: tuple[int, ...], message: str
) -> None:
    constellation = Constellation.of({"nmt": NmtPredictor(models[0])}, vocab_size=V)
    sources = [Source(1, (3,), max_length=2), Source(2, tokens, max_length=2), Source(3, (4,), max_length=2)]
    outcomes = list(Scheduler(constellation, BeamDecoder()).run(sources))
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    with pytest.raises(SgdecError, match=message):
        raise outcomes[1].error or AssertionError


def test_nothing_can_be_added_to_a_log_probability(models: list[str]) -> None:
    constellation = Constellation.of({"nmt": NmtPredictor(models[0])})
    assert constellation.bounds(constellation.roots(SOURCES)) == [0.0] * len(SOURCES)

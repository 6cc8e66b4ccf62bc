"""What every translation model promises: all steps at once are the step loop, rows are what they would be alone, it
learns, and whatever there is trains, stores, scores and decodes it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.nmt import NmtPredictor
from torch import Tensor

from sgdec.checkpoints import files, layout
from sgdec.checkpoints.loading import load_model
from sgdec.cli.main import main
from sgdec.context import BOS, EOS, Context
from sgdec.decoder import Decoder
from sgdec.errors import UsageError
from sgdec.models.base import ModelContext, Seq2Seq
from sgdec.models.kernels import Kernels
from sgdec.plugins.host import Host
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler
from sgdec.testing.model_contract import TARGETS
from sgdec.testing.seq2seq_contract import LENGTHS, SOURCES, Seq2SeqContract
from sgdec.training import train, validation
from tests.helpers.families import FAMILIES, OWN, make
from tests.helpers.places import ROOT
from tests.helpers.tiny_models import write_checkpoint
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow

everyone = pytest.mark.parametrize("family", FAMILIES)
"""The combinations of encoders and decoders too."""
each = pytest.mark.parametrize("family", OWN)


class TestFamilies(Seq2SeqContract):
    """All of them keep the contract that a model of one's own is tested by."""

    @pytest.fixture(autouse=True, params=FAMILIES)
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.family: str = request.param

    def make(self, context: ModelContext) -> Seq2Seq:
        return make(self.family, source=context.source_vocab_size, target=context.target_vocab_size)


@each
def test_it_has_an_output_layer_and_when_frozen_nothing_to_train(family: str) -> None:
    model = make(family).float()
    assert model.output_layer()[1] is None
    model.freeze(Kernels())
    assert not any(parameter.requires_grad for parameter in model.parameters())


@each
def test_dropout_acts_in_training_only(family: str) -> None:
    model = make(family, dropout=0.5)
    assert torch.equal(model(SOURCES, LENGTHS, TARGETS), model(SOURCES, LENGTHS, TARGETS))
    model.train()
    assert not torch.equal(model(SOURCES, LENGTHS, TARGETS), model(SOURCES, LENGTHS, TARGETS))


@pytest.mark.parametrize("family", OWN[1:])
@pytest.mark.parametrize("side", ["source", "target"])
def test_word_dropout_leaves_out_whole_words_of_one_side(family: str, side: str) -> None:
    model = make(family, **{f"{side}_dropout": 0.999, "dropout": 0.0})
    model.train()
    torch.manual_seed(1)
    found = model(SOURCES, LENGTHS, TARGETS)
    table = model.get_parameter(f"{side}_embedding.weight")
    with torch.no_grad():
        table.zero_()
    torch.testing.assert_close(found, model.eval()(SOURCES, LENGTHS, TARGETS), rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", OWN[1:])
def test_tied_weights_are_one_parameter(family: str) -> None:
    options: dict[str, Any] = {"embedding": 8} if "transformer" not in family else {}
    ties = "none", "source", "target", "all"
    models = [make(family, source=29, shared=True, tied=tied, **options) for tied in ties]
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert [sizes[0] - size for size in sizes] == [0, 29 * 8, 29 * 8, 2 * 29 * 8]
    for tied in ("source", "all"):
        with pytest.raises(UsageError, match=f"tied={tied} needs one vocabulary"):
            make(family, tied=tied, **options)


def test_embeddings_that_are_not_as_wide_as_the_output_cannot_be_tied_to_it() -> None:
    with pytest.raises(UsageError, match=r"tied=target needs embeddings as wide as the input .* layer: 6 is not 8"):
        make("luong fed", tied="target")


RATES = {
    "transformer": 0.005,
    "luong": 0.04,
    "luong fed": 0.04,
    "deep": 0.02,
    "gru to transformer": 0.01,
}


@pytest.mark.parametrize("family", RATES)
def test_it_learns_to_turn_sequences_round(family: str) -> None:
    """Two or three letters, in reverse: attention has to find its way. The loss is of sequences drawn again."""
    name, own = FAMILIES[family]
    sizes: dict[str, Any] = {"width": 32, "dropout": 0.0}
    if name == "luong":
        sizes.update(layers=1, embedding=32)
    torch.manual_seed(0)
    model: Seq2Seq = Host().load("model", name)(ModelContext(8, 8, True), **{**own, **sizes})
    optimizer = torch.optim.Adam(model.parameters(), RATES[family], betas=(0.9, 0.98))
    losses = []
    for step in range(100):
        for group in optimizer.param_groups:
            group["lr"] = RATES[family] * min(1.0, (step + 1) / 15, 2 - step / 50)
        loss = _loss(model, *_reversals(32))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        unseen = _loss(model.eval(), *_reversals(200)).item()
    assert unseen < 0.1 * losses[0], (losses[::20], unseen)


def _reversals(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources, lengths, target prefixes, and what follows them (0 behind the end)."""
    lengths, source = torch.randint(2, 4, (count,)), torch.randint(3, 8, (count, 3))
    target = torch.zeros(count, 4, dtype=torch.long)
    for row, length in enumerate(lengths.tolist()):
        target[row, :length] = source[row, :length].flip(0)
        target[row, length] = EOS
    prefix = torch.cat([torch.full((count, 1), BOS), target[:, :-1]], 1)
    return source, lengths, prefix, target


def _loss(model: Seq2Seq, source: Tensor, lengths: Tensor, prefix: Tensor, target: Tensor) -> Tensor:
    logits = model.project(model(source, lengths, prefix))
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)


@pytest.mark.parametrize("family", ["transformer", "luong fed", "deep"])
def test_it_trains_stores_resumes_and_translates(family: str, tmp_path: Path) -> None:
    """The trainer as it is; a run in two parts is the run in one, bit for bit."""
    name, options = FAMILIES[family]
    settings: dict[str, Any] = {"model": name, "options": options, "bleu": 0}
    done = train(make_config(tmp_path, "run", max_steps=6, **settings), quiet=True)
    train(make_config(tmp_path, "parts", max_steps=4, **settings), quiet=True)
    train(make_config(tmp_path, "parts", max_steps=6, **settings), resume=True, quiet=True)
    whole, parts = (files.load_tensors(tmp_path / run / "last" / layout.WEIGHTS) for run in ("run", "parts"))
    assert all(torch.equal(whole[tensor], parts[tensor]) for tensor in whole)
    model, vocabularies = load_model(done.best)
    lines = [pair[0] for pair in PAIRS[:12]]
    together = validation.translate(model, vocabularies, lines)
    assert together == [validation.translate(model, vocabularies, [line])[0] for line in lines]


SENTENCES = [
    Source(n, tokens, max_length=4)
    for n, tokens in enumerate([(5,), (3, 4, 5, 3, 6, 4, 4), (6, 6), (3, 4), (4, 3, 5), (5,), (4, 6, 3, 3)], 1)
]


def sentences_for(path: str) -> list[Source]:
    """For a model of two sources the second is the first without its beginning, and something more."""
    if module_of(path).sources == 1:
        return SENTENCES
    return [replace(source, tokens=(*source.tokens, EOS, *source.tokens[1:], 3)) for source in SENTENCES]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A checkpoint of each family with random weights, between letters."""
    folder = tmp_path_factory.mktemp("models")
    return {
        family: str(write_checkpoint(folder / family.replace(" ", "-"), model=name, options=options))
        for family, (name, options) in FAMILIES.items()
    }


@cache
def module_of(path: str) -> Seq2Seq:
    return load_model(path, precision="fp64")[0]


def teacher_forced(path: str, source: Source, tokens: tuple[int, ...]) -> Any:
    """``[T + 1, V]``: the log-probabilities after each prefix of ``tokens``, from the model's own `forward`."""
    module = module_of(path)
    with torch.inference_mode():
        lengths = torch.tensor([len(source.tokens)])
        outputs = module(torch.tensor([source.tokens]), lengths, torch.tensor([(BOS, *tokens)]))
        return torch.log_softmax(module.project(outputs), -1)[0].numpy()


@everyone
def test_nmt_gives_the_models_own_scores_where_prefixes_of_all_lengths_meet(
    family: str, models: dict[str, str]
) -> None:
    """Rows of several encoder batches and steps, in any order, some of them twice."""
    draw = np.random.default_rng(5)
    predictor = NmtPredictor(models[family], Context(precision="fp64"))
    assert predictor.vocabularies.target is not None
    size, sentences = predictor.vocabularies.target.size, sentences_for(models[family])
    states = [*predictor.initialize_batch(sentences[:4]), *predictor.initialize_batch(sentences[4:])]
    known: list[tuple[Source, tuple[int, ...], Any]] = [
        (source, (), state) for source, state in zip(sentences, states, strict=True)
    ]
    for _ in range(5):
        chosen = [known[i] for i in draw.integers(len(known), size=6)]
        tokens = draw.integers(size, size=6).tolist()
        after = predictor.consume_batch([state for _, _, state in chosen], tokens)
        known += [
            (source, (*prefix, token), state)
            for (source, prefix, _), token, state in zip(chosen, tokens, after, strict=True)
        ]
    assert len({len(prefix) for _, prefix, _ in known}) > 2
    states = [state for _, _, state in known]
    rows, attention = predictor.predict_batch(states).values, predictor.attention(states)
    assert rows is not None
    for i, (source, prefix, _) in enumerate(known):
        expected = teacher_forced(models[family], source, prefix)[-1]
        assert np.allclose(rows[i], expected, rtol=0, atol=1e-9), (source.id, prefix)
        assert attention[i].shape == (len(source.tokens),) and attention[i].sum() == pytest.approx(1.0)


def decode(path: str, decoder: Decoder, batch_size: int = 64, **context: Any) -> list[Outcome]:
    constellation = Constellation([Member("nmt", NmtPredictor(path, Context(**context)))])
    scheduler = Scheduler(
        constellation, decoder, nbest=3, batch_size=batch_size, deterministic=context.get("deterministic", False)
    )
    outcomes = list(scheduler.run(sentences_for(path)))
    assert not any(outcome.error for outcome in outcomes)
    return outcomes


def found(outcomes: list[Outcome]) -> list[list[tuple[tuple[int, ...], float]]]:
    return [
        [(hypothesis.tokens, pytest.approx(hypothesis.score, abs=1e-9)) for hypothesis in outcome.result.hypotheses]
        for outcome in outcomes
    ]


@pytest.mark.parametrize("family", [*OWN, "gru to transformer", "transformer to gru"])
def test_decoders_agree_about_it(family: str, models: dict[str, str]) -> None:
    """`vanilla` = `beam`, one sentence at a time or many; `greedy` = a beam of one; scores are the model's own."""
    path = models[family]
    beam = decode(path, BeamDecoder(size=3), precision="fp64")
    assert found(decode(path, VanillaDecoder(size=3), precision="fp64")) == found(beam)
    assert found(decode(path, BeamDecoder(size=3), batch_size=1, precision="fp64")) == found(beam)
    first = [hypotheses[:1] for hypotheses in found(decode(path, BeamDecoder(size=1), precision="fp64"))]
    assert found(decode(path, GreedyDecoder(), precision="fp64")) == first
    for source, outcome in zip(sentences_for(path), beam, strict=True):
        best = outcome.result.hypotheses[0]
        table = teacher_forced(path, source, best.tokens)
        assert best.score == pytest.approx(sum(table[i, t] for i, t in enumerate((*best.tokens, EOS))), abs=1e-9)


@pytest.mark.parametrize("make", [BeamDecoder, VanillaDecoder])
def test_models_of_five_families_decode_together(make: type[Decoder], models: dict[str, str]) -> None:
    """An ensemble of different architectures is the weighted sum of what each of them says alone."""
    weights = {"gnmt": 0.3, "luong fed": 0.1, "shallow": 0.25, "deep": 0.15, "transformer": 0.2}
    members = [
        Member(f"nmt{n}", NmtPredictor(models[family], Context(precision="fp64")), weight=weight)
        for n, (family, weight) in enumerate(weights.items())
    ]
    search = make(size=5, stop="full")  # type: ignore[call-arg]
    seen = set()
    for outcome in Scheduler(Constellation(members), search, nbest=3).run(SENTENCES):
        for hypothesis in outcome.result.hypotheses:
            tables = [teacher_forced(models[family], outcome.source, hypothesis.tokens) for family in weights]
            alone = [sum(each[i, t] for i, t in enumerate((*hypothesis.tokens, EOS))) for each in tables]
            assert hypothesis.scores == pytest.approx(alone, abs=1e-9)
            total = sum(weight * score for weight, score in zip(weights.values(), alone, strict=True))
            assert hypothesis.score == pytest.approx(total, abs=1e-9)
            seen.add(hypothesis.tokens)
    assert len(seen) > 5


@pytest.mark.parametrize("family", OWN[1:])
def test_a_deterministic_run_does_not_depend_on_the_batch(family: str, models: dict[str, str]) -> None:
    """In fp32, with packed products: bit for bit."""
    runs = [
        [
            [(h.tokens, h.score) for h in outcome.result.hypotheses]
            for outcome in decode(models[family], BeamDecoder(size=3), batch_size=size, deterministic=True)
            if outcome.result is not None
        ]
        for size in (1, 64)
    ]
    assert runs[0] == runs[1]


def test_a_deep_search_keeps_a_history_once_however_many_prefixes_share_it(models: dict[str, str]) -> None:
    predictor = NmtPredictor(models["transformer"], Context(precision="fp64"))
    constellation = Constellation([Member("nmt", predictor)])
    short = [replace(source, max_length=2) for source in SENTENCES[:3]]
    for outcome in Scheduler(constellation, DfsDecoder(), batch_size=1).run(short):
        assert outcome.result.proven
        table = teacher_forced(models["transformer"], outcome.source, outcome.result.hypotheses[0].tokens)
        tokens = (*outcome.result.hypotheses[0].tokens, EOS)
        assert outcome.result.hypotheses[0].score == pytest.approx(sum(table[i, t] for i, t in enumerate(tokens)))
    (root,) = predictor.initialize_batch(SENTENCES[:1])
    before = predictor._pool.used
    children = predictor.consume_batch([root] * 4, [3, 4, 5, 6])
    assert predictor._pool.used == before + 4, "four prefixes need one entry each; what they share is kept once"
    grandchildren = predictor.consume_batch(children, [3, 3, 3, 3])
    del root, children
    assert predictor._pool.used == before + 8, "a prefix keeps the entries it looks back at"
    del grandchildren
    assert predictor._pool.used == before - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bf16_packed_weights_give_the_scores_of_plain_ones(family: str) -> None:
    """Both are as near those of float64 as 8 bits of mantissa allow."""
    sources, lengths = torch.tensor([[5, 6, 2, 8, 9, 3], [10, 2, 11, 2, 2, 2]]), torch.tensor([6, 3])
    found = []
    for dtype, frozen in ((torch.float64, False), (torch.bfloat16, False), (torch.bfloat16, True)):
        model = make(family).to(dtype)
        if frozen:
            model.freeze(Kernels())
        with torch.inference_mode():
            memory = model.encode(sources, lengths)
            state = model.start(memory)
            for tokens in ([1, 1], [4, 5], [6, 7]):
                state, output, _ = model.step(memory, state, torch.tensor(tokens))
            found.append(torch.log_softmax(model.project(output).double(), -1))
    exact, plain, packed = found
    assert (packed - exact).abs().max() < 0.5
    assert (packed - exact).abs().mean() < 2 * (plain - exact).abs().mean()


MINE = ROOT / "examples" / "model" / "mgu.py"
"""A model in one file: an encoder that exists, and one inference step."""


def test_a_model_of_a_plugin_file_is_decoded_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(tmp_path, model="mgu", options={"width": 8}, max_steps=1, bleu=0)
    done = train(config, host=Host([MINE]), quiet=True)
    (tmp_path / "in.txt").write_text("one two\n")
    run = ["decode", "--predictors", "nmt", "--nmt.model", str(done.best), str(tmp_path / "in.txt")]
    assert main([*run, "--plugin-file", str(MINE)]) == 0
    assert main(run) == 1
    assert "no model named 'mgu'" in capsys.readouterr().err


def test_a_new_model_is_one_file_with_one_inference_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained, stored, validated, loaded and decoded by what is there."""
    monkeypatch.setattr("sgdec.plugins.host.Host", lambda: Host([MINE]))  # as if it was installed
    options = {"width": 16, "embedding": 16}
    config = make_config(tmp_path, model="mgu", options=options, lr=0.01, max_steps=60, label_smoothing=0.0)
    done = train(config, host=Host([MINE]), quiet=True)
    assert done.scores["perplexity"] < 8, "of 20 words"
    path = str(done.best)
    beam = decode(path, BeamDecoder(size=3), precision="fp64")
    assert found(decode(path, VanillaDecoder(size=3), precision="fp64")) == found(beam)
    for source, outcome in zip(SENTENCES, beam, strict=True):
        best = outcome.result.hypotheses[0]
        table = teacher_forced(path, source, best.tokens)
        assert best.score == pytest.approx(sum(table[i, t] for i, t in enumerate((*best.tokens, EOS))), abs=1e-9)

"""Refinement by expected reward: its estimate is the gradient of equation 9 (Wu et al. 2016), and following it pays.

The oracle sums over every output of a tiny model: E = sum_Y P(Y) r(Y), differentiated through the loop over
`Seq2Seq.step`. Outputs that are at their limit count with the probability of what they have.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.checkpoints import files, layout
from sgdec.checkpoints.files import load_tensors
from sgdec.context import EOS
from sgdec.models.base import Seq2Seq
from sgdec.models.gnmt import GNMT
from sgdec.models.luong import Luong
from sgdec.models.transformer import Transformer
from sgdec.text.gleu import gleu
from sgdec.training import train, validation
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import STAND_IN, TrainingBatch, pad, pad_targets, take
from sgdec.training.objectives.expected_reward import ExpectedReward, as_batch, draw, gleu_rewards, sampled_loss
from sgdec.training.preparing import prepare
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow

V = 5
"""<unk>, <s>, </s> and two more."""
SOURCE, REFERENCE = [3], [4, 3]
OUTPUTS = [list(tokens) for length in (0, 1, 2) for tokens in itertools.product([0, 1, 3, 4], repeat=length)]
"""Every output for `SOURCE`, of at most two tokens."""


def make_model(cls: type[Seq2Seq] = GNMT, **options: Any) -> Seq2Seq:
    """Two tokens of source, three-dimensional, far from uniform."""
    from sgdec.models.base import ModelContext

    torch.manual_seed(3)
    sizes = {"width": 4, "dropout": 0.5}
    model = cls(ModelContext(V, V, shared=True), **{**sizes, **options}).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model


def pairs(count: int, *, first: int = 1) -> TrainingBatch:
    """The same pair on ``count`` lines."""
    source, lengths = pad([SOURCE] * count)
    return TrainingBatch(source, lengths, *pad_targets([REFERENCE] * count), list(range(first, first + count)))


def settings(**given: Any) -> TrainConfig:
    """As far as the objective needs them."""
    files: dict[str, Any] = {"train": ("a", "b"), "valid": ("a", "b"), "tokenizer": ("t",), "output": "o"}
    return TrainConfig(**files, **{"objective": "expected-reward", "start": "s", **given})


def log_probability(model: Seq2Seq, output: list[int]) -> Tensor:
    """ln P(output | SOURCE), token by token through the inference step."""
    memory = model.encode(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]))
    state, total, before = model.start(memory), torch.zeros((), dtype=torch.float64), 1
    for token in output if len(output) == 2 * len(SOURCE) else [*output, EOS]:
        state, hidden, _ = model.step(memory, state, torch.tensor([before]))
        total = total + F.log_softmax(model.project(hidden)[0], -1)[token]
        before = token
    return total


def gradient(model: Seq2Seq, value: Tensor) -> Tensor:
    """Of all parameters, one after the other; zero where one plays no part."""
    parts = torch.autograd.grad(value, list(model.parameters()), allow_unused=True, retain_graph=True)
    flat = [torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), parts, strict=True)]
    return torch.cat([part.flatten() for part in flat])


def exact(model: Seq2Seq) -> tuple[Tensor, Tensor]:
    """The expected reward, and its gradient."""
    logs = torch.stack([log_probability(model, output) for output in OUTPUTS])
    assert logs.exp().sum().item() == pytest.approx(1.0), "the outputs are all there are"
    value = logs.exp() @ torch.tensor([gleu(output, REFERENCE) for output in OUTPUTS], dtype=torch.float64)
    return value, gradient(model, value)


@pytest.mark.parametrize("baseline", [True, False])
def test_the_mean_of_the_estimate_over_all_samples_is_the_gradient(baseline: bool) -> None:
    """For N = 2 every pair of outputs with its probability: exact, though the mean contains the sample itself."""
    model = make_model().eval()
    batch, probabilities = pairs(1), [log_probability(model, output).exp().item() for output in OUTPUTS]
    mean, mean_loss = torch.zeros(()), 0.0
    for a, b in itertools.combinations_with_replacement(range(len(OUTPUTS)), 2):
        drawn = [[OUTPUTS[a], OUTPUTS[b]]]
        loss = sampled_loss(model, batch, drawn, gleu_rewards(drawn, batch), baseline=baseline)
        share = probabilities[a] * probabilities[b] * (1 if a == b else 2)
        mean, mean_loss = mean + share * gradient(model, loss), mean_loss + share * loss.item()
    value, expected = exact(model)
    assert expected.norm() > 0.01
    torch.testing.assert_close(-mean, expected, rtol=1e-9, atol=1e-12)
    assert -mean_loss == pytest.approx(value.item())


def test_estimates_scatter_around_the_gradient_and_less_so_with_a_baseline() -> None:
    """60 updates of 40 sources x 5 samples: their mean is within the error that their scatter allows."""
    model = make_model()
    _, expected = exact(model.eval())
    scatters = {}
    for baseline in (True, False):
        objective = ExpectedReward(settings(samples=5, alpha=0.0, baseline=baseline))
        losses = (objective.loss(model, pairs(40), step) for step in range(60))
        estimates = torch.stack([-gradient(model, loss) / 40 for loss in losses])
        errors = estimates.std(0) / 60**0.5
        z = ((estimates.mean(0) - expected) / errors)[errors > 1e-9]
        assert len(z) > 100
        assert z.abs().max() < 5
        scatters[baseline] = estimates.std(0).norm()
    assert scatters[True] < 0.9 * scatters[False]


@pytest.mark.parametrize("cls", [GNMT, Luong, Transformer])
def test_outputs_are_drawn_with_their_probabilities(cls: type[Seq2Seq]) -> None:
    options: dict[str, Any] = {"layers": 1, "heads": 2} if cls is Transformer else {}
    model = make_model(cls, **options).eval()
    outputs = [tuple(output) for of_one in draw(model, pairs(60), 50, seed=1, step=1) for output in of_one]
    counts = Counter(outputs)
    expected = {tuple(y): 3000 * log_probability(model, y).exp().item() for y in OUTPUTS}
    assert counts.keys() <= expected.keys()
    chi_square = sum((counts[y] - count) ** 2 / count for y, count in expected.items())
    assert chi_square < 45, "20 degrees of freedom; more has a probability of 0.1 %"


def test_what_is_drawn_for_a_pair_depends_on_seed_update_and_line_alone() -> None:
    model = make_model().eval()
    source, lengths = pad([[3], [4, 3, 3], [4, 4]])
    batch = TrainingBatch(source, lengths, *pad_targets([REFERENCE] * 3), [7, 9, 4])
    together = draw(model, batch, 6, seed=1, step=5)
    assert all(
        len(output) <= 2 * length for of_one, length in zip(together, (1, 3, 2), strict=True) for output in of_one
    )
    for n, tokens in enumerate([[3], [4, 3, 3], [4, 4]]):
        alone = TrainingBatch(*pad([tokens]), *pad_targets([REFERENCE]), [batch.lines[n]])
        assert draw(model, alone, 6, seed=1, step=5) == [together[n]]
        assert draw(model, alone, 6, seed=2, step=5) != [together[n]]
        assert draw(model, alone, 6, seed=1, step=6) != [together[n]]


@pytest.mark.parametrize("cls", [GNMT, Luong, Transformer])
def test_there_is_no_dropout(cls: type[Seq2Seq]) -> None:
    """What is differentiated is the probability with which outputs were drawn, in whatever mode the model was."""
    options: dict[str, Any] = {"layers": 2, "heads": 2} if cls is Transformer else {"layers": 2}
    model = make_model(cls, **options)
    outputs = [OUTPUTS[6:9]]
    weights = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    model.eval()
    logs = [log_probability(model, output).item() for output in outputs[0]]
    model.train()
    objective = ExpectedReward(settings(samples=3))
    first, second = (gradient(model, objective.loss(model, pairs(2), 1)) for _ in range(2))
    assert torch.equal(first, second)
    nll = validation.batch_nll(model, as_batch(pairs(1), outputs, weights))
    assert nll.item() == pytest.approx(-(logs[0] - 2 * logs[1] + 3 * logs[2]))


def test_alpha_weighs_maximum_likelihood_beside_it() -> None:
    """Equation 9, of one update with the same samples; the loss is minus the objective."""
    model, batch = make_model(), pairs(3)
    losses = {
        alpha: ExpectedReward(settings(samples=4, alpha=alpha, label_smoothing=0.1)).loss(model, batch, 1)
        for alpha in (0.0, 0.017, 1e6)
    }
    ml = validation.batch_nll(model.eval(), batch, 0.1)
    torch.testing.assert_close(losses[0.017], losses[0.0] + 0.017 * ml)
    gradients = {alpha: gradient(model, loss) for alpha, loss in losses.items()}
    of_ml = gradient(model, ml)
    torch.testing.assert_close(gradients[0.017], gradients[0.0] + 0.017 * of_ml)
    torch.testing.assert_close(gradients[1e6] / 1e6, of_ml, rtol=1e-4, atol=1e-5)  # maximum likelihood is left
    drawn = draw(model, batch, 4, seed=1, step=1)
    assert losses[0.0].item() == pytest.approx(-gleu_rewards(drawn, batch).mean(1).sum().item())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``ml``: a small model that has begun to translate."""
    folder = tmp_path_factory.mktemp("trained")
    train(make_config(folder, "ml", **MODEL, lr=0.01, max_steps=110, label_smoothing=0.0), quiet=True)
    return folder


MODEL: dict[str, Any] = {"options": {"width": 24, "dropout": 0.0, "init": 0.3}}


def refinement(folder: Path, output: str, **given: Any) -> TrainConfig:
    """A short one of the run ``ml``; whatever is given wins."""
    defaults: dict[str, Any] = {
        **MODEL,
        "objective": "expected-reward",
        "start": str(folder / "ml"),
        "samples": 6,
        "sgd_lr": 2.0,
        "max_steps": 6,
        "validate_every": 100,
    }
    return make_config(folder, output, **{**defaults, **given})


def rows(run: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, (run / "metrics.jsonl").read_text().splitlines())


def test_training_raises_the_reward(trained: Path) -> None:
    """The mean reward of samples, which is the objective. The GLEU of 16 greedy outputs is another quantity: among
    seeds and processors it moves by more than the training raises it."""
    done = train(
        refinement(trained, "better", alpha=0.0, sgd_lr=10.0, max_steps=150, metric="gleu", bleu=20), quiet=True
    )
    log = list(rows(trained / "better"))
    first, second, third = (row["reward"] for row in log if "reward" in row)
    assert 0 < first < second - 0.02 < third - 0.03
    assert (log[0]["step"], log[-1]["step"]) == (0, 150)
    assert done.scores["gleu"] == [row["gleu"] for row in log if "gleu" in row][-1]
    assert (trained / "better" / "curve.png").exists()


def test_a_run_starts_as_good_as_its_start_and_remembers_it(trained: Path) -> None:
    start = layout.read_config(trained / "ml")
    config = refinement(trained, "still", sgd_lr=1e-30, max_steps=2, bleu=20)
    done = train(config, quiet=True)
    before, after = rows(trained / "still")
    assert before["step"] == 0 and before["perplexity"] == pytest.approx(start["perplexity"])
    assert after["gleu"] == before["gleu"]
    assert done.best.name == "step-0", "nothing was better"
    assert layout.read_config(done.best)["training"]["start"] == str(trained / "ml")
    own, other = (load_tensors(trained / run / "best" / "model.safetensors") for run in ("ml", "still"))
    assert all(torch.equal(own[name], other[name]) for name in own)


@pytest.mark.parametrize("killed_after", [1, 5])
def test_a_killed_refinement_goes_on_bit_for_bit(trained: Path, killed_after: int) -> None:
    whole, killed = (
        refinement(trained, f"{name}{killed_after}", max_steps=6, save_every=2, bleu=3, ema=0.1)
        for name in ("whole", "killed")
    )
    losses = list(prepare(whole, quiet=True).steps())
    steps = prepare(killed, quiet=True).steps()
    before = [next(steps) for _ in range(killed_after)]
    again = prepare(killed, resume=True, quiet=True)
    resumed_from = again.progress.step
    assert resumed_from == killed_after // 2 * 2
    assert before == losses[:killed_after] and list(again.steps()) == losses[resumed_from:]
    tensors = [load_tensors(Path(config.output) / "last" / "model.safetensors") for config in (whole, killed)]
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    progress = [files.read_json(Path(config.output) / "last" / "progress.json") for config in (whole, killed)]
    kept = [[state[name] for name in ("rewards", "sources")] for state in progress]
    assert kept[0] == kept[1] and kept[0][1] > 0
    logs = [[row["step"] for row in rows(Path(config.output))] for config in (whole, killed)]
    assert logs[0] == logs[1] == [0, 6]


def test_an_update_of_small_batches_is_that_of_one_large_batch(trained: Path) -> None:
    gradients = []
    for cut in (1, 3):
        config = refinement(trained, f"cut{cut}", precision="fp64")
        trainer = prepare(config, quiet=True)
        examples = list(range(9))
        batches = [trainer.data.batch(examples[n::cut]) for n in range(cut)]
        loss, norm = trainer.updater.update(batches, 1, 0.1)
        gradients.append((loss, norm, trainer.updater.expected_reward.collect()))  # type: ignore[union-attr]
    assert gradients[0][:2] == pytest.approx(gradients[1][:2])
    assert gradients[0][2] == pytest.approx(gradients[1][2])
    assert gradients[0][2]["sources"] == 9


def test_a_start_is_of_use_to_any_objective_with_whatever_dropout(trained: Path) -> None:
    config = make_config(
        trained, "on", options={**MODEL["options"], "dropout": 0.3}, start=str(trained / "ml"), max_steps=1, bleu=0
    )
    trainer = prepare(config, quiet=True)
    own, other = load_tensors(trained / "ml" / "best" / "model.safetensors"), trainer.model.state_dict()
    assert all(torch.equal(own[name], other[name]) for name in own)
    assert len(list(trainer.steps())) == 1


def test_a_quantisable_model_goes_on_at_its_last_bound(tmp_path: Path) -> None:
    options = {"width": 8, "constrained": True}
    train(make_config(tmp_path, "ml", options=options, max_steps=2, bleu=0), quiet=True)
    config = refinement(tmp_path, "on", options=options, max_steps=3, bleu=0)
    trainer = prepare(config, quiet=True)
    next(trainer.steps())
    assert isinstance(trainer.model, GNMT) and trainer.model.delta == 1.0


def test_an_example_that_stands_in_for_none_counts_no_reward(trained: Path) -> None:
    """A process of ``--parallel data`` without a sentence computes with one, and adds nothing."""
    trainer = prepare(refinement(trained, "stand-in"), quiet=True)
    reward, batch = trainer.updater.expected_reward, trainer.data.batch([0, 1, 2])
    assert reward is not None
    reward.loss(trainer.model, batch, 1)
    of_three = reward.collect()
    reward.loss(trainer.model, batch, 1)
    reward.loss(trainer.model, take(batch, [0])._replace(lines=[STAND_IN]), 1)
    assert reward.collect() == of_three and of_three["sources"] == 3


def test_there_is_no_label_smoothing_unless_it_is_asked_for() -> None:
    """Equation 8 has none; maximum likelihood keeps its default."""
    assert settings().label_smoothing == 0.0
    assert settings(objective="ml").label_smoothing == 0.1
    assert settings(label_smoothing=0.2).label_smoothing == 0.2

"""The weighted objective: a weight of 2 is the example twice, whatever the batches; edits are those of a cheapest
alignment; validation is unweighted; a file that does not fit the text is refused by its line.
"""

from __future__ import annotations

import gzip
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.checkpoints import files, loading
from sgdec.errors import SgdecError, UsageError
from sgdec.models.hard_attention import HardAttention
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.training import train, validation
from sgdec.training.data.weights import kept_tokens
from sgdec.training.preparing import prepare
from sgdec.training.trainer import Trainer
from tests.helpers.breadth import examples
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow

STILL: dict[str, Any] = {"options": {"width": 16, "dropout": 0.0, "init": 0.5}, "precision": "fp64", "clip": 1e9}
"""Without dropout, so that two runs see the same."""
LENGTHS = [len(target.split()) for _, target in PAIRS]


def write(folder: Path, lines: list[str], name: str = "weights") -> str:
    path = folder / name
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(path)


def gradients(trainer: Trainer, batches: list[list[int]]) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of one update, weights of tokens included."""
    weighted = [trainer.inputs.weighting(trainer.data.batch(examples)) for examples in batches]
    loss, _ = trainer.updater.update(weighted, 1, 0.0)
    return loss, [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]


def assert_same(one: tuple[float, list[torch.Tensor]], other: tuple[float, list[torch.Tensor]]) -> None:
    assert one[0] == pytest.approx(other[0], rel=1e-12)
    assert len(one[1]) == len(other[1]) > 20
    for a, b in zip(one[1], other[1], strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_an_example_of_weight_2_is_the_example_twice_in_whatever_batch(tmp_path: Path) -> None:
    doubled = {0, 30, 70, len(PAIRS) - 1}
    lines = ["2" if n in doubled else "1" for n in range(len(PAIRS))]
    weighted = prepare(make_config(tmp_path, token_weights=write(tmp_path, lines), **STILL), quiet=True)
    plain = prepare(make_config(tmp_path, "plain", **STILL), quiet=True)
    parts = [[0], [1, 30, 50, 70, 90], [60, 3, len(PAIRS) - 1]]
    twice = [[n for n in part for _ in range(2 if n in doubled else 1)] for part in parts]
    assert_same(gradients(weighted, parts), gradients(plain, twice))
    assert_same(gradients(weighted, parts), gradients(weighted, [[n for part in parts for n in part]]))
    means = [gradients(weighted, [part])[0] for part in parts]
    assert abs(sum(means) / len(means) - gradients(weighted, parts)[0]) > 1e-4, "a mean of means is something else"
    assert abs(gradients(plain, parts)[0] - gradients(weighted, parts)[0]) > 1e-4


@pytest.mark.parametrize("weight", ["1", "0.25"])
def test_weights_that_are_all_alike_change_nothing(tmp_path: Path, weight: str) -> None:
    path = write(tmp_path, [weight] * len(PAIRS), "weights.gz")
    settings = {**STILL, "max_steps": 4, "bleu": 0}
    losses = list(prepare(make_config(tmp_path, token_weights=path, **settings), quiet=True).steps())
    assert losses == pytest.approx(list(prepare(make_config(tmp_path, "plain", **settings), quiet=True).steps()))


def test_a_token_counts_by_its_own_weight_and_the_end_by_1_unless_it_has_one(tmp_path: Path) -> None:
    """The loss of the update, from the model's own log-probabilities, token by token."""
    generator = np.random.default_rng(1)
    given = [generator.integers(0, 5, tokens + n % 2) / 2 + 0.5 for n, tokens in enumerate(LENGTHS)]
    path = write(tmp_path, [" ".join(map(str, row)) for row in given])
    trainer = prepare(make_config(tmp_path, token_weights=path, label_smoothing=0.0, **STILL), quiet=True)
    examples = [2, 7, 40, 108]
    batch, model = trainer.data.batch(examples), trainer.model.eval()
    log = model.project(model(*batch.inputs)).log_softmax(-1).detach()
    total = count = 0.0
    for row, n in enumerate(examples):
        weights = [*given[n], 1.0][: LENGTHS[n] + 1]
        for t, weight in enumerate(weights):
            total -= weight * float(log[row, t, batch.target_out[row, t]])
            count += weight
    assert gradients(trainer, [examples])[0] == pytest.approx(total / count, rel=1e-12)


def test_weights_of_a_right_to_left_model_are_in_the_order_of_the_text(tmp_path: Path) -> None:
    lines = [" ".join(str(t + 1) for t in range(tokens)) + " 9" for tokens in LENGTHS]
    trainer = prepare(make_config(tmp_path, token_weights=write(tmp_path, lines), right_left=True), quiet=True)
    weights = trainer.inputs.weighting(trainer.data.batch([len(PAIRS) - 1])).weights
    assert weights is not None and weights.tolist() == [[5, 4, 3, 2, 1, 9]]


def test_lines_that_are_left_out_keep_their_place_in_the_file(tmp_path: Path) -> None:
    lines = ["1", "7", "", "", "2", *["1"] * (len(PAIRS) - 2)]
    config = make_config(tmp_path, token_weights=write(tmp_path, lines))
    sides = [Path(path).read_text().splitlines() for path in config.train]
    for path, side in zip(config.train, sides, strict=True):
        Path(path).write_text("\n".join([side[0], "", "", "", *side[1:]]) + "\n")
    trainer = prepare(config, quiet=True)
    assert trainer.data.left_out == {"empty": 3}
    weights = trainer.inputs.weighting(trainer.data.batch([0, 1, 2])).weights
    assert weights is not None and weights[:, 0].tolist() == [1, 2, 1]


def test_validation_is_unweighted(tmp_path: Path) -> None:
    lines = ["5" if n % 2 else "0.1" for n in range(len(PAIRS))]
    config = make_config(tmp_path, token_weights=write(tmp_path, lines), edit_weight=3.0, max_steps=3, bleu=0)
    scores = train(config, quiet=True).scores
    model, _ = loading.load_model(tmp_path / "run")
    plain = prepare(make_config(tmp_path, "plain"), quiet=True).inputs.valid
    assert scores["perplexity"] == pytest.approx(validation.perplexity(model, plain), rel=1e-5)


@cache
def best(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, int]:
    """Edits and, negated, kept tokens of the best alignment, by the recursion that defines them."""
    if not source or not target:
        return len(source) + len(target), 0
    edits, kept = best(source[:-1], target[:-1])
    ways = [(edits, kept - 1) if source[-1] == target[-1] else (edits + 1, kept)]
    for shorter in ((source[:-1], target), (source, target[:-1])):
        edits, kept = best(*shorter)
        ways.append((edits + 1, kept))
    return min(ways)


def edits_that_keep(source: tuple[int, ...], target: tuple[int, ...], kept: list[int]) -> int | None:
    """The fewest edits that keep exactly these places of the target, each by an equal token, in order."""
    fewest = None
    for places in itertools.combinations(range(len(source)), len(kept)):
        if all(source[s] == target[t] for s, t in zip(places, kept, strict=True)):
            ends = zip([*places, len(source)], [*kept, len(target)], [-1, *places], [-1, *kept], strict=True)
            edits = sum(max(s - s0, t - t0) - 1 for s, t, s0, t0 in ends)
            fewest = edits if fewest is None else min(fewest, edits)
    return fewest


TOKENS = st.lists(st.integers(3, 6), min_size=1, max_size=7).map(tuple)


@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=4))
@settings(max_examples=examples(150), deadline=None)
def test_what_is_kept_is_what_an_alignment_of_fewest_edits_keeps_at_most(pairs: list[Any]) -> None:
    widths = [max(len(pair[side]) for pair in pairs) + 1 for side in (0, 1)]
    padded = [np.array([[*pair[side], *[2] * (widths[side] - len(pair[side]))] for pair in pairs]) for side in (0, 1)]
    lengths = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    kept = kept_tokens(padded[0], lengths[0], padded[1], lengths[1])
    for (source, target), row in zip(pairs, kept, strict=True):
        places = np.flatnonzero(row).tolist()
        edits, negated = best(source, target)
        assert len(places) == -negated
        assert edits_that_keep(source, target, places) == edits


@pytest.mark.parametrize("right_left", [False, True])
def test_target_tokens_that_differ_from_the_source_get_the_edit_weight(tmp_path: Path, right_left: bool) -> None:
    config = make_config(tmp_path, edit_weight=3.0, right_left=right_left)
    pairs = {"one two four": "one three four five", "two": "two", "one five": "five"}
    for path, side in zip(config.train, zip(*pairs.items(), strict=True), strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in side))
    trainer = prepare(config, quiet=True)
    weights = trainer.inputs.weighting(trainer.data.batch([0, 1, 2])).weights
    assert weights is not None
    expected = [[1, 3, 1, 3, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    if right_left:
        expected[0] = [3, 1, 3, 1, 1]
    assert weights.tolist() == expected


def test_weights_and_edit_weights_multiply(tmp_path: Path) -> None:
    path = write(tmp_path, ["0.5"] * len(PAIRS))
    trainer = prepare(make_config(tmp_path, token_weights=path, edit_weight=4.0), quiet=True)
    weights = trainer.inputs.weighting(trainer.data.batch([0])).weights
    assert weights is not None and weights.tolist() == [[2.0, 0.5]]


def test_a_killed_run_goes_on_bit_for_bit_wherever_the_file_lies_but_not_with_other_weights(tmp_path: Path) -> None:
    lines = [str(0.5 + n % 3) for n in range(len(PAIRS))]
    settings: dict[str, Any] = {"max_steps": 6, "save_every": 2, "bleu": 0, "edit_weight": 2.0}
    path = write(tmp_path, lines)
    whole = list(prepare(make_config(tmp_path, "whole", token_weights=path, **settings), quiet=True).steps())
    killed = prepare(make_config(tmp_path, token_weights=path, **settings), quiet=True).steps()
    assert [next(killed) for _ in range(5)] == whole[:5]
    moved = write(tmp_path, lines, "moved.gz")
    resumed = prepare(make_config(tmp_path, token_weights=moved, **settings), resume=True, quiet=True)
    assert resumed.progress.step == 4 and list(resumed.steps()) == whole[4:]
    other = write(tmp_path, ["1", *lines[1:]], "other")
    for file, now in ((other, "109 lines [0-9a-f]+"), ("", "not given")):
        message = rf"^--resume: --token-weights was 109 lines \w+ in .*run, now it is {now}\. Give the same"
        with pytest.raises(UsageError, match=message):
            prepare(make_config(tmp_path, token_weights=file, **settings), resume=True, quiet=True)


def test_a_run_of_an_sgdec_that_knew_no_weights_had_none(tmp_path: Path) -> None:
    train(make_config(tmp_path, max_steps=2, bleu=0), quiet=True)
    file = tmp_path / "run" / "last" / "config.json"
    config = files.read_json(file)
    for name in ("token_weights", "edit_weight", "source_noise"):
        del config["training"][name]
    del config["training_weights"]
    files.write_json(file, config)
    with pytest.raises(UsageError, match="--resume: --token-weights was not given in"):
        path = write(tmp_path, ["1"] * len(PAIRS))
        prepare(make_config(tmp_path, token_weights=path), resume=True, quiet=True)
    assert train(make_config(tmp_path, max_steps=3, bleu=0), resume=True, quiet=True).steps == 3


BAD = {
    "too few lines": (["1"] * 5, r"weights has 5 lines, but the training text has 109\. Line N must have"),
    "a word": (["1", "heavy", *["1"] * 107], r"weights:2: 'heavy' is not a weight\. Expected numbers >= 0"),
    "below 0": (["1", "1", "-1", *["1"] * 106], r"weights:3: '-1' is not a weight"),
    "no number": (["nan", *["1"] * 108], r"weights:1: 'nan' is not a weight"),
    "underscore": (["1_0", *["1"] * 108], r"weights:1: '1_0' is not a weight"),
    "infinite": (["inf", *["1"] * 108], r"weights:1: 'inf' is not a weight"),
    "a count": (
        [*[" ".join(["1"] * tokens) for tokens in LENGTHS[:-1]], "1 1"],
        r"weights:109: 2 weights for a target of 5 tokens, expected 5, or 6 with that of </s>\. Tokens are those of",
    ),
    "none in a line": (["1", "", *["1"] * 107], r"weights:2: 0 weights for a target of 1 token, expected one"),
    "nothing above 0": (["1", "0", *["1"] * 107], r"weights:2: no weight is above 0\. Leave the line out"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_does_not_fit_is_refused_by_its_line(tmp_path: Path, case: str) -> None:
    lines, message = BAD[case]
    with pytest.raises(SgdecError, match=message) as caught:
        prepare(make_config(tmp_path, token_weights=write(tmp_path, lines)), quiet=True)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"absent: cannot be read \(No such file or directory\)"):
        prepare(make_config(tmp_path, token_weights=str(tmp_path / "absent")), quiet=True)


def test_edit_weights_need_one_vocabulary_and_a_source(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    other = tmp_path / "other.spm"
    other.write_bytes(train_vocabulary([target for _, target in PAIRS], 12, kind="word").serialized)
    with pytest.raises(UsageError, match=r"--edit-weight compares target tokens .*Give --tokenizer once"):
        prepare(make_config(tmp_path, edit_weight=3.0, tokenizer=(*config.tokenizer, str(other))), quiet=True)
    with pytest.raises(UsageError, match=r"--edit-weight: 0\.0 should be above 0"):
        make_config(tmp_path, edit_weight=0.0)
    with pytest.raises(UsageError, match="--edit-weight: gnmt cannot align target tokens with the tokens of"):
        make_config(tmp_path, edit_weight=3.0).require_fit(HardAttention)
    with pytest.raises(UsageError, match="--objective expected-reward has no token weights"):
        make_config(tmp_path, edit_weight=3.0, objective="expected-reward", start="a")
    alone = {"model": "rnnlm", "train": (config.train[1],), "valid": (config.valid[1],), "options": {"width": 8}}
    with pytest.raises(UsageError, match="--edit-weight: rnnlm is a language model and has no source"):
        prepare(make_config(tmp_path, edit_weight=3.0, **alone), quiet=True)
    weights = write(tmp_path, ["2"] * len(PAIRS))
    prepare(make_config(tmp_path, token_weights=weights, max_steps=1, **alone), quiet=True).run()

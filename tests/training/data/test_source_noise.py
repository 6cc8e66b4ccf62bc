"""Source-side noise: tokens are lost with the probability asked for, others each time, targets stay; what is lost
depends on seed, step, line and position alone, so a resumed run loses the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sgdec.context import EOS, UNK
from sgdec.errors import UsageError
from sgdec.models.hard_attention import HardAttention
from sgdec.training.data.batch import TrainingBatch, pad, pad_targets
from sgdec.training.data.noise import NoiseKind, SourceNoise, uniform
from sgdec.training.preparing import prepare
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow

KINDS: list[NoiseKind] = ["unknown", "deletion"]


def make_batch(lines: int, seed: int = 1) -> TrainingBatch:
    generator = np.random.default_rng(seed)
    sides = [[generator.integers(3, 50, generator.integers(1, 20)).tolist() for _ in range(lines)] for _ in range(2)]
    return TrainingBatch(*pad(sides[0]), *pad_targets(sides[1]), list(range(1, lines + 1)))


def sources(batch: TrainingBatch) -> list[list[int]]:
    assert batch.source is not None and batch.lengths is not None
    return [row[:length].tolist() for row, length in zip(batch.source, batch.lengths.tolist(), strict=True)]


def is_part(some: list[int], all_: list[int]) -> bool:
    """Whether it is left when some tokens of the other are left out."""
    rest = iter(all_)
    return all(token in rest for token in some)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_lost_with_the_probability_and_the_rest_stays(kind: NoiseKind) -> None:
    batch = make_batch(3000)
    noisy = SourceNoise(0.2, kind, seed=3)(batch, 5)
    assert noisy._replace(source=batch.source, lengths=batch.lengths) == batch, "targets and lines as they were"
    total = lost = 0
    for before, after in zip(sources(batch), sources(noisy), strict=True):
        assert after
        if kind == "unknown":
            assert len(after) == len(before)
            assert all(new in (old, UNK) for old, new in zip(before, after, strict=True))
            lost += after.count(UNK)
        else:
            assert is_part(after, before)
            lost += (len(before) - len(after)) if len(before) > 3 else 0
        total += len(before) if kind == "unknown" or len(before) > 3 else 0
    # 27,000 draws or more: 4 standard deviations are less than 0.01; of 4 tokens all are lost once in 625 times
    assert lost / total == pytest.approx(0.2, abs=0.01)
    padding = torch.arange(noisy.source.size(1)) >= noisy.lengths[:, None]  # type: ignore[union-attr, index]
    assert noisy.source is not None and bool((noisy.source[padding] == 2).all())


def test_the_last_token_of_a_source_is_never_left_out() -> None:
    batch = make_batch(200)
    for after, before in zip(sources(SourceNoise(0.999, "deletion", 1)(batch, 1)), sources(batch), strict=True):
        assert len(after) >= 1 and is_part(after, before)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_lost_does_not_depend_on_who_is_in_the_batch(kind: NoiseKind) -> None:
    batch, noise = make_batch(30), SourceNoise(0.3, kind, seed=3)
    whole = sources(noise(batch, 5))
    for rows in ([4], [29, 0, 7]):
        assert batch.source is not None and batch.lengths is not None
        width = int(batch.lengths[rows].max())
        some = batch._replace(
            source=batch.source[rows, :width], lengths=batch.lengths[rows], lines=[batch.lines[row] for row in rows]
        )
        assert sources(noise(some, 5)) == [whole[row] for row in rows]
    assert sources(noise(batch, 6)) != whole and sources(noise._replace(seed=4)(batch, 5)) != whole


def test_the_end_between_two_sources_is_never_lost() -> None:
    batch = make_batch(100)
    assert batch.source is not None
    middle = batch._replace(source=batch.source.index_fill(1, torch.tensor([0]), EOS))
    after = SourceNoise(0.9, "unknown", 1)(middle, 1).source
    assert after is not None and bool((after[:, 0] == EOS).all()) and int((after == UNK).sum()) > 500


def test_the_draws_are_uniform_and_unrelated_from_place_to_place() -> None:
    draws = uniform(1, 1, list(range(1, 400)), 250)
    shares = np.histogram(draws, bins=20, range=(0, 1))[0] / draws.size
    assert shares == pytest.approx(np.full(20, 0.05), abs=0.003)
    for one, other in (
        (draws[1:], draws[:-1]), (draws[:, 1:], draws[:, :-1]), (draws, uniform(1, 2, list(range(1, 400)), 250)),
    ):  # fmt: skip
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
    assert len(np.unique(draws)) == draws.size


def test_the_numbers_are_those_of_splitmix64() -> None:
    """By the published algorithm in plain integers."""

    def number(start: int, n: int) -> float:
        mask = 2**64 - 1
        z = (start + n * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) >> 11) / 2**53

    start = int(np.random.SeedSequence((9, 4)).generate_state(1, np.uint64)[0])
    drawn = uniform(9, 4, [1, 10**9], 3)
    assert drawn.tolist() == [[number(start, (line << 24) + t) for t in (1, 2, 3)] for line in (1, 10**9)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path, kind: NoiseKind) -> None:
    settings: dict[str, Any] = {"max_steps": 6, "save_every": 2, "bleu": 0, "source_noise": 0.3, "accumulate": 2}
    settings["source_noise_kind"] = kind
    whole = list(prepare(make_config(tmp_path, "whole", **settings), quiet=True).steps())
    killed = prepare(make_config(tmp_path, **settings), quiet=True).steps()
    assert [next(killed) for _ in range(5)] == whole[:5]
    resumed = prepare(make_config(tmp_path, **settings), resume=True, quiet=True)
    assert resumed.progress.step == 4 and list(resumed.steps()) == whole[4:]
    without = {name: value for name, value in settings.items() if not name.startswith("source_noise")}
    plain = list(prepare(make_config(tmp_path, "plain", **without), quiet=True).steps())
    assert plain[0] != whole[0]
    with pytest.raises(UsageError, match=r"--resume: source_noise was 0\.3 in .*, now it is 0\.1"):
        prepare(make_config(tmp_path, **{**settings, "source_noise": 0.1}), resume=True, quiet=True)


def test_held_out_text_has_no_noise_and_edits_are_those_of_the_clean_source(tmp_path: Path) -> None:
    config = make_config(tmp_path, source_noise=0.9, edit_weight=3.0, max_steps=1, bleu=0)
    for path in config.train:
        Path(path).write_text("".join(f"{source}\n" for source, _ in PAIRS))
    trainer = prepare(config, quiet=True)
    seen: list[TrainingBatch] = []
    update = trainer.updater.update

    def watch(batches: list[TrainingBatch], step: int, rate: float) -> tuple[float, float]:
        seen.extend(batches)
        return update(batches, step, rate)

    trainer.updater.update = watch  # type: ignore[method-assign, assignment]
    trainer.run()
    assert all(batch.weights is not None and bool((batch.weights == 1).all()) for batch in seen)
    assert sum(source.count(UNK) for batch in seen for source in sources(batch)) > 5
    assert not any(UNK in source for source in sources(trainer.inputs.valid.batch(range(len(trainer.inputs.valid)))))


def test_a_share_out_of_range_and_a_model_without_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--source-noise: 1\.0 should be below 1"):
        make_config(tmp_path, source_noise=1.0)
    with pytest.raises(UsageError, match="--source-noise-kind: 'swap' should be 'unknown' or 'deletion'"):
        make_config(tmp_path, source_noise_kind="swap")
    deletion = make_config(tmp_path, source_noise=0.1, source_noise_kind="deletion")
    with pytest.raises(UsageError, match=r"deletion: gnmt steps over each source token\. Use unknown"):
        deletion.require_fit(HardAttention)
    config = make_config(tmp_path)
    alone = {"model": "rnnlm", "train": (config.train[1],), "valid": (config.valid[1],), "options": {"width": 8}}
    with pytest.raises(UsageError, match="--source-noise: rnnlm is a language model and has no source"):
        prepare(make_config(tmp_path, source_noise=0.1, **alone), quiet=True)

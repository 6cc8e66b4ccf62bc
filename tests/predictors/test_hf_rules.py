"""The promise: what a model's generation settings force or forbid scores as processors of transformers score it, and
several ids that end a text are one ``</s>``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sgdec_predictors.hf import HfPredictor

from sgdec import EOS, Source
from tests.helpers.pretrained import V, tiny_model

SOURCE, OUTPUT = [8, 9, 14, 6], [7, 6, 4, 7]
"""In the models' ids."""
WORDS = [[5], [6, 7], [7, 7], [8, 9, 10], [4, 8]]
MOST = 4


def rows(model: Any, source: Sequence[int], ids: Sequence[int], **options: Any) -> tuple[HfPredictor, list[Any]]:
    """Scores ``[numbers]`` after each beginning of an output, which is given in the model's ids."""
    predictor = HfPredictor.of(model, **options)
    numbers = predictor._roles.numbering.numbers
    states = predictor.initialize_batch([Source(1, tuple(numbers[list(source)].tolist()), max_length=MOST)])
    found = [predictor.predict_batch(states)]
    for id in ids:
        states = predictor.consume_batch(states, [int(numbers[id])])
        found.append(predictor.predict_batch(states))
    return predictor, [scores.values[0].double() for scores in found]


def by_id(predictor: HfPredictor, row: Any) -> Any:
    return row[torch.from_numpy(predictor._roles.numbering.numbers)]


@pytest.mark.parametrize("family", ["bart", "gpt2", "mamba"])
def test_forbidden_ids_are_those_of_the_processors(family: str) -> None:
    from transformers import LogitsProcessorList
    from transformers.generation import logits_process as made

    model = tiny_model(family)
    plain = rows(model, SOURCE, OUTPUT)[1]
    settings = {"bad_words_ids": WORDS, "suppress_tokens": [11, 3], "begin_suppress_tokens": [12, 4]}
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    predictor, found = rows(model, SOURCE, OUTPUT)
    seq2seq = model.config.is_encoder_decoder
    first = [model.generation_config.decoder_start_token_id, 0] if seq2seq else SOURCE
    processors = LogitsProcessorList(
        [
            made.NoBadWordsLogitsProcessor(WORDS, torch.tensor([model.generation_config.eos_token_id])),
            made.SuppressTokensLogitsProcessor([11, 3]),
            made.SuppressTokensAtBeginLogitsProcessor([12, 4], len(first)),
        ]
    )
    for length, row in enumerate(found):
        before = torch.tensor([[*first, *OUTPUT[:length]]])
        expected = processors(before, by_id(predictor, plain[length])[None])[0]
        torch.testing.assert_close(by_id(predictor, row), expected, rtol=0, atol=1e-6)
        assert expected.isinf().sum() > 3


def test_the_length_limit_ends_an_output_for_nothing_where_its_end_is_forced() -> None:
    model = tiny_model("bart", forced_eos_token_id=2)
    _, found = rows(model, SOURCE, OUTPUT)
    assert found[-1][EOS] == 0.0 and found[-1].isinf().sum() == len(found[-1]) - 1
    assert -np.inf < found[-2][EOS] < 0.0


def test_where_the_end_is_forced_the_model_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("marian")
    model.generation_config.forced_eos_token_id = model.generation_config.eos_token_id
    predictor = HfPredictor.of(model)
    sources = [Source(1, (5, 6), max_length=1), Source(2, (7, 4, 9), max_length=9)]
    states = predictor.consume_batch(predictor.initialize_batch(sources), [5, 6])
    asked: list[int] = []
    logits = predictor._prefixes.logits
    monkeypatch.setattr(
        predictor._prefixes, "logits", lambda prefixes: asked.append(len(prefixes)) or logits(prefixes)
    )
    both = torch.as_tensor(predictor.predict_batch(states).values)
    alone = torch.as_tensor(predictor.predict_batch(states[1:]).values)
    none = torch.as_tensor(predictor.predict_batch(states[:1]).values)
    assert asked == [1, 1]
    assert torch.equal(both, torch.cat([none, alone])) and both.dtype == torch.float32
    assert float(none[0, EOS]) == 0.0 and int(none.isfinite().sum()) == 1


def test_where_positions_end_only_the_end_follows() -> None:
    """GPT-2 with 6 positions reads 4 ids of the source and 2 of the output."""
    plain = rows(tiny_model("gpt2"), SOURCE, OUTPUT[:2])[1]
    cut = tiny_model("gpt2")
    cut.config.n_positions = 6
    found = rows(cut, SOURCE, OUTPUT[:2])[1]
    assert torch.equal(found[1], plain[1])
    assert found[2][EOS] == plain[2][EOS] and found[2].isinf().sum() == len(found[2]) - 1


@pytest.mark.parametrize("ends", ["best", "log-sum"])
def test_ids_that_end_a_text_are_one_token(ends: str) -> None:
    predictor, (alone,) = rows(tiny_model("qwen2"), SOURCE, [])
    alone = by_id(predictor, alone)
    model = tiny_model("qwen2")
    model.generation_config.eos_token_id = several = [V - 2, 7, 11]
    predictor, (found,) = rows(model, SOURCE, [], ends=ends)
    expected = alone[several].max() if ends == "best" else torch.logsumexp(alone[several], 0)
    assert float(found[EOS]) == pytest.approx(float(expected), abs=1e-6)
    by_id_found = by_id(predictor, found)
    assert by_id_found[several[1:]].tolist() == [-np.inf, -np.inf]
    others = [id for id in range(V) if id not in several]
    torch.testing.assert_close(by_id_found[others], alone[others], rtol=0, atol=1e-6)

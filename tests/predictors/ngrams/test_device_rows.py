"""N-gram rows made as tensors are those made as arrays, number for number, on any device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.ngram import NGram
from sgdec_predictors.ngrams.backoff import BackoffTable
from sgdec_predictors.ngrams.device_rows import DeviceRows

from sgdec import Context, Source
from sgdec.io.arpa import Arpa, NGrams, write_arpa
from tests.helpers.back_off_models import COLUMNS, PREFIXES, back_off_models

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])


@devices
@given(model=back_off_models(complete=False), prefixes=st.lists(PREFIXES, min_size=1, max_size=5))
def test_rows_are_those_of_the_table(device: str, model: Arpa, prefixes: list[list[str]]) -> None:
    table = BackoffTable(model, COLUMNS)
    histories = []
    for prefix in prefixes:
        history = table.start
        for word in prefix:
            history = table.advance(history, word)
        histories.append(history)
    rows = DeviceRows(table, device).rows(histories)
    assert rows.device.type == device
    assert np.array_equal(rows.cpu().numpy(), table.rows(histories))


@needs_cuda
def test_the_predictor_scores_where_the_models_do(tmp_path: Path) -> None:
    words = ["</s>", "<s>", "3", "4"]
    grams = [[[word] for word in range(4)], [[1, 2], [2, 3], [3, 0]]]
    orders = [NGrams(np.array(level, np.int32), np.full(len(level), -1.0), np.zeros(len(level))) for level in grams]
    path = tmp_path / "model.arpa"
    write_arpa(path, Arpa(words, orders))
    here, there = (NGram(str(path), context=Context(vocab_size=6, device=device)) for device in ("cpu", "cuda"))
    for predictor in (here, there):
        states = predictor.initialize_batch([Source(1, (3,)), Source(2, (4,))])
        states = predictor.consume_batch(states, [3, 4])
        values = predictor.predict_batch(states).values
        assert isinstance(values, torch.Tensor) is (predictor is there)
        assert np.array_equal(torch.as_tensor(values).cpu().numpy(), here.predict_batch(states).values)

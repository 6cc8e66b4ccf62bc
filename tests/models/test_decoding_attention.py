"""Attention of one query of each prefix: the means of a plain loop, in every grouping."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sgdec.models.attention import by_prefix
from sgdec.models.base import Rows
from sgdec.models.decoding_attention import additive, attend


def by_loop(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, owners: list[int], scale: float
) -> tuple[Tensor, Tensor]:
    """For each prefix and head on its own, in float64: means, and weights of all values [R, H, L]."""
    heads, groups = query.size(1), len(keys)
    found = torch.zeros(*query.shape[:2], values.size(-1), dtype=torch.float64)
    all_weights = torch.zeros(*query.shape[:2], keys.size(2), dtype=torch.float64)
    places = dict.fromkeys(owners, 0)
    for row, owner in enumerate(owners):
        visible = seen[owner, min(places[owner], seen.size(1) - 1)]
        places[owner] += 1
        for head in range(heads):
            group = head * groups // heads
            own, others = query[row, head].double(), keys[group, owner][visible].double()
            weights = torch.softmax(others @ own * scale, 0)
            found[row, head] = weights @ values[group, owner][visible].double()
            all_weights[row, head, visible] = weights
    return found, all_weights


@given(st.data())
def test_means_are_those_of_a_loop(data: st.DataObject) -> None:
    sentences, groups = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    shared, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    extra = data.draw(st.lists(st.integers(0, sentences - 1), max_size=7))
    owners = data.draw(st.permutations([*range(sentences), *extra]))
    order = list(dict.fromkeys(owners))  # sentences are numbered by their first prefix
    owners = [order.index(owner) for owner in owners]
    most = max(owners.count(owner) for owner in owners)
    torch.manual_seed(data.draw(st.integers(0, 99)))
    query = torch.randn(len(owners), groups * shared, 4)
    keys, values = torch.randn(groups, sentences, length, 4), torch.randn(groups, sentences, length, 3)
    seen = torch.rand(sentences, data.draw(st.sampled_from([1, most])), length) < 0.6
    seen[..., 0] = True
    rows = Rows.of(owners, "cpu")
    for scale in (None, 0.3):
        found, weights = attend(query, keys, values, additive(seen, torch.float32), rows, scale)
        expected, shares = by_loop(query, keys, values, seen, owners, 0.5 if scale is None else scale)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        by_row = by_prefix(weights.permute(1, 2, 0, 3, 4), rows).flatten(1, 2)
        torch.testing.assert_close(by_row.double(), shares, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_are_kept(dtype: torch.dtype) -> None:
    query, keys = torch.randn(3, 2, 8).to(dtype), torch.randn(2, 3, 5, 8).to(dtype)
    found, _ = attend(query, keys, keys, additive(torch.ones(3, 1, 5, dtype=torch.bool), dtype), None)
    assert found.dtype == dtype and found.shape == (3, 2, 8)


def test_prefixes_without_siblings_need_no_grid() -> None:
    assert Rows.of([0, 1, 2], "cpu") is None
    assert Rows.of([1, 0], "cpu") is not None

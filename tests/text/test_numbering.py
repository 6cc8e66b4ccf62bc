"""The promise: the numbers of another tool's tokens are a permutation with at most three numbers added, and the roles
have the numbers 0, 1 and 2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec import BOS, EOS
from sgdec.context import UNK
from sgdec.text.numbering import RESERVED, Numbering

FAMILIES = {
    # rows, <unk>, <s>, ends; by number the id of the first numbers and of the numbers added
    "t5": (32128, 2, None, [1], [2, RESERVED, 1, 3], [0]),
    "bart": (50265, 3, 0, [2], [3, 0, 2, 1, 4], []),
    "mbart": (250054, 3, 0, [2], [3, 0, 2, 1, 4], []),
    "marian": (58101, 1, 0, [0], [1, RESERVED, 0, 3], [2]),
    "gpt2": (50257, 50256, 50256, [50256], [RESERVED, RESERVED, 50256, 3], [1, 2]),
    "llama2": (32000, 0, 1, [2], [0, 1, 2, 3], []),
    "llama3": (128256, None, 128000, [128001, 128009], [RESERVED, 128000, 128001, 3], [2]),
    "qwen2": (151936, None, None, [151645, 151643], [RESERVED, RESERVED, 151645, 3], [1, 2]),
    "mamba": (50280, 0, 0, [0], [RESERVED, RESERVED, 0, 3], [1, 2]),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    rows, unk, bos, ends, first, added = FAMILIES[family]
    numbering = Numbering.of(rows, unk=unk, bos=bos, eos=ends)
    assert numbering.ids[: len(first)].tolist() == first
    assert numbering.ids[rows:].tolist() == added
    assert numbering.ends == tuple(ends)


@st.composite
def roles(draw: st.DrawFn) -> tuple[int, int | None, int | None, list[int]]:
    rows = draw(st.integers(1, 12))
    ids = st.integers(0, rows - 1)
    return rows, draw(st.none() | ids), draw(st.none() | ids), draw(st.lists(ids, min_size=1, max_size=3))


@given(roles())
def test_it_is_a_permutation_with_at_most_three_numbers_added(
    given: tuple[int, int | None, int | None, list[int]],
) -> None:
    rows, unk, bos, ends = given
    numbering = Numbering.of(rows, unk=unk, bos=bos, eos=ends)
    used = [id for id in numbering.ids.tolist() if id != RESERVED]
    assert sorted(used) == list(range(rows))
    assert max(rows, 3) <= numbering.size <= rows + 3
    assert [numbering.ids[number] for number in numbering.numbers] == list(range(rows))
    assert numbering.ids[EOS] == ends[0]
    assert numbering.ids[BOS] == (RESERVED if bos is None or bos == ends[0] else bos)
    assert numbering.ids[UNK] == (RESERVED if unk is None or unk in (ends[0], bos) else unk)
    moved = [id for id in range(3, rows) if numbering.numbers[id] != id]
    assert set(moved) <= {ends[0], bos, unk}  # all others keep their numbers


@pytest.mark.parametrize(
    ("eos", "unk", "message"),
    [([], None, "no id ends"), ([5], None, "id 5 has a role"), ([1], -1, "id -1 has a role")],
)
def test_roles_of_ids_that_do_not_exist(eos: list[int], unk: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Numbering.of(5, unk=unk, bos=None, eos=eos)

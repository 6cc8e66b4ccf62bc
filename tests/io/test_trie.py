"""A trie has exactly the entries that it was built from, with their weights; what is wrong with a file is one line.

The oracle is a dictionary of the entries and plain sums over it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.trie import _List

from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.io.entries import read_entries
from sgdec.io.trie import MAGIC, Trie, build_trie, open_trie
from tests.helpers.breadth import examples
from tests.helpers.older_tries import without_checksums

Entry = tuple[int, ...]
Weighted = Mapping[Entry, float]

ENTRIES = st.lists(
    st.tuples(st.lists(st.sampled_from([0, 3, 4, 5, 2**31 - 1]), max_size=5).map(tuple), st.floats(-50, 50)),
    min_size=1,
    max_size=12,
)


def lines_of(entries: list[tuple[Entry, float]], weighted: bool) -> list[str]:
    return [" ".join(map(str, tokens)) + (f"\t{weight!r}" if weighted else "") for tokens, weight in entries]


def built(entries: list[tuple[Entry, float]], weighted: bool = True) -> Trie:
    return build_trie(read_entries(lines_of(entries, weighted), "the list"))


def best_of(entries: list[tuple[Entry, float]]) -> Weighted:
    best: dict[Entry, float] = {}
    for tokens, weight in entries:
        best[tokens] = max(weight, best.get(tokens, -math.inf))
    return best


def walked(trie: Trie) -> Weighted:
    """All entries with their totals, by the arcs of all nodes of a level at a time."""
    found: dict[Entry, float] = {}
    level: dict[int, tuple[Entry, float]] = {0: ((), 0.0)}
    while level:
        nodes = list(level)
        offsets, tokens, scores, after = trie.arcs(np.array(nodes), None)
        following: dict[int, tuple[Entry, float]] = {}
        for i, node in enumerate(nodes):
            prefix, total = level[node]
            arcs = slice(offsets[i], offsets[i + 1])
            assert sorted(set(tokens[arcs].tolist())) == tokens[arcs].tolist()
            for token, score, target in zip(tokens[arcs].tolist(), scores[arcs], after[arcs].tolist(), strict=True):
                if token == EOS:
                    assert prefix not in found
                    found[prefix] = float(total + score)
                else:
                    assert target not in following
                    following[target] = (*prefix, token), float(total + score)
        level = following
    return found


@given(ENTRIES, st.booleans())
def test_a_trie_has_the_entries_of_its_list_and_no_others(
    entries: list[tuple[Entry, float]], weighted: bool
) -> None:
    trie, expected = built(entries, weighted), best_of(entries)
    found = walked(trie)
    assert found.keys() == expected.keys()
    assert trie.entries == len(expected) and trie.longest == max(map(len, expected))
    for tokens, total in found.items():
        assert abs(total - (expected[tokens] if weighted else 0.0)) <= 2**-31


@given(ENTRIES)
def test_sums_of_scores_are_exact_and_the_best_entry_costs_nothing_after_its_first_token(
    entries: list[tuple[Entry, float]],
) -> None:
    trie = built(entries)
    rounded = {tokens: round(weight * 2**30) / 2**30 for tokens, weight in best_of(entries).items()}
    assert walked(trie) == rounded
    assert trie.best == max(rounded.values())
    assert trie.scores is not None and trie.least is not None
    for prefix in {tokens[:length] for tokens in rounded for length in range(len(tokens) + 1)}:
        node, total = 0, 0.0
        for token in prefix:
            _, _, (score,), (node,) = trie.arcs(np.array([node]), (np.array([0, 1]), np.array([token])))
            total += score
        weights = [weight for tokens, weight in rounded.items() if tokens[: len(prefix)] == prefix]
        if prefix:
            assert total == max(weights)
        assert total + trie.least[node] == min(weights)


@given(ENTRIES, st.data())
def test_arcs_for_candidates_are_those_of_all_arcs(entries: list[tuple[Entry, float]], data: st.DataObject) -> None:
    trie = built(entries)
    nodes = np.array(data.draw(st.lists(st.integers(-1, trie.nodes - 1), min_size=1, max_size=6)))
    tokens = st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 9, 2**31 - 1]), unique=True).map(sorted)
    rows = [data.draw(tokens) for _ in nodes]
    pairs = [(row, token) for row, listed in enumerate(rows) for token in listed]
    wanted = np.append(0, np.cumsum([len(row) for row in rows])), np.array([token for _, token in pairs], np.int64)
    offsets, every, scores, after = trie.arcs(nodes, None)
    row_of = np.repeat(np.arange(len(nodes)), np.diff(offsets)).tolist()
    known = dict(zip(zip(row_of, every.tolist(), strict=True), zip(scores, after, strict=True), strict=True))
    found_offsets, found_tokens, found_scores, found_after = trie.arcs(nodes, wanted)
    assert found_offsets.tolist() == wanted[0].tolist() and found_tokens.tolist() == wanted[1].tolist()
    for pair, score, target in zip(pairs, found_scores, found_after, strict=True):
        assert (score, target) == known.get(pair, (-math.inf, -1))


@settings(max_examples=examples(20))
@given(ENTRIES, st.booleans())
def test_a_file_holds_the_same_trie_in_few_bytes(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[Entry, float]], weighted: bool
) -> None:
    path = tmp_path_factory.mktemp("trie") / "x.trie"
    trie = built(entries, weighted)
    trie.write(path)
    found = open_trie(path)
    assert walked(found) == walked(trie)
    assert (found.entries, found.longest, found.largest) == (trie.entries, trie.longest, trie.largest)
    assert path.stat().st_size == 136 + (24 if weighted else 8) * trie.nodes
    for name in ("first", "tokens", "scores", "least"):
        one, other = getattr(found, name), getattr(trie, name)
        assert (one is None and other is None) or np.array_equal(one, other)
        assert one is None or not one.flags.writeable  # the file's own pages


@pytest.mark.slow
def test_long_and_many_entries_are_no_recursion() -> None:
    long = [(tuple([3] * 3000), 0.0), (tuple([3] * 2999), -1.0)]
    assert walked(built(long)) == dict(long)
    wide = [((token,), 0.0) for token in range(3, 20_003)]
    assert walked(built(wide)) == dict(wide)


def test_opening_reads_neither_arcs_nor_weights(tmp_path: Path) -> None:
    path = tmp_path / "x.trie"
    built([((token, 3), -token) for token in range(3, 50_000)]).write(path)
    trie = open_trie(path)
    for array in (trie.first, trie.tokens, trie.scores, trie.least):
        owner = array
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        assert isinstance(owner, np.memmap)


# Files that are not what they should be


def refusal(path: Path) -> str:
    with pytest.raises(SgdecError) as error:
        walked(open_trie(path))
    message = str(error.value)
    assert message.startswith(f"{path}: ") and message.endswith(".") and "\n" not in message
    return message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.trie"
    built([((3, 4, 5), -1.0), ((3, 4), -2.0), ((6,), -3.0), ((), -4.0)]).write(path)
    return path


def test_a_file_cut_anywhere_is_refused_when_it_is_opened(file: Path) -> None:
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(SgdecError) as error:
            open_trie(file)
        expected = "empty" if size == 0 else "not a trie" if size < len(MAGIC) else "cut short"
        assert expected in str(error.value) and str(error.value).endswith("."), size


def test_a_changed_header_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for place in range(struct.calcsize("<12sIIIQQQI32sI")):
        changed = bytearray(whole)
        changed[place] ^= 0x40
        file.write_bytes(changed)
        message = refusal(file)
        expected = "not a trie" if place < 12 else "of version" if place < 16 else "does not fit its checksum"
        assert expected in message, (place, message)


def test_other_files_are_named(file: Path, tmp_path: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")
    assert "damaged: it has" in refusal(file)
    file.write_bytes(b"3 4 5\n" * 100)
    assert "not a trie. `sgdec trie` builds one." in refusal(file)
    packed = tmp_path / "x.trie.gz"
    packed.write_bytes(file.read_bytes())
    assert "Unpack it." in refusal(packed)
    assert "cannot be read (No such file" in refusal(tmp_path / "none.trie")
    assert "cannot be read (Is a directory" in refusal(tmp_path)


@pytest.mark.parametrize("weighted", [True, False])
def test_no_byte_of_a_file_changes_an_answer(file: Path, weighted: bool) -> None:
    trie = built([((3, 4, 5), -1.0), ((3, 4), -2.0), ((6,), -3.0), ((), -4.0)], weighted)
    trie.write(file)
    whole, expected, refused = file.read_bytes(), walked(trie), 0
    least = [trie.least_after(node) for node in range(trie.nodes)]
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        try:
            opened = open_trie(file)
            assert walked(opened) == expected
            assert [opened.least_after(node) for node in range(trie.nodes)] == least
        except SgdecError:
            refused += 1
    assert refused == len(whole) - PADDING


PADDING = 128 - struct.calcsize("<12sIIIQQQI32sII")
"""The bytes of the header that mean nothing."""


def test_a_block_is_checked_when_it_is_visited_and_opening_checks_only_the_first(file: Path) -> None:
    trie = built([((first, second), -0.5) for first in range(3, 203) for second in range(3, 103)])
    trie.write(file)
    data = bytearray(file.read_bytes())
    damaged = next(node for node in range(trie.nodes) if trie.first[node] > 3 * 4096)
    data[128 + 8 * (int(trie.first[damaged]) + 1)] ^= 1
    file.write_bytes(data)
    opened = open_trie(file)
    assert opened.arcs(np.array([0, 1, 2]), None)[1].tolist() == trie.arcs(np.array([0, 1, 2]), None)[1].tolist()
    in_the_middle = np.array([0, damaged])
    for visit in (
        lambda: opened.arcs(in_the_middle, None),
        lambda: opened.arcs(in_the_middle, (np.array([0, 0, 1]), np.array([3]))),
        lambda: opened.without_weights().children(damaged),
        lambda: opened.least_after(int(trie.first[damaged])),
        lambda: _List(opened),
        lambda: open_trie(file).arcs(pytest.importorskip("torch").tensor([0]), None),
    ):
        with pytest.raises(SgdecError, match=r"damaged: nodes 12288 to 16383 do not fit their checksum. Build it"):
            visit()


def test_a_file_of_the_form_before_is_read(file: Path) -> None:
    expected = walked(open_trie(file))
    file.write_bytes(without_checksums(file.read_bytes()))
    assert walked(open_trie(file)) == expected


# Files of the form before, whose numbers have no checksums


@settings(max_examples=examples(200))
@given(st.data())
def test_damaged_offsets_and_tokens_are_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever the numbers are, a walk ends and stays inside the file."""
    path = tmp_path_factory.mktemp("trie") / "x.trie"
    trie = built([((3, 4, 5), 0.0), ((3, 4), 0.0), ((6,), 0.0), ((6, 3), 0.0)], weighted=False)
    trie.write(path)
    changed = bytearray(without_checksums(path.read_bytes()))
    place = data.draw(st.integers(128, len(changed) - 4))
    changed[place : place + 4] = data.draw(st.binary(min_size=4, max_size=4))
    path.write_bytes(changed)
    try:
        opened = open_trie(path)
        nodes, seen = [0], 0
        while nodes:
            seen += len(nodes)
            assert seen <= opened.nodes
            nodes = opened.arcs(np.array(nodes), None)[3].tolist()
    except SgdecError as error:
        assert str(error).startswith(f"{path}: damaged: ") and str(error).endswith("Build it again.")


@pytest.mark.parametrize("part", ["first", "tokens"])
def test_pages_that_were_lost_are_noticed_when_the_file_is_opened(file: Path, part: str) -> None:
    trie = built([((first, second), 0.0) for first in range(3, 203) for second in range(3, 103)], weighted=False)
    trie.write(file)
    data = bytearray(without_checksums(file.read_bytes()))
    begin = 128 + 4 * (trie.nodes // 2) + (4 * (trie.nodes + 1) if part == "tokens" else 0)
    data[begin : begin + 4096] = b"\xee" * 4096
    file.write_bytes(data)
    with pytest.raises(SgdecError, match="damaged: "):
        open_trie(file)


def test_offsets_that_lead_backwards_are_refused_where_they_are_met(file: Path) -> None:
    """A trie so large that opening it samples other nodes."""
    entries = [((first, second), 0.0) for first in range(3, 203) for second in range(3, 103)]
    built(entries, weighted=False).write(file)
    data = bytearray(without_checksums(file.read_bytes()))
    node = 105
    assert struct.unpack_from("<I", data, 128 + 4 * node)[0] > node
    struct.pack_into("<I", data, 128 + 4 * node, 5)
    file.write_bytes(data)
    trie = open_trie(file)
    for arcs in (lambda: trie.arcs(np.array([node]), None), lambda: trie.children(node)):
        with pytest.raises(SgdecError, match=rf"damaged: the children of node {node} are not in it"):
            arcs()


# Lists


MISTAKES = {
    "no line": ([], {}, "no entries, so nothing would be allowed."),
    "a word": (["3", "word"], {}, "line 2: 'word' is not a token id."),
    "</s> in between": (["3 2 4"], {}, "line 1: 2 stands for <s> or </s>."),
    "a large id": (["3", "3 9"], {"vocab_size": 9}, "line 2: 9 is outside the target vocabulary of 9 tokens."),
    "an id of another size": ([str(2**31)], {}, f"line 1: '{2**31}' is not a token id."),
    "no weight": (["3\t1", "4"], {}, "line 2 has no weight, unlike line 1."),
    "a weight": (["3", "4\t1"], {}, "line 2 has a tab, so a weight, unlike line 1."),
    "a weight that is a word": (["3\t1", "4\tlow"], {}, "line 2: 'low' is not a weight."),
    "a weight with an underscore": (["3\t1", "4\t-1_0"], {}, "line 2: '-1_0' is not a weight."),
    "a weight that is missing": (["3\t1", "4\t"], {}, "line 2: '' is not a weight."),
    "nan": (["3\tnan"], {}, "line 1: 'nan' is not a weight."),
    "infinite": (["3\t-inf"], {}, "line 1: '-inf' is not a weight."),
    "a count": (["3\t10000000"], {}, "line 1: '10000000' is not a weight."),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_unfit_list_is_one_line(mistake: str) -> None:
    lines, options, complaint = MISTAKES[mistake]
    with pytest.raises(SgdecError) as error:
        build_trie(read_entries(lines, "the list", **options), "the list")  # type: ignore[arg-type]
    message = str(error.value)
    assert message.startswith("the list: ") and complaint in message and message.endswith(".") and "\n" not in message


def test_lines_beyond_the_first_block_keep_their_numbers() -> None:
    lines = ["3"] * 25_000 + ["word"]
    with pytest.raises(SgdecError, match="line 25001: 'word'"):
        read_entries(lines, "the list")
    assert len(read_entries(lines[:-1], "the list").offsets) == 25_001

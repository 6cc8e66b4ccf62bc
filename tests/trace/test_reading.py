"""The promise of reading a trace: a damaged file, or one that is no trace, is one clear line that says where."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.errors import SgdecError
from sgdec.trace import read_trace

HEADER: dict[str, Any] = {
    "event": "trace", "version": 1, "sgdec": "0.1.0", "signature": "sgdec:0.1.0", "predictors": ["nmt", "fst"],
    "weights": [1.0, 0.5], "decoder": "beam", "options": {"size": 2}, "ranking": {"alpha": 0.0}, "nbest": 1,
    "children": 20, "expansions": 10000,
}  # fmt: skip
ROOT: dict[str, Any] = {
    "event": "expand", "n": 0, "parent": None, "token": None, "batch": 1, "candidates": 9, "tokens": [4, 3],
    "totals": [-0.5, -1.0], "scores": [[-0.5, 0.0], [-1.0, 0.0]], "fates": [1, "recombined"], "rest": "beam",
    "into": {"3": [1, 2]}, "notes": {"4": ["group 1", "group 2"]}, "alone": [[4, -0.5, []], None],
}  # fmt: skip
CHILD: dict[str, Any] = {
    "event": "expand", "n": 1, "parent": 0, "token": 4, "batch": 1, "candidates": 9, "tokens": [2], "totals": [-1.0],
    "scores": [[-0.5, 0.0]], "fates": ["listed"], "rest": "beam", "attention": {"nmt": [0.5, 0.5]},
    "place": {"fst": "17"},
}  # fmt: skip
END: dict[str, Any] = {
    "event": "end", "id": 1, "stopped": "best",
    "hypotheses": [{"expansion": 1, "tokens": [4], "text": "ein", "score": -1.0, "rank_score": -1.0}],
    "expansions": 2, "recorded": 2, "proven": None, "gap": None, "seconds": 0.2, "error": None,
}  # fmt: skip
LINES: list[dict[str, Any]] = [
    HEADER,
    {"event": "pieces", "pieces": {"4": "ein"}},
    {"event": "batch", "number": 1, "rows": 2, "seconds": 0.1},
    {"event": "sentence", "id": 1, "tokens": [5, 6], "pieces": ["a", "b"], "text": "a b", "max_length": 4},
    ROOT,
    CHILD,
    {"event": "bound", "expansions": 2, "seconds": 0.1, "bound": None, "best": -1.0},
    END,
]
"""A trace of one sentence."""
DEEP = "[" * 100_000 + "]" * 100_000


def text(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def changed(number: int, **fields: Any) -> str:
    """The trace with other fields in one line, counted from 1."""
    lines = [dict(line) for line in LINES]
    lines[number - 1] |= fields
    return text(lines)


def reordered(*order: int) -> str:
    """These lines of the trace, counted from 1."""
    return text([LINES[number - 1] for number in order])


def error_of(path: Path) -> str:
    with pytest.raises(SgdecError) as caught:
        read_trace(path)
    said = str(caught.value)
    assert "\n" not in said and str(path) in said and len(said) < len(str(path)) + 400
    return said.replace(str(path), "FILE")


def test_the_trace_of_these_tests_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text(LINES))
    read = read_trace(tmp_path / "x")
    (found,) = read.sentences
    assert read.header.predictors == ("nmt", "fst") and read.pieces == {4: "ein"}
    assert found.path(1) == (4,) and found.expansions[1].place == {"fst": "17"} and found.batches[0].rows == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "FILE is empty. Expected a trace, which 'sgdec decode --trace FILE' writes."),
        ("\n", "FILE: line 1 is not a line of a trace (it is not JSON that can be read)"),
        ('{"id": 1, "hypotheses": []}\n', "FILE: line 1 is not a line of a trace (it has no 'event')"),
        ("A sentence.\n", "FILE: line 1 is not a line of a trace (it is not JSON that can be read)"),
        ("\x00\x01\x02", "FILE: line 1 is not a line of a trace (it is not JSON that can be read)"),
        (DEEP, "FILE: line 1 is not a line of a trace (it is not JSON that can be read)"),
        ('{"event": "%s"}' % ("x" * 9999), "FILE: line 1 is not a line of a trace (it has the 'event' 'xxx"),
        (changed(1, version=2, more=3), "FILE is a trace of version 2; this sgdec reads version 1. Trace the run"),
        (changed(1, version="1"), "FILE is a trace of version '1'; this sgdec reads version 1."),
        (changed(1, version=10**4000), f"FILE is a trace of version 1{'0' * 49}; this sgdec reads version 1."),
        (changed(1, predictors=[]), "(trace.predictors has 0 values, expected 1 or more)"),
        (changed(1, weights=[1.0]), "FILE: line 1: weights has length 1; expected 2. The file is damaged"),
        (reordered(2, 1), "FILE: line 1 is 'pieces', not the header of a trace. Expected a trace, which"),
        (reordered(1, 2, 1), "FILE: line 3: a second header. The file is damaged; write it again."),
        (reordered(1, 2, 3, 5), "FILE: line 4: 'expand' outside of a sentence."),
        (reordered(1, 2, 3, 7), "FILE: line 4: 'bound' outside of a sentence."),
        (reordered(1, 2, 3, 8), "FILE: line 4: 'end' outside of a sentence."),
        (reordered(1, 2, 3, 4, 4), "FILE: line 5: sentence 1 begins before sentence 1 has ended."),
        (reordered(1, 2, 4, 5), "FILE: line 4: there is no batch 1."),
        (reordered(1, 2, 3, 4, 6), "FILE: line 5: expansion 1 comes where 0 is next."),
        (reordered(1, 2, 3, 4, 5, 5), "FILE: line 6: expansion 0 comes where 1 is next."),
        (reordered(1, 2, 3, 4, 5, 8), "FILE: line 6: 1 expansion where 2 were recorded."),
        (reordered(1, 2, 3, 4, 5, 6), "FILE ends in the middle of sentence 1: it is cut. Write it again."),
        (reordered(*range(1, 9), *range(4, 9)), "FILE: line 9: sentence 1 after sentence 1."),
        (changed(4, pieces=["a"]), "FILE: line 4: pieces has length 1; expected 2."),
        (changed(4, id=0), "FILE: line 4 is not a line of a trace (sentence.id should be at least 1)"),
        (changed(4, more=1), "FILE: line 4 is not a line of a trace (sentence.more is unknown)"),
        (changed(5, tokens=[4]), "FILE: line 5: totals has length 2; expected 1."),
        (changed(5, scores=[[0.0, 0.0]]), "FILE: line 5: scores has length 1; expected 2."),
        (changed(5, scores=[[0.0], [0.0]]), "FILE: line 5: scores has length 1; expected 2."),
        (changed(5, fates=[1]), "FILE: line 5: fates has length 1; expected 2."),
        (changed(5, weights=[1.0]), "FILE: line 5: weights has length 1; expected 2."),
        (changed(5, alone=[None]), "FILE: line 5: alone has length 1; expected 2."),
        (changed(5, alone=[[4, 0.0, [2]], None]), "FILE: line 5: a token is forbidden by [2], of 2 predictors."),
        (changed(5, tokens=[4, 4]), "FILE: line 5: a token is listed twice."),
        (changed(5, tokens=[4, -3]), "FILE: line 5 is not a line of a trace (expand.tokens.1 should be at least 0)"),
        (changed(5, tokens=[4, 2**31]), "(expand.tokens.1 should be below 2147483648)"),
        (changed(5, tokens=[4, 10**4000]), "FILE: line 5 is not a line of a trace ("),
        (changed(5, token=4), "FILE: line 5: an expansion has a parent and a token, or neither of the two."),
        (changed(5, fates=["beam", "beam"]), "FILE: line 6: token 4 of expansion 0 has not fate 1."),
        (changed(5, fates=[1, 7]), "FILE: line 8: token 3 of expansion 0 is not expansion 7."),
        (changed(5, fates=[1, -1]), "FILE: line 8: token 3 of expansion 0 is not expansion -1."),
        (changed(5, fates=[1, 0]), "FILE: line 8: token 3 of expansion 0 is not expansion 0."),
        (changed(5, fates=[1, True]), "FILE: line 5 is not a line of a trace (expand.fates.1"),
        (changed(5, into={"3": [7, 2]}), "FILE: line 8: token 3 of expansion 0 is recombined into nothing."),
        (changed(5, into={"3": [1, 9]}), "FILE: line 8: token 3 of expansion 0 is recombined into nothing."),
        (changed(5, into={"\n": [1, 2]}), "FILE: line 5 is not a line of a trace (expand.into.\\n"),
        (changed(5, into={"x": [1, 2]}), "FILE: line 5 is not a line of a trace (expand.into.x"),
        (changed(6, parent=1), "FILE: line 6: expansion 1 comes before its parent, 1."),
        (changed(6, parent=9), "FILE: line 6: expansion 1 comes before its parent, 9."),
        (changed(6, token=5), "FILE: line 6: token 5 of expansion 0 has not fate 1."),
        (changed(6, parent=None), "FILE: line 6: an expansion has a parent and a token, or neither of the two."),
        (changed(6, batch=2), "FILE: line 6: there is no batch 2."),
        (changed(6, totals=[float("inf")]), "FILE: line 6 is not a line of a trace (expand.totals.0"),
        (changed(6, totals=["-1"]), "FILE: line 6 is not a line of a trace (expand.totals.0 should be a number)"),
        (changed(8, id=2), "FILE: line 8: the end of sentence 2 in sentence 1."),
        (changed(8, hypotheses=[{**END["hypotheses"][0], "expansion": 2}]),
         "FILE: line 8: expansion 2 is not that of the hypothesis [4]."),
        (changed(8, hypotheses=[{**END["hypotheses"][0], "expansion": 0}]),
         "FILE: line 8: expansion 0 is not that of the hypothesis [4]."),
        (changed(8, hypotheses=[{**END["hypotheses"][0], "tokens": [4, 4]}]),
         "FILE: line 8: expansion 1 is not that of the hypothesis [4, 4]."),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x").write_text(content)
    assert message in error_of(tmp_path / "x")


def test_numbers_beyond_all_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text(LINES).replace("[-1.0]", "[-1e999]"))
    expected = "line 6 is not a line of a trace (expand.totals.0 should be a finite number)"
    assert expected in error_of(tmp_path / "x")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff\n")
    assert error_of(tmp_path / "none") == "FILE: cannot be read (No such file or directory)."
    assert error_of(tmp_path) == "FILE: cannot be read (Is a directory)."
    assert error_of(tmp_path / "latin").startswith("FILE: line 1 is not UTF-8 (byte 1 of it).")


def packed_by_zstd(data: bytes) -> bytes:
    from backports import zstd

    return bytes(zstd.compress(data))


@pytest.mark.parametrize(
    ("ending", "pack", "kind"), [(".gz", gzip.compress, "gzip"), (".zst", packed_by_zstd, "zstd")]
)
def test_packed_files_that_are_cut_or_not_packed(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes], kind: str
) -> None:
    if kind == "zstd":
        pytest.importorskip("backports.zstd")
    data, path = pack(text(LINES).encode()), tmp_path / f"x{ending}"
    path.write_bytes(data)
    assert len(read_trace(path).sentences) == 1
    for content in (data[:-20], data[: len(data) // 2], text(LINES).encode()):
        path.write_bytes(content)
        assert f"the {kind} file is damaged or cut short" in error_of(path)


def test_a_trace_that_is_cut_anywhere_is_refused_or_has_fewer_sentences(tmp_path: Path) -> None:
    path = tmp_path / "x"
    second = [{**line, "id": 2} if "id" in line else line for line in LINES[3:]]
    data = text([*LINES, *second]).encode()
    ends = [i for i, byte in enumerate(data) if byte == ord("\n")]
    for length in {*range(0, len(data), 17), *ends, *(end + 1 for end in ends)}:
        path.write_bytes(data[:length])
        try:
            found = len(read_trace(path).sentences)
        except SgdecError as error:
            assert "is cut" in str(error) or "damaged or cut" in str(error) or "Expected a trace" in str(error)
        else:
            assert found == data[:length].count(b'"error": null}')


def damages() -> Iterator[st.SearchStrategy[Any]]:
    """Values of all kinds for any place of a line."""
    yield st.none()
    yield st.booleans()
    yield st.integers() | st.integers(-2, 12)
    yield st.floats()
    yield st.text()
    yield st.lists(st.integers(-2, 12) | st.text() | st.none(), max_size=3)
    yield st.dictionaries(st.text(), st.integers(), max_size=2)


@given(data=st.data())
def test_whatever_is_damaged_is_one_line_or_harmless(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = json.loads(json.dumps(LINES))
    for _ in range(data.draw(st.integers(1, 3))):
        target: Any = data.draw(st.sampled_from(lines))
        while True:
            key = data.draw(st.sampled_from(list(target) if isinstance(target, dict) else list(range(len(target)))))
            if not (isinstance(target[key], dict | list) and target[key]) or data.draw(st.booleans()):
                break
            target = target[key]
        target[key] = data.draw(st.one_of(*damages()))
    path = tmp_path_factory.mktemp("x") / "x"
    path.write_text(text(lines), encoding="utf-8", errors="replace")
    with suppress(SgdecError):
        for trace in read_trace(path).sentences:
            for expansion, child in trace.nodes():
                assert trace.path(expansion.number) is not None
                assert not isinstance(child.fate, int) or trace.expansions[child.fate].token == child.token

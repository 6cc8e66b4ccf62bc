"""The promise of the outputs to score: each belongs to its line of the inputs, whatever the chunks are."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.corpus import targets as module
from sgdec.corpus.manifest import ChunkTable, Manifest, read_manifest, refuse_other, survey, write_manifest
from sgdec.corpus.stores import FolderStore
from sgdec.corpus.targets import survey_target, targets_of
from sgdec.errors import SgdecError, UsageError
from sgdec.io.nbest import read_nbest
from sgdec.text.lines import read_lines
from tests.helpers.breadth import examples

TEXTS = st.sampled_from(["a", "", "é \u2028", "b\r"])


def made(folder: Path, lines: list[int], chunk: int, target: bytes, *, nbest_list: bool) -> Manifest:
    """The manifest of inputs with these numbers of lines."""
    paths = []
    for number, count in enumerate(lines):
        (folder / f"{number}.txt").write_text("x\n" * count)
        paths.append(str(folder / f"{number}.txt"))
    (folder / "target").write_bytes(target)
    store = FolderStore(str(folder / "d"))
    inputs, chunks = survey(paths, chunk, store)
    file, own = survey_target(
        str(folder / "target"), inputs, chunks, store, nbest_list=nbest_list, check=lambda entry: None
    )
    manifest = Manifest(
        [], "/", {}, "score", False, chunk, inputs, sum(lines), chunks, targets=[file], nbest_list=nbest_list,
        target_chunks=own,
    )  # fmt: skip
    return write_manifest(store, manifest)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 4), st.data(), st.booleans(), st.booleans(),
    st.sampled_from([None, 0, 1]),
)  # fmt: skip
def test_each_line_gets_its_outputs(
    lines: list[int], chunk: int, data: st.DataObject, mark: bool, ends: bool, begins: int | None
) -> None:
    """``begins``: the number from which a list counts; None: there is an output for each line."""
    total = sum(lines)
    if begins is None:
        rows = data.draw(st.lists(TEXTS, min_size=total, max_size=total))
        ends |= not rows[-1]
    else:
        ids = sorted(data.draw(st.lists(st.integers(1, total), max_size=8)))
        if ids and begins == 0:
            ids[0] = 1  # otherwise nothing says that it counts from 0
        rows = [f"{id - 1 + begins} ||| {data.draw(TEXTS)} ||| lm= -1 ||| -2" for id in ids]
    content = b"\xef\xbb\xbf" * mark + "\n".join(rows).encode() + b"\n" * (ends and bool(rows))
    with TemporaryDirectory() as folder:
        manifest = made(Path(folder), lines, chunk, content, nbest_list=begins is not None)
        assert read_manifest(FolderStore(f"{folder}/d")) == manifest
        path = f"{folder}/target"
        expected: list[list[tuple[str, str]]]
        if begins is None:
            expected = [[(text, f"{path}: line {number}")] for number, text in enumerate(read_lines(path), 1)]
        else:
            listed = dict(read_nbest(path))
            expected = [[(each.text, each.where) for each in listed.get(id, [])] for id in range(1, total + 1)]
        for number, about in enumerate(manifest.chunks):
            for first in range(about.id, about.id + about.lines):
                for last in (first, about.id + about.lines - 1):
                    found = targets_of(manifest, number, range(first, last + 1))
                    assert [[each[:2] for each in of_line] for of_line in found] == expected[first - 1 : last]


def test_a_packed_file_is_unpacked(tmp_path: Path) -> None:
    plain = made(tmp_path, [1, 1], 1, b"a\nb\n", nbest_list=False)
    (tmp_path / "p.gz").write_bytes(gzip.compress(b"a\nb\n"))
    path, store = str(tmp_path / "p.gz"), FolderStore(str(tmp_path / "d"))
    file, own = survey_target(path, plain.inputs, plain.chunks, store, nbest_list=False, check=lambda entry: None)
    assert (file.sha256, own) == (plain.targets[0].sha256, plain.target_chunks)
    assert Path(file.place).parent == tmp_path / "d" / "inputs"
    found = targets_of(replace(plain, targets=[file]), 1, range(2, 3))
    assert found[0][0][:2] == ("b", f"{path}: line 2")


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = made(tmp_path, [1, 1], 1, b"a\nb\n", nbest_list=False)
    monkeypatch.setattr(module, "survey_file", None)
    found = survey_target(
        known.targets[0].path, known.inputs, known.chunks, FolderStore(str(tmp_path / "d")), nbest_list=False,
        check=lambda entry: None, known=known,
    )  # fmt: skip
    assert found == (known.targets[0], known.target_chunks)


def test_outputs_that_change_after_the_start_are_found_by_the_worker(tmp_path: Path) -> None:
    manifest = made(tmp_path, [4], 2, b"a\nb\nc\nd\n", nbest_list=False)
    (tmp_path / "target").write_bytes(b"a\nb\nc\nx\n")
    assert targets_of(manifest, 0, range(1, 3))[1][0].text == "b"
    with pytest.raises(SgdecError, match=r"input .*target: lines 3 to 4 have changed since the folder was begun"):
        targets_of(manifest, 1, range(3, 5))


def test_the_same_file_read_in_another_way_is_another_run(tmp_path: Path) -> None:
    manifest = made(tmp_path, [2], 2, b"1 ||| a\n2 ||| b\n", nbest_list=True)
    other = replace(manifest, nbest_list=False)
    assert other.run != manifest.run
    with pytest.raises(UsageError, match="was begun with --nbest-list True, this is False"):
        refuse_other(manifest, other, FolderStore(str(tmp_path / "d")))


@pytest.mark.parametrize(
    "change",
    [
        "rows[:-1]", "rows[:2]", "rows[[0, 1, 3, 2]]", "rows - [0, 0, 0, 0, 0, 0, 2]", "rows + [0, 1, 0, 0, 0, 0, 0]",
        "rows + [0, 0, 1, 0, 0, 0, 0]", "rows + [0, 0, 0, 1, 1, 0, 0]", "rows + [1, 0, 0, 0, 0, 0, 0]",
    ],
)  # fmt: skip
def test_a_table_of_other_outputs_is_damage(tmp_path: Path, change: str) -> None:
    """Even if somebody has written the hash that belongs to it."""
    manifest = made(tmp_path, [4], 2, b"a\nb\nc\nd\n", nbest_list=False)
    rows = np.concatenate([manifest.chunks.rows, manifest.target_chunks.rows])
    kept = 2 if change != "rows[:2]" else 1
    if change.startswith("rows "):  # of the outputs alone
        changed = np.concatenate([rows[:2], eval(change, {"rows": rows[2:]})])
    else:
        changed = eval(change, {"rows": rows})
    forged = replace(manifest, chunks=ChunkTable(changed[:kept]), target_chunks=ChunkTable(changed[kept:]))
    store = FolderStore(str(tmp_path / "forged"))
    write_manifest(store, forged)
    with pytest.raises(SgdecError, match=r"manifest\.json or chunks\.npy is damaged"):
        read_manifest(store)

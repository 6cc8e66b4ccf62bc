"""The promise of the manifest: its chunks are the lines of the inputs, and a later start has to agree with it."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.corpus import manifest as module
from sgdec.corpus.chunk_lines import lines_of_chunk
from sgdec.corpus.inputs import read_range
from sgdec.corpus.manifest import Chunk, Manifest, read_manifest, refuse_other, survey, write_manifest
from sgdec.corpus.stores import FolderStore, open_store
from sgdec.errors import SgdecError, UsageError
from sgdec.text.lines import ZSTD

CONTENTS = st.lists(st.sampled_from([b"a", b"bc\r", b"", b"x" * 9, "é".encode()]), max_size=12)


def lines_of(content: bytes) -> list[bytes]:
    """As Python reads a file."""
    return list(io.BytesIO(content))


@given(
    st.lists(st.tuples(CONTENTS, st.booleans()), min_size=1, max_size=3),
    st.integers(1, 5),
    st.sampled_from([1, 3, 64]),
)
def test_chunks_are_the_lines_in_order(files: list[tuple[list[bytes], bool]], size: int, block: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        paths, expected = [], []
        for number, (lines, ends) in enumerate(files):
            content = b"\n".join(lines) + (b"\n" if ends and lines else b"")
            path = Path(folder, f"{number}.txt")
            path.write_bytes(content)
            paths.append(str(path))
            expected.append(lines_of(content))
        inputs, chunks = survey(paths, size, FolderStore(folder))
        assert [each.lines for each in inputs] == list(map(len, expected))
        id = 1
        for number, path in enumerate(paths):
            content, at = Path(path).read_bytes(), 0
            own = [chunk for chunk in chunks if chunk.file == number]
            assert b"".join(content[chunk.begin : chunk.end] for chunk in own) == content
            for chunk in own:
                part = content[chunk.begin : chunk.end]
                assert lines_of(part) == expected[number][at : at + chunk.lines]
                assert (chunk.line, chunk.id, chunk.crc) == (at + 1, id, zlib.crc32(part))
                assert 1 <= chunk.lines <= size
                at, id = at + chunk.lines, id + chunk.lines
            assert all(chunk.lines == size for chunk in own[:-1])
            assert at == len(expected[number])


def test_a_byte_order_mark_alone_is_no_line(tmp_path: Path) -> None:
    """Its worker would have no row for it."""
    for name, content in (("0", b"\xef\xbb\xbf"), ("1", b"\xef\xbb\xbf\n"), ("2", b"\xef\xbb\xbfa"), ("3", b"")):
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in "0123"]
    inputs, chunks = survey(paths, 2, FolderStore(str(tmp_path / "d")))
    assert [each.lines for each in inputs] == [0, 1, 1, 0]
    for chunk in chunks:
        assert len(list(lines_of_chunk(inputs[chunk.file], chunk))) == chunk.lines


def test_a_packed_input_is_unpacked_beside_the_results_once(tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"a\nb\nc"))
    store = FolderStore(str(tmp_path / "d"))
    for _ in range(2):
        (found,), chunks = survey([str(tmp_path / "in.gz")], 2, store)
        assert Path(found.place).read_bytes() == b"a\nb\nc"
        assert [(chunk.begin, chunk.end, chunk.lines) for chunk in chunks] == [(0, 4, 2), (4, 5, 1)]
    assert len(os.listdir(tmp_path / "d" / "inputs")) == 1
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"other"))
    (other,), _ = survey([str(tmp_path / "in.gz")], 2, store)
    assert Path(found.place).read_bytes() == b"a\nb\nc"  # workers of the first may still read it
    assert other.place != found.place


@pytest.mark.parametrize("name", ["packed.gz", "packed.zst"])
def test_a_packed_input_at_a_url_is_unpacked(tmp_path: Path, name: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    content = b"a\nb\nc\n"
    if name.endswith(".zst"):
        packed = pytest.importorskip(ZSTD).compress(content)
    else:
        packed = gzip.compress(content)
    fsspec.filesystem("memory").pipe_file(f"/inputs/{name}", packed)
    (found,), _ = survey([f"memory://inputs/{name}"], 2, FolderStore(str(tmp_path / "d")))
    assert Path(found.place).read_bytes() == content
    fsspec.filesystem("memory").pipe_file(f"/inputs/{name}", packed[:-5])
    with pytest.raises(SgdecError, match=rf"memory://inputs/{name}: the \w+ file is damaged or cut short"):
        survey([f"memory://inputs/{name}"], 2, FolderStore(str(tmp_path / "d")))


def test_a_packed_input_takes_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"a\n"))
    with pytest.raises(UsageError, match=r"cannot be read from the middle\. Unpack it to a file first\."):
        survey([str(tmp_path / "in.gz")], 2, open_store("memory://packed"))


def made(folder: Path, content: bytes = b"a\nb\nc\n") -> tuple[FolderStore, Manifest]:
    (folder / "in.txt").write_bytes(content)
    store = FolderStore(str(folder / "d"))
    inputs, chunks = survey([str(folder / "in.txt")], 2, store)
    signature = {"predictors": "ngram", "seed": "0", "batch_size": "64"}
    return store, Manifest(["--predictors", "ngram"], "/", signature, "text", False, 2, inputs, 3, chunks)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    store, manifest = made(tmp_path)
    assert read_manifest(store) is None
    assert write_manifest(store, manifest) is manifest
    found = read_manifest(store)
    assert found == manifest and found.chunks == manifest.chunks
    assert isinstance(found.chunks[0], Chunk)


def test_of_two_first_starters_one_writes_and_the_other_has_to_agree(tmp_path: Path) -> None:
    store, manifest = made(tmp_path)
    write_manifest(store, manifest)
    assert write_manifest(store, replace(manifest, arguments=["--predictors=ngram"])) == manifest
    with pytest.raises(UsageError, match="was begun with --chunk 2, this is 3"):
        write_manifest(store, replace(manifest, chunk=3))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"output_format": "jsonl"}, "was begun with --output-format text, this is jsonl"),
        ({"signature": {"predictors": "ngram", "seed": "1"}}, "was begun with seed 0, this is 1"),
        ({"signature": {"predictors": "ngram", "seed": "0", "nbest": "2"}}, r"with nbest \(none\), this is 2"),
        ({"inputs": []}, "was begun with inputs 1, this is 0"),
    ],
)
def test_a_start_with_other_settings_is_refused_with_the_difference(
    tmp_path: Path, other: dict[str, object], message: str
) -> None:
    store, manifest = made(tmp_path)
    with pytest.raises(UsageError, match=message):
        refuse_other(manifest, replace(manifest, **other), store)  # type: ignore[arg-type]
    refuse_other(manifest, replace(manifest, signature={**manifest.signature, "batch_size": "8"}), store)


def test_a_changed_input_is_refused_with_both_hashes(tmp_path: Path) -> None:
    store, manifest = made(tmp_path)
    write_manifest(store, manifest)
    (tmp_path / "in.txt").write_bytes(b"a\nb\nd\n")
    inputs, _ = survey([str(tmp_path / "in.txt")], 2, store, known=manifest)
    then = manifest.inputs[0].sha256[:12]
    with pytest.raises(UsageError, match=rf"another content of .*in.txt \(3 lines, sha256 {then}"):
        refuse_other(manifest, replace(manifest, inputs=inputs), store)


def test_an_unchanged_input_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, manifest = made(tmp_path)

    def fail(*of: object) -> None:
        raise AssertionError("the input was read")

    monkeypatch.setattr(module, "survey_file", fail)
    assert survey([str(tmp_path / "in.txt")], 2, store, known=manifest) == (manifest.inputs, manifest.chunks)


@pytest.mark.parametrize("spoil", [b"", b"{", b'{"format": 2}', b"[]", b"\xff"])
@pytest.mark.parametrize("name", ["manifest.json", "chunks.npy"])
def test_a_damaged_manifest_is_one_line(tmp_path: Path, name: str, spoil: bytes) -> None:
    store, manifest = made(tmp_path)
    write_manifest(store, manifest)
    store.write(name, spoil)
    with pytest.raises(SgdecError, match=r"manifest\.json or chunks\.npy is damaged"):
        read_manifest(store)


def test_a_manifest_of_another_format_says_what_to_use(tmp_path: Path) -> None:
    store, manifest = made(tmp_path)
    write_manifest(store, manifest)
    store.write("manifest.json", (store.read("manifest.json") or b"").replace(b'"format": 2', b'"format": 1'))
    with pytest.raises(SgdecError, match=r"format 1; this sgdec reads 2\..*another folder"):
        read_manifest(store)


def test_an_input_can_be_a_url() -> None:
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.pipe_file("/inputs/a.txt", b"a\nbb\nc")
    store = open_store("memory://corpora/a")
    inputs, chunks = survey(["memory://inputs/a.txt"], 2, store)
    assert inputs[0].place == "memory://inputs/a.txt"
    assert [read_range(inputs[0].place, chunk.begin, chunk.end) for chunk in chunks] == [b"a\nbb\n", b"c"]
    with pytest.raises(UsageError, match=r"input memory://inputs/no\.txt"):
        survey(["memory://inputs/no.txt"], 2, store)


@pytest.mark.parametrize(
    ("name", "value"),
    [("lines", "3"), ("lines", 4), ("chunk", None), ("signature", []), ("inputs", []), ("ledger", 1), ("folder", 5)],
)
def test_a_value_of_another_type_is_damage(tmp_path: Path, name: str, value: object) -> None:
    store, manifest = made(tmp_path)
    write_manifest(store, manifest)
    content = json.loads((tmp_path / "d" / "manifest.json").read_text())
    (tmp_path / "d" / "manifest.json").write_text(json.dumps({**content, name: value}))
    with pytest.raises(SgdecError, match=r"manifest\.json or chunks\.npy is damaged"):
        read_manifest(store)


def test_a_sound_manifest_of_another_run_is_damage(tmp_path: Path) -> None:
    """Somebody has edited it, or restored one of the two files from another folder."""
    store, manifest = made(tmp_path)
    write_manifest(store, manifest)
    path = tmp_path / "d" / "manifest.json"
    path.write_text(path.read_text().replace('"seed": "0"', '"seed": "1"'))
    with pytest.raises(SgdecError, match=r"or they belong to different runs\. Restore both, or"):
        read_manifest(store)
    path.write_text(path.read_text().replace('"seed": "1"', '"seed": "0"').replace('"64"', '"8"'))
    assert read_manifest(store) is not None, "the batch size is free"


@pytest.mark.parametrize("change", ["rows[:1]", "rows[::-1]", "rows + [9, 0, 0, 0, 0, 0, 0]", "rows * 1.5", "-rows"])
def test_a_table_of_other_chunks_is_damage(tmp_path: Path, change: str) -> None:
    store, manifest = made(tmp_path)
    write_manifest(store, manifest)
    np.save(tmp_path / "d" / "chunks.npy", eval(change, {"rows": manifest.chunks.rows}))
    with pytest.raises(SgdecError, match=r"manifest\.json or chunks\.npy is damaged"):
        read_manifest(store)


def test_the_chunks_of_a_start_that_wrote_no_manifest_are_not_taken_for_its_own(tmp_path: Path) -> None:
    """Its workers would decode other lines than those that it hands out."""
    store, manifest = made(tmp_path)
    store.create("chunks.npy", b"of a start that was killed")
    with pytest.raises(UsageError, match=r"another start.*remove chunks\.npy"):
        write_manifest(store, manifest)
    assert read_manifest(store) is None


def test_a_file_behind_a_descriptor_is_unpacked(tmp_path: Path) -> None:
    """In a worker /dev/stdin is another file."""
    path = tmp_path / "in.txt"
    path.write_bytes(b"a\nb\n")
    with open(path, "rb") as file:
        (found,), _ = survey([f"/dev/fd/{file.fileno()}"], 2, FolderStore(str(tmp_path / "d")))
    assert Path(found.place).parent == tmp_path / "d" / "inputs"
    assert Path(found.place).read_bytes() == b"a\nb\n"

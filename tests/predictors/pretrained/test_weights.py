"""The weights of a folder are the tensors of the safetensors files in it, mapped; nothing leads elsewhere."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sgdec_predictors.pretrained.weights import INDEX, WHOLE, map_weights

from sgdec.errors import SgdecError

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).view(2, 3),
    "b": torch.tensor([True, False, True]),
    "c": torch.tensor(0.5, dtype=torch.bfloat16),
    "d": torch.empty(0, 4, dtype=torch.float16),
    "e": torch.tensor([1 << 40, -1]),
}


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def write_index(folder: Path, **files: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": files}))


def test_one_file_and_several_have_the_same_tensors(tmp_path: Path) -> None:
    (tmp_path / "several").mkdir()
    save_file(TENSORS, tmp_path / WHOLE)
    for name, tensor in TENSORS.items():
        save_file({name: tensor}, tmp_path / "several" / f"{name}.safetensors")
    write_index(tmp_path / "several", **{name: f"{name}.safetensors" for name in TENSORS})
    assert_equal(map_weights(tmp_path), TENSORS)
    assert_equal(map_weights(tmp_path / "several"), TENSORS)


def test_changes_of_the_tensors_are_not_written(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / WHOLE)
    map_weights(tmp_path)["a"].zero_()
    assert_equal(map_weights(tmp_path), TENSORS)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_forgotten_tensors_leave_memory_and_no_other_does(tmp_path: Path) -> None:
    sizes = {"a": 1_000_003, "b": 999_983, "c": 5, "d": 1_234_567}
    expected = {name: torch.arange(size, dtype=torch.float32) for name, size in sizes.items()}
    save_file(expected, tmp_path / WHOLE)

    def resident() -> int:
        """KiB of the file."""
        text = Path("/proc/self/smaps").read_text()
        places = [part for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text) if str(tmp_path / WHOLE) in part]
        return sum(int(size) for place in places for size in re.findall(r"^Rss:\s+(\d+) kB", place, re.M))

    found = map_weights(tmp_path)
    changed = found["d"][:1000].fill_(-1.0)  # in memory alone
    assert_equal({name: found[name] for name in "abc"}, {name: expected[name] for name in "abc"})
    before = resident()
    found.forget([found["b"], found["c"], torch.ones(5_000_000)])
    assert 3500 < before - resident() <= 3907
    assert_equal({name: found[name] for name in "ac"}, {name: expected[name] for name in "ac"})
    assert (changed == -1.0).all() and torch.equal(found["d"][1000:], expected["d"][1000:])


def test_links_of_the_cache_of_hugging_face_are_followed(tmp_path: Path) -> None:
    """Its snapshots have links to blobs of the same model."""
    blobs, snapshot = (
        tmp_path / "models--maker--small" / "blobs",
        tmp_path / "models--maker--small" / "snapshots" / "7f",
    )
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    save_file(TENSORS, blobs / "0a")
    (snapshot / WHOLE).symlink_to("../../blobs/0a")
    assert_equal(map_weights(snapshot), TENSORS)
    (tmp_path / "link").symlink_to(snapshot)
    assert_equal(map_weights(tmp_path / "link"), TENSORS)
    (tmp_path / "blobs").mkdir()
    save_file(TENSORS, tmp_path / "blobs" / "0a")
    (snapshot / WHOLE).unlink()
    (snapshot / WHOLE).symlink_to("../../../blobs/0a")
    with pytest.raises(SgdecError, match="the link leads out of the folder"):
        map_weights(snapshot)


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "in/x.safetensors",
        "/x.safetensors",
        "x.bin",
        "..",
        "",
        "in\\x.safetensors",
        "x\0.safetensors",
    ],
)
def test_only_plain_names_are_files_of_weights(name: str, tmp_path: Path) -> None:
    write_index(tmp_path, a=name)
    with pytest.raises(SgdecError, match=r"index\.json: .* is not the name of a file \*\.safetensors in this folder"):
        map_weights(tmp_path)


@pytest.mark.parametrize(
    "index", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}']
)
def test_an_index_without_files_is_refused(index: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(SgdecError, match='expected an object "weight_map" with the file of each tensor'):
        map_weights(tmp_path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    write_index(tmp_path, a="x.safetensors")
    with pytest.raises(SgdecError, match="cannot be read"):
        map_weights(tmp_path)
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(SgdecError, match="this is not a file"):
        map_weights(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("x.safetensors", "y.safetensors"):
        save_file(TENSORS, tmp_path / name)
    write_index(tmp_path, a="x.safetensors", b="y.safetensors")
    with pytest.raises(SgdecError, match=r"tensor . is in another file too"):
        map_weights(tmp_path)


def entry(**changed: Any) -> Any:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}


def packed(header: Any, data: bytes = b"\0" * 8) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


DAMAGES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "short": lambda: b"\1",
    "a long header": lambda: (1 << 62).to_bytes(8, "little") + b"{}",
    "a header that is no object": lambda: packed([1]),
    "not JSON": lambda: (3).to_bytes(8, "little") + b"{,}",
    "an entry that is no object": lambda: packed({"a": 1}),
    "another type": lambda: packed({"a": entry(dtype="F7")}),
    "a negative size": lambda: packed({"a": entry(shape=[-2, -1])}),
    "a size that is no number": lambda: packed({"a": entry(shape="ab")}),
    "a fraction": lambda: packed({"a": entry(shape=[2.0])}),
    "another shape": lambda: packed({"a": entry(shape=[3])}),
    "an end after the file": lambda: packed({"a": entry(shape=[4], data_offsets=[0, 16])}),
    "a gap": lambda: packed({"a": entry(data_offsets=[8, 16])}, b"\0" * 16),
    "the same bytes twice": lambda: packed({"a": entry(), "b": entry()}),
    "bytes of no tensor": lambda: packed({"a": entry()}, b"\0" * 9),
    "a size beyond 64 bits": lambda: packed({"a": entry(shape=[0, 1 << 70], data_offsets=[0, 0])}, b""),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    (tmp_path / WHOLE).write_bytes(DAMAGES[kind]())
    with pytest.raises(SgdecError, match=r"model\.safetensors: .*\.$") as error:
        map_weights(tmp_path)
    assert "\n" not in str(error.value)

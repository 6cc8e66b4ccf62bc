"""The weights of a folder: which files they are, and their tensors, which are mapped into memory.

They are in ``model.safetensors``, or in the files that ``model.safetensors.index.json`` names: plain names of
safetensors in the folder. Nothing else in a folder leads to weights. Each file is opened once, so the bytes that were
checked are the bytes that are loaded, and processes that load the same file share its pages.

A link may lead to another file of the folder, or, as in Hugging Face's cache, from ``snapshots/COMMIT`` to ``blobs``
of the same model.

The format (https://github.com/huggingface/safetensors): 8 bytes with the length of the header, little-endian; the
header, JSON with the ``dtype``, ``shape`` and ``data_offsets`` of each tensor; the data, without gaps.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgdec.errors import SgdecError
from sgdec.files import DOCUMENT, parse_json, read_document

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
}  # fmt: skip
"""The types of numbers that a model can have, by their names in a header."""


class MappedWeights(dict[str, Tensor]):
    """Tensors by name."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[mmap.mmap] = []
        """The memory of the tensors."""

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """Give up the memory of tensors that nobody reads any more, where the system can; it is whole pages."""
        starts = [(torch.frombuffer(data, dtype=torch.uint8).data_ptr(), data) for data in self.files]
        for tensor in tensors:
            for start, data in starts:
                first = tensor.data_ptr() - start
                begin, end = -(-first // mmap.PAGESIZE), (first + tensor.nbytes) // mmap.PAGESIZE
                if 0 <= first < len(data) and begin < end and hasattr(mmap, "MADV_DONTNEED"):
                    data.madvise(mmap.MADV_DONTNEED, begin * mmap.PAGESIZE, (end - begin) * mmap.PAGESIZE)


def map_weights(folder: Path) -> MappedWeights:
    """The tensors of a folder by name, mapped copy-on-write.

    Raises `SgdecError` if there are none, only pickled ones, or a file is damaged or not in the folder.
    """
    found = MappedWeights()
    for file in weight_files(folder):
        for name, tensor in _map(file, found.files):
            if name in found:
                raise SgdecError(f"{file}: tensor {name} is in another file too. The files are of different models.")
            found[name] = tensor
    return found


def weight_files(folder: Path) -> list[Path]:
    """The files of the weights, of which the index names each once. Raises the errors of `map_weights`."""
    if (folder / WHOLE).is_file():
        return [_inside(folder, WHOLE, WHOLE)]
    index = folder / INDEX
    if not index.is_file():
        pickled = sorted(path.name for path in folder.glob("*.bin"))
        reason = f"{pickled[0]} is pickled, which can run code; save the model as safetensors" if pickled else None
        raise SgdecError(f"{folder}: expected weights in {WHOLE}: {reason or 'none found'}.")
    try:
        named = parse_json(read_document(index))["weight_map"]
        names = sorted({*named.values()})
        valid = bool(names) and all(type(name) is str for name in names)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        valid = False
    if not valid:
        raise SgdecError(f'{index}: expected an object "weight_map" with the file of each tensor. Copy it again.')
    return [_inside(folder, name, INDEX) for name in names]


def _inside(folder: Path, name: str, place: str) -> Path:
    """A file of weights without links in its path. ``place``: the file that names it."""
    if name != os.path.basename(name) or "\\" in name or "\0" in name or not name.endswith(".safetensors"):
        raise SgdecError(f"{folder / place}: {name!r} is not the name of a file *.safetensors in this folder.")
    file, home = Path(os.path.realpath(folder / name)), Path(os.path.realpath(folder))
    cache = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if file.parent not in (home, cache):
        raise SgdecError(f"{folder / name}: the link leads out of the folder, to {file}. Copy the file into it.")
    try:
        regular = stat.S_ISREG(os.stat(file).st_mode)
    except OSError as error:
        raise SgdecError(f"{folder / name}: cannot be read ({error.strerror}). Copy the whole folder.") from None
    if not regular:
        raise SgdecError(f"{folder / name}: this is not a file. Copy the whole folder.")
    return file


def _map(file: Path, opened: list[mmap.mmap]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one file with their names; its memory is added to ``opened``. Raises `SgdecError` if it is
    damaged."""
    try:
        with open(file, "rb") as content:
            data = mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:  # mmap raises ValueError for an empty file
        raise SgdecError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    opened.append(data)
    length = int.from_bytes(data[:8], "little")
    try:
        if length > min(len(data) - 8, DOCUMENT.value):
            raise ValueError("its header does not fit its size")
        header = parse_json(data[8 : 8 + length])
        header.pop("__metadata__", None)
        place = 8 + length
        for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
            kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if kind not in TYPES:
                raise ValueError(f"tensor {name}: numbers of the type {kind!r} are not supported")
            if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
                raise ValueError(f"tensor {name}: a size is not a whole number")
            if begin + 8 + length != place or end - begin != math.prod(shape) * TYPES[kind].itemsize:
                raise ValueError(f"tensor {name}: its place does not fit its shape")
            if end + 8 + length > len(data):
                raise ValueError(f"tensor {name}: its end is missing")
            yield name, _tensor(data, TYPES[kind], shape, place)
            place = end + 8 + length
        if place != len(data):
            raise ValueError(f"{len(data) - place} bytes belong to no tensor")
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, OverflowError) as error:
        reason = error if type(error) is ValueError else "its header is not a JSON object of tensors"
        raise SgdecError(f"{file}: the weights cannot be used: {reason}. Copy the file again.") from None


def _tensor(data: Any, kind: torch.dtype, shape: list[int], place: int) -> Tensor:
    count = math.prod(shape)
    flat = torch.frombuffer(data, dtype=kind, count=count, offset=place) if count else torch.empty(0, dtype=kind)
    return flat.view(shape)

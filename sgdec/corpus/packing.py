"""Several members packed into one zip file, and unpacked within limits: few bytes can declare many."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

from sgdec.io.limits import FREE, UNPACKED

_THEN = (1980, 1, 1, 0, 0, 0)
"""The time of all members: equal contents are equal files."""
_ENTRY = b"PK\x01\x02"
"""The first bytes of each entry in the list of members."""
_BY_CHANCE = 100
"""The most times that packed data may have the same bytes by chance, which is very rare."""


def pack(members: Mapping[str, bytes]) -> bytes:
    """The content of a zip file that `unpack` takes, however well its members can be packed."""
    packed = _packed(members, zipfile.ZIP_DEFLATED)
    if _size(members) > _allowance(packed):
        return _packed(members, zipfile.ZIP_STORED)
    return packed


def unpack(data: bytes, most: int) -> dict[str, bytes]:
    """The members by name. Raises ValueError if the file is damaged, has more than ``most`` members, or unpacks to
    more than `pack` packs."""
    if data.count(_ENTRY) > most + _BY_CHANCE:  # before a list of them is made
        raise ValueError("too many members")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            infos = file.infolist()
            if len({info.filename for info in infos}) != len(infos) or len(infos) > most:
                raise ValueError("too many members")
            if sum(info.file_size for info in infos) > _allowance(data):
                raise ValueError("it unpacks to too much")
            return {info.filename: _content(file, info) for info in infos}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        raise ValueError(str(error)) from None


def _content(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A member. Unpacking stops at the size that it declares."""
    if info.compress_type not in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        raise ValueError("it is packed in another way")
    with file.open(info) as member:
        return member.read(info.file_size + 1)  # one more, so that the checksum is compared


def _packed(members: Mapping[str, bytes], how: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, _THEN)
            info.compress_type = how
            file.writestr(info, content, compresslevel=1)
    return buffer.getvalue()


def _size(members: Mapping[str, bytes]) -> int:
    return sum(map(len, members.values()))


def _allowance(packed: bytes) -> int:
    return max(FREE, len(packed) * UNPACKED.value)

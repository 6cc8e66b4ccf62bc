"""Built tries in the form before checksums, version 1."""

from __future__ import annotations

import struct
import zlib

HEADER = struct.Struct("<12sIIIQQQI32s")
NODES = struct.Struct("<12sIIIQ")


def without_checksums(data: bytes) -> bytes:
    """The bytes of a file in the form before."""
    header = data[:12] + struct.pack("<I", 1) + data[16 : HEADER.size]
    *_, nodes = NODES.unpack_from(data)
    return (header + struct.pack("<I", zlib.crc32(header))).ljust(128, b"\0") + data[128 : -4 * (nodes // 4096 + 1)]

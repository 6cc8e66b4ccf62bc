"""The hash function by which KenLM finds words: MurmurHash64A, by Austin Appleby (public domain)."""

from __future__ import annotations

import struct

_FACTOR, _SHIFT = 0xC6A4A7935BD1E995, 47
_ALL_BITS = (1 << 64) - 1


def murmur_hash(data: bytes) -> int:
    """The 64-bit hash with seed 0.

    >>> hex(murmur_hash(b"<unk>"))
    '0xea91e7561f5b392b'
    """
    hashed = len(data) * _FACTOR & _ALL_BITS
    whole = len(data) // 8 * 8
    for (part,) in struct.iter_unpack("<Q", data[:whole]):
        part = part * _FACTOR & _ALL_BITS
        part = (part ^ part >> _SHIFT) * _FACTOR & _ALL_BITS
        hashed = (hashed ^ part) * _FACTOR & _ALL_BITS
    if data[whole:]:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _ALL_BITS
    hashed = (hashed ^ hashed >> _SHIFT) * _FACTOR & _ALL_BITS
    return hashed ^ hashed >> _SHIFT

"""Difficult values: numbers and words that have caused defects in programs, here or elsewhere."""

from __future__ import annotations

from typing import Any

NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "99", "0.5", "-0.0", "00", "007", "+1", ".5", "5.", "1e3", "1_000", "1,5", "0x10",
    "1e", "--1", "²", "½", "٣", "９", "nan", "-nan", "inf", "-inf", "Infinity", "1e-320", "1e38", "1e39", "1e308",
    "-1e308", "1e309", "127", "128", "255", "256", "32768", "65536", "999999", "2147483647", "2147483648",
    "-2147483648", "4294967295", "4294967296", "999999999", "1000000000", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" + "0" * 30, "9" * 400, "9" * 4301,
)  # fmt: skip
WORDS = (
    "", " ", "x", "é", "日本", "😀", "e\u0301", "\ufeff", "\u00a0", "\u2028", "\x85", "\t", "\0", "\x1b[31m", "\\",
    "'", '"', "<s>", "</s>", "<unk>", "<dr>", "<oov>", "|||", "=", ":", ",", "#", "%", "%s", "{", "{}", "{id}",
    "[", "]", "-", "--", "_", "▁", "..", "X1", "X1_X1", "True", "null", "\\data\\", "\\end\\", "a" * 5000,
    "a " * 2000,
)  # fmt: skip
RAW = (
    b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0", b"\r", b"\n\n", b"\x1f\x8b", b"\xef\xbb\xbf",
)  # fmt: skip
"""Bytes that are not text, or that separate lines."""
PATHS = (
    "none", "none/none", "", ".", "..", "a\nb", "é", "a b", "{id}", "/dev/null", "-", "x" * 300,
    "\udcff",
)  # fmt: skip
"""Paths other than the files of a case."""
INTEGERS = (
    0, 1, 2, 3, 5, 7, 8, 16, 100, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1 << 20, 1 << 24, 999_999_999,
    1_003_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
"""Integers for binary files, in which -1 is the largest unsigned number."""
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
JSON: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1e308, float("nan"), float("inf"), 2**31, 2**63 - 1, 2**63, 10**30,
    200_000, "", "x", "\0", "\ud800", "1", "a" * 5000, [], {}, [[]], [0], [None], {"": None}, [1, 2, 3], ["a", "b"],
)  # fmt: skip

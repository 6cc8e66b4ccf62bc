"""Packages that not every machine can install; sgdec runs without them."""

from __future__ import annotations

from importlib.util import find_spec

HOW = {
    "pynini": 'pip install "sgdec[fst]" on Linux x86-64, conda install -c conda-forge pynini on macOS, '
    "WSL on Windows",
    "kenlm": 'pip install "sgdec[kenlm]", with a C++ compiler and cmake',
}
"""How each of them is installed."""


def with_way_to_install(advice: str) -> str:
    """Advice, and how to install pynini if it names pynini and pynini is missing.

    >>> with_way_to_install("Write it again.")
    'Write it again.'
    """
    if "pynini" not in advice or find_spec("pynini") is not None:
        return advice
    return f"{advice.removesuffix('.')} ({HOW['pynini']})."

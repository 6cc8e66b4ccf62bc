"""Automata over tokens that are kept on the disk, because to build them can take seconds.

An entry belongs to the name of a language (a pattern, a list of words), a vocabulary, and the version of what has
compiled it. Its file begins with the SHA-256 of these and of all that follows. So a damaged file, and that of another
entry, are built again. A file that cannot be read or written costs only time.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from sgdec.arcs import DEAD
from sgdec.errors import SgdecError
from sgdec.files import write_whole
from sgdec_predictors.texts.byte_automata import BYTES, FAR, ByteAutomaton
from sgdec_predictors.texts.spelling import Spelling
from sgdec_predictors.texts.token_automata import TokenAutomaton

FORMAT = b"4"
"""Changes with all code that decides what is in an entry."""
NONE = "none"
SIZE = 32
"""The bytes of a SHA-256."""
LARGEST = 1 << 28
"""The most bytes of a file; larger ones are built again."""


def default_folder() -> Path | None:
    """``$XDG_CACHE_HOME/sgdec/automata``, where ``$XDG_CACHE_HOME`` is ``~/.cache`` if it is not set.

    None without a home, as users have in containers.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgdec" / "automata"
    except RuntimeError:
        return None


class StoredAutomata:
    """Automata over the tokens of one vocabulary."""

    def __init__(self, spelling: Spelling, folder: str = "") -> None:
        """``folder``: an empty one is `default_folder`, and ``none`` keeps nothing."""
        self._spelling = spelling
        self._folder = None if folder == NONE else Path(folder) if folder else default_folder()

    def of(self, name: str, build: Callable[[], ByteAutomaton]) -> TokenAutomaton:
        """The automaton of the language with this name. ``build`` is called if there is no entry."""
        key = self._key(name)
        path = self._folder / f"{key.hex()[:32]}.automaton" if self._folder and key else None
        automaton = path and self._read(path, key)
        if not automaton:
            automaton = TokenAutomaton(build(), self._spelling)
            if path and automaton.least < FAR:
                _write(path, key, automaton)
        return automaton

    def _key(self, name: str) -> bytes:
        """The digest of a language, a vocabulary and the compiler; empty if the compiler is not installed."""
        try:
            compiler = version("outlines-core").encode()
        except ImportError:
            return b""
        key = [FORMAT, compiler, self._spelling.digest, name.encode("utf-8", "surrogatepass")]
        return hashlib.sha256(repr(key).encode()).digest()

    def _read(self, path: Path, key: bytes) -> TokenAutomaton | None:
        try:
            if not path.is_file() or path.stat().st_size > LARGEST:
                return None
            data = path.read_bytes()
            if data[:SIZE] != _checksum(key, data[SIZE:]):
                return None
            with np.load(io.BytesIO(data[SIZE:])) as stored:
                table, ends, left = stored["table"], stored["ends"], stored["left"]
        except Exception:  # a file that somebody made can raise nearly anything, such as NotImplementedError
            return None
        states = len(ends)
        is_one = (
            table.dtype == np.int32 and ends.dtype == bool and left.dtype == np.int64
            and table.shape == (states, BYTES) and left.shape == (states * self._spelling.states,)
            and states > 0 and table.min() >= DEAD and table.max() < states
        )  # fmt: skip
        return TokenAutomaton(ByteAutomaton(table, ends), self._spelling, left) if is_one else None


def _write(path: Path, key: bytes, automaton: TokenAutomaton) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, table=automaton.letters.table, ends=automaton.letters.ends, left=automaton.left)
    data = file.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe would wait for a reader
            return
        write_whole(path, _checksum(key, data) + data, durable=False)
    except (OSError, SgdecError):  # a folder that cannot be written, or another process that writes the same
        pass


def _checksum(key: bytes, data: bytes) -> bytes:
    return hashlib.sha256(key + data).digest()

r"""The model files of NPLM, the software of Vaswani et al. 2013: a feed-forward n-gram language model as text.

A file is a list of sections. Each has a line with its name, followed by lines up to an empty one; ``\end`` is the
last section:

    \config                a key and a value on each line: version 1, ngram_size n, input_vocab_size and
                           output_vocab_size (or vocab_size for both), input_embedding_dimension D, num_hidden H,
                           output_embedding_dimension E, activation_function (rectifier if there is none)
    \input_vocab           a word per line; \vocab: of both sides
    \output_vocab
    \input_embeddings      a row of D numbers for each input word, apart by blanks or tabs, as in all matrices
    \hidden_weights 1      H rows of (n - 1) D numbers, the oldest word of the context first
    \hidden_biases 1       H numbers, one per line; a file without biases has zeros
    \hidden_weights 2      E rows of H numbers
    \hidden_biases 2       E numbers
    \output_weights        a row of E numbers for each output word
    \output_biases         a number for each output word

With num_hidden 0 there is one hidden layer: \hidden_weights 1 has E rows, and \hidden_weights 2 is ignored. ``<unk>``
stands for every word that is not listed, ``<s>`` fills the context before a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import numpy as np

from sgdec.arrays import Floats
from sgdec.errors import SgdecError
from sgdec.io.limits import whole_number
from sgdec.io.writing import whole_file
from sgdec.text.lines import read_lines

Matrix = Floats

Activation = Literal["rectifier", "tanh", "hardtanh", "identity"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
NUMBERS = ("ngram_size", "input_vocab_size", "output_vocab_size", "input_embedding_dimension", "num_hidden",
           "output_embedding_dimension")  # fmt: skip
WORDS = ("\\vocab", "\\input_vocab", "\\output_vocab")
SECTIONS = ("\\config", *WORDS, "\\input_embeddings", "\\hidden_weights 1", "\\hidden_biases 1", "\\hidden_weights 2",
            "\\hidden_biases 2", "\\output_weights", "\\output_biases")  # fmt: skip


class StoredLayer(NamedTuple):
    """One hidden layer."""

    weights: Matrix
    """``[outputs, inputs]``"""
    biases: Matrix
    """``[outputs]``"""


@dataclass(frozen=True)
class NplmFile:
    """The content of a model file."""

    order: int
    """n"""
    activation: Activation
    input_words: list[str]
    output_words: list[str]
    input_embeddings: Matrix
    """``[input words, D]``"""
    hidden: list[StoredLayer]
    """One or two hidden layers."""
    output_weights: Matrix
    """``[output words, E]``"""
    output_biases: Matrix
    """``[output words]``"""


def read_nplm(path: str | Path) -> NplmFile:
    """Read a model file; a name that ends in ``.gz`` is unpacked.

    Raises `SgdecError`, naming the line, if the file cannot be read, is not a model file, ends early, or has sections
    that do not fit its ``\\config``.
    """
    return _Reader(str(path)).read()


def write_nplm(path: str | Path, model: NplmFile) -> None:
    """Write a model file without rounding numbers. Raises SgdecError if it cannot be written."""
    first, *second = model.hidden
    config = {
        "version": 1,
        "ngram_size": model.order,
        "input_vocab_size": len(model.input_words),
        "output_vocab_size": len(model.output_words),
        "input_embedding_dimension": model.input_embeddings.shape[1],
        "num_hidden": len(first.biases) if second else 0,
        "output_embedding_dimension": model.output_weights.shape[1],
        "activation_function": model.activation,
    }
    upper = second[0] if second else StoredLayer(np.zeros((1, 1)), np.zeros(1))  # NPLM also writes unused layers
    sections = {
        "config": [f"{key} {value}" for key, value in config.items()],
        "input_vocab": model.input_words,
        "output_vocab": model.output_words,
        "input_embeddings": _rows(model.input_embeddings),
        "hidden_weights 1": _rows(first.weights),
        "hidden_biases 1": _rows(first.biases[:, None]),
        "hidden_weights 2": _rows(upper.weights),
        "hidden_biases 2": _rows(upper.biases[:, None]),
        "output_weights": _rows(model.output_weights),
        "output_biases": _rows(model.output_biases[:, None]),
    }
    with whole_file(path) as file:
        for name, lines in sections.items():
            file.writelines(f"{line}\n".encode() for line in chain([f"\\{name}"], lines, [""]))
        file.write(b"\\end\n")


def _rows(matrix: Matrix) -> Iterator[str]:
    return ("\t".join(map(repr, row)) for row in matrix.tolist())


class _Section(NamedTuple):
    """The lines of a section, and the line number of its name."""

    start: int
    lines: list[str]


class _Reader:
    """Splits a file into sections and parses each of them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.sections = self._split()
        self.config = self._config()

    def read(self) -> NplmFile:
        size = self.config
        first = size["num_hidden"] or size["output_embedding_dimension"]
        layers = [(1, first, (size["ngram_size"] - 1) * size["input_embedding_dimension"])]
        if size["num_hidden"]:
            layers.append((2, size["output_embedding_dimension"], first))
        return NplmFile(
            order=size["ngram_size"],
            activation=self.activation,
            input_words=self._words("input"),
            output_words=self._words("output"),
            input_embeddings=self._matrix(
                "\\input_embeddings", size["input_vocab_size"], size["input_embedding_dimension"]
            ),
            hidden=[
                StoredLayer(
                    self._matrix(f"\\hidden_weights {n}", rows, columns),
                    self._vector(f"\\hidden_biases {n}", rows, optional=True),
                )
                for n, rows, columns in layers
            ],
            output_weights=self._matrix(
                "\\output_weights", size["output_vocab_size"], size["output_embedding_dimension"]
            ),
            output_biases=self._vector("\\output_biases", size["output_vocab_size"]),
        )

    def _split(self) -> dict[str, _Section]:
        sections: dict[str, _Section] = {}
        current: _Section | None = None
        for number, raw in enumerate(read_lines(self.path), 1):
            line = raw.strip(" \t\r")
            if number == 1 and line != "\\config":
                raise self._error(1, "this is not a model file of NPLM; expected \\config")
            if current is not None:
                if line:
                    current.lines.append(line)
                else:
                    current = None
            elif line == "\\end":
                return sections
            elif line in SECTIONS:
                if line in sections:
                    raise self._error(number, f"the section {line} is here twice")
                current = sections[line] = _Section(number, [])
            elif line:
                raise self._error(number, f"expected a section such as \\output_weights, found {line[:40]!r}")
        raise SgdecError(f"{self.path}: the file is cut short: \\end is missing. Copy it again.")

    def _config(self) -> dict[str, int]:
        section = self.sections["\\config"]
        given: dict[str, str] = {}
        for number, line in enumerate(section.lines, section.start + 1):
            key, _, value = line.replace("\t", " ").partition(" ")
            given[key] = value.strip()
            if key in (*NUMBERS, "version", "vocab_size") and whole_number(value.strip()) is None:
                raise self._error(number, f"expected a whole number after {key}, found {value!r}")
            if key == "version" and value.strip() != "1":
                raise self._error(number, f"this is version {value} of the format, expected 1")
            if key == "activation_function" and value not in ACTIVATIONS:
                raise self._error(number, f"activation_function {value!r}, expected one of {', '.join(ACTIVATIONS)}")
        self.activation = cast(Activation, given.get("activation_function", ACTIVATIONS[0]))
        if "vocab_size" in given:
            given = {"input_vocab_size": given["vocab_size"], "output_vocab_size": given["vocab_size"], **given}
        sizes = {}
        for key in NUMBERS:
            smallest = {"ngram_size": 2, "num_hidden": 0}.get(key, 1)
            if key not in given:
                raise self._error(section.start, f"\\config does not say {key}")
            sizes[key] = int(given[key])
            if sizes[key] < smallest:
                raise self._error(section.start, f"{key} is {sizes[key]}, expected {smallest} at least")
        return sizes

    def _words(self, side: str) -> list[str]:
        name = f"\\{side}_vocab" if f"\\{side}_vocab" in self.sections else "\\vocab"
        start, words = self._section(name)
        self._require_lines(name, self.config[f"{side}_vocab_size"])
        places = {word: i for i, word in enumerate(words)}
        if len(places) < len(words):
            twice = next(word for i, word in enumerate(words) if places[word] != i)
            raise self._error(start + 1 + places[twice], f"the word {twice!r} is listed twice")
        return words

    def _vector(self, name: str, rows: int, *, optional: bool = False) -> Matrix:
        if optional and name not in self.sections:
            return np.zeros(rows)
        return self._matrix(name, rows, 1)[:, 0]

    def _matrix(self, name: str, rows: int, columns: int) -> Matrix:
        start, lines = self._section(name)
        self._require_lines(name, rows)
        found = []
        for row, line in enumerate(lines):
            fields = line.split()
            if len(fields) != columns:
                raise self._error(start + 1 + row, f"{name} has {columns} numbers per line, but {len(fields)} here")
            try:
                found.append(np.array(fields, dtype=np.float64))
            except ValueError:
                raise self._error(start + 1 + row, f"expected numbers, found {line[:40]!r}") from None
        matrix = np.stack(found)
        if not np.isfinite(matrix).all():
            row = int(np.flatnonzero(~np.isfinite(matrix).all(1))[0])
            raise self._error(start + 1 + row, f"{name} holds NaN or infinite numbers")
        return matrix

    def _section(self, name: str) -> _Section:
        if name not in self.sections:
            raise SgdecError(f"{self.path}: the section {name} is missing. Copy the file again.")
        return self.sections[name]

    def _require_lines(self, name: str, rows: int) -> None:
        start, lines = self._section(name)
        if len(lines) != rows:
            raise self._error(start, f"{name} has {len(lines)} lines, expected {rows} as \\config says")

    def _error(self, line: int, what: str) -> SgdecError:
        return SgdecError(f"{self.path}: line {line}: {what}.")

"""A covering grammar: for each English number a lattice of German candidates that includes the correct one.

A covering grammar has little knowledge, but this knowledge is certain (Gorman and Sproat 2016, "Minimally supervised
number normalization"; Zhang et al. 2019, "Neural models of text normalization for speech applications", section 5.4,
which uses one to prevent gross errors of a neural model). This grammar defines

- the translations of each word: *two* is *zwei*, *one* is *ein* or *eins*; no word is omitted or added;
- that two adjacent words may be swapped (each word at most once);
- that *und* may be inserted between any two words.

It does not define which words are swapped, where *und* is inserted, or when *one* is *eins*. For *four hundred twenty
one* it accepts 80 candidates, all with equal weight. The neural model chooses among them, and cannot make errors in
the digits.

The grammar is a transducer over letters, followed by one over pieces: the composition of a sentence with both is its
lattice. No piece crosses a word boundary, so the pieces of a word are the same in every sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from sgdec.context import BOS, EOS, Vocabulary
from sgdec.demo.corpus import ONES, SIZES, TENS
from sgdec.errors import SgdecError
from sgdec.io.writing import write_whole
from sgdec.text.lines import read_lines

LEXICON: dict[str, tuple[str, ...]] = {
    **{english: (german,) for english, german in (ONES | TENS | SIZES).items()},
    "one": ("ein", "eins"),
}
"""The possible translations of each English word."""
LINK = "und"


class CoveringGrammar:
    """The grammar over the pieces of one vocabulary; compiled once, in a fraction of a second."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        import pynini

        self._pynini = pynini
        word = {english: pynini.union(*map(_spaced, germans)) for english, germans in LEXICON.items()}
        link = pynini.accep(_spaced(LINK)).ques
        insert_link = pynini.cross("", link)
        kept = [pynini.cross(_spaced(a), word[a]) for a in LEXICON]
        exchanged = [
            pynini.cross(_spaced(a) + _spaced(b), word[b] + link + word[a]) for a, b in product(LEXICON, repeat=2)
        ]
        group = pynini.union(*kept, *exchanged).optimize()  # then all takes a quarter of the time
        german = {LINK, *(german for germans in LEXICON.values() for german in germans)}
        pieces = pynini.union(*(pynini.cross(_spaced(w), _labels(vocabulary.encode(w))) for w in german))
        self._words = (group + (insert_link + group).star).optimize()  # English to German
        self._pieces = pieces.star.optimize()  # German to its tokens

    def lattice(self, line: str) -> Any:
        """All candidates for a line: a deterministic, minimal pynini acceptor, ``<s>`` tokens ``</s>``, no weights.

        Raises `SgdecError` for a line that the grammar does not cover.
        """
        pynini = self._pynini
        letters = pynini.escape("".join(map(_spaced, line.split())))
        candidates = pynini.project(letters @ self._words @ self._pieces, "output")
        if candidates.start() < 0:
            raise SgdecError(f"{line!r}: the demo's grammar knows number words below a million only.")
        framed = pynini.accep(_labels([BOS])) + candidates + pynini.accep(_labels([EOS]))
        return pynini.determinize(pynini.rmepsilon(framed)).minimize()


def count_candidates(lattice: Any) -> int:
    """The number of token sequences that a deterministic, acyclic lattice accepts."""
    import pynini

    logs = pynini.shortestdistance(pynini.arcmap(lattice, map_type="to_log64"), reverse=True)
    return round(math.exp(-float(logs[lattice.start()])))


def write_lattices(vocabulary: Vocabulary, text: Path, pattern: str) -> Iterator[int]:
    """Write the lattice of each line to ``pattern``, where ``{id}`` is the line number; yield the number of its
    candidates.

    Raises `SgdecError` that names the line or the file with the error.
    """
    grammar = CoveringGrammar(vocabulary)
    for number, line in enumerate(read_lines(text), 1):
        try:
            lattice = grammar.lattice(line)
        except SgdecError as error:
            raise SgdecError(f"{text}: line {number}: {error}") from None
        path = Path(pattern.replace("{id}", str(number)))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SgdecError(f"{path}: cannot be written ({error.strerror}).") from None
        write_whole(path, lattice.write_to_string(), durable=False)
        yield count_candidates(lattice)


def _spaced(word: str) -> str:
    """The word with a space after it, which marks its end."""
    return word + " "


def _labels(tokens: Any) -> str:
    """Tokens in pynini's notation for labels: ``[5][7]``."""
    return "".join(f"[{token}]" for token in tokens)

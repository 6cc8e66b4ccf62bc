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

The lattice of a line is the minimal acceptor of its candidates. No piece crosses a word boundary, so the pieces of a
word are the same in every line.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path

from sgdec.context import BOS, EOS, Vocabulary
from sgdec.demo.acceptor import END, Acceptor, Tokens, minimal_acceptor
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
    """The grammar over the pieces of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._translations = {
            english: [tuple(vocabulary.encode(german)) for german in germans] for english, germans in LEXICON.items()
        }
        self._link = tuple(vocabulary.encode(LINK))

    def lattice(self, line: str) -> Acceptor:
        """All candidates for a line, as ``<s>`` tokens ``</s>``.

        Raises `SgdecError` for a line that the grammar does not cover.
        """
        words = line.split()
        if not words or not all(word in LEXICON for word in words):
            raise SgdecError(f"{line!r}: the demo's grammar knows number words below a million only.")

        def leads(place: Hashable) -> Iterator[tuple[Tokens, Hashable]]:
            match place:
                case "start":
                    yield (BOS,), ("word", 0)
                case "word", int(at):
                    for translation in self._translations[words[at]]:
                        yield translation, ("after", at + 1)
                    if at + 1 < len(words):
                        for translation in self._translations[words[at + 1]]:
                            yield translation, ("swapped", at)
                case "swapped", int(at):
                    for link in ((), self._link):
                        for translation in self._translations[words[at]]:
                            yield link + translation, ("after", at + 2)
                case "after", int(at) if at < len(words):
                    for link in ((), self._link):
                        yield link, ("word", at)
                case _:
                    yield (EOS,), END

        return minimal_acceptor("start", leads)


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
        write_whole(path, lattice.openfst(), durable=False)
        yield lattice.count()


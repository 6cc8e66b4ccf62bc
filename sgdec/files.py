"""Reading and writing files: lines of text, file formats, numbers in files, and how large all of them may be."""

from __future__ import annotations

from sgdec.io.arpa import LN_10, Arpa, NGrams, read_arpa
from sgdec.io.documents import parse_json, read_document
from sgdec.io.entries import read_entries, read_ids
from sgdec.io.lattice import Lattice, Lattices, read_lattice, read_lattices, require_ends
from sgdec.io.lengths import read_length_scores, read_length_weights
from sgdec.io.limits import DOCUMENT, TOKENS, VOCABULARY, real_number, whole_number
from sgdec.io.nbest import SEPARATOR, NbestEntry, parse_entry, parse_id
from sgdec.io.ngrams import Ngram, read_ngrams
from sgdec.io.nplm import Activation, NplmFile, read_nplm
from sgdec.io.openfst import SYMBOLS_MAGIC, LatticeError
from sgdec.io.openfst_writing import write_openfst
from sgdec.io.symbols import misnumbered
from sgdec.io.transducer import EPSILON, OTHERWISE, UNK_LABEL, Transducer, read_transducer
from sgdec.io.trie import Trie, build_trie, fingerprint_of, is_trie, open_trie
from sgdec.io.writing import write_whole
from sgdec.text.lines import read_lines, reading

__all__ = [
    "DOCUMENT",
    "EPSILON",
    "LN_10",
    "OTHERWISE",
    "SEPARATOR",
    "SYMBOLS_MAGIC",
    "TOKENS",
    "UNK_LABEL",
    "VOCABULARY",
    "Activation",
    "Arpa",
    "Lattice",
    "LatticeError",
    "Lattices",
    "NGrams",
    "NbestEntry",
    "Ngram",
    "NplmFile",
    "Transducer",
    "Trie",
    "build_trie",
    "fingerprint_of",
    "is_trie",
    "misnumbered",
    "open_trie",
    "parse_entry",
    "parse_id",
    "parse_json",
    "read_arpa",
    "read_document",
    "read_entries",
    "read_ids",
    "read_lattice",
    "read_lattices",
    "read_length_scores",
    "read_length_weights",
    "read_lines",
    "read_ngrams",
    "read_nplm",
    "read_transducer",
    "reading",
    "real_number",
    "require_ends",
    "whole_number",
    "write_openfst",
    "write_whole",
]

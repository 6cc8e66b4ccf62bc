"""Maps tokens to the words of an n-gram model, and checks that model and vocabulary share entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from sgdec import BOS, EOS, Context, SgdecError, UsageError
from sgdec.files import SYMBOLS_MAGIC, misnumbered, read_lines, reading, whole_number
from sgdec_predictors.ngrams.backoff import END, START, UNKNOWN

SPECIAL = (UNKNOWN, START, END)
MAX_ID = 1_000_000
"""The number of ids looked up in a KenLM binary to find the first one, if V is unknown."""


def spelling(words: str, context: Context) -> tuple[Callable[[int], str], Sequence[int]]:
    """The model's word for a token, and the tokens that have a word, according to ``words``."""
    word_of: dict[int, str] = {}
    if words == "pieces":
        vocabulary = context.vocabularies.target
        if vocabulary is None:
            raise UsageError(
                "words = pieces needs a target vocabulary, and this run has none: add a model that has one, "
                "or set words to a file with 'word id' on each line."
            )
        word_of = {token: vocabulary.piece(token) for token in range(vocabulary.size)}
    elif words != "ids":
        word_of = _read_word_map(words)
    name = str if words == "ids" else word_of.get
    special = {BOS: START, EOS: END}

    def spell(token: int) -> str:
        return special.get(token) or name(token) or UNKNOWN

    return spell, list(word_of)


def _read_word_map(path: str) -> dict[int, str]:
    """Read a file with a word and its token on each line, such as a symbol table of OpenFst.

    Raises SgdecError for other lines, and for a table that gives ``<s>``, ``</s>``, 1 or 2 another meaning.
    """
    if _is_binary_table(path):
        raise SgdecError(
            f"{path}: this is a binary symbol table. Write it as text, for example with pynini: "
            "SymbolTable.read(binary).write_text(text)."
        )
    words: dict[int, str] = {}
    for number, line in enumerate(list(read_lines(path)), 1):
        if not line.strip():
            continue
        word, _, token = line.replace("\t", " ").strip(" ").rpartition(" ")
        if not word or not ids_among([token]):
            raise SgdecError(f"{path}: line {number}: expected 'word id', not {line!r}.")
        if words.setdefault(int(token), word) != word:
            raise SgdecError(f"{path}: line {number}: token {token} is already {words[int(token)]!r}.")
    departure = misnumbered(words)
    if departure:
        raise SgdecError(
            f"{path}: {departure}. In all files of token ids 1 is <s>, 2 is </s>, and words begin at 3. Number the "
            "lattices and this file alike."
        )
    return words


def _is_binary_table(path: str) -> bool:
    with reading(path), open(path, "rb") as file:
        return file.read(4) == SYMBOLS_MAGIC.to_bytes(4, "little")


def unlisted(wanted: Sequence[str], lists: Callable[[str], bool]) -> str | None:
    """Return what to tell the user about words that the model does not list; None if it lists all of them."""
    missing = [word for word in wanted if not lists(word)]
    if not missing:
        return None
    examples = ", ".join(map(repr, missing[:3])) + ", ..." * (len(missing) > 3)
    return f"{len(missing):,} of {len(wanted):,} words are not in the model and score as {UNKNOWN}: {examples}"


def vocabulary_size(context: Context) -> int | None:
    """V, if it is known."""
    vocabulary = context.vocabularies.target
    return context.vocab_size if context.vocab_size is not None or vocabulary is None else vocabulary.size


def ids_among(words: Iterable[str]) -> list[int]:
    return [token for token in map(whole_number, words) if token is not None]


def require_overlap(
    path: str, words: str, wanted: Iterable[str], lists: Callable[[str], bool], model_words: Sequence[str] = ()
) -> None:
    """Raises UsageError if the model lists no word of the vocabulary, or if ids are expected and its words are not
    ids.

    A model over text lists a few numbers too, so most words of a model over ids must be ids.
    """
    seen = list(islice((word for word in wanted if word not in SPECIAL), MAX_ID))
    ids_are_rare = words == "ids" and len(model_words) > 2 * (len(ids_among(model_words)) + len(SPECIAL))
    if ids_are_rare or not any(map(lists, seen)):
        looked_for = f"token ids such as {seen[-1]!r}" if words == "ids" and seen else ", ".join(map(repr, seen[:3]))
        theirs = [word for word in model_words if word not in SPECIAL and not word.isdecimal()][:3]
        has = f"; it lists {', '.join(map(repr, theirs))}, ..." if theirs else ""
        raise UsageError(
            f"{path}: this model shares no entry with the target vocabulary. Looked for {looked_for or 'token ids'} "
            f"(words = {words}){has}. Set its option words (--ngram.words) to ids, pieces, "
            "or a file with 'word id' on each line."
        )

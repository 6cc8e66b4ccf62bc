"""The sentences to diagnose: sources with their references, and with the outputs of other runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sgdec.context import BOS, EOS, Vocabularies
from sgdec.errors import SgdecError, UsageError, counted
from sgdec.io.limits import whole_number
from sgdec.protocol import Source
from sgdec.search.outcome import Unreadable
from sgdec.tasks.scoring import ScoringPair, encoded


@dataclass(frozen=True)
class Case:
    """One sentence."""

    source: Source | Unreadable
    reference: tuple[int, ...] | SgdecError
    """Its tokens, without ``</s>``; or why there are none."""
    reference_text: str
    witnesses: tuple[tuple[str, tuple[int, ...] | SgdecError], ...] = ()
    """Outputs of other runs, each with the name of its run."""
    is_text: bool = True
    """Whether ``reference_text`` is text; otherwise it is token ids."""


def cases(
    sources: Iterable[Source | Unreadable],
    references: Sequence[str],
    witnesses: Mapping[str, Sequence[Sequence[str]]],
    vocabularies: Vocabularies,
    vocab_size: int | None = None,
    *,
    text: bool,
    names: tuple[str, str] = ("the input", "the reference"),
) -> Iterator[Case]:
    """``references``: one line for each source; ``witnesses``: by name of a run its outputs of each source.

    ``text``: lines are text; otherwise token ids. ``names`` of the two files, for messages. Raises UsageError for
    text without a target vocabulary; SgdecError if the numbers of lines differ, or if a word is not a token id.
    """
    if text and vocabularies.target is None:
        raise UsageError(
            "no predictor brings a target vocabulary, so references cannot be read as text; give --tokenizer FILE, "
            "or token ids with --input-format ids."
        )
    sentences = list(sources)
    if not sentences:
        raise SgdecError(f"{names[0]}: there are no sentences.")
    counts = {names[1]: len(references)} | {name: len(outputs) for name, outputs in witnesses.items()}
    for name, count in counts.items():
        if count != len(sentences):
            raise SgdecError(
                f"{names[0]} has {counted(len(sentences), 'sentence')} but {name} has {count}. Line N of one must "
                "belong to line N of the other."
            )

    def read(line: str, source: Source | Unreadable, where: str) -> tuple[int, ...] | SgdecError:
        if text:
            return _encoded(line, source, vocabularies)
        return tuple(_token(word, vocab_size, where) for word in line.split())

    for place, (source, reference) in enumerate(zip(sentences, references, strict=True)):
        others = [
            (name, read(line, source, f"{name}: sentence {place + 1}"))
            for name, outputs in witnesses.items()
            for line in outputs[place]
        ]
        tokens = read(reference, source, f"{names[1]}: line {place + 1}")
        yield Case(source, tokens, reference, tuple(others), text)


def pair_of(source: Source, tokens: tuple[int, ...]) -> ScoringPair:
    """A source with an output to be scored. Its length limit is raised if the output is longer."""
    limit = source.max_length
    return ScoringPair(
        source.id, source.tokens, source.text, None if limit is None else max(limit, len(tokens)), tokens
    )


def _encoded(line: str, source: Source | Unreadable, vocabularies: Vocabularies) -> tuple[int, ...] | SgdecError:
    if isinstance(source, Unreadable):
        return SgdecError("the source could not be read.")
    assert vocabularies.target is not None
    try:
        return encoded(line, vocabularies.target, source, vocabularies.source)
    except SgdecError as error:
        return error


def _token(word: str, vocab_size: int | None, where: str) -> int:
    token = whole_number(word)
    if token is None or token in (BOS, EOS):
        given = repr(word) if len(word) <= 40 else f"{word[:20]!r}... ({len(word)} characters)"
        raise SgdecError(f"{where}: {given} is not a token id of an output; for text use --input-format text.")
    if vocab_size is not None and token >= vocab_size:
        raise SgdecError(f"{where}: token {token} is outside the vocabulary of {counted(vocab_size, 'token')}.")
    return token

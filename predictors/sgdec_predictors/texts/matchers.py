"""The tokens that can follow a prefix if its text has to be in the language of a grammar (llguidance).

llguidance knows one byte string for each token, but what a token spells depends on what is before it
(`sgdec_predictors.texts.spelling`). So each state of the spelling has a tokenizer of its own, made when it is first
needed. Each has 256 tokens more, one for each byte, so a matcher can read any text. The matcher of a prefix is a copy
of that of an earlier prefix in the same state; the copy reads the bytes between them.

Moskal et al., "llguidance: Making Structured Outputs Go Brrr" (2025), describe how masks are computed: a lexer of
derivatives of regular expressions, an Earley parser, and a trie of all tokens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.scores import SparseRow
from sgdec_predictors.texts.grammars import LESS_WORK, Grammar, first_line
from sgdec_predictors.texts.masks import MaskRows
from sgdec_predictors.texts.spelling import Spelling

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

log = logging.getLogger("sgdec.predictors.grammar")

BYTES = 256
"""The tokens of single bytes come first, so that the bits of all others begin at byte 32 of a mask."""
FIRST_BYTE = BYTES // 8
LIMITS = {
    "max_items_in_row": 2000, "initial_lexer_fuel": 1_000_000, "step_lexer_fuel": 200_000, "step_max_items": 50_000,
    "max_lexer_states": 250_000, "max_grammar_size": 500_000,
}  # fmt: skip
"""llguidance's limits on the work for one grammar and for one token."""
STACK = 1 << 29
"""The bytes of the stack on which a grammar of `sgdec_predictors.texts.grammars.MOST` characters is compiled. They
are reserved; only what is needed of them takes memory."""
NO_ROW = SparseRow([], [])
"""The row of a text that begins no text of the language."""
TRIED = 64
"""The number of prefixes that are looked at to find that no text can be spelled."""
SHOWN = 8
"""The number of characters that a message has."""
OTHER_CHARACTERS = "Give another tokenizer, or a grammar without them."
DEAD_END = "NoExtensionBias"
"""The error of a matcher whose text no byte can continue; all others are exceeded limits."""


class Tokens:
    """The tokens of a run as llguidance knows them."""

    def __init__(self, spelling: Spelling, vocab_size: int, effort: float = 1.0) -> None:
        """``vocab_size``: V, at least that of the spelling; ``effort``: llguidance's limits are multiplied by it.

        Raises SgdecError if llguidance is not installed.
        """
        try:
            import llguidance
        except ImportError as error:
            raise SgdecError(f'grammars need llguidance: {error} (pip install "sgdec[constraints]").') from None
        self._llguidance = llguidance
        self.spelling = spelling
        self.vocab_size = vocab_size
        self.rows = MaskRows(vocab_size, FIRST_BYTE)
        limits: dict[str, Any] = {name: int(limit * effort) for name, limit in LIMITS.items()}
        limits["verbose_errors"] = False
        self.limits = llguidance.LLParserLimits(**limits)
        self._tokenizers: dict[int, LLTokenizer] = {}
        after = [set(states.tolist()) for states in spelling.after]
        self.stays = [reached == {state} for state, reached in enumerate(after)]
        """``[S]``: whether a state of the spelling is never left."""
        self.silent = [_silent(pieces) for pieces in spelling.adds]
        """``[S]``: the mask of the tokens that add nothing to the text; None = there are none."""
        self.warned: set[str] = set()
        """The characters of warnings that were given."""

    def matcher(self, grammar: Grammar, state: int) -> LLMatcher:
        """The matcher of the empty text, for tokens in this state. Raises SgdecError if the grammar is wrong."""
        found = _with_a_large_stack(
            partial(
                self._llguidance.LLMatcher,
                self._tokenizer(state),
                self._llguidance.LLMatcher.grammar_from_lark(grammar.lark),
                log_level=0,
                limits=self.limits,
            )
        )
        if found.is_error():
            raise grammar.error(found.get_error())
        return found

    def _tokenizer(self, state: int) -> LLTokenizer:
        if state not in self._tokenizers:
            wrapped = self._llguidance.TokenizerWrapper(_Pieces(self.spelling.adds[state]))
            self._tokenizers[state] = self._llguidance.LLTokenizer(
                wrapped, n_vocab=BYTES + self.vocab_size, eos_token=BYTES + EOS
            )
        return self._tokenizers[state]


def _with_a_large_stack(make: Callable[[], LLMatcher]) -> LLMatcher:
    """The result of ``make`` in a thread of its own: a long chain of rules would end this process otherwise."""
    before = threading.stack_size(STACK)
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(make).result()
    finally:
        threading.stack_size(before)


class _Pieces:
    """The tokens of one state, as `llguidance.TokenizerWrapper` reads them: single bytes, and the vocabulary.

    A token without text is empty, and llguidance never allows it. The byte 0xFF is in no text; llguidance marks
    special tokens by it.
    """

    bos_token_id = None
    eos_token_id = BYTES + EOS
    special_token_ids = (BYTES + EOS,)

    def __init__(self, pieces: Sequence[bytes | None]) -> None:
        texts = [piece if piece and b"\xff" not in piece else b"" for piece in pieces]
        texts[EOS] = b"</s>"
        self.tokens = [*(bytes([byte]) for byte in range(BYTES - 1)), b"", *texts]

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def _bits(mask: bytes) -> list[int]:
    """The numbers of the bits that are set."""
    numbers: list[int] = np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")).tolist()
    return numbers


def _listed(characters: Sequence[str]) -> str:
    """The first of these in quotes: ``'a', 'b', ...``."""
    return ", ".join([*map(repr, characters[:SHOWN]), *(["..."] if len(characters) > SHOWN else [])])


def _rank(character: str) -> tuple[bool, str]:
    """The order of characters in a message: blanks, which a schema allows nearly everywhere, come last."""
    return character.isspace(), character


def _silent(pieces: Sequence[bytes | None]) -> int | None:
    bits = np.array([piece == b"" for piece in pieces])
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little") if bits.any() else None


class Language:
    """The texts of one grammar, for the tokens of a run."""

    def __init__(self, tokens: Tokens, grammar: Grammar) -> None:
        """Raises SgdecError if the grammar is wrong, or allows no text."""
        self.tokens = tokens
        self.grammar = grammar
        self._roots: dict[int, LLMatcher] = {}
        self.empty = MatchedPrefix(self, b"", 0)
        """The empty prefix; all sentences with this language can share it."""
        for warning in grammar.warnings(self.root(0).get_grammar_warnings()):
            log.warning("grammar: %s: %s", grammar.path, warning)
        if self.empty.mask() is None:
            raise SgdecError(f"{grammar.path}: allows no text. Expected a grammar of at least one text.")
        self._check_alphabet()

    def _check_alphabet(self) -> None:
        """Raises SgdecError if the vocabulary spells no text of the language, and warns of literals' characters that
        it does not spell. The first is found only if a few prefixes show it."""
        dead_ends = self._dead_ends()
        following = sorted({character for prefix in dead_ends for character in prefix.next_characters()}, key=_rank)
        if following:
            text = (dead_ends[0].text or b"").decode(errors="replace")
            raise SgdecError(
                f"{self.grammar.path}: the target vocabulary spells no text of this grammar: no token continues "
                f"its texts with {_listed(following)} (first after {text!r}). {OTHER_CHARACTERS}"
            )
        lacking = _listed(self.tokens.spelling.lacks(self.grammar.literals))
        if lacking and lacking not in self.tokens.warned:
            self.tokens.warned.add(lacking)
            log.warning(
                "grammar: %s: no token of the target vocabulary has %s: texts with such characters are never "
                "allowed. %s",
                self.grammar.path, lacking, OTHER_CHARACTERS,
            )  # fmt: skip

    def _dead_ends(self) -> list[MatchedPrefix]:
        """The prefixes that no token can follow, if all others lead to them; empty if `TRIED` ones do not show it."""
        waiting, found = [self.empty], list[MatchedPrefix]()
        for _ in range(TRIED):
            if not waiting:
                break
            prefix = waiting.pop()
            try:
                row = prefix.row()
            except SgdecError:  # the search says so, if it comes there
                return []
            if row.default == 0.0 or row.get(EOS) == 0.0 or len(row) > TRIED:
                return []
            waiting += map(prefix.then, row.tokens)
            if not len(row):
                found.append(prefix)
        return [] if waiting else found

    def root(self, state: int) -> LLMatcher:
        """The matcher of the empty text for the tokens in this state."""
        if state not in self._roots:
            self._roots[state] = self.tokens.matcher(self.grammar, state)
        return self._roots[state]

    def fault(self, matcher: LLMatcher, text: bytes) -> SgdecError | None:
        """The error for a matcher that exceeded a limit; None if it has none, or no text can follow."""
        what = first_line(matcher.get_error())
        if not matcher.is_error() or what == DEAD_END:
            return None
        return SgdecError(
            f"{self.grammar.path}: {what} (after the text {text.decode(errors='replace')!r}). {LESS_WORK}"
        )


class MatchedPrefix:
    """A prefix of tokens with its text. Only what is derived from them is computed later, when it is first needed."""

    __slots__ = ("_before", "_language", "_matcher", "_row", "spelled", "text")

    def __init__(
        self, language: Language, text: bytes | None, spelled: int, before: MatchedPrefix | None = None
    ) -> None:
        """``text``: None if a token had no text; ``spelled``: the state of the spelling; ``before``: the prefix
        without the last token."""
        self._language = language
        self._before = before
        self._matcher: LLMatcher | None = None
        self._row: SparseRow | None = None
        self.text = text
        self.spelled = spelled

    @property
    def key(self) -> tuple[object, ...]:
        """Prefixes with equal keys have the same continuations."""
        return self._language, self.text, self.spelled

    def then(self, token: int) -> MatchedPrefix:
        """The prefix with one more token."""
        spelling = self._language.tokens.spelling
        piece = spelling.adds[self.spelled][token] if token < spelling.size else None
        if self.text is None or piece is None:
            return MatchedPrefix(self._language, None, self.spelled)
        return MatchedPrefix(self._language, self.text + piece, int(spelling.after[self.spelled, token]), self)

    def row(self) -> SparseRow:
        """The tokens that can follow score 0. Computed once, and shared by prefixes with equal masks."""
        if self._row is None:
            mask = self.mask()
            self._row = NO_ROW if mask is None else self._language.tokens.rows.of(mask)
        return self._row

    def mask(self) -> bytes | None:
        """The tokens that can follow, one bit each, from the byte `FIRST_BYTE` on; None if no text can follow.

        The bit of ``</s>`` says whether the text is in the language. Raises SgdecError if llguidance's limits are
        exceeded.
        """
        matcher = self._matcher or self._matched()
        if matcher is None:
            return None
        mask = matcher.compute_bitmask()
        if matcher.is_error():
            if error := self._language.fault(matcher, self.text or b""):
                raise error
            return None
        silent = self._language.tokens.silent[self.spelled]
        if silent is not None:
            mask = (int.from_bytes(mask, "little") | silent << BYTES).to_bytes(len(mask), "little")
        return mask

    def next_characters(self) -> list[str]:
        """Some of the characters that can be next, whatever the tokens are."""
        matcher = self._matched()
        found, waiting = list[str](), [] if matcher is None else [(matcher, b"")]
        for before, begun in waiting:  # grows
            for byte in _bits(before.compute_bitmask()[:FIRST_BYTE]):
                data = begun + bytes([byte])
                try:
                    found.append(data.decode())
                except UnicodeDecodeError:  # a part of a character
                    after = before.deep_copy()
                    after.try_consume_tokens([byte])
                    waiting.append((after, data))
            if len(waiting) > TRIED:
                break
        return found

    def _matched(self) -> LLMatcher | None:
        """The matcher that has read this text; None if the text is the beginning of no text in the language."""
        if self._matcher is not None or self.text is None:
            return self._matcher
        stays = self._language.tokens.stays
        before = self._before
        while before is not None and (before._matcher is None or before.spelled != self.spelled):
            before = before._before
        read = b"" if before is None or before.text is None else before.text
        earlier = before and before._matcher
        matcher = (earlier or self._language.root(self.spelled)).deep_copy()
        rest = list(self.text[len(read) :])
        if matcher.try_consume_tokens(rest) < len(rest):
            if error := self._language.fault(matcher, self.text):
                raise error
            return None
        self._matcher = matcher
        if stays[self.spelled]:
            self._before = None
        return matcher

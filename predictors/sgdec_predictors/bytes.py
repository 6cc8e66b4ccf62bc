r"""Wrapper: the probability of texts, byte by byte, from a predictor of tokens; lengths are counted in bytes.

The probability of a text is the sum over all token sequences that spell it. A sequence z *covers* a prefix of bytes x
if all its tokens but the last spell a part of x, and the last one reaches the end of x or goes beyond it (Vieira et
al. 2025, "From language models over tokens to language models over characters"). With P_inner(z) = prod P_inner(z_i |
z_1 ... z_i-1),

    P(x...)           = sum over z that cover x of P_inner(z)
    score of byte b   = log P(x b...) - log P(x...)
    score of </s>     = log sum over z that spell x of P_inner(z </s>) - log P(x...)

So the total of a text is the log of its probability, whatever its tokenisation, and each row is the distribution of
the next byte. The sum over a last token is a sum over a subtree of the trie of all tokens. Tokens are spelled as the
vocabulary decodes them (`sgdec_predictors.texts.spelling`): SentencePiece, byte-level BPE, WordPiece, words and their
characters. Several tokens may have the same bytes; each of them counts. ``<unk>``, padding and other marks never
belong to a text, so their probability is lost: a row adds up to 1 minus what the inner predictor gives to them. A
prompt that is written in bytes has no last token of its own: tokens may reach over its end.

The run's target vocabulary is `ByteVocabulary`, where token 3 + b is the byte b. So the length limit and the length
normalisation count bytes. A text may end inside a character; the predictor ``canonical`` beside this one allows only
outputs that are UTF-8.

With ``tokenisations canonical`` only sequences count that the tokenizer itself could write (`canonical`): the
probability of a text is that of its own tokenisation. Other sequences are left out as early as they are known: mostly
within a token or two for SentencePiece and for BPE of Hugging Face, at ``</s>`` for tokenizers whose steps before the
segmentation look ahead in other ways.

State: the elements (z, v) that cover the prefix, where z are complete tokens, and v is the node of the trie for the
bytes after them, with which the last token begins. Elements at a root of the trie are merged if the inner `state_key`
says that their futures are equal. Their number can grow exponentially. Elements at a root cost an inner row each;
``width`` K keeps the K most probable ones of them, and the 2 K most probable others. At equal probabilities the first
are kept. ``min_share`` drops elements at roots with less than this share of the prefix's probability. The best one of
them always remains, and any text can follow it: if each byte is a token, no text is forbidden because elements were
dropped, as it would be if all elements competed. The rest is lost, so totals are at most the exact ones. The end of
the run reports how much was lost. ``width 0`` keeps all elements, which is exact.

The inner scores must be log-probabilities: a row that adds up to more than 1 is an error. So no score is above 0,
which bounds exact searches. The predictor is not on demand, because a row of one candidate costs as much as a row of
all. Cost: an inner row of V scores for each element at a root, those of all prefixes of all sentences in one batch,
and their exponentials; for other elements only the scores in their subtree are read again. An element at a root keeps
its row of V scores. Relaxation: none, because a byte is not one inner token.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.arrays import Floats
from sgdec.context import Vocabularies, Vocabulary
from sgdec.protocol import FORBIDDEN, LENGTH_FACTOR, Candidates, LengthLimit, State, ability
from sgdec.vocabularies import SPECIAL, ByteVocabulary, load_sides, load_vocabulary
from sgdec_predictors.canonical import Canonical
from sgdec_predictors.spelled.covering import (
    BYTES,
    END,
    BytePrefix,
    Element,
    after_byte,
    ended,
    masses,
    rows_of,
)
from sgdec_predictors.spelled.trie import SpellingTrie
from sgdec_predictors.texts.spelling import Spelling
from sgdec_predictors.wrapping.inner_tokens import Inner, Translator
from sgdec_predictors.wrapping.own_sources import in_own_tokens

FIRST = len(SPECIAL)
"""The token of byte 0."""
ROUNDING = math.log(1.05)
"""The log of what a row of probabilities can add up to, if they were computed in 16 bits."""


class Bytes(Translator):
    """A predictor of the next byte.

    Tokens 3, 4 and 5 spell a, b and ab, so there are two ways to spell ab.

    >>> import math
    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> from sgdec.vocabularies import MixedVocabulary
    >>> inner = lift(Bonus({3: math.log(0.5), 4: math.log(0.1), 5: math.log(0.2), 2: math.log(0.2)}, -math.inf))
    >>> inner.vocabularies = Vocabularies(target=MixedVocabulary([*SPECIAL, "<M>a", "<M>b", "ab"]))
    >>> texts = Bytes(inner)
    >>> own, states, total = ByteVocabulary(), texts.initialize_batch([Source(1, ())]), 0.0
    >>> for token in (*own.encode("ab"), EOS):
    ...     total += texts.predict_batch(states).values[0, token]
    ...     states = texts.consume_batch(states, [token])
    >>> round(math.exp(total), 9)  # (0.5 x 0.1 + 0.2) x 0.2
    0.05
    """

    called: ClassVar[str] = "bytes"
    """Its name in messages."""

    def __init__(
        self,
        inner: BatchPredictor,
        width: Annotated[
            int, Field(ge=0, description="limit on the inner rows for a prefix; 0 = no limit, exact")
        ] = 4,
        min_share: Annotated[
            float, Field(ge=0, lt=1, description="share below which a sequence of complete tokens is dropped")
        ] = 0.0,
        tokenisations: Annotated[
            Literal["all", "canonical"],
            Field(description="token sequences that count: all that spell the text, or the tokenizer's own"),
        ] = "all",
        tokenizer: Annotated[
            str | None,
            Field(description="tokenizer of the inner predictor, if it brings none; the run's tokens are bytes"),
        ] = None,
        context: Context | None = None,
    ) -> None:
        """Raises UsageError without an inner vocabulary, SgdecError for one that does not spell texts."""
        super().__init__(inner)
        self.on_demand = False
        self.max_score = 0.0
        vocabulary = _vocabulary(self.called, inner.vocabularies.target, tokenizer)
        self.vocabularies = Vocabularies(inner.vocabularies.source, ByteVocabulary())
        self._run_source = context.vocabularies.source if context else None
        bare = inner.vocabularies.source is None and self._run_source is not None
        self._own_source = load_sides(tokenizer)[0] if bare and tokenizer is not None else None
        """The source vocabulary of an inner predictor that brings none, if the run has one."""
        self.trie = _trie_of(self.called, vocabulary)
        self._canonical = _canonical(self.called, vocabulary) if tokenisations == "canonical" else None
        tokens = np.unique(np.append(self.trie.tokens, EOS))
        self._inner = Inner(inner, self.called, int(tokens[-1]))
        self._asked = tokens.tolist() if inner.on_demand else [EOS]  # one question is enough for a full row
        self._size = vocabulary.size
        self._width = width
        self._least = math.log(min_share) if min_share else FORBIDDEN
        self._limits = f"width {width}" + (f" and min_share {min_share:g}" if min_share else "")
        self._lost, self._consumed = 0.0, 0
        self._key_of = None if self._canonical else ability(inner, "state_key")
        if self._key_of:
            self.state_key = self._state_key

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        """The inner source vocabulary, and that of bytes."""
        return Vocabularies(inner.source, ByteVocabulary())

    @classmethod
    def inner_context(cls, context: Context, tokenizer: str | None = None, **options: Any) -> Context:
        """The context with the target vocabulary of ``tokenizer``, or without one."""
        target = None if tokenizer is None else load_vocabulary(tokenizer)
        vocabularies = Vocabularies(context.vocabularies.source, target)
        return replace(context, vocabularies=vocabularies, vocab_size=target.size if target else None)

    def inner_states(self, states: Sequence[BytePrefix]) -> list[State]:
        """Those of all elements that follow from no other, prefix after prefix; an empty prefix has one."""
        return self._inner.states(each.inner for prefix in states for each in prefix.elements if not each.silent)

    def initialize_batch(self, sources: Sequence[Source]) -> list[BytePrefix]:
        own = in_own_tokens(sources, self._run_source, self._own_source)
        return [BytePrefix([Element(empty, 0, 0.0)]) for empty in self._inner.begin(own)]

    def predict_batch(
        self, states: Sequence[BytePrefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        """``[rows, 259]``. Raises SgdecError if inner scores are not log-probabilities."""
        self._read(states)
        rows = np.full((len(states), FIRST + BYTES), FORBIDDEN)
        for i, prefix in enumerate(states):
            assert prefix.row is not None
            rows[i, FIRST:], rows[i, EOS] = prefix.row[:BYTES], prefix.row[END]
        return Scores.dense(rows)

    def consume_batch(self, states: Sequence[BytePrefix], tokens: Sequence[int]) -> list[BytePrefix]:
        self._read(states)
        covers = [
            after_byte(self.trie, prefix.elements, token - FIRST, self._canonical is not None)
            if FIRST <= token < FIRST + BYTES
            else []
            for prefix, token in zip(states, tokens, strict=True)
        ]
        found = self.covered(covers)
        for prefix in found:
            if prefix.spare is not None:
                prefix.elements = [*prefix.elements, prefix.spare]  # any text can follow it
        return found

    def covered(self, covers: list[list[Element]]) -> list[BytePrefix]:
        """The prefixes that these elements cover: merged, the most probable ones, with relative weights."""
        covers = self._merged(covers)
        self._consumed += len(covers)
        return list(map(self._settled, covers, masses(covers)))

    def length_limit(self, source: Source) -> int:
        """The inner limit in bytes: that number of tokens of the vocabulary's mean length."""
        (own,) = in_own_tokens([source], self._run_source, self._own_source)
        tokens = cast(LengthLimit, self.inner).length_limit(own)
        return math.ceil(self.trie.mean_bytes * (LENGTH_FACTOR * len(own.tokens) if tokens is None else tokens))

    def best_remaining(self, states: Sequence[BytePrefix]) -> list[float]:
        """0, or -inf if no token sequence covers the prefix."""
        return [0.0 if prefix.elements else FORBIDDEN for prefix in states]

    def summary(self) -> str | None:
        """The line at the end of a run: how much of the probability was lost."""
        return self.said_of_lost(0.0, "bytes")

    def said_of_lost(self, more: float, what: str) -> str | None:
        """The line at the end of a run, if up to ``more`` was lost beside what was dropped here."""
        inner = getattr(self.inner, "summary", None)
        texts = [inner() if inner is not None else None]
        if self._lost + more:
            mean = f"{'at most ' if more else ''}{(self._lost + more) / self._consumed:.2g}"
            texts.append(
                f"{self._limits} dropped token sequences: a mean of {mean} of the probability was lost with each of "
                f"{self._consumed:,} {what}"
            )
        return "; ".join(filter(None, texts)) or None

    def _state_key(self, states: Sequence[BytePrefix]) -> list[Hashable]:
        """Elements with equal futures and equal scores."""
        assert self._key_of is not None
        keys = iter(self._key_of(self.inner_states(states)))
        return [
            frozenset(Counter((each.node, next(keys), each.weight) for each in elements).items())
            for elements in ([each for each in prefix.elements if not each.silent] for prefix in states)
        ]

    def _read(self, prefixes: Sequence[BytePrefix]) -> None:
        """Compute the rows of prefixes."""
        new = list(dict.fromkeys(prefix for prefix in prefixes if prefix.row is None))
        if not new:
            return
        covers, _ = self.read([prefix.elements for prefix in new])
        rows, inner = rows_of(self.trie, covers)
        self.require_probabilities(inner)
        for prefix, cover, row in zip(new, covers, rows, strict=True):
            prefix.elements = cover
            prefix.row = np.minimum(row, 0.0)  # sums of rounded probabilities can exceed 1

    def read(self, unread: Sequence[Sequence[Element]]) -> tuple[list[list[Element]], list[Element]]:
        """The elements that cover prefixes, all with values; and those that the inner predictor was asked for.

        It is asked in one batch about all elements at roots. A token without text leads from one root to another;
        those after it are one more batch.
        """
        asked: list[Element] = []
        covers = [[each for each in cover if each.values is not None] for cover in unread]
        waiting = []
        for i, cover in enumerate(unread):
            for each in cover:
                if each.known is not None:
                    covers[i] += each.shifted()
                elif each.values is None:
                    waiting.append((i, each))
        while waiting:
            self._inner.know((element.inner, token) for _, element in waiting for token in self._asked)
            after = []
            for i, element in waiting:
                silent, known = self._known(element)
                covers[i].append(known)
                asked.append(known)
                first = int(self.trie.first[element.node])
                for each in ended(self.trie, known, first, silent, self._canonical is not None):
                    each.silent = True
                    after.append((i, each))
            for _, element in waiting:
                element.inner.forget()
            waiting = after
        return covers, asked

    def require_probabilities(self, sums: Floats) -> None:
        """Raises SgdecError if one of these logs of what inner rows add up to is not that of a probability."""
        if (sums <= ROUNDING).all():
            return
        total = float(sums[~(sums <= ROUNDING)][0])
        what = f"{math.exp(min(total, 600.0)):.3g}" if math.isfinite(total) else "infinity or NaN"
        raise SgdecError(
            f"{self.called}: the inner scores are not log-probabilities: those of a row add up to {what}. Other "
            f"predictors go beside it; {self.called}:temperature:MODEL normalises the rows of a model."
        )

    def _known(self, element: Element) -> tuple[Floats, Element]:
        """The scores of tokens without text after an element at a root, and the element with all other scores."""
        trie, node = self.trie, element.node
        first, inside, last = int(trie.first[node]), int(trie.inside[node]), int(trie.last[node])
        tokens = trie.tokens[first:last]
        own, end = element.inner.values, element.inner.score(EOS)
        scores = element.inner.scores(tokens) if own is None else own.take(tokens)
        if self._canonical is not None:
            forbidden = np.zeros(self._size, bool)
            forbidden[list(self._canonical.row(element.tokens).tokens)] = True
            scores[forbidden[tokens]] = FORBIDDEN
            end = FORBIDDEN if forbidden[EOS] else end
        known = Element(element.inner, node, element.weight, scores[inside - first :], end, element.tokens)
        known.silent = element.silent
        return scores[: inside - first], known

    def _merged(self, covers: list[list[Element]]) -> list[list[Element]]:
        """Merges elements at one root whose inner states have the same future."""
        if self._key_of is None:
            return covers
        several = [
            (cover, roots) for cover in covers if len(roots := [each for each in cover if each.values is None]) > 1
        ]
        if not several:
            return covers
        keys = iter(self._key_of(self._inner.states(each.inner for _, roots in several for each in roots)))
        for cover, roots in several:
            met: dict[tuple[int, Hashable], Element] = {}
            for each in roots:
                same = met.setdefault((each.node, next(keys)), each)
                if same is not each:
                    same.weight = float(np.logaddexp(same.weight, each.weight))
                    cover.remove(each)
        return covers

    def _settled(self, cover: list[Element], mass: Floats) -> BytePrefix:
        """Makes weights relative to the probability of the prefix; keeps the most probable elements."""
        if not cover:
            return BytePrefix(())
        highest = float(mass.max())
        total = highest + math.log(float(np.exp(mass - highest).sum()))
        for element in cover:
            element.weight -= total
        kept = self._kept(cover, mass - total)
        if len(kept) == len(cover):
            return BytePrefix(cover, total)
        elements = [cover[i] for i in kept]
        dropped = np.delete(np.arange(len(cover)), kept).tolist()
        roots = [i for i in dropped if cover[i].values is None]
        spare = None
        if roots and not any(each.values is None for each in elements):
            best = max(roots, key=mass.item)
            dropped.remove(best)
            spare = cover[best]
        self._lost += float(np.exp(mass[dropped] - total).sum())
        return BytePrefix(elements, total, spare)

    def _kept(self, cover: Sequence[Element], shares: Floats) -> list[int]:
        """The places of the elements that are kept, of which ``shares`` are the logs of the shares.

        Elements inside of tokens cost no rows, so ``min_share`` is not about them.
        """
        order = np.argsort(-shares, kind="stable").tolist()
        roots = [i for i in order if cover[i].values is None and shares[i] >= self._least]
        others = [i for i in order if cover[i].values is not None]
        if self._width:
            roots, others = roots[: self._width], others[: 2 * self._width]
        return sorted(roots + others) or order[:1]


def _vocabulary(called: str, brought: Vocabulary | None, tokenizer: str | None) -> Vocabulary:
    """The inner vocabulary: ``brought`` by the inner predictor, or that of a file or folder."""
    if tokenizer is None:
        if brought is None:
            raise UsageError(
                f"{called}: the inner predictor has no vocabulary, which says how its tokens are spelled: give "
                f"--{called}.tokenizer FILE."
            )
        return brought
    given = load_vocabulary(tokenizer)
    if brought is not None and brought.fingerprint != given.fingerprint:
        raise UsageError(
            f"{called}: the inner predictor brings another vocabulary ({brought.size} tokens) than {tokenizer} "
            f"({given.size} tokens). Omit --{called}.tokenizer."
        )
    return given


def _trie_of(called: str, vocabulary: Vocabulary) -> SpellingTrie:
    """The trie of a vocabulary. Raises SgdecError if its tokens do not spell texts."""
    try:
        spelling = Spelling.of(vocabulary)
        trie = SpellingTrie(spelling)
    except SgdecError as error:
        raise SgdecError(f"{called}: {error} {_WAY_OUT}") from None
    words = _only_words(spelling)
    if words:
        raise SgdecError(
            f"{called}: the inner vocabulary has only whole words, such as {words[0].decode(errors='replace')!r}. "
            f"Any other word is <unk>, which spells no bytes. {_WAY_OUT}"
        )
    return trie


def _only_words(spelling: Spelling) -> list[bytes]:
    """The words of a vocabulary whose tokens never continue a word; empty for any other."""
    begun = {
        int(spelling.after[state, token])
        for state, pieces in enumerate(spelling.adds)
        for token, piece in enumerate(pieces)
        if piece
    }
    following = [piece for state in begun for piece in spelling.adds[state] if piece]
    words = [piece.strip(b" ") for piece in following if piece.startswith(b" ")]
    return words if all(words) and len(words) == len(following) else []


_WAY_OUT = "The predictor fsttok takes spellings from a transducer."


def _canonical(called: str, vocabulary: Vocabulary) -> Canonical:
    try:
        return Canonical(Context(vocabularies=Vocabularies(target=vocabulary), vocab_size=vocabulary.size))
    except SgdecError as error:
        raise SgdecError(f"{called}: tokenisations canonical: {str(error).removeprefix('canonical: ')}") from None


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"bytes": Bytes}

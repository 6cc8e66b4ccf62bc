"""Wrapper: a model with other tokens, in the tokens of the run: ``hf,aligned:hf``.

A token of the run, the leader's, spells some bytes w after a text x. Its score is the probability that the inner
predictor, the follower, gives to these bytes, whatever tokens of its own spell them:

    score of a token w   = log P(x w...) - log P(x...)
    score of </s>        = log P(x </s>) - log P(x...)

P is the probability of texts and of their prefixes that `bytes` computes. So the total of an output is the log of the
follower's probability of its text, and models with different vocabularies form an ensemble, in any search. A token
that is not a text, such as ``<unk>``, is forbidden; one that adds no text to a prefix scores 0.

The scores of a row do not add up to 1: tokens of the leader can begin with each other, and then one's probability is
part of the other's.

It is on demand: it scores the tokens that other predictors leave. Without others that restrict, these are all tokens
of the leader, and each needs the follower's scores inside of it: put `topk` around the leader.

After each token ``width`` limits the sequences of the follower that are kept, as in `bytes`. A sequence of complete
tokens with less than ``min_share`` of the probability of x, which ends at x or inside of w, is used only if no other
one covers x w. So a token is not forbidden because sequences were dropped, if each byte is a token of the follower.
Totals are at most the exact ones: the end of the run reports how much was lost, and ``width 0`` with ``min_share 0``
is exact.

State: the sequences that cover the text, as in `bytes`, the leader's spelling, and what is known inside of the
candidates, so that their rows are not asked for again. Cost: a batch of the inner predictor for each length inside of
candidates; sums over subtrees of the trie, in arrays of all prefixes and candidates. Where the follower's tokens are
longer than the leader's, few sequences end inside of candidates; a leader with the longer tokens costs a multiple.
Bounds: 0, or -inf if nothing covers the text. Relaxation: none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.arrays import Floats, Ints
from sgdec.context import Vocabulary
from sgdec.protocol import FORBIDDEN, Candidates, State, ability
from sgdec_predictors.bytes import Bytes
from sgdec_predictors.spelled.continued import ContinuedPrefix
from sgdec_predictors.spelled.continuing import Continuing
from sgdec_predictors.spelled.covering import BytePrefix, Element
from sgdec_predictors.spelled.leading import EMPTY, LeaderTexts
from sgdec_predictors.spelled.trie import log_sums_by_place
from sgdec_predictors.texts.spelling import Spelling
from sgdec_predictors.wrapping.inner_tokens import Translator


class AlignedPrefix:
    """One prefix of the leader's tokens."""

    __slots__ = ("continued", "elements", "spare", "spelling")

    def __init__(self, elements: Sequence[Element], spelling: int, spare: Spare | None = None) -> None:
        self.elements = elements
        """The follower's sequences that cover its text."""
        self.spelling = spelling
        """The state of the leader's spelling after it."""
        self.spare = spare
        self.continued: ContinuedPrefix | None = None
        """Its continuations, as far as they are known."""


class Spare:
    """A sequence of complete tokens that is too improbable to be followed, unless nothing else covers a text."""

    __slots__ = ("element", "elements", "rest")

    def __init__(self, element: Element, rest: bytes) -> None:
        self.element = element
        self.rest = rest
        """The bytes of the prefix after it."""
        self.elements: Sequence[Element] | None = None
        """The elements with this beginning that cover the prefix; None until they are needed."""

    def then(self, text: bytes, score: float) -> Spare:
        """The same after a text with this score."""
        return Spare(replace(self.element, weight=self.element.weight - score), self.rest + text)


class FollowerBytes(Bytes):
    """The follower as a predictor of bytes."""

    called = "aligned"


class Aligned(Translator):
    """The probability of texts in the tokens of another vocabulary.

    >>> import math
    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> from sgdec.context import Vocabularies
    >>> from sgdec.vocabularies import SPECIAL, MixedVocabulary
    >>> inner = lift(Bonus({3: math.log(0.5), 4: math.log(0.1), 5: math.log(0.2), 2: math.log(0.2)}, -math.inf))
    >>> inner.vocabularies = Vocabularies(target=MixedVocabulary([*SPECIAL, "<M>a", "<M>b", "ab"]))
    >>> leader = MixedVocabulary([*SPECIAL, "<M>a", "<M>b", "abb"])
    >>> aligned = Aligned(inner, width=0, context=Context(vocabularies=Vocabularies(target=leader)))
    >>> (row,) = aligned.predict_batch(aligned.initialize_batch([Source(1, ())]), [[2, 3, 5]]).rows
    >>> [round(math.exp(row.get(token)), 9) for token in (2, 3, 5)]  # 0.5 x 0.1 x 0.1 for abb
    [0.2, 0.7, 0.005]
    """

    def __init__(
        self,
        inner: BatchPredictor,
        width: Annotated[
            int, Field(ge=0, description="limit on the follower's rows for a prefix; 0 = no limit, exact")
        ] = 4,
        min_share: Annotated[
            float, Field(ge=0, lt=1, description="share below which a sequence is used only if no other one fits")
        ] = 0.01,
        tokenisations: Annotated[
            Literal["all", "canonical"],
            Field(description="the follower's sequences that count: all that spell the text, or its tokenizer's own"),
        ] = "all",
        tokenizer: Annotated[str | None, Field(description="tokenizer of the follower, if it brings none")] = None,
        context: Context | None = None,
    ) -> None:
        """Raises UsageError without a vocabulary of either side, SgdecError for one that does not spell texts."""
        super().__init__(inner)
        self.max_score = 0.0
        leader = context.vocabularies.target if context else None
        if leader is None:
            raise UsageError(
                "aligned: no predictor of the run says how its tokens are spelled: give a leader with a vocabulary, "
                "such as hf,aligned:hf, or --tokenizer FILE."
            )
        self._bytes = FollowerBytes(inner, width, min_share, tokenisations, tokenizer, context)
        self._spelling, self._texts = _spelled(leader)
        self._lost = 0.0
        """At most this probability was left out inside of consumed tokens."""
        if (release := ability(self._bytes, "release")) is not None:
            self.release = partial(self._release, release)
        least = math.log(min_share) if min_share else FORBIDDEN
        self._continuing = Continuing(
            self._bytes.trie, self._texts, self._read, width, least, tokenisations == "canonical"
        )

    @classmethod
    def inner_context(cls, context: Context, tokenizer: str | None = None, **options: Any) -> Context:
        """The context of the follower, as in `bytes`."""
        return Bytes.inner_context(context, tokenizer)

    def inner_states(self, states: Sequence[AlignedPrefix]) -> Sequence[State]:
        """Those of all elements that cover the text."""
        return self._bytes.inner_states([BytePrefix(state.elements) for state in states])

    def initialize_batch(self, sources: Sequence[Source]) -> list[AlignedPrefix]:
        return [AlignedPrefix(covered.elements, 0) for covered in self._bytes.initialize_batch(sources)]

    def predict_batch(
        self, states: Sequence[AlignedPrefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        """Raises SgdecError if inner scores are not log-probabilities."""
        every = range(self._spelling.size)
        asked = [every if own is None else own for own in candidates or [None] * len(states)]
        if not states:
            return Scores.of_candidates(asked, np.zeros(0))
        sizes = list(map(len, asked))
        row = np.arange(len(states)).repeat(sizes)
        tokens = np.concatenate(asked).astype(np.int64)
        texts = self._texts.of[np.array([state.spelling for state in states])[row], tokens]
        bounds = accumulate(sizes, initial=0)
        known = self._continued(states, [texts[first:last] for first, last in pairwise(bounds)])
        found = np.where(texts == EMPTY, 0.0, FORBIDDEN)
        longer = (texts > EMPTY).nonzero()[0]
        size = len(self._texts.first)
        of_rows = np.arange(len(states)).repeat([len(each.texts) for each in known])
        places = of_rows * size + np.concatenate([each.texts for each in known])
        places = places.searchsorted(row[longer] * size + texts[longer])
        found[longer] = np.concatenate([each.scores for each in known])[places]
        ends = (tokens == EOS).nonzero()[0]
        found[ends] = self._ends(states, row[ends])[row[ends]]
        return Scores.of_candidates(asked, np.minimum(found, 0.0))  # sums of rounded probabilities can exceed 1

    def consume_batch(self, states: Sequence[AlignedPrefix], tokens: Sequence[int]) -> list[AlignedPrefix]:
        spelling = [state.spelling for state in states]
        texts = self._texts.of[spelling, tokens]
        after = self._spelling.after[spelling, tokens].tolist()
        known = self._continued(states, list(texts[:, None]))
        longer = (texts > EMPTY).nonzero()[0].tolist()
        covers = [self._continuing.after(known[row], int(texts[row])) for row in longer]
        covered = dict(zip(longer, self._bytes.covered(covers), strict=True))
        self._lost += sum(float(known[row].lost[known[row].place(int(texts[row]))]) for row in longer)
        found = []
        for row, (state, text, spelled) in enumerate(zip(states, texts.tolist(), after, strict=True)):
            if row in covered:
                elements, spare = covered[row].elements, self._spare(state, text, covered[row])
            else:
                elements, spare = (state.elements, state.spare) if text == EMPTY else ((), None)
            found.append(AlignedPrefix(elements, spelled, spare))
        return found

    def _spare(self, state: AlignedPrefix, text: int, covered: BytePrefix) -> Spare | None:
        """A sequence for what nothing else covers, after a state and a text; None if a complete one is there."""
        if not covered.elements or any(each.values is None for each in covered.elements):
            return None
        if covered.spare is not None:
            self._lost += math.exp(covered.spare.weight)
            return Spare(covered.spare, b"")
        assert state.continued is not None
        left_out = self._continuing.left_out(state.continued, text)
        if left_out is not None:
            return Spare(*left_out).then(b"", covered.score)
        return state.spare and state.spare.then(self._texts.text(text), covered.score)

    def best_remaining(self, states: Sequence[AlignedPrefix]) -> list[float]:
        """0, or -inf if no token sequence covers the text."""
        return [0.0 if state.elements else FORBIDDEN for state in states]

    def summary(self) -> str | None:
        """The line at the end of a run: how much of the probability was lost."""
        return self._bytes.said_of_lost(self._lost, "tokens")

    @staticmethod
    def _release(release: Callable[[Sequence[BytePrefix]], Any], roots: Sequence[AlignedPrefix]) -> None:
        release([BytePrefix(root.elements) for root in roots])

    def _continued(self, states: Sequence[AlignedPrefix], texts: Sequence[Ints]) -> list[ContinuedPrefix]:
        """The continuations of these states; they are computed if they are not known yet."""
        wanted: dict[AlignedPrefix, list[Ints]] = {}
        for state, own in zip(states, texts, strict=True):
            if state.continued is None or not state.continued.has(own):
                wanted.setdefault(state, []).append(own)
        if wanted:
            new, size = list(wanted), len(self._texts.first)
            row = np.arange(len(new)).repeat([sum(map(len, several)) for several in wanted.values()])
            asked = np.concatenate([own for several in wanted.values() for own in several])
            row, asked = np.divmod(np.unique((row * size + asked)[asked > EMPTY]), size)
            bounds = row.searchsorted(range(len(new) + 1)).tolist()
            needed = [asked[first:last] for first, last in pairwise(bounds)]
            for state, elements in zip(new, self._read([state.elements for state in new]), strict=True):
                state.elements = elements
            found = self._continuing.continued([state.elements for state in new], needed)
            for state, continued in zip(new, found, strict=True):
                state.continued = continued
            self._use_spares(new)
        return [state.continued for state in states if state.continued is not None]

    def _use_spares(self, states: Sequence[AlignedPrefix]) -> None:
        """For continuations that no element covers, those that the spare sequence covers."""
        needy = []
        for state in states:
            assert state.continued is not None
            if state.spare is not None and (state.continued.scores == FORBIDDEN).any():
                needy.append((state, state.spare, state.continued))
        self._read_spares([spare for _, spare, _ in needy])
        texts = [continued.texts[continued.scores == FORBIDDEN] for _, _, continued in needy]
        covers = [spare.elements or () for _, spare, _ in needy]
        found = self._continuing.continued(covers, texts) if needy else []
        for (state, _, continued), own, other in zip(needy, texts, found, strict=True):
            state.continued = continued.beside(own, other)

    def _read_spares(self, spares: Sequence[Spare]) -> None:
        """Find the elements that cover the prefixes of these, one byte after the other."""
        new = list(dict.fromkeys(spare for spare in spares if spare.elements is None))
        covers: list[list[Element]] = [[spare.element] for spare in new]
        for place in range(1 + max((len(spare.rest) for spare in new), default=-1)):
            going = [i for i, spare in enumerate(new) if len(spare.rest) >= place]
            for i, cover in zip(going, self._read([covers[i] for i in going]), strict=True):
                if place < len(new[i].rest):
                    covers[i] = self._continuing.after_byte(cover, new[i].rest[place])
                else:
                    covers[i] = cover
        for spare, cover in zip(new, covers, strict=True):
            spare.elements = cover

    def _ends(self, states: Sequence[AlignedPrefix], asked: Ints) -> Floats:
        """``[rows]``: the scores of ``</s>``, of those rows that are asked for."""
        ends = self._log_ends([state.elements for state in states])
        needy = [row for row in asked.tolist() if ends[row] == FORBIDDEN and states[row].spare is not None]
        spares = [spare for row in needy if (spare := states[row].spare) is not None]
        self._read_spares(spares)
        ends[needy] = self._log_ends([spare.elements or () for spare in spares])
        return ends

    @staticmethod
    def _log_ends(covers: Sequence[Sequence[Element]]) -> Floats:
        row = np.arange(len(covers)).repeat(list(map(len, covers)))
        scores = np.array([each.weight + each.end for cover in covers for each in cover])
        return log_sums_by_place(row, scores, len(covers))

    def _read(self, unread: Sequence[Sequence[Element]]) -> list[list[Element]]:
        """The elements with their values, and those after tokens without text."""
        covers, new = self._bytes.read(unread)
        self._bytes.require_probabilities(np.array([each.sum() for each in new]))
        return covers


def _spelled(leader: Vocabulary) -> tuple[Spelling, LeaderTexts]:
    try:
        spelling = Spelling.of(leader)
        return spelling, LeaderTexts(spelling)
    except SgdecError as error:
        raise SgdecError(f"aligned: {error}") from None


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"aligned": Aligned}

"""Wrapper: a transducer T maps the decoder's tokens to those of the inner predictor (Stahlberg et al. 2017, section
3).

T reads decoder tokens y and writes inner tokens z; each of its paths pi costs c. For a prefix y1...yt

    score(y1...yt) = best or sum over paths pi of T that read y1...yt of  log P_inner(z(pi)) - c(pi)
    score of y_t   = score(y1...yt) - score(y1...yt-1)

With ``semiring`` tropical the best path counts, with log the log of the sum. A path of a prefix ends with the arc
that reads its last token; outputs of arcs that read nothing (input epsilons) count when the next token is read. So an
inner score is added when T writes the inner token: before, with or after the decoder tokens that spell it. ``</s>``
needs a final state, and adds its weight and the inner ``</s>``: totals are exactly those of complete paths,
independently of the step at which each score is added. Only tokens that T reads can follow. Every cycle of T must
read a token; T may be any other transducer.

With ``semiring`` log the score of a complete output is the log of its probability, if the inner scores are
log-probabilities of segmentations: the sum over all tokenisations of a text, where decoder tokens are characters. No
bound follows from the inner one, because sums have more terms than any path. ``probabilities`` says that each inner
row adds up to at most 1, and that paths that read the same tokens write different ones. Then a prefix with pairs
(q, z) of scores c can still gain at most

    log sum over pairs of exp(c) x (sum over first outputs w after q of P_inner(w | z))

so exact decoders prove the most probable text.

**Lookahead.** The inner score of a word is added when T writes the word, mostly at its end. Up to there the first
characters of a bad word would cost nothing, so that a beam fills with them. Therefore each pair (q, z) that waits for
its next output also has the score of what may come,

    h(q, z) = log sum over outputs w that T can write next after q of  P_inner(w | z) x exp(-cost of the path to w)

or, with ``lookahead best``, the best term (language-model look-ahead in a lexicon tree: Ortmanns, Ney and Eiden
1996), and the score of a prefix is that of its paths with h added to each. With every further token h is that of the
words that are left, and as soon as a word is written, it is the word's own score; so totals of complete outputs are
the same with and without lookahead. With sums of probabilities the score of a prefix is close to the log of its
probability, which beams and samples want; with the best, exact searches expand less. h is at most 0 if inner scores
are, and 0 as long as no output is due: in the start state of T, for paths that come back to it before they write, and
just after an arc that reads and writes. Past failure arcs h is optimistic: it ignores what they bar. Lookahead needs
costs that are not negative, and an inner predictor that scores all tokens at once (not on demand) and bounds its
scores (never positive, or `best_remaining`); otherwise the option has no effect.

State: pairs of a state of T and an inner prefix, each with its score relative to the prefix'. Pairs are merged if
their inner prefixes are equal, or have the same future according to the inner `state_key`. With ``max_states`` only
the best pairs are kept, and the end of the run reports how often others were dropped. `sgdec transducer` builds
transducers from tokenizers; `sgdec.io.transducer` has the labels.

Cost: a step of the inner predictor for each inner prefix, batched over all rows, and a visit to each arc; lookahead
also reads the scores of all outputs that may come, and keeps 8 V bytes for each inner prefix in use. If T reads
deterministically, a prefix has one pair. Input epsilons that write are followed ahead, one step each. Relaxation:
none, because a token is not one inner token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.files import LatticeError
from sgdec.protocol import FORBIDDEN, Candidates, SparseRow, State, ability
from sgdec_predictors.automata.semirings import LOG, TROPICAL, times
from sgdec_predictors.wrapping.inner_tokens import Inner, InnerPrefix, Translator
from sgdec_predictors.wrapping.lookahead import log_sums, maxima
from sgdec_predictors.wrapping.transducer import Machine, TransducerWays, WrittenArc

NOTHING: frozenset[int] = frozenset()
WIDE = 256
"""If more tokens than this can be read, they are scored as arrays; for fewer, per-call costs would dominate."""
WIDE_LOOKAHEAD = 6
"""The same with lookahead, which costs an array call for each token that is scored alone."""


class Pair(NamedTuple):
    """The common end of one or more paths."""

    state: int
    """A state of the transducer."""
    inner: InnerPrefix
    score: float
    """The score of its paths, relative to that of the prefix."""
    ahead: float
    """The same with lookahead."""
    barred: frozenset[int] = NOTHING
    """Tokens that must not follow: failure arcs were taken past arcs that read them."""


class TokenisedPrefix:
    """One prefix of decoder tokens."""

    __slots__ = ("pairs", "reach")

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.reach: list[Pair] | None = None
        """The pairs, and all that input epsilons lead to; computed on first use."""


class FstTok(Translator):
    """A transducer between the decoder's tokens and the inner predictor's.

    Characters 3 and 4 spell words for the inner predictor: 3 is word 7, 34 is word 8. The first 3 is scored like the
    better of the two, so a 4 costs nothing, and whatever ends word 7 costs the difference.

    >>> import tempfile
    >>> from math import inf
    >>> from sgdec.files import write_openfst
    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> spellings = [(0.0, [(3, 7, 0.0, 0), (3, 0, 0.0, 1)]), (inf, [(4, 8, 0.0, 0)])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_openfst(f"{folder}/t.fst", spellings)
    ...     words = FstTok(lift(Bonus({7: -1.0, 8: -0.25, 2: -0.5})), f"{folder}/t.fst")
    >>> prefix = words.consume_batch(words.initialize_batch([Source(1, (3,))]), [3])
    >>> words.predict_batch(prefix).rows
    [SparseRow({2: -1.25, 3: -1.0, 4: 0.0}, default=-inf)]
    """

    def __init__(
        self,
        inner: BatchPredictor,
        path: Annotated[str, Field(description="transducer from decoder tokens to inner tokens")],
        max_states: Annotated[
            int, Field(ge=0, description="limit on the segmentations kept of a prefix; 0 = no limit, which is exact")
        ] = 0,
        semiring: Annotated[
            Literal["tropical", "log"],
            Field(description="score of several segmentations: the best, or their log-sum"),
        ] = "tropical",
        probabilities: Annotated[
            bool,
            Field(description="semiring log: inner scores are log-probabilities, no two segmentations are equal"),
        ] = False,
        lookahead: Annotated[
            Literal["sum", "best", "none"],
            Field(description="first tokens of a word have the score of all its completions, or of the best one"),
        ] = "sum",
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the transducer cannot be read or used, UsageError for probabilities without sums."""
        super().__init__(inner)
        self._plus = (LOG if semiring == "log" else TROPICAL).plus
        self._reduce: Any = (np.logaddexp if semiring == "log" else np.maximum).reduceat
        try:
            self._machine = Machine(
                path, LOG if semiring == "log" else TROPICAL, context.vocab_size if context else None
            )
        except LatticeError as error:
            way_out = error.way_out or "sgdec transducer builds one from two tokenizers."
            raise SgdecError(f"fsttok: {path}: {error.what}. {way_out}") from None
        self._max_states = max_states
        self._inner = Inner(inner, f"fsttok: {path}", self._machine.highest_output)
        self._consumed = self._pruned = self._inside = 0
        best = semiring == "tropical"
        falls = inner.max_score <= 0.0
        bounded = falls or ability(inner, "best_remaining") is not None
        possible = bounded and not inner.on_demand and not self._machine.rewards
        self._lookahead = possible and lookahead != "none"
        self._ahead_of = log_sums if lookahead == "sum" else maxima
        self._highest = 0.0 if falls else math.inf
        if best and not self._lookahead:
            self.max_score = self._machine.highest_score(inner.max_score)
        else:
            self.max_score = self._highest if best else math.inf
        # Abilities that the inner predictor makes possible.
        if best and (ability(inner, "best_remaining") or inner.max_score <= 0.0 < self.max_score):
            self.best_remaining = self._best_remaining
        if probabilities:
            self._require_probabilities(best, path)
            self.best_remaining = self._best_sum
        if ability(inner, "worst_remaining"):
            self.worst_remaining = self._worst_remaining
        self._key_of = ability(inner, "state_key")
        if self._key_of:
            self.state_key = self._state_key

    def inner_states(self, states: Sequence[TokenisedPrefix]) -> list[State]:
        """Those of all pairs, prefix after prefix; an empty prefix has one pair."""
        return self._inner.states(pair.inner for prefix in states for pair in prefix.pairs)

    def initialize_batch(self, sources: Sequence[Source]) -> list[TokenisedPrefix]:
        return [TokenisedPrefix([Pair(self._machine.start, empty, 0.0, 0.0)]) for empty in self._inner.begin(sources)]

    def predict_batch(
        self, states: Sequence[TokenisedPrefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        wanted = candidates if candidates is not None else [None] * len(states)
        self._look_ahead(states, wanted)
        self._inside += sum(
            not any(EOS in ways.arcs for _, ways in self._reached(prefix))
            for prefix, tokens in zip(states, wanted, strict=True)
            if tokens is not None and len(tokens) == 1 and tokens[0] == EOS
        )
        return Scores(rows=[self._row(prefix, tokens) for prefix, tokens in zip(states, wanted, strict=True)])

    def consume_batch(self, states: Sequence[TokenisedPrefix], tokens: Sequence[int]) -> list[TokenisedPrefix]:
        self._look_ahead(states, [(token,) for token in tokens])
        after = [self._after(prefix, token) for prefix, token in zip(states, tokens, strict=True)]
        return [self._settled(pairs) for pairs in self._merged(after)]

    def summary(self) -> str | None:
        """The line at the end of a run: how often ``max_states`` dropped segmentations or prefixes could not end."""
        inner = getattr(self.inner, "summary", None)
        texts = [inner() if inner is not None else None]
        if self._pruned:
            texts.append(
                f"max_states {self._max_states} was too few for {self._pruned:,} of {self._consumed:,} prefixes: "
                "their scores miss segmentations"
            )
        if self._inside:
            texts.append(
                f"prefixes that could only end, mostly at the length limit, but stood inside a word: {self._inside:,}"
            )
        return "; ".join(filter(None, texts)) or None

    def _best_remaining(self, states: Sequence[TokenisedPrefix]) -> list[float]:
        """The best pair, if both the transducer and the inner predictor continue with their best scores."""
        bounds = self._bounds(states, "best_remaining", self._machine.best)
        return [max(found, default=FORBIDDEN) for found in bounds]

    def _best_sum(self, states: Sequence[TokenisedPrefix]) -> list[float]:
        """The log of the probability of all that can be written after the pairs; an output is a part of it."""
        pairs = [pair for prefix in states for pair in prefix.pairs]
        of_row = None if self._inner.on_demand else 1  # one question is enough for a row of all scores
        self._inner.know(
            (pair.inner, output)
            for pair in pairs
            for output in self._machine.outputs(pair.state).tokens[:of_row].tolist()
        )
        after = self._machine.outputs
        return [
            LOG.plus([pair.score + float(log_sums(after(pair.state), pair.inner)[0]) for pair in prefix.pairs])
            for prefix in states
        ]

    def _require_probabilities(self, best: bool, path: str) -> None:
        if best:
            raise UsageError("fsttok: probabilities true bounds sums: add semiring log, or omit it.")
        if self._machine.rewards:
            raise SgdecError(
                f"fsttok: {path}: has a negative cost, so sums can exceed 1: give it no negative costs, or omit "
                "probabilities."
            )

    def _worst_remaining(self, states: Sequence[TokenisedPrefix]) -> list[float]:
        """Every continuation is scored by at least one of the pairs."""
        bounds = self._bounds(states, "worst_remaining", self._machine.worst)
        return [min(found, default=-FORBIDDEN) for found in bounds]

    def _state_key(self, states: Sequence[TokenisedPrefix]) -> list[Hashable]:
        """Pairs with equal futures and equal scores."""
        assert self._key_of is not None
        keys = iter(self._key_of(self.inner_states(states)))
        return [frozenset((pair.state, next(keys), pair.score) for pair in prefix.pairs) for prefix in states]

    def _bounds(self, states: Sequence[TokenisedPrefix], name: str, machine: dict[int, float]) -> list[list[float]]:
        method = ability(self.inner, name)
        inner: Iterator[float] | None = None
        if method is not None:
            inner = iter(method(self.inner_states(states)))
        return [
            [times(pair.score, machine[pair.state], next(inner) if inner else 0.0) for pair in prefix.pairs]
            for prefix in states
        ]

    def _look_ahead(self, prefixes: Sequence[TokenisedPrefix], wanted: Sequence[Candidates | None]) -> None:
        """Follows input epsilons, then computes the inner scores that the wanted tokens need."""
        layers = {prefix: prefix.pairs for prefix in prefixes if prefix.reach is None}
        found: dict[TokenisedPrefix, list[Pair]] = {prefix: [] for prefix in layers}
        while any(layers.values()):
            self._inner.know(
                (pair.inner, arc.output)
                for layer in layers.values()
                for pair in layer
                for arc in (*self._machine[pair.state].silent, *self._machine[pair.state].otherwise)
            )
            for prefix, layer in layers.items():
                found[prefix] += layer
                layers[prefix] = self._next_layer(layer)
        for prefix, pairs in found.items():
            prefix.reach = pairs
        self._inner.know(
            (pair.inner, output)
            for prefix, tokens in zip(prefixes, wanted, strict=True)
            for pair, ways in self._reached(prefix)
            for output in self._outputs(pair, ways, tokens)
        )

    def _next_layer(self, layer: Sequence[Pair]) -> list[Pair]:
        """Follows one more input epsilon; paths that meet are combined."""
        met: dict[tuple[int, InnerPrefix, frozenset[int]], list[float]] = {}
        for pair in layer:
            ways = self._machine[pair.state]
            past = pair.barred.union(ways.arcs) if ways.otherwise else NOTHING
            for arcs, barred in ((ways.silent, pair.barred), (ways.otherwise, past)):
                for arc in arcs:
                    score = _along(pair, arc)
                    if score != FORBIDDEN:
                        met.setdefault((arc.target, _spelled(pair, arc), barred), []).append(score)
        return [
            Pair(state, inner, score := self._plus(scores), score, barred)
            for (state, inner, barred), scores in met.items()
        ]

    def _outputs(self, pair: Pair, ways: TransducerWays, tokens: Candidates | None) -> list[int]:
        """The outputs of arcs that read one of these tokens; a single output is enough if the inner row is full."""
        if self._lookahead:
            return [EOS]
        if tokens is None and not self._inner.on_demand:
            return [EOS] if ways.writing else []
        return [arc.output for token in _allowed(ways.writing, tokens, pair) for arc in ways.writing[token]]

    def _reached(self, prefix: TokenisedPrefix) -> Iterator[tuple[Pair, TransducerWays]]:
        assert prefix.reach is not None
        for pair in prefix.reach:
            yield pair, self._machine[pair.state]

    def _row(self, prefix: TokenisedPrefix, tokens: Candidates | None) -> SparseRow:
        wide = WIDE_LOOKAHEAD if self._lookahead else WIDE
        if tokens is None and sum(len(ways.arcs) for _, ways in self._reached(prefix)) > wide:
            return self._wide_row(prefix)
        found: dict[int, float] = {}
        for pair, ways in self._reached(prefix):
            if self._lookahead:
                by_arc = ways.arcs
                scores = []
            else:
                by_arc = ways.writing
                scores = [(token, pair.score + ways.quiet[token]) for token in _allowed(ways.quiet, tokens, pair)]
            for token in _allowed(by_arc, tokens, pair):
                scores += [(token, self._ahead(pair, arc)[1]) for arc in by_arc[token]]
            for token, score in scores:
                found[token] = self._plus((found[token], score)) if token in found else score
        order = sorted(token for token, score in found.items() if score != FORBIDDEN)
        return SparseRow(order, [found[token] for token in order])

    def _wide_row(self, prefix: TokenisedPrefix) -> SparseRow:
        """The same for all tokens, in arrays."""
        tokens, scores = [], []
        for pair, _ in self._reached(prefix):
            flat = self._machine.flat(pair.state)
            score = pair.score + flat.scores + pair.inner.scores(flat.outputs)
            quiet = self._machine.quiet(pair.state) if self._lookahead else None
            if quiet is not None:
                ahead = self._ahead_of(quiet.outputs, pair.inner, quiet.starts)
                score[quiet.places] += np.minimum(ahead, self._highest)
            possible = score != FORBIDDEN
            if pair.barred:
                open_to = np.ones(self._machine.highest_input + 1, bool)
                open_to[list(pair.barred)] = False
                possible &= open_to[flat.tokens]
            tokens.append(flat.tokens[possible])
            scores.append(score[possible])
        every = np.concatenate(tokens)
        if not len(every):
            return SparseRow((), ())
        order = np.argsort(every, kind="stable")
        every = every[order]
        firsts = np.flatnonzero(np.append(True, every[1:] != every[:-1]))
        distinct: Any = every[firsts]
        return SparseRow(distinct, self._reduce(np.concatenate(scores)[order], firsts))

    def _after(self, prefix: TokenisedPrefix, token: int) -> list[Pair]:
        """The pairs after one more token, scored relative to the prefix before it."""
        met: dict[tuple[int, InnerPrefix], list[tuple[float, float]]] = {}
        for pair, ways in self._reached(prefix):
            for arc in ways.arcs.get(token, ()) if token not in pair.barred else ():
                score, ahead = self._ahead(pair, arc)
                if ahead != FORBIDDEN:
                    met.setdefault((arc.target, _spelled(pair, arc)), []).append((score, ahead))
        return [Pair(state, inner, *self._together(scores)) for (state, inner), scores in met.items()]

    def _ahead(self, pair: Pair, arc: WrittenArc) -> tuple[float, float]:
        """The score of the pair's paths with one more arc, and the same with lookahead."""
        score = _along(pair, arc)
        if arc.output >= 0 or score == FORBIDDEN or not self._lookahead:
            return score, score
        ahead = float(self._ahead_of(self._machine.pending(arc.target), pair.inner)[0])
        return score, score + min(ahead, self._highest)

    def _together(self, scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Several paths with one end: their combined score, and the same with lookahead."""
        alone, ahead = zip(*scores, strict=True)
        return self._plus(alone), self._plus(ahead)

    def _merged(self, rows: list[list[Pair]]) -> list[list[Pair]]:
        """Merges pairs at one state of the transducer whose inner states have the same future."""
        if self._key_of is None:
            return rows
        several = [i for i, pairs in enumerate(rows) if len({pair.state for pair in pairs}) < len(pairs)]
        if not several:
            return rows
        keys = iter(self._key_of(self._inner.states(pair.inner for i in several for pair in rows[i])))
        for i in several:
            met: dict[tuple[int, Hashable], list[Pair]] = {}
            for pair in rows[i]:
                met.setdefault((pair.state, next(keys)), []).append(pair)
            rows[i] = [
                Pair(state, same[0].inner, *self._together([(pair.score, pair.ahead) for pair in same]))
                for (state, _), same in met.items()
            ]
        return rows

    def _settled(self, pairs: list[Pair]) -> TokenisedPrefix:
        """Makes scores relative to that of all pairs together; keeps the best ``max_states`` pairs."""
        self._consumed += 1
        if not pairs:
            return TokenisedPrefix(())
        total = self._plus([pair.ahead for pair in pairs])
        if self._max_states and len(pairs) > self._max_states:
            self._pruned += 1
            pairs = sorted(pairs, key=_ahead, reverse=True)[: self._max_states]  # stable
        return TokenisedPrefix([pair._replace(score=pair.score - total, ahead=pair.ahead - total) for pair in pairs])


_ahead: Callable[[Pair], float] = attrgetter("ahead")


def _allowed(arcs: Mapping[int, Any], tokens: Candidates | None, pair: Pair) -> Iterable[int]:
    """Those of the given tokens (None = all) that are among ``arcs`` and may follow the pair."""
    if tokens is None:
        found: Iterable[int] = arcs
    elif len(tokens) <= len(arcs):
        found = [token for token in tokens if token in arcs]
    else:
        wanted = set(tokens)
        found = [token for token in arcs if token in wanted]
    return [token for token in found if token not in pair.barred] if pair.barred else found


def _along(pair: Pair, arc: WrittenArc) -> float:
    """The score of the pair's paths with one more arc."""
    return pair.score + arc.score + (pair.inner.score(arc.output) if arc.output >= 0 else 0.0)


def _spelled(pair: Pair, arc: WrittenArc) -> InnerPrefix:
    return pair.inner.then(arc.output) if arc.output >= 0 else pair.inner


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"fsttok": FstTok}

"""Minimum Bayes risk: the candidate that is most like what the model would say (Kumar and Byrne 2004).

The decoder ``candidates`` gives hypotheses, and ``references`` pseudo-references r with weights p(r); by default they
are the same. With a utility u, the list has the candidates h with the highest expected utility

    U(h) = sum over r of  p(r) u(h, r)

as `Hypothesis.rank_score`; totals and ledgers stay those of the search. ``weights`` says what p is proportional to:

- ``count``: the number of draws, or exp(`log_weight`) where draws have unequal weights. With `sample` from the model,
  U(h) is the Monte Carlo estimate of Eikema and Aziz 2020, "Is MAP Decoding All You Need?". Hypotheses of decoders
  that do not draw count once;
- ``uniform``: every hypothesis counts once;
- ``model``: exp(total) (Jinnai et al. 2024, "Model-Based Minimum Bayes Risk Decoding for Text Generation").

``method`` says which utilities are computed:

- ``pairwise``: every u(h, r);
- ``aggregate``: one u(h, R) for each candidate, with the average R of the pseudo-references' statistics (Vamvas and
  Sennrich 2024, "Linear-time Minimum Bayes Risk Decoding with Reference Aggregation"); the utility must have
  `Aggregates`;
- ``pruned``: estimates with ``first`` pseudo-references, then with twice as many, and so on. Each step prunes the
  candidates that are worse than the best one in a share ``alpha`` or more of the bootstrap ``resamples`` of the
  pseudo-references (Cheng and Vlachos 2023, "Faster Minimum Bayes Risk Decoding with Confidence-based Pruning");
- ``halving``: at most ``budget`` utilities. Each of ceil(log2 |candidates|) rounds has an equal part, takes as many
  pseudo-references more as that pays for, at least one, and keeps the better half of the candidates (correlated
  sequential halving, Baharav and Tse 2019; Jinnai and Ariu 2024, "Hyperparameter-Free Approach for Faster Minimum
  Bayes Risk Decoding"). Departure: if the rest of the budget pays for all pseudo-references, they are used.

The last two take the pseudo-references in random order, heavy ones earlier (`sgdec_decoders._fewer_utilities` has the
estimate), and call the utility several times for a sentence. If all pseudo-references are used in the first step, the
choice is that of ``pairwise``: with ``first`` at least their number, or ``budget`` at least that of all pairs. After
the candidates of the last step, the list has those that were dropped, the last ones first. Their rank scores are the
estimates of that time, or that of the one above in the list if it is lower. So the choice does not depend on
``--nbest``.

A utility that judges a hypothesis by the source alone (quality estimation) gets no pseudo-references: U(h) = u(h).
Hypotheses with equal texts are one candidate, which is the first of the inner list, and one pseudo-reference with the
sum of their weights, also if the run lists each text once. Equal expected utilities keep the order of the inner list.

Guarantee: none about the model's score. Cost: the inner searches, and |candidates| x |references| utilities; with
``aggregate`` as many as candidates; with ``halving`` the budget, if it is at least |candidates| times the number of
rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

import sgdec
from sgdec import Context, Decoder, DecoderSpec, Hypothesis, Result, SearchSpace, SgdecError, UsageError, UtilitySpec
from sgdec.arrays import Floats, Ints
from sgdec.context import Vocabularies
from sgdec.protocol import Source
from sgdec.utility import Aggregates, aggregated, pairwise
from sgdec_decoders._fewer_utilities import Estimates, halve, prune

SAMPLES = DecoderSpec("sample", {"samples": 64})
CHRF = UtilitySpec("chrf")
OPTIONS = {"pruned": ("first", "alpha", "resamples"), "halving": ("budget",)}
"""Those of only one method."""
DRAW = -1
"""The number of its random numbers: those from 0 are the inner decoders'."""


@dataclass(eq=False)
class MbrDecoder(Decoder):
    """The candidate with the highest expected utility."""

    candidates: Annotated[DecoderSpec, Field(description="decoder whose list has the candidates")] = SAMPLES
    references: Annotated[
        DecoderSpec | None, Field(description="decoder whose list has the pseudo-references; default: the candidates")
    ] = None
    utility: Annotated[UtilitySpec, Field(description="likeness of a hypothesis to a reference")] = CHRF
    weights: Annotated[
        Literal["count", "uniform", "model"], Field(description="weights of the pseudo-references")
    ] = "count"
    method: Annotated[
        Literal["pairwise", "aggregate", "pruned", "halving"],
        Field(description="all pairs of texts, one average reference, or fewer pairs; see 'sgdec plugins mbr'"),
    ] = "pairwise"
    listed: Annotated[
        int, Field(ge=1, description="hypotheses that inner decoders list at most, unless their own nbest says it")
    ] = 256
    first: Annotated[int, Field(ge=1, description="with pruned: pseudo-references of the first step")] = 16
    alpha: Annotated[
        float, Field(gt=0, le=1, description="with pruned: confidence; candidates that lose this often are dropped")
    ] = 0.99
    resamples: Annotated[int, Field(ge=1, description="with pruned: bootstrap resamples of each step")] = 500
    budget: Annotated[
        int | None, Field(ge=1, description="with halving: utilities of a sentence; default: a quarter of all pairs")
    ] = None
    context: InitVar[Context | None] = field(default=None, kw_only=True)
    ranks_by = "expected utility"

    def __post_init__(self, context: Context | None) -> None:
        """Raises UsageError for an inner `mbr`, for options of another method, and for a utility that cannot do what
        ``method`` says."""
        self._source_vocabulary, self._vocabulary = context.vocabularies if context else Vocabularies()
        for name, spec in (("candidates", self.candidates), ("references", self.references)):
            if spec is not None and isinstance(spec.decoder, MbrDecoder):
                raise UsageError(f"mbr: {name} are those of another mbr, whose list has few; give sample or beam.")
        if self.method == "aggregate" and not isinstance(self.utility.utility, Aggregates):
            raise UsageError(
                f"mbr: utility {self.utility.name} cannot aggregate; give one that can (chrf), or method pairwise."
            )
        if not self.utility.utility.needs_references:
            given = "references" if self.references is not None else ""
            given = given or (f"method {self.method}" if self.method in OPTIONS else "")
            if given:
                raise UsageError(f"mbr: utility {self.utility.name} judges without references; omit {given}.")
        for method, options in OPTIONS.items():
            for name in options:
                if method != self.method and getattr(self, name) != getattr(type(self), name):
                    raise UsageError(
                        f"mbr: {name} is an option of method {method}, not of {self.method}; omit it, or give method "
                        f"{method}."
                    )

    def decode(self, space: SearchSpace) -> Result:
        found = self._inner("candidates", self.candidates, space)
        others = found if self.references is None else self._inner("references", self.references, space)
        space.outranks()
        candidates, references = self._by_text(found), self._by_text(others)
        if not candidates or not references:
            return replace(found, hypotheses=[], proven=None, gap=None)
        if self.method in OPTIONS:
            estimates = self._estimated(list(candidates), references, space)
            expected, best = estimates.expected, estimates.ranking()
        else:
            expected = self._expected(list(candidates), references, self._text(space.source))
            best = np.argsort(-expected, kind="stable")
        firsts = [same[0] for same in candidates.values()]
        scores = np.minimum.accumulate(expected[best]).tolist()
        listed = [replace(firsts[at], rank_score=score) for at, score in zip(best.tolist(), scores, strict=True)]
        return Result(listed[: space.nbest], drawn=found.drawn)

    def _inner(self, name: str, spec: DecoderSpec, space: SearchSpace) -> Result:
        """The whole list of an inner decoder. Raises UsageError if draws could be missing."""
        found = spec.decode(space, nbest=self.listed, distinct=False)
        if "nbest" not in spec.options and (found.drawn or 0) > self.listed:
            raise UsageError(
                f"mbr: {name} are {found.drawn:,} draws, of which {self.listed:,} are listed; give --mbr.listed "
                f"{found.drawn}."
            )
        return found

    def _expected(
        self, candidates: Sequence[str], references: Mapping[str, Sequence[Hypothesis]], source: str | None
    ) -> Floats:
        """``[candidates]``: their expected utilities."""
        utility, weights = self.utility.utility, self._weights(list(references.values()))
        if not utility.needs_references:
            return pairwise(utility, candidates, source=source)[:, 0]
        if self.method == "aggregate":
            return aggregated(utility, candidates, list(references), weights[np.newaxis], source)[:, 0]
        return np.asarray((pairwise(utility, candidates, list(references), source) * weights).sum(axis=1))

    def _estimated(
        self, candidates: Sequence[str], references: Mapping[str, Sequence[Hypothesis]], space: SearchSpace
    ) -> Estimates:
        """The estimates of their expected utilities, and which of them were dropped when."""
        utility, texts, weights = self.utility.utility, list(references), self._weights(list(references.values()))
        source = self._text(space.source)

        def utilities(of: Ints, to: Ints) -> Floats:
            return pairwise(utility, [candidates[c] for c in of], [texts[r] for r in to], source)

        estimates = Estimates(utilities, len(candidates), weights, space.generator(DRAW, 0))
        if self.method == "pruned":
            prune(estimates, self.first, self.alpha, self.resamples, partial(space.generator, DRAW))
        else:
            halve(estimates, self.budget or max(1, len(candidates) * estimates.unused // 4))
        return estimates

    def _text(self, source: Source) -> str | None:
        return source.text if self._source_vocabulary is None else source.spell(self._source_vocabulary)

    def _by_text(self, result: Result) -> dict[str, list[Hypothesis]]:
        """The hypotheses of each text, in the order of the list; without a vocabulary, of each sequence of tokens."""
        texts: dict[str, list[Hypothesis]] = {}
        for each in result.hypotheses:
            text = each.text
            if text is None and self._vocabulary is not None:
                text = self._vocabulary.decode(each.tokens)
            texts.setdefault(" ".join(map(str, each.tokens)) if text is None else text, []).append(each)
        return texts

    def _weights(self, texts: Sequence[Sequence[Hypothesis]]) -> Floats:
        """``[texts]``: the share of each text; they sum to 1. Raises SgdecError if none has a weight."""
        logs = np.array([np.logaddexp.reduce(list(map(self._log_weight, same))) for same in texts])
        if not math.isfinite(logs.max()):
            raise SgdecError(f"mbr: the highest log-weight of a pseudo-reference is {logs.max()}; expected a number.")
        shares = np.exp(logs - logs.max())
        return np.asarray(shares / shares.sum())

    def _log_weight(self, hypothesis: Hypothesis) -> float:
        if self.weights == "model":
            return hypothesis.score
        if self.weights == "uniform":
            return 0.0
        return math.log(hypothesis.count or 1) if hypothesis.log_weight is None else hypothesis.log_weight


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mbr": MbrDecoder}

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

``method pairwise`` computes every u(h, r). ``aggregate`` computes one u(h, R) for each candidate, with the average R
of the pseudo-references' statistics (Vamvas and Sennrich 2024, "Linear-time Minimum Bayes Risk Decoding with
Reference Aggregation"); the utility must have `Aggregates`. A utility that judges a hypothesis by the source alone
(quality estimation) gets no pseudo-references: U(h) = u(h).

Hypotheses with equal texts are one candidate, which is the first of the inner list, and one pseudo-reference with the
sum of their weights, also if the run lists each text once. Equal expected utilities keep the order of the inner list.

Guarantee: none about the model's score. Cost: the inner searches, and |candidates| x |references| utilities, or with
``aggregate`` as many as candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

import sgdec
from sgdec import Context, Decoder, DecoderSpec, Hypothesis, Result, SearchSpace, UsageError, UtilitySpec
from sgdec.arrays import Floats
from sgdec.utility import Aggregates, aggregated, pairwise

SAMPLES = DecoderSpec("sample", {"samples": 64})
CHRF = UtilitySpec("chrf")


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
        Literal["pairwise", "aggregate"], Field(description="each pair of texts, or one average reference")
    ] = "pairwise"
    listed: Annotated[
        int, Field(ge=1, description="hypotheses that inner decoders list at most, unless their own nbest says it")
    ] = 256
    context: InitVar[Context | None] = field(default=None, kw_only=True)
    ranks_by = "expected utility"

    def __post_init__(self, context: Context | None) -> None:
        """Raises UsageError for an inner `mbr`, and for a utility that cannot do what ``method`` says."""
        self._vocabulary = context.vocabularies.target if context else None
        for name, spec in (("candidates", self.candidates), ("references", self.references)):
            if spec is not None and isinstance(spec.decoder, MbrDecoder):
                raise UsageError(f"mbr: {name} are those of another mbr, whose list has few; give sample or beam.")
        if self.method == "aggregate" and not isinstance(self.utility.utility, Aggregates):
            raise UsageError(
                f"mbr: utility {self.utility.name} cannot aggregate; give one that can (chrf), or method pairwise."
            )
        if self.references is not None and not self.utility.utility.needs_references:
            raise UsageError(f"mbr: utility {self.utility.name} judges without references; omit references.")

    def decode(self, space: SearchSpace) -> Result:
        found = self._inner("candidates", self.candidates, space)
        others = found if self.references is None else self._inner("references", self.references, space)
        space.outranks()
        candidates, references = self._by_text(found), self._by_text(others)
        if not candidates or not references:
            return replace(found, hypotheses=[], proven=None, gap=None)
        expected = self._expected(list(candidates), references, space.source.text)
        best = np.argsort(-expected, kind="stable")[: space.nbest]
        firsts = [same[0] for same in candidates.values()]
        listed = [replace(firsts[place], rank_score=float(expected[place])) for place in best.tolist()]
        return Result(listed, drawn=found.drawn)

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
        return np.asarray(pairwise(utility, candidates, list(references), source) @ weights)

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
        """``[texts]``: the share of each text; they sum to 1."""
        logs = np.array([np.logaddexp.reduce(list(map(self._log_weight, same))) for same in texts])
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

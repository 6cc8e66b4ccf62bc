"""Minimum Bayes risk: the candidate that is most like what the model would say (Kumar and Byrne 2004).

The decoder ``candidates`` gives hypotheses, and ``references`` pseudo-references r with weights p(r); by default they
are the same. With a utility u, the list has the candidates h with the highest expected utility

    U(h) = sum over r of  p(r) u(h, r)

as `Hypothesis.rank_score`; totals and ledgers stay those of the search. ``weights`` says what p is:

- ``count``: the share of the draws. With a decoder that draws from the model, U(h) is the Monte Carlo estimate of
  Eikema and Aziz 2020, "Is MAP Decoding All You Need?". Hypotheses without counts count once;
- ``uniform``: every hypothesis once;
- ``model``: proportional to exp(total), over the pseudo-references (Jinnai et al. 2024, "Model-Based Minimum Bayes
  Risk Decoding for Text Generation").

``method pairwise`` computes every u(h, r). ``aggregate`` computes one u(h, R) for each candidate, with the average R
of the pseudo-references' statistics (Vamvas and Sennrich 2024, "Linear-time Minimum Bayes Risk Decoding with
Reference Aggregation"); the utility must have `Aggregates`.

Hypotheses with equal texts are one candidate, and one pseudo-reference with the sum of their weights: the first of
the inner list. Equal expected utilities keep the order of the inner list.

Guarantee: none about the model's score. Cost: the inner searches, and |candidates| x |references| utilities, or with
``aggregate`` as many as candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

import sgdec
from sgdec import Context, Decoder, DecoderSpec, Hypothesis, Result, SearchSpace, UsageError, UtilitySpec
from sgdec.arrays import Floats
from sgdec.utility import aggregated, pairwise

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
        """Raises UsageError for an inner `mbr`, and for a utility that cannot aggregate if it has to."""
        self._vocabulary = context.vocabularies.target if context else None
        for name, spec in (("candidates", self.candidates), ("references", self.references)):
            if spec is not None and isinstance(spec.decoder, MbrDecoder):
                raise UsageError(f"mbr: {name} are those of another mbr, whose list has few; give sample or beam.")
        if self.method == "aggregate" and not hasattr(self.utility.utility, "aggregated"):
            raise UsageError(
                f"mbr: utility {self.utility.name} cannot aggregate; give one that can (chrf), or method pairwise."
            )

    def decode(self, space: SearchSpace) -> Result:
        found = self.candidates.decode(space, nbest=self.listed)
        others = found if self.references is None else self.references.decode(space, nbest=self.listed)
        space.outranks()
        candidates, references = self._by_text(found), self._by_text(others)
        if not candidates or not references:
            return replace(found, hypotheses=[], proven=None, gap=None)
        weights = self._weights(list(references.values()))
        utility, source = self.utility.utility, space.source.text
        if self.method == "aggregate":
            expected = aggregated(utility, list(candidates), list(references), weights[np.newaxis], source)[:, 0]
        else:
            expected = pairwise(utility, list(candidates), list(references), source) @ weights
        best = np.argsort(-expected, kind="stable")[: space.nbest]
        firsts = [same[0] for same in candidates.values()]
        listed = [replace(firsts[place], rank_score=float(expected[place])) for place in best.tolist()]
        return Result(listed, drawn=found.drawn)

    def _by_text(self, result: Result) -> dict[str, list[Hypothesis]]:
        """The hypotheses of each text, in the order of the list."""
        texts: dict[str, list[Hypothesis]] = {}
        for each in result.hypotheses:
            text = each.text
            if text is None:
                decode = self._vocabulary.decode if self._vocabulary else lambda tokens: " ".join(map(str, tokens))
                text = decode(each.tokens)
            texts.setdefault(text, []).append(each)
        return texts

    def _weights(self, texts: Sequence[Sequence[Hypothesis]]) -> Floats:
        """``[texts]``: the probability of each text, which sum to 1."""
        if self.weights == "model":
            totals = np.array([np.logaddexp.reduce([each.score for each in same]) for same in texts])
            weights = np.exp(totals - totals.max())
        elif self.weights == "count":
            weights = np.array([sum(each.count or 1 for each in same) for same in texts], dtype=float)
        else:
            weights = np.array([len(same) for same in texts], dtype=float)
        return np.asarray(weights / weights.sum())


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mbr": MbrDecoder}

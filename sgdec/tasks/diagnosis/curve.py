"""The beam curve: quality, length and search errors of one decoder with beams of several sizes.

Larger beams make fewer search errors; whether they also make better outputs depends on the model (Koehn and Knowles
2017, "Six Challenges for Neural Machine Translation", section 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sgdec.decoder import Decoder
from sgdec.errors import UsageError
from sgdec.library import LoadedRun
from sgdec.protocol import Hypothesis
from sgdec.ranking import is_better
from sgdec.search.outcome import Outcome
from sgdec.sums import mean
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.lengths import compare_lengths
from sgdec.tasks.diagnosis.repeating import decoded, with_option
from sgdec.tasks.diagnosis.run import Diagnosis, reference_of, spelled
from sgdec.tasks.metrics import corpus_scores, sentence_chrf


@dataclass(frozen=True)
class Point:
    """The outputs with one size of the beam."""

    size: int
    bleu: float
    chrf: float
    rank_score: float | None
    """The mean over all outputs; None if there are none."""
    length_ratio: float | None
    """Tokens of the outputs per token of the references."""
    search_errors: int
    """Sentences of which a better hypothesis is known, from the diagnosis or from another size."""
    failed: int
    expansions: int


@dataclass(frozen=True)
class Oracle:
    """The best hypotheses of the n-best lists, by chrF of the sentence."""

    size: float
    """The mean number of hypotheses in a list."""
    first_bleu: float
    """BLEU of the outputs, which are first in their lists."""
    bleu: float
    """BLEU of the best hypotheses."""
    first_chrf: float
    """The mean chrF over the sentences."""
    chrf: float
    rank: float
    """The mean rank of the best hypotheses, from 1; among equal ones the first counts."""


def beam_curve(run: LoadedRun, cases: Sequence[Case], diagnosis: Diagnosis, sizes: Sequence[int]) -> list[Point]:
    """One point for each size, ascending. Raises UsageError for a decoder without the option ``size``."""
    decoders = {size: with_size(run, size) for size in sorted(set(sizes))}
    sources = [case.source for case in cases]
    found = {size: list(decoded(run, sources, decoder, f"beam {size}")) for size, decoder in decoders.items()}
    known = [
        max([_rank(outcomes[place]) for outcomes in found.values()] + _known(diagnosis, place))
        for place in range(len(cases))
    ]
    references = [reference_of(run, case) for case in cases]
    return [_point(run, cases, size, outcomes, known, references) for size, outcomes in found.items()]


def with_size(run: LoadedRun, size: int) -> Decoder:
    """The run's decoder with another size of the beam."""
    decoder = with_option(run, "size", size)
    if decoder is None:
        name = run.parts.config.decoder_name
        raise UsageError(f"--beams: the decoder {name} has no option 'size'. Give --decoder beam, or omit --beams.")
    return decoder


def oracle(run: LoadedRun, cases: Sequence[Case], diagnosis: Diagnosis) -> Oracle:
    """The oracle of the n-best lists of a diagnosis; a sentence without a list counts as an empty output."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    references = [reference_of(run, case) for case in cases]
    texts = [[spelled(run, each) for each in found] or [""] for found in diagnosis.lists]
    scores = [
        [sentence_chrf(text, [reference], metric) for text in listed]
        for listed, reference in zip(texts, references, strict=True)
    ]
    best = [of.index(max(of)) for of in scores]
    firsts, chosen = (
        [listed[0] for listed in texts],
        [listed[place] for listed, place in zip(texts, best, strict=True)],
    )
    of_first, of_best = corpus_scores([firsts, chosen], [references], "none", keys=("bleu",)).systems
    return Oracle(
        mean([len(listed) for listed in diagnosis.lists]),
        of_first["bleu"].value,
        of_best["bleu"].value,
        mean([of[0] for of in scores]),
        mean([max(each) for each in scores]),
        mean(best) + 1,
    )


def _rank(outcome: Outcome) -> float:
    return outcome.result.hypotheses[0].rank_score if outcome.result.hypotheses else -math.inf


def _known(diagnosis: Diagnosis, place: int) -> list[float]:
    """The rank scores of the hypotheses that the diagnosis knows in the space of a sentence: the best, or none."""
    sentence = diagnosis.sentences[place]
    best = sentence.search.better.scored if sentence.search.better else sentence.output
    return [] if best is None else [best.rank_score]


def _point(
    run: LoadedRun,
    cases: Sequence[Case],
    size: int,
    outcomes: Sequence[Outcome],
    known: Sequence[float],
    references: Sequence[str],
) -> Point:
    best: list[Hypothesis | None] = [
        each.result.hypotheses[0] if each.result.hypotheses else None for each in outcomes
    ]
    texts = ["" if found is None else spelled(run, found) for found in best]
    (scores,) = corpus_scores([texts], [references], "none", keys=("bleu", "chrf")).systems
    ranks = [found.rank_score for found in best if found is not None]
    lengths = [
        (len(found.tokens), len(case.reference))
        for found, case in zip(best, cases, strict=True)
        if found is not None and isinstance(case.reference, tuple)
    ]
    return Point(
        size,
        scores["bleu"].value,
        scores["chrf"].value,
        mean(ranks) if ranks else None,
        compare_lengths(lengths).ratio,
        sum(is_better(most, _rank(outcome)) for most, outcome in zip(known, outcomes, strict=True)),
        sum(found is None for found in best),
        sum(outcome.result.expansions for outcome in outcomes),
    )

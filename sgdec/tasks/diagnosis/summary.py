"""The verdicts on single sentences, summed up over a set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from sgdec.ranking import is_better
from sgdec.sums import mean
from sgdec.tasks.diagnosis.agreement import Agreement
from sgdec.tasks.diagnosis.calibration import Reliability
from sgdec.tasks.diagnosis.lengths import Lengths, compare_lengths
from sgdec.tasks.diagnosis.run import Diagnosis
from sgdec.tasks.diagnosis.scored import COVERAGE, Decision, Scored
from sgdec.tasks.diagnosis.verdicts import VERDICTS, JudgedSentence


class Errors(NamedTuple):
    """The sentences of one kind of error."""

    sentences: int
    mean: float | None
    """The mean difference in rank score, over those for which it is finite; None if there are none."""


class Decider(NamedTuple):
    """A predictor, and the sentences that it decides."""

    name: str
    weight: float | None
    forbids: int
    """References of which it forbids a token, the first forbidden one or a later one."""
    model_errors: int
    """Those that it decides, without the references that it forbids."""
    search_errors: int
    """Those in which it decides for the better hypothesis."""
    turning: int
    """Those model errors that have a `Decision.turning_weight`."""
    turning_weight: float | None
    """The median of these weights."""


class Stops(NamedTuple):
    """The searches that their stop rule has ended too early, as a second search with another rule shows."""

    caveat: str | None
    """The reason why this can happen (`Stopping.caveat`); None if it cannot."""
    rule: str | None
    other: str | None
    """The rule of the second search; None without one."""
    outputs: int
    """Sentences for which it found a hypothesis that ranks higher than the output."""
    lists: int
    """Sentences whose n-best lists lack a hypothesis that it found."""
    length_ratio: float | None
    """That of `Lengths` if these hypotheses were the outputs."""


class Empty(NamedTuple):
    """The empty hypothesis (Stahlberg and Byrne 2019)."""

    outputs: int
    """Outputs that are empty."""
    better: int
    """Sentences whose empty hypothesis ranks higher than the output."""
    optima: int
    """Sentences for which it is proven to be the best hypothesis of the space."""
    proven: int
    """Sentences whose best hypothesis is known."""
    forbidden: int
    """Sentences in which a predictor forbids it."""


@dataclass(frozen=True)
class DiagnosisSummary:
    """The counts and means over a set of sentences."""

    sentences: int
    failed: int
    """Sentences without an output."""
    found: int
    """Outputs with the tokens of the reference."""
    verdicts: Mapping[str, int]
    """By `JudgedSentence.verdict`."""
    proven: Errors
    """Search errors by the exact amount."""
    witnessed: Errors
    """Search errors by at least this amount."""
    no_search_error: int
    unknown: Errors
    """Sentences without a known better hypothesis or a proof that there is none; the mean is that of the gaps."""
    can_tell: str | None
    """The option with which the exact search would tell more about these; None = there is none."""
    model_errors: Errors
    """Without forbidden references."""
    forbidden: int
    """Model errors because a predictor forbids the reference."""
    too_long: int
    """References beyond the length limit."""
    no_reference: int
    """References that could not be read or scored."""
    deciders: tuple[Decider, ...]
    """The predictors in their order, and the coverage penalty if it has decided anything."""
    lengths: Lengths
    empty: Empty
    stops: Stops
    calibration: Mapping[str, Reliability]
    agreement: Agreement

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for `json`."""
        row = asdict(self)
        for name in ("proven", "witnessed", "unknown", "model_errors", "empty", "stops"):
            row[name] = getattr(self, name)._asdict()
        row["deciders"] = [each._asdict() for each in self.deciders]
        row["lengths"] = self.lengths._asdict() | {"bins": [each._asdict() for each in self.lengths.bins]}
        row["calibration"] = {
            name: each._asdict() | {"bins": [bin._asdict() for bin in each.bins]}
            for name, each in self.calibration.items()
        }
        row["agreement"] = {
            "taken": {name: each._asdict() for name, each in self.agreement.taken.items()},
            "same": [{"predictors": pair, **each._asdict()} for pair, each in self.agreement.same.items()],
        }
        return row


def summarise(diagnosis: Diagnosis) -> DiagnosisSummary:
    """The summary of all sentences."""
    sentences = diagnosis.sentences
    kinds = {
        kind: [each for each in sentences if each.search.error == kind] for kind in ("proven", "witnessed", "unknown")
    }
    errors = [each for each in sentences if each.model.error == "error"]
    verdicts = Counter(each.verdict for each in sentences)
    return DiagnosisSummary(
        len(sentences),
        sum(each.failed for each in sentences),
        sum(_is_reference(each) for each in sentences),
        {verdict: verdicts[verdict] for verdict in dict.fromkeys(VERDICTS.values())},
        _errors([each.search.by for each in kinds["proven"]]),
        _errors([each.search.by for each in kinds["witnessed"]]),
        sum(each.search.error == "none" for each in sentences),
        _errors([each.search.gap for each in kinds["unknown"]]),
        diagnosis.can_tell,
        _errors([each.model.by for each in errors if each.model.by is not None]),
        sum(each.model.error == "forbidden" for each in sentences),
        sum(each.too_long for each in sentences),
        sum(each.model.error == "unknown" for each in sentences),
        tuple(_deciders(diagnosis, sentences)),
        _lengths(sentences, {each.id: each.output for each in sentences}),
        _empty(sentences),
        _stops(diagnosis),
        diagnosis.calibration,
        diagnosis.agreement,
    )


def _is_reference(sentence: JudgedSentence) -> bool:
    output, reference = sentence.output, sentence.reference
    return output is not None and reference is not None and output.tokens == reference.tokens


def _errors(amounts: Sequence[float]) -> Errors:
    finite = [amount for amount in amounts if math.isfinite(amount)]
    return Errors(len(amounts), mean(finite) if finite else None)


def _deciders(diagnosis: Diagnosis, sentences: Sequence[JudgedSentence]) -> list[Decider]:
    model = [each.model.decision for each in sentences if each.model.error == "error" and each.model.decision]
    search = [each.search.decision for each in sentences if each.search.decision]
    forbidden = [each.model.forbidden for each in sentences if each.model.forbidden is not None]
    forbidding = Counter(name for each in forbidden for name in (*each.predictors, *each.later))
    weights = dict(diagnosis.subject.weights)
    if any(each.predictor == COVERAGE for each in [*model, *search]):
        weights[COVERAGE] = None
    found = []
    for name, weight in weights.items():
        decided: list[Decision] = [each for each in model if each.predictor == name]
        turning = [each.turning_weight for each in decided if each.turning_weight is not None]
        found.append(
            Decider(
                name,
                weight,
                forbidding[name],
                len(decided),
                sum(each.predictor == name for each in search),
                len(turning),
                median(turning) if turning else None,
            )
        )
    return found


def _lengths(sentences: Sequence[JudgedSentence], outputs: Mapping[int, Scored | None]) -> Lengths:
    pairs = ((outputs[each.id], each.reference_length) for each in sentences)
    return compare_lengths(
        [(len(output.tokens), length) for output, length in pairs if output is not None and length is not None]
    )


def _stops(diagnosis: Diagnosis) -> Stops:
    stop, sentences = diagnosis.stopping, diagnosis.sentences
    outputs = {each.id: each.output for each in sentences}
    better = {
        each.id: known.scored
        for each in sentences
        for known in each.witnesses
        if known.origin == stop.origin
        and (each.output is None or is_better(known.scored.rank_score, each.output.rank_score))
    }
    ratio = _lengths(sentences, {**outputs, **better}).ratio
    return Stops(stop.caveat, stop.rule, stop.other, len(better), diagnosis.shorter_lists, ratio)


def _empty(sentences: Sequence[JudgedSentence]) -> Empty:
    optima = [each.optimum for each in sentences if each.optimum is not None]
    return Empty(
        sum(each.output is not None and not each.output.tokens for each in sentences),
        sum(
            each.empty is not None
            and each.output is not None
            and is_better(each.empty.rank_score, each.output.rank_score)
            for each in sentences
        ),
        sum(not optimum.tokens for optimum in optima),
        len(optima),
        sum(each.empty_forbidden for each in sentences),
    )

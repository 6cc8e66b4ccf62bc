"""The findings of a summary, in sentences.

A reference that cannot be found always stands out, since no average shows it, and so does a search that its stop rule
has ended too early, since another rule corrects it. Other findings have a threshold, which is a choice and not a test
of significance: a tenth of the sentences for what should not occur at all, and a half for what is only a question of
degree.
"""

from __future__ import annotations

from collections.abc import Iterator

from sgdec.errors import counted
from sgdec.tasks.diagnosis.summary import DiagnosisSummary

FEW, MOST = 0.1, 0.5
TOO_SHORT, TOO_LONG = 0.9, 1.1
"""Length ratios beyond which lengths stand out."""


def findings(summary: DiagnosisSummary) -> list[str]:
    """One line for each finding, the most direct causes first."""
    parts = (_forbidden, _search, _stops, _model, _lengths, _empty)
    return [line for part in parts for line in part(summary)]


def _forbidden(summary: DiagnosisSummary) -> Iterator[str]:
    for each in summary.deciders:
        if each.forbids:
            yield (
                f"{each.name} forbids {each.forbids} of {summary.sentences} references: no search and no weight can "
                "find these."
            )
    if summary.too_long:
        yield (
            f"{summary.too_long} of {summary.sentences} references are longer than the length limit: raise "
            "--max-length or --max-length-factor."
        )


def _search(summary: DiagnosisSummary) -> Iterator[str]:
    errors = summary.proven.sentences + summary.witnessed.sentences
    if errors >= FEW * summary.sentences and errors:
        yield (
            f"The search missed a hypothesis that ranks higher in {errors} of {summary.sentences} sentences"
            f"{_of_these(summary.empty.better)}."
        )
    if summary.unknown.sentences >= MOST * summary.sentences:
        proof = "" if summary.can_tell is None else f", or {summary.can_tell},"
        yield (
            f"Search errors are unknown for {summary.unknown.sentences} of {summary.sentences} sentences: "
            f"--witness FILE{proof} can tell."
        )


def _stops(summary: DiagnosisSummary) -> Iterator[str]:
    stops, of = summary.stops, summary.sentences
    if stops.outputs:
        yield (
            f"Stop {stops.rule} ends the search too early in {stops.outputs} of {of} sentences: with stop "
            f"{stops.other} it finds a hypothesis that ranks higher{_other_lengths(summary)}."
        )
    if stops.lists > stops.outputs:
        yield (
            f"Because of stop {stops.rule}, {stops.lists} of {of} n-best lists lack hypotheses that the search finds "
            f"with stop {stops.other}."
        )
    errors = summary.proven.sentences + summary.witnessed.sentences + summary.unknown.sentences
    if stops.caveat is not None and stops.other is None and errors:
        yield stops.caveat


def _other_lengths(summary: DiagnosisSummary) -> str:
    """The lengths that the other stop rule gives."""
    now, then = summary.lengths.ratio, summary.stops.length_ratio
    if now is None or then is None or f"{now:.2f}" == f"{then:.2f}":
        return ""
    told = f", and outputs have {then:.2f} tokens for each token of the references instead of {now:.2f}"
    if TOO_SHORT <= then <= TOO_LONG or abs(then - 1) < abs(now - 1):
        return told
    hidden = "a length bias" if TOO_SHORT <= now <= TOO_LONG else "a part of the length bias"
    return f"{told}. So stop {summary.stops.rule} hides {hidden}"


def _model(summary: DiagnosisSummary) -> Iterator[str]:
    """Model errors, and the predictors that decide most of them. A predictor alone decides against nothing."""
    errors, of = summary.model_errors.sentences, summary.sentences
    if not errors or errors < FEW * of:
        return
    consulted = [each for each in summary.deciders if each.weight is not None]
    deciding = [each for each in consulted if each.model_errors > MOST * errors]
    if len(consulted) < 2 or not deciding:
        nobody = ", and no predictor decides most of these" if len(consulted) > 1 else ""
        yield f"The reference ranks lower than the output in {errors} of {of} sentences{nobody}."
        return
    for each in deciding:
        line = f"{each.name} (weight {each.weight:g}) decides {each.model_errors} of {_model_errors(summary)}"
        if each.turning_weight is None or each.turning <= MOST * each.model_errors:
            yield f"{line}; another weight of the same sign turns {each.turning} of them."
        else:
            median = f"{each.turning_weight:.4g} in the median"
            yield f"{line}; {each.turning} of them turn at another weight, {median}."


def _model_errors(summary: DiagnosisSummary) -> str:
    """Their number, and what it leaves out."""
    number = counted(summary.model_errors.sentences, "model error")
    return f"{number} whose reference is not forbidden" if summary.forbidden else number


def _lengths(summary: DiagnosisSummary) -> Iterator[str]:
    lengths = summary.lengths
    if lengths.ratio is None or TOO_SHORT <= lengths.ratio <= TOO_LONG:
        return
    kind, count = ("short", lengths.shorter) if lengths.ratio < 1 else ("long", lengths.longer)
    yield (
        f"Outputs are too {kind}: {lengths.ratio:.2f} tokens for each token of the references; {count} of "
        f"{lengths.sentences} are {kind}er."
    )


def _empty(summary: DiagnosisSummary) -> Iterator[str]:
    if summary.empty.outputs >= FEW * summary.sentences and summary.empty.outputs:
        yield f"{summary.empty.outputs} of {summary.sentences} outputs are empty."


def _of_these(empty: int) -> str:
    return f"; in {empty} of these the empty output does" if empty else ""

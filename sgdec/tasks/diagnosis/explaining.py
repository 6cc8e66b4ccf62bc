"""The verdicts on one sentence in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from sgdec.context import EOS
from sgdec.errors import counted
from sgdec.tasks.diagnosis.scored import Decision
from sgdec.tasks.diagnosis.verdicts import EMPTY, PROOF, REFERENCE, JudgedSentence

ORIGINS = {PROOF: "found by exact search", REFERENCE: "the reference", EMPTY: "the empty output"}
"""The origins of hypotheses in words; all others are files, or name a search (`Stopping.origin`)."""


def severity(sentence: JudgedSentence) -> tuple[bool, bool, float]:
    """The severity of a sentence, for sorting: whether there is no output, whether the reference is lost, and the
    larger of the two differences in rank score."""
    return sentence.failed, sentence.lost, max(sentence.search.by, sentence.model.by or 0.0)


def explain(sentence: JudgedSentence, piece: Callable[[int], str], weights: dict[str, float | None]) -> Iterator[str]:
    """Sentences about the search, the model, and the predictors that decide. ``piece``: the string of a token."""
    yield _search(sentence)
    if sentence.search.decision is not None:
        yield _decides(sentence.search.decision, weights)
    yield _model(sentence, piece)
    if sentence.model.error == "error" and sentence.model.decision is not None:
        yield _decides(sentence.model.decision, weights)
    if sentence.too_long:
        yield (
            f"The reference has {counted(sentence.reference_length or 0, 'token')}, more than the length limit of "
            f"{sentence.limit}: no search can find it."
        )
    yield from sentence.problems


def _search(sentence: JudgedSentence) -> str:
    search = sentence.search
    if search.error == "none":
        return "No search error: it is proven that no hypothesis ranks higher."
    if search.error == "unknown":
        most = f"by at most {search.gap:.4g}" if math.isfinite(search.gap) else "by an unknown amount"
        return f"Search unknown: the best hypothesis may rank higher {most}."
    assert search.better is not None
    found = ORIGINS.get(search.better.origin, f"from {search.better.origin}")
    if search.error == "proven":
        return f"Search error, proven: the best hypothesis ({found}) ranks higher by {_amount(search.by)}."
    line = f"Search error, witnessed: a hypothesis ({found}) ranks higher by {_amount(search.by)}"
    return f"{line}; the best one by at most {search.gap:.4g}." if math.isfinite(search.gap) else f"{line}."


def _model(sentence: JudgedSentence, piece: Callable[[int], str]) -> str:
    model = sentence.model
    if model.forbidden is not None:
        token = "</s>" if model.forbidden.token == EOS else repr(piece(model.forbidden.token))
        names = " and ".join(model.forbidden.predictors)
        later = f"; {' and '.join(model.forbidden.later)} forbids a later one" if model.forbidden.later else ""
        return f"Model error: {names} forbids token {model.forbidden.position} of the reference, {token}{later}."
    if model.by is None:
        return "Model unknown." if model.error == "unknown" else "No model error: there is no output to compare with."
    if model.error == "error":
        return f"Model error: the reference ranks lower by {_amount(model.by)}."
    if model.decision is None:
        return "No model error: the reference ranks as high as the output."
    return f"No model error: the reference ranks higher by {_amount(-model.by)}."


def _decides(decision: Decision, weights: dict[str, float | None]) -> str:
    line = f"{decision.predictor} decides ({_amounts(decision.contributions)})"
    if decision.inside:
        line += f", inside of it {_amounts(decision.inside)}"
    if decision.turning_weight is None:
        return f"{line}."
    weight = weights[decision.predictor]
    return f"{line}; with weight {decision.turning_weight:.4g} instead of {weight:g} both are equal."


def _amounts(by_name: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {by:+.4g}" for name, by in by_name.items())


def _amount(by: float) -> str:
    return f"{by:.4g}" if math.isfinite(by) else "any amount, because there is no output"


def worst(sentences: Sequence[JudgedSentence], count: int) -> list[JudgedSentence]:
    """At most ``count`` sentences with errors, the largest first."""
    wrong = [each for each in sentences if any(severity(each)) and each.verdict not in ("neither", "unknown")]
    return sorted(wrong, key=severity, reverse=True)[:count]

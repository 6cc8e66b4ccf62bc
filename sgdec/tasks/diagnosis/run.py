"""Diagnosis of the outputs of a run: decodes, scores the alternatives, searches exactly, and judges."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sgdec.context import EOS, Vocabulary
from sgdec.errors import UsageError
from sgdec.library import LoadedRun
from sgdec.protocol import Hypothesis, Source
from sgdec.ranking import Ranking
from sgdec.search.blame import told
from sgdec.search.outcome import Outcome
from sgdec.tasks.diagnosis.agreement import Agreement, agreement
from sgdec.tasks.diagnosis.calibration import Reliability, reliability
from sgdec.tasks.diagnosis.cases import Case, pair_of
from sgdec.tasks.diagnosis.following import NO_TOKEN, FollowedPath, alone, follow
from sgdec.tasks.diagnosis.proving import ProofBudget, bound_of, can_tell, prove
from sgdec.tasks.diagnosis.scored import Decision, Scored
from sgdec.tasks.diagnosis.stopping import Stopping, stopping
from sgdec.tasks.diagnosis.subject import Subject
from sgdec.tasks.diagnosis.verdicts import EMPTY, PROOF, REFERENCE, Forbidden, Judge, JudgedSentence, KnownOutput
from sgdec.tasks.parts import mixes_of, part_scores
from sgdec.tasks.scoring import ForbiddenOutput
from sgdec.terminal import Bar, track
from sgdec.trace.records import Tracing

log = logging.getLogger(__name__)

Tokens: TypeAlias = tuple[int, ...]
Scores: TypeAlias = "dict[tuple[int, Tokens], Scored | Exception]"
"""By sentence and tokens."""
ALL = "all predictors"
"""The name of the whole constellation beside the names of predictors."""


@dataclass(frozen=True)
class Diagnosis:
    """The result for a set of sentences."""

    subject: Subject
    can_tell: str | None
    """The option with which the exact search would tell more (`proving.can_tell`)."""
    stopping: Stopping
    shorter_lists: int
    """The n-best lists that lack a hypothesis which a second search found (`Stopping.shorter_lists`)."""
    sentences: tuple[JudgedSentence, ...]
    lists: tuple[tuple[Hypothesis, ...], ...]
    """The n-best list of each sentence."""
    calibration: dict[str, Reliability]
    """Along the references: of the whole constellation (`ALL`), and of each predictor alone."""
    agreement: Agreement
    """Along the outputs."""
    vocabulary: Vocabulary | None
    """That of the target side."""


def diagnose(
    run: LoadedRun,
    cases: Sequence[Case],
    budget: ProofBudget | None = None,
    *,
    tracing: Tracing | None = None,
    seen: Callable[[Outcome], object] = lambda outcome: None,
) -> Diagnosis:
    """Decode the sources and judge the outputs.

    ``tracing``: the part of the decoder's search to trace; ``seen`` is called with each of its outcomes.
    A failed sentence does not affect the others (`JudgedSentence.problems`). Raises UsageError for a decoder that
    ranks by a criterion of its own, and for a predictor without bounds, except with the proof "none".
    """
    if run.parts.decoder.ranks_by != "ranking":
        raise UsageError(
            f"{run.parts.config.decoder_name} ranks by {run.parts.decoder.ranks_by}, so scores do not say which "
            "output it should have found. Give another --decoder."
        )
    outcomes = []
    searches = run.scheduler(tracing).run(case.source for case in cases)
    for outcome in track(searches, "decoding", log, unit="sentences", total=len(cases)):
        seen(outcome)
        outcomes.append(run.respelled(replace(outcome, trace=None)))
    sources = [outcome.source for outcome in outcomes]
    proofs = _proofs(run, outcomes, budget or ProofBudget())
    bounds = {number: bound_of(proof.result, proof.source, run) for number, proof in proofs.items()}
    stop = stopping(run, outcomes, bounds)
    cases = [_with_witness(case, stop) for case in cases]
    scores = _scores(run, cases, outcomes)
    given = [None if isinstance(case.reference, Exception) else case.reference for case in cases]
    references = _along(run, sources, given)
    everything = references.pop(ALL)
    found = [_best(outcome) for outcome in outcomes]
    outputs = _along(run, sources, found)
    del outputs[ALL]
    sentences = []
    for place, (case, outcome) in enumerate(zip(cases, outcomes, strict=True)):
        paths = {name: of[place] for name, of in references.items()}
        proof, bound = proofs.get(outcome.source.id), bounds.get(outcome.source.id, math.inf)
        sentences.append(_judged(run, case, outcome, scores, proof, bound, paths))
    return Diagnosis(
        Subject.of(run, budget or ProofBudget(), stop),
        can_tell(run, budget or ProofBudget()),
        stop,
        stop.shorter_lists(outcomes),
        tuple(sentences),
        tuple(tuple(outcome.result.hypotheses) for outcome in outcomes),
        {name: _reliability(given, of) for name, of in {ALL: everything, **references}.items()},
        agreement(found, outputs),
        run.parts.vocabularies.target,
    )


def spelled(run: LoadedRun, hypothesis: Hypothesis) -> str:
    """The text of a hypothesis; token ids without a vocabulary."""
    return _text(run, hypothesis.tokens) if hypothesis.text is None else hypothesis.text


def reference_of(run: LoadedRun, case: Case) -> str:
    """The text of a reference: its line; of token ids with a vocabulary their text."""
    vocabulary = run.parts.vocabularies.target
    if case.is_text or vocabulary is None or not isinstance(case.reference, tuple):
        return case.reference_text
    return vocabulary.decode(case.reference)


def _best(outcome: Outcome) -> Tokens | None:
    return outcome.result.hypotheses[0].tokens if outcome.result.hypotheses else None


def _with_witness(case: Case, stop: Stopping) -> Case:
    """The case with the output of the second search, if there is one."""
    outcome = stop.found.get(case.source.id)
    best = None if outcome is None else _best(outcome)
    return case if best is None else replace(case, witnesses=(*case.witnesses, (stop.origin, best)))


def _scores(run: LoadedRun, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> Scores:
    """The scores of all outputs in question."""
    wanted: dict[tuple[int, Tokens], Source] = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        if isinstance(case.source, Source):
            listed = [_best(outcome), case.reference, (), *(tokens for _, tokens in case.witnesses)]
            wanted |= {(case.source.id, tokens): case.source for tokens in listed if isinstance(tokens, tuple)}
    ranking = run.parts.decoder.ranking
    scorer = run.scorer(ranking).run(pair_of(source, tokens) for (_, tokens), source in wanted.items())
    searches = track(scorer, "scoring", log, unit="outputs", total=len(wanted))
    return {key: _scored(outcome, ranking) for key, outcome in zip(wanted, searches, strict=True)}


def _scored(outcome: Outcome, ranking: Ranking) -> Scored | Exception:
    if outcome.error is not None:
        return outcome.error
    return Scored.of(outcome.result.hypotheses[0], ranking)


def _proofs(run: LoadedRun, outcomes: Sequence[Outcome], budget: ProofBudget) -> dict[int, Outcome]:
    """By sentence the outcome of an exact search: of the decoder itself if it has proven its output."""
    proven = {outcome.source.id: outcome for outcome in outcomes if outcome.result.proven}
    if budget.proof == "none":
        return proven
    sources = [outcome.source for outcome in outcomes if outcome.source.tokens and not outcome.result.proven]
    searches = track(prove(run, sources, budget), "exact search", log, unit="sentences", total=len(sources))
    return proven | {outcome.source.id: outcome for outcome in searches}


def _along(
    run: LoadedRun, sources: Sequence[Source], outputs: Sequence[Tokens | None]
) -> dict[str, list[FollowedPath | None]]:
    """For the whole constellation, and for each predictor alone, its path along each output that is not None."""
    places = [place for place, tokens in enumerate(outputs) if tokens is not None and sources[place].tokens]
    pairs = [pair_of(sources[place], outputs[place] or ()) for place in places]
    constellation, settings = run.parts.constellation, run.settings
    rows = min(settings.batch_size, settings.max_rows or settings.batch_size)
    found = {}
    for name, each in {ALL: constellation, **alone(constellation)}.items():
        with Bar(f"predictions of {name}", log, unit="sentences", total=len(pairs)) as bar:
            paths = dict(zip(places, follow(each, pairs, rows, bar.advance), strict=True))
        found[name] = [paths.get(place) for place in range(len(outputs))]
    return found


def _reliability(references: Sequence[Tokens | None], paths: Sequence[FollowedPath | None]) -> Reliability:
    """The calibration along the references, at the steps with one best token."""
    steps = [
        (step.confidence, step.best == token)
        for tokens, path in zip(references, paths, strict=True)
        if tokens is not None and path is not None
        for step, token in zip(path.steps, (*tokens, EOS), strict=False)
        if step.best != NO_TOKEN
    ]
    return reliability([confidence for confidence, _ in steps], [right for _, right in steps])


def _judged(
    run: LoadedRun,
    case: Case,
    outcome: Outcome,
    scores: Scores,
    proof: Outcome | None,
    bound: float,
    paths: Mapping[str, FollowedPath | None],
) -> JudgedSentence:
    source, constellation = outcome.source, run.parts.constellation
    problems: dict[str, str] = {}
    """By problem the first that has it: a predictor that cannot read a sentence fails in each search."""

    def scored(what: str, tokens: Tokens | Exception | None) -> Scored | None:
        found = scores.get((source.id, tokens)) if isinstance(tokens, tuple) else tokens
        if isinstance(found, Exception) and not isinstance(found, ForbiddenOutput):
            problems.setdefault(told(found), what)
        return found if isinstance(found, Scored) else None

    best = _best(outcome)
    if outcome.error is not None:
        problems[told(outcome.error, run.parts.config.decoder_name)] = "output"
    output, reference, empty = scored("output", best), scored(REFERENCE, case.reference), scored(EMPTY, ())
    if best is not None and output is None:
        problems["predictors that did not score it forbid it."] = "output"
    witnesses = tuple(
        KnownOutput(name, found, _text(run, found.tokens))
        for name, tokens in case.witnesses
        if (found := scored(name, tokens)) is not None
    )
    forbidden = None if reference else _forbidden(case.reference, paths)
    unscored = scores.get((source.id, case.reference)) if isinstance(case.reference, tuple) else None
    if isinstance(unscored, ForbiddenOutput) and forbidden is None:  # no predictor alone could say where
        problems.setdefault(told(unscored), REFERENCE)
    optimum = None
    if proof is not None and proof.result.hypotheses:
        optimum = Scored.of(proof.result.hypotheses[0], run.parts.decoder.ranking)
    known = [
        (PROOF, optimum),
        (REFERENCE, reference),
        *((each.origin, each.scored) for each in witnesses),
        (EMPTY, empty),
    ]
    others = [
        KnownOutput(origin, found, _text(run, found.tokens))
        for origin, found in known
        if found is not None and (source.max_length is None or len(found.tokens) <= source.max_length)
    ]
    judge = Judge(constellation.names, constellation.weights)
    search, model = judge.search(output, others, bound), judge.model(output, reference, forbidden)
    if output is not None and search.better is not None:
        inside = _inside(run, source, search.decision, search.better.scored, output)
        search = replace(search, decision=inside)
    if output is not None and reference is not None and model.by is not None:
        pair = (output, reference) if model.by > 0 else (reference, output)
        model = replace(model, decision=_inside(run, source, model.decision, *pair))
    optima = {"proven": search.better.scored if search.better else None, "none": output}
    return JudgedSentence(
        source.id,
        source.text,
        source.max_length,
        output,
        spelled(run, outcome.result.hypotheses[0]) if outcome.result.hypotheses else "",
        reference,
        reference_of(run, case),
        len(case.reference) if isinstance(case.reference, tuple) else None,
        empty,
        isinstance(scores.get((source.id, ())), ForbiddenOutput),
        witnesses,
        optima.get(search.error),
        search,
        model,
        0 if proof is None else proof.result.expansions,
        tuple(f"{what}: {problem}" for problem, what in problems.items()),
    )


def _inside(
    run: LoadedRun, source: Source, decision: Decision | None, better: Scored, worse: Scored
) -> Decision | None:
    """The decision, with what the parts of a mix add to it."""
    if decision is None or decision.predictor not in mixes_of(run.parts.constellation):
        return decision
    pair = part_scores(run.parts.constellation, source, [better.tokens, worse.tokens])
    ahead, behind = ({part: sum(own) for part, own in each[decision.predictor].items()} for each in pair)
    apart = {part: ahead[part] - behind[part] if ahead[part] != behind[part] else 0.0 for part in ahead}
    return replace(decision, inside=apart)


def _forbidden(reference: Tokens | Exception, paths: Mapping[str, FollowedPath | None]) -> Forbidden | None:
    """The first token that a predictor forbids, and all predictors that forbid it or a later one."""
    stops = {
        name: path.forbidden_at for name, path in paths.items() if path is not None and path.forbidden_at is not None
    }
    if not stops or not isinstance(reference, tuple):
        return None
    first = min(stops.values())
    forbidding = tuple(name for name, place in stops.items() if place == first)
    later = tuple(name for name, place in stops.items() if place > first)
    return Forbidden(forbidding, (*reference, EOS)[first], first + 1, later)


def _text(run: LoadedRun, tokens: Sequence[int]) -> str:
    vocabulary = run.parts.vocabularies.target
    return " ".join(map(str, tokens)) if vocabulary is None else vocabulary.decode(tokens)

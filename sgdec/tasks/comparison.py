"""Comparison of the outputs of two or more runs on the same sentences, with or without references.

The first run is the baseline. All metrics read text as it is, so they expect detokenised text; token ids are compared
as text, in which each id is a word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import compress, zip_longest
from typing import TYPE_CHECKING, Any

from sgdec.errors import SgdecError, UsageError, counted
from sgdec.io.outputs import Outputs
from sgdec.sums import mean
from sgdec.tasks.metrics import NAMES, SAMPLES, SEED, MetricScores, Score, Test, corpus_scores, sentence_chrf
from sgdec.terminal import Bar, track

if TYPE_CHECKING:
    from sacrebleu.metrics.chrf import CHRF

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lists:
    """The n-best lists of a run."""

    smallest: int
    mean: float
    largest: int
    sentences: int
    """The sentences that have an output in every run: the means below, of chrF of sentences, are over them."""
    first_chrf: float | None
    """The chrF of the first hypotheses; None without references or such sentences, as the next two."""
    best_chrf: float | None
    """The oracle: the chrF of the hypothesis of each list that has the highest one."""
    best_rank: float | None
    """The mean rank of these hypotheses, from 1; among equal ones the first counts."""


@dataclass(frozen=True)
class System:
    """One run, by itself."""

    name: str
    format: str
    scores: Mapping[str, Score]
    """BLEU, chrF and TER by their keys ``bleu``, ``chrf`` and ``ter``; empty without references."""
    length_ratio: float | None
    """Words of the outputs per word of the references, as BLEU counts them (13a tokens, closest reference); None
    without references."""
    brevity_penalty: float | None
    """BLEU's factor for short outputs (Papineni et al. 2002, section 2.2.2), from 0 to 1; None without references."""
    missing: int
    """The number of sentences without an output, for which the scores count an empty one."""
    has_4_grams: bool
    """Whether an output has four words (13a tokens); if none has, BLEU is 0."""
    weights: Mapping[str, float | None]
    """`Outputs.weights`, by predictor."""
    lists: Lists | None
    """None if no sentence has two hypotheses."""


@dataclass(frozen=True)
class ScoreDifferences:
    """The scores of a run minus those of the first, over the sentences that have a score in both files."""

    sentences: int
    mean: float
    higher: int
    """The number of sentences whose score is higher than in the first run."""
    lower: int


@dataclass(frozen=True)
class Overlap:
    """One run against the first, without references, over the sentences for which both have an output."""

    name: str
    sentences: int
    """The number of these sentences."""
    missing_in_both: int
    """The number of sentences for which neither run has an output."""
    equal: int
    """The number of sentences with equal outputs."""
    bleu: float | None
    """BLEU of the outputs, with those of the first run as references; None without sentences, as chrF."""
    has_4_grams: bool
    """As in `System`."""
    chrf: float | None
    words: float | None
    """Words of the outputs per word of the first run, separated by spaces; None if the first has none."""
    characters: float | None
    scores: ScoreDifferences | None
    """None if no sentence has two scores."""
    same_weights: bool
    """Whether the files name the same predictors, and no weight that differs. Otherwise the scores are not
    comparable."""


@dataclass(frozen=True)
class ComparedSentence:
    """The outputs of one sentence."""

    number: int
    """From 1."""
    source: str | None
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    """The output of each run; empty if it is missing."""
    missing: tuple[bool, ...]
    """Whether the output of each run is missing."""
    chrf: tuple[float, ...]
    """The chrF of each output against the references; without references, against the first output."""
    scores: tuple[float | None, ...]
    """The score of each output in its file."""

    @property
    def differs(self) -> bool:
        return len(set(self.outputs)) > 1

    @property
    def difference(self) -> float:
        """The largest difference in chrF to the first output, with its sign."""
        return max((value - self.chrf[0] for value in self.chrf[1:]), key=abs)


@dataclass(frozen=True)
class Comparison:
    """All results. The tuples of systems and of overlaps are in the order of the runs; overlaps begin with the
    second."""

    systems: tuple[System, ...]
    overlaps: tuple[Overlap, ...]
    sentences: tuple[ComparedSentence, ...]
    signatures: Mapping[str, str]
    """sacreBLEU's signatures, by the keys of `System.scores`; empty without references."""
    overlap_signatures: Mapping[str, str]
    """Those of BLEU and chrF in the overlaps."""
    test: Test = "none"
    """The test of the differences to the first system."""
    samples: int = 0
    """Its trials or resamples."""

    @property
    def has_references(self) -> bool:
        return bool(self.signatures)

    def most_different(self, count: int) -> list[ComparedSentence]:
        """At most ``count`` sentences with different outputs, the largest difference in chrF first."""
        different = (sentence for sentence in self.sentences if sentence.differs)
        return sorted(different, key=lambda sentence: -abs(sentence.difference))[:count]

    def to_dict(self) -> dict[str, Any]:
        """All numbers, for `json`; the texts of the sentences are left out."""
        row = asdict(self)
        row["sentences"] = [
            {
                "number": each.number, "missing": each.missing, "chrf": each.chrf, "difference": each.difference,
                "scores": each.scores,
            }
            for each in self.sentences
        ]
        return row


def compare(
    runs: Sequence[Outputs],
    references: Sequence[Sequence[str]] = (),
    *,
    source: Sequence[str] | None = None,
    test: Test = "approx",
    samples: int | None = None,
    seed: int = SEED,
    metrics: Sequence[str] = tuple(NAMES),
) -> Comparison:
    """Compares two or more runs, of which the first is the baseline.

    ``references``: any number of translations of the whole source; ``test``, ``samples``, ``seed`` and ``metrics``
    (its ``keys``) are those of `corpus_scores`. A missing output counts as an empty one against references; runs are
    compared with each other over the sentences for which both have an output. Raises UsageError if there is only one
    run, and SgdecError if the numbers of sentences differ; `aligned` names the files.
    """
    from sacrebleu.metrics.chrf import CHRF

    if len(runs) < 2:
        raise UsageError("a comparison needs the outputs of two runs or more.")
    runs = aligned(runs, [("a reference", len(lines)) for lines in references])
    metric = CHRF()
    with Bar("scoring", log):
        texts = [run.texts for run in runs]
        scores = corpus_scores(texts, references, test, samples, seed, metrics) if references else None
        overlaps = [_overlap(runs[0], run) for run in runs[1:]]
    rows = list(zip(*references, strict=True))
    in_all = [all(lists) for lists in zip(*(run.lists for run in runs), strict=True)]
    return Comparison(
        tuple(
            _system(run, references, rows, in_all, scores.systems[place] if scores else {}, metric)
            for place, run in enumerate(runs)
        ),
        tuple(overlap for overlap, _ in overlaps),
        tuple(_sentences(runs, rows, source, metric)),
        scores.signatures if scores else {},
        next((signatures for _, signatures in overlaps if signatures), {}),
        test if scores else "none",
        samples or SAMPLES[test] if scores else 0,
    )


def aligned(runs: Sequence[Outputs], files: Sequence[tuple[str, int]] = ()) -> list[Outputs]:
    """Runs with equal numbers of sentences: n-best lists that end early are `filled`. ``files``: the names of other
    files and their numbers of sentences. Raises SgdecError if two numbers differ; the first file is right."""
    sizes = [*(len(run.lists) for run in runs), *(size for _, size in files)]
    runs = [run.filled(max(sizes)) for run in runs]
    (name, count), *others = [*((run.name, len(run.lists)) for run in runs), *files]
    for other, found in others:
        if found != count:
            raise SgdecError(
                f"{name} has {counted(count, 'sentence')} but {other} has {found}. Sentence N of one must belong to "
                "sentence N of the other."
            )
    return runs


def _system(
    run: Outputs,
    references: Sequence[Sequence[str]],
    rows: Sequence[tuple[str, ...]],
    in_all: Sequence[bool],
    scores: Mapping[str, Score],
    metric: CHRF,
) -> System:
    ratio = brevity = None
    if references:
        from sacrebleu.metrics.bleu import BLEU

        bleu = BLEU(force=True).corpus_score(run.texts, references)
        ratio, brevity = bleu.sys_len / bleu.ref_len if bleu.ref_len else None, bleu.bp
    return System(
        run.name, run.format, scores, ratio, brevity, run.missing, _has_4_grams(run.texts), run.weights,
        _lists(run, rows, in_all, metric),
    )  # fmt: skip


def _has_4_grams(texts: Sequence[str]) -> bool:
    from sacrebleu.metrics.bleu import BLEU

    words_of = BLEU().tokenizer
    return any(len(words_of(text).split()) >= 4 for text in texts)


def _lists(run: Outputs, rows: Sequence[tuple[str, ...]], in_all: Sequence[bool], metric: CHRF) -> Lists | None:
    sizes = [len(listed) for listed in run.lists]
    if max(sizes) < 2:
        return None
    sized = partial(Lists, min(sizes), mean(sizes), max(sizes), sum(in_all))
    if not rows or not any(in_all):
        return sized(None, None, None)
    first, best, ranks = [], [], []
    pairs = compress(zip(run.lists, rows, strict=True), in_all)
    for listed, references in track(pairs, f"oracle of {run.name}", log, unit="lists", total=sum(in_all)):
        chrf = [sentence_chrf(each.text, references, metric) for each in listed]
        first.append(chrf[0])
        best.append(max(chrf))
        ranks.append(chrf.index(best[-1]) + 1)
    return sized(mean(first), mean(best), mean(ranks))


def _overlap(first: Outputs, run: Outputs) -> tuple[Overlap, Mapping[str, str]]:
    """The overlap, and the signatures of its metrics; no signatures if no sentence has two outputs."""
    lists = list(zip(first.lists, run.lists, strict=True))
    pairs = [(one[0].text, other[0].text) for one, other in lists if one and other]
    before, after = [one for one, _ in pairs], [other for _, other in pairs]
    scores = corpus_scores([after], [before], "none", keys=("bleu", "chrf")) if pairs else MetricScores({}, ({},))
    values = {key: score.value for key, score in scores.systems[0].items()}
    overlap = Overlap(
        run.name,
        len(pairs),
        sum(not one and not other for one, other in lists),
        sum(one == other for one, other in pairs),
        values.get("bleu"),
        _has_4_grams(after),
        values.get("chrf"),
        _ratio([len(text.split()) for text in before], [len(text.split()) for text in after]),
        _ratio(list(map(len, before)), list(map(len, after))),
        _differences(first, run),
        _same_weights(first.weights, run.weights),
    )
    return overlap, scores.signatures


def _ratio(before: Sequence[int], after: Sequence[int]) -> float | None:
    return sum(after) / sum(before) if any(before) else None


def _same_weights(first: Mapping[str, float | None], other: Mapping[str, float | None]) -> bool:
    """Whether two runs have the same predictors, as far as the files name them, and the same weights where known."""
    if not first or not other:
        return True
    return first.keys() == other.keys() and all(
        weight is None or other[name] is None or weight == other[name] for name, weight in first.items()
    )


def _differences(first: Outputs, run: Outputs) -> ScoreDifferences | None:
    found = [
        other.score - one.score
        for one, other in zip(first.best, run.best, strict=True)
        if one.score is not None and other.score is not None
    ]
    if not found:
        return None
    return ScoreDifferences(
        len(found), mean(found), sum(each > 0 for each in found), sum(each < 0 for each in found)
    )


def _sentences(
    runs: Sequence[Outputs], rows: Sequence[tuple[str, ...]], source: Sequence[str] | None, metric: CHRF
) -> Iterator[ComparedSentence]:
    best = zip(*(run.best for run in runs), strict=True)
    found = zip(*(map(bool, run.lists) for run in runs), strict=True)
    for number, (hypotheses, has, references, line) in enumerate(zip_longest(best, found, rows, source or ()), 1):
        outputs = tuple(hypothesis.text for hypothesis in hypotheses)
        against = references or outputs[:1]
        yield ComparedSentence(
            number,
            line,
            references or (),
            outputs,
            tuple(not each for each in has),
            tuple(sentence_chrf(output, against, metric) for output in outputs),
            tuple(hypothesis.score for hypothesis in hypotheses),
        )

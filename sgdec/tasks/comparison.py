"""Comparison of the outputs of two or more runs on the same sentences, with or without references.

The first run is the baseline. All metrics read text as it is, so they expect detokenised text; token ids are compared
as text, in which each id is a word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from sgdec.errors import SgdecError, UsageError, counted
from sgdec.io.outputs import Outputs
from sgdec.sums import mean
from sgdec.tasks.metrics import NAMES, SAMPLES, SEED, Score, Scores, Test, corpus_scores, sentence_chrf
from sgdec.terminal import Bar, track

if TYPE_CHECKING:
    from sacrebleu.metrics.chrf import CHRF

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lists:
    """The n-best lists of a run. The chrF is that of sentences, averaged over the sentences that have a list."""

    smallest: int
    mean: float
    largest: int
    first_chrf: float | None
    """The chrF of the first hypotheses; None without references, as the next two."""
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
    """One run against the first, without references."""

    name: str
    equal: int
    """The number of sentences with equal outputs."""
    bleu: float
    """BLEU of the outputs, with those of the first run as references."""
    chrf: float
    words: float | None
    """Words of the outputs per word of the first run, separated by spaces; None if the first has none."""
    characters: float | None
    scores: ScoreDifferences | None
    """None if no sentence has two scores."""


@dataclass(frozen=True)
class Sentence:
    """The outputs of one sentence."""

    number: int
    """From 1."""
    source: str | None
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    """The output of each run."""
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
    sentences: tuple[Sentence, ...]
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

    def most_different(self, count: int) -> list[Sentence]:
        """At most ``count`` sentences with different outputs, the largest difference in chrF first."""
        different = (sentence for sentence in self.sentences if sentence.differs)
        return sorted(different, key=lambda sentence: -abs(sentence.difference))[:count]

    def to_dict(self) -> dict[str, Any]:
        """All numbers, for `json`; the texts of the sentences are left out."""
        row = asdict(self)
        row["sentences"] = [
            {"number": each.number, "chrf": each.chrf, "difference": each.difference, "scores": each.scores}
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
    (its ``keys``) are those of `corpus_scores`. Raises UsageError if there is only one run, and SgdecError if the
    numbers of sentences differ; `require_equal_lengths` names the files.
    """
    from sacrebleu.metrics.chrf import CHRF

    if len(runs) < 2:
        raise UsageError("a comparison needs the outputs of two runs or more.")
    sizes = [(run.name, len(run.lists)) for run in runs]
    require_equal_lengths([*sizes, *(("a reference", len(lines)) for lines in references)])
    texts, metric = [run.texts for run in runs], CHRF()
    with Bar("scoring", log):
        scores = corpus_scores(texts, references, test, samples, seed, metrics) if references else None
        overlap = [corpus_scores([each], [texts[0]], "none", keys=("bleu", "chrf")) for each in texts[1:]]
    rows = list(zip(*references, strict=True))
    return Comparison(
        tuple(
            _system(run, references, rows, scores.systems[place] if scores else {}, metric)
            for place, run in enumerate(runs)
        ),
        tuple(_overlap(runs[0], run, of) for run, of in zip(runs[1:], overlap, strict=True)),
        tuple(_sentences(runs, rows, source, metric)),
        scores.signatures if scores else {},
        overlap[0].signatures,
        test if scores else "none",
        samples or SAMPLES[test] if scores else 0,
    )


def require_equal_lengths(files: Sequence[tuple[str, int]]) -> None:
    """Raises SgdecError if two files have different numbers of sentences; the first file is right."""
    name, count = files[0]
    for other, found in files[1:]:
        if found != count:
            raise SgdecError(
                f"{name} has {counted(count, 'sentence')} but {other} has {found}. Sentence N of one must belong to "
                "sentence N of the other."
            )


def _system(
    run: Outputs,
    references: Sequence[Sequence[str]],
    rows: Sequence[tuple[str, ...]],
    scores: Mapping[str, Score],
    metric: CHRF,
) -> System:
    if not references:
        return System(run.name, run.format, scores, None, None, _lists(run, rows, metric))
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(force=True).corpus_score(run.texts, references)
    ratio = bleu.sys_len / bleu.ref_len if bleu.ref_len else None
    return System(run.name, run.format, scores, ratio, bleu.bp, _lists(run, rows, metric))


def _lists(run: Outputs, rows: Sequence[tuple[str, ...]], metric: CHRF) -> Lists | None:
    sizes = [len(listed) for listed in run.lists]
    if max(sizes) < 2:
        return None
    if not rows:
        return Lists(min(sizes), mean(sizes), max(sizes), None, None, None)
    first, best, ranks = [], [], []
    pairs = zip(run.lists, rows, strict=True)
    for listed, references in track(pairs, f"oracle of {run.name}", log, unit="lists", total=len(rows)):
        if listed:
            chrf = [sentence_chrf(each.text, references, metric) for each in listed]
            first.append(chrf[0])
            best.append(max(chrf))
            ranks.append(chrf.index(best[-1]) + 1)
    return Lists(min(sizes), mean(sizes), max(sizes), mean(first), mean(best), mean(ranks))


def _overlap(first: Outputs, run: Outputs, scores: Scores) -> Overlap:
    (of,) = scores.systems
    pairs = list(zip(first.texts, run.texts, strict=True))
    return Overlap(
        run.name,
        sum(one == other for one, other in pairs),
        of["bleu"].value,
        of["chrf"].value,
        _ratio([(len(one.split()), len(other.split())) for one, other in pairs]),
        _ratio([(len(one), len(other)) for one, other in pairs]),
        _differences(first, run),
    )


def _ratio(lengths: Sequence[tuple[int, int]]) -> float | None:
    before, after = map(sum, zip(*lengths, strict=True))
    return after / before if before else None


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
) -> Iterator[Sentence]:
    best = zip(*(run.best for run in runs), strict=True)
    for number, (hypotheses, references, line) in enumerate(zip_longest(best, rows, source or ()), 1):
        outputs = tuple(hypothesis.text for hypothesis in hypotheses)
        against = references or outputs[:1]
        yield Sentence(
            number,
            line,
            references or (),
            outputs,
            tuple(sentence_chrf(output, against, metric) for output in outputs),
            tuple(hypothesis.score for hypothesis in hypotheses),
        )

"""``sgdec score``: what predictors say of given outputs, line by line or for every entry of an n-best list."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sgdec.cli import running
from sgdec.cli.paths import Read, Written
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import whole_number
from sgdec.io.unfinished import beside
from sgdec.settings import Penalties

if TYPE_CHECKING:
    from sgdec.context import Vocabulary
    from sgdec.io.nbest import NbestEntry
    from sgdec.io.sources import SourceReader
    from sgdec.io.unfinished import Rows
    from sgdec.protocol import Hypothesis, Source
    from sgdec.ranking import Ranking
    from sgdec.search.outcome import Outcome, Unreadable
    from sgdec.tasks.scoring import Pair

log = logging.getLogger(__name__)

SHAPING = ("alpha", "beta", "normalize", "old_weight", "batch_size", "window", "max_rows")
"""Options that can change a result, beside those of predictors: they belong to the signature."""
UNSCORED = float("-inf")


class Given(NamedTuple):
    """One output to be scored."""

    pair: Pair | Unreadable
    entry: NbestEntry | None
    """Where it comes from an n-best list."""


@click.command("score", cls=running.RunCommand)
@click.argument("source", nargs=-1, required=True, type=Read())
@click.argument("target", type=Read())
@running.options(
    *running.BEFORE,
    click.option("--nbest-list", is_flag=True, help="TARGET is an n-best list in Moses' format, to be rescored."),
    click.option(
        "--old-weight", type=float, default=0.0, show_default=True,
        help="Of the list's own totals: they are added this many times.",
    ),
    *(running.setting(name, Penalties) for name in ("alpha", "beta", "normalize")),
    click.option(
        "--target-format", type=click.Choice(["text", "ids"]), default="text", show_default=True,
        help="Text goes through the tokenizer; where there is none, outputs are token ids.",
    ),
    click.option("--output", type=Written(beside=beside), metavar="FILE", help="Instead of standard output."),
    *running.UNFINISHED,
    click.option(
        "--output-format", type=click.Choice(["score", "jsonl", "nbest", "text"]),
        help="A score a line, JSON lines with the score of every token, the list in its new order, or the best "
        "of each list. Default: score, or nbest for an n-best list.",
    ),
    *running.AFTER,
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Score outputs: line N of TARGET belongs to line N of SOURCE (files, gzipped or not). A model of two sources
    takes two files, or one whose lines hold both with a tab between them.

    With --nbest-list each entry of the list is scored. Its new total is that of --predictors and --old-weight times
    the old one; each sentence's entries are sorted by it, under the penalties of length and coverage.

    \b
    sgdec score --predictors nmt --nmt.model run/best source.txt target.txt
    sgdec score --predictors nmt --nmt.model r2l/best --nbest-list --old-weight 1 source.txt list.nbest

    An output that cannot be scored is an empty line (in a list: the total -inf), a warning with the number of its
    sentence, and exit status 1 at the end.
    """
    given, dotted = running.settings(ctx, given)
    if given["output_format"] is None:
        given["output_format"] = "nbest" if given["nbest_list"] else "score"
    if given["output_format"] in ("nbest", "text") and not given["nbest_list"]:
        raise UsageError(f"--output-format {given['output_format']} needs --nbest-list: there is nothing to sort.")
    return score(given, dotted)


def score(given: dict[str, Any], dotted: running.Options) -> int:
    """Put the run together, score, write; 1 if an output could not be scored."""
    loaded = running.load(given, dotted, decoder="greedy")  # any: nothing is searched for
    ranking = Penalties(given["alpha"], given["beta"], given["normalize"]).ranking
    run, reader, scheduler = loaded.parts, loaded.reader(given["input_format"]), loaded.scorer(ranking)
    signature = running.sign(run, given, SHAPING, searches=False)
    inputs = [*given["source"], given["target"]]
    about = partial(running.about, given, signature, inputs, ("output_format", "nbest_list", "target_format"))
    with (
        running.collector_spared(),
        reader.open(given["source"]) as lines,
        running.open_rows(given, about) as rows,
    ):
        if rows.complete:
            return 1 if rows.failed else 0
        writer = _Writer(rows, given["output_format"], run.constellation.names, ranking, given["old_weight"])
        vocabulary = run.vocabularies.target if given["target_format"] == "text" else None
        outputs = _Outputs(reader, lines, given, vocabulary, rows.done)
        with running.Tally("scoring", given) as tally:
            for outcome in scheduler.run(outputs.of_list() if given["nbest_list"] else outputs.of_lines()):
                tally.count(outcome)
                if outcome.error is not None:
                    tally.warn(outcome.source.id, outcome.error)
                writer.write(outputs.asked.popleft(), outcome)
        writer.finish(outputs.sentences)
    log.info(str(tally))
    if given["nbest_list"] and outputs.listed < outputs.sentences:
        missing = f"{outputs.sentences - outputs.listed} of {outputs.sentences} sentences"
        log.warning(f"{missing} of {outputs.read_from} have no entry in {given['target']}.")
    running.summarise(run, scheduler, signature)
    return 1 if tally.failed or rows.failed else 0


class _Outputs:
    """The outputs to be scored, in the order of the target file. SgdecError where the two files do not fit."""

    def __init__(
        self, reader: SourceReader, lines: Any, given: dict[str, Any], vocabulary: Vocabulary | None, done: int
    ) -> None:
        """``done``: so many sentences were answered by an earlier run."""
        self.read_from = " and ".join(given["source"])
        sources = reader.read(lines, self.read_from, done + 1)
        self._reader, self._sources = reader, (source for source in sources if source.id > done)
        self._path = given["target"]
        self._vocabulary = vocabulary
        self.asked: deque[Given] = deque()
        """What was read and is not answered yet."""
        self.sentences = self._done = done
        """Source sentences read so far."""
        self.listed = 0
        """Those with entries in the list."""

    def of_lines(self) -> Iterator[Pair | Unreadable]:
        """Line N of the target with line N of the source."""
        from sgdec.text.lines import read_lines

        targets = islice(read_lines(self._path), self._done, None)
        for number, (source, text) in enumerate(zip_longest(self._sources, targets), self._done + 1):
            if source is None or text is None:
                ended = self.read_from if source is None else self._path
                raise SgdecError(
                    f"{ended} ends before line {number}, the other file does not. Expected one target line a source "
                    "line; --nbest-list reads an n-best list."
                )
            yield self._pair(source, text, f"{self._path}: line {number}", None)

    def of_list(self) -> Iterator[Pair | Unreadable]:
        """Each entry of an n-best list with the sentence of its id."""
        from sgdec.io.nbest import read_nbest

        source = None
        for number, entries in read_nbest(self._path):
            self.listed += 1
            if number <= self._done:
                continue
            while self.sentences < number:
                source = next(self._sources, None)
                self.sentences += 1
                if source is None:
                    raise SgdecError(f"{entries[0].where}: {self.read_from} has no sentence {number}.")
            assert source is not None
            yield from (self._pair(source, entry.text, entry.where, entry) for entry in entries)
        self.sentences += sum(1 for _ in self._sources)

    def _pair(
        self, source: Source | Unreadable, text: str, where: str, entry: NbestEntry | None
    ) -> Pair | Unreadable:
        from sgdec.search.outcome import Unreadable
        from sgdec.tasks.scoring import encoded, paired

        pair: Pair | Unreadable
        if isinstance(source, Unreadable):
            pair = source
        else:
            try:
                if self._vocabulary is None:
                    target = _token_ids(text, where)
                else:
                    target = encoded(text, self._vocabulary, source, self._reader.vocabulary)
                pair = paired(source, target)
            except SgdecError as error:
                pair = Unreadable(source.id, error)
        self.asked.append(Given(pair, entry))
        return pair


def _token_ids(text: str, where: str) -> tuple[int, ...]:
    for word in text.split():
        if whole_number(word) in (None, 1, 2):
            raise SgdecError(
                f"{where}: {word!r} is no token id of an output. Text needs a target vocabulary: --tokenizer FILE."
            )
    return tuple(map(int, text.split()))


class _Rescored(NamedTuple):
    """An entry of a list with its new score."""

    rank_score: float
    total: float
    features: str
    entry: NbestEntry


class _Writer:
    """One output after the other; the entries of a list when all of its sentence are there."""

    def __init__(self, output: Rows, format: str, names: Sequence[str], ranking: Ranking, old_weight: float) -> None:
        self._output, self._format, self._names = output, format, names
        self._ranking, self._old_weight = ranking, old_weight
        self._list: list[_Rescored] = []
        self._written = output.done
        self._sentence, self._failed = 0, False
        """Whose entries are written, and whether one of them failed."""

    def write(self, given: Given, outcome: Outcome) -> None:
        """An output with what became of it."""
        if outcome.source.id != self._sentence:
            self._complete()
            self._sentence, self._failed = outcome.source.id, False
        self._failed |= outcome.error is not None
        found = outcome.result.hypotheses[0] if outcome.result.hypotheses else None
        if self._format == "jsonl":
            self._line(json.dumps(self._row(given, outcome.source.id, found), ensure_ascii=False))
        elif given.entry is None:
            self._line("" if found is None else f"{found.rank_score:.6f}")
        elif self._format == "score":
            self._line("" if found is None else f"{self._rescored(given.entry, found).rank_score:.6f}")
        else:
            self._list.append(self._rescored(given.entry, found))

    def finish(self, sentences: int) -> None:
        """The last list; and a line for each of the ``sentences`` that has none, where lines count."""
        self._complete()
        self._skip_to(sentences)

    def _complete(self) -> None:
        """The rows of the last sentence are all there."""
        if self._list:
            self._flush()
        if self._sentence:
            self._output.note(self._sentence, failed=self._failed)

    def _flush(self) -> None:
        """One sentence's list, best first; equal totals as they were."""
        ranked = sorted(self._list, key=lambda scored: -scored.rank_score)
        self._skip_to(ranked[0].entry.id - 1)
        for _, total, features, entry in ranked[:1] if self._format == "text" else ranked:
            listed = f"{entry.id} ||| {entry.text} ||| {features} ||| {total:.6f}"
            self._line(entry.text if self._format == "text" else listed)
        self._written += 1
        self._list = []

    def _skip_to(self, sentence: int) -> None:
        """Empty lines for sentences without a list."""
        if self._format == "text":
            self._output.write("\n" * (sentence - self._written))
        self._written = max(self._written, sentence)

    def _rescored(self, entry: NbestEntry, found: Hypothesis | None) -> _Rescored:
        features = self._features(entry, found)
        if found is None:
            return _Rescored(UNSCORED, UNSCORED, features, entry)
        if self._old_weight and entry.total is None:
            raise SgdecError(f"{entry.where} has no total for --old-weight {self._old_weight:g}.")
        old = self._old_weight * (entry.total or 0.0)
        penalty = self._ranking.length_penalty(len(found.tokens) + 1)  # of </s>, too
        return _Rescored(found.rank_score + old / penalty, found.score + old, features, entry)

    def _features(self, entry: NbestEntry, found: Hypothesis | None) -> str:
        """The old features, and one a predictor; a name that is taken is numbered."""
        old = [f"{name}= {' '.join(f'{value:g}' for value in values)}" for name, values in entry.features.items()]
        taken = set(entry.features)
        scores = found.scores if found is not None else [UNSCORED] * len(self._names)
        new = []
        for name, value in zip(self._names, scores, strict=True):
            free = next(n for n in chain([name], (f"{name}{i}" for i in range(2, 1000))) if n not in taken)
            taken.add(free)
            new.append(f"{free}= {value:.6f}")
        return " ".join([*old, *new])

    def _row(self, given: Given, sentence: int, found: Hypothesis | None) -> dict[str, Any]:
        row: dict[str, Any] = {"id": sentence}
        if found is None:
            return {**row, "score": None}
        columns = zip(*found.ledger, strict=True)
        return {
            **row,
            "tokens": list(found.tokens),
            "score": found.score,
            "rank_score": found.rank_score,
            "scores": dict(zip(self._names, found.scores, strict=True)),
            "token_scores": dict(zip(self._names, map(list, columns), strict=True)),
        } | ({} if given.entry is None else {"text": given.entry.text, "old_total": given.entry.total})

    def _line(self, text: str) -> None:
        self._output.write(text + "\n")
        self._output.flush()

"""``sgdec score``: scores given outputs with predictors, line by line or for every entry of an n-best list."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

import click

from sgdec.cli import running
from sgdec.cli.paths import Read, Written
from sgdec.cli.sections import option
from sgdec.collector import collector_spared
from sgdec.errors import SgdecError, UsageError
from sgdec.io.unfinished import beside
from sgdec.settings import INPUT, OF_SCORES, OUTPUT, RESCORING, Penalties

if TYPE_CHECKING:
    from sgdec.context import Vocabulary
    from sgdec.io.nbest import NbestEntry
    from sgdec.io.sources import SourceReader
    from sgdec.search.outcome import Unreadable
    from sgdec.tasks.scoring import ScoringPair

log = logging.getLogger(__name__)

SHAPING = ("alpha", "beta", "normalize", "old_weight", *OF_SCORES)
"""Options other than those of predictors that can change a result; the signature lists them."""


@click.command("score", cls=running.RunCommand)
@click.argument("source", nargs=-1, required=True, type=Read())
@click.argument("target", type=Read())
@running.options(
    *running.OF_PREDICTORS,
    *running.OF_INPUT,
    option(
        "--target-format", section=INPUT, type=click.Choice(["text", "ids"]),
        help="TARGET as text, which is tokenised, or as token ids. Without a vocabulary outputs are token ids. "
        "Default: as --input-format.",
    ),
    running.setting("weights", type=Read(), metavar="FILE"),
    option(
        "--nbest-list", section=RESCORING, is_flag=True, help="Rescore TARGET, an n-best list in Moses' format."
    ),
    option(
        "--old-weight", section=RESCORING, type=float, metavar="FLOAT", default=0.0, show_default=True,
        help="Weight of the totals that the list already has.",
    ),
    *(running.setting(name, Penalties) for name in ("alpha", "beta", "normalize")),
    option(
        "--output", section=OUTPUT, type=Written(beside=beside), metavar="FILE",
        help="File to write; default: standard output.",
    ),
    option(
        "--output-format", section=OUTPUT, type=click.Choice(["score", "jsonl", "nbest", "text"]),
        help="One score per line, JSON lines with the score of every token, the reordered list, or the best entry "
        "per sentence. Default: score, or nbest for an n-best list.",
    ),
    *running.UNFINISHED,
    *running.OF_BATCHES,
    *running.OF_REPRODUCTION,
    running.setting("deterministic"),
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Score outputs: line N of TARGET belongs to line N of SOURCE (files, gzipped or not).

    \b
    # a model of 'sgdec train'
    sgdec score --predictors nmt --nmt.model run/best source.txt target.txt
    # a causal model of Hugging Face, which reads a prompt
    sgdec score --predictors hf --hf.model FOLDER \\
        --hf.prompt 'Translate to German: {source}' source.txt target.txt
    # an n-best list, rescored by another model
    sgdec score --predictors nmt --nmt.model r2l/best --nbest-list \\
        --old-weight 1 source.txt list.nbest

    A model with two sources takes two source files, or one file with a tab between the two sides of each line.

    With --nbest-list each entry of the list is scored. Its new total is that of --predictors plus --old-weight times
    the old one. The entries of each sentence are sorted by the new total, under the length and coverage penalties.

    An output that cannot be scored gives an empty line (in a list: the total -inf), a warning with the number of its
    sentence, and exit status 1 at the end.
    """
    given, dotted = running.settings(ctx, given)
    if given["output_format"] is None:
        given["output_format"] = "nbest" if given["nbest_list"] else "score"
    given["target_format"] = given["target_format"] or given["input_format"]
    if given["output_format"] in ("nbest", "text") and not given["nbest_list"]:
        raise UsageError(f"--output-format {given['output_format']} needs --nbest-list: it has nothing to sort.")
    return score(given, dotted)


def score(given: dict[str, Any], dotted: running.Options) -> int:
    """Assemble the run, score and write. Returns the exit status, 1 if an output could not be scored."""
    from sgdec.io.scored import ScoreWriter

    loaded = running.load(given, dotted, decoder=running.NO_SEARCH)
    ranking = Penalties(given["alpha"], given["beta"], given["normalize"]).ranking
    run, reader, scheduler = loaded.parts, loaded.reader(given["input_format"]), loaded.scorer(ranking)
    signature = running.sign(loaded, given, SHAPING, searches=False)
    inputs = [*given["source"], given["target"]]
    about = partial(running.about, given, signature, inputs, ("output_format", "nbest_list", "target_format"))
    with (
        collector_spared(),
        reader.open(given["source"]) as lines,
        running.open_rows(given, about) as rows,
    ):
        if rows.complete:
            return 1 if rows.failed else 0
        writer = ScoreWriter(rows, given["output_format"], run.constellation.names, ranking, given["old_weight"])
        outputs = _Outputs(reader, lines, given, run.vocabularies.target, rows.done)
        with running.Tally("scoring", given) as tally:
            asked = outputs.of_list() if given["nbest_list"] else outputs.of_lines()
            for outcome in scheduler.run(asked, tally.searched):
                tally.count(outcome)
                if outcome.error is not None:
                    tally.warn(outcome.source.id, outcome.error)
                writer.write(outputs.asked.popleft(), outcome)
        writer.finish(outputs.sentences)
    tally.report()
    if given["nbest_list"] and outputs.listed < outputs.sentences:
        missing = f"{outputs.sentences - outputs.listed} of {outputs.sentences} sentences"
        log.warning(f"{missing} of {outputs.read_from} have no entry in {given['target']}.")
    running.summarise(run, scheduler, signature)
    return 1 if tally.failed or rows.failed else 0


class _Outputs:
    """The outputs to score, in the order of the target file. Raises SgdecError if the two files do not match."""

    def __init__(
        self, reader: SourceReader, lines: Any, given: dict[str, Any], vocabulary: Vocabulary | None, done: int
    ) -> None:
        """``vocabulary``: that of the target, if there is one; ``done``: the number of sentences that an earlier run
        has scored."""
        from sgdec.tasks.scoring import Pairing

        self.read_from = " and ".join(given["source"])
        sources = reader.read(lines, self.read_from, done=done)
        self._sources = (source for source in sources if source.id > done)
        self._path = given["target"]
        self._pairing = Pairing(given["target_format"], vocabulary, reader.vocabulary)
        self.asked: deque[NbestEntry | None] = deque()
        """The n-best entries of the outputs that have been read and not yet scored."""
        self.sentences = self._done = done
        """Source sentences read so far."""
        self.listed = 0
        """The number of sentences with entries in the list."""

    def of_lines(self) -> Iterator[ScoringPair | Unreadable]:
        """Pairs line N of the target with line N of the source."""
        from sgdec.text.lines import read_lines

        targets = islice(read_lines(self._path), self._done, None)
        for number, (source, text) in enumerate(zip_longest(self._sources, targets), self._done + 1):
            if source is None or text is None:
                ended = self.read_from if source is None else self._path
                raise SgdecError(
                    f"{ended} ends before line {number}, the other does not. Expected one target line per source "
                    "line; --nbest-list reads an n-best list."
                )
            self.asked.append(None)
            yield self._pairing.pair(source, text, f"{self._path}: line {number}")

    def of_list(self) -> Iterator[ScoringPair | Unreadable]:
        """Pairs each entry of an n-best list with the sentence of its id."""
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
            for entry in entries:
                self.asked.append(entry)
                yield self._pairing.pair(source, entry.text, entry.where)
        self.sentences += sum(1 for _ in self._sources)

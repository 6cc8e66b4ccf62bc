"""``sgdec tune``: weights for a metric on a development set."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from sgdec.cli import running
from sgdec.cli.paths import Read, Written
from sgdec.cli.sections import option
from sgdec.cli.sweep import list_settings
from sgdec.cli.tables import table
from sgdec.collector import collector_spared
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import real_number
from sgdec.settings import INPUT, OUTPUT
from sgdec.tasks.metrics import NAMES
from sgdec.terminal import Bar

if TYPE_CHECKING:
    from sgdec.found import Found
    from sgdec.library import LoadedRun, Sentence
    from sgdec.tuning.tune import Round, Tuned

TUNING = "Tuning"
FEW = 200
"""Development sets with fewer sentences are too small for weights that hold for other sentences."""
NEAR = 0.02
"""The share of its range within which a weight is at a bound."""


class BoundsParameter(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """``NAME=LOW,HIGH``; an end may be inf, which becomes None."""

    name = "bounds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[float | None, float | None]]:
        name, _, ends = str(value).partition("=")
        numbers = list(map(real_number, ends.split(",")))
        if not name or len(numbers) != 2 or any(each is None or each != each for each in numbers):
            raise UsageError(f"--bounds-of {value}: expected NAME=LOW,HIGH, such as wc=-2,2 or ngram=0,inf.")
        low, high = (None if each is None or abs(each) == math.inf else each for each in numbers)
        return name.strip(), (low, high)


@click.command("tune", cls=running.RunCommand)
@click.argument("input", nargs=1, type=Read())
@running.options(
    *running.OF_PREDICTORS,
    running.DECODER,
    *running.OF_SEARCH,
    *running.OF_INPUT,
    option(
        "--reference", section=INPUT, cls=running.Needed, type=Read(), metavar="FILE",
        help="One reference for each line of INPUT, the development set.",
    ),
    option(
        "--held-out", section=INPUT, type=Read(), multiple=True, nargs=2, metavar="FILE FILE",
        help="Other sentences and their references, which are scored beside the development set; for {id} in options "
        "their numbers follow those of INPUT.",
    ),
    option(
        "--metric", section=TUNING, type=click.Choice(list(NAMES)), default="bleu", show_default=True,
        help="The metric to optimise.",
    ),
    option(
        "--method", section=TUNING, type=click.Choice(["mert", "mira", "grid"]), default="mert", show_default=True,
        help="Exact line searches, margins (batch MIRA), or 11 values of each weight within its bounds.",
    ),
    option(
        "--rounds", section=TUNING, type=click.IntRange(min=1), default=5, show_default=True, metavar="N",
        help="Decodes of the development set, at most.",
    ),
    option(
        "--seeds", section=TUNING, type=click.IntRange(min=1), default=3, show_default=True, metavar="N",
        help="Repetitions of each optimisation, whose spread is shown.",
    ),
    option("--alphas", section=TUNING, metavar="A,B,...", help="Values of the length penalty to choose from."),
    option("--beta", section=TUNING, is_flag=True, help="Tune the decoder's coverage penalty, too."),
    option(
        "--bounds-of", section=TUNING, type=BoundsParameter(), multiple=True, metavar="NAME=LOW,HIGH",
        help="Lowest and highest weight of a predictor, or of beta; default: 0,inf. Repeatable.",
    ),
    option(
        "--folder", section=OUTPUT, cls=running.Needed, metavar="DIR",
        type=Written(inside=("tuning.json", "round-*.jsonl", "tuned.toml")),
        help="Folder for the lists of all rounds and the result; the same call resumes there.",
    ),
    *map(running.setting, ("nbest", "distinct_text")),
    *running.OF_BATCHES,
    *running.OF_REPRODUCTION,
    running.setting("deterministic"),
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Tune the weights of predictors, and penalties, for a metric on INPUT.

    \b
    sgdec tune --predictors nmt,ngram,wc --nmt.model run/best \\
        --ngram.path lm.arpa --ngram.weight 0.1 --wc.weight 0 \\
        --bounds-of wc=-5,5 --beam.size 20 \\
        --reference val.de --held-out other.en other.de --folder tuned val.en
    sgdec decode --config tuned/tuned.toml --predictors nmt,ngram,wc ... test.en

    Each round decodes INPUT with the present weights, adds new hypotheses to the lists of earlier rounds, and
    searches for the weights whose best hypotheses have the best metric. The rounds end when a decode finds nothing
    new, or after --rounds. The result is the round that decoded best: DIR/tuned.toml, for --config.

    The weight of the first predictor keeps its value; the others stay at least 0, unless --bounds-of says otherwise.
    With a negative weight exact decoders need lower bounds of that predictor. The lists have as many hypotheses as
    the beam, unless --nbest says otherwise, and are decoded to the end (--beam.stop full).
    """
    return tune(ctx, given)


def tune(ctx: click.Context, given: dict[str, Any]) -> int:
    """Returns the exit status."""
    from sgdec.io.writing import write_whole
    from sgdec.text.lines import read_lines
    from sgdec.tuning.tune import tune as tuned

    alphas = () if given["alphas"] is None else tuple(map(real_number, given["alphas"].split(",")))
    if None in alphas:
        raise UsageError(f"--alphas {given['alphas']}: expected numbers, such as 0,0.6,1.")
    bounds = {
        name: (-math.inf if low is None else low, math.inf if high is None else high)
        for name, (low, high) in given["bounds_of"]
    }
    if len(bounds) < len(given["bounds_of"]):
        raise UsageError("--bounds-of: expected each name once.")
    run, full = list_settings(ctx, given, coverage=given["beta"])
    held_out: tuple[Sequence[Sentence], list[str]] = ((), [])
    for sources, references in given["held_out"]:
        held_out = [*held_out[0], *_sources(run, sources, given)], [*held_out[1], *read_lines(references)]
    names = ("metric", "method", "rounds", "seeds", "beta")
    rounds = count(1)
    with collector_spared():
        found = tuned(
            run, _sources(run, given["input"], given), list(read_lines(given["reference"])),
            held_out=held_out, folder=given["folder"], alphas=alphas, bounds=bounds, watch=_watched,
            ended=lambda each: running.log.info(_line(next(rounds), each)),
            **{name: given[name] for name in names},
        )  # fmt: skip
    path = os.path.join(given["folder"], "tuned.toml")
    write_whole(path, _config(found, given, run.signature, full))
    for line in _report(found, given):
        click.echo(line)
    click.echo(f"best: round {found.rounds.index(found.best) + 1}, in {path}")
    for warning in _warnings(found, given, bounds):
        running.log.warning(warning)
    return 0


def _sources(run: LoadedRun, path: str, given: dict[str, Any]) -> list[Sentence]:
    """The sentences of a file: lines, or token ids. Raises SgdecError for one that cannot be read."""
    from sgdec.search.outcome import Unreadable

    reader = run.reader(given["input_format"])
    found: list[Sentence] = []
    with reader.open([path]) as lines:
        for each in reader.read(lines, path):
            if isinstance(each, Unreadable):
                raise SgdecError(str(each.error))
            found.append(each.tokens if given["input_format"] == "ids" or each.text is None else each.text)
    return found


def _watched(found: Iterator[Found], work: str) -> Iterable[Found]:
    with Bar(work, running.log, unit="sentences") as bar:
        for each in found:
            bar.advance(1)
            yield each


def _line(number: int, each: Round) -> str:
    spread = "" if not each.promised else f"; on the lists {min(each.promised):.2f} to {max(each.promised):.2f}"
    held_out = "" if each.held_out is None else f", held out {each.held_out:.2f}"
    return f"round {number}: development {each.development:.2f}{held_out}, {each.new:,} new hypotheses{spread}"


def _report(found: Tuned, given: dict[str, Any]) -> Iterator[str]:
    from sgdec.tasks.metrics import corpus_scores
    from sgdec.text.lines import read_lines

    metric = NAMES[given["metric"]]
    head = ["round", *found.best.weights, *found.best.options, f"{metric}, development", "held out", "new"]
    rows = [
        [
            str(number), *(f"{value:.4g}" for value in (*each.weights.values(), *each.options.values())),
            f"{each.development:.2f}", "" if each.held_out is None else f"{each.held_out:.2f}", f"{each.new:,}",
        ]
        for number, each in enumerate(found.rounds, 1)
    ]  # fmt: skip
    yield table(head, rows, texts=0)
    first, best = found.rounds[0], found.best
    paths = [path for _, path in given["held_out"]] or [given["reference"]]
    references = [line for path in paths for line in read_lines(path)]
    outputs = [each.held_out_outputs if given["held_out"] else each.outputs for each in (first, best)]
    where = "held-out sentences" if given["held_out"] else "the development set, by which it was chosen"
    if best is first:
        yield f"no round is better than the first one on the development set: nothing was gained on {where}"
        return
    score = corpus_scores(outputs, [references], keys=[given["metric"]]).systems[1][given["metric"]]
    yield (
        f"the best round is {score.difference:+.2f} {metric} from the first one on {where} (p = {score.p_value:.3f}, "
        "approximate randomisation)"
    )


def _warnings(found: Tuned, given: dict[str, Any], bounds: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    from sgdec.tuning.metrics import METRICS

    first, best, sign = found.rounds[0], found.best, METRICS[given["metric"]].sign
    if len(best.outputs) < FEW:
        yield f"the development set has {len(best.outputs)} sentences; weights from below {FEW} are mostly chance"
    if first.held_out is not None and best.held_out is not None:
        gained, also = sign * (best.development - first.development), sign * (best.held_out - first.held_out)
        if gained > 0 and also < gained / 2:
            yield f"the development set gained {gained:.2f}, held-out ones {also:.2f}: the weights are overfitted"
    if constant := found.rounds[0].constant:
        yield f"{', '.join(constant)}: the same for all hypotheses of each sentence, so the weight decides nothing"
    for name, weight in (*best.weights.items(), *best.options.items()):
        low, high = bounds.get(name, (-math.inf, math.inf))
        if low < high and min(weight - low, high - weight) < NEAR * (high - low) < math.inf:
            yield f"the weight of {name}, {weight:.4g}, is at its bound: a wider range may have better ones"
    lowered = [name for name, weight in best.weights.items() if weight < 0]
    if lowered:
        yield f"weights below 0 ({', '.join(lowered)}): exact decoders then need lower bounds of these predictors"


def _config(found: Tuned, given: dict[str, Any], signature: str, full: bool) -> str:
    """A TOML file with what was tuned. ``full``: whether the decodes were full searches without being asked to."""
    lines = [f"# tuned for {NAMES[given['metric']]} by sgdec tune; the run: {signature}"]
    for name, weight in found.best.weights.items():
        lines += [f"[{_key(name)}]", f"weight = {weight!r}"]
    options = {**found.best.options, **({"stop": "full"} if full else {})}
    if options:
        lines.append(f"[{_key(given['decoder'])}]")
        lines += [f"{name} = {value!r}" for name, value in options.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else f'"{name}"'

"""``sgdec sweep``: a grid of weights and penalties from one decode."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from sgdec.cli import running
from sgdec.cli.paths import Read, Written
from sgdec.cli.sections import option
from sgdec.collector import collector_spared
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import real_number
from sgdec.io.writing import write_all, write_whole
from sgdec.plugins.host import Host, name_of
from sgdec.plugins.options import describe
from sgdec.search.blame import told
from sgdec.settings import INPUT, OUTPUT
from sgdec.tasks.metrics import NAMES

if TYPE_CHECKING:
    from sgdec.library import LoadedRun
    from sgdec.ranking import Ranking
    from sgdec.tuning.scored_lists import ScoredLists
    from sgdec.tuning.sweep import SweptCell

SWEEP = "Sweep"
MOST = 10_000
"""The largest number of cells."""


class AxisParameter(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """``NAME=VALUE,VALUE,...`` or ``NAME=LOW:HIGH:STEP``."""

    name = "axis"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[Any]]:
        name, equals, listed = str(value).partition("=")
        values = [each for part in listed.split(",") for each in _values(part.strip())]
        if not equals or not values or None in values:
            raise UsageError(
                f"--axis {value}: expected NAME=VALUE,... or NAME=LOW:HIGH:STEP, such as ngram.weight=0:0.4:0.1."
            )
        name = name.strip()
        whole, texts = name in ("nbest", "length_offset"), name == "normalize"
        least = int(name == "nbest")
        if texts != all(isinstance(each, str) for each in values) or (
            whole and not all(each == int(each) and each >= least for each in values)
        ):
            expected = "gnmt or length" if texts else f"whole numbers from {least}" if whole else "numbers"
            raise UsageError(f"--axis {value}: expected {expected}.")
        return name, [int(each) if whole else each for each in values]


def _values(text: str) -> list[Any]:
    """The values of one part of an axis; [None] for something else."""
    if text in ("gnmt", "length"):
        return [text]
    numbers = list(map(real_number, text.split(":")))
    finite = all(number is not None and abs(number) < 1e6 for number in numbers)
    if finite and len(numbers) == 1:
        return numbers
    if finite and len(numbers) == 3:
        low, high, step = (number or 0.0 for number in numbers)
        steps = (high - low) / step if step > 0 else -1
        if 0 <= steps < MOST:
            return [round(low + place * step, 10) for place in range(int(steps + 1e-9) + 1)]
    return [None]


@click.command("sweep", cls=running.RunCommand)
@click.argument("input", nargs=-1, type=Read())
@running.options(
    *running.OF_PREDICTORS,
    running.DECODER,
    *running.OF_SEARCH,
    *running.OF_INPUT,
    option(
        "--reference", section=INPUT, cls=running.Needed, type=Read(), metavar="FILE", help="One reference per line."
    ),
    option(
        "--lists", section=INPUT, type=Read(), metavar="FILE.jsonl",
        help="Lists of 'sgdec decode --output-format jsonl --nbest N', in place of a decode of INPUT.",
    ),
    option(
        "--axis", section=SWEEP, type=AxisParameter(), multiple=True, metavar="NAME=VALUES",
        help="NAME.weight of a predictor, alpha, beta, normalize, length_offset or nbest, with its values: 0,0.2,0.5 "
        "or LOW:HIGH:STEP. Repeatable.",
    ),
    option(
        "--metric", section=SWEEP, type=click.Choice(list(NAMES)), default="bleu", show_default=True,
        help="The metric of each cell.",
    ),
    option(
        "--verify", section=SWEEP, type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
        help="Decode N cells again, the best one and others drawn at random.",
    ),
    option("--save", section=OUTPUT, type=Written(), metavar="FILE.jsonl", help="Write the lists, for --lists."),
    option("--html", section=OUTPUT, type=Written(), metavar="FILE", help="Write the table as a page, to be sorted."),
    option("--json", "json_", section=OUTPUT, type=Written(), metavar="FILE", help="Write all numbers as JSON."),
    *map(running.setting, ("nbest", "distinct_text")),
    *running.OF_BATCHES,
    *running.OF_REPRODUCTION,
    running.setting("deterministic"),
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Evaluate a grid of weights and penalties by re-ranking the lists of one decode of INPUT.

    \b
    # GNMT's alpha and beta, from one beam search
    sgdec sweep --predictors nmt --nmt.model run/best --beam.size 12 \\
        --axis alpha=0:1:0.2 --axis beta=0:1:0.2 --reference val.de val.en
    # a language model's weight; three cells are decoded, too
    sgdec sweep --predictors nmt,ngram --nmt.model run/best --ngram.path lm.arpa \\
        --beam.size 20 --axis ngram.weight=0:0.4:0.05 --verify 3 \\
        --reference val.de --save lists.jsonl --html sweep.html val.en
    # the same lists once more, without a decode
    sgdec sweep --lists lists.jsonl --axis ngram.weight=0,0.1 --axis alpha=0,0.6 \\
        --reference val.de

    The lists have as many hypotheses as the beam, unless --nbest says otherwise. They are decoded without penalties,
    and to the end (--beam.stop full), unless options of the decoder say otherwise. Each cell takes the best
    hypothesis of each list under its settings. It cannot take what a search with these settings would find beyond the
    lists: a question mark says where that is likely.
    """
    return sweep(ctx, given)


def sweep(ctx: click.Context, given: dict[str, Any]) -> int:
    """Returns the exit status."""
    from sgdec.text.lines import read_lines
    from sgdec.tuning.metrics import METRICS
    from sgdec.tuning.scored_lists import read_lists
    from sgdec.tuning.sweep import require_axes
    from sgdec.tuning.sweep import sweep as swept
    from sgdec.tuning.sweep_tables import best_cell, page, table

    axes = dict(given["axis"])
    size = 1
    for values in axes.values():
        size *= len(values)
    if not axes or len(axes) < len(given["axis"]) or size > MOST:
        raise UsageError(f"--axis: expected one or more axes, each once, with at most {MOST:,} cells together.")
    outputs: dict[str, bytes | str] = {}
    run, full = None, False
    metric, references = METRICS[given["metric"]], list(read_lines(given["reference"]))
    if given["lists"] is None or given["verify"]:
        if not given["input"] or (given["verify"] and "-" in given["input"]):
            raise UsageError(
                "a sweep decodes INPUT, unless --lists FILE has its lists and nothing is verified; standard input "
                "cannot be decoded again."
            )
        run, full = list_settings(ctx, given, coverage=any(axes.get("beta", ())))
        require_axes(run.parts.constellation.names, axes)
    elif given["input"] or given["predictors"] is not None:
        raise UsageError("--lists has the lists: leave out INPUT and --predictors, or decode cells with --verify.")
    if given["lists"] is not None and given["save"] is not None:
        raise UsageError("--save: the lists are already in --lists.")
    if given["lists"] is not None:
        lists, ranking = read_lists(given["lists"]), _ranking(run)
        own = {} if run is None else dict(zip(lists.names, run.parts.constellation.weights, strict=False))
        if run is not None and (run.parts.constellation.names != lists.names or own != lists.weights):
            raise UsageError(f"--verify: the lists have the weights {dict(lists.weights)}, but the run has {own}.")
    else:
        assert run is not None
        lists, rows = _decoded(run, given)
        ranking = _ranking(run)
        if given["save"] is not None:  # at once, because a decode is expensive
            write_whole(given["save"], "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    cells = swept(lists, references, axes, metric=metric, ranking=ranking)
    decoded = _verified(run, given, cells, references) if run is not None and given["verify"] else []
    cells = [
        cell if score is None else replace(cell, apart=score - cell.score)
        for cell, score in zip(cells, decoded or [None] * len(cells), strict=True)
    ]
    found = table(cells, metric, decoded)
    if given["html"] is not None:
        outputs[given["html"]] = page(found)
    if given["json_"] is not None:
        outputs[given["json_"]] = json.dumps(_as_json(cells, decoded), indent=1) + "\n"
    write_all(outputs)
    from sgdec.cli.tables import table as as_text

    click.echo("\n".join([found.title, as_text(found.head, found.rows, texts=0), *found.notes]))
    if run is not None:
        click.echo(f"the best cell for sgdec decode: {_options(best_cell(cells, metric), given['decoder'], full)}")
    return 0


def _options(cell: SweptCell, decoder: str, full: bool) -> str:
    """The options of a decode with a cell's settings. ``full``: whether the search was full without an option."""
    own = {name: value for name, value in cell.settings.items() if name != "nbest"}
    own |= {"stop": "full"} if full else {}
    prefix = f"{name_of(decoder)}."
    return " ".join(f"--{name if '.' in name else prefix + name} {value}" for name, value in own.items())


def list_settings(ctx: click.Context, given: dict[str, Any], *, coverage: bool) -> tuple[LoadedRun, bool]:
    """The run, with lists as long as its beam, and a full search, unless options say otherwise.

    Also whether the search is full although no option says so.
    """
    settings, dotted = running.settings(ctx, given)
    decoder = settings["decoder"]
    own = dotted.setdefault(name_of(decoder), {})
    settings = {**settings, "coverage": coverage}
    options = {each.name: each.default for each in describe(Host(settings["plugin_file"]).load("decoder", decoder))}
    full = "stop" in options and "stop" not in own
    if full:
        own["stop"] = "full"
    if settings["nbest"] == 1:
        settings["nbest"] = int(own.get("size", options.get("size", 1)))
    if settings["nbest"] < 2:
        raise UsageError("lists need several hypotheses: give --nbest N.")
    run = running.load(settings, dotted, decoder=decoder)
    if given["signature"]:
        write_whole(given["signature"], f"{run.signature}\n")
    return run, full


def _decoded(run: LoadedRun, given: dict[str, Any]) -> tuple[ScoredLists, list[dict[str, Any]]]:
    from sgdec.tuning.scored_lists import ScoredLists

    rows = [found.to_dict(ledger=False) for found in _outcomes(run, given, "decoding")]
    return ScoredLists.of(rows, " and ".join(given["input"])), rows


def _outcomes(run: LoadedRun, given: dict[str, Any], work: str) -> Iterator[Any]:
    """The result of each line of the input. Raises SgdecError for a line without one."""
    from sgdec.found import Found

    inputs, parts = given["input"], run.parts
    reader = run.reader(given["input_format"])
    with collector_spared(), reader.open(inputs) as lines, running.Tally(work, {**given, "output": ""}) as tally:
        tally.expect(inputs, 1, None)
        for outcome in run.scheduler(meter=tally.meter).run(reader.read(lines, " and ".join(inputs)), tally.searched):
            tally.count(outcome)
            if outcome.error is not None:
                raise SgdecError(f"sentence {outcome.source.id}: {told(outcome.error, given['decoder'])}")
            yield Found.of(outcome, parts.constellation.names, parts.vocabularies.target)
    tally.report()
    tally.report_limited(run.lengths)


def _ranking(run: LoadedRun | None) -> Ranking:
    from sgdec.ranking import Ranking

    return Ranking() if run is None else run.parts.decoder.ranking


def _verified(
    run: LoadedRun, given: dict[str, Any], cells: Sequence[SweptCell], references: Sequence[str]
) -> list[float | None]:
    """For each cell the metric of a decode with its settings, for ``--verify`` of them."""
    from sgdec.tuning.metrics import METRICS
    from sgdec.tuning.sweep import RANKING
    from sgdec.tuning.sweep_tables import best_cell

    metric = METRICS[given["metric"]]
    best = cells.index(best_cell(cells, metric))
    others = [place for place in range(len(cells)) if place != best]
    random.Random(given["seed"]).shuffle(others)
    found: list[float | None] = [None] * len(cells)
    for number, place in enumerate([best, *others][: given["verify"]], 1):
        cell = cells[place].settings
        weights = {name: cell[f"{name}.weight"] for name in run.parts.constellation.names if f"{name}.weight" in cell}
        changed = run.with_weights(weights, **{name: cell[name] for name in RANKING if name in cell})
        texts = [str(each.best) for each in _outcomes(changed, given, f"verifying {number}")]
        found[place] = float(metric.scores(metric.statistics(texts, references).sum(axis=0)))
    return found


def _as_json(cells: Sequence[SweptCell], decoded: Sequence[float | None]) -> list[dict[str, Any]]:
    return [
        {
            **cell.settings, "score": cell.score, "margin": cell.margin, "at_end": cell.at_end, "half": cell.half,
            "changed": cell.changed, "suspicious": cell.suspicious,
            **({"decoded": decoded[place]} if decoded else {}),
        }
        for place, cell in enumerate(cells)
    ]  # fmt: skip

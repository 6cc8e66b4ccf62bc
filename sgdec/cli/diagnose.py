"""``sgdec diagnose``: search errors and model errors of a decoder's outputs, and their causes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from sgdec.cli import running, tracing
from sgdec.cli.paths import Read, Written
from sgdec.cli.sections import option
from sgdec.collector import collector_spared
from sgdec.errors import UsageError, counted, one_line
from sgdec.settings import INPUT, OUTPUT, SHAPING

if TYPE_CHECKING:
    from sgdec.library import LoadedRun
    from sgdec.search.outcome import Outcome
    from sgdec.tasks.diagnosis.cases import Case
    from sgdec.tasks.diagnosis.report import Report
    from sgdec.tasks.diagnosis.verdicts import JudgedSentence
    from sgdec.trace.writing import TraceWriter


DIAGNOSIS = "Diagnosis"


class _Sizes(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Sizes of the beam, separated by commas."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            sizes = tuple(map(int, value.split(",")))
        except ValueError:
            sizes = (0,)
        if min(sizes) < 1:
            self.fail(f"{value!r}: expected sizes such as 1,2,5,10", param, ctx)
        return sizes


@click.command("diagnose", cls=running.RunCommand)
@click.argument("input", nargs=-1, type=Read(default_stdin=True))
@running.options(
    *running.OF_PREDICTORS,
    running.DECODER,
    *running.OF_SEARCH,
    option(
        "--reference", section=INPUT, type=Read(), cls=running.Needed, metavar="FILE",
        help="One reference per line, in the format of INPUT.",
    ),
    *running.OF_INPUT,
    option(
        "--range", section=INPUT, metavar="A:B",
        help="Diagnose only sentences A to B, counted from 1, both included.",
    ),
    option(
        "--proof", section=DIAGNOSIS, type=click.Choice(["astar", "dfs", "none"]), default="astar", show_default=True,
        help="The exact search for the best hypothesis of each sentence.",
    ),
    option(
        "--max-expansions", section=DIAGNOSIS, type=click.IntRange(min=0), default=300, show_default=True,
        metavar="INT", help="Limit on its expansions per sentence; 0 = none.",
    ),
    option(
        "--max-seconds", section=DIAGNOSIS, type=click.FloatRange(min=0), default=0.0, show_default=True,
        metavar="SECONDS", help="Limit on its seconds per sentence; 0 = none.",
    ),
    option(
        "--witness", section=DIAGNOSIS, type=Read(), multiple=True, metavar="FILE",
        help="Outputs of another run, which may be better: lines, an n-best list, or JSON lines. Repeatable.",
    ),
    option(
        "--beams", section=DIAGNOSIS, type=_Sizes(), metavar="1,2,5,...", help="Sizes of the beam to compare."
    ),
    *map(running.setting, ("nbest", "distinct_text", "copy_unknown")),
    option(
        "--show", section=OUTPUT, type=click.IntRange(min=0), default=5, show_default=True, metavar="INT",
        help="Sentences to print: those with the largest errors.",
    ),
    option(
        "--html", section=OUTPUT, type=Written(), metavar="FILE",
        help="Write a report with plots, and all sentences to sort.",
    ),
    option(
        "--viewer", section=OUTPUT, metavar="FILE",
        help="The page of sgdec view that the report links to, as a path from the report.",
    ),
    option(
        "--output", section=OUTPUT, type=Written(), metavar="FILE",
        help="Write all values of each sentence as JSON lines.",
    ),
    option(
        "--json", "json_", section=OUTPUT, type=Written(), metavar="FILE",
        help="Write all numbers of the set as JSON.",
    ),
    *tracing.OPTIONS,
    *running.OF_BATCHES,
    *running.OF_REPRODUCTION,
    running.setting("deterministic"),
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Decode INPUT and say who is to blame for the outputs: the search, or the model.

    \b
    # the errors of a beam search; other sizes of the beam
    sgdec diagnose --predictors nmt --nmt.model run/best \\
        --reference test.de --beams 1,2,5,10,20 --html report.html test.en
    # a model within lattices: which of the two decides
    sgdec diagnose --predictors nmt,fst --nmt.model run/best \\
        --fst.path 'lattices/{id}.fst' --reference test.de test.en

    A search error: a hypothesis ranks higher than the output. The exact search (--proof) proves it or that there is
    none; the reference, the empty output and the outputs of other runs (--witness) can witness it. A model error: the
    reference ranks lower than the output, or a predictor forbids it. For each sentence the predictor that decides is
    named, and the weight that would turn the decision.

    Options of predictors and decoders, and the config file, are those of sgdec decode.
    """
    return diagnose(*running.settings(ctx, given))


def diagnose(given: dict[str, Any], dotted: running.Options) -> int:
    """Returns the exit status, 1 if a sentence has no output."""
    from sgdec.signature import line
    from sgdec.tasks.diagnosis.curve import beam_curve, oracle, with_size
    from sgdec.tasks.diagnosis.proving import ProofBudget
    from sgdec.tasks.diagnosis.report import Report
    from sgdec.tasks.diagnosis.run import diagnose as diagnosed
    from sgdec.tasks.diagnosis.summary import summarise
    from sgdec.tasks.refusals import Refusals

    if given["viewer"] is not None and given["html"] is None:
        raise UsageError("--viewer is for the links of a report. Give --html FILE.")
    if given["beams"] or given["nbest"] > 1:
        import_module("sacrebleu")
    if given["html"] is not None:
        import_module("matplotlib")
    traced = tracing.tracing(given)
    run = running.load(given, dotted, decoder=given["decoder"])
    for size in given["beams"] or ():
        with_size(run, size)
    signature = running.sign(run, given, (*SHAPING, "proof", "max_expansions", "max_seconds"))
    cases = _read(run, given)
    budget = ProofBudget(given["proof"], given["max_expansions"], given["max_seconds"])
    at_limit: list[bool] = []
    refusals = Refusals(run.parts.constellation)
    with collector_spared():
        with tracing.writing(given, run, traced, line(signature)) as trace:
            diagnosis = diagnosed(run, cases, budget, tracing=traced, seen=partial(_see, trace, at_limit))
        report = Report(
            diagnosis,
            summarise(diagnosis),
            beam_curve(run, cases, diagnosis, given["beams"]) if given["beams"] else [],
            oracle(run, cases, diagnosis) if given["nbest"] > 1 else None,
        )
    _write(report, given, line(signature))
    click.echo("\n\n".join(_paragraphs(report, given["show"])))
    for sentence in diagnosis.sentences:
        for problem in sentence.problems:
            running.log.warning(f"sentence {sentence.id}: {problem}")
    running.summarise(run.parts, run.scheduler(), signature)
    running.report_refusals(refusals)
    running.report_limited(sum(at_limit), len(at_limit), run.lengths)
    return 1 if report.summary.failed else 0


def _see(trace: TraceWriter | None, at_limit: list[bool], outcome: Outcome) -> None:
    """Write the trace of a search, and add whether its output, if there is one, ends at the length limit."""
    at_limit += [outcome.at_limit] * bool(outcome.result.hypotheses)
    if trace is not None and outcome.trace is not None:
        trace.write(outcome.trace)


def _read(run: LoadedRun, given: dict[str, Any]) -> list[Case]:
    from sgdec.io.outputs import read_outputs
    from sgdec.io.sources import parse_range
    from sgdec.tasks.diagnosis.cases import cases
    from sgdec.text.lines import read_lines

    inputs = given["input"] or ("-",)
    if [*inputs, given["reference"], *given["witness"]].count("-") > 1:
        raise UsageError("standard input (-) can be only one of the files.")
    first, last = parse_range(given["range"])
    reader, name = run.reader(given["input_format"]), " and ".join(map(_name, inputs))
    with reader.open(inputs) as lines:
        sources = list(reader.read(lines, name))
    references = list(read_lines(given["reference"]))
    witnesses = {
        _name(path): [[each.text for each in listed] for listed in read_outputs(path).filled(len(sources)).lists]
        for path in given["witness"]
    }
    found = cases(
        sources,
        references,
        witnesses,
        run.parts.vocabularies,
        run.parts.constellation.vocab_size,
        text=given["input_format"] == "text",
        names=(name, _name(given["reference"])),
    )
    chosen = list(found)[first - 1 : last]
    if not chosen:
        raise UsageError(f"--range begins at {first}, but {name} has {counted(len(sources), 'line')}.")
    return chosen


def _name(path: str) -> str:
    return "standard input" if path == "-" else path


def _write(report: Report, given: dict[str, Any], signature: str) -> None:
    from sgdec.io.writing import write_all

    outputs: dict[str, bytes | str] = {}
    if given["output"] is not None:
        rows = (json.dumps(each.to_dict(), ensure_ascii=False) for each in report.diagnosis.sentences)
        outputs[given["output"]] = "".join(f"{row}\n" for row in rows)
    if given["json_"] is not None:
        outputs[given["json_"]] = json.dumps(report.to_dict(), ensure_ascii=False, indent=1) + "\n"
    if given["html"] is not None:
        from sgdec.tasks.diagnosis.page import page

        outputs[given["html"]] = page(report, given["viewer"], signature)
    write_all(outputs)


def _paragraphs(report: Report, show: int) -> Iterator[str]:
    """The report for a terminal."""
    from sgdec.cli.tables import table
    from sgdec.tasks.diagnosis.explaining import worst
    from sgdec.tasks.diagnosis.findings import findings
    from sgdec.tasks.diagnosis.tables import tables

    subject = list(report.diagnosis.subject.lines())
    width = max(len(label) for label, _ in subject)
    yield "\n".join(f"{label:<{width}}  {one_line(text)}" for label, text in subject)
    for each in tables(report.summary, report.curve, report.oracle):
        yield "\n".join([each.title, table(each.head, each.rows), *each.notes])
    for sentence in worst(report.diagnosis.sentences, show):
        yield _sentence(sentence, report)
    lines = findings(report.summary) or ["Nothing stands out."]
    yield "\n".join(["What stands out", *(f"- {line}" for line in lines)])


def _sentence(sentence: JudgedSentence, report: Report) -> str:
    """The texts of a sentence with their rank scores, and its verdicts."""
    from sgdec.tasks.diagnosis.explaining import explain

    texts = [
        ("source", None, sentence.source or ""),
        ("output", sentence.output, sentence.output_text or ("(none)" if sentence.failed else "(empty)")),
    ]
    texts.append(("reference", sentence.reference, sentence.reference_text))
    if sentence.search.better is not None:
        texts.append(("better", sentence.search.better.scored, sentence.search.better.text or "(empty)"))
    lines = [
        f"  {label:<9}  {'' if scored is None else format(scored.rank_score, '.4f'):>10}  {one_line(text)}".rstrip()
        for label, scored, text in texts
    ]
    told = (f"  {one_line(line)}" for line in explain(sentence, report.piece, report.weights))
    return "\n".join([f"Sentence {sentence.id}: {sentence.verdict}", *lines, *told])

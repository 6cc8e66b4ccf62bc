"""The tour behind ``sgdec demo``: a list of commands that run one after the other, as a user would type them.

It runs exactly the commands that it prints: every step calls `sgdec.cli.main.main`. The steps share only the files in
the directory.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent
from typing import NamedTuple

from sgdec.cli.main import INTERRUPTED, main
from sgdec.errors import SgdecError
from sgdec.text.lines import read_lines


class Size(NamedTuple):
    """The size of the demo."""

    limit: int
    """The upper limit of the numbers, excluded."""
    train: int
    """Line pairs for training: few, so that mistakes remain after any number of steps."""
    test: int
    steps: int
    """The number of training steps."""
    batch_tokens: int
    width: int


FULL = Size(limit=1_000_000, train=260, test=400, steps=600, batch_tokens=500, width=128)
QUICK = Size(limit=1_000, train=150, test=60, steps=300, batch_tokens=250, width=64)
NEEDED = ("torch", "sentencepiece", "sacrebleu")
"""The modules of its steps that sgdec may lack."""
VALID = 50
"""The number of line pairs of the validation set."""

REPAIRED, BROKEN, WRONG, RIGHT = "repaired", "broken by the lattice", "wrong both times", "right both times"
VERDICTS = (REPAIRED, BROKEN, WRONG, RIGHT)


class TourStep(NamedTuple):
    """One command and its title."""

    title: str
    text: str
    """The command as it is typed, without backslashes at line ends."""

    @property
    def shell(self) -> str:
        return dedent(self.text).strip().replace("\n", " \\\n")

    @property
    def args(self) -> list[str]:
        """The arguments of ``sgdec``."""
        return shlex.split(self.text)[1:]


def steps(directory: Path, seed: int, size: Size) -> list[TourStep]:
    """All steps, from generating the corpus to two translations of the test set and their BLEU."""
    d = shlex.quote(directory.as_posix())
    return [
        TourStep(
            "A corpus: number words, English and German",
            f"""
            sgdec demo corpus --directory {d} --seed {seed} --limit {size.limit}
                --train-lines {size.train} --valid-lines {VALID} --test-lines {size.test}
            """,
        ),
        TourStep(
            "A vocabulary of subword pieces that both languages share",
            f"""
            sgdec tokenizer --input {d}/train.en --input {d}/train.de --vocab-size 100
                --output {d}/tokenizer.spm
            """,
        ),
        TourStep(
            "For each test sentence a lattice of candidates, from a covering grammar",
            f"""
            sgdec demo lattices --tokenizer {d}/tokenizer.spm --output {d}/lattices/'{{id}}.fst' {d}/test.en
            """,
        ),
        TourStep(
            "A small GNMT model",
            f"""
            sgdec train --train {d}/train.en {d}/train.de --valid {d}/valid.en {d}/valid.de
                --tokenizer {d}/tokenizer.spm --output {d}/model --max-steps {size.steps} --validate-every 100
                --batch-tokens {size.batch_tokens} --lr 0.004 --cooldown 0.3 --precision fp32 --threads 1
                --seed {seed} --gnmt.layers 2 --gnmt.width {size.width} --gnmt.dropout 0.1 --gnmt.init 0.1
                --gnmt.forget_bias 1 --gnmt.bridge true
            """,
        ),
        TourStep(
            "The model alone",
            f"""
            sgdec decode --predictors nmt --decoder beam --beam.size 4 --nmt.model {d}/model/best
                --output {d}/nmt.de {d}/test.en
            """,
        ),
        TourStep(
            "The model within the lattices",
            f"""
            sgdec decode --predictors nmt,fst --decoder beam --beam.size 4 --nmt.model {d}/model/best
                --fst.path {d}/lattices/'{{id}}.fst' --output {d}/nmt-fst.de {d}/test.en
            """,
        ),
        TourStep("How good is the model alone?", f"sgdec evaluate --reference {d}/test.de {d}/nmt.de"),
        TourStep("And within the lattices?", f"sgdec evaluate --reference {d}/test.de {d}/nmt-fst.de"),
    ]


def next_steps(directory: Path) -> list[TourStep]:
    """Three commands to try with the files of the tour."""
    d = shlex.quote(directory.as_posix())
    return [
        TourStep(
            "The three best candidates of sentence 5, with a proof",
            f"""
            sgdec decode --predictors nmt,fst --nmt.model {d}/model/best --fst.path {d}/lattices/'{{id}}.fst'
                --decoder astar --nbest 3 --output-format nbest --range 5:5 {d}/test.en
            """,
        ),
        TourStep(
            "Five translations drawn from the model, instead of the best",
            f"""
            sgdec decode --predictors nmt --nmt.model {d}/model/best --decoder sample --sample.samples 5
                --nbest 5 --output-format nbest --range 5:5 {d}/test.en
            """,
        ),
        TourStep("What a plugin does, and its options (without a name: all that there are)", "sgdec plugins astar"),
    ]


def run(step: TourStep) -> None:
    """Run a step. Raises SgdecError if the command fails, after it has printed its error."""
    status = main(step.args)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status:
        raise SgdecError(
            f"the demo stops: this command ended with exit status {status}: {shlex.join(['sgdec', *step.args])}"
        )


class TourRow(NamedTuple):
    """One test sentence and its two translations."""

    number: int
    """From 1."""
    source: str
    reference: str
    nmt: str
    nmt_fst: str

    @property
    def verdict(self) -> str:
        """The effect of the lattice: one of `VERDICTS`."""
        right = self.nmt_fst == self.reference
        if self.nmt == self.reference:
            return RIGHT if right else BROKEN
        return REPAIRED if right else WRONG


def read_rows(directory: Path) -> list[TourRow]:
    """The sentences of the test set with the outputs of the two runs."""
    columns = [list(read_lines(directory / f)) for f in ("test.en", "test.de", "nmt.de", "nmt-fst.de")]
    return [TourRow(number, *columns) for number, columns in enumerate(zip(*columns, strict=True), 1)]


def choose(rows: Sequence[TourRow], count: int = 5) -> list[TourRow]:
    """The rows to show: the first row of each verdict, and further repaired rows in test order."""
    by_verdict: dict[str, list[TourRow]] = {}
    for row in rows:
        by_verdict.setdefault(row.verdict, []).append(row)
    chosen = [group[0] for group in by_verdict.values()]
    others = [row for row in (*by_verdict.get(REPAIRED, []), *rows) if row not in chosen]
    return sorted((chosen + others)[:count], key=lambda row: row.number)


def summary(rows: Sequence[TourRow]) -> str:
    """Accuracies and BLEU, the number of rows with each verdict, and five example sentences."""
    from sgdec.text.bleu import bleu

    references = [row.reference for row in rows]
    lines = [f"{len(rows)} test sentences      right      BLEU"]
    for name, outputs in (("nmt", [row.nmt for row in rows]), ("nmt,fst", [row.nmt_fst for row in rows])):
        lines.append(f"  {name:<20}{accuracy(outputs, references):>8.1%}{bleu(outputs, references):>10.1f}")
    verdicts = [row.verdict for row in rows]
    counts = [f"{verdicts.count(name)} {name}" for name in VERDICTS]
    lines += ["", ", ".join(counts), "", "Five sentences, chosen to show repairs:"]
    for row in choose(rows):
        lines += [
            "",
            f"  sentence {row.number}: {row.verdict}",
            f"    source       {row.source}",
            f"    reference    {row.reference}",
            f"  {_mark(row.nmt, row)} nmt          {row.nmt}",
            f"  {_mark(row.nmt_fst, row)} nmt,fst      {row.nmt_fst}",
        ]
    return "\n".join(lines)


def accuracy(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of sentences that equal their reference."""
    return sum(map(str.__eq__, outputs, references)) / len(references)


def _mark(output: str, row: TourRow) -> str:
    return "+" if output == row.reference else "-"


def demo(directory: Path, seed: int, size: Size, say: Callable[[str], None]) -> None:
    """Run the tour. Raises SgdecError if a step fails, or if the lattices did not help."""
    path = steps(directory, seed, size)
    for module in NEEDED:  # before anything is written
        import_module(module)
    for number, step in enumerate(path, 1):
        say(f"\n{number}/{len(path)} {step.title}\n\n{indent(step.shell, '    ')}\n")
        run(step)
    rows = read_rows(directory)
    say(f"\nThe result\n\n{summary(rows)}\n\nAll files are in {directory}; the commands above repeat each step.")
    repaired, broken = (sum(row.verdict == verdict for row in rows) for verdict in (REPAIRED, BROKEN))
    if repaired <= broken:
        raise SgdecError(
            f"the lattices did not help: {repaired} sentences repaired, {broken} broken. "
            "Try another --seed; if that does not help, this is a defect."
        )
    say("\nWhat to try next" + _activation())
    for step in next_steps(directory):
        say(f"\n{step.title}\n\n{indent(step.shell, '    ')}")
    say("\ndocs/tutorial/first-hour.md continues from here, to a plot of search errors and a predictor of your own.")


def _activation() -> str:
    """The command that puts ``sgdec`` on the path, which is needed after ``make demo``."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("sgdec") or not script.is_file():
        return ""
    return f", after `. {shlex.quote(os.path.relpath(script))}`"

"""`python -m fuzz`: the command behind ``make fuzz``. Exit status 1 if there are findings."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import sha256
from multiprocessing.util import Finalize
from pathlib import Path

import click

from fuzz.campaign import Chunk, Key, Target, run_chunk
from fuzz.case import Case, from_toml, to_toml
from fuzz.judge import Finding, judge, label
from fuzz.running import ROOT, Runner
from fuzz.targets import TARGETS

CHUNK = 100
"""The number of cases between two lines of progress."""
FINDINGS = ROOT / "fuzz" / "findings"


@click.group(invoke_without_command=True)
@click.option("--inputs", type=click.IntRange(min=1), default=10_000, show_default=True, help="Number of inputs.")
@click.option("--seed", type=int, default=0, show_default=True, help="Other inputs.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Number of processes.")
@click.option("--target", "wanted", multiple=True, metavar="NAME", help="Only targets whose names contain NAME.")
@click.option("--chunk", "only", type=int, help="Only this chunk of each target.")
@click.option("--findings", default=str(FINDINGS), show_default=True, help="Folder for the cases of findings.")
@click.pass_context
def fuzz(
    ctx: click.Context, inputs: int, seed: int, jobs: int, wanted: Sequence[str], only: int | None, findings: str
) -> None:
    """Try damaged files and wrong calls, the same number for each target; print a table at the end."""
    if ctx.invoked_subcommand is not None:
        return
    targets = [target for target in TARGETS if not wanted or any(part in target.name for part in wanted)]
    if not targets:
        names = ", ".join(target.name for target in TARGETS)
        raise click.UsageError(f"no target has this name; expected one of {names}")
    started = time.monotonic()
    work = [(target, number, size) for target, number, size in shared_out(targets, inputs) if only in (None, number)]
    total: dict[str, Chunk] = {target.name: Chunk(target.name) for target in targets}
    known: set[Key] = set()
    done = 0
    with ProcessPoolExecutor(jobs) as pool:
        futures = {pool.submit(in_process, target.name, seed, number, size): number for target, number, size in work}
        for future in as_completed(futures):
            try:
                chunk = future.result()
            except Exception:  # a defect of the fuzzer ends one chunk, not the others
                traceback.print_exc()
                known.add(("fuzzer", str(futures[future])))
                continue
            done += sum(chunk.outcomes.values())
            total[chunk.target].add(chunk)
            for key, (finding, case) in chunk.findings.items():
                if key not in known:
                    known.add(key)
                    again = f"--seed {seed} --inputs {inputs} --target '{chunk.target}' --chunk {futures[future]}"
                    report(finding, case, Path(findings), again)
            seconds = time.monotonic() - started
            print(f"{done} inputs, {len(known)} findings, {seconds:.0f} s: {chunk.target}", file=sys.stderr)
    print(table(list(total.values()), len(known), time.monotonic() - started))
    ctx.exit(1 if known else 0)


@fuzz.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def repeat(files: Sequence[Path]) -> None:
    """Run cases again, and show their messages."""
    with Runner() as runner:
        for path in files:
            case, _ = from_toml(path)
            outcome = runner.run(case)
            print(f"== {path.stem}: sgdec {' '.join(case.args)}")
            print(outcome.out.decode("utf-8", "backslashreplace")[:2000], end="")
            print(outcome.err[:6000].encode("utf-8", "backslashreplace").decode(), end="")
            used = f"exit status {outcome.status}, {outcome.cpu:.1f} s, {outcome.rss >> 20} MiB"
            print(f"-- {label(outcome)}, {used}: {judge(case, outcome) or 'no finding'}")


def shared_out(targets: Sequence[Target], inputs: int) -> Iterator[tuple[Target, int, int]]:
    """Chunks with their numbers and sizes; targets take turns, so that an interrupted run has tried all of them."""
    each, rest = divmod(inputs, len(targets))
    left = {target.name: each + (n < rest) for n, target in enumerate(targets)}
    number = 0
    while any(left.values()):
        for target in targets:
            size = min(CHUNK, left[target.name])
            left[target.name] -= size
            if size:
                yield target, number, size
        number += 1


_runner: Runner | None = None
_known: set[Key] = set()


def in_process(name: str, seed: int, number: int, size: int) -> Chunk:
    """One chunk, in a process of the pool, which starts its runner once."""
    global _runner
    if _runner is None:
        _runner = Runner().__enter__()
        Finalize(_runner, _runner.__exit__, (None, None, None), exitpriority=1)  # such a process runs no atexit
    target = next(target for target in TARGETS if target.name == name)
    chunk = run_chunk(_runner, target, seed, number, size, _known)
    _known.update(chunk.findings)
    return chunk


def report(finding: Finding, case: Case, folder: Path, again: str) -> Path:
    """Write the case to a file, and print how to repeat it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", f"{case.target} {finding.kind}").strip("-")
    text = to_toml(case, {"what": str(finding)[:500]})
    path = folder / f"{name}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:6]}.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    print(f"FINDING {finding}\n    python -m fuzz repeat {path}\n    python -m fuzz {again}", file=sys.stderr)
    return path


def table(chunks: Sequence[Chunk], findings: int, seconds: float) -> str:
    """A table with the number of inputs by target and outcome."""
    columns = ("done", "partly", "failed", "refused", "died")
    lines = [f"{'target':<28} {'inputs':>7} " + " ".join(f"{name:>7}" for name in columns) + "  findings  seconds"]
    whole: Counter[str] = Counter()
    for chunk in chunks:
        counts = " ".join(f"{chunk.outcomes[name]:>7}" for name in columns)
        size = sum(chunk.outcomes.values())
        lines.append(f"{chunk.target:<28} {size:>7} {counts} {sum(chunk.found.values()):>9} {chunk.seconds:>8.1f}")
        whole += chunk.outcomes
    counts = " ".join(f"{whole[name]:>7}" for name in columns)
    found = sum(sum(chunk.found.values()) for chunk in chunks)
    lines.append(f"{'all':<28} {sum(whole.values()):>7} {counts} {found:>9} {seconds:>8.1f}")
    return "\n".join([*lines, f"{findings} different findings"])


if __name__ == "__main__":
    fuzz()

"""Plants mistakes and runs the tests that reach them; finds what only one test reaches.

    pip install coverage
    python benchmarks/mutants.py cover                              # runs every test once
    python benchmarks/mutants.py only tests/io/test_arpa.py         # what no other test reaches
    python benchmarks/mutants.py plant --number 60 --output mutants.jsonl
    python benchmarks/mutants.py plant --again mutants.jsonl        # the same mistakes, with the tests of today

Before tests go, ``only`` says which lines and branches they alone reach; afterwards the same mistakes have to be
found as before. A mistake is one change at a random line of `FOLDERS` that some test reaches: another comparison or
operator, a number, a condition or a sign turned round, a statement left out. The tests that reach the line run until
one fails, those first that reach little, for at most ``--minutes`` a mistake; the one that found it before comes
first of all. Mistakes are planted in a temporary copy of the working tree, never in the tree itself.

Only code in the processes of the tests counts, not the commands and ranks that they start. Some mistakes change
nothing that can be seen (an equal result in more time); which, only a reader can say.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("sgdec/search", "decoders/sgdec_decoders", "predictors/sgdec_predictors")
SOURCES = ("sgdec", "predictors", "decoders")
DATABASE = ROOT / "build" / "coverage-by-test"
RECORDED, CHOSEN = "SGDEC_TESTS_RECORDED", "SGDEC_TESTS_CHOSEN"
"""Variables that tell the plugin of pytest in this file what to do."""
FIRST = 300
"""The number of tests that run first; if all pass, the others do."""
HANGS = 60
"""A test that takes so many seconds has found the mistake."""
Arc = tuple[int, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cover", help="record which test reaches which line")
    only = commands.add_parser("only", help="lines and branches that these tests alone reach")
    only.add_argument("tests", nargs="+", metavar="TEST", help="beginning of test ids")
    plant = commands.add_parser("plant", help="plant mistakes and run the tests that reach them")
    plant.add_argument("--number", type=int, default=60)
    plant.add_argument("--folder", action="append", help=f"where (default: {', '.join(FOLDERS)}); may be repeated")
    plant.add_argument("--seed", type=int, default=0)
    plant.add_argument("--minutes", type=float, default=10.0, help="the most time for one mistake")
    plant.add_argument("--again", type=Path, metavar="FILE", help="plant the mistakes of this file")
    plant.add_argument("--output", type=Path, metavar="FILE", help="a line of JSON for each mistake")
    given = parser.parse_args()
    if given.command == "cover":
        return cover()
    if not DATABASE.exists():
        parser.error(f"{DATABASE} is missing. Run `python benchmarks/mutants.py cover` first.")
    reached = Reached(DATABASE)
    if given.command == "only":
        return show_only(reached, given.tests)
    if given.again:
        mutants = read(given.again)
    else:
        mutants = draw(reached, given.folder or FOLDERS, given.number, random.Random(given.seed))
    return plant_all(mutants, reached, given.minutes * 60.0, given.output)


# Recording: this file is a plugin of pytest in each worker of xdist.

_recorded: Any = None


def pytest_configure(config: pytest.Config) -> None:
    global _recorded
    if RECORDED in os.environ and "PYTEST_XDIST_WORKER" in os.environ:
        import coverage

        _recorded = coverage.Coverage(
            data_file=str(Path(os.environ[RECORDED]) / "part"), data_suffix=os.environ["PYTEST_XDIST_WORKER"],
            branch=True, config_file=False, include=[str(ROOT / source / "*") for source in SOURCES],
        )  # fmt: skip
        _recorded.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _recorded is not None:
        _recorded.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        if _recorded is not None:
            _recorded.switch_context("")


def pytest_unconfigure() -> None:
    if _recorded is not None:
        _recorded.stop()
        _recorded.save()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if CHOSEN in os.environ:
        order = {name: place for place, name in enumerate(json.loads(Path(os.environ[CHOSEN]).read_text()))}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


def run_tests(
    tree: Path, *arguments: str, variables: Mapping[str, str], seconds: float | None = None
) -> tuple[int, str]:
    """The exit status of pytest with this plugin, and what it prints; -1 if it takes longer."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.mutants", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(
        command, cwd=tree, env=environment, stdout=out, stderr=subprocess.STDOUT, process_group=0
    ) as process:  # fmt: skip
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
        out.seek(0)
        return status, out.read()


def cover() -> int:
    import coverage

    with tempfile.TemporaryDirectory() as folder:
        workers = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
        started = time.perf_counter()
        status, said = run_tests(ROOT, *workers, variables={RECORDED: folder})
        print(said.splitlines()[-1])
        DATABASE.parent.mkdir(exist_ok=True)
        DATABASE.unlink(missing_ok=True)
        whole = coverage.CoverageData(str(DATABASE))
        for part in sorted(Path(folder).glob("part*")):
            read = coverage.CoverageData(str(part))
            read.read()
            whole.update(read)
        whole.write()
    print(f"{DATABASE}: written in {time.perf_counter() - started:.0f} s")
    return int(status)


class Reached:
    """The lines and branches that each test reaches, from a database of coverage."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self.tests: dict[int, str] = dict(self._database.execute("select id, context from context"))
        rows = self._database.execute("select id, path from file")
        self.files = {os.path.relpath(file, ROOT): number for number, file in rows}

    def arcs(self, file: str) -> dict[Arc, set[int]]:
        """For each arc from line to line the tests that take it; 0 = the import."""
        found = defaultdict(set)
        rows = "select fromno, tono, context_id from arc where file_id = ?"
        for first, second, test in self._database.execute(rows, (self.files[file],)):
            found[first, second].add(test if "::" in self.tests[test] else 0)
        return found

    def of_line(self, file: str, line: int) -> list[str]:
        """The tests that reach a line, those that reach the fewest lines first."""
        found = set[int]().union(*(tests for arc, tests in self.arcs(file).items() if line in map(abs, arc)))
        sizes = self.sizes()
        return [self.tests[test] for test in sorted(found - {0}, key=lambda test: (sizes[test], test))]

    def sizes(self) -> dict[int, int]:
        """For each test the number of arcs that it takes."""
        if not hasattr(self, "_sizes"):
            rows = self._database.execute("select context_id, count(*) from arc group by context_id")
            self._sizes: dict[int, int] = dict(rows)
        return self._sizes


def show_only(reached: Reached, beginnings: Sequence[str]) -> int:
    mine = {test for test, name in reached.tests.items() if name.startswith(tuple(beginnings))}
    print(f"{len(mine)} tests")
    for file in sorted(reached.files):
        alone = sorted(arc for arc, tests in reached.arcs(file).items() if tests <= mine)
        if alone:
            print(file, *(f"{first}->{second}" for first, second in alone))
    return 0


# Mistakes.


@dataclass
class Mutant:
    """One planted mistake: the text from ``start`` to ``end`` of a file (characters) becomes ``new``."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    found: str = ""
    """The test that found it, or how the process of the tests ended; empty if it survived."""


COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mod: ast.FloorDiv,
}  # fmt: skip
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "heappushpop": "heappush", "argmin": "argmax"}


def changed(node: ast.AST) -> ast.AST | None:
    """The node with a mistake; None if none is known for it."""
    other: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            other.ops = [COMPARED[type(op)]()]
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATED:
            other.op = OPERATED[type(op)]()
        case ast.BoolOp(op=op):
            other.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            other.value = not value
        case ast.Constant(value=int(value) | float(value)):
            other.value = value + 1
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            other.func.id = CALLED[name]
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return None if isinstance(test, ast.Compare) else ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            return ast.Pass()
        case ast.Assign(targets=[ast.Attribute()]):
            return ast.Pass()
        case _:
            return None
    mistaken: ast.AST = other
    return mistaken


def code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes in it whose change could matter: no annotations, no messages, no checks of types."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_message = isinstance(child, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom)
            if isinstance(child, ast.AST) and not is_message:
                yield child
                yield from code(child)


def mistakes(file: str) -> list[Mutant]:
    """All that are known for a file."""
    text = (ROOT / file).read_text("utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw, found = text.encode(), []
    for node in code(ast.parse(text)):
        new = changed(node)
        if new is None:
            continue
        # In a branch only the condition is replaced.
        place: Any = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
        start, end = starts[place.lineno - 1] + place.col_offset, starts[place.end_lineno - 1] + place.end_col_offset
        written = ast.unparse(ast.fix_missing_locations(new))
        if isinstance(new, ast.expr):
            written = f"({written})"
        found.append(Mutant(file, place.lineno, start, end, raw[start:end].decode(), written))
    return found


def draw(reached: Reached, folders: Sequence[str], number: int, rng: random.Random) -> list[Mutant]:
    """Mistakes at random lines that a test reaches, at most one per line."""
    found: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for file in sorted(reached.files):
        if file.startswith(tuple(folders)) and (ROOT / file).exists():
            arcs = reached.arcs(file)
            lines = {abs(line) for arc, tests in arcs.items() if tests - {0} for line in arc}
            for mutant in mistakes(file):
                if mutant.line in lines:
                    found[file, mutant.line].append(mutant)
    places = rng.sample(sorted(found), number)
    return [rng.choice(found[place]) for place in places]


def read(path: Path) -> list[Mutant]:
    return [Mutant(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def plant_all(mutants: Sequence[Mutant], reached: Reached, seconds: float, output: Path | None) -> int:
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        leave = shutil.ignore_patterns(".git", ".venv", "build", "*_cache", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=leave)
        for number, mutant in enumerate(mutants, 1):
            began, before = time.perf_counter(), mutant.found
            mutant.found = first_to_fail(tree, mutant, reached.of_line(mutant.file, mutant.line), seconds)
            found += mutant.found != ""
            old, new = (" ".join(text.split())[:60] for text in (mutant.old, mutant.new))
            print(f"{number:3} {mutant.file}:{mutant.line}  {old} -> {new}")
            print(f"    {mutant.found or 'SURVIVED'} ({time.perf_counter() - began:.0f} s)")
            if before and not mutant.found:
                print(f"    was found by {before}")
            sys.stdout.flush()
            if output:
                with output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(mutant)) + "\n")
    print(f"{found} of {len(mutants)} found")
    return 0


def first_to_fail(tree: Path, mutant: Mutant, tests: Sequence[str], seconds: float) -> str:
    """The first test that fails with a mistake; the one that found it before is tried first."""
    path, limit = tree / mutant.file, time.monotonic() + seconds
    whole = path.read_bytes()
    if whole[mutant.start : mutant.end].decode() != mutant.old:
        raise SystemExit(f"{mutant.file}:{mutant.line} is no longer {mutant.old!r}.")
    path.write_bytes(whole[: mutant.start] + mutant.new.encode() + whole[mutant.end :])
    order = sorted(tests, key=lambda test: test != mutant.found)
    try:
        for some in (order[:FIRST], order[FIRST:]):
            failed = failure_among(tree, some, limit - time.monotonic()) if some else ""
            if failed:
                return failed
    finally:
        path.write_bytes(whole)
    return ""


def failure_among(tree: Path, tests: Sequence[str], seconds: float) -> str:
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as chosen:
        json.dump(tests, chosen)
        chosen.flush()
        files = sorted({test.partition("::")[0] for test in tests if (tree / test.partition("::")[0]).exists()})
        status, said = run_tests(
            tree, "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=no", *files,
            "-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true",
            variables={CHOSEN: chosen.name}, seconds=seconds,
        )  # fmt: skip
    failed = [line.split(" ", 1)[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if failed:
        return failed[0].partition(" - ")[0]
    if status == -1:
        print("    out of time: not all tests ran")
    return "" if status in (-1, 0, 5) else f"exit status {status}"


if __name__ == "__main__":
    sys.exit(main())

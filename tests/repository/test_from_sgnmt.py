"""The promise: docs/from-sgnmt.md names every option of SGNMT's ``decode.py``, with its counterpart or a reason."""

from __future__ import annotations

import re
from importlib import import_module

from sgdec.cli.main import COMMANDS
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.plugins.predictor_list import EntryOptions, parse_predictors
from tests.helpers.page_plugins import NAMES, registered
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "from-sgnmt.md").read_text()
OPTIONS = (ROOT / "tests" / "data" / "sgnmt_options.txt").read_text().split()
"""Those of SGNMT's ``decode.py``, without the numbered ones (``--fst_path2``)."""


def rows() -> list[tuple[str, str]]:
    """SGNMT's cell and ours, of every table with these two columns."""
    tables = PAGE.split("| SGNMT | sgdec |\n|---|---|\n")[1:]
    lines = [line for table in tables for line in table.split("\n\n")[0].splitlines()]
    return [(theirs.strip(), ours.strip()) for theirs, ours in (line.strip("|").split("|") for line in lines if line)]


def test_every_option_of_sgnmt_is_named() -> None:
    named = " ".join(theirs for theirs, _ in rows())
    whole = set(re.findall(r"--(\w+)(?=[`\s])", named))
    prefixes = tuple(re.findall(r"all `--(\w+_)\.\.\.`", named))
    assert [name for name in OPTIONS if name not in whole and not name.startswith(prefixes)] == []


def test_every_counterpart_exists() -> None:
    host = Host(autoload=False)
    plugins = {f"--{e.name}.{o.name}" for e in host.names() for o in describe(host.load(e.kind, e.name))}
    plugins |= {f"--{entry.name}.{o.name}" for entry in host.names("predictor") for o in describe(EntryOptions)}
    plugins |= {f"--{name}.{o.name}" for name in NAMES for o in describe(registered(name))}
    commands = [import_module(f"sgdec.cli.{name.replace('-', '_')}").command for name in COMMANDS]
    known = plugins | {flag for command in commands for parameter in command.params for flag in parameter.opts}
    code = [span for _, ours in rows() for span in re.findall(r"`([^`]+)`", ours)]
    named = {flag for span in code for flag in re.findall(r"--[\w.-]+", span)}
    assert len(named) > 60
    assert named - known == set()


def test_every_plugin_of_a_counterpart_exists() -> None:
    """In a list of predictors, and as a decoder."""
    host = Host(autoload=False)
    pages = {*NAMES, "mbr"}
    spans = [span for _, ours in rows() for span in re.findall(r"`([^`]+)`", ours)]
    decoders = {name for span in spans for name in re.findall(r"--decoder ([\w-]+)", span)}
    lists = {each for span in spans for each in re.findall(r"--predictors (\S+)", span)}
    predictors = {part.plugin for each in lists for entry in parse_predictors(each) for part in entry.parts}
    assert len(decoders) > 6 and len(predictors) > 6
    assert {name for name in decoders - pages if not host.named("decoder", name)} == set()
    assert {name for name in predictors - pages - {"fst"} if not host.named("predictor", name)} == set()


def test_a_row_without_a_counterpart_has_a_reason() -> None:
    bare = [theirs for theirs, ours in rows() if ours.startswith("none") and len(ours.partition(":")[2].split()) < 3]
    assert bare == []


def test_the_plugins_of_the_page_are_counterparts() -> None:
    named = " ".join(ours for _, ours in rows() if "from-sgnmt-plugins.md#" in ours)
    assert NAMES and [name for name in NAMES if name not in named] == []

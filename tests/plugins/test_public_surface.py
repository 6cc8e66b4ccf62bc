"""Plugins import public modules only: the bundled ones, those of others, and those to start one's own from.

Which modules are public is listed in ``setup.cfg``, where import-linter holds the bundled plugins to it, and
described in ``docs/howto/plugins.md``.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from string import Template

import pytest

from sgdec import Constellation, SearchSpace, Source
from sgdec.testing import Bonus
from tests.helpers.imports import PACKAGES, imported, modules
from tests.helpers.places import ROOT
from tests.helpers.public_modules import CONTRACT, KIT, PUBLIC

KNOWN = frozenset(modules())


def private_names(source: str, *, is_test: bool = False) -> set[str]:
    """What a source text imports of sgdec that is not public."""
    allowed = [*PUBLIC, *KIT] if is_test else PUBLIC
    found = set()
    for module, name in imported(source, KNOWN):
        ours = module.split(".")[0] in PACKAGES
        if ours and not any(fnmatch(module, pattern) for pattern in allowed):
            found.add(module)
        if ours and name is not None and name.startswith("_"):
            found.add(f"{module}.{name}")
    return found


def test_the_guide_lists_what_import_linter_allows() -> None:
    page = (ROOT / "docs" / "howto" / "plugins.md").read_text()
    assert re.findall(r"^\| `(sgdec[\w.*]*)` \|", page, re.MULTILINE) == PUBLIC
    assert set(re.findall(r"`(sgdec\.testing[\w.]*)`", page)) == set(KIT)


def test_the_guide_names_what_spaces_and_nodes_have() -> None:
    constellation = Constellation.of({"bonus": Bonus({3: -1.0})}, vocab_size=4)
    (root,) = constellation.roots([Source(1, (3,))])
    space = SearchSpace(constellation, root)
    named = set(re.findall(r"`(space|node)\.(\w+)", (ROOT / "docs" / "howto" / "plugins.md").read_text()))
    assert len(named) > 15
    assert not [(what, name) for what, name in named if not hasattr({"space": space, "node": root}[what], name)]


@pytest.mark.parametrize("pattern", [*PUBLIC, *KIT])
def test_a_public_module_is_there_and_documented(pattern: str) -> None:
    there = [module for module in KNOWN if fnmatch(module, pattern)]
    assert there and all(ast.get_docstring(ast.parse(modules()[module].read_text())) for module in there)


def files_of_others() -> list[Path]:
    files = [ROOT / "examples" / "model" / "mgu.py", ROOT / "examples" / "g2p" / "g2p.py"]
    examples = [*files, *(ROOT / "examples" / "plugin").rglob("*.py")]
    starters = sorted((ROOT / "examples" / "course").glob("*/starter.py"))
    templates = sorted((ROOT / "sgdec" / "templates" / "plugin").glob("*.py.template"))
    return [*sorted((ROOT / "tests" / "third_party").glob("*.py")), *examples, *starters, *templates]


@pytest.mark.parametrize("path", files_of_others(), ids=lambda path: str(path.relative_to(ROOT)))
def test_plugins_of_others_import_what_is_public(path: Path) -> None:
    source = path.read_text()
    if path.suffix == ".template":
        source = Template(source).substitute(name="mine", module="mine", Class="Mine")
    assert "sgdec" in source
    assert private_names(source, is_test="test" in path.name) == set()


def test_models_import_what_is_public() -> None:
    """They are plugins, too; import-linter cannot say so, since they lie in sgdec itself."""
    models = {module: path.read_text() for module, path in modules().items() if module.startswith("sgdec.models.")}
    assert models
    assert {module: found for module, source in models.items() if (found := private_names(source))} == {}


@pytest.mark.slow
def test_no_bundled_plugin_imports_a_name_with_an_underscore_of_another_package_of_ours() -> None:
    for module, path in modules().items():
        package = module.split(".")[0]
        for home, name in imported(path.read_text(), KNOWN):
            if package != "sgdec" and home.split(".")[0] in PACKAGES.keys() - {package}:
                assert name is None or not name.startswith("_"), f"{module} imports {name} of {home}"


def test_what_is_private_is_found() -> None:
    source = "from sgdec.search import node\ndef f():\n    from sgdec.protocol import _x\n    import sgdec.slots\n"
    assert private_names(source) == {"sgdec.search.node", "sgdec.protocol._x"}


@pytest.mark.slow
@pytest.mark.parametrize("line", ["from sgdec.search.node import Node", "import sgdec.not_there_yet"])
def test_import_linter_refuses_a_private_import(tmp_path: Path, line: str) -> None:
    """One that is there today, and one of a module that did not exist when the contract was written."""
    for package, root in PACKAGES.items():
        folder = tmp_path / (root / package).relative_to(ROOT)
        shutil.copytree(root / package, folder, ignore=shutil.ignore_patterns("__pycache__", "templates"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    (tmp_path / "sgdec" / "not_there_yet.py").write_text("")
    assert lint(tmp_path).returncode == 0
    plugin = tmp_path / "predictors" / "sgdec_predictors" / "wc.py"
    plugin.write_text(f"{plugin.read_text()}\n\ndef late() -> None:\n    {line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert f"{CONTRACT} BROKEN" in done.stdout and f"sgdec_predictors.wc -> {line.split()[1]}" in done.stdout


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(folder / part) for part in ("", "predictors", "decoders"))
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

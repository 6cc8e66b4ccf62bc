"""The promise of ``examples/plugin``: a stranger's distribution, installed beside sgdec, works like ours.

The fresh virtual environment gets both as wheels, built from copies; sgdec's dependencies are lent to it by
the environment that runs this test, so that no network is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


class Environment:
    """A virtual environment to install into and to run in."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        (self.site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def install(self, folder: Path) -> None:
        flags = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed"]
        self.run("-m", "pip", "--disable-pip-version-check", "install", *flags, str(folder))

    def sgdec(self, *args: str) -> str:
        return self.run("-m", "sgdec.cli", *args)

    def run(self, *args: str) -> str:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SGDEC_", "PIP_"))}
        done = subprocess.run([self.python, *args], cwd=self.folder, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, f"{args}:\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("example")
    environment = Environment(folder / "venv")
    for name, wanted in [
        ("core", ["setup.cfg", "pyproject.toml", "README.md", "LICENSE", "sgdec", "predictors", "decoders"]),
        ("plugin", ["examples/plugin"]),
    ]:
        for path in filter(Path.exists, (ROOT / item for item in wanted)):
            target = folder / name if name == "plugin" else folder / name / path.name
            if path.is_dir():
                shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                target.parent.mkdir(exist_ok=True)
                shutil.copy(path, target)
        environment.install(folder / name)
    return environment


def test_both_distributions_are_the_installed_ones(environment: Environment) -> None:
    shown = environment.run("-c", "import sgdec, sgdec_repeat; print(sgdec.__file__, sgdec_repeat.__file__)")
    assert shown.split() == [
        str(environment.site / "sgdec/__init__.py"),
        str(environment.site / "sgdec_repeat.py"),
    ]


def test_its_plugins_are_listed_with_their_distribution(environment: Environment) -> None:
    lines = [line.split() for line in environment.sgdec("plugins").splitlines()]
    assert ["predictor", "repeat", "sgdec-repeat"] in lines
    assert ["decoder", "lookahead", "sgdec-repeat"] in lines
    assert ["predictor", "wc", "sgdec"] in lines


def test_its_documentation_and_options_are_shown(environment: Environment) -> None:
    text = environment.sgdec("plugins", "repeat")
    assert "A predictor against repeated n-grams" in text
    assert "--repeat.order int >= 1" in text


def test_it_decodes(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "ids.txt"
    source.write_text("5 6\n5 6 7\n")
    output = environment.sgdec(
        *["decode", "--predictors", "wc,repeat", "--decoder", "lookahead", "--lookahead.width", "3"],
        *["--wc.weight", "-1", "--repeat.order", "1", "--repeat.weight", "5"],
        *["--max-length-factor", "1", "--input-format", "ids", "--vocab-size", "9"],
        *["--output-format", "jsonl", str(source)],
    )
    rows = [json.loads(line) for line in output.splitlines()]
    best = [row["hypotheses"][0] for row in rows]
    assert [len(hypothesis["tokens"]) for hypothesis in best] == [2, 3]
    assert [len(set(hypothesis["tokens"])) for hypothesis in best] == [2, 3], "no token comes twice"
    assert best[1]["scores"] == {"wc": -3.0, "repeat": 0.0}
    assert best[1]["score"] == 3.0


def test_a_new_plugin_can_be_written_from_the_installed_package(environment: Environment, tmp_path: Path) -> None:
    assert "Wrote" in environment.sgdec("new-plugin", "fresh", "--directory", str(tmp_path / "fresh"))
    assert (tmp_path / "fresh" / "sgdec_fresh.py").exists()


def test_its_own_tests_pass(environment: Environment) -> None:
    tests = environment.folder.parent / "plugin"
    shown = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tests), str(tests))
    assert " passed" in shown

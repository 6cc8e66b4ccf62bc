"""The promise of ``examples/plugin``: a stranger's distribution, installed beside sgdec, works like ours.

Both are wheels in a virtual environment that holds what they declare, without sgdec's extras.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.environments import Environment
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("example")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "plugin", ignore=ignored)
    environment = Environment(folder / "venv")
    environment.install(ROOT, folder / "plugin")
    environment.lend("sgdec-repeat[test]")
    return environment


def test_both_distributions_are_the_installed_ones(environment: Environment) -> None:
    shown = environment.run("-c", "import sgdec, sgdec_repeat; print(sgdec.__file__, sgdec_repeat.__file__)")
    assert shown.split() == [
        str(environment.site / "sgdec/__init__.py"),
        str(environment.site / "sgdec_repeat.py"),
    ]


def test_its_plugins_are_listed_with_their_distribution(environment: Environment) -> None:
    lines = [line.split(maxsplit=3) for line in environment.sgdec("plugins").splitlines()]
    about = "Minus one for each token that completes an n-gram for the second time."
    assert ["predictor", "repeat", "sgdec-repeat", about] in lines
    assert ["decoder", "lookahead", "sgdec-repeat"] in [line[:3] for line in lines]
    assert ["predictor", "wc", "sgdec"] in [line[:3] for line in lines]


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


def test_a_new_plugin_can_be_written_from_the_installed_package_and_is_found_as_it_is_edited(
    environment: Environment, tmp_path: Path
) -> None:
    assert "Wrote" in environment.sgdec("new-plugin", "fresh", "--directory", str(tmp_path / "fresh"))
    assert (tmp_path / "fresh" / "sgdec_fresh.py").exists()
    environment.install("-e", f"{tmp_path / 'fresh'}[test]", resolve=True)
    found = [line.split()[:3] for line in environment.sgdec("plugins").splitlines() if "fresh" in line]
    assert found == [["predictor", "fresh", "sgdec-fresh"], ["decoder", "fresh-search", "sgdec-fresh"]]
    assert environment.run("-c", "import sgdec_fresh; print(sgdec_fresh.__file__)").startswith(str(tmp_path))


def test_its_own_tests_pass(environment: Environment) -> None:
    tests = environment.folder.parent / "plugin"
    shown = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tests), str(tests))
    assert " passed" in shown

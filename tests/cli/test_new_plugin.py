"""The promise of ``sgdec new-plugin``: what it writes is complete, works at once, and spoils nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from sgdec.cli.main import main
from sgdec.errors import UsageError
from sgdec.plugins.host import Host
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    folder = tmp_path / "sgdec-my-idea"
    assert main(["new-plugin", "my-idea", "--directory", str(folder)]) == 0
    return folder


def test_it_writes_a_complete_distribution_and_says_what_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-plugin", "my-idea"]) == 0
    folder = tmp_path / "sgdec-my-idea"
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert paths == [
        "README.md",
        "pyproject.toml",
        "sgdec_my_idea.py",
        "tests/test_sgdec_my_idea.py",
    ]
    assert not [path for path in paths if "$" in (folder / path).read_text().replace("$name", "")]
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "sgdec-my-idea"
    assert project["entry-points"]["sgdec"] == {
        "predictor.my-idea": "sgdec_my_idea",
        "decoder.my-idea-search": "sgdec_my_idea",
    }
    assert "sgdec plugins my-idea" in capsys.readouterr().out


@pytest.mark.slow
def test_the_contract_tests_of_a_new_plugin_pass(written: Path) -> None:
    arguments = ["-q", "-p", "no:cacheprovider", "--doctest-modules", ".", "tests"]
    done = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=written, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_names_of_its_entry_points_are_those_of_its_hooks(written: Path) -> None:
    host = Host([written / "sgdec_my_idea.py"])
    assert host.load("predictor", "my-idea").__name__ == "MyIdea"
    assert host.load("decoder", "my-idea-search").__name__ == "MyIdeaSearch"


def test_a_new_plugin_decodes_with_its_options(written: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "ids.txt", tmp_path / "out.jsonl"
    source.write_text("5 6 7\n")
    command = (
        f"decode --plugin-file {written / 'sgdec_my_idea.py'} --predictors my-idea,wc "
        "--decoder my-idea-search --my-idea.penalty 3 --wc.weight -2 --max-length 3 "
        f"--input-format ids --vocab-size 10 --output-format jsonl --output {output} {source}"
    )
    status = main(command.split())
    assert status == 0
    (row,) = map(json.loads, output.read_text().splitlines())
    # Each word is worth 2 and the same word again costs 3, so that neighbours differ.
    tokens = row["hypotheses"][0]["tokens"]
    assert len(tokens) == 3
    assert all(first != second for first, second in pairwise(tokens))
    assert row["hypotheses"][0]["scores"] == {"my-idea": 0.0, "wc": -3.0}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "My_Idea",
            "'My_Idea' is not a plugin name. Expected lower-case words of a to z and 0 to 9 with single hyphens "
            "between them, a letter first, such as my-idea.",
        ),
        ("1st", "'1st' is not a plugin name"),
        ("a-", "'a-' is not a plugin name"),
        ("a--b", "'a--b' is not a plugin name"),
        ("ünï", "'ünï' is not a plugin name"),
        ("", "'' is not a plugin name"),
        ("fst", "predictor 'fst' of sgdec already exists; choose another name."),
        ("beam", "decoder 'beam' of sgdec already exists; choose another name."),
        ("decoders", "'decoders': its module sgdec_decoders already exists; choose another name."),
        ("none", "'none': its class None has the name of another thing in its module or tests; choose another name."),
        ("scores", "'scores': its class Scores has the name of another thing"),
        ("predictor-contract", "'predictor-contract': its class PredictorContract has the name"),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    assert main(["new-plugin", name, "--directory", str(tmp_path / "x")]) == UsageError.exit_status
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["class", "import", "x2", "search"])
def test_words_of_python_are_names_of_plugins(tmp_path: Path, name: str) -> None:
    assert main(["new-plugin", name, "--directory", str(tmp_path)]) == 0
    Host([tmp_path / f"sgdec_{name}.py"]).load("predictor", name)


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert main(["new-plugin", "my-idea", "--directory", str(tmp_path)]) == UsageError.exit_status
    assert "not an empty folder. Nothing was written." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_the_example_is_packaged_as_a_new_plugin_is(written: Path) -> None:
    names = {str(path.relative_to(written)).replace("my_idea", "repeat") for path in written.rglob("*.*")}
    assert {name for name in names if not (EXAMPLE / name).exists()} == set()
    particular = re.compile("^description = .*$|(?<=sgdec>=)[^\"]*", re.MULTILINE)
    new, example = (particular.sub("", (folder / "pyproject.toml").read_text()) for folder in (written, EXAMPLE))
    for mine, theirs in (("my-idea-search", "lookahead"), ("my-idea", "repeat"), ("my_idea", "repeat")):
        new = new.replace(mine, theirs)
    assert new == example

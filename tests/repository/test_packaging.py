"""What is installed is what lies in the repository, wherever it is used from and whatever else is installed.

Wheels are built with the project's own build system. The environments hold what their metadata declares and nothing
more: without extras, and with all of them.
"""

from __future__ import annotations

import configparser
import platform
import shutil
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sgdec.io.lattice import read_lattice
from tests.helpers.building import build, contents, metadata, unpack
from tests.helpers.environments import Environment
from tests.helpers.lattice_files import write_paths
from tests.helpers.natural_calls import complaints
from tests.helpers.optional import optional
from tests.helpers.places import ROOT

SOURCES = {"sgdec": ROOT, "sgdec_predictors": ROOT / "predictors", "sgdec_decoders": ROOT / "decoders"}
"""Each package, and the source root that it lies in."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_three_packages_and_no_other(wheel: Path) -> None:
    there = {
        str(path.relative_to(root))
        for package, root in SOURCES.items()
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path for path in contents(wheel) if ".dist-info/" not in path} == there


def test_entry_points_name_modules_of_the_wheel(wheel: Path) -> None:
    declared = configparser.ConfigParser()
    declared.read_string(metadata(wheel, "entry_points.txt"))
    modules = {module.replace(".", "/") + ".py" for module in declared["sgdec"].values()}
    assert len(modules) > 30 and modules <= contents(wheel)


@pytest.mark.parametrize(
    ("system", "machine"), [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")]
)
def test_all_extras_together_need_no_compiler(wheel: Path, system: str, machine: str) -> None:
    """kenlm has wheels for no system, pynini for one."""
    lines = metadata(wheel, "METADATA").splitlines()
    declared = [Requirement(line.partition(": ")[2]) for line in lines if line.startswith("Requires-Dist: ")]
    extras, waiting, names = set[str](), ["all"], set[str]()
    while waiting:
        extra = waiting.pop()
        extras.add(extra)
        place = {"extra": extra, "sys_platform": system, "platform_machine": machine}
        for one in declared:
            if one.marker is not None and one.marker.evaluate(place):
                names.add(one.name)
                waiting += one.extras - extras
    assert {"torch", "ray", "fsspec"} <= names and "kenlm" not in names
    assert ("pynini" in names) == ((system, machine) == ("linux", "x86_64"))


@pytest.mark.slow
def test_every_distribution_has_one_pinned_version() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    names = [line.partition("==")[0].lower() for line in lines if not line.startswith("#")]
    assert len(names) > 20 and [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.slow
def test_the_wheel_of_the_source_distribution_is_the_same(wheel: Path, tmp_path: Path) -> None:
    folder = unpack(build("sdist", ROOT, tmp_path), tmp_path / "unpacked")
    again = build("wheel", folder, tmp_path)
    assert again.name == wheel.name, "the version is that of the source distribution, which has no git"
    assert metadata(again, "RECORD") == metadata(wheel, "RECORD"), "names and hashes of all files"


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("smallest") / "venv")
    environment.install(wheel)
    environment.lend("sgdec")
    return environment


@pytest.mark.slow
def test_without_extras_every_command_answers_help(smallest: Environment) -> None:
    smallest.run(
        "-c",
        "from importlib.util import find_spec\n"
        "from sgdec.cli.main import COMMANDS, main\n"
        "assert not any(map(find_spec, ('torch', 'pynini', 'kenlm', 'sentencepiece')))\n"
        "assert not [name for name in COMMANDS if main([name, '--help'])]\n",
    )


@pytest.mark.slow
def test_without_extras_lattices_and_language_models_decode(smallest: Environment, tmp_path: Path) -> None:
    """The lattice 5 (6|7) against the trigrams of ``tiny.arpa``; what is found is written as a lattice, too."""
    write_paths(tmp_path / "1.fst", [((1, 5, 6, 2), 0.0), ((1, 5, 7, 2), 0.0)])
    (tmp_path / "in.ids").write_text("5 6\n")
    predictors = ["--predictors", "fst,ngram,length", "--fst.path", tmp_path / "{id}.fst"]
    predictors += ["--ngram.path", ROOT / "tests" / "data" / "tiny.arpa", "--length.weights", ",".join(["1"] * 10)]
    predictors += ["--length.text", tmp_path / "in.ids"]
    call = ["decode", *predictors, "--vocab-size", "9", "--input-format", "ids", tmp_path / "in.ids"]
    output = smallest.sgdec(*call)
    assert output in ("5 6\n", "5 7\n")
    binary = smallest.sgdec(*call, "--ngram.path", ROOT / "tests" / "data" / "tiny.qatrie.kenlm")
    assert binary == output
    smallest.sgdec(*call, "--nbest", "2", "--output-format", "fst", "--output", tmp_path / "{id}.out.fst")
    labels = read_lattice(tmp_path / "1.out.fst").labels.tolist()
    assert sorted(labels) == [1, 2, 2, 5, 6, 7]


@pytest.mark.slow
def test_without_extras_what_needs_one_names_it(smallest: Environment, tmp_path: Path) -> None:
    """All in one process: where nothing is imported, a call takes milliseconds."""
    (tmp_path / "in.ids").write_text("5 6\n")
    decode = "decode --vocab-size 9 --input-format ids in.ids --predictors"
    calls = {
        "average a b --output c": "nmt",
        "cluster --model a --input in.ids --output c": "nmt",
        "compare in.ids in.ids": "report",
        f"{decode.replace('decode', 'diagnose --reference in.ids --html c')} wc": "report",
        "evaluate --reference in.ids in.ids": "report",
        "export a --to hf --output c": "nmt",
        "quantize a --output c": "nmt",
        "tokenizer --input in.ids --output c": "nmt",
        "train --train in.ids in.ids --valid in.ids in.ids --tokenizer a --model gnmt --output c": "nmt",
        f"{decode} wc --device cuda": "nmt",
    }
    code = "import sys; from sgdec.cli.main import main; print(*[main(call.split()) for call in sys.argv[1:]])"
    done = smallest.run_whole("-c", code, *calls, cwd=tmp_path)
    assert done.stdout.split() == ["1"] * len(calls), done.stderr
    for (call, extra), error in zip(calls.items(), done.stderr.splitlines(), strict=True):
        assert f'(pip install "sgdec[{extra}]")' in error, call


@pytest.mark.slow
def test_without_extras_each_command_and_plugin_works_or_says_in_one_line_why_not(smallest: Environment) -> None:
    assert complaints(smallest.python) == []


@pytest.mark.slow
def test_without_extras_the_demo_writes_nothing(smallest: Environment, tmp_path: Path) -> None:
    done = smallest.run_whole("-m", "sgdec.cli", "demo", "--quick", cwd=tmp_path, status=1)
    assert done.stderr.endswith(' (pip install "sgdec[nmt]").\n') and not done.stdout
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_without_extras_the_check_of_plugins_names_them(smallest: Environment) -> None:
    lines = smallest.run_whole("-m", "sgdec.cli", "plugins", "--check", status=1).stdout.splitlines()
    assert lines and all(line.startswith("model ") and "sgdec[nmt]" in line for line in lines)


@pytest.mark.slow
def test_with_all_extras_every_plugin_imports(wheel: Path, tmp_path: Path) -> None:
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        optional("pynini")  # one of them
    environment = Environment(tmp_path / "venv")
    environment.install(wheel)
    environment.lend("sgdec[all]")
    assert environment.sgdec("plugins", "--check").startswith("All ")


@pytest.mark.slow
def test_an_editable_install_is_found_from_the_folder_above_a_clone_named_sgdec(tmp_path: Path) -> None:
    """There, the current folder comes first on the path and offers a folder ``sgdec`` without Python files."""
    clone = tmp_path / "sgdec"
    clone.mkdir()
    for name in ("pyproject.toml", "hatch_version.py", "README.md", "LICENSE", "sgdec", "predictors", "decoders"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, clone)
    environment = Environment(tmp_path / "venv")
    environment.install("-e", clone)
    environment.lend("sgdec")
    code = "import sgdec as s, sgdec_predictors as p, sgdec_decoders as d; print(s.__file__, p.__file__, d.__file__)"
    shown = environment.run("-c", code)
    assert shown.split() == [
        str(clone / root / package / "__init__.py")
        for root, package in [("", "sgdec"), ("predictors", "sgdec_predictors"), ("decoders", "sgdec_decoders")]
    ]
    assert environment.sgdec("--version").startswith("sgdec, version ")

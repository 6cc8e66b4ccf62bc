"""What a release says of itself is said once, or alike everywhere: its version, its address and its changes.

The version of a build comes from the tag (``hatch_version.py``). The address of the repository is that of
``[project.urls]``. CHANGELOG.md can be scanned: releases, themes, entries of one line.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from hatch_version import NEXT, version
from sgdec.cli.new_plugin import write_plugin
from tests.helpers.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ADDRESS = PROJECT["urls"]["Repository"]
OTHER_ADDRESS = re.compile(r"(?:https?://(?!pypi\.org/)|git@)[\w.-]+[/:][\w./-]*\bsgdec\b[\w./-]*")
"""An address with a part called sgdec, apart from that of its releases."""
CHANGES = (ROOT / "CHANGELOG.md").read_text("utf-8")
RELEASE = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
LONGEST = 160
"""Characters of an entry, of which a link counts as its text."""
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def git(folder: Path, *args: str) -> None:
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *args], cwd=folder, check=True, env=quiet)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "file").write_text("1")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_the_version_at_a_tag_is_the_tag_and_elsewhere_names_the_commit(clone: Path) -> None:
    between = version(clone)
    assert re.fullmatch(re.escape(NEXT) + r"\.dev0\+g[0-9a-f]{12}", between)
    for tag in ("version-of-the-course", "v1", "vincent"):
        git(clone, "tag", tag)
    assert version(clone) == between, "these are no tags of releases"
    git(clone, "tag", "v3.4.5rc1")
    assert version(clone) == "3.4.5rc1"
    (clone / "new").write_text("2")
    assert version(clone) == f"{between}.dirty"
    git(clone, "add", "new")
    git(clone, "commit", "-q", "-m", "second")
    assert version(clone) not in (between, "3.4.5rc1") and Version(version(clone)).is_devrelease


def test_without_tags_or_without_git_there_is_a_version(clone: Path, tmp_path: Path) -> None:
    git(clone, "tag", "v3.4.5")
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-tags", f"file://{clone}", "shallow")
    assert version(tmp_path / "shallow").startswith(f"{NEXT}.dev0+g")
    (clone / "copy").mkdir()
    assert version(clone / "copy") == f"{NEXT}.dev0", "the tag of another repository counts for nothing"


def test_a_machine_without_git_builds(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(clone))
    assert version(clone) == f"{NEXT}.dev0"


def test_the_address_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^repository-code: \"?(.*?)\"?$", citation, re.MULTILINE) == [ADDRESS]
    assert f"({ADDRESS})" in (ROOT / "README.md").read_text("utf-8")
    assert [url for url in PROJECT["urls"].values() if not url.startswith(ADDRESS)] == []


def addresses(text: str) -> list[str]:
    """Addresses in a text that have a part called sgdec, but are not the project's."""
    found = (address.removesuffix(".git").rstrip("./") for address in OTHER_ADDRESS.findall(text))
    return [address for address in found if address != ADDRESS and not address.startswith(f"{ADDRESS}/")]


@pytest.mark.slow
def test_there_is_no_other_address_of_sgdec_in_the_tree() -> None:
    assert addresses(f"{ADDRESS}.git or {ADDRESS}/issues.") == []
    assert addresses("git@example.com:a/sgdec.git or https://example.org/sgdec") != []
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a checkout")
    here = Path(__file__)
    found = []
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if path.is_file() and path != here:
            found += [(name, address) for address in addresses(path.read_text("utf-8", errors="replace"))]
    assert found == []


REQUIRED = re.compile(r"\bsgdec(?:\[[\w,-]+\])? *(?:[<>=~!]=|[<>]) *\d[\w.*+, <>=~!]*")
"""A requirement on sgdec with a version."""


def test_every_requirement_on_sgdec_admits_the_versions_of_commits_and_of_releases(tmp_path: Path) -> None:
    """pip admits a development version where the requirement names one, or where there is nothing else."""
    write_plugin("fresh", tmp_path / "fresh")
    folders = [ROOT / "sgdec", ROOT / "docs", ROOT / "examples", tmp_path]
    files = [path for folder in folders for suffix in ("toml", "md", "txt") for path in folder.rglob(f"*.{suffix}")]
    required = {path: REQUIRED.findall(path.read_text("utf-8")) for path in files}
    assert {path.name for path, ones in required.items() if ones} >= {"pyproject.toml"}
    assert required[tmp_path / "fresh" / "pyproject.toml"] and required[ROOT / "examples/plugin/pyproject.toml"]
    for one in (Requirement(text) for texts in required.values() for text in texts):
        for admitted in (f"{NEXT}.dev0", f"{NEXT}.dev0+g0123456789ab.dirty", NEXT, "99.1.0", "99.2.0.dev0+g1"):
            assert [*one.specifier.filter([admitted])] == [admitted], (one, admitted)


SCRIPTS = ROOT / ".github"


def script(name: str) -> dict[str, Any]:
    """The names of a script of the workflows, which lies in no package."""
    return runpy.run_path(str(SCRIPTS / f"{name}.py"))


def test_a_release_needs_its_changes_and_its_citation() -> None:
    unprepared = script("release_check")["unprepared"]
    changes, citation = "\n## [0.3.0] - 2026-01-02\n", "title: x\nversion: 0.3.0\nlicense: y\n"
    assert unprepared("0.3.0", changes, citation) == []
    assert len(unprepared("0.3.0", changes.replace(" - 2026-01-02", ""), citation)) == 1
    assert len(unprepared("0.3.0", changes, citation.replace("0.3.0", "0.3.0rc1"))) == 1
    assert len(unprepared("0.3.1", changes, citation)) == 2
    assert unprepared("0.3.1.dev0+g123", changes, citation) == []


@pytest.mark.parametrize("workflow", sorted((SCRIPTS / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_are_read_and_test_the_pythons_that_are_asked_for(workflow: Path) -> None:
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    assert jobs and all(job["steps"] for job in jobs.values())
    for job in jobs.values():
        assert job.get("strategy", {}).get("matrix", {}).get("python", PYTHONS) == PYTHONS


def test_the_job_of_first_use_has_the_pythons_of_its_script() -> None:
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load((SCRIPTS / "workflows" / "test.yml").read_text("utf-8"))["jobs"]["first-use"]["steps"]
    (pythons,) = (step["with"]["python-version"].split() for step in steps if "with" in step)
    text = (SCRIPTS / "first_use.sh").read_text("utf-8")
    assert f"set -- {' '.join(f'python{python}' for python in pythons)}\n" in text
    assert subprocess.run(["bash", "-n", SCRIPTS / "first_use.sh"]).returncode == 0


PYTHONS = list(script("resolve_wheels")["PYTHONS"])


def test_uv_is_asked_for_every_system_and_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a uv that has wheels for no macOS."""
    asked = tmp_path / "asked"
    (tmp_path / "uv").write_text(f'#!/bin/sh\necho "$*" >>{asked}\ncase "$*" in *darwin*) exit 1;; esac\n')
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run([sys.executable, SCRIPTS / "resolve_wheels.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert len(set(asked.read_text().splitlines())) == 16
    assert done.stdout.count("yes") == 12 and done.stdout.count("\nmacOS arm64, Python 3.1") == 4


def test_the_citation_names_the_last_release_or_the_first_to_come() -> None:
    released = [name for name, _ in RELEASE.findall(CHANGES) if name != "Unreleased"]
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited == (released[0] if released else NEXT)


def complaints(text: str) -> list[str]:
    """What is wrong with the shape of a list of changes."""
    releases = RELEASE.findall(text)
    headings = re.findall(r"^## .*$", text, re.MULTILINE)
    found = [f"{heading}: no release" for heading in headings if not RELEASE.fullmatch(heading)]
    names = [name for name, _ in releases]
    dated = [(Version(name), date.fromisoformat(day)) for name, day in releases if name != "Unreleased" and day]
    if names[:1] != ["Unreleased"] or releases[0][1] or len(dated) != len(names) - 1:
        found.append("[Unreleased] comes first, without a date, then releases with dates")
    numbers = [Version(NEXT), *(number for number, _ in dated)]
    if numbers != sorted(set(numbers), reverse=True):
        found.append("the newest version comes first")
    if [day for _, day in dated] != sorted((day for _, day in dated), reverse=True):
        found.append("a version is not older than the one below it")
    if f"These changes will become {NEXT}" not in text:
        found.append(f"[Unreleased] does not say that it becomes {NEXT}")
    for theme, content in re.findall(r"^### (.*)\n((?:(?!##).*\n?)*)", text, re.MULTILINE):
        entries = [line for line in content.splitlines() if line]
        if not entries:
            found.append(f"{theme}: empty")
        for entry in entries:
            if not entry.startswith("- ") or not entry.endswith("."):
                found.append(f"{theme}: no entry on one line: {entry}")
            if len(LINK.sub(r"\1", entry)) > LONGEST:
                found.append(f"{theme}: more than {LONGEST} characters: {entry}")
    return found


def test_the_list_of_changes_can_be_scanned() -> None:
    assert complaints(CHANGES) == []
    assert len(re.findall(r"^### ", CHANGES, re.MULTILINE)) > 5


FIRST = f"## [Unreleased]\n\nThese changes will become {NEXT}.\n\n### Decoders\n- One.\n"
RELEASED = f"{FIRST}\n## [0.0.2] - 2026-02-01\n\n### Models\n- Two.\n\n## [0.0.1] - 2026-01-01\n\n### CLI\n- One.\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (FIRST, 0),
        (RELEASED, 0),
        (RELEASED.replace("0.0.2", "0.0.0"), 1),
        (RELEASED.replace("2026-02", "2025-02"), 1),
        (RELEASED.replace(" - 2026-01-01", ""), 1),
        (RELEASED.replace("## [0.0.1]", "## 0.0.1"), 1),
        (RELEASED.replace(NEXT, "9.9.9"), 1),
        (RELEASED.replace("- Two.", "- " + "Two " * 50 + "."), 1),
        (RELEASED.replace("- Two.", "- Two\n  lines."), 2),
        (RELEASED.replace("- Two.\n", ""), 1),
    ],
)  # fmt: skip
def test_each_mistake_in_the_list_of_changes_is_found(text: str, number: int) -> None:
    assert len(complaints(text)) == number, complaints(text)


@pytest.mark.parametrize("target", sorted({target for _, target in LINK.findall(CHANGES)}))
def test_links_of_the_list_of_changes_lead_somewhere(target: str) -> None:
    assert target.startswith("https://") or (ROOT / target.partition("#")[0]).exists()

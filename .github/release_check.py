"""Would this commit do as a release? ``make release-check``: needs neither network nor an account, publishes nothing.

Builds the source distribution, and from it the wheel, into ``dist/``; compares that wheel with the one of the tree;
checks the metadata; and tries both in empty environments, which hold what the metadata declares and nothing more. At
a tag, CHANGELOG.md and CITATION.cff have to know its version.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hatch_version import version  # noqa: E402
from tests.helpers.building import build, metadata, unpack  # noqa: E402
from tests.helpers.environments import Environment  # noqa: E402


def unprepared(release: str, changes: str, citation: str) -> list[str]:
    """What the texts of CHANGELOG.md and CITATION.cff lack for a release; nothing for a development version."""
    if ".dev" in release:
        return []
    found = []
    if not re.search(rf"^## \[{re.escape(release)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        found.append(f"CHANGELOG.md: no line '## [{release}] - DATE'")
    if f"\nversion: {release}\n" not in citation:
        found.append(f"CITATION.cff: no line 'version: {release}'")
    return found


def built(work: Path) -> tuple[Path, Path]:
    """The source distribution and its wheel, in ``dist/``."""
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    sdist = build("sdist", ROOT, target)
    wheel = build("wheel", unpack(sdist, work / "unpacked"), target)
    of_tree = build("wheel", ROOT, work)
    assert metadata(wheel, "RECORD") == metadata(of_tree, "RECORD"), "the wheel of the tree has other files"
    Metadata.from_email(metadata(wheel, "METADATA"))  # raises for what no index takes
    if find_spec("twine"):
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], check=True)
    return sdist, wheel


def tried(distribution: Path, extras: str, release: str, folder: Path) -> None:
    """Install and use a distribution, away from the source."""
    environment = Environment(folder / "venv")
    environment.install(distribution)
    environment.lend(f"sgdec{extras}")
    assert environment.sgdec("--version") == f"sgdec, version {release}\n"
    assert "predictor" in environment.sgdec("plugins")
    if extras:
        assert environment.sgdec("plugins", "--check").startswith("All ")
    (folder / "in.ids").write_text("5 7 6\n")
    options = ["--predictors", "wc", "--wc.weight", "-1", "--vocab-size", "10", "--input-format", "ids"]
    assert environment.sgdec("decode", *options, "--max-length", "3", folder / "in.ids").split() == ["0", "0", "0"]


def main() -> int:
    release = version(ROOT)
    print(f"sgdec {release}" + ("; the commit has no tag, or there are changes: no release" * (".dev" in release)))
    texts = ((ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff"))
    if lacking := unprepared(release, *texts):
        print("\n".join(lacking))
        return 1
    with tempfile.TemporaryDirectory() as work:
        sdist, wheel = built(Path(work))
        print(f"built: {sdist.name}, {wheel.name}")
        for distribution, extras in ((wheel, ""), (sdist, ""), (wheel, "[all]")):
            folder = Path(tempfile.mkdtemp(dir=work))
            tried(distribution, extras, release, folder)
            print(f"works in an empty environment: {distribution.name}{extras}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

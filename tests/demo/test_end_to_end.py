"""The promise of ``sgdec demo``: from nothing to repaired translations, by commands that anyone can repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.cli.main import main
from sgdec.demo.tour import QUICK, next_steps, read_rows, steps

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_the_quick_demo_repairs_mistakes_and_its_commands_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--quick"]) == 0
    shown = capsys.readouterr().out
    path = steps(Path("demo"), 1, QUICK)
    for step in [*path, *next_steps(Path("demo"))]:
        assert "\n    ".join(step.shell.splitlines()) in shown

    rows = read_rows(Path("demo"))
    verdicts = [row.verdict for row in rows]
    assert len(rows) == QUICK.test
    assert verdicts.count("repaired") > verdicts.count("broken by the lattice")
    assert f"{verdicts.count('repaired')} repaired" in shown

    decode = path[5]
    written = Path("demo/nmt-fst.de")
    before = written.read_bytes()
    written.unlink()
    assert main(decode.args) == 0
    assert written.read_bytes() == before

    following = next_steps(Path("demo"))
    assert len(following) == 3
    capsys.readouterr()
    for step in following:
        assert main(step.args) == 0
        assert capsys.readouterr().out.strip(), step.title

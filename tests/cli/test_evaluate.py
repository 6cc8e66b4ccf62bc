"""`sgdec evaluate` prints what sacreBLEU computes, with signatures, and refuses files that do not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from click.testing import CliRunner

from sgdec.cli.evaluate import command
from sgdec.errors import SgdecError

REFERENCES = ["Zwei Männer gehen über die Straße.", "Ein Hund läuft am Strand entlang, schnell."]
TRANSLATIONS = ["Zwei Männer gehen auf die Straße.", "Der Hund läuft am Strand entlang."]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    reference, translation = tmp_path / "ref", tmp_path / "hyp"
    reference.write_text("\n".join(REFERENCES) + "\n")
    translation.write_text("\n".join(TRANSLATIONS) + "\n")
    return reference, translation


def test_scores_are_those_of_sacrebleu_with_signatures(files: tuple[Path, Path]) -> None:
    bleu = sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES])
    chrf = sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES])
    for arguments, text in (([str(files[1])], None), (["-"], files[1].read_text()), ([], files[1].read_text())):
        result = CliRunner().invoke(command, ["--reference", str(files[0]), *arguments], input=text)
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert lines[0] == str(bleu) and lines[2] == str(chrf)
        assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in lines[1]
        assert "nrefs:1|case:mixed|eff:yes|nc:6|nw:0" in lines[3]


def test_known_values() -> None:
    """The identity is 100, and nothing in common is 0 (up to smoothing)."""
    from sgdec.text.bleu import bleu

    assert bleu(REFERENCES, REFERENCES) == pytest.approx(100)
    assert bleu(["x y z w v"] * 2, REFERENCES) < 5


def test_unequal_line_counts_are_refused(files: tuple[Path, Path]) -> None:
    files[1].write_text("one line\n")
    result = CliRunner().invoke(command, ["--reference", str(files[0]), str(files[1])])
    assert isinstance(result.exception, SgdecError)
    assert "has 2 lines but the translations have 1" in str(result.exception)
    result = CliRunner().invoke(command, ["--reference", str(files[1]), str(files[0])])
    assert "has 1 line but the translations have 2" in str(result.exception)


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", ["evaluate --reference ref hyp", "compare hyp ref --reference ref --samples 9 --html page --json numbers"]
)
def test_scores_need_no_torch(call: str, files: tuple[Path, Path]) -> None:
    """`pip install "sgdec[report]"` does not install it."""
    code = (
        "import sys; sys.modules['torch'] = None\n"  # each import of torch now fails
        f"from sgdec.cli.main import main; sys.exit(main({call.split()}))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=files[0].parent, capture_output=True, text=True)
    assert done.returncode == 0 and "BLEU" in done.stdout, done.stderr

"""`sgdec evaluate` prints what sacreBLEU computes, with signatures, and refuses files that do not fit."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu
from click.testing import CliRunner
from sacrebleu.metrics.bleu import BLEU

from sgdec.cli.evaluate import command
from sgdec.errors import SgdecError, UsageError
from sgdec.text.bleu import SMOOTHING, TOKENIZERS, bleu_and_chrf

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


@pytest.mark.parametrize("tokenize", ["intl", "char", "zh", "none"])
@pytest.mark.parametrize("smooth", SMOOTHING)
def test_the_tokenizer_and_the_smoothing_are_those_of_sacrebleu(
    tokenize: str, smooth: str, files: tuple[Path, Path]
) -> None:
    expected = sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES], tokenize=tokenize, smooth_method=smooth)
    options = ["--tokenize", tokenize, "--smooth-method", smooth, "--reference", str(files[0]), str(files[1])]
    result = CliRunner().invoke(command, options)
    lines = result.stdout.splitlines()
    assert lines[0] == str(expected)
    assert f"|tok:{tokenize}|smooth:{smooth}" in lines[1]


def test_only_tokenizers_that_download_something_are_left_out() -> None:
    downloads = {name for name in BLEU.TOKENIZERS if name.startswith(("spm", "flores", "spBLEU"))}
    assert set(TOKENIZERS) == set(BLEU.TOKENIZERS) - downloads
    assert set(SMOOTHING) == set(BLEU.SMOOTH_DEFAULTS)


def multi_bleu(translations: list[str], references: list[str]) -> float:
    """Moses' multi-bleu.perl for one reference, from its formulas: no smoothing, tokens between blanks."""
    correct, total, length, reference_length = [0] * 4, [0] * 4, 0, 0
    for translation, reference in zip(translations, references, strict=True):
        ours, theirs = translation.split(), reference.split()
        length, reference_length = length + len(ours), reference_length + len(theirs)
        for n in range(1, 5):
            counts = [
                Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (ours, theirs)
            ]
            correct[n - 1] += (counts[0] & counts[1]).total()
            total[n - 1] += counts[0].total()
    if 0 in correct:
        return 0.0
    brevity = min(1.0, math.exp(1 - reference_length / length))
    return 100 * brevity * math.exp(sum(math.log(c / t) for c, t in zip(correct, total, strict=True)) / 4)


def test_without_tokenizer_and_smoothing_it_is_multi_bleu(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(3)
    seen = set()
    for lines in (1, 2, 5, 150):
        for _ in range(20):
            references, translations = (
                [" ".join([*draw.choices(["a", ",b", "b.", "C"], k=draw.randint(1, 9)), "."]) for _ in range(lines)]
                for _ in range(2)
            )
            expected = multi_bleu(translations, references)
            found = bleu_and_chrf(translations, references, tokenize="none", smooth_method="none")[0]
            assert found.value == pytest.approx(expected, rel=1e-12)
            seen.add(expected == 0.0)
    assert seen == {True, False}
    assert not caplog.records and capfd.readouterr().err == ""  # of 100 lines that end in " ."


def test_a_tokenizer_whose_packages_are_missing_is_one_line(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    result = CliRunner().invoke(command, ["--tokenize", "ja-mecab", "--reference", str(files[0]), str(files[1])])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == (
        "--tokenize ja-mecab: its packages are not installed (pip install sacrebleu[ja])."
    )


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

"""A config file is data: nothing in it executes code, and what is wrong with it is one line with exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.cli.main import main

EVIL = "from pathlib import Path\nPath('executed').touch()\n"


def ran(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    status = main(["decode", "--input-format", "ids", *args])
    return status, capsys.readouterr().err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a sentence, and a module that leaves a trace when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ids").write_text("3\n")
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        'plugin_file = "evil.py"',
        'plugin-file = ["evil.py"]',
        '"Plugin-File" = "evil.py"',
        '"--plugin-file" = "evil.py"',
        "pluginfile = 'evil.py'",
        'plugin_files = "evil.py"',
        '[wc]\nplugin_file = "evil.py"',
        '[beam]\na = [{ b = { plugin-file = "evil.py" } }]',
        'wc.plugin_file = "evil.py"',
        '"plugin\\u005ffile" = "evil.py"',
    ],
)
def test_a_config_file_loads_no_code(folder: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    (folder / "run.toml").write_text(f'predictors = "wc"\nvocab_size = 7\n{line}\n')
    status, error = ran(capsys, "--config", "run.toml", "in.ids")
    assert status == 2 and error.count("\n") == 1
    assert "would execute code" in error and "Give --plugin-file on the command line" in error
    assert not (folder / "executed").exists()


def test_on_the_command_line_the_same_file_is_executed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, "--predictors", "wc", "--plugin-file", "evil.py", "in.ids")
    assert (folder / "executed").exists()


@pytest.mark.parametrize("name", ["evil", "evil.py", "./evil.py", "os.system", "evil:x", "../evil", "sgdec.cli"])
def test_names_of_plugins_in_a_config_are_names_and_no_modules(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for key in ("predictors", "decoder"):
        settings = {"predictors": "wc", "vocab_size": 7, key: name}
        (folder / "run.toml").write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
        status, error = ran(capsys, "--config", "run.toml", "in.ids")
        assert status == 2 and error.startswith("Error: ") and error.count("\n") == 1
    assert not (folder / "executed").exists()


@pytest.mark.parametrize(
    "text",
    [
        "predictors = 'wc'\nnbest = " + "9" * 5000,
        "predictors = 'wc'\nnbest = " + "9" * 300,
        "predictors = 'wc'\nmax_length_factor = inf",
        "predictors = 'wc'\nmax_length_factor = nan",
        "predictors = 'wc'\nmax_length_factor = 1e308",
        "predictors = 'wc'\nvocab_size = 1000000000",
        "predictors = 'wc'\noutput = \"a\\u0000b\"",
        "predictors = 'wc'\nvocab_size = 7\n[beam]\nalpha = inf",
        "predictors = 'wc'\nvocab_size = 7\n[beam]\nalpha = 1e308",
        "predictors = 'wc'\nvocab_size = 7\n[beam]\nalpha = " + "[" * 90 + "]" * 90,
        "predictors = 'wc'\nvocab_size = 7\n[beam]\nsize = " + "9" * 300,
        "predictors = 'wc'\nvocab_size = 7\n[wc]\nweight = nan",
        "predictors = 'wc'\nvocab_size = 7\n[wc]\nweight = " + "9" * 4000,
        "predictors = 'fst'\n[fst]\npath = \"a\\u0000{id}\"",
        "predictors = 'wc'\na = " + "[" * 100_000,
        "a." * 100_000 + "b = 1",
        "predictors = 'wc'\n# " + "x" * (1 << 20),
        "predictors = 1979-05-27",
        "predictors = { a = 1 }",
        "predictors = []",
        "predictors = 'wc'\ndecoder = ['beam', 'beam']",
    ],
)
def test_a_bad_config_is_a_wrong_call_of_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (folder / "run.toml").write_text(text)
    status, error = ran(capsys, "--config", "run.toml", "in.ids")
    assert (status, error.count("\n")) == (2, 1), error[:3000]
    assert error.startswith("Error: ") and len(error) < 3000

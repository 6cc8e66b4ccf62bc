"""The promise of the command line's frame: quick to answer, one line for a mistake, the right exit status."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click
import pytest

from sgdec.cli.main import COMMANDS, LazyGroup, main, sgdec
from sgdec.errors import SgdecError, UsageError
from tests.helpers.background import heed_interrupts

HEAVY = ("torch", "pynini", "sentencepiece", "kenlm", "numpy", "pydantic", "sacrebleu")
PLUGINS = ("sgdec_predictors", "sgdec_decoders", "sgdec.models")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sgdec.cli", *args], capture_output=True, text=True)


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes the command ``demo`` raise something."""

    def plant(error: BaseException) -> None:
        @click.command("demo")
        def command() -> NoReturn:
            raise error

        monkeypatch.setattr(LazyGroup, "get_command", lambda *_: command)

    return plant


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["--help"], ["--version"], ["plugins"], ["plugins", "--help"]])
def test_help_and_listing_import_nothing_heavy(args: list[str]) -> None:
    code = (
        f"import sys; from sgdec.cli.main import main; status = main({args!r})\n"
        f"print('heavy:', [name for name in {(*HEAVY, *PLUGINS)} if name in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_importing_sgdec_imports_nothing_heavy() -> None:
    code = f"import sys, sgdec, sgdec.cli; assert not set({HEAVY}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists() -> None:
    package = importlib.import_module("sgdec")
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_help_lists_every_command_with_one_line() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name, line in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert line in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_file_and_answers_help(name: str) -> None:
    module = f"sgdec.cli.{name.replace('-', '_')}"
    assert find_spec(module), f"{module} is missing"
    command = sgdec.get_command(click.Context(sgdec), name)
    assert isinstance(command, click.Command)
    assert command.help, "a command explains itself"


def test_the_module_runs_like_the_script() -> None:
    assert run("--version").stdout == f"sgdec, version {importlib.import_module('sgdec').__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["plugns"], "no command named 'plugns'. Did you mean 'plugins'? Available: average, cluster, compare, "),
        (["plugins", "--chekc"], "See 'sgdec plugins --help'."),
        (["--no-such-option"], "See 'sgdec --help'."),
        (["plugins", "bean"], "no plugin named 'bean'. Did you mean 'beam'? Available: "),
        (["plugins", "a", "b"], "unexpected extra argument"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(args: list[str], message: str) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (SgdecError("it failed"), 1, "Error: it failed\n"),
        (UsageError("not so"), 2, "Error: not so\n"),
        (click.UsageError("two\nlines."), 2, "Error: two lines."),
        (KeyboardInterrupt(), 130, ""),
        *(
            (OSError(number, "why"), 1, f"Error: could not continue {work}: why.\n")
            for work, numbers in (
                ("writing", (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)),
                ("reading or writing", (errno.EIO, errno.EROFS, errno.EBADF)),
            )
            for number in numbers
        ),
        (
            FileNotFoundError(2, "No such file or directory", "a.txt"),
            1,
            "Error: a.txt: No such file or directory.\n",
        ),
        (ModuleNotFoundError("No module named 'pynini'", name="pynini"), 1, 'pip install "sgdec[fst]"'),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    raising: Callable[[BaseException], None],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    message: str,
) -> None:
    raising(error)
    assert main(["demo"]) == status
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError("odd"), ModuleNotFoundError("x", name="our_own")])
def test_a_defect_of_ours_keeps_its_traceback(raising: Callable[[BaseException], None], error: Exception) -> None:
    raising(error)
    with pytest.raises(type(error)):
        main(["demo"])


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "sgdec.cli", "plugins"], stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (
        1,
        b"Error: could not continue writing: No space left on device.\n",
    )


LIMITED = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9)); from sgdec.cli.main import main"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [["plugins"], ["--help"], ["new-plugin", "idea"], ["decode", "--help"]])
def test_a_file_that_may_not_grow_behind_standard_output_is_one_line(
    tmp_path: Path, args: list[str], unbuffered: str
) -> None:
    with open(tmp_path / "out", "w") as output:
        done = subprocess.run(
            [sys.executable, "-c", f"{LIMITED}; sys.exit(main({args}))"],
            stdout=output, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == 1 and "File too large" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.background
def test_a_full_disk_behind_standard_error_changes_no_exit_status() -> None:
    with open("/dev/full", "w") as full:
        for args, status in ((["plugins", "beam"], 0), (["plugins", "bean"], 2)):
            command = [sys.executable, "-m", "sgdec.cli", *args]
            assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full).returncode == status


@pytest.mark.background
def test_a_reader_that_went_away_is_no_error_message() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "sgdec.cli", "plugins"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.background
def test_ctrl_c_is_status_130(tmp_path: Path) -> None:
    waits = tmp_path / "waits.py"
    waits.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "sgdec.cli", "plugins", "--plugin-file", str(waits)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert "Traceback" not in process.stderr.read()


DECODE = ["decode", "--predictors", "wc", "--decoder", "greedy", "--input-format", "ids", "--vocab-size", "5"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--predictors", "wd"], "no predictor named 'wd'. Did you mean 'wc'? Available: aligned, altsrc, bow, "),
        (["--predictors", "beam"], "no predictor named 'beam' ('beam' is a decoder). "),
        (["--predictors", "wc,,wc"], "a name is missing in entry 2. Expected a comma list"),
        (["--decoder", "bean"], "no decoder named 'bean'. Did you mean 'beam'? Available: astar, beam, "),
        (["--wc.tokn", "3"], "no option --wc.tokn. Did you mean '--wc.token'? "),
        (["--wc.token", "three"], "--wc.token: 'three' should be an integer"),
        (["--wc.token"], "--wc.token needs a value"),
        (["--wv.token", "3"], "options for 'wv', which this run does not use. Did you mean 'wc'?"),
        (["--config", "none.toml"], "--config none.toml: No such file or directory."),
        (["--plugin-file", "none.py"], "--plugin-file none.py: no such file."),
        (["--predictors", "fsttok_kenlm"], "(wrappers are written with colons: fsttok:kenlm). Did you mean "),
        (["--fst_path", "x"], "No such option '--fst_path'. Write --fst.path."),
        (["--beam-size", "4"], "No such option '--beam-size'. Write --beam.size."),
        (["--beam", "4"], "No such option '--beam'. Write --beam.size VALUE; 'sgdec plugins beam' lists the "),
        (["--hf", "gpt2"], "No such option '--hf'. Write --hf.model VALUE; "),
        (["--greedy"], "No such option '--greedy'. Write --decoder greedy; it has no options."),
        (["--rank"], "No such option '--rank'. Write --predictors rank; it has no options."),
        (["--src_test", "x"], "docs/from-sgnmt.md has the counterpart of each option of SGNMT."),
        (["--predictor_weights", "1,2"], "(Did you mean one of: '--predictors', '--weights'?). Options of"),
        (["--input-format", "many"], "See 'sgdec decode --help'."),
    ],
)
def test_a_wrong_name_or_option_of_a_plugin_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert main([*DECODE, "no-input", *args]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize("name", ["tut.ini", "run.yaml", "run.cfg", "run.toml"])
@pytest.mark.parametrize("line", ["predictors: fst,nmt", "src_test = 'in'", "fst_path: a.fst", "predictors = fst"])
def test_a_configuration_file_of_sgnmt_is_refused_with_the_page_that_translates_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, line: str
) -> None:
    (tmp_path / name).write_text(f"{line}\n")
    assert main([*DECODE, "--config", str(tmp_path / name), "no-input"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"Error: --config {tmp_path / name}") and error.count("\n") == 1
    assert error.endswith("docs/from-sgnmt.md has the counterpart of each option of SGNMT.\n")


def test_a_configuration_file_is_the_command_line_and_the_command_line_wins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, source = tmp_path / "run.toml", tmp_path / "ids.txt"
    source.write_text("3\n")
    config.write_text(
        'predictors = "wc"\ndecoder = "greedy"\nmax-length = 3\ninput-format = "ids"\nvocab-size = 5\n'
        'output-format = "ids"\n[wc]\ntoken = 4\nweight = -1\n'
    )
    for args, output in [([], "4 4 4\n"), (["--max-length", "2"], "4 4\n"), (["--wc.token", "3"], "3 3 3\n")]:
        assert main(["decode", "--config", str(config), *args, str(source)]) == 0
        assert capsys.readouterr().out == output


def test_without_a_command_the_help_is_shown() -> None:
    bare, asked = run(), run("--help")
    assert (bare.stdout, bare.stderr, bare.returncode) == (asked.stdout, "", 0)
    assert asked.stdout.startswith("Usage: sgdec")


def test_plugins_lists_kind_name_distribution_and_what_each_is() -> None:
    lines = [line.split(maxsplit=3) for line in run("plugins").stdout.splitlines()]
    about = "Wrapper: the inner predictor has other token ids for the same words."
    assert ["predictor", "idxmap", "sgdec", about] in lines
    bundled = [line for line in lines if line[2] == "sgdec"]
    assert {("decoder", "beam"), ("model", "gnmt")} <= {(line[0], line[1]) for line in bundled}
    assert all(len(line) == 4 for line in bundled), "each has a docstring"


def test_a_list_of_plugins_fits_its_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["plugins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 60 and any(line.endswith("...") for line in lines)


@pytest.mark.slow
def test_plugins_describes_documentation_and_options() -> None:
    for name in ("wc", "predictor.wc"):
        text = run("plugins", name).stdout
        assert text.startswith("predictor wc (sgdec: sgdec_predictors.wc.WordCount)\n\nWord count")
        assert "--wc.token int >= -1" in text
        assert "--wc.weight float" in text


def test_plugins_says_what_a_preset_stands_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "rnnlm"]) == 0
    text = capsys.readouterr().out
    assert "Presets:" in text and "small" in text and "--rnnlm.width 200" in text
    assert main(["plugins", "shallow"]) == 0
    assert "Presets:" not in capsys.readouterr().out


@pytest.mark.slow
def test_plugins_check_reports_each_broken_plugin_and_fails(tmp_path: Path) -> None:
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    for file in files:
        file.write_text("import sgdec\n@sgdec.hookimpl\ndef sgdec_decoders():\n    return {'greedy': dict}\n")
    done = run("plugins", "--check", "--plugin-file", str(files[0]), "--plugin-file", str(files[1]))
    assert done.returncode == 1
    assert f"decoder 'greedy' is offered by {files[0]} and {files[1]}." in done.stdout
    assert "is not a subclass of sgdec's Decoder" in done.stdout


def test_plugins_check_is_content_with_what_is_bundled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SGDEC_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert main(["plugins", "--check"]) == 0
    assert capsys.readouterr().out.startswith("All ")

"""What shells complete: commands, options, names of plugins and their options, values, files.

Most of it is asked of click's completion classes, as zsh's script would; the last tests ask bash itself.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from sgdec.cli.completion import Zsh
from sgdec.cli.main import COMMANDS, COMPLETION, sgdec
from sgdec.plugins.host import Entry, Host
from sgdec.plugins.options import describe
from tests.helpers.places import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.background]


def items(line: str, shell: type[ShellComplete] = Zsh) -> dict[str, str | None]:
    """What is proposed for the last word of a line, with its help; files as ``<file>``."""
    *args, incomplete = line.split(" ")
    found = shell(sgdec, {}, "sgdec", COMPLETION).get_completions(args, incomplete)
    return {f"<{item.type}>" if item.type != "plain" else item.value: item.help for item in found}


def test_all_commands_are_proposed_with_their_line() -> None:
    assert items("") == COMMANDS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("to", "tokenizer"),
        ("decode --nb", "--nbest"),
        ("decode --output-format n", "nbest"),
        ("decode --device ", "cpu cuda"),
        ("decode --decoder sy", "syncbeam"),
        ("decode --decoder=sy", "--decoder=syncbeam"),
        ("decode --predictors lr", "lrhiero"),
        ("decode --predictors fst,lr", "fst,lrhiero"),
        ("decode --predictors fst,fsttok:lr", "fst,fsttok:lrhiero"),
        ("decode --predictors fst,new=lr", "fst,new=lrhiero"),
        ("decode --predictors=fst,new=idxmap:lr", "--predictors=fst,new=idxmap:lrhiero"),
        ("score --predictors lr", "lrhiero"),
        ("plugins transf", "transformer transformer-lm"),
        ("plugins syn", "syncbeam"),
        ("train --model rnn", "rnnlm"),
        ("train --recipe marian-t", "marian-transformer"),
        ("recipes hybridnmt-", "hybridnmt-input-feeding"),
        ("decode --predictors fst --fst.path ", "<file>"),
        ("decode --predictors fst --fst.path=la", "<file>"),
        ("decode --predictors fst --fst.use_weights ", "true false"),
        ("decode --predictors fst --fst.use_weights=f", "--fst.use_weights=false"),
        ("decode --beam.stop p", "proven"),
        ("decode --decoder sample --sample.chain=top_k=5+mir", "--sample.chain=top_k=5+mirostat="),
        ("decode --predictors wc --wc.weight ", ""),
        ("decode --predictors wc ", "<file>"),
        ("decode --config ", "<file>"),
        ("train --train a.en a", "<file>"),
        ("plugins chr", "chrf"),
        ("demo c", "corpus"),
        ("corpus --engine ra", "ray"),
        ("corpus a.txt --output d -- --predictors lr", "lrhiero"),
        ("corpus a.txt --output d -- --predictors fst --fst.use_weights=f", "--fst.use_weights=false"),
        ("corpus a.txt --output d -- --nb", "--nbest"),
        ("demo corpus --d", "--directory"),
    ],
)
def test_a_word_is_completed(line: str, expected: str) -> None:
    assert " ".join(items(line)) == expected


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("sa", "sample"),
        ("sample:samp", "sample:samples="),
        ("sample:samples=3,s", "sample:samples=3,samples= sample:samples=3,seed="),
        ("beam:size=2,stop=f", "beam:size=2,stop=full"),
        ("sample:chain=top_k=5+typ", "sample:chain=top_k=5+typical="),
        ("best-of-two:first=beam:stop=f", "best-of-two:first=beam:stop=full"),
        ("sample:samples=", ""),
        ("sample:nothing=", ""),
        ("nothing:", ""),
        ('sample:chain="', ""),
    ],
)
def test_a_decoder_inside_another_is_completed(incomplete: str, expected: str) -> None:
    plugin = ROOT / "tests" / "third_party" / "best_of_two.py"
    line = f"decode --plugin-file {plugin} --decoder best-of-two --best-of-two.second"
    assert " ".join(items(f"{line} {incomplete}")) == expected
    assert list(items(f"{line}={incomplete}")) == [f"--best-of-two.second={each}" for each in expected.split()]


ON_LINES = [entry for entry in Host(autoload=False).names() if entry.kind != "utility"]
"""Plugins that have options of their own on a command line; those of a utility are in the option that names it."""


@pytest.mark.parametrize("entry", ON_LINES, ids=lambda entry: f"{entry.kind}.{entry.name}")
def test_every_option_of_a_plugin_on_the_line_is_proposed_with_its_description(entry: Entry) -> None:
    lines = {"predictor": "decode --predictors {}", "decoder": "decode --decoder {}", "model": "train --model {}"}
    lines["engine"] = "corpus --engine {}"
    options = describe(Host().load(entry.kind, entry.name))
    expected = {f"--{entry.name}.{option.name}": option.description for option in options}
    if entry.kind == "predictor":
        expected[f"--{entry.name}.weight"] = "factor of its scores"
        about = "normalise its scores over the tokens that the other predictors allow"
        expected[f"--{entry.name}.renormalize"] = about
    assert items(f"{lines[entry.kind].format(entry.name)} --{entry.name}.") == expected


def test_options_belong_to_the_names_of_the_line() -> None:
    found = items("decode --predictors l2r=wc,wc,wc --beam.size 5 --")
    assert {"--nbest", "--beam.size", "--l2r.token", "--wc.token", "--wc2.token"} <= set(found)
    assert not [name for name in found if name.startswith(("--dfs.", "--fst."))]
    assert not items("decode --decoder dfs --beam.")


def test_only_plugins_whose_options_are_asked_for_are_imported() -> None:
    code = (
        "import sys\n"
        "from sgdec.cli.completion import Zsh; from sgdec.cli.main import sgdec\n"
        "ask = Zsh(sgdec, {}, 'sgdec', '_SGDEC_COMPLETE').get_completions\n"
        "assert ask(['decode', '--predictors', 'nmt,fst'], '') and ask(['decode'], '--nb')\n"
        "assert ask(['decode', '--predictors'], 'nmt,fst:n') and ask(['train', '--model'], 'lu')\n"
        "imported = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not imported & {'torch', 'pynini', 'sgdec_predictors', 'sgdec_decoders'}, imported\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "line",
    [
        "decide --",
        "decode --predictors wc,,wc --wc.",
        "decode --predictors nothing --nothing.",
        "decode --predictors wc=wc=wc --wc.t",
        "decode --decoder nothing --nothing.",
        "decode --plugin-file nothing.py --decoder sy",
        "decode --nothing.else ",
        "decode --wc.",
        "train --model nothing --nothing.",
    ],
)
def test_a_wrong_line_is_no_error(line: str) -> None:
    items(line)


def test_names_of_a_plugin_file_are_proposed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "'Mine.'\nimport sgdec\n\nclass Mine(sgdec.Predictor):\n    def __init__(self, much: float = 1.0): ...\n\n"
        "@sgdec.hookimpl\ndef sgdec_predictors():\n    return {'my-own': Mine}\n"
    )
    assert items(f"decode --plugin-file {file} --predictors my") == {"my-own": "Mine."}
    assert list(items(f"decode --plugin-file {file} --predictors my-own --my-own.m")) == ["--my-own.much"]


SETUP = f'eval "$({COMPLETION}=bash_source sgdec)"'


@pytest.fixture
def with_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script ``sgdec`` on the path, running this repository."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / part) for part in ("", "predictors", "decoders")))


@pytest.mark.usefixtures("with_script")
def test_bash_completes_behind_its_own_word_breaks() -> None:
    """bash splits ``a=b:c`` into five words, and replaces the last one by what it is given."""
    words = ["sgdec", "decode", "--predictors", "=", "fst,new", "=", "idxmap", ":", "lr"]
    code = f"{SETUP}; COMP_WORDS=({' '.join(words)}); COMP_CWORD=8; _sgdec_completion sgdec; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("lrhiero\n", "")


@pytest.mark.usefixtures("with_script")
def test_the_tabulator_key_completes_in_an_interactive_bash() -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    try:
        os.write(terminal, f"{SETUP}; echo rea''dy\n".encode())
        read_until(terminal, "ready")
        os.write(terminal, b"sgdec decode --predictors fst,fsttok:lr\t")
        read_until(terminal, "--predictors fst,fsttok:lrhiero ")
        os.write(terminal, b"--fsttok.pa\t")
        read_until(terminal, "--fsttok.path ")
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(child, 0)


def read_until(terminal: int, text: str) -> None:
    seen = ""
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"bash shows {seen!r}"
        seen += re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]|\r|\x07", "", os.read(terminal, 4096).decode())


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [("chr", "chrf"), ("chrf:word", "chrf:word_order="), ("command:sec", "command:seconds="), ("exact:", "")],
)
def test_a_utility_inside_a_decoder_is_completed(incomplete: str, expected: str) -> None:
    assert " ".join(items(f"decode --decoder mbr --mbr.utility {incomplete}")) == expected

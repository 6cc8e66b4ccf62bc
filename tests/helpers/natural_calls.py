"""A correct call of every command and with every plugin, run by a Python whose sgdec has no extras.

    python -m tests.helpers.natural_calls PYTHON

Most are the calls of the fuzzer, which has one for each file that is read. Each call does its work, or says in one
line which extra it needs; in an empty folder it says in one line what is missing. Prints the calls that do not, and
how many there are; then the exit status is 1.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzz import files
from fuzz.calls import MORE
from fuzz.case import write_files
from fuzz.options import commands, words_of
from sgdec.plugins.host import Host
from tests.helpers.breadth import some

IDS = "--max-length 3 --vocab-size 7 --input-format ids"
OF_KIND = {
    "predictor": f"decode --predictors {{}} {IDS} in.ids",
    "decoder": f"decode --predictors wc --decoder {{}} {IDS} in.ids",
    "utility": f"decode --predictors wc --decoder mbr --mbr.utility {{}} {IDS} in.ids",
    "engine": f"corpus --output done --engine {{}} in.ids -- --predictors wc {IDS}",
    "model": f"{files.TRAIN} --model {{}}",
}
"""The call with a plugin that the fuzzer's calls do not name."""
MORE_WORDS = {
    "contrast": "contrast:wc+unkc",
    "maskvocab": "maskvocab:wc --maskvocab.tokens 4",
    "maxlength": "wc,maxlength --maxlength.tokens 2",
    "minlength": "wc,minlength --minlength.tokens 2",
    "norepeat": "wc,norepeat --norepeat.order 1",
    "rank": "rank:wc",
    "repetition": "repetition:wc --repetition.penalty 1.5",
    "skipvocab": "skipvocab:wc --skipvocab.tokens 4",
    "syncbeam": "syncbeam --syncbeam.symbol 2",
}
"""Plugins that need another one beside them, or an option."""
OTHERS = (
    "course export new", "course grade bag in.txt --seed 2 --csv new", "demo --quick --directory new", "recipes",
    "plugins command", "decode --predictors wc,canonical --tokenizer letters.spm in.txt",
    "decode --predictors hf --hf.model gpt2 --hf.prompt a{source}b in.txt",
)  # fmt: skip
"""Calls of commands that the fuzzer leaves out, of two plugins that do not work with ids alone, and of a model of
Hugging Face by its name."""
GIVEN = f"in.ids in.txt letters.spm {files.PARALLEL}"
SAID = re.compile(r"^Error: .*$", re.MULTILINE)
EXTRA = re.compile(r"""pip install ["']sgdec\[\w+\]["']|pip install -e CLONE""")
"""How an error says what to install: an extra, or the course, which no wheel has."""
DRIVER = """
import contextlib, io, json, os, sys, traceback
from sgdec.cli.main import main
ends = []
for folder, args in json.load(sys.stdin):
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            status = main(args)
        except BaseException:
            status = None
            traceback.print_exc()
    ends.append((status, errors.getvalue()))
print(json.dumps(ends))
"""
"""Runs calls one after the other, and prints their exit statuses and what they wrote on standard error."""


def natural_calls() -> Iterator[files.FileTarget]:
    """One for each command, plugin and reader, without those that need another call before them."""
    yield from (call for call in (*files.TARGETS, *MORE) if not call.before and not call.stdin)
    yield from (files.target(command, command, GIVEN) for command in OTHERS)
    text = " ".join((*OTHERS, *(" ".join(call.args) for call in files.TARGETS)))
    named = set(re.split("[ ,:+]", text))
    for kind, name in ((entry.kind, entry.name) for entry in Host(autoload=False).names()):
        if name not in named or kind in {"decoder", "model"}:
            yield files.target(f"{kind} {name}", OF_KIND[kind].format(MORE_WORDS.get(name, name)), GIVEN)


def complaints(python: Path) -> list[str]:
    """The calls that end in anything but their work or one line, with what they said."""
    calls = [*natural_calls()]
    missing = set(commands()) - {words_of(call.args) for call in calls} - {("course",)}
    assert not missing, f"no call of {missing}"
    with tempfile.TemporaryDirectory() as work:
        asked = [(str(Path(work, f"{number}")), call, True) for number, call in enumerate(calls)]
        asked += [(f"{folder}-empty", call, False) for folder, call, _ in some(asked)]
        for folder, call, present in asked:
            Path(folder).mkdir()
            if present:
                write_files(call.base().files, Path(folder))
        data = json.dumps([(folder, call.args) for folder, call, _ in asked])
        done = subprocess.run([python, "-I", "-c", DRIVER], input=data, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    found = []
    for (_, call, present), (status, said) in zip(asked, json.loads(done.stdout), strict=True):
        errors = SAID.findall(said)
        if status is None or (status and (len(errors) != 1 or (present and not EXTRA.search(errors[0])))):
            found.append(f"sgdec {' '.join(call.args)}\n{said}")
    return found


if __name__ == "__main__":
    print(*(found := complaints(Path(sys.argv[1]))), f"{len(found)} calls fail without one line.", sep="\n")
    sys.exit(1 if found else 0)

"""The promise: a utility can be another program, and whatever that does ends in an answer or in one clear line."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgdec
from sgdec.errors import SgdecError, UsageError
from sgdec.plugins.options import check
from sgdec.utilities.command import Program
from sgdec.utility import Aggregates, aggregated, pairwise
from tests.helpers.breadth import examples

pytestmark = [pytest.mark.slow, pytest.mark.background]  # each test starts a program
LOOP = """
import json, os, sys, time
def say(answer):
    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)
say({traits})
for number, line in enumerate(sys.stdin):
    asked = json.loads(line)
    h, r = asked["hypotheses"], asked["references"]
    {body}
"""
LENGTHS = 'say({"utilities": [[-abs(len(a) - len(b)) for b in r or [asked["source"]]] for a in h]})'
Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr("sgdec.utilities.process.GRACE_SECONDS", 0.3)
    started: list[weakref.ref[Program]] = []

    def start(body: str = LENGTHS, traits: str = "{}", seconds: float = 20) -> Program:
        file = tmp_path / f"{len(started)}.py"
        file.write_text(LOOP.replace("{traits}", traits).replace("{body}", body.replace("\n", "\n    ")))
        command = sgdec.load_utility("command", command=f"'{sys.executable}' '{file}'", seconds=seconds)
        assert isinstance(command, Program)
        started.append(weakref.ref(command))
        return command

    yield start
    for each in started:
        if (command := each()) is not None:
            command.close()


def ended_soon(process: int) -> bool:
    """Whether it ends within five seconds; one that nobody has waited for yet has ended, too."""
    for _ in range(100):
        try:
            os.kill(process, 0)
            if b") Z " in Path(f"/proc/{process}/stat").read_bytes():
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_a_program_answers_with_a_matrix_and_is_started_once(start: Start) -> None:
    utility = start()
    assert pairwise(utility, ["a", "abc", "ü\n\udc80"], ["ab", ""]).tolist() == [[-1, -1], [-1, -3], [-1, -3]]
    process = utility._process._process.pid
    assert pairwise(utility, ["a"], ["b"]).tolist() == [[0]] and utility._process._process.pid == process
    assert not isinstance(utility, Aggregates) and utility.needs_references and not utility.symmetric


def test_requests_larger_than_a_pipe_are_written_and_answered(start: Start) -> None:
    texts = ["x" * number * 50 for number in range(300)]
    found = pairwise(start(), texts, texts)
    assert (found == -50 * np.abs(np.arange(300)[:, None] - np.arange(300))).all()


def test_its_traits_are_those_that_it_prints_first(start: Start) -> None:
    sizes = 'say({"utilities": [[sum(map(len, asked["weights"])) if "weights" in asked else len(h)]] * len(h)})'
    utility = start(sizes, '{"needs_references": False, "aggregates": True}')
    assert pairwise(utility, ["a", "b"], (), "source").tolist() == [[2], [2]]
    assert aggregated(utility, ["a"], ["b", "c", "d"]).tolist() == [[3]]
    body = 'say({"utilities": [[10 * number + 0] * len(r)] * len(h)})'
    parts = pairwise(start(body, '{"symmetric": True}'), list("abc") * 12, list("abc") * 12)
    assert parts.max() == 20, "two halves and what lies between them: three requests"
    assert (parts == parts.T).all()


@pytest.mark.parametrize(
    ("matrix", "line"),
    [
        ('[[float("nan")] * len(r)] * len(h)', r"answered nan for hypothesis 1 \('one'\) and reference 1"),
        ("[[1] * len(r)] * (len(h) - 1) + [[1e999] * len(r)]", "answered inf for hypothesis 2"),
        ("[[1, 2]]", r"answered numbers of shape \[1, 2\]; expected shape \[2, 1\] \(hypotheses, references\)"),
        ("[[1], [1, 2]]", r"answered a list, which is not an array of numbers; expected shape \[2, 1\]"),
        ('[["1"], ["2"]]', "answered a list, which is not an array of numbers"),
        ("[[None], [2]]", "answered a list, which is not an array of numbers"),
        ("None", "answered None, which is not an array of numbers"),
    ],
)  # fmt: skip
def test_a_wrong_matrix_fails_its_sentence_only(start: Start, matrix: str, line: str) -> None:
    utility = start(f"if number:\n    {LENGTHS}\nelse:\n    say({{'utilities': {matrix}}})")
    with pytest.raises(SgdecError, match=line) as caught:
        pairwise(utility, ["one", "two"], ["three"])
    assert not isinstance(caught.value, UsageError) and "utility command " in str(caught.value)
    assert pairwise(utility, ["one", "two"], ["three"]).tolist() == [[-2], [-2]]


def test_a_program_can_say_why_a_sentence_has_no_utility(start: Start) -> None:
    with pytest.raises(SgdecError, match=r": too\\nlong$") as caught:
        pairwise(start('say({"error": "too\\nlong"})'), ["one", "two"], ["three"])
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('say("loading...")', r"printed 'loading\.\.\.', which is not JSON\. Only answers may go to standard output"),
        ('say("[" * 100000)', "which is not JSON"),
        ("say([1])", "printed a list; expected a JSON object"),
        ('say({"scores": []})', "answered with 'scores'; expected 'utilities' or 'error'"),
        ("sys.exit('no memory left')", r"ended \(exit status 1\); it last said: no memory left"),
        ("os.kill(os.getpid(), 9)", r"ended \(signal SIGKILL\)"),
        ("os.close(1); time.sleep(60)", "closed its output"),
    ],
)
def test_a_program_that_cannot_be_trusted_any_more_ends_the_run(start: Start, body: str, line: str) -> None:
    utility = start(body)
    process = utility._process._process.pid
    with pytest.raises(UsageError, match=line) as caught:
        pairwise(utility, ["one"], ["two"])
    assert "\n" not in str(caught.value) and ended_soon(process)
    with pytest.raises(UsageError, match=line):  # at once, not after the time limit
        pairwise(utility, ["one"], ["two"])


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.sampled_from(["utilities", "error"]), inside),
)


@settings(max_examples=examples(90), deadline=None)
@given(answers=st.lists(HOSTILE.map(json.dumps) | st.text(max_size=20), min_size=1, max_size=5))
def test_whatever_it_answers_is_a_finite_matrix_or_one_clear_line(answers: list[str]) -> None:
    """The program prints the first hypothesis, whatever that is; an error that is final ends it."""
    echo = LOOP.replace("{traits}", "{}").replace("{body}", "say(h[0].replace(chr(10), ' '))")
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        print(echo, file=file, flush=True)
        utility = sgdec.load_utility("command", command=f"'{sys.executable}' '{file.name}'", seconds=20)
    assert isinstance(utility, Program)
    for answer in answers:
        try:
            assert np.isfinite(pairwise(utility, [answer], ["a"])).all()
        except UsageError as error:
            assert "\n" not in str(error)
            break
        except SgdecError as error:
            assert "\n" not in str(error)
    utility.close()


@pytest.mark.parametrize("text", ["short", "longer than a pipe" * 100_000])
def test_silence_has_a_limit_also_while_nothing_is_read(start: Start, text: str) -> None:
    utility = start("time.sleep(60)", seconds=0.2)
    with pytest.raises(UsageError, match=r"said nothing for 0\.2 seconds\."):
        pairwise(utility, [text], ["a"])
    assert ended_soon(utility._process._process.pid)


def test_a_line_that_nobody_asked_for_is_not_the_next_answer(start: Start) -> None:
    utility = start(f"{LENGTHS}\n{LENGTHS}")
    assert pairwise(utility, ["a"], ["b"]).tolist() == [[0]]
    time.sleep(0.3)
    with pytest.raises(UsageError, match="printed a line that nobody had asked for"):
        pairwise(utility, ["a"], ["bcd"])


def test_no_program_outlives_its_utility(start: Start) -> None:
    utility = start()
    process = utility._process._process.pid
    del utility
    gc.collect()
    assert ended_soon(process)


@pytest.mark.skipif(os.name != "posix", reason="Windows ends the program alone")
def test_a_program_is_ended_with_what_it_has_started(start: Start) -> None:
    child = "import time; time.sleep(60)"
    utility = start(
        f"import subprocess\npid = subprocess.Popen([sys.executable, '-c', '{child}']).pid\n"
        "say({'utilities': [[pid]]})\ntime.sleep(60)"
    )
    started = int(pairwise(utility, ["a"], ["b"])[0, 0])
    utility.close()
    assert ended_soon(utility._process._process.pid) and ended_soon(started)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("no-such-program --flag", "no-such-program --flag': 'no-such-program' could not be started: No"),
        ("", "the command is empty"),
        ("'open", "is not a command line: No closing quotation"),
        ("'{python}' -c 'print(1)'", "printed an int; expected a JSON object"),
        ("'{python}' -c pass", r"ended \(exit status 0\)"),
        ("'{python}' -c 'import comet_of_nobody'", "it last said: .*No module named 'comet_of_nobody'"),
        ("'{python}' -c 'print(chr(123), chr(34), chr(125))'", "which is not JSON"),
        ("'{python}' -c 'import json; print(json.dumps(dict(symmetry=True)))'", "trait 'symmetry' = a bool first"),
        ("'{python}' -c 'import json; print(json.dumps(dict(symmetric=1)))'", "the trait 'symmetric' = an int first"),
        ("'{python}' -c 'import time; time.sleep(60)'", r"said nothing for 0.3 seconds"),
    ],
)
def test_a_program_that_does_not_start_is_one_line(command: str, line: str) -> None:
    seconds = 0.3 if "sleep" in command else 20
    with pytest.raises(UsageError, match=line) as caught:
        sgdec.load_utility("command", command=command.replace("{python}", sys.executable), seconds=seconds)
    assert "\n" not in str(caught.value)


def test_a_config_file_cannot_name_a_program() -> None:
    check(Program, {"seconds": 3}, name="command")
    with pytest.raises(UsageError, match=r"--command\.command starts a program, which a config file must not"):
        check(Program, {"command": "true"}, name="command")


def test_the_end_of_its_input_lets_it_end_by_itself(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgdec.utilities.process.GRACE_SECONDS", 20.0)  # it ends much sooner
    utility = start(f"{LENGTHS}\nimport atexit\natexit.register(open, {str(tmp_path / 'ended')!r}, 'w')")
    pairwise(utility, ["a"], ["b"])
    utility.close()
    assert (tmp_path / "ended").exists()

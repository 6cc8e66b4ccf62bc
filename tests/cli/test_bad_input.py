"""The promise for bad input: one clear line that names it and says what to do, the right exit status, nothing lost.

Status 2 is a wrong call, 1 a failed run, 130 an interrupt. What one sentence suffers costs that sentence: an empty
line, a warning with its number, status 1 at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from sgdec.checkpoints.files import load_tensors, save_tensors
from sgdec.cli.main import main
from tests.helpers.background import heed_interrupts
from tests.helpers.lattice_files import write_automaton
from tests.helpers.tiny_models import write_checkpoint, write_lattice

LINES = "ab\nc a\nbc ab\n"


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The only line of a run that did not come to decode."""
        assert self.err.startswith("Error: ") and self.err.count("\n") == 1 and self.err.endswith(".\n"), self.err
        return self.err.removeprefix("Error: ").strip()

    @property
    def warnings(self) -> dict[int, str]:
        """By sentence; beside them there are only notes on the search and the last lines."""
        lines = [line for line in self.err.splitlines() if not line.startswith(("Note: ", "products: "))]
        assert lines[-1].startswith("signature: ") and lines[-2].split()[1].startswith("sentences"), self.err
        found = [line.removeprefix("Warning: sentence ").split(": ", 1) for line in lines[:-2]]
        assert all(line.startswith("Warning: sentence ") for line in lines[:-2]), self.err
        assert len(dict(found)) == len(found), self.err
        return {int(number): what for number, what in found}


Decode = Callable[..., Ran]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``good``, and ``other`` with another vocabulary."""
    folder = tmp_path_factory.mktemp("models")
    write_checkpoint(folder / "good")
    write_checkpoint(folder / "other", source="abc", target="xyzv")
    return folder


@pytest.fixture
def decode(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Decode:
    """Runs ``sgdec decode`` in a folder with three sentences, in.txt, and the two models."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text(LINES)
    for name in ("good", "other"):
        (tmp_path / name).symlink_to(models / name)

    def run(*args: str) -> Ran:
        return Ran(main(["decode", "--max-length", "3", *args]), *capsys.readouterr())

    return run


NMT = ["--predictors", "nmt", "--nmt.model", "good"]
IDS = ["--predictors", "wc", "--vocab-size", "7", "--input-format", "ids"]
NMT_FST = [*NMT, "--predictors", "nmt,fst", "--fst.path", "{id}.fst"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--predictors", "nnt"], "no predictor named 'nnt'. Did you mean 'nmt'? Available: "),
        ([*NMT, "--decoder", "baem"], "no decoder named 'baem'. Did you mean 'beam'? Available: "),
        ([*NMT, "--beam.size", "wide"], "--beam.size: 'wide' should be an integer"),
        ([*NMT, "--beam.size", "0"], "--beam.size: '0' should be at least 1"),
        ([*NMT, "--beam.sise", "4"], "no option --beam.sise. Did you mean '--beam.size'?"),
        ([*NMT, "--bean.size", "4"], "options for 'bean', which this run does not use. Did you mean 'beam'?"),
        (["--predictors", "nmt"], "--nmt.model is missing. Give --nmt.model VALUE (text: checkpoint folder"),
        ([*NMT, "--nmt.weight", "heavy"], "--nmt.weight heavy: expected a number, such as 0.5"),
        ([*NMT, "--nmt.weight", "1_0"], "--nmt.weight 1_0: expected a number, such as 0.5"),
        ([*NMT, "--nmt.weight", "inf"], "--nmt.weight inf: expected a number, such as 0.5"),
        ([*NMT, "--nbset", "4"], "No such option"),
        ([*NMT, "--precision", "fp8"], "--precision: 'fp8' should be 'fp32', 'bf16', 'fp64' or 'int8'"),
        ([*NMT, "--device", "gpu"], "--device gpu: expected cpu, cuda or cuda:N."),
        ([*NMT, "--range", "3:1"], "--range 3:1: expected A:B with 1 <= A <= B"),
        (["--predictors", "wc"], "no predictor brings a source vocabulary, so text cannot be read; give --tokenizer"),
        ([*NMT, "--vocab-size", "9"], "--vocab-size 9, but the target vocabulary has 7 tokens; leave it out"),
        ([*NMT, "--predictors", "nmt,b=nmt", "--b.model", "other"], "different target vocabularies (7 and 8 tokens)"),
        ([*IDS, "--beam.beta", "0.2"], "a coverage penalty (beta = 0.2) needs a predictor with attention"),
        ([*NMT, "none.txt"], "input none.txt: No such file or directory"),
        ([*NMT, "good"], "input good: Is a directory; expected a text file, one sentence per line"),
        (
            [*NMT, "--output", "none/out.txt"],
            "--output none/out.txt: No such file or directory; expected a file in a",
        ),
        ([*NMT, "--output", "good"], "--output good is what --nmt.model reads. Write to another file."),
        ([*NMT, "--output", "other"], "--output other: Is a directory"),
        ([*NMT, "--output-format", "fst", "--output", "out"], "give --output a pattern such as 'out/{id}.fst'"),
        ([*NMT, "--output", "in.txt"], "--output in.txt is the input. Write to another file."),
    ],
)
def test_a_wrong_call_is_one_line_status_2_and_leaves_an_older_output_alone(
    decode: Decode, tmp_path: Path, args: list[str], message: str
) -> None:
    (tmp_path / "out.txt").write_text("precious\n")
    given = [*args] if "--output" in args else [*args, "--output", "out.txt"]
    ran = decode(*given, *([] if args[-1] in ("none.txt", "good") and "--output" not in args else ["in.txt"]))
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.error
    assert (tmp_path / "out.txt").read_text() == "precious\n"
    assert (tmp_path / "in.txt").read_text() == LINES


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="this machine has a CUDA device")
def test_a_device_that_is_not_there_is_one_line(decode: Decode) -> None:
    ran = decode(*NMT, "--device", "cuda", "in.txt")
    assert (ran.status, ran.error) == (2, "--device cuda: PyTorch sees no CUDA devices here. Use --device cpu.")


def test_a_run_time_wrong_call_is_said_once(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "in.ids").write_text("3\n4\n")
    ran = decode("--predictors", "wc", "--input-format", "ids", "in.ids")
    assert ran.status == 2 and "give --vocab-size, or add a model or a lattice" in ran.error


# Checkpoints.


def copy_of_good(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tmp_path / "good", tmp_path / "bad"))


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ("model.safetensors", "/model.safetensors: no such file. The checkpoint is incomplete; copy the whole"),
        ("config.json", ": this is not a checkpoint, config.json is missing. Expected a folder that `sgdec train`"),
        ("tokenizer.spm", ": the tokenizer is missing: neither tokenizer.spm nor source.spm and target.spm"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_lacks_a_file_names_it(decode: Decode, tmp_path: Path, lacks: str, message: str) -> None:
    (copy_of_good(tmp_path) / lacks).unlink()
    ran = decode("--predictors", "nmt", "--nmt.model", "bad", "in.txt")
    assert (ran.status, ran.out) == (1, "")
    assert ran.error.startswith(f"bad{message}")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model.safetensors", "bad/model.safetensors: the tensor file is damaged ("),
        ("config.json", "bad/config.json: this is not JSON ("),
        ("tokenizer.spm", "bad/tokenizer.spm: this is not a SentencePiece model."),
    ],
)
@pytest.mark.parametrize("damage", ["cut short", "overwritten"])
def test_a_damaged_file_of_a_checkpoint_is_named(
    decode: Decode, tmp_path: Path, file: str, message: str, damage: str
) -> None:
    path = copy_of_good(tmp_path) / file
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "cut short" else b"\xff" * len(data))
    ran = decode("--predictors", "nmt", "--nmt.model", "bad", "in.txt")
    assert (ran.status, ran.out) == (1, "")
    assert ran.error.startswith(message)


def test_a_folder_that_is_not_there_is_named(decode: Decode) -> None:
    ran = decode("--predictors", "nmt", "--nmt.model", "none", "in.txt")
    assert ran.status == 1
    assert ran.error == "none: no such folder. Expected a checkpoint, as `sgdec train` writes it."


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(decode: Decode, tmp_path: Path, value: float) -> None:
    weights = copy_of_good(tmp_path) / "model.safetensors"
    tensors = load_tensors(weights)
    tensors["softmax.weight"] = tensors["softmax.weight"].index_fill(1, torch.tensor([2]), value)
    save_tensors(weights, tensors)
    ran = decode("--predictors", "nmt", "--nmt.model", "bad", "in.txt")
    assert ran.status == 1
    assert ran.error == (
        "bad/model.safetensors: tensor softmax.weight holds NaN or infinite weights. Take an earlier checkpoint."
    )


def test_weights_of_another_model_are_refused(decode: Decode, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "other" / "model.safetensors", copy_of_good(tmp_path) / "model.safetensors")
    ran = decode("--predictors", "nmt", "--nmt.model", "bad", "in.txt")
    assert ran.status == 1
    assert "bad/model.safetensors: tensor " in ran.error and "expected 7" in ran.error


def test_nan_while_decoding_costs_its_sentence(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import numpy as np\nimport sgdec\n"
        "class Broken(sgdec.Predictor):\n"
        "    def initialize(self, source):\n"
        "        self.bad = source.id == 2\n"
        "    def predict_next(self, candidates=None):\n"
        "        return sgdec.Scores.dense(np.array([-1.0, -1, -1, np.nan if self.bad else -1, -1, -1, -1]))\n"
        "@sgdec.hookimpl\ndef sgdec_predictors():\n    return {'broken': Broken}\n"
    )
    ran = decode(*NMT, "--predictors", "nmt,broken", "--plugin-file", "broken.py", "in.txt")
    assert ran.status == 1 and ran.out.count("\n") == 3 and ran.out.splitlines()[1] == ""
    assert ran.warnings == {
        2: "predictor 'broken' gave NaN as the score of token 3; its model is broken (NaN weights?)."
    }


# Lattices.


@pytest.fixture
def lattices(tmp_path: Path) -> None:
    """For three sentences, over the letters a, b, c = tokens 4, 5, 6."""
    for sentence in (1, 2, 3):
        write_lattice(tmp_path / f"{sentence}.fst", [((3, 4), 0.5), ((3, 5), 0.25)])


def spoil_missing(path: Path) -> None:
    path.unlink()


def spoil_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def spoil_not_deterministic(path: Path) -> None:
    arcs = [(0, 3, 0.0, 1), (0, 3, 0.0, 2), (1, 4, 0.0, 3), (2, 5, 0.0, 3), (3, 2, 0.0, 4)]
    write_automaton(path, arcs, {4: 0.0})


def spoil_epsilon(path: Path) -> None:
    write_automaton(path, [(0, 0, 0.0, 1), (1, 3, 0.0, 2), (2, 5, 0.0, 3), (3, 2, 0.0, 4)], {4: 0.0})


def spoil_labels(path: Path) -> None:
    write_lattice(path, [((3, 4), 0.5), ((3, 99), 0.25)])


def spoil_empty(path: Path) -> None:
    write_automaton(path, [], {})


@pytest.mark.slow
@pytest.mark.usefixtures("lattices")
@pytest.mark.parametrize(
    ("spoil", "message", "way_out"),
    [
        (spoil_missing, "no such file", "Expected one lattice for each input line (--fst.path)."),
        (spoil_cut, "cut short, or not an OpenFst file", "Write it again"),
        (spoil_not_deterministic, "not deterministic: state", "Use nfst, which follows both, or pynini.determinize"),
        (spoil_epsilon, "has an epsilon arc", "Use nfst"),
        (spoil_labels, "label 99, but there are 7 target tokens", "Lattices and models must share one vocabulary."),
        (spoil_empty, "is empty: no path leads to a final state", "Check how it was made."),
    ],
)
def test_a_bad_lattice_costs_its_sentence_and_is_named_with_the_way_out(
    decode: Decode, tmp_path: Path, spoil: Callable[[Path], None], message: str, way_out: str
) -> None:
    good = decode(*NMT_FST, "in.txt")
    assert (good.status, good.warnings) == (0, {})
    spoil(tmp_path / "2.fst")
    ran = decode(*NMT_FST, "in.txt")
    assert ran.status == 1
    first, _, third = good.out.splitlines()
    assert ran.out.splitlines() == [first, "", third]
    assert list(ran.warnings) == [2]
    assert ran.warnings[2].startswith("fst: 2.fst: ") and "(sentence 2)" in ran.warnings[2]
    assert message in ran.warnings[2] and way_out in ran.warnings[2]


@pytest.mark.usefixtures("lattices")
def test_a_bad_lattice_for_all_sentences_fails_the_run_before_it_begins(decode: Decode, tmp_path: Path) -> None:
    spoil_cut(tmp_path / "1.fst")
    ran = decode(*NMT, "--predictors", "nmt,fst", "--fst.path", "1.fst", "in.txt")
    assert ran.status == 1 and ran.error.startswith("fst: 1.fst: cut short, or not an OpenFst file. Write it again")


@pytest.mark.usefixtures("lattices")
def test_what_no_path_satisfies_is_said(decode: Decode) -> None:
    ran = decode(*NMT_FST, "--max-length", "1", "in.txt")
    assert (ran.status, ran.out) == (1, "\n\n\n")
    path = "no path of at most 1 token (--max-length N allows more)"
    why = f"no hypothesis: the search found {path} that satisfies all predictors."
    died = "After the longest prefix, '▁', which has the full length: fst forbids </s>."
    assert ran.warnings == dict.fromkeys((1, 2, 3), f"{why} {died}")


# Sentences.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "in.txt, line 2: empty; there is nothing to decode."),
        (b"a \xc3\x28 b", "in.txt, line 2: not UTF-8 (byte 3); convert the file, for example with iconv."),
        (
            b"a" * 9_999,
            "in.txt, line 2: 10000 tokens, more than --max-source-length 1000; split it, or raise the limit.",
        ),
    ],
)  # fmt: skip
def test_a_bad_line_costs_its_sentence(decode: Decode, tmp_path: Path, line: bytes, message: str) -> None:
    good = decode(*NMT, "in.txt").out.splitlines()
    (tmp_path / "in.txt").write_bytes(b"\n".join([b"ab", line, b"bc ab", b""]))
    ran = decode(*NMT, "in.txt")
    assert (ran.status, ran.warnings) == (1, {2: message})
    assert ran.out.splitlines() == [good[0], "", good[2]]


@pytest.mark.slow
def test_a_line_of_ten_thousand_tokens_is_decoded_if_asked(decode: Decode, tmp_path: Path) -> None:
    short = [*NMT, "--max-length", "50"]
    good = decode(*short, "in.txt").out.splitlines()
    (tmp_path / "in.txt").write_text("ab\n" + "a" * 9_999 + "\nbc ab\n")
    ran = decode(*short, "--max-source-length", "0", "in.txt")
    assert (ran.status, ran.warnings) == (0, {})
    first, _, third = ran.out.splitlines()
    assert (first, third) == (good[0], good[2])


@pytest.mark.slow
def test_an_output_of_two_thousand_tokens_is_no_deep_recursion(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "in.ids").write_text("3 3\n")
    longest = ["--max-length", "2000", "--wc.weight", "-1", "--decoder", "greedy"]
    ran = decode(*IDS, *longest, "--output-format", "nbest", "in.ids")
    assert ran.status == 0
    assert ran.out.endswith("||| wc= -2000.000000 ||| 2000.000000\n")


def test_an_input_that_breaks_off_is_decoded_up_to_there(decode: Decode, tmp_path: Path) -> None:
    import gzip

    data = gzip.compress(b"".join(b"%d\n" % (3 + n * n % 4) for n in range(900)))
    (tmp_path / "in.gz").write_bytes(data[:-12])
    ran = decode(*IDS, "--decoder", "greedy", "in.gz")
    assert ran.status == 1
    ((number, message),) = ran.warnings.items()
    assert ran.out.count("\n") == number > 1
    assert message.startswith(f"in.gz, line {number}: the file cannot be read from here on (")


# The world outside. These run as real processes: signals and pipes are theirs.


def start(*args: str, cwd: Path, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sgdec.cli", "decode", *args]
    return subprocess.Popen(
        command, cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )


needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")


@needs_full
def test_a_full_disk_names_the_output(decode: Decode) -> None:
    ran = decode(*NMT, "--output", "/dev/full", "in.txt")
    assert (ran.status, ran.out) == (1, "")
    assert ran.error == ("--output /dev/full: No space left on device.")


@pytest.mark.slow
@needs_full
@pytest.mark.background
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "in.ids").write_text("3\n" * 3)
    with open("/dev/full", "w") as full, start(*IDS, "in.ids", cwd=tmp_path, stdout=full.fileno()) as process:
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (1, "Error: could not continue writing: No space left on device.\n")


def test_a_lattice_that_cannot_be_written_is_named(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file, not a folder")
    ran = decode(*NMT, "--output-format", "fst", "--output", "out/{id}.fst", "in.txt")
    assert ran.status == 2 and ran.error.startswith("--output out/{id}.fst: File exists; expected a file in a folder")


@pytest.mark.slow
@pytest.mark.background
def test_a_reader_that_went_away_ends_the_run_quietly(tmp_path: Path) -> None:
    (tmp_path / "in.ids").write_text("3\n" * 5000)
    with start(*IDS, "--wc.weight", "-1", "--decoder", "greedy", "in.ids", cwd=tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "0 0\n"
        process.stdout.close()
        err = process.stderr.read()
        assert (process.wait(timeout=120), err) == (1, "")


SLOW = """
import time
import sgdec
from sgdec_decoders.greedy import GreedyDecoder

class Slow(GreedyDecoder):
    def decode(self, space):
        if space.source.id == 4:
            print("slow", flush=True)
            for _ in range(3000):
                space.expand([space.root], limit=1)
                time.sleep(0.02)
        return super().decode(space)

@sgdec.hookimpl
def sgdec_decoders():
    return {"slow": Slow}
"""


@pytest.mark.slow
@pytest.mark.background
def test_after_ctrl_c_finished_sentences_stay_written(tmp_path: Path) -> None:
    (tmp_path / "in.ids").write_text("3\n" * 9)
    (tmp_path / "slow.py").write_text(SLOW)
    slow = ["--plugin-file", "slow.py", "--decoder", "slow", "--batch-size", "2", "--wc.weight", "-1"]
    with start(*IDS, *slow, "--output", "out.ids", "in.ids", cwd=tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "slow\n"
        while (tmp_path / "out.ids.partial").read_text().count("\n") != 3:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        assert process.wait(timeout=120) == 130
    assert "Traceback" not in err
    assert "Sentences up to 3 are in " in err and "out.ids.partial; continue with --resume." in err
    assert (tmp_path / "out.ids.partial").read_text() == "0 0\n" * 3

"""A rank that dies ends a parallel run with a clear line and a usable checkpoint; torchrun can take it up by itself.

These are real processes of torchrun, one of which kills itself (SIGKILL) in the middle of the training.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sgdec.checkpoints.files import load_tensors
from sgdec.cli.main import main
from sgdec.errors import UsageError
from sgdec.models.gnmt import GNMT
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.training.config import TrainConfig
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.launch import joined
from sgdec.training.preparing import prepare
from tests.helpers.ranks import forking, on_ranks
from tests.helpers.training_case import make_config

pytestmark = [pytest.mark.slow, pytest.mark.background]

FRAGILE = """
import os, signal
import sgdec
from sgdec.models.gnmt import GNMT

class Fragile(GNMT):
    "A GNMT whose rank 1 dies in the tenth of 12 updates, the first time."

    def anneal(self, update, last):
        super().anneal(update, last)
        here = os.environ.get("RANK"), os.environ.get("TORCHELASTIC_RESTART_COUNT")
        if here == ("1", "0") and update > 8:
            os.kill(os.getpid(), signal.SIGKILL)

@sgdec.hookimpl
def sgdec_models():
    return {"fragile": Fragile}
"""


def torchrun(config: TrainConfig, restarts: int = 0) -> tuple[int, str]:
    """``torchrun ... sgdec train`` on 2 ranks, with the model that dies: exit status, and what it says."""
    plugin = Path(config.output).parent / "fragile.py"
    plugin.write_text(FRAGILE)
    launcher = ["--standalone", "--nproc-per-node", "2"]
    texts = ["--train", *config.train, "--valid", *config.valid, "--tokenizer", *config.tokenizer]
    options = {
        "output": config.output, "plugin-file": plugin, "model": "fragile", "fragile.width": 16,
        "fragile.dropout": 0.1, "batch-tokens": config.batch_tokens, "max-steps": config.max_steps,
        "save-every": config.save_every, "bleu": 0, "threads": 1, "precision": config.precision,
        "parallel": config.parallel,
    }  # fmt: skip
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    words = [*launcher, "--max-restarts", str(restarts), "-m", "sgdec.cli", "train", *texts, *given]
    said = plugin.with_name("said")
    context = forking()
    process = context.Process(target=launch, args=(words, {**os.environ, "OMP_NUM_THREADS": "1"}, said))
    process.start()
    process.join(600)
    status = process.exitcode
    process.kill()
    assert status is not None, f"torchrun does not end: {said.read_text()}"
    return status, said.read_text()


def launch(words: list[str], environment: dict[str, str], said: Path) -> None:
    """``torchrun`` in a process that need not import torch first; it forks its ranks, which need not either."""
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler
    from torch.distributed.run import main as torchrun

    SubprocessHandler._popen = lambda _, words, environment: Forked(list(words), environment)
    torchrun(words)


class Forked:
    """What torchrun asks of `subprocess.Popen`: a rank in a session of its own."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        """``words``: of a command ``python -u -m sgdec.cli ...``."""
        assert words[1:4] == ["-u", "-m", "sgdec.cli"]
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
                os.environ.clear()
                os.environ.update(environment)
                status = main(words[4:])
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)

    def poll(self) -> int | None:
        if self.returncode is None:
            process, status = os.waitpid(self.pid, os.WNOHANG)
            if process:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        limit = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired("a rank", timeout)
            time.sleep(0.05)
        assert self.returncode is not None
        return self.returncode


def settings(folder: Path, output: str, **given: Any) -> TrainConfig:
    return make_config(folder, output, parallel="data", save_every=4, bleu=0, validate_every=20, **given)


def train_on_ranks(group: ProcessGroup, config: TrainConfig) -> None:
    """The same without torchrun, and without a fault."""
    prepare(config, quiet=True, group=group).run()


def describe_defaults() -> dict[str, Any]:
    """As the command line stores the options of a GNMT."""
    return {option.name: option.default for option in describe(GNMT) if not option.required}


def test_a_killed_rank_is_started_again_and_the_run_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Bit for bit; the run goes on after step 8, its last checkpoint."""
    status, said = torchrun(settings(tmp_path, "killed"), restarts=1)
    assert status == 0, said
    errors = [line for line in said.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1 and "another process of this run has died" in errors[0]
    assert f"continue after {tmp_path}/killed/step-8 with --resume" in errors[0]
    assert "Traceback" not in said
    assert said.count("resumed after step 8") == 1
    assert said.count("the best model, after 12 steps") == 1, "only rank 0 talks"

    on_ranks(2, train_on_ranks, settings(tmp_path, "whole"))
    for file in ("model.safetensors", "optimizer.safetensors"):
        killed, whole = (load_tensors(tmp_path / name / "last" / file) for name in ("killed", "whole"))
        assert killed.keys() == whole.keys()
        assert all(torch.equal(killed[name], whole[name]) for name in whole)


@pytest.mark.slow
def test_without_restarts_the_job_ends_and_one_process_can_go_on(tmp_path: Path) -> None:
    config = settings(tmp_path, "killed")
    status, said = torchrun(config)
    assert status != 0
    errors = [line for line in said.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1 and "torchrun --max-restarts 1 restarts it automatically" in errors[0]
    options = {**describe_defaults(), "width": 16, "dropout": 0.1}
    alone = replace(config, parallel="none", model="fragile", options=options)
    trainer = prepare(alone, resume=True, host=Host((str(tmp_path / "fragile.py"),)), quiet=True)
    assert trainer.progress.step == 8
    assert trainer.run().steps == 12


def refusal(config: TrainConfig) -> str:
    """Why a run cannot begin."""
    with pytest.raises(UsageError) as error, joined(config):
        pass
    return str(error.value)


def test_parallel_training_that_torchrun_did_not_start_is_refused(tmp_path: Path) -> None:
    said = "--parallel data: start the processes with torchrun: torchrun --standalone --nproc-per-node 4 -m sgdec"
    assert refusal(settings(tmp_path, "run")).startswith(said)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun starts rank 0 of 4."""
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
    for name, value in {**environment, "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("started")
def test_torchrun_without_parallel_is_refused(tmp_path: Path) -> None:
    assert refusal(make_config(tmp_path)).startswith("--parallel none: torchrun started 4 processes")


@pytest.mark.usefixtures("started")
def test_more_ranks_than_gpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    said = (
        "--device cuda: 4 processes, but this machine has 2 GPUs. Give torchrun --nproc-per-node 2, or --device cpu."
    )
    assert refusal(settings(tmp_path, "run", device="cuda")) == said
    said = "--device cuda:1: each process of --parallel uses its own GPU. Give --device cuda."
    assert refusal(settings(tmp_path, "run", device="cuda:1")) == said


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(("rank", "told"), [("0", 1), ("3", 0)])
def test_what_every_rank_would_say_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], rank: str, told: int
) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    config = make_config(tmp_path)
    words = ["--train", *config.train, "--valid", *config.valid, "--tokenizer", *config.tokenizer, "--model", "gnm"]
    try:
        status: Any = main(["train", *words, "--output", config.output])
    except SystemExit as end:
        status = end.code
    assert status == UsageError.exit_status
    assert capfd.readouterr().err.count("Error: no model named 'gnm'.") == told

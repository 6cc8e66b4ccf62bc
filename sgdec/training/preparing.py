"""From settings to a trainer. Everything is checked as early as possible, before anything large is read or allocated.

The weights of a new run are a function of its seed; a resumed run has those of its last checkpoint.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import torch

from sgdec.checkpoints import loading
from sgdec.plugins.host import Host
from sgdec.threads import THREADS
from sgdec.training.compiling import compile_model
from sgdec.training.config import TrainConfig
from sgdec.training.data.noise import SourceNoise
from sgdec.training.data.workspace import for_memory, make_budget
from sgdec.training.device import choose_precision
from sgdec.training.log import LOG, QUIET
from sgdec.training.out_of_memory import Splitter, told
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.launch import joined, restarted
from sgdec.training.parallel.strategy import Strategy
from sgdec.training.parallel.volume import Volume
from sgdec.training.run import pretrained, resuming, starting
from sgdec.training.run.alone import alone
from sgdec.training.run.inputs import describe_model, read_inputs, read_vocabularies
from sgdec.training.run.progress import PROGRESS, TrainingProgress
from sgdec.training.run.report import Silence, TrainingReport
from sgdec.training.trainer import Trained, Trainer
from sgdec.training.updating import Updater


def train(config: TrainConfig, *, resume: bool = False, host: Host | None = None, quiet: bool = False) -> Trained:
    """Train a model with the settings ``config``, or resume the run in its folder.

    Raises `UsageError` for settings that cannot work, `SgdecError` for unusable data or files. In a run of several
    processes (``config.parallel``), raises `SystemExit` in the processes that let another rank report the error.
    """
    folder = Path(config.output)
    with joined(config) as group, alone(folder) if group.first else contextlib.nullcontext():
        with told(folder, lambda: "at the start"):
            trainer = prepare(config, resume=resume or restarted(config), host=host, quiet=quiet, group=group)
        return trainer.run()


def prepare(
    config: TrainConfig,
    *,
    resume: bool = False,
    host: Host | None = None,
    quiet: bool = False,
    group: ProcessGroup | None = None,
) -> Trainer:
    """A trainer at the start of a new run, or at the last checkpoint of a resumed one. Raises errors as `train`."""
    folder, group, host = Path(config.output), group or ProcessGroup(), host or Host()
    earlier = resuming.earlier_config(folder, resume)
    THREADS.choose(resuming.threads(config, earlier), fixed=True)
    precision = choose_precision(config.device, resuming.precision(config, earlier))
    family = host.load("model", config.model)
    source, target = read_vocabularies(config, family, earlier)
    model_config = describe_model(config, family, source, target)
    torch.manual_seed(config.seed)
    model = loading.build_model(model_config, where="sgdec train", host=host)  # checks options before text is read
    log = QUIET if quiet or not group.first else LOG
    inputs = read_inputs(config, source, target, model_config, earlier, log)

    model.to(config.device, torch.float64 if precision == "fp64" else torch.float32)
    if config.compile:
        compile_model(model, config)
    if config.unigram_bias:
        model.bias_output(inputs.train.log_frequencies(inputs.target.size))
    if config.start and not resume:
        starting.start_from(config.start, model, inputs.model_config, inputs.vocabularies)
    started = [] if resume else list(pretrained.start(config, model, inputs.vocabularies, host))

    def trial() -> Strategy:
        return Updater(config, model, precision, total_steps=1).strategy

    budget = make_budget(config, inputs.train, trial, earlier, log, group)
    batches = len(inputs.train.batches(budget, order=(config.seed, 0)))
    steps_per_epoch = math.ceil(batches / config.accumulate)
    total_steps = config.max_steps or math.ceil(config.epochs * steps_per_epoch)
    progress = TrainingProgress.read(folder / "last" / PROGRESS) if resume else TrainingProgress()
    updater = Updater(config, model, precision, total_steps=total_steps, step=progress.step, group=group)
    if resume:
        progress.require_fit(
            folder / "last" / PROGRESS,
            step=earlier.get("step", progress.step),
            batches=batches,
            examples=len(inputs.train),
        )
        updater.restore(folder / "last", progress.step)
    report = TrainingReport(folder, step=progress.step) if group.first else Silence()
    ceiling = progress.ceiling or math.inf
    updater.splitter = Splitter(for_memory(budget), ceiling, progress.unfit, log, progress.skipped)
    return Trainer(
        config,
        inputs,
        updater,
        budget,
        steps_per_epoch,
        progress,
        report,
        noise=SourceNoise(config.source_noise, config.source_noise_kind, config.seed),
        volume=Volume(updater.strategy),
        started=started,
        scores=resuming.scores(earlier),
        log=log,
    )

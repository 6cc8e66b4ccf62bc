"""Training by maximum likelihood (GNMT, Wu et al. 2016, equation 7 and section 8.3), step by step and resumable.

Refinement by expected reward (equation 9) is the same loop with another loss, starting from the weights of another
run.

Everything random is a function of the seed: the initial weights of the seed, the order of epoch e of (seed, e), and
the dropout of step s of (seed, s). So a killed run that is resumed at its last checkpoint repeats the lost steps with
the same numbers, and continues as if it had never stopped. `updating.py` defines a step.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from logging import Logger
from pathlib import Path
from types import MappingProxyType

import torch

from sgdec.checkpoints import files, layout
from sgdec.errors import SgdecError
from sgdec.models.base import Model, Seq2Seq
from sgdec.terminal import Bar
from sgdec.threads import THREADS
from sgdec.training import validation
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.data.budget import BatchBudget
from sgdec.training.data.noise import SourceNoise
from sgdec.training.data.text import ParallelText, Text
from sgdec.training.data.workspace import WORKSPACE, Workspace, for_scoring
from sgdec.training.log import LOG
from sgdec.training.optimisation import learning_rate
from sgdec.training.out_of_memory import told
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.volume import Volume
from sgdec.training.run import resuming
from sgdec.training.run.inputs import Inputs
from sgdec.training.run.progress import PROGRESS, TrainingProgress
from sgdec.training.run.report import METRICS, TrainingReport, duration
from sgdec.training.updating import Updater

LOG_EVERY = 50
"""Number of steps between rows of the log."""


@dataclass(frozen=True)
class Trained:
    """The result of a run."""

    best: Path
    """The folder of the best checkpoint."""
    steps: int
    scores: Mapping[str, float]
    """Scores of the last validation: perplexity; for translation models also bleu and gleu if asked for."""


@dataclass
class Trainer:
    """One run; `sgdec.training.preparing.prepare` makes its parts from the settings.

    `run` trains to the end. A caller who wants to follow the training iterates over `steps`, which yields the losses.
    In a parallel run each rank of a `ProcessGroup` has a trainer. All do the same, except that only rank 0
    validates, writes and reports.
    """

    config: TrainConfig
    inputs: Inputs
    updater: Updater
    budget: BatchBudget
    """The limit on the cost of a batch."""
    steps_per_epoch: int
    progress: TrainingProgress
    report: TrainingReport
    noise: SourceNoise
    volume: Volume
    started: Sequence[str] = ()
    """One line for the log per source of pretrained weights."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The scores of the last validation."""
    log: Logger = LOG

    @property
    def model(self) -> Model:
        return self.updater.model

    @property
    def data(self) -> Text:
        return self.inputs.train

    @property
    def total_steps(self) -> int:
        return self.updater.total_steps

    @property
    def folder(self) -> Path:
        return Path(self.config.output)

    @property
    def group(self) -> ProcessGroup:
        return self.updater.strategy.group

    def run(self) -> Trained:
        """Train until the last step or until patience ends; saves the best and the last model in the folder."""
        self._introduce()
        try:
            with told(self.folder, lambda: f"step {self.progress.step}"), self._bar() as bar:
                for _ in self.steps():
                    if bar.live:
                        bar.note(self._speed())
                        bar.advance()
        except KeyboardInterrupt:
            self.log.info(f"interrupted at step {self.progress.step}; {resuming.last_good(self.folder)}")
            if (self.folder / "last").exists():
                self.log.info("--resume continues from there")
            self.report.close()
            raise
        except BaseException:
            with contextlib.suppress(Exception):  # may fail, too, as on a full disk; the first error is reported
                self.report.close()
            raise
        for line in self.volume.lines():
            self.log.info(line)
        if (waited := THREADS.summary()) is not None:
            self.log.info(f"threads: {waited}")
        if not self.progress.settled:
            self.log.warning(
                f"no checkpoint is final: {self.model.unsettled}. Give --resume and more --epochs or --max-steps"
            )
        self.report.close()
        return Trained((self.folder / "best").resolve(), self.progress.step, self.scores)

    def steps(self) -> Iterator[float]:
        """Make all updates, with logs, validations and checkpoints; yields each loss, as from `Updater.update`."""
        config, p = self.config, self.progress
        if config.start and p.best == -math.inf:
            self._validate()  # the score that training must improve on
        while p.step < self.total_steps and not self._out_of_patience():
            order = self.data.batches(self.budget, order=(config.seed, p.epoch))
            while p.batch < len(order) and p.step < self.total_steps and not self._out_of_patience():
                batches = [self.data.batch(examples) for examples in order[p.batch : p.batch + config.accumulate]]
                yield self._step(batches, end_of_epoch=p.batch + len(batches) == len(order))
            if p.batch == len(order):
                p.epoch, p.batch = p.epoch + 1, 0

    def _step(self, batches: Sequence[TrainingBatch], *, end_of_epoch: bool) -> float:
        """One update, and the log row, validation or checkpoint that is due after it."""
        config, p = self.config, self.progress
        started = time.monotonic()
        p.step, p.batch = p.step + 1, p.batch + len(batches)
        rate = learning_rate(config, p.step, self.total_steps, p.plateaus)
        batches = [self.noise(self.inputs.weighting(batch), p.step) for batch in batches]
        loss, norm = self.updater.update(batches, p.step, rate)
        THREADS.watch()
        if self.updater.expected_reward is not None:
            rewards = self.group.total(self.updater.expected_reward.collect())
            p.rewards, p.sources = p.rewards + rewards["rewards"], p.sources + int(rewards["sources"])
        if made_of := self.updater.made_of:
            self.volume.add(made_of)
            tokens = sum(int(batch.mask.sum()) for batch in made_of)
            p.loss_sum, p.tokens = p.loss_sum + loss * tokens, p.tokens + tokens
        elapsed = time.monotonic() - started
        p.seconds += elapsed
        p.update_seconds += elapsed
        if p.step % LOG_EVERY == 0:
            self._log(rate, norm)

        last = p.step == self.total_steps
        due = p.step % config.validate_every == 0 if config.validate_every else end_of_epoch
        if due or last:
            self._require_finite(rate)
            self._validate()
        elif config.save_every and p.step % config.save_every == 0:
            self._require_finite(rate)
            self._save("last")
        return loss

    def _require_finite(self, rate: float) -> None:
        """Raises `SgdecError` if a weight is not finite: such weights must not replace the last good ones."""
        finite = all(bool(tensor.isfinite().all()) for tensor in self.updater.strategy.owned.values())
        if not all(self.group.agree(finite)):
            raise SgdecError(
                f"step {self.progress.step}: some weights are not finite after an update at rate {rate:.3g}. Nothing "
                f"was saved; {resuming.last_good(self.folder)}. Train again with a lower --lr or --clip."
            )

    def _validate(self) -> None:
        """Score the model on held-out text; update best score, plateaus and patience; save checkpoints."""
        config, p = self.config, self.progress
        started = time.monotonic()
        with self.updater.averaged():
            self.scores = self.group.agree(self._score() if self.group.first else {})[0]
        value = self.scores[config.metric] * (-1 if config.metric == "perplexity" else 1)
        settled = self.model.unsettled is None
        better = (settled, value) > (p.settled, p.best) or p.best == -math.inf  # the first one is always the best
        worse = value < p.previous if config.decay_rule == "previous" else not better
        p.since_halved = p.since_halved + 1 if worse else 0
        if 0 < config.plateau <= p.since_halved:
            p.plateaus, p.since_halved = p.plateaus + 1, 0
        p.previous = value
        if better:
            p.best, p.settled, p.since_best = value, settled, 0
        else:
            p.since_best += 1
        p.seconds += time.monotonic() - started
        self.report.add({"step": p.step, "epoch": self._epoch(), **self.scores, "seconds": round(p.seconds, 1)})
        scores = ", ".join(f"{name} {score:.4g}" for name, score in self.scores.items())
        where = f"epoch {self._epoch():.2f}, step {p.step}/{self.total_steps}"
        self.log.info(f"{where}: {scores}{' (best)' if better else ''}, {duration(p.seconds)}")
        self._save(*(["best"] if better else []), "last", scores=self.scores)

    def _score(self) -> dict[str, float]:
        model, valid, device = self.model, self.inputs.valid, self.config.device
        budget = for_scoring(self.budget)
        scores = {"perplexity": validation.perplexity(model, valid, budget=budget, device=device, log=self.log)}
        if isinstance(model, Seq2Seq) and isinstance(valid, ParallelText):
            target, count = self.inputs.target, self.config.bleu
            scores |= validation.of_translations(model, target, valid, count, device=device, log=self.log)
        return scores

    def _save(self, *links: str, scores: Mapping[str, float] = MappingProxyType({})) -> None:
        """Save a checkpoint of this step, with everything that is needed to resume."""
        save = self.updater.collect()
        if self.updater.splitter.ceiling < math.inf:
            self.progress.ceiling = self.updater.splitter.ceiling

        def write(folder: Path) -> None:
            save(folder)
            files.write_json(folder / PROGRESS, asdict(self.progress))
            layout.save_vocabularies(folder, self.inputs.source, self.inputs.target)
            where = {"step": self.progress.step, "epoch": self._epoch(), "precision": self.updater.precision}
            where["threads"] = torch.get_num_threads()
            training = {**self.inputs.fingerprints, "training": self.config.to_json()}
            if isinstance(self.budget, Workspace):
                training[WORKSPACE] = self.budget._asdict()
            files.write_json(folder / layout.CONFIG, {**self.inputs.model_config, **where, **scores, **training})
            shutil.copyfile(self.folder / METRICS, folder / METRICS)

        if self.group.first:
            layout.save_checkpoint(self.folder, f"step-{self.progress.step}", write, links, keep=self.config.keep)

    def _out_of_patience(self) -> bool:
        return self.progress.settled and 0 < self.config.patience <= self.progress.since_best

    def _epoch(self) -> float:
        return round(self.progress.step / self.steps_per_epoch, 3)

    def _introduce(self) -> None:
        """Log the model, the text and the number of steps."""
        data, parameters = self.data, sum(parameter.numel() for parameter in self.model.parameters())
        count = f"{parameters / 1e6:.1f} M" if parameters >= 1e6 else f"{parameters / 1e3:.1f} k"
        skipped = [f"{count} {what} left out" for what, count in data.left_out.items() if count]
        self.log.info(
            f"{self.config.model}: {count} parameters, {self.updater.precision} on {self.config.device}; "
            f"{len(data)} {data.unit}{''.join(f', {text}' for text in skipped)}; "
            f"{self.steps_per_epoch} steps per epoch, {self.total_steps} in all"
        )
        for line in self.started:
            self.log.info(line)
        if self.progress.step:
            self.log.info(f"resumed after step {self.progress.step}")
        if self.progress.step >= self.total_steps:
            self.log.info("this run has ended; continue it with more --epochs or --max-steps")

    def _log(self, rate: float, norm: float) -> None:
        p, speed = self.progress, self.progress.tokens / self.progress.update_seconds
        row = {
            "step": p.step,
            "epoch": self._epoch(),
            **({"loss": p.loss_sum / p.tokens} if p.tokens else {}),
            "lr": rate,
            **({"grad_norm": norm} if self.updater.made_of else {}),
            **({"reward": p.rewards / p.sources} if p.sources else {}),
        }
        row |= self.volume.row
        self.report.add({**row, "tokens_per_second": round(speed, 1), "seconds": round(p.seconds, 1)})
        p.loss_sum, p.tokens, p.update_seconds, p.rewards, p.sources = 0.0, 0, 0.0, 0.0, 0

    def _bar(self) -> Bar:
        return Bar("training", self.log, unit="steps", total=self.total_steps, done=self.progress.step)

    def _speed(self) -> str:
        """Loss and speed of the updates since the last row of the log."""
        p = self.progress
        if not p.tokens:
            return f"epoch {self._epoch():.2f}"
        speed = p.tokens / max(p.update_seconds, 1e-9)
        return f"epoch {self._epoch():.2f}, loss {p.loss_sum / p.tokens:.3f}, {speed:,.0f} tokens/s"

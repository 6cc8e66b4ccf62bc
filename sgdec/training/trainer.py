"""Maximum likelihood training (GNMT, Wu et al. 2016, equation 7 and section 8.3), step by step and resumable.

Everything random is a function of the seed: the first weights of the seed, the order of epoch e of (seed, e),
dropout in step s of (seed, s). So a run that was killed and is taken up at its last checkpoint repeats the lost
steps number for number, and goes on as if nothing had happened. What one step does is in `updating.py`.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from sgdec.context import Vocabularies
from sgdec.errors import SgdecError
from sgdec.models.base import LanguageModel, Seq2Seq
from sgdec.plugins import Host
from sgdec.text.right_left import RightToLeft, pieces_of
from sgdec.text.vocabulary import StoredVocabulary, load_vocabulary
from sgdec.training import checkpoint, resuming, validation
from sgdec.training.config import TrainConfig
from sgdec.training.data import Batch, Limits, ParallelText, read_text
from sgdec.training.device import choose_precision
from sgdec.training.optimisation import learning_rate
from sgdec.training.report import METRICS, Report, duration
from sgdec.training.updating import Updater

PROGRESS = "progress.json"
LOG_EVERY = 50
"""Steps between rows of the log."""


@dataclass
class Progress:
    """Where a run is: all that a checkpoint keeps besides weights and optimiser."""

    step: int = 0
    """Updates made."""
    epoch: int = 0
    batch: int = 0
    """The next batch of this epoch."""
    plateaus: int = 0
    """How often the rate was lowered for want of gain."""
    best: float = -math.inf
    """The best validation so far; higher is better."""
    since_best: int = 0
    """Validations since then."""
    since_halved: int = 0
    seconds: float = 0.0
    """Of training, validations included."""
    loss_sum: float = 0.0
    """Over the target tokens since the last row of the log."""
    tokens: int = 0
    update_seconds: float = 0.0
    """Of the updates since then."""


@dataclass(frozen=True)
class Trained:
    """What came of a run."""

    best: Path
    """The checkpoint folder to use."""
    steps: int
    scores: Mapping[str, float]
    """Of the last validation: perplexity, and bleu if asked for (of a translation model)."""


def train(config: TrainConfig, *, resume: bool = False, host: Host | None = None, quiet: bool = False) -> Trained:
    """Train a model as ``config`` says, or go on with the run in its folder.

    Raises `UsageError` for settings that cannot work, `SgdecError` for data or files that do not.
    """
    return Trainer(config, resume=resume, host=host, quiet=quiet).run()


class Trainer:
    """One run. `run` trains to the end; a caller who wants to watch asks `steps` for one loss after another."""

    def __init__(
        self,
        config: TrainConfig,
        *,
        resume: bool = False,
        host: Host | None = None,
        quiet: bool = False,
    ) -> None:
        self.config, self.folder = config, Path(config.output)
        self.precision = choose_precision(config.device, config.precision)
        if config.threads:
            torch.set_num_threads(config.threads)
        earlier = resuming.earlier_config(self.folder, resume)
        host = host or Host()
        has_source = not issubclass(host.load("model", config.model), LanguageModel)
        config.check_files(language_model=not has_source)
        tokenizers = [load_vocabulary(path) for path in config.tokenizer]
        self.source = tokenizers[0] if has_source else None
        self.target: StoredVocabulary = RightToLeft(tokenizers[-1]) if config.right_left else tokenizers[-1]
        self.vocabularies = Vocabularies(self.source, self.target)
        if resume:
            resuming.refuse_other_settings(config, earlier)
        self.data = read_text(config.train, self.source, self.target, Limits(config.max_line, config.max_ratio))
        self.valid = read_text(config.valid, self.source, self.target)
        if resume:
            resuming.refuse_other_text(config, earlier, self.vocabularies, self.data)
        batches = len(self.data.batches(config.batch_tokens, order=(config.seed, 0)))
        self.steps_per_epoch = math.ceil(batches / config.accumulate)
        self.total_steps = config.max_steps or math.ceil(config.epochs * self.steps_per_epoch)

        torch.manual_seed(config.seed)
        self.model = checkpoint.build_model(self._model_config(), where="sgdec train", host=host)
        self.model.to(config.device, torch.float64 if self.precision == "fp64" else torch.float32)
        if config.unigram_bias:
            self.model.bias_output(self.data.log_frequencies(self.target.size))
        self.progress = self._earlier_progress() if resume else Progress()
        step = self.progress.step
        self.updater = Updater(config, self.model, self.precision, total_steps=self.total_steps, step=step)
        if resume:
            self.updater.restore(self.folder / "last", step)
        self.report = Report(self.folder, step=self.progress.step, quiet=quiet)
        self._scores: dict[str, float] = {}

    def run(self) -> Trained:
        """Train until the last step or until patience ends; the best and the last model are in the folder."""
        self._introduce()
        try:
            for _ in self.steps():
                pass
        except BaseException:
            with contextlib.suppress(SgdecError, OSError):  # on a full disk this fails too; tell the first failure
                self.report.close()
            raise
        self.report.close()
        return Trained((self.folder / "best").resolve(), self.progress.step, self._scores)

    def steps(self) -> Iterator[float]:
        """Make updates to the end, with logs, validations and checkpoints; yields the loss of each."""
        config, p = self.config, self.progress
        while p.step < self.total_steps and not self._out_of_patience():
            order = self.data.batches(config.batch_tokens, order=(config.seed, p.epoch))
            while p.batch < len(order) and p.step < self.total_steps and not self._out_of_patience():
                batches = [self.data.batch(examples) for examples in order[p.batch : p.batch + config.accumulate]]
                yield self._step(batches, end_of_epoch=p.batch + len(batches) == len(order))
            if p.batch == len(order):
                p.epoch, p.batch = p.epoch + 1, 0

    def _step(self, batches: Sequence[Batch], *, end_of_epoch: bool) -> float:
        """One update, and what is due after it."""
        config, p = self.config, self.progress
        started = time.monotonic()
        p.step, p.batch = p.step + 1, p.batch + len(batches)
        rate = learning_rate(config, p.step, self.total_steps, p.plateaus)
        loss, norm = self.updater.update(batches, p.step, rate)
        tokens = sum(int(batch.mask.sum()) for batch in batches)
        p.loss_sum, p.tokens = p.loss_sum + loss * tokens, p.tokens + tokens
        elapsed = time.monotonic() - started
        p.seconds += elapsed
        p.update_seconds += elapsed
        if p.step % LOG_EVERY == 0:
            self._log(rate, norm)
        elif self.report.live:
            self._show(p.loss_sum / p.tokens)

        last = p.step == self.total_steps
        due = p.step % config.validate_every == 0 if config.validate_every else end_of_epoch
        if due or last:
            self._validate()
        elif config.save_every and p.step % config.save_every == 0:
            self._save("last")
        return loss

    def _validate(self) -> None:
        """Perplexity, and BLEU of translations, of held-out text; the rate and the checkpoints follow from them."""
        config, p = self.config, self.progress
        started = time.monotonic()
        self.report.progress("validation")
        with self.updater.averaged():
            self._scores = self._score()
        value = self._scores["bleu"] if config.metric == "bleu" else -self._scores["perplexity"]
        better = value > p.best
        if better:
            p.best, p.since_best, p.since_halved = value, 0, 0
        else:
            p.since_best, p.since_halved = p.since_best + 1, p.since_halved + 1
            if config.plateau and p.since_halved >= config.plateau:
                p.plateaus, p.since_halved = p.plateaus + 1, 0
        p.seconds += time.monotonic() - started
        self.report.add({"step": p.step, "epoch": self._epoch(), **self._scores, "seconds": round(p.seconds, 1)})
        scores = ", ".join(f"{name} {score:.2f}" for name, score in self._scores.items())
        where = f"epoch {self._epoch():.2f}, step {p.step}/{self.total_steps}"
        self.report.line(f"{where}: {scores}{' (best)' if better else ''}, {duration(p.seconds)}")
        self._save("last", *(["best"] if better else []), scores=self._scores)

    def _score(self) -> dict[str, float]:
        config, valid = self.config, self.valid
        scores = {"perplexity": validation.perplexity(self.model, valid, device=config.device)}
        if config.bleu and isinstance(self.model, Seq2Seq) and isinstance(valid, ParallelText):
            lines, references = valid.source_lines[: config.bleu], valid.target_lines[: config.bleu]
            translations = validation.translate(self.model, self.vocabularies, lines, device=config.device)
            scores["bleu"] = validation.bleu(translations, references)
        return scores

    def _save(self, *links: str, scores: Mapping[str, float] = MappingProxyType({})) -> None:
        """A checkpoint of this step, with all that training needs to go on."""

        def write(folder: Path) -> None:
            self.updater.save(folder)
            checkpoint.write_json(folder / PROGRESS, asdict(self.progress))
            checkpoint.save_vocabularies(folder, self.source, self.target)
            where = {"step": self.progress.step, "epoch": self._epoch(), "precision": self.precision}
            training = {resuming.TEXT: self.data.fingerprint, "training": self.config.to_json()}
            checkpoint.write_json(folder / checkpoint.CONFIG, {**self._model_config(), **where, **scores, **training})
            shutil.copyfile(self.folder / METRICS, folder / METRICS)

        checkpoint.save_checkpoint(self.folder, f"step-{self.progress.step}", write, links, keep=self.config.keep)

    def _earlier_progress(self) -> Progress:
        file = self.folder / "last" / PROGRESS
        try:
            return Progress(**checkpoint.read_json(file))
        except TypeError:
            raise SgdecError(f"{file}: this was written by another version of sgdec.") from None

    def _model_config(self) -> dict[str, Any]:
        return {
            "format": checkpoint.FORMAT,
            "model": self.config.model,
            "options": dict(self.config.options),
            "source_vocab_size": 0 if self.source is None else self.source.size,
            "target_vocab_size": self.target.size,
            "shared": self.source is not None and self.source.fingerprint == pieces_of(self.target).fingerprint,
            "right_left": self.config.right_left,
        }

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.progress.since_best

    def _epoch(self) -> float:
        return round(self.progress.step / self.steps_per_epoch, 3)

    def _introduce(self) -> None:
        """What is trained on what."""
        data, parameters = self.data, sum(parameter.numel() for parameter in self.model.parameters())
        skipped = [f"{count} {what} left out" for what, count in data.left_out.items() if count]
        self.report.line(
            f"{self.config.model}: {parameters / 1e6:.1f} M parameters, {self.precision} on {self.config.device}; "
            f"{len(data)} {data.unit}{''.join(f', {text}' for text in skipped)}; "
            f"{self.steps_per_epoch} steps an epoch, {self.total_steps} in all"
        )
        if self.progress.step:
            self.report.line(f"resumed after step {self.progress.step}")

    def _log(self, rate: float, norm: float) -> None:
        p, speed = self.progress, self.progress.tokens / self.progress.update_seconds
        row = {
            "step": p.step,
            "epoch": self._epoch(),
            "loss": p.loss_sum / p.tokens,
            "lr": rate,
            "grad_norm": norm,
        }
        self.report.add({**row, "tokens_per_second": round(speed, 1), "seconds": round(p.seconds, 1)})
        self._show(p.loss_sum / p.tokens)
        p.loss_sum, p.tokens, p.update_seconds = 0.0, 0, 0.0

    def _show(self, loss: float) -> None:
        """One line that is rewritten: where we are, how fast, how long still."""
        p, speed = self.progress, self.progress.tokens / max(self.progress.update_seconds, 1e-9)
        left = (self.total_steps - p.step) * p.seconds / p.step
        self.report.progress(
            f"epoch {self._epoch():.2f}, step {p.step}/{self.total_steps}: loss {loss:.3f}, "
            f"{speed:,.0f} tokens/s, {duration(left)} left"
        )

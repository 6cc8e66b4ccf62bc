"""Maximum likelihood training (GNMT, Wu et al. 2016, equation 7 and section 8.3), step by step and resumable.

Everything random is a function of the seed: the first weights of the seed, the order of epoch e of (seed, e),
dropout in step s of (seed, s). So a run that was killed and is taken up at its last checkpoint repeats the lost
steps number for number, and goes on as if nothing had happened.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from sgdec.context import Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import LanguageModel, Seq2Seq
from sgdec.plugins import Host
from sgdec.text.right_left import RightToLeft, pieces_of
from sgdec.text.vocabulary import StoredVocabulary, load_vocabulary
from sgdec.training import checkpoint, validation
from sgdec.training.config import TrainConfig
from sgdec.training.data import Batch, ParallelText, read_text
from sgdec.training.device import choose_precision
from sgdec.training.optimisation import (
    learning_rate,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    uses_sgd,
)
from sgdec.training.report import METRICS, Report, duration

OPTIMIZER, PROGRESS = "optimizer.safetensors", "progress.json"
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
    """How often the rate was halved for want of gain."""
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
        earlier = self._earlier_config(resume)
        host = host or Host()
        has_source = not issubclass(host.load("model", config.model), LanguageModel)
        config.check_files(language_model=not has_source)
        tokenizers = [load_vocabulary(path) for path in config.tokenizer]
        self.source = tokenizers[0] if has_source else None
        self.target: StoredVocabulary = RightToLeft(tokenizers[-1]) if config.right_left else tokenizers[-1]
        self.vocabularies = Vocabularies(self.source, self.target)
        self.data = read_text(config.train, self.source, self.target, config.max_line)
        self.valid = read_text(config.valid, self.source, self.target)
        self.steps_per_epoch = len(self.data.batches(config.batch_tokens, order=(config.seed, 0)))
        self.total_steps = config.max_steps or math.ceil(config.epochs * self.steps_per_epoch)

        torch.manual_seed(config.seed)
        self.model = checkpoint.build_model(self._model_config(), where="sgdec train", host=host)
        self.model.to(config.device, torch.float64 if self.precision == "fp64" else torch.float32)
        if config.unigram_bias:
            self.model.bias_output(self.data.log_frequencies(self.target.size))
        self.progress = Progress()
        if resume:
            self._restore(earlier)
        self.optimizer = make_optimizer(config, self.model.parameters(), self.progress.step + 1)
        if resume:
            self._restore_optimizer()
        self.report = Report(self.folder, step=self.progress.step, quiet=quiet)
        self._scores: dict[str, float] = {}

    def run(self) -> Trained:
        """Train until the last step or until patience ends; the best and the last model are in the folder."""
        self._introduce()
        try:
            for _ in self.steps():
                pass
        finally:
            self.report.close()
        return Trained((self.folder / "best").resolve(), self.progress.step, self._scores)

    def steps(self) -> Iterator[float]:
        """Make updates to the end, with logs, validations and checkpoints; yields the loss of each."""
        config, p = self.config, self.progress
        while p.step < self.total_steps and not self._out_of_patience():
            order = self.data.batches(config.batch_tokens, order=(config.seed, p.epoch))
            while p.batch < len(order) and p.step < self.total_steps and not self._out_of_patience():
                yield self._step(self.data.batch(order[p.batch]), end_of_epoch=p.batch + 1 == len(order))
            if p.batch == len(order):
                p.epoch, p.batch = p.epoch + 1, 0

    def _step(self, batch: Batch, *, end_of_epoch: bool) -> float:
        """One update, and what is due after it."""
        config, p = self.config, self.progress
        started = time.monotonic()
        p.step, p.batch = p.step + 1, p.batch + 1
        rate = learning_rate(config, p.step, self.total_steps, p.plateaus)
        loss, norm = self._update(batch, rate)
        tokens = int(batch.mask.sum())
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

    def _update(self, batch: Batch, rate: float) -> tuple[float, float]:
        """One step of the optimiser: mean loss of a target token, and the norm of the gradient."""
        config, p = self.config, self.progress
        if config.sgd_after and p.step == config.sgd_after + 1:
            self.optimizer = make_optimizer(config, self.model.parameters(), p.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(hash_seed(config.seed, p.step))
        self.model.anneal((p.step - 1) / max(1, self.total_steps - 1))
        self.model.train()
        moved = batch.to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16, enabled=self.precision == "bf16"):
            loss = validation.batch_nll(self.model, moved, config.label_smoothing) / moved.mask.sum()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        value, size = loss.item(), norm.item()
        if not (math.isfinite(value) and math.isfinite(size)):
            what = f"the loss is {value}" if not math.isfinite(value) else f"the gradient's norm is {size}"
            lines = ", ".join(map(str, batch.lines[:8])) + (", ..." if len(batch.lines) > 8 else "")
            raise SgdecError(
                f"step {p.step}: {what}, on lines {lines} of {config.train[0]}. Nothing was updated or saved; "
                "look at these lines, or lower --lr or --clip and go on with --resume."
            )
        self.optimizer.step()
        return value, size

    def _validate(self) -> None:
        """Perplexity, and BLEU of translations, of held-out text; the rate and the checkpoints follow from them."""
        config, p = self.config, self.progress
        started = time.monotonic()
        self.report.progress("validation")
        self._scores = {"perplexity": validation.perplexity(self.model, self.valid, device=config.device)}
        if config.bleu and isinstance(self.model, Seq2Seq) and isinstance(self.valid, ParallelText):
            lines, references = self.valid.source_lines[: config.bleu], self.valid.target_lines[: config.bleu]
            translations = validation.translate(self.model, self.vocabularies, lines, device=config.device)
            self._scores["bleu"] = validation.bleu(translations, references)
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

    def _save(self, *links: str, scores: Mapping[str, float] = MappingProxyType({})) -> None:
        """A checkpoint of this step, with all that training needs to go on."""

        def write(folder: Path) -> None:
            checkpoint.save_tensors(folder / checkpoint.WEIGHTS, checkpoint.model_tensors(self.model))
            checkpoint.save_tensors(folder / OPTIMIZER, optimizer_tensors(self.optimizer))
            checkpoint.write_json(folder / PROGRESS, asdict(self.progress))
            checkpoint.save_vocabularies(folder, self.source, self.target)
            where = {"step": self.progress.step, "epoch": self._epoch(), "precision": self.precision}
            config = {**self._model_config(), **where, **scores, "training": self.config.to_json()}
            checkpoint.write_json(folder / checkpoint.CONFIG, config)
            shutil.copyfile(self.folder / METRICS, folder / METRICS)

        checkpoint.save_checkpoint(self.folder, f"step-{self.progress.step}", write, links)

    def _restore(self, earlier: Mapping[str, Any]) -> None:
        """Take up the last checkpoint: weights and progress."""
        changed = self.config.differences(earlier.get("training", {}))
        if changed:
            name = changed[0]
            raise UsageError(
                f"--resume: {name} was {earlier['training'][name]} in {self.folder}, now it is "
                f"{getattr(self.config, name)}. Give the same settings, or another --output."
            )
        for side in ("source", "target"):
            if earlier[f"{side}_vocab_size"] != self._model_config()[f"{side}_vocab_size"]:
                raise UsageError(f"--resume: the {side} tokenizer is not the one of {self.folder}.")
        last = self.folder / "last"
        checkpoint.load_weights(self.model, last / checkpoint.WEIGHTS)
        try:
            self.progress = Progress(**checkpoint.read_json(last / PROGRESS))
        except TypeError:
            raise SgdecError(f"{last / PROGRESS}: this was written by another version of sgdec.") from None

    def _restore_optimizer(self) -> None:
        step = self.progress.step
        if uses_sgd(self.config, step + 1) == uses_sgd(self.config, step):
            restore_optimizer(self.optimizer, checkpoint.load_tensors(self.folder / "last" / OPTIMIZER))

    def _earlier_config(self, resume: bool) -> dict[str, Any]:
        """What the folder holds: nothing for a new run, the last checkpoint for one to be resumed."""
        last = self.folder / "last"
        if not resume:
            if last.exists():
                raise UsageError(
                    f"{self.folder} holds a run already. Go on with it: --resume, or give another --output."
                )
            return {}
        if not last.exists():
            raise UsageError(f"--resume: {self.folder} holds no checkpoint yet. Start without --resume.")
        return checkpoint.read_config(last)

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
        skipped = [f"{n} {what} left out" for n, what in ((data.empty, "empty"), (data.long, "too long")) if n]
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


def hash_seed(seed: int, step: int) -> int:
    """The seed of a step's dropout: far apart for neighbours.

    >>> hash_seed(1, 2) == hash_seed(1, 2), hash_seed(1, 2) == hash_seed(2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> np.uint64(1))

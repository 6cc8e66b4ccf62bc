"""The options of `sgdec decode` that do what a model's generation settings ask `generate()` of transformers to do.

The model alone cannot follow these settings: they choose the search, its size, its limits, and other predictors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sgdec.vocabularies import Roles

NONE = {
    "sequence_bias": None, "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None, "num_beam_groups": 1, "diversity_penalty": 0.0, "guidance_scale": 1.0,
    "renormalize_logits": False, "penalty_alpha": 0.0, "stop_strings": None,
}  # fmt: skip
"""Settings without a counterpart, with the values at which they change nothing."""
LINKS = {
    "min_p": ("min_p", 0.0), "typical_p": ("typical", 1.0), "epsilon_cutoff": ("epsilon", 0.0),
    "eta_cutoff": ("eta", 0.0),
}  # fmt: skip
"""Settings that are links of a chain (`sgdec.chain`), in the order of `generate()`, with the values that change
nothing."""


@dataclass
class Counterparts:
    """The settings that `read` has found, and the command line that follows them."""

    config: Any
    roles: Roles
    settings: list[str] = field(default_factory=list)
    predictors: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    """Settings without a counterpart."""

    def number(self, name: str, neutral: float) -> float:
        """The value of a setting, ``neutral`` if it is not set."""
        value = getattr(self.config, name, None)
        return neutral if isinstance(value, bool) or not isinstance(value, (int, float)) else value

    def name(self, setting: str) -> None:
        """List a setting with its value, if it is set."""
        value = getattr(self.config, setting, None)
        if value is not None:
            self.settings.append(shown(setting, value))

    def read(self) -> None:
        """Read all settings of the config."""
        self._scores()
        self._lengths()
        sampling = bool(getattr(self.config, "do_sample", False))
        beams = int(self.number("num_beams", 1))
        if beams > 1:
            self._beam(beams)
        elif sampling:
            self._sampling()
        lacking = {**NONE, **({"do_sample": False} if beams > 1 else {})}
        values = {name: getattr(self.config, name, None) for name in lacking}
        self.without += [
            shown(name, value) for name, value in values.items() if value is not None and value != lacking[name]
        ]

    def _scores(self) -> None:
        order, penalty = int(self.number("no_repeat_ngram_size", 0)), self.number("repetition_penalty", 1.0)
        prompt = not self.roles.seq2seq
        if penalty != 1.0:
            self.name("repetition_penalty")
            begun = self.roles.numbering.numbers[list(self.begun)].tolist()
            seen = "--repetition.prompt true" if prompt else f"--repetition.seen {','.join(map(str, begun))}"
            self.options.append(f"--repetition.penalty {penalty:g} {seen}")
        self.predictors.append("hf" if penalty == 1.0 else "repetition:hf")
        if order > 0:
            self.name("no_repeat_ngram_size")
            self.predictors.append("norepeat")
            self.options.append(f"--norepeat.order {order}" + (" --norepeat.prompt true" if prompt else ""))

    def _lengths(self) -> None:
        """Limits on new tokens count a forced first one; limits on all tokens count what the decoder reads."""
        forced = 0 if self.roles.forced_bos is None else 1
        for new, total in (("min_new_tokens", "min_length"), ("max_new_tokens", "max_length")):
            setting, counted = (new, forced) if self.number(new, 0) > 0 else (total, forced + 1)
            tokens = int(self.number(setting, 0))
            if tokens <= 0:
                continue
            if setting == total and not self.roles.seq2seq:
                self.without.append(f"{shown(setting, tokens)} (which counts the prompt)")
            elif new == "max_new_tokens":
                self.name(setting)
                self.options.append(f"--max-length {max(1, tokens - counted - 1)}")
            elif tokens > counted:
                self.name(setting)
                self.predictors.append("minlength")
                self.options.append(f"--minlength.tokens {tokens - counted}")

    def _beam(self, beams: int) -> None:
        for setting in ("num_beams", "length_penalty", "early_stopping"):
            self.name(setting)
        early, alpha = getattr(self.config, "early_stopping", None), self.number("length_penalty", 1.0)
        penalty = f" --beam.alpha {alpha:g} --beam.normalize length" if alpha else ""
        offset = "" if self.roles.forced_bos is None or not alpha else " --beam.length_offset 1"
        stop = "never" if early == "never" else str(early is True).lower()
        self.options.append(f"--decoder beam --beam.size {beams}{penalty}{offset} --beam.stop hf-{stop}")

    def _sampling(self) -> None:
        for setting in ("do_sample", "temperature", "top_k", "top_p"):
            self.name(setting)
        temperature, top_k = self.number("temperature", 1.0), int(self.number("top_k", 50))  # 50 is its default
        top_p = self.number("top_p", 1.0)
        links = []
        for setting, (link, neutral) in LINKS.items():
            if (value := self.number(setting, neutral)) != neutral:
                self.name(setting)
                links.append(f"{link}={value:g}")
        if links:
            first = [f"temperature={temperature:g}", *([f"top_k={top_k}"] if top_k else []), f"top_p={top_p:g}"]
            self.options.append(f"--decoder sample --sample.chain {'+'.join([*first, *links])}")
        else:
            chosen = f"--decoder sample --sample.temperature {temperature:g} --sample.top_k {top_k}"
            self.options.append(f"{chosen} --sample.top_p {top_p:g}")

    @property
    def begun(self) -> tuple[int, ...]:
        """The ids that the decoder of a seq2seq model reads before an output."""
        return tuple(id for id in (self.roles.decoder_start, self.roles.forced_bos) if id is not None)


def not_followed(config: Any, roles: Roles) -> str | None:
    """A sentence with the settings that change what `generate()` finds and that only options can follow, and these
    options, or None. It is also true if they are given."""
    found = Counterparts(config, roles)
    found.read()
    parts = []
    if found.options:
        predictors = [f"--predictors {','.join(found.predictors)}"] if found.predictors != ["hf"] else []
        parts.append(f"for {', '.join(found.settings)} give {' '.join([*predictors, *found.options])}")
    if found.without:
        parts.append(f"for {', '.join(found.without)} there is no option")
    return f"the model's generation settings take effect only as options: {'; '.join(parts)}" if parts else None


def shown(name: str, value: Any) -> str:
    return f"{name} {str(value).lower() if isinstance(value, bool) else value}"

"""The tokens that the generation settings of a model force and forbid, as `generate()` of transformers does.

Log-probabilities are computed first, and what is forbidden has -inf then: the others are not normalised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgdec.text.pretrained import Roles

COUNTERPARTS = {
    "num_beams": "--decoder beam --beam.size {}",
    "length_penalty": "--normalize length --alpha {}",
    "early_stopping": "--beam.stop hf-{}",
    "min_length": "the predictor minlength",
    "min_new_tokens": "the predictor minlength",
    "no_repeat_ngram_size": "the predictor norepeat",
    "repetition_penalty": "the wrapper repetition",
    "temperature": "the wrapper temperature",
}
"""Settings that are options here, by their names in generation_config.json."""
NONE = (
    "sequence_bias", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "exponential_decay_length_penalty",
    "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "num_beam_groups", "diversity_penalty",
    "guidance_scale", "renormalize_logits",
)  # fmt: skip
"""Settings without a counterpart."""
NEUTRAL = {"num_beams": 1, "length_penalty": 1.0, "repetition_penalty": 1.0, "temperature": 1.0, "min_length": 0}


@dataclass(frozen=True)
class Rules:
    """All in the model's ids."""

    banned: tuple[int, ...]
    """Never a token of an output."""
    banned_first: tuple[int, ...]
    """Never the first."""
    banned_words: tuple[tuple[int, ...], ...]
    """Two tokens or more, which never follow each other, also not after the end of the prompt."""
    forced_end: bool
    """Whether the length limit ends an output for nothing."""

    @property
    def memory(self) -> int:
        """The number of last tokens on which it depends what is forbidden."""
        return max((len(word) - 1 for word in self.banned_words), default=0)

    @classmethod
    def of(cls, config: Any, roles: Roles) -> Rules:
        """The rules of a ``GenerationConfig``."""
        words = [tuple(word) for word in getattr(config, "bad_words_ids", None) or ()]
        words = [word for word in words if len(word) != 1 or word[0] not in roles.eos]  # ends are not forbidden so
        alone = {word[0] for word in words if len(word) == 1}
        suppressed = getattr(config, "suppress_tokens", None) or ()
        return cls(
            tuple(sorted(alone.union(suppressed))),
            tuple(getattr(config, "begin_suppress_tokens", None) or ()),
            tuple(word for word in words if len(word) > 1),
            bool(roles.forced_eos),
        )

    def forbidden_after(self, last: Sequence[int]) -> list[int]:
        """The ids that would complete a forbidden word."""
        seen = tuple(last)
        return [word[-1] for word in self.banned_words if seen[len(seen) - len(word) + 1 :] == word[:-1]]


def not_followed(config: Any) -> list[str]:
    """Settings that change what `generate()` finds and have to be asked for here, each with its counterpart."""
    found = []
    for name in (*COUNTERPARTS, *NONE):
        value = getattr(config, name, None)
        if value is not None and value is not False and value != NEUTRAL.get(name):
            shown = str(value).lower() if isinstance(value, bool) else value
            way = COUNTERPARTS.get(name, "no counterpart").format(shown)
            found.append(f"{name} {shown} ({way})")
    return found

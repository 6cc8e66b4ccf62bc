"""The tokens that the generation settings of a model force and forbid, as `generate()` of transformers does.

Log-probabilities are computed first, and what is forbidden has -inf then: the others are not normalised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgdec.vocabularies import Roles


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
        """The rules of a ``GenerationConfig``. Ids that the model does not have never occur."""
        ids = range(roles.rows)
        words = [tuple(word) for word in getattr(config, "bad_words_ids", None) or ()]
        words = [word for word in words if len(word) != 1 or word[0] not in roles.eos]  # ends are not forbidden so
        words = [word for word in words if all(id in ids for id in word)]
        alone = {word[0] for word in words if len(word) == 1}
        suppressed = getattr(config, "suppress_tokens", None) or ()
        return cls(
            tuple(sorted(alone.union(suppressed).intersection(ids))),
            tuple(id for id in getattr(config, "begin_suppress_tokens", None) or () if id in ids),
            tuple(word for word in words if len(word) > 1),
            bool(roles.forced_eos),
        )

    def forbidden_after(self, last: Sequence[int]) -> list[int]:
        """The ids that would complete a forbidden word."""
        seen = tuple(last)
        return [word[-1] for word in self.banned_words if seen[len(seen) - len(word) + 1 :] == word[:-1]]

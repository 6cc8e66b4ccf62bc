"""The context that all parts of one run share: device, precision, vocabularies, seed.

A predictor or decoder whose constructor names a parameter ``context`` receives it; it is never an option.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

UNK, BOS, EOS = 0, 1, 2
"""The unknown token (and epsilon inside FSTs), ``<s>`` and ``</s>``: the defaults of SentencePiece and SGNMT."""


class Vocabulary(Protocol):
    """Text to tokens and back. Tokens are 0..size-1; 0, 1, 2 are `UNK`, `BOS`, `EOS`."""

    @property
    def size(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints = the same pieces with the same ids."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a line, without ``<s>`` and ``</s>``."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these tokens."""

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside the vocabulary."""

    def token(self, piece: str) -> int:
        """The token of one string; `UNK` if there is none."""


class Vocabularies(NamedTuple):
    """The source and target vocabularies of a run; None = unknown."""

    source: Vocabulary | None = None
    target: Vocabulary | None = None


class Plugins(Protocol):
    """Finds plugins by name, as `sgdec.plugins.host.Host` does."""

    def load(self, kind: str, name: str) -> type[Any]:
        """The class of a ``predictor``, ``decoder`` or ``model``.

        Raises UsageError for a name that no plugin or several plugins have, SgdecError for a broken plugin.
        """


@dataclass(frozen=True)
class Context:
    """Passed to constructors that have a parameter ``context``."""

    device: str = "cpu"
    precision: str = "fp32"
    vocabularies: Vocabularies = field(default_factory=Vocabularies)
    vocab_size: int | None = None
    """V, the number of target tokens; None if neither a vocabulary nor ``--vocab-size`` states it."""
    seed: int = 0
    deterministic: bool = False
    """Whether a sentence's results must be bit-equal, whatever other sentences are decoded with it."""
    host: Plugins | None = None
    """Finds the plugins that a checkpoint names; None = the installed plugins."""
    loaded: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """All that `once` has loaded; contexts that are made from this one share it."""

    def once(self, key: Hashable, load: Callable[[], T]) -> T:
        """The result of ``load``, which is called once for a key, in this context and those made from it.

        For what several predictors of a run read and none changes, such as a model that is named twice. Contexts with
        another device, precision or determinism load their own.

        >>> from dataclasses import replace
        >>> context = Context()
        >>> context.once("numbers", lambda: [1, 2]) is context.once("numbers", lambda: [3])
        True
        >>> replace(context, precision="bf16").once("numbers", lambda: [3])
        [3]
        """
        whole = key, self.device, self.precision, self.deterministic
        if whole not in self.loaded:
            self.loaded[whole] = load()
        found: T = self.loaded[whole]
        return found

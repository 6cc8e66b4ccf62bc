"""What a model offers: the one inference step that decoding and training share.

A model is a torch module that predicts one target token after another: a `Seq2Seq` after it has encoded a source, a
`LanguageModel` without one. It never normalises: `project` gives logits, and callers that want log-probabilities take
their log-softmax. A new model is one file with one inference step; what kind it is decides what `sgdec train` reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.kernels import Kernels

State = tuple[Tensor, ...]
"""What a model knows about each prefix: row i of every tensor belongs to prefix i."""


class Rows(NamedTuple):
    """Which of R prefixes belong to which of B sentences."""

    grid: Tensor
    """[B, most] the prefixes of each sentence beside each other; where it has fewer, any prefix"""
    cell: Tensor
    """[R] the place of each prefix in the flattened grid"""


class Memory(NamedTuple):
    """The encoded sources; dimension 0 of every tensor is the sentence."""

    values: Tensor
    """[B, S, H] what attention averages."""
    keys: Tensor
    """[B, S, A] what attention compares with, computed once per sentence."""
    mask: Tensor
    """[B, S] true where there is a source token, false where there is padding."""
    first: Tensor
    """[B, ...] what `Seq2Seq.start` needs."""
    rows: Rows | None = None
    """For `Seq2Seq.step`; None: prefix i belongs to sentence i."""

    def at(self, sentences: Tensor | slice) -> Memory:
        """Some of the sentences, in that order; one may be taken more than once."""
        return Memory(self.values[sentences], self.keys[sentences], self.mask[sentences], self.first[sentences])


class Correspondence(NamedTuple):
    """Which parameters of a translation model are those of a language model."""

    names: Mapping[str, str]
    """Regular expressions for their names there, of which each fits one, and what `re.Match.expand` makes of them."""
    wider: str = r"(?!)"
    """Names of matrices here that may read more besides: the language model's are their first columns."""


class Refusal(NamedTuple):
    """A setting of ``sgdec train`` that models of a family cannot be trained with."""

    setting: str
    """A name of `sgdec.training.TrainConfig`."""
    why: str
    """Behind the model's name: ``has no source``."""
    value: Any = None
    """The one that is refused; None = all but the default."""
    instead: str = ""
    """The value to take; none = omit the setting."""


@dataclass(frozen=True)
class ModelContext:
    """What the framework tells a model; never an option."""

    source_vocab_size: int
    """0 for a `LanguageModel`."""
    target_vocab_size: int
    shared: bool = False
    """Source and target have one vocabulary."""


class Model(nn.Module, ABC):
    """What both kinds of models have in common.

    A subclass of either has a constructor ``__init__(self, context: ModelContext, ...)`` whose other parameters,
    typed and described, are its options (``--gnmt.width 512``), and may name sets of them in `presets`.
    """

    kind: ClassVar[str]
    """In words, for messages."""
    sources: ClassVar[int] = 0
    """How many it reads. Two are one sequence of tokens, with ``</s>`` between (`sgdec.text.two_sources`)."""
    steps: ClassVar[bool] = False
    """Whether the last target token is the step of a monotone attention (`sgdec.text.steps`)."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    replaced: ClassVar[tuple[str, ...]] = ()
    """How the names of those parameters begin that `freeze` hands to `Kernels.bounded` and needs no more."""
    kernels: Kernels | None = None
    """What computes the products of a frozen model, if that matters to its users."""
    histories: int = 0
    """How many tensors at the end of a state are histories [R, T, ...]. A step appends one entry per row, the last.
    If prefixes of different lengths meet, shorter histories are padded in front with any finite numbers: a model with
    histories counts each row's entries."""

    @classmethod
    def refusals(cls) -> Iterator[Refusal]:
        """Settings of a training that do not go with models of this family.

        An override begins with ``yield from super().refusals()``. Options of the model itself that do not
        go together are refused by its constructor, with UsageError; it is called before any text is read.
        """
        yield from ()

    @abstractmethod
    def project(self, output: Tensor) -> Tensor:
        """Logits [..., V] of outputs [..., H]."""

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The layer that `project` is, weight [V, H] and bias [V], and the bound to which it clips logits, if any.

        For callers that compute only some logits, or initialise it. Raises UsageError if a model has no such
        layer, or only in 8 bits.
        """
        raise UsageError(
            f"{type(self).__name__} has no output layer in floating point: its vocabulary cannot be reduced, nor can "
            "training start from given weights or a bias. Predict with nmt, or leave the option out."
        )

    def embedding_layer(self, side: str) -> nn.Embedding:
        """The embeddings [V, E] of the ``source`` or the ``target``, for callers that initialise them.

        Raises UsageError if a model has none.
        """
        layer = getattr(self, f"{side}_embedding", None)
        if not isinstance(layer, nn.Embedding):
            raise UsageError(f"{type(self).__name__} has no {side} embeddings to start from others. Leave them out.")
        return layer

    def bias_output(self, log_probabilities: Tensor) -> None:
        """Start from these scores [V] of target tokens, before anything is learnt.

        Otherwise the first steps push whole layers into saturation to tell frequent tokens from rare ones, and
        a recurrent encoder that is saturated learns no attention. Raises UsageError as `output_layer` does.
        """
        layer, _ = self.output_layer()
        with torch.no_grad():
            layer.bias.copy_(log_probabilities)

    def anneal(self, update: float, last: int) -> None:
        """Called before each ``update`` of a training, 0 to ``last``: for what a model changes on the way.

        An infinite ``update`` refines a model whose training is over. ``last`` can change when a training is resumed;
        what was reached by then must not be undone.
        """

    @property
    def unsettled(self) -> str | None:
        """What `anneal` has not brought to its end yet, in words for a message; None where everything is.

        A checkpoint of a settled model is better than any before it, and patience begins to count with it.
        """
        return None

    def freeze(self, kernels: Kernels) -> None:
        """Predict with products that ``kernels`` makes of the parameters, which do not change any more.

        All that predicts then uses these. A model that does not override this stays as it is, and cannot be
        quantised.
        """


class Seq2Seq(Model):
    """A model P(target | source), one target token at a time."""

    kind = "translation model"
    sources = 1
    language_models: ClassVar[Mapping[str, Correspondence]] = {}
    """By the names of language models: how a decoder starts from one (`sgdec.training.run.pretrained`)."""

    @classmethod
    def refusals(cls) -> Iterator[Refusal]:
        yield from super().refusals()
        if cls.steps:
            yield Refusal("right_left", "goes through the source from left to right")
            yield Refusal("source_noise_kind", "steps over each source token", "deletion", instead="unknown")
            yield Refusal(
                "objective", "predicts steps between tokens, which GLEU would count as words", instead="ml"
            )
        if cls.sources > 1:
            why = "reads two sources, and a short one would lose all its tokens"
            yield Refusal("source_noise_kind", why, "deletion", instead="unknown")
        if cls.steps or cls.sources > 1:
            yield Refusal("edit_weight", "does not read one source token by token")

    @abstractmethod
    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Source tokens [B, S] without ``<s>`` and ``</s>``; behind their ``lengths`` [B] >= 1 is padding."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The states before anything is consumed, one row per sentence; the first token consumed is ``<s>``."""

    @abstractmethod
    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[State, Tensor, Tensor]:
        """Consume one token [R] a prefix: the states after it, the output [R, H], the attention [R, S].

        ``memory.rows`` says which prefix belongs to which sentence. The output gives, through `project`, the scores
        of the next token; the attention is the one with which that next token is predicted.
        """

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        """Outputs [B, T, H] for the target prefixes ``<s> y_1 ... y_{T-1}`` [B, T], all steps.

        This is the loop over `step`; a model that can do all steps at once overrides it and must agree with
        the loop.
        """
        memory = self.encode(source, lengths)
        state, outputs = self.start(memory), []
        for tokens in target_in.unbind(1):
            state, output, _ = self.step(memory, state, tokens)
            outputs.append(output)
        return torch.stack(outputs, 1)


class LanguageModel(Model):
    """A model P(target), one token at a time: it has no source."""

    kind = "language model"

    @classmethod
    def refusals(cls) -> Iterator[Refusal]:
        yield from super().refusals()
        for setting in ("source_noise", "edit_weight", "embeddings_source", "start_decoder"):
            yield Refusal(setting, "is a language model and has no source")
        for setting, instead in (("metric", "perplexity"), ("objective", "ml")):
            yield Refusal(setting, "is a language model and translates nothing", instead=instead)

    @abstractmethod
    def start(self, rows: int) -> State:
        """The states before anything is consumed; the first token consumed is ``<s>``."""

    @abstractmethod
    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        """Consume one token [R] a prefix: the states after it, and the output [R, H].

        The output gives, through `project`, the scores of the next token.
        """

    def forward(self, target_in: Tensor) -> Tensor:
        """Outputs [B, T, H] for the prefixes ``<s> y_1 ... y_{T-1}`` [B, T]; the loop, as for `Seq2Seq`."""
        state, outputs = self.start(len(target_in)), []
        for tokens in target_in.unbind(1):
            state, output = self.step(state, tokens)
            outputs.append(output)
        return torch.stack(outputs, 1)

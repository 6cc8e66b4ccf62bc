"""The interface of models: one inference step, which decoding and training share.

A model is a torch module that predicts one target token after another: a `Seq2Seq` after encoding a source, a
`LanguageModel` without a source. It does not normalise: `project` returns logits, and callers that need
log-probabilities apply a log-softmax. A new model is one file with one inference step. The kind of a model decides
which files `sgdec train` reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.kernels import Kernels

State = tuple[Tensor, ...]
"""A model's state for each prefix: row i of every tensor belongs to prefix i."""


class Rows(NamedTuple):
    """The assignment of R prefixes to B sentences."""

    grid: Tensor
    """[B, most] the prefixes of each sentence, as numbers; unused places have the number of an arbitrary prefix"""
    cell: Tensor
    """[R] the position of each prefix in the flattened grid"""

    @classmethod
    def of(cls, owners: Sequence[int], device: torch.device | str) -> Rows | None:
        """``owners``: for each prefix the number of its sentence; None if prefix i belongs to sentence i.

        >>> Rows.of([0, 0, 1], "cpu")
        Rows(grid=tensor([[0, 1],
                [2, 0]]), cell=tensor([0, 1, 2]))
        """
        owner = np.array(owners, np.int64)
        if np.array_equal(owner, np.arange(len(owner))):
            return None
        order, counts = np.argsort(owner, kind="stable"), np.bincount(owner)
        most = int(counts.max())
        place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # among those of the sentence
        cell = np.empty_like(owner)
        cell[order] = owner[order] * most + place
        grid = np.zeros((len(counts), most), np.int64)
        grid.flat[cell] = np.arange(len(owner))
        return cls(torch.from_numpy(grid).to(device), torch.from_numpy(cell).to(device))


class Memory(NamedTuple):
    """The encoded sources; dimension 0 of every tensor is the sentence."""

    values: Tensor
    """[B, S, H] the values that attention averages."""
    keys: Tensor
    """[B, S, A] the keys that attention compares with queries, computed once per sentence."""
    mask: Tensor
    """[B, S] true at source tokens, false at padding."""
    first: Tensor
    """[B, ...] data for `Seq2Seq.start`."""
    rows: Rows | None = None
    """The sentence of each prefix, for `Seq2Seq.step`; None: prefix i belongs to sentence i."""
    shared: tuple[tuple[Tensor, Tensor], ...] = ()
    """Keys and values [heads, B, S, D] of each layer that attends to the source, for `Seq2Seq.step_sharing`."""

    def at(self, sentences: Tensor | slice) -> Memory:
        """The memory of some sentences in the given order; a sentence may be given more than once."""
        return Memory(self.values[sentences], self.keys[sentences], self.mask[sentences], self.first[sentences])


class SharedEntries(NamedTuple):
    """The source, or one history, for R prefixes, of which those of a sentence share entries; see
    `sgdec.models.decoding_attention`."""

    keys: Tensor
    """[heads, B, L, D]; in a history the last ``most`` places of each sentence are room for the tokens that a step
    consumes."""
    values: Tensor
    """[heads, B, L, D]"""
    mask: Tensor
    """[B, most or 1, L] 0 where a prefix sees an entry, its own room included, -inf elsewhere."""
    rows: Rows | None
    """The sentence of each prefix; None: prefix i belongs to sentence i."""


class Correspondence(NamedTuple):
    """The parameters of a translation model that correspond to those of a language model."""

    names: Mapping[str, str]
    """Regular expressions for names in the language model, and templates for `re.Match.expand` that give the names in
    the translation model. Every parameter of the language model must match one expression."""
    wider: str = r"(?!)"
    """A regular expression for matrices of the translation model that may read additional inputs: the language
    model's matrix fills their first columns."""


class Refusal(NamedTuple):
    """A setting of ``sgdec train`` that a class of models does not support."""

    setting: str
    """The name of a field of `sgdec.training.TrainConfig`."""
    why: str
    """The reason, which follows the model's name in the message: ``has no source``."""
    value: Any = None
    """The refused value; None = every value except the default."""
    instead: str = ""
    """The value to use instead; empty = leave the setting out."""


@dataclass(frozen=True)
class ModelContext:
    """Facts that the framework passes to a model's constructor; they are not options."""

    source_vocab_size: int
    """0 for a `LanguageModel`."""
    target_vocab_size: int
    shared: bool = False
    """Whether source and target have the same vocabulary."""


class Model(nn.Module, ABC):
    """The base class of both kinds of models.

    A subclass of either kind has a constructor ``__init__(self, context: ModelContext, ...)``. The other parameters
    of the constructor, typed and described, are the model's options (``--gnmt.width 512``). `presets` may name sets
    of options. A constructor must not read the values of parameters, because a checkpoint is first compared with a
    model without values (`sgdec.models.shapes`).
    """

    kind: ClassVar[str]
    """The kind of model in words, for messages."""
    sources: ClassVar[int] = 0
    """The number of sources. Two are one sequence of tokens with ``</s>`` between (`sgdec.text.two_sources`)."""
    steps: ClassVar[bool] = False
    """Whether the last target token is the step of a monotone attention (`sgdec.text.steps`)."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    replaced: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the names of parameters that `freeze` passes to `Kernels.bounded` and does not use afterwards."""
    int8_by_row: bool = False
    """Whether a frozen model may compute all its products in 8 bits, with a range for each row of inputs."""
    kernels: Kernels | None = None
    """The kernels of a frozen model, if its users need to know them."""
    histories: int = 0
    """The number of tensors at the end of a state that are histories [R, T, ...]. A step appends one entry per row.
    If prefixes of different lengths share a batch, shorter histories are padded in front with arbitrary finite
    numbers. Therefore a model with histories must count the entries of each row."""
    history_heads: int = 0
    """If prefixes can share the entries of histories in a step (`Seq2Seq.step_sharing`): the number of heads whose
    keys and values are in an entry; 0 = they cannot."""

    @property
    def packed(self) -> bool:
        """Whether a frozen model computes all products with weights with its kernels; PyTorch's LSTMs have their own.
        """
        return not any(isinstance(module, nn.LSTM) for module in self.modules())

    @classmethod
    def refusals(cls) -> Iterator[Refusal]:
        """The training settings that this class of models does not support.

        An override begins with ``yield from super().refusals()``. If options of the model itself exclude each other,
        its constructor raises UsageError; it is called before any text is read.
        """
        yield from ()

    @abstractmethod
    def project(self, output: Tensor) -> Tensor:
        """The logits [..., V] of outputs [..., H]."""

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The linear layer of `project` (weight [V, H], bias [V]), and the bound to which it clips logits, or None.

        For callers that compute only some logits or initialise the layer. Raises UsageError if a model does not have
        a linear output layer, or has it only in 8 bits.
        """
        raise UsageError(
            f"{type(self).__name__} has no output layer in floating point: its vocabulary cannot be reduced, and "
            "training cannot start from given weights or a bias. Use the predictor nmt, or leave the option out."
        )

    def embedding_layer(self, side: str) -> nn.Embedding:
        """The embeddings [V, E] of the ``source`` or the ``target``, for callers that initialise them.

        Raises UsageError if a model has none.
        """
        layer = getattr(self, f"{side}_embedding", None)
        if not isinstance(layer, nn.Embedding):
            raise UsageError(f"{type(self).__name__} has no {side} embeddings to initialise. Leave the option out.")
        return layer

    def bias_output(self, log_probabilities: Tensor) -> None:
        """Initialise the output bias with these scores [V] of target tokens.

        Otherwise the first training steps saturate whole layers to distinguish frequent from rare tokens, and a
        saturated recurrent encoder does not learn attention. Raises UsageError as `output_layer` does.
        """
        layer, _ = self.output_layer()
        with torch.no_grad():
            layer.bias.copy_(log_probabilities)

    def anneal(self, update: float, last: int) -> None:
        """Change what the model varies during training; called before each ``update``, from 0 to ``last``.

        ``update`` is infinite if a trained model is refined. ``last`` may change when a run is resumed; the model
        must not go back to an earlier stage then.
        """

    @property
    def unsettled(self) -> str | None:
        """A description of what `anneal` has not finished yet, for a message; None if the model is settled.

        The first checkpoint of a settled model counts as better than all earlier ones, and patience starts with it.
        """
        return None

    def freeze(self, kernels: Kernels) -> None:
        """Use matrix products that ``kernels`` makes from the final parameters, in all predictions from now on.

        A model that does not override this method does not change, and cannot be quantised.
        """


class Seq2Seq(Model):
    """A model P(target | source), one target token at a time."""

    kind = "translation model"
    sources = 1
    language_models: ClassVar[Mapping[str, Correspondence]] = {}
    """The language models that a decoder can start from, by name (`sgdec.training.run.pretrained`)."""

    @classmethod
    def refusals(cls) -> Iterator[Refusal]:
        yield from super().refusals()
        if cls.steps:
            yield Refusal("right_left", "moves through the source from left to right")
            yield Refusal("source_noise_kind", "steps over each source token", "deletion", instead="unknown")
            yield Refusal(
                "objective", "predicts steps between tokens, which GLEU would count as words", instead="ml"
            )
        if cls.sources > 1:
            why = "reads two sources, and a short one would lose all its tokens"
            yield Refusal("source_noise_kind", why, "deletion", instead="unknown")
        if cls.steps or cls.sources > 1:
            yield Refusal("edit_weight", "cannot align target tokens with the tokens of one source")

    @abstractmethod
    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Encode source tokens [B, S] without ``<s>`` and ``</s>``; beyond the ``lengths`` [B] >= 1 is padding."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The states before the first token, one row per sentence; the first token consumed is ``<s>``."""

    @abstractmethod
    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[State, Tensor, Tensor]:
        """Consume one token per prefix [R]; returns the new states, the output [R, H] and the attention [R, S].

        ``memory.rows`` assigns prefixes to sentences. `project` turns the output into the scores of the next token.
        The attention is the one that predicts that next token.
        """

    def prepare(self, memory: Memory) -> Memory:
        """The memory of a batch of sentences with all that `step_sharing` needs, called once for many steps."""
        return memory

    def step_sharing(
        self, memory: Memory, state: State, histories: Sequence[SharedEntries], tokens: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        """As `step`, if `history_heads` is not 0, for a memory from `prepare` and histories outside of ``state``.

        The new state ends with the new entries alone, [R, 1, ...] for each history.
        """
        raise NotImplementedError

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        """The outputs [B, T, H] of all steps, for target prefixes ``<s> y_1 ... y_{T-1}`` [B, T].

        The default is the loop over `step`. A model that can compute all steps at once overrides this method, and
        the result must be equal to that of the loop.
        """
        memory = self.encode(source, lengths)
        state, outputs = self.start(memory), []
        for tokens in target_in.unbind(1):
            state, output, _ = self.step(memory, state, tokens)
            outputs.append(output)
        return torch.stack(outputs, 1)


class LanguageModel(Model):
    """A model P(target), one token at a time, without a source."""

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
        """The states of ``rows`` prefixes before the first token; the first token consumed is ``<s>``."""

    @abstractmethod
    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        """Consume one token per prefix [R]; returns the new states and the output [R, H].

        `project` turns the output into the scores of the next token.
        """

    def forward(self, target_in: Tensor) -> Tensor:
        """The outputs [B, T, H] for the prefixes ``<s> y_1 ... y_{T-1}`` [B, T]; see `Seq2Seq.forward`."""
        state, outputs = self.start(len(target_in)), []
        for tokens in target_in.unbind(1):
            state, output = self.step(state, tokens)
            outputs.append(output)
        return torch.stack(outputs, 1)

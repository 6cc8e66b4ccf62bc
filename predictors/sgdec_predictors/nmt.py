"""Neural machine translation: log P(token | prefix, source) of a trained model (Stahlberg et al. 2017, Table 1).

The model can be any translation model of `sgdec train`; several entries form an ensemble. If its source vocabulary is
not the run's (inside a wrapper such as `fsttok`), it encodes the source text itself. A model with weight 0 adds
nothing to totals and only provides its attention, for coverage penalties and ``--copy-unknown``.

`initialize_batch` runs the encoder and feeds ``<s>``, `consume_batch` is one inference step, `predict_batch` projects
and normalises. A state is a handle of a slot in one pool of tensors, and its sentence; it keeps no other data alive.

Cost: one inference step per consumed token, one softmax over V per prediction, many rows at once; on a GPU a step is
a recorded graph (`sgdec.models.cuda_graphs`). In a deterministic run sentences share only the matrix products
(`sgdec.models.jointly`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import Field

import sgdec
from sgdec import BOS, BatchPredictor, Context, Scores, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.protocol import Candidates
from sgdec.slots import PrefixPool, Trail
from sgdec_predictors.wrapping.own_sources import in_own_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.base import Memory, Seq2Seq
    from sgdec.models.cuda_graphs import Step
    from sgdec.models.jointly import Stopwatch
    from sgdec.models.kernels import MatrixProducts
Found = TypeVar("Found")

HISTORY_BLOCK = 16
"""When steps are recorded by shape, a model's histories are padded to multiples of this many entries."""


class Sentence(NamedTuple):
    """One encoded source, without padding."""

    values: Tensor
    """``[S, H]``"""
    keys: Tensor
    """``[S, A]``"""
    first: Tensor
    tokens: tuple[int, ...]
    """The source, in the tokens of the model."""


class NmtState(NamedTuple):
    """One prefix."""

    trail: Trail
    """The slot of the decoder's state and of the output whose projection scores the next token."""
    sentence: Sentence
    attention: Tensor
    """Attention ``[rows, source]`` of the step that made this state."""
    row: int
    """The row of `attention` with which the next token is predicted."""


class NmtPredictor(BatchPredictor):
    """A sequence-to-sequence model from `sgdec train`."""

    max_score = 0.0

    def __init__(
        self,
        model: Annotated[str, Field(description="checkpoint folder, such as 'run/best'")],
        context: Context | None = None,
    ) -> None:
        from sgdec.checkpoints.loading import load_model

        context = context or Context()
        module, self.vocabularies = context.once(
            ("nmt", os.path.realpath(model)),
            partial(
                load_model,
                model,
                device=context.device,
                precision=context.precision,
                host=context.host,
                joint=context.deterministic,
            ),
        )
        self._model: Seq2Seq = module
        self._step: Step = module.step
        self._pool = PrefixPool(module.histories, heads=module.history_heads)
        self._graphed = context.device.startswith("cuda") and not context.deterministic
        if self._graphed:
            from sgdec.models.cuda_graphs import GraphedStep

            self._step = GraphedStep(module.step)
            self._pool = PrefixPool(module.histories, block=HISTORY_BLOCK)
        self._watch: Stopwatch | None = None
        self._device, self._precision = context.device, context.precision
        self._source_size = self.vocabularies.source.size if self.vocabularies.source else 0
        self._run_source = context.vocabularies.source
        self._batch: tuple[list[Sentence], Memory] | None = None

    @classmethod
    def read_vocabularies(cls, model: str) -> Vocabularies:
        """The vocabularies of a checkpoint, without loading its weights."""
        from sgdec.checkpoints.layout import load_vocabularies

        return load_vocabularies(model)

    @cached_property
    def independent_rows(self) -> bool:  # type: ignore[override]  # found when it is first read
        """True in a deterministic run, unless this machine's products prevent it."""
        from sgdec.models.jointly import JointKernels

        return isinstance(self._model.kernels, JointKernels) and self._model.kernels.independent()

    def initialize_batch(self, sources: Sequence[Source]) -> list[NmtState]:
        sources = in_own_tokens(sources, self._run_source, self.vocabularies.source)
        for source in sources:
            self._check(source)
        parts = self._in_parts(self._begin, range(len(sources)), sources)
        return [state for part in parts for state in part]

    def predict_batch(
        self, states: Sequence[NmtState], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        import torch

        parts = self._in_parts(self._predict, [id(state.sentence) for state in states], states)
        return Scores.dense(parts[0] if len(parts) == 1 else torch.cat(parts))

    def consume_batch(self, states: Sequence[NmtState], tokens: Sequence[int]) -> list[NmtState]:
        parts = self._in_parts(self._consume, [id(state.sentence) for state in states], states, tokens)
        return [state for part in parts for state in part]

    def attention(self, states: Sequence[NmtState]) -> list[Any]:
        """For each state the attention ``[source]`` at the prediction of its next token."""
        blocks = {id(state.attention): state.attention for state in states}
        rows = {name: block.double().cpu().numpy() for name, block in blocks.items()}
        return [rows[id(state.attention)][state.row, : len(state.sentence.values)] for state in states]

    def length_limit(self, source: Source) -> None:
        """None: a translation is as long as a multiple of its source."""

    def summary(self) -> str | None:
        """The line at the end of a run: the cost of being deterministic."""
        return f"deterministic: {self._watch}" if self._watch is not None else None

    @property
    def products(self) -> MatrixProducts:
        """How the model's products are computed here."""
        from sgdec.models.kernels import MatrixProducts

        return MatrixProducts(self._precision, self._device, self._model.packed)

    def _in_parts(self, work: Callable[..., Found], sentences: Sequence[int], *columns: Sequence[Any]) -> list[Found]:
        """``work(*columns)`` at once; in a deterministic run separately for consecutive rows of one sentence."""
        import torch

        with torch.inference_mode():
            if not self.independent_rows:
                return [work(*columns)]
            from sgdec.models.jointly import Stopwatch, jointly

            self._watch = self._watch or Stopwatch()
            starts = [i for i, sentence in enumerate(sentences) if i == 0 or sentence != sentences[i - 1]]
            places = [slice(*ends) for ends in pairwise([*starts, len(sentences)])]
            return jointly([partial(work, *(column[place] for column in columns)) for place in places], self._watch)

    def _begin(self, sources: Sequence[Source]) -> list[NmtState]:
        """The states after ``<s>``."""
        import torch

        lengths = torch.tensor([len(source.tokens) for source in sources])
        tokens = torch.zeros(len(sources), int(lengths.max()), dtype=torch.long)  # [sentences, longest]
        for row, source in zip(tokens, sources, strict=True):
            row[: len(source.tokens)] = torch.tensor(source.tokens)
        memory = self._model.encode(tokens.to(self._device), lengths)
        first = torch.full((len(sources),), BOS, device=self._device)
        step = self._model.step(memory, self._model.start(memory), first)
        sentences = [
            Sentence(values[:length].clone(), keys[:length].clone(), first.clone(), source.tokens)
            for values, keys, first, length, source in zip(
                memory.values, memory.keys, memory.first, lengths.tolist(), sources, strict=True
            )
        ]
        return self._states(sentences, None, *step)

    def _predict(self, states: Sequence[NmtState]) -> Tensor:
        """Scores ``[rows, V]``."""
        return self._log_probabilities(self._outputs(states))

    def _consume(self, states: Sequence[NmtState], tokens: Sequence[int]) -> list[NmtState]:
        import torch

        from sgdec.models.base import SharedEntries
        from sgdec.models.decoding_attention import additive

        sentences = [state.sentence for state in states]
        memory, owners = self._memory(sentences)
        before, read = [state.trail for state in states], torch.tensor(tokens, device=self._device)
        if self._graphed or not self._model.history_heads:
            step = self._step(memory, self._pool.states(before), read)
        else:
            own, entries, seen = self._pool.shared(before, owners)
            mask = additive(torch.from_numpy(seen).to(self._device), entries[0][0].dtype)
            histories = [SharedEntries(*each, mask, memory.rows) for each in entries]
            step = self._model.step_sharing(memory, own, histories, read)
        return self._states(sentences, before, *step)

    def _outputs(self, states: Sequence[NmtState]) -> Tensor:
        """``[rows, H]``: the outputs that the model projects to the scores of the next token."""
        return self._pool.outputs([state.trail for state in states])

    def _log_probabilities(self, output: Tensor) -> Tensor:
        """``[rows, V]`` of outputs ``[rows, H]``; in fp32 or more, also for models in lower precision."""
        import torch

        logits = self._model.project(output)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)

    def _states(
        self,
        sentences: Sequence[Sentence],
        before: Sequence[Trail] | None,
        state: tuple[Tensor, ...],
        output: Tensor,
        attention: Tensor,
    ) -> list[NmtState]:
        trails = self._pool.put(state, output, before)
        return [
            NmtState(trail, sentence, attention, row)
            for row, (trail, sentence) in enumerate(zip(trails, sentences, strict=True))
        ]

    def _memory(self, sentences: Sequence[Sentence]) -> tuple[Memory, list[int]]:
        """The encoded sources, each once, cached as long as they are the same; the number of each row's source."""
        from sgdec.models.base import Rows

        ids = list(map(id, sentences))
        unique = dict(zip(ids, sentences, strict=True))
        if self._batch is None or list(map(id, self._batch[0])) != list(unique):
            memory = _batch([*unique.values()])
            self._batch = [*unique.values()], memory if self._graphed else self._model.prepare(memory)
        places = {sentence: place for place, sentence in enumerate(unique)}
        owners = [places[sentence] for sentence in ids]
        return self._batch[1]._replace(rows=Rows.of(owners, self._device)), owners

    def _check(self, source: Source) -> None:
        if not source.tokens:
            raise SgdecError("the source is empty; a translation model needs at least one token.")
        for token in source.tokens:
            if not 0 <= token < self._source_size:
                raise SgdecError(
                    f"source token {token} is outside the model's source vocabulary 0..{self._source_size - 1}."
                )


def _batch(sentences: Sequence[Sentence]) -> Memory:
    """``[sentences, longest source, ...]``; the padding of shorter ones is masked."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from sgdec.models.base import Memory

    values = pad_sequence([sentence.values for sentence in sentences], batch_first=True)
    keys = pad_sequence([sentence.keys for sentence in sentences], batch_first=True)
    lengths = torch.tensor([len(sentence.values) for sentence in sentences], device=values.device)
    mask = torch.arange(values.shape[1], device=values.device) < lengths[:, None]
    return Memory(values, keys, mask, torch.stack([sentence.first for sentence in sentences]))


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"nmt": NmtPredictor}

"""The two modes of `luong`; `luong.py` compares them in a table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sgdec.models.base import Model
from sgdec.training.data.batch import TrainingBatch, take
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.luong import LuongStages
from sgdec.training.parallel.strategy import Loss
from sgdec.training.parallel.wavefront import Packed


class LuongModel(LuongStages):
    """Figure 2: attention and softmax are on a separate rank."""

    mode = "model"
    formula = (
        "2 K [(W-1)(n+m) + (m-B if fed)] numbers forward and backward: n, m tokens, B sentences, K width, W ranks"
    )

    def __init__(self, group: ProcessGroup, model: Model, loss: Loss) -> None:
        self.stack_ranks, self.attention_rank = group.size - 1, group.size - 1
        super().__init__(group, model, loss)

    def ranks_of(self, name: str) -> tuple[int, ...]:
        return (self.attention_rank,)

    def forward(self, batch: TrainingBatch) -> Tensor | None:
        source, target = self.packed(batch)
        if self.group.rank == self.attention_rank:
            return self._answer(batch, source, target)
        _, starts = self.encode(source, target)
        if not self.decoder.input_feeding:
            self.decode(target, starts)
        else:
            for states in self.decode_fed(target, starts):
                self.to_above(states)
        return None

    def _answer(self, batch: TrainingBatch, source: Packed, target: Packed) -> Tensor:
        """The loss by equations 1 to 6, from the states that the rank below sends."""
        assert batch.lengths is not None
        values = torch.cat([self.from_below(sum(sizes)) for sizes in source.chunks(self.steps)])
        memory = self.remember(source, values, batch.lengths)
        if self.decoder.input_feeding:
            outputs = self.attend_fed((self.from_below(rows) for rows in target.sizes), memory, target)
            outputs = self.decoder.dropout(outputs)
        else:
            states = torch.cat([self.from_below(sum(sizes)) for sizes in target.chunks(self.steps)])
            outputs = target.pack(self.decoder.attend(target.pad(states), memory))
        weights = None if batch.weights is None else target.pack(batch.weights)
        return self.nll(outputs, target.pack(batch.target_out), weights)

    def expected(self, batches: Sequence[TrainingBatch]) -> dict[str, float]:
        rank, last, forward, backward = self.group.rank, self.attention_rank, 0, 0
        for batch in batches:
            sources, targets, fed = sizes_of(batch)
            if rank < last:
                forward += (sources + targets) * self.width
            if rank > 0:
                backward += (sources + targets) * self.width
            if self.decoder.input_feeding:
                forward += fed * self.width * (rank == last)
                backward += fed * self.width * (rank == 0)
        return self.both_ways(forward, backward) | self.expected_besides(batches)


class LuongHybrid(LuongStages):
    """Figure 3; with input feeding, HybridNMTIF."""

    mode = "hybrid"
    formula = (
        "2 K [(W-1)(n+m) + (n+m-own, fed m-own) + (m-B if fed)] numbers forward and backward: n, m tokens, own: the "
        "top rank's, B sentences, K width, W ranks; 2 (W-1) x parameters of attention (unless fed) and softmax"
    )

    def __init__(self, group: ProcessGroup, model: Model, loss: Loss) -> None:
        self.stack_ranks, self.attention_rank = group.size, group.size - 1
        super().__init__(group, model, loss)

    def ranks_of(self, name: str) -> tuple[int, ...]:
        if self.decoder.input_feeding and not name.startswith("softmax"):
            return (self.attention_rank,)
        return tuple(range(self.group.size))

    def forward(self, batch: TrainingBatch) -> Tensor | None:
        source, target = self.packed(batch)
        if self.decoder.input_feeding:
            return self._forward_fed(batch, source, target)
        values, starts = self.encode(source, target)
        states = self.decode(target, starts)
        owners, rank = self._owners(target), self.group.rank
        if rank == self.top:
            rows_of = source.of_sentences(owners), target.of_sentences(owners)
            self._hand_out((torch.cat(values), torch.cat(states)), rows_of)
        own = (owners == rank).nonzero()[:, 0].tolist()
        return self._answer(take(batch, own)) if own else None

    def _owners(self, target: Packed) -> Tensor:
        """[B] the rank of each sentence: sentences are dealt to the ranks in turn, the longest first."""
        return target.places % self.group.size

    def _hand_out(self, states: tuple[Tensor, Tensor], owners: tuple[Tensor, Tensor]) -> None:
        """Send S and H [rows, width] of its sentences to each rank, as one message.

        ``states``: S and H; ``owners``: the rank of each of their rows [rows].
        """
        for rank in range(self.group.size):
            own = [(whose == rank).nonzero()[:, 0].to(self.group.device) for whose in owners]
            if len(own[0]):
                self.transfers.send(torch.cat([part[rows] for part, rows in zip(states, own, strict=True)]), rank)

    def _answer(self, own: TrainingBatch) -> Tensor:
        """The loss of this rank's sentences, by equations 1 to 6."""
        assert own.lengths is not None
        source, target = self.packed(own)
        rows = self.transfers.receive((len(source) + len(target), self.width), self.top)
        values, states = torch.split(rows, [len(source), len(target)])
        outputs = self.decoder.attend(target.pad(states), self.remember(source, values, own.lengths))
        weights = None if own.weights is None else own.weights[own.mask]
        return self.nll(outputs[own.mask], own.target_out[own.mask], weights)

    def _forward_fed(self, batch: TrainingBatch, source: Packed, target: Packed) -> Tensor | None:
        assert batch.lengths is not None
        values, starts = self.encode(source, target)
        steps, rank = self.decode_fed(target, starts), self.group.rank
        parts = [self._tokens_of(len(target), rank) for rank in range(self.group.size)]
        if rank < self.top:
            for states in steps:
                self.to_above(states)
        else:
            memory = self.remember(source, torch.cat(values), batch.lengths)
            outputs = self.attend_fed(steps, memory, target)
            for to, part in enumerate(parts):
                if part.stop > part.start:
                    self.transfers.send(outputs[part], to)
        own = parts[rank]
        if own.stop == own.start:
            return None
        outputs = self.transfers.receive((own.stop - own.start, self.width), self.top)
        weights = None if batch.weights is None else target.pack(batch.weights)[own]
        return self.nll(self.decoder.dropout(outputs), target.pack(batch.target_out)[own], weights)

    def _tokens_of(self, tokens: int, rank: int) -> slice:
        """With input feeding: the target tokens whose softmax a rank computes."""
        return slice(tokens * rank // self.group.size, tokens * (rank + 1) // self.group.size)

    def expected(self, batches: Sequence[TrainingBatch]) -> dict[str, float]:
        rank, forward, backward = self.group.rank, 0, 0
        for batch in batches:
            sources, targets, fed = sizes_of(batch)
            if self.decoder.input_feeding:
                part = self._tokens_of(targets, rank)
                shared, own = targets, part.stop - part.start
                forward += fed * self.width * (rank == self.top)
                backward += fed * self.width * (rank == 0)
            else:
                assert batch.lengths is not None
                mine = (self._owners(Packed(batch.target_in, batch.mask.sum(1))) == rank).nonzero()[:, 0]
                shared, own = sources + targets, int(batch.lengths[mine].sum() + batch.mask[mine].sum())
            if rank < self.top:
                forward += (sources + targets) * self.width
                backward += own * self.width
            else:
                forward += (shared - own) * self.width
            if rank > 0:
                backward += (sources + targets) * self.width
        return self.both_ways(forward, backward) | self.expected_besides(batches)


def sizes_of(batch: TrainingBatch) -> tuple[int, int, int]:
    """The numbers of source tokens, of target tokens, and of target tokens whose H_c is fed to the next step."""
    assert batch.lengths is not None
    targets = int(batch.mask.sum())
    return int(batch.lengths.sum()), targets, targets - len(batch.mask)

"""Model parallelism for `gnmt`: layers by depth, a softmax partitioned over symbols (Wu et al. 2016, section 3.3).

Encoder and decoder layers of the same depth are on the same rank. The bottom encoder layer reads in both directions,
so the layers above it start only after it has ended. The stacks above run as wavefronts (`wavefront.py`). The output
of the top encoder layer is sent to rank 0, because attention belongs to the bottom decoder layer. Every decoder layer
reads the attention contexts, so they are sent upwards together with the outputs of the layers. The output of the top
decoder layer is sent to all ranks, each of which computes the logits of V / W symbols (`partitioned.py`).

Numbers sent, for n source and m target tokens, W ranks, LSTMs of width K, and encoder outputs of width M (K, or 2 K
if the encoder has only the bottom layer). All except the last row are sent back as gradients:

| what | how many |
|---|---|
| encoder, upwards | n K, or 2 n K above the bottom layer, from each rank that has encoder layers above it |
| encoder output, to rank 0 | n M, unless the top encoder layer is on rank 0 |
| decoder, upwards | (W-1) m (K + M) |
| decoder output, to all ranks | (W-1) m K |
| softmax | 4 m, summed over all ranks: 2 (W-1) 4 m |

Experimental: tried on the CPUs of one machine, never on several GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sgdec.errors import UsageError
from sgdec.models.base import Memory, Model
from sgdec.models.gnmt import GAMMA, GNMT
from sgdec.models.gnmt_products import FIRST_RESIDUAL
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.parallel.group import ProcessGroup, ring
from sgdec.training.parallel.partitioned import SOFTMAX, SUMS, partitioned_nll
from sgdec.training.parallel.placement import DevicePlace
from sgdec.training.parallel.staged import Staged
from sgdec.training.parallel.strategy import Loss
from sgdec.training.parallel.wavefront import LayerRun, Packed, pack_chunk, pad_chunk, spread

Run = tuple[int, LayerRun]
"""The depth of a layer, from 0, and its run."""


class GNMTModel(Staged):
    """``--parallel model`` for `gnmt`: layers by depth."""

    mode = "model"
    formula = (
        "2 [n K per link of the encoder, 2 n K above its bottom, n M to rank 0, (W-1) m (2 K + M)] numbers forward "
        "and backward: n, m tokens, K width, M encoder's output, W ranks; softmax 2 (W-1) 4 m"
    )
    counts_everywhere = False

    def __init__(self, group: ProcessGroup, model: Model, loss: Loss) -> None:
        gnmt = cast(GNMT, model)
        depth = max(len(gnmt.encoder), len(gnmt.decoder))
        self.gnmt, self.layers = gnmt, spread(depth, group.size, "--parallel model: gnmt's")
        self.own = self.layers[group.rank]
        self.rank_of = [rank for rank, depths in enumerate(self.layers) for _ in depths]
        self.encoder_top, self.decoder_top = (self.rank_of[len(s) - 1] for s in (gnmt.encoder, gnmt.decoder))
        self.memory_width = gnmt.key.in_features  # M
        super().__init__(group, model, loss)

    def place(self) -> dict[str, DevicePlace]:
        if self.gnmt.softmax.weight is self.gnmt.target_embedding.weight:
            raise UsageError(
                "--parallel model: gnmt's output layer is partitioned over symbols and cannot be tied to embeddings. "
                "Give --gnmt.tied none, or --parallel data."
            )

        def place_of(name: str) -> DevicePlace:
            if name.startswith("softmax."):
                return DevicePlace(tuple(range(self.group.size)), split=True)
            stack, _, rest = name.partition(".")
            return DevicePlace((self.rank_of[int(rest.partition(".")[0])] if stack in ("encoder", "decoder") else 0,))

        return {name: place_of(name) for name, _ in self.model.named_parameters()}

    def forward(self, batch: TrainingBatch) -> Tensor:
        assert batch.source is not None and batch.lengths is not None
        source, target = Packed(batch.source, batch.lengths), Packed(batch.target_in, batch.mask.sum(1))
        starts = self._encode(source, target)
        memory = self._receive_memory(source, target) if self.group.first else None
        outputs = self._decode(target, starts, memory)
        return self._nll(outputs, batch, target)

    def _encode(self, source: Packed, target: Packed) -> dict[int, tuple[Tensor, Tensor]]:
        """Run this rank's encoder layers.

        Returns the states m and c [B, width] from which the decoder layers start, by depth.
        """
        rank, rows = self.group.rank, len(source.order)
        zeros = self._zeros(rows)
        last: dict[int, tuple[Tensor, Tensor]] = {}
        if rank > self.encoder_top:
            return last
        bottom = self._bottom_layer(source, last) if self.group.first else None
        runs = [
            (depth, LayerRun(cast(nn.LSTM, self.gnmt.encoder[depth]), (zeros, zeros), self.gnmt.delta))
            for depth in self.own
            if 0 < depth < len(self.gnmt.encoder)
        ]
        done, first = [], 0
        for sizes in source.chunks(self.steps):
            number = sum(sizes)
            if bottom is None:
                x = self.transfers.receive((number, self._width_above(self.own.start - 1)), rank - 1)
            else:
                x = bottom[first : first + number]
            x = self._through(runs, x, None, sizes)
            done.append(x)
            first += number
            if rank < self.encoder_top:
                self.transfers.send(x, rank + 1)
        if rank == self.encoder_top:
            self.transfers.send(torch.cat(done), 0)
        last.update({depth: run.last() for depth, run in runs})
        order = source.places[target.order].to(zeros.device)
        return {depth: (hidden[order], cell[order]) for depth, (hidden, cell) in last.items()}

    def _bottom_layer(self, source: Packed, last: dict[int, tuple[Tensor, Tensor]]) -> Tensor:
        """The outputs [rows, 2 width] of the bidirectional bottom layer; stores its last states in ``last``."""
        gnmt, same = self.gnmt, torch.arange(len(source.order), device=self.group.device)
        x = gnmt.dropout(gnmt.source_embedding(source.tokens))
        output, hidden, cell = gnmt.encoder_layer(0, PackedSequence(x, source.batch_sizes, same, same))
        last[0] = hidden, cell
        return output.data

    def _receive_memory(self, source: Packed, target: Packed) -> Memory:
        """On rank 0: the attention memory of the encoded sources, in the order of the targets."""
        rows = self.transfers.receive((len(source), self.memory_width), self.encoder_top)
        values = source.pad(rows)[target.order.to(self.group.device)]  # [B, S, M]
        lengths = source.lengths[source.places[target.order]].to(values.device)
        mask = torch.arange(source.steps, device=values.device) < lengths[:, None]
        return Memory(values, self.gnmt.key(values), mask, values.new_zeros(len(values), 0))

    def _decode(
        self, target: Packed, starts: dict[int, tuple[Tensor, Tensor]], memory: Memory | None
    ) -> Tensor | None:
        """Run this rank's decoder layers. Returns the outputs [rows, width] on the top rank, None elsewhere."""
        gnmt, rank, zeros = self.gnmt, self.group.rank, self._zeros(len(target.order))
        if rank > self.decoder_top:
            return None
        runs = []
        for depth in self.own:
            if depth < len(gnmt.decoder):
                start = starts.get(depth, (zeros, zeros)) if gnmt.bridge else (zeros, zeros)
                runs.append((depth, LayerRun(cast(nn.LSTM, gnmt.decoder[depth]), start, gnmt.delta)))
        words = None if memory is None else gnmt.target_embedding(target.tokens)
        done, first = [], 0
        for sizes in target.chunks(self.steps):
            number = sum(sizes)
            if memory is None:
                below = self.transfers.receive((number, gnmt.width + self.memory_width), rank - 1)
                x, context = torch.split(below, [gnmt.width, self.memory_width], -1)
                x = self._through(runs, x, context, sizes)
            else:
                assert words is not None
                x = runs[0][1](gnmt.dropout(words[first : first + number]), sizes)
                context = self._attend(x, memory, sizes)
                x = self._through(runs[1:], x, context, sizes)
            if rank < self.decoder_top:
                self.transfers.send(torch.cat([x, context.to(x.dtype)], -1), rank + 1)
            done.append(x)
            first += number
        return gnmt.dropout(torch.cat(done)) if rank == self.decoder_top else None

    def _attend(self, query: Tensor, memory: Memory, sizes: Sequence[int]) -> Tensor:
        """The attention contexts [rows, M] of a chunk, for queries [rows, width]."""
        contexts, _ = self.gnmt.attend(pad_chunk(query, sizes), memory.at(slice(0, sizes[0])))
        return pack_chunk(contexts, sizes)

    def _through(self, runs: Sequence[Run], x: Tensor, context: Tensor | None, sizes: Sequence[int]) -> Tensor:
        """The outputs [rows, width] of some layers above the bottom one, for a chunk."""
        for depth, run in runs:
            below = x if context is None else torch.cat([x, context], -1)
            hidden = run(self.gnmt.dropout(below), sizes)
            x = self.gnmt.clip(hidden + x) if depth >= FIRST_RESIDUAL else hidden
        return x

    def _nll(self, outputs: Tensor | None, batch: TrainingBatch, target: Packed) -> Tensor:
        """The loss of a batch, the same on every rank."""
        everywhere = self.transfers.broadcast(outputs, (len(target), self.gnmt.width), self.decoder_top)
        logits = F.linear(everywhere, self.owned["softmax.weight"], self.owned["softmax.bias"])
        if self.gnmt.constrained:
            logits = logits.clamp(-GAMMA, GAMMA)  # equation 13
        symbols = len(self.gnmt.softmax.bias)
        own, targets = self.places["softmax.bias"].rows(symbols, self.group.rank), target.pack(batch.target_out)
        losses = partitioned_nll(logits, targets, own, symbols, self.transfers, self.objective.label_smoothing)
        return losses.sum() if batch.weights is None else (losses * target.pack(batch.weights)).sum()

    def _width_above(self, depth: int) -> int:
        """The width of the outputs of an encoder layer."""
        return self.gnmt.width * (2 if depth == 0 else 1)

    def _zeros(self, rows: int) -> Tensor:
        return torch.zeros(rows, self.gnmt.width, dtype=self._dtype(), device=self.group.device)

    def expected(self, batches: Sequence[TrainingBatch]) -> dict[str, float]:
        rank, width, together = self.group.rank, self.gnmt.width, width_of_step(self.gnmt)
        forward = backward = 0.0
        targets = 0
        for batch in batches:
            assert batch.lengths is not None
            n, m = int(batch.lengths.sum()), int(batch.mask.sum())
            targets += m
            if rank < self.encoder_top:
                forward += n * self._width_above(self.own.stop - 1)
            elif rank == self.encoder_top and rank > 0:
                forward += n * self.memory_width
            if 0 < rank <= self.encoder_top:
                backward += n * self._width_above(self.own.start - 1)
            if rank == 0 < self.encoder_top:
                backward += n * self.memory_width
            forward += m * together * (rank < self.decoder_top)
            backward += m * together * (0 < rank <= self.decoder_top)
            forward += m * width * (self.group.size - 1) * (rank == self.decoder_top)
            backward += m * width * (rank != self.decoder_top)
        size = max(4, self.objective.dtype.itemsize)  # bf16 logits are summed in fp32
        sums = {SOFTMAX: ring(self.group.size, targets * (1 + SUMS) * size)}
        return self.both_ways(forward, backward) | sums | self.expected_besides(batches)


def width_of_step(gnmt: GNMT) -> int:
    """The width of what one decoder layer sends to the next: x and the context."""
    return gnmt.width + gnmt.key.in_features

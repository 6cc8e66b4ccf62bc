"""Model and hybrid parallelism for `luong`: Ono et al. 2019, sections 3.1 (model) and 3.2 (hybrid), Figures 2 and 3.

Encoder and decoder layers of the same depth are on the same rank, so the decoder layer starts from the encoder
layer's last state without sending it. Rank 0, at the bottom, embeds the words; the rank at the top computes the
states S of the encoder and H of the decoder. Both stacks run as wavefronts (`wavefront.py`). Then:

| mode | ranks with layers | S and H are sent | attention and softmax | gradients of attention and softmax |
|---|---|---|---|---|
| model | all but the last | to the last rank | on the last rank | stay on the last rank |
| hybrid | all | to all ranks, by sentences | on every rank, for its sentences | are summed over all ranks |

With input feeding, the decoder's steps are sequential: the rank of the attention sends H_c of a step to rank 0 before
the next step can begin (Figure 2). Hybrid with input feeding is the paper's HybridNMTIF, which the paper does not
describe in detail. Here the top rank computes attention. The next step does not need the softmax, so its target
tokens are shared among all ranks.

Numbers sent, for n source and m target tokens, B sentences, W ranks, and LSTMs of width K. All are sent back as
gradients. "own" stands for the tokens that the top rank keeps:

| what | model | hybrid |
|---|---|---|
| states, upwards | (W-1)(n+m) K | (W-1)(n+m) K |
| S and H of the other ranks' sentences | | (n+m-own) K, with input feeding (m-own) K |
| H_c of all steps but each sentence's last, with input feeding | (m-B) K | (m-B) K |

Experimental: tried on the CPUs of one machine, never on several GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.base import Memory
from sgdec.models.encoder_decoder import Encoded
from sgdec.models.lstm_stack import LSTMEncoder, single_layers
from sgdec.models.luong import Luong, LuongDecoder
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.parallel.placement import DevicePlace
from sgdec.training.parallel.staged import Staged
from sgdec.training.parallel.wavefront import LayerRun, Packed, spread
from sgdec.training.validation import summed_nll

Start = tuple[Tensor, Tensor]
"""m and c [B, width] before a layer's first step."""


class LuongStages(Staged):
    """The base class of both modes: the stacks, and attention step by step."""

    stack_ranks: int
    """The number of ranks, from 0 on, that have layers; the last of them is the top rank."""
    attention_rank: int
    """The rank that computes attention if there is input feeding."""

    def place(self) -> dict[str, DevicePlace]:
        model, rank = cast(Luong, self.model), self.group.rank
        if not isinstance(model.encoder, LSTMEncoder):
            raise UsageError(
                f"--parallel {self.mode}: only an encoder that is a stack of LSTMs can be spread over ranks. "
                "Give --luong.encoder lstm, or --parallel data."
            )
        self.luong, self.decoder = model, cast(LuongDecoder, model.decoder)
        self.width, self.top = self.decoder.width, self.stack_ranks - 1
        layers = spread(
            self.decoder.layers,
            self.stack_ranks,
            f"--parallel {self.mode}: luong's",
            self.group.size - self.stack_ranks,
        )
        own = slice(layers[rank].start, layers[rank].stop) if rank <= self.top else slice(0, 0)
        self.encoder_layers = single_layers(model.encoder.lstm)[own]
        self.decoder_layers = single_layers(self.decoder.stack.lstm)[own]
        rank_of = [rank for rank, depths in enumerate(layers) for _ in depths]

        def place_of(name: str) -> DevicePlace:
            if name.startswith(("source_embedding", "target_embedding")):
                return DevicePlace((0,))
            if ".lstm." in name:
                return DevicePlace((rank_of[int(name.rpartition("_l")[2])],))
            return DevicePlace(self.ranks_of(name))

        places = {name: place_of(name) for name, _ in model.named_parameters()}
        for name, parameter in model.named_parameters():
            if parameter is model.softmax.weight:  # tied to embeddings, which rank 0 looks up
                tied = parameter is model.target_embedding.weight
                places[name] = DevicePlace(tuple(sorted({*self.ranks_of("softmax"), *([0] if tied else [])})))
        return places

    def ranks_of(self, name: str) -> tuple[int, ...]:
        """The ranks that hold a parameter of attention or softmax."""
        raise NotImplementedError

    def encode(self, source: Packed, target: Packed) -> tuple[list[Tensor], list[Start]]:
        """Run this rank's encoder layers.

        Returns the top one's outputs in chunks [rows, width], and the state from which each decoder layer starts.
        """
        model, zeros = self.luong, self.zeros(len(source.order))
        runs = [LayerRun(layer, (zeros, zeros)) for layer in self.encoder_layers]
        outputs = self.climb(source, runs, self.enter(source, model.source_embedding, model.source_words))
        if not self.decoder.bridge:
            return outputs, [(zeros, zeros)] * len(runs)
        order = source.places[target.order].to(zeros.device)
        return outputs, [(hidden[order], cell[order]) for hidden, cell in (run.last() for run in runs)]

    def decode(self, target: Packed, starts: Sequence[Start]) -> list[Tensor]:
        """Run this rank's decoder layers without input feeding; returns the outputs in chunks [rows, width]."""
        runs, model = self.decoder_runs(starts), self.luong
        return self.climb(target, runs, self.enter(target, model.target_embedding, model.target_words))

    def decode_fed(self, target: Packed, starts: Sequence[Start]) -> Iterator[Tensor]:
        """Run this rank's decoder layers with input feeding; yields the output [rows, width] of each step."""
        runs, model = self.decoder_runs(starts), self.luong
        embedded = self.enter(target, model.target_embedding, model.target_words)
        words = [None] * len(target.sizes) if embedded is None else list(torch.split(embedded, target.sizes))
        for step, (rows, word) in enumerate(zip(target.sizes, words, strict=True)):
            if word is None:
                x = self.from_below(rows)
            else:
                fed = self.transfers.receive((rows, self.width), self.attention_rank) if step else self.zeros(rows)
                x = torch.cat([word, fed], -1)
            for run in runs:
                x = run(self.decoder.stack.dropout(x), [rows])
            yield x

    def decoder_runs(self, starts: Sequence[Start]) -> list[LayerRun]:
        """A `LayerRun` for each decoder layer of this rank."""
        return [LayerRun(layer, start) for layer, start in zip(self.decoder_layers, starts, strict=True)]

    def climb(self, sentences: Packed, runs: Sequence[LayerRun], embedded: Tensor | None) -> list[Tensor]:
        """Run all chunks through this rank's layers; returns the outputs in chunks [rows, width].

        ``embedded``: the words [rows, E] on rank 0, None on other ranks.
        """
        done, first = [], 0
        for sizes in sentences.chunks(self.steps):
            rows = sum(sizes)
            x = self.from_below(rows) if embedded is None else embedded[first : first + rows]
            for run in runs:
                x = run(self.decoder.stack.dropout(x), sizes)
            self.to_above(x)
            done.append(x)
            first += rows
        return done

    def enter(self, sentences: Packed, embedding: nn.Module, words: nn.Module) -> Tensor | None:
        """The input [rows, E] of the bottom layer on rank 0; None on other ranks."""
        if not self.group.first:
            return None
        embedded: Tensor = words(embedding(sentences.tokens))
        return embedded

    def from_below(self, rows: int) -> Tensor:
        """Receive the outputs [rows, width] of the rank below."""
        return self.transfers.receive((rows, self.width), self.group.rank - 1)

    def to_above(self, x: Tensor) -> None:
        """Send outputs to the rank above, if there is one."""
        if self.group.rank + 1 < self.group.size:
            self.transfers.send(x, self.group.rank + 1)

    def attend_fed(self, states: Iterator[Tensor], memory: Memory, target: Packed) -> Tensor:
        """Compute H_c of all steps [rows, width], and send it to rank 0 after each step.

        ``states``: H of each step [rows, width]; ``memory`` is in the batch's order of sentences.
        """
        memory, outputs = memory.at(target.order.to(memory.values.device)), []
        for step, (rows, hidden) in enumerate(zip(target.sizes, states, strict=True)):
            if rows < len(memory.values):
                memory = memory.at(slice(0, rows))
            output = self.decoder.attentional(hidden[:, None], memory)[:, 0]
            if step + 1 < len(target.sizes):
                self.transfers.send(output[: target.sizes[step + 1]], 0)
            outputs.append(output)
        return torch.cat(outputs)

    def remember(self, source: Packed, values: Tensor, lengths: Tensor) -> Memory:
        """The attention memory of the states S, ``values`` [rows, width]."""
        padded = source.pad(values)
        positions = torch.arange(source.steps, device=padded.device)
        return self.decoder.remember(Encoded(padded, positions < lengths.to(padded.device)[:, None]))

    def nll(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Equation 5: the summed loss of outputs [tokens, width]."""
        logits = self.luong.project(outputs)
        return summed_nll(logits, targets, weights, self.objective.label_smoothing)

    def zeros(self, rows: int) -> Tensor:
        """The zero state [rows, width] before the first step."""
        dtype = next(self.model.parameters()).dtype
        return torch.zeros(rows, self.width, dtype=dtype, device=self.group.device)

    def packed(self, batch: TrainingBatch) -> tuple[Packed, Packed]:
        """The packed sources and targets of a batch."""
        assert batch.source is not None and batch.lengths is not None
        return Packed(batch.source, batch.lengths), Packed(batch.target_in, batch.mask.sum(1))

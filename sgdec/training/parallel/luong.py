"""`luong` over several ranks: Ono et al. 2019, sections 3.1 (model parallelism) and 3.2 (hybrid), Figures 2 and 3.

Encoder and decoder layers of the same depth are on the same rank, where the one leaves the states from which the
other starts. Words enter at the bottom, on rank 0; the states S and H leave at the top. Both stacks are wavefronts
(`wavefront.py`). Then:

| mode | layers on | S and H go | attention and softmax | their gradients |
|---|---|---|---|---|
| model | all ranks but the last | to the last rank | on the last rank | stay there |
| hybrid | all ranks | by sentences to all ranks | on every rank, for its sentences | are summed over all ranks |

With input feeding the decoder's steps wait for each other: H_c of a step goes from the rank of the attention to rank
0 before the next step can begin (Figure 2). Hybrid then is the paper's HybridNMTIF, which it describes no further:
here the top rank attends, and what need not be known for the next step, the softmax, is shared among all ranks by
target tokens.

Numbers sent, for n source and m target tokens, B sentences, W ranks, K the LSTMs' width; all go back as gradients:

| what | model | hybrid |
|---|---|---|
| states, upwards | (W-1)(n+m) K | (W-1)(n+m) K |
| S and H of the sentences that are not the top rank's own | | (n+m-own) K, fed (m-own) K |
| H_c of all steps but the last of each sentence, where it is fed | (m-B) K | (m-B) K |

Experimental: tried on the CPUs of one machine, never on GPUs.
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
from sgdec.training.data.batch import Batch
from sgdec.training.parallel.placement import Place
from sgdec.training.parallel.staged import Staged
from sgdec.training.parallel.wavefront import LayerRun, Packed, spread
from sgdec.training.validation import summed_nll

Start = tuple[Tensor, Tensor]
"""m and c [B, width] before a layer's first step."""


class LuongStages(Staged):
    """What the modes have in common: the stacks, and attention step by step."""

    stack_ranks: int
    """How many ranks, from 0 on, have layers; the last of them is the top rank."""
    attention_rank: int
    """Who attends where steps wait for it."""

    def place(self) -> dict[str, Place]:
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

        def place_of(name: str) -> Place:
            if name.startswith(("source_embedding", "target_embedding")):
                return Place((0,))
            if ".lstm." in name:
                return Place((rank_of[int(name.rpartition("_l")[2])],))
            return Place(self.ranks_of(name))

        places = {name: place_of(name) for name, _ in model.named_parameters()}
        for name, parameter in model.named_parameters():
            if parameter is model.softmax.weight:  # tied to embeddings, which rank 0 looks up
                tied = parameter is model.target_embedding.weight
                places[name] = Place(tuple(sorted({*self.ranks_of("softmax"), *([0] if tied else [])})))
        return places

    def ranks_of(self, name: str) -> tuple[int, ...]:
        """Where a parameter of attention or softmax lives."""
        raise NotImplementedError

    def encode(self, source: Packed, target: Packed) -> tuple[list[Tensor], list[Start]]:
        """This rank's layers over the sources: chunks of its top one's outputs; where its decoder layers start."""
        model, zeros = self.luong, self.zeros(len(source.order))
        runs = [LayerRun(layer, (zeros, zeros)) for layer in self.encoder_layers]
        outputs = self.climb(source, runs, self.enter(source, model.source_embedding, model.source_words))
        if not self.decoder.bridge:
            return outputs, [(zeros, zeros)] * len(runs)
        order = source.places[target.order].to(zeros.device)
        return outputs, [(hidden[order], cell[order]) for hidden, cell in (run.last() for run in runs)]

    def decode(self, target: Packed, starts: Sequence[Start]) -> list[Tensor]:
        """The same over the targets, without input feeding."""
        runs, model = self.decoder_runs(starts), self.luong
        return self.climb(target, runs, self.enter(target, model.target_embedding, model.target_words))

    def decode_fed(self, target: Packed, starts: Sequence[Start]) -> Iterator[Tensor]:
        """The same step by step, with input feeding: [rows, width]."""
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
        """The decoder's layers of this rank."""
        return [LayerRun(layer, start) for layer, start in zip(self.decoder_layers, starts, strict=True)]

    def climb(self, sentences: Packed, runs: Sequence[LayerRun], embedded: Tensor | None) -> list[Tensor]:
        """A wave through this rank's layers; ``embedded`` [rows, E] at the bottom, elsewhere None."""
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
        """What the bottom layer reads, [rows, E], on rank 0."""
        if not self.group.first:
            return None
        embedded: Tensor = words(embedding(sentences.tokens))
        return embedded

    def from_below(self, rows: int) -> Tensor:
        """[rows, width] of the rank below."""
        return self.transfers.receive((rows, self.width), self.group.rank - 1)

    def to_above(self, x: Tensor) -> None:
        """To the rank above, if there is one."""
        if self.group.rank + 1 < self.group.size:
            self.transfers.send(x, self.group.rank + 1)

    def attend_fed(self, states: Iterator[Tensor], memory: Memory, target: Packed) -> Tensor:
        """Step by step, feeding rank 0: H_c of all steps [rows, width]. ``memory`` is in the order of sentences."""
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
        """What attention needs, of S [rows, width]."""
        padded = source.pad(values)
        positions = torch.arange(source.steps, device=padded.device)
        return self.decoder.remember(Encoded(padded, positions < lengths.to(padded.device)[:, None]))

    def nll(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Equation 5, of outputs [tokens, width]: a sum."""
        logits = self.luong.project(outputs)
        return summed_nll(logits, targets, weights, self.objective.label_smoothing)

    def zeros(self, rows: int) -> Tensor:
        """A state before the first step."""
        dtype = next(self.model.parameters()).dtype
        return torch.zeros(rows, self.width, dtype=dtype, device=self.group.device)

    def packed(self, batch: Batch) -> tuple[Packed, Packed]:
        """Sources and targets."""
        assert batch.source is not None and batch.lengths is not None
        return Packed(batch.source, batch.lengths), Packed(batch.target_in, batch.mask.sum(1))

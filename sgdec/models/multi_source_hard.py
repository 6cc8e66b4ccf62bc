"""Dual soft attention, and monotone hard attention to the second source: Marian, section 3.2, after
Junczys-Dowmunt and Grundkiewicz 2017.

The model is `multi-source`, except that its decoder reads [y_{t-1}; h_{a_t}] instead of y_{t-1}. h are the outputs of
the second encoder, and a_t is the position of `hard-attention` in the second source. The model is for post-editing:
the first source is the original text, and the second is the translation to correct, which the output follows from
left to right.

Cost of a step per row: that of `multi-source`, plus 6 width^2 multiplications.
"""

from __future__ import annotations

from torch import Tensor

from sgdec import hookimpl
from sgdec.models.base import Memory, Model
from sgdec.models.hard_attention import Monotone
from sgdec.models.multi_source import MultiSource, of_second


class MultiSourceHard(Monotone, MultiSource):
    """A model whose decoder attends to two sources, and moves through the second from left to right.

    >>> import torch
    >>> from sgdec.models.base import ModelContext
    >>> model = MultiSourceHard(ModelContext(source_vocab_size=20, target_vocab_size=30), width=8, embedding=6)
    >>> source, lengths, step = torch.tensor([[5, 6, 2, 8, 9]]), torch.tensor([5]), 29
    >>> model.positions(model.encode(source, lengths), torch.tensor([[1, 9, step, 8, step]])).tolist()
    [[3, 3, 4, 4, 4]]
    """

    def span(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """The first and the last position [B] of the second source."""
        last = memory.mask.sum(1) - 1
        return last - of_second(memory).sum(1) + 1, last


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"multi-source-hard": MultiSourceHard}

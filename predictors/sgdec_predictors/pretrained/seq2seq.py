"""The prefixes of encoder-decoder models: sources are encoded once, and the decoder reads one token at a time."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from sgdec.errors import UsageError
from sgdec.models.decoding_attention import additive
from sgdec_predictors.pretrained.layers import Crossed
from sgdec_predictors.pretrained.prefixes import EncodedSentence, Prefix, Prefixes


class Translations(Prefixes):
    """The prefixes of an encoder-decoder model."""

    def __init__(
        self,
        module: Any,
        first: Sequence[int],
        *,
        together: bool = True,
        shared_in: torch.dtype | None = None,
        attention: int | None = None,
    ) -> None:
        """``first``: the ids with which each output begins. ``attention``: the layer whose attention is kept."""
        super().__init__(module, together=together, shared_in=shared_in)
        self._first = first
        self._attention = attention
        self._positions = RowPositions.into(module.get_decoder())
        self._batch: tuple[list[EncodedSentence], list[Crossed]] = [], []
        """The sentences of the rows of the last step, and their keys and values."""

    @property
    def _pads(self) -> bool:
        return self._positions is not None

    def begin(self, sources: Sequence[Sequence[int]]) -> list[Prefix]:
        """The sources are encoded, and all first tokens but the last are read. Sources have at least one token."""
        batches = [list(sources)] if self._together else [[source] for source in sources]
        sentences = [sentence for batch in batches for sentence in self._encode(batch)]
        prefixes = [Prefix(sentence, self._first[0]) for sentence in sentences]
        for id in self._first[1:]:
            prefixes = self.after(prefixes, [id] * len(prefixes))
        return prefixes

    def _encode(self, sources: Sequence[Sequence[int]]) -> list[EncodedSentence]:
        lengths = torch.tensor(list(map(len, sources)), device=self.device)
        ids = pad_sequence([torch.tensor(source) for source in sources], batch_first=True).to(self.device)
        mask = torch.arange(ids.shape[1], device=self.device) < lengths[:, None]
        encoded = self.module.get_encoder()(input_ids=ids, attention_mask=mask.long())
        cache = EncoderDecoderCache(self._empty(), DynamicCache())
        first = torch.full((len(sources), 1), self._first[0], device=self.device)
        self.module(  # for the keys and values alone, which depend on the source only
            decoder_input_ids=first, encoder_outputs=encoded, attention_mask=mask.long(), past_key_values=cache,
            use_cache=True,
        )  # fmt: skip
        layers = [(layer.keys, layer.values) for layer in cache.cross_attention_cache.layers]
        return [
            EncodedSentence([
                tuple(part[i, :, :n].to(self.kept_in, copy=True) for part in layer)
                for layer in layers
            ])
            for i, n in enumerate(map(len, sources))
        ]

    def _forward(
        self,
        prefixes: Sequence[Prefix],
        sentences: Sequence[EncodedSentence],
        cache: Cache,
        lengths: Tensor,
        mask: Tensor | None,
    ) -> Any:
        there = self._there(sentences)
        source = additive(there, self.kept_in)[:, None, None] if self.shares else there.long()
        crossed = DynamicCache()
        crossed.layers += self._crossed(list(sentences))
        given: dict[str, Any] = {}
        if self._positions is not None:
            given["decoder_attention_mask"] = mask
            self._positions.rows = lengths
        if self._attention is not None:
            given["output_attentions"] = True
        hidden = torch.empty(1, 1, 1, dtype=self.module.dtype, device=self.device)  # its shape alone is used
        try:
            return self.module(
                decoder_input_ids=torch.tensor([[prefix.token] for prefix in prefixes], device=self.device),
                encoder_outputs=BaseModelOutput(last_hidden_state=hidden.expand(len(prefixes), source.shape[-1], 1)),
                attention_mask=source,
                past_key_values=EncoderDecoderCache(cache, crossed),
                use_cache=True,
                **given,
            )
        finally:
            if self._positions is not None:
                self._positions.rows = None

    def _there(self, sentences: Sequence[EncodedSentence]) -> Tensor:
        """``[sentences, S]``: which places have a token of the source."""
        sizes = torch.tensor([sentence.cross[0][0].shape[1] for sentence in sentences], device=self.device)
        return torch.arange(int(sizes.max()), device=self.device) < sizes[:, None]

    def _crossed(self, sentences: list[EncodedSentence]) -> list[Crossed]:
        """The keys and values of these sources; kept as long as they are the same."""
        if self._batch[0] != sentences:
            layers = []
            for parts in zip(*(sentence.cross for sentence in sentences), strict=True):
                sides = [_by_head(side) for side in zip(*parts, strict=True)]
                layers.append(Crossed(*sides))
            self._batch = sentences, layers
        return self._batch[1]

    def _attention_of(self, output: Any) -> Tensor | None:
        if self._attention is None:
            return None
        layers = len(output.cross_attentions)
        if not -layers <= self._attention < layers:
            raise UsageError(f"hf: no layer {self._attention} of attention: the decoder has {layers} layers.")
        attention: Tensor = output.cross_attentions[self._attention][:, :, -1].mean(dim=1)
        return attention


def _by_head(sources: Sequence[Tensor]) -> Tensor:
    """``[B, heads, S, d]`` of keys or values ``[heads, own S, d]``; in memory the heads are first."""
    heads, _, size = sources[0].shape
    found = sources[0].new_zeros(heads, len(sources), max(source.shape[1] for source in sources), size)
    for place, source in enumerate(sources):
        found[:, place, : source.shape[1]] = source
    return found.transpose(0, 1)


class RowPositions:
    """Position embeddings of a decoder whose rows have positions of their own."""

    def __init__(self, embed: nn.Module) -> None:
        self._embed: Any = embed
        self._plain = embed.forward
        self.rows: Tensor | None = None
        """The position of the one token of each row, ``[rows]``; None = as the model has it."""

    @classmethod
    def into(cls, decoder: nn.Module) -> RowPositions | None:
        """Take over the forward pass of a decoder's position embeddings, whose weights stay where they are; None if
        they cannot be asked for positions.

        Most take ``position_ids``; M2M100 has a table that grows. T5 has none: its attention depends on distances,
        which padding does not change.
        """
        embed: Any = getattr(decoder, "embed_positions", None)
        if embed is None:
            relative = hasattr(getattr(decoder, "config", None), "relative_attention_num_buckets")
            return cls(nn.Identity()) if relative else None
        if isinstance(taken := getattr(embed.forward, "__self__", None), cls):
            return taken
        if not hasattr(embed, "make_weights") and "position_ids" not in inspect.signature(embed.forward).parameters:
            return None
        found = cls(embed)
        embed.forward = found.forward
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        if self.rows is None:
            found: Tensor = self._plain(*args, **kwargs)
            return found
        if hasattr(self._embed, "make_weights"):
            padding = self._embed.padding_idx
            last = self._plain(*args, **kwargs)  # the table grows to the longest prefix
            found = self._embed.weights[self.rows + padding + 1].view_as(last)
            found = torch.where((args[0] == padding)[..., None], last, found)  # a pad has no position
        else:
            found = self._plain(self.rows[:, None], 0, position_ids=self.rows)
        return found.reshape(len(self.rows), 1, -1)

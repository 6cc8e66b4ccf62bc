"""The memory of models of transformers: keys, values and states of many prefixes, in slots that prefixes share.

Keys and values are stored once for each token: prefixes with a common beginning share its slots. The states of
recurrent layers have one slot for each prefix. One step of the model reads the last tokens of any prefixes, of any
sentences and lengths: what they remember is gathered from the slots, and shorter prefixes are padded on the left.

The padding is masked, so that it changes only the rounding. It needs models that take the position of each
row. Where a model does not, rows of equal length are read together; rows of recurrent models need no padding.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    LinearAttentionLayer,
)
from transformers.modeling_outputs import BaseModelOutput

from sgdec.errors import SgdecError, UsageError
from sgdec.pretrained.layers import Carried, Crossed, Gathered, carried_parts
from sgdec.slots import Slot, SlotPool

Row = TypeVar("Row")


@dataclass(eq=False)
class Sentence:
    """The data that all prefixes of one sentence share."""

    cross: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """By layer of a decoder: keys and values ``[S, heads, d]`` of the encoded source."""


@dataclass(eq=False, slots=True)
class Read:
    """The memory of one token that the model has read."""

    past: Slot | None
    """Its keys and values; None without attention layers."""
    carried: Slot | None
    """The states of recurrent layers after it; None without such layers."""
    attention: Tensor | None
    """``[S]``: the mean attention of one layer to the source, where it is asked for."""


@dataclass(eq=False, slots=True)
class Prefix:
    """The tokens so far, of which the model reads the last one when the next is predicted."""

    sentence: Sentence
    token: int
    """The last token, as the model's id."""
    before: int = 0
    """The number of tokens before it."""
    past: tuple[Slot, ...] = ()
    """Their keys and values; empty without attention layers."""
    carried: Slot | None = None
    """The states of recurrent layers after them."""
    read: Read | None = None
    """The memory of the last token, once it has been read."""


class Prefixes(ABC):
    """A model, and what it remembers."""

    def __init__(self, module: Any, *, together: bool = True) -> None:
        """``together``: whether sentences can share a step; otherwise rounding depends on one sentence alone."""
        self.module = module
        self.device = module.device
        self._together = together
        self._takes = set(inspect.signature(module.forward).parameters)
        self._cache_name = "past_key_values" if "past_key_values" in self._takes else "cache_params"
        self._past, self._carried = SlotPool(), SlotPool()
        self._kinds = [type(layer) for layer in self._empty().layers]
        """By layer; unknown before a decoder of an encoder has read something."""
        self._recurrent: list[LinearAttentionLayer] = []
        """Layers that have read something: they know the shapes of their states."""

    @property
    def used(self) -> int:
        """The number of slots in use."""
        return self._past.used + self._carried.used

    @abstractmethod
    def begin(self, sources: Sequence[Sequence[int]]) -> list[Prefix]:
        """The first prefixes of sentences, of the ids that their model reads first."""

    def logits(self, prefixes: Sequence[Prefix]) -> Tensor:
        """The logits ``[rows, V]`` of the next tokens."""
        return torch.stack(self._in_groups(self._step, prefixes, self._kind))

    def after(self, prefixes: Sequence[Prefix], ids: Iterable[int]) -> list[Prefix]:
        """The prefixes with one more token each."""
        unread = [prefix for prefix in prefixes if prefix.read is None]
        if unread:
            self.logits(list(dict.fromkeys(unread)))
        return [self._longer(prefix, id) for prefix, id in zip(prefixes, ids, strict=True)]

    def attention(self, prefixes: Sequence[Prefix]) -> list[Tensor]:
        """For each prefix the attention ``[S]`` at the prediction of its next token."""
        unread = [prefix for prefix in prefixes if prefix.read is None]
        if unread:
            self.logits(list(dict.fromkeys(unread)))
        return [prefix.read.attention for prefix in prefixes]  # type: ignore[union-attr, misc]

    @property
    @abstractmethod
    def _pads(self) -> bool:
        """Whether prefixes of different length can be read together."""

    @abstractmethod
    def _forward(self, prefixes: Sequence[Prefix], cache: Cache, lengths: Tensor, longest: int) -> Any:
        """The model's output for the last tokens.

        ``cache`` has ``longest`` places for each row, of which the last ``lengths`` ``[rows]`` are its own.
        """

    def _longer(self, prefix: Prefix, id: int) -> Prefix:
        read = prefix.read
        assert read is not None
        past = prefix.past if read.past is None else (*prefix.past, read.past)
        return Prefix(prefix.sentence, id, prefix.before + 1, past, read.carried)

    def _in_groups(
        self, work: Callable[[list[Prefix]], Iterable[Row]], prefixes: Sequence[Prefix], kind: Callable[[Prefix], int]
    ) -> list[Row]:
        """``work`` for all prefixes of one kind at once; its rows in the order of ``prefixes``."""

        def group(row: int) -> tuple[int, int]:
            return 0 if self._together else id(prefixes[row].sentence), kind(prefixes[row])

        found: dict[int, Row] = {}
        for _, rows in groupby(sorted(range(len(prefixes)), key=group), group):
            places = list(rows)
            found.update(zip(places, work([prefixes[row] for row in places]), strict=True))
        return [found[row] for row in range(len(prefixes))]

    def _kind(self, prefix: Prefix) -> int:
        """Prefixes of one kind can be read together."""
        if LinearAttentionLayer not in self._kinds:
            return 0 if self._pads else prefix.before
        return prefix.before if DynamicLayer in self._kinds else prefix.carried is None

    def _step(self, prefixes: list[Prefix]) -> Tensor:
        """Read the last tokens; the logits ``[rows, V]``."""
        counts = [prefix.before for prefix in prefixes]
        longest = max(counts)
        cache = self._gathered(prefixes, longest) if longest else self._empty()
        lengths = torch.tensor(counts, device=self.device)
        output = self._forward(prefixes, cache, lengths, longest)
        self._remember(prefixes, cache, self._attention_of(output))
        logits: Tensor = output.logits[:, -1]
        return logits

    def _attention_of(self, output: Any) -> Tensor | None:
        """``[rows, S]``"""
        return None

    def _empty(self) -> DynamicCache:
        """The cache of nothing. Layers with a window keep all their tokens; their masks know the window."""
        if self.module.config.is_encoder_decoder:  # its config need not tell how many layers the decoder has
            return DynamicCache()
        cache = DynamicCache(config=self.module.config)
        for place, layer in enumerate(cache.layers):
            if type(layer) is DynamicSlidingWindowLayer:
                cache.layers[place] = DynamicLayer()
            elif type(layer) not in (DynamicLayer, LinearAttentionLayer):
                raise SgdecError(
                    f"hf: models of the architecture {self.module.config.model_type} remember tokens in a form "
                    f"({type(layer).__name__}) that cannot be shared by prefixes. Give another model."
                )
        return cache

    def _gathered(self, prefixes: Sequence[Prefix], longest: int) -> DynamicCache:
        """The cache of what the prefixes remember, with room for one token each."""
        kept: list[Tensor] = []
        if DynamicLayer in self._kinds:
            filler = next(slot for prefix in prefixes for slot in prefix.past)
            slots: list[Slot] = []
            for prefix in prefixes:
                slots += (filler,) * (longest - len(prefix.past))
                slots += prefix.past
                slots.append(filler)  # the room
            shape = len(prefixes), longest + 1
            kept = [part.view(*shape, *part.shape[1:]).transpose(1, 2) for part in self._past.get(slots)]
        carried: list[Tensor] = []
        if self._recurrent:
            carried = list(self._carried.get([prefix.carried for prefix in prefixes]))  # type: ignore[misc]
        cache = DynamicCache()
        recurrent = iter(self._recurrent)
        for kind in self._kinds:
            if kind is DynamicLayer:
                cache.layers.append(Gathered(kept.pop(0), kept.pop(0)))
            else:
                like = next(recurrent)
                parts = [carried.pop(0) for _ in carried_parts(like)]
                cache.layers.append(Carried(like, parts))
        return cache

    def _remember(self, prefixes: Sequence[Prefix], cache: DynamicCache, attention: Tensor | None) -> None:
        """Store what the model remembers of the tokens that it has read."""
        layers = cache.layers
        self._kinds = self._kinds or [type(layer) for layer in layers]
        attending = [layer for layer in layers if isinstance(layer, DynamicLayer)]
        recurrent = [layer for layer in layers if isinstance(layer, LinearAttentionLayer)]
        past: Sequence[Slot | None] = [None] * len(prefixes)
        carried: Sequence[Slot | None] = [None] * len(prefixes)
        if attending:
            past = self._past.put([part[:, :, -1] for layer in attending for part in (layer.keys, layer.values)])
        if recurrent:
            carried = self._carried.put([part for layer in recurrent for part in carried_parts(layer)])
            self._recurrent = recurrent
        for row, prefix in enumerate(prefixes):
            if prefix.read is None:
                prefix.read = Read(past[row], carried[row], None if attention is None else attention[row].clone())


class Continuations(Prefixes):
    """The prefixes of a causal model: a sentence begins with its prompt, and a prefix has the prompt's tokens too."""

    @property
    def _pads(self) -> bool:
        return "position_ids" in self._takes and LinearAttentionLayer not in self._kinds

    def begin(self, sources: Sequence[Sequence[int]]) -> list[Prefix]:
        """All tokens of each prompt but the last are read at once. Prompts have at least one token."""
        first = [Prefix(Sentence(), source[-1], len(source) - 1) for source in sources]
        prompts = {id(prefix): source[:-1] for prefix, source in zip(first, sources, strict=True)}

        def read(group: list[Prefix]) -> list[Prefix]:
            self._read_prompts(group, [prompts[id(prefix)] for prefix in group])
            return group

        longer = [prefix for prefix in first if prefix.before]
        self._in_groups(read, longer, lambda prefix: 0 if self._pads else prefix.before)
        return first

    def _read_prompts(self, prefixes: list[Prefix], prompts: list[Sequence[int]]) -> None:
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        mask = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        cache = self._empty()
        given: dict[str, Any] = {"input_ids": ids.to(self.device), self._cache_name: cache, "use_cache": True}
        if self._pads:
            given["attention_mask"] = mask.to(self.device)
        if "position_ids" in self._takes:
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0).to(self.device)
        if "logits_to_keep" in self._takes:
            given["logits_to_keep"] = 1
        self.module(**given)
        attending = [layer for layer in cache.layers if isinstance(layer, DynamicLayer)]
        self._recurrent = [layer for layer in cache.layers if isinstance(layer, LinearAttentionLayer)]
        if attending:
            used = mask.bool().to(self.device)  # [rows, longest]
            parts = [part.transpose(1, 2)[used] for layer in attending for part in (layer.keys, layer.values)]
            slots = iter(self._past.put(parts))
            for prefix, prompt in zip(prefixes, prompts, strict=True):
                prefix.past = tuple(next(slots) for _ in prompt)
        if self._recurrent:
            states = self._carried.put([part for layer in self._recurrent for part in carried_parts(layer)])
            for prefix, state in zip(prefixes, states, strict=True):
                prefix.carried = state

    def _forward(self, prefixes: Sequence[Prefix], cache: Cache, lengths: Tensor, longest: int) -> Any:
        ids = torch.tensor([[prefix.token] for prefix in prefixes], device=self.device)
        given: dict[str, Any] = {"input_ids": ids, self._cache_name: cache, "use_cache": True}
        if self._pads:
            given["attention_mask"] = _last(lengths + 1, longest + 1)
        if "position_ids" in self._takes:
            given["position_ids"] = lengths[:, None]
        return self.module(**given)


class Translations(Prefixes):
    """The prefixes of an encoder-decoder model."""

    def __init__(
        self, module: Any, first: Sequence[int], *, together: bool = True, attention: int | None = None
    ) -> None:
        """``first``: the ids with which each output begins. ``attention``: the layer whose attention is kept."""
        super().__init__(module, together=together)
        self._first = first
        self._attention = attention
        self._positions = RowPositions.into(module.get_decoder())
        self._batch: tuple[list[Sentence], list[Crossed]] = [], []
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

    def _encode(self, sources: Sequence[Sequence[int]]) -> list[Sentence]:
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
            Sentence([(keys[i, :, :n].transpose(0, 1).contiguous(), values[i, :, :n].transpose(0, 1).contiguous())
                      for keys, values in layers])
            for i, n in enumerate(map(len, sources))
        ]  # fmt: skip

    def _forward(self, prefixes: Sequence[Prefix], cache: Cache, lengths: Tensor, longest: int) -> Any:
        sentences = [prefix.sentence for prefix in prefixes]
        sizes = torch.tensor([len(sentence.cross[0][0]) for sentence in sentences], device=self.device)
        width = int(sizes.max())
        crossed = DynamicCache()
        crossed.layers += self._crossed(sentences)
        given: dict[str, Any] = {}
        if self._positions is not None:
            given["decoder_attention_mask"] = _last(lengths + 1, longest + 1)
            self._positions.rows = lengths
        if self._attention is not None:
            given["output_attentions"] = True
        hidden = torch.empty(1, 1, 1, dtype=self.module.dtype, device=self.device)  # its shape alone is used
        try:
            return self.module(
                decoder_input_ids=torch.tensor([[prefix.token] for prefix in prefixes], device=self.device),
                encoder_outputs=BaseModelOutput(last_hidden_state=hidden.expand(len(prefixes), width, 1)),
                attention_mask=(torch.arange(width, device=self.device) < sizes[:, None]).long(),
                past_key_values=EncoderDecoderCache(cache, crossed),
                use_cache=True,
                **given,
            )
        finally:
            if self._positions is not None:
                self._positions.rows = None

    def _crossed(self, sentences: list[Sentence]) -> list[Crossed]:
        """The keys and values of the sources of these rows; kept as long as the rows have the same."""
        if self._batch[0] != sentences:
            layers = []
            for parts in zip(*(sentence.cross for sentence in sentences), strict=True):
                sides = [
                    pad_sequence(list(side), batch_first=True).transpose(1, 2) for side in zip(*parts, strict=True)
                ]
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


def _last(lengths: Tensor, longest: int) -> Tensor:
    """A mask ``[rows, longest]`` with ones in the last places of each row."""
    return (torch.arange(longest, device=lengths.device) >= longest - lengths[:, None]).long()

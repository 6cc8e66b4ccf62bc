"""The memory of models of transformers: keys, values and states of many prefixes, in slots that prefixes share.

Keys and values are stored once for each token: prefixes with a common beginning share its slots. The states of
recurrent layers have one slot for each prefix. One step of the model reads the last tokens of any prefixes, of any
sentences and lengths: what they remember is gathered from the slots, and shorter prefixes are padded on the left.

The padding is masked, so that it changes only the rounding. It needs models that take the position of each
row: causal models with ``position_ids``, decoders whose embeddings `seq2seq.RowPositions` computes, and T5, which has
only distances. For other models, rows of equal length are read together; rows of recurrent models need no padding.
The last token of a prefix is read when the next one is predicted, so a state needs no logits.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)

from sgdec.errors import SgdecError
from sgdec.models.base import Rows
from sgdec.models.decoding_attention import additive
from sgdec.slots import Slot, SlotPool, Union
from sgdec_predictors.pretrained.layers import Carried, Gathered, carried_parts
from sgdec_predictors.pretrained.sharing import SharedByPrefixes, may_share, sharing

Row = TypeVar("Row")


@dataclass(eq=False)
class EncodedSentence:
    """The data that all prefixes of one sentence share."""

    cross: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """By layer of a decoder: keys and values ``[heads, S, d]`` of the encoded source."""


@dataclass(eq=False, slots=True)
class ReadPrefix:
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

    sentence: EncodedSentence
    token: int
    """The last token, as the model's id."""
    before: int = 0
    """The number of tokens before it."""
    past: tuple[Slot, ...] = ()
    """Their keys and values; empty without attention layers."""
    carried: Slot | None = None
    """The states of recurrent layers after them."""
    read: ReadPrefix | None = None
    """The memory of the last token, once it has been read."""


class Prefixes(ABC):
    """A model, and what it remembers."""

    def __init__(self, module: Any, *, together: bool = True, shared_in: torch.dtype | None = None) -> None:
        """``together``: whether sentences can share a step; otherwise rounding depends on one sentence alone.
        ``shared_in``: the precision of shared keys and values; None = that of the module."""
        self.module = module
        self.device = module.device
        self._together = together
        self._shares, self._shared_in = False, shared_in or module.dtype
        self._takes = set(inspect.signature(module.forward).parameters)
        self._cache_name = "past_key_values" if "past_key_values" in self._takes else "cache_params"
        self._past, self._carried = _keys_values(), SlotPool()
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
        self._require_read(prefixes)
        return [self._longer(prefix, id) for prefix, id in zip(prefixes, ids, strict=True)]

    def attention(self, prefixes: Sequence[Prefix]) -> list[Tensor]:
        """For each prefix the attention ``[S]`` at the prediction of its next token."""
        self._require_read(prefixes)
        return [prefix.read.attention for prefix in prefixes]  # type: ignore[union-attr, misc]  # now it is read

    @property
    def shares(self) -> bool:
        """Whether prefixes of a sentence share keys and values in a step; `probe` finds out."""
        return self._shares

    @shares.setter
    def shares(self, value: bool) -> None:
        self._shares, self._past = value, _keys_values()

    @property
    def kept_in(self) -> torch.dtype:
        """The precision in which keys and values are kept."""
        dtype: torch.dtype = self._shared_in if self._shares else self.module.dtype
        return dtype

    @property
    def may_share(self) -> bool:
        """Whether prefixes of a sentence might share keys and values in a step."""
        others = LinearAttentionLayer in self._kinds
        return self._pads and not others and may_share(self.module.config.get_text_config(decoder=True))

    @property
    @abstractmethod
    def _pads(self) -> bool:
        """Whether prefixes of different length can be read together."""

    @abstractmethod
    def _forward(
        self,
        prefixes: Sequence[Prefix],
        sentences: Sequence[EncodedSentence],
        cache: Cache,
        lengths: Tensor,
        mask: Tensor | None,
    ) -> Any:
        """The model's output for the last tokens, which follow ``lengths`` ``[rows]`` others.

        If prefixes share keys and values, ``sentences`` are those that have prefixes, and ``mask``, which is added to
        the scores of attention, is ``[B, 1, most, L]``. Otherwise there is a sentence for each row, and ``mask``
        ``[rows, L]`` has ones at the row's own places of the cache; None = the model needs none.
        """

    def _require_read(self, prefixes: Sequence[Prefix]) -> None:
        """Read the last tokens that have not been read."""
        unread = [prefix for prefix in dict.fromkeys(prefixes) if prefix.read is None]
        if unread:
            self.logits(unread)

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
        different = {prefix: row for row, prefix in enumerate(dict.fromkeys(prefixes))}
        if len(different) < len(prefixes):
            return self._step([*different])[[different[prefix] for prefix in prefixes]]
        counts = [prefix.before for prefix in prefixes]
        longest = max(counts)
        lengths = torch.tensor(counts, device=self.device)
        if self.shares:
            cache, output = self._step_sharing(prefixes, lengths, longest)
        else:
            cache = self._gathered(prefixes, longest) if longest else self._empty()
            mask = last_places(lengths + 1, longest + 1) if self._pads else None
            output = self._forward(prefixes, [prefix.sentence for prefix in prefixes], cache, lengths, mask)
        self._remember(prefixes, cache, self._attention_of(output))
        logits: Tensor = output.logits[:, -1]
        return logits

    def _step_sharing(self, prefixes: list[Prefix], lengths: Tensor, longest: int) -> tuple[DynamicCache, Any]:
        """The cache and the output of a step in which the prefixes of a sentence share keys and values."""
        places: dict[int, int] = {}
        owners = [places.setdefault(id(prefix.sentence), len(places)) for prefix in prefixes]
        trails: list[list[tuple[Slot, ...]]] = [[] for _ in places]
        sentences: list[EncodedSentence] = []
        for owner, prefix in zip(owners, prefixes, strict=True):
            if owner == len(sentences):
                sentences.append(prefix.sentence)
            trails[owner].append(prefix.past)
        if not longest:  # prefixes without tokens, one for each sentence
            cache, mask = self._empty(), torch.zeros(len(prefixes), 1, 1, 1, dtype=self.kept_in, device=self.device)
            with sharing(self.module.config, None):
                return cache, self._forward(prefixes, sentences, cache, lengths, mask)
        rows = Rows.of(owners, self.device)
        most = max(map(len, trails))
        union = Union.of(trails, room=most)
        shape = len(sentences), union.seen.shape[2]
        parts = [part.unflatten(1, shape) for part in self._past.get(union.slots)]
        cache = DynamicCache()
        cache.layers += [SharedByPrefixes(*pair, rows, longest) for pair in zip(parts[::2], parts[1::2], strict=True)]
        mask = additive(torch.from_numpy(union.seen).to(self.device), self.kept_in)[:, None]
        with sharing(self.module.config, rows):
            return cache, self._forward(prefixes, sentences, cache, lengths, mask)

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
            kept = [part.unflatten(1, shape).transpose(0, 1) for part in self._past.get(slots)]
        carried: list[Tensor] = []
        if self._recurrent:
            carried = list(self._carried.get([prefix.carried for prefix in prefixes]))  # type: ignore[misc]  # all read
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
            past = self._past.put([part.to(self.kept_in) for layer in attending for part in last_keys_values(layer)])
        if recurrent:
            carried = self._carried.put([part for layer in recurrent for part in carried_parts(layer)])
            self._recurrent = recurrent
        for row, prefix in enumerate(prefixes):
            if prefix.read is None:
                prefix.read = ReadPrefix(
                    past[row], carried[row], None if attention is None else attention[row].clone()
                )


def _keys_values() -> SlotPool:
    """A pool of keys and values ``[heads, slots, d]``."""
    return SlotPool(lambda tensor: True)


def last_keys_values(layer: DynamicLayer) -> tuple[Tensor, Tensor]:
    """The keys and values ``[heads, rows, d]`` of the last tokens."""
    if isinstance(layer, SharedByPrefixes):
        return layer.fed
    return layer.keys[:, :, -1].transpose(0, 1), layer.values[:, :, -1].transpose(0, 1)


def last_places(lengths: Tensor, longest: int) -> Tensor:
    """A mask ``[rows, longest]`` with ones in the last places of each row."""
    return (torch.arange(longest, device=lengths.device) >= longest - lengths[:, None]).long()

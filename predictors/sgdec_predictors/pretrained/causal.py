"""The prefixes of causal models: prompts are read at once, then one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionLayer

from sgdec_predictors.pretrained.layers import carried_parts
from sgdec_predictors.pretrained.prefixes import EncodedSentence, Prefix, Prefixes


class Continuations(Prefixes):
    """The prefixes of a causal model: a sentence begins with its prompt, and a prefix has the prompt's tokens too."""

    @property
    def _pads(self) -> bool:
        return "position_ids" in self._takes and LinearAttentionLayer not in self._kinds

    def begin(self, sources: Sequence[Sequence[int]]) -> list[Prefix]:
        """All tokens of each prompt but the last are read at once. Prompts have at least one token."""
        first = [Prefix(EncodedSentence(), source[-1], len(source) - 1) for source in sources]
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
            whole = [part for layer in attending for part in (layer.keys, layer.values)]
            parts = [part.transpose(1, 2)[used].transpose(0, 1).to(self.kept_in) for part in whole]
            slots = iter(self._past.put(parts))
            for prefix, prompt in zip(prefixes, prompts, strict=True):
                prefix.past = tuple(next(slots) for _ in prompt)
        if self._recurrent:
            states = self._carried.put([part for layer in self._recurrent for part in carried_parts(layer)])
            for prefix, state in zip(prefixes, states, strict=True):
                prefix.carried = state

    def _forward(
        self,
        prefixes: Sequence[Prefix],
        sentences: Sequence[EncodedSentence],
        cache: Cache,
        lengths: Tensor,
        mask: Tensor | None,
    ) -> Any:
        ids = torch.tensor([[prefix.token] for prefix in prefixes], device=self.device)
        given: dict[str, Any] = {"input_ids": ids, self._cache_name: cache, "use_cache": True}
        if mask is not None:
            given["attention_mask"] = mask
        if "position_ids" in self._takes:
            given["position_ids"] = lengths[:, None]
        return self.module(**given)

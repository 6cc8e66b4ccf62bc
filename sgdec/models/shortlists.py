"""Lexical shortlists: the output projection of a sentence computes the translations of its source tokens and the most
frequent tokens, and no others (Jean et al. 2015, section 3.3; Junczys-Dowmunt et al. 2018 have them in Marian).

`sgdec.estimation.lexicon` finds the translations, and `sgdec.checkpoints.shortlists` stores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgdec.context import EOS
from sgdec.models.active import ActiveProjection, ActiveSets, OutputLayer


@dataclass(frozen=True)
class Shortlist:
    """The likely translations of each source token, and the most frequent target tokens."""

    starts: Tensor
    """[S + 1] source token s has the translations from starts[s] to starts[s + 1] - 1"""
    tokens: Tensor
    """[n] translations, the most probable of each source token first"""
    frequent: Tensor
    """[f] the most frequent target tokens, the most frequent first"""
    vocab_size: int
    """V, the size of the target vocabulary"""

    @property
    def k(self) -> int:
        """The largest number of translations of a source token."""
        return int(self.starts.diff().max())

    def best(self, k: int) -> Shortlist:
        """The k most probable translations of each source token only."""
        rank = torch.arange(len(self.tokens)) - torch.repeat_interleave(self.starts[:-1], self.starts.diff())
        sets = ActiveSets(self.starts, self.tokens).where(rank < k)
        return Shortlist(sets.starts, sets.tokens, self.frequent, self.vocab_size)

    def translations(self, source: Sequence[int]) -> Tensor:
        """The translations of these source tokens, ascending, each once."""
        found = [self.tokens[self.starts[token] : self.starts[token + 1]] for token in set(source)]
        translations: Tensor = torch.cat([self.tokens[:0], *found]).unique()
        return translations


class ShortlistProjection:
    """Maps outputs to log-probabilities over the shortlist of each row's sentence."""

    def __init__(self, shortlist: Shortlist, k: int, frequent: int, layer: OutputLayer) -> None:
        """``k`` translations of each source token, and the ``frequent`` most frequent tokens; ``</s>`` is always in
        the list."""
        device, self.vocab_size = layer.weight.device, shortlist.vocab_size
        self._shortlist = shortlist.best(k)
        self._common = torch.cat([torch.tensor([EOS]), shortlist.frequent[:frequent]]).unique()
        self._is_common = torch.zeros(shortlist.vocab_size, dtype=torch.bool)
        self._is_common[self._common] = True
        self._project = ActiveProjection(self._common.to(device), layer)
        self._device = device
        self._of_sentence: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, output: Tensor, sentences: Sequence[tuple[int, ...]]) -> tuple[Tensor, int]:
        """Log-probabilities [rows, V] of outputs [rows, d] for the source of each row, and the number of tokens that
        are active for any row."""
        unique = list(dict.fromkeys(sentences))
        others = [self._others(sentence) for sentence in unique]
        self._of_sentence = dict(zip(unique, others, strict=True))  # those of other sentences are not kept
        sizes = torch.tensor([0, *map(len, others)], device=self._device)
        tokens = torch.cat(others).to(self._device)
        places = {sentence: place for place, sentence in enumerate(unique)}
        rows = torch.tensor([places[sentence] for sentence in sentences], device=self._device)
        scores = self._project(output, None, *ActiveSets(sizes.cumsum(0), tokens).of(rows))
        return scores, len(self._common) + len(tokens.unique())

    def _others(self, sentence: tuple[int, ...]) -> Tensor:
        """The translations of a source that are not common."""
        if sentence in self._of_sentence:
            return self._of_sentence[sentence]
        found = self._shortlist.translations(sentence)
        return found[~self._is_common[found]]

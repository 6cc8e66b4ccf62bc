"""Allowed outputs: entries of a list, such as identifiers, names of entities, labels (De Cao et al. 2021, GENRE).

The list is a trie that ``sgdec trie`` built, which is mapped into memory, or plain lines: one output on each, and
after a tab its weight, a natural log. In a list without weights all are 0. If PATH has ``{id}``, each sentence has
a list of its own. Score of token w after prefix p, where best(x) is the highest weight of the entries that begin
with x:

    best(p w) - best(p)    if there are any (for the first token best(p) counts as 0)
    -inf                   otherwise

So the scores of an entry add up to its weight. This is weight pushing (Mohri, Pereira and Riley 2002, "Weighted
Finite-State Transducers in Speech Recognition", section 3.4). If only ``</s>`` were scored, totals would be the same,
but a beam could not see weights before hypotheses end. With pushed weights it prefers prefixes of good entries as
soon as they differ. Weights are rounded to multiples of 2^-30, so that these sums are exact.

State: the number of a node of the trie; -1 off the trie. Bounds: exact; each node stores the least that can follow.
Cost: per row the arcs of its node, or for each candidate a binary search; all rows are computed together. The time to
open a built trie does not depend on its size. Plain lines are read, and built into a trie in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Scores, SgdecError, Source
from sgdec.arcs import DEAD, Automata, Automaton
from sgdec.arrays import Ints
from sgdec.files import Trie, build_trie, fingerprint_of, is_trie, open_trie, read_entries, read_lines
from sgdec.protocol import FORBIDDEN, Arcs, Candidates, Listed, Steps

log = logging.getLogger("sgdec.predictors.trie")

State: TypeAlias = int


class TriePredictor(BatchPredictor):
    """Allows exactly the entries of a list.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "allowed.tsv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("7 4\\t-1\\n7\\t-3\\n")
    ...     predictor = TriePredictor(path)
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(predictor.consume_batch(states, [7])).rows
    [SparseRow({2: -2.0, 4: 0.0}, default=-inf)]
    """

    independent_rows = True
    arcs_of_tensors = True

    def __init__(
        self,
        path: Annotated[
            str,
            Field(description="file of `sgdec trie`, or lines with one output each; {id} is the sentence number"),
        ],
        use_weights: Annotated[bool, Field(description="false: every entry scores 0")] = True,
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` is the list of all sentences. Raises SgdecError if it cannot be used."""
        self._path = path
        self._use_weights = use_weights
        self._vocabulary = context.vocabularies.target if context else None
        self._vocab_size = context.vocab_size if context else None
        self._has_warned = False
        self._shared = None if "{id}" in path else self._load(path)
        self._lists = Automata[_List]()
        """The lists of the sentences in flight, if each has its own."""
        if self._shared is not None:
            self.max_score = max(0.0, self._shared.best)
        elif not use_weights:
            self.max_score = 0.0

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """Raises SgdecError if the list of a sentence cannot be used."""
        if self._shared is not None:
            return [0] * len(sources)
        found = [_List(self._load_for(source)) for source in sources]  # all, before one of them takes numbers
        return [self._lists.add(one) for one in found]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        offsets, tokens, scores, _ = self.arcs(np.array(states, np.int64), None)
        return Scores.listed(offsets, tokens, scores)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        wanted = np.arange(len(states) + 1), np.array(tokens, np.int64)
        after: list[State] = self.arcs(np.array(states, np.int64), wanted)[3].tolist()
        return after

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        return (self._shared or self._lists).arcs(states, candidates)

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        if state == DEAD:
            listed = () if candidates is None else candidates
            return listed, [FORBIDDEN] * len(listed), [DEAD] * len(listed)
        trie, root = self._find(state)
        children = trie.children(state - root)
        tokens = trie.tokens[children]
        scores = [0.0] * len(tokens) if trie.scores is None else trie.scores[children].tolist()
        after = range(root + children.start, root + children.stop)
        if candidates is None:
            return tokens.tolist(), scores, after
        found = dict(zip(tokens.tolist(), zip(scores, after, strict=True), strict=True))
        ways = [found.get(token, (FORBIDDEN, DEAD)) for token in candidates]
        return candidates, [score for score, _ in ways], [state for _, state in ways]

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        """Exact: 0 after any token, because the weight of the best entry that can follow is already scored."""
        return [FORBIDDEN if state == DEAD else self._best(state) for state in states]

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        return [-FORBIDDEN if state == DEAD else self._worst(state) for state in states]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)

    def whole(self, state: State) -> tuple[Automaton, int]:
        return (self._all, 0) if self._shared is not None else self._lists.find(state)

    @cached_property
    def _all(self) -> _List:
        """The list of all sentences as an automaton."""
        assert self._shared is not None
        return _List(self._shared)

    def release(self, roots: Sequence[State]) -> None:
        if self._shared is None:
            for root in roots:
                self._lists.release(root)

    def _find(self, state: State) -> tuple[Trie, int]:
        """The trie of a state, and the number of its root."""
        if self._shared is not None:
            return self._shared, 0
        one, root = self._lists.find(state)
        return one.trie, root

    def _best(self, state: State) -> float:
        trie, root = self._find(state)
        return trie.best if state == root else 0.0

    def _worst(self, state: State) -> float:
        trie, root = self._find(state)
        return trie.least_after(state - root)

    def _load_for(self, source: Source) -> Trie:
        path = self._path.replace("{id}", str(source.id))
        try:
            return self._load(path)
        except SgdecError as error:
            raise SgdecError(
                f"{str(error).rstrip('.')} (sentence {source.id}). Expected a list for each sentence."
            ) from None

    def _load(self, path: str) -> Trie:
        """Raises SgdecError if the list cannot be read, or is of another vocabulary."""
        try:
            if is_trie(path):
                trie = open_trie(path)
                self._check_vocabulary(trie)
                self._warn_without_checksums(trie)
            else:
                entries = read_entries(read_lines(path), path, self._vocabulary, self._vocab_size)
                trie = build_trie(entries, path)
        except SgdecError as error:
            raise SgdecError(f"trie: {error}") from None
        return trie if self._use_weights else trie.without_weights()

    def _warn_without_checksums(self, trie: Trie) -> None:
        """A warning for the first file of the older form."""
        if trie.blocks is None and not self._has_warned:
            self._has_warned = True
            log.warning(
                f"{trie.where} has no checksums, so damage to it can stay unnoticed. Build it again with sgdec trie."
            )

    def _check_vocabulary(self, trie: Trie) -> None:
        """Raises SgdecError for a built trie of other tokens than the run's."""
        size = self._vocab_size
        if size is not None and trie.vocab_size not in (0, size):
            raise SgdecError(
                f"{trie.where}: built for a vocabulary of {trie.vocab_size} tokens, but the run has {size} target "
                "tokens. Build it again with the run's tokenizer."
            )
        known = bytes(32) if self._vocabulary is None else fingerprint_of(self._vocabulary)
        if any(known) and any(trie.vocabulary) and known != trie.vocabulary:
            raise SgdecError(
                f"{trie.where}: built with another tokenizer than the run's target vocabulary. Build it again with "
                "the run's tokenizer."
            )
        if size is not None and trie.largest >= size:
            raise SgdecError(
                f"{trie.where}: has token {trie.largest}, but there are {size} target tokens. The list and the "
                "models must share one vocabulary."
            )


class _List(Automaton):
    """The list of one sentence."""

    def __init__(self, trie: Trie) -> None:
        """Raises SgdecError if the file is damaged: all of it is checked."""
        trie.check()
        scores = np.zeros(trie.nodes - 1) if trie.scores is None else trie.scores[1:]
        super().__init__(trie.first.astype(np.int64) - 1, trie.tokens[1:], scores, np.arange(1, trie.nodes))
        self.trie = trie


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"trie": TriePredictor}

"""Wrapper: the inner predictor has other token ids for the same words.

Score of token w: the inner score of map(w), after the mapped prefix. A map is a text file with ``outer inner`` on
each line, a bijection of 0..n-1 onto itself that maps 0, 1 and 2 (``<unk>``, ``<s>``, ``</s>``) to themselves; with
``src_path`` source tokens are mapped too, by a separate map.

State: the inner state. Cost: one inner row per prefix, with its columns reordered. Relaxations: the inner ones. An
inner lattice is known as a whole if it is so itself; its arcs are renumbered once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from pydantic import Field

import sgdec
from sgdec import BOS, EOS, UNK, BatchPredictor, Context, Scores, SgdecError, Source
from sgdec.arcs import Automaton
from sgdec.arrays import Array, Floats, Ints
from sgdec.context import Vocabularies
from sgdec.derived import DerivedRelaxation
from sgdec.files import read_lines, whole_number
from sgdec.protocol import Candidates, LengthLimit, Progress, SparseRow, State
from sgdec.relaxations import Relaxation, Whole
from sgdec.wrapping import FORWARDED, Wrapper


class IdxMap(Wrapper):
    """Translates between two numberings of one vocabulary.

    >>> import tempfile
    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     print("0 0\\n1 1\\n2 2\\n3 4\\n4 5\\n5 3", file=file, flush=True)
    ...     mapped = IdxMap(lift(Bonus({4: -1.0}, default=-9.0)), file.name)
    >>> mapped.predict_batch(mapped.initialize_batch([Source(1, (3,))])).rows
    [SparseRow({3: -1.0}, default=-9.0)]
    """

    forwards: ClassVar[tuple[str, ...]] = FORWARDED

    def __init__(
        self,
        inner: BatchPredictor,
        path: Annotated[str, Field(description="file that maps target tokens: 'outer inner' on each line")],
        src_path: Annotated[
            str | None, Field(description="file that maps source tokens; none = the ids are the same")
        ] = None,
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if a file cannot be read or is not a bijection."""
        super().__init__(inner)
        self._target = IdMap(path)
        self._source = IdMap(src_path) if src_path is not None else None
        self._whole: WeakKeyDictionary[Automaton, Automaton] = WeakKeyDictionary()
        """Inner automata with outer tokens."""
        size = context.vocab_size if context else None
        if size not in (None, self._target.size):
            raise SgdecError(
                f"idxmap: {path} maps {self._target.size} tokens, but the target vocabulary has {size}. "
                "Expected one line per token."
            )

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, src_path: str | None = None, **options: Any) -> Vocabularies:
        """The inner vocabularies of unmapped sides only."""
        return Vocabularies(inner.source if src_path is None else None, None)

    @classmethod
    def inner_context(cls, context: Context, src_path: str | None = None, **options: Any) -> Context:
        """The inner context, without the vocabularies in which tokens have other ids."""
        source = context.vocabularies.source if src_path is None else None
        return replace(context, vocabularies=Vocabularies(source, None))

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """Raises SgdecError for a source token that the map does not have."""
        return self.inner.initialize_batch(list(map(self._inward, sources)))

    def length_limit(self, source: Source) -> int | None:
        return cast(LengthLimit, self.inner).length_limit(self._inward(source))

    def _inward(self, source: Source) -> Source:
        """The source in the inner numbering."""
        if self._source is None:
            return source
        return replace(source, tokens=tuple(self._source.inward(source.tokens)))

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        wanted: list[Candidates | None] | None = None
        if candidates is not None:
            wanted = [None if some is None else sorted(self._target.inward(some)) for some in candidates]
        return self.inner.predict_batch(states, wanted).changed(
            self._target.columns, lambda row, _: SparseRow(self._target.outward(row.tokens), row.scores, row.default)
        )

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return self.inner.consume_batch(states, self._target.inward(tokens))

    def advancing(self, states: Sequence[State]) -> list[Candidates]:
        inner = cast(Progress, self.inner).advancing(states)
        return [sorted(self._target.outward(tokens)) for tokens in inner]

    def relaxed(self, inner: Relaxation) -> Relaxation:
        return _Renumbered(inner, self._target)

    def whole(self, state: State) -> tuple[Automaton, int] | None:
        found = cast(Whole, self.inner).whole(state)
        if found is None:
            return None
        inner, first = found
        if inner not in self._whole:
            self._whole[inner] = self._target.outward_automaton(inner)
        return self._whole[inner], first


class _Renumbered(DerivedRelaxation):
    """An inner relaxation for outer tokens."""

    def __init__(self, inner: Relaxation, tokens: IdMap) -> None:
        super().__init__(inner, lambda states: states)
        self._tokens = tokens

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return self.inner.after(states, self._tokens.inward_array(tokens))

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self.inner.highest(states, self._tokens.inward_array(tokens))

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self.inner.lowest(states, self._tokens.inward_array(tokens))


class IdMap:
    """A bijection between two numberings, read from a file."""

    def __init__(self, path: str) -> None:
        """Raises SgdecError, naming file and line, for anything but a bijection of 0..n-1 that keeps 0, 1, 2."""
        self._path = path
        inner_of: dict[int, int] = {}
        outer_of: dict[int, int] = {}
        try:
            for number, line in enumerate(list(read_lines(path)), 1):
                if line.strip():
                    outer, inner = self._pair(line, number)
                    if outer in inner_of or inner in outer_of:
                        twice = f"outer token {outer}" if outer in inner_of else f"inner token {inner}"
                        raise SgdecError(
                            f"{path}: line {number}: {twice} is mapped twice; the map must be a bijection."
                        )
                    inner_of[outer], outer_of[inner] = inner, outer
        except SgdecError as error:
            raise SgdecError(f"idxmap: {error}") from None
        self.size = len(inner_of)
        for side, tokens in (("outer", inner_of), ("inner", outer_of)):
            missing = next((token for token in range(self.size) if token not in tokens), None)
            if missing is not None or not self.size:
                raise SgdecError(
                    f"idxmap: {path}: {side} token {missing or 0} is missing. Expected a line 'outer inner' for each "
                    f"token of the vocabulary, 0 to {max(self.size, 3) - 1} on both sides."
                )
        self._inner = [inner_of[token] for token in range(self.size)]
        self._outer = [outer_of[token] for token in range(self.size)]
        self._inner_array, self._outer_array = np.array(self._inner), np.array(self._outer)

    def inward(self, tokens: Sequence[int]) -> list[int]:
        """Inner tokens for outer ones."""
        return self._translated(tokens, self._inner, "")

    def outward(self, tokens: Sequence[int]) -> list[int]:
        """Outer tokens for inner ones."""
        return self._translated(tokens, self._outer, "of the inner predictor ")

    def inward_array(self, tokens: Ints) -> Ints:
        """Inner tokens for an array of outer ones."""
        return self._translated_array(tokens, self._inner_array, "")

    def outward_automaton(self, inner: Automaton) -> Automaton:
        """The same automaton with outer tokens, whose arcs are sorted by these."""
        tokens = self._translated_array(inner.tokens, self._outer_array, "of the inner predictor ")
        state = np.arange(inner.states).repeat(np.diff(inner.offsets))
        order = np.lexsort((tokens, state))
        return Automaton(inner.offsets, tokens[order], inner.scores[order], inner.after[order])

    def columns(self, values: Array) -> Array:
        """Rows of inner scores in the order of outer tokens: ``[rows, n]``."""
        if values.shape[-1] != self.size:
            raise SgdecError(
                f"idxmap: {self._path} maps {self.size} tokens, but the inner predictor scores {values.shape[-1]}."
            )
        order: Any = self._order(None if isinstance(values, np.ndarray) else str(values.device))
        found: Array = values[:, order]
        return found

    @lru_cache  # noqa: B019 - a run has one or two maps, for as long as it lasts
    def _order(self, device: str | None) -> Any:
        order = np.array(self._inner, dtype=np.int64)
        if device is None:
            return order
        import torch

        return torch.from_numpy(order).to(device)

    def _translated(self, tokens: Sequence[int], table: list[int], whose: str) -> list[int]:
        try:
            return [table[token] for token in tokens]
        except IndexError:
            raise self._unknown(max(tokens), whose) from None

    def _translated_array(self, tokens: npt.NDArray[np.integer[Any]], table: Ints, whose: str) -> Ints:
        largest = int(tokens.max(initial=0))
        if largest >= self.size:
            raise self._unknown(largest, whose)
        found: Ints = table[tokens]
        return found

    def _unknown(self, token: int, whose: str) -> SgdecError:
        return SgdecError(f"idxmap: token {token} {whose}is not in {self._path}, which maps 0 to {self.size - 1}.")

    def _pair(self, line: str, number: int) -> tuple[int, int]:
        match list(map(whole_number, line.split())):
            case [int(outer), int(inner)]:
                pass
            case _:
                raise SgdecError(f"{self._path}: line {number}: expected 'outer inner', two token ids, not {line!r}.")
        if outer != inner and min(outer, inner) <= max(UNK, BOS, EOS):
            raise SgdecError(
                f"{self._path}: line {number}: 0, 1 and 2 (<unk>, <s>, </s>) must be mapped to themselves."
            )
        return outer, inner


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"idxmap": IdxMap}

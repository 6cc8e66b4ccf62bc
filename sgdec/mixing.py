"""Mixes: wrappers over several predictors, whose scores for a token they combine otherwise than by a weighted sum.

A mix receives its ``inner`` predictors by name, in the batch form, and is one predictor of a run: one column in the
ledger, one weight. A subclass says how the scores of its parts for the same tokens become one (`Mix.combine`). What
it needs to know about a prefix besides the states of its parts is a value, its memory, which it computes from the
scores of the prefix's tokens (`Mix.begin`, `Mix.remember`).

Forbidding: a token that any part forbids is forbidden; with `Mix.all_forbid` only one that all parts forbid. A part
that forbids a token which the mix allows has no state after it: it is `EndedPart`, and forbids whatever follows.

Traits and abilities follow from those of the parts as far as any combination allows: a subclass declares its own
bounds. It is on demand if a part is, unless it needs the scores of all tokens (`Mix.whole_rows`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sgdec import arrays
from sgdec.arrays import FORBIDDEN, Array, Floats, Ints
from sgdec.context import Context, Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.lengths import stated_limit
from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, State, ability
from sgdec.scores import SparseRow
from sgdec.sparse import Wanted


class EndedPart(NamedTuple):
    """The state of a part that has forbidden a token of the prefix."""

    last: State
    """Its state before that token."""


class MixState(NamedTuple):
    """One prefix."""

    parts: tuple[State, ...]
    """``[K]``, `EndedPart` for a part that forbids the prefix."""
    memory: Any


class PartRows(NamedTuple):
    """The scores of all K parts after R prefixes, for the same W tokens or groups of tokens of each."""

    scores: Array
    """``[K, R, W]``, in float64, or as tensors in the precision of the parts, but at least float32."""
    counts: Array | None
    """``[R, W]``: the number of tokens with these scores; 0 = the place is empty. None = one each."""
    memories: Sequence[Any]
    """``[R]``"""

    def forbidden(self) -> Any:
        """``[R, W]``: whether any part forbids a token."""
        return (self.scores == FORBIDDEN).any(0)

    def log_sum(self, scores: Array) -> Array:
        """``[..., R]``: the log of the sum of exp(score) over all tokens of ``scores [..., R, W]``."""
        return log_sum_exp(scores if self.counts is None else scores + _log(self.counts), -1)

    def highest(self, scores: Array) -> Array:
        """``[..., R]``: the highest of ``scores [..., R, W]`` of any token."""
        xp = arrays.namespace(scores)
        if self.counts is not None:
            scores = xp.where(self.counts > 0, scores, FORBIDDEN)
        found: Array = xp.max(scores, axis=-1)
        return found


class Mix(BatchPredictor):
    """Several predictors as one.

    >>> import math
    >>> from sgdec.testing import BatchTable
    >>> class Best(Mix):
    ...     '''The best score that any part gives.'''
    ...     all_forbid = True
    ...     def combine(self, row):
    ...         return row.scores.max(0)
    >>> tables = {name: BatchTable(np.log([chances] * 3)) for name, chances in
    ...           {"a": [0.6, 0.2, 0.2], "b": [0.1, 0.8, 0.1]}.items()}
    >>> best = Best(tables)
    >>> states = best.initialize_batch([Source(1, (7,))])
    >>> np.exp(best.predict_batch(states).values).round(2).tolist()
    [[0.6, 0.8, 0.2]]
    >>> best.part_scores(states, [1])
    [{'a': -1.6094379124341003, 'b': -0.2231435513142097}]
    """

    whole_rows: bool = False
    """Whether `combine` needs the scores of all tokens, and not only of those that it is asked about."""
    all_forbid: ClassVar[bool] = False
    """Whether a token is forbidden only if all parts forbid it."""

    def __init__(self, inner: Mapping[str, BatchPredictor], context: Context | None = None) -> None:
        """``inner``: at least two predictors by name. Raises UsageError for fewer."""
        if len(inner) < 2:
            raise UsageError(f"{' and '.join(inner)}: a mix needs several predictors, such as nmt+rnnlm.")
        self.inner = dict(inner)
        self._parts = tuple(inner.values())
        self._vocab_size = context.vocab_size if context else None
        self._answered: tuple[list[MixState], list[Scores | None], list[list[int | None]]] | None = None
        """The states of the last prediction, and for each part its answer and the row of each state."""
        self.independent_rows = all(part.independent_rows for part in self._parts)
        self.vocabularies = self.read_vocabularies({name: part.vocabularies for name, part in inner.items()})
        if any(ability(part, "state_key") is None for part in self._parts):
            vars(self)["state_key"] = None  # hides the method
        if all(ability(part, "attention") is None for part in self._parts):
            vars(self)["attention"] = None
        self.length_limit = stated_limit(self.inner)

    @classmethod
    def read_vocabularies(cls, inner: Mapping[str, Vocabularies], **options: Any) -> Vocabularies:
        """The vocabularies that parts have; of each side the first."""
        sides = zip(*inner.values(), strict=True)
        return Vocabularies(*(next((each for each in side if each is not None), None) for side in sides))

    @abstractmethod
    def combine(self, row: PartRows) -> Array:
        """The scores ``[R, W]`` of the mix. What is forbidden is forbidden afterwards, whatever they are."""

    def begin(self) -> Any:
        """The memory of the empty prefix: a value, compared by `state_key`."""
        return None

    def remember(self, memory: Any, scores: Sequence[float]) -> Any:
        """The memory of a prefix with one more token. ``scores``: of this token by part; -inf if a part has ended."""
        return memory

    @property
    def on_demand(self) -> bool:  # type: ignore[override]  # follows from what the subclass needs
        return not self.whole_rows and any(part.on_demand for part in self._parts)

    def initialize_batch(self, sources: Sequence[Source]) -> list[MixState]:
        columns = zip(*(part.initialize_batch(sources) for part in self._parts), strict=True)
        return [MixState(states, self.begin()) for states in columns]

    def predict_batch(
        self, states: Sequence[MixState], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        """Raises UsageError if the scores of all tokens are needed, and their number is unknown."""
        asked = None
        if candidates is not None and not self.whole_rows and None not in candidates:
            asked = [tokens for tokens in candidates if tokens is not None]
        answers, places = self._ask(states, asked)
        self._answered = list(states), answers, places
        memories = [state.memory for state in states]
        if asked is not None:
            wanted = Wanted.of(range(len(states)), asked)
            found = self._combined(*_in_rows(wanted, _picked(answers, places, wanted)), memories)
            return Scores.of_candidates(asked, arrays.to_numpy(found)[_cells(wanted)])
        if (width := self._width(answers)) is not None:
            return Scores.dense(self._combined(_matrices(answers, places, width), None, memories))
        return self._combined_lists(answers, places, memories)

    def consume_batch(self, states: Sequence[MixState], tokens: Sequence[int]) -> list[MixState]:
        scores = self._scores_of(states, tokens) if self.all_forbid or self._remembers else None
        columns: list[list[State]] = []
        for k, part in enumerate(self._parts):
            column: list[State] = []
            for row, state in enumerate(states):
                own = state.parts[k]
                ends = scores is not None and self.all_forbid and scores[k, row] == FORBIDDEN
                column.append(EndedPart(own) if ends and type(own) is not EndedPart else own)
            going = [row for row, own in enumerate(column) if type(own) is not EndedPart]
            if going:
                after = part.consume_batch([column[row] for row in going], [tokens[row] for row in going])
                for row, state in zip(going, after, strict=True):
                    column[row] = state
            columns.append(column)
        memories = [state.memory for state in states]
        if self._remembers and scores is not None:
            by_row = scores.T.tolist()
            memories = [self.remember(memory, own) for memory, own in zip(memories, by_row, strict=True)]
        return [MixState(tuple(parts), memory) for *parts, memory in zip(*columns, memories, strict=True)]

    def part_scores(self, states: Sequence[MixState], tokens: Sequence[int]) -> list[dict[str, float]]:
        """For each state the scores of one next token by part, -inf if a part has ended; for explanations."""
        return [dict(zip(self.inner, own, strict=True)) for own in self._scores_of(states, tokens).T.tolist()]

    def state_key(self, states: Sequence[MixState]) -> list[Any]:
        """The keys of the parts, and the memory."""
        keys: list[list[Any]] = [[] for _ in states]
        for k, part in enumerate(self._parts):
            going = [row for row, state in enumerate(states) if type(state.parts[k]) is not EndedPart]
            own: list[Any] = [EndedPart] * len(states)
            if going:
                asked = ability(part, "state_key")
                assert asked is not None
                for row, key in zip(going, asked([states[row].parts[k] for row in going]), strict=True):
                    own[row] = key
            for each, key in zip(keys, own, strict=True):
                each.append(key)
        return [(*own, state.memory) for own, state in zip(keys, states, strict=True)]

    def attention(self, states: Sequence[MixState]) -> Sequence[Any]:
        """That of the first part that has attention; of one that has ended, the last."""
        k, asked = next(
            (k, asked) for k, part in enumerate(self._parts) if (asked := ability(part, "attention")) is not None
        )
        own = [state.parts[k] for state in states]
        return asked([state.last if type(state) is EndedPart else state for state in own])

    def release(self, roots: Sequence[MixState]) -> None:
        for k, part in enumerate(self._parts):
            if (release := ability(part, "release")) is not None:
                release([root.parts[k] for root in roots])

    def summary(self) -> str | None:
        """The lines of the parts, each with the name of its part."""
        asked = {name: getattr(part, "summary", None) for name, part in self.inner.items()}
        found = {name: summary() for name, summary in asked.items() if summary is not None}
        return "; ".join(f"{name}: {said}" for name, said in found.items() if said) or None

    @property
    def _remembers(self) -> bool:
        return type(self).remember is not Mix.remember

    def _ask(
        self, states: Sequence[MixState], candidates: Sequence[Candidates] | None
    ) -> tuple[list[Scores | None], list[list[int | None]]]:
        """For each part its answer, None if it has ended for all, and for each state its row there."""
        answers: list[Scores | None] = []
        places: list[list[int | None]] = []
        for k, part in enumerate(self._parts):
            going = [row for row, state in enumerate(states) if type(state.parts[k]) is not EndedPart]
            own: list[int | None] = [None] * len(states)
            for place, row in enumerate(going):
                own[row] = place
            places.append(own)
            if not going:
                answers.append(None)
                continue
            asked = None if candidates is None else [candidates[row] for row in going]
            answers.append(part.predict_batch([states[row].parts[k] for row in going], asked))
        return answers, places

    def _width(self, answers: Sequence[Scores | None]) -> int | None:
        """V, if a part scores whole rows. Raises SgdecError if parts have different numbers of tokens."""
        widths = {
            name: answer.width
            for name, answer in zip(self.inner, answers, strict=True)
            if answer is not None and answer.width is not None
        }
        if len(set(widths.values())) > 1:
            said = " and ".join(f"{name} {width}" for name, width in widths.items())
            raise SgdecError(f"the parts of a mix score different numbers of tokens: {said}. Give one vocabulary.")
        return next(iter(widths.values()), None)

    def _scores_of(self, states: Sequence[MixState], tokens: Sequence[int]) -> Floats:
        """``[K, rows]``: the scores of one next token of each state; of the last prediction if it was of them all."""
        one_each = [[token] for token in tokens]
        wanted = Wanted.of(range(len(states)), one_each)
        if self._answered is not None:
            before, answers, places = self._answered
            known = {id(state): row for row, state in enumerate(before)}
            rows = [known[id(state)] for state in states if id(state) in known]
            if len(rows) == len(states):
                return _picked(answers, [[own[row] for row in rows] for own in places], wanted)
        answers, places = self._ask(states, None if self.whole_rows else one_each)
        return _picked(answers, places, wanted)

    def _combined(self, scores: Array, counts: Array | None, memories: Sequence[Any]) -> Array:
        row = PartRows(scores, counts, memories)
        xp = arrays.namespace(scores)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            found = self.combine(row)
            forbidden = (scores == FORBIDDEN).all(0) if self.all_forbid else row.forbidden()
        combined: Array = xp.where(forbidden, FORBIDDEN, found)
        return combined

    def _combined_lists(
        self, answers: Sequence[Scores | None], places: Sequence[Sequence[int | None]], memories: Sequence[Any]
    ) -> Scores:
        """Rows of lists: the tokens that any part lists, and the defaults as one more group of tokens."""
        rows: list[list[SparseRow | None]] = [
            [None if place is None or answer is None else answer.rows[place] for place in own]
            for answer, own in zip(answers, places, strict=True)
        ]
        tokens = [
            sorted({token for row in own if row is not None for token in row.candidates})
            for own in zip(*rows, strict=True)
        ]
        wanted = Wanted.of(range(len(memories)), tokens)
        scores, counts = _in_rows(wanted, _picked(answers, places, wanted))
        defaults = np.array([[FORBIDDEN if row is None else row.default for row in own] for own in rows])
        scores = np.concatenate([scores, defaults[:, :, None]], 2)
        others = np.array([float(len(own)) for own in tokens])
        if self.whole_rows and (defaults > FORBIDDEN).any():
            if self._vocab_size is None:
                names = "+".join(self.inner)
                raise UsageError(f"{names}: the number of tokens that share a score is unknown; give --vocab-size.")
            others = self._vocab_size - others
        counts = np.concatenate([counts, others[:, None]], 1)
        found = self._combined(scores, counts, memories)
        return Scores(rows=[
            SparseRow(own, values[: len(own)], values[-1])
            for own, values in zip(tokens, found.tolist(), strict=True)
        ])  # fmt: skip


def log_sum_exp(scores: Array, axis: int) -> Array:
    """The log of the sum of exp(score) along an axis; -inf if all are."""
    xp = arrays.namespace(scores)
    if not isinstance(scores, np.ndarray):
        return scores.logsumexp(axis)
    highest = xp.max(scores, axis=axis, keepdims=True)
    base = xp.where(highest == FORBIDDEN, 0.0, highest)
    with np.errstate(divide="ignore"):
        sums = xp.log(xp.sum(xp.exp(scores - base), axis=axis))
    found: Array = sums + xp.squeeze(base, axis=axis)
    return found


def _log(counts: Array) -> Array:
    with np.errstate(divide="ignore"):
        found: Array = arrays.namespace(counts).log(counts)
    return found


def _picked(answers: Sequence[Scores | None], places: Sequence[Sequence[int | None]], wanted: Wanted) -> Floats:
    """``[K, n]``: the scores of these tokens; -inf where a part has ended."""
    found = np.full((len(answers), len(wanted.token)), FORBIDDEN)
    for own, answer, at in zip(found, answers, places, strict=True):
        if answer is not None:
            own[:] = answer.of(wanted, range(len(at)) if None not in at and [*at] == [*range(len(at))] else at)
            ended = np.array([place is None for place in at])
            own[ended[wanted.place]] = FORBIDDEN
    return found


def _cells(wanted: Wanted) -> tuple[Ints, Ints]:
    """The row and the column of each wanted token, if the tokens of each row begin at column 0."""
    counts = np.bincount(wanted.place, minlength=len(wanted.nodes))
    starts = np.cumsum(counts) - counts
    return wanted.place, np.arange(len(wanted.token)) - starts[wanted.place]


def _in_rows(wanted: Wanted, flat: Floats) -> tuple[Floats, Floats]:
    """Scores ``[K, n]`` of tokens as rows ``[K, R, W]``, and which places are filled ``[R, W]``, as 1 and 0."""
    rows, columns = _cells(wanted)
    shape = len(wanted.nodes), int(columns.max(initial=-1)) + 1
    scores, counts = np.full((len(flat), *shape), FORBIDDEN), np.zeros(shape)
    scores[:, rows, columns] = flat
    counts[rows, columns] = 1.0
    return scores, counts


def _matrices(answers: Sequence[Scores | None], places: Sequence[Sequence[int | None]], width: int) -> Array:
    """``[K, R, V]``: all answers as matrices of one kind: tensors if one is a tensor."""
    values = [None if answer is None else answer.values for answer in answers]
    tensor = next((each for each in values if each is not None and not isinstance(each, np.ndarray)), None)
    matrices: list[Any] = []
    for answer, own in zip(answers, places, strict=True):
        going = [row for row, place in enumerate(own) if place is not None]
        if answer is not None and answer.values is not None:
            matrix: Any = answer.values
        elif answer is not None:
            matrix = np.stack([answer.as_array(place, width) for place in own if place is not None])
        if len(going) < len(own):
            whole = np.full((len(own), width), FORBIDDEN)
            if going:
                whole[going] = arrays.to_numpy(matrix)
            matrix = whole
        matrices.append(matrix)
    if tensor is None:
        return np.stack([matrix.astype(np.float64) for matrix in matrices])
    import torch

    precise = torch.float32
    for each in values:
        if each is not None and not isinstance(each, np.ndarray):
            precise = torch.promote_types(precise, each.dtype)
    return torch.stack([torch.as_tensor(matrix).to(tensor.device, precise) for matrix in matrices])

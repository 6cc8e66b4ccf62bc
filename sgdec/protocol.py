"""The protocol: what a predictor scores, what a decoder returns, and how the two forms of a predictor meet.

A **predictor** scores the next token of a prefix and knows nothing of the search. Most are written in the
simple form, `Predictor`, one prefix at a time; a neural model takes the batch form, `BatchPredictor`, many
prefixes at once. `lift` turns the first into the second, so that a search needs only one of them. A
**decoder** searches the space that predictors span together and knows none of them.

The five verbs are those of Stahlberg et al. 2017, "SGNMT", section 2. Scores are natural logs, higher is
better, and ``-inf`` forbids a token whatever the weight.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, final

from sgdec.blame import WrongAnswer
from sgdec.ranking import Ranking
from sgdec.scores import FORBIDDEN, Array, Scores, SparseRow
from sgdec.surface import require_sound

if TYPE_CHECKING:
    from sgdec.search import SearchSpace

__all__ = [
    "ABILITIES",
    "FORBIDDEN",
    "Array",
    "BatchDecoder",
    "BatchPredictor",
    "Candidates",
    "Decoder",
    "Hypothesis",
    "Lifted",
    "Lowered",
    "Predictor",
    "Result",
    "Scores",
    "Source",
    "SparseRow",
    "State",
    "Steps",
    "ability",
    "lift",
]

State: TypeAlias = Any
"""All a predictor knows about one prefix: an immutable value."""
Candidates: TypeAlias = Sequence[int]
"""Tokens in ascending order, each once."""
Steps: TypeAlias = tuple[Candidates, Sequence[float], Sequence[State]]
"""Of an automaton, after one prefix: tokens that can follow, their scores, the states after them."""


@dataclass(frozen=True)
class Source:
    """One sentence to decode."""

    id: int
    """1-based number of the sentence in its input."""
    tokens: tuple[int, ...]
    """Source tokens, without ``<s>`` and ``</s>``."""
    text: str | None = None
    """The line as it was read, if it was text."""
    max_length: int | None = None
    """At most this many target tokens before ``</s>``; None = no limit."""


class Predictor(ABC):
    """The simple form: scores the next token of one prefix at a time.

    A predictor without memory needs nothing but `predict_next`; one with memory also `consume`, `get_state` and
    `set_state`; one that looks at the source also `initialize`. What ``__init__`` loads is shared by all
    sentences; `initialize` *assigns* what belongs to one sentence, for the framework works on a shallow copy of
    the predictor for each sentence, and several sentences are in flight at once.

    Optional abilities, each a method over a list of states (absent = unknown):

    - ``best_remaining(states) -> list[float]``: an upper bound on all that this predictor can still add, +inf where
      that has no limit; needed only where `max_score` does not say enough;
    - ``worst_remaining(states) -> list[float]``: its mirror, a lower bound, for negative weights;
    - ``state_key(states) -> list[Hashable]``: equal keys = the same scores from here on;
    - ``attention(states)``: for each state one row ``[source]``, the weights with which the token after that
      state is predicted; each row sums to one.
    """

    on_demand: ClassVar[bool] = False
    """Asked last, with the candidates that the other predictors leave."""
    max_score: float = math.inf
    """The highest score of any token in any sentence, ``</s>`` included: 0 for log-probabilities, +inf = unknown.

    Set it in the class or, where it depends on options and files, in ``__init__``. Without `best_remaining`, bounds
    are made of it (`sgdec.bounds`).
    """

    def initialize(self, source: Source) -> None:  # noqa: B027 - a predictor may not care about the source
        """Run the encoder, load the lattice: all that belongs to one sentence."""

    @abstractmethod
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        """One row of scores. Must not change what later calls return.

        ``candidates``: the only tokens that the search still needs, or None for all. Others may be scored too.
        """

    def consume(self, token: int) -> None:  # noqa: B027 - a predictor may be without memory
        """Add one token to the prefix."""

    def get_state(self) -> State:
        """The prefix as an immutable value; None for a predictor without memory."""
        return None

    def set_state(self, state: State) -> None:  # noqa: B027 - a predictor may be without memory
        """Go back to a prefix of this sentence."""


class BatchPredictor(ABC):
    """The batch form: the same verbs over many prefixes at once, with the states explicit.

    Row i of every answer belongs to state i of the question. The optional abilities are those of `Predictor`, and one
    more for an automaton, whose state after a token costs no more than the token's score:

    - ``steps(state, candidates) -> (tokens, scores, states)``: predict and consume in one, for one prefix, as plain
      Python sequences: what can follow, ascending, and the scores and the states after. With candidates these very
      tokens, -inf for what cannot follow; None is asked only of a predictor that is not on demand, whose rows
      restrict. States are hashable, and equal ones have equal futures. Where all predictors of a run have it, a
      search asks nothing else but their bounds.
    """

    on_demand: ClassVar[bool] = False
    max_score: float = math.inf
    independent_rows: bool = False
    """Whether row i is the same, bit for bit, whatever other sentences' rows are in the batch."""

    @abstractmethod
    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """The states of the empty prefixes of these sentences."""

    @abstractmethod
    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        """One row a state. ``candidates``: for each row the only tokens still needed, or None for all."""

    @abstractmethod
    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        """The states after one more token each; the given states stay valid."""


ABILITIES = ("best_remaining", "worst_remaining", "state_key", "attention")


def ability(predictor: object, name: str) -> Callable[[Sequence[State]], Sequence[Any]] | None:
    """The optional method ``name`` of a predictor, or None."""
    return getattr(predictor, name, None)


class _Prefix(NamedTuple):
    """A lifted state: the predictor's copy for this sentence, and its own state."""

    predictor: Predictor
    state: State


@final
class Lifted(BatchPredictor):
    """A simple-form predictor in the batch form: one shallow copy of it a sentence, rows one after the other."""

    independent_rows = True

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        # What is lifted says the same of itself.
        self.on_demand = predictor.on_demand  # type: ignore[misc]
        self.max_score = predictor.max_score

    def __getattr__(self, name: str) -> Any:
        if name in ABILITIES and ability(self.predictor, name) is not None:
            return partial(self._ability, name)
        raise AttributeError(f"a lifted predictor has no {name!r}")  # may be asked before __init__, by copy

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        states = []
        for source in sources:
            predictor = copy.copy(self.predictor)
            predictor.initialize(source)
            states.append(_Prefix(predictor, predictor.get_state()))
        return states

    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        parts = []
        for i, (predictor, state) in enumerate(states):
            predictor.set_state(state)
            found = predictor.predict_next(None if candidates is None else candidates[i])
            if not isinstance(found, Scores) or len(found) != 1:
                raise WrongAnswer(f"predict_next returned {_wrong(found)}")
            parts.append(found)
        return parts[0] if len(parts) == 1 else Scores.stack(parts)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        after = []
        for (predictor, state), token in zip(states, tokens, strict=True):
            predictor.set_state(state)
            predictor.consume(token)
            after.append(_Prefix(predictor, predictor.get_state()))
        return after

    def _ability(self, name: str, states: Sequence[State]) -> list[Any]:
        return [getattr(predictor, name)([state])[0] for predictor, state in states]


def lift(predictor: Predictor | BatchPredictor) -> BatchPredictor:
    """The batch form of any predictor. SgdecError for one whose class cannot mean what it says (`sgdec.surface`)."""
    require_sound(type(predictor))
    return Lifted(predictor) if isinstance(predictor, Predictor) else predictor


def _wrong(found: object) -> str:
    """What is wrong with an answer about one prefix."""
    from sgdec.answers import described

    if isinstance(found, Scores):
        return f"{len(found)} rows; expected one, such as Scores.dense(array) with an array [V]."
    return (
        f"{described(found)}; expected Scores: Scores.dense(array) of all V tokens, Scores.sparse(tokens, scores) "
        "where only these can follow, or Scores.constant(score)."
    )


@final
class Lowered(Predictor):
    """A batch-form predictor in the simple form: a batch of one."""

    def __init__(self, predictor: BatchPredictor) -> None:
        self.predictor = predictor
        self._state: State = None

    def initialize(self, source: Source) -> None:
        (self._state,) = self.predictor.initialize_batch([source])

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return self.predictor.predict_batch([self._state], None if candidates is None else [candidates])

    def consume(self, token: int) -> None:
        (self._state,) = self.predictor.consume_batch([self._state], [token])

    def get_state(self) -> State:
        return self._state

    def set_state(self, state: State) -> None:
        self._state = state


@dataclass(frozen=True)
class Hypothesis:
    """A finished search path. ``T`` counts ``</s>``; K predictors."""

    tokens: tuple[int, ...]
    """Without ``<s>`` and ``</s>``: T - 1 tokens."""
    score: float
    """The weighted total."""
    rank_score: float
    """What lists are sorted by: the total under the decoder's ranking (GNMT, equation 14), or `Decoder.ranks_by`."""
    ledger: tuple[tuple[float, ...], ...] = ()
    """``[T, K]``: the unweighted score of each token by each predictor (0 where it was not consulted)."""
    weights: tuple[tuple[float | None, ...], ...] = ()
    """``[T, K]``: the weights that were in force for each token; None = not consulted."""
    text: str | None = None
    """How it is spelled where its tokens do not say: with words copied from the source (`sgdec.copying`)."""

    @property
    def scores(self) -> tuple[float, ...]:
        """``[K]``: the unweighted sum by predictor."""
        return tuple(math.fsum(column) for column in zip(*self.ledger, strict=True))


@dataclass(frozen=True)
class Result:
    """What a decoder found in one space."""

    hypotheses: list[Hypothesis]
    """Best `Hypothesis.rank_score` first, no two with the same tokens and weights; at most ``space.nbest``."""
    proven: bool | None = None
    """True: no better list exists in the space; False: a budget ended the search; None: no claim."""
    gap: float | None = None
    """If not proven: how much better than the first hypothesis the optimum can be at most."""
    expansions: int = field(default=0, compare=False)
    """Filled in by the framework: how many nodes were expanded."""


class Decoder(ABC):
    """A search strategy: plain synchronous code over a `SearchSpace`, one sentence at a time."""

    exact: ClassVar[bool] = False
    """Whether the default options promise the true n-best of the space (checked by the conformance kit)."""
    ranking: Ranking = Ranking()
    """How finished hypotheses are compared; the default leaves the total as it is."""
    ranks_by: str = "ranking"
    """What `Hypothesis.rank_score` is: the score under `ranking`, or a criterion of the decoder's own, by its name.

    A decoder for minimum Bayes risk would say ``expected utility``, and set it by ``replace(space.finish(node),
    rank_score=...)``: a finite number, higher for what is better. Total and ledger stay what they are. The decoder
    must not say that it is `exact`, nor give a proof or a gap: these are about `ranking`.
    """

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        """What this search can lose by the options it was given, and which ones are safe; None = nothing to say.

        ``sgdec decode`` says it once. ``never_rises``: whether totals never rise, as far as predictors declare.
        """
        return None

    @abstractmethod
    def decode(self, space: SearchSpace) -> Result:
        """Search one space; an empty list of hypotheses where nothing satisfies all predictors."""


class BatchDecoder(Decoder):
    """A search strategy over whole tensors: many spaces of one constellation at once.

    It reads ``space.predictors`` and ``space.weights`` and may call the predictors itself.
    """

    @abstractmethod
    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        """One result a space, with its ``expansions``; an exception may be raised for all of them."""

    def decode(self, space: SearchSpace) -> Result:
        return self.decode_batch([space])[0]

"""The protocol: all methods and values that a plugin can have, on one page.

A **predictor** scores the next token of a prefix and knows nothing of the search. Most are written in the
simple form, `Predictor`, one prefix at a time; a neural model takes the batch form, `BatchPredictor`, many
prefixes at once. `sgdec.lift` turns the first into the second, so that a search needs only one of them. A
**decoder** searches the space that predictors span together and knows none of them.

The five verbs are those of Stahlberg et al. 2017, "SGNMT", section 2. Scores are natural logs, higher is
better, and ``-inf`` forbids a token whatever the weight.

Optional members of a class, beside its verbs, are declared here too:

- *traits* (`Traits`): values that the framework reads;
- *abilities* (`BestRemaining`, ...): optional methods; a class with one can derive from the ability's class, so that
  mypy finds misspelt names, but need not;
- *class hooks* (`ReadVocabularies`, `InnerContext`): class methods that are called before there is an instance.

A class is checked against this page when it is loaded (`sgdec.plugins.surface`). The page has a number, `API`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from sgdec.context import Vocabularies
from sgdec.ranking import Ranking
from sgdec.renamed import former_names
from sgdec.scores import FORBIDDEN, Array, Scores, SparseRow

if TYPE_CHECKING:
    from sgdec.context import Context

    # The only circular import, for a type alone. If it were a protocol class, type checkers would refuse every
    # decoder that is annotated with SearchSpace: an override may not ask for more than what it overrides.
    from sgdec.search.space import SearchSpace

__all__ = [
    "ABILITIES",
    "API",
    "FORBIDDEN",
    "Array",
    "Attention",
    "BatchDecoder",
    "BatchPredictor",
    "BestRemaining",
    "Candidates",
    "Decoder",
    "Hypothesis",
    "InnerContext",
    "Predictor",
    "ReadVocabularies",
    "Result",
    "Scores",
    "Source",
    "SparseRow",
    "State",
    "StateKey",
    "StepsAhead",
    "Summary",
    "Traits",
    "WorstRemaining",
    "ability",
]

API = 1
"""The version of this page. A plugin's module may state its version: ``sgdec_api = 1``."""

State: TypeAlias = Any
"""All a predictor knows about one prefix: an immutable value."""
Candidates: TypeAlias = Sequence[int]
"""Tokens in ascending order, each once."""
Steps: TypeAlias = tuple[Candidates, Sequence[float], Sequence[State]]
"""The continuations of a prefix in an automaton: tokens, their scores, and the states after them."""


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


class Traits:
    """Values of a predictor for the framework; set in the class or, if they depend on options, in ``__init__``."""

    on_demand: bool = False
    """Whether it scores on demand: called last, with the candidates that the other predictors leave."""
    max_score: float = math.inf
    """The highest score of any token in any sentence, ``</s>`` included: 0 for log-probabilities, +inf = unknown.

    Without `BestRemaining`, bounds are computed from it (`sgdec.search.bounds`).
    """
    independent_rows: bool = False
    """Whether row i is the same, bit for bit, whatever other sentences' rows are in the batch.

    The simple form has no batches and need not set it.
    """
    vocabularies: Vocabularies = Vocabularies()
    """The vocabularies of its own model, if it has one, with which it reads the source."""


class Predictor(Traits, ABC):
    """The simple form: scores the next token of one prefix at a time.

    A predictor without memory needs only `predict_next`; one with memory also `consume`, `get_state` and
    `set_state`; one that looks at the source also `initialize`. What ``__init__`` loads is shared by all
    sentences; `initialize` *assigns* what belongs to one sentence, for the framework works on a shallow copy of
    the predictor for each sentence, and several sentences are in flight at once.

    Its abilities receive states that `get_state` returned.
    """

    def initialize(self, source: Source) -> None:
        """Prepare one sentence: run the encoder, load the lattice."""

    @abstractmethod
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        """One row of scores. Must not change the results of later calls.

        ``candidates``: the only tokens that the search still needs, or None for all. Others may be scored too.
        """

    def consume(self, token: int) -> None:
        """Add one token to the prefix."""

    def get_state(self) -> State:
        """The prefix as an immutable value; None for a predictor without memory."""
        return None

    def set_state(self, state: State) -> None:
        """Go back to a prefix of this sentence."""


class BatchPredictor(Traits, ABC):
    """The batch form: the same verbs over many prefixes at once, with the states explicit.

    Row i of every answer belongs to state i of the question.
    """

    @abstractmethod
    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """The states of the empty prefixes of these sentences."""

    @abstractmethod
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        """One row per state. ``candidates``: for each row the only tokens still needed, or None for all."""

    @abstractmethod
    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        """The states after one more token each; the given states stay valid."""


# Abilities. Absent = unknown. The first four take a list of states and return one value each.


class BestRemaining(Protocol):
    """A bound on future scores, for predictors whose `Traits.max_score` is too loose."""

    @abstractmethod
    def best_remaining(self, states: Sequence[State]) -> Sequence[float]:
        """The most that this predictor can still add after each state, ``</s>`` included.

        At least the score of the best completion. -inf: there is none. +inf: no limit, or unknown.
        """


class WorstRemaining(Protocol):
    """The mirror of `BestRemaining`, for negative weights."""

    @abstractmethod
    def worst_remaining(self, states: Sequence[State]) -> Sequence[float]:
        """The least that it can still add: at most the score of the worst completion; +inf: there is none."""


class StateKey(Protocol):
    """Identifies prefixes with the same future."""

    @abstractmethod
    def state_key(self, states: Sequence[State]) -> Sequence[Hashable]:
        """Equal keys = the same scores from here on, whatever is consumed."""


class Attention(Protocol):
    """Attends to the source."""

    @abstractmethod
    def attention(self, states: Sequence[State]) -> Sequence[Any]:
        """For each state one row ``[source]``: the weights with which the token after it is predicted; sum 1."""


class StepsAhead(Protocol):
    """An automaton, in the batch form: the state after a token costs no more than the token's score."""

    @abstractmethod
    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        """Predict and consume in one, for one prefix, as plain Python sequences.

        The tokens that can follow, ascending, with the scores and the states after. With candidates exactly these
        tokens, -inf for those that cannot follow; None is given only to a predictor that is not on demand, whose rows
        restrict. States are hashable, and equal ones have equal futures. If all predictors of a run are automata, a
        search calls only this and their bounds.
        """


class Summary(Protocol):
    """Reports at the end of a run."""

    @abstractmethod
    def summary(self) -> str | None:
        """One line, which ``sgdec decode`` prints; None = nothing to report."""


ABILITIES = ("best_remaining", "worst_remaining", "state_key", "attention")
"""The abilities over lists of states, in both forms."""


def ability(predictor: object, name: str) -> Callable[[Sequence[State]], Sequence[Any]] | None:
    """The optional method ``name`` of a predictor, or None."""
    return getattr(predictor, name, None)


# Class hooks. They are called with the options of the instance, before anything heavy is loaded.


class ReadVocabularies(Protocol):
    """Provides the run's vocabularies."""

    @classmethod
    @abstractmethod
    def read_vocabularies(cls, **options: Any) -> Vocabularies:
        """The vocabularies of its model; those of all predictors of a run must agree.

        The hook of a wrapper may have a parameter ``inner``: the vocabularies of the inner predictor. Raises
        SgdecError if the file of a vocabulary cannot be read.
        """


class InnerContext(Protocol):
    """A wrapper whose inner predictor has another context, such as other tokens."""

    @classmethod
    @abstractmethod
    def inner_context(cls, context: Context, **options: Any) -> Context:
        """The context of the inner predictor."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished search path. ``T`` counts ``</s>``; K predictors."""

    tokens: tuple[int, ...]
    """The T - 1 tokens without ``<s>`` and ``</s>``."""
    score: float
    """The weighted total."""
    rank_score: float
    """The score that sorts lists: total under the decoder's ranking (GNMT, equation 14), or `Decoder.ranks_by`."""
    ledger: tuple[tuple[float, ...], ...] = ()
    """``[T, K]``: the unweighted score of each token by each predictor (0 if it was not consulted)."""
    weights: tuple[tuple[float | None, ...], ...] = ()
    """``[T, K]``: the weights that were in force for each token; None = not consulted."""
    text: str | None = None
    """Its text if the tokens do not determine it: with words copied from the source (`sgdec.tasks.copying`)."""

    @property
    def scores(self) -> tuple[float, ...]:
        """``[K]``: the unweighted sum by predictor."""
        return tuple(math.fsum(column) for column in zip(*self.ledger, strict=True))


@dataclass(frozen=True)
class Result:
    """The result of a decoder in one space."""

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
    """The name of the criterion in `Hypothesis.rank_score`: the score under `ranking`, or one of the decoder's own.

    A decoder for minimum Bayes risk would set ``expected utility``, and each score by ``replace(space.finish(node),
    rank_score=...)``: a finite number, higher is better. Total and ledger stay unchanged. The decoder must not
    declare itself `exact` or return a proof or a gap: these are about `ranking`.
    """

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        """A warning of what this search can miss with its options, and which ones are safe; None = no warning.

        ``sgdec decode`` prints it once. ``never_rises``: whether predictors declare that totals never rise.
        """
        return None

    @abstractmethod
    def decode(self, space: SearchSpace) -> Result:
        """Search one space; the list of hypotheses is empty if none satisfies all predictors."""


class BatchDecoder(Decoder):
    """A search strategy over whole tensors: many spaces of one constellation at once.

    It calls the predictors itself: by `sgdec.rows`, or by their verbs (``space.predictors``, ``space.weights``).
    """

    @abstractmethod
    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        """One result per space; an exception may be raised for all of them.

        It reports its own calls of predictors to `SearchSpace.count_expansions`.
        """

    def decode(self, space: SearchSpace) -> Result:
        return self.decode_batch([space])[0]


__getattr__ = former_names(__name__, dict.fromkeys(("Lifted", "Lowered", "lift"), "sgdec.lifting"))

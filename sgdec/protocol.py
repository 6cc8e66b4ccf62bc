"""The protocol: all methods and values that a plugin can have, on one page.

A **predictor** scores the next token of a prefix and knows nothing about the search. Most predictors are written in
the simple form, `Predictor`, which handles one prefix at a time. Neural models use the batch form, `BatchPredictor`,
which handles many prefixes at once. `sgdec.lift` converts the simple form to the batch form, so a search uses only
the batch form. A **decoder** searches the space that the predictors define together and does not depend on any of
them.

The five verbs (methods) are those of Stahlberg et al. 2017, "SGNMT", section 2. Scores are natural logs, higher is
better, and ``-inf`` forbids a token whatever the weight.

Optional members of a class, besides its verbs, are declared here too:

- *traits* (`Traits`): values that the framework reads;
- *abilities* (`BestRemaining`, ...): optional methods; a predictor may derive from the ability's class, so that
  mypy finds misspelt names;
- *class hooks* (`ReadVocabularies`, `InnerContext`): class methods that are called before an instance is created.

A class is checked against this page when it is loaded (`sgdec.plugins.surface`). `API` is the version of this page.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sgdec.arrays import Array, Floats, Ints
from sgdec.context import Vocabularies, Vocabulary
from sgdec.renamed import FormerTraits, former_names
from sgdec.scores import FORBIDDEN, Scores, SparseRow
from sgdec.sums import exact_sum

if TYPE_CHECKING:
    from sgdec.context import Context

__all__ = [
    "ABILITIES",
    "API",
    "FORBIDDEN",
    "LENGTH_FACTOR",
    "Arcs",
    "ArcsAhead",
    "Array",
    "Attention",
    "BatchPredictor",
    "BestRemaining",
    "Candidates",
    "Hypothesis",
    "InnerContext",
    "LengthLimit",
    "Listed",
    "Predictor",
    "Progress",
    "ReadVocabularies",
    "Release",
    "Result",
    "Scores",
    "Source",
    "SparseRow",
    "State",
    "StateKey",
    "StateLabel",
    "StepsAhead",
    "Summary",
    "Traits",
    "WorstRemaining",
    "ability",
]

API = 1
"""The version of this page. A plugin's module may state its version: ``sgdec_api = 1``."""

LENGTH_FACTOR = 2.0
"""The default length limit of translations, as a multiple of the source's tokens."""
State: TypeAlias = Any
"""All that a predictor knows about one prefix: an immutable value."""
Candidates: TypeAlias = Sequence[int]
"""Tokens in ascending order, each once."""
Steps: TypeAlias = tuple[Candidates, Sequence[float], Sequence[State]]
"""The continuations of a prefix in an automaton: tokens, their scores, and the states after them."""
Listed: TypeAlias = tuple[Ints, Ints]
"""Tokens for each of R states: offsets ``[R + 1]``, tokens ``[n]``. Those of state i begin at offset i."""
Arcs: TypeAlias = tuple[Ints, Ints, Floats, Ints]
"""The continuations of R states: offsets ``[R + 1]``, and by arc ``[n]`` tokens, their scores, states after them."""


@dataclass(frozen=True)
class Source:
    """One sentence to decode."""

    id: int
    """1-based number of the sentence in its input."""
    tokens: tuple[int, ...]
    """Source tokens, without ``<s>`` and ``</s>``."""
    text: str | None = None
    """The line as it was read; None for token ids."""
    max_length: int | None = None
    """At most this many target tokens before ``</s>``; None = no limit."""

    def spell(self, vocabulary: Vocabulary) -> str:
        """Its text; if it is not known, that of the tokens in their vocabulary."""
        return vocabulary.decode(self.tokens) if self.text is None else self.text


class Traits(FormerTraits):
    """Values that the framework reads; set in the class or, if they depend on options, in ``__init__``."""

    on_demand: bool = False
    """Whether it scores on demand: it is called last, with the candidates that the other predictors allow."""
    max_score: float = math.inf
    """The highest score of any token in any sentence, ``</s>`` included: 0 for log-probabilities, +inf = unknown.

    Without `BestRemaining`, bounds are computed from it (`sgdec.search.bounds.declared`).
    """
    independent_rows: bool = False
    """Whether row i does not depend, bit for bit, on the other sentences' rows in the batch.

    The simple form has no batches and need not set it.
    """
    restricts: bool = True
    """Whether all rows of an automaton restrict, so that it can list the tokens that follow a state.

    Read only for predictors with `StepsAhead` or `ArcsAhead`; one that is on demand never lists.
    """
    arcs_of_tensors: bool = False
    """Whether `ArcsAhead.arcs` also answers for torch tensors, on their device."""
    vocabularies: Vocabularies = Vocabularies()
    """The vocabularies of its model, if it has one; source tokens are ids in its source vocabulary."""


class Predictor(Traits, ABC):
    """The simple form: scores the next token of one prefix at a time.

    A predictor without memory needs only `predict_next`. A predictor with memory also needs `consume`, `get_state`
    and `set_state`. A predictor that uses the source also needs `initialize`. All sentences share what ``__init__``
    loads. `initialize` must *assign* what belongs to one sentence, not mutate it, because the framework makes a
    shallow copy of the predictor for each sentence, and decodes several sentences at once.

    Abilities receive states that `get_state` returned.
    """

    def initialize(self, source: Source) -> None:
        """Prepare one sentence: run the encoder, load the lattice."""

    @abstractmethod
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        """One row of scores for the next token. Must not change the results of later calls.

        ``candidates``: the only tokens that the search needs, or None for all. Other tokens may be scored too.
        """

    def consume(self, token: int) -> None:
        """Add one token to the prefix."""

    def get_state(self) -> State:
        """The prefix as an immutable value; None for a predictor without memory."""
        return None

    def set_state(self, state: State) -> None:
        """Go back to a prefix of this sentence."""


class BatchPredictor(Traits, ABC):
    """The batch form: the same verbs for many prefixes at once, with explicit states.

    Row i of each returned value belongs to state i of the argument.
    """

    @abstractmethod
    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """The states of the empty prefixes of these sentences."""

    @abstractmethod
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        """One row per state. ``candidates``: for each row the only tokens that the search needs, or None for all."""

    @abstractmethod
    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        """The states after one more token each; the given states stay valid."""


# Abilities. If a predictor lacks one, its value counts as unknown. The first four return one value per state. Others
# are in `sgdec.relaxations`.


class BestRemaining(Protocol):
    """A bound on future scores, for predictors whose `Traits.max_score` is too loose."""

    @abstractmethod
    def best_remaining(self, states: Sequence[State]) -> Sequence[float]:
        """The most that this predictor can still add after each state, ``</s>`` included.

        It must be at least the score of the best completion. -inf = there is no completion; +inf = no limit, or
        unknown.
        """


class WorstRemaining(Protocol):
    """The counterpart of `BestRemaining` for negative weights."""

    @abstractmethod
    def worst_remaining(self, states: Sequence[State]) -> Sequence[float]:
        """The least that it can still add: at most the score of the worst completion; +inf = no completion exists."""


class StateKey(Protocol):
    """Identifies prefixes with the same future."""

    @abstractmethod
    def state_key(self, states: Sequence[State]) -> Sequence[Hashable]:
        """One key per state. Equal keys = equal scores for all continuations."""


class Attention(Protocol):
    """Gives attention weights over the source."""

    @abstractmethod
    def attention(self, states: Sequence[State]) -> Sequence[Any]:
        """For each state one row ``[source]``: the attention weights for the token after it, which sum to 1."""


class StateLabel(Protocol):
    """Names states for people who look at a trace."""

    @abstractmethod
    def state_label(self, states: Sequence[State]) -> Sequence[str | None]:
        """For each state a short name, such as the number of a lattice's state in its file; None = it has no name."""


class Progress(Protocol):
    """Counts how much of a constraint is met, for searches with banks (Post and Vilar 2018, section 3).

    A prefix that meets more than another one competes only with its equals, so that hypotheses with the tokens that a
    model would not choose survive.
    """

    @abstractmethod
    def progress(self, states: Sequence[State]) -> Sequence[tuple[int, int]]:
        """For each state how much is met, and how much there is to meet: ``0 <= met <= needed``.

        ``needed`` is the same for all prefixes of a sentence. ``met`` can fall: a phrase that has begun may not
        continue. If ``</s>`` is not forbidden, met equals needed. The counts of several predictors are added.
        """

    @abstractmethod
    def advancing(self, states: Sequence[State]) -> Sequence[Candidates]:
        """For each state tokens after which more is met than before; the search considers them whatever they score.

        There can be others; a few that lead to the constraint are enough. None of them is ``</s>`` or forbidden by
        this predictor.
        """


class StepsAhead(Protocol):
    """An automaton, in the batch form: the state after a token costs no more than the token's score."""

    @abstractmethod
    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        """Predict and consume in one call, for one prefix, with plain Python sequences.

        Returns the tokens that can follow, ascending, with their scores and the states after them. With candidates it
        returns exactly these tokens, with -inf for those that cannot follow. Only a predictor that `Traits.restricts`
        and is not on demand receives None. States must be hashable, and equal states must have equal futures. If all
        predictors of a run are automata, a search calls only this method (or `ArcsAhead.arcs`) and their bounds.
        """


class ArcsAhead(Protocol):
    """An automaton whose states are integers, in the batch form: `StepsAhead` for many prefixes at once, as arrays.

    A number stands for the same state as long as the run lasts, and never for states of two sentences with different
    futures: numbers of an earlier sentence must not be used again, because searches cache what follows a state.
    """

    @abstractmethod
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        """Predict and consume in one call, for the prefixes in ``states [R]``.

        Row i of the result is what `StepsAhead.steps` returns for state i, bit for bit: the tokens that can follow,
        ascending, or with candidates exactly the tokens of row i of these, with -inf for those that cannot follow.
        States after tokens that cannot follow are arbitrary. The result is not changed by the caller, nor are the
        arguments by this method. `sgdec.arcs` has what implementations share.

        Searches ask with NumPy arrays, and an implementation needs to handle nothing else. One that sets
        `Traits.arcs_of_tensors` also answers for torch tensors: with tensors of the same types on the same device,
        and the same numbers bit for bit.
        """


class Release(Protocol):
    """Frees what belongs to single sentences, for states that are numbers and so cannot keep it alive."""

    @abstractmethod
    def release(self, roots: Sequence[State]) -> None:
        """The searches that began in these states have ended; states of their sentences will not be used again."""


class LengthLimit(Protocol):
    """States how long outputs of a model are, for runs whose user gives no limit."""

    @abstractmethod
    def length_limit(self, source: Source) -> int | None:
        """The default limit on output tokens before ``</s>``; None = `LENGTH_FACTOR` times the source's
        tokens, as for translations.

        ``source`` has no `max_length` yet. If one predictor of a run returns None, that holds; otherwise the smallest
        limit holds. Predictors that know nothing of lengths do not have this method. An SgdecError for a source that
        cannot be read is ignored; `initialize_batch` should raise it too.
        """


class Summary(Protocol):
    """Reports statistics at the end of a run."""

    @abstractmethod
    def summary(self) -> str | None:
        """One line for ``sgdec decode`` to print; None = nothing to report."""


ABILITIES = (
    "best_remaining", "worst_remaining", "state_key", "attention", "state_label", "progress", "advancing"
)  # fmt: skip
"""The abilities over lists of states, in both forms."""


def ability(predictor: object, name: str) -> Callable[[Sequence[State]], Sequence[Any]] | None:
    """The optional method ``name`` of a predictor, or None."""
    return getattr(predictor, name, None)


# Class hooks. They are called with the options of the instance, before models and data are loaded.


class ReadVocabularies(Protocol):
    """Provides the run's vocabularies."""

    @classmethod
    @abstractmethod
    def read_vocabularies(cls, **options: Any) -> Vocabularies:
        """The vocabularies of its model; those of all predictors of a run must agree.

        A wrapper's hook may have a parameter ``inner``, which receives the vocabularies of the inner predictor.
        Raises SgdecError if a vocabulary file cannot be read.
        """


class InnerContext(Protocol):
    """Changes the context of a wrapper's inner predictor, for example its vocabulary."""

    @classmethod
    @abstractmethod
    def inner_context(cls, context: Context, **options: Any) -> Context:
        """The context of the inner predictor, derived from the wrapper's ``context``."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished search path. ``T`` counts ``</s>``; K predictors."""

    tokens: tuple[int, ...]
    """The T - 1 tokens without ``<s>`` and ``</s>``."""
    score: float
    """The weighted total."""
    rank_score: float
    """The score that sorts lists: the total under the decoder's ranking (GNMT, equation 14), or its own criterion."""
    ledger: tuple[tuple[float, ...], ...] = ()
    """``[T, K]``: the unweighted score of each token by each predictor (0 if it was not consulted)."""
    weights: tuple[tuple[float | None, ...], ...] = ()
    """``[T, K]``: the weights under which each token was scored; None = not consulted."""
    text: str | None = None
    """The text if words were copied from the source (`sgdec.tasks.copying`); None if the tokens determine it."""
    count: int | None = None
    """The number of its draws by a decoder that draws at random; None if it is not one of several draws."""
    log_q: float | None = None
    """The log-probability of one draw under the local distributions of its steps; None if it was not drawn so."""
    log_weight: float | None = None
    """The log of its weight in estimates from weighted draws, as the decoder defines it; None = draws have equal
    weights."""
    coverage: float | None = None
    """The coverage penalty of GNMT's equation 14 at beta 1, if the run computes coverage."""

    @property
    def scores(self) -> tuple[float, ...]:
        """``[K]``: for each predictor the sum of its unweighted scores."""
        return tuple(exact_sum(column) for column in zip(*self.ledger, strict=True))


@dataclass(frozen=True)
class Result:
    """The result of a decoder for one search space."""

    hypotheses: list[Hypothesis]
    """Best first (`Hypothesis.rank_score`), no two with the same tokens and weights; at most ``space.nbest``."""
    proven: bool | None = None
    """True: no better list exists in the space; False: a budget ended the search; None: no claim."""
    gap: float | None = None
    """If not proven: an upper bound on the optimum's score minus the score of the first hypothesis."""
    expansions: int = field(default=0, compare=False)
    """The number of expanded nodes; set by the framework."""
    bounds: str | None = field(default=None, compare=False)
    """The bounds that the search used, ``sum`` or ``product`` (`sgdec.search.bounds`); None = none. As above."""
    dead_end: str | None = field(default=None, compare=False)
    """If there is no hypothesis: a sentence about the longest prefix and the tokens that can follow it. As above."""
    drawn: int | None = None
    """The number of all draws, with those that were lost in dead ends; None = the decoder does not draw."""


DECODERS = ("BatchDecoder", "Decoder", "Feed")
"""Names of `sgdec.decoder`, which were here when `API` got its number."""
__getattr__ = former_names(
    __name__,
    {**dict.fromkeys(("Lifted", "Lowered", "lift"), "sgdec.lifting"), **dict.fromkeys(DECODERS, "sgdec.decoder")},
    silent=DECODERS,
)

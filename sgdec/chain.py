"""A chain of samplers: links that reshape or cut the distribution of the next token, in the order given.

    top_k=50+min_p=0.05        the 50 best, then those of them with a twentieth of the best one's probability

Each link receives the distribution that the one before it left, renormalised, so the order matters: a temperature
before a cut changes what is cut, one behind it only the odds among what is kept. ``+`` separates links, and a link
is ``NAME=VALUE``: `LINKS` has the names. A chain has each link once at most, and `Mirostat` only as the last one.

Scores are arrays ``[..., n]``, a row for each prefix. Links with `Link.sorted` receive the best token first; of equal
scores the lower token is first. -inf marks tokens that are not there. A link never empties a row: the best
token stays, and where a link keeps all tokens of one score or none, so do all that are as good as it. All computation
is in float64.

A link may keep a number from token to token of one draw. It is a value, not a part of the link: `Chain.apply`
receives the number of each row and returns the one that each child would have.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from sgdec.arrays import FORBIDDEN, Flags, Floats, Ints
from sgdec.suggest import suggest

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


LONG = 256
"""Shorter rows are sorted as a whole."""
FEW = 64
"""The best tokens of a long row that are sorted first: most draws are among them."""


class Link(ABC):
    """One step of a chain. Its fields are numbers, of which the first is ``VALUE`` in ``NAME=VALUE``."""

    name: ClassVar[str]
    sorted: ClassVar[bool] = False
    """Whether the columns that it receives must have the best token first."""

    @property
    def start(self) -> float | None:
        """The number that a new draw begins with; None = the link keeps none."""
        return None

    @abstractmethod
    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        """New scores ``[..., n]``, or fewer columns if only the first ones have tokens.

        ``state`` ``[..., 1]``: the numbers of the rows, if the link keeps one.
        """

    def after(self, scores: Floats, state: Floats) -> Floats:
        """The numbers ``[..., n]`` after each token, from the scores that `apply` received."""
        raise NotImplementedError

    def __str__(self) -> str:
        values = (getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]  # links are dataclasses
        return f"{self.name}={':'.join(map(_printed, values))}"

    def _require(self, fits: bool, expected: str) -> None:
        if not fits:
            raise ValueError(f"{self}: expected {expected}")


@dataclass(frozen=True)
class TemperatureLink(Link):
    """p_w becomes p_w ^ (1 / ``value``), renormalised: scores divided by T > 0. Keeps all tokens.

    As in transformers.
    """

    name: ClassVar[str] = "temperature"
    value: float

    def __post_init__(self) -> None:
        self._require(0 < self.value < math.inf, "a number above 0")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        with np.errstate(over="ignore"):  # a difference that overflows to -inf has probability 0
            return _shifted(scores) / self.value


@dataclass(frozen=True)
class TopK(Link):
    """The ``k`` most probable tokens (Fan et al. 2018, section 5).

    Never more than k: of equal tokens at the border the lower ones are kept. transformers keeps them all.
    """

    name: ClassVar[str] = "top_k"
    sorted: ClassVar[bool] = True
    k: int

    def __post_init__(self) -> None:
        self._require(isinstance(self.k, int) and self.k >= 1, "an integer >= 1")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        if _in_order(scores):
            return scores[..., : self.k]
        there = scores > FORBIDDEN  # a link before this one has cut the best ones
        return _cut(scores, there & (np.cumsum(there, axis=-1) <= self.k))


@dataclass(frozen=True)
class TopP(Link):
    """The nucleus (Holtzman et al. 2020, section 3.1): the fewest best tokens whose probabilities reach ``p``.

    "Reach" is >=, so with p = 0.5 two tokens of 0.5 leave one. Among equal tokens at the border the lower ones are
    kept; transformers keeps as many, but not always these. p = 1 keeps all.
    """

    name: ClassVar[str] = "top_p"
    sorted: ClassVar[bool] = True
    p: float

    def __post_init__(self) -> None:
        self._require(0 < self.p <= 1, "a number above 0 and at most 1")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        if self.p == 1:
            return scores
        reached = np.cumsum(_probabilities(scores), axis=-1)
        before = np.concatenate([np.zeros_like(reached[..., :1]), reached[..., :-1]], axis=-1)
        return _cut(scores, before < self.p)


@dataclass(frozen=True)
class MinP(Link):
    """Tokens with at least ``share`` times the probability of the best one (Nguyen et al. 2024, section 3).

    "At least" is >=, as in transformers. 0 keeps all; 1 keeps the best one and its equals.
    """

    name: ClassVar[str] = "min_p"
    share: float

    def __post_init__(self) -> None:
        self._require(0 <= self.share <= 1, "a number from 0 to 1")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        return _cut(scores, np.exp(_shifted(scores)) >= self.share)


@dataclass(frozen=True)
class Typical(Link):
    """Locally typical sampling (Meister et al. 2023, section 5): tokens whose surprise is near the entropy H.

    In the order of \\|H + ln p_w\\| the first tokens whose probabilities reach (>=) ``mass``. The paper leaves equal
    distances open; here, as in transformers, all that are as far as the last one are kept. So the best token may go,
    but never all. 1 keeps all; transformers does not take it.
    """

    name: ClassVar[str] = "typical"
    mass: float

    def __post_init__(self) -> None:
        self._require(0 < self.mass <= 1, "a number above 0 and at most 1")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        if self.mass == 1:
            return scores
        log_probs = _log_probabilities(scores)
        there = log_probs > FORBIDDEN
        distance = np.abs(log_probs + _entropy(log_probs))
        order = np.argsort(distance, axis=-1, kind="stable")
        reached = np.cumsum(np.take_along_axis(_probabilities(scores), order, axis=-1), axis=-1)
        present = np.sum(there, axis=-1, keepdims=True)
        last = np.minimum(np.sum(reached < self.mass, axis=-1, keepdims=True), np.maximum(present - 1, 0))
        farthest = np.take_along_axis(np.take_along_axis(distance, order, axis=-1), last, axis=-1)
        return _cut(scores, distance <= farthest)


@dataclass(frozen=True)
class Epsilon(Link):
    """Tokens with a probability of at least ``epsilon`` (Hewitt et al. 2022, section 4.2).

    "At least" is >=, as in transformers; the paper has >. If there is none, the best one and its equals are kept.
    """

    name: ClassVar[str] = "epsilon"
    epsilon: float

    def __post_init__(self) -> None:
        self._require(0 < self.epsilon < 1, "a number between 0 and 1")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        return _cut(scores, _probabilities(scores) >= self.epsilon)


@dataclass(frozen=True)
class Eta(Link):
    """Eta sampling (Hewitt et al. 2022, section 4.3): p_w of at least min(``epsilon``, sqrt(epsilon) exp(-H)).

    H is the entropy in nats. "At least" is >=, as in transformers; the paper has >. If there is none, the best one
    and its equals are kept.
    """

    name: ClassVar[str] = "eta"
    epsilon: float

    def __post_init__(self) -> None:
        self._require(0 < self.epsilon < 1, "a number between 0 and 1")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        entropy = _entropy(_log_probabilities(scores))
        least = np.minimum(self.epsilon, math.sqrt(self.epsilon) * np.exp(-entropy))
        return _cut(scores, _probabilities(scores) >= least)


@dataclass(frozen=True)
class TopNSigma(Link):
    """Tokens whose score is at least the best one's minus ``n`` standard deviations (Tang et al. 2024, Algorithm 1).

    "At least" is >=. The deviation is that of the scores of the tokens that are there, with their number as the
    divisor; ``torch.std`` divides by one less. So tokens that a predictor forbids, or a link before has cut, do not
    count, and a temperature before it changes nothing. transformers does not have it.
    """

    name: ClassVar[str] = "top_n_sigma"
    n: float

    def __post_init__(self) -> None:
        self._require(0 < self.n < math.inf, "a number above 0")

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        there = scores > FORBIDDEN
        shifted = np.where(there, _shifted(scores), 0.0)
        count = np.maximum(np.sum(there, axis=-1, keepdims=True), 1)
        mean = np.sum(shifted, axis=-1, keepdims=True) / count
        variance = np.sum(np.where(there, shifted - mean, 0.0) ** 2, axis=-1, keepdims=True) / count
        return _cut(scores, there & (shifted >= -self.n * np.sqrt(variance)))


@dataclass(frozen=True)
class Mirostat(Link):
    """Mirostat 2 (Basu et al. 2021, Algorithm 2): cuts surprises above mu, and steers mu so that they average tau.

    A surprise is -log2 p, in bits, under the distribution that the link receives, also for the drawn token;
    llama.cpp measures that one after renormalising. A draw begins with mu = 2 ``target``, and after a token with
    surprise S, mu falls by ``rate`` (S - ``target``). A surprise equal to mu is kept. If all are above it, the best
    token and its equals are kept. In a text: ``mirostat=TARGET`` or ``mirostat=TARGET:RATE``.
    """

    name: ClassVar[str] = "mirostat"
    target: float
    rate: float = 0.1

    def __post_init__(self) -> None:
        fits = 0 < self.target < math.inf and 0 <= self.rate < math.inf
        self._require(fits, "a target in bits above 0, and a rate >= 0")

    @property
    def start(self) -> float:
        return 2 * self.target

    def apply(self, scores: Floats, state: Floats | None) -> Floats:
        assert state is not None
        return _cut(scores, self._surprise(scores) <= state)

    def after(self, scores: Floats, state: Floats) -> Floats:
        surprise = self._surprise(scores)
        there = np.isfinite(surprise)
        return np.where(there, state - self.rate * (np.where(there, surprise, 0.0) - self.target), state)

    def _surprise(self, scores: Floats) -> Floats:
        return -_log_probabilities(scores) / math.log(2)


LINKS: dict[str, type[Link]] = {
    each.name: each for each in (TemperatureLink, TopK, TopP, MinP, Typical, Epsilon, Eta, TopNSigma, Mirostat)
}
"""All links by name."""


class LocalDistribution(NamedTuple):
    """The chained distribution of each row."""

    places: Ints
    """``[..., m]``: columns of the scores given, best score first; ties: lower column."""
    log_probs: Floats
    """``[..., m]``: natural logarithms of probabilities that sum to 1; -inf = cut."""
    states: Floats | None
    """``[..., m]``: the number that a draw has after each token; None if no link keeps one."""


@dataclass(frozen=True)
class Chain:
    """Links in the order in which they are applied; without any, the distribution is unchanged.

    >>> chain = Chain.parse("top_k=2 + temperature=0.5")
    >>> chain, str(chain)
    (Chain(links=(TopK(k=2), TemperatureLink(value=0.5))), 'top_k=2+temperature=0.5')
    >>> local = chain.apply(np.log([0.2, 0.1, 0.4, 0.3]))
    >>> local.places, np.exp(local.log_probs).round(2)
    (array([2, 3]), array([0.64, 0.36]))
    """

    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        names = [link.name for link in self.links]
        for place, (name, link) in enumerate(zip(names, self.links, strict=True)):
            if name in names[:place]:
                raise ValueError(f"{name} is there twice; expected each link once")
            if link.start is not None and place < len(names) - 1:
                raise ValueError(f"{names[place + 1]} comes after {name}, which has to be the last link")

    @classmethod
    def parse(cls, text: str) -> Chain:
        """A chain from ``NAME=VALUE+NAME=VALUE``; its ``str`` gives the text back. Raises ValueError in one clause.

        Hyphens in names count as underscores. Spaces around names and values are ignored.
        """
        return cls(tuple(map(_parse_link, text.split("+")))) if text.strip() else cls()

    @classmethod
    def of(cls, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Chain:
        """The chain of these settings: top-k, then the temperature, then the nucleus; without those that keep all."""
        links: list[Link] = []
        if top_k:
            links.append(TopK(top_k))
        if temperature != 1.0:
            links.append(TemperatureLink(temperature))
        if top_p < 1.0:
            links.append(TopP(top_p))
        return cls(tuple(links))

    @property
    def start(self) -> float | None:
        """The number that a new draw begins with; None if no link keeps one."""
        return self.links[-1].start if self.links else None

    def apply(self, scores: Floats, states: Floats | float | None = None) -> LocalDistribution:
        """The chained distribution from scores ``[..., n]`` of ascending tokens, normalised or not; -inf = no token.

        ``states`` ``[...]``: the numbers of the draws, for chains whose `start` is not None (which is the default). A
        row without a token has log-probabilities of -inf.
        """
        links, state = self.links, self._states(states)
        after = None
        if scores.ndim == 1 and scores.size >= LONG and np.max(scores) > FORBIDDEN:  # cut before sorting
            first = list(takewhile(lambda link: not link.sorted, links))
            links = links[len(first) :]
            kept, after = _applied(first, scores, state)
            places = _best_first(scores, kept, links[0].k if links and isinstance(links[0], TopK) else None)
            kept, after = kept[places], None if after is None else after[places]
        else:
            places = np.argsort(-scores, axis=-1, kind="stable")
            kept = np.take_along_axis(scores, places, axis=-1)
        if links:
            kept, after = _applied(links, kept, state)
        return LocalDistribution(places[..., : kept.shape[-1]], _log_probabilities(kept), after)

    def draw(self, scores: Floats, uniform: float, state: float | None = None) -> tuple[int, float, float | None]:
        """The column of ``scores`` ``[n]`` at which the probabilities, best score first, reach more than ``uniform``.

        Returns also its log-probability, and the number that the draw keeps. ``uniform`` is in [0, 1), and
        at least one score is not -inf. Only as many of the best tokens are sorted as are needed.

        >>> place, log_prob, _ = UNCHAINED.draw(np.log([0.2, 0.1, 0.4, 0.3]), 0.75)
        >>> place, round(math.exp(log_prob), 4)
        (0, 0.2)
        """
        if any(link.sorted for link in self.links):
            places, log_probs, after = self.apply(scores, state)
        else:
            kept, after = _applied(self.links, scores, self._states(state))
            places, log_probs = np.arange(len(kept)), _log_probabilities(kept)
        at = _reached(scores[places], np.exp(log_probs), uniform)
        return int(places[at]), float(log_probs[at]), None if after is None else float(after[at])

    def _states(self, given: Floats | float | None) -> Floats | None:
        """The numbers of the draws ``[..., 1]``; None if the chain keeps none."""
        return None if self.start is None else np.asarray(self.start if given is None else given)[..., None]

    def __str__(self) -> str:
        return "+".join(map(str, self.links))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """For an option of a plugin: a chain, or its text."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls._of)

    @classmethod
    def _of(cls, value: Any) -> Chain:
        if isinstance(value, str):
            return cls.parse(value)
        if not isinstance(value, cls):
            raise ValueError("expected a text such as top_k=50+min_p=0.05")
        return value


UNCHAINED = Chain()
"""Leaves every distribution as it is."""


def _parse_link(text: str) -> Link:
    name, _, value = map(str.strip, text.partition("="))
    cls = LINKS.get(name.replace("-", "_"))
    if cls is None:
        what = f"no link {name!r}" if name else "an empty link"
        raise ValueError(f"{what}; expected NAME=VALUE, with + between links. {suggest(name, LINKS)}".rstrip("."))
    parameters, values = fields(cls), value.split(":")  # type: ignore[arg-type]  # links are dataclasses
    if len(values) > len(parameters):
        raise ValueError(f"{name}={value}: expected {len(parameters)} number{'s'[: len(parameters) - 1]} at most")
    try:
        numbers = [_number(value, each.type) for value, each in zip(values, parameters, strict=False)]
    except ValueError:
        raise ValueError(f"{text.strip()}: expected {cls.name}=VALUE, a number") from None
    return cls(*numbers)


def _number(text: str, kind: object) -> float:
    """A number of a field with this annotation. Raises ValueError for any other text, and for Python's ``1_0``."""
    if "_" in text:
        raise ValueError
    return int(text) if kind == "int" else float(text)


def _printed(value: float) -> str:
    return repr(value).removesuffix(".0").replace("e+", "e")  # + separates links


def _applied(links: Iterable[Link], scores: Floats, state: Floats | None) -> tuple[Floats, Floats | None]:
    """The scores ``[..., n]`` after these links, and the numbers of the draws after each token, if one keeps any."""
    after = None
    for link in links:
        if link.start is not None and state is not None:
            after = link.after(scores, state)
        scores = link.apply(scores, state)
    return scores, after


def _best_first(scores: Floats, kept: Floats, k: int | None) -> Ints:
    """The columns ``[n]`` whose tokens are kept, best score first; with ``k`` at least so many, and their equals."""
    among = np.flatnonzero(kept > FORBIDDEN)
    if k is not None and len(among) > 2 * k:
        last = len(among) - k
        among = among[scores[among] >= np.partition(scores[among], last)[last]]
    return among[np.argsort(-scores[among], kind="stable")]


def _reached(scores: Floats, probabilities: Floats, uniform: float) -> int:
    """The place ``[n]`` at which the sum of probabilities, best score first, exceeds ``uniform`` times the whole."""
    whole = probabilities.sum()
    for few in (FEW, FEW * FEW):
        if 2 * few < len(scores):
            last = len(scores) - few
            best = np.flatnonzero(scores >= np.partition(scores, last)[last])
            best = best[np.argsort(-scores[best], kind="stable")]
            summed = np.cumsum(probabilities[best])
            if uniform * whole < summed[-1]:
                return int(best[np.searchsorted(summed, uniform * whole, side="right")])
    best = np.argsort(-scores, kind="stable")
    summed = np.cumsum(probabilities[best])
    # The product is below the last sum, whatever rounding does to it, so a token with a probability has the place.
    return int(best[np.searchsorted(summed, uniform * summed[-1], side="right")])


def _in_order(scores: Floats) -> bool:
    """Whether the tokens that are there come first in all rows."""
    there = scores > FORBIDDEN
    return bool(np.all(there[..., :-1] >= there[..., 1:]))


def _cut(scores: Floats, kept: Flags) -> Floats:
    """Scores without the tokens that are not kept; where that are all of a row, its best ones are."""
    none = ~np.any(kept & (scores > FORBIDDEN), axis=-1, keepdims=True)
    best = np.max(scores, axis=-1, keepdims=True)
    return np.where(kept | (none & (scores == best)), scores, FORBIDDEN)


def _shifted(scores: Floats) -> Floats:
    """Scores minus the best one of each row, so that their exponentials do not overflow."""
    best = np.max(scores, axis=-1, keepdims=True)
    shifted: Floats = scores - np.where(best == FORBIDDEN, 0.0, best)
    return shifted


def _probabilities(scores: Floats) -> Floats:
    """The softmax of each row; zeros for a row without a token."""
    exponentials = np.exp(_shifted(scores))
    summed = np.sum(exponentials, axis=-1, keepdims=True)
    probabilities: Floats = exponentials / np.maximum(summed, 1.0)  # with a token, it is >= 1
    return probabilities


def _log_probabilities(scores: Floats) -> Floats:
    """The logarithm of the softmax of each row; -inf for a row without a token."""
    shifted = _shifted(scores)
    log_probs: Floats = shifted - np.log(np.maximum(np.sum(np.exp(shifted), axis=-1, keepdims=True), 1.0))
    return log_probs


def _entropy(log_probs: Floats) -> Floats:
    """The entropy of each row in nats ``[..., 1]``."""
    there = np.where(log_probs == FORBIDDEN, 0.0, log_probs)
    entropy: Floats = -np.sum(np.exp(log_probs) * there, axis=-1, keepdims=True)
    return entropy

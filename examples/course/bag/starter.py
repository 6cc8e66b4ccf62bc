"""A bag of words: the output has the source's tokens, in any order (Stahlberg et al. 2017, Table 2, ``bow``).

TODO: the formula, the state, and the cost of one `predict_next`, in your own words.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any

from pydantic import Field

import sgdec
from sgdec import EOS, Predictor, Scores, Source  # noqa: F401 - EOS is </s>, which you will need


class MyBag(Predictor):
    """Draws tokens out of a bag without putting them back."""

    # TODO: declare in a class attribute that no score is ever above 0. See `sgdec.Predictor`.

    def __init__(
        self, subsets: Annotated[bool, Field(description="whether tokens may be left in the bag")] = False
    ) -> None:
        self._subsets = subsets
        # TODO: which data do all sentences share? Which data belong to one sentence, and which to one prefix?

    def initialize(self, source: Source) -> None:
        """Begin with a full bag: ``source.tokens``."""
        raise NotImplementedError("initialize")

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        """The row of formula (1), or of (2) with ``subsets``. Must not change what later calls return."""
        raise NotImplementedError("predict_next")  # Scores.sparse(tokens, scores) is a row that forbids the rest

    def consume(self, token: int) -> None:
        """Remove one token from the bag."""
        raise NotImplementedError("consume")

    def get_state(self) -> Any:
        """The state of the prefix as a value that is never changed."""
        raise NotImplementedError("get_state")

    def set_state(self, state: Any) -> None:
        """Return to a prefix of this sentence."""
        raise NotImplementedError("set_state")

    def state_key(self, states: Sequence[Any]) -> list[Hashable]:
        """For each state a hashable value. The values of two states are equal if and only if all their future scores
        are."""
        raise NotImplementedError("state_key")


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"mybag": MyBag}

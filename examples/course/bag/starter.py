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

    # TODO: one class attribute says that no score of yours is ever above 0. See `sgdec.Predictor`.

    def __init__(
        self, subsets: Annotated[bool, Field(description="whether tokens may be left in the bag")] = False
    ) -> None:
        self._subsets = subsets
        # TODO: what do all sentences share? What belongs to one sentence, and what to one prefix?

    def initialize(self, source: Source) -> None:
        """A full bag: ``source.tokens``."""
        raise NotImplementedError("initialize")

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        """The row of formula (1), or of (2) with ``subsets``. Must not change what later calls return."""
        raise NotImplementedError("predict_next")  # Scores.sparse(tokens, scores) is a row that forbids the rest

    def consume(self, token: int) -> None:
        """Takes one token out of the bag."""
        raise NotImplementedError("consume")

    def get_state(self) -> Any:
        """The prefix as a value that nobody ever changes."""
        raise NotImplementedError("get_state")

    def set_state(self, state: Any) -> None:
        """Back to a prefix of this sentence."""
        raise NotImplementedError("set_state")

    def state_key(self, states: Sequence[Any]) -> list[Hashable]:
        """For each state something hashable that is equal for two states just if their scores are, for ever."""
        raise NotImplementedError("state_key")


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"mybag": MyBag}

"""The limit on the length of outputs, in tokens before ``</s>``: what the user gives, or what predictors state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgdec.errors import SgdecError, UsageError, described
from sgdec.protocol import LENGTH_FACTOR, BatchPredictor, Source
from sgdec.search.blame import WrongAnswer, blamed

MOST_FACTOR = 1_000_000


@dataclass(frozen=True)
class LengthRule:
    """The length limit of each sentence.

    >>> source = Source(1, (3,) * 7)
    >>> LengthRule().limit(source), LengthRule(factor=1.5).limit(source), LengthRule(fixed=5).limit(source)
    (14, 10, 5)
    >>> LengthRule(stated=lambda source: 256).limit(source), LengthRule(fixed=0).limit(source)
    (256, None)
    """

    factor: float | None = None
    """The limit is this factor times the number of source tokens, rounded down; None = the default."""
    fixed: int | None = None
    """Overrides the factor; 0 = no limit."""
    stated: Callable[[Source], int | None] | None = None
    """The default for a source; None, or the answer None = `LENGTH_FACTOR` times the number of source tokens."""

    def __post_init__(self) -> None:
        """Raises UsageError for an invalid factor."""
        if self.factor is not None and not 0 <= self.factor <= MOST_FACTOR:
            raise UsageError(
                f"--max-length-factor {self.factor:g}: expected 0 to {MOST_FACTOR}. For no limit give --max-length 0."
            )

    def limit(self, source: Source) -> int | None:
        """The limit for this source; None = no limit. Raises what `stated` raises."""
        if self.fixed is not None:
            return self.fixed or None
        if self.factor is not None:
            return math.floor(self.factor * len(source.tokens))
        limit = None if self.stated is None else self.stated(source)
        return math.floor(LENGTH_FACTOR * len(source.tokens)) if limit is None else limit

    @property
    def way_out(self) -> str:
        """The option for longer outputs, as the end of a sentence."""
        context = ", as far as the context of a model goes" if "max_length" in self.default else ""
        return f"--max-length N allows more{context}"

    @property
    def default(self) -> dict[str, str]:
        """The part of the signature that names the default; empty if the user has given a limit."""
        if self.factor is not None or self.fixed is not None:
            return {}
        return {"max_length": "of models"} if self.stated else {"max_length_factor": f"{LENGTH_FACTOR}"}


def stated_limit(predictors: Mapping[str, BatchPredictor]) -> Callable[[Source], int | None] | None:
    """The limit that predictors state together (`sgdec.protocol.LengthLimit`), by source; None if none of them can.

    It is None, a multiple of the source's length, if one of them says so, otherwise the smallest of their limits. A
    predictor that refuses a source has no say: its search will fail with the same error. The function raises
    SgdecError, which names the predictor, for a defect of one.
    """
    able = {name: found for name, found in predictors.items() if getattr(found, "length_limit", None) is not None}

    def limit(source: Source) -> int | None:
        stated = [answer for name, predictor in able.items() for answer in _answer(name, predictor, source)]
        return None if None in stated else min((each for each in stated if each is not None), default=None)

    return limit if able else None


def _answer(name: str, predictor: Any, source: Source) -> list[int | None]:
    """One predictor's answer; none if it refuses the source."""
    try:
        limit = predictor.length_limit(source)
        if limit is not None and not (isinstance(limit, (int, np.integer)) and limit >= 0):
            raise WrongAnswer(f"length_limit returned {described(limit)}; expected a number of tokens, or None.")
    except WrongAnswer as error:
        raise blamed(name, predictor, error) from None
    except SgdecError:
        return []
    except Exception as error:
        raise SgdecError(str(blamed(name, predictor, error))) from error
    return [None if limit is None else int(limit)]

"""A search within a budget of expansions.

TODO: describe the search, what it does with its budget, and when it has found the best.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Result, SearchSpace


class MyDecoder(Decoder):
    """Finds as high a total as it can."""

    def __init__(
        self, budget: Annotated[int, Field(ge=1, description="expansions for each sentence, at most")] = 100
    ) -> None:
        self.budget = budget

    def decode(self, space: SearchSpace) -> Result:
        """The best hypothesis found; ``space.expansions`` counts what has been spent."""
        raise NotImplementedError("a search")


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mydecoder": MyDecoder}

"""The options that decoders of beam search share, so that one name means one thing (Wu et al. 2016, section 7)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

Size: TypeAlias = Annotated[int, Field(ge=1, description="hypotheses kept at each length")]
Alpha: TypeAlias = Annotated[float, Field(description="length normalisation; 0 = none")]
Beta: TypeAlias = Annotated[float, Field(ge=0, description="coverage penalty; 0 = none")]
Normalize: TypeAlias = Annotated[Literal["gnmt", "length"], Field(description="lp of equation 14, or |Y|^alpha")]
PruneLocal: TypeAlias = Annotated[
    float, Field(ge=0, description="drop tokens more than this below their expansion's best; 0 = off")
]
PruneFinal: TypeAlias = Annotated[
    float, Field(ge=0, description="drop finished hypotheses more than this below the best; 0 = off")
]
Recombine: TypeAlias = Annotated[bool, Field(description="keep only the best of hypotheses with the same future")]
Stop: TypeAlias = Annotated[
    Literal["best", "full", "proven"], Field(description="when the search ends; see 'sgdec plugins beam'")
]

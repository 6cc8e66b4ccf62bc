"""The options of GNMT's ranking, shared by beam searches and exact searches (`sgdec.ranking`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

Alpha: TypeAlias = Annotated[float, Field(description="length normalisation alpha; 0 = none")]
Beta: TypeAlias = Annotated[float, Field(ge=0, description="coverage penalty beta; 0 = none")]
Normalize: TypeAlias = Annotated[
    Literal["gnmt", "length"],
    Field(description="length penalty: GNMT's lp (Wu et al. 2016, equation 14), or |Y|^alpha"),
]

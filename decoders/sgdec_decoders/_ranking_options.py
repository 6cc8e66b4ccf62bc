"""The options of GNMT's ranking, which beam searches and exact searches have alike (`sgdec.ranking`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

Alpha: TypeAlias = Annotated[float, Field(description="length normalisation; 0 = none")]
Beta: TypeAlias = Annotated[float, Field(ge=0, description="coverage penalty; 0 = none")]
Normalize: TypeAlias = Annotated[Literal["gnmt", "length"], Field(description="lp of equation 14, or |Y|^alpha")]

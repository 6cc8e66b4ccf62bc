"""The options of GNMT's ranking, which beam searches and exact searches have alike (`sgdec.ranking`)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from sgdec import ranking

Alpha: TypeAlias = Annotated[float, Field(description="length normalisation; 0 = none")]
Beta: TypeAlias = Annotated[float, Field(ge=0, description="coverage penalty; 0 = none")]
Normalize: TypeAlias = Annotated[ranking.Normalize, Field(description="lp of equation 14, or |Y|^alpha")]

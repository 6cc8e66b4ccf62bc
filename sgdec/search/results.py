"""Checks of what decoders return: a malformed result becomes a one-line error that names the decoder."""

from __future__ import annotations

import math
from typing import Any

from sgdec.decoder import BatchDecoder, Decoder
from sgdec.errors import SgdecError, described
from sgdec.protocol import Hypothesis, Result


def require_result(decoder: Decoder, found: object) -> Result:
    """Return ``found``; raise SgdecError if it is not a `Result`."""
    if not isinstance(found, Result):
        method = "decode_batch" if isinstance(decoder, BatchDecoder) else "decode"
        listed = "a list with " if isinstance(decoder, BatchDecoder) else ""
        raise SgdecError(
            f"{type(decoder).__name__}.{method} returned {listed}{described(found)}; expected {listed}a Result."
        )
    for hypothesis in found.hypotheses:
        if not isinstance(hypothesis, Hypothesis):
            raise SgdecError(
                f"{type(decoder).__name__}: its Result lists {described(hypothesis)}; expected hypotheses, such as "
                "space.finish(node) of a node that ends with </s>."
            )
        if math.isnan(hypothesis.rank_score):
            raise SgdecError(f"{type(decoder).__name__}: a hypothesis has the rank_score NaN; expected a number.")
        for name in ("log_q", "log_weight"):
            value = getattr(hypothesis, name)
            if value is not None and not math.isfinite(value):
                raise SgdecError(f"{type(decoder).__name__}: a hypothesis has the {name} {value}; expected a number.")
    return found


def require_results(decoder: BatchDecoder, found: Any, spaces: int) -> list[Result]:
    """Return ``found`` as a list; raise SgdecError unless it holds one `Result` per space."""
    method = f"{type(decoder).__name__}.decode_batch"
    if not isinstance(found, (list, tuple)):
        raise SgdecError(f"{method} returned {described(found)}; expected a list of {spaces} Results, one per space.")
    if len(found) != spaces:
        raise SgdecError(f"{method} returned {len(found)} Results for {spaces} spaces; expected one per space.")
    return [require_result(decoder, each) for each in found]

"""Whether a model gives with its memory the scores that it gives without: a few tokens are read in both ways.

Architectures differ in how they number positions, mask, and remember tokens. If prefixes that share keys and values
have other scores, they do not share them; a model for which `prefixes` would give other scores in any case is refused
here, before a search trusts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sgdec.errors import SgdecError
from sgdec.vocabularies import Roles, quiet
from sgdec_predictors.pretrained.prefixes import Prefixes

CLOSE = 1e-3
"""The largest relative difference of logits in fp32 or fp64, where only rounding differs."""
COARSE = 0.25
"""The same in lower precision, whose rounding can be large."""


def probe(prefixes: Prefixes, roles: Roles, first: Sequence[int], *, exact: bool) -> None:
    """Compare prefixes of different length, read together, with the model's own output for all tokens at once.

    ``first``: the ids with which an output begins. ``exact``: whether the model computes in its own precision, not
    in 8 bits. Raises `SgdecError` if the logits differ, or if the model fails.
    """
    config = prefixes.module.config
    exact = exact and prefixes.module.dtype.itemsize >= 4
    way = "Give another model." if exact and prefixes.module.dtype == torch.float32 else "Give --precision fp32."
    read, written = _some(len(roles.sources.numbers), 3, config), _some(roles.rows, 2, config)
    close = CLOSE if exact else COARSE
    if prefixes.may_share:
        try:
            prefixes.shares = True
            with torch.inference_mode(), quiet():
                difference = _difference(prefixes, read, first, written)
            prefixes.shares = difference is not None and difference <= close
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:  # an architecture whose attention cannot be replaced
            prefixes.shares = False
        if prefixes.shares:
            return
    try:
        with torch.inference_mode(), quiet():
            difference = _difference(prefixes, read, first, written)
    except (SgdecError, ModuleNotFoundError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the code of an architecture can raise anything where it expects a cache of its own
        reason = f"{type(error).__name__}: " + str(error).strip().split("\n")[0].rstrip(".")
        raise SgdecError(_refusal(config, reason, way)) from None
    if difference is None:
        raise SgdecError(f"hf: a score of this model ({config.model_type}) is NaN. Are its weights damaged?")
    if difference > close:
        raise SgdecError(_refusal(config, "the scores would differ from those for all tokens at once", way))


def _refusal(config: Any, reason: str, way: str) -> str:
    return f"hf: models of the architecture {config.model_type} cannot be read token by token here: {reason}. {way}"


def _some(rows: int, count: int, config: Any) -> list[int]:
    """A few ids, without the padding, from which some models derive positions."""
    ids = [id for id in range(rows) if id != getattr(config, "pad_token_id", None)]
    return ids[len(ids) // 2 :][:count]


def _difference(
    prefixes: Prefixes, read: Sequence[int], first: Sequence[int], written: Sequence[int]
) -> float | None:
    """The largest difference of a logit, relative to the largest logit; None if one is not a number."""
    long, short = prefixes.begin([read, read[-1:]])  # which begin with different ids
    rows = [(long, read, list(first)), (short, read[-1:], list(first))]
    largest = 0.0
    for length in range(len(written) + 1):
        found = prefixes.logits([prefix for prefix, _, _ in rows]).double()
        outputs = [_at_once(prefixes.module, source, output) for _, source, output in rows]
        expected = torch.stack(outputs).double()
        if found.isnan().any() or expected.isnan().any():
            return None
        gap = torch.where(found == expected, 0.0, found - expected).abs().max()  # both can be -inf
        finite = expected[expected.isfinite()]
        largest = max(largest, float(gap) / max(1.0, float(finite.abs().max())) if len(finite) else 0.0)
        if length < len(written):  # the first sentence branches: one prefix grows, and one stays
            prefix, source, output = rows[-1 if length else 0]
            (longer,) = prefixes.after([prefix], [written[length]])
            rows.append((longer, source, [*output, written[length]]))
    return largest


def _at_once(module: Any, source: Sequence[int], output: Sequence[int]) -> Tensor:
    """The logits ``[V]`` after the beginning of an output, by one pass over all tokens without a cache."""
    seq2seq = module.config.is_encoder_decoder
    rows = {"input_ids": source, "decoder_input_ids": output} if seq2seq else {"input_ids": [*source, *output]}
    given = {name: torch.tensor([list(ids)], device=module.device) for name, ids in rows.items()}
    logits: Tensor = module(**given, use_cache=False).logits
    return logits[0, -1]

"""Sources for a predictor whose tokens are not those of the run, because it is inside a wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgdec import Source
from sgdec.context import Vocabulary


def in_own_tokens(sources: Sequence[Source], run: Vocabulary | None, own: Vocabulary | None) -> list[Source]:
    """The sources in the tokens of ``own``, if the run has another source vocabulary; otherwise as they are."""
    if run is None or own is None or run.fingerprint == own.fingerprint:
        return list(sources)
    texts = [source.spell(run) for source in sources]
    return [
        replace(source, tokens=own.encode(text), text=text) for source, text in zip(sources, texts, strict=True)
    ]

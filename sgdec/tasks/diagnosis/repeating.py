"""The same search again, with another value of one of the decoder's options."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from sgdec.decoder import Decoder
from sgdec.library import LoadedRun
from sgdec.plugins.options import describe
from sgdec.protocol import Source
from sgdec.search.outcome import Outcome, Unreadable
from sgdec.search.scheduler import Scheduler
from sgdec.terminal import track

log = logging.getLogger(__name__)


def with_option(run: LoadedRun, name: str, value: Any) -> Decoder | None:
    """The run's decoder with another value; None if it has no such option, or was given as an object."""
    config, cls = run.parts.config, type(run.parts.decoder)
    if not isinstance(config.decoder, (str, type)) or name not in {option.name for option in describe(cls)}:
        return None
    changed: Decoder = cls(**{**run.parts.options[config.decoder_name], name: value})
    return changed


def decoded(
    run: LoadedRun, sources: Sequence[Source | Unreadable], decoder: Decoder, what: str, nbest: int = 1
) -> Iterator[Outcome]:
    """The outcomes of another decoder with the settings of the run. ``what``: words for the progress."""
    names = ("seed", "batch_size", "window", "max_rows", "deterministic")
    chosen = {name: getattr(run.settings, name) for name in names}
    outcomes = Scheduler(run.parts.constellation, decoder, nbest=nbest, **chosen).run(sources)
    for outcome in track(outcomes, what, log, unit="sentences", total=len(sources)):
        yield run.respelled(outcome)

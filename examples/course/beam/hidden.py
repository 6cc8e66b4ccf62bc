"""Hidden checks of assignment ``beam``."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import numpy as np
from grader.assignment import Assignment, Make
from sgdec_decoders.beam import BeamDecoder

from sgdec import Constellation, Source
from sgdec.testing import Table, TinySpace


def add(checks: ModuleType) -> None:
    assignment: Assignment = checks.ASSIGNMENT

    @assignment.check("beams and vocabularies can be large", points=2, hidden=True)
    def _(make: Make, rng: np.random.Generator) -> None:
        for size in (8, 20, 60):
            table = Table(rng.normal(-2.0, 0.1, (40, 40)))
            tiny = TinySpace("40 tokens", partial(Constellation.of, {"table": table}), Source(1, (3,), max_length=4))
            note = f", size {size}"
            checks.compare(make(size=size), BeamDecoder(size, stop="best"), tiny, nbest=size, note=note)

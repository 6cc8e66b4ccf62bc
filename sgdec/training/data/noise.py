"""Source-side noise: each time an example is seen, some of its source tokens are dropped (Marian, Junczys-Dowmunt et
al. 2018, section 3.3).

Each token is dropped independently with probability p:

    unknown     the token is replaced by <unk>, as the filler token of Edunov et al. 2018 ("Understanding
                Back-Translation at Scale") replaces words: the length of the source does not change
    deletion    the token is deleted, and later tokens move forward (Edunov et al. 2018; Lample et al. 2018); if all
                tokens would be deleted, one of them is kept

The noise changes the training text, so it works with every model. The option ``source_dropout`` of most models is a
different noise, inside the model: the embedding of a dropped token becomes zero, and the others are scaled by
1 / (1 - p). "Approaching Neural Grammatical Error Correction as a Low-Resource Machine Translation Task"
(Junczys-Dowmunt et al. 2018) trains with that one. Here, in contrast, <unk> has a learnt embedding and also occurs in
real text.

Seed, step, line and position alone decide which tokens are dropped. A resumed run therefore drops the same tokens,
however its batches are cut or shared among processes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sgdec.arrays import Floats
from sgdec.context import EOS, UNK
from sgdec.training.data.batch import TrainingBatch, pad

NoiseKind = Literal["unknown", "deletion"]


class SourceNoise(NamedTuple):
    """The noise applied to the sources of a step's batches."""

    p: float
    """The probability that a token is dropped."""
    kind: NoiseKind
    seed: int

    def __call__(self, batch: TrainingBatch, step: int) -> TrainingBatch:
        """The batch with the noise of update ``step``; targets and their weights do not change."""
        if not self.p or batch.source is None or batch.lengths is None:
            return batch
        draws = torch.from_numpy(uniform(self.seed, step, batch.lines, batch.source.size(1)))  # [B, S]
        inside = torch.arange(batch.source.size(1)) < batch.lengths[:, None]
        if self.kind == "unknown":
            lost = (draws < self.p) & inside & (batch.source != EOS)  # </s> separates two sources
            return batch._replace(source=batch.source.masked_fill(lost, UNK))
        draws = draws.masked_fill(~inside, -1.0)
        kept = (draws >= self.p) | (draws == draws.amax(1, keepdim=True))
        source, lengths = pad([row[keep].tolist() for row, keep in zip(batch.source, kept & inside, strict=True)])
        return batch._replace(source=source, lengths=lengths)


def uniform(seed: int, step: int, lines: list[int], length: int) -> Floats:
    """Numbers in [0, 1), one for each line and position: [lines, ``length``]. They do not depend on the other lines.

    SplitMix64 (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators") computes its n-th number
    directly. Its start is derived from seed and step, and n from line and position.

    >>> both = uniform(1, 7, [12, 5], 3)
    >>> np.array_equal(both[1], uniform(1, 7, [5], 4)[0, :3]), np.array_equal(both[1], uniform(1, 8, [5], 3)[0])
    (True, False)
    """
    start = np.random.SeedSequence((seed, step)).generate_state(1, np.uint64).astype(np.uint64)
    places: npt.NDArray[np.uint64] = np.arange(1, length + 1, dtype=np.uint64)
    n = (np.array(lines, dtype=np.uint64)[:, None] << np.uint64(24)) + places
    z = start + n * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = (z ^ (z >> np.uint64(31))) >> np.uint64(11)
    uniforms: Floats = z * 2.0**-53
    return uniforms

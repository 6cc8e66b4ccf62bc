"""Source-side noise: each time an example is seen, some of its source tokens are lost (Marian, Junczys-Dowmunt et al.
2018, section 3.3).

Every token is lost with probability p, all independently of each other:

    unknown     it is replaced by <unk>, as the filler token of Edunov et al. 2018 ("Understanding Back-Translation at
                Scale") replaces words: what the model reads is as long as before
    deletion    it is left out, and what follows moves up (Edunov et al. 2018; Lample et al. 2018); the last token
                that a source has is never left out

This is done to the training text, so it works with every model. The option ``source_dropout`` that most models have
is another noise, inside the model: a token's embedding becomes zero and the others grow by 1 / (1 - p). It is what
"Approaching Neural Grammatical Error Correction as a Low-Resource Machine Translation Task" (Junczys-Dowmunt et al.
2018) trains with. Here <unk> has an embedding that is learnt, and the model may read the same in a real text.

Which tokens are lost is a function of seed, step, line and position alone: a run that is resumed loses the same ones,
however its batches are cut or shared among processes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sgdec.context import EOS, UNK
from sgdec.training.data.batch import Batch, pad

NoiseKind = Literal["unknown", "deletion"]


class SourceNoise(NamedTuple):
    """What is done to the sources of a step's batches."""

    p: float
    """The probability of a token to be lost."""
    kind: NoiseKind
    seed: int

    def __call__(self, batch: Batch, step: int) -> Batch:
        """The batch as update ``step`` sees it; targets and their weights are as they were."""
        if not self.p or batch.source is None or batch.lengths is None:
            return batch
        draws = torch.from_numpy(uniform(self.seed, step, batch.lines, batch.source.size(1)))  # [B, S]
        inside = torch.arange(batch.source.size(1)) < batch.lengths[:, None]
        if self.kind == "unknown":
            lost = (draws < self.p) & inside & (batch.source != EOS)  # which stands between two sources
            return batch._replace(source=batch.source.masked_fill(lost, UNK))
        draws = draws.masked_fill(~inside, -1.0)
        kept = (draws >= self.p) | (draws == draws.amax(1, keepdim=True))
        source, lengths = pad([row[keep].tolist() for row, keep in zip(batch.source, kept & inside, strict=True)])
        return batch._replace(source=source, lengths=lengths)


def uniform(seed: int, step: int, lines: list[int], length: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1), one for each line and position: [lines, ``length``], whatever other lines there are.

    SplitMix64 (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators") gives its n-th number at
    once; it starts from seed and step, and n is made of line and position.

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
    uniforms: npt.NDArray[np.float64] = z * 2.0**-53
    return uniforms

"""What do GNMT's prunings save, and what do stops save that lose nothing? (Wu et al. 2016, section 7)

The paper compares its two prunings with a search that ends at twice the length of the source. The benchmark decodes a
text with this search, with each pruning and with both, and with the other stops of `beam`. For each it prints the
predictions that the model had to make, which do not depend on the machine, CPU time (the median of alternating runs,
loading excluded), and BLEU:

    python benchmarks/prunings.py --model RUN/best --test TEST.SRC TEST.REF [--sentences 200 --runs 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from common import signature
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.nmt import NmtPredictor

from sgdec.context import Context
from sgdec.protocol import Candidates, Scores, Source, State
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.text.bleu import bleu
from sgdec.text.lines import read_lines

CASES: dict[str, dict[str, Any]] = {
    "length": {"stop": "length"},
    "length, final pruning": {"stop": "length", "prune_final": 3.0},
    "length, local pruning": {"stop": "length", "prune_local": 3.0},
    "length, both": {"stop": "length", "prune_final": 3.0, "prune_local": 3.0},
    "full": {"stop": "full"},
    "proven": {"stop": "proven"},
    "best": {"stop": "best"},
    "best, both": {"stop": "best", "prune_final": 3.0, "prune_local": 3.0},
}
"""Options of `beam`; 3.0 is the paper's width."""


class Counted(NmtPredictor):
    """Counts its predictions."""

    predictions = 0

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.predictions += len(states)
        return super().predict_batch(states, candidates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--test", nargs=2, required=True, metavar=("SRC", "REF"))
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--beam", type=int, default=8, help="the paper: 8 to 12")
    parser.add_argument("--alpha", type=float, default=0.2)
    parser.add_argument("--beta", type=float, default=0.2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines, references = (list(islice(read_lines(path), given.sentences)) for path in given.test)
    predictor = Counted(given.model, Context())
    source, target = predictor.vocabularies.source, predictor.vocabularies.target
    assert source is not None and target is not None
    tokens = [(line, source.encode(line)) for line in lines]
    sources = [Source(n, each, line, 2 * len(each)) for n, (line, each) in enumerate(tokens, 1)]
    constellation = Constellation.of({"nmt": predictor}, vocab_size=target.size)
    seconds, rest = defaultdict(list), {}
    for _ in range(given.runs + 1):  # the first one warms up
        for name, options in CASES.items():
            decoder = BeamDecoder(size=given.beam, alpha=given.alpha, beta=given.beta, **options)
            predictor.predictions, start = 0, time.process_time()
            outcomes = list(Scheduler(constellation, decoder).run(sources))
            seconds[name].append(time.process_time() - start)
            outputs = [target.decode(outcome.result.hypotheses[0].tokens) for outcome in outcomes]
            rest[name] = predictor.predictions, bleu(outputs, references)
    most, slowest = rest["length"][0], statistics.median(seconds["length"][1:])
    for name, (predictions, quality) in rest.items():
        took = statistics.median(seconds[name][1:])
        print(
            f"{name:22} {predictions} predictions ({predictions / most:.0%}), {took:.2f} s ({took / slowest:.0%}), "
            f"BLEU {quality:.1f}"
        )
    print(signature(**vars(given)))


if __name__ == "__main__":
    main()

"""genlm-bytes for `benchmarks/peer_genlm_bytes.py`, in a Python environment of its own.

Reads a causal model of transformers and answers requests, one JSON object a line: log-probabilities of texts, which
end with the model's end-of-text token, and the cost. Its autobatching waits for no further requests, and prefixes of
other texts are forgotten before each text.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from typing import Any

import torch
from genlm.backend import load_model_by_name
from genlm.bytes import BeamParams, ByteBeamState
from genlm.bytes.byte_lm.trie_state import EOS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of transformers")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model_by_name(given.folder, backend="hf", llm_opts={"timeout": 0.0, "batch_size": 1 << 20})
    counted = Counted(model)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(asyncio.run(read(model, counted, json.loads(line)))), flush=True)


class Counted:
    """Counts the rows of a model, and the tokens that it reads for them."""

    def __init__(self, model: Any) -> None:
        self.rows = self.tokens = 0
        self._forward = model.model.forward
        model.model.forward = self._counted

    def _counted(self, input_ids: torch.Tensor, **others: Any) -> Any:
        self.rows += input_ids.shape[0]
        self.tokens += input_ids.numel()
        return self._forward(input_ids, **others)


async def read(model: Any, counted: Counted, asked: dict[str, Any]) -> dict[str, Any]:
    """Totals are the logs of the beam's probability; ``rows`` those of its renormalised rows."""
    end = model.tokenizer.eos_token.encode()
    params = BeamParams(asked["width"], prune_threshold=asked["share"], heal=False, eos_byte_strings=[end])
    model.clear_cache()
    first = await ByteBeamState.initial(model, params)  # makes the trie before the time is taken
    counted.rows = counted.tokens = 0
    totals, sums = [], []
    began, cpu = time.perf_counter(), time.process_time()
    for text in asked["texts"]:
        model.clear_cache()
        first.states[0]._extend = None  # what it remembers of another text
        beam, of_rows = first, 0.0
        for byte in [*text.encode(), EOS]:
            beam = beam.prune()  # before the row, which costs up to twice as much otherwise
            if not len(beam):
                of_rows = -math.inf
                break
            row = await beam.logp_next()
            of_rows += float(row[byte])
            beam = await (beam << byte)
        totals.append(float(beam.logZ))
        sums.append(of_rows)
    spent = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    await first.cleanup()
    return spent | {"totals": totals, "of_rows": sums, "rows": counted.rows, "tokens": counted.tokens}


if __name__ == "__main__":
    main()

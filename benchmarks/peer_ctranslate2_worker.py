"""CTranslate2 for `benchmarks/peer_ctranslate2.py`, in a Python environment of its own.

Converts a Marian model with random weights, which has no tokenizer, and answers requests, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from typing import Any

import ctranslate2
import transformers
from ctranslate2.converters.transformers import MarianMTLoader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of transformers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as converted:
        convert(given.folder, converted)
        loaded: dict[tuple[str, int, int], ctranslate2.Translator] = {}
        print("ready", flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            key = asked["compute"], asked["workers"], asked["threads"]
            if key not in loaded:
                compute, workers, threads = key
                loaded[key] = ctranslate2.Translator(
                    converted, compute_type=compute, inter_threads=workers, intra_threads=threads
                )
            print(json.dumps(translated(loaded[key], asked)), flush=True)


def convert(folder: str, output: str) -> None:
    """Tokens are named after their ids; the last one, the padding, is not in the vocabulary of CTranslate2."""
    model: Any = transformers.MarianMTModel.from_pretrained(folder)
    spec = MarianMTLoader().get_model_spec(model)
    names = [str(id) for id in range(model.config.vocab_size - 1)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    end = str(model.config.eos_token_id)
    spec.config.eos_token = spec.config.bos_token = spec.config.decoder_start_token = end
    spec.config.unk_token = "1"
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    spec.save(output)


def translated(translator: ctranslate2.Translator, asked: dict[str, Any]) -> dict[str, Any]:
    sources = [list(map(str, ids)) for ids in asked["sources"]]
    began, before = time.perf_counter(), time.process_time()
    found = translator.translate_batch(
        sources, beam_size=asked["beam"], max_batch_size=asked["batch"], max_decoding_length=asked["tokens"],
        length_penalty=0, return_scores=True,
    )  # fmt: skip
    seconds, cpu = time.perf_counter() - began, time.process_time() - before
    outputs = [list(map(int, each.hypotheses[0])) for each in found]
    return {"seconds": seconds, "cpu": cpu, "outputs": outputs, "scores": [each.scores[0] for each in found]}


if __name__ == "__main__":
    main()

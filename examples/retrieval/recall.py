"""Print the share of queries whose product is among the first 1, 10 and 100 outputs.

    python recall.py CATALOGUE.tsv TEST.id RESULT.jsonl...

Each RESULT is the output of ``sgdec decode --output-format jsonl``. The last column is the share of outputs that are
identifiers of the catalogue.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

CUTS = (1, 10, 100)


def main(catalogue: str, targets: str, *results: str) -> None:
    products = {line.partition("\t")[0] for line in Path(catalogue).read_text("utf-8").splitlines()}
    wanted = Path(targets).read_text("utf-8").splitlines()
    print("result".ljust(24), *(f"recall@{cut}".rjust(10) for cut in CUTS), "valid".rjust(8))
    for result in results:
        lines = Path(result).read_text("utf-8").splitlines()
        lists = [[found["text"] for found in json.loads(line)["hypotheses"]] for line in lines]
        ranks = [listed.index(product) if product in listed else sys.maxsize
                 for listed, product in zip(lists, wanted, strict=True)]  # fmt: skip
        recalls = (sum(rank < cut for rank in ranks) / len(ranks) for cut in CUTS)
        outputs = [text for listed in lists for text in listed]
        valid = sum(text in products for text in outputs) / max(len(outputs), 1)
        print(Path(result).stem.ljust(24), *(f"{recall:10.3f}" for recall in recalls), f"{valid:8.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

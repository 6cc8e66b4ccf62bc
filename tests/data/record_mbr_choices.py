"""Records what mbrs 0.1.8 chooses from 1,000 lists of random texts, as ``mbr_choices.json.gz``.

Run it where ``mbrs==0.1.8`` is installed, with setuptools below 81; it takes two minutes. The file was recorded with
torch 2.13.0, fastchrf 0.2.1 and sacreBLEU 2.6.0:

    python tests/data/record_mbr_choices.py

A list has candidates, pseudo-references (half of the lists: the candidates), and a log-weight for each of these. Its
texts are edits of one sentence, with repetitions and unusual characters; some are empty. In every tenth list they are
words without a common letter, most of which have equal utilities. Weights are rounded, so that some are equal. mbrs
chooses three times, by chrF: ``pairwise``, which ignores the log-weights, ``weighted``, which has them as the
log-probabilities of the references, and ``aggregate`` with fastchrf, which ignores them, too.

mbrs computes expectations in single precision and selects with ``torch.topk``, which takes any one of equal numbers.
So a choice is recorded as the places of all candidates with the highest number, then that number. The place that mbrs
takes is one of these, which is checked here. Its pruning cannot be compared: its random numbers are those of torch.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

LISTS = 1000
WORDS = "a an the dog dogs cat runs run sat in on snow, field. man woman red blue two three über straße été 犬 猫 x y"
WORDS += " Z"
UNLIKE = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st"]
ODD = ["", " ", "a", "!", "aa aa aa aa", "  two   dogs "]
ODD += ["\u00a0dog\u2003cat", "e\u0301te\u0301", "👩‍👧 dogs", "犬猫犬猫犬猫犬"]


def edited(draw: random.Random, words: list[str]) -> str:
    """A sentence with some words deleted, replaced, repeated or exchanged; sometimes an odd text."""
    if draw.random() < 0.02:
        return draw.choice(ODD)
    words = list(words)
    for _ in range(draw.randrange(5)):
        at = draw.randrange(len(words))
        edit = draw.randrange(4)
        if edit == 0 and len(words) > 1:
            del words[at]
        elif edit == 1:
            words[at] = draw.choice(WORDS.split())
        elif edit == 2:
            words.insert(at, words[at])
        else:
            other = draw.randrange(len(words))
            words[at], words[other] = words[other], words[at]
    return " ".join(words)


def frozen(draw: random.Random, number: int) -> dict[str, Any]:
    """One list. Lists of short sentences have many repetitions, and candidates with equal utilities."""
    sentence = [draw.choice(WORDS.split()) for _ in range(draw.choice((1, 2, 3, 6, 12)))]
    unlike = number % 10 == number // 10 % 10
    candidates, references = (
        [draw.choice(UNLIKE) if unlike else edited(draw, sentence) for _ in range(texts)]
        for texts in (1 + number % 32, draw.randint(1, 24))
    )
    if number % 2:
        references = candidates
    log_weights = [round(-draw.expovariate(0.5), 1) for _ in references]
    return {"candidates": candidates, "references": references, "log_weights": log_weights}


def main() -> None:
    import torch
    from mbrs.decoders import DecoderAggregateMBR, DecoderMBR
    from mbrs.metrics import MetricChrF

    class InOneProcess(MetricChrF):  # type: ignore[misc]
        """The same numbers without a pool of processes for each list."""

        def pairwise_scores(self, hypotheses: list[str], references: list[str], *_: Any, **__: Any) -> Any:
            return torch.Tensor([[self.score(one, other) for other in references] for one in hypotheses])

    chrf, fastchrf = InOneProcess(MetricChrF.Config()), MetricChrF(MetricChrF.Config(fastchrf=True))
    plain, aggregate = DecoderMBR(DecoderMBR.Config(), chrf), DecoderAggregateMBR(DecoderMBR.Config(), fastchrf)

    def chosen(decoder: Any, expected: Any, case: dict[str, Any], **weights: Any) -> list[Any]:
        found = decoder.decode(case["candidates"], case["references"], **weights)
        best = (expected == expected.max()).nonzero().flatten().tolist()
        assert found.idx[0] in best
        return [best, round(expected.max().item(), 4)]

    draw = random.Random(7)
    cases = []
    for number in range(LISTS):
        case = frozen(draw, number)
        texts, lprobs = (case["candidates"], case["references"]), torch.tensor(case["log_weights"])
        case["pairwise"] = chosen(plain, chrf.expected_scores(*texts), case)
        weighted = chrf.expected_scores(*texts, reference_lprobs=lprobs)
        case["weighted"] = chosen(plain, weighted, case, reference_lprobs=lprobs)
        case["aggregate"] = chosen(aggregate, fastchrf.expected_scores_reference_aggregation(*texts), case)
        if case["references"] is case["candidates"]:
            case["references"] = None
        cases.append(case)
    data = json.dumps(cases, ensure_ascii=False, separators=(",", ":")).encode()
    path = Path(__file__).with_name("mbr_choices.json.gz")
    path.write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()

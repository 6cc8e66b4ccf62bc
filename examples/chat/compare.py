"""Right answers to the 40 questions, of each model of `make_models.py`: in sgdec and in `generate()` of transformers.

    python compare.py WORK [MODEL...]

Both search greedily and with a beam, without a constraint and under the schema ``person.json``. sgdec has its default
settings. `generate()` has the same size of the beam, the same limit, and masks that llguidance computes from the same
grammar. Exit status 1: an outcome of sgdec is more than one answer below that of `generate()`, or below 38.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llguidance.hf
import people
import torch
from llguidance import LLMatcher
from sgdec_predictors.texts.grammars import read_grammar
from transformers import AutoModelForCausalLM, AutoTokenizer

import sgdec

BEAM, TOKENS = 4, 256
"""The default size of a beam in sgdec, and the default limit of causal models."""
WANTED, SLACK = 38, 1
SEARCHES = {"greedy": 1, "beam": BEAM}
HEADER = """\
| model | search | sgdec | `generate()` | sgdec, schema | `generate()`, schema |
|---|---|---|---|---|---|"""
Masks = Callable[[int, torch.Tensor], list[int]]


def by_sgdec(model: Path, schema: Path | None, decoder: str) -> list[str]:
    """The answers to the questions."""
    predictors = "hf" if schema is None else "hf,grammar"
    options: dict[str, Any] = {} if schema is None else {"grammar": {"path": str(schema)}}
    run = sgdec.load(predictors, decoder, hf={"model": str(model), "chat": True}, **options)
    results = run.decode([question for question, _ in people.held_out()])
    return [result.hypotheses[0].text or "" if result.hypotheses else "" for result in results]


def by_generate(model: Path, schema: Path | None, decoder: str) -> list[str]:
    """The answers to the questions."""
    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model).eval()
    answers = []
    for question, _ in people.held_out():
        turns = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt")
        begin = prompt["input_ids"].shape[1]
        output = network.generate(
            **prompt, num_beams=SEARCHES[decoder], do_sample=False, max_new_tokens=TOKENS,
            prefix_allowed_tokens_fn=None if schema is None else masks(tokenizer, schema, begin),
        )  # fmt: skip
        answers.append(tokenizer.decode(output[0, begin:], skip_special_tokens=True))
    return answers


def masks(tokenizer: Any, schema: Path, begin: int) -> Masks:
    """The ids that the grammar of a schema allows after an output, which begins at a place of the ids."""
    root = LLMatcher(llguidance.hf.from_tokenizer(tokenizer), read_grammar(str(schema)).lark)

    def allowed(_: int, ids: torch.Tensor) -> list[int]:
        output = ids[begin:].tolist()
        matcher = root.deep_copy()
        if tokenizer.eos_token_id in output or matcher.try_consume_tokens(output) < len(output):
            return [tokenizer.eos_token_id]
        bits = matcher.compute_logit_bias()
        return [id for id, bias in enumerate(bits) if bias]

    return allowed


def right(answers: Sequence[str]) -> int:
    pairs = zip(answers, people.held_out(), strict=True)
    return sum(people.is_right(answer, person) for answer, (_, person) in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    given = parser.parse_args()
    models = given.models or sorted(config.parent.name for config in given.work.glob("*/config.json"))
    too_few = 0
    print(HEADER)
    for name in models:
        for decoder in SEARCHES:
            counts = []
            for schema in (None, given.work / "person.json"):
                sides = (by_sgdec, by_generate)
                ours, theirs = (right(answers(given.work / name, schema, decoder)) for answers in sides)
                counts += [ours, theirs]
                too_few += ours < max(WANTED, theirs - SLACK)
            print(f"| `{name}` | `{decoder}` | {' | '.join(map(str, counts))} |", flush=True)
    sys.exit(bool(too_few))


if __name__ == "__main__":
    main()

"""Records what the group beam search of transformers 4.56.2 finds in small tables, as ``group_beams.json``.

Later versions do not have this search. Run it with ``transformers==4.56.2`` and torch installed:

    python tests/data/record_group_beams.py

A table has the logits of the next token by the last one; the model is that bigram. At the length limit only ``</s>``
can follow, with its own log-probability. Hypotheses that `generate()` leaves unfinished, or fills a list with, are
left out, and so are repetitions: two groups can find the same one, which `generate()` returns twice.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

BOS, EOS, V, PAD, LIMIT = 1, 2, 8, 8, 5
TABLES = 12
BEAMS = ((2, 2), (4, 2), (4, 4), (6, 3))
"""Size and number of groups."""
STOPS = (True, False, "never")
STRENGTHS = (0.3, 0.9, 2.5)
ALPHAS = (0.0, 0.7, 1.5, -0.5)


def main() -> None:
    import torch
    import transformers
    from transformers import GenerationConfig, GenerationMixin, LogitsProcessor, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutput

    class EndsAtTheLimit(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            if input_ids.shape[1] == 1 + LIMIT:
                end = scores[:, EOS].clone()
                scores = torch.full_like(scores, -torch.inf)
                scores[:, EOS] = end
            return scores

    class Bigram(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
        config_class = PretrainedConfig

        def __init__(self, table: Any) -> None:
            super().__init__(PretrainedConfig(vocab_size=V + 1, is_encoder_decoder=False, num_hidden_layers=0))
            never = np.full((V + 1, 1), -np.inf)  # of the padding, so that it is no token of a hypothesis
            rows = np.concatenate([np.vstack([table, table[:1]]), never], axis=1)
            self.table = torch.nn.Parameter(torch.tensor(rows, dtype=torch.float32))

        def prepare_inputs_for_generation(self, input_ids: Any, **_: Any) -> dict[str, Any]:
            return {"input_ids": input_ids}

        def forward(self, input_ids: Any, **_: Any) -> Any:
            return CausalLMOutput(logits=self.table[input_ids])

    tables, cases = [], []
    for number in range(TABLES):
        rng = np.random.default_rng(number)
        table = rng.normal(0.0, 1.5, (V, V))
        table[:, EOS] += rng.choice([0.0, 2.0])
        table = table.round(3)
        tables.append(table.tolist())
        model = Bigram(table).eval()
        for at, ((size, groups), stop) in enumerate(product(BEAMS, STOPS)):
            strength, alpha = STRENGTHS[(at + number) % 3], ALPHAS[(at + number) % 4]
            found = model.generate(
                torch.tensor([[BOS]]),
                generation_config=GenerationConfig(
                    num_beams=size,
                    num_beam_groups=groups,
                    diversity_penalty=strength,
                    length_penalty=alpha,
                    early_stopping=stop,
                    num_return_sequences=size,
                    max_new_tokens=LIMIT + 1,
                    do_sample=False,
                    use_cache=False,
                    pad_token_id=PAD,
                    eos_token_id=EOS,
                    bos_token_id=BOS,
                    output_scores=True,
                    return_dict_in_generate=True,
                ),
                logits_processor=[EndsAtTheLimit()],
            )
            listed: dict[tuple[int, ...], float] = {}
            for row, score in zip(found.sequences.tolist(), found.sequences_scores.tolist(), strict=True):
                if score > -1e8 and EOS in row:
                    listed.setdefault(tuple(row[1 : row.index(EOS)]), round(score, 5))
            cases.append(
                {
                    "table": number,
                    "size": size,
                    "groups": groups,
                    "strength": strength,
                    "alpha": alpha,
                    "stop": f"hf-{str(stop).lower()}",
                    "found": [[list(tokens), score] for tokens, score in listed.items()],
                }
            )
    head = {"transformers": transformers.__version__, "limit": LIMIT, "tables": tables}
    rows = ",\n".join(json.dumps(case) for case in cases)
    text = f'{json.dumps(head)[:-1]}, "cases": [\n{rows}\n]}}\n'
    Path(__file__).with_name("group_beams.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

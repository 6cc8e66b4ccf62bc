"""The promise: every search scores with a Hugging Face model as the model itself does, without its caches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.restarting import RestartingDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.hf import HfPredictor, HfState

from sgdec import EOS, Context, Source
from sgdec.decoder import Decoder
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import PredictorContract, walks
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.loaded_once import probe_models_once
from tests.helpers.pretrained import FAMILIES, V, tiny_model

DECODERS: dict[str, Decoder] = {
    "beam": BeamDecoder(size=4),
    "vanilla": VanillaDecoder(size=4),
    "dfs": DfsDecoder(max_expansions=20),
    "restarting": RestartingDecoder(max_expansions=20),
    "sample": SampleDecoder(),
}


def sources(number: int = 4) -> list[Source]:
    """Sources of different lengths."""
    rng = random.Random(3)
    return [
        Source(i, tuple(rng.randrange(3, V - 3) for _ in range(rng.randint(1, 7))), max_length=6)
        for i in range(1, number + 1)
    ]


def scores_without_cache(predictor: HfPredictor, model: Any, source: Source, prefix: Sequence[int]) -> torch.Tensor:
    """``[T + 1, V]``: ln p of every id of the model, after each of the T tokens of a prefix and before the first."""
    names = predictor._roles.numbering.ids
    ids, before = ([int(names[token]) for token in tokens] for tokens in (source.tokens, prefix))
    config = model.generation_config
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            start = torch.tensor([[config.decoder_start_token_id, *before]])
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=start, use_cache=False).logits
        else:
            logits = model(input_ids=torch.tensor([[*ids, *before]]), use_cache=False).logits
    return torch.log_softmax(logits[0, -len(before) - 1 :].double(), dim=-1)


SEARCHES = [("beam", 8), ("vanilla", 1), ("dfs", 1), ("restarting", 8), ("sample", 8)]
"""Decoders with sizes of batches."""
ALL_SEARCHES = ("marian", "gpt2", "qwen2", "mamba", "jamba")
"""Families with each kind of memory: an encoder's, attention's (twice, with other ids), recurrent, and mixed.

`make test` runs the others, whose architectures differ in what transformers computes, with two searches: one of many
prefixes at a time, and one that jumps back.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "decoder", "batch_size"),
    [
        pytest.param(
            family, *search, id=f"{family}-{search[0]}-{search[1]}",
            marks=[] if family in ALL_SEARCHES or search[0] in ("beam", "dfs") else [pytest.mark.exhaustive],
        )
        for family in FAMILIES for search in SEARCHES
    ],
)  # fmt: skip
def test_scores_are_those_of_the_model_without_caches(decoder: str, batch_size: int, family: str) -> None:
    model = shared_model(family)
    predictor = HfPredictor.of(model)
    constellation = Constellation.of({"hf": predictor})
    for outcome in Scheduler(constellation, DECODERS[decoder], batch_size=batch_size, nbest=2).run(sources()):
        for found in outcome.result.hypotheses:
            tokens = [*found.tokens, EOS]
            rows = scores_without_cache(predictor, model, outcome.source, found.tokens)
            expected = [
                float(row[predictor._roles.numbering.ids[token]]) for row, token in zip(rows, tokens, strict=True)
            ]
            assert found.score == pytest.approx(sum(expected), abs=1e-4)
    assert predictor._prefixes.used == 0  # no state is left


@pytest.fixture(scope="module", autouse=True)
def probed_once() -> Iterator[None]:
    """Contracts make a predictor hundreds of times."""
    with pytest.MonkeyPatch.context() as patch:
        probe_models_once(patch)
        yield


@cache
def shared_model(family: str) -> Any:
    return tiny_model(family)


@cache
def numbered(family: str) -> int:
    """The number of tokens; contracts ask for it hundreds of times."""
    return HfPredictor.of(shared_model(family))._roles.numbering.size


class HfContract(PredictorContract):
    """Of a model in memory."""

    plugin = "hf"
    family: ClassVar[str]
    walk_length = 4
    walks = 3 if EXHAUSTIVE else 2

    @pytest.fixture(autouse=True)
    def _shorter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Log-probabilities are never positive, however long a walk is."""
        monkeypatch.setattr(walks, "FAR", 40 if EXHAUSTIVE else 12)

    def make(self) -> HfPredictor:
        return HfPredictor.of(shared_model(self.family))

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        return numbered(self.family)


@pytest.mark.slow
class TestMarian(HfContract):
    family = "marian"


@pytest.mark.slow
@pytest.mark.exhaustive  # an encoder and a decoder, as Marian's
class TestT5(HfContract):
    family = "t5"


@pytest.mark.slow
class TestGpt2(HfContract):
    family = "gpt2"


@pytest.mark.slow
class TestMamba(HfContract):
    family = "mamba"


def stepped(predictor: HfPredictor, source: Source, tokens: Sequence[int]) -> HfState:
    (state,) = predictor.initialize_batch([source])
    for token in tokens:
        (state,) = predictor.consume_batch([state], [token])
    return state


@pytest.mark.slow
@pytest.mark.parametrize("family", ["marian", "t5", "bart"])
@pytest.mark.parametrize("layer", [0, -1])
def test_attention_is_the_mean_of_the_heads(family: str, layer: int) -> None:
    model = tiny_model(family, attn_implementation="eager")
    predictor = HfPredictor.of(model, attention=layer)
    assert predictor.attention is not None
    tokens = (5, 9, 4)
    every = [Source(i, tuple(range(3, 6 + i))) for i in range(3)]
    names = predictor._roles.numbering.ids
    states = [stepped(predictor, source, tokens[:i]) for i, source in enumerate(every)]
    for source, length, row in zip(every, range(3), predictor.attention(states), strict=True):
        output = model(
            input_ids=torch.tensor([names[list(source.tokens)].tolist()]),
            decoder_input_ids=torch.tensor([[*predictor._first, *names[list(tokens[:length])].tolist()]]),
            output_attentions=True,
        )
        expected = output.cross_attentions[layer][0, :, -1].mean(0)
        assert row == pytest.approx(expected.detach().numpy(), abs=1e-5)


def test_prefixes_share_the_slots_of_their_common_tokens() -> None:
    predictor = HfPredictor.of(shared_model("gpt2"))
    source = Source(1, (3, 4, 5, 6))
    begun = stepped(predictor, source, (7, 8))
    assert predictor._prefixes.used == 3 + 2  # of the prompt all but the last, which is read with the next token
    children = predictor.consume_batch([begun] * 10, list(range(3, 13)))
    assert predictor._prefixes.used == 3 + 3
    predictor.predict_batch(children)
    assert predictor._prefixes.used == 3 + 3 + 10
    del begun, children
    assert predictor._prefixes.used == 0


@pytest.mark.slow
@pytest.mark.parametrize("family", ["marian", "gpt2", "mamba"])
def test_in_a_deterministic_run_scores_do_not_depend_on_other_sentences(family: str) -> None:
    found = []
    for batch_size in (1, 3, 8):
        predictor = HfPredictor.of(shared_model(family), context=Context(deterministic=True))
        constellation = Constellation.of({"hf": predictor})
        outcomes = Scheduler(constellation, BeamDecoder(size=3), batch_size=batch_size, nbest=3).run(sources(8))
        found.append([[(each.tokens, each.score) for each in outcome.result.hypotheses] for outcome in outcomes])
    assert found[0] == found[1] == found[2]


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_on_a_gpu_are_those_on_a_processor(family: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    on_cpu, on_gpu = HfPredictor.of(tiny_model(family)), HfPredictor.of(tiny_model(family).to("cuda"))
    for predictor in (on_cpu, on_gpu):
        states = [state for source in sources() for state in predictor.initialize_batch([source])]
        for _ in range(4):
            scores = predictor.predict_batch(states).values
            states = predictor.consume_batch(states, [3 + i % 5 for i in range(len(states))])
        predictor.result = torch.as_tensor(scores).cpu()  # type: ignore[attr-defined]
    torch.testing.assert_close(on_cpu.result, on_gpu.result, rtol=1e-3, atol=1e-3)  # type: ignore[attr-defined]

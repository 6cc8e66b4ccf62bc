"""The promise: `generate()` of transformers with ``custom_generate=sgdec.custom_generate(...)`` returns what a run of
`sgdec.load` finds with the same model and options; with `beam` and its ``hf`` stops, what `generate()` finds alone.
Whatever is not followed is refused.

Each model is a tiny one that was written to a folder and read again.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from sgdec_predictors.hf import HfPredictor

import sgdec
from sgdec import SgdecError, UsageError
from sgdec.found import Found, FoundHypothesis
from sgdec.inside_generate import _drawn
from sgdec.protocol import Hypothesis
from tests.helpers import pretrained_tokenizers
from tests.helpers.loaded_once import load_pretrained_once, probe_models_once
from tests.helpers.pretrained import V, tiny_model, write_model

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
FAMILIES = ("gpt2", "marian", "bart", "t5")
PROMPTS = [[4, 5, 6, 7], [8, 5]]
NEW = 6
PAD = V - 4
"""Which no prompt has."""
FORCED = {"bart": 4}
"""The first token of each output."""
HF_BEAM = {"size": 4, "stop": "hf-false", "alpha": 0.6, "normalize": "length"}
SEARCHES: dict[str, tuple[int, dict[str, Any]]] = {
    "beam": (3, {"beam": {"size": 5}}),
    "dfs": (2, {"predictors": "hf,minlength", "minlength": {"tokens": 2}, "dfs": {"max_expansions": 40}}),
    "astar": (1, {"predictors": {"other": "minlength", "hf": "hf"}, "other": {"tokens": 1}, "hf": {"weight": 0.5}}),
    "sample": (4, {"sample": {"samples": 4, "temperature": 0.7}, "seed": 3}),
    "diverse": (4, {"diverse": {"size": 4, "groups": 2}}),
    "mbr": (2, {"mbr": {"candidates": "sample:samples=16", "utility": "exact"}, "seed": 5}),
}
"""By decoder, the number of hypotheses, and other arguments of `custom_generate`."""


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        load_pretrained_once(patch)
        probe_models_once(patch)
        yield


@cache
def temporary() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def written(family: str) -> tuple[Path, Any]:
    """A model in a folder, and the model that is read from there."""
    model = tiny_model(family)
    settings = {"forced_bos_token_id": FORCED.get(family), "forced_eos_token_id": None, "pad_token_id": PAD}
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    folder = Path(temporary().name) / family
    model.save_pretrained(folder)
    return folder, type(model).from_pretrained(folder).eval()


def batch(model: Any, prompts: list[list[int]] = PROMPTS) -> dict[str, torch.Tensor]:
    """What a tokenizer returns: padding on the left for causal models."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), PAD)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        place = slice(0, len(prompt)) if model.config.is_encoder_decoder else slice(width - len(prompt), width)
        ids[row, place], mask[row, place] = torch.tensor(prompt), 1
    return {"input_ids": ids, "attention_mask": mask}


def generated(model: Any, search: Any, prompts: list[list[int]] = PROMPTS, **options: Any) -> Any:
    options = {"max_new_tokens": NEW, "return_dict_in_generate": True, **options}
    return model.generate(**batch(model, prompts), custom_generate=search, **options)


def rows_of(family: str, lists: list[Found], nbest: int) -> tuple[list[list[int]], list[float]]:
    """The rows that `generate()` is to return for results of sgdec, each padded to the longest, and their scores."""
    _, model = written(family)
    scorer = HfPredictor.of(model)
    numbering, end = scorer._roles.numbering, scorer._roles.eos[0]
    rows, scores = [], []
    for begin, found in zip(batch(model)["input_ids"].tolist(), lists, strict=True):
        if model.config.is_encoder_decoder:
            begin = [model.generation_config.decoder_start_token_id]
        draws = [hypothesis for hypothesis in found.hypotheses for _ in range(hypothesis.count or 1)]
        listed = draws if len(draws) == nbest else found.hypotheses
        for hypothesis in listed:
            ids = [int(numbering.ids[token]) for token in hypothesis.tokens]
            rows.append([*begin, *([FORCED[family]] if family in FORCED else []), *ids, end])
            scores.append(hypothesis.rank_score)
        for _ in range(nbest - len(listed)):
            rows.append(begin)
            scores.append(-math.inf)
    longest = max(map(len, rows))
    return [row + [PAD] * (longest - len(row)) for row in rows], scores


def in_numbers(family: str, prompts: list[list[int]] = PROMPTS) -> list[list[int]]:
    numbers = HfPredictor.of(written(family)[1])._roles.numbering.numbers
    return [numbers[prompt].tolist() for prompt in prompts]


@pytest.mark.parametrize("decoder", SEARCHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_finds_what_a_run_finds(family: str, decoder: str) -> None:
    folder, model = written(family)
    nbest, options = SEARCHES[decoder]
    arguments = {"predictors": "hf", **options}
    search = sgdec.custom_generate(decoder, nbest=nbest, **arguments)
    found = generated(model, search)
    arguments["hf"] = {"model": str(folder), **arguments.get("hf", {})}
    limit = NEW - 1 - (family in FORCED)
    run = sgdec.load(decoder=decoder, nbest=nbest, max_length=limit, **arguments)
    expected = list(run.decode(in_numbers(family)))
    rows, scores = rows_of(family, expected, nbest)
    assert found.sequences.tolist() == rows
    assert found.sequences_scores.tolist() == pytest.approx(scores, rel=1e-5)
    assert [each.proven for each in search.found] == [each.proven for each in expected]
    plain = generated(model, search, return_dict_in_generate=False)
    assert torch.equal(plain, found.sequences) and plain.dtype == torch.long


def alone(model: Any, **options: Any) -> list[tuple[list[list[int]], list[float]]]:
    """The rows and scores of beam search by `generate()` itself, for one prompt at a time."""
    options = {"max_new_tokens": NEW, "num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.6, **options}
    given = {"early_stopping": False, "return_dict_in_generate": True, "output_scores": True, **options}
    found = [model.generate(**batch(model, [prompt]), **given) for prompt in PROMPTS]
    return [(each.sequences.tolist(), each.sequences_scores.tolist()) for each in found]


def beam(model: Any) -> Any:
    offset = int(model.config.is_encoder_decoder and model.generation_config.forced_bos_token_id is not None)
    return sgdec.custom_generate("beam", nbest=4, beam={**HF_BEAM, "length_offset": offset})


CALLS: list[dict[str, Any]] = [
    {},
    {"no_repeat_ngram_size": 1},
    {"repetition_penalty": 1.7},
    {"min_new_tokens": 5},
    {"bad_words_ids": [[9], [13, 13]]},
    {"suppress_tokens": [9, 13]},
    {"begin_suppress_tokens": [7, 9, 13]},
    {"eos_token_id": 10},
    {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_new_tokens": 4, "suppress_tokens": [8]},
]
"""Arguments of `generate()` that change what a beam search finds."""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: "+".join(call) or "plain")
@pytest.mark.parametrize("family", [*FAMILIES, "mamba"])
def test_what_a_call_asks_for_is_followed(family: str, call: Mapping[str, Any]) -> None:
    _, model = written(family)
    end = call.get("eos_token_id", model.generation_config.eos_token_id)
    call = {**call, "forced_eos_token_id": end}
    if "no_repeat_ngram_size" in call:  # its n-grams begin with these ids in generate()
        begun = {model.generation_config.decoder_start_token_id, FORCED.get(family)} - {None, end}
        call["bad_words_ids"] = [[id] for id in begun] or None
    if family == "bart" and "no_repeat_ngram_size" in call:
        pytest.skip("the start token is </s>, which generate() then forbids")
    search = beam(model)
    for prompt, (rows, scores) in zip(PROMPTS, alone(model, **call), strict=True):
        found = generated(model, search, [prompt], **call)
        assert found.sequences.tolist() == rows
        assert found.sequences_scores.tolist() == pytest.approx(scores, rel=1e-5)


def test_the_calls_find_something_else() -> None:
    """The comparison would show a rule that is not followed."""
    plain = [alone(written(family)[1]) for family in FAMILIES]
    for call in CALLS[1:]:
        found = [alone(written(family)[1], **call) for family in FAMILIES]
        assert found != plain, call


LENGTHS: list[dict[str, int | None]] = [
    {"max_new_tokens": None, "max_length": 9, "min_length": 7},
    {"max_new_tokens": None, "max_length": 9, "min_new_tokens": 4},
    {"max_new_tokens": 7, "min_length": 7},
]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_lengths_count_what_they_count_in_generate(family: str, lengths: dict[str, Any]) -> None:
    """They count the prompt of a causal model with its padding, and the start token of others."""
    _, model = written(family)
    call = {**lengths, "forced_eos_token_id": model.generation_config.eos_token_id}
    options: dict[str, Any] = {"num_beams": 4, "length_penalty": 0.6, "output_scores": True}
    options["num_return_sequences"] = 4
    expected = generated(model, None, **call, **options)
    found = generated(model, beam(model), **call)
    assert found.sequences.tolist() == expected.sequences.tolist()
    assert found.sequences_scores.tolist() == pytest.approx(expected.sequences_scores.tolist(), rel=1e-5)


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_the_default_length_is_that_of_generate() -> None:
    _, model = written("gpt2")
    search = sgdec.custom_generate("sample")
    search_rows = generated(model, search, max_new_tokens=None)
    model_rows = generated(model, None, max_new_tokens=None, suppress_tokens=[model.generation_config.eos_token_id])
    assert search._kept is not None and search._kept[1].settings.max_length == 19
    assert search_rows.sequences.shape[1] <= model_rows.sequences.shape[1] == 4 + 20


@pytest.mark.parametrize("family", ["gpt2", "marian"])
def test_generate_itself_is_as_before(family: str) -> None:
    """The model is neither changed nor left in another mode, and both can take turns."""
    _, model = written(family)
    before = generated(model, None, num_beams=3)
    for _ in range(2):
        generated(model, sgdec.custom_generate("beam"))
        after = generated(model, None, num_beams=3)
        assert torch.equal(after.sequences, before.sequences)
    assert not model.training


def test_return_types_and_numbers_of_rows() -> None:
    _, causal = written("gpt2")
    _, seq2seq = written("marian")
    outputs = {causal: "GenerateBeamDecoderOnlyOutput", seq2seq: "GenerateBeamEncoderDecoderOutput"}
    for model, name in outputs.items():
        found = generated(model, sgdec.custom_generate("sample", sample={"samples": 3}, nbest=3))
        assert type(found).__name__ == name and found.sequences_scores.dtype == torch.float32
        assert found.sequences.shape[0] == len(found.sequences_scores) == 3 * len(PROMPTS)


def test_num_return_sequences_is_nbest() -> None:
    """`generate()` wants as many beams; those that the model has by default are none of the call."""
    model = tiny_model("llama")
    model.generation_config.num_beams, model.generation_config.length_penalty = 3, 2.0
    model.generation_config.pad_token_id = PAD
    rows = generated(model, sgdec.custom_generate("beam", beam={"size": 5}), num_return_sequences=3)
    listed = generated(model, sgdec.custom_generate("beam", beam={"size": 5}, nbest=3))
    both = generated(model, sgdec.custom_generate("beam", beam={"size": 5}, nbest=3), num_return_sequences=3)
    begun = batch(model)["input_ids"].repeat_interleave(3, dim=0)
    assert torch.equal(rows.sequences[:, : begun.shape[1]], begun)
    assert rows.sequences.tolist() == listed.sequences.tolist() == both.sequences.tolist()
    with pytest.raises(UsageError, match=r"^num_return_sequences=3, but sgdec.custom_generate has nbest=2\.$"):
        generated(model, sgdec.custom_generate("beam", nbest=2), num_return_sequences=3)


@pytest.mark.parametrize(
    ("counts", "nbest", "log_weight", "rows"),
    [
        ((1, 4, 3), 8, None, "abbbbccc"),
        ((1, 4, 3), 5, None, "abbbc"),
        ((1, 4, 3), 3, None, "abc"),
        ((5, 2), 10, None, "aaaaabb"),
        ((None, None), 4, None, "ab"),
        ((3, 3), 4, -0.5, "ab"),
    ],
)
def test_equal_draws_fill_a_list(
    counts: tuple[int | None, ...], nbest: int, log_weight: float | None, rows: str
) -> None:
    listed = [
        FoundHypothesis(Hypothesis((place,), 0.0, 0.0, count=count, log_weight=log_weight), (), None)
        for place, count in enumerate(counts)
    ]
    assert "".join("abc"[each.tokens[0]] for each in _drawn(listed, nbest)) == rows


def test_all_draws_are_returned_as_sampling_in_generate_returns_them() -> None:
    """Two continuations are possible, so eight draws have equal ones."""
    _, model = written("gpt2")
    end = model.generation_config.eos_token_id
    search = sgdec.custom_generate("sample", nbest=8, sample={"samples": 8})
    settings = {"suppress_tokens": [id for id in range(V) if id not in (5, end)], "max_new_tokens": 2}
    found = generated(model, search, **settings)
    for prompt, each in enumerate(search.found):
        rows = [row[4:].tolist() for row in found.sequences[8 * prompt : 8 * prompt + 8]]
        assert len(each.hypotheses) <= 2 and sum(hypothesis.count or 0 for hypothesis in each.hypotheses) == 8
        ids = {() if row[0] == end else (5,) for row in rows}
        assert len(ids) == len(each.hypotheses) and all(row in ([5, end], [end, PAD]) for row in rows)
    assert found.sequences_scores.isfinite().all() and len(found.sequences) == 16


def test_rows_that_lack_a_hypothesis_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    _, model = written("gpt2")
    end = model.generation_config.eos_token_id
    only = [id for id in range(V) if id not in (5, end)]
    generated(model, sgdec.custom_generate("dfs", nbest=3), suppress_tokens=only, max_new_tokens=3)
    assert not caplog.records
    generated(model, sgdec.custom_generate("dfs", nbest=4), suppress_tokens=only, max_new_tokens=3)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "2 of 2 prompts have fewer than nbest=4 hypotheses"
    ]


def test_a_short_list_is_filled_and_an_empty_one_is_an_error() -> None:
    _, model = written("gpt2")
    end = model.generation_config.eos_token_id
    only = [id for id in range(V) if id not in (5, end)]
    search = sgdec.custom_generate("dfs", nbest=4)
    found = generated(model, search, suppress_tokens=only, max_new_tokens=3)
    assert [len(each.hypotheses) for each in search.found] == [3, 3]
    assert found.sequences[3].tolist() == [4, 5, 6, 7, PAD, PAD, PAD]
    assert found.sequences_scores[3] == found.sequences_scores[7] == -math.inf
    assert found.sequences_scores.isfinite().sum() == 6
    with pytest.raises(SgdecError, match=r"^sentence 1: "):
        generated(model, search, suppress_tokens=[*only, end], max_new_tokens=3)


def test_without_a_pad_token_rows_are_padded_with_the_end() -> None:
    model = tiny_model("llama")
    assert model.generation_config.pad_token_id is None
    search = sgdec.custom_generate("sample", nbest=8, sample={"samples": 8})
    found = model.generate(torch.tensor([[4, 5, 6]]), max_new_tokens=9, custom_generate=search)[:, 3:].tolist()
    ends = [row.index(2) for row in found]
    assert len(set(ends)) > 1 and all(set(row[end:]) == {2} for row, end in zip(found, ends, strict=True))


def test_predictors_are_loaded_once_for_calls_with_one_model_and_its_settings() -> None:
    _, model = written("gpt2")
    search = sgdec.custom_generate("greedy")

    def run() -> Any:
        assert search._kept is not None
        return search._kept[1]

    generated(model, search)
    first = run()
    generated(model, search, [[4, 5, 6, 7, 8, 9]])  # a longer prompt
    assert run() is first
    banned = generated(model, search, suppress_tokens=[7, 13]).sequences
    second = run()
    assert second is not first and not set(banned[:, 4:].flatten().tolist()) & {7, 13}
    generated(model, search, max_new_tokens=NEW + 1)
    assert run().settings.max_length == NEW
    no_new: dict[str, Any] = {"max_new_tokens": None}
    for total, least in ((9, 0), (9, 7), (8, 7)):
        generated(model, search, **no_new, max_length=total, min_length=least)
        assert run().settings.max_length == total - 4 - 1
        assert run().parts.constellation.names == (("hf", "min_new_tokens") if least else ("hf",))
    for other in (tiny_model("gpt2"), model):
        other.generation_config.pad_token_id = PAD
        generated(other, search)
        assert run() is not second
        second = run()


def test_lower_precision_is_that_of_the_model() -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    model.generation_config.pad_token_id = PAD
    found = generated(model, sgdec.custom_generate("greedy"))
    expected = HfPredictor.of(model)
    assert expected._prefixes.module.dtype == torch.bfloat16
    assert found.sequences_scores.dtype == torch.float32 and found.sequences_scores.isfinite().all()


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("family", ["marian", "llama"])
def test_with_a_tokenizer_there_is_text_and_tokens_have_the_numbers_of_a_run(family: str, tmp_path: Path) -> None:
    pretrained_tokenizers.FAMILIES[family](tmp_path)
    model = write_model(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    lines = ["the cat sat on the mat", "a dog ran"]
    read = tokenizer(lines, return_tensors="pt", padding=True)
    read = {name: read[name] for name in ("input_ids", "attention_mask")}
    mbr: dict[str, Any] = {"mbr": {"candidates": "sample:samples=8"}, "norepeat": {"order": 1}, "nbest": 2}
    run = sgdec.load("hf,norepeat", "mbr", hf={"model": str(tmp_path)}, max_length=8, **mbr)
    expected = [[(h.tokens, h.text, h.rank_score) for h in found.hypotheses] for found in run.decode(lines)]
    outputs = []
    for given in (tokenizer, tmp_path, str(tmp_path)):
        search = sgdec.custom_generate("mbr", "hf,norepeat", tokenizer=given, **mbr)
        for call in ({}, {"repetition_penalty": 1 + 1e-12}):  # inside a wrapper too
            outputs.append(model.generate(**read, max_new_tokens=9, custom_generate=search, **call))
            for found, each in zip(search.found, expected, strict=True):
                assert [(h.tokens, h.text) for h in found.hypotheses] == [(tokens, text) for tokens, text, _ in each]
                assert [h.rank_score for h in found.hypotheses] == pytest.approx([score for *_, score in each])
    assert all(torch.equal(each, outputs[0]) for each in outputs)
    begin = 1 if model.config.is_encoder_decoder else read["input_ids"].shape[1]
    ids = outputs[0][:, begin:]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert texts == [text for each in expected for _, text, _ in each]
    without = sgdec.custom_generate("mbr", **{name: mbr[name] for name in ("mbr", "nbest")})
    model.generate(**read, max_new_tokens=9, custom_generate=without)
    assert {h.text for found in without.found for h in found.hypotheses} == {None}


@pytest.mark.gpu
def test_rows_are_where_the_ids_are() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = tiny_model("llama")
    model.generation_config.pad_token_id = PAD
    search = sgdec.custom_generate("beam", "hf,norepeat", norepeat={"order": 2})
    on_cpu = generated(model, search)
    ids = {name: tensor.to("cuda") for name, tensor in batch(model).items()}
    on_gpu = model.to("cuda").generate(**ids, max_new_tokens=NEW, custom_generate=search)
    assert on_gpu.device.type == "cuda" and on_gpu.tolist() == on_cpu.sequences.tolist()


def test_several_ends_and_their_options() -> None:
    model = tiny_model("llama", eos_token_id=[2, 9])
    model.generation_config.pad_token_id = PAD
    scores = [
        generated(model, sgdec.custom_generate("dfs", hf={"ends": ends}), [[4, 9, 2]], **call).sequences_scores.item()
        for call in ({}, {"repetition_penalty": 1.1})
        for ends in ("best", "log-sum")
    ]
    assert len({*scores}) == 4 and scores[0] < scores[1] and scores[2] < scores[3]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_beams": 3}, "num_beams=3 has no effect on a search of sgdec. The decoder has"),
    ({"do_sample": True}, "do_sample=True has no effect on a search of sgdec. Give sgdec.custom_generate"),
    ({"length_penalty": 0.5, "num_beams": 1}, "length_penalty=0.5 has no effect"),
    ({"guidance_scale": 2.0}, "guidance_scale=2.0 has no effect on a search of sgdec. Leave it out."),
    ({"sequence_bias": [[[3], 1.0]]}, "sequence_bias=[[[3], 1.0]] has no effect"),
    ({"output_logits": True}, "output_logits=True has no effect"),
    ({"output_attentions": True}, "output_attentions=True has no effect"),
    ({"max_time": 3.0}, "max_time=3.0 has no effect on a search of sgdec. Some decoders have"),
    ({"penalty_alpha": 0.6, "top_k": 4}, "penalty_alpha=0.6 has no effect"),
    ({"max_new_tokens": 1}, "max_new_tokens=1 leaves no room: outputs of sgdec end with an end"),
    ({"prefix_allowed_tokens_fn": lambda *_: [3]}, "PrefixConstrainedLogitsProcessor changes scores, and sgdec"),
    ({"position_ids": torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])}, "prompt 2: sgdec counts positions from 0."),
    ({"attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}, "prompt 2: the attention_mask has padding not"),
    ({"attention_mask": torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]])}, "prompt 1: the attention_mask has padding not"),
    ({"token_type_ids": torch.zeros(2, 4, dtype=torch.long)}, "token_type_ids has no effect on a"),
    ({"past_key_values": transformers.DynamicCache()}, "sgdec remembers by itself what a model has read. Leave"),
    ({"input_ids": torch.tensor([[4, V]])}, f"sgdec reads token ids, here 0 to {V - 1}: give generate() these"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("call", "message"), REFUSED, ids=lambda each: str(each)[:30])
def test_what_is_not_followed_is_refused(call: dict[str, Any], message: str) -> None:
    _, model = written("gpt2")
    ids = torch.tensor([PROMPTS[0]] * 2)
    options = {"input_ids": ids, "max_new_tokens": NEW, "return_dict_in_generate": True, **call}
    with pytest.raises(UsageError) as error:
        model.generate(**options, custom_generate=sgdec.custom_generate("greedy"))
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_arguments_that_generate_may_pass_on_one_day_are_refused_if_they_are_given() -> None:
    _, model = written("gpt2")
    search = sgdec.custom_generate("greedy")
    passed: dict[str, Any] = {"synced_gpus": False, "streamer": None}

    def later(model: Any, input_ids: Any, *, inputs_tensor: Any, **given: Any) -> Any:
        return search(model, input_ids, inputs_tensor=inputs_tensor, **given, **passed)

    assert torch.equal(generated(model, later).sequences, generated(model, search).sequences)
    passed["streamer"] = object()
    with pytest.raises(UsageError, match=r"^streamer has no effect on a search of sgdec, .* Leave it out\.$"):
        generated(model, later)


def test_rules_given_as_objects_are_refused_unless_a_setting_asks_for_them() -> None:
    _, model = written("gpt2")
    for rule, way in (
        (transformers.NoRepeatNGramLogitsProcessor(2), r"Give no_repeat_ngram_size to generate\(\)\."),
        (transformers.TopKLogitsWarper(3), "Leave out what asks for it, or give a predictor."),
    ):
        name = type(rule).__name__
        with pytest.raises(UsageError, match=f"^{name} changes scores, and sgdec does not apply it. {way}"):
            generated(model, sgdec.custom_generate("greedy"), logits_processor=[rule])
    with pytest.raises(UsageError, match=r"^Stop would end generate\(\), but not a search of sgdec"):
        generated(model, sgdec.custom_generate("greedy"), stopping_criteria=[Stop()])


class Stop(transformers.StoppingCriteria):  # type: ignore[misc,name-defined,unused-ignore]
    def __call__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


def test_what_a_seq2seq_model_is_given_besides_a_source_is_refused() -> None:
    _, model = written("marian")
    greedy = sgdec.custom_generate("greedy")
    encoded = model.get_encoder()(torch.tensor([[4, 5]]))
    with pytest.raises(UsageError, match=f"^sgdec reads token ids, here 0 to {V - 1}: give generate"):
        model.generate(encoder_outputs=encoded, max_new_tokens=5, custom_generate=greedy)
    with pytest.raises(UsageError, match=r"^outputs of sgdec begin with decoder_start_token_id alone\."):
        generated(model, greedy, decoder_input_ids=torch.tensor([[V - 1, 4], [V - 1, 4]]))
    mask = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 0]])
    with pytest.raises(UsageError, match=r"^prompt 1: the attention_mask has padding inside it\.$"):
        model.generate(torch.tensor([PROMPTS[0]] * 2), attention_mask=mask, max_new_tokens=5, custom_generate=greedy)
    left = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])
    ids = torch.tensor([[PAD, 4, 5, 6], [8, 5, PAD, PAD]])
    found = model.generate(ids, attention_mask=left, max_new_tokens=5, custom_generate=greedy)
    assert torch.equal(found, generated(model, greedy, [[4, 5, 6], [8, 5]], max_new_tokens=5).sequences)
    _, forcing = written("bart")
    with pytest.raises(UsageError, match=r"^max_new_tokens=2 .* and begin with a forced one\. Give at least 3\.$"):
        generated(forcing, greedy, max_new_tokens=2)


def test_a_forced_first_token_of_a_causal_model_is_refused() -> None:
    _, model = written("gpt2")
    with pytest.raises(UsageError, match=r"^ForcedBOSTokenLogitsProcessor changes scores"):
        generated(model, sgdec.custom_generate("greedy"), forced_bos_token_id=5)


def test_settings_of_the_model_that_choose_a_search_are_no_settings_of_the_call() -> None:
    model = tiny_model("llama")
    plain = generated(model, sgdec.custom_generate("greedy"), pad_token_id=PAD).sequences.tolist()
    for name, value in {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9}.items():
        setattr(model.generation_config, name, value)
    assert generated(model, sgdec.custom_generate("greedy"), pad_token_id=PAD).sequences.tolist() == plain
    with pytest.raises(UsageError, match=r"^temperature=0\.8 has no effect .* Give sample="):
        generated(model, sgdec.custom_generate("greedy"), pad_token_id=PAD, temperature=0.8)


def test_a_model_in_training_mode_is_refused() -> None:
    model = tiny_model("gpt2").train()
    with pytest.raises(UsageError, match=r"^the model is in training mode, .*: call model\.eval\(\)\.$"):
        generated(model, sgdec.custom_generate("greedy"))
    assert model.training


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sgdec.custom_generate(max_length=3), r"has no max_length: give max_new_tokens to generate\(\)\.$"),
        (lambda: sgdec.custom_generate(max_length_factor=3), "has no max_length_factor"),
        (lambda: sgdec.custom_generate("dfs", max_expansions=3), r"; it is an option of 'dfs'\. Write dfs={'max_e"),
        (lambda: sgdec.custom_generate("dfs", batch_size=0), "batch-size"),
        (lambda: sgdec.custom_generate("dfs", nbest=0), "nbest"),
        (lambda: sgdec.custom_generate("dfs", "wc"), r"^predictors 'wc' do not name hf, the model of generate\(\)"),
    ],
)
def test_wrong_calls(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_wrong_parts_are_refused_when_the_run_is_made() -> None:
    _, model = written("gpt2")
    for search, message in (
        (sgdec.custom_generate("dsf"), "dfs"),
        (sgdec.custom_generate("dfs", hf={"model": "folder"}), r"^no option --hf\.model"),
        (sgdec.custom_generate("dfs", beam={"size": 3}), "decoder"),
        (sgdec.custom_generate("dfs", device="gpu"), "^--device gpu"),
    ):
        with pytest.raises(UsageError, match=message):
            generated(model, search)


def test_a_long_prompt_is_limited_by_the_model_alone() -> None:
    model = tiny_model("bloom")  # without a limit
    ids = torch.full((1, 1200), 4)
    found = model.generate(ids, max_new_tokens=3, custom_generate=sgdec.custom_generate("greedy"))
    assert found.shape[1] <= 1203
    with pytest.raises(SgdecError, match=r"sentence 1: .*1000"):
        model.generate(ids, max_new_tokens=3, custom_generate=sgdec.custom_generate("greedy", max_source_length=1000))


def test_the_call_imports_neither_torch_nor_transformers() -> None:
    heavy = "{'torch', 'transformers'} & {*sys.modules}"
    code = f"import sgdec, sys; sgdec.custom_generate('dfs', 'hf,norepeat'); print({heavy})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"

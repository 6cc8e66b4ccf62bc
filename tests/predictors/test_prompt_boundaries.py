"""The promise of `bytes` and `aligned` around a causal model with a prompt: the model's own tokens of the prompt are
complete, and the bytes of the output are spelled by the tokens after them.

So a token that ordinary tokenisation would write over the end of the prompt does not count ("token healing").
Oracle: the ids of a model's own tokenizer, all sequences of ids that spell a text, and one pass of the model over
each of them, without caches.
"""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sgdec import EOS, Context, Source
from sgdec.cli.main import main
from sgdec.protocol import FORBIDDEN
from sgdec.vocabularies import ByteVocabulary
from tests.helpers.loaded_once import load_pretrained_once, probe_models_once
from tests.helpers.pretrained import write_model
from tests.helpers.pretrained_tokenizers import FAMILIES
from tests.helpers.spelled_ids import of_byte_level, of_metaspace

transformers = pytest.importorskip("transformers")
import torch  # noqa: E402
from sgdec_predictors.bytes import Bytes  # noqa: E402
from sgdec_predictors.hf import HfPredictor  # noqa: E402

Ids = tuple[int, ...]
SPELLED: dict[str, Callable[[str, bool], bytes]] = {"gpt2": of_byte_level, "llama": of_metaspace}


class Model:
    """A model of `transformers` as it is, with its tokenizer."""

    def __init__(self, family: str) -> None:
        self.spelled = SPELLED[family]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(family, local_files_only=True)
            self.module = transformers.AutoModelForCausalLM.from_pretrained(family).eval()
        self.end = self.module.config.eos_token_id
        special = {*self.tokenizer.all_special_ids, self.tokenizer.unk_token_id}
        pieces = self.tokenizer.get_vocab().items()
        self.pieces = [(id, piece) for piece, id in pieces if id not in special]

    def spelling(self, text: bytes, before: Ids = ()) -> Iterator[Ids]:
        """All sequences of ids that spell a text."""
        if not text:
            yield before
        for id, piece in self.pieces:
            own = self.spelled(piece, not before)
            if text.startswith(own) and (own or not before):
                yield from self.spelling(text[len(own) :], (*before, id))

    def log_probability(self, read: Sequence[int], sequences: Sequence[Ids]) -> float:
        """Of the outputs that one of these sequences is, with their ends, after what the model reads."""
        found = []
        for ids in sequences:
            with torch.inference_mode():
                logits = self.module(input_ids=torch.tensor([[*read, *ids]]), use_cache=False).logits
            rows = logits[0, len(read) - 1 :].double().log_softmax(-1)
            found.append(math.fsum(float(rows[place, id]) for place, id in enumerate((*ids, self.end))))
        return math.log(math.fsum(map(math.exp, found)))


@pytest.fixture(scope="module", autouse=True)
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Model]]:
    folder = tmp_path_factory.mktemp("models")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        load_pretrained_once(patch)
        probe_models_once(patch)
        for family in SPELLED:
            Path(family).mkdir()
            FAMILIES[family](Path(family))
            write_model(Path(family))
        yield {family: Model(family) for family in SPELLED}


def total(predictor: Any, source: str, text: str) -> float:
    (state,) = predictor.initialize_batch([Source(1, predictor.vocabularies.source.encode(source), source)])
    found = 0.0
    for token in (*ByteVocabulary().encode(text), EOS):
        found += float(predictor.predict_batch([state]).values[0][token])
        if token != EOS and found > FORBIDDEN:
            (state,) = predictor.consume_batch([state], [token])
    return found


def of_bytes(family: str, **options: Any) -> Bytes:
    return Bytes(HfPredictor(family, **options, context=Context()), width=0)


@pytest.mark.parametrize(
    ("prompt", "source", "text"),
    [
        ("the {source}", "ca", "t"),  # " cat" is one token
        ("{source}: the c", "a dog", "at"),
        ("{source} the", "in", " cat"),
        ("{source} the ", "in", "cat"),  # ends with a blank
        (r"{source}\n", "a dog", "the"),
        ("{source}", "là", "é"),
        ("the park {source}", "1", "2"),
        (None, "the ca", "t"),  # without a prompt a causal model reads the source
    ],
)
@pytest.mark.parametrize("family", SPELLED)
def test_the_total_of_a_text_is_its_probability_after_the_complete_tokens_of_the_prompt(
    family: str, prompt: str | None, source: str, text: str, models: dict[str, Model]
) -> None:
    model = models[family]
    read = (prompt or "{source}").replace("{source}", source).replace(r"\n", "\n")
    ids = model.tokenizer(read)["input_ids"]
    expected = model.log_probability(ids, list(model.spelling(text.encode())))
    assert total(of_bytes(family, prompt=prompt), source, text) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", SPELLED)
def test_tokens_reach_over_the_end_of_a_prompt_only_if_it_is_written_in_bytes(
    family: str, models: dict[str, Model]
) -> None:
    """The tokenizer writes one token over the end of "ca"; a prompt that ends there hides it from the model."""
    model, prompt, text = models[family], "ca", "t"
    ids, whole = (tuple(model.tokenizer(each)["input_ids"]) for each in (prompt, prompt + text))
    assert whole[: len(ids)] != ids
    hidden = total(of_bytes(family, prompt="{source}"), prompt, text)
    assert hidden == pytest.approx(model.log_probability(ids, list(model.spelling(text.encode()))), abs=1e-4)
    start = [model.module.config.bos_token_id]
    sequences = list(model.spelling((prompt + text).encode()))
    assert tuple(model.tokenizer(prompt + text, add_special_tokens=False)["input_ids"]) in sequences
    written = total(of_bytes(family, source=False), "", prompt + text)
    assert written == pytest.approx(model.log_probability(start, sequences), abs=1e-4)


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize(("leader", "follower"), [("gpt2", "llama"), ("llama", "gpt2")])
def test_each_model_of_an_ensemble_reads_a_prompt_in_its_own_tokens(
    leader: str,
    follower: str,
    prompted: bool,
    models: dict[str, Model],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The prompts are different texts, too, and end inside of words; the leader has its own tokens of an output."""
    lines, outputs = ["a dog", "là"], ["ark", " cat"]
    prompts = {leader: "{source} in the p", follower: "the ca{source} ra"}
    options = ["--first.prompt", prompts[leader], "--second.prompt", prompts[follower]]
    if not prompted:  # each reads the source
        prompts, options = dict.fromkeys(prompts, "{source}"), []
    for name, text in (("in", lines), ("out", outputs)):
        (tmp_path / name).write_text("\n".join(text) + "\n")
    capsys.readouterr()
    status = main([
        "score", "--predictors", "first=hf,second=aligned:hf", "--first.model", leader, "--second.model", follower,
        *options, "--aligned.width", "0", "--aligned.min_share", "0", "--output-format", "jsonl",
        str(tmp_path / "in"), str(tmp_path / "out"),
    ])  # fmt: skip
    captured = capsys.readouterr()
    assert status == 0, captured.err
    for row, line, output in zip(map(json.loads, captured.out.splitlines()), lines, outputs, strict=True):
        read = {name: prompt.replace("{source}", line) for name, prompt in prompts.items()}
        ids = {name: models[name].tokenizer(text)["input_ids"] for name, text in read.items()}
        own = tuple(models[leader].tokenizer(output, add_special_tokens=False)["input_ids"])
        sequences = list(models[follower].spelling(output.encode()))
        assert len(sequences) > 2
        assert row["scores"] == pytest.approx(
            {
                "first": models[leader].log_probability(ids[leader], [own]),
                "aligned": models[follower].log_probability(ids[follower], sequences),
            },
            abs=1e-4,
        )

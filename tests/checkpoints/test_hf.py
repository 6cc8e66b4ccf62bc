"""`sgdec export --to hf`: transformers computes the logits of sgdec and decodes as sgdec does; what it cannot compute
is one line. Models are read from the disk on both sides."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from sgdec.checkpoints import files, layout
from sgdec.checkpoints.loading import load_model
from sgdec.cli.main import main
from sgdec.models.transformer import Transformer
from sgdec.signature import digest
from sgdec.text.numbering import Numbering
from sgdec.text.pretrained import PretrainedVocabulary, read_roles
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.text.vocabulary import load_sides
from sgdec.text.words import MixedVocabulary
from sgdec.training import train
from tests.helpers.places import ROOT
from tests.helpers.tiny_models import characters, write_checkpoint
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow  # importing transformers takes seconds

BASE = {"width": 8, "heads": 2, "feed_forward": 12, "layers": 1}


class Setting(NamedTuple):
    """A tiny Transformer, and what its config.json should say."""

    options: Mapping[str, Any]
    says: Mapping[str, Any]
    source: str = "stuv"
    target: str = "stuv"


MARIAN = {"model_type": "marian", "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
PEGASUS = {"model_type": "pegasus", "tie_word_embeddings": False}
SHARED = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}
SETTINGS = {
    "post": Setting({"norm": "post"}, {**MARIAN, "vocab_size": 8, "decoder_vocab_size": 8}),
    "pre": Setting({"norm": "pre"}, {**PEGASUS, "vocab_size": 8}),
    "post source": Setting({"norm": "post", "tied": "source"}, MARIAN),
    "pre source": Setting({"norm": "pre", "tied": "source"}, PEGASUS),
    "post target": Setting({"norm": "post", "tied": "target"}, {**MARIAN, "tie_word_embeddings": True}),
    "pre target": Setting({"norm": "pre", "tied": "target"}, PEGASUS),
    "post all": Setting({"norm": "post", "tied": "all"}, {**MARIAN, **SHARED}),
    "pre all": Setting({"norm": "pre", "tied": "all"}, {**PEGASUS, "tie_word_embeddings": True}),
    "post two": Setting({"norm": "post"}, {**MARIAN, "vocab_size": 7, "decoder_vocab_size": 9}, "stu", "stuvw"),
    "pre two": Setting({"norm": "pre"}, {**PEGASUS, "vocab_size": 9}, "stu", "stuvw"),
    "post fewer": Setting({"tied": "target"}, {"vocab_size": 9, "decoder_vocab_size": 7}, "stuvw", "stu"),
    "pre fewer": Setting({"norm": "pre", "tied": "target"}, {**PEGASUS, "vocab_size": 9}, "stuvw", "stu"),
    "layers": Setting({"encoder_layers": 3, "decoder_layers": 2}, {"encoder_layers": 3, "decoder_layers": 2}),
    "pre layers": Setting({"norm": "pre", "layers": 2}, {"encoder_layers": 2, "decoder_layers": 2}),
    "heads": Setting({"heads": 1}, {"encoder_attention_heads": 1, "decoder_attention_heads": 1}),
    "width": Setting({"width": 18, "heads": 3}, {"d_model": 18, "encoder_attention_heads": 3}),
    "feed-forward": Setting({"feed_forward": 5}, {"encoder_ffn_dim": 5, "decoder_ffn_dim": 5}),
    "dropout": Setting(
        {"dropout": 0.3, "attention_dropout": 0.2, "feed_forward_dropout": 0.4},
        {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.4},
    ),
    "word dropout": Setting({"source_dropout": 0.1, "target_dropout": 0.2}, {"dropout": 0.1}),
}
each = pytest.mark.parametrize("name", SETTINGS)


def write(folder: Path, setting: Setting) -> Path:
    """A checkpoint of random weights; all options of the model are either in ``setting`` or in BASE."""
    options = {**BASE, **setting.options}
    if "encoder_layers" in options:
        del options["layers"]
    return write_checkpoint(
        folder, source=setting.source, target=setting.target, model="transformer", options=options, seed=4
    )


def export(model: Path, *options: str) -> Path:
    output = model.parent / "hf"
    assert main(["export", str(model), "--to", "hf", "--output", str(output), *options]) == 0
    return output


def theirs(folder: Path) -> Any:
    """The model as transformers loads it: from the folder alone, with all weights and no others."""
    from transformers import AutoModelForSeq2SeqLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, report = AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


def test_every_option_of_the_model_has_a_case_and_a_row_in_the_guide() -> None:
    """``encoder`` is refused below."""
    options = {name for name, _ in list(signature(Transformer).parameters.items())[1:]}
    assert options == {*BASE, "encoder", *(option for setting in SETTINGS.values() for option in setting.options)}
    guide = (ROOT / "docs" / "howto" / "models.md").read_text(encoding="utf-8")
    rows = guide.partition("| setting | in transformers |\n")[2].partition("\n\n")[0].splitlines()
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])} >= options


def random_batch(source: int, target: int, lengths: tuple[int, ...] = (7, 1, 4)) -> dict[str, torch.Tensor]:
    """Random tokens of all kinds, ``<unk>`` included; the padding is ordinary tokens."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randint(3, source, (len(lengths), max(lengths)), generator=generator)
    inputs[0, 1] = 0
    prefixes = torch.randint(0, target, (len(lengths), 9), generator=generator)
    prefixes[:, 0] = 1
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"input_ids": inputs, "attention_mask": mask.long(), "decoder_input_ids": prefixes}


def logits(model: Path, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """[B, T, V] of sgdec."""
    own, _ = load_model(model)
    lengths = batch["attention_mask"].sum(1)
    with torch.inference_mode():
        return own.project(own(batch["input_ids"], lengths, batch["decoder_input_ids"]))


@each
def test_the_logits_are_equal_at_every_position(tmp_path: Path, name: str) -> None:
    """Also after transformers has stored the model, when it computes positions itself."""
    setting = SETTINGS[name]
    model = write(tmp_path / "model", setting)
    folder = export(model)
    config = json.loads((folder / "config.json").read_text())
    assert config.items() >= setting.says.items()
    batch = random_batch(len(setting.source) + 4, len(setting.target) + 4)
    expected = logits(model, batch)
    size = expected.size(-1)
    loaded = theirs(folder)
    loaded.save_pretrained(tmp_path / "again")
    for candidate in (loaded, theirs(tmp_path / "again")):
        with torch.inference_mode():
            found = candidate(**batch).logits
        torch.testing.assert_close(found[..., :size], expected, atol=1e-5, rtol=0)
        assert (found[..., size:] == -torch.inf).all(), "tokens that the target does not have"



@pytest.fixture(scope="module", params=["post", "pre"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that translates numbers: with one vocabulary, or with two of different size."""
    folder = tmp_path_factory.mktemp("trained")
    sides = zip(*PAIRS, strict=True) if request.param == "pre" else [[line for pair in PAIRS for line in pair]]
    names = []
    for kind, size, lines in zip(("bpe", "unigram"), (30, 18), sides, strict=False):
        names.append(str(folder / f"{kind}.spm"))
        Path(names[-1]).write_bytes(train_vocabulary([*lines, "s"], size, kind=kind).serialized)
    options = {"width": 32, "heads": 4, "feed_forward": 64, "layers": 2, "norm": request.param, "tied": "target"}
    settings = {"max_steps": 80, "validate_every": 80, "bleu": 0, "batch_tokens": 300, "lr": 0.005, "warmup": 20}
    train(make_config(folder, model="transformer", tokenizer=tuple(names), options=options, **settings), quiet=True)
    export(folder / "run" / "best")
    return folder / "run"


NUMBERS = ["one two three", "five", "two two four one", " three  one </s> nine <unk>", "four five one two three four"]
SEARCHES = {
    "greedy": ("--decoder greedy", {}),
    "beam": (
        "--decoder beam --beam.size 4 --beam.stop length --beam.alpha 1 --beam.normalize length",
        {"num_beams": 4, "length_penalty": 1.0, "early_stopping": "never"},
    ),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_generate_finds_what_decode_finds(trained: Path, search: str, tmp_path: Path) -> None:
    """The same text, through the tokenizers of both."""
    from transformers import AutoTokenizer

    options, settings = SEARCHES[search]
    given, output = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("".join(f"{line}\n" for line in NUMBERS))
    call = f"decode --predictors nmt --nmt.model {trained / 'best'} --max-length 30 {options} --output {output}"
    assert main([*call.split(), str(given)]) == 0
    expected = output.read_text().splitlines()
    assert all(expected) and len(set(expected)) > 3, "it is trained a little"

    folder = trained / "hf"
    source = target = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if (folder / "target").exists():
        target = AutoTokenizer.from_pretrained(folder / "target", local_files_only=True)
    batch = source(NUMBERS, padding=True, return_tensors="pt")
    rows = theirs(folder).generate(**batch, max_length=32, **settings)
    assert target.batch_decode(rows, skip_special_tokens=True) == expected


def test_tokens_keep_their_numbers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    folder = export(write(tmp_path / "model", SETTINGS["post"]), "--max-positions", "50")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    roles = tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id
    settings = GenerationConfig.from_pretrained(folder)
    config = theirs(folder).config
    for told in (settings, config):
        assert (roles[0], told.bos_token_id, told.eos_token_id) == roles == (0, 1, 2)
        assert told.decoder_start_token_id == told.pad_token_id == tokenizer.pad_token_id == 1
        assert told.forced_eos_token_id is None
    assert settings.bad_words_ids is None and settings.suppress_tokens is None, "sgdec forbids no token"
    assert settings.max_length == tokenizer.model_max_length == config.max_position_embeddings == 50
    numbering = Numbering.of(len(tokenizer), unk=roles[0], bos=roles[1], eos=[roles[2]])
    assert numbering.ids.tolist() == list(range(8))


@pytest.mark.parametrize("name", ["post", "pre", "post two", "pre two", "post fewer", "pre fewer"])
def test_sgdec_reads_the_folder_as_it_reads_the_checkpoint(tmp_path: Path, name: str) -> None:
    """Each side has its own tokenizer."""
    model = write(tmp_path / "model", SETTINGS[name])
    folder = export(model)
    for own, found in zip(layout.load_vocabularies(model), load_sides(folder), strict=True):
        assert own is not None and isinstance(found, PretrainedVocabulary)
        assert found.numbering.ids.tolist() == list(range(found.size)), "tokens keep their numbers"
        for line in ("stu w vs", " w  </s> s", "xyz"):
            assert found.encode(line) == own.encode(line) == found.wrap(found.encode(line))
            assert found.decode(own.encode("uts tu")) == own.decode(own.encode("uts tu"))
            assert found.words_in(line) == line.split()
        assert [found.piece(token) for token in range(own.size)] == [own.piece(token) for token in range(own.size)]
    roles = read_roles(folder)
    assert (roles.decoder_start, roles.forced_bos, roles.forced_eos) == (1, None, ())


@pytest.mark.parametrize("name", ["post", "pre", "post two", "pre fewer"])
def test_the_predictor_hf_scores_as_nmt_does(tmp_path: Path, name: str) -> None:
    """One text, through an n-best list: the same outputs, with scores to 1e-5."""
    model = write(tmp_path / "model", SETTINGS[name])
    places = {"nmt": model, "hf": export(model, "--max-positions", "20")}
    given, found = tmp_path / "in.txt", []
    given.write_text("stu ts\ns\nuu t </s>\n")
    for predictor, place in places.items():
        output = tmp_path / f"{predictor}.jsonl"
        call = f"decode --predictors {predictor} --{predictor}.model {place} --output-format jsonl --output {output}"
        call += f" --decoder beam --beam.stop length --nbest 4 --max-length 6 {given}"
        assert main(call.split()) == 0
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        found.append([hypothesis for row in rows for hypothesis in row["hypotheses"]])
    own, theirs = found
    assert len(own) == 12 and [each["tokens"] for each in theirs] == [each["tokens"] for each in own]
    assert [each["score"] for each in theirs] == pytest.approx([each["score"] for each in own], abs=1e-5)


def test_a_signature_depends_on_both_tokenizers(tmp_path: Path) -> None:
    folder = export(write(tmp_path / "model", SETTINGS["post two"]))
    hashes = {digest(folder, weights=False)}
    for file in (folder / "spiece.model", folder / "target" / "spiece.model"):
        file.write_bytes(file.read_bytes() + b"\x00")
        hashes.add(digest(folder, weights=False))
    assert len(hashes) == 3


@pytest.mark.parametrize("options", [[], ["--no-tokenizer"]])
def test_the_folder_holds_what_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    folder = export(write(tmp_path / "model", SETTINGS["pre two"]), *options)
    expected = f"{folder}: a model for the class PegasusForConditionalGeneration of transformers\n"
    assert capsys.readouterr().err == expected
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    tokenizer = {"spiece.model", "tokenizer_config.json"}
    model = {"config.json", "generation_config.json", "model.safetensors"}
    assert found == model | (set() if options else tokenizer | {f"target/{name}" for name in tokenizer})


def change(path: Path, **changes: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    options = {**config["options"], **changes.pop("options", {})}
    (path / "config.json").write_text(json.dumps({**config, **changes, "options": options}))


def gru(path: Path) -> None:
    shutil.rmtree(path)
    write_checkpoint(path, model="transformer", options={**BASE, "encoder": "gru"})


def poison(path: Path) -> None:
    tensors = files.load_tensors(path / layout.WEIGHTS)
    tensors["softmax.weight"][0, 0] = float("nan")
    files.save_tensors(path / layout.WEIGHTS, tensors)


@pytest.mark.parametrize(
    ("damage", "options", "status", "message"),
    [
        (lambda path: change(path, model="gnmt"), "", 2, "only the model transformer can be exported, because no"),
        (lambda path: change(path, model="transformer-lm"), "", 2, "no class of transformers computes transformer"),
        (gru, "", 2, "encoder is gru, and no class of transformers combines it with the decoder of a Transformer."),
        (lambda path: change(path, right_left=True), "", 2, "right_left is true, and transformers would show the"),
        (lambda path: change(path, quantised={"bounds": {}}), "", 2, "this model is quantised. Export the model"),
        (poison, "", 1, "tensor softmax.weight holds NaN or infinite weights"),
        (lambda path: (path / "config.json").unlink(), "", 1, "this is not a checkpoint"),
        (lambda path: None, "--max-positions 0", 2, "Invalid value for '--max-positions'"),
        (lambda path: None, "--to marian", 2, "'marian' is not 'hf'"),
        (lambda path: (path.with_name("new") / "x").mkdir(parents=True), "", 2, "there is something already."),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any, options: str, status: int, message: str
) -> None:
    model, new = write(tmp_path / "model", SETTINGS["post"]), tmp_path / "new"
    damage(model)
    before = list(new.rglob("*"))
    assert main(["export", str(model), "--to", "hf", "--output", str(new), *options.split()]) == status
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and error.count("\n") == 1 and message in error
    assert list(new.rglob("*")) == before


@pytest.mark.parametrize("right", [0, 1])
def test_a_tokenizer_without_counterpart_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], right: int
) -> None:
    """The message names the side and the way out."""
    mixed = MixedVocabulary.train(["stu vus"], 800)
    model, setting = tmp_path / "model", SETTINGS["post"]
    write(model, setting)
    sides: list[Any] = [characters(setting.source), characters(setting.target)]
    sides[right] = mixed
    (model / layout.SHARED).unlink()
    layout.save_vocabularies(model, *sides)
    tensors = files.load_tensors(model / layout.WEIGHTS)
    for name in (["source_embedding.weight"], ["target_embedding.weight", "softmax.weight", "softmax.bias"])[right]:
        tensors[name] = tensors[name].repeat(100, *[1] * (tensors[name].dim() - 1))[: mixed.size].contiguous()
    files.save_tensors(model / layout.WEIGHTS, tensors)
    change(model, **{("source_vocab_size", "target_vocab_size")[right]: mixed.size}, shared=False)
    call = ["export", str(model), "--to", "hf", "--output", str(tmp_path / "hf")]
    assert main(call) == 2
    side = ("source", "target")[right]
    error = capsys.readouterr().err
    assert error.startswith(f"Error: {model}: the {side} tokenizer is of the kind mixed, and no tokenizer of")
    assert " Give --no-tokenizer to export the model alone, " in error
    assert not (tmp_path / "hf").exists()
    assert main([*call, "--no-tokenizer"]) == 0

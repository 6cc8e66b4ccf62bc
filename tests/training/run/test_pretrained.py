"""What a run can start from: rows of a file of embeddings, piece by piece, and all of a language model, such that the
decoder is that language model as long as it does not hear of the source.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sgdec.checkpoints import loading
from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import LanguageModel, ModelContext
from sgdec.plugins.host import Host
from sgdec.text.vocabulary import load_vocabulary
from sgdec.training import train
from sgdec.training.preparing import prepare
from sgdec.training.run.pretrained import read_rows
from tests.helpers.families import FAMILIES
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow

WIDTH = 16


def vectors(pieces: list[str], width: int = WIDTH, seed: int = 1) -> dict[str, list[float]]:
    generator = np.random.default_rng(seed)
    return {piece: generator.normal(size=width).round(4).tolist() for piece in pieces}


def write(
    folder: Path, rows: dict[str, list[float]], *, header: bool = False, name: str = "vec", gap: str = " "
) -> str:
    lines = [f"{len(rows)} {len(next(iter(rows.values())))}"] if header else []
    lines += [gap.join([piece, *map(str, row)]) for piece, row in rows.items()]
    content = "".join(line + (" \n" if header else "\n") for line in lines).encode()  # word2vec ends rows by a blank
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


@pytest.mark.parametrize(
    "how",
    [{}, {"header": True}, {"gap": "\t"}, {"name": "vec.gz", "header": True}],
    ids=["glove", "word2vec", "tabs", "gz"],
)
def test_rows_of_pieces_in_the_file_start_from_it_and_others_as_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: dict[str, Any]
) -> None:
    caplog.set_level("INFO", "sgdec")
    rows = vectors(["▁one", "▁zwei", "</s>", "nowhere", "▁five"])
    config = make_config(tmp_path, embeddings_source=write(tmp_path, rows, **how), max_steps=1, bleu=0)
    trainer, plain = prepare(config), prepare(make_config(tmp_path, "plain"), quiet=True)
    vocabulary = load_vocabulary(config.tokenizer[0])
    table, before = (t.model.embedding_layer("source").weight.detach() for t in (trainer, plain))
    given = {vocabulary.token(piece): row for piece, row in rows.items() if piece != "nowhere"}
    assert len(given) == 4 and 0 not in given
    for token in range(vocabulary.size):
        expected = torch.tensor(given[token]) if token in given else before[token]
        assert torch.allclose(table[token], expected), vocabulary.piece(token)
    assert torch.equal(*(t.model.embedding_layer("target").weight for t in (trainer, plain)))
    trainer.run()
    said = "\n".join(caplog.messages)
    assert f"--embeddings-source: 4 of 13 pieces start from {config.embeddings_source}\n" in said


@pytest.mark.parametrize("family", [*FAMILIES, "rnnlm", "nplm", "transformer-lm", "grulm"])
def test_every_model_takes_embeddings_of_each_side_that_it_has(tmp_path: Path, family: str) -> None:
    name, options = FAMILIES.get(family, (family, {} if family == "nplm" else {"width": 8}))
    cls = Host().load("model", name)
    model = cls(ModelContext(20 if cls.sources else 0, 20), **options)
    sides = ["source", "target"] if cls.sources else ["target"]
    for side in sides:
        layer = model.embedding_layer(side)
        assert layer.num_embeddings == 20
        assert any(layer.weight is parameter for parameter in model.parameters())
    assert len({id(model.embedding_layer(side)) for side in sides}) == len(sides)
    if not cls.sources:
        with pytest.raises(UsageError, match="has no source embeddings to initialise"):
            model.embedding_layer("source")


def test_target_and_output_embeddings_start_from_files_and_training_goes_on(tmp_path: Path) -> None:
    pieces = [f"▁{word}" for _, target in PAIRS[:5] for word in target.split()]
    files = [write(tmp_path, vectors(pieces, seed=seed), name=f"vec{seed}") for seed in (1, 2)]
    config = make_config(tmp_path, embeddings_target=files[0], embeddings_output=files[1], max_steps=3, bleu=0)
    trainer = prepare(config, quiet=True)
    token = load_vocabulary(config.tokenizer[0]).token("▁drei")
    tables = trainer.model.embedding_layer("target").weight, trainer.model.output_layer()[0].weight
    for table, seed in zip(tables, (1, 2), strict=True):
        assert torch.allclose(table[token], torch.tensor(vectors(pieces, seed=seed)["▁drei"]))
    assert len(list(trainer.steps())) == 3
    tied = {"options": {"width": WIDTH, "tied": "target"}}
    with pytest.raises(UsageError, match="--embeddings-target and --embeddings-output: the model ties both"):
        prepare(make_config(tmp_path, "tied", embeddings_target=files[0], embeddings_output=files[1], **tied))
    model = prepare(make_config(tmp_path, "tied", embeddings_target=files[0], **tied), quiet=True).model
    assert torch.allclose(model.output_layer()[0].weight[token], torch.tensor(vectors(pieces)["▁drei"]))


def test_of_equal_rows_the_first_counts_and_words_with_blanks_are_no_pieces(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(make_config(tmp_path).tokenizer[0])
    file = tmp_path / "vec"
    file.write_text("▁one 1 2\n▁one ▁two 5 6\n▁one 3 4\n\u00a0 7 8\n▁two 9 1e-3\n")
    found = {vocabulary.piece(token): row.tolist() for token, row in read_rows(str(file), vocabulary, 2)}
    assert found == {"▁one": [1, 2], "▁two": [9, 0.001]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("▁one 1 2 3\n", r"vec:1: vectors of 3 numbers, but the model's have 16\. Train vectors of that size"),
        ("4 300\n▁one 1\n", r"vec:1: vectors of 300 numbers, but the model's have 16"),
        (f"unknown {'1 ' * 17}\n", r"vec:1: vectors of 17 numbers, but the model's have 16"),
        (f"a {'1 ' * 16}\nb {'1 ' * 16}\n▁one {'1 ' * 15}\n", "vec:3: vectors of 15 numbers, but the model's"),
        (f"2 16\n▁one {'1 ' * 15}x\n", r"vec:2: expected a piece and 16 numbers, separated by blanks"),
        (f"▁one {'1 ' * 15}nan\n", r"vec:1: expected a piece and 16 numbers"),
        (f"here {'1 ' * 16}\n", r"vec: it has no row for any of the 13 pieces\. Train vectors on text that is cut"),
        ("", r"vec: it has no row for any"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "vec").write_text(content)
    with pytest.raises(SgdecError, match=message) as caught:
        prepare(make_config(tmp_path, embeddings_target=str(tmp_path / "vec")), quiet=True)
    assert "\n" not in str(caught.value)


TRANSFORMER = {"layers": 2, "width": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0, "norm": "pre"}
LM_OPTIONS: dict[str, dict[str, Any]] = {
    "rnnlm": {"layers": 2, "width": 16, "dropout": 0.0},
    "transformer-lm": TRANSFORMER,
    "grulm": {"width": 16, "embedding": 12},
}
DEEP = {"layer_norm": True, "dropout": 0.1}
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "transformer": ("transformer-lm", "transformer", TRANSFORMER),
    "gru to transformer": ("transformer-lm", "transformer", {**TRANSFORMER, "encoder": "gru"}),
    "gnmt": ("rnnlm", "gnmt", {"layers": 2, "width": 16, "dropout": 0.0}),
    "luong": ("rnnlm", "luong", {"layers": 2, "width": 16, "dropout": 0.0}),
    "shallow": ("grulm", "shallow", {"width": 16, "embedding": 12}),
    "deep-transition": ("grulm", "deep-transition", {"width": 16, "embedding": 12, "decoder_depth": 4, **DEEP}),
    "luong fed": ("rnnlm", "luong", {"layers": 2, "width": 16, "dropout": 0.0, "input_feeding": True}),
}


def train_lm(folder: Path, model: str, output: str = "lm", *, options: Any = None, **settings: Any) -> str:
    """A language model of the targets, after a few steps."""
    config = make_config(folder)
    target = {"train": (config.train[1],), "valid": (config.valid[1],)}
    options = {**LM_OPTIONS[model], **(options or {})}
    made = {"lr": 0.02, "max_steps": 6, **target, **settings}
    train(make_config(folder, output, model=model, options=options, **made), quiet=True)
    return str(folder / output)


def deafen(model: Any) -> None:
    """Nothing of the source reaches the decoder any more."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            starts = ("decoder.second.inputs.", "decoder.initial.")  # of GRUs: what reads the context, and the start
            if ".source.output." in name or name.startswith(starts):  # the Transformer's attention to the source
                parameter.zero_()
            elif name == "decoder.readout.0.weight":
                parameter[:, 16 + 12 :].zero_()
            elif name in ("decoder.1.weight_ih_l0", "decoder.stack.lstm.weight_ih_l0"):  # gnmt's context, luong's H_c
                parameter[:, 16:].zero_()
            elif name == "decoder.combine.weight":  # luong's H_c = tanh(H)
                parameter.zero_()
                parameter[:, :16].copy_(torch.eye(16))


@pytest.mark.parametrize("case", DECODERS)
def test_a_decoder_that_hears_nothing_of_the_source_is_the_language_model(tmp_path: Path, case: str) -> None:
    """Its distributions are equal; of `luong`, where a tanh comes between, the states of its stack."""
    kind, name, options = DECODERS[case]
    path = train_lm(tmp_path, kind, options={"depth": 4, **DEEP} if name == "deep-transition" else None)
    if name == "luong":
        options = {**options, "bridge": False}
    config = make_config(tmp_path, model=name, options=options, start_decoder=path)
    trainer = prepare(config, quiet=True)
    model, batch = trainer.model.eval(), trainer.data.batch([100, 101, 5])
    lm, _ = loading.load_language_model(path)
    deafen(model)
    with torch.no_grad():
        expected = lm(batch.target_in)
        output = model(*batch.inputs)
        if name == "luong":
            assert torch.allclose(output, torch.tanh(expected), atol=1e-5)
        one, other = (m.project(expected if name == "luong" else x) for m, x in ((lm, expected), (model, output)))
    assert torch.allclose(one.log_softmax(-1), other.log_softmax(-1), atol=1e-5)


@pytest.mark.parametrize("case", ["transformer", "gnmt", "shallow", "luong fed"])
def test_training_goes_on_from_the_language_model_and_the_rest_starts_as_ever(
    tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sgdec")
    kind, name, options = DECODERS[case]
    path = train_lm(tmp_path, kind)
    settings: dict[str, Any] = {"model": name, "options": options, "max_steps": 6, "save_every": 2, "bleu": 0}
    config = make_config(tmp_path, start_decoder=path, **settings)
    trainer, plain = prepare(config), prepare(make_config(tmp_path, "plain", **settings), quiet=True)
    ours, theirs = trainer.model.state_dict(), plain.model.state_dict()
    changed = {key for key in ours if not torch.equal(ours[key], theirs[key])}
    assert changed >= {"target_embedding.weight", "softmax.weight"}
    assert not any(key.startswith(("encoder", "source_embedding")) for key in changed)
    if case == "luong fed":
        key = "decoder.stack.lstm.weight_ih_l0"
        assert torch.equal(ours[key][:, 16:], theirs[key][:, 16:]), "what reads H_c starts as ever"
    whole = list(trainer.steps())
    trainer.report.close()
    assert whole[0] != next(plain.steps())
    trainer = prepare(make_config(tmp_path, "other", start_decoder=path, **settings))
    trainer.run()
    said = next(line for line in caplog.messages if line.startswith("--start-decoder"))
    count = len(loading.load_language_model(path)[0].state_dict())
    assert said.startswith(f"--start-decoder {path}: {count} tensors of the {kind}; new are ")
    assert "encoder" in said and "source_embedding" in said and "target_embedding" not in said


def test_a_resumed_run_has_its_weights_and_needs_the_language_model_no_more(tmp_path: Path) -> None:
    path = train_lm(tmp_path, "rnnlm")
    settings: dict[str, Any] = {"start_decoder": path, "max_steps": 5, "save_every": 2, "bleu": 0}
    whole = list(prepare(make_config(tmp_path, "whole", **settings), quiet=True).steps())
    killed = prepare(make_config(tmp_path, **settings), quiet=True).steps()
    assert [next(killed) for _ in range(3)] == whole[:3]
    Path(path).rename(tmp_path / "gone")
    assert list(prepare(make_config(tmp_path, **settings), resume=True, quiet=True).steps()) == whole[2:]
    with pytest.raises(UsageError, match=r"--resume: start_decoder was .*lm in .*run, now it is \."):
        prepare(make_config(tmp_path, **{**settings, "start_decoder": ""}), resume=True, quiet=True)


def test_what_does_not_fit_is_one_line_and_names_both(tmp_path: Path) -> None:
    rnnlm = train_lm(tmp_path, "rnnlm")

    def refusal(path: str = rnnlm, **settings: Any) -> str:
        with pytest.raises(UsageError) as caught:
            prepare(make_config(tmp_path, "refused", start_decoder=path, **settings), quiet=True)
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(path, "LM")

    assert refusal(options={"width": 24}) == (
        "--start-decoder LM: its embedding.weight is 13x16, the model's target_embedding.weight 13x24. "
        "Give equal sizes."
    )
    assert refusal(options={"width": 24, "embedding": 16}).startswith(
        "--start-decoder LM: its lstm.weight_ih_l0 is 64x16, the model's decoder.0.weight_ih_l0 96x16."
    )
    assert refusal(model="transformer", options=TRANSFORMER) == (
        "--start-decoder LM: this is a rnnlm; transformer can start from transformer-lm."
    )
    assert refusal(model="shallow", options={"width": 8}).endswith("shallow can start from grulm.")
    options = {"width": 7, "embedding": 6}
    assert refusal(model="hard-attention", options=options).endswith("can start from no language model.")
    assert "its tokenizer or direction differs from the target" in refusal(right_left=True)
    deep = train_lm(tmp_path, "rnnlm", "deep", options={"layers": 3})
    assert refusal(deep) == (
        "--start-decoder LM: the decoder has no parameter for its lstm.weight_ih_l2. Give both as many layers."
    )
    assert refusal(options={"width": 16, "tied": "target"}) == (
        "--start-decoder LM: its embedding.weight and softmax.weight differ, but the model ties them. "
        "Tie them in both or in none."
    )
    tied = train_lm(tmp_path, "rnnlm", "tied", options={"tied": True})
    for ties in ("target", "none"):
        options = {"width": 16, "tied": ties}
        model = prepare(make_config(tmp_path, "fine", start_decoder=tied, options=options), quiet=True).model
        expected = loading.load_language_model(tied)[0].output_layer()[0].weight
        assert torch.equal(model.output_layer()[0].weight, expected)
    for name in ("embeddings_target", "embeddings_output"):
        flag = "--" + name.replace("_", "-")
        assert refusal(**{name: "vec"}) == f"--start-decoder and {flag} set the same weights. Give only one of them."
    assert refusal(unigram_bias=True).startswith("--start-decoder and --unigram-bias set the same weights")
    train(make_config(tmp_path, max_steps=1, bleu=0), quiet=True)
    assert refusal(str(tmp_path / "run")).endswith("this is a gnmt; gnmt can start from rnnlm.")
    with pytest.raises(SgdecError, match="nowhere: no such folder"):
        prepare(make_config(tmp_path, "refused", start_decoder=str(tmp_path / "nowhere")), quiet=True)


def test_every_correspondence_names_a_language_model_and_fits_each_of_its_parameters_once() -> None:
    host = Host()
    named = 0
    for name in [entry.name for entry in host.names("model")]:
        cls = host.load("model", name)
        for kind, same in getattr(cls, "language_models", {}).items():
            named += 1
            lm_class = host.load("model", kind)
            assert issubclass(lm_class, LanguageModel)
            for key in lm_class(ModelContext(0, 20), **LM_OPTIONS[kind]).state_dict():
                assert sum(re.fullmatch(pattern, key) is not None for pattern in same.names) == 1, (name, kind, key)
    assert named >= 5

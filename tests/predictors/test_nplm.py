"""The feed-forward language model: it is the paper's formula, from checkpoints and from NPLM's own text files, and
the predictor scores a distribution that depends on the last n - 1 tokens alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sgdec_predictors.nplm import NplmPredictor

from sgdec.checkpoints.loading import load_language_model
from sgdec.cli.main import main
from sgdec.context import BOS, EOS, UNK, Context, Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.io.nplm import NplmFile, StoredLayer, read_nplm, write_nplm
from sgdec.models.base import ModelContext
from sgdec.models.nplm import NPLM
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Source
from sgdec.testing import PredictorContract
from tests.helpers.lm_case import random_file, write_lm
from tests.helpers.tiny_models import characters

pytestmark = pytest.mark.slow

CONTEXT = ModelContext(source_vocab_size=0, target_vocab_size=23)
TARGETS = torch.tensor([[1, 9, 8, 7, 22], [1, 3, 3, 2, 2], [1, 5, 4, 3, 2]])
OPTIONS = {"order": 4, "embedding": 3, "hidden": 6, "output": 5}
WORDS = ["<unk>", "<s>", "</s>", "3", "4", "5", "6"]
PHI: dict[str, Callable[[Any], Any]] = {
    "rectifier": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "identity": lambda x: x,
}


def by_hand(file: NplmFile, words: Sequence[str]) -> npt.NDArray[np.float64]:
    """Section 2 of the paper in NumPy, for one context of n - 1 words: ln P of each output word."""
    places = [file.input_words.index(word if word in file.input_words else "<unk>") for word in words]
    x = np.concatenate([file.input_embeddings[place] for place in places])
    for weights, biases in file.hidden:
        x = PHI[file.activation](weights @ x + biases)
    scores = file.output_weights @ x + file.output_biases
    result: npt.NDArray[np.float64] = scores - np.log(np.exp(scores).sum())
    return result


def ask(predictor: BatchPredictor, *prefixes: Sequence[int]) -> npt.NDArray[np.float64]:
    """The rows after these prefixes, ``[prefixes, V]``."""
    states = []
    for prefix in prefixes:
        (state,) = predictor.initialize_batch([Source(1, ())])
        for token in prefix:
            (state,) = predictor.consume_batch([state], [token])
        states.append(state)
    return np.asarray(predictor.predict_batch(states).values, dtype=float)


def test_the_next_token_depends_on_the_window_alone() -> None:
    torch.manual_seed(7)
    model = NPLM(CONTEXT, **OPTIONS, init=0.5).double().eval()  # type: ignore[arg-type]
    first, second = model(torch.tensor([[1, 9, 8, 4, 5, 6], [1, 3, 3, 4, 5, 6]]))
    assert torch.equal(first[-1], second[-1]) and not torch.equal(first[-2], second[-2])


@pytest.mark.parametrize(("activation", "hidden"), [*itertools.product(PHI, [6, 0])])
def test_a_text_file_scores_by_the_formula(tmp_path: Path, activation: str, hidden: int) -> None:
    """Each token has the score of its word, wherever the file lists it."""
    file = random_file(WORDS, activation=activation, hidden=hidden)
    write_nplm(tmp_path / "lm", file)
    predictor = NplmPredictor(str(tmp_path / "lm"), Context(vocab_size=7, precision="fp64"))
    for prefix in [(), (3,), (4, 0, 6), (6, 5, 4, 3, 3)]:
        window = (["<s>"] * 3 + [WORDS[token] for token in prefix])[-3:]
        expected = dict(zip(file.output_words, by_hand(file, window), strict=True))
        row = ask(predictor, prefix)[0]
        assert row.tolist() == pytest.approx([expected[word] for word in WORDS], abs=1e-12)
        assert np.exp(row).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp64", 1e-12), ("fp32", 1e-5), ("bf16", 0.2)])
def test_a_checkpoint_scores_by_the_formula(tmp_path: Path, precision: str, tolerance: float) -> None:
    checkpoint = write_lm(tmp_path / "lm", "nplm", OPTIONS)
    model, vocabularies = load_language_model(checkpoint, precision="fp64")
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    vocabulary = vocabularies.target
    assert isinstance(model, NPLM) and vocabulary is not None
    pieces = [vocabulary.piece(token) for token in range(vocabulary.size)]
    layers = [StoredLayer(weights[f"hidden.{n}.weight"], weights[f"hidden.{n}.bias"]) for n in (0, 1)]
    file = NplmFile(
        4, "rectifier", pieces, pieces, weights["embedding.weight"], layers,
        weights["softmax.weight"], weights["softmax.bias"],
    )  # fmt: skip
    predictor = NplmPredictor(str(checkpoint), Context(precision=precision))
    for prefix in [(), (3,), (4, 0, 6), (6, 5, 4, 3, 3)]:
        window = (["<s>"] * 3 + [pieces[token] for token in prefix])[-3:]
        row = ask(predictor, prefix)[0]
        assert row.tolist() == pytest.approx(by_hand(file, window).tolist(), abs=tolerance)
        assert np.exp(row).sum() == pytest.approx(1, abs=1e-4)


def test_equal_windows_have_equal_keys_and_futures(tmp_path: Path) -> None:
    predictor = NplmPredictor(str(write_lm(tmp_path / "lm", "nplm", OPTIONS)))
    first, second, third = ((3,), 3, 4, 5), ((4, 6, 6), 3, 4, 5), ((), 4, 5, 5)
    states = []
    for head, *tail in (first, second, third):
        (state,) = predictor.initialize_batch([Source(1, ())])
        for token in (*head, *tail):  # type: ignore[misc]
            (state,) = predictor.consume_batch([state], [token])
        states.append(state)
    keys = predictor.state_key(states)
    assert keys[0] == keys[1] != keys[2]


def test_words_of_a_text_file_are_pieces_of_the_target_vocabulary(tmp_path: Path) -> None:
    """In another order than the tokens', and without two of them: these have the score of <unk>."""
    vocabulary = characters("abc")
    pieces = [vocabulary.piece(token) for token in range(vocabulary.size)]
    missing = {"a", "c"} & set(pieces)
    assert len(missing) == 2
    words = [word for word in reversed(pieces) if word not in missing]
    file = random_file([*words, "elsewhere"])
    write_nplm(tmp_path / "lm", file)
    context = Context(vocabularies=Vocabularies(target=vocabulary), vocab_size=vocabulary.size, precision="fp64")
    predictor = NplmPredictor(str(tmp_path / "lm"), context)
    prefix = [vocabulary.token("a"), vocabulary.token("b")]
    expected = dict(zip(file.output_words, by_hand(file, ["<s>", "a", "b"]), strict=True))
    assert ask(predictor, prefix)[0].tolist() == pytest.approx(
        [expected.get(piece, expected["<unk>"]) for piece in pieces], abs=1e-12
    )
    assert NplmPredictor.read_vocabularies(str(tmp_path / "lm")) == Vocabularies()


@pytest.mark.parametrize("hidden", [6, 0])
def test_a_file_that_was_written_is_read_again(tmp_path: Path, hidden: int) -> None:
    file = random_file(WORDS, hidden=hidden, activation="tanh")
    write_nplm(tmp_path / "lm", file)
    again = read_nplm(tmp_path / "lm")
    assert (again.order, again.activation, again.input_words, again.output_words) == (
        file.order, file.activation, file.input_words, file.output_words
    )  # fmt: skip
    for name in ("input_embeddings", "output_weights", "output_biases"):
        assert np.array_equal(getattr(again, name), getattr(file, name))
    for layer, expected in zip(again.hidden, file.hidden, strict=True):
        assert np.array_equal(layer.weights, expected.weights) and np.array_equal(layer.biases, expected.biases)


EARLY = """\\config
version 1
ngram_size 2
vocab_size 3
input_embedding_dimension 1
num_hidden 0
output_embedding_dimension 2

\\vocab
<unk>
<s>
ja

\\input_embeddings
1
2.5
-1e-1

\\hidden_weights 1
1\t
-2

\\hidden_weights 2
0

\\output_weights
1 0
0 1
1  1

\\output_biases
0
0
0.5

\\end
"""
"""As the first version of NPLM wrote it: one vocabulary, no activation function, no biases in hidden layers."""


def test_files_without_hidden_biases_or_with_one_vocabulary_are_read(tmp_path: Path) -> None:
    path = tmp_path / "lm"
    path.write_text(EARLY)
    file = read_nplm(path)
    assert file.input_words == file.output_words == ["<unk>", "<s>", "ja"]
    assert (file.order, file.activation, len(file.hidden)) == (2, "rectifier", 1)
    expected = np.array([2.5, 0.0, 3.0])  # after <s>: h = (2.5, 0)
    assert by_hand(file, ["<s>"]).tolist() == pytest.approx(expected - np.log(np.exp(expected).sum()))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("\\config\n", "config\n", r"line 1: this is not a model file of NPLM; expected \\config"),
        ("version 1", "version 2", "line 2: this is version 2 of the format, expected 1"),
        ("ngram_size 2", "ngram_size two", "line 3: expected a whole number after ngram_size, found 'two'"),
        ("ngram_size 2", "ngram_size 1", "line 1: ngram_size is 1, expected 2 at least"),
        ("ngram_size 2\n", "", r"line 1: \\config does not say ngram_size"),
        ("num_hidden 0", "activation_function relu", "line 6: activation_function 'relu', expected one of rectifier"),
        ("\nja\n", "\n", r"line 9: \\vocab has 2 lines, expected 3 as \\config says"),
        ("\nja\n", "\n<s>\n", "line 12: the word '<s>' is listed twice"),
        ("\n2.5\n", "\n2.5 1\n", r"line 16: \\input_embeddings has 1 numbers per line, but 2 here"),
        ("\n2.5\n", "\nzwei\n", "line 16: expected numbers, found 'zwei'"),
        ("\n2.5\n", "\nnan\n", r"line 16: \\input_embeddings holds NaN or infinite numbers"),
        ("\\hidden_weights 2", "\\gates", r"line 23: expected a section such as \\output_weights, found '\\\\gates'"),
        ("\\output_biases", "\\output_weights", r"line 31: the section \\output_weights is here twice"),
        ("\\hidden_weights 1\n1\t\n-2\n\n", "", r"the section \\hidden_weights 1 is missing"),
        ("\\end\n", "", r"the file is cut short: \\end is missing\. Copy it again"),
    ],
)
def test_a_file_that_is_wrong_is_one_line_naming_it(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "lm"
    assert EARLY.count(old) == 1
    path.write_text(EARLY.replace(old, new))
    with pytest.raises(SgdecError, match=rf"lm: {complaint}") as caught:
        read_nplm(path)
    assert "\n" not in str(caught.value)


def test_models_that_do_not_fit_the_run_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "lm"
    write_nplm(path, random_file(["<unk>", "<s>", "</s>", "ja", "nein"]))
    with pytest.raises(UsageError, match=r"shares no word with the target vocabulary\. Looked for '3', '4', '5', "):
        NplmPredictor(str(path), Context(vocab_size=7))
    with pytest.raises(UsageError, match=r"lm: the tokens of its words are unknown\. Give --tokenizer, or --vocab"):
        NplmPredictor(str(path))
    with pytest.raises(UsageError, match=r"lm: a language model cannot be loaded in 8 bits"):
        NplmPredictor(str(path), Context(vocab_size=7, precision="int8"))
    write_nplm(path, random_file(["<s>", "</s>", "3", "4"]))
    with pytest.raises(SgdecError, match=r"lm: this model has no <unk>, so 3 tokens have no score, such as '6'\."):
        NplmPredictor(str(path), Context(vocab_size=7))
    with pytest.raises(SgdecError, match=r"nowhere: no such folder\. Expected a checkpoint"):
        NplmPredictor(str(tmp_path / "nowhere"))
    recurrent = write_lm(tmp_path / "rnnlm", "rnnlm", {"width": 4})
    with pytest.raises(SgdecError, match=r"this is a RNNLM, whose inputs are more than a window\. Use the predictor"):
        NplmPredictor(str(recurrent))


def test_decoding_with_a_text_file_over_ids_is_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_nplm(tmp_path / "lm", random_file(WORDS))
    (tmp_path / "in.ids").write_text("3 4\n5\n")
    command = ["decode", "--predictors", "nplm,wc", "--nplm.model", str(tmp_path / "lm"), "--wc.weight", "-1"]
    command += ["--vocab-size", "7", "--input-format", "ids", "--decoder", "dfs", "--dfs.recombine", "true"]
    assert main([*command, str(tmp_path / "in.ids")]) == 0
    assert capsys.readouterr().out.count("\n") == 2


class NplmContract(PredictorContract):
    plugin = "nplm"
    walk_length = 5
    prefixes = ((3, 4, 5, 6), (0, 3), (4, 4, 4))
    vocab_size = 7
    path: str

    def make(self) -> BatchPredictor:
        predictor: BatchPredictor = Host(autoload=False).load("predictor", "nplm")(
            self.path, context=Context(vocab_size=self.vocab_size)
        )
        return predictor


class TestNplmCheckpoint(NplmContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        assert characters("abc").size == cls.vocab_size
        cls.path = str(write_lm(tmp_path_factory.mktemp("nplm") / "lm", "nplm", OPTIONS))


class TestNplmTextFile(NplmContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.path = str(tmp_path_factory.mktemp("nplm") / "lm")
        write_nplm(cls.path, random_file(WORDS))


assert (UNK, BOS, EOS) == (0, 1, 2)  # as WORDS has them

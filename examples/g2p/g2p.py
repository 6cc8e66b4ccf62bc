"""From letters to phonemes: the trained model that the Python package g2p-en ships, as a predictor.

A GRU reads the letters of a word and ``</s>``. Its last state is the first state of a second GRU, which writes the
phonemes and sees nothing else of the word. With the embedding x of a symbol and the state h, both compute

    r = sigmoid(W_r x + b_r + U_r h + c_r)        z = sigmoid(W_z x + b_z + U_z h + c_z)
    n = tanh(W_n x + b_n + r * (U_n h + c_n))     h' = (1 - z) * n + z * h

(Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", with the reset gate after the product
with U_n), and the score of a phoneme is

    ln P(phoneme | phonemes before it, letters) = ln softmax(V h' + d)

over all of the model's symbols, ``<pad>``, ``<unk>`` and ``<s>`` included, so that probabilities sum to 1.

State: h, a row of an array. Cost: one matrix product per token, and one per prediction, for many prefixes at once.
It computes with NumPy on the CPU, in fp32 or fp64.
"""

from __future__ import annotations

import hashlib
import string
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

import sgdec
from sgdec import BOS, EOS, UNK, BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.protocol import Candidates

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
LETTERS = ("<pad>", "<unk>", "</s>", *string.ascii_lowercase)
"""The symbols of the encoder, by id."""
PHONEMES = (
    *("<pad>", "<unk>", "<s>", "</s>"),
    *sorted([*CONSONANTS.split(), *(vowel + stress for vowel in VOWELS.split() for stress in "012"), "UW"]),
)
"""The symbols of the decoder, by id: ARPAbet, in which a digit marks the stress of a vowel."""
ROLES = ("<unk>", "<s>", "</s>")
"""Our tokens 0, 1 and 2. The others follow in the order of the model's ids."""
PRECISIONS = {"fp32": np.float32, "fp64": np.float64}


class Symbols:
    """A vocabulary (`sgdec.Vocabulary`) of the model's symbols."""

    def __init__(self, symbols: Sequence[str], split: Callable[[str], Iterable[str]], blank: str) -> None:
        """``symbols``: by id; ``split`` makes symbols of a line, and ``blank`` between symbols makes a line."""
        self._pieces = (*ROLES, *(symbol for symbol in symbols if symbol not in ROLES))
        self._tokens = {piece: token for token, piece in enumerate(self._pieces)}
        self._split, self._blank = split, blank
        self.ids = [symbols.index(piece if piece in symbols else "<unk>") for piece in self._pieces]
        """The model's id of each token; for a role that the model lacks, that of ``<unk>``."""

    @property
    def size(self) -> int:
        return len(self._pieces)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(" ".join(self._pieces).encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        tokens = (self._tokens.get(symbol, UNK) for symbol in self._split(text))
        return tuple(token if token > EOS else UNK for token in tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._blank.join(self._pieces[token] for token in tokens)

    def piece(self, token: int) -> str:
        if token < 0:
            raise IndexError(f"token {token} is below 0")
        return self._pieces[token]

    def token(self, piece: str) -> int:
        return self._tokens.get(piece, UNK)


def letters_of(word: str) -> str:
    """A word in lower case, without accents.

    >>> letters_of("Café")
    'cafe'
    """
    parts = unicodedata.normalize("NFD", word.lower())
    return "".join(character for character in parts if not unicodedata.combining(character))


SOURCE, TARGET = Symbols(LETTERS, letters_of, ""), Symbols(PHONEMES, str.split, " ")


class GRU:
    """One step of a gated recurrent unit with H units, for many rows."""

    def __init__(self, weights: Mapping[str, Floats], side: str, symbols: Symbols) -> None:
        """``side``: the names of its weights begin with it."""
        embeddings, w, u, b, c = (weights[f"{side}_{name}"] for name in ("emb", "w_ih", "w_hh", "b_ih", "b_hh"))
        self._inputs = embeddings[symbols.ids] @ w.T + b  # [tokens, 3 H]
        self._u, self._c = u.T, c  # [H, 3 H], [3 H]

    def __call__(self, tokens: Sequence[int], h: Floats) -> Floats:
        """The states after one token each, ``[rows, H]``."""
        x_r, x_z, x_n = np.split(self._inputs[list(tokens)], 3, axis=-1)  # [rows, H] each
        h_r, h_z, h_n = np.split(h @ self._u + self._c, 3, axis=-1)
        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        n = np.tanh(x_n + r * h_n)
        return np.asarray((1 - z) * n + z * h)


class G2P(BatchPredictor):
    """ln P(phoneme | phonemes before it, letters) of the model in g2p-en.

    >>> model = G2P()
    >>> letters, phonemes = model.vocabularies
    >>> (start,) = model.initialize_batch([Source(id=1, tokens=letters.encode("python"))])
    >>> (after_p,) = model.consume_batch([start], [phonemes.token("P")])
    >>> row = model.predict_batch([after_p]).values[0]
    >>> [round(float(row[phonemes.token(vowel)]), 2) for vowel in ("AY1", "IH1")]
    [-0.64, -0.77]
    """

    max_score = 0.0  # these are log-probabilities, so exact searches know a bound
    vocabularies = Vocabularies(SOURCE, TARGET)

    def __init__(
        self,
        weights: Annotated[
            str | None, Field(description="npz file; none = checkpoint20.npz of the installed package g2p-en")
        ] = None,
        context: Context | None = None,
    ) -> None:
        precision = (context or Context()).precision
        if precision not in PRECISIONS:
            raise UsageError(f"g2p: it computes in {' or '.join(PRECISIONS)}, not in {precision}. Use --precision.")
        arrays = {name: array.astype(PRECISIONS[precision]) for name, array in read(weights).items()}
        self._encoder = GRU(arrays, "enc", SOURCE)
        self._decoder = GRU(arrays, "dec", TARGET)
        self._v, self._d = arrays["fc_w"][TARGET.ids].T, arrays["fc_b"][TARGET.ids]  # [H, V], [V]

    @classmethod
    def read_vocabularies(cls, **options: Any) -> Vocabularies:
        return cls.vocabularies

    def initialize_batch(self, sources: Sequence[Source]) -> list[Floats]:
        words = [(*map(letter, source.tokens), EOS) for source in sources]
        h = np.zeros((len(words), len(self._v)), self._v.dtype)  # [words, H]
        for place in range(max(map(len, words), default=0)):
            longer = [i for i, word in enumerate(words) if place < len(word)]
            h[longer] = self._encoder([words[i][place] for i in longer], h[longer])
        return list(self._decoder([BOS] * len(words), h))

    def predict_batch(
        self, states: Sequence[Floats], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        logits = np.stack(states) @ self._v + self._d  # [rows, V]
        logits -= logits.max(axis=-1, keepdims=True)
        return Scores.dense(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))

    def consume_batch(self, states: Sequence[Floats], tokens: Sequence[int]) -> list[Floats]:
        return list(self._decoder(tokens, np.stack(states)))


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), in a form that does not overflow."""
    return np.asarray((1 + np.tanh(x / 2)) / 2)


def letter(token: int) -> int:
    """A source token. Raises SgdecError if the model has no letter with this number."""
    if token != UNK and not EOS < token < SOURCE.size:
        raise SgdecError(f"g2p: source token {token} is not a letter. Expected 0, or {EOS + 1} to {SOURCE.size - 1}.")
    return token


def read(path: str | None) -> dict[str, Floats]:
    """The arrays of a weight file, by name; None = the file of the installed package.

    The package is not imported, because it downloads data of nltk when it is. Raises SgdecError if there is no such
    file, or it has other arrays.
    """
    if path is None:
        try:
            path = str(distribution("g2p-en").locate_file("g2p_en/checkpoint20.npz"))
        except PackageNotFoundError:
            raise SgdecError(
                "g2p: the package g2p-en is not installed. Run `pip install --no-deps g2p-en==2.1.0`."
            ) from None
    try:
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
            arrays = {name: found[name] for name in found}
            width, embedding = arrays["enc_w_hh"].shape[1], arrays["enc_emb"].shape[1]
    except OSError as error:
        raise SgdecError(f"g2p: {path}: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error):
        raise SgdecError(f"g2p: {path}: this is not a weight file of g2p-en.") from None
    expected = {"fc_w": (len(PHONEMES), width), "fc_b": (len(PHONEMES),)}
    for side, symbols in (("enc", LETTERS), ("dec", PHONEMES)):
        expected |= {f"{side}_emb": (len(symbols), embedding), f"{side}_w_ih": (3 * width, embedding)}
        expected |= {f"{side}_w_hh": (3 * width, width), f"{side}_b_ih": (3 * width,), f"{side}_b_hh": (3 * width,)}
    shapes = {name: array.shape for name, array in arrays.items()}
    for name, shape in expected.items():
        if shapes.get(name) != shape:
            raise SgdecError(f"g2p: {path}: expected {name} of shape {shape}, found {shapes.get(name, 'no array')}.")
    return arrays


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"g2p": G2P}

"""The promise: what KenLM's Python module says of a binary, the mapped reader says, bit for bit, in every layout.

``tests/data/layouts`` has one random model of order 4 as `build_binary` writes it in each layout. Some of its n-grams
lack their suffixes (KenLM fills such gaps with blanks), many have no back-off, words are in UTF-8 and up to 20 bytes
long. ``bigrams`` is a model of order 2, which has no n-grams between the shortest and the longest.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.ngram import NGram
from sgdec_predictors.ngrams import kenlm as kenlm_reader
from sgdec_predictors.ngrams.backoff import BackoffTable
from sgdec_predictors.ngrams.kenlm import KenlmModel

from sgdec import Context, UsageError
from sgdec.files import LN_10, Arpa, read_arpa
from tests.helpers.optional import optional
from tests.helpers.places import DATA

LAYOUTS = DATA / "layouts"
BINARIES = sorted([*LAYOUTS.glob("*.kenlm"), *DATA.glob("tiny*.kenlm")])
SENTENCES = 40


def arpa_of(path: Path) -> Arpa:
    return read_arpa(path.parent / f"{path.name.partition('.')[0]}.arpa")


def words_of(path: Path) -> list[str]:
    """All words of the model, ``<s>`` and ``</s>`` among them, and one that it does not list."""
    return [*arpa_of(path).words, "unheard-of"]


def sentences(path: Path, seed: int) -> list[list[str]]:
    """Random words, and n-grams of the model one after the other."""
    rng, arpa, words = random.Random(seed), arpa_of(path), words_of(path)
    drawn = [rng.choices(words, k=rng.randrange(1, 9)) for _ in range(SENTENCES)]
    for _ in range(SENTENCES):
        ngrams = [rng.choice(rng.choice(arpa.orders).words) for _ in range(4)]
        drawn.append([arpa.words[word] for ngram in ngrams for word in ngram.tolist()])
    return drawn


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.name)
def test_scores_and_histories_are_those_of_the_module(path: Path) -> None:
    """Along random sentences. Histories are equal where KenLM's states are, and nowhere else."""
    kenlm = optional("kenlm")
    words = words_of(path)
    model, oracle = KenlmModel(str(path), words), kenlm.Model(str(path))
    states: dict[int, Any] = {}
    numbers: dict[Any, int] = {}
    lengths = set()
    for sentence in sentences(path, 1):
        history, state = model.start, kenlm.State()
        oracle.BeginSentenceWrite(state)
        for word in sentence:
            after = kenlm.State()
            found = oracle.BaseFullScore(state, word, after)
            score, history = model.step(history, model.symbol(word))
            assert bits(score) == bits(found.log_prob * LN_10)
            assert (word in model) == (not found.oov)
            assert states.setdefault(history, after) == after and numbers.setdefault(after, history) == history
            lengths.add(found.ngram_length)
            state = after
    assert lengths == set(range(1, oracle.order + 1)), "n-grams of every order decide"


@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.name)
def test_arrays_and_rows_are_equal_to_single_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kenlm_reader, "_FIRST", 2)  # room for histories is made often
    words = words_of(path)
    model, arrays = KenlmModel(str(path), words), KenlmModel(str(path), words)
    symbols = np.array([model.symbol(word) for word in words])
    histories = [model.start]
    for _ in range(4):
        rows = arrays.rows(histories)
        pairs = np.repeat(histories, len(symbols)), np.tile(symbols, len(histories))
        scores, after = arrays.step_all(*pairs)
        singles = [model.step(int(history), int(symbol)) for history, symbol in zip(*pairs, strict=True)]
        assert scores.tobytes() == np.array([score for score, _ in singles]).tobytes()
        assert after.tolist() == [number for _, number in singles]
        assert rows.tobytes() == scores.astype(np.float32).tobytes()
        histories = random.Random(2).sample(sorted(set(after.tolist())), min(20, len(set(after.tolist()))))
    scores, after = arrays.step_all(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(scores) == len(after) == 0


@pytest.mark.parametrize("path", [path for path in BINARIES if "q" not in path.name], ids=lambda path: path.name)
def test_scores_are_those_of_the_arpa_file(path: Path) -> None:
    """But for numbers that are quantised, and for float32 sums of log10 instead of ln."""
    words = words_of(path)
    model, table = KenlmModel(str(path), words), BackoffTable(arpa_of(path), words)
    for sentence in sentences(path, 3):
        history, node = model.start, table.start
        for word in sentence:
            score, history = model.step(history, model.symbol(word))
            expected, node = table.step(node, table.symbol(word))
            assert score == pytest.approx(expected, abs=1e-4)


def test_the_module_is_an_engine_with_the_same_scores() -> None:
    optional("kenlm")
    path, context = str(DATA / "tiny.kenlm"), Context(vocab_size=7)
    mapped, module = NGram(path, context=context), NGram(path, engine="kenlm", context=context)
    rows = [each.predict_batch([each._model.start]).values for each in (mapped, module)]
    assert rows[0].tobytes() == rows[1].tobytes()


def test_an_arpa_file_has_no_engine() -> None:
    with pytest.raises(UsageError, match=r"tiny\.arpa is an ARPA file: omit engine"):
        NGram(str(DATA / "tiny.arpa"), engine="kenlm", context=Context(vocab_size=7))

"""The promise: the relaxations of an n-gram model are followed without the model, and bound its scores exactly.

The oracle reads the ARPA file with `str.split`, and scores every word after every context by the definition of a
back-off model, word by word in float64.
"""

from __future__ import annotations

import gzip
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.ngram import NGram
from sgdec_predictors.ngrams.backoff import BackoffTable

from sgdec import BOS, EOS, Context, Source
from sgdec.io.arpa import read_arpa
from sgdec.relaxations import Relaxation
from tests.helpers.places import DATA

TOLERANCE = 1e-4
"""Models are kept in float32, and their smallest scores are about -230."""
V = 7
"""The size of the vocabulary of random models; they list 3, and some list 4, 5 and 9."""

Gram = tuple[str, ...]


class Definition:
    """A model as its file lists it: by n-gram ln p and ln of the back-off weight.

    N-grams with a word that is no token's cannot occur.
    """

    def __init__(self, path: Path, vocab_size: int | None, name: Callable[[int], str] = str) -> None:
        self.name = name
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        listed: dict[Gram, tuple[float, float]] = {}
        n = 0
        for line in text.splitlines():
            if line.endswith("-grams:"):
                n = int(line[1])
            elif n and len(fields := line.split()) > n:
                backoff = float(fields[n + 1]) if len(fields) > n + 1 else 0.0
                listed[tuple(fields[1 : n + 1])] = float(fields[0]) * math.log(10), backoff * math.log(10)
        self.order = n
        listed.setdefault(("<unk>",), (-100 * math.log(10), 0.0))
        special = ("<s>", "</s>", "<unk>")
        possible = {word for (word, *_) in listed if word in special or vocab_size is None or int(word) < vocab_size}
        self.grams = {gram: numbers for gram, numbers in listed.items() if possible.issuperset(gram)}
        contexts = [(), *(gram for gram in self.grams if len(gram) < n)]
        continued = {gram[:-1] for gram in self.grams}
        self.contexts: dict[str, list[Gram]] = {"": []}
        """By the last word; those that end in a word that tells nothing, like the empty context, are below ''."""
        self.telling = {word for word in possible if n > 1 and ((word,) in continued or self.grams[word,][1] != 0)}
        for context in contexts:
            self.contexts.setdefault(self.state(context[-1]) if context else "", []).append(context)

    def word(self, token: int) -> str:
        word = {BOS: "<s>", EOS: "</s>"}.get(token, self.name(token))
        return word if (word,) in self.grams else "<unk>"

    def state(self, word: str) -> str:
        return word if word in self.telling else ""

    def score(self, context: Gram, word: str) -> float:
        if (*context, word) in self.grams:
            return self.grams[*context, word][0]
        return self.grams.get(context, (0.0, 0.0))[1] + self.score(context[1:], word)

    def extremes(self, contexts: Iterable[Gram], word: str) -> tuple[float, float]:
        """The lowest finite score and the highest score after some contexts."""
        scores = [self.score(context, word) for context in contexts]
        return min((score for score in scores if score > -math.inf), default=-math.inf), max(scores)


@st.composite
def files(draw: st.DrawFn) -> str:
    """ARPA files of order 1 to 4. Suffixes are missing, back-offs are often positive, some n-grams are forbidden."""
    numbers = draw(st.sampled_from([[], ["4"], ["9"], ["4", "5"], ["4", "5", "9"]]))
    words = ["<s>", "</s>", "3", *numbers, *draw(st.sampled_from([[], ["<unk>"]]))]
    levels: list[list[Gram]] = [[(word,) for word in words]]
    for _ in range(draw(st.integers(0, 3))):
        longer = [(*gram, word) for gram in levels[-1] if gram[-1] != "</s>" for word in words if word != "<s>"]
        if not longer:
            break
        levels.append(draw(st.lists(st.sampled_from(longer), min_size=1, max_size=8, unique=True)))
    lines = ["\\data\\", *(f"ngram {n}={len(level)}" for n, level in enumerate(levels, 1)), ""]
    scores = st.sampled_from(["-4.1", "-2.3", "-1.2", "-0.7", "-0.3", "0", "-inf"])
    backoffs = st.sampled_from(["", "0", "0", "-0.9", "-0.4", "0.3", "1.1"])
    for n, level in enumerate(levels, 1):
        lines.append(f"\\{n}-grams:")
        for gram in level:
            backoff = draw(backoffs) if n < len(levels) and gram[-1] != "</s>" else ""
            lines.append(f"{draw(scores)} {' '.join(gram)} {backoff}")
        lines.append("")
    return "\n".join([*lines, "\\end\\", ""])


def predictor(path: Path, vocab_size: int | None = V, words: str = "ids") -> NGram:
    return NGram(str(path), words=words, context=Context(vocab_size=vocab_size))


def start(ngram: NGram) -> int:
    (state,) = ngram.initialize_batch([Source(1, (3,))])
    assert isinstance(state, int)
    return state


def relaxations(ngram: NGram) -> tuple[Relaxation, Relaxation]:
    """Those of orders 2 and 1. A model of a higher order is also a relaxation of itself."""
    *_, order_2, order_1 = ngram.relaxations(start(ngram))
    return order_2, order_1


def ask(method: Callable[..., np.ndarray], states: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """What a relaxation says about every token after every state."""
    pairs = np.array(list(itertools.product(states, tokens)), np.int64)
    found = method(pairs[:, 0], pairs[:, 1])
    assert found.shape == (len(states) * len(tokens),)
    return list(found.tolist())


def step(ngram: NGram, state: int, tokens: Sequence[int]) -> tuple[Sequence[float], list[int]]:
    """Scores of tokens, and the states after them."""
    _, scores, states = ngram.steps(state, tokens)
    return scores, [after for after in states if isinstance(after, int)]


def expect_obligations(ngram: NGram, state: int, tokens: Sequence[int]) -> list[int]:
    """Both obligations for each token after one state; the states after all tokens but ``</s>``."""
    scores, after = step(ngram, state, tokens)
    for relaxation in ngram.relaxations(state):
        here = relaxation.of([state])
        assert 0 <= here[0] < relaxation.size
        for token, then, followed in zip(
            tokens, relaxation.of(after), ask(relaxation.after, here, tokens), strict=True
        ):
            assert token == EOS or then == followed
        low, high = ask(relaxation.lowest, here, tokens), ask(relaxation.highest, here, tokens)
        for score, least, most in zip(scores, low, high, strict=True):
            assert score <= most and (score == -math.inf or least <= score)
    return [then for token, then in zip(tokens, after, strict=True) if token != EOS]


def expect_the_definition(ngram: NGram, model: Definition, last: Sequence[int], tokens: Sequence[int]) -> None:
    """The numbers of order 2 after some tokens."""
    order_2, _ = relaxations(ngram)
    states = order_2.after(np.zeros(len(last), np.int64), np.array(last, np.int64)).tolist()
    assert list(order_2.of([start(ngram)])) == [states[last.index(BOS)]]
    found = zip(ask(order_2.lowest, states, tokens), ask(order_2.highest, states, tokens), strict=True)
    for before, token in itertools.product(last, tokens):
        contexts = model.contexts[model.state(model.word(before))]
        assert next(found) == pytest.approx(model.extremes(contexts, model.word(token)), abs=TOLERANCE)


@given(files(), st.sampled_from([V, None]))
def test_all_short_sequences_keep_both_obligations(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int | None
) -> None:
    path = tmp_path_factory.mktemp("lm") / "lm.arpa"
    path.write_text(text)
    ngram = predictor(path, size)
    reached = seen = {start(ngram)}
    for _ in range(5):  # a set has the states after all sequences of one length
        reached = {then for state in reached for then in expect_obligations(ngram, state, range(V))} - seen
        seen = seen | reached


@given(files(), st.sampled_from([V, None]))
def test_the_numbers_are_the_extremes_over_all_contexts(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int | None
) -> None:
    path = tmp_path_factory.mktemp("lm") / "lm.arpa"
    path.write_text(text)
    ngram, model = predictor(path, size), Definition(path, size)
    expect_the_definition(ngram, model, range(V), range(V))
    _, order_1 = relaxations(ngram)
    assert order_1.size == 1
    contexts = list(itertools.chain.from_iterable(model.contexts.values()))
    for token, *found in zip(
        range(V), ask(order_1.lowest, [0], range(V)), ask(order_1.highest, [0], range(V)), strict=True
    ):
        assert found == pytest.approx(model.extremes(contexts, model.word(token)), abs=TOLERANCE)


@given(files())
def test_the_highest_score_is_that_of_a_context_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("lm") / "lm.arpa"
    path.write_text(text)
    ngram, model, arpa = predictor(path), Definition(path, V), read_arpa(path)
    table = BackoffTable(arpa, [model.word(token) for token in range(V)])
    order_2, _ = relaxations(ngram)
    for before in range(V):
        state = ask(order_2.after, [0], [before])[0]
        histories = []
        for context in model.contexts[model.state(model.word(before))]:
            history = 0
            for word in context:
                history = table.advance(history, word)
            histories.append(history)
        highest = [max(table.score(history, model.word(token)) for history in histories) for token in range(V)]
        assert ask(order_2.highest, [int(state)], range(V)) == highest


# Models made for one trap each. Scores are log10.


def lm(folder: Path, *sections: str) -> NGram:
    """A model with these n-grams, separated by semicolons, for each order."""
    lines = [section.split(";") for section in sections]
    text = ["\\data\\", *(f"ngram {n}={len(grams)}" for n, grams in enumerate(lines, 1)), ""]
    for n, grams in enumerate(lines, 1):
        text += [f"\\{n}-grams:", *grams, ""]
    (folder / "lm.arpa").write_text("\n".join([*text, "\\end\\", ""]))
    return predictor(folder / "lm.arpa", 8)


def highest(ngram: NGram, last: int, token: int) -> float:
    """log10 of the highest score of a token after another."""
    order_2, _ = relaxations(ngram)
    (state,) = ask(order_2.after, [0], [last])
    (found,) = ask(order_2.highest, [int(state)], [token])
    return found / math.log(10)


UNIGRAMS = "-99 <s>; -1 </s>; -3 <unk>; -2 3 0.1; -1.5 4; -1 5 -0.2"


def test_a_word_that_tells_nothing_bounds_longer_contexts_that_end_in_it(tmp_path: Path) -> None:
    """The model lists "3 4 5", but no bigram that begins with 4: as a history, 4 alone is like no history."""
    ngram = lm(tmp_path, UNIGRAMS, "-0.5 3 4 0.3", "-0.1 3 4 5")
    order_2, _ = relaxations(ngram)
    states = ngram.initialize_batch([Source(1, (3,))])
    for token in (3, 4):
        states = ngram.consume_batch(states, [token])
    (history,) = states
    assert history != 0 and order_2.of([history, 0, start(ngram)]) == [0, 0, 0]
    expect_obligations(ngram, start(ngram), range(8))
    assert highest(ngram, 4, 5) == pytest.approx(-0.1)  # "3 4 5"
    assert highest(ngram, 4, 3) == pytest.approx(-2 + 0.3)  # the back-off of "3 4"
    assert highest(ngram, 6, 3) == pytest.approx(-2 + 0.3)  # after <unk>, which is like no history either


def test_back_offs_above_one_multiply_along_the_chain(tmp_path: Path) -> None:
    ngram = lm(tmp_path, UNIGRAMS, "-0.5 4 3 0.4; -1.9 3 5", "-0.3 4 3 </s>")
    assert highest(ngram, 3, EOS) == pytest.approx(-0.3)  # "4 3 </s>"
    assert highest(ngram, 3, 5) == pytest.approx(-1.9 + 0.4)  # "3 5", from "4 3"
    assert highest(ngram, 3, 4) == pytest.approx(-1.5 + 0.4 + 0.1)  # the unigram, from "4 3" and "3"
    assert highest(ngram, 5, 4) == pytest.approx(-1.5 - 0.2)  # the bound is below the unigram


def test_a_word_falls_from_the_best_context_that_does_not_list_it(tmp_path: Path) -> None:
    ngram = lm(tmp_path, UNIGRAMS, "-1 4 3 0.9; -1 5 3 0.8; -1 3 3 0.7; -1.8 3 5", "-1.7 4 3 5; -1.7 5 3 5")
    assert highest(ngram, 3, 5) == pytest.approx(-1.8 + 0.7)  # from "3 3"; "4 3" and "5 3" list it
    assert highest(ngram, 3, 4) == pytest.approx(-1.5 + 0.9 + 0.1)


def test_they_are_computed_once_for_all_sentences(tmp_path: Path) -> None:
    ngram = lm(tmp_path, UNIGRAMS, "-1 4 3")
    first, second = (ngram.initialize_batch([Source(number, (3,) * number)])[0] for number in (1, 2))
    assert ngram.relaxations(first) is ngram.relaxations(second)
    assert [relaxation.memory for relaxation in ngram.relaxations(first)] == [1, 0]


def test_a_model_of_order_3_is_a_relaxation_of_itself(tmp_path: Path) -> None:
    ngram = lm(tmp_path, UNIGRAMS, "-1 4 3 0.9; -1 5 3", "-1.7 4 3 5")
    itself, *coarser = ngram.relaxations(start(ngram))
    assert itself.memory == 2 and len(coarser) == 2
    states = [start(ngram), *itertools.chain.from_iterable(step(ngram, start(ngram), range(8))[1:])]
    for state in states:
        scores, after = step(ngram, state, range(8))
        assert itself.of([state]) == [state] and ask(itself.after, [state], range(8)) == after
        assert ask(itself.highest, [state], range(8)) == ask(itself.lowest, [state], range(8)) == list(scores)


@given(files(), st.sampled_from([V, None]))
def test_as_many_tokens_as_a_relaxation_remembers_decide_its_state(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int | None
) -> None:
    path = tmp_path_factory.mktemp("lm") / "lm.arpa"
    path.write_text(text)
    ngram = predictor(path, size)
    for relaxation in ngram.relaxations(start(ngram)):
        states = np.arange(relaxation.size)
        assert relaxation.memory is not None
        for tokens in itertools.product((BOS, 3, 4, 5, 6), repeat=relaxation.memory):
            reached = states
            for token in tokens:
                reached = relaxation.after(reached, np.full(len(states), token))
            assert len(set(reached.tolist())) == 1


def test_a_binary_has_none() -> None:
    assert not hasattr(predictor(DATA / "tiny.kenlm", 8), "relaxations")
    assert hasattr(predictor(DATA / "tiny.arpa", 8), "relaxations")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moses_lm.en.arpa.gz", "ucam_trivial.ids.arpa.gz"])
def test_real_models_keep_both_obligations_and_the_definition(data_folder: Path, tmp_path: Path, name: str) -> None:
    path = data_folder / "data" / "lm" / name
    listed = [word for word in read_arpa(path).words if word not in ("<s>", "</s>", "<unk>")]
    (tmp_path / "words").write_text("".join(f"{word} {token}\n" for token, word in enumerate(listed, 3)))
    names = dict(enumerate(listed, 3)) | {BOS: "<s>", EOS: "</s>"}
    model = Definition(path, None, lambda token: names.get(token, "<unk>"))
    ngram = predictor(path, None, words=str(tmp_path / "words"))
    rng = random.Random(1)
    frequent = [gram[-1] for gram in model.grams if len(gram) == model.order]
    tokens_of = {word: token for token, word in names.items()}
    for _ in range(30):
        state = start(ngram)
        for _ in range(20):
            tokens = [0, EOS, *(tokens_of[rng.choice(frequent)] for _ in range(30))]
            state = rng.choice(expect_obligations(ngram, state, tokens))
    words = [0, EOS, *rng.choices(list(names), k=15), *(tokens_of[rng.choice(frequent)] for _ in range(15))]
    expect_the_definition(ngram, model, [BOS, *words], words)

"""The promise: scores are KenLM's, for every token after every history, whichever way they are asked for.

The oracle is KenLM itself, read through its Python module; numbers by hand are those of ``tests/data/tiny.arpa``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.ngram import MANY, NGram
from sgdec_predictors.ngrams.backoff import BackoffTable

from sgdec.context import BOS, EOS, Context, Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.estimation.kneser_ney import estimate, join
from sgdec.io.arpa import LN_10, Arpa, NGrams, read_arpa, write_arpa
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Predictor, Scores, Source, SparseRow
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import PredictorContract
from tests.helpers.back_off_models import COLUMNS, PREFIXES, back_off_models
from tests.helpers.optional import optional
from tests.helpers.places import DATA

TINY, TINY_BINARY = DATA / "tiny.arpa", DATA / "tiny.kenlm"
"""One model: as text, and as KenLM's build_binary wrote it (probing). Words 3, 4, 5 and ``<unk>``; order 3."""
TOLERANCE = 1e-4
V = 8


def load_kenlm(path: Path) -> Any:
    kenlm = optional("kenlm")
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    return kenlm.Model(str(path), config)


def kenlm_scores(model: Any, prefix: Iterable[str], words: Sequence[str]) -> list[float]:
    """ln p of each word after ``<s>`` and the prefix."""
    kenlm = optional("kenlm")
    state, after = kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(state)
    for word in prefix:
        after = kenlm.State()
        model.BaseScore(state, word, after)
        state = after
    return [model.BaseScore(state, word, kenlm.State()) * LN_10 for word in words]


def full_row(predictor: BatchPredictor, prefix: Sequence[int]) -> np.ndarray:
    states = walk(predictor, prefix)
    values = predictor.predict_batch(states).values
    assert isinstance(values, np.ndarray)
    row: np.ndarray = values[0]
    return row


def walk(predictor: BatchPredictor, prefix: Sequence[int]) -> list[object]:
    states = predictor.initialize_batch([Source(1, (3,))])
    for token in prefix:
        states = predictor.consume_batch(states, [token])
    return states


def tiny(path: Path = TINY, size: int | None = V) -> NGram:
    return NGram(str(path), context=Context(vocab_size=size))


class TestContract(PredictorContract):
    vocab_size = V

    def make(self) -> Predictor | BatchPredictor:
        return tiny()


class TestContractOfTheBinary(TestContract):
    def make(self) -> Predictor | BatchPredictor:
        return tiny(TINY_BINARY)


# Numbers by hand: each is the sum of log10 scores and back-offs in tiny.arpa.
BY_HAND = [
    ((), 3, -0.4),  # <s> 3
    ((), 5, -0.3 - 1.1),  # back-off of <s>
    ((), EOS, -0.3 - 0.9),
    ((), BOS, -0.3 - 99.0),
    ((), 0, -0.3 - 1.5),  # the word "0" is not listed: <unk>
    ((), 7, -0.3 - 1.5),
    ((3,), 4, -0.2),  # <s> 3 4
    ((3,), 3, -0.1 - 1.2),  # back-off of "<s> 3", then "3 3"
    ((3,), 5, -0.1 - 0.25 - 1.1),
    ((3, 4), EOS, -0.15),  # 3 4 </s>
    ((3, 4), 5, -0.2 - 0.3),
    ((3, 3, 4), EOS, -0.15),
    ((4, 4), EOS, -0.6),  # "4 4" is not listed: no back-off
    ((4, 5), EOS, -0.45),
    ((5,), 3, -0.7),
    ((7,), 3, -0.7),
]


@pytest.mark.parametrize(("prefix", "token", "log10"), BY_HAND)
@pytest.mark.parametrize("path", [TINY, TINY_BINARY])
def test_scores_are_those_worked_out_by_hand(path: Path, prefix: tuple[int, ...], token: int, log10: float) -> None:
    predictor = tiny(path)
    assert full_row(predictor, prefix)[token] == pytest.approx(log10 * LN_10, abs=TOLERANCE)
    row = predictor.predict_batch(walk(predictor, prefix), [[token]]).rows[0]
    assert row.get(token) == pytest.approx(log10 * LN_10, abs=TOLERANCE)


def katz(model: Arpa, history: Sequence[str], word: str) -> float:
    """The definition, word by word."""
    listed = {
        tuple(model.words[i] for i in gram): (score, backoff)
        for ngrams in model.orders
        for gram, score, backoff in zip(ngrams.words.tolist(), ngrams.scores, ngrams.backoffs, strict=True)
    }
    listed.setdefault(("<unk>",), (-100 * LN_10, 0.0))
    known = [w if (w,) in listed else "<unk>" for w in (*history, word)]
    score = 0.0
    while tuple(known) not in listed:
        score += listed.get(tuple(known[:-1]), (0.0, 0.0))[1]
        known = known[1:]
    total: float = score + listed[tuple(known)][0]
    return total


@given(back_off_models(complete=False), PREFIXES)
def test_rows_and_single_scores_are_those_of_the_definition(model: Arpa, prefix: list[str]) -> None:
    table = BackoffTable(model, COLUMNS)
    history = table.start
    for word in prefix:
        history = table.advance(history, word)
    longest = ["<s>", *prefix][-len(model.orders) + 1 :]
    expected = [katz(model, longest, word) for word in COLUMNS]
    assert table.rows([history])[0].tolist() == pytest.approx(expected, abs=TOLERANCE)
    assert [table.score(history, word) for word in COLUMNS] == pytest.approx(expected, abs=TOLERANCE)


@given(back_off_models(complete=False), st.lists(PREFIXES, max_size=5))
def test_many_at_once_are_scored_and_advanced_as_each_alone(model: Arpa, prefixes: list[list[str]]) -> None:
    """Number for number: a batch may be answered either way."""
    table = BackoffTable(model, COLUMNS)
    histories = []
    for prefix in prefixes:
        histories.append(table.start)
        for word in prefix:
            histories[-1] = table.advance(histories[-1], word)
    asked = [(history, word) for history in histories for word in COLUMNS]
    arrays = np.array([(history, table.symbol(word)) for history, word in asked], np.int64).reshape(-1, 2).T
    scores, after = table.step_all(*arrays)
    assert scores.tolist() == [table.score(*each) for each in asked]
    assert after.tolist() == [table.advance(*each) for each in asked]


def test_large_batches_are_answered_as_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = tiny()
    prefixes = [(), (3,), (3, 4), (7,), (0, 3, 4)]
    states = [state for prefix in prefixes for state in walk(predictor, prefix)]
    candidates = [[2, 3, 4], [], [5], [0, 1, 2, 7], [3]]
    answers = []
    for many_rows in (1, 1000):
        monkeypatch.setattr("sgdec_predictors.ngram.MANY_ROWS", many_rows)
        rows = predictor.predict_batch(states, candidates).rows
        answers.append(([(row.tokens, row.scores) for row in rows], predictor.consume_batch(states, [3, 4, 5, 0, 9])))
    assert answers[0] == answers[1]


@pytest.mark.slow
@given(back_off_models(complete=True), PREFIXES)
def test_rows_are_those_of_kenlm(tmp_path_factory: pytest.TempPathFactory, model: Arpa, prefix: list[str]) -> None:
    path = tmp_path_factory.mktemp("models") / "model.arpa"
    write_arpa(path, model)
    table = BackoffTable(read_arpa(path), COLUMNS)
    history = table.start
    for word in prefix:
        history = table.advance(history, word)
    expected = kenlm_scores(load_kenlm(path), prefix, COLUMNS)
    assert table.rows([history])[0].tolist() == pytest.approx(expected, abs=TOLERANCE)


def test_a_history_falls_back_to_its_longest_listed_suffix() -> None:
    """ "a b c" is a history whose suffix "b c" the model does not list, but "c" it does."""
    words = ["</s>", "<s>", "a", "b", "c"]
    grams = [[[word] for word in range(5)], [[2, 3], [4, 2]], [[2, 3, 4]], [[2, 3, 4, 0]]]
    model = Arpa(
        words,
        [
            NGrams(np.array(level, np.int32), np.full(len(level), -0.5 * n), np.full(len(level), -0.01 * n))
            for n, level in enumerate(grams, 1)
        ],
    )
    table = BackoffTable(model, words)
    history = table.start
    for word in "abc":
        history = table.advance(history, word)
    expected = [katz(model, ("a", "b", "c"), word) for word in words]
    assert expected[2] == pytest.approx(-0.03 + -0.5 * 2)  # back-off of "a b c", then "c a"
    assert table.rows([history])[0].tolist() == pytest.approx(expected, abs=1e-5)
    assert [table.score(history, word) for word in words] == pytest.approx(expected, abs=1e-5)


def test_histories_of_a_batch_do_not_disturb_each_other() -> None:
    predictor = tiny()
    prefixes = [(), (3,), (3, 4), (4, 5), (7, 7), (3, 3, 4), ()]
    states = [walk(predictor, prefix)[0] for prefix in prefixes]
    values = predictor.predict_batch(states).values
    assert values is not None
    for row, prefix in zip(values, prefixes, strict=True):
        assert row.tolist() == full_row(predictor, prefix).tolist()


def test_equal_keys_are_equal_futures_and_keys_forget_what_does_not_matter() -> None:
    predictor = tiny()
    prefixes = [(a, b, c) for a in (3, 4, 5, 7) for b in (3, 4, 5, 7) for c in (3, 4, 5, 7)]
    states = [walk(predictor, prefix)[0] for prefix in prefixes]
    by_key: dict[object, list[float]] = {}
    for state, key in zip(states, predictor.state_key(states), strict=True):
        row = predictor.predict_batch([state]).values
        assert row is not None
        assert by_key.setdefault(key, row[0].tolist()) == row[0].tolist()
    assert len(by_key) == 6  # after 3, 4, 5, "3 4", "4 5", anything else; "3 3" says no more than 3
    assert walk(predictor, (7, 3)) == walk(predictor, (4, 7, 3, 3))


def test_the_binary_scores_as_the_text() -> None:
    text, binary = tiny(), tiny(TINY_BINARY)
    for prefix in [(), (3,), (3, 4), (4, 5), (5, 5, 3), (7,), (0, 3, 4)]:
        assert full_row(binary, prefix).tolist() == pytest.approx(full_row(text, prefix).tolist(), abs=TOLERANCE)


def test_few_candidates_are_scored_sparsely_and_many_densely() -> None:
    predictor = tiny(size=2 * MANY)
    few = predictor.predict_batch(walk(predictor, (3,)), [[2, 4, 7]])
    assert few.values is None
    assert few.rows[0].tokens == [2, 4, 7]
    assert not few.rows[0].restricts
    assert few.rows[0].scores == pytest.approx(full_row(predictor, (3,))[[2, 4, 7]].tolist(), abs=1e-6)
    many = predictor.predict_batch(walk(predictor, (3,)), [range(MANY + 1)])
    assert many.values is not None
    assert many.values.shape == (1, 2 * MANY)


def test_rows_with_and_without_candidates_meet_in_one_batch() -> None:
    predictor = tiny()
    (state,) = walk(predictor, (3,))
    values = predictor.predict_batch([state, state], [None, [2, 4]]).values
    assert values is not None
    assert values[0].tolist() == values[1].tolist() == full_row(predictor, (3,)).tolist()


@pytest.mark.parametrize("path", [TINY, TINY_BINARY])
def test_candidates_need_no_vocabulary_size(path: Path) -> None:
    predictor = tiny(path, size=None)
    row = predictor.predict_batch(walk(predictor, (3,)), [[2, 4, 1_000_000]]).rows[0]
    assert [row.get(token) for token in (2, 4, 1_000_000)] == pytest.approx(
        [full_row(tiny(), (3,))[token] for token in (2, 4, 7)], abs=1e-5
    )


def test_without_a_vocabulary_size_a_full_row_lists_the_model_and_a_default() -> None:
    predictor = tiny(size=None)
    row = predictor.predict_batch(walk(predictor, (3,))).rows[0]
    assert not row.restricts
    assert [row.get(token) for token in range(V)] == pytest.approx(full_row(tiny(), (3,)).tolist(), abs=1e-5)
    with pytest.raises(UsageError, match="give --vocab-size, or the model's ARPA file"):
        binary = tiny(TINY_BINARY, size=None)
        binary.predict_batch(walk(binary, ()))


def test_a_fusion_is_exact_over_the_whole_vocabulary() -> None:
    """The best token by both together is neither's own best, nor among the model's best three."""

    class Fixed(Predictor):
        def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
            return Scores.dense(np.array([-9.0, -99.0, -3.0, -2.5, -1.0, -0.9, -0.8, -0.7]))

    constellation = Constellation.of({"nmt": Fixed(), "ngram": tiny()}, vocab_size=V)
    space = SearchSpace(constellation, constellation.roots([Source(1, (3,), max_length=4)])[0])
    (children,) = space.expand([space.root], limit=V)
    expected = np.array([-9.0, -99.0, -3.0, -2.5, -1.0, -0.9, -0.8, -0.7]) + full_row(tiny(), ())
    assert [child.last for child in children] == np.argsort(-expected, kind="stable").tolist()
    assert children[0].last == 4 and int(np.argmax(full_row(tiny(), ()))) == 3


class Pieces:
    """A vocabulary of five pieces."""

    size = 5
    fingerprint = "pieces"
    pieces = ("<unk>", "<s>", "</s>", "▁the", "▁cat")

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(self.token, text.split()))

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(self.piece, tokens))

    def piece(self, token: int) -> str:
        return self.pieces[token]

    def token(self, piece: str) -> int:
        return self.pieces.index(piece) if piece in self.pieces else 0


def word_model(path: Path) -> Path:
    lines = ["-1 <unk>", "-99 <s>", "-0.5 </s>", "-0.25 ▁the -0.1", "-0.75 ▁cat", "-2 dog"]
    bigrams = ["-0.05 ▁the ▁cat", "-0.3 ▁the dog"]
    path.write_text(
        "\\data\\\nngram 1=6\nngram 2=2\n\n\\1-grams:\n" + "\n".join(lines)
        + "\n\n\\2-grams:\n" + "\n".join(bigrams) + "\n\n\\end\\\n"
    )  # fmt: skip
    return path


def test_words_can_be_the_pieces_of_the_target_vocabulary(tmp_path: Path) -> None:
    path = word_model(tmp_path / "words.arpa")
    context = Context(vocabularies=Vocabularies(target=Pieces()), vocab_size=5)
    predictor = NGram(str(path), words="pieces", context=context)
    expected = [-1 - 0.1, -99 - 0.1, -0.5 - 0.1, -0.25 - 0.1, -0.05]
    assert (full_row(predictor, (3,)) / LN_10).tolist() == pytest.approx(expected, abs=1e-5)
    with pytest.raises(UsageError, match="needs a target vocabulary"):
        NGram(str(path), words="pieces", context=Context(vocab_size=5))


def test_words_can_be_a_file(tmp_path: Path) -> None:
    path = word_model(tmp_path / "words.arpa")
    wmap = tmp_path / "wmap"
    wmap.write_text("<epsilon> 0\n<s> 1\n</s> 2\n▁the 7\ndog 3\n\nmouse 4\n")
    predictor = NGram(str(path), words=str(wmap), context=Context(vocab_size=9))
    expected = [-1.1, -99.1, -0.6, -0.3, -1.1, -1.1, -1.1, -0.35, -1.1]
    assert (full_row(predictor, (7,)) / LN_10).tolist() == pytest.approx(expected, abs=1e-5)
    unsized = NGram(str(path), words=str(wmap))
    row = unsized.predict_batch(walk(unsized, (7,))).rows[0]
    assert [row.get(token) / LN_10 for token in range(9)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("the", "line 2: expected 'word id', not 'the'"),
        ("the x", "line 2: expected 'word id'"),
        ("the 0", "line 2: token 0 is already"),
    ],
)
def test_a_wrong_word_map_is_named_with_its_line(tmp_path: Path, line: str, complaint: str) -> None:
    wmap = tmp_path / "wmap"
    wmap.write_text(f"<epsilon> 0\n{line}\n")
    with pytest.raises(SgdecError, match=complaint):
        NGram(str(TINY), words=str(wmap), context=Context(vocab_size=9))


def test_words_of_a_file_that_the_model_does_not_list_are_reported(tmp_path: Path) -> None:
    """Such as those of a table with other case, in another encoding, or of another language."""
    (tmp_path / "words").write_text("<eps> 0\n<s> 1\n</s> 2\n<unk> 3\n4 4\nFOUR 5\n5 6\nFIVE 7\n")
    for model in (TINY, TINY_BINARY):
        predictor = NGram(str(model), words=str(tmp_path / "words"))
        assert predictor.summary() == "2 of 4 words are not in the model and score as <unk>: 'FOUR', 'FIVE'"
        assert NGram(str(model), context=Context(vocab_size=100)).summary() is None
    (tmp_path / "words").write_text("4 4\n" + "".join(f"?{token} {token}\n" for token in range(5, 1005)))
    found = NGram(str(TINY), words=str(tmp_path / "words")).summary()
    assert found == "1,000 of 1,001 words are not in the model and score as <unk>: '?5', '?6', '?7', ..."


def test_a_binary_symbol_table_is_named_as_such(tmp_path: Path) -> None:
    pywrapfst = optional("pywrapfst")
    table = pywrapfst.SymbolTable()
    table.add_symbol("<eps>")
    table.write(str(tmp_path / "words.syms"))
    with pytest.raises(SgdecError, match=r"words\.syms: this is a binary symbol table\. Write it as text"):
        NGram(str(TINY), words=str(tmp_path / "words.syms"))


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("<eps> 1\n<s> 2\n</s> 3\nthe 4\n", "<s> is 2, not 1"),
        ("<s> 0\n<pad> 1\n</s> 2\nthe 4\n", "<s> is 0, not 1"),
        ("<pad> 0\n</s> 1\n<unk> 2\nthe 3\n", "</s> is 1, not 2"),
        ("<eps> 0\nthe 1\ncat 2\n", "1 is 'the', not <s>"),
        ("<eps> 0\n<s> 1\nthe 2\n", "2 is 'the', not </s>"),
    ],
)
def test_a_word_map_of_another_numbering_is_refused(tmp_path: Path, table: str, complaint: str) -> None:
    wmap = tmp_path / "wmap"
    wmap.write_text(table)
    with pytest.raises(SgdecError, match=rf"^{wmap}: {complaint}\. .* 1 is <s>, 2 is </s>, and words begin at 3\."):
        NGram(str(word_model(tmp_path / "words.arpa")), words=str(wmap))


def test_a_model_over_something_else_is_refused(tmp_path: Path) -> None:
    path = word_model(tmp_path / "words.arpa")
    with pytest.raises(UsageError, match=r"shares no entry .* Looked for token ids such as '8' .* it lists '▁the'"):
        NGram(str(path), context=Context(vocab_size=9))
    with pytest.raises(UsageError, match="shares no entry"):
        NGram(str(path))
    with pytest.raises(UsageError, match=r"shares no entry .* Looked for '▁the', '▁cat' \(words = pieces\)"):
        NGram(str(TINY), words="pieces", context=Context(vocabularies=Vocabularies(target=Pieces()), vocab_size=5))
    wmap = tmp_path / "wmap"
    wmap.write_text("</s> 2\nMaus 3\n")
    for model in (TINY, TINY_BINARY):
        with pytest.raises(UsageError, match=r"shares no entry .* Looked for 'Maus'"):
            NGram(str(model), words=str(wmap))


def test_a_text_model_that_lists_some_numbers_is_no_model_over_ids(data_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"shares no entry .* it lists 'committee', 'on', 'the'"):
        NGram(str(data_folder / "data" / "lm" / "moses_lm.en.arpa.gz"), context=Context(vocab_size=30_000))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("-0.3\t4 5\t-0.05\n", "-0.3\t5 5\t-0.05\n", "a 3-gram whose first 2 words it does not list"),
        ("-0.3\t4 5\t-0.05\n", "-0.3\t3 4\t-0.05\n", "lists a 2-gram twice"),
        ("<s>\t-0.3", "<t>\t-0.3", "does not list <s>|not among the 1-grams"),
    ],
)
def test_a_model_that_does_not_hang_together_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "broken.arpa"
    path.write_text(TINY.read_text().replace(old, new))
    with pytest.raises(SgdecError, match=rf"broken\.arpa: .*({complaint})") as caught:
        tiny(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"nowhere\.arpa: cannot be read"):
        tiny(tmp_path / "nowhere.arpa")
    (tmp_path / "text").write_text("what\nis this\n")
    with pytest.raises(SgdecError, match="text: line 1: this is not an ARPA file"):
        tiny(tmp_path / "text")
    (tmp_path / "cut.kenlm").write_bytes(TINY_BINARY.read_bytes()[:150])
    with pytest.raises(SgdecError, match=r"cut\.kenlm: KenLM cannot read it") as caught:
        tiny(tmp_path / "cut.kenlm")
    assert "\n" not in str(caught.value)


def test_it_is_found_under_three_names() -> None:
    host = Host(autoload=False)
    assert host.load("predictor", "ngram") is host.load("predictor", "kenlm") is host.load("predictor", "srilm")


def test_a_model_of_our_own_scores_as_in_kenlm(tmp_path: Path) -> None:
    rng = random.Random(4)
    sentences = [[rng.choice((3, 4, 5, 6, 6, 8)) for _ in range(rng.randint(1, 9))] for _ in range(300)]
    words = ["<unk>", "<s>", "</s>", *map(str, range(3, 10))]
    path = tmp_path / "own.arpa.gz"
    write_arpa(path, estimate(join(sentences), words, order=4, prune=[0, 0, 1], fallback=True).model)
    predictor, oracle = NGram(str(path), context=Context(vocab_size=10)), load_kenlm(path)
    for _ in range(100):
        prefix = [rng.randint(3, 9) for _ in range(rng.randint(0, 6))]
        row = full_row(predictor, prefix)
        assert row.tolist() == pytest.approx(kenlm_scores(oracle, map(str, prefix), words), abs=TOLERANCE)
        assert math.fsum(np.delete(np.exp(row.astype(float)), BOS)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [("moses_lm.en.arpa.gz", "map"), ("ucam_trivial.ids.arpa.gz", "ids")])
def test_real_models_score_as_in_kenlm(data_folder: Path, tmp_path: Path, name: str, words: str) -> None:
    path = data_folder / "data" / "lm" / name
    arpa = read_arpa(path)
    rng = random.Random(7)
    if words == "map":  # any numbering, and some words that the model does not know
        shuffled = [word for word in arpa.words if word not in ("<unk>", "<s>", "</s>")] + ["?1", "?2"]
        rng.shuffle(shuffled)
        spelled = ["<unk>", "<s>", "</s>", *shuffled]
        words = str(tmp_path / "wmap")
        Path(words).write_text("".join(f"{word} {token}\n" for token, word in enumerate(spelled)))
    else:
        spelled = ["0", "<s>", "</s>", *map(str, range(3, 4200))]
    predictor, oracle = NGram(str(path), words, context=Context(vocab_size=len(spelled))), load_kenlm(path)
    token_of = {word: token for token, word in enumerate(spelled)}
    longest = [[arpa.words[i] for i in gram] for gram in arpa.orders[-1].words.tolist()]
    for _ in range(40):
        prefix = [token_of.get(word, 0) for word in rng.choice(longest) if word != "<s>"][: rng.randint(0, 4)]
        prefix = [rng.randrange(3, len(spelled)) for _ in range(rng.randint(0, 2))] + prefix
        expected = kenlm_scores(oracle, (spelled[token] for token in prefix), spelled)
        assert np.abs(full_row(predictor, prefix) - np.array(expected)).max() < TOLERANCE
        some = sorted(rng.sample(range(len(spelled)), 20))
        row = predictor.predict_batch(walk(predictor, prefix), [some]).rows[0]
        assert isinstance(row, SparseRow)
        assert [row.get(token) for token in some] == pytest.approx([expected[token] for token in some], abs=TOLERANCE)

"""The predictor allows exactly the entries of a list, and gives each its weight, in every form and format."""

from __future__ import annotations

import gzip
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_predictors.trie import TriePredictor

from sgdec import EOS, Context, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.io.entries import read_entries
from sgdec.io.trie import build_trie
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, Predictor
from sgdec.testing import Table, enumerate_space
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.automata import check_bounds, nodes_of, space_of, totals_of
from tests.helpers.contracts import PluginContract, SearchContract, V
from tests.helpers.older_tries import without_checksums
from tests.helpers.oracles import opened, tiny
from tests.helpers.tiny_models import write_lattice

LIST = "3 4 5\t-1.5\n3 4\t-0.25\n3 4\t-2\n6\t-4\n\t-3\n8 7\t0.5\n8\t0.125\n0 3\t-1\n"
TOTALS = {(3, 4, 5): -1.5, (3, 4): -0.25, (6,): -4.0, (): -3.0, (8, 7): 0.5, (8,): 0.125, (0, 3): -1.0}
PLAIN = "".join(line.partition("\t")[0] + "\n" for line in LIST.splitlines())
OTHERS = ["5 3\t-1\n5\t-2\n", "4 4 4\t-0.5\n3\t-1\n"]
"""The lists of sentences 2 and 3, where each sentence has its own."""
FORMATS = ["built", "plain", "plain.gz", "built-{id}", "plain-{id}"]
WORDS = WordVocabulary([*SPECIAL, "a", "b", "c_UNK_d"])


def write(path: Path, text: str, built: bool) -> None:
    if built:
        build_trie(read_entries(text.splitlines(), "the list"), vocab_size=V).write(path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def written(folder: Path, form: str = "plain", text: str = LIST, others: Sequence[str] = OTHERS) -> str:
    """Writes the list of all sentences, or one for each of three; the path."""
    for number, own in enumerate([text, *others] if "{id}" in form else [text], 1):
        write(folder / form.replace("{id}", str(number)), own, form.startswith("built"))
    return str(folder / form)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("use_weights", [True, False])
def test_the_space_is_the_list_and_totals_are_its_weights(tmp_path: Path, form: str, use_weights: bool) -> None:
    predictor = TriePredictor(written(tmp_path, form), use_weights)
    expected = {tokens: weight if use_weights else 0.0 for tokens, weight in TOTALS.items()}
    assert totals_of(space_of(predictor)) == expected
    if "{id}" in form:
        expected = {(5, 3): -1.0, (5,): -2.0}
        assert totals_of(space_of(predictor, sentence=2)).keys() == expected.keys()
    assert totals_of(space_of(TriePredictor(written(tmp_path, form, PLAIN)))) == dict.fromkeys(TOTALS, 0.0)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("weight", [1.0, -0.5])
def test_bounds_are_exact(tmp_path: Path, form: str, weight: float) -> None:
    for use_weights in (True, False):
        space = space_of(TriePredictor(written(tmp_path, form), use_weights), weight)
        check_bounds(space, nodes_of(space), exact=True)


def states_of(predictor: TriePredictor, sources: Sequence[Source]) -> Iterator[int]:
    """All states, those off the trie and after ``</s>`` too."""
    waiting, seen = list(predictor.initialize_batch(sources)), set()
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            yield state
            waiting += predictor.consume_batch([state] * V, range(V))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("use_weights", [True, False])
def test_arcs_steps_and_verbs_agree_bit_for_bit(tmp_path: Path, form: str, use_weights: bool) -> None:
    predictor = TriePredictor(written(tmp_path, form), use_weights)
    states = sorted(states_of(predictor, [Source(number, ()) for number in (1, 2, 3)]))
    assert -1 in states
    all_tokens, few = list(range(V)), [2, 4]
    rows = predictor.predict_batch(states).rows
    for candidates in (None, all_tokens, few):
        listed = None
        if candidates is not None:
            listed = len(candidates) * np.arange(len(states) + 1), np.array(candidates * len(states))
        offsets, tokens, scores, after = (part.tolist() for part in predictor.arcs(np.array(states), listed))
        for state, row, begin, end in zip(states, rows, offsets, offsets[1:], strict=False):
            found, said, targets = predictor.steps(state, candidates)
            assert list(found) == tokens[begin:end] and list(said) == scores[begin:end]
            assert list(targets) == after[begin:end]
            assert [row.get(token) for token in found] == list(said)
            if candidates is None:
                assert list(row.tokens) == list(found)
            assert predictor.consume_batch([state] * len(found), found) == list(targets)


def test_sentences_with_lists_of_their_own_have_states_of_their_own(tmp_path: Path) -> None:
    predictor = TriePredictor(written(tmp_path, "plain-{id}"))
    sources = [Source(number, ()) for number in (1, 2, 3)]
    roots = predictor.initialize_batch(sources)
    seen = set(states_of(predictor, sources)) | set(roots)
    for _ in range(50):
        before = roots
        roots = predictor.initialize_batch(sources)
        assert not seen & set(roots)
        predictor.release(before)
        rows = [list(row.tokens) for row in predictor.predict_batch(roots).rows]
        assert rows == [[0, 2, 3, 6, 8], [5], [3, 4]]
    automata = predictor._lists
    assert len(automata._automata) == 3 + 3 and len(automata._arrays.tokens) < 4096  # those that are not released


def test_a_failing_list_takes_no_numbers_from_its_neighbours(tmp_path: Path) -> None:
    predictor = TriePredictor(written(tmp_path, "plain-{id}"))
    with pytest.raises(SgdecError, match=r"sentence 9"):
        predictor.initialize_batch([Source(1, ()), Source(9, ())])
    assert not predictor._lists._automata


@pytest.mark.parametrize(
    ("text", "use_weights", "highest"),
    [("3\t2\n4\t-1\n", True, 2.0), ("3\t-2\n", True, 0.0), ("3\t2\n", False, 0.0), ("3\n", True, 0.0)],
)
def test_the_highest_score_is_that_of_the_list(
    tmp_path: Path, text: str, use_weights: bool, highest: float
) -> None:
    assert TriePredictor(written(tmp_path, text=text), use_weights).max_score == highest
    own = TriePredictor(written(tmp_path, "plain-{id}", text), use_weights)
    assert own.max_score == (math.inf if use_weights else 0.0)  # the lists to come are unknown


# In searches


def random_list(rng: np.random.Generator, weighted: bool = True) -> str:
    lines = []
    for _ in range(rng.integers(1, 9)):
        tokens = " ".join(map(str, rng.choice([0, 3, 4, 5], rng.integers(0, 4))))
        lines.append(f"{tokens}\t{rng.integers(-6, 7) / 4}\n" if weighted else f"{tokens}\n")
    return "".join(lines)


def entries_of(text: str) -> dict[tuple[int, ...], float]:
    """The best weight of each entry, straight from the lines."""
    found: dict[tuple[int, ...], float] = {}
    for line in text.splitlines():
        words, _, weight = line.partition("\t")
        tokens = tuple(map(int, words.split()))
        found[tokens] = max(float(weight or 0), found.get(tokens, FORBIDDEN))
    return found


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("form", ["built", "plain-{id}"])
def test_a_wide_beam_beside_a_model_finds_the_best_entries(tmp_path: Path, form: str, place: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        text, table = random_list(rng), rng.normal(size=(6, 6))
        predictor = TriePredictor(written(tmp_path, form, text))
        both: dict[str, Any] = {"trie": predictor, "model": Table(table)}
        names = list(both) if place == "first" else list(both)[::-1]
        weights = [0.5 if name == "trie" else 1.0 for name in names]
        space = opened(tiny(None, weights, 6, **{name: both[name] for name in names}))
        space.nbest = 50
        expected = {}
        for tokens, weight in entries_of(text).items():
            way = (1, *tokens, EOS)
            expected[tokens] = 0.5 * weight + math.fsum(table[a, b] for a, b in itertools.pairwise(way))
        found = BeamDecoder(size=50, stop="full").decode(space).hypotheses
        assert {hypothesis.tokens for hypothesis in found} == expected.keys()
        for hypothesis in found:
            assert hypothesis.score == pytest.approx(expected[hypothesis.tokens], abs=1e-9)
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_greedy_search_of_a_list_alone_finds_its_best_entry(tmp_path: Path) -> None:
    """Weights are pushed: the best entry has the best prefixes."""
    rng = np.random.default_rng(6)
    for _ in range(30):
        text = random_list(rng)
        (found,) = GreedyDecoder().decode(opened(tiny(it=TriePredictor(written(tmp_path, text=text))))).hypotheses
        entries = entries_of(text)
        assert entries[found.tokens] == max(entries.values()) == found.score


def test_enumeration_of_a_mix_with_a_lattice_and_a_model_is_their_intersection(tmp_path: Path) -> None:
    from sgdec_predictors.fst import FstPredictor

    paths = {(3, 4): 0.5, (8, 7): 0.25, (8,): 1.0, (5,): 0.0}
    write_lattice(tmp_path / "x.fst", list(paths.items()))
    table = np.random.default_rng(7).normal(size=(V, V))
    for form in ("built", "plain-{id}"):
        parts: dict[str, Any] = {
            "trie": TriePredictor(written(tmp_path, form)),
            "fst": FstPredictor(str(tmp_path / "x.fst")),
            "model": Table(table),
        }
        for names in itertools.permutations(parts):
            space = tiny(4, None, V, **{name: parts[name] for name in names})
            found = {path.tokens: path.total for path in enumerate_space(space.constellation(), space.source)}
            assert found.keys() == {(3, 4), (8, 7), (8,)}
            for tokens, total in found.items():
                model = math.fsum(table[a, b] for a, b in itertools.pairwise((1, *tokens, EOS)))
                assert total == pytest.approx(TOTALS[tokens] - paths[tokens] + model, abs=1e-6)


class TestTrieInSearch(SearchContract):
    vocab_size = 6

    def draw(self, rng: np.random.Generator) -> TriePredictor:
        form = str(rng.choice(["built", "plain", "built-{id}", "plain-{id}"]))
        return TriePredictor(written(self.folder, form, random_list(rng, bool(rng.random() < 0.8))))


# Contracts


@pytest.mark.slow
class TestBuiltTrie(PluginContract):
    plugin = "trie"
    prefixes = ((3, 4, 5), (3, 4), (0, 3), (8,), (8, 7), (5, 3), (4, 4, 4), (7,))
    form = "built"
    given: dict[str, Any] = {}  # noqa: RUF012 - as the kit has it

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": written(folder, self.form), **self.given}


@pytest.mark.slow
class TestUnweightedTrie(TestBuiltTrie):
    given = {"use_weights": False}  # noqa: RUF012


@pytest.mark.slow
class TestPlainList(TestBuiltTrie):
    form = "plain"


@pytest.mark.slow
class TestTriePerSentence(TestBuiltTrie):
    own_sentences = True

    form = "built-{id}"


@pytest.mark.slow
class TestPlainListPerSentence(TestBuiltTrie):
    own_sentences = True

    form = "plain-{id}"


@pytest.mark.slow
class TestUnweightedPlainListPerSentence(TestPlainListPerSentence):
    given = {"use_weights": False}  # noqa: RUF012


# Bad input


def message_of(path: str, context: Context | None = None) -> str:
    with pytest.raises(SgdecError) as error:
        lift(TriePredictor(path, context=context)).initialize_batch([Source(1, ())])
    message = str(error.value)
    assert message.startswith("trie: ") and message.endswith(".") and "\n" not in message
    return message


def with_words(vocabulary: WordVocabulary = WORDS) -> Context:
    return Context(vocabularies=Vocabularies(target=vocabulary), vocab_size=vocabulary.size)


@pytest.mark.parametrize("form", FORMATS)
def test_every_error_names_the_file_and_the_sentence(tmp_path: Path, form: str) -> None:
    path = tmp_path / form.replace("{id}", "1")
    mark = " (sentence 1). Expected a list for each sentence." if "{id}" in form else "."
    message = message_of(str(tmp_path / form))
    assert message.startswith(f"trie: {path}: cannot be read (No such file") and message.endswith(mark)
    if form.startswith("plain"):
        write(path, "", built=False)
        assert "no entries, so nothing would be allowed" in message_of(str(tmp_path / form))
        write(path, "3 4\n3 word\n", built=False)
        assert "line 2: 'word' is not a token id" in message_of(str(tmp_path / form))
    else:
        write(path, LIST, built=True)
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        assert "cut short" in message_of(str(tmp_path / form))
        path.write_bytes(data[:12] + b"\x03" + data[13:])
        assert "of version 3; expected version 2" in message_of(str(tmp_path / form))


def test_lists_without_checksums_are_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for sentence in (1, 2):
        path = tmp_path / f"{sentence}.trie"
        write(path, LIST, built=True)
        path.write_bytes(without_checksums(path.read_bytes()))
    TriePredictor(str(tmp_path / "{id}.trie")).initialize_batch([Source(n, ()) for n in (1, 2)])
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{tmp_path / '1.trie'} has no checksums") and record.levelname == "WARNING"


def test_a_packed_trie_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "built")
    (tmp_path / "built.gz").write_bytes(gzip.compress((tmp_path / "built").read_bytes()))
    assert "a packed trie cannot be mapped into memory. Unpack it." in message_of(str(tmp_path / "built.gz"))


def build(path: Path, text: str, vocabulary: WordVocabulary | None = None, size: int | None = None) -> str:
    build_trie(read_entries(text.splitlines(), "list", vocabulary, size), "list", vocabulary, size).write(path)
    return str(path)


def test_a_trie_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    other = WordVocabulary([*SPECIAL, "b", "a", "c_UNK_d"])
    larger = WordVocabulary([*SPECIAL, "a", "b", "c_UNK_d", "e"])
    path = build(tmp_path / "x.trie", "a b\nb\n", WORDS, WORDS.size)
    assert totals_of(space_of(TriePredictor(path, context=with_words()))).keys() == {(3, 4), (4,)}
    assert "built with another tokenizer" in message_of(path, with_words(other))
    assert "a vocabulary of 6 tokens, but the run has 7" in message_of(path, with_words(larger))
    assert "a vocabulary of 6 tokens, but the run has 9" in message_of(path, Context(vocab_size=9))
    assert TriePredictor(path, context=Context(vocab_size=6)) and TriePredictor(path)


def test_a_trie_of_token_ids_must_fit_into_the_vocabulary(tmp_path: Path) -> None:
    path = build(tmp_path / "x.trie", "3 8\n")
    assert "has token 8, but there are 8 target tokens" in message_of(path, Context(vocab_size=8))
    assert "has token 8, but there are 6 target tokens" in message_of(path, with_words())
    assert TriePredictor(path, context=Context(vocab_size=9))


def test_plain_text_goes_through_the_vocabulary_and_unknown_words_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("a b\nb\n")
    assert totals_of(space_of(TriePredictor(str(path), context=with_words()))).keys() == {(3, 4), (4,)}
    path.write_text("a b\na other\n")
    assert "line 2: the vocabulary does not know 'other'. Leave the line out." in message_of(str(path), with_words())
    path.write_text("a cd\n")  # a symbol of all unknown words with these ends
    assert "line 1: the vocabulary does not know 'cd'." in message_of(str(path), with_words())


def test_a_simple_wrapper_sees_the_same(tmp_path: Path) -> None:
    """The state is a plain number, so the one-prefix form works too."""
    from sgdec.lifting import Lowered

    predictor: Predictor = Lowered(TriePredictor(written(tmp_path)))
    predictor.initialize(Source(1, ()))
    predictor.consume(8)
    assert dict(predictor.predict_next().rows[0].lookup) == {2: -0.375, 7: 0.0}
    assert predictor.get_state() == int(predictor.get_state())

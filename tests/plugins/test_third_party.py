"""Plugins of others keep working: each file in `third_party`, loaded as a plugin file, does what it says.

They are written as third parties write, with public names only, and are never changed: what is renamed in sgdec keeps
its old name for them.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec.cli.main import main
from sgdec.context import EOS, Context, Vocabularies
from sgdec.errors import UsageError
from sgdec.lifting import lift
from sgdec.nesting import DecoderSpec
from sgdec.plugins.host import Host
from sgdec.protocol import Hypothesis, Predictor, Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import Bonus, DecoderContract, Forced, PredictorContract, Table, enumerate_space, score_path
from sgdec.text.vocabulary import load_vocabulary
from tests.helpers.places import ROOT
from tests.helpers.tiny_models import characters

pytestmark = pytest.mark.slow

FOLDER = ROOT / "tests" / "third_party"
V = 7
AS_WRITTEN = {
    "ban.py": "8d38af5d41be1165",
    "best_of_two.py": "3f7d1e22404f96a5",
    "diverse_beam.py": "09947d1923776e8f",
    "hints.py": "87c2b6c0b4e01156",
    "regex.py": "c5dff98a2a13abfd",
    "repetition.py": "7442741123b7e203",
    "two_pass.py": "7d0a7cd5ef560e08",
}


@cache
def load(kind: str, name: str) -> type[Any]:
    """A plugin's class, found by its file, which is read once: contracts make plugins hundreds of times."""
    files = {
        "regex": "regex", "hints": "hints", "ban": "ban", "diverse-beam": "diverse_beam", "two-pass": "two_pass",
        "best-of-two": "best_of_two",
    }  # fmt: skip
    host = Host([str(FOLDER / f"{files.get(name, 'repetition')}.py")], autoload=False)
    return host.load(kind, name)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_they_are_as_they_were_written(file: Path) -> None:
    assert hashlib.sha256(file.read_bytes()).hexdigest()[:16] == AS_WRITTEN[file.name]


def table(seed: int = 0) -> Table:
    scores = np.random.default_rng(seed).normal(size=(V, V))
    return Table(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))


@pytest.fixture
def text(tmp_path: Path) -> Context:
    """Of a vocabulary of single characters."""
    (tmp_path / "abc.spm").write_bytes(characters("abc").serialized)
    vocabulary = load_vocabulary(str(tmp_path / "abc.spm"))
    return Context(vocabularies=Vocabularies(vocabulary, vocabulary), vocab_size=vocabulary.size)


# Their contracts.


@pytest.mark.parametrize("batched", [False, True])
class TestRepetition(PredictorContract):
    vocab_size = V

    @pytest.fixture(autouse=True)
    def choose(self, batched: bool) -> None:
        self.batched = batched

    def make(self) -> Any:
        if self.batched:
            return load("predictor", "repetition-batched")(Context(vocab_size=V), window=2)
        return load("predictor", "repetition")(window=2)


class TestHints(PredictorContract):
    vocab_size = V

    @pytest.fixture(autouse=True)
    def write(self, tmp_path: Path) -> None:
        self.path = tmp_path / "hints"
        self.path.write_text("3 4\n\n5 6\n" + "4\n" * 20)

    def make(self) -> Any:
        return load("predictor", "hints")(str(self.path), bonus=0.5)


class TestRegex(PredictorContract):
    @pytest.fixture(autouse=True)
    def read(self, text: Context) -> None:
        self.context = text
        assert text.vocab_size is not None
        self.vocab_size = text.vocab_size

    def make(self) -> Any:
        return load("predictor", "regex")("(ab|c)*a?", self.context)


class TestBan(PredictorContract):
    vocab_size = V

    def make(self) -> Any:
        return load("predictor", "ban")(lift(table()), tokens=(4, 6))


class TestDiverseBeam(DecoderContract):
    random_spaces = 12

    def make(self) -> Any:
        return load("decoder", "diverse-beam")()


class TestBestOfTwo(DecoderContract):
    random_spaces = 12

    def make(self) -> Any:
        return load("decoder", "best-of-two")(second=DecoderSpec.parse("beam:size=3,stop=full"))


class TestTwoPass(DecoderContract):
    random_spaces = 12

    def make(self) -> Any:
        return load("decoder", "two-pass")()


# What they say of themselves, against plain formulas.


def search(decoder: Any, predictors: Mapping[str, Any], nbest: int = 1, **source: Any) -> list[Hypothesis]:
    constellation = Constellation.of(predictors, vocab_size=V)
    (outcome,) = Scheduler(constellation, decoder, nbest=nbest).run([Source(1, (3,), **source)])
    assert outcome.result is not None, outcome.error
    return outcome.result.hypotheses


@pytest.mark.parametrize("pattern", ["(ab|c)*a?", "a[^b]c?", "[a-b]+", ".b.", "a(b|)c", "ab?c*", r"a\.|b"])
def test_regex_allows_what_pythons_own_engine_matches(text: Context, pattern: str) -> None:
    vocabulary = text.vocabularies.target
    assert vocabulary is not None
    predictor = load("predictor", "regex")(pattern, text)
    predictor.initialize(Source(1, (3,)))
    letters = [(letter, vocabulary.token(letter)) for letter in "abc"]
    start, seen = predictor.get_state(), 0
    for length in range(5):
        for word in itertools.product(letters, repeat=length):
            predictor.set_state(start)
            allowed = True
            for _, token in word:
                allowed = allowed and predictor.predict_next().rows[0].get(token) == 0.0
                if allowed:
                    predictor.consume(token)
            ends = allowed and predictor.predict_next().rows[0].get(EOS) == 0.0
            matches = re.fullmatch(pattern, "".join(letter for letter, _ in word)) is not None
            assert ends == matches, word
            seen += matches
    assert seen


@pytest.mark.parametrize("pattern", ["(a", "a)", "[ab", "*a"])
def test_regex_refuses_what_it_cannot_read(text: Context, pattern: str) -> None:
    with pytest.raises(UsageError, match=r"^regex: "):
        load("predictor", "regex")(pattern, text)


def test_regex_decodes_text_through_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "abc.spm").write_bytes(characters("abc").serialized)
    (tmp_path / "in").write_text("a\nb\n")
    line = [
        "decode",
        "--plugin-file",
        str(FOLDER / "regex.py"),
        "--predictors",
        "regex,wc",
        "--regex.pattern",
        "ca+b",
    ]
    line += ["--tokenizer", str(tmp_path / "abc.spm"), "--decoder", "dfs", "--max-length", "6"]
    assert main([*line, str(tmp_path / "in")]) == 0
    assert capsys.readouterr().out.splitlines() == ["cab", "cab"]


@pytest.mark.parametrize("name", ["repetition", "repetition-batched"])
def test_repetition_fines_each_token_for_its_own_times(name: str) -> None:
    needed = [Context(vocab_size=V)] if name == "repetition-batched" else []
    predictor = load("predictor", name)(*needed, window=3, fine=0.25)
    (found,) = search(GreedyDecoder(), {"forced": Forced((3, 4, 3, 3, 5, 3)), "mine": predictor})
    tokens = (*found.tokens, EOS)
    expected = [-0.25 * Counter(tokens[max(0, t - 3) : t])[token] for t, token in enumerate(tokens)]
    assert [scores[1] for scores in found.ledger] == pytest.approx(expected)
    assert min(expected) == -0.5


def test_both_forms_of_repetition_find_the_same() -> None:
    batched = load("predictor", "repetition-batched")(Context(vocab_size=V), fine=0.5)
    both = [
        search(BeamDecoder(size=4), {"table": table(), "mine": mine}, nbest=4, max_length=5)
        for mine in (load("predictor", "repetition")(fine=0.5), batched)
    ]
    assert [(each.tokens, each.ledger) for each in both[0]] == [(each.tokens, each.ledger) for each in both[1]]


def test_hints_count_once_each_and_are_proven(tmp_path: Path) -> None:
    (tmp_path / "hints").write_text("4 6 6\n")
    hints = load("predictor", "hints")(str(tmp_path / "hints"), bonus=3.0)
    constellation = Constellation.of({"table": table(), "hints": hints}, vocab_size=V)
    (outcome,) = Scheduler(constellation, AStarDecoder()).run([Source(1, (3,), max_length=3)])
    assert outcome.result is not None and outcome.result.proven
    (best,) = outcome.result.hypotheses
    assert {4, 6} <= set(best.tokens) and best.scores[1] == 6.0
    assert best.tokens == enumerate_space(constellation, Source(1, (3,), max_length=3))[0].tokens


def test_hints_of_a_sentence_that_has_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hints").write_text("4\n")
    (tmp_path / "in").write_text("3\n3\n")
    line = ["decode", "--plugin-file", str(FOLDER / "hints.py"), "--predictors", "hints", "--vocab-size", "7"]
    line += ["--hints.path", str(tmp_path / "hints"), "--input-format", "ids", "--max-length", "2"]
    assert main([*line, str(tmp_path / "in")]) == 1
    out, error = capsys.readouterr()
    assert out == "4\n\n" or out.splitlines()[1] == ""
    assert f"sentence 2: {tmp_path / 'hints'}: has no line 2" in error


@pytest.mark.parametrize("inner", [table(), Bonus({3: -1.0, 4: -0.1, EOS: -0.5}), Bonus({4: 2.0}, default=-0.25)])
def test_ban_takes_away_what_it_names_and_nothing_else(inner: Predictor) -> None:
    source = Source(1, (3,), max_length=2)
    ban = load("predictor", "ban")(lift(inner), tokens=(4, 6))
    paths = [
        {path.tokens: path.total for path in enumerate_space(Constellation.of({"x": x}, vocab_size=V), source)}
        for x in (ban, inner)
    ]
    assert paths[0] == {tokens: total for tokens, total in paths[1].items() if not {4, 6} & set(tokens)}
    assert paths[0] != paths[1]


def test_ban_wraps_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("3 4 5\n")
    line = ["decode", "--plugin-file", str(FOLDER / "ban.py"), "--predictors", "ban:wc,wc2=wc", "--vocab-size", "6"]
    line += ["--ban.tokens", "0,1,3,4", "--ban.weight", "-1", "--input-format", "ids", "--max-length", "2"]
    assert main([*line, "--decoder", "greedy", str(tmp_path / "in")]) == 0, capsys.readouterr().err
    assert set(capsys.readouterr().out.split()) <= {"5"}


def test_one_group_is_a_beam_and_more_are_kept_apart() -> None:
    diverse = load("decoder", "diverse-beam")
    beam = search(BeamDecoder(size=3, stop="full"), {"table": table(2)}, nbest=3, max_length=4)
    alone = search(diverse(size=3, groups=1), {"table": table(2)}, nbest=3, max_length=4)
    assert {each.tokens for each in alone} <= {each.tokens for each in beam}
    assert alone[0].tokens == beam[0].tokens
    near, far = (
        search(diverse(size=1, groups=3, strength=strength), {"table": table(2)}, nbest=3, max_length=4)
        for strength in (0.0, 100.0)
    )
    assert len(near) == 1 and len({each.tokens[:1] for each in far}) == 3
    constellation = Constellation.of({"table": table(2)}, vocab_size=V)
    for each in far:  # the penalty is in no score
        assert each.score == pytest.approx(score_path(constellation, Source(1, (3,)), each.tokens)[0])


def test_two_passes_rank_the_first_predictors_list_by_all() -> None:
    both = {"first": table(2), "second": table(0)}
    found = search(load("decoder", "two-pass")(size=5), both, nbest=20, max_length=4)
    constellation, source = Constellation.of(both, vocab_size=V), Source(1, (3,), max_length=4)
    totals = [score_path(constellation, source, each.tokens)[0] for each in found]
    assert [each.score for each in found] == pytest.approx(totals) and totals == sorted(totals, reverse=True)
    first = search(load("decoder", "two-pass")(size=5), {"first": table(2)}, nbest=20, max_length=4)
    assert {each.tokens for each in first} == {each.tokens for each in found}
    assert [each.tokens for each in first] != [each.tokens for each in found]

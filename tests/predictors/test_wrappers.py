"""The promise: every wrapper keeps the contract of predictors, whatever kind of predictor it is put around.

The kinds are those in which predictors can answer: dense arrays and tensors, sparse rows that restrict or are open,
answers to candidates only, and a wrapper again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest

from sgdec import BatchPredictor, Predictor, Scores, Source
from sgdec.context import Context
from sgdec.lifting import lift
from sgdec.plugins.host import Host
from sgdec.protocol import ABILITIES, FORBIDDEN, Candidates, State, ability
from sgdec.testing import BatchTable, Bonus, Lattice, OnDemandTable, PassThrough, Table
from sgdec.testing.automaton_checks import AutomatonChecks
from sgdec.testing.relaxation_checks import RelaxationChecks
from sgdec.testing.release_checks import ReleaseChecks
from sgdec.text.words import SPECIAL, MixedVocabulary
from sgdec.wrapping import Wrapper
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.contracts import PluginContract
from tests.helpers.lattice_files import write_paths
from tests.helpers.relaxing import Trigrams, WholeLattice, random_automaton

pytestmark = pytest.mark.slow

V = 9
HOST = Host(autoload=False)


@cache
def log_probabilities() -> np.ndarray:
    """A bigram ``[V, V]`` with a few tokens forbidden and a few equal scores."""
    rng = np.random.default_rng(5)
    logits = np.round(2 * rng.normal(size=(V, V)))
    logits[rng.random((V, V)) < 0.15] = FORBIDDEN
    logits[:, 2] = 0.0
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


class TensorTable(BatchPredictor):
    """Dense rows as tensors, with attention and without bounds."""

    max_score = 0.0

    def __init__(self, table: np.ndarray) -> None:
        self._table = BatchTable(table)
        self.attention = self._table.attention

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return self._table.initialize_batch(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        import torch

        return Scores(values=torch.from_numpy(np.asarray(self._table.predict_batch(states).values)))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return self._table.consume_batch(states, tokens)


class OpenTable(Table):
    """Sparse rows with a finite default that differs from row to row."""

    def __init__(self) -> None:
        table = log_probabilities()
        super().__init__(np.where(table < -3.0, (-4.0 - np.arange(V) / 8)[:, None], table))

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        row = self.table[self._state.last]
        tokens = np.flatnonzero(row > -3.5)
        return Scores.sparse(tokens, row[tokens], default=-4.0 - self._state.last / 8)


def lattice() -> Lattice:
    """Tokens of every kind that the wrappers below treat, with an end after each."""
    arcs = {
        state: {
            token: (-0.5 * token - state + 0.25 * (token % 3), state + 1 + token % 2)
            for token in range(3 - state % 2, 9)
        }
        for state in range(7)
    }
    return Lattice({state: {**out, 2: (-float(state), 99)} for state, out in arcs.items()} | {7: {2: (-1.0, 99)}})


INNER: dict[str, Callable[[], Predictor | BatchPredictor]] = {
    "dense": lambda: Table(log_probabilities()),
    "dense, with positive scores": lambda: Table(log_probabilities() + 1.5),
    "tensors": lambda: TensorTable(log_probabilities()),
    "on demand": lambda: OnDemandTable(log_probabilities()),
    "open": OpenTable,
    "constant": lambda: Bonus({2: 0.5, 4: -1.0}, default=-0.25),
    "restricting": lattice,
    "known as a whole": lambda: WholeLattice(
        [random_automaton(np.random.default_rng(seed), 5, V, cyclic=True) for seed in (1, 2)]
    ),
    "with relaxations": lambda: Trigrams(np.random.default_rng(1).normal(size=(V, V, V))),
    "a wrapper": lambda: HOST.load("predictor", "maskvocab")(lift(Table(log_probabilities())), tokens="0,6"),
}


BARE = ("known as a whole", "with relaxations")
"""The kinds whose further abilities wrappers pass on, which a wrapper between would hide."""


class WrapperContract(PluginContract):
    """The contract of a wrapper, around several kinds, whose states it has to leave alone."""

    kinds: ClassVar[tuple[str, ...]]
    context: ClassVar[Context | None] = Context(vocab_size=V)
    sources = (Source(1, (3, 4, 5), max_length=4), Source(2, (4,)))
    walk_length = 4
    walks = 2

    @pytest.fixture(autouse=True)
    def _around(self, kind: str) -> None:
        self.kind = kind

    def make(self) -> BatchPredictor:
        cls = HOST.load("predictor", self.plugin)
        given = {**self.options, "context": self.context} if self.context else self.options
        inner = lift(INNER[self.kind]())
        made: BatchPredictor = cls(inner if self.kind in BARE else PassThrough(inner), **given)
        return made


class MixContract(WrapperContract):
    """The contract of a mix of two or three kinds."""

    def make(self) -> BatchPredictor:
        inner = {f"part{k}": PassThrough(lift(INNER[kind]())) for k, kind in enumerate(self.kind.split(" + "))}
        made: BatchPredictor = HOST.load("predictor", self.plugin)(inner, **self.options, context=self.context)
        return made


class TestInterpolate(MixContract):
    plugin = "interpolate"
    kinds = (
        "dense + tensors", "restricting + dense, with positive scores", "on demand + open", "constant + restricting",
        "dense + a wrapper + on demand",
    )  # fmt: skip


class TestBayesianInterpolate(MixContract):
    plugin = "interpolate"
    kinds = ("dense + tensors", "restricting + open", "restricting + restricting", "on demand + dense + restricting")

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"scheme": "bayesian"}


class TestEntropyInterpolate(TestBayesianInterpolate):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"scheme": "entropy"}


class TestContrast(MixContract):
    plugin = "contrast"
    kinds = ("dense + tensors", "restricting + dense, with positive scores", "on demand + open", "dense + a wrapper")

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"weights": (1.0, -0.5)}


class TestPlausibleContrast(TestContrast):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"weights": (1.0, -0.5), "plausibility": 0.2, "normalize": True}


class TestRank(WrapperContract):
    plugin = "rank"
    kinds = ("dense, with positive scores", "tensors", "open", "restricting")


class TestTemperature(WrapperContract):
    plugin = "temperature"
    kinds = ("dense, with positive scores", "tensors", "on demand", "open", "constant", "restricting", "a wrapper")

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"value": 1.5}


class TestRepetition(WrapperContract):
    plugin = "repetition"
    kinds = ("dense", "dense, with positive scores", "on demand", "open", "constant", "restricting", *BARE)
    prefixes = ((4, 3, 3, 4), (5, 7, 8))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"penalty": 1.5}


class TestRepetitionThatIsRewarded(TestRepetition):
    kinds = ("dense", "tensors", "constant", "a wrapper", *BARE)

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"penalty": 0.5, "prompt": True, "seen": (2,)}


class TestNormalizedRepetition(TestRepetition):
    kinds = ("dense, with positive scores", "tensors", "open", "restricting", *BARE)

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"penalty": 1.5, "normalize": True}


class TestIdxMap(WrapperContract):
    plugin = "idxmap"
    kinds = ("dense", "tensors", "on demand", "open", "a wrapper", *BARE)

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": str(write_map(folder / "map", MAP)), "src_path": str(write_map(folder / "source", MAP))}


class TestAltSrc(WrapperContract):
    plugin = "altsrc"
    kinds = ("tensors", "restricting", *BARE)

    def prepare(self, folder: Path) -> dict[str, Any]:
        (folder / "other.ids").write_text("4 4 8 3\n5 6 7\n")
        return {"path": str(folder / "other.ids")}

    def attention_length(self, source: Source) -> int:
        return {1: 4, 2: 3}[source.id]


class TestMaskVocab(WrapperContract):
    plugin = "maskvocab"
    kinds = ("dense, with positive scores", "on demand", "constant", "restricting", "a wrapper", *BARE)
    prefixes = ((4, 3, 3, 4), (5, 7, 8))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"tokens": "3, 7"}


class TestMaskVocabAbove(TestMaskVocab):
    kinds = ("tensors", "open", "restricting")

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"tokens": "3,>6"}


class TestMaskVocabBelow(TestMaskVocab):
    kinds = ("on demand", "restricting")

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"tokens": "<5"}


class TestSkipVocab(WrapperContract):
    plugin = "skipvocab"
    kinds = ("dense, with positive scores", "tensors", "open", "restricting")
    context = None

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"tokens": "3,>6", "max_skips": 2, "size": 2}


class TestSkipVocabAlongAllWays(TestSkipVocab):
    kinds = ("restricting",)

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"tokens": "4,8", "max_skips": 2, "size": 0}


class TestSkipVocabAboveTheLastToken(TestSkipVocab):
    kinds = ("tensors", "restricting")
    vocab_size = 7

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"max_id": 6, "max_skips": 1}


MAP = [0, 1, 2, 5, 8, 3, 4, 7, 6]


def write_map(path: Path, inner_of: Sequence[int]) -> Path:
    path.write_text("".join(f"{outer} {inner}\n" for outer, inner in enumerate(inner_of)))
    return path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of a wrapper's contract, once around each kind.

    Only predictors of the kinds `BARE` are automata or have relaxations; for the others one is enough to see that
    their wrapper has nothing of its own.
    """
    if "kind" in metafunc.fixturenames:
        first, *others = metafunc.cls.kinds
        if not EXHAUSTIVE and any(
            metafunc.function.__name__ in vars(cls) for cls in (AutomatonChecks, ReleaseChecks, RelaxationChecks)
        ):
            others = [kind for kind in others if kind in BARE]
        metafunc.parametrize("kind", [first, *others])


# What wrappers pass on.

PASSED_ON = {
    "rank": {"best_remaining", "state_key", "attention", "state_label"},
    "temperature": {"best_remaining", "state_key", "attention", "state_label"},
    "repetition": {"best_remaining", "state_key", "attention", "state_label"},
    "idxmap": set(ABILITIES) - {"progress", "advancing"},
    "altsrc": set(ABILITIES) - {"progress", "advancing"},
    "maskvocab": {"best_remaining", "worst_remaining", "state_key", "state_label"},
    "skipvocab": {"best_remaining", "worst_remaining", "state_key", "state_label"},
}
"""The abilities that stay right."""
ITS_OWN = {"rank": {"best_remaining"}, "temperature": {"best_remaining"}}
"""Those that do not need the inner predictor's."""
Options: TypeAlias = dict[str, dict[str, Any]]


class Unable(Predictor):
    """Has no ability at all."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(-np.arange(float(V)))


@pytest.fixture
def wrappers(tmp_path: Path) -> Options:
    """The wrappers with options."""
    (tmp_path / "other").write_text("4\n")
    return {
        "rank": {},
        "temperature": {"value": 0.5},
        "repetition": {"penalty": 1.5},
        "idxmap": {"path": str(write_map(tmp_path / "map", MAP))},
        "altsrc": {"path": str(tmp_path / "other")},
        "maskvocab": {"tokens": "4"},
        "skipvocab": {"tokens": "4"},
    }


@pytest.mark.parametrize("name", PASSED_ON)
def test_an_ability_is_there_where_it_is_right_and_the_inner_predictor_has_it(wrappers: Options, name: str) -> None:
    cls = HOST.load("predictor", name)
    able = cls(BatchTable(log_probabilities()), **wrappers[name])
    unable = cls(lift(Unable()), **wrappers[name])
    assert {each for each in ABILITIES if ability(able, each) is not None} == PASSED_ON[name]
    assert {each for each in ABILITIES if ability(unable, each) is not None} == ITS_OWN.get(name, set())


@pytest.mark.parametrize("name", PASSED_ON)
def test_what_a_class_says_of_itself_is_passed_on(wrappers: Options, name: str) -> None:
    cls = HOST.load("predictor", name)
    for inner in (TensorTable(log_probabilities()), lift(OnDemandTable(log_probabilities()))):
        wrapped = cls(inner, **wrappers[name])
        assert wrapped.max_score == {"rank": -1.0, "temperature": 0.0}.get(name, inner.max_score)
        asks_for_all = name in ("rank", "skipvocab", "temperature")
        assert wrapped.on_demand == (inner.on_demand and not asks_for_all)
        assert wrapped.independent_rows == inner.independent_rows


class Releasing(BatchTable):
    """Notes which sentences begin and end."""

    def __init__(self) -> None:
        super().__init__(log_probabilities())
        self.begun: list[State] = []
        self.released: list[State] = []

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        roots = super().initialize_batch(sources)
        self.begun += roots
        return roots

    def release(self, roots: Sequence[State]) -> None:
        self.released += roots


@pytest.mark.parametrize("name", sorted(entry.name for entry in HOST.names("predictor")))
def test_sentences_that_end_end_for_the_inner_predictor_too(wrappers: Options, name: str, tmp_path: Path) -> None:
    cls = HOST.load("predictor", name)
    if not issubclass(cls, Wrapper):
        return
    (tmp_path / "spellings").write_text("7 3 4\n")
    write_paths(tmp_path / "t.fst", [((3, 4), 0.0)])
    (tmp_path / "mixed.json").write_bytes(MixedVocabulary([*SPECIAL, "a", "b", "<M>a", "<M>b"]).serialized)
    others = {
        "word2char": {"path": str(tmp_path / "spellings")},
        "fsttok": {"path": str(tmp_path / "t.fst")},
        "bytes": {"tokenizer": str(tmp_path / "mixed.json")},
    }
    inner = Releasing()
    wrapped = cls(inner, **(wrappers | others)[name])
    roots = wrapped.initialize_batch([Source(1, (3, 4)), Source(1, (3,))])
    wrapped.predict_batch(roots)
    wrapped.consume_batch(roots, [3, 3])
    wrapped.release(roots[1:])
    assert len(inner.begun) == 2 and inner.released == inner.begun[1:]
    assert not hasattr(cls(BatchTable(log_probabilities()), **(wrappers | others)[name]), "release")


class Counting(BatchTable):
    """Notes how many rows each question has."""

    def __init__(self) -> None:
        super().__init__(log_probabilities())
        self.asked: list[int] = []

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.asked.append(len(states))
        return super().predict_batch(states, candidates)


@pytest.mark.parametrize("name", PASSED_ON)
def test_all_rows_are_one_question_to_the_inner_predictor(wrappers: Options, name: str) -> None:
    inner = Counting()
    options = {**wrappers[name], **({"max_skips": 2, "size": 1} if name == "skipvocab" else {})}
    wrapped = HOST.load("predictor", name)(inner, **options)
    states = wrapped.initialize_batch([Source(1, (3,))] * 5)
    wrapped.predict_batch(states)
    assert inner.asked == [5] * (3 if name == "skipvocab" else 1)  # one for each number of skips
    after = wrapped.consume_batch(states, [3, 5, 6, 6, 3])
    assert len(inner.asked) == (3 if name == "skipvocab" else 1)  # what is known of a state is not asked again
    wrapped.predict_batch(after)
    assert inner.asked[-1] <= 5

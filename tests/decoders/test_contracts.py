"""The promise: every registered decoder keeps all the promises of its contract, and there is one for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from sgdec.protocol import Decoder, Result
from sgdec.search.space import SearchSpace
from sgdec.testing import DecoderContract
from sgdec.testing.tiny_spaces import TinySpace, tiny_spaces
from tests.helpers.contracts import HOST, contracts


class SearchedOnce(DecoderContract):
    """The same promises, of one search of each space for all of them; equal searches are two."""

    _found: ClassVar[list[tuple[str, SearchSpace, Result]]]

    def _results(self) -> Iterator[tuple[str, SearchSpace, Result]]:
        cls = type(self)
        if "_found" not in vars(cls):
            cls._found = list(super()._results())
        yield from cls._found

    def test_two_runs_are_equal(self) -> None:
        again = [result for _, _, result in super()._results()]
        assert again == [result for _, _, result in self._results()]


class TestGreedy(SearchedOnce):
    def make(self) -> Decoder:
        return decoder("greedy")


class BeamContract(SearchedOnce):
    options: ClassVar[dict[str, Any]]

    def make(self) -> Decoder:
        return decoder("beam", **self.options)


class TestBeam(BeamContract):
    options: ClassVar[dict[str, Any]] = {}


@pytest.mark.slow
class TestBeamThatFinishesAll(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 3, "stop": "full"}


@pytest.mark.slow
class TestBeamToTheLengthLimit(BeamContract):
    spaces = [tiny for tiny in tiny_spaces() if tiny.source.max_length is not None]  # noqa: RUF012 - as the kit has it
    options: ClassVar[dict[str, Any]] = {"size": 3, "stop": "length", "alpha": 0.6}


@pytest.mark.slow
class TestWideBeamToTheLengthLimit(TestBeamToTheLengthLimit):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "length", "alpha": 0.6}
    exact = True


@pytest.mark.slow
class TestBeamThatRecombines(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 3, "recombine": True}


@pytest.mark.slow
class TestBeamThatPrunes(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "prune_local": 0.5, "prune_final": 0.5, "stop": "full"}


@pytest.mark.slow
class TestBeamWithLengthPenalty(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "alpha": 0.8, "stop": "full"}


@pytest.mark.slow
class TestBeamWithCoverage(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "alpha": 0.6, "beta": 0.4, "stop": "full"}


@pytest.mark.slow
class TestWideBeamWithProof(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven"}
    exact = True


@pytest.mark.slow
class TestWideBeamWithProofAndLengthPenalty(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "alpha": 0.7, "normalize": "length"}
    exact = True


@pytest.mark.slow
class TestWideBeamWithProofAndCoverage(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "alpha": 0.7, "beta": 0.3}
    exact = True


@pytest.mark.slow
class TestWideBeamWithProofAndRecombination(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "recombine": True}
    exact = True
    nbests = (1,)


def is_dense(tiny: TinySpace) -> bool:
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    consulted = zip(constellation.predictors, root.known.states, root.weights, strict=True)
    answers = [predictor.predict_batch([state]) for predictor, state, weight in consulted if weight is not None]
    return not any(row.restricts for answer in answers if answer.values is None for row in answer.rows)


class VanillaContract(SearchedOnce):
    spaces = [tiny for tiny in tiny_spaces() if is_dense(tiny)]  # noqa: RUF012 - as the kit has it
    options: ClassVar[dict[str, Any]]

    def make(self) -> Decoder:
        return HOST.load("decoder", "vanilla")(**self.options)


class TestVanilla(VanillaContract):
    options: ClassVar[dict[str, Any]] = {}


@pytest.mark.slow
class TestVanillaThatPrunes(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "prune_local": 0.5, "prune_final": 0.5, "stop": "full"}


@pytest.mark.slow
class TestVanillaWithCoverage(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "alpha": 0.6, "beta": 0.4, "stop": "full"}


@pytest.mark.slow
class TestWideVanillaWithProof(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "alpha": 0.7, "normalize": "length"}
    exact = True


class SearchContract(SearchedOnce):
    """The contract of the decoder ``plugin``, with ``options``."""

    plugin: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def make(self) -> Decoder:
        return decoder(self.plugin, **self.options)


class TestDfs(SearchContract):
    plugin = "dfs"


@pytest.mark.slow
class TestDfsThatRecombines(SearchContract):
    plugin = "dfs"
    options: ClassVar[dict[str, Any]] = {"recombine": True, "alpha": 0.7, "beta": 0.3}


@pytest.mark.slow
class TestDfsWithBudget(SearchContract):
    plugin = "dfs"
    options: ClassVar[dict[str, Any]] = {"max_expansions": 4}
    exact = False


class TestLendfs(SearchContract):
    """Its list is the best of each length: only the first is what an exact list begins with."""

    plugin = "lendfs"
    exact = True
    nbests = (1,)


class TestRestarting(SearchContract):
    plugin = "restarting"


@pytest.mark.slow
class TestRestartingThatRecombines(SearchContract):
    plugin = "restarting"
    options: ClassVar[dict[str, Any]] = {"node_score": "expansions", "recombine": True}


@pytest.mark.slow
class TestRestartingWithBudget(SearchContract):
    plugin = "restarting"
    options: ClassVar[dict[str, Any]] = {"max_expansions": 6}
    exact = False


class TestAStar(SearchContract):
    plugin = "astar"


@pytest.mark.slow
class TestAStarThatRecombines(SearchContract):
    plugin = "astar"
    options: ClassVar[dict[str, Any]] = {"recombine": True, "alpha": 0.7, "beta": 0.3}


@pytest.mark.slow
class TestAStarWithLittleRoom(SearchContract):
    plugin = "astar"
    options: ClassVar[dict[str, Any]] = {"capacity": 2, "max_expansions": 9}
    exact = False


@pytest.mark.slow
class TestAStarWithoutHeuristic(SearchContract):
    plugin = "astar"
    options: ClassVar[dict[str, Any]] = {"heuristic": "none"}
    exact = False  # some of the scores are positive


class TestBucket(SearchContract):
    plugin = "bucket"


@pytest.mark.slow
class TestBucketThatRecombines(SearchContract):
    plugin = "bucket"
    options: ClassVar[dict[str, Any]] = {"size": 2, "selector": "score-end", "recombine": True, "alpha": 0.7}


@pytest.mark.slow
class TestBucketWithBudget(SearchContract):
    plugin = "bucket"
    options: ClassVar[dict[str, Any]] = {"size": 2, "selector": "iter-2", "score_strategy": "heap"}
    exact = False


class TestBestFirst(SearchContract):
    plugin = "bestfirst"


@pytest.mark.slow
class TestBestFirstThatRecombines(SearchContract):
    plugin = "bestfirst"
    options: ClassVar[dict[str, Any]] = {"size": 2, "recombine": True, "alpha": 0.7, "beta": 0.3}


class TestSample(SearchContract):
    plugin = "sample"
    options: ClassVar[dict[str, Any]] = {"samples": 5}


def can_be_searched_alone(tiny: TinySpace) -> bool:
    """Whether for each predictor by itself hypotheses have an end, and the next token is one of a known set."""
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    answers = [p.predict_batch([state]) for p, state in zip(constellation.predictors, root.known.states, strict=True)]
    known = (answer.values is not None or answer.rows[0].restricts for answer in answers)
    bounded = tiny.source.max_length is not None and (constellation.vocab_size is not None or all(known))
    return bounded and not tiny.empty  # that predictors contradict each other does not make each one's space empty


class TestSepBeam(SearchContract):
    plugin = "sepbeam"
    spaces = [tiny for tiny in tiny_spaces() if can_be_searched_alone(tiny)]  # noqa: RUF012 - as the kit has it
    options: ClassVar[dict[str, Any]] = {"stop": "full"}


class TestSyncBeam(SearchContract):
    plugin = "syncbeam"
    options: ClassVar[dict[str, Any]] = {"symbol": 3, "recombine": True}


def decoder(name: str, **options: Any) -> Decoder:
    made: Decoder = HOST.load("decoder", name)(**options)
    return made


@pytest.mark.parametrize("name", [entry.name for entry in HOST.names("decoder")])
def test_every_registered_decoder_has_a_contract(name: str) -> None:
    here = [found for found in contracts(SearchedOnce) if found.__module__ == __name__]
    tested = {type(found().make()) for found in here if found not in (BeamContract, VanillaContract, SearchContract)}
    assert HOST.load("decoder", name) in tested, f"add a contract for decoder {name!r} to {__file__}"


def test_the_contract_is_tested_on_every_kind_of_dense_space() -> None:
    names = {space.name for space in VanillaContract.spaces}
    assert {"dense", "sparse and open alone", "on demand", "one not consulted", "nothing but the end"} <= names

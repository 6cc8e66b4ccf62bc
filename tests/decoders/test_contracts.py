"""The promise: every registered decoder keeps all the promises of its contract, and there is one for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any, ClassVar

import pytest
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec import DecoderSpec, UtilitySpec
from sgdec.decoder import Decoder
from sgdec.testing import BeamContract, DecoderContract, ExactDecoderContract
from sgdec.testing.random_spaces import KINDS, WEIGHTS
from sgdec.testing.tiny_spaces import TinySpace, tiny_spaces
from tests.helpers.breadth import EXHAUSTIVE, examples, some
from tests.helpers.contracts import HOST, contracts

NEVER_NEGATIVE = tuple(weight for weight in WEIGHTS if weight >= 0)


NUMBERS: defaultdict[str, count[int]] = defaultdict(count)
"""By plugin, of its contracts."""


@cache
def loaded(plugin: str) -> Any:
    return HOST.load("decoder", plugin)


class SearchContract(DecoderContract):
    """The contract of the decoder ``plugin``, with ``options``.

    The first contract of a plugin is tested in all spaces. Others share most of its code: in `make test`, each is
    tested in every third case, the next one in other cases.
    """

    plugin: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    number: ClassVar[int]
    """Among the contracts of the plugin."""
    everywhere: ClassVar[bool] = False
    """Whether it is tested in all cases though it is not the first."""
    random_spaces = examples(20)
    says_why = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__name__.startswith("Test"):
            cls.number = next(NUMBERS[cls.plugin])

    def make(self) -> Decoder:
        return self.decoder()

    def decoder(self, **more: Any) -> Decoder:
        made: Decoder = loaded(self.plugin)(**{**self.options, **more})
        return made

    def _cases(self) -> list[tuple[TinySpace, int]]:
        cases = super()._cases()
        return some(cases, self.number) if self.number and not self.everywhere else cases


class ExactSearchContract(SearchContract, ExactDecoderContract):
    nbests: Sequence[int] = (1, 2, 5) if EXHAUSTIVE else (1, 5)

    def make_limited(self, max_expansions: int) -> Decoder:
        return self.decoder(max_expansions=max_expansions)


class BeamSearchContract(SearchContract, BeamContract):
    def make_beam(self, size: int) -> Decoder:
        return self.decoder(size=size)


class TestGreedy(SearchContract):
    plugin = "greedy"


class TestBeam(SearchContract):
    plugin = "beam"


@pytest.mark.slow
class TestBeamWhereScoresNeverRise(BeamSearchContract):
    """As wide as can be it finds the best, but no list."""

    plugin = "beam"
    nbests = (1,)
    weights, highest = NEVER_NEGATIVE, 0.0


class TestBeamThatFinishesAll(BeamSearchContract):
    plugin = "beam"
    size = 3
    options: ClassVar[dict[str, Any]] = {"stop": "full"}


@pytest.mark.slow
class TestBeamToTheLengthLimit(BeamSearchContract):
    plugin = "beam"
    spaces = [tiny for tiny in tiny_spaces() if tiny.source.max_length is not None]  # noqa: RUF012 - as the kit has it
    kinds = tuple(kind for kind in KINDS if kind != "lattice")  # without which each space has a limit
    finished_keep_their_slots = False
    options: ClassVar[dict[str, Any]] = {"stop": "length", "alpha": 0.6}


@pytest.mark.slow
class TestBeamThatRecombines(SearchContract):
    plugin = "beam"
    options: ClassVar[dict[str, Any]] = {"size": 3, "recombine": True}


@pytest.mark.slow
class TestBeamThatPrunes(SearchContract):
    plugin = "beam"
    options: ClassVar[dict[str, Any]] = {"size": 4, "prune_local": 0.5, "prune_final": 0.5, "stop": "full"}


@pytest.mark.slow
class TestBeamWithCoverage(BeamSearchContract):
    plugin = "beam"
    options: ClassVar[dict[str, Any]] = {"alpha": 0.6, "beta": 0.4, "stop": "full"}


@pytest.mark.slow
class TestBeamWithProof(BeamSearchContract):
    plugin = "beam"
    finished_keep_their_slots = False
    options: ClassVar[dict[str, Any]] = {"stop": "proven"}


@pytest.mark.slow
class TestBeamWithProofAndLengthPenalty(TestBeamWithProof):
    options: ClassVar[dict[str, Any]] = {"stop": "proven", "alpha": 0.7, "normalize": "length"}


@pytest.mark.slow
class TestBeamWithProofAndCoverage(TestBeamWithProof):
    options: ClassVar[dict[str, Any]] = {"stop": "proven", "alpha": 0.7, "beta": 0.3}


@pytest.mark.slow
class TestBeamWithProofAndRecombination(TestBeamWithProof):
    options: ClassVar[dict[str, Any]] = {"stop": "proven", "recombine": True}
    nbests = (1,)


@pytest.mark.slow
class TestWideBeamWithProof(SearchContract):
    """Every space to its end, every promise of an exact decoder but those of a budget."""

    plugin = "beam"
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven"}
    exact = True


class VanillaContract(BeamSearchContract):
    plugin = "vanilla"
    kinds = tuple(kind for kind in KINDS if kind != "lattice")


@pytest.mark.slow
class TestVanilla(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"stop": "full"}


@pytest.mark.slow
class TestVanillaWhereScoresNeverRise(VanillaContract):
    nbests = (1,)
    weights, highest = NEVER_NEGATIVE, 0.0


@pytest.mark.slow
class TestVanillaWithCoverage(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"alpha": 0.6, "beta": 0.4, "stop": "full"}


@pytest.mark.slow
class TestVanillaWithProof(VanillaContract):
    finished_keep_their_slots = False
    options: ClassVar[dict[str, Any]] = {"stop": "proven", "alpha": 0.7, "normalize": "length"}


@pytest.mark.slow
class TestVanillaThatPrunes(SearchContract):
    plugin = "vanilla"
    everywhere = True  # the only traces with finished hypotheses that keep their slots while others go on
    spaces = VanillaContract.spaces
    options: ClassVar[dict[str, Any]] = {"size": 4, "prune_local": 0.5, "prune_final": 0.5, "stop": "full"}


def test_greedy_in_batches_of_automata_is_vanilla_of_size_1() -> None:
    arrays = GreedyDecoder().in_batches(64, automata=True)
    assert isinstance(arrays, VanillaDecoder) and vars(arrays) == vars(VanillaDecoder(size=1))
    assert GreedyDecoder().in_batches(64, automata=False) is GreedyDecoder().in_batches(2, automata=True) is None


@pytest.mark.slow
class TestDfs(ExactSearchContract):
    plugin = "dfs"


@pytest.mark.slow
class TestDfsThatRecombines(ExactSearchContract):
    plugin = "dfs"
    options: ClassVar[dict[str, Any]] = {"recombine": True}


@pytest.mark.slow
class TestDfsWithCoverage(ExactSearchContract):
    plugin = "dfs"
    options: ClassVar[dict[str, Any]] = {"recombine": True, "alpha": 0.7, "beta": 0.3}


@pytest.mark.slow
class TestDfsWithBudget(SearchContract):
    plugin = "dfs"
    options: ClassVar[dict[str, Any]] = {"max_expansions": 4}
    exact = False


@pytest.mark.slow
class TestLendfs(ExactSearchContract):
    """Its list is the best of each length: only the first is what an exact list begins with."""

    plugin = "lendfs"
    nbests = (1,)


@pytest.mark.slow
class TestRestarting(ExactSearchContract):
    plugin = "restarting"


@pytest.mark.slow
class TestRestartingThatRecombines(ExactSearchContract):
    plugin = "restarting"
    options: ClassVar[dict[str, Any]] = {"node_score": "expansions", "recombine": True}


@pytest.mark.slow
class TestAStar(ExactSearchContract):
    plugin = "astar"


@pytest.mark.slow
class TestAStarThatRecombines(ExactSearchContract):
    plugin = "astar"
    options: ClassVar[dict[str, Any]] = {"recombine": True}


@pytest.mark.slow
class TestAStarWithCoverage(ExactSearchContract):
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


@pytest.mark.slow
class TestBucket(ExactSearchContract):
    plugin = "bucket"


@pytest.mark.slow
class TestBucketThatRecombines(ExactSearchContract):
    plugin = "bucket"
    options: ClassVar[dict[str, Any]] = {"size": 2, "selector": "score-end", "recombine": True, "alpha": 0.7}


@pytest.mark.slow
class TestBucketWithBudget(SearchContract):
    plugin = "bucket"
    options: ClassVar[dict[str, Any]] = {"size": 2, "selector": "iter-2", "score_strategy": "heap"}
    exact = False


@pytest.mark.slow
class TestBestFirst(SearchContract):
    plugin = "bestfirst"


@pytest.mark.slow
class TestBestFirstWhereScoresNeverRise(BeamSearchContract):
    plugin = "bestfirst"
    nbests = (1,)
    weights, highest = NEVER_NEGATIVE, 0.0


@pytest.mark.slow
class TestBestFirstThatRecombines(SearchContract):
    plugin = "bestfirst"
    options: ClassVar[dict[str, Any]] = {"size": 2, "recombine": True, "alpha": 0.7, "beta": 0.3}


@pytest.mark.slow
class TestSample(SearchContract):
    plugin = "sample"
    options: ClassVar[dict[str, Any]] = {"samples": 5}


@pytest.mark.slow
class TestMbr(SearchContract):
    plugin = "mbr"
    options: ClassVar[dict[str, Any]] = {
        "candidates": DecoderSpec("sample", {"samples": 8}), "utility": UtilitySpec("exact")
    }  # fmt: skip


@pytest.mark.slow
class TestMcmc(SearchContract):
    plugin = "mcmc"
    options: ClassVar[dict[str, Any]] = {"steps": 6, "walks": 2, "burn_in": 1}


@pytest.mark.slow
class TestStochastic(SearchContract):
    plugin = "stochastic"


@pytest.mark.slow
class TestStochasticWithCodes(SearchContract):
    plugin = "stochastic"
    options: ClassVar[dict[str, Any]] = {"method": "arithmetic", "samples": 6}


@pytest.mark.slow
class TestDiverse(SearchContract):
    plugin = "diverse"


@pytest.mark.slow
class TestDiverseAsGenerate(SearchContract):
    plugin = "diverse"
    options: ClassVar[dict[str, Any]] = {"size": 6, "groups": 3, "stop": "hf-false", "diversity": "ngram"}


@pytest.mark.slow
class TestDiverseInOneGroup(SearchContract):
    plugin = "diverse"
    options: ClassVar[dict[str, Any]] = {"size": 3, "groups": 1, "stop": "best", "alpha": 0.6, "beta": 0.4}


@pytest.mark.slow
class TestDiverseThatDraws(SearchContract):
    plugin = "diverse"
    options: ClassVar[dict[str, Any]] = {"size": 4, "sampling": True, "diversity": "cumulative", "alpha": 0.6}


def can_be_searched_alone(tiny: TinySpace) -> bool:
    """Whether for each predictor by itself hypotheses have an end, and the next token is one of a known set."""
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    answers = [p.predict_batch([state]) for p, state in zip(constellation.predictors, root.states, strict=True)]
    known = (answer.values is not None or answer.rows[0].restricts for answer in answers)
    bounded = tiny.source.max_length is not None and (constellation.vocab_size is not None or all(known))
    return bounded and not tiny.empty  # that predictors contradict each other does not make each one's space empty


class TestSepBeam(SearchContract):
    plugin = "sepbeam"
    spaces = [tiny for tiny in tiny_spaces() if can_be_searched_alone(tiny)]  # noqa: RUF012 - as the kit has it
    options: ClassVar[dict[str, Any]] = {"stop": "full"}


@pytest.mark.slow
class TestSyncBeam(SearchContract):
    plugin = "syncbeam"
    options: ClassVar[dict[str, Any]] = {"symbol": 3, "recombine": True}


@pytest.mark.slow
class TestSyncBeamThatFinishesAll(BeamSearchContract):
    plugin = "syncbeam"
    options: ClassVar[dict[str, Any]] = {"symbol": 3, "stop": "full"}

    def most_of_one_length(self, size: int) -> int:
        return 4 * size * size  # in each of up to four words


@pytest.mark.slow
class TestSyncBeamWithProof(TestSyncBeamThatFinishesAll):
    finished_keep_their_slots = False
    nbests = (1,)
    options: ClassVar[dict[str, Any]] = {"symbol": 0, "stop": "proven", "recombine": True}


@pytest.mark.parametrize("name", [entry.name for entry in HOST.names("decoder")])
def test_every_registered_decoder_has_a_contract(name: str) -> None:
    tested = {found.plugin for found in contracts(SearchContract) if hasattr(found, "plugin")}
    assert name in tested, f"add a contract for decoder {name!r} to {__file__}"


def test_the_contract_is_tested_on_every_kind_of_dense_space() -> None:
    names = {space.name for space in VanillaContract.spaces}
    assert {"dense", "sparse and open alone", "on demand", "one not consulted", "only the end"} <= names

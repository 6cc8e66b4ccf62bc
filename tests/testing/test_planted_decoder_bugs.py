"""The promise: the conformance kit catches a decoder that breaks a rule, by the test that is named for it.

Each class below is an exhaustive search, or one that ranks by expected utility, with one planted bug.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, pairwise

import pytest
from sgdec_decoders.greedy import GreedyDecoder

from sgdec.context import EOS
from sgdec.decoder import BatchDecoder, Decoder
from sgdec.errors import UsageError
from sgdec.protocol import Hypothesis, Result
from sgdec.ranking import Ranking
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from sgdec.testing import DecoderContract
from tests.helpers.mbr_decoder import MbrDecoder
from tests.helpers.oracles import Exhaustive

BUGS: dict[str, tuple[type[Decoder], str]] = {}
"""By class: the class, and the test that must fail."""


def breaks(test: str) -> Callable[[type[Decoder]], type[Decoder]]:
    """Marks a class with one planted bug, and names the test that must catch it."""

    def mark(cls: type[Decoder]) -> type[Decoder]:
        BUGS[cls.__name__] = cls, test
        return cls

    return mark


@breaks("test_its_class_keeps_to_the_protocol")
class MisspellsATrait(Exhaustive):
    rank_by = "ranking"


@breaks("test_hypotheses_come_best_first")
class WorstFirst(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        return Result(super().decode(space).hypotheses[::-1])


@breaks("test_no_hypothesis_comes_twice")
class Stutters(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        found = super().decode(space).hypotheses
        return Result([*found[:1], *found][: space.nbest])


@breaks("test_a_list_is_no_longer_than_asked_for")
class KeepsALongerList(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        space.nbest += 1
        return super().decode(space)


@breaks("test_a_list_is_no_longer_than_asked_for")
class GivesAll(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        space.nbest += 1
        found = super().decode(space)
        space.nbest -= 1
        return found


@breaks("test_a_ledger_adds_up_to_its_score")
class RoundsItsScore(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        found = super().decode(space).hypotheses
        return Result([replace(h, score=round(h.score, 1)) for h in found])


@breaks("test_a_ledger_adds_up_to_its_score")
class LosesTheLastRow(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        return Result([replace(h, ledger=h.ledger[:-1]) for h in super().decode(space).hypotheses])


@breaks("test_scoring_the_tokens_again_gives_the_same_numbers")
class ScoresTheRoot(Exhaustive):
    """Score and ledger agree, but the first predictor never said so."""

    def decode(self, space: SearchSpace) -> Result:
        return Result([_with_more(h) for h in super().decode(space).hypotheses])


def _with_more(hypothesis: Hypothesis) -> Hypothesis:
    first, *others = hypothesis.ledger
    weight = hypothesis.weights[0][0] or 0.0
    return replace(
        hypothesis,
        ledger=((first[0] - 1.0, *first[1:]), *others),
        score=hypothesis.score - weight,
        rank_score=hypothesis.rank_score - weight,
    )


@breaks("test_hypotheses_are_complete_and_within_the_length_limit")
class CutsAtTheLimit(Decoder):
    """Calls a prefix complete when it is long enough."""

    def decode(self, space: SearchSpace) -> Result:
        node = space.root
        while not node.finished and node.length < 2:
            (children,) = space.expand([node], limit=1)
            if not children:
                return Result([])
            node = children[0]
        steps = node.steps()
        cut = Hypothesis(
            tuple(step.token for step in steps if step.token != EOS),
            node.total,
            node.total,
            tuple(step.scores for step in steps),
            tuple(step.weights for step in steps),
        )
        return Result([cut])


@breaks("test_hypotheses_are_complete_and_within_the_length_limit")
class KeepsTheEnd(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        return Result([replace(h, tokens=(*h.tokens, EOS)) for h in super().decode(space).hypotheses])


@breaks("test_hypotheses_are_complete_and_within_the_length_limit")
class GoesPastTheLimit(Exhaustive):
    """Searches a longer space than it was given."""

    def decode(self, space: SearchSpace) -> Result:
        if space.source.max_length is None:
            return Result([])
        longer = replace(space.source, max_length=space.source.max_length + 1)
        (root,) = space.constellation.roots([longer])
        return super().decode(SearchSpace(space.constellation, root, nbest=50))


@breaks("test_rank_scores_follow_the_ranking")
class RanksByTotal(Exhaustive):
    ranking = Ranking(alpha=1.0)

    def decode(self, space: SearchSpace) -> Result:
        space.ranking = Ranking()
        found = super().decode(space)
        space.ranking = self.ranking
        return found


@breaks("test_two_runs_are_equal")
class BreaksTiesByChance(Exhaustive):
    numbers = count()

    def decode(self, space: SearchSpace) -> Result:
        nbest, space.nbest = space.nbest, 1000
        found = super().decode(space).hypotheses
        space.nbest = nbest
        if next(self.numbers) % 3:
            found.sort(key=lambda h: (-h.rank_score, h.tokens[::-1]))
        return Result(found[:nbest])


@breaks("test_one_decoder_searches_many_spaces_side_by_side")
class SearchesInItself(Exhaustive):
    """Keeps what it found where searches of other sentences find it."""

    def decode(self, space: SearchSpace) -> Result:
        self.finished: list[Node] = []
        nodes = [space.root]
        while nodes:
            children = [child for found in space.expand(nodes) for child in found]
            self.finished += [node for node in children if node.finished]
            nodes = [node for node in children if not node.finished]
        self.finished.sort(key=lambda node: (-node.total, node.tokens))
        return Result([space.finish(node) for node in self.finished[: space.nbest]])


@breaks("test_a_batch_finds_what_its_sentences_find_alone")
class MixesUpSentences(BatchDecoder):
    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        return [GreedyDecoder().decode(space) for space in spaces][::-1]


@breaks("test_states_are_left_alone")
class RecombinesByState(Exhaustive):
    """Takes prefixes for equal whose states are."""

    def decode(self, space: SearchSpace) -> Result:
        children = [child for found in space.expand([space.root]) for child in found if not child.finished]
        list(space.expand(children))
        if any(first.states == second.states for first, second in pairwise(children)):
            return Result([])
        return super().decode(space)


@breaks("test_expansions_are_counted")
class HidesItsCost(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        found = super().decode(space)
        space.expansions = 1
        return found


@breaks("test_an_empty_space_gives_an_empty_list")
class NeverGivesUp(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        return Result(super().decode(space).hypotheses or [Hypothesis((), 0.0, 0.0, ((0.0,),), ((1.0,),))])


@breaks("test_an_exact_search_equals_enumeration")
class GreedyButExact(GreedyDecoder):
    exact = True


@breaks("test_an_exact_search_equals_enumeration")
class MissesTheEmptyHypothesis(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        found = super().decode(space).hypotheses
        return Result([hypothesis for hypothesis in found if hypothesis.tokens])


@breaks("test_a_proof_is_true")
class GreedyWithProof(GreedyDecoder):
    def decode(self, space: SearchSpace) -> Result:
        return replace(super().decode(space), proven=True)


@breaks("test_a_proof_is_true")
class GreedyWithGap(GreedyDecoder):
    def decode(self, space: SearchSpace) -> Result:
        return replace(super().decode(space), proven=False, gap=0.01)


@breaks("test_a_bound_that_is_missing_is_named_or_not_needed")
class RefusesWithoutAName(Exhaustive):
    def decode(self, space: SearchSpace) -> Result:
        try:
            space.bound([space.root])
        except UsageError:
            raise UsageError("no bound") from None
        return super().decode(space)


@breaks("test_rank_scores_follow_the_ranking")
class RanksByUtilityUndeclared(MbrDecoder):
    ranks_by = "ranking"


@breaks("test_rank_scores_follow_the_ranking")
class HasNoSamplesToCompareWith(MbrDecoder):
    def expected_utility(self, node: Node, samples: list[Node]) -> float:
        return math.inf


@breaks("test_no_hypothesis_comes_twice")
class ListsSamplesAsTheyWereDrawn(MbrDecoder):
    def decode(self, space: SearchSpace) -> Result:
        drawn = self.draw(space)
        ranked = [replace(space.finish(n), rank_score=self.expected_utility(n, drawn)) for n in drawn]
        return Result(sorted(ranked, key=lambda h: -h.rank_score)[: space.nbest])


@breaks("test_hypotheses_come_best_first")
class ListsByTotal(MbrDecoder):
    """Ranks by expected utility, it says."""

    def decode(self, space: SearchSpace) -> Result:
        return Result(sorted(super().decode(space).hypotheses, key=lambda h: -h.score))


@breaks("test_a_ledger_adds_up_to_its_score")
class PutsUtilityInThePlaceOfTheTotal(MbrDecoder):
    def decode(self, space: SearchSpace) -> Result:
        return Result([replace(h, score=h.rank_score) for h in super().decode(space).hypotheses])


@breaks("test_a_proof_is_true")
class ProvesItsUtility(MbrDecoder):
    def decode(self, space: SearchSpace) -> Result:
        return replace(super().decode(space), proven=True)


@breaks("test_an_exact_search_equals_enumeration")
class IsExactAboutItsUtility(MbrDecoder):
    exact = True


@breaks("test_a_trace_is_true_and_changes_nothing")
class BlamesABound(Decoder):
    """Greedy search that says that a bound cut what it never looked at."""

    def decode(self, space: SearchSpace) -> Result:
        node = space.root
        while not node.finished:
            (children,) = space.expand([node], limit=3)
            if not children:
                return Result([])
            node, *others = children
            for other in others:
                space.dropped(other, "bound")
        return Result([space.finish(node)])


class SaysNothing(GreedyDecoder):
    """Greedy search that looks at the second-best child, and does not say that it drops it."""

    def decode(self, space: SearchSpace) -> Result:
        space.expand([space.root], limit=2)
        return super().decode(space)


def contract(cls: type[Decoder], says: bool = False) -> DecoderContract:
    return contract_class(cls, says)()


@cache
def contract_class(cls: type[Decoder], says: bool) -> type[DecoderContract]:
    """One for all promises, so that they share the searches, as under pytest."""

    class Contract(DecoderContract):
        says_why = says

        def make(self) -> Decoder:
            return cls()

    return Contract


def promises(subject: object) -> list[str]:
    return [name for name in dir(subject) if name.startswith("test_")]


@pytest.mark.slow
@pytest.mark.parametrize("right", [Exhaustive, MbrDecoder])
@pytest.mark.parametrize("test", promises(DecoderContract))
def test_a_right_decoder_passes(test: str, right: type[Decoder]) -> None:
    getattr(contract(right), test)()


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_the_kit_catches(name: str) -> None:
    cls, test = BUGS[name]
    with pytest.raises(AssertionError, match=r"must|has no hypothesis|may come|forcing"):
        getattr(contract(cls), test)()


def test_a_decoder_may_be_silent_about_its_nodes_unless_it_says_that_it_is_not() -> None:
    contract(SaysNothing).test_a_trace_is_true_and_changes_nothing()
    with pytest.raises(AssertionError, match="must say what becomes of each node"):
        contract(SaysNothing, says=True).test_a_trace_is_true_and_changes_nothing()


def test_every_promise_has_a_planted_bug() -> None:
    assert {test for _, test in BUGS.values()} == set(promises(DecoderContract))

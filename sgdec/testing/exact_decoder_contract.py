"""The promises of an exact decoder: the true n-best of any space with a proof, or a list with a valid gap.

The reference is `enumerate_space`, which shares no code with searches.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence

from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.protocol import Candidates, Predictor, Result, Scores, Source
from sgdec.search.constellation import Constellation
from sgdec.testing.random_searches import RandomSpacesContract
from sgdec.testing.shared import Shared
from sgdec.testing.tiny_spaces import TinySpace


class ExactDecoderContract(RandomSpacesContract):
    """`DecoderContract` for a decoder that finds the true n-best, tested in random spaces as well.

    For a decoder with a budget, implement `make_limited`, too. For a decoder whose list is not the n-best, such as
    the best hypothesis of each length, set ``nbests = (1,)``.

    >>> from sgdec_decoders.dfs import DfsDecoder
    >>> class TestDfs(ExactDecoderContract):
    ...     def make(self):
    ...         return DfsDecoder()
    ...     def make_limited(self, max_expansions):
    ...         return DfsDecoder(max_expansions=max_expansions)
    >>> TestDfs().test_what_a_budget_leaves_open_is_within_the_gap()
    """

    exact = True
    nbests: Sequence[int] = (1, 2, 5)

    def make_limited(self, max_expansions: int) -> Decoder | None:
        """The decoder with this budget; None if it has no budget, which skips the tests of budgets."""
        return None

    def test_the_true_nbest_is_found_in_random_spaces(self) -> None:
        for at, tiny, nbest in self._drawn():
            result, _ = self._find(at, tiny, nbest)
            self._require_the_nbest(at, tiny, self.make(), nbest, result)

    def test_a_search_that_comes_to_its_end_is_proven(self) -> None:
        for at, tiny, nbest in self._drawn():
            result, _ = self._find(at, tiny, nbest)
            claims = result.proven, result.gap
            assert claims == (True, None), (
                f"an exact search must prove its list, without a gap: (proven, gap) = {claims} {at}"
            )

    def test_a_budget_is_kept(self) -> None:
        for at, _, _, budget, _, expansions in self._limited():
            assert expansions <= budget, f"a budget of {budget} must be kept: {expansions} expansions {at}"

    def test_what_a_budget_leaves_open_is_within_the_gap(self) -> None:
        for at, tiny, nbest, budget, result, _ in self._limited():
            at, decoder = f"with a budget of {budget} {at}", self.make()
            if result.proven:
                self._require_the_nbest(at, tiny, decoder, nbest, result)
            elif result.hypotheses:
                optimum = self._paths(tiny, decoder)[0].rank_score(decoder.ranking)
                best = result.hypotheses[0].rank_score
                assert result.proven is False and result.gap is not None and result.gap >= 0.0, (
                    f"a search that a budget ends must return proven = False and a gap: "
                    f"{(result.proven, result.gap)} {at}"
                )
                assert best <= optimum + self.tolerance and optimum <= best + result.gap + self.tolerance, (
                    f"the optimum must lie within the gap: it is {optimum:g}, the search found {best:g} with a gap "
                    f"of {result.gap:g} {at}"
                )
            else:
                assert result.gap is None, f"without a hypothesis there must be no gap: {result.gap:g} {at}"

    def test_a_budget_that_is_enough_changes_nothing(self) -> None:
        for at, tiny, nbest in self._drawn():
            free, expansions = self._find(at, tiny, nbest)
            limited = self.make_limited(max(expansions, 1))
            if limited is not None:
                found, _ = self._search(limited, tiny, nbest)
                assert found == free, (
                    f"a sufficient budget must not change the result: {found}, but {free} without a budget {at}"
                )

    def test_a_hypothesis_may_be_longer_than_the_stack_is_deep(self) -> None:
        length = sys.getrecursionlimit() + 100
        chain = TinySpace("chain", lambda: Constellation.of({"chain": _Chain(length)}), Source(1, (3,)))
        try:
            result, _ = self._search(self.make(), chain, 1)
        except RecursionError:
            raise AssertionError("a search must not recurse for each token") from None
        found = [len(hypothesis.tokens) for hypothesis in result.hypotheses]
        assert found == [length], f"the only hypothesis, of {length} tokens, must be found, not lengths {found}"

    def _limited(self) -> Iterator[tuple[str, TinySpace, int, int, Result, int]]:
        """Searches with budgets that end them too early: message, space, nbest, budget, result, expansions."""
        for at, tiny, nbest in self._drawn():
            _, free = self._find(at, tiny, nbest)
            for budget in sorted({1, 2, free // 2, free - 1}):
                if 0 < budget < free and self.make_limited(budget) is not None:
                    yield at, tiny, nbest, budget, *self._find(at, tiny, nbest, budget)

    def _find(self, at: str, tiny: TinySpace, nbest: int, budget: int | None = None) -> tuple[Result, int]:
        """The result of one search in a random space, and its expansions."""
        if (at, budget) not in self._found:
            decoder = self.make() if budget is None else self.make_limited(budget)
            assert decoder is not None
            result, space = self._search(decoder, tiny, nbest)
            self._found[at, budget] = result, space.expansions
        return self._found[at, budget]

    @Shared
    def _found(self) -> dict[tuple[str, int | None], tuple[Result, int]]:
        """The results of `_find`, by the description of the space and the budget."""
        return {}


class _Chain(Predictor):
    """Allows one hypothesis, ``length`` times token 3, for a source of one token."""

    def __init__(self, length: int) -> None:
        self._length = self._left = length

    def initialize(self, source: Source) -> None:
        self._left = self._length

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((3 if self._left else EOS,), (-1.0,))

    def consume(self, token: int) -> None:
        self._left -= 1

    def get_state(self) -> int:
        return self._left

    def set_state(self, state: int) -> None:
        self._left = state

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [-1.0 - left for left in states]

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def attention(self, states: Sequence[int]) -> list[list[float]]:
        return [[1.0] for _ in states]

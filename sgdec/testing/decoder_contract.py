"""The promises of every decoder, each tested in several `tiny_spaces`.

A decoder may miss hypotheses, but it must not invent, truncate or misscore any. If it claims to be exact, by its
class attribute ``exact``, by the contract's, or by ``Result.proven``, its results are compared with the enumeration
of the whole space. If it ranks by its own criterion (`Decoder.ranks_by`), its rank scores must only be finite; if it
leaves them as the ranking gives them, its lists may have any order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from sgdec.context import EOS
from sgdec.decoder import BatchDecoder, Decoder
from sgdec.errors import UsageError
from sgdec.lifting import lift
from sgdec.protocol import Hypothesis, Result, Source, ability
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.search.outcome import Outcome
from sgdec.search.requests import answer
from sgdec.search.results import require_result
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import batches
from sgdec.testing.enumeration import Path, score_path
from sgdec.testing.expectations import keeps_to_the_protocol, require_the_best
from sgdec.testing.shared import Shared
from sgdec.testing.tiny_spaces import TinySpace, tiny_spaces
from sgdec.testing.toys import Forced, PassThrough, Table
from sgdec.testing.trace_checks import require_complete, require_true
from sgdec.trace.records import Tracing

OWN_CRITERION = "; a decoder with its own criterion names it in ranks_by"


class DecoderContract(ABC):
    """Subclass it, name the subclass ``Test...``, and implement `make`; pytest runs the tests.

    >>> from sgdec_decoders.greedy import GreedyDecoder
    >>> class TestGreedy(DecoderContract):
    ...     def make(self):
    ...         return GreedyDecoder()
    >>> TestGreedy().test_hypotheses_come_best_first()
    """

    spaces: Sequence[TinySpace] = tiny_spaces()
    """The spaces for the tests; a subclass can add its own."""
    nbests: Sequence[int] = (1, 3)
    """The list lengths for the tests."""
    exact: bool | None = None
    """Whether `make` returns a decoder that promises the true n-best; None = as its class says."""
    tolerance: float = 1e-4
    """The largest allowed difference between two sums of the same scores."""
    says_why: bool = False
    """Whether the decoder says what becomes of each node that it receives (`SearchSpace.dropped`)."""
    most_expansions: int = 100_000
    """A search that expands more nodes fails the test; a correct search needs far fewer in these spaces."""

    @abstractmethod
    def make(self) -> Decoder:
        """Return a new decoder at each call."""

    def test_its_class_keeps_to_the_protocol(self) -> None:
        """No misspelt method, no wrong signature (`sgdec.protocol`)."""
        keeps_to_the_protocol(self.make())

    def test_hypotheses_come_best_first(self) -> None:
        """By rank score; in any order if the decoder has its own criterion, which is not the rank score."""
        for at, space, result in self._results:
            if self._own_criterion() and all(self._follows(space, hypothesis) for hypothesis in result.hypotheses):
                continue
            scores = [hypothesis.rank_score for hypothesis in result.hypotheses]
            way_out = "" if self._own_criterion() else OWN_CRITERION
            assert scores == sorted(scores, reverse=True), (
                f"a list must be sorted by rank_score: {scores} {at}{way_out}"
            )

    def test_no_hypothesis_comes_twice(self) -> None:
        for at, _, result in self._results:
            found = [(hypothesis.tokens, hypothesis.weights) for hypothesis in result.hypotheses]
            twice = [tokens for tokens, weights in found if found.count((tokens, weights)) > 1]
            assert not twice, f"a list must not contain a hypothesis twice: {twice[0]} {at}"

    def test_a_list_is_no_longer_than_asked_for(self) -> None:
        for at, space, result in self._results:
            found = len(result.hypotheses)
            assert found <= space.nbest, f"a list must contain at most nbest hypotheses: {found} {at}"

    def test_a_ledger_adds_up_to_its_score(self) -> None:
        for at, _, hypothesis in self._hypotheses():
            total = math.fsum(
                weight * score
                for row, row_weights in zip(hypothesis.ledger, hypothesis.weights, strict=False)
                for weight, score in zip(row_weights, row, strict=True)
                if weight is not None
            )
            assert self._close(total, hypothesis.score), (
                f"a ledger must add up, with its weights, to the score: {total:g}, not {hypothesis.score:g} {at}"
            )

    def test_scoring_the_tokens_again_gives_the_same_numbers(self) -> None:
        """Once by each predictor separately, and once by the framework, forced to the same tokens."""
        for at, space, hypothesis in self._hypotheses():
            total, ledger = score_path(space.constellation, space.source, hypothesis.tokens, hypothesis.weights)
            assert self._close(total, hypothesis.score), (
                f"a score must be the predictors' weighted sum: {total:g}, not {hypothesis.score:g}, for "
                f"{hypothesis.tokens} {at}"
            )
            assert np.allclose(ledger, hypothesis.ledger, rtol=self.tolerance, atol=self.tolerance), (
                f"a ledger must contain the predictors' scores of {hypothesis.tokens} {at}"
            )
            forced = _force(space, hypothesis)
            assert forced is not None and self._close(forced, hypothesis.score), (
                f"forcing {hypothesis.tokens} must give its score: {forced}, not {hypothesis.score:g} {at}"
            )

    def test_hypotheses_are_complete_and_within_the_length_limit(self) -> None:
        for at, space, hypothesis in self._hypotheses():
            limit = space.source.max_length
            assert len(hypothesis.weights) == len(hypothesis.ledger) == len(hypothesis.tokens) + 1, (
                f"a hypothesis must end with </s>, which needs a row in its ledger: {hypothesis} {at}"
            )
            assert EOS not in hypothesis.tokens, f"tokens must not contain </s>: {hypothesis.tokens} {at}"
            assert limit is None or len(hypothesis.tokens) <= limit, (
                f"at most {limit} tokens may come before </s>: {hypothesis.tokens} {at}"
            )
            assert (
                score_path(space.constellation, space.source, hypothesis.tokens, hypothesis.weights)[0] > -math.inf
            ), f"all predictors must allow a hypothesis: {hypothesis.tokens} {at}"

    def test_rank_scores_follow_the_ranking(self) -> None:
        """If the decoder ranks by its own criterion, rank scores must only be finite."""
        for at, space, result in self._results:
            if self._own_criterion():
                for hypothesis in result.hypotheses:
                    assert math.isfinite(hypothesis.rank_score), f"a rank_score must be finite: {hypothesis} {at}"
                continue
            for hypothesis in result.hypotheses:
                expected, found = self._expected(space, hypothesis), hypothesis.rank_score
                assert expected is None or self._close(expected, found), (
                    f"a rank_score must follow the ranking: {expected:g}, not {found:g}, for "
                    f"{hypothesis.tokens} {at}{OWN_CRITERION}"
                )

    def test_two_runs_are_equal(self) -> None:
        for (at, _, first), (_, _, second) in zip(self._results, self._search_all(), strict=True):
            assert first == second, f"two runs must give the same list, ties included: {first}, then {second} {at}"

    def test_one_decoder_searches_many_spaces_side_by_side(self) -> None:
        expected = [result for _, _, result in self._results]
        found = _side_by_side(self.make(), [self._open(tiny, nbest) for tiny, nbest in self._cases()])
        for (tiny, nbest), first, second in zip(self._cases(), expected, found, strict=True):
            assert first == second, (
                f"a search must not depend on others of the same decoder: {first}, but {second} {_at(tiny, nbest)}"
            )

    def test_a_batch_finds_what_its_sentences_find_alone(self) -> None:
        """Checked only for a `BatchDecoder`."""
        decoder = self.make()
        if not isinstance(decoder, BatchDecoder):
            return
        for tiny, nbest in self._cases():
            sources = batches.sentences(tiny)
            spaces = partial(batches.opened, tiny, ranking=decoder.ranking, nbest=nbest, most=self.most_expansions)
            alone = [self.make().decode(*spaces([source])) for source in sources]
            together = decoder.decode_batch(spaces(sources))
            assert alone == together, (
                f"a sentence must not depend on others in its batch: {alone}, but {together} {_at(tiny, nbest)}"
            )

    def test_states_are_left_alone(self) -> None:
        """Repeats each search with `Sealed` states, which raise an error if they are inspected, for two sentences."""
        for tiny, nbest in self._cases():
            if nbest == max(self.nbests):
                found = [self._in_flight(each, tiny, nbest) for each in (tiny.constellation(), _sealed(tiny))]
                for expected, outcome in zip(*found, strict=True):
                    if isinstance(outcome.error, AssertionError):
                        raise outcome.error
                    first, second = ([h.tokens for h in o.result.hypotheses] for o in (expected, outcome))
                    assert first == second, (
                        f"a search must not depend on the content of states: {first}, but {second} {_at(tiny, nbest)}"
                    )

    def test_expansions_are_counted(self) -> None:
        for at, space, result in self._results:
            fewest = max((len(hypothesis.tokens) + 1 for hypothesis in result.hypotheses), default=0)
            assert space.expansions >= fewest, (
                f"every expanded node must be counted: {space.expansions}, for a hypothesis of {fewest} tokens {at}"
            )

    def test_an_empty_space_gives_an_empty_list(self) -> None:
        for tiny, nbest in self._cases():
            if tiny.empty:
                result = self.make().decode(self._open(tiny, nbest))
                assert result.hypotheses == [], (
                    f"an empty space must give no hypothesis: {result.hypotheses} {_at(tiny, nbest)}"
                )

    def test_an_exact_search_equals_enumeration(self) -> None:
        if self.make().exact if self.exact is None else self.exact:
            assert not self._own_criterion(), self._no_proof()
            for at, space, result in self._results:
                self._equals_enumeration(at, space, result)

    def test_a_proof_is_true(self) -> None:
        for at, space, result in self._results:
            claims = (result.proven, result.gap) != (None, None)
            assert not (claims and self._own_criterion()), f"{self._no_proof()} {at}"
            if result.proven:
                self._equals_enumeration(at, space, result)
            elif result.gap is not None and result.hypotheses:
                best = self._enumerate(space)[0].rank_score(space.ranking)
                assert best <= result.hypotheses[0].rank_score + result.gap + self.tolerance, (
                    f"the optimum must lie within the gap: it is {best:g}, the search found "
                    f"{result.hypotheses[0].rank_score:g} with a gap of {result.gap:g} {at}"
                )

    def test_a_trace_is_true_and_changes_nothing(self) -> None:
        """With ``says_why`` it must also be complete."""
        for (tiny, nbest), (at, space, expected) in zip(self._cases(), self._results, strict=True):
            decoder, constellation = self.make(), tiny.constellation()
            scheduler = Scheduler(constellation, decoder, nbest=nbest, batch_size=1, tracing=Tracing(children=2))
            (outcome,) = scheduler.run([tiny.source])
            assert outcome.result == expected, f"a trace must not change a search {at}"
            assert outcome.trace is not None
            if self.says_why:
                require_complete(outcome.trace, at)
            paths = self._enumerate(space)
            require_true(
                outcome.trace, outcome.result, constellation.weights, paths, space.ranking, self.tolerance, at
            )

    def test_a_bound_that_is_missing_is_named_or_not_needed(self) -> None:
        source = Source(1, (3,), max_length=2)
        constellation = Constellation.of({"silent": _Silent(np.zeros((4, 4)))})
        decoder = self.make()
        if decoder.ranking.uses_coverage:
            return
        (root,) = constellation.roots([source])
        try:
            decoder.decode(SearchSpace(constellation, root, ranking=decoder.ranking))
        except UsageError as error:
            assert "silent" in str(error), f"the error must name the predictor without a bound: {error}"

    # Helpers.

    def _cases(self) -> list[tuple[TinySpace, int]]:
        """Pairs of a space and a list length; only spaces with attention if the ranking needs it."""
        needs = self.make().ranking.uses_coverage
        return [
            (tiny, nbest)
            for tiny in self.spaces
            if not needs or any(ability(p, "attention") for p in tiny.constellation().predictors)
            for nbest in self.nbests
        ]

    def _open(self, tiny: TinySpace, nbest: int) -> SearchSpace:
        return tiny.open(ranking=self.make().ranking, nbest=nbest, most=self.most_expansions)

    def _in_flight(self, constellation: Constellation, tiny: TinySpace, nbest: int) -> list[Outcome]:
        """The outcomes for two copies of the sentence, decoded together by the scheduler."""
        sources = [replace(tiny.source, id=number) for number in (1, 2)]
        return list(Scheduler(constellation, self.make(), nbest=nbest, batch_size=2).run(sources))

    @Shared
    def _results(self) -> list[tuple[str, SearchSpace, Result]]:
        """One search of each case for all tests: a description for messages, the space, and the result."""
        return list(self._search_all())

    def _search_all(self) -> Iterator[tuple[str, SearchSpace, Result]]:
        for tiny, nbest in self._cases():
            space = self._open(tiny, nbest)
            decoder = self.make()
            result = require_result(decoder, decoder.decode(space))
            kept = space.nbest == nbest
            assert kept, f"a decoder must not change space.nbest: it is {space.nbest} {_at(tiny, nbest)}"
            yield _at(tiny, nbest), space, result

    def _hypotheses(self) -> Iterator[tuple[str, SearchSpace, Hypothesis]]:
        for at, space, result in self._results:
            for hypothesis in result.hypotheses:
                yield at, space, hypothesis

    def _own_criterion(self) -> bool:
        name = self.make().ranks_by
        assert isinstance(name, str) and name, f"ranks_by is {name!r}; expected 'ranking', or the name of a criterion"
        return name != "ranking"

    def _expected(self, space: SearchSpace, hypothesis: Hypothesis) -> float | None:
        """The rank score under the ranking; None if the hypothesis was found under other weights."""
        path = self._paths_by_tokens[space].get(hypothesis.tokens)
        if path is None or not self._close(path.total, hypothesis.score):
            return None
        return path.rank_score(space.ranking)

    def _follows(self, space: SearchSpace, hypothesis: Hypothesis) -> bool:
        expected = self._expected(space, hypothesis)
        return expected is not None and self._close(expected, hypothesis.rank_score)

    def _no_proof(self) -> str:
        return f"a decoder that ranks by {self.make().ranks_by} must not claim a proof, which is about the ranking"

    @Shared
    def _tiny(self) -> dict[SearchSpace, TinySpace]:
        """The origin of each space of `_results`."""
        return {space: tiny for (tiny, _), (_, space, _) in zip(self._cases(), self._results, strict=True)}

    @Shared
    def _paths_by_tokens(self) -> dict[SearchSpace, dict[tuple[int, ...], Path]]:
        return {space: {path.tokens: path for path in self._enumerate(space)} for _, space, _ in self._results}

    def _enumerate(self, space: SearchSpace) -> list[Path]:
        return self._tiny[space].paths(space.ranking)

    def _equals_enumeration(self, at: str, space: SearchSpace, result: Result) -> None:
        require_the_best(result, self._enumerate(space)[: space.nbest], space.ranking, self.tolerance, at)

    def _close(self, first: float, second: float) -> bool:
        return math.isclose(first, second, rel_tol=self.tolerance, abs_tol=self.tolerance)


class _Silent(Table):
    """A table that declares no bounds and no keys."""

    best_remaining = worst_remaining = state_key = None  # type: ignore[assignment]  # it lacks these


def _at(tiny: TinySpace, nbest: int) -> str:
    return f"(space {tiny.name!r}, nbest {nbest})"


def _sealed(tiny: TinySpace) -> Constellation:
    """The constellation of the space, with `Sealed` states."""
    constellation = tiny.constellation()
    members = [replace(member, predictor=PassThrough(member.predictor)) for member in constellation.members]
    return Constellation(members, vocab_size=constellation.vocab_size, bounds=constellation.bounds_kind)


def _force(space: SearchSpace, hypothesis: Hypothesis) -> float | None:
    """The total of one hypothesis in the same space with a `Forced` predictor added; None if the space lacks it."""
    members = [*space.constellation.members, Member("forced", lift(Forced(hypothesis.tokens)))]
    constellation = Constellation(members, vocab_size=space.constellation.vocab_size)
    (node,) = constellation.roots([space.source])
    forced = SearchSpace(constellation, node)
    for weights in hypothesis.weights:
        (children,) = forced.expand([node.with_weights((*weights, 1.0))], limit=2)
        if len(children) != 1:
            return None
        node = children[0]
    return node.total if node.finished else None


def _side_by_side(decoder: Decoder, spaces: Sequence[SearchSpace]) -> list[Result]:
    """The results of searches of one decoder that run in turn: each runs until its next request."""
    here = getcurrent()
    asking = [
        SearchSpace(s.constellation, s.root, ranking=s.ranking, nbest=s.nbest, seed=s.seed, ask=here.switch)
        for s in spaces
    ]
    searches = [greenlet(partial(decoder.decode, space)) for space in asking]
    said: list[Any] = [search.switch() for search in searches]
    while not all(search.dead for search in searches):
        for i, search in enumerate(searches):
            if not search.dead:
                said[i] = search.switch(answer(spaces[i].constellation.perform, [said[i]])[0])
    return said

"""The promises of every predictor (``docs/explanation/architecture.md``, "The interfaces"), each as one test.

The kit tests predictors of both forms: the simple form is also tested in batches, and the batch form also one prefix
at a time. Like every search, it never consumes ``</s>`` and never calls a predictor after it. The promises of the
optional abilities are in `ability_checks`, `automaton_checks`, `release_checks` and `relaxation_checks` of this
package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sgdec.context import EOS
from sgdec.lifting import Lowered, lift
from sgdec.protocol import BatchPredictor, Predictor, Scores, Source, State
from sgdec.testing.ability_checks import AbilityChecks
from sgdec.testing.expectations import keeps_to_the_protocol
from sgdec.testing.reading import Row, ask, plain, plain_tokens, read_row, sparse_rows, where
from sgdec.testing.relaxation_checks import RelaxationChecks
from sgdec.testing.release_checks import ReleaseChecks
from sgdec.testing.shared import Shared
from sgdec.testing.snapshot import snapshot
from sgdec.testing.toys import PassThrough


class PredictorContract(ReleaseChecks, AbilityChecks, RelaxationChecks):
    """Subclass it, name the subclass ``Test...``, and implement `make`; pytest runs the tests.

    >>> from sgdec.testing import Table
    >>> class TestTable(PredictorContract):
    ...     vocab_size = 4
    ...     def make(self):
    ...         return Table(np.zeros((4, 4)))
    >>> TestTable().test_two_fresh_instances_agree()
    """

    def test_its_class_keeps_to_the_protocol(self) -> None:
        """No misspelt method, no wrong signature, no half of a state (`sgdec.protocol`)."""
        keeps_to_the_protocol(self.make())

    def test_an_answer_has_one_row_a_state_and_fits_the_vocabulary(self) -> None:
        for source, prefix, scores in self._answers():
            at = where(source, prefix)
            assert isinstance(scores, Scores), f"predict_next must return Scores, not {type(scores)} {at}"
            assert len(scores) == 1, f"predict_next must return one row, not {len(scores)} {at}"
            try:
                read_row(scores, 0, self.vocab_size)
            except (AssertionError, ValueError) as error:
                raise AssertionError(f"{error} {at}") from error

    def test_no_score_is_nan(self) -> None:
        for source, prefix, scores in self._answers():
            row = read_row(scores, 0, self.vocab_size)
            broken = np.flatnonzero(np.isnan(row) | (row == np.inf)).tolist()
            assert not broken, (
                f"a score must be a number or -inf: token {broken[0]} scores {row[broken[0]]} {where(source, prefix)}"
            )
            for sparse in sparse_rows(scores):
                assert sparse.default < np.inf, (
                    f"a default must be a number or -inf, not {sparse.default} {where(source, prefix)}"
                )

    def test_a_sparse_row_lists_each_token_once(self) -> None:
        for source, prefix, scores in self._answers():
            for row in sparse_rows(scores):
                tokens = plain_tokens(row.tokens)
                assert len(set(tokens)) == len(tokens), (
                    f"a row must list each token once, not {sorted(tokens)} {where(source, prefix)}"
                )
                assert len(tokens) == len(plain(row.scores)), (
                    f"a row must have one score per token: {len(tokens)} tokens, {len(row.scores)} scores "
                    f"{where(source, prefix)}"
                )

    def test_predict_next_may_be_called_never_once_or_often(self) -> None:
        for source, prefix in self._prefixes:
            never, often = self._begin(source), self._begin(source)
            for t, token in enumerate(prefix):
                rows = [ask(often, self.vocab_size) for _ in range(3)]
                self._same(rows[0], rows[2], "predict_next must return the same if called again", source, prefix[:t])
                never.consume(token)
                often.consume(token)
            self._same(
                ask(often, self.vocab_size),
                ask(never, self.vocab_size),
                "predict_next must change nothing: called before each consume, and never called",
                source,
                prefix,
            )

    def test_restoring_a_state_restores_its_scores(self) -> None:
        for source, prefix in self._prefixes:
            predictor = self._begin(source)
            states, rows = self._visit(predictor, prefix)
            for t in self._rng().permutation(len(states)).tolist():
                predictor.set_state(states[t])
                again = ask(predictor, self.vocab_size)
                self._same(rows[t], again, "a restored state must score as before", source, prefix[:t])
                if t < len(prefix):  # also check the next state, reached from the restored one
                    predictor.consume(prefix[t])
                    again = ask(predictor, self.vocab_size)
                    what = "consume after set_state must lead to the same state as before"
                    self._same(rows[t + 1], again, what, source, prefix[: t + 1])

    def test_a_state_is_a_value_that_later_calls_leave_alone(self) -> None:
        for source, prefix in self._prefixes:
            predictor = self._begin(source)
            states, images = [], []
            for token in (*prefix, None):
                states.append(predictor.get_state())
                images.append(snapshot(states[-1]))
                ask(predictor, self.vocab_size)
                if token is not None:
                    predictor.consume(token)
            for t, (state, image) in enumerate(zip(states, images, strict=True)):
                now = snapshot(state)
                assert now == image, (
                    f"later calls must not change a state: {image} became {now} "
                    f"{where(source, prefix[:t])}"
                )

    def test_setting_the_state_just_got_changes_nothing(self) -> None:
        for source, prefix in self._prefixes:
            left_alone, restored = self._begin(source), self._begin(source)
            for t, token in enumerate((*prefix, None)):
                restored.set_state(restored.get_state())
                first, second = ask(left_alone, self.vocab_size), ask(restored, self.vocab_size)
                what = "set_state(get_state()) must change nothing"
                self._same(first, second, what, source, prefix[:t])
                if token is not None:
                    left_alone.consume(token)
                    restored.consume(token)

    def test_initialize_starts_a_sentence_afresh(self) -> None:
        """Also if the previous sentence was abandoned in the middle."""
        predictor = self._simple()
        walks = list(zip(self._prefixes, self._rows, strict=True))
        for (source, prefix), fresh in walks * 2:
            for part in (prefix, prefix[: len(prefix) // 2]):
                predictor.initialize(source)
                _, rows = self._visit(predictor, part)
                for t, row in enumerate(rows):
                    what = "initialize must forget the previous sentence"
                    self._same(fresh[t], row, what, source, part[:t])

    def test_sentences_in_flight_do_not_disturb_each_other(self) -> None:
        predictor = lift(self.make())
        states = [predictor.initialize_batch([source])[0] for source, _ in self._prefixes]
        self._compare(
            self._walk(predictor, states, together=False),
            "initialize must assign the data of a sentence and never change that of others: "
            "alone, and with other sentences in between",
        )

    def test_a_batch_says_what_single_prefixes_say(self) -> None:
        self._compare(self._walk(lift(self.make())), "row i of a batch must equal the simple form for state i")

    def test_a_batch_of_single_prefixes_says_what_single_prefixes_say(self) -> None:
        predictor = lift(Lowered(lift(self.make())))
        promise = "a predictor must return the same through its simple form and its batch form"
        self._compare(self._walk(predictor), promise)

    def test_inside_a_wrapper_it_says_the_same(self) -> None:
        predictor = PassThrough(lift(self.make()))
        self._compare(
            self._walk(predictor), "a predictor must return the same inside a wrapper that changes nothing"
        )

    def test_two_fresh_instances_agree(self) -> None:
        first, second = self.make(), self.make()
        assert first is not second, "make must return a new predictor each time"
        self._compare(self._walk(lift(second)), "two predictors with equal options must agree")

    def test_candidates_score_as_they_do_among_all_tokens(self) -> None:
        rng = self._rng()
        for source, prefix in self._prefixes:
            predictor = self._begin(source)
            for token in prefix:
                predictor.consume(token)
            full = ask(predictor, self.vocab_size)
            single = [[token] for token in range(self.vocab_size)] if self.vocab_size <= 64 else []
            some = [np.flatnonzero(rng.random(self.vocab_size) < share).tolist() for share in (0.2, 0.5, 0.9)]
            for candidates in [[], [EOS], *some, *single]:
                row = ask(predictor, self.vocab_size, candidates)
                what = "a candidate must have the same score as without candidates"
                self._same(full, row, what, source, prefix, candidates)
            what = "candidates must not change what later calls return"
            self._same(full, ask(predictor, self.vocab_size), what, source, prefix)

    def test_each_row_of_a_batch_has_candidates_of_its_own(self) -> None:
        predictor = lift(self.make())
        sources = self.sources
        states = predictor.initialize_batch(sources)
        full = predictor.predict_batch(states)
        wanted = [None if i % 3 == 2 else list(range(i % 2, self.vocab_size, 2)) for i in range(len(sources))]
        some = predictor.predict_batch(states, wanted)
        for i, source in enumerate(sources):
            first, second = read_row(full, i, self.vocab_size), read_row(some, i, self.vocab_size)
            what = "each row of a batch must use its own candidates"
            self._same(first, second, what, source, (), wanted[i])

    def test_rows_said_to_be_independent_are_equal_bit_for_bit(self) -> None:
        """If ``independent_rows`` is set: one prefix of each sentence, alone and in a batch."""
        predictor = lift(self.make())
        walks = list({source.id: (source, prefix) for source, prefix in self._prefixes}.values())
        if not predictor.independent_rows:
            return
        together = predictor.initialize_batch([source for source, _ in walks])
        alone = [predictor.initialize_batch([source])[0] for source, _ in walks]
        active = list(range(len(walks)))
        for t in range(self.walk_length + 1):
            scores = predictor.predict_batch([together[i] for i in active])
            for place, i in enumerate(active):
                row = read_row(scores, place, self.vocab_size)
                same = np.array_equal(row, read_row(predictor.predict_batch([alone[i]]), 0, self.vocab_size))
                assert same, f"independent rows must be the same alone and in a batch, bit for bit: {walks[i]}"
            active = [i for i in active if t < len(walks[i][1])]
            if not active:
                return
            tokens = [walks[i][1][t] for i in active]
            after = predictor.consume_batch([together[i] for i in active], tokens)
            for i, token, state in zip(active, tokens, after, strict=True):
                together[i], alone[i] = state, predictor.consume_batch([alone[i]], [token])[0]

    # Helpers.

    def _visit(self, predictor: Predictor, prefix: Sequence[int]) -> tuple[list[State], list[Row]]:
        """The states and rows before the first token of a prefix and after each of its tokens."""
        states, rows = [predictor.get_state()], [ask(predictor, self.vocab_size)]
        for token in prefix:
            predictor.consume(token)
            states.append(predictor.get_state())
            rows.append(ask(predictor, self.vocab_size))
        return states, rows

    @Shared
    def _rows(self) -> list[list[Row]]:
        """For each prefix the rows of a fresh predictor that sees only this prefix."""
        return [self._visit(self._begin(source), prefix)[1] for source, prefix in self._prefixes]

    def _answers(self) -> Iterator[tuple[Source, tuple[int, ...], Scores]]:
        """The scores after every prefix, once for all tokens and once for two candidates."""
        for source, whole in self._prefixes:
            predictor = self._begin(source)
            for t, token in enumerate((*whole, None)):
                yield source, whole[:t], predictor.predict_next()
                yield source, whole[:t], predictor.predict_next(sorted({EOS, self.vocab_size - 1}))
                if token is not None:
                    predictor.consume(token)

    def _walk(
        self, predictor: BatchPredictor, states: list[State] | None = None, *, together: bool = True
    ) -> list[list[Row]]:
        """For each prefix its rows. All prefixes advance together, in one batch, or in turn one by one.

        The order changes at each step, so that rows and states change their positions in batches.
        """
        walks = self._prefixes
        if states is None:
            roots = predictor.initialize_batch(self.sources)
            states = [roots[list(self.sources).index(source)] for source, _ in walks]
        found: list[list[Row]] = [[] for _ in walks]
        active = list(range(len(walks)))
        for t in range(self.walk_length + 1):
            for batch in _batches(active, together):
                scores = predictor.predict_batch([states[i] for i in batch])
                assert len(scores) == len(batch), (
                    f"a batch must have one row per state: {len(batch)} states, {len(scores)} rows"
                )
                for place, i in enumerate(batch):
                    found[i].append(read_row(scores, place, self.vocab_size))
            active = [i for i in reversed(active) if t < len(walks[i][1])]
            for batch in _batches(active, together):
                tokens = [walks[i][1][t] for i in batch]
                after = predictor.consume_batch([states[i] for i in batch], tokens)
                for i, state in zip(batch, after, strict=True):
                    states[i] = state
        return found

    def _compare(self, found: list[list[Row]], promise: str) -> None:
        """Compare the rows of each walk with those of a fresh predictor that sees only this prefix."""
        for (source, prefix), expected, rows in zip(self._prefixes, self._rows, found, strict=True):
            for t, (first, second) in enumerate(zip(expected, rows, strict=True)):
                self._same(first, second, promise, source, prefix[:t])


def _batches(active: list[int], together: bool) -> list[list[int]]:
    """One batch of all, or one batch for each; no batch is empty."""
    if together:
        return [active] if active else []
    return [[i] for i in active]

"""Left-to-right Hiero: the translations that a synchronous grammar derives (Siahbani, Sankaran and Sarkar 2013).

The grammar derives ``<s> source </s>`` from ``S``; rules usually have target sides in Greibach normal form, with
tokens before non-terminals, but all other rules are handled exactly too. The score of a derivation is the sum of its
rules' scores. Let V(prefix) be the best score of all derivations that begin with a prefix, counting only the rules
that the prefix needs. Then

    score(w | prefix) = V(prefix w) - V(prefix)

so that a total is the score of the best derivation of the hypothesis. A token that is next in no derivation is
forbidden. ``<s>`` is not a token of the output; its score is added to that of the first token.

State: all derivations that agree with the prefix, each a stack of its remaining items
(`sgdec_predictors.hiero.chart`) with its score relative to the best one; among equal stacks the best is kept. Cost:
per sentence a chart, cubic in the length and linear in the grammar for rules with two non-terminals; then a look-up
per stack after its first visit. Suitable for small grammars. It has no relaxation: its own bound is the exact score
of the best completion, and the best scores of rules that begin with a token are a looser one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

import sgdec
from sgdec import BOS, EOS, Context, Predictor, Scores, SgdecError, Source
from sgdec.protocol import FORBIDDEN, Candidates
from sgdec_predictors.hiero.chart import Chart, Stack
from sgdec_predictors.hiero.grammar import read_rules

START = "S"

State: TypeAlias = tuple[tuple[Stack, float], ...]


class LeftToRightHiero(Predictor):
    """Allows the outputs that the grammar derives from the source; a token's score is the change of the best
    derivation's score.

    >>> import os, tempfile
    >>> rules = "S 1_X1_2 1_X1_2 0\\nX 10_X1 X1_20 -0.5\\nX 11 21 -1\\nX 10_11 22 -2\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "rules")
    ...     with open(path, "w") as file:
    ...         _ = file.write(rules)
    ...     predictor = LeftToRightHiero(path)
    >>> predictor.initialize(Source(id=1, tokens=(10, 11)))
    >>> predictor.predict_next().rows
    [SparseRow({22: -2.0, 21: -1.0}, default=-inf)]
    >>> predictor.consume(21)
    >>> predictor.predict_next().rows
    [SparseRow({20: -0.5}, default=-inf)]
    """

    def __init__(
        self,
        path: Annotated[str, Field(description="rules, one per line: LHS SOURCE TARGET SCORE..., may be gzipped")],
        use_weights: Annotated[bool, Field(description="false: every rule scores 0")] = True,
        weights: Annotated[
            tuple[float, ...], Field(description="weights of the score columns of rules; none = their plain sum")
        ] = (),
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the file cannot be read, or has no rule for ``S``."""
        self._path = path
        try:
            rules = read_rules(path, weights or None, context.vocab_size if context else None)
        except SgdecError as error:
            raise SgdecError(f"lrhiero: {error}") from None
        if not any(rule.name == START for rule in rules):
            raise SgdecError(f"lrhiero: {path}: there is no rule for {START}, from which all derivations start.")
        self._rules = rules if use_weights else [rule._replace(score=0.0) for rule in rules]
        self._chart = Chart((), ())
        self._state: State = ()

    def initialize(self, source: Source) -> None:
        """Raises SgdecError if a cycle of rules has a gain."""
        try:
            self._chart = Chart(self._rules, (BOS, *source.tokens, EOS))
        except SgdecError as error:
            raise SgdecError(f"lrhiero: {self._path}: {error} (sentence {source.id})") from None
        stack = self._chart.stack(START)
        before = {} if stack is None else self._chart.ways(stack).tokens.get(BOS, {})
        self._state = tuple(before.items())

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        best: dict[int, float] = {}
        for stack, more in self._state:
            for token, stacks in self._chart.ways(stack).tokens.items():
                for after, score in stacks.items():
                    if token == EOS:
                        score += self._chart.ways(after).end
                    if more + score > best.get(token, FORBIDDEN):
                        best[token] = more + score
        return Scores.sparse(list(best), list(best.values()))

    def consume(self, token: int) -> None:
        best: dict[Stack, float] = {}
        for stack, more in self._state:
            for after, score in self._chart.ways(stack).tokens.get(token, {}).items():
                best[after] = max(best.get(after, FORBIDDEN), more + score)
        highest = max(best.values(), default=0.0)
        self._state = tuple((stack, score - highest) for stack, score in best.items())

    def get_state(self) -> State:
        return self._state

    def set_state(self, state: State) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        """The exact best score of completing any derivation, if the length limit does not prevent it."""
        return [max((more + self._chart.best(stack) for stack, more in state), default=FORBIDDEN) for state in states]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return [frozenset(state) for state in states]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"lrhiero": LeftToRightHiero}

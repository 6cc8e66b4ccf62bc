"""Random walks through the tokens that a predictor allows: prefixes, and completions of a prefix up to ``</s>``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor, Source, State
from sgdec.testing.reading import Row, ask, read_row

FAR = 40
"""The length of long walks."""


class Visit(NamedTuple):
    """A prefix on a walk, with the predictor's state and scores after it."""

    prefix: tuple[int, ...]
    state: State
    row: Row


Next: TypeAlias = Callable[[Row, int], int | None]
"""A function that chooses the token after a prefix, given its row and its length; None = stop."""


def can_follow(row: Row, tokens: Collection[int] | None) -> list[int]:
    """The tokens other than ``</s>`` that a row allows, among ``tokens`` if given."""
    allowed = (row != FORBIDDEN).nonzero()[0].tolist()
    return [token for token in allowed if token != EOS and (tokens is None or token in tokens)]


def any_of(choice: Sequence[int], rng: np.random.Generator) -> int:
    """A random item: the one that ``rng.choice`` would draw, without the array that it makes of a list."""
    return choice[int(rng.integers(len(choice)))]


def random_prefix(
    predictor: Predictor,
    source: Source,
    vocab_size: int,
    length: int,
    rng: np.random.Generator,
    tokens: Collection[int] | None = None,
) -> tuple[int, ...]:
    """A random prefix of at most ``length`` tokens that the predictor allows, without ``</s>``."""
    predictor.initialize(source)
    prefix: list[int] = []
    while len(prefix) < length:
        choice = can_follow(ask(predictor, vocab_size), tokens)
        if not choice:
            break
        prefix.append(any_of(choice, rng))
        predictor.consume(prefix[-1])
    return tuple(prefix)


def visits(predictor: BatchPredictor, source: Source, choose: Next, vocab_size: int) -> Iterator[Visit]:
    """A walk from the empty prefix. It ends if ``choose`` returns None or the token is not allowed."""
    prefix: tuple[int, ...] = ()
    (state,) = predictor.initialize_batch([source])
    while True:
        row = read_row(predictor.predict_batch([state]), 0, vocab_size)
        yield Visit(prefix, state, row)
        token = choose(row, len(prefix)) if len(prefix) != source.max_length else None
        if token is None or row[token] == FORBIDDEN:
            return
        prefix = (*prefix, token)
        (state,) = predictor.consume_batch([state], [token])


def follow(tokens: Sequence[int]) -> Next:
    """A walk along these tokens."""
    return lambda row, length: tokens[length] if length < len(tokens) else None


def go_far(rng: np.random.Generator, sign: int, tokens: Collection[int] | None = None) -> Next:
    """A walk of `FAR` tokens: three out of four have the highest (``sign`` = 1) or lowest (-1) score, others any."""

    def choose(row: Row, length: int) -> int | None:
        choice = can_follow(row, tokens) if length < FAR else []
        if choice and rng.random() < 0.75:
            return max(choice, key=lambda token: sign * float(row[token]))
        return any_of(choice, rng) if choice else None

    return choose


def completions(
    predictor: BatchPredictor,
    states: Sequence[State],
    left: Sequence[int],
    vocab_size: int,
    rng: np.random.Generator,
    *,
    sign: int,
    tries: int,
    tokens: Collection[int] | None = None,
) -> Iterator[list[float | None]]:
    """For each state the score that one random completion adds, ``tries`` times; None if a walk found no ``</s>``.

    ``left``: for each state the most tokens before ``</s>``. The first walk always takes the token with the highest
    (``sign`` = 1) or lowest (-1) score. Half of the other walks do so at about every second step, and half of them
    tend to end early.
    """
    for attempt in range(tries):
        added: list[float | None] = [0.0] * len(states)
        current, room, active = list(states), list(left), list(range(len(states)))
        while active:
            scores = predictor.predict_batch([current[i] for i in active])
            chosen: list[tuple[int, int]] = []  # state, token
            for place, i in enumerate(active):
                row = read_row(scores, place, vocab_size)
                token = _choose(row, room[i], rng, sign, attempt, tokens)
                so_far = added[i]
                added[i] = None if token is None or so_far is None else so_far + float(row[token])
                if token is not None and token != EOS:
                    chosen.append((i, token))
            active = [i for i, _ in chosen]
            if active:
                after = predictor.consume_batch([current[i] for i in active], [token for _, token in chosen])
                for i, state in zip(active, after, strict=True):
                    current[i] = state
                    room[i] -= 1
        yield added


def _choose(
    row: Row, room: int, rng: np.random.Generator, sign: int, attempt: int, tokens: Collection[int] | None
) -> int | None:
    choice = can_follow(row, tokens) if room > 0 else []
    if row[EOS] != FORBIDDEN:
        if attempt % 2:
            return EOS if not choice or rng.random() < 0.5 else any_of(choice, rng)
        choice.append(EOS)
    if not choice:
        return None
    if attempt == 0 or rng.random() < 0.5:
        return max(choice, key=lambda token: sign * float(row[token]))
    return any_of(choice, rng)

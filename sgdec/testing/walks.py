"""Walking through what a predictor allows: random prefixes, and random ways from a prefix to ``</s>``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor, Source, State
from sgdec.testing.reading import Row, ask, read_row


def can_follow(row: Row, tokens: Collection[int] | None) -> list[int]:
    """The tokens other than ``</s>`` that a row allows, among ``tokens`` if given."""
    return [
        token
        for token in np.flatnonzero(row != FORBIDDEN).tolist()
        if token != EOS and (tokens is None or token in tokens)
    ]


def random_prefix(
    predictor: Predictor,
    source: Source,
    vocab_size: int,
    length: int,
    rng: np.random.Generator,
    tokens: Collection[int] | None = None,
) -> tuple[int, ...]:
    """At most ``length`` tokens that the predictor allows one after the other, without ``</s>``."""
    predictor.initialize(source)
    prefix: list[int] = []
    while len(prefix) < length:
        choice = can_follow(ask(predictor, vocab_size), tokens)
        if not choice:
            break
        prefix.append(int(rng.choice(choice)))
        predictor.consume(prefix[-1])
    return tuple(prefix)


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
    """For each state what one way to ``</s>`` adds, ``tries`` times; None where a walk came to no end.

    ``left``: the most tokens before ``</s>``. The first walk always takes the highest (``sign`` = 1) or lowest
    (-1) score, half of the others do so at every second step or so, and half of them tend to end early.
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
            return EOS if not choice or rng.random() < 0.5 else int(rng.choice(choice))
        choice.append(EOS)
    if not choice:
        return None
    if attempt == 0 or rng.random() < 0.5:
        return max(choice, key=lambda token: sign * float(row[token]))
    return int(rng.choice(choice))

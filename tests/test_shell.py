"""The promise: Algorithms 1 and 2 of Stahlberg et al. 2017, typed in as printed, find what the decoders find."""

from __future__ import annotations

import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec.context import BOS, EOS
from sgdec.decoder import Decoder
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from sgdec.shell import Shell
from sgdec.testing import TinySpace, tiny_spaces

SPACES = [tiny for tiny in tiny_spaces() if not tiny.empty]


def greedy(shell: Shell) -> tuple[int, ...] | None:
    """Algorithm 1, Greedy(src_sen). None where nothing can follow: the paper has no such case."""
    shell.initialize()  # 1
    h: tuple[int, ...] = (BOS,)  # 2
    while True:  # 3
        P = shell.predict_next()  # 4
        if not P:
            return None
        t, _ = max(P.items(), key=lambda item: item[1])  # 5
        h = (*h, t)  # 6
        shell.consume(t)  # 7
        if t == EOS:  # 8
            return h  # 9


def beam(shell: Shell, n: int) -> tuple[tuple[int, ...], float] | None:
    """Algorithm 2, Beam(n, src_sen). The paper's sets are lists: ties go by order.

    Beside it, what our beam search adds: a finished hypothesis that H has lost, where that one is better.
    """
    Hypothesis = tuple[tuple[int, ...], float, Node]
    shell.initialize()  # 1
    H: list[Hypothesis] = [((BOS,), 0.0, shell.get_state())]  # 2
    finished: list[tuple[tuple[int, ...], float]] = []
    while True:  # 3
        H_next: list[Hypothesis] = []  # 4
        for h, c, s in H:  # 5
            shell.set_state(s)  # 6
            P = shell.predict_next()  # 7
            H_next += [((*h, t_), c + c_, s) for t_, c_ in P.items()]  # 8
        H = []  # 10
        for h, c, s in sorted(H_next, key=lambda hypothesis: -hypothesis[1])[:n]:  # 11
            shell.set_state(s)  # 12
            shell.consume(h[-1])  # 13
            H.append((h, c, shell.get_state()))  # 14
        if not H or H[0][0][-1] == EOS:  # 16
            found = [(h, c) for h, c, _ in H[:1]] + finished
            return max(found, key=lambda hypothesis: hypothesis[1], default=None)  # 17
        finished += [(h, c) for h, c, _ in H if h[-1] == EOS]


def space(tiny: TinySpace) -> SearchSpace:
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    return SearchSpace(constellation, root)


def found_by(decoder: Decoder, tiny: TinySpace) -> tuple[tuple[int, ...], float] | None:
    result = decoder.decode(space(tiny))
    return (result.hypotheses[0].tokens, result.hypotheses[0].score) if result.hypotheses else None


def without_ends(h: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens without <s>, </s> and what the shell absorbed after it."""
    return h[1 : h.index(EOS)]


@pytest.mark.parametrize("tiny", SPACES, ids=lambda tiny: tiny.name)
def test_algorithm_1_agrees_with_greedy_and_with_a_beam_of_one(tiny: TinySpace) -> None:
    h = greedy(Shell(space(tiny)))
    for decoder in (GreedyDecoder(), BeamDecoder(size=1)):
        found = found_by(decoder, tiny)
        assert (found and found[0]) == (h and without_ends(h))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("tiny", SPACES, ids=lambda tiny: tiny.name)
def test_algorithm_2_agrees_with_beam(tiny: TinySpace, n: int) -> None:
    expected = beam(Shell(space(tiny)), n)
    found = found_by(BeamDecoder(size=n, stop="best"), tiny)
    if expected is None:
        assert found is None
    else:
        assert found is not None and found[0] == without_ends(expected[0])
        assert found[1] == pytest.approx(expected[1])


@pytest.fixture
def shell() -> Shell:
    return Shell(space(next(tiny for tiny in SPACES if tiny.name == "lattice and model")))


def test_after_the_end_the_shell_absorbs_and_asks_no_predictor(shell: Shell) -> None:
    for token in (3, 4, EOS):
        shell.consume(token)
    node = shell.get_state()
    for _ in range(3):
        assert shell.predict_next() == {EOS: 0.0}
        shell.consume(EOS)
    assert shell.get_state() is node and node.tokens == (3, 4, EOS)


def test_a_token_that_cannot_follow_cannot_be_consumed(shell: Shell) -> None:
    with pytest.raises(KeyError):
        shell.consume(EOS)


def test_predict_next_may_be_asked_never_or_often(shell: Shell) -> None:
    often = shell
    never = Shell(space(next(tiny for tiny in SPACES if tiny.name == "lattice and model")))
    for token in (4, 0):
        assert often.predict_next() == often.predict_next()
        often.consume(token)
        never.consume(token)
    assert never.predict_next() == often.predict_next()


def test_restoring_a_state_restores_its_predictions(shell: Shell) -> None:
    shell.consume(3)
    state, predictions = shell.get_state(), shell.predict_next()
    shell.consume(4)
    other = shell.predict_next()
    shell.set_state(state)
    assert shell.predict_next() == predictions != other
    shell.initialize()
    assert set(shell.predict_next()) == {0, 3, 4}

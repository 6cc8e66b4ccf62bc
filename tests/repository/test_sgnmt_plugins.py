"""The promise: the plugins of docs/howto/from-sgnmt-plugins.md do in random spaces what the page says of them.

The page's own tests run with all code blocks. The references here use only the scores of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, cached_property
from itertools import permutations, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from sgdec_predictors.forcedlst import ForcedList

import sgdec
from sgdec import EOS, UNK, Constellation, Decoder, Predictor, Scores, SgdecError, Source, UsageError
from sgdec.found import Found
from sgdec.testing import Table, enumerate_space
from tests.helpers.breadth import examples
from tests.helpers.page_plugins import registered

Prefix: TypeAlias = tuple[int, ...]
Scored: TypeAlias = tuple[float, Prefix]


class Tree(Predictor):
    """A score for each token after each prefix, at random; some are forbidden."""

    max_score = 1.0

    def __init__(self, seed: int, size: int) -> None:
        self.seed, self.size = seed, size
        self.prefix: Prefix = ()
        self.row = cache(self._row)

    def _row(self, prefix: Prefix) -> Any:
        """``[V]``: the scores after a prefix."""
        rng = np.random.default_rng([self.seed, *(token + 1 for token in prefix)])  # zeros at the end change nothing
        scores = rng.uniform(-2.5, 1.0, self.size)
        scores[rng.random(self.size) < 0.1] = -math.inf
        return scores

    def initialize(self, source: Source) -> None:
        self.prefix = ()

    def predict_next(self, candidates: Any = None) -> Scores:
        return Scores.dense(self.row(self.prefix))

    def consume(self, token: int) -> None:
        self.prefix = (*self.prefix, token)

    def get_state(self) -> Prefix:
        return self.prefix

    def set_state(self, state: Prefix) -> None:
        self.prefix = state


class Space:
    """A random space: tokens 0 to V - 1, at most ``limit`` of them before ``</s>``."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.limit, self.model = int(rng.integers(1, 5)), Tree(seed, int(rng.integers(4, 6)))

    def decode(self, decoder: Decoder | str, nbest: int = 1) -> Found:
        (found,) = sgdec.load({"model": self.model}, decoder, max_length=self.limit, nbest=nbest).decode([[3]])
        return found

    @cached_property
    def paths(self) -> list[Scored]:
        """All hypotheses, best first."""
        space = enumerate_space(Constellation.of({"model": self.model}), Source(1, (3,), max_length=self.limit))
        return [(path.total, path.tokens) for path in space]

    def children(self, total: float, prefix: Prefix) -> list[Scored]:
        """The children of a prefix, best first."""
        row = self.model.row(prefix)
        tokens = range(len(row)) if len(prefix) < self.limit else [EOS]
        return sorted(((total + row[t], (*prefix, t)) for t in tokens if row[t] > -math.inf), reverse=True)


SPACES = [Space(seed) for seed in range(examples(45))]


def same(found: Found, expected: list[Scored]) -> None:
    assert np.allclose([each.score for each in found.hypotheses], [total for total, _ in expected])
    assert {each.tokens for each in found.hypotheses} == {tokens for _, tokens in expected}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("size", "each"), [(1, 1), (2, 1), (2, 2), (999, 1), (999, 3)])
def test_lenbeam_lists_the_best_of_each_length_that_its_beam_meets(space: Space, size: int, each: int) -> None:
    beam: list[Scored] = [(0.0, ())]
    expected: list[Scored] = []
    while beam:
        children = sorted((child for prefix in beam for child in space.children(*prefix)), reverse=True)
        expected += [(total, path[:-1]) for total, path in children if path[-1] == EOS][:each]
        beam = [child for child in children if child[1][-1] != EOS][:size]
    same(space.decode(registered("lenbeam")(size, each), nbest=999), sorted(expected, reverse=True))
    if size == 999:
        lengths = {len(tokens) for _, tokens in space.paths}
        whole = [[path for path in space.paths if len(path[1]) == n][:each] for n in lengths]
        assert sorted(path for paths in whole for _, path in paths) == sorted(path for _, path in expected)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("nbest", [1, 4])
def test_dfs_above_finds_what_reaches_the_bound(space: Space, nbest: int, tmp_path: Path) -> None:
    paths = space.paths
    for bound in [*(total for total, _ in paths[:5]), -99.0]:
        (tmp_path / "bounds.txt").write_text(f"{bound:.4f}\n")
        found = space.decode(registered("dfs-above")(str(tmp_path / "bounds.txt")), nbest)
        expected = [path for path in paths if path[0] > bound - 1e-3][:nbest]
        same(found, expected)
        assert found.proven is (True if len(expected) == nbest else None)


def test_dfs_above_says_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "bounds.txt"
    for line in ("x", "nan", "inf", "1 2"):
        path.write_text(f"-1\n{line}\n")
        with pytest.raises(SgdecError, match=rf"bounds.txt: line 2: '{line}' is not a score"):
            registered("dfs-above")(str(path))
    path.write_text("9\n")
    run = sgdec.load({"model": Table(np.zeros((4, 4)))}, registered("dfs-above")(str(path)), max_length=2)
    first, second = run.decode([[3], [3]])
    assert "line 1: no output reaches 9" in str(first.error)
    assert "has 1 lines, and none for sentence 2" in str(second.error)


def greedy(space: Space, total: float, prefix: Prefix) -> float:
    while prefix[-1] != EOS:
        children = space.children(total, prefix)
        if not children:
            return -math.inf
        total, prefix = children[0]
    return total


UNIGRAMS = {3: -0.5, 4: -1.5, EOS: 0.25}
WORTH: dict[str, Callable[[Space, float, Prefix], float]] = {
    "greedy": greedy,
    "scoreperword": lambda space, total, prefix: total / len(prefix),
    "lasttoken": lambda space, total, prefix: space.model.row(prefix[:-1])[prefix[-1]],
    "stats": lambda space, total, prefix: total - sum(UNIGRAMS.get(token, 0.0) for token in prefix),
}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("by", WORTH)
@pytest.mark.parametrize("size", [2, 9])
def test_inadmissible_takes_the_prefix_of_most_worth_next(
    space: Space, by: str, size: int, tmp_path: Path
) -> None:
    queue: list[tuple[float, float, Prefix]] = [(0.0, 0.0, ())]
    expected: list[Scored] = []
    while queue and len(expected) < 2:
        queue.sort()
        _, total, prefix = queue.pop()
        if prefix[-1:] == (EOS,):
            expected.append((total, prefix[:-1]))
            continue
        for child in space.children(total, prefix)[:size]:
            if (worth := WORTH[by](space, *child)) > -math.inf:
                queue.append((worth, *child))
    (tmp_path / "scores").write_text("".join(f"{token} {score}\n" for token, score in UNIGRAMS.items()))
    scores = str(tmp_path / "scores") if by == "stats" else ""
    decoder = registered("inadmissible")(by, size, max_expansions=0, scores=scores)
    found = space.decode(decoder, nbest=2)
    same(found, sorted(expected, reverse=True))
    assert found.proven is None


def test_inadmissible_warns_and_misses_the_best() -> None:
    missed = [
        by
        for by in ("greedy", "scoreperword", "lasttoken")
        for space in SPACES
        if (found := space.decode(registered("inadmissible")(by))).hypotheses
        and found.best.score < space.paths[0][0] - 1e-6
    ]
    assert set(missed) == {"greedy", "scoreperword", "lasttoken"}
    assert "can miss the best" in registered("inadmissible")("greedy").caveat(1, True)


def test_inadmissible_says_what_is_wrong_with_its_options(tmp_path: Path) -> None:
    for by, scores in [("stats", ""), ("greedy", "scores")]:
        with pytest.raises(UsageError, match=r"stats reads --inadmissible\.scores FILE"):
            registered("inadmissible")(by, scores=scores)
    for text in ("3", "a -1", "3 x", "3 -1 4"):
        (tmp_path / "scores").write_text(text)
        with pytest.raises(SgdecError, match="scores: cannot be read as lines of a token and its score"):
            registered("inadmissible")("stats", scores=str(tmp_path / "scores"))


def total(table: Any, order: Prefix) -> float:
    return float(sum(table[pair] for pair in zip((1, *order), (*order, EOS), strict=True)))


@pytest.mark.parametrize("strategy", ["move", "flip"])
def test_flip_steps_from_order_to_order(strategy: str) -> None:
    """Steps are those of the definition, and connect all orders."""
    words = (3, 4, 5, 3)
    expected = set()
    for i, j in product(range(4), repeat=2):
        order = list(words)
        if strategy == "move":
            order.insert(j, order.pop(i))
        else:
            order[i], order[j] = order[j], order[i]
        expected.add(tuple(order))
    steps = registered("flip")(strategy).neighbours
    assert set(steps(words)) | {words} == expected
    reached = {words}
    while (more := reached | {order for reached_one in reached for order in steps(reached_one)}) != reached:
        reached = more
    assert reached == set(permutations(words))


@pytest.mark.parametrize("strategy", ["move", "flip"])
@pytest.mark.parametrize("seed", range(examples(9)))
def test_flip_finds_the_best_orders_and_is_never_worse_than_greedy(strategy: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    table, bag = rng.normal(-1.0, 1.0, (8, 8)), tuple(rng.integers(3, 8, size=5).tolist())
    (tmp_path / "bags").write_text(" ".join(map(str, bag)))
    found = {}
    for name, decoder in [
        ("whole", registered("flip")(strategy, max_expansions=0)),
        ("short", registered("flip")(strategy, max_expansions=7)),
        ("greedy", "greedy"),
    ]:
        bow = {"path": str(tmp_path / "bags")}
        run = sgdec.load({"bow": "bow", "model": Table(table)}, decoder, max_length=5, nbest=4, bow=bow)
        (found[name],) = run.decode([[3]])
    orders = {"whole": set(permutations(bag))}
    steps = registered("flip")(strategy).neighbours(found["greedy"].best.tokens)
    orders["short"] = {found["greedy"].best.tokens, *steps}  # one round
    for name, expected in orders.items():
        totals = sorted((total(table, order) for order in expected), reverse=True)
        assert np.allclose([each.score for each in found[name].hypotheses], totals[:4])
        assert {each.tokens for each in found[name].hypotheses} <= expected and found[name].proven is None


@pytest.mark.parametrize("seed", range(examples(24)))
def test_unkvocab_lets_unknown_words_stand_for_words_beyond_the_vocabulary(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    lists = {tuple(rng.choice([0, 3, 4, 5], size=rng.integers(0, 4)).tolist()) for _ in range(3)}
    (tmp_path / "list").write_text("".join(f"1 ||| {' '.join(map(str, words))} ||| ||| -1\n" for words in lists))
    inner = ForcedList(str(tmp_path / "list"), match_unk=True)
    space = Constellation.of({"unkvocab": registered("unkvocab")(inner, size=5)}, vocab_size=7)

    def follows(prefix: Prefix, token: int) -> bool:
        n = len(prefix)
        like = [w for w in lists if len(w) >= n and all(w[i] in (prefix[i], UNK) for i in range(n))]
        if token == EOS:
            return any(len(words) == n for words in like)
        row = {words[n] for words in like if len(words) > n}
        return token in row or (UNK in row and token >= 5)

    expected = {
        words
        for length in range(4)
        for words in product([0, *range(3, 7)], repeat=length)
        if all(follows(words[:i], token) for i, token in enumerate((*words, EOS)))
    }
    assert {path.tokens for path in enumerate_space(space, Source(1, (3,), max_length=4))} == expected

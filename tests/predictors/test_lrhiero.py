"""Left-to-right Hiero allows exactly what a grammar derives, each translation with the score of its best derivation.

Oracle: all strings of every non-terminal over every part of the source, by rounds of brute force until none is new.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_predictors.hiero.grammar import Gap, Rule, read_rules
from sgdec_predictors.lrhiero import LeftToRightHiero

from sgdec import BOS, EOS, Context, SearchSpace, SgdecError, Source
from sgdec.plugins.options import configure
from sgdec.search.constellation import Constellation
from sgdec.testing import enumerate_space
from tests.helpers.breadth import examples
from tests.helpers.contracts import PluginContract, SearchContract

pytestmark = pytest.mark.slow

V = 5
GLUE = "S X1 X1 0\nS S1_X2 S1_X2 -0.125\nX 1 1 0\nX 2 2 0\n"
TOY = (
    GLUE
    + """X 3 3 -1.0
X 4 4 -0.5
X 3_4 0_3 -0.83
X 3_X1 4_X1 -0.31
X 4_X1_3 4_4_X1 -0.22
X 3 <dr> -1.5
X 4 0_4 -0.47
X 3_X1_4 X1_3 -0.1
X 3_X1_4_X2 0_X2_X1 -0.6
"""
)
SIDES = ("3", "4", "3_4", "4_4", "3_3_4", "X1", "S1", "X1_X2", "3_X1", "X1_4", "S1_3_X2", "3_X1_4", "X1_3_X2")
"""Source sides of random rules."""


def strings(rules: Sequence[Rule], source: Sequence[int], longest: int) -> dict[tuple[int, ...], float]:
    """What ``S`` derives over all of ``<s> source </s>``, at most ``longest`` tokens; best scores."""
    source = (BOS, *source, EOS)
    found: dict[tuple[str, int, int], dict[tuple[int, ...], float]] = {}
    changed = True
    while changed:
        changed = False
        for begin, end in itertools.combinations(range(len(source) + 1), 2):
            for rule in rules:
                into = found.setdefault((rule.name, begin, end), {})
                for string, score in list(_applied(rule, source, begin, end, found)):
                    if len(string) <= longest and score > into.get(string, -math.inf) + 1e-12:
                        into[string] = score
                        changed = True
    return found.get(("S", 0, len(source)), {})


def _applied(
    rule: Rule, source: Sequence[int], begin: int, end: int, found: dict[tuple[str, int, int], Any]
) -> Iterator[tuple[tuple[int, ...], float]]:
    inner = range(begin + 1, end)
    for cuts in itertools.combinations(inner, len(rule.source) - 1):
        borders = (begin, *cuts, end)
        parts = [(symbol, borders[i], borders[i + 1]) for i, symbol in enumerate(rule.source)]
        if any(isinstance(s, int) and tuple(source[a:b]) != (s,) for s, a, b in parts):
            continue
        gaps = [found.get((s.name, a, b), {}) for s, a, b in parts if isinstance(s, Gap)]
        for chosen in itertools.product(*(gap.items() for gap in gaps)):
            string: list[int] = []
            for symbol in rule.target:
                string += chosen[symbol.number][0] if isinstance(symbol, Gap) else (symbol,)
            yield tuple(string), rule.score + sum(score for _, score in chosen)


def expected(rules: Sequence[Rule], source: Sequence[int], limit: int) -> dict[tuple[int, ...], float]:
    """Hypotheses of at most ``limit`` tokens."""
    return {
        string[1:-1]: score
        for string, score in strings(rules, source, limit + 2).items()
        if len(string) > 1 and string[0] == BOS and string[-1] == EOS and EOS not in string[:-1]
    }


def written(folder: Path, text: str) -> str:
    path = folder / "rules"
    path.write_text(text)
    return str(path)


def random_rules(seed: int, tokens: str = "034") -> str:
    """The glue rules and up to eight others: any order of tokens and gaps on the target side, chains, deletions."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rng.integers(1, 9)):
        source = str(rng.choice(SIDES)).split("_")
        gaps = [symbol for symbol in source if not symbol.isdecimal()]
        words = rng.choice(list(tokens), rng.integers(0, 3)).tolist()
        target = rng.permutation([*gaps, *words]).tolist() if rng.random() < 0.5 else [*words, *gaps]
        score = rng.choice([-1.0, -0.5, 0.0] if gaps == source else [-1.0, -0.5, 0.0, 0.5, -0.3])
        lines.append(f"{rng.choice(['S', 'X'])} {'_'.join(source)} {'_'.join(target) or '<dr>'} {score}")
    return GLUE + "\n".join(lines) + "\n"


seeds = st.integers(0, 2**32)


@settings(max_examples=examples(60))
@given(seed=seeds, source=st.lists(st.sampled_from([3, 4]), max_size=3), limit=st.integers(0, 4))
def test_translations_and_their_best_derivations_are_those_of_the_grammar(
    tmp_path_factory: pytest.TempPathFactory, seed: int, source: list[int], limit: int
) -> None:
    path = written(tmp_path_factory.mktemp("grammar"), random_rules(seed))
    oracle = expected(read_rules(path), source, limit)
    constellation = Constellation.of({"lrhiero": LeftToRightHiero(path)})
    paths = enumerate_space(constellation, Source(1, tuple(source), None, max_length=limit))
    assert {path.tokens: pytest.approx(path.total, abs=1e-9) for path in paths} == oracle


@pytest.mark.parametrize("source", [(3, 4, 3), (4, 3, 4, 3), (3, 4, 3, 4, 4), (3,), (0, 3)])
def test_a_grammar_with_reordering_deletion_and_insertion(tmp_path: Path, source: tuple[int, ...]) -> None:
    path = written(tmp_path, TOY)
    oracle = expected(read_rules(path), source, 12)
    paths = enumerate_space(Constellation.of({"lrhiero": LeftToRightHiero(path)}), Source(1, source))
    assert {path.tokens: pytest.approx(path.total, abs=1e-9) for path in paths} == oracle
    assert bool(oracle) == (0 not in source)  # no rule has the source word 0


def test_the_bound_is_exact_where_no_limit_cuts(tmp_path: Path) -> None:
    predictor = LeftToRightHiero(written(tmp_path, TOY))
    source = Source(1, (3, 4, 3, 4))
    predictor.initialize(source)
    start = predictor.get_state()
    paths = enumerate_space(Constellation.of({"lrhiero": LeftToRightHiero(written(tmp_path, TOY))}), source)
    prefixes = {path.tokens[:t]: None for path in paths for t in range(len(path.tokens) + 1)}
    assert len(prefixes) > 50
    for prefix in prefixes:
        predictor.set_state(start)
        spent = 0.0
        for token in prefix:
            spent += predictor.predict_next().rows[0].get(token)
            predictor.consume(token)
        best = max(path.total for path in paths if path.tokens[: len(prefix)] == prefix)
        assert predictor.best_remaining([predictor.get_state()])[0] == pytest.approx(best - spent, abs=1e-9)


class TestLeftToRightHieroInSearch(SearchContract):
    vocab_size = 4

    def draw(self, rng: np.random.Generator) -> LeftToRightHiero:
        return LeftToRightHiero(written(self.folder, random_rules(int(rng.integers(2**32)), "03")))


def test_glue_rules_do_not_make_states_grow_with_the_ways_to_split_a_sentence(tmp_path: Path) -> None:
    """24 words have 2^23 splits; there are hundreds of derivations to keep at most."""
    constellation = Constellation.of({"lrhiero": LeftToRightHiero(written(tmp_path, TOY))})
    (root,) = constellation.roots([Source(1, (3, 4, 4) * 8)])
    (state,) = root.states
    assert len(state.state) < 1000
    (best,) = GreedyDecoder().decode(SearchSpace(constellation, root)).hypotheses
    assert math.isfinite(best.score)


def test_scores_are_summed_or_weighted_or_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, "S 1_3_2 1_4_2 -0.5 -2\n")
    source = Source(1, (3,))
    for options, total in [({}, -2.5), ({"weights": (2.0, 0.25)}, -1.5), ({"use_weights": False}, 0.0)]:
        (only,) = enumerate_space(Constellation.of({"lrhiero": LeftToRightHiero(path, **options)}), source)
        assert (only.tokens, only.total) == ((4,), pytest.approx(total))


def test_weights_are_given_as_a_comma_list() -> None:
    given = {"path": "rules", "weights": "0.5,-1"}
    assert configure(LeftToRightHiero, given, name="lrhiero") == {"path": "rules", "weights": (0.5, -1.0)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, r"lrhiero: .*rules: cannot be read \(No such file"),
        ("S 1_2 1_2\n", r"rules: line 1: 3 columns"),
        ("S 1_2 1_2 1_0\n", r"rules: line 1: a score is not a number: 1_0"),
        ("# a comment\n\nS 1_2 1_2 x\n", r"rules: line 3: a score is not a number: x"),
        ("S 1_2 1_2 nan\n", r"line 1: a score is not finite"),
        ("S 1_a_2 1_2 0\n", r"line 1: 'a' is neither a token id nor a non-terminal"),
        ("S 1_X1_2 1_X2_2 0\n", r"line 1: 'X2' is neither"),
        ("S 1_X1_2 1_2 0\n", r"line 1: 1_2 must have each non-terminal of 1_X1_2 once"),
        ("S 1_X1_2 X1_1_X1 0\n", r"must have each non-terminal"),
        ("S X1_X1 X1 0\n", r"line 1: X1 is twice on the source side"),
        ("S <dr> 7 0\n", r"line 1: the source side is empty"),
        ("S 1_2 1_9_2 0\n", r"line 1: token 9 is outside the target vocabulary of 9 tokens"),
        ("X 1_2 1_2 0\n", r"rules: there is no rule for S"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = str(tmp_path / "rules") if text is None else written(tmp_path, text)
    with pytest.raises(SgdecError, match=complaint) as error:
        LeftToRightHiero(path, context=Context(vocab_size=9))
    assert "\n" not in str(error.value)


def test_a_wrong_number_of_weights_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match="line 1: 2 scores, but 1 weight"):
        LeftToRightHiero(written(tmp_path, "S 1_2 1_2 0 0\n"), weights=(1.0,))


def test_a_circle_that_gains_is_one_line(tmp_path: Path) -> None:
    predictor = LeftToRightHiero(written(tmp_path, "S 1_2 1_2 0\nS X1 X1 0.5\nX S1 S1 -0.25\n"))
    with pytest.raises(SgdecError, match=r"rules: rules lead from a non-terminal to itself .* \(sentence 4\)"):
        predictor.initialize(Source(4, ()))


def test_a_circle_that_gains_nothing_is_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path, "S 1_2 1_2 -0.1\nS X1 X1 0.3\nX S1 S1 -0.3\n")
    (only,) = enumerate_space(Constellation.of({"lrhiero": LeftToRightHiero(path)}), Source(1, ()))
    assert (only.tokens, only.total) == ((), pytest.approx(-0.1))


def test_a_source_that_cannot_be_derived_has_no_hypothesis(tmp_path: Path) -> None:
    constellation = Constellation.of({"lrhiero": LeftToRightHiero(written(tmp_path, TOY))})
    assert enumerate_space(constellation, Source(1, (7,))) == []


class TestLeftToRightHiero(PluginContract):
    plugin = "lrhiero"
    vocab_size = V
    sources = (Source(1, (3, 4, 3), max_length=5), Source(2, (4,), max_length=3), Source(3, (3, 4, 4, 3)))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": written(folder, TOY)}

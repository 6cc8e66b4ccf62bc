"""`fsttok` with sums finds and proves the most probable text: the sum over all its tokenisations.

Oracle: all texts up to a length, and all sequences of inner pieces that spell each of them, in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.canonical import Canonical
from sgdec_predictors.fsttok import FstTok

from sgdec import Context, Decoder, SgdecError, UsageError, lift
from sgdec.context import EOS, Vocabularies
from sgdec.io.transducer import TransducerArc, write_transducer
from sgdec.search.checking.constellation import CheckedConstellation
from sgdec.search.member import Member
from sgdec.search.space import SearchSpace
from sgdec.testing import BatchTable, Bonus, OnDemandTable, Table, TinySpace
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.text.transducers import all_segmentations
from tests.helpers.oracles import open_nodes, opened, tiny
from tests.helpers.random_spaces import search
from tests.helpers.vocabularies import trained

TEXT = ["ab aab ba", "abab b", "aa ab bb"] * 5
LONGEST = 4


@cache
def vocabularies() -> tuple[SentencePieceVocabulary, SentencePieceVocabulary]:
    """Of characters, and of pieces of them."""
    return trained(TEXT, model_type="char", vocab_size=20), trained(TEXT, model_type="bpe", vocab_size=12)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The transducer of all segmentations."""
    made = tmp_path_factory.mktemp("segmentations") / "all.fst"
    write_transducer(str(made), all_segmentations(*vocabularies()).arcs, {0: 0.0})
    return str(made)


def probabilities(seed: int) -> npt.NDArray[np.float64]:
    """``[V, V]``: by last token the log-probabilities of the next one. Outputs are not empty."""
    rng, size = np.random.default_rng(seed), vocabularies()[1].size
    shares = rng.gamma(1.0, size=(size, size))
    shares[:, EOS] += 3.0
    shares[:, 1] = shares[1, EOS] = 0.0
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(shares / shares.sum(axis=1, keepdims=True)))


def segmentations(text: str) -> Iterator[tuple[int, ...]]:
    if not text:
        yield ()
    inner = vocabularies()[1]
    for token in range(3, inner.size):
        if text.startswith(inner.piece(token)):
            yield from ((token, *rest) for rest in segmentations(text.removeprefix(inner.piece(token))))


def sums(scores: npt.NDArray[np.float64]) -> dict[tuple[int, ...], float]:
    """For each sequence of characters the log of the sum over its segmentations."""
    outer = vocabularies()[0]
    found = {}
    for length in range(LONGEST + 1):
        for characters in itertools.product(range(3, outer.size), repeat=length):
            paths = [(1, *z, EOS) for z in segmentations("".join(map(outer.piece, characters)))]
            total = sum(math.exp(sum(scores[a, b] for a, b in itertools.pairwise(path))) for path in paths)
            if total:
                found[characters] = math.log(total)
    return found


def probability_of_prefix(characters: tuple[int, ...], scores: npt.NDArray[np.float64]) -> float:
    """The log of the sum over all sequences of pieces whose last piece reaches the end of these characters.

    If it ends there, another piece or ``</s>`` follows, but not ``<unk>``, which spells nothing.
    """
    outer, inner = vocabularies()
    text = "".join(map(outer.piece, characters))
    total = 0.0
    for end in range(len(text) + 1):
        for z in segmentations(text[:end]):
            path, rest = [1, *z], text[end:]
            reaching = [t for t in range(3, inner.size) if inner.piece(t).startswith(rest) and inner.piece(t) != rest]
            mass = np.exp(scores[path[-1], [*reaching, *([] if rest else [EOS])]]).sum()
            total += math.exp(sum(scores[a, b] for a, b in itertools.pairwise(path))) * mass
    return math.log(total) if total else -math.inf


INNER: dict[str, Callable[[npt.NDArray[np.float64]], Table]] = {
    "with keys": Table,
    "without": BatchTable,  # type: ignore[dict-item]
    "on demand": OnDemandTable,
}


def space(path: str, scores: npt.NDArray[np.float64], kind: str = "with keys") -> TinySpace:
    wrapper = FstTok(lift(INNER[kind](scores)), path, semiring="log", probabilities=True)
    few = Bonus(dict.fromkeys(range(2, vocabularies()[0].size), 0.0), default=-math.inf)
    return tiny(LONGEST, None, vocabularies()[0].size, text=wrapper, characters=few)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", [DfsDecoder, AStarDecoder])
@pytest.mark.parametrize("kind", INNER)
def test_the_best_texts_are_found_and_proven(path: str, kind: str, decoder: Callable[[], Decoder]) -> None:
    for seed in range(3):
        scores = probabilities(seed)
        expected = sorted(sums(scores).items(), key=lambda item: -item[1])[:5]
        result, _ = search(decoder(), space(path, scores, kind), nbest=5)
        assert [h.tokens for h in result.hypotheses] == [characters for characters, _ in expected]
        assert [h.score for h in result.hypotheses] == pytest.approx([total for _, total in expected], abs=1e-12)
        assert result.proven


@pytest.mark.slow
def test_they_differ_from_those_of_the_best_tokenisations(path: str) -> None:
    """``semiring tropical`` searches for these."""
    differ = 0
    for seed in range(20):
        scores, size = probabilities(seed), vocabularies()[0].size
        best, _ = search(AStarDecoder(), tiny(LONGEST, None, size, text=FstTok(lift(Table(scores)), path)))
        text, _ = search(AStarDecoder(), space(path, scores))
        assert text.hypotheses[0].score >= best.hypotheses[0].score - 1e-12
        differ += text.hypotheses[0].tokens != best.hypotheses[0].tokens
    assert 0 < differ < 20


def test_beside_canonical_each_text_is_one_sequence_of_characters(path: str) -> None:
    """Without it a text has another sequence, which lacks the blank at the beginning, with a sum of its own."""
    outer, scores = vocabularies()[0], probabilities(4)
    canonical = Canonical(Context(vocabularies=Vocabularies(target=outer), vocab_size=outer.size))
    wrapper = FstTok(lift(Table(scores)), path, semiring="log", probabilities=True)
    result, _ = search(DfsDecoder(), tiny(LONGEST, None, outer.size, text=wrapper, canonical=canonical), nbest=1_000)
    own = {c: total for c, total in sums(scores).items() if outer.encode(outer.decode(c)) == c}
    assert {h.tokens: h.score for h in result.hypotheses} == pytest.approx(own, abs=1e-12)
    texts = [outer.decode(h.tokens) for h in result.hypotheses]
    assert result.proven and len(set(texts)) == len(texts) < len(sums(scores))


@pytest.mark.parametrize("kind", INNER)
def test_a_bound_is_the_probability_of_what_can_follow(path: str, kind: str) -> None:
    """That is the probability of all outputs that begin with these characters, and perhaps never end."""
    scores = probabilities(5)
    totals = sums(scores)
    made = opened(space(path, scores, kind))
    nodes = [node for node in open_nodes(made) if node.length < LONGEST]
    limits = {
        node.tokens: node.total + bound for node, bound in zip(nodes, made.bound(nodes), strict=True)
    }
    for prefix, limit in limits.items():
        assert limit == pytest.approx(probability_of_prefix(prefix, scores), abs=1e-12)
        reached = [total for characters, total in totals.items() if characters[: len(prefix)] == prefix]
        assert max(reached, default=-math.inf) <= limit + 1e-12
        assert limit <= limits[prefix[:-1]] + 1e-12


def test_the_search_is_small_because_bounds_are_tight(path: str) -> None:
    result, made = search(AStarDecoder(), space(path, probabilities(1)))
    assert result.proven and made.expansions <= 12 < len(sums(probabilities(1)))


def checked(path: str, scores: npt.NDArray[np.float64]) -> SearchSpace:
    plain = space(path, scores).constellation()
    members = [Member(member.name, member.predictor) for member in plain.members]
    constellation = CheckedConstellation(members, vocab_size=plain.vocab_size)
    (root,) = constellation.roots([space(path, scores).source])
    return SearchSpace(constellation, root)


def test_check_bounds_accepts_probabilities_and_finds_that_others_are_none(path: str) -> None:
    assert DfsDecoder().decode(checked(path, probabilities(2))).proven
    rising = probabilities(2) + 2.0
    rising[1] -= 7.0
    with pytest.raises(SgdecError, match=r"predictor 'text'.*best_remaining claims that it adds at most"):
        DfsDecoder().decode(checked(path, rising))


def test_without_the_claim_nothing_is_proven_of_sums(path: str) -> None:
    wrapper = FstTok(lift(Table(probabilities(1))), path, semiring="log")
    with pytest.raises(UsageError, match="does not declare best_remaining"):
        search(DfsDecoder(), tiny(LONGEST, None, vocabularies()[0].size, a=wrapper))


def test_claims_about_something_else_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fsttok: probabilities true bounds sums: add semiring log"):
        FstTok(lift(Table(probabilities(1))), path, probabilities=True)
    rewarding = str(tmp_path / "t.fst")
    write_transducer(rewarding, [(0, TransducerArc(3, 3, -0.5, 0))], {0: 0.0})
    with pytest.raises(SgdecError, match=r"t\.fst: has a negative cost, so sums can exceed 1"):
        FstTok(lift(Table(probabilities(1))), rewarding, semiring="log", probabilities=True)

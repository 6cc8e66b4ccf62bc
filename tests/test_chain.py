"""The promise: each link is its paper's definition and, where transformers has it, transformers' distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sgdec.chain import (
    LINKS,
    Chain,
    Epsilon,
    Eta,
    Link,
    MinP,
    Mirostat,
    TemperatureLink,
    TopK,
    TopNSigma,
    TopP,
    Typical,
)
from sgdec.search.sampling import Draw, draw
from tests.helpers.breadth import examples

RANDOM = np.random.default_rng(44)
EDGES: dict[str, np.ndarray] = {
    "random": RANDOM.normal(scale=3, size=(40, 50)),
    "flat": RANDOM.normal(scale=0.1, size=(20, 50)),
    "peaked": RANDOM.normal(scale=30, size=(20, 50)),
    "ties": RANDOM.integers(-3, 3, size=(40, 12)).astype(float),  # many equal scores, also at borders
    "forbidden": np.where(RANDOM.random((40, 20)) < 0.6, -np.inf, RANDOM.normal(size=(40, 20))),
    "one token": np.array([[-np.inf, 2.0, -np.inf], [0.0, -np.inf, -np.inf]]),
    "uniform": np.zeros((1, 8)),
    "halves": np.log([[0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]]),
}
EDGES["forbidden"][:, 3] = 0.0  # a token in each row


def dense(chain: Chain, scores: np.ndarray, states: Any = None) -> np.ndarray:
    """The chained probabilities in the order of the tokens."""
    local = chain.apply(scores, states)
    found = np.zeros_like(scores)
    np.put_along_axis(found, local.places, np.exp(local.log_probs), axis=-1)
    return found


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def theirs(link: Link) -> Callable[[Any, Any], Any]:
    """The counterpart of a link in transformers."""
    from transformers.generation import logits_process as peer

    match link:
        case TemperatureLink(value):
            return peer.TemperatureLogitsWarper(float(value))
        case TopK(k):
            return peer.TopKLogitsWarper(k)
        case TopP(p):
            return peer.TopPLogitsWarper(p)
        case MinP(share):
            return peer.MinPLogitsWarper(share)
        case Typical(mass):
            return peer.TypicalLogitsWarper(mass)
        case Epsilon(epsilon):
            return peer.EpsilonLogitsWarper(epsilon)
        case Eta(epsilon):
            return peer.EtaLogitsWarper(epsilon)
    raise AssertionError(link)


def in_transformers(chain: Chain, scores: np.ndarray) -> np.ndarray:
    import torch

    logits = torch.from_numpy(scores)  # float64, as ours
    for link in chain.links:
        logits = theirs(link)(None, logits)
    return softmax(logits.numpy())


CHAINS = [
    "temperature=0.7", "temperature=3", "top_k=1", "top_k=5", "top_k=1000", "top_p=0.9", "top_p=0.01", "top_p=1",
    "min_p=0", "min_p=0.05", "min_p=0.6", "min_p=1", "typical=0.2", "typical=0.95", "epsilon=0.003", "epsilon=0.9",
    "eta=0.003", "eta=0.9", "temperature=0.7+top_k=5+top_p=0.8", "top_p=0.8+temperature=2+min_p=0.1",
    "min_p=0.1+temperature=2", "typical=0.5+top_p=0.5+temperature=0.8", "epsilon=0.01+typical=0.9+min_p=0.3",
    "typical=0.3+top_k=3",
]  # fmt: skip


def has_ties_at_borders(chain: Chain, rows: str) -> bool:
    """Whether the tokens that transformers keeps depend on its sort, or on all of a tie being kept."""
    return rows in ("ties", "uniform", "halves") and {"top_k", "top_p"} & {link.name for link in chain.links} != set()


@pytest.mark.slow
@pytest.mark.parametrize("text", CHAINS)
def test_distributions_are_those_of_transformers(text: str) -> None:
    chain = Chain.parse(text)
    for name, scores in EDGES.items():
        if not has_ties_at_borders(chain, name):
            np.testing.assert_allclose(dense(chain, scores), in_transformers(chain, scores), atol=1e-12, err_msg=name)


def test_of_equal_tokens_top_k_keeps_the_lower_ones_and_transformers_all() -> None:
    scores = np.array([[1.0, 0.0, 1.0, 1.0]])
    assert dense(Chain((TopK(2),)), scores).tolist() == [[0.5, 0.0, 0.5, 0.0]]
    np.testing.assert_allclose(in_transformers(Chain((TopK(2),)), scores), [[1 / 3, 0, 1 / 3, 1 / 3]])


def test_of_equal_tokens_the_nucleus_has_the_lower_ones_and_as_many_as_in_transformers() -> None:
    for text in ("top_p=0.2", "top_p=0.49", "top_p=0.51", "top_p=0.76"):  # not at sums, which round
        chain = Chain.parse(text)
        for scores in (EDGES["ties"], EDGES["uniform"], EDGES["halves"]):
            ours, other = dense(chain, scores), in_transformers(chain, scores)
            np.testing.assert_allclose(np.sort(ours), np.sort(other), atol=1e-12)
            for row, found in zip(scores, ours, strict=True):
                least = row[found > 0].min()
                tied = found[row == least] > 0
                assert tied.tolist() == sorted(tied, reverse=True)


def test_borders_are_kept() -> None:
    """Each threshold is the very number, as rounded, that the second of four tokens has."""
    row = np.log([0.9, 0.06, 0.03, 0.01])
    p, surprise = softmax(row), -(row - row.max() - np.log(np.exp(row - row.max()).sum())) / math.log(2)
    for link in [
        TopP(float(np.cumsum(p)[1])), MinP(float(np.exp(row - row.max())[1])), Epsilon(float(p[1])), Eta(float(p[1])),
        Mirostat(float(surprise[1]) / 2), Typical(float(np.cumsum(p)[1])),
    ]:  # fmt: skip
        assert np.flatnonzero(dense(Chain((link,)), row)).tolist() == [0, 1], link
    assert np.count_nonzero(dense(Chain((TopNSigma(2.0),)), np.array([0.0, -2.0]))) == 2  # deviation 1


@pytest.mark.parametrize("deviations", [0.1, 1.0, 2.5])
def test_top_n_sigma_is_algorithm_1(deviations: float) -> None:
    for scores in EDGES.values():
        for row, found in zip(scores, dense(Chain((TopNSigma(deviations),)), scores), strict=True):
            present = [float(score) for score in row if score > -math.inf]
            mean = sum(present) / len(present)
            sigma = math.sqrt(sum((score - mean) ** 2 for score in present) / len(present))
            kept = [score >= max(present) - deviations * sigma for score in row]
            np.testing.assert_allclose(found, softmax(np.where(kept, row, -np.inf)), atol=1e-12)


def test_a_temperature_changes_no_cut_by_top_n_sigma() -> None:
    for scores in EDGES.values():
        hot = dense(Chain.parse("temperature=4+top_n_sigma=1"), scores)
        assert np.array_equal(hot > 0, dense(Chain.parse("top_n_sigma=1"), scores) > 0)


def test_mirostat_is_algorithm_2() -> None:
    """One draw after the other, in a plain loop over the paper's lines, beside rows that are other draws."""
    target, rate = 2.0, 0.3
    chain = Chain((TemperatureLink(1.5), Mirostat(target, rate)))
    rows = EDGES["random"]
    mus = np.full(len(rows), 2 * target)
    states: Any = None
    for step in range(6):
        scores = np.roll(rows, step, axis=1)
        local = chain.apply(scores, states)
        assert local.states is not None
        drawn = np.argmax(np.where(local.log_probs > -np.inf, RANDOM.random(local.places.shape), -1), axis=1)
        for row in range(len(rows)):
            surprise = -np.log2(softmax(scores[row] / 1.5))
            kept = surprise <= mus[row]
            if not kept.any():
                kept = surprise == surprise.min()
            expected = softmax(np.where(kept, scores[row] / 1.5, -np.inf))
            np.testing.assert_allclose(np.exp(local.log_probs[row]), expected[local.places[row]], atol=1e-12)
            mus[row] -= rate * (surprise[local.places[row, drawn[row]]] - target)
        states = local.states[np.arange(len(rows)), drawn]
        np.testing.assert_allclose(states, mus, rtol=1e-12)


@pytest.mark.slow
def test_mirostat_averages_its_target() -> None:
    scores, chain = np.log(1 / np.arange(1.0, 501)), Chain((Mirostat(3.0, 0.1),))
    surprise, state, seen = -np.log2(softmax(scores)), chain.start, []
    for _ in range(2000):
        local = chain.apply(scores, state)
        at = RANDOM.choice(len(local.places), p=np.exp(local.log_probs))
        seen.append(surprise[local.places[at]])
        assert local.states is not None
        state = local.states[at]
    assert abs(np.mean(seen) - 3.0) < 0.05


LINKS_OF_ALL_KINDS = st.one_of(
    st.builds(TemperatureLink, st.floats(1e-3, 1e20)),
    st.builds(TopK, st.integers(1, 60)),
    *(st.builds(cls, st.floats(0, 1, exclude_min=True)) for cls in (TopP, MinP, Typical)),
    *(st.builds(cls, st.floats(0, 1, exclude_min=True, exclude_max=True)) for cls in (Epsilon, Eta)),
    st.builds(TopNSigma, st.floats(1e-3, 1e20)),
    st.builds(Mirostat, st.floats(1e-6, 1e20), st.floats(0, 1e20)),
)
CHAINS_OF_ALL_KINDS = st.lists(LINKS_OF_ALL_KINDS, max_size=4, unique_by=lambda link: link.name).map(
    lambda links: Chain(tuple(sorted(links, key=lambda link: link.start is not None)))
)


@settings(max_examples=examples(100), deadline=None)
@given(CHAINS_OF_ALL_KINDS)
def test_a_chain_is_its_text(chain: Chain) -> None:
    assert Chain.parse(str(chain)) == chain
    assert str(Chain.parse(str(chain))) == str(chain)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(CHAINS_OF_ALL_KINDS)
def test_no_chain_empties_a_row_and_rows_change_nothing_for_each_other(chain: Chain) -> None:
    for scores in EDGES.values():
        together = chain.apply(scores)
        np.testing.assert_allclose(np.exp(together.log_probs).sum(axis=-1), 1, atol=1e-9)
        assert np.all(np.isneginf(np.take_along_axis(scores, together.places, -1)) <= np.isneginf(together.log_probs))
        alone = chain.apply(scores[-1])
        width = alone.log_probs.shape[-1]
        assert np.array_equal(alone.places, together.places[-1, :width])
        assert np.array_equal(alone.log_probs, together.log_probs[-1, :width])
    assert np.all(np.isneginf(chain.apply(np.full(3, -np.inf)).log_probs))


def test_order_matters() -> None:
    scores = EDGES["random"][:1]
    assert np.count_nonzero(dense(Chain.parse("temperature=3+top_p=0.5"), scores)) > np.count_nonzero(
        dense(Chain.parse("top_p=0.5+temperature=3"), scores)
    )


@pytest.mark.parametrize("text", ["top_k=5", "temperature=0.7+top_k=40+min_p=0.05", "top_k=300", "top_p=0.5+top_k=3"])
def test_of_long_rows_only_the_best_are_sorted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, chain = np.random.default_rng(5), Chain.parse(text)
    rows = [rng.normal(size=700), np.round(rng.normal(size=700)), np.zeros(700), np.full(700, -np.inf)]
    rows.append(np.where(np.arange(700) % 300 == 7, rows[0], -np.inf))  # fewer tokens than k
    short = [chain.apply(row) for row in rows]
    monkeypatch.setattr("sgdec.chain.LONG", 10_000)
    for row, found in zip(rows, short, strict=True):
        whole = chain.apply(row)
        kept = slice(0, len(found.places))
        assert np.array_equal(found.places, whole.places[kept])
        assert np.array_equal(found.log_probs, whole.log_probs[kept])
        assert not np.isfinite(whole.log_probs[len(found.places) :]).any()


@pytest.mark.parametrize("text", ["epsilon=0.003", "temperature=2+min_p=0.3+mirostat=3", "typical=0.5+eta=0.01", ""])
def test_cutting_before_sorting_is_sorting_before_cutting(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, chain = np.random.default_rng(5), Chain.parse(text)
    rows = [rng.normal(size=700), np.round(rng.normal(size=700)), np.zeros(700), np.full(700, -np.inf)]
    long = [chain.apply(row) for row in rows]
    monkeypatch.setattr("sgdec.chain.LONG", 10_000)
    for row, found in zip(rows, long, strict=True):
        whole = chain.apply(row)
        kept = np.isfinite(whole.log_probs)
        there = np.isfinite(found.log_probs)
        assert np.array_equal(found.places[there], whole.places[kept])
        np.testing.assert_allclose(found.log_probs[there], whole.log_probs[kept], rtol=1e-12, atol=1e-12)
        if chain.start is not None:
            assert found.states is not None and whole.states is not None
            np.testing.assert_allclose(found.states[there], whole.states[kept], rtol=1e-12)


@settings(max_examples=examples(150), deadline=None)
@given(CHAINS_OF_ALL_KINDS, st.integers(0, 2**32), st.sampled_from([3, 150, 700, 9000]), st.booleans())
def test_a_draw_is_one_from_the_whole_row_best_token_first(chain: Chain, seed: int, width: int, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=width) * rng.choice([0.1, 1.0, 5.0])
    if coarse:
        scores = np.round(scores)
    scores[rng.random(width) < 0.2] = -np.inf
    scores[0] = 0.0
    local = chain.apply(scores)
    summed = np.cumsum(np.exp(local.log_probs))
    for uniform in (*rng.random(5), 0.0, 1.0 - 2.0**-53):
        at = int(np.searchsorted(summed, uniform * summed[-1], side="right"))
        place, log_prob, state = chain.draw(scores, uniform)
        if min(abs(summed - uniform * summed[-1])) > 1e-12 * summed[-1]:  # else rounding decides
            assert place == local.places[at]
        assert scores[place] > -np.inf
        if place == local.places[at]:
            np.testing.assert_allclose(log_prob, local.log_probs[at], rtol=1e-9, atol=1e-12)
            if local.states is not None:
                np.testing.assert_allclose(state, local.states[at], rtol=1e-9)


def former_draw(scores: np.ndarray, number: int, temperature: float, top_k: int, top_p: float) -> int:
    """`draw` as it was before there were chains."""
    order = np.lexsort((np.arange(len(scores)), -scores))[: top_k or None]
    probabilities = np.exp((scores[order] - scores[order[0]]) / temperature)
    probabilities /= probabilities.sum()
    if top_p < 1.0:
        probabilities = probabilities[: int(np.searchsorted(np.cumsum(probabilities), top_p)) + 1]
    cumulative = np.cumsum(probabilities)
    key = np.random.SeedSequence([3, 1, number, 0]).generate_state(2, np.uint64)
    at = np.random.Generator(np.random.Philox(key=key)).random() * cumulative[-1]
    return int(order[min(int(np.searchsorted(cumulative, at, side="right")), len(probabilities) - 1)])


@pytest.mark.slow
def test_short_forms_draw_what_they_drew_before_there_were_chains() -> None:
    for top_k, top_p, temperature in [(0, 1.0, 1.0), (7, 1.0, 0.8), (0, 0.7, 2.0), (9, 0.6, 1.0), (1, 1e-6, 1e-3)]:
        chain = Chain.of(temperature=temperature, top_k=top_k, top_p=top_p)
        for scores in (*EDGES["random"][:8], *EDGES["ties"][:8]):
            for number in range(10):
                token, log_prob, _ = draw(np.arange(len(scores)), scores, Draw(3, number, chain), sentence=1, step=0)
                assert token == former_draw(scores, number, temperature, top_k, top_p)
                assert np.exp(log_prob) == pytest.approx(dense(chain, scores)[token])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topk=5", "no link 'topk'; expected NAME=VALUE, with + between links. Did you mean 'top_k'? Available: "),
        ("top_k=5++min_p=0.1", "an empty link; expected NAME=VALUE"),
        ("top_k", "top_k: expected top_k=VALUE, a number"),
        ("top_k=", "top_k=: expected top_k=VALUE, a number"),
        ("top_k=2.5", "top_k=2.5: expected top_k=VALUE, a number"),
        ("top_k=1_0", "a number"),
        ("top_k=0", "top_k=0: expected an integer >= 1"),
        ("top_k=5:6", "top_k=5:6: expected 1 number at most"),
        ("temperature=0", "temperature=0: expected a number above 0"),
        ("temperature=nan", "temperature=nan: expected a number above 0"),
        ("temperature=inf", "temperature=inf: expected a number above 0"),
        ("top_p=1.1", "top_p=1.1: expected a number above 0 and at most 1"),
        ("min_p=-0.1", "min_p=-0.1: expected a number from 0 to 1"),
        ("typical=0", "typical=0: expected a number above 0 and at most 1"),
        ("eta=1", "eta=1: expected a number between 0 and 1"),
        ("epsilon=0", "epsilon=0: expected a number between 0 and 1"),
        ("top_n_sigma=0", "top_n_sigma=0: expected a number above 0"),
        ("mirostat=0", "a target in bits above 0, and a rate >= 0"),
        ("mirostat=5:0.1:2", "mirostat=5:0.1:2: expected 2 numbers at most"),
        ("top_k=5+min_p=0.1+top-k=6", "top_k is there twice; expected each link once"),
        ("mirostat=5+top_k=5", "top_k comes after mirostat, which has to be the last link"),
    ],
)
def test_a_wrong_chain_is_refused_in_one_clause(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Chain.parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_chain_can_be_the_option_of_a_plugin() -> None:
    option = TypeAdapter(Chain | None)
    chain = Chain((TopK(50), MinP(0.05)))
    assert option.validate_python("top-k = 50 + min_p=0.05") == chain == option.validate_python(chain)
    with pytest.raises(ValueError, match="expected a text such as"):
        option.validate_python(5)


def test_all_links_are_tested() -> None:
    texts = "+".join([*CHAINS, "top_n_sigma=", "mirostat="])
    assert all(f"{name}=" in texts for name in LINKS)

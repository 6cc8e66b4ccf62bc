"""`mbr` lists the candidates with the highest expected utility, which plain loops compute from the inner list.

``tests/data/mbr_choices.json.gz`` was recorded with mbrs 0.1.8 by the script beside it.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from sgdec_decoders.mbr import MbrDecoder

import sgdec
from sgdec import BOS, EOS, Decoder, DecoderSpec, Hypothesis, Result, SearchSpace, SgdecError, UsageError, UtilitySpec
from sgdec.cli.main import main
from sgdec.context import Context, Vocabularies
from sgdec.testing import Table
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.utility import Utility, aggregated, pairwise
from tests.helpers.oracles import opened, tiny
from tests.helpers.places import ROOT
from tests.helpers.random_spaces import search

TABLE = np.random.default_rng(3).normal(size=(6, 6))
TABLE[BOS, EOS] = -1.0
SPACE = tiny(3, None, 6, model=Table(TABLE))
SAMPLES = {"samples": 60}


def inner(nbest: int = 256) -> list[Hypothesis]:
    return DecoderSpec("sample", SAMPLES).decode(opened(SPACE), nbest=nbest).hypotheses


def text_of(hypothesis: Hypothesis) -> str:
    return " ".join(map(str, hypothesis.tokens))


WEIGHTS = {
    "count": lambda h: float(h.count or 0),
    "uniform": lambda h: 1.0,
    "model": lambda h: math.exp(h.score),
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("utility", ["chrf", "bleu", "exact"])
def test_the_list_has_the_best_expected_utilities(weights: Any, utility: str) -> None:
    found = inner()
    shares = [WEIGHTS[weights](each) for each in found]
    texts = list(map(text_of, found))
    scored = pairwise(sgdec.load_utility(utility), texts, texts).tolist()
    expected = [sum(u * share for u, share in zip(row, shares, strict=True)) / sum(shares) for row in scored]
    order = sorted(range(len(found)), key=lambda place: -expected[place])  # stable
    decoder = MbrDecoder(DecoderSpec("sample", SAMPLES), utility=UtilitySpec(utility), weights=weights)
    listed = decoder.decode(opened(SPACE, nbest=5))
    assert [h.rank_score for h in listed.hypotheses] == pytest.approx([expected[place] for place in order[:5]])
    ties = {round(expected[place], 9) for place in order[:6]}
    if len(ties) == 6:
        assert [h.tokens for h in listed.hypotheses] == [found[place].tokens for place in order[:5]]
    assert [h.score for h in listed.hypotheses] == [
        next(each.score for each in found if each.tokens == h.tokens) for h in listed.hypotheses
    ]
    assert listed.drawn == 60 and listed.proven is None


def test_with_exact_match_and_counts_it_is_the_most_frequent_draw() -> None:
    decoder = MbrDecoder(DecoderSpec("sample", SAMPLES), utility=UtilitySpec("exact"))
    (best,) = decoder.decode(opened(SPACE)).hypotheses
    most = max(inner(), key=lambda each: each.count or 0)
    assert best.count == most.count and best.rank_score == pytest.approx((most.count or 0) / 60)


def test_aggregated_references_are_one_average() -> None:
    found = inner()
    texts = list(map(text_of, found))
    counts = np.array([[float(each.count or 0) for each in found]])
    expected = aggregated(sgdec.load_utility("chrf"), texts, texts, counts)[:, 0]
    decoder = MbrDecoder(DecoderSpec("sample", SAMPLES), method="aggregate")
    listed = decoder.decode(opened(SPACE, nbest=len(found))).hypotheses
    assert [h.rank_score for h in listed] == pytest.approx(sorted(expected, reverse=True))


def test_references_can_come_from_another_decoder() -> None:
    beam = DecoderSpec("beam", {"size": 3, "stop": "full", "nbest": 3})
    decoder = MbrDecoder(beam, DecoderSpec("sample", {"samples": 9, "seed": 4}))
    space = opened(SPACE, nbest=3)
    candidates = beam.decode(opened(SPACE)).hypotheses
    result = decoder.decode(space)
    assert {h.tokens for h in result.hypotheses} <= {h.tokens for h in candidates}
    assert space.expansions > 0 and result.drawn is None


class SameText:
    """A vocabulary in which all tokens but 3 are written alike."""

    size = 6

    def decode(self, tokens: Any) -> str:
        return "".join("x" if token != 3 else "y" for token in tokens)


@pytest.mark.parametrize("text_of", [None, SameText().decode])
def test_equal_texts_count_together_also_if_the_run_lists_each_once(text_of: Any) -> None:
    decoder = MbrDecoder(DecoderSpec("sample", SAMPLES), utility=UtilitySpec("exact"))
    decoder._vocabulary = SameText()  # type: ignore[assignment]
    space = opened(SPACE, nbest=100)
    space.text_of = text_of
    listed = decoder.decode(space).hypotheses
    shares: dict[str, float] = {}
    for each in inner():
        text = SameText().decode(each.tokens)
        shares[text] = shares.get(text, 0.0) + (each.count or 0) / 60
    assert sorted(h.rank_score for h in listed) == pytest.approx(sorted(shares.values()))


def test_draws_with_unequal_weights_count_with_these() -> None:
    spec = DecoderSpec("stochastic", {"samples": 6})
    found = spec.decode(opened(SPACE), nbest=6).hypotheses
    weights = [math.exp(each.log_weight or 0.0) for each in found]
    listed = MbrDecoder(spec, utility=UtilitySpec("exact")).decode(opened(SPACE, nbest=6)).hypotheses
    expected = sorted((weight / sum(weights) for weight in weights), reverse=True)
    assert [h.rank_score for h in listed] == pytest.approx(expected) and len(set(np.round(expected, 6))) > 1


class Shortest(Utility):
    """Judges a hypothesis alone."""

    needs_references = False

    def pairwise(self, hypotheses: Any, references: Any, source: Any) -> Any:
        assert not references
        return np.array([[-float(len(text))] for text in hypotheses])


def test_a_utility_that_needs_no_references_gets_none() -> None:
    decoder = MbrDecoder(DecoderSpec("sample", SAMPLES), utility=UtilitySpec(Shortest()))
    listed = decoder.decode(opened(SPACE, nbest=9))
    expected = sorted((-float(len(text_of(each))) for each in inner()), reverse=True)[:9]
    assert [h.rank_score for h in listed.hypotheses] == expected


def test_no_draw_is_missing_silently() -> None:
    with pytest.raises(UsageError, match=r"candidates are 60 draws, of which 5 are listed; give --mbr.listed 60"):
        MbrDecoder(DecoderSpec("sample", SAMPLES), listed=5).decode(opened(SPACE))
    chosen = MbrDecoder(DecoderSpec("sample", {**SAMPLES, "nbest": 5}), utility=UtilitySpec("exact"), listed=7)
    assert len(chosen.decode(opened(SPACE, nbest=9)).hypotheses) == 5


def test_without_candidates_there_is_no_output() -> None:
    nothing = opened(tiny(2, None, 4, model=Table(np.full((4, 4), -math.inf))))
    assert MbrDecoder().decode(nothing).hypotheses == []


class Given(Decoder):
    """Lists texts with scores, and tokens of their own."""

    def __init__(self, texts: Sequence[str], scores: Sequence[float] | None = None) -> None:
        self.texts, self.scores = texts, [0.0] * len(texts) if scores is None else scores

    def decode(self, space: SearchSpace) -> Result:
        listed = enumerate(zip(self.texts, self.scores, strict=True))
        return Result([Hypothesis((3,) * place, score, score, text=text) for place, (text, score) in listed])


RECORDED = json.loads(gzip.decompress((ROOT / "tests" / "data" / "mbr_choices.json.gz").read_bytes()))
METHODS: dict[str, dict[str, Any]] = {
    "pairwise": {"weights": "uniform"},
    "weighted": {"weights": "model"},
    "aggregate": {"weights": "uniform", "method": "aggregate"},
}
ROUNDED = {("pairwise", 323): ([3], 1)}
"""The choice of mbrs and ours: two candidates have the same utilities in another order, and single precision gives
their sums in this order another last bit."""


@pytest.mark.parametrize("name", METHODS)
def test_choices_are_those_of_mbrs(name: str) -> None:
    ties = 0
    for number, recorded in enumerate(RECORDED):
        texts, log_weights = recorded["candidates"], recorded["log_weights"]
        others = recorded["references"]
        candidates = DecoderSpec(Given(texts, log_weights if others is None else None))
        references = None if others is None else DecoderSpec(Given(others, log_weights))
        (best,) = MbrDecoder(candidates, references, **METHODS[name]).decode(opened(SPACE)).hypotheses
        chosen, expected = recorded[name]
        if (name, number) in ROUNDED:
            assert (chosen, best.tokens) == (ROUNDED[name, number][0], (3,) * ROUNDED[name, number][1])
        else:  # of equal ones and of equal texts, the first
            assert len(best.tokens) == texts.index(texts[chosen[0]]), number
        assert best.rank_score == pytest.approx(expected, abs=2e-4)
        ties += len({texts[place] for place in chosen}) > 1
    assert len(RECORDED) == 1000 and ties >= 5


class Counting(Utility):
    """Exact match, or another utility, and the pairs that it was asked about."""

    def __init__(self, inner: str = "exact") -> None:
        self.inner, self.asked = sgdec.load_utility(inner), Counter[tuple[str, str]]()

    def pairwise(self, hypotheses: Any, references: Any, source: Any) -> Any:
        self.asked.update((one, other) for one in hypotheses for other in references)
        return self.inner.pairwise(hypotheses, references, source)


FEWER: dict[Literal["pruned", "halving"], dict[str, Any]] = {
    "pruned": {"first": 2, "alpha": 0.8},
    "halving": {"budget": 120},
}


def estimated(utility: Counting, found: Sequence[Hypothesis]) -> dict[str, float]:
    """The estimate of each candidate, from the references that it was compared with; these came in one order."""
    rng = opened(SPACE).generator(-1, 0)
    p = np.array([(h.count or 0) / 60 for h in found])
    sums = np.log(p) + rng.gumbel(size=len(p))
    estimates = {}
    for candidate in map(text_of, found):
        asked = [place for place, h in enumerate(found) if (candidate, text_of(h)) in utility.asked]
        rest = [sums[place] for place in range(len(found)) if place not in asked]
        q = 1 - np.exp(-np.exp(np.log(p) - max(rest))) if rest else np.ones(len(p))
        weights = (p / q)[asked]
        row = pairwise(utility.inner, [candidate], [text_of(found[place]) for place in asked])[0]
        estimates[candidate] = float((row * weights).sum() / weights.sum())
    return estimates


@pytest.mark.parametrize("method", FEWER)
def test_fewer_utilities_list_all_candidates_in_the_order_in_which_they_were_dropped(method: Any) -> None:
    found = inner()
    utility = Counting("chrf")
    decoder = MbrDecoder(DecoderSpec("sample", SAMPLES), utility=UtilitySpec(utility), method=method, **FEWER[method])
    listed = decoder.decode(opened(SPACE, nbest=len(found) + 5)).hypotheses
    assert sorted(h.tokens for h in listed) == sorted(h.tokens for h in found)
    assert max(utility.asked.values()) == 1 and utility.asked.total() < len(found) ** 2
    judged_by = Counter(one for one, _ in utility.asked)
    times = [judged_by[text_of(h)] for h in listed]
    assert times == sorted(times, reverse=True) and len(set(times)) > 2
    expected, lowest = estimated(utility, found), math.inf
    for h, each in zip(listed, times, strict=True):
        lowest = min(lowest, expected[text_of(h)])
        assert h.rank_score == pytest.approx(lowest)
        assert all(
            expected[text_of(h)] >= expected[text_of(other)]
            for other, their in zip(listed[listed.index(h) :], times[listed.index(h) :], strict=True)
            if their == each
        )
    for nbest in (1, 3):
        assert decoder.decode(opened(SPACE, nbest=nbest)).hypotheses == listed[:nbest]


@pytest.mark.parametrize("method", FEWER)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_full_budget_gives_the_choice_of_all_pairs(method: Any, weights: Any) -> None:
    for samples in (1, 7, 60):
        spec = DecoderSpec("sample", {"samples": samples})
        size = len(spec.decode(opened(SPACE), nbest=samples).hypotheses)
        full: dict[str, Any] = {"first": size} if method == "pruned" else {"budget": size**2}
        (best,) = MbrDecoder(spec, weights=weights).decode(opened(SPACE)).hypotheses
        (ours,) = MbrDecoder(spec, weights=weights, method=method, **full).decode(opened(SPACE)).hypotheses
        assert ours.tokens == best.tokens and ours.rank_score == pytest.approx(best.rank_score)


@pytest.mark.parametrize("method", FEWER)
def test_random_numbers_are_those_of_seed_and_sentence_and_of_no_draw(method: Any) -> None:
    options: dict[str, Any] = {"method": method, **FEWER[method]}

    def orders(seed: int) -> list[str]:
        utility = Counting()
        decoder = MbrDecoder(DecoderSpec("sample", SAMPLES | {"seed": 1}), utility=UtilitySpec(utility), **options)
        space = opened(SPACE)
        space.seed = seed
        numbers: list[tuple[int, int]] = []
        generator = space.generator
        space.generator = lambda n, step: numbers.append((n, step)) or generator(n, step)  # type: ignore
        decoder.decode(space)
        assert len(set(numbers)) == len(numbers) and {number for number, _ in numbers} == {-1}
        return list(dict.fromkeys(other for _, other in utility.asked))

    assert orders(4) == orders(4) != orders(5)


def test_a_quarter_of_all_pairs_is_the_default_budget() -> None:
    texts = [f"a{number}" for number in range(64)]
    asked = {}
    for budget in (None, 64 * 64 // 3, 64 * 64 // 4, 64 * 64 // 5):
        utility = Counting()
        decoder = MbrDecoder(DecoderSpec(Given(texts)), utility=UtilitySpec(utility), method="halving", budget=budget)
        assert len(decoder.decode(opened(SPACE)).hypotheses) == 1
        asked[budget] = utility.asked
        assert utility.asked.total() <= (budget or 1024)
    assert asked[None] == asked[1024] and len({each.total() for each in asked.values()}) == 3


@pytest.mark.parametrize("method", ["pairwise", "aggregate", *FEWER])
def test_one_candidate_and_longer_lists_than_there_are(method: Any) -> None:
    decoder = MbrDecoder(DecoderSpec(Given(["a b c d"])), DecoderSpec(Given(["a b", "c d"])), method=method)
    for nbest in (1, 9):
        (found,) = decoder.decode(opened(SPACE, nbest=nbest)).hypotheses
        assert 0 < found.rank_score < 100
    for texts in ([], ["a"]):
        nothing = MbrDecoder(DecoderSpec(Given(texts)), DecoderSpec(Given([])), method=method)
        assert nothing.decode(opened(SPACE)).hypotheses == []


@pytest.mark.parametrize("method", ["pairwise", "aggregate", *FEWER])
def test_a_reference_without_weight_counts_nothing_and_all_without_weight_are_an_error(method: Any) -> None:
    def decoder(*scores: float) -> MbrDecoder:
        texts = ["a b c", "x y z"]
        return MbrDecoder(DecoderSpec(Given(texts, scores)), weights="model", method=method)

    (best,) = decoder(-math.inf, -900.0).decode(opened(SPACE)).hypotheses
    assert best.text == "x y z" and best.rank_score == pytest.approx(100)
    for score in (-math.inf, math.inf):
        with pytest.raises(SgdecError, match=f"mbr: the highest log-weight of a pseudo-reference is {score}; expect"):
            decoder(score, score).decode(opened(SPACE))


class Reading(Utility):
    """Remembers the sources."""

    def __init__(self) -> None:
        self.sources: set[str | None] = set()

    def pairwise(self, hypotheses: Any, references: Any, source: Any) -> Any:
        self.sources.add(source)
        return np.zeros((len(hypotheses), len(references)))


@pytest.mark.parametrize("method", ["pairwise", *FEWER])
def test_a_utility_gets_the_text_of_token_ids_if_there_is_a_vocabulary(method: Any) -> None:
    words = WordVocabulary([*SPECIAL, "a", "dog"])
    for source, text in ((words, "a dog a"), (None, None)):
        utility = Reading()
        context = Context(vocabularies=Vocabularies(source=source))
        search(MbrDecoder(utility=UtilitySpec(utility), method=method, context=context), SPACE)
        assert utility.sources == {text}


class Broken(Utility):
    def pairwise(self, hypotheses: Any, references: Any, source: Any) -> Any:
        return np.full((len(hypotheses), len(references)), np.nan)


def test_bad_input_is_one_clear_line() -> None:
    with pytest.raises(UsageError, match="candidates are those of another mbr"):
        MbrDecoder(DecoderSpec("mbr"))
    with pytest.raises(UsageError, match=r"utility ter cannot aggregate; give one that can \(chrf\)"):
        MbrDecoder(utility=UtilitySpec("ter"), method="aggregate")
    with pytest.raises(UsageError, match="judges without references; omit references"):
        MbrDecoder(references=DecoderSpec("beam"), utility=UtilitySpec(Shortest()))
    for method in ("pruned", "halving"):
        with pytest.raises(UsageError, match=f"judges without references; omit method {method}"):
            MbrDecoder(utility=UtilitySpec(Shortest()), method=method)  # type: ignore[arg-type]
    for text, message in (("chrff", "Did you mean 'chrf'"), ("chrf:words=2", "chrf has no option 'words'")):
        with pytest.raises(UsageError, match=message):
            sgdec.load("wc", "mbr", mbr={"utility": text}, vocab_size=5, max_length=2)


class Misshapen(Utility):
    def pairwise(self, hypotheses: Any, references: Any, source: Any) -> Any:
        return np.zeros((len(hypotheses), len(references) + 1))


@pytest.mark.parametrize("method", ["pairwise", *FEWER])
def test_answers_of_utilities_are_checked(method: Any) -> None:
    with pytest.raises(SgdecError, match=r"Broken answered nan for hypothesis 1 .* finite"):
        search(MbrDecoder(utility=UtilitySpec(Broken()), method=method), SPACE)
    with pytest.raises(SgdecError, match=r"Misshapen answered numbers of shape .*; expected shape"):
        search(MbrDecoder(utility=UtilitySpec(Misshapen()), method=method), SPACE)


def test_a_utility_that_says_nothing_ends_the_run() -> None:
    command = f"'{sys.executable}' -c 'import time; print(\"{{}}\", flush=True); time.sleep(60)'"
    utility = UtilitySpec("command", {"command": command, "seconds": 0.3})
    with pytest.raises(UsageError, match=r"said nothing for 0\.3 seconds"):
        MbrDecoder(utility=utility).decode(opened(SPACE))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": "0.9"}, "mbr: alpha is an option of method pruned, not of pairwise; omit it, or give method"),
        ({"method": "halving", "first": "8"}, "first is an option of method pruned, not of halving"),
        ({"method": "aggregate", "resamples": "8"}, "resamples is an option of method pruned, not of aggregate"),
        ({"method": "pruned", "budget": "8"}, "budget is an option of method halving, not of pruned"),
        ({"method": "halving", "budget": "0"}, "--mbr.budget: '0' should be at least 1"),
        ({"method": "pruned", "alpha": "0"}, "--mbr.alpha: '0' should be above 0"),
        ({"method": "pruned", "alpha": "1.1"}, "--mbr.alpha: '1.1' should be at most 1"),
        ({"method": "prune"}, "--mbr.method: 'prune' is wrong.*pairwise | aggregate | pruned | halving"),
    ],
)
def test_options_of_another_method_and_impossible_ones_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sgdec.load("wc", "mbr", mbr=options, vocab_size=5, max_length=2)


def test_a_config_file_names_no_program_inside_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "run.toml"
    (tmp_path / "in").write_text("3\n")
    begun = tmp_path / "begun"
    texts = (
        f'utility = "command:command=touch {begun}"',
        f'utility = {{command = {{command = "touch {begun}"}}}}',
        f"""candidates = 'mbr:utility="command:command=touch {begun}"'""",
    )
    for text in texts:
        run = 'predictors = "wc"\ndecoder = "mbr"\nvocab_size = 5\ninput_format = "ids"'
        config.write_text(f"{run}\n[mbr]\n{text}\n")
        assert main(["decode", "--config", str(config), str(tmp_path / "in")]) == 2
        assert "command: command starts a program" in capsys.readouterr().err
        assert not begun.exists()


def test_signatures_have_the_utility_with_its_options() -> None:
    run = sgdec.load("wc", "mbr", mbr={"utility": "chrf:word_order=2"}, vocab_size=5, max_length=2)
    assert "utility=chrf(word_order=2)" in run.signature

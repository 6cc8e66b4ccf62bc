"""`mbr` lists the candidates with the highest expected utility, which plain loops compute from the inner list."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.mbr import MbrDecoder

import sgdec
from sgdec import BOS, EOS, DecoderSpec, Hypothesis, UsageError, UtilitySpec
from sgdec.cli.main import main
from sgdec.testing import Table
from sgdec.utility import Utility, aggregated, pairwise
from tests.helpers.oracles import opened, tiny
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
    with pytest.raises(sgdec.SgdecError, match="finite"):
        search(MbrDecoder(utility=UtilitySpec(Broken())), SPACE)
    for text, message in (("chrff", "Did you mean 'chrf'"), ("chrf:words=2", "chrf has no option 'words'")):
        with pytest.raises(UsageError, match=message):
            sgdec.load("wc", "mbr", mbr={"utility": text}, vocab_size=5, max_length=2)


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

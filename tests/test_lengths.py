"""The length limit of a run: what the user gives, otherwise what its models state, otherwise twice the source."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.aligned import Aligned
from sgdec_predictors.altsrc import AltSrc
from sgdec_predictors.bytes import Bytes
from sgdec_predictors.hf import HfPredictor
from sgdec_predictors.idxmap import IdxMap
from sgdec_predictors.interpolate import Interpolate
from sgdec_predictors.repetition import Repetition
from sgdec_predictors.skipvocab import SkipVocab
from sgdec_predictors.temperature import Temperature
from sgdec_predictors.topk import TopTokens
from sgdec_predictors.wc import WordCount

import sgdec
from sgdec import Context, Predictor, Scores, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.lengths import LengthRule, stated_limit
from sgdec.lifting import lift
from sgdec.protocol import BatchPredictor
from sgdec.search.combination.renormalizing import Renormalized
from sgdec.search.outcome import Unreadable
from sgdec.vocabularies import SPECIAL, MixedVocabulary
from tests.helpers.pretrained import V, tiny_model

SPELLED = MixedVocabulary([*SPECIAL, "<M>a", "<M>b", "abcdef"])
"""Its tokens have 1, 1 and 6 bytes at the start, 2, 2 and 7 with a blank, 1, 1 and 7 without: 28 / 9 in the mean."""


class Stating(Predictor):
    """States a limit."""

    def __init__(self, limit: Any) -> None:
        self.limit = limit

    def length_limit(self, source: Source) -> Any:
        if isinstance(self.limit, Exception):
            raise self.limit
        return self.limit(source) if callable(self.limit) else self.limit

    def predict_next(self, candidates: Any = None) -> Scores:
        return Scores.constant(-1.0)


@cache
def causal(positions: int) -> HfPredictor:
    return HfPredictor.of(tiny_model("llama", max_position_embeddings=positions))


@cache
def translating() -> HfPredictor:
    return HfPredictor.of(tiny_model("marian"))


def limit(length: int, *predictors: Predictor | BatchPredictor) -> int | None:
    """The default limit for a source of this length."""
    named = {str(place): lift(each) for place, each in enumerate(predictors)}
    return LengthRule(stated=stated_limit(named)).limit(Source(1, (5,) * length))


@pytest.mark.parametrize(
    ("positions", "prompt", "left"),
    [(64, 50, 14), (64, 64, 0), (64, 1, 63), (256, 1, 255), (300, 44, 256), (300, 45, 255), (4096, 7, 256)],
)
def test_a_causal_model_has_256_new_tokens_or_what_its_context_leaves(positions: int, prompt: int, left: int) -> None:
    assert limit(prompt, causal(positions)) == left


@pytest.mark.parametrize("prompt", [3, 50])
def test_an_output_of_a_causal_model_fits_its_context_by_default(prompt: int) -> None:
    """The model itself allows only </s> where its positions end: the limit is exactly there."""
    predictor = causal(64)
    source = Source(1, (5,) * prompt, max_length=limit(prompt, predictor))
    (state,) = predictor.initialize_batch([source])
    for length in range(64 - prompt + 1):
        scores = predictor.predict_batch([state]).values
        assert scores is not None
        assert (int((scores > -np.inf).sum()) == 1) == (length == source.max_length)
        if length < 64 - prompt:
            (state,) = predictor.consume_batch([state], [5])


def test_translations_and_symbolic_runs_have_twice_the_source() -> None:
    assert limit(7, translating()) == limit(7, WordCount()) == limit(7) == 14


@pytest.mark.parametrize("first", ["causal", "other"])
def test_beside_a_translation_model_twice_the_source_holds(first: str) -> None:
    order = slice(None, None, 1 if first == "causal" else -1)
    assert limit(7, *[causal(64), translating()][order]) == 14
    assert limit(7, *[causal(64), WordCount()][order]) == 57
    assert limit(7, *[causal(64), causal(300)][order]) == 57


ALTERNATIVE = "5 5 5 5 5 5 5 5 5 5"
WRAPPERS: dict[str, tuple[Callable[[BatchPredictor, Path], BatchPredictor], int]] = {
    "topk": (lambda inner, _: TopTokens(inner, 3), 57),
    "temperature": (lambda inner, _: Temperature(inner, 2.0), 57),
    "repetition": (lambda inner, _: Repetition(inner, 1.2), 57),
    "skipvocab": (lambda inner, _: SkipVocab(inner, max_id=9), 57),
    "renormalize": (lambda inner, _: Renormalized(inner), 57),
    "altsrc": (lambda inner, folder: AltSrc(inner, str(folder / "other")), 54),
    "idxmap": (lambda inner, folder: IdxMap(inner, str(folder / "map"), str(folder / "map")), 57),
    "interpolate": (lambda inner, _: Interpolate({"a": inner, "b": lift(WordCount())}), 57),
    "nested": (lambda inner, _: TopTokens(Interpolate({"a": Temperature(inner, 2.0), "b": causal(300)}), 3), 57),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_state_what_is_inside_of_them(name: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text(f"{ALTERNATIVE}\n")
    (tmp_path / "map").write_text("".join(f"{number} {number}\n" for number in range(V)))
    wrap, expected = WRAPPERS[name]
    assert limit(7, wrap(causal(64), tmp_path)) == expected
    if name != "nested":
        assert limit(7, wrap(translating(), tmp_path)) == limit(7, wrap(lift(WordCount()), tmp_path)) == 14


def test_bytes_count_the_bytes_of_as_many_tokens() -> None:
    def inner(stated: int | None) -> BatchPredictor:
        predictor = lift(Stating(stated))
        predictor.vocabularies = Vocabularies(target=SPELLED)
        return predictor

    assert limit(7, Bytes(inner(256))) == 797  # 256 * 28 / 9, rounded up
    assert limit(7, Bytes(inner(None))) == 44  # of 14 tokens
    aligned = Aligned(inner(256), context=Context(vocabularies=Vocabularies(target=SPELLED)))
    assert limit(7, aligned) == 14  # its tokens are others
    assert limit(7, aligned, causal(64)) == 57


def test_a_limit_that_is_given_holds() -> None:
    stated, source = stated_limit({"model": causal(64)}), Source(1, (5,) * 7)
    limits = [LengthRule(factor, fixed, stated).limit(source) for factor, fixed in ((3.0, None), (0.0, 9), (None, 0))]
    assert limits == [21, 9, None]


def test_the_signature_states_the_limit() -> None:
    def signed(predictor: Predictor, **settings: Any) -> list[str]:
        line = sgdec.load({"p": predictor}, vocab_size=5, **settings).signature
        return [part for part in line.split("|") if part.startswith("max_length")]

    assert signed(WordCount()) == signed(WordCount(), max_length_factor=2.0) == ["max_length_factor:2.0"]
    assert signed(Stating(3)) == ["max_length:of models"]
    assert signed(Stating(3), max_length_factor=1.5) == ["max_length_factor:1.5"]
    assert signed(Stating(3), max_length=9) == signed(WordCount(), max_length=9) == ["max_length:9"]


def test_a_run_searches_up_to_the_limit_of_its_models() -> None:
    class Longest(Stating):
        def predict_next(self, candidates: Any = None) -> Scores:
            return Scores.sparse([2], [-9.0], default=-1.0)

    run = sgdec.load({"p": Longest(lambda source: 3 * len(source.tokens))}, "greedy", vocab_size=4)
    assert [len(found.best.tokens) for found in run.decode([[3], [3, 3]])] == [3, 6]


def test_a_source_that_a_model_refuses_fails_with_its_own_error() -> None:
    run = sgdec.load({"model": causal(64), "wc": "wc"}, "greedy")
    first, second = run.decode([[5] * 65, [5] * 63])
    assert str(first.error) == "the model would read 65 tokens, but has 64 positions. Shorten the source."
    assert len(second.best.tokens) <= 1


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (-1, "predictor 'p': length_limit returned an int; expected a number of tokens, or None."),
        (2.5, "predictor 'p': length_limit returned a float; expected a number of tokens, or None."),
        (KeyError("x"), "predictor 'p': KeyError: 'x' (" + __file__),
    ],
)
def test_a_defect_of_a_predictor_costs_the_sentence_and_names_the_predictor(stated: Any, message: str) -> None:
    (found,) = sgdec.load({"p": Stating(stated)}, "greedy", vocab_size=5).decode([[3]])
    assert found.error is not None and str(found.error).startswith(message)
    line = sgdec.load({"p": Stating(stated)}, "greedy", vocab_size=5).reader("ids").sentence(1, b"3", "in, line 1")
    assert isinstance(line, Unreadable) and isinstance(line.error, SgdecError)


@pytest.mark.parametrize("factor", [-1.0, 1e9, float("nan"), float("inf")])
def test_an_impossible_factor_is_one_line(factor: float) -> None:
    with pytest.raises(UsageError, match=r"--max-length-factor .*: expected 0 to 1000000"):
        LengthRule(factor)

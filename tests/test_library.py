"""The promise of the library: what the command line answers, by name, lazily, and in order.

What results hold is in `test_found`; that both ways agree, in `test_both_ways`.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from itertools import count, islice
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import Decoder, Result, SgdecError, UsageError
from sgdec.library import LoadedRun
from sgdec.search.scheduler import Scheduler
from tests.helpers.library_toys import Around, Copy, Threes, V, load_copy


@pytest.fixture
def run() -> LoadedRun:
    return load_copy()


def rows(run: LoadedRun, sources: Sequence[Any]) -> list[dict[str, Any]]:
    """All that was found but how long it took."""
    return [{k: v for k, v in found.to_dict().items() if k != "seconds"} for found in run.decode(sources)]


@pytest.mark.parametrize(
    ("predictors", "options"),
    [
        ({"copy": Copy(other=-4.0)}, {}),
        ({"copy": Copy}, {"copy": {"other": -4.0}}),
        ({"copy": Copy}, {"copy": {"other": np.float64(-4.0)}, "batch_size": np.int64(1)}),
    ],
)
def test_an_object_and_its_class_with_options_are_one_predictor(
    predictors: Mapping[str, Any], options: dict[str, Any]
) -> None:
    (found,) = sgdec.load(predictors, "greedy", max_length=1, **options).decode([[1, 0]])
    assert found.best.scores == {"copy": -3.0}
    (found,) = sgdec.load(predictors, Threes, **options).decode([[4, 4]])
    assert found.best.score == -4.0 - 2.0


@pytest.mark.parametrize(
    ("decoder", "options"),
    [(Threes(2), {}), (Threes, {"Threes": {"times": 2}}), (Threes, {"Threes": {"times": "2"}})],
)
def test_a_decoder_may_be_an_object_or_a_class(decoder: Any, options: dict[str, Any]) -> None:
    (found,) = sgdec.load("wc", decoder, vocab_size=V, **options).decode([[3]])
    assert found.best.tokens == (3, 3)


def test_a_wrapper_stands_in_a_list_or_around_an_object() -> None:
    (plain,) = sgdec.load({"copy": "rank:wc"}, "greedy", vocab_size=V).decode([[3, 4]])
    (listed,) = sgdec.load("rank:wc", "greedy", vocab_size=V).decode([[3, 4]])
    assert plain.best.scores == {"copy": listed.best.scores["rank"]}


def test_a_run_gives_the_same_results_each_time(run: LoadedRun) -> None:
    sources = [[3, 4], [4], [3, 3, 3]]
    assert list(run.decode(sources)) == list(run.decode(iter(sources)))
    sampling = sgdec.load({"copy": Copy()}, "sample", seed=3, nbest=4)
    assert rows(sampling, sources) == rows(sampling, sources)


def test_two_iterators_of_one_run_do_not_disturb_each_other(run: LoadedRun) -> None:
    there, back = [[3], [4], [3, 4], [4, 4]], [[4, 4], [3, 4], [4], [3]]
    together = list(zip(run.decode(there), run.decode(back), strict=True))
    assert together == list(zip(list(run.decode(there)), list(run.decode(back)), strict=True))


@pytest.mark.parametrize(("batch_size", "window"), [(1, None), (2, None), (2, 3), (4, 8)])
def test_of_endless_sources_no_more_is_read_than_a_window_ahead(batch_size: int, window: int | None) -> None:
    read = []

    def endless() -> Iterator[list[int]]:
        for number in count():
            read.append(number)
            yield [3, 4]

    run = sgdec.load({"copy": Copy()}, "greedy", batch_size=batch_size, window=window)
    found = list(islice(run.decode(endless()), 3))
    assert [each.id for each in found] == [1, 2, 3]
    size = window or (1 if batch_size == 1 else 16 * batch_size)
    assert len(read) <= 3 + 2 * size


def test_nothing_is_read_before_the_first_result_is_asked_for(run: LoadedRun) -> None:
    def broken() -> Iterator[list[int]]:
        raise AssertionError("read")
        yield []

    run.decode(broken())


def test_what_was_begun_is_ended_when_the_iterator_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second search is in the middle of its sentence, and somebody else holds the iterators that feed it."""
    begun, ended, held = [], [], []

    class Noting(Decoder):
        def decode(self, space: sgdec.SearchSpace) -> Result:
            begun.append(space.source.id)
            try:
                return Threes(10 if space.source.id == 2 else 1).decode(space)
            finally:
                ended.append(space.source.id)

    def hold(scheduler: Scheduler, sentences: Any, *watch: Any) -> Any:
        held.extend([sentences, run_of(scheduler, sentences, *watch)])
        return held[-1]

    run_of = Scheduler.run
    monkeypatch.setattr(Scheduler, "run", hold)
    found = sgdec.load({"copy": Copy()}, Noting(), batch_size=2, window=2).decode([3] for _ in count())
    next(found)
    assert 2 in begun and 2 not in ended
    found.close()
    assert sorted(begun) == sorted(ended)
    assert len(held) == 2 and all(iterator.gi_frame is None for iterator in held)


def test_a_sentence_that_fails_costs_only_itself(run: LoadedRun) -> None:
    sources: list[Any] = [[3], [5], [], [-1], [1 << 31], [4]]
    found = list(run.decode(sources))
    assert [each.id for each in found] == [1, 2, 3, 4, 5, 6]
    assert [each.error is None for each in found] == [True, False, False, False, False, True]
    assert found[1].hypotheses == () and "ValueError: a five" in str(found[1].error)
    assert str(found[2].error) == "empty; there is nothing to decode."
    assert str(found[3].error) == "-1 is not a token id (0, 1, 2, ...)."
    assert found[0].best == found[0].hypotheses[0]
    with pytest.raises(SgdecError, match="empty"):
        _ = found[2].best
    assert "a five" in repr(found[1])


def test_or_ends_the_run_where_it_is_asked_to(run: LoadedRun) -> None:
    found = run.decode([[3], [5], [4]], errors="raise")
    assert next(found).id == 1
    with pytest.raises(SgdecError, match="sentence 2: predictor 'copy': ValueError: a five"):
        next(found)


def test_settings_reach_the_search(run: LoadedRun) -> None:
    load: Callable[..., LoadedRun] = sgdec.load
    longer = load({"copy": Copy()}, Threes(2), max_length_factor=0.5, max_source_length=4)
    found = list(longer.decode([[3, 4], [3] * 5, [4] * 4]))
    assert "StopIteration" in repr(found[0])  # a limit of one token
    assert "5 tokens, more than --max-source-length 4" in str(found[1].error)
    assert found[2].best.tokens == (3, 3)


def test_whatever_the_scheduler_can_be_told_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []

    def noting(constellation: Any, decoder: Any, **given: Any) -> Scheduler:
        told.append(given)
        return Scheduler(constellation, decoder, **given)

    monkeypatch.setattr("sgdec.library._Scheduler", noting)
    settings = {"nbest": 2, "seed": 3, "batch_size": 4, "window": 5, "max_rows": 6, "deterministic": True}
    keywords = [each.name for each in signature(Scheduler).parameters.values() if each.kind is each.KEYWORD_ONLY]
    others = {"tracing": None, "meter": None, "text_of": None, "vocabulary": None, "weights_of": None}
    settings["coverage"] = False
    assert {*settings, *others} == set(keywords)
    load: Callable[..., LoadedRun] = sgdec.load
    run = load({"copy": Copy()}, "sample", **settings)
    list(run.decode([[3]]))
    assert told[-1] == settings | others
    list(run.score([[3]], [[3]]))
    of_search = ("nbest", "coverage")
    scored = {name: value for name, value in settings.items() if name not in of_search}
    assert told[-1] == scored | {"weights_of": None}  # there is one path


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sgdec.load("wc", nbest=0), "--nbest: 0 should be at least 1 (int >= 1: number"),
        (lambda: sgdec.load("wc", precision="fp8"), "--precision: 'fp8' should be 'fp32', 'bf16', 'fp64' or 'int8'"),
        (lambda: sgdec.load("wc", device="gpu"), "--device gpu: expected cpu, cuda or cuda:N."),
        (lambda: sgdec.load("wc", max_length_factor=1e9), "--max-length-factor 1e+09: expected 0 to 1000000."),
        (lambda: sgdec.load("wc", copy_unknown=True), "words can be copied only from words to words"),
        (lambda: sgdec.load("wc", "vanilla", max_rows=3), "--max-rows does not work with decoders over"),
        (lambda: sgdec.load("wcc"), "no predictor named 'wcc'. Did you mean 'wc'?"),
        (lambda: sgdec.load("wc", beam={"sise": 3}), "no option --beam.sise. Did you mean '--beam.size'?"),
        (lambda: sgdec.load("wc", beem={"size": 3}), "options for 'beem', which this run does not use."),
        (lambda: sgdec.load("wc", nbset=3), "no setting 'nbset'. Did you mean 'nbest'?"),  # type: ignore[arg-type]
        (lambda: sgdec.load({}), "predictors: none is given."),
        (lambda: sgdec.load(["wc", "fst"]), "is neither text, such as 'nmt,fst', nor a mapping of names. Write 'w"),  # type: ignore[arg-type]
        (lambda: sgdec.load({"wc"}), "Write 'wc'."),  # type: ignore[arg-type]
        (lambda: sgdec.load(b"wc"), "Write 'wc'."),  # type: ignore[arg-type]
        (lambda: sgdec.load(None), "Write {NAME: PREDICTOR}, with a plugin's name, a class or an object"),  # type: ignore[arg-type]
        (lambda: sgdec.load(Copy()), "Write {NAME: PREDICTOR}, with a plugin's name, a class or an object"),  # type: ignore[arg-type]
        (lambda: sgdec.load("hf", hf="chat"), "'chat': options of a part are a mapping. Write hf={'model': 'chat'}."),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", beam=4), "beam=4: options of a part are a mapping. Write beam={'size': 4}."),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", wc="a"), "wc='a': options of a part are a mapping, such as wc={'"),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", wc=None), "wc=None: options of a part are a mapping, such as wc={'"),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", size=4), "no setting 'size'; it is an option of 'beam'. Write beam={'size': 4}."),  # type: ignore[arg-type]
        (lambda: sgdec.load("a=fst", path="f"), "it is an option of 'fst'. Write fst={'path': 'f'}."),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", ["beam"]), "['beam'] is not a decoder. Expected the name of a plugin, such as 'b"),  # type: ignore[arg-type]
        (lambda: sgdec.load({"my lm": "wc"}), "predictors: 'my lm' is not a name."),
        (lambda: sgdec.load({"beam": "wc"}), "'beam' is the decoder."),
        (lambda: sgdec.load({"copy": 3}), "3 is not a predictor. Expected the name of a plugin, such as 'ngram'"),  # type: ignore[dict-item]
        (lambda: sgdec.load({"x": "rank"}), "'rank' wraps another predictor: write rank:PREDICTOR."),
        (lambda: sgdec.load({"x": Around}), "wraps another predictor: give an object of it."),
        (lambda: sgdec.load({"x": "wc:rank:wc"}), "'wc' is not a wrapper; it cannot come before 'wc'."),
        (lambda: sgdec.load({"copy": Copy()}, copy={"other": 1}), "no option --copy.other: 'copy' is an object"),
        (lambda: sgdec.load("wc", Threes(), Threes={"times": 1}), "no option --Threes.times: 'Threes' is an object"),
        (lambda: sgdec.load("wc", Copy), "is not a decoder."),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", plugin_file="none.py"), "--plugin-file none.py: no such file."),
        (lambda: sgdec.load("wc", plugin_file=3), "plugin_file=3: expected the path of a Python file, or a list of"),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", plugin_file=[None]), "plugin_file=[None]: expected the path of a Python file"),  # type: ignore[list-item]
        (lambda: sgdec.load_utility("chrf", plugin_file=b"a"), "plugin_file=b'a': expected the path of a Python"),
        (lambda: list(sgdec.load("wc", vocab_size=V).decode(["a b"])), "source 1 is text, and no predictor has a"),
        (lambda: list(sgdec.load("wc", vocab_size=V).decode([b"ab"])), "source 1 is b'ab'; expected a string or a"),
        (lambda: list(sgdec.load("wc", vocab_size=V).decode([[3.5]])), "source 1 is [3.5]; expected a string or a"),  # type: ignore[list-item]
        (lambda: sgdec.load("wc", vocab_size=V).decode("a b"), "expected a list or an iterator of sentences"),
        (lambda: list(sgdec.load("wc", vocab_size=V).decode([3, 4])), "source 1 is 3; expected a string or a seq"),  # type: ignore[list-item]
        (lambda: list(sgdec.load("wc", vocab_size=V).score([[3]], ["a"])), "target 1 is text, and no predictor has"),
        (lambda: sgdec.load("wc").score([], [], beta=0.1), "a coverage penalty (beta = 0.1) needs a predictor wi"),
        (lambda: sgdec.load("wc").score([], [], alpha=-1), "--alpha: -1 should be at least 0"),
        (lambda: sgdec.load("wc").score([], "a"), "targets: expected a list or an iterator of sentences"),
        (lambda: sgdec.load("wc").decode([], errors="ignore"), "errors='ignore': expected 'return' or 'raise'."),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_run_says_what_it_is() -> None:
    options: dict[str, Any] = {"Threes": {"times": 2}, "wc": {"weight": 0.5}}
    run = sgdec.load({"copy": Copy(), "wc": "wc"}, Threes, nbest=2, vocab_size=V, **options)
    assert repr(run) == "<sgdec: copy=Copy, 0.5*wc | Threes(times=2) | nbest=2, vocab_size=6>"
    renormalized = sgdec.load("wc", "greedy", wc={"renormalize": True}, vocab_size=6)
    assert repr(renormalized) == "<sgdec: wc renormalized | greedy | vocab_size=6>"
    parts = dict(part.split(":", 1) for part in run.signature.split("|"))
    assert parts["predictors"].startswith("1*copy=") and parts["predictors"].endswith("(...),0.5*wc")
    assert "Threes#" in parts["decoder"] and parts["decoder"].endswith("(times=2)")  # with the hash of its text
    assert (parts["nbest"], parts["batch_size"], parts["seed"]) == ("2", "64", "0")


@pytest.mark.slow
def test_importing_and_decoding_load_nothing_that_is_not_needed() -> None:
    code = (
        "import sys, sgdec\n"
        "assert not {'numpy', 'pydantic', 'torch'} & set(sys.modules)\n"
        "(found,) = sgdec.load('wc', wc={'weight': -1}, vocab_size=5).decode([[3]])\n"
        "assert found.best.score == 2 and not {'torch', 'pynini', 'sentencepiece', 'click'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_global_is_changed() -> None:
    """But the threads of neural models, where they are given."""
    import torch

    before = (torch.get_num_threads(), gc.get_threshold(), torch.random.get_rng_state(), np.random.get_state()[1])
    list(sgdec.load({"copy": Copy()}, "sample", seed=1).decode([[3]]))
    after = (torch.get_num_threads(), gc.get_threshold(), torch.random.get_rng_state(), np.random.get_state()[1])
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    try:
        sgdec.load("wc", threads=before[0] + 1)
        assert torch.get_num_threads() == before[0] + 1
    finally:
        torch.set_num_threads(before[0])

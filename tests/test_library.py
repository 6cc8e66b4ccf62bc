"""The promise of the library: what the command line answers, by name, lazily, and in order.

Oracles: enumeration of the space and sums worked out by hand. That both ways agree is in `test_both_ways`.
"""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import EOS, Decoder, Predictor, Result, Scores, SgdecError, Source, UsageError
from sgdec.constellation import Constellation
from sgdec.context import Vocabularies
from sgdec.library import LoadedRun
from sgdec.testing import Table, enumerate_space
from tests.tiny_models import characters

V = 6


class Copy(Predictor):
    """Likes the source tokens, whatever their order; then the end."""

    max_score = 0.0

    def __init__(self, other: float = -5.0) -> None:
        self.other = other

    def initialize(self, source: Source) -> None:
        if source.tokens[0] == 5:
            raise ValueError("a five")
        self.scores = np.full(V, self.other)
        self.scores[[*source.tokens, EOS]] = [-1.0] * len(source.tokens) + [-2.0]

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        return Scores.dense(self.scores)


class Threes(Decoder):
    """``times`` token 3, then the end."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def decode(self, space: sgdec.SearchSpace) -> Result:
        node = space.root
        for token in [3] * self.times + [EOS]:
            (children,) = space.expand([node])
            node = next(child for child in children if child.step is not None and child.step.token == token)
        return Result([space.finish(node)])


class Speaking(Copy):
    """Brings the vocabularies of ``a`` and ``b``."""

    def __init__(self) -> None:
        super().__init__()
        self.vocabularies = Vocabularies(characters("ab"), characters("ab"))


@pytest.fixture
def run() -> LoadedRun:
    return sgdec.load({"copy": Copy(), "wc": "wc"}, wc={"weight": -1.5}, beam={"size": 3, "stop": "full"})


def rows(run: LoadedRun, sources: Sequence[Any]) -> list[dict[str, Any]]:
    """All that was found but how long it took."""
    return [{k: v for k, v in found.to_dict().items() if k != "seconds"} for found in run.decode(sources)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("decoder", ["beam", "dfs"])
def test_a_full_search_finds_what_enumeration_finds(decoder: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    tables = {name: Table(-draw.exponential(size=(V, V))) for name in ("one", "two")}
    options: dict[str, Any] = {"beam": {"size": 10_000, "stop": "full"}} if decoder == "beam" else {}
    run = sgdec.load(tables, decoder, nbest=5, max_length=3, one={"weight": 0.5}, two={"weight": 2}, **options)
    true = enumerate_space(Constellation.of(tables, weights=[0.5, 2.0]), Source(1, (3,), max_length=3))[:5]
    (found,) = run.decode([np.array([3])])
    assert [each.tokens for each in found.hypotheses] == [path.tokens for path in true]
    for each, path in zip(found.hypotheses, true, strict=True):
        assert each.score == each.rank_score == pytest.approx(path.total, abs=1e-12)
        assert [(step.scores["one"], step.scores["two"]) for step in each.ledger] == [
            pytest.approx(step, abs=1e-12) for step in path.ledger
        ]
        assert [step.token for step in each.ledger] == [*path.tokens, EOS]
        assert all(step.weights == {"one": 0.5, "two": 2.0} for step in each.ledger)
    assert found.expansions > 0 and found.error is None


def test_the_best_and_its_scores_by_name(run: LoadedRun) -> None:
    (found,) = run.decode([[3, 4]])
    assert (found.best.tokens, found.best.score) == ((3, 3, 3, 3), 4 * (-1.0 + 1.5) - 2.0)
    assert found.best.scores == {"copy": -6.0, "wc": -4.0}
    assert found.best.text is None and found.best.ledger[0].piece is None  # nobody has a vocabulary
    assert found.id == 1 and found.source is None and found.source_tokens == (3, 4)


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


def test_what_was_begun_is_ended_when_the_iterator_is_closed() -> None:
    ended: list[int] = []

    class Noting(Threes):
        def decode(self, space: sgdec.SearchSpace) -> Result:
            try:
                return super().decode(space)
            finally:
                ended.append(space.source.id)

    found = sgdec.load({"copy": Copy()}, Noting(3), batch_size=2, window=2).decode([3] for _ in count())
    next(found)
    begun = len(ended)
    found.close()  # type: ignore[attr-defined]
    gc.collect()
    assert len(ended) >= begun and not [each for each in gc.get_objects() if type(each).__name__ == "_Search"]


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


def test_text_goes_through_the_vocabularies(tmp_path: Path) -> None:
    run = sgdec.load({"copy": Speaking()}, Threes(2))
    assert run.parts.constellation.vocab_size == characters("ab").size == V
    of_text, of_ids = run.decode(["ab\n", characters("ab").encode("ab")])
    piece = characters("ab").piece(3)
    assert of_text.source == "ab" and of_text.source_tokens == of_ids.source_tokens
    assert of_text.best == of_ids.best and of_text.best.text == characters("ab").decode((3, 3))
    assert [step.piece for step in of_text.best.ledger] == [piece, piece, "</s>"]
    path = tmp_path / "ab.spm"
    path.write_bytes(characters("ab").serialized)
    (found,) = sgdec.load({"copy": Copy()}, Threes(2), tokenizer=path).decode(["ab"])
    assert found.best.text == of_text.best.text


def test_settings_reach_the_search(run: LoadedRun) -> None:
    load: Callable[..., LoadedRun] = sgdec.load
    longer = load({"copy": Copy()}, Threes(2), max_length_factor=0.5, max_source_length=4)
    found = list(longer.decode([[3, 4], [3] * 5, [4] * 4]))
    assert "StopIteration" in repr(found[0])  # a limit of one token
    assert "5 tokens, more than --max-source-length 4" in str(found[1].error)
    assert found[2].best.tokens == (3, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sgdec.load("wc", nbest=0), "--nbest: 0 should be greater than or equal to 1 (int >= 1: hyp"),
        (lambda: sgdec.load("wc", precision="fp8"), "--precision: 'fp8' should be 'fp32', 'bf16', 'fp64' or 'int8'"),
        (lambda: sgdec.load("wc", device="gpu"), "--device gpu: expected cpu, cuda or cuda:N."),
        (lambda: sgdec.load("wc", max_length_factor=1e9), "--max-length-factor 1e+09: expected 0 to 1000000."),
        (lambda: sgdec.load("wc", copy_unknown=True), "words can be copied only from words to words"),
        (lambda: sgdec.load("wc", "vanilla", max_rows=3), "--max-rows cannot hold for a decoder over whole batches"),
        (lambda: sgdec.load("wcc"), "no predictor named 'wcc'. Did you mean 'wc'?"),
        (lambda: sgdec.load("wc", beam={"sise": 3}), "no option --beam.sise. Did you mean '--beam.size'?"),
        (lambda: sgdec.load("wc", beem={"size": 3}), "options for 'beem', which this run does not use."),
        (lambda: sgdec.load("wc", nbset=3), "no setting 'nbset'. Did you mean 'nbest'?"),  # type: ignore[arg-type]
        (lambda: sgdec.load({}), "predictors: none is given."),
        (lambda: sgdec.load(["wc"]), "predictors: ['wc'] is neither a list, such as 'nmt,fst', nor a mapping"),  # type: ignore[arg-type]
        (lambda: sgdec.load({"my lm": "wc"}), "predictors: 'my lm' is no name."),
        (lambda: sgdec.load({"beam": "wc"}), "'beam' is the decoder."),
        (lambda: sgdec.load({"copy": 3}), "3 is no predictor. Expected the name of a plugin, a class, or an object"),  # type: ignore[dict-item]
        (lambda: sgdec.load({"copy": Copy()}, copy={"other": 1}), "no option --copy.other: 'copy' is an object"),
        (lambda: sgdec.load("wc", Threes(), Threes={"times": 1}), "no option --Threes.times: 'Threes' is an object"),
        (lambda: sgdec.load("wc", Copy), "is no decoder."),  # type: ignore[arg-type]
        (lambda: sgdec.load("wc", plugin_file="none.py"), "--plugin-file none.py: no such file."),
        (lambda: list(sgdec.load("wc", vocab_size=V).decode(["a b"])), "source 1 is text, and no predictor brings a"),
        (lambda: sgdec.load("wc", vocab_size=V).decode("a b"), "expected a list or an iterator of sentences"),
        (lambda: list(sgdec.load("wc", vocab_size=V).decode([3, 4])), "source 1 is 3; expected a string or a seq"),  # type: ignore[list-item]
        (lambda: list(sgdec.load("wc", vocab_size=V).score([[3]], ["a"])), "target 1 is text, and no predictor bri"),
        (lambda: sgdec.load("wc").score([], [], beta=0.1), "a coverage penalty (beta = 0.1) needs a predictor wi"),
        (lambda: sgdec.load("wc").score([], [], alpha=-1), "--alpha: -1 should be greater than or equal to 0"),
        (lambda: sgdec.load("wc").score([], "a"), "targets: expected a list or an iterator of sentences"),
        (lambda: sgdec.load("wc").decode([], errors="ignore"), "errors='ignore': expected 'return' or 'raise'."),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_results_are_plain_json() -> None:
    run = sgdec.load({"copy": Copy(), "wc": "wc"}, vocab_size=V, beam={"size": 2}, nbest=2)
    for found in run.decode([np.array([3, 4]), [5]]):
        row = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert row["id"] == found.id and row.get("error") == (str(found.error) if found.error else None)
        for hypothesis in row["hypotheses"]:
            columns, weights = hypothesis["token_scores"], hypothesis["token_weights"]
            total = math.fsum(w * s for name in columns for w, s in zip(weights[name], columns[name], strict=True))
            assert total == pytest.approx(hypothesis["score"])
        assert "token_scores" not in json.dumps(found.to_dict(ledger=False))


def test_a_table_for_notebooks_escapes_what_it_shows() -> None:
    class Evil:
        """A vocabulary whose pieces are tags."""

        size, fingerprint = V, "evil"

        def encode(self, text: str) -> tuple[int, ...]:
            return (3, 4)

        def decode(self, tokens: Sequence[int]) -> str:
            return "<script>out</script>"

        def piece(self, token: int) -> str:
            return "<i>&"

        def token(self, piece: str) -> int:
            return 0

    speaking: Any = Speaking()
    speaking.vocabularies = Vocabularies(Evil(), Evil())
    fine, failed = sgdec.load({"copy": speaking}, Threes(1)).decode(["<script>in</script>", [5]])
    html = fine._repr_html_()
    assert "<script>" not in html and "<i>" not in html and html.count("&lt;i&gt;&amp;") == 2
    assert "&lt;script&gt;in" in html and "&lt;script&gt;out" in html
    assert "a five" in failed._repr_html_()


def test_outputs_that_are_known_are_scored(run: LoadedRun) -> None:
    scored = list(run.score([[3, 4], [4], [3], [5], [3]], [[3, 5], [], [1], [3], (4 for _ in range(2))]))
    assert [each.id for each in scored] == [1, 2, 3, 4, 5]
    assert scored[0].best.scores == {"copy": -1.0 - 5.0 - 2.0, "wc": -2.0}
    assert scored[0].best.score == scored[0].best.rank_score == -8.0 + 1.5 * 2
    assert [step.token for step in scored[0].best.ledger] == [3, 5, EOS]
    assert scored[1].best.tokens == () and scored[1].best.score == -2.0
    assert str(scored[2].error) == "'1' is no token id of an output." and "a five" in str(scored[3].error)
    assert scored[4].best.scores["copy"] == -5.0 * 2 - 2.0
    (longer,) = run.score([[3]], [[3, 3, 3]], alpha=1.0, normalize="length")
    assert longer.best.rank_score == pytest.approx((-3.0 + 4.5 - 2.0) / 4)


def test_what_was_decoded_gets_the_score_that_it_had(run: LoadedRun) -> None:
    sources = [[3, 4], [4], [3, 3]]
    decoded = list(run.decode(sources))
    scored = run.score(sources, [found.best.tokens for found in decoded])
    assert [found.best for found in scored] == [found.best for found in decoded]


def test_text_is_scored_through_the_vocabularies() -> None:
    run = sgdec.load({"copy": Speaking()})
    of_text, of_ids = run.score(["ab", "ab"], ["ba\n", characters("ab").encode("ba")])
    assert of_text.best == of_ids.best and of_text.best.text == "ba"


@pytest.mark.parametrize(
    ("sources", "targets", "ended"),
    [([[3]], [], "the targets end before number 1"), ([], [[3]], "the sources end before number")],
)
def test_sources_and_targets_are_as_many(run: LoadedRun, sources: Any, targets: Any, ended: str) -> None:
    with pytest.raises(SgdecError, match=ended):
        list(run.score(sources, targets))


def test_a_run_says_what_it_is() -> None:
    options: dict[str, Any] = {"Threes": {"times": 2}, "wc": {"weight": 0.5}}
    run = sgdec.load({"copy": Copy(), "wc": "wc"}, Threes, nbest=2, vocab_size=V, **options)
    assert repr(run) == "<sgdec: copy=Copy, 0.5*wc | Threes(times=2) | nbest=2, vocab_size=6>"
    parts = dict(part.split(":", 1) for part in run.signature.split("|"))
    assert parts["predictors"].startswith("1*copy=") and parts["predictors"].endswith("(...),0.5*wc")
    assert "Threes#" in parts["decoder"] and parts["decoder"].endswith("(times=2)")  # with the hash of its text
    assert (parts["nbest"], parts["batch_size"], parts["seed"]) == ("2", "64", "0")


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

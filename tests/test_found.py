"""The promise of results: the numbers of the search under the names of predictors, as JSON and as tables.

Oracles: enumeration of the space, and sums worked out by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import EOS, Result, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.library import LoadedRun
from sgdec.search.constellation import Constellation
from sgdec.testing import Table, enumerate_space
from tests.helpers.attentive import SOURCE, TARGET, Attentive
from tests.helpers.library_toys import Copy, Speaking, Threes, V, load_copy
from tests.helpers.tiny_models import characters


@pytest.fixture
def run() -> LoadedRun:
    return load_copy()


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


def test_unknown_words_are_copied_where_the_settings_say_so() -> None:
    names = Attentive([0, 2, 1])
    names.vocabularies = Vocabularies(SOURCE, TARGET)
    copying, plain = (
        sgdec.load({"names": names}, "greedy", max_length=2, copy_unknown=chosen) for chosen in (True, False)
    )
    ((copied,), (found,)) = copying.decode(["Miki met Ann"]), plain.decode(["Miki met Ann"])
    assert (copied.best.tokens, copied.best.text) == ((0, 0), "Miki Ann")
    assert found.best.text == TARGET.decode((0, 0))


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


def test_numbers_of_numpy_are_plain_json_too() -> None:
    class Array(Threes):
        def decode(self, space: sgdec.SearchSpace) -> Result:
            (found,) = super().decode(space).hypotheses
            ledger = tuple(tuple(map(np.float32, row)) for row in found.ledger)
            tokens = tuple(map(np.int64, found.tokens))
            return Result([replace(found, tokens=tokens, score=np.float32(found.score), ledger=ledger)])  # type: ignore

    (found,) = sgdec.load({"copy": Copy()}, Array(2)).decode([[3]])
    assert json.loads(json.dumps(found.to_dict()))["hypotheses"][0]["token_scores"] == {"copy": [-1.0, -1.0, -2.0]}


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
    assert str(scored[2].error) == "'1' cannot be a token of an output." and "a five" in str(scored[3].error)
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
    [([[3]], [], "the targets end before number 1, but"), ([], [[3]], "the sources end before number")],
)
def test_sources_and_targets_are_as_many(run: LoadedRun, sources: Any, targets: Any, ended: str) -> None:
    with pytest.raises(SgdecError, match=ended):
        list(run.score(sources, targets))

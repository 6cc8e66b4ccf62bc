"""The promise: `clusternmt` is `nmt` over the active tokens of a context's own cluster, whatever shares its batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.clusternmt import ClusterNmtPredictor
from sgdec_predictors.nmt import NmtPredictor

from sgdec.checkpoints.clusters import checksum, load_clusters, save_clusters
from sgdec.context import EOS, Context
from sgdec.errors import SgdecError, UsageError
from sgdec.estimation.clusters import build_clusters, collect, contexts
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from tests.helpers.clustering import (
    LETTERS,
    SOURCES,
    V,
    active_by_hand,
    context_vector,
    expected_row,
    module_of,
    nearest_by_hand,
    some_clusters,
    some_contexts,
    some_text,
)
from tests.helpers.tiny_models import WIDTH, write_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model"), source=LETTERS, target=LETTERS))


@pytest.fixture(scope="module")
def folder(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Random clusters of the model."""
    folder = tmp_path_factory.mktemp("clusters")
    save_clusters(folder, some_clusters(some_contexts(model, 5)), model=checksum(model), about={})
    return str(folder)


@pytest.fixture(scope="module")
def everything(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Clusters in which every token is active."""
    folder = tmp_path_factory.mktemp("everything")
    save_clusters(
        folder,
        collect(contexts(module_of(model), some_text(20), V), some_contexts(model, 4), V),
        model=checksum(model),
        about={},
    )
    return str(folder)


def test_with_all_tokens_active_it_is_nmt(model: str, everything: str) -> None:
    context = Context(precision="fp64")
    plain, clustered = NmtPredictor(model, context), ClusterNmtPredictor(model, everything, context=context)
    for batch in (SOURCES, SOURCES[:1]):
        rows = []
        for predictor in (plain, clustered):
            states = predictor.initialize_batch(batch)
            first = predictor.predict_batch(states).values
            after = predictor.predict_batch(predictor.consume_batch(states, [7] * len(batch))).values
            rows.append(np.concatenate([np.asarray(first), np.asarray(after)]))
        assert np.allclose(rows[0], rows[1], rtol=0, atol=1e-12)
    assert clustered.active_share == 1.0


@pytest.mark.parametrize("k", [0, 1, 2])
def test_a_row_is_the_softmax_over_its_own_clusters_tokens(model: str, folder: str, k: int) -> None:
    clusters = load_clusters(folder)
    predictor = ClusterNmtPredictor(model, folder, k=k, context=Context(precision="fp64"))
    states = predictor.initialize_batch(SOURCES)
    prefixes: list[tuple[int, ...]] = [()] * len(SOURCES)
    met = set()
    for tokens in ([5, 3, 14, 9], [6, 6, 3, 12]):
        values = predictor.predict_batch(states).values
        assert values is not None
        for row, source, prefix in zip(values, SOURCES, prefixes, strict=True):
            vector = context_vector(model, source.tokens, prefix)
            cluster = nearest_by_hand(vector, clusters.centroids)
            met.add(cluster)
            expected = expected_row(model, source, prefix, active_by_hand(clusters, cluster, k or 255))
            assert np.isfinite(expected[EOS])
            assert np.allclose(row, expected, rtol=0, atol=1e-9)
        states = predictor.consume_batch(states, tokens)
        prefixes = [(*prefix, token) for prefix, token in zip(prefixes, tokens, strict=True)]
    assert len(met) > 1, "this test needs several clusters"


def test_one_cluster_is_the_model_without_its_unused_columns(model: str, tmp_path: Path) -> None:
    clusters = build_clusters(module_of(model), some_text(20), centroids=1, k=2, vocab_size=V)
    save_clusters(tmp_path, clusters, model=checksum(model), about={})
    active = set(clusters.tokens.tolist())
    assert len(active) < V
    for precision, tolerance in (("fp64", 1e-9), ("fp32", 1e-5)):
        predictor = ClusterNmtPredictor(model, str(tmp_path), context=Context(precision=precision))
        values = predictor.predict_batch(predictor.initialize_batch(SOURCES)).values
        assert values is not None
        for row, source in zip(values, SOURCES, strict=True):
            assert np.allclose(row, expected_row(model, source, (), active), rtol=0, atol=tolerance)
        assert predictor.active_share == len(active) / V


def test_shared_rows_use_the_tokens_of_the_whole_batch(model: str, folder: str) -> None:
    clusters = load_clusters(folder)
    predictor = ClusterNmtPredictor(model, folder, shared=True, context=Context(precision="fp64"))
    sets = [
        active_by_hand(clusters, nearest_by_hand(context_vector(model, source.tokens, ()), clusters.centroids))
        for source in SOURCES
    ]
    union = set().union(*sets)
    assert any(own != union for own in sets), "rows of this test must differ from their union"
    values = predictor.predict_batch(predictor.initialize_batch(SOURCES)).values
    assert values is not None
    for row, source in zip(values, SOURCES, strict=True):
        assert np.allclose(row, expected_row(model, source, (), union), rtol=0, atol=1e-9)


def test_the_active_share_is_that_of_the_unions(model: str, folder: str) -> None:
    clusters = load_clusters(folder)
    predictor = ClusterNmtPredictor(model, folder, context=Context(precision="fp64"))
    assert predictor.active_share == 0.0
    sets = [
        active_by_hand(clusters, nearest_by_hand(context_vector(model, source.tokens, ()), clusters.centroids))
        for source in SOURCES
    ]
    predictor.predict_batch(predictor.initialize_batch(SOURCES))
    predictor.predict_batch(predictor.initialize_batch(SOURCES[:1]))
    expected = (len(set().union(*sets)) + len(sets[0])) / (2 * V)
    assert predictor.active_share == pytest.approx(expected)
    assert predictor.summary() == f"{expected:.2%} of the vocabulary active, mean of 2 projections"


def test_half_precision_scores_in_single(model: str, folder: str) -> None:
    predictor = ClusterNmtPredictor(model, folder, context=Context(precision="bf16"))
    values = predictor.predict_batch(predictor.initialize_batch(SOURCES)).values
    assert isinstance(values, torch.Tensor) and values.dtype == torch.float32
    assert torch.allclose(values.exp().sum(1), torch.ones(len(SOURCES)))


def test_beam_search_over_it_finds_what_it_finds_over_nmt(model: str, everything: str) -> None:
    context, found = Context(precision="fp64"), []
    for predictor in (NmtPredictor(model, context), ClusterNmtPredictor(model, everything, context=context)):
        constellation = Constellation.of({"nmt": predictor}, vocab_size=V)
        outcomes = Scheduler(constellation, BeamDecoder(size=3), nbest=3).run(SOURCES)
        found.append([[h.tokens for h in outcome.result.hypotheses] for outcome in outcomes])
    assert found[0] == found[1]


def test_in_bf16_a_decode_is_near_that_of_fp32(model: str, folder: str) -> None:
    """The 16-bit inference of the paper, section 3.1."""
    found = []
    for precision in ("fp32", "bf16"):
        predictor = ClusterNmtPredictor(model, folder, context=Context(precision=precision))
        constellation = Constellation.of({"clusternmt": predictor}, vocab_size=V)
        outcomes = list(Scheduler(constellation, BeamDecoder(size=3, stop="full"), nbest=3).run(SOURCES))
        found.append([{h.tokens: h.score for h in outcome.result.hypotheses} for outcome in outcomes])
    both = [(one[tokens], other[tokens]) for one, other in zip(*found, strict=True) for tokens in one.keys() & other]
    assert len(both) > 2 * len(SOURCES) and any(one != other for one, other in both)
    differences = sorted(abs(one - other) for one, other in both)
    assert differences[len(differences) // 2] < 0.1 and differences[-1] < 0.5  # a step may have another cluster


def test_an_8_bit_model_is_refused_with_a_way_out(model: str, folder: str) -> None:
    with pytest.raises(UsageError, match=r"clusternmt: 8-bit models .*\. Give the model that this one was made of"):
        ClusterNmtPredictor(model, folder, context=Context(precision="int8"))


def test_sentences_decode_together_as_they_decode_alone(model: str, folder: str) -> None:
    found = []
    for batch_size in (1, 64):
        predictor = ClusterNmtPredictor(model, folder, context=Context(precision="fp64"))
        constellation = Constellation.of({"clusternmt": predictor}, vocab_size=V)
        outcomes = list(Scheduler(constellation, BeamDecoder(size=3), batch_size=batch_size).run(SOURCES))
        found.append([(h.tokens, round(h.score, 9)) for outcome in outcomes for h in outcome.result.hypotheses])
    assert found[0] == found[1] and len(found[0]) == len(SOURCES)


def test_clusters_of_another_model_are_refused(model: str, folder: str, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path, seed=2, source=LETTERS, target=LETTERS)
    with pytest.raises(SgdecError, match=r"these clusters are of another model than .*; run `sgdec cluster` for it"):
        ClusterNmtPredictor(str(other), folder)


def test_clusters_that_do_not_fit_the_projection_are_refused(model: str, tmp_path: Path) -> None:
    save_clusters(tmp_path, some_clusters(torch.zeros(5, WIDTH + 1)), model=checksum(model), about={})
    with pytest.raises(SgdecError, match="do not fit the model's projection"):
        ClusterNmtPredictor(model, str(tmp_path))


def test_more_likely_tokens_than_were_recorded_are_refused(model: str, folder: str) -> None:
    with pytest.raises(UsageError, match=r"--clusternmt.k 4: .* was built with the 3 likeliest tokens at most"):
        ClusterNmtPredictor(model, folder, k=4)


def test_vocabularies_are_read_without_clusters(model: str) -> None:
    found = ClusterNmtPredictor.read_vocabularies(model, clusters="nowhere", k=3)
    assert found.target is not None and found.target.size == V

"""The promise: vocabulary clusters hold what was likely near each centroid, and `clusternmt` scores just that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.clusternmt import ClusterNmtPredictor
from sgdec_predictors.nmt import NmtPredictor

from sgdec.cli.cluster import command, own_outputs
from sgdec.constellation import Constellation
from sgdec.context import BOS, EOS, Context
from sgdec.errors import SgdecError, UsageError
from sgdec.models import clusters as arithmetic
from sgdec.models.base import ModelContext
from sgdec.models.clusters import NEVER, ClusterProjection, Clusters, Nearest, output_layer
from sgdec.models.gnmt import GNMT
from sgdec.protocol import Source
from sgdec.scheduler import Scheduler
from sgdec.training.checkpoint import load_model
from sgdec.training.cluster_files import DESCRIPTION, TENSORS, checksum, load_clusters, save_clusters
from sgdec.training.clusters import POINTS_PER_CENTROID, build_clusters, collect, miss_rates
from sgdec.training.data import ParallelText
from sgdec.training.kmeans import inertia, kmeans
from tests.tiny_models import WIDTH, write_checkpoint

V = 16
LETTERS = "abcdefghijkl"
SOURCES = [
    Source(n, tokens, max_length=6) for n, tokens in enumerate([(5,), (3, 4, 15, 3, 6, 4), (12, 6), (13, 4)], 1)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model"), source=LETTERS, target=LETTERS))


@cache
def module_of(model: str) -> Any:
    return load_model(model, precision="fp64")[0]


def some_text(pairs: int, seed: int = 1) -> ParallelText:
    """Random sources with random targets."""
    draw = np.random.default_rng(seed)
    sources, targets = (
        [draw.integers(3, V, size=draw.integers(1, 6)).tolist() for _ in range(pairs)] for _ in range(2)
    )
    return ParallelText(sources, targets, list(range(1, pairs + 1)), [], [])


def some_clusters(centroids: torch.Tensor) -> Clusters:
    """Random active sets of ranks 1 to 3 around these centroids [r, d]."""
    r, draw = len(centroids), np.random.default_rng(2)
    best = draw.choice([NEVER, 1, 2, 3], p=[0.7, 0.1, 0.1, 0.1], size=(r, V)).astype(np.uint8)
    best[:, EOS] = 1
    best[0, 7] = 3
    starts = np.concatenate([[0], (best != NEVER).sum(1).cumsum()])
    return Clusters(
        centroids.float(),
        torch.from_numpy(starts),
        torch.from_numpy(best.nonzero()[1].copy()),
        torch.from_numpy(best[best != NEVER]),
        torch.ones(r, dtype=torch.long),
        V,
    )


def context_vector(model: str, source: Sequence[int], prefix: Sequence[int]) -> torch.Tensor:
    """[d] after ``prefix``, one step at a time."""
    module = module_of(model)
    with torch.inference_mode():
        memory = module.encode(torch.tensor([list(source)]), torch.tensor([len(source)]))
        state = module.start(memory)
        for token in (BOS, *prefix):
            state, output, _ = module.step(memory, state, torch.tensor([token]))
    return output[0].clone()  # type: ignore[no-any-return]  # a normal tensor


def some_contexts(model: str, r: int) -> torch.Tensor:
    """[r, d]: context vectors that the model has on `some_text` (20), to serve as centroids."""
    data = some_text(20)
    pairs = zip(data.sources[:r], data.targets[:r], strict=True)
    return torch.stack([context_vector(model, source, target) for source, target in pairs])


def logits_of(model: str, vector: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return module_of(model).project(vector).numpy()  # type: ignore[no-any-return]


def nearest_by_hand(vector: torch.Tensor, centroids: torch.Tensor) -> int:
    return int(np.argmin([float((vector.double() - centroid.double()).norm()) for centroid in centroids]))


def active_by_hand(clusters: Clusters, cluster: int, k: int = 255) -> set[int]:
    here = range(int(clusters.starts[cluster]), int(clusters.starts[cluster + 1]))
    return {int(clusters.tokens[i]) for i in here if clusters.ranks[i] <= k}


def expected_row(model: str, source: Source, prefix: Sequence[int], active: set[int]) -> np.ndarray:
    """The softmax over the active tokens, -inf elsewhere."""
    logits = logits_of(model, context_vector(model, source.tokens, prefix))
    row = np.full(V, -np.inf)
    chosen = sorted(active)
    row[chosen] = logits[chosen] - np.log(np.exp(logits[chosen]).sum())
    return row


# The arithmetic of section 2.3.


def test_the_nearest_centroid_is_the_one_at_the_least_distance() -> None:
    draw = torch.Generator().manual_seed(3)
    vectors, centroids = torch.randn(50, 6, generator=draw), torch.randn(9, 6, generator=draw)
    expected = torch.cdist(vectors.double(), centroids.double()).argmin(1)
    assert Nearest(centroids)(vectors).equal(expected)


@pytest.mark.parametrize("rows", [[], [0], [4, 4, 4], [3, 1, 0, 1, 2]])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_active_sets_of_rows_are_those_of_their_clusters(rows: list[int], k: int) -> None:
    clusters = some_clusters(torch.rand(5, WIDTH))
    row, tokens = clusters.active(k).of(torch.tensor(rows, dtype=torch.long))
    expected = [
        (i, token) for i, cluster in enumerate(rows) for token in sorted(active_by_hand(clusters, cluster, k))
    ]
    assert list(zip(row.tolist(), tokens.tolist(), strict=True)) == expected


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("common", [0.0, 0.3, 0.7, 2.0])
def test_what_is_always_multiplied_changes_no_score(
    model: str, common: float, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From everything in an active set to nothing."""
    clusters, layer = some_clusters(some_contexts(model, 5)), output_layer(module_of(model))
    vectors = some_contexts(model, 12)
    plain = ClusterProjection(clusters, 2, layer, shared=shared)
    monkeypatch.setattr(arithmetic, "COMMON", common)
    (expected, size), (found, same_size) = (
        plain(vectors),
        ClusterProjection(clusters, 2, layer, shared=shared)(vectors),
    )
    assert torch.allclose(found, expected, rtol=0, atol=1e-12) and size == same_size


@pytest.mark.parametrize("block", [1, 3, 2048])
def test_projecting_some_columns_gives_their_logits(model: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "COLUMNS_AT_ONCE", block)
    module, tokens = module_of(model), torch.tensor([0, 2, 5, 6, 9, 14, 15])
    output = torch.randn(4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        layer = output_layer(module)
        found = layer.finish(layer.products(output, tokens).t(), tokens)
        assert torch.allclose(found, module.project(output)[:, tokens], rtol=0, atol=1e-12)


def test_clipped_logits_stay_clipped() -> None:
    module = GNMT(ModelContext(5, 5), width=4, constrained=True)
    with torch.no_grad():
        module.softmax.weight.mul_(1e4)
        output = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
        layer, tokens = output_layer(module), torch.arange(5)
        found, expected = layer.finish(layer.products(output, tokens).t(), tokens), module.project(output)
        assert torch.allclose(found, expected) and expected.abs().max() == 25.0


def test_a_model_without_a_plain_projection_is_refused() -> None:
    with torch.device("meta"):  # as the parameters of a quantised model are
        module = GNMT(ModelContext(5, 5), width=4)
    with pytest.raises(UsageError, match="GNMT has no output layer in floating point"):
        output_layer(module)


# k-means.


def lloyd_by_hand(points: np.ndarray, centroids: np.ndarray, iterations: int) -> np.ndarray:
    for _ in range(iterations):
        nearest = np.linalg.norm(points[:, None] - centroids[None], axis=2).argmin(1)
        centroids = np.stack([points[nearest == j].mean(0) for j in range(len(centroids))])
    return centroids


def blobs(n: int = 600, r: int = 12, dimension: int = 5) -> torch.Tensor:
    draw = torch.Generator().manual_seed(5)
    centres = 4 * torch.randn(r, dimension, generator=draw)
    return centres[torch.arange(n) % r] + torch.randn(n, dimension, generator=draw)


def test_our_kmeans_is_lloyds_algorithm() -> None:
    points = blobs()
    start = torch.randperm(len(points), generator=torch.Generator().manual_seed(7))[:4]
    expected = lloyd_by_hand(points.double().numpy(), points[start].double().numpy(), 6)
    found = kmeans(points, 4, iterations=6, seed=7, backend="torch")
    assert np.allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("backend", ["torch", "faiss"])
def test_both_kmeans_come_close_to_the_blobs_that_are_there(backend: Any) -> None:
    """The best inertia is about n d for unit variance; starts that are only drawn at random may double up."""
    if backend == "faiss":
        pytest.importorskip("faiss")
    points = blobs()
    found = [kmeans(points, 12, seed=seed, backend=backend) for seed in range(5)]
    assert all(centroids.shape == (12, 5) for centroids in found)
    assert min(inertia(points, centroids) for centroids in found) < 1.5 * points.numel()
    again = kmeans(points, 12, seed=0, backend=backend)
    assert again.equal(found[0]), "the same seed must give the same centroids"


def test_faiss_and_ours_reach_the_same_inertia() -> None:
    pytest.importorskip("faiss")
    points = torch.randn(2000, 8, generator=torch.Generator().manual_seed(6))
    ours, theirs = (inertia(points, kmeans(points, 20, backend=backend)) for backend in ("torch", "faiss"))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert max(ours, theirs) < 0.85 * inertia(points, points.mean(0, keepdim=True))


def test_a_cluster_that_loses_its_points_takes_some_of_the_largest() -> None:
    points = torch.tensor([[1.0]] * 50 + [[2.0]])
    centroids = kmeans(points, 3, iterations=4, backend="torch")
    assert centroids.isfinite().all() and len(torch.unique(centroids)) == 3


def test_more_centroids_than_points_are_refused() -> None:
    with pytest.raises(UsageError, match="9 clusters of 8 context vectors"):
        kmeans(torch.zeros(8, 2), 9)


def test_faiss_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.training.kmeans.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="faiss is not installed"):
        kmeans(torch.zeros(8, 2), 2, backend="faiss")
    points = blobs()
    assert kmeans(points, 3).equal(kmeans(points, 3, backend="torch"))


# Building them, section 2.2.


def contexts_by_hand(model: str, data: ParallelText) -> list[tuple[torch.Tensor, list[int]]]:
    """Each context vector with all tokens, the likeliest first."""
    found = []
    for source, target in zip(data.sources, data.targets, strict=True):
        for t in range(len(target) + 1):
            vector = context_vector(model, source, target[:t])
            found.append((vector, np.argsort(-logits_of(model, vector)).tolist()))
    return found


def entries(clusters: Clusters) -> dict[tuple[int, int], int]:
    cluster = torch.repeat_interleave(torch.arange(len(clusters.centroids)), clusters.starts.diff())
    keys = zip(cluster.tolist(), clusters.tokens.tolist(), strict=True)
    return dict(zip(keys, clusters.ranks.tolist(), strict=True))


@pytest.mark.parametrize("k", [1, 3])
def test_an_active_set_is_the_union_of_its_members_likeliest_tokens(model: str, k: int) -> None:
    data, centroids = some_text(20), some_contexts(model, 4)
    clusters = collect(module_of(model), data, centroids, k=k, vocab_size=V)
    best: dict[tuple[int, int], int] = {}
    members = [0] * 4
    for vector, likeliest in contexts_by_hand(model, data):
        cluster = nearest_by_hand(vector, centroids)
        members[cluster] += 1
        for rank, token in enumerate(likeliest[:k], start=1):
            best[cluster, token] = min(rank, best.get((cluster, token), rank))
    assert all(members), "every centroid of this test has members"
    best.update({(cluster, EOS): 1 for cluster in range(4)})
    assert clusters.members.tolist() == members
    assert entries(clusters) == best


def test_fewer_likely_tokens_are_a_part_of_more(model: str) -> None:
    data, centroids = some_text(20), some_contexts(model, 4)
    many, few = (collect(module_of(model), data, centroids, k=k, vocab_size=V) for k in (4, 2))
    for name in ("starts", "tokens"):
        assert getattr(many.active(2), name).equal(getattr(few.active(2), name))
        assert getattr(many.active(4), name).equal(getattr(many, name))


def test_centroids_without_members_are_left_out(model: str) -> None:
    far = torch.full((1, WIDTH), 1e3, dtype=torch.float64)
    centroids = torch.cat([far, some_contexts(model, 3), far])
    clusters = collect(module_of(model), some_text(20), centroids, k=1, vocab_size=V)
    assert clusters.centroids.equal(centroids[1:4].float())
    assert len(clusters.starts) == 4


def test_one_cluster_holds_all_tokens_that_were_ever_likely(model: str) -> None:
    data = some_text(20)
    clusters = build_clusters(module_of(model), data, centroids=1, k=2, vocab_size=V)
    likely = {token for _, likeliest in contexts_by_hand(model, data) for token in likeliest[:2]}
    assert set(clusters.tokens.tolist()) == {*likely, EOS}
    assert len(likely) < V


def test_kmeans_sees_a_bounded_sample_and_the_active_sets_everything(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgdec.training.clusters.POINTS_PER_CENTROID", 7)
    seen = []

    def spy(points: torch.Tensor, r: int, **options: Any) -> torch.Tensor:
        seen.append(len(points))
        return kmeans(points, r, **options)

    monkeypatch.setattr("sgdec.training.clusters.kmeans", spy)
    data = some_text(40)
    clusters = build_clusters(module_of(model).float(), data, centroids=3, k=1, vocab_size=V)
    module_of(model).double()
    assert seen == [21] and POINTS_PER_CENTROID == 256
    assert int(clusters.members.sum()) == sum(len(target) + 1 for target in data.targets)


# What they miss.


def test_nothing_is_missed_on_the_text_that_they_were_built_from(model: str) -> None:
    data = some_text(30)
    clusters = collect(module_of(model), data, some_contexts(model, 4), k=3, vocab_size=V)
    rates, shares = miss_rates(clusters, module_of(model), data)
    assert rates == [0.0, 0.0, 0.0]
    assert 0 < shares[0] < shares[1] < shares[2] <= 1


def test_the_miss_rate_counts_the_best_tokens_outside_the_active_set(model: str) -> None:
    clusters, data = some_clusters(some_contexts(model, 5)), some_text(30, seed=9)
    rates, shares = miss_rates(clusters, module_of(model), data)
    cases = [
        (nearest_by_hand(vector, clusters.centroids), likeliest[0])
        for vector, likeliest in contexts_by_hand(model, data)
    ]
    for k in (1, 2, 3):
        sets = [active_by_hand(clusters, cluster, k) for cluster, _ in cases]
        missed = [best not in active for active, (_, best) in zip(sets, cases, strict=True)]
        assert rates[k - 1] == pytest.approx(np.mean(missed))
        assert shares[k - 1] == pytest.approx(np.mean([len(active) / V for active in sets]))
    assert 0 < rates[2] < rates[0]


# Files.


def test_clusters_come_back_from_their_files(tmp_path: Path) -> None:
    clusters = some_clusters(torch.rand(5, WIDTH))
    save_clusters(tmp_path / "new" / "folder", clusters, model="abc", about={"input": "train.en"})
    again = load_clusters(tmp_path / "new" / "folder")
    for name in ("centroids", "starts", "tokens", "ranks", "members"):
        before, after = getattr(clusters, name), getattr(again, name)
        assert after.equal(before) and after.dtype == before.dtype
    assert again.vocab_size == V
    description = json.loads((tmp_path / "new" / "folder" / DESCRIPTION).read_text())
    assert description == {
        "format": 1, "model": "abc", "vocab_size": V, "dimension": WIDTH, "centroids": 5, "k": 3, "input": "train.en",
    }  # fmt: skip


def test_a_folder_without_clusters_is_named(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"nowhere: no clusters.json here. Expected a folder that `sgdec cluster`"):
        load_clusters(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": torch.full((3,), V)}, "a token or a rank is out of range"),
        ({"ranks": torch.tensor([1, 0, 1], dtype=torch.uint8)}, "a token or a rank is out of range"),
        ({"tokens": torch.tensor([2, 5, 3])}, "a cluster is without </s>"),
        ({"tokens": torch.tensor([5, 2, 2])}, "the tokens of a cluster do not ascend"),
        ({"starts": torch.tensor([0, 2, 4])}, "starts do not lead"),
        ({"starts": torch.tensor([0, 3])}, "the numbers of centroids, tokens and ranks differ"),
        ({"centroids": torch.full((2, WIDTH), torch.nan)}, "a centroid is not finite"),
        ({"members": None}, "members"),
        ({"more": torch.zeros(1)}, "more"),
    ],
)
def test_damaged_clusters_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    sound = Clusters(
        torch.zeros(2, WIDTH), torch.tensor([0, 2, 3]), torch.tensor([2, 5, 2]),
        torch.tensor([1, 1, 1], dtype=torch.uint8), torch.ones(2, dtype=torch.long), V,
    )  # fmt: skip
    save_clusters(tmp_path, sound, model="", about={})
    load_clusters(tmp_path)
    tensors = {**load_file(tmp_path / TENSORS), **change}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, tmp_path / TENSORS)
    with pytest.raises(SgdecError, match=rf"the clusters are damaged \(.*{message}.*\)\. Run `sgdec cluster` again"):
        load_clusters(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    save_clusters(tmp_path, some_clusters(torch.rand(5, WIDTH)), model="", about={"format": 99})
    with pytest.raises(SgdecError, match="format 99, expected 1"):
        load_clusters(tmp_path)


# The predictor.


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
        collect(module_of(model), some_text(20), some_contexts(model, 4), k=V, vocab_size=V),
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


# The command.


def test_the_command_writes_clusters_that_the_predictor_reads(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, held_out = tmp_path / "train.txt", tmp_path / "held-out.txt"
    text.write_text("ab\ncde f\nl\nghi jk\nbad\ncab age\n\n")
    held_out.write_text("fed\nhi\n")
    arguments = ["--model", model, "--input", str(text), "--output", str(tmp_path / "out"), "--centroids", "3"]
    command.main([*arguments, "--k", "2", "--held-out", str(held_out)], standalone_mode=False)
    clusters = load_clusters(tmp_path / "out", model=model)
    outputs = own_outputs(model, str(text))
    assert int(clusters.members.sum()) == sum(len(target) + 1 for target in outputs.targets)
    assert outputs.lines == [1, 2, 3, 4, 5, 6]
    said = capsys.readouterr().err
    assert "clusters of" in said and "k = 2:" in said
    description = json.loads((tmp_path / "out" / DESCRIPTION).read_text())
    assert description["k"] == 2 and len(description["held_out"]["miss_rate"]) == 2
    predictor = ClusterNmtPredictor(model, str(tmp_path / "out"))
    predictor.predict_batch(predictor.initialize_batch(SOURCES))
    assert 0 < predictor.active_share <= 1


def test_the_contexts_of_a_beam_are_those_of_all_its_hypotheses(model: str, tmp_path: Path) -> None:
    text = tmp_path / "train.txt"
    text.write_text("ab\ncde f\n")
    outputs = own_outputs(model, str(text), beam=3)
    assert len(outputs) == len({tuple(target) for target in outputs.targets}) == 6
    assert outputs.sources[0] == outputs.sources[1]


def test_text_that_gives_nothing_is_refused(model: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(SgdecError, match=r"empty.txt: no line of it could be translated"):
        own_outputs(model, str(tmp_path / "empty.txt"))


def test_more_likely_tokens_than_there_are_is_a_wrong_call(model: str, tmp_path: Path) -> None:
    arguments = ["--model", model, "--input", "x", "--output", str(tmp_path), "--k", "17"]
    with pytest.raises(UsageError, match="--k 17: the target vocabulary has only 16 tokens"):
        command.main(arguments, standalone_mode=False)

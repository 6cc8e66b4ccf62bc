"""The promise: equation 2 finds the centroid, and only what is active around it is projected, exactly."""

from __future__ import annotations

import pytest
import torch

from sgdec.errors import UsageError
from sgdec.models import active
from sgdec.models import clusters as arithmetic
from sgdec.models.active import OutputLayer, output_layer
from sgdec.models.base import ModelContext
from sgdec.models.clusters import ClusterProjection, Nearest
from sgdec.models.gnmt import GNMT
from tests.helpers.clustering import LETTERS, active_by_hand, module_of, some_clusters, some_contexts
from tests.helpers.tiny_models import WIDTH, write_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model"), source=LETTERS, target=LETTERS))


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
@pytest.mark.parametrize("common", [0.0, 0.3, 0.7, 0.99])
def test_what_is_always_multiplied_changes_no_score(
    model: str, common: float, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every token there is to those active in all clusters."""
    clusters, layer = some_clusters(some_contexts(model, 5)), output_layer(module_of(model))
    vectors = some_contexts(model, 12)
    plain = ClusterProjection(clusters, 2, layer, shared=shared)
    monkeypatch.setattr(arithmetic, "COMMON", common)
    (expected, size), (found, same_size) = (
        plain(vectors),
        ClusterProjection(clusters, 2, layer, shared=shared)(vectors),
    )
    assert torch.allclose(found, expected, rtol=0, atol=1e-12) and size == same_size


def some_entries() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of four, the third without any, and tokens."""
    return torch.tensor([0, 0, 1, 1, 1, 3]), torch.tensor([2, 15, 0, 2, 9, 6])


@pytest.mark.parametrize("way", ["sampled", "gathered"])
@pytest.mark.parametrize("wanted", [6, 0])
def test_some_logits_are_those_of_the_whole_projection(model: str, way: str, wanted: int) -> None:
    module, (row, tokens) = module_of(model), (part[:wanted] for part in some_entries())
    output = torch.randn(4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        layer = output_layer(module)
        found = layer.finish(getattr(layer, way)(output, row, tokens))
        assert found.shape == (wanted,)
        assert torch.allclose(found, module.project(output)[row, tokens], rtol=0, atol=1e-12)


def test_sampled_logits_are_the_same_bit_for_bit_whatever_other_rows_need() -> None:
    draw = torch.Generator().manual_seed(2)
    layer = OutputLayer(torch.randn(50, 33, generator=draw), torch.randn(50, generator=draw))
    assert layer.samples
    output, tokens = torch.randn(7, 33, generator=draw), torch.randint(50, (7, 9), generator=draw).sort(1).values
    together = layer.sampled(output, torch.arange(7).repeat_interleave(9), tokens.flatten()).view(7, 9)
    for row in range(7):
        alone = layer.sampled(output[row : row + 1], torch.zeros(9, dtype=torch.long), tokens[row])
        assert alone.equal(together[row])


def test_where_nothing_can_be_sampled_columns_are_gathered(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters, layer = some_clusters(some_contexts(model, 5)), output_layer(module_of(model))
    monkeypatch.setattr(arithmetic, "COMMON", 0.7)
    found = []
    for works in (True, False):
        monkeypatch.setattr(active, "_samples", lambda works=works: works)
        assert layer.samples is works
        found.append(ClusterProjection(clusters, 3, layer)(some_contexts(model, 12)))
    assert torch.allclose(found[0][0], found[1][0], rtol=0, atol=1e-12) and found[0][1] == found[1][1]


@pytest.mark.parametrize("shared", [False, True])
def test_a_row_is_projected_as_if_it_were_alone_unless_rows_share(model: str, shared: bool) -> None:
    clusters, layer = some_clusters(some_contexts(model, 5)), output_layer(module_of(model))
    projection, vectors = ClusterProjection(clusters, 2, layer, shared=shared), some_contexts(model, 12)
    together = projection(vectors)[0]
    alone = torch.cat([projection(vector[None])[0] for vector in vectors])
    assert torch.allclose(together, alone, rtol=0, atol=1e-12) is not shared


def test_clipped_logits_stay_clipped() -> None:
    module = GNMT(ModelContext(5, 5), width=4, constrained=True)
    with torch.no_grad():
        module.softmax.weight.mul_(1e4)
        output = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
        row, tokens = torch.arange(3).repeat_interleave(5), torch.arange(5).repeat(3)
        layer, expected = output_layer(module), module.project(output)
        found = layer.finish(layer.sampled(output, row, tokens))
        assert torch.allclose(found.view(3, 5), expected) and expected.abs().max() == 25.0


def test_a_model_without_a_plain_projection_is_refused() -> None:
    with torch.device("meta"):  # as the parameters of a quantised model are
        module = GNMT(ModelContext(5, 5), width=4)
    with pytest.raises(UsageError, match="GNMT has no output layer in floating point"):
        output_layer(module)

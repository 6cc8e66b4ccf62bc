"""The promise: clusters hold what a model finds likely near each centroid; files and the command keep that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sgdec_predictors.clusternmt import ClusterNmtPredictor

from sgdec.checkpoints.clusters import FOLDER, load_clusters, save_clusters
from sgdec.checkpoints.quantised import SECTION
from sgdec.cli.cluster import command, own_outputs
from sgdec.cli.main import main
from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.estimation.clusters import POINTS_PER_CENTROID, build_clusters, collect, contexts, miss_rates
from sgdec.estimation.kmeans import kmeans
from sgdec.models.clusters import Clusters
from sgdec.training.data.text import ParallelText
from tests.helpers.clustering import (
    LETTERS,
    SOURCES,
    V,
    active_by_hand,
    context_vector,
    logits_of,
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


# Section 2.2.


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
    clusters = collect(contexts(module_of(model), data, k), centroids, V)
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
    many, few = (collect(contexts(module_of(model), data, k), centroids, V) for k in (4, 2))
    for name in ("starts", "tokens"):
        assert getattr(many.active(2), name).equal(getattr(few.active(2), name))
        assert getattr(many.active(4), name).equal(getattr(many, name))


def test_centroids_without_members_are_left_out(model: str) -> None:
    far = torch.full((1, WIDTH), 1e3, dtype=torch.float64)
    centroids = torch.cat([far, some_contexts(model, 3), far])
    clusters = collect(contexts(module_of(model), some_text(20), 1), centroids, V)
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
    monkeypatch.setattr("sgdec.estimation.clusters.POINTS_PER_CENTROID", 7)
    seen = []

    def spy(points: torch.Tensor, r: int, **options: Any) -> torch.Tensor:
        seen.append(len(points))
        return kmeans(points, r, **options)

    monkeypatch.setattr("sgdec.estimation.clusters.kmeans", spy)
    data = some_text(40)
    clusters = build_clusters(module_of(model).float(), data, centroids=3, k=1, vocab_size=V)
    module_of(model).double()
    assert seen == [21] and POINTS_PER_CENTROID == 256
    assert int(clusters.members.sum()) == sum(len(target) + 1 for target in data.targets)


# What they miss.


def test_nothing_is_missed_on_the_text_that_they_were_built_from(model: str) -> None:
    data = some_text(30)
    clusters = collect(contexts(module_of(model), data, 3), some_contexts(model, 4), V)
    rates, shares = miss_rates(clusters, contexts(module_of(model), data, 1))
    assert rates == [0.0, 0.0, 0.0]
    assert 0 < shares[0] < shares[1] < shares[2] <= 1


def test_the_miss_rate_counts_the_best_tokens_outside_the_active_set(model: str) -> None:
    clusters, data = some_clusters(some_contexts(model, 5)), some_text(30, seed=9)
    rates, shares = miss_rates(clusters, contexts(module_of(model), data, 1))
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
    description = json.loads((tmp_path / "new" / "folder" / FOLDER.description).read_text())
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
        ({"members": torch.ones(2, dtype=torch.double)}, "expected centroids in float32"),
        ({"centroids": torch.zeros(2, WIDTH, dtype=torch.double)}, "expected centroids in float32"),
        ({"tokens": torch.tensor([2.0, 5.0, 2.0])}, "expected centroids in float32"),
        ({"ranks": torch.ones(3)}, "ranks in uint8 or int64"),
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
    tensors = {**load_file(tmp_path / FOLDER.tensors), **change}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, tmp_path / FOLDER.tensors)
    with pytest.raises(SgdecError, match=rf"the clusters are damaged \(.*{message}.*\)\. Run `sgdec cluster` again"):
        load_clusters(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    save_clusters(tmp_path, some_clusters(torch.rand(5, WIDTH)), model="", about={"format": 99})
    with pytest.raises(SgdecError, match="format 99, expected 1"):
        load_clusters(tmp_path)


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
    description = json.loads((tmp_path / "out" / FOLDER.description).read_text())
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


def test_only_the_first_lines_are_taken_where_a_number_is_given(model: str, tmp_path: Path) -> None:
    text = tmp_path / "train.txt"
    text.write_text("ab\n\ncde f\nl\n")
    assert own_outputs(model, str(text), lines=3).lines == [1, 3]
    command.main(
        ["--model", model, "--input", str(text), "--lines", "1", "--output", f"{tmp_path}/new", "--centroids", "1"],
        standalone_mode=False,
    )
    first = own_outputs(model, str(text), lines=1)
    assert int(load_clusters(tmp_path / "new").members.sum()) == len(first.targets[0]) + 1


def test_where_faiss_is_missing_the_command_says_so_before_its_work(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgdec.estimation.kmeans.find_spec", lambda name: None)
    monkeypatch.setattr("sgdec.cli.cluster.own_outputs", lambda *args, **options: pytest.fail("this takes long"))
    arguments = ["--model", model, "--input", "x", "--output", str(tmp_path)]
    with pytest.raises(UsageError) as caught:
        command.main(arguments, standalone_mode=False)
    assert str(caught.value) == 'k-means needs Faiss, which is not installed (pip install "sgdec[clusters]").'


def test_text_that_gives_nothing_is_refused(model: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(SgdecError, match=r"empty.txt: no line could be translated"):
        own_outputs(model, str(tmp_path / "empty.txt"))


def test_more_likely_tokens_than_there_are_is_a_wrong_call(model: str, tmp_path: Path) -> None:
    arguments = ["--model", model, "--input", "x", "--output", str(tmp_path), "--k", "17"]
    with pytest.raises(UsageError, match="--k 17: the target vocabulary has only 16 tokens"):
        command.main(arguments, standalone_mode=False)


def test_an_8_bit_model_is_refused_with_a_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_checkpoint(tmp_path / "model", source=LETTERS, target=LETTERS)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, SECTION: {}}))
    (tmp_path / "in").write_text("a b\n")
    asked = ["--model", str(model), "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main(["cluster", *asked]) == 2
    said = capsys.readouterr().err
    assert "clusters are for models in full precision. Give the one it was made of." in said

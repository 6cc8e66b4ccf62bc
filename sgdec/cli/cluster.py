"""``sgdec cluster``: cluster a model's contexts, with an active vocabulary for each cluster, for clusternmt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

import click

from sgdec.cli import running
from sgdec.cli.paths import Command, Read, Written
from sgdec.errors import SgdecError, UsageError
from sgdec.terminal import Bar, track
from sgdec.threads import THREADS

if TYPE_CHECKING:
    from sgdec.training.data.text import ParallelText

log = logging.getLogger(__name__)


@click.command("cluster", cls=Command)
@click.option("--model", type=Read(), required=True, metavar="DIR", help="Checkpoint folder, such as run/best.")
@click.option(
    "--input", "source", type=Read(), required=True, metavar="FILE", help="Unlabelled source text; may be gzipped."
)
@click.option(
    "--output",
    type=Written(inside=("clusters.*",)),
    required=True,
    metavar="DIR",
    help="Folder to write the clusters to.",
)
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Use only the first N lines of --input.")
@click.option(
    "--held-out",
    type=Read(),
    metavar="FILE",
    help="Source text on which to measure how often the active sets miss the best token.",
)
@click.option(
    "--centroids", type=click.IntRange(min=1), default=500, show_default=True, metavar="INT",
    help="Number of clusters; 1 = one active set for all contexts.",
)  # fmt: skip
@click.option(
    "--k",
    type=click.IntRange(1, 255),
    default=5,
    show_default=True,
    metavar="INT",
    help="Number of likeliest tokens recorded for each context.",
)
@click.option(
    "--beam", type=click.IntRange(min=1), default=1, show_default=True, metavar="INT",
    help="Beam size of the translation; all hypotheses of the beam are used; 1 = greedy.",
)  # fmt: skip
@click.option(
    "--iterations", type=click.IntRange(min=1), default=20, show_default=True, metavar="INT",
    help="Iterations of k-means.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="INT", help="Seed of k-means.")
@running.setting("device")
@running.setting("threads")
def command(
    model: str,
    source: str,
    output: str,
    lines: int | None,
    held_out: str | None,
    centroids: int,
    k: int,
    beam: int,
    iterations: int,
    seed: int,
    device: str,
    threads: int | Literal["auto"],
) -> None:
    """Cluster a model's contexts and record which tokens are likely in each cluster.

    \b
    sgdec cluster --model run/best --input train.en --output run/clusters
    sgdec decode --predictors clusternmt --clusternmt.model run/best \\
        --clusternmt.clusters run/clusters test.en

    The model translates the text, then its context vectors are clustered; a cluster's active set holds the K
    likeliest tokens of each of its members. Build one folder for each language direction.
    """
    import torch

    from sgdec.checkpoints.clusters import FOLDER, checksum, save_clusters
    from sgdec.checkpoints.layout import find_checkpoint, read_config
    from sgdec.checkpoints.loading import load_model
    from sgdec.checkpoints.quantised import SECTION
    from sgdec.device import require_device
    from sgdec.estimation.clusters import build_clusters, contexts, miss_rates
    from sgdec.estimation.kmeans import require_faiss

    require_faiss()
    require_device(device)
    FOLDER.require_room(output)
    THREADS.choose(threads)
    if SECTION in read_config(find_checkpoint(model)):
        raise UsageError(f"--model {model}: clusters are for models in full precision. Give the one it was made of.")
    module, vocabularies = load_model(model, device=device)
    assert vocabularies.target is not None
    size = vocabularies.target.size
    if k > size:
        raise UsageError(f"--k {k}: the target vocabulary has only {size} tokens.")
    data = own_outputs(model, source, lines=lines, beam=beam, device=device)
    with Bar("clustering", log) as bar:
        clusters = build_clusters(
            module, data, centroids=centroids, k=k, vocab_size=size,
            iterations=iterations, seed=seed, device=device, report=bar.note,
        )  # fmt: skip
    members, active = int(clusters.members.sum()), torch.unique(clusters.tokens)
    log.info(
        f"{output}: {len(clusters.centroids)} clusters of {members:,} contexts; "
        f"{len(active):,} of {size:,} tokens are in an active set"
    )
    about: dict[str, Any] = {
        "input": source,
        "lines": lines,
        "beam": beam,
        "contexts": members,
        "iterations": iterations,
        "seed": seed,
    }
    if held_out is not None:
        outputs = own_outputs(model, held_out, beam=beam, device=device)
        with Bar("measuring misses", log):
            rates, shares = miss_rates(clusters, contexts(module, outputs, 1, device=device))
        about["held_out"] = {"input": held_out, "miss_rate": rates, "active_share": shares}
        for n, (rate, share) in enumerate(zip(rates, shares, strict=True), start=1):
            log.info(f"k = {n}: {share:.2%} of the vocabulary active, {rate:.2%} of best tokens missed")
    save_clusters(output, clusters, model=checksum(model), about=about)


def own_outputs(
    model: str, source: str, *, lines: int | None = None, beam: int = 1, device: str = "cpu"
) -> ParallelText:
    """Yield the translations of a source text: all hypotheses of a beam search, or the greedy one if ``beam`` is 1.

    ``lines`` limits the number of lines. Lines without a hypothesis are skipped. Raises `SgdecError` if no line is
    left.
    """
    from sgdec.library import load
    from sgdec.training.data.text import ParallelText

    run = load("nmt", "beam", nmt={"model": model}, beam={"size": beam}, nbest=beam, device=device)
    reader = run.reader("text")
    found = ParallelText([], [], [], [], [])
    with reader.open([source]) as text:
        outcomes = run.scheduler().run(reader.read(text, source, last=lines))
        for outcome in track(outcomes, f"translating {source}", log, unit="sentences", total=lines):
            if outcome.error is not None and not isinstance(outcome.error, SgdecError):
                raise outcome.error
            for hypothesis in outcome.result.hypotheses:  # keep nothing else of an outcome
                found.sources.append(list(outcome.source.tokens))
                found.targets.append(list(hypothesis.tokens))
                found.lines.append(outcome.source.id)
    if not found.lines:
        raise SgdecError(f"{source}: no line could be translated; give text in the source language.")
    return found

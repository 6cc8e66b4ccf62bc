"""The promise: every registered predictor keeps all the promises of its contract.

A name that is registered and has no contract is a failing test. The contracts of predictors that have a test file of
their own are there: a subclass of `PredictorContract` whose ``plugin`` is the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sgdec.context import EOS, Context
from sgdec.protocol import BatchPredictor, Source
from sgdec.testing import PredictorContract, walks
from tests.helpers.automata import Automaton
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.contracts import HOST, PluginContract, V, contracts
from tests.helpers.places import DATA


class TestWordCount(PluginContract):
    plugin = "wc"


@pytest.mark.slow
class TestWordCountOfOneToken(TestWordCount):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"token": 5}


@pytest.mark.slow
class TestWordCountOfTheEnd(TestWordCount):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"token": EOS}


class TestUnkCount(PluginContract):
    plugin = "unkc"
    prefixes = ((0,), (0, 0), (0, 3, 0), (3, 0))
    sources = (Source(1, (3, 0, 0), max_length=5), Source(2, (4,), max_length=3), Source(3, (0, 5)))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"lambdas": (0.3, 1.7, 4.0)}


@pytest.mark.slow
class TestUnkCountOfOneRate(TestUnkCount):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"lambdas": (2.5,)}


class TestForced(PluginContract):
    plugin = "forced"

    def prepare(self, folder: Path) -> dict[str, Any]:
        references = folder / "references.ids"
        references.write_text("3 4 3\n\n8 0 7 6 5\n")
        return {"path": str(references)}


@pytest.mark.slow
class TestFst(PluginContract):
    plugin = "fst"

    def prepare(self, folder: Path) -> dict[str, Any]:
        write_lattices(folder)
        return {"path": f"{folder}/{{id}}.fst"}


@pytest.mark.slow
class TestNormalizedFst(TestFst):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "normalize": True}


@pytest.mark.slow
class TestUnweightedFst(TestFst):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "use_weights": False}


@pytest.mark.slow
class TestNgram(PluginContract):
    plugin = "ngram"
    prefixes = ((3, 4, 5), (5, 3, 4), (8, 3, 4), (0, 4), (7, 7, 4))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": str(write_arpa(folder)), "context": Context(vocab_size=V)}


@pytest.mark.slow
class TestNgramWithoutVocabulary(TestNgram):
    """V unknown: only the words of the model are listed."""

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": str(write_arpa(folder))}


@pytest.mark.slow
class TestNgramOfHashedKenlm(PluginContract):
    """A binary is read by other code than an ARPA file."""

    plugin = "ngram"
    prefixes = ((3, 4, 5), (5, 3, 4), (8, 3, 4), (0, 4), (7, 7, 4))
    binary = "tiny.kenlm"

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": str(DATA / self.binary), "max_score": 0.0, "context": Context(vocab_size=V)}


@pytest.mark.slow
class TestNgramOfSortedKenlm(TestNgramOfHashedKenlm):
    binary = "tiny.qatrie.kenlm"


@pytest.fixture(scope="module")
def loaded_once() -> Iterator[None]:
    from tests.helpers.loaded_once import load_models_once

    with pytest.MonkeyPatch.context() as patch:
        load_models_once(patch)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("loaded_once")
class TestNmt(PluginContract):
    plugin = "nmt"
    walk_length = 4
    walks = 3 if EXHAUSTIVE else 2

    @pytest.fixture(autouse=True)
    def _shorter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Log-probabilities are never positive, however long a walk is."""
        monkeypatch.setattr(walks, "FAR", 40 if EXHAUSTIVE else 12)

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, checkpoint: Path) -> None:
        from sgdec.checkpoints.layout import load_vocabularies

        cls.options = {"model": str(checkpoint)}
        target = load_vocabularies(checkpoint).target
        assert target is not None
        cls.vocab_size = target.size


@pytest.mark.slow
class TestDeterministicNmt(TestNmt):
    """Sentences share products only; its rows say that they are independent."""

    def make(self) -> BatchPredictor:
        predictor: BatchPredictor = HOST.load("predictor", "nmt")(**self.options, context=Context(deterministic=True))
        return predictor

    def test_its_rows_are_independent(self) -> None:
        assert self.make().independent_rows


@pytest.mark.slow
class TestClusterNmt(TestNmt):
    plugin = "clusternmt"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare_clusters(cls, _prepare: None, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Random active sets around two random centroids."""
        import torch

        from sgdec.checkpoints.clusters import checksum, save_clusters
        from sgdec.checkpoints.loading import load_model
        from sgdec.models.clusters import Clusters

        checkpoint, folder = cls.options["model"], tmp_path_factory.mktemp("clusters")
        module, _ = load_model(checkpoint)
        size, active = cls.vocab_size, [(EOS, 4, 5, 6), (EOS, 3, 5, 7, 8)]
        tokens = torch.tensor([token for row in active for token in row])
        starts = torch.tensor([0, 4, 9])
        centroids = torch.randn(2, module.softmax.in_features, generator=torch.Generator().manual_seed(1))  # type: ignore
        clusters = Clusters(centroids, starts, tokens, torch.ones(9, dtype=torch.uint8), torch.ones(2).long(), size)
        save_clusters(folder, clusters, model=checksum(checkpoint), about={})
        cls.options = {"model": checkpoint, "clusters": str(folder)}


@pytest.mark.slow
class TestShortlist(TestNmt):
    plugin = "shortlist"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare_shortlist(cls, _prepare: None, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Two or three translations of each source token."""
        import torch

        from sgdec.checkpoints.layout import load_vocabularies
        from sgdec.checkpoints.shortlists import save_shortlist
        from sgdec.models.shortlists import Shortlist

        checkpoint, folder = cls.options["model"], tmp_path_factory.mktemp("shortlist")
        vocabularies, size = load_vocabularies(checkpoint), cls.vocab_size
        assert vocabularies.source is not None
        rows = [[(5 * token + n) % size for n in range(2 + token % 2)] for token in range(vocabularies.source.size)]
        starts = torch.tensor([0, *map(len, rows)]).cumsum(0)
        tokens = torch.tensor([token for row in rows for token in row])
        save_shortlist(folder, Shortlist(starts, tokens, torch.tensor([4, 5]), size), vocabularies, about={})
        cls.options = {"model": checkpoint, "path": str(folder), "frequent": 2}


@pytest.mark.parametrize("name", [entry.name for entry in HOST.names("predictor")])
def test_every_registered_predictor_has_a_contract(name: str) -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        if "Contract):" in path.read_text():
            import_module(f"{__package__}.{path.stem}")
    named = {plugin for found in contracts(PredictorContract) if (plugin := getattr(found, "plugin", None))}
    tested = {HOST.load("predictor", plugin) for plugin in named}
    assert HOST.load("predictor", name) in tested, f"add a contract for predictor {name!r}"


def write_arpa(folder: Path) -> Path:
    """A trigram model whose words are token ids; it does not know 7 and 8."""
    sections = {
        1: ["-99 <s> -0.5", "-0.9 </s>", "-1.5 <unk>", "-0.6 3 -0.3", "-0.8 4 -0.2", "-1.1 5 -0.4", "-1.3 6"],
        2: ["-0.4 <s> 3 -0.1", "-0.3 3 4 -0.25", "-0.7 4 5", "-0.5 4 </s>", "-0.2 5 3 -0.15"],
        3: ["-0.1 <s> 3 4", "-0.35 3 4 5", "-0.05 5 3 4"],
    }
    lines = ["\\data\\", *(f"ngram {order}={len(entries)}" for order, entries in sections.items())]
    for order, entries in sections.items():
        lines += ["", f"\\{order}-grams:"]
        for entry in entries:
            score, *words = entry.split()
            lines.append("\t".join([score, " ".join(words[:order]), *words[order:]]))
    path = folder / "lm.arpa"
    path.write_text("\n".join([*lines, "", "\\end\\", ""]))
    return path


def write_lattices(folder: Path) -> None:
    """One lattice for each of the contract's sentences: with <s>, with a final weight, with a cycle."""
    lattices = [
        "0 1 1 0.25, 1 2 3 0.5, 1 3 4 0.7, 2 3 5 0.1, 2 4 6 1.5, 3 4 3 0.2, 3 4 8 0.0, 4 5 2 0.3, 5 0.1, 4 1.0",
        "0 1 3 1.0, 0 2 4 0.5, 1 3 5 0.25, 2 3 5 0.75, 3 0.5, 2 4 7 0.1",
        "0 1 3 0.5, 1 1 4 0.4, 1 2 5 0.1, 2 0.0, 1 3 2 2.0, 3 0.0",
    ]
    for number, text in enumerate(lattices, start=1):
        Automaton.parsed(text.replace(", ", "\n")).write(folder / f"{number}.fst")


assert EOS == 2  # the label of </s> in the lattices above


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GNMT model with random weights."""
    import torch

    from sgdec.checkpoints.files import save_tensors, write_json
    from sgdec.checkpoints.layout import CONFIG, FORMAT, SHARED, WEIGHTS
    from sgdec.checkpoints.loading import build_model, model_tensors
    from sgdec.text.sentencepiece import train_vocabulary

    folder = tmp_path_factory.mktemp("checkpoint")
    vocabulary = train_vocabulary(["one two three", "vier fünf sechs sieben", "acht neun zehn elf"], 40, kind="char")
    (folder / SHARED).write_bytes(vocabulary.serialized)
    config = {
        "format": FORMAT,
        "model": "gnmt",
        "options": {"layers": 3, "width": 8},
        "source_vocab_size": vocabulary.size,
        "target_vocab_size": vocabulary.size,
        "shared": True,
    }
    write_json(folder / CONFIG, config)
    torch.manual_seed(1)
    model = build_model(config, where="the test's own model")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # far from uniform
    save_tensors(folder / WEIGHTS, model_tensors(model))
    return folder

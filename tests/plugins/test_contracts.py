"""The promise: every registered predictor and decoder keeps all the promises of its contract.

A name that is registered and has no contract is a failing test. The contracts of predictors that have a test file of
their own are there: a subclass of `PredictorContract` whose ``plugin`` is the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sgdec.context import EOS, Context
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Decoder, Predictor, Result, Source
from sgdec.search.space import SearchSpace
from sgdec.testing import DecoderContract, PredictorContract
from sgdec.testing.tiny_spaces import TinySpace, tiny_spaces
from tests.helpers.places import ROOT

V = 9
"""Target tokens of the tiny models below."""
HOST = Host(autoload=False)


class PluginContract(PredictorContract):
    """The contract of a registered predictor."""

    plugin: ClassVar[str]
    vocab_size = V
    options: dict[str, Any]

    @pytest.fixture(autouse=True)
    def _prepare(self, tmp_path: Path) -> None:
        self.options = self.prepare(tmp_path)

    def prepare(self, folder: Path) -> dict[str, Any]:
        """Writes what the predictor reads; its options."""
        return {}

    def make(self) -> Predictor | BatchPredictor:
        predictor: Predictor | BatchPredictor = HOST.load("predictor", self.plugin)(**self.options)
        return predictor


class TestWordCount(PluginContract):
    plugin = "wc"


@pytest.mark.slow
class TestWordCountOfOneToken(PluginContract):
    plugin = "wc"

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"token": 5}


class TestUnkCount(PluginContract):
    plugin = "unkc"
    prefixes = ((0,), (0, 0), (0, 3, 0), (3, 0))
    sources = (Source(1, (3, 0, 0), max_length=5), Source(2, (4,), max_length=3), Source(3, (0, 5)))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"lambdas": (0.3, 1.7, 4.0)}


class TestForced(PluginContract):
    plugin = "forced"

    def prepare(self, folder: Path) -> dict[str, Any]:
        references = folder / "references.ids"
        references.write_text("3 4 3\n\n8 0 7 6 5\n")
        return {"path": str(references)}


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


@pytest.fixture(scope="module")
def loaded_once() -> Iterator[None]:
    from tests.helpers.loaded_once import load_models_once

    with pytest.MonkeyPatch.context() as patch:
        load_models_once(patch)
        yield


@pytest.mark.usefixtures("loaded_once")
class TestNmt(PluginContract):
    plugin = "nmt"
    walk_length = 4

    @pytest.fixture(autouse=True)
    def _prepare(self, checkpoint: Path) -> None:
        from sgdec.checkpoints.layout import load_vocabularies

        self.options = {"model": str(checkpoint)}
        target = load_vocabularies(checkpoint).target
        assert target is not None
        self.vocab_size = target.size


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

    @pytest.fixture(autouse=True)
    def _prepare_clusters(self, _prepare: None, tmp_path: Path) -> None:
        """Random active sets around two random centroids."""
        import torch

        from sgdec.checkpoints.clusters import checksum, save_clusters
        from sgdec.checkpoints.loading import load_model
        from sgdec.models.clusters import Clusters

        checkpoint = self.options["model"]
        module, _ = load_model(checkpoint)
        size, active = self.vocab_size, [(EOS, 4, 5, 6), (EOS, 3, 5, 7, 8)]
        tokens = torch.tensor([token for row in active for token in row])
        starts = torch.tensor([0, 4, 9])
        centroids = torch.randn(2, module.softmax.in_features, generator=torch.Generator().manual_seed(1))  # type: ignore
        clusters = Clusters(centroids, starts, tokens, torch.ones(9, dtype=torch.uint8), torch.ones(2).long(), size)
        save_clusters(tmp_path, clusters, model=checksum(checkpoint), about={})
        self.options = {"model": checkpoint, "clusters": str(tmp_path)}


class SearchedOnce(DecoderContract):
    """The same promises, of one search of each space for all of them; equal searches are two."""

    _found: ClassVar[list[tuple[str, SearchSpace, Result]]]

    def _results(self) -> Iterator[tuple[str, SearchSpace, Result]]:
        cls = type(self)
        if "_found" not in vars(cls):
            cls._found = list(super()._results())
        yield from cls._found

    def test_two_runs_are_equal(self) -> None:
        again = [result for _, _, result in super()._results()]
        assert again == [result for _, _, result in self._results()]


class TestGreedy(SearchedOnce):
    def make(self) -> Decoder:
        return decoder("greedy")


class BeamContract(SearchedOnce):
    options: ClassVar[dict[str, Any]]

    def make(self) -> Decoder:
        return decoder("beam", **self.options)


class TestBeam(BeamContract):
    options: ClassVar[dict[str, Any]] = {}


@pytest.mark.slow
class TestBeamThatFinishesAll(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 3, "stop": "full"}


@pytest.mark.slow
class TestBeamToTheLengthLimit(BeamContract):
    spaces = [tiny for tiny in tiny_spaces() if tiny.source.max_length is not None]  # noqa: RUF012 - as the kit has it
    options: ClassVar[dict[str, Any]] = {"size": 3, "stop": "length", "alpha": 0.6}


@pytest.mark.slow
class TestWideBeamToTheLengthLimit(TestBeamToTheLengthLimit):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "length", "alpha": 0.6}
    exact = True


@pytest.mark.slow
class TestBeamThatRecombines(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 3, "recombine": True}


@pytest.mark.slow
class TestBeamThatPrunes(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "prune_local": 0.5, "prune_final": 0.5, "stop": "full"}


@pytest.mark.slow
class TestBeamWithLengthPenalty(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "alpha": 0.8, "stop": "full"}


@pytest.mark.slow
class TestBeamWithCoverage(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "alpha": 0.6, "beta": 0.4, "stop": "full"}


@pytest.mark.slow
class TestWideBeamWithProof(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven"}
    exact = True


@pytest.mark.slow
class TestWideBeamWithProofAndLengthPenalty(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "alpha": 0.7, "normalize": "length"}
    exact = True


@pytest.mark.slow
class TestWideBeamWithProofAndCoverage(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "alpha": 0.7, "beta": 0.3}
    exact = True


@pytest.mark.slow
class TestWideBeamWithProofAndRecombination(BeamContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "recombine": True}
    exact = True
    nbests = (1,)


def is_dense(tiny: TinySpace) -> bool:
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    consulted = zip(constellation.predictors, root.states or [], root.weights, strict=True)
    answers = [predictor.predict_batch([state]) for predictor, state, weight in consulted if weight is not None]
    return not any(row.restricts for answer in answers for row in answer.rows)


class VanillaContract(SearchedOnce):
    spaces = [tiny for tiny in tiny_spaces() if is_dense(tiny)]  # noqa: RUF012 - as the kit has it
    options: ClassVar[dict[str, Any]]

    def make(self) -> Decoder:
        return HOST.load("decoder", "vanilla")(**self.options)


class TestVanilla(VanillaContract):
    options: ClassVar[dict[str, Any]] = {}


@pytest.mark.slow
class TestVanillaThatPrunes(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "prune_local": 0.5, "prune_final": 0.5, "stop": "full"}


@pytest.mark.slow
class TestVanillaWithCoverage(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"size": 4, "alpha": 0.6, "beta": 0.4, "stop": "full"}


@pytest.mark.slow
class TestWideVanillaWithProof(VanillaContract):
    options: ClassVar[dict[str, Any]] = {"size": 200, "stop": "proven", "alpha": 0.7, "normalize": "length"}
    exact = True


class SearchContract(SearchedOnce):
    """The contract of the decoder ``plugin``, with ``options``."""

    plugin: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def make(self) -> Decoder:
        return decoder(self.plugin, **self.options)


class TestDfs(SearchContract):
    plugin = "dfs"


@pytest.mark.slow
class TestDfsThatRecombines(SearchContract):
    plugin = "dfs"
    options: ClassVar[dict[str, Any]] = {"recombine": True, "alpha": 0.7, "beta": 0.3}


@pytest.mark.slow
class TestDfsWithBudget(SearchContract):
    plugin = "dfs"
    options: ClassVar[dict[str, Any]] = {"max_expansions": 4}
    exact = False


class TestLendfs(SearchContract):
    """Its list is the best of each length: only the first is what an exact list begins with."""

    plugin = "lendfs"
    exact = True
    nbests = (1,)


class TestRestarting(SearchContract):
    plugin = "restarting"


@pytest.mark.slow
class TestRestartingThatRecombines(SearchContract):
    plugin = "restarting"
    options: ClassVar[dict[str, Any]] = {"node_score": "expansions", "recombine": True}


@pytest.mark.slow
class TestRestartingWithBudget(SearchContract):
    plugin = "restarting"
    options: ClassVar[dict[str, Any]] = {"max_expansions": 6}
    exact = False


class TestAStar(SearchContract):
    plugin = "astar"


@pytest.mark.slow
class TestAStarThatRecombines(SearchContract):
    plugin = "astar"
    options: ClassVar[dict[str, Any]] = {"recombine": True, "alpha": 0.7, "beta": 0.3}


@pytest.mark.slow
class TestAStarWithLittleRoom(SearchContract):
    plugin = "astar"
    options: ClassVar[dict[str, Any]] = {"capacity": 2, "max_expansions": 9}
    exact = False


@pytest.mark.slow
class TestAStarWithoutHeuristic(SearchContract):
    plugin = "astar"
    options: ClassVar[dict[str, Any]] = {"heuristic": "none"}
    exact = False  # some of the scores are positive


class TestBucket(SearchContract):
    plugin = "bucket"


@pytest.mark.slow
class TestBucketThatRecombines(SearchContract):
    plugin = "bucket"
    options: ClassVar[dict[str, Any]] = {"size": 2, "selector": "score-end", "recombine": True, "alpha": 0.7}


@pytest.mark.slow
class TestBucketWithBudget(SearchContract):
    plugin = "bucket"
    options: ClassVar[dict[str, Any]] = {"size": 2, "selector": "iter-2", "score_strategy": "heap"}
    exact = False


class TestBestFirst(SearchContract):
    plugin = "bestfirst"


@pytest.mark.slow
class TestBestFirstThatRecombines(SearchContract):
    plugin = "bestfirst"
    options: ClassVar[dict[str, Any]] = {"size": 2, "recombine": True, "alpha": 0.7, "beta": 0.3}


class TestSample(SearchContract):
    plugin = "sample"
    options: ClassVar[dict[str, Any]] = {"samples": 5}


def can_be_searched_alone(tiny: TinySpace) -> bool:
    """Whether for each predictor by itself hypotheses have an end, and the next token is one of a known set."""
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    answers = [p.predict_batch([state]) for p, state in zip(constellation.predictors, root.states or [], strict=True)]
    known = (answer.values is not None or answer.rows[0].restricts for answer in answers)
    bounded = tiny.source.max_length is not None and (constellation.vocab_size is not None or all(known))
    return bounded and not tiny.empty  # that predictors contradict each other does not make each one's space empty


class TestSepBeam(SearchContract):
    plugin = "sepbeam"
    spaces = [tiny for tiny in tiny_spaces() if can_be_searched_alone(tiny)]  # noqa: RUF012 - as the kit has it
    options: ClassVar[dict[str, Any]] = {"stop": "full"}


class TestSyncBeam(SearchContract):
    plugin = "syncbeam"
    options: ClassVar[dict[str, Any]] = {"symbol": 3, "recombine": True}


def decoder(name: str, **options: Any) -> Decoder:
    made: Decoder = HOST.load("decoder", name)(**options)
    return made


def contracts(base: type[Any]) -> Iterator[type[Any]]:
    for found in base.__subclasses__():
        yield found
        yield from contracts(found)


@pytest.mark.parametrize("name", [entry.name for entry in HOST.names("predictor")])
def test_every_registered_predictor_has_a_contract(name: str) -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "Contract):" in path.read_text():
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    named = {plugin for found in contracts(PredictorContract) if (plugin := getattr(found, "plugin", None))}
    tested = {HOST.load("predictor", plugin) for plugin in named}
    assert HOST.load("predictor", name) in tested, f"add a contract for predictor {name!r}"


@pytest.mark.parametrize("name", [entry.name for entry in HOST.names("decoder")])
def test_every_registered_decoder_has_a_contract(name: str) -> None:
    here = [found for found in contracts(SearchedOnce) if found.__module__ == __name__]
    tested = {type(found().make()) for found in here if found not in (BeamContract, VanillaContract, SearchContract)}
    assert HOST.load("decoder", name) in tested, f"add a contract for decoder {name!r} to {__file__}"


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
    import pynini

    lattices = [
        "0 1 1 0.25, 1 2 3 0.5, 1 3 4 0.7, 2 3 5 0.1, 2 4 6 1.5, 3 4 3 0.2, 3 4 8 0.0, 4 5 2 0.3, 5 0.1, 4 1.0",
        "0 1 3 1.0, 0 2 4 0.5, 1 3 5 0.25, 2 3 5 0.75, 3 0.5, 2 4 7 0.1",
        "0 1 3 0.5, 1 1 4 0.4, 1 2 5 0.1, 2 0.0, 1 3 2 2.0, 3 0.0",
    ]
    for number, text in enumerate(lattices, start=1):
        lattice: Any = pynini.Fst()
        lattice.add_states(6)
        lattice.set_start(0)
        for line in text.split(", "):
            *numbers, cost = line.split()
            if len(numbers) == 1:
                lattice.set_final(int(numbers[0]), cost)
            else:
                origin, target, label = map(int, numbers)
                lattice.add_arc(origin, pynini.Arc(label, label, cost, target))  # type: ignore[attr-defined]
        lattice.connect().write(str(folder / f"{number}.fst"))


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


def test_the_contract_is_tested_on_every_kind_of_dense_space() -> None:
    names = {space.name for space in VanillaContract.spaces}
    assert {"dense", "sparse and open alone", "on demand", "one not consulted", "nothing but the end"} <= names

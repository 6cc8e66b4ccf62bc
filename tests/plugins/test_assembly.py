"""The promise of assembly: names and options become the run that was asked for, or one line says what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sgdec.device import require_device
from sgdec.errors import UsageError
from sgdec.plugins.assembly import Run, RunConfig, assemble
from sgdec.plugins.host import Host
from sgdec.protocol import Source
from sgdec.search.space import SearchSpace
from sgdec.signature import LIBRARIES
from tests.helpers.tiny_models import characters

PLUGINS = '''
"""Predictors, wrappers and a decoder that say what they were given."""
import sgdec
from sgdec import Decoder, Predictor, BatchPredictor, Result, Scores
from sgdec.context import Vocabularies


class Speaks:
    """A vocabulary as large as its fingerprint says."""

    def __init__(self, fingerprint):
        self.fingerprint = fingerprint
        self.size = int(fingerprint.rstrip("ab"))


class Plain(Predictor):
    def __init__(self, bonus: float = 0.0, context: sgdec.Context = None):
        self.bonus, self.context = bonus, context

    def predict_next(self, candidates=None):
        return Scores.constant(self.bonus)


class Speaking(Plain):
    """Brings vocabularies; the size of ``target`` is its number."""

    def __init__(self, source: str = "", target: str = ""):
        super().__init__()

    @classmethod
    def read_vocabularies(cls, source="", target=""):
        return Vocabularies(Speaks(source) if source else None, Speaks(target) if target else None)


class Wrapper(BatchPredictor):
    """Twice what it wraps says; another target vocabulary than what it wraps."""

    def __init__(self, inner, target: str = "", factor: float = 2.0):
        self.inner, self.factor = inner, factor

    @classmethod
    def read_vocabularies(cls, target="", factor=2.0):
        return Vocabularies(None, Speaks(target) if target else None)

    def initialize_batch(self, sources):
        return self.inner.initialize_batch(sources)

    def predict_batch(self, states, candidates=None):
        rows = self.inner.predict_batch(states, candidates).rows
        return Scores.stack(Scores.constant(self.factor * row.default) for row in rows)

    def consume_batch(self, states, tokens):
        return self.inner.consume_batch(states, tokens)


class Mine(Decoder):
    def __init__(self, context, beta: float = 0.0):
        from sgdec.ranking import Ranking

        self.context, self.ranking = context, Ranking(beta=beta)

    def decode(self, space):
        ((child,),) = space.expand([space.root], limit=1)
        return Result([])


@sgdec.hookimpl
def sgdec_predictors():
    return {"plain": Plain, "speaking": Speaking, "twice": Wrapper}


@sgdec.hookimpl
def sgdec_decoders():
    return {"mine": Mine}
'''


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    path = tmp_path_factory.mktemp("plugins") / "mine.py"
    path.write_text(PLUGINS)
    return Host([path], autoload=False)


def make(
    host: Host, predictors: str, decoder: str = "mine", *, given: dict[str, Any] | None = None, **rest: Any
) -> Run:
    return assemble(RunConfig(predictors, decoder, given or {}, **rest), host)


def first_scores(run: Run) -> tuple[float, ...]:
    """What each predictor says of the first token."""
    (root,) = run.constellation.roots([Source(1, (3,))])
    ((child,),) = SearchSpace(run.constellation, root).expand([root], limit=1)
    assert child.step is not None
    return child.step.scores


def test_each_entry_has_a_name_a_weight_and_its_own_options(host: Host) -> None:
    given = {"plain": {"bonus": "1", "weight": "0.5"}, "plain2": {"bonus": 2}, "x": {"bonus": 3.0, "weight": -1}}
    run = make(host, "plain,plain,x=plain", given=given, vocab_size=4)
    assert run.constellation.names == ("plain", "plain2", "x")
    assert run.constellation.weights == (0.5, 1.0, -1.0)
    assert first_scores(run) == (1.0, 2.0, 3.0)


def test_wrappers_are_put_around_from_the_inside_out(host: Host) -> None:
    given = {"plain": {"bonus": "1"}, "twice": {"factor": "3", "weight": "0.25"}, "twice2": {"factor": "5"}}
    run = make(host, "twice:twice:plain", given=given, vocab_size=4)
    assert run.constellation.names == ("twice",)
    assert run.constellation.weights == (0.25,)
    outer: Any = run.constellation.predictors[0]
    assert (outer.factor, outer.inner.factor) == (3.0, 5.0)
    assert first_scores(run) == (15.0,)


def test_parts_that_ask_for_the_context_share_one(host: Host) -> None:
    run = make(host, "plain", vocab_size=4, seed=7, precision="fp64")
    decoder: Any = run.decoder
    plain: Any = run.constellation.predictors[0]
    assert decoder.context is plain.predictor.context
    assert (decoder.context.seed, decoder.context.precision, decoder.context.vocab_size) == (7, "fp64", 4)


def test_vocabularies_come_from_whoever_brings_them(host: Host) -> None:
    run = make(host, "speaking,plain,speaking", given={"speaking": {"source": "9"}, "speaking2": {"target": "8"}})
    assert run.vocabularies.source is not None and run.vocabularies.source.size == 9
    assert run.vocabularies.target is not None and run.vocabularies.target.size == 8
    assert run.constellation.vocab_size == 8


def test_a_wrapper_may_speak_another_vocabulary_than_what_it_wraps(host: Host) -> None:
    given = {"speaking": {"target": "8"}, "twice": {"target": "5"}}
    assert make(host, "twice:speaking", given=given).constellation.vocab_size == 5


def test_a_tokenizer_is_the_vocabulary_of_both_sides(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "abc.spm"
    path.write_bytes(characters("abc").serialized)
    run = make(host, "plain", tokenizer=str(path))
    assert run.vocabularies.source is run.vocabularies.target
    assert run.constellation.vocab_size == 7


@pytest.mark.parametrize(
    ("predictors", "rest", "message"),
    [
        ("twice", {}, "'twice' wraps another predictor: write twice:PREDICTOR"),
        ("plain:twice:plain", {}, "'plain' is not a wrapper; it cannot come before 'plain'"),
        ("plain", {"given": {"plain": {"weight": "much"}}}, "--plain.weight much: expected a number, such as 0.5"),
        ("plain", {"given": {"plain": {"weight": "nan"}}}, "--plain.weight nan: expected a number"),
        ("plain", {"given": {"plain": {"weight": "-inf"}}}, "--plain.weight -inf: expected a number"),
        ("plain", {"given": {"plane": {"bonus": "1"}}}, "options for 'plane', which this run does not use. Did you"),
        ("plain", {"given": {"dfs": {"alpha": "1"}}}, "'dfs', which this run does not use. It is a decoder: give"),
        ("plain", {"given": {"wc": {"weight": "1"}}}, "It is a predictor: add wc to --predictors, or omit"),
        ("plain", {"given": {"mine": {"weight": "1"}}}, "no option --mine.weight."),
        ("twice:plain", {"given": {"plain": {"weight": "1"}}}, "no option --plain.weight."),
        ("mine=plain", {}, "'mine' is the decoder. Rename it: NAME=PREDICTOR."),
        (
            "speaking,speaking",
            {"given": {"speaking": {"target": "8a"}, "speaking2": {"target": "8b"}}},
            "predictor 'speaking' and predictor 'speaking2' have different target vocabularies (8 tokens each, but "
            "not the same ones). All predictors of a run must share one: use models with the same tokenizer",
        ),
        (
            "speaking,speaking",
            {"given": {"speaking": {"source": "8"}, "speaking2": {"source": "9"}}},
            "predictor 'speaking' and predictor 'speaking2' have different source vocabularies (8 and 9 tokens)",
        ),
        ("speaking", {"given": {"speaking": {"target": "8"}}, "vocab_size": 9}, "--vocab-size 9, but the target"),
        ("plain", {"given": {"mine": {"beta": "0.2"}}}, "a coverage penalty (beta = 0.2) needs a predictor with"),
        ("plain", {"device": "gpu"}, "--device gpu: expected cpu, cuda or cuda:N."),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    host: Host, predictors: str, rest: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        make(host, predictors, **rest)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UsageError, match=r"--device cuda: PyTorch sees no CUDA devices here\. Use --device cpu\."):
        require_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    require_device("cuda")
    require_device("cuda:1")
    with pytest.raises(UsageError, match="--device cuda:2: PyTorch sees 2 CUDA devices"):
        require_device("cuda:2")


def test_the_signature_says_what_the_run_is_made_of(host: Host) -> None:
    given = {"plain": {"bonus": "1", "weight": "0.5"}, "twice": {"factor": "3"}, "mine": {"beta": "0"}}
    signature = make(host, "plain,x=twice:plain", given=given, vocab_size=4, seed=3).signature
    assert next(iter(signature)) == "sgdec"
    assert {name: text for name, text in signature.items() if name not in ("sgdec", "threads", *LIBRARIES)} == {
        "plugins": signature["plugins"],
        "predictors": "0.5*plain(bonus=1),1*twice(factor=3):x=plain",
        "decoder": "mine(beta=0)",
        "vocab_size": "4",
        "precision": "fp32",
        "device": "cpu",
        "seed": "3",
    }
    assert ("torch" in signature) == ("torch" in sys.modules) == ("threads" in signature)

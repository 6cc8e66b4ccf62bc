"""The promise of old names: what was valid when the protocol got its number is valid as long as it has it."""

from __future__ import annotations

import copy
import importlib
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sgdec_decoders.greedy import GreedyDecoder

import sgdec
import sgdec.plugins.host
from sgdec import BatchPredictor, Predictor, Scores
from sgdec.errors import SgdecError
from sgdec.lifting import lift
from sgdec.protocol import Candidates
from tests.helpers.plugin_files import decode, write_plugin

WARNING = "never_positive is an old name: True is read as max_score = 0.0. Set max_score in its place."


class Silent(Predictor):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.constant(-1.0)


class OfClass(Silent):
    never_positive: ClassVar[bool] = True  # type: ignore[misc]


class Derived(OfClass):
    """Has the trait of its base."""


class Revoked(OfClass):
    never_positive = False  # type: ignore[misc]


class OfInstance(Silent):
    def __init__(self) -> None:
        self.never_positive = True


class RevokedByInstance(OfClass):
    def __init__(self) -> None:
        self.never_positive = False  # type: ignore[misc]


class Computed(Silent):
    @property
    def never_positive(self) -> bool:  # type: ignore[override]
        return True


@dataclass
class WithFields(Silent):
    never_positive: bool = True


class Both(Silent):
    never_positive = True
    max_score = -0.5


class BothOfInstance(Silent):
    max_score = -0.5

    def __init__(self) -> None:
        self.never_positive = True  # type: ignore[misc]


class Unknown(Silent):
    never_positive = False
    max_score = 2.0


@pytest.mark.parametrize(
    ("cls", "highest", "warned"),
    [
        (OfClass, 0.0, True), (Derived, 0.0, True), (Revoked, math.inf, True), (OfInstance, 0.0, True),
        (RevokedByInstance, math.inf, True), (Computed, 0.0, True), (WithFields, 0.0, True), (Both, -0.5, False),
        (BothOfInstance, -0.5, False),
        (Unknown, 2.0, False), (Silent, math.inf, False),
    ],
)  # fmt: skip
def test_never_positive_is_max_score(
    cls: type[Silent], highest: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for predictor in (cls(), copy.copy(cls())):
        lifted = lift(predictor)
        assert predictor.max_score == lifted.max_score == highest
        assert predictor.never_positive == lifted.never_positive == (highest <= 0)
    assert [message.endswith(WARNING) for message in caplog.messages] == [True] * warned
    assert all(cls.__name__ in message and f"{Path(__file__)}, line " in message for message in caplog.messages)


def test_a_wrapper_that_passes_the_trait_on(caplog: pytest.LogCaptureFixture) -> None:
    class Old(BatchPredictor):
        def __init__(self, inner: BatchPredictor, bonus: bool = False) -> None:
            self.never_positive = inner.never_positive
            if bonus:
                self.never_positive = False

        initialize_batch = predict_batch = consume_batch = lambda self, *_: []  # type: ignore[assignment]

    assert [Old(lift(Silent())).max_score, Old(lift(OfClass())).max_score] == [math.inf, 0.0]
    assert Old(lift(OfClass()), bonus=True).max_score == math.inf
    assert lift(Old(lift(Silent()))).max_score == math.inf


class InClass(Silent):
    never_positive = True
    max_score = 1.0


class InInstance(Silent):
    def __init__(self, first: str) -> None:
        for trait in (first, "max_score" if first == "never_positive" else "never_positive"):
            setattr(self, trait, {"never_positive": True, "max_score": 1.0}[trait])


@pytest.mark.parametrize(
    "make", [InClass, lambda: InInstance("max_score"), lambda: InInstance("never_positive")], ids=["class", "a", "b"]
)
def test_traits_that_contradict_each_other_are_refused(make: Any) -> None:
    with pytest.raises(SgdecError, match=r"^class In.*: never_positive = True and max_score = 1 contradict"):
        lift(make())


@pytest.mark.parametrize("value", ["no", None, 2])
def test_a_value_of_the_constructor_is_no_less_checked_than_that_of_a_class(value: Any) -> None:
    class Wrong(Silent):
        def __init__(self) -> None:
            self.never_positive = value

    class Numeric(Silent):
        def __init__(self) -> None:
            self.never_positive = np.bool_(True)  # as in (scores <= 0).all()

    with pytest.raises(SgdecError, match=f"^class .*Wrong.*: never_positive is {value!r}; expected True or False"):
        lift(Wrong())
    assert lift(Numeric()).max_score == 0.0


def test_a_run_says_once_that_a_plugin_has_an_old_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_plugin(tmp_path, "    never_positive = True\n    def arc(self): pass\n")
    assert decode(tmp_path, "--decoder", "greedy") == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Warning: class")]
    assert warnings == [
        f"Warning: class Mine ({path}, line 5): {WARNING}",
        f"Warning: class Mine ({path}, line 5): it has 'arc', which sgdec never uses. Did you mean 'arcs'? If not, "
        "choose another name.",
    ]


def test_what_has_moved_is_found_in_its_old_place() -> None:
    with pytest.warns(DeprecationWarning, match="sgdec.search.SearchSpace is called sgdec.SearchSpace now"):
        from sgdec.search import SearchSpace
    with pytest.warns(DeprecationWarning, match="sgdec.plugins.Host is called sgdec.plugins.host.Host now"):
        from sgdec.plugins import Host
    assert (SearchSpace, Host) == (sgdec.SearchSpace, sgdec.plugins.host.Host)


FORMER_MODULES = [
    ("sgdec.constraints.characters", "sgdec_predictors.texts.characters", "fold"),
    ("sgdec.constraints.grammars", "sgdec_predictors.texts.grammars", "read_grammar"),
    ("sgdec.constraints.matchers", "sgdec_predictors.texts.matchers", "Tokens"),
    ("sgdec.constraints.regexes", "sgdec_predictors.texts.regexes", "compile_regexes"),
    ("sgdec.constraints.segmentation", "sgdec_predictors.texts.segmentation", "Segmentation"),
    ("sgdec.constraints.spelling", "sgdec_predictors.texts.spelling", "Spelling"),
    ("sgdec.constraints.stored", "sgdec_predictors.texts.stored", "StoredAutomata"),
    ("sgdec.constraints.token_automata", "sgdec_predictors.texts.token_automata", "TokenAutomaton"),
    ("sgdec.constraints.word_automata", "sgdec_predictors.texts.word_automata", "word_automaton"),
    ("sgdec.io.grammar", "sgdec_predictors.hiero.grammar", "read_rules"),
    ("sgdec.io.kenlm", "sgdec_predictors.ngrams.kenlm_file", "check_kenlm"),
    ("sgdec.pretrained.causal", "sgdec_predictors.pretrained.causal", "Continuations"),
    ("sgdec.pretrained.counterparts", "sgdec_predictors.pretrained.counterparts", "not_followed"),
    ("sgdec.pretrained.folder", "sgdec_predictors.pretrained.folder", "find_folder"),
    ("sgdec.pretrained.layers", "sgdec_predictors.pretrained.layers", "Gathered"),
    ("sgdec.pretrained.loading", "sgdec_predictors.pretrained.loading", "load_module"),
    ("sgdec.pretrained.packing", "sgdec_predictors.pretrained.packing", "pack"),
    ("sgdec.pretrained.prefixes", "sgdec_predictors.pretrained.prefixes", "Prefixes"),
    ("sgdec.pretrained.probe", "sgdec_predictors.pretrained.probe", "probe"),
    ("sgdec.pretrained.prompts", "sgdec_predictors.pretrained.prompts", "Reader"),
    ("sgdec.pretrained.rules", "sgdec_predictors.pretrained.rules", "Rules"),
    ("sgdec.pretrained.seq2seq", "sgdec_predictors.pretrained.seq2seq", "Translations"),
    ("sgdec.pretrained.weights", "sgdec_predictors.pretrained.weights", "map_weights"),
]


@pytest.mark.parametrize(("former", "now", "name"), FORMER_MODULES, ids=[former for former, _, _ in FORMER_MODULES])
def test_a_module_that_has_moved_to_predictors_is_found_in_its_old_place(former: str, now: str, name: str) -> None:
    module = importlib.import_module(former)
    said = f"{former} is called {now} now; the next version of the protocol removes the old name."
    with pytest.warns(DeprecationWarning) as warned:
        found = getattr(module, name)
    assert found is getattr(importlib.import_module(now), name)
    assert [(str(one.message), one.filename) for one in warned] == [(said, __file__)]
    with pytest.raises(AttributeError, match="nothing"):
        module.nothing  # noqa: B018


def test_a_former_module_is_imported_by_every_kind_of_statement() -> None:
    """In a process of its own, in which nothing else has imported it."""
    program = (
        "from sgdec.constraints.characters import fold\nimport sgdec.pretrained.prompts as prompts\n"
        "from sgdec.constraints import characters\nfrom sgdec.io import grammar\nimport sgdec.io.kenlm\n"
        "import sys\nassert not [name for name in sys.modules if name.startswith('sgdec_predictors.pretrained')]\n"
        "print(characters.fold is fold, grammar.Rule.__module__, sgdec.io.kenlm.check_kenlm.__module__)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True sgdec_predictors.hiero.grammar sgdec_predictors.ngrams.kenlm_file\n"


def test_a_decoder_that_checks_lengths_itself() -> None:
    class Old(GreedyDecoder):
        def decode(self, space: sgdec.SearchSpace) -> sgdec.Result:
            space.require_end_by(0)
            return super().decode(space)

    run = sgdec.load("wc", Old, vocab_size=5)
    with pytest.warns(DeprecationWarning, match="require_end_by is an old name: call count_expansions"):
        (found,) = run.decode([[3]])
    assert found.best.tokens == ()


def test_an_old_option_renormalize_is_the_plugins_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every predictor got an option of this name later."""
    write_plugin(tmp_path, "    def __init__(self, renormalize: int = 0): assert renormalize == 7\n")
    assert decode(tmp_path, "--decoder", "greedy", "--mine.renormalize", "7") == 0
    assert "its option 'renormalize' hides the one that every predictor has." in capsys.readouterr().err


def test_a_parameter_weight_keeps_its_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_plugin(tmp_path, "    def __init__(self, weight: float = 1.0): assert weight == 1.0\n")
    assert decode(tmp_path, "--decoder", "greedy", "--mine.weight", "2") == 0
    assert "its parameter 'weight' can never be given" in capsys.readouterr().err

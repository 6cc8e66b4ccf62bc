"""What the author of a plugin gets wrong is one line: whose it is, where, what is expected. Nothing decodes wrongly.

Classes are checked when they are loaded or lifted, answers when they are given, and what is raised says where.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.greedy import GreedyDecoder

from sgdec.cli.main import main
from sgdec.errors import SgdecError
from sgdec.lifting import lift
from sgdec.plugins.surface import require_sound
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Scores, Source
from sgdec.wrapping import Wrapper
from tests.helpers.plugin_files import HEAD, decode, write_plugin


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    def consume(self, token): pass\n", "it has consume, but no get_state and no set_state."),
        ("    def consume(self, token): pass\n    def get_state(self): pass\n", "consume and get_state, but no"),
        ("    def get_state(self): pass\n", "it has get_state, but no set_state."),
        ("    def best_remaning(self, states): return []\n", "'best_remaning', which sgdec never uses. Did you mean"),
        ("    def initialise(self, source): pass\n", "Did you mean 'initialize'?"),
        ("    def get_states(self): pass\n", "'get_states', which sgdec never uses. Did you mean 'get_state'?"),
        ("    def atention(self, states): return []\n", "Did you mean 'attention'?"),
        ("    def read_vocabulary(cls, **options): pass\n", "Did you mean 'read_vocabularies'?"),
        ("    on_demnd = True\n", "'on_demnd', which sgdec never uses. Did you mean 'on_demand'?"),
        ("    maxscore = 0.0\n", "Did you mean 'max_score'?"),
        ("    never_positive = True\n    max_score = 0.5\n", "never_positive = True and max_score = 0.5 contradict"),
        ("    def best_remaining(self): return []\n", "best_remaining(self) is called with 1 argument"),
        ("    def initialize(self): pass\n", "initialize(self) is called with 1 argument, which it does not take"),
        ("    def predict_next(self): pass\n", "predict_next(self) is called with 1 argument"),
        ("    def predict_next(self, candidates): pass\n", "predict_next(self, candidates) is called with 0 arg"),
        ("    max_score = 'high'\n", "max_score is 'high'; expected a number."),
        ("    max_score = float('nan')\n", "max_score is nan; expected a number."),
        ("    max_score = True\n", "max_score is True; expected a number."),
        ("    on_demand = 'no'\n", "on_demand is 'no'; expected True or False."),
        ("    independent_rows = 2\n", "independent_rows is 2; expected True or False."),
        ("    never_positive = 'no'\n", "never_positive is 'no'; expected True or False."),
        ("    never_positive = None\n", "never_positive is None; expected True or False."),
        ("    never_positive = 'no'\n    max_score = -1.0\n", "never_positive is 'no'; expected True or False."),
        ("    def __init__(self, weight: float): pass\n", "its parameter 'weight' can never be given"),
        ("    def read_vocabularies(self, **options): pass\n", "read_vocabularies has to be a classmethod"),
    ],
)
def test_a_class_that_cannot_mean_what_it_says_is_refused_when_it_is_loaded(
    body: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_plugin(tmp_path, body)
    assert decode(tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: predictor 'mine' of {path}: class Mine ({path}, line 5): ")
    assert said in line
    assert main(["plugins", "--check", "--plugin-file", str(path)]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("trait", "value", "said"),
    [
        ("ranks_by", None, "ranks_by is None; expected the name of a criterion."),
        ("ranks_by", "", "ranks_by is ''; expected the name of a criterion."),
        ("exact", "yes", "exact is 'yes'; expected True or False."),
        ("exact", None, "exact is None; expected True or False."),
        ("ranking", None, "ranking is None; expected a sgdec.ranking.Ranking."),
    ],
)
def test_a_trait_of_a_decoder_has_its_type(trait: str, value: object, said: str) -> None:
    with pytest.raises(SgdecError, match=re.escape(said)):
        require_sound(type("Mine", (GreedyDecoder,), {trait: value}))


@pytest.mark.parametrize(
    ("forwards", "said"),
    [
        (("state_keys",), "forwards names 'state_keys'. Did you mean 'state_key'?"),
        (("state_key"), "forwards is 'state_key'; expected a tuple of abilities, such as ('state_key',)."),
        (("steps",), "forwards names 'steps'. Available: advancing, attention"),
    ],
)
def test_what_a_wrapper_cannot_forward_is_refused(forwards: Any, said: str) -> None:
    mine = type("Mine", (Wrapper,), {"forwards": forwards})
    with pytest.raises(SgdecError, match=re.escape(said)):
        require_sound(mine)


def test_a_wrapper_without_its_inner_predictor_says_what_is_missing() -> None:
    class Mine(Wrapper):
        def __init__(self, inner: BatchPredictor) -> None:
            self.other = inner

    with pytest.raises(AttributeError, match=r"Mine.__init__ has to call super\(\).__init__\(inner\)"):
        Mine(Answering(None)).initialize_batch([])


def test_a_decoder_has_no_parameter_of_the_name_inner() -> None:
    class Mine(GreedyDecoder):
        def __init__(self, inner: str) -> None: ...

    with pytest.raises(SgdecError, match="its parameter 'inner' can never be given: only wrappers of predictors"):
        require_sound(Mine)


@pytest.mark.parametrize("tokens", [{3}, {3: 0.0}, frozenset({3})])
def test_sparse_tokens_have_an_order(tokens: Any) -> None:
    with pytest.raises(TypeError, match=r"Scores\.sparse takes a sequence of tokens, not a (set|dict|frozenset)"):
        Scores.sparse(tokens, [0.0])


def test_helpers_of_other_names_are_nobodys_business() -> None:
    class Mine(Predictor):
        consumed = 0
        score = 1.0

        def predict_next(self, candidates: Candidates | None = None) -> Scores:
            return Scores.constant(0.0)

        def predict(self) -> None:
            """Something else."""

        def states(self) -> None:
            """Something else."""

    require_sound(Mine)


def test_a_predictor_used_without_the_command_line_is_checked_too() -> None:
    class Forgetful(Predictor):
        def predict_next(self, candidates: Candidates | None = None) -> Scores:
            return Scores.constant(0.0)

        def consume(self, token: int) -> None:
            self.last = token

    where = r"Forgetful \(.*test_mistakes.py, line \d+\)"
    with pytest.raises(SgdecError, match=f"{where}: it has consume, but no get_state"):
        lift(Forgetful())


class Answering(BatchPredictor):
    """A batch-form predictor that says whatever it is told to."""

    def __init__(self, scores: object, *, states: object = None, after: object = None) -> None:
        self._scores, self._states, self._after = scores, states, after

    def initialize_batch(self, sources: Sequence[Source]) -> Any:
        return self._states if self._states is not None else [0] * len(sources)

    def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Any:
        return self._scores

    def consume_batch(self, states: Sequence[Any], tokens: Sequence[int]) -> Any:
        return self._after if self._after is not None else list(states)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{3: -1.0}", "a dict"),
        ("None", "None"),
        ("[0.0] * 5", "a list"),
        ("__import__('numpy').zeros(5)", "a ndarray of shape [5]"),
        ("__import__('torch').zeros(5)", "a Tensor of shape [5]"),
        ("(0.0, 1.0)", "a tuple"),
        ("Scores.dense(__import__('numpy').zeros((2, 5)))", "2 rows"),
    ],
)
@pytest.mark.parametrize("batch_size", ["1", "64"])
def test_an_answer_that_is_none_says_what_it_is_whose_and_what_is_expected(
    answer: str, said: str, batch_size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_plugin(tmp_path, "", head=HEAD.replace('Scores.dense(__import__("numpy").zeros(5))', answer))
    assert decode(tmp_path, "--batch-size", batch_size) == 1
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == 3
    for number, line in enumerate(warnings, 1):
        expected = f"predictor 'mine': predict_next returned {said}; expected "
        assert line.startswith(f"Warning: sentence {number}: {expected}")
        assert "Scores.dense(array)" in line


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Answering({}), "predictor 'a': predict_batch returned a dict; expected Scores"),
        (Answering(Scores.dense(np.zeros((3, 4)))), "predictor 'a': predict_batch returned 3 rows for 1 states"),
        (Answering(None, states=[]), "predictor 'a': initialize_batch returned 0 items; expected 1."),
        (Answering(None, states=7), "predictor 'a': initialize_batch returned an int; expected a list of length 1."),
        (Answering(Scores.dense(np.zeros(4)), after=[1, 2]), "predictor 'a': consume_batch returned 2 items"),
        (Answering(Scores.dense(np.zeros(4)), after=None), ""),
    ],
)
def test_answers_in_the_batch_form_are_checked_too(made: Answering, said: str) -> None:
    from sgdec_decoders.vanilla import VanillaDecoder

    from sgdec.search.constellation import Constellation
    from sgdec.search.scheduler import Scheduler

    for decoder in (GreedyDecoder(), VanillaDecoder(size=1)):
        constellation = Constellation.of({"a": made}, vocab_size=4)
        (outcome,) = Scheduler(constellation, decoder).run([Source(1, (3,), max_length=2)])
        assert said in str(outcome.error)
        assert (outcome.error is None) == (not said)


BROKEN = """
    def get_state(self):
        return None

    def set_state(self, state):
        pass

    def {verb}:
        return self.helper({{}})

    def helper(self, nothing):
        return nothing["there"]  # the line
"""


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", ["1", "2", "64"])
@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("predict_next(self, candidates=None)", []),
        ("initialize(self, source)", []),
        ("consume(self, token)", []),
        ("best_remaining(self, states)", ["--decoder", "dfs"]),
        ("state_key(self, states)", ["--beam.recombine", "true"]),
        ("attention(self, states)", ["--beam.beta", "0.5"]),
    ],
)
def test_an_exception_in_a_predictor_names_it_with_file_and_line_of_its_own_frame(
    verb: str, more: list[str], batch_size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_plugin(tmp_path, BROKEN.format(verb=verb))
    line = 1 + path.read_text().splitlines().index('        return nothing["there"]  # the line')
    assert decode(tmp_path, "--batch-size", batch_size, *more) == 1
    said = capsys.readouterr().err
    expected = f"predictor 'mine': KeyError: 'there' ({path}, line {line})"
    assert f"Warning: sentence 1: {expected}" in said.splitlines()
    assert f'File "{path}", line {line}, in helper' in said, "the frame itself, in the traceback"


def test_so_does_one_inside_a_wrapper_and_one_of_a_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_plugin(tmp_path, BROKEN.format(verb="predict_next(self, candidates=None)"))
    line = 1 + path.read_text().splitlines().index('        return nothing["there"]  # the line')
    assert decode(tmp_path, "--maskvocab.tokens", "4", predictors="wc,maskvocab:mine") == 1
    said = capsys.readouterr().err.splitlines()
    assert f"Warning: sentence 1: predictor 'maskvocab': KeyError: 'there' ({path}, line {line})" in said


def test_an_exception_in_a_decoder_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import sgdec\n\nclass Mine(sgdec.Decoder):\n    def decode(self, space):\n        return {}['there']\n\n"
        "@sgdec.hookimpl\ndef sgdec_decoders():\n    return {'mine': Mine}\n"
    )
    assert decode(tmp_path, "--decoder", "mine", predictors="wc") == 1
    said = capsys.readouterr().err.splitlines()
    assert f"Warning: sentence 1: decoder 'mine': KeyError: 'there' ({path}, line 5)" in said


def test_a_plugin_file_is_described_by_its_own_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_plugin(tmp_path, "")
    assert main(["plugins", "mine", "--plugin-file", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"predictor mine ({path}: Mine)\n")


def test_a_traceback_is_short_and_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_plugin(tmp_path, BROKEN.format(verb="predict_next(self, candidates=None)"))
    assert decode(tmp_path, lines="3\n" * 100, predictors="wc,mine") == 1
    said = capsys.readouterr().err
    assert said.count("Traceback (most recent call last)") == 1 and said.count(f'File "{path}"') == 2  # two frames
    assert said.count("KeyError: 'there' (") == 100, "a line for each sentence"
    assert len(said.splitlines()) < 120


HEAD_AND_ERRORS = HEAD.replace("from sgdec import Scores", "from sgdec import Scores, SgdecError, UsageError")


@pytest.mark.parametrize(
    ("method", "error", "status", "lines"),
    [
        ("__init__(self)", "UsageError", 2, ["Error: such and such"]),
        ("__init__(self)", "SgdecError", 1, ["Error: such and such"]),
        ("initialize(self, source)", "UsageError", 2, ["Error: such and such"]),
        ("initialize(self, source)", "SgdecError", 1, [f"Warning: sentence {i}: such and such" for i in (1, 2, 3)]),
    ],
)
def test_what_is_raised_decides_what_fails(
    method: str, error: str, status: int, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table in ``docs/howto/plugins.md``."""
    write_plugin(tmp_path, f"    def {method}:\n        raise {error}('such and such')\n", head=HEAD_AND_ERRORS)
    assert decode(tmp_path) == status
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("Error", "Warning"))]
    assert said == lines

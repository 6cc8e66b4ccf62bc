"""The promise: with ``--check-bounds`` a search names the predictor, prefix, token and numbers of a wrong claim, with
every decoder, one sentence at a time and in batches; and without a wrong claim it changes nothing."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.nfst import NfstPredictor

from sgdec.arcs import Automaton
from sgdec.arrays import Floats, Ints
from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.derived import DerivedRelaxation
from sgdec.errors import UsageError
from sgdec.protocol import BatchPredictor, Scores, Source, SparseRow, State
from sgdec.relaxations import Constant, Relaxation
from sgdec.search.blame import told
from sgdec.search.bounds.folding import Folding
from sgdec.search.checking.constellation import CheckedConstellation
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.settings import BoundsKind
from sgdec.testing import Table
from tests.helpers.breadth import EXHAUSTIVE, some
from tests.helpers.contracts import HOST
from tests.helpers.lattice_files import write_automaton
from tests.helpers.relaxing import WholeLattice, random_automaton
from tests.helpers.with_arcs import SENTENCES, V, predictors_with_arcs

EXACT = ("astar", "bucket", "dfs", "lendfs", "restarting")
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "beam": [{}, {"stop": "proven"}, {"recombine": True}],
    "syncbeam": [{"symbol": 4}],
    "vanilla": [{}, {"stop": "proven"}],
}
DECODERS: list[Callable[[], Decoder]] = [
    partial(HOST.load("decoder", entry.name), **options)
    for entry in HOST.names()
    if entry.kind == "decoder"
    for options in OPTIONS.get(entry.name, [{}])
]
LIMITED = [source for source in SENTENCES if source.max_length is not None]
Mix = dict[str, BatchPredictor]


def spelled(make: Any) -> str:
    return f"{make.func.__name__} {make.keywords}"


@pytest.fixture(params=DECODERS, ids=spelled)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    made: Decoder = request.param()
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("with_arcs")
    predictors_with_arcs(made)
    return made


@pytest.fixture
def mix(folder: Path) -> Mix:
    """A lattice and a trigram model, both automata as arrays."""
    paths = {"fst": f"{folder}/{{id}}.fst", "ngram": str(folder / "lm.arpa")}
    return {name: HOST.load("predictor", name)(path=path) for name, path in paths.items()}


def errors(
    mix: Mix,
    decoder: Decoder,
    batch_size: int,
    weights: Sequence[float] | None = None,
    bounds: BoundsKind = "product",
    sentences: Sequence[Source] = SENTENCES[:5],
) -> list[str | None]:
    """The error of each sentence; None for those without."""
    constellation = CheckedConstellation.of(mix, weights=weights, vocab_size=V, bounds=bounds)
    outcomes = Scheduler(constellation, decoder, batch_size=batch_size, nbest=2).run(sentences)
    return [None if outcome.error is None else told(outcome.error, "decoder") for outcome in outcomes]


class Bent(DerivedRelaxation):
    """A relaxation whose methods can be replaced by functions of what they return."""

    def __init__(self, inner: Relaxation, **bent: Callable[..., Any]) -> None:
        super().__init__(inner, lambda states: states)
        self._bent = bent

    def of(self, states: Sequence[State]) -> Sequence[int]:
        return self._of("of", super().of(states))

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return self._of("after", super().after(states, tokens))

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self._of("highest", super().highest(states, tokens))

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self._of("lowest", super().lowest(states, tokens))

    def arcs(self, states: Ints, tokens: Ints, *, lowest: bool = False) -> tuple[Floats, Ints]:
        found: tuple[Floats, Ints] = self._of("arcs", Relaxation.arcs(self, states, tokens, lowest=lowest))
        return found

    def _of(self, method: str, found: Any) -> Any:
        return self._bent.get(method, lambda found: found)(found)


def bend(level: int, **bent: Callable[..., Any]) -> Callable[[Any], None]:
    """Make the model's relaxation of this level lie."""

    def change(model: Any) -> None:
        levels = list(model.relaxations(model.initialize_batch(SENTENCES[:1])[0]))
        levels[level] = Bent(levels[level], **bent)
        vars(model)["relaxations"] = lambda state: levels

    return change


def rebuilt(model: Any) -> None:
    vars(model)["relaxations"] = lambda state: [Constant(-math.inf, math.inf)]


def below(model: Any) -> None:
    model.max_score -= 20.0


def redrawn(change: Callable[[Automaton], None]) -> Callable[[Any], None]:
    """Change the arrays of the whole automaton of each sentence, which stay the same object."""

    def lie(lattice: Any) -> None:
        true, known = lattice.whole, {}

        def whole(state: State) -> tuple[Automaton, int]:
            automaton, first = true(state)
            if first not in known:
                parts = {name: getattr(automaton, name).copy() for name in ("offsets", "tokens", "scores", "after")}
                known[first] = Automaton(**parts)
                change(known[first])
            return known[first], first

        vars(lattice)["whole"] = whole

    return lie


def lower(automaton: Automaton) -> None:
    automaton.scores -= 1.0


def slightly_lower(automaton: Automaton) -> None:
    automaton.scores -= 1e-7


def elsewhere(automaton: Automaton) -> None:
    automaton.after[(automaton.after > 0) & (automaton.tokens != EOS)] = 0


def first_arc_less(automaton: Automaton) -> None:
    automaton.offsets[1:] -= 1
    automaton.tokens, automaton.scores = automaton.tokens[1:], automaton.scores[1:]
    automaton.after = automaton.after[1:]


def shuffled(automaton: Automaton) -> None:
    automaton.tokens[:] = automaton.tokens[::-1].copy()


def anew(lattice: Any) -> None:
    true = lattice.whole

    def whole(state: State) -> tuple[Automaton, int]:
        automaton, first = true(state)
        return copy.copy(automaton), first

    vars(lattice)["whole"] = whole


def bound(method: str, by: float) -> Callable[[Any], None]:
    def change(lattice: Any) -> None:
        true = getattr(lattice, method)
        vars(lattice)[method] = lambda states: [most + by for most in true(states)]

    return change


class Lie(NamedTuple):
    of: str
    tell: Callable[[Any], None]
    expected: str
    """# stands for a number, * for tokens, and @ for "before the first token" or "after tokens *"."""
    weight: float = 1.0
    """That of the liar."""
    bounds: BoundsKind = "product"

    def found_in(self, error: str) -> bool:
        pattern = re.escape(f"predictor '{self.of}'{self.expected}")
        number, tokens = r"-?(\d[\d.e+-]*|inf|nan)", r"\d+( \d+)*"
        pattern = pattern.replace("@", rf"(before\ the\ first\ token|after\ tokens\ {tokens})")
        return re.match(pattern.replace(r"\*", tokens).replace(r"\#", number), error) is not None


START = ", before the first token: "
WAY_OUT = "Correct the relaxation; --bounds sum does without it."
RELAXED = {
    "highest": Lie(
        "ngram",
        bend(0, highest=lambda found: found - 30.0),
        f"{START}highest of relaxation 0 in state # claims at most # for token #, but its score is #. {WAY_OUT}",
    ),
    "highest of the coarse one": Lie(
        "ngram",
        bend(2, highest=lambda found: found - 30.0),
        f"{START}highest of relaxation 2 in state 0 claims at most # for token #, but its score is #.",
    ),
    "lowest": Lie(
        "ngram",
        bend(0, lowest=lambda found: found + 30.0),
        f"{START}lowest of relaxation 0 in state # claims at least # for token #, but its score is #. {WAY_OUT}",
    ),
    "lowest with a negative weight": Lie(
        "ngram",
        bend(2, lowest=lambda found: found + 30.0),
        f"{START}lowest of relaxation 2 in state 0 claims at least # for token #, but its score is #.",
        weight=-1.0,
    ),
    "nan": Lie(
        "ngram",
        bend(0, lowest=lambda found: found * math.nan),
        f"{START}lowest of relaxation 0 in state # claims at least nan for token #, but its score is #.",
    ),
    "after": Lie(
        "ngram",
        bend(0, after=lambda found: (found + 1) % 3),
        f"{START}after of relaxation 0 in state # claims state # after token #, but the predictor's state after it "
        f"is relaxed to # by of. {WAY_OUT}",
    ),
    "arcs": Lie(
        "ngram",
        bend(0, arcs=lambda found: (found[0] - 1.0, found[1])),
        f"{START}arcs of relaxation 0 in state # claims something else for token # than highest and after. {WAY_OUT}",
    ),
    "states of arcs": Lie(
        "ngram",
        bend(1, arcs=lambda found: (found[0], found[1] * 0)),
        f"{START}arcs of relaxation 1 in state # claims something else for token # than lowest and after.",
        weight=-0.5,
    ),
    "no state": Lie(
        "ngram",
        bend(2, of=lambda found: [7 for _ in found]),
        ": of of a relaxation returned state 7, but it has the states 0 to 0 (size 1). --bounds sum does without "
        "relaxations. (before the first token)",
    ),
}
WHOLE = {
    "arcs of other scores": Lie(
        "fst",
        redrawn(lower),
        f"{START}whole claims score # for token #, but its score is #. Correct whole; --bounds sum does without it.",
    ),
    "arcs to other states": Lie(
        "fst",
        redrawn(elsewhere),
        f"{START}whole claims state 0 after token #, but the predictor's state after it has the number # there.",
    ),
    "an arc too few": Lie(
        "fst", redrawn(first_arc_less), f"{START}whole claims score -inf for token #, but its score is #."
    ),
    "arcs in disorder": Lie("fst", redrawn(shuffled), f"{START}whole has arcs whose tokens do not ascend: *."),
}
LATER = {
    "other relaxations": Lie(
        "ngram",
        rebuilt,
        ", @: relaxations returns other objects than at first; expected the same in all states of a sentence.",
    ),
    "another automaton": Lie(
        "fst",
        anew,
        ", @: its whole automaton is another object than at first; expected the same in all states of a sentence.",
    ),
    "best_remaining": Lie(
        "fst",
        bound("best_remaining", -20.0),
        f"{START}best_remaining claims that it adds at most #, but tokens * add #. Correct best_remaining; decoders "
        "without proofs, such as beam, ignore it.",
        bounds="sum",
    ),
    "dead ends": Lie(
        "fst",
        bound("best_remaining", -math.inf),
        f"{START}best_remaining claims that it adds at most -inf, but tokens * add #.",
        bounds="sum",
    ),
    "worst_remaining": Lie(
        "fst",
        bound("worst_remaining", 20.0),
        f"{START}worst_remaining claims that it adds at least #, but tokens * add #. Correct worst_remaining;",
        weight=-1.0,
        bounds="sum",
    ),
}
"""Found once a hypothesis ends, or a token follows."""
MAX_SCORE = Lie(
    "ngram",
    below,
    f"{START}max_score claims at most #, but token # scores #. Give a higher max_score; decoders without proofs, "
    "such as beam, ignore it.",
    bounds="sum",
)
LIES = {**RELAXED, **WHOLE, **LATER, "max_score": MAX_SCORE}


SIZES = [1, 64]
TOLD = [
    (name, size, decoder)
    for i, name in enumerate(LIES)
    for j, decoder in enumerate(DECODERS)
    for size in (SIZES if EXHAUSTIVE else [SIZES[(i + j) % 2]])
]
"""To all decoders; in `make test`, every other one has a batch, which are the others with the next lie."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch_size", "decoder"),
    TOLD,
    ids=lambda value: spelled(value) if isinstance(value, partial) else None,
    indirect=["decoder"],
)
def test_a_lie_is_found_by_every_decoder(name: str, batch_size: int, decoder: Decoder, mix: Mix) -> None:
    lie = LIES[name]
    lie.tell(mix[lie.of])
    weights = [lie.weight if each == lie.of else 1.0 for each in mix]
    found = errors(mix, decoder, batch_size, weights, lie.bounds)
    told = [error for error in found if error is not None and not error.startswith("no hypothesis")]
    assert [error for error in told if not lie.found_in(error)] == []
    assert len(told) == len(found) if name not in LATER else told


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_product_bound_that_is_too_low_is_found(
    batch_size: int, decoder: Decoder, mix: Mix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if their sum were wrong although each claim is right."""
    true = Folding.bounds
    monkeypatch.setattr(Folding, "bounds", lambda *given: [most - 20.0 for most in true(*given)])
    if isinstance(decoder, SepBeamDecoder):
        return  # it consults one predictor at a time
    found = [error for error in errors(mix, decoder, batch_size) if error is not None]
    expected = "predictors fst, ngram, before the first token: their product bound claims that they add at most -"
    assert found and all(error.startswith(expected) for error in found)
    assert all(" together, but tokens " in error for error in found)


def lattice_with_several_paths(folder: Path) -> str:
    arcs = [(0, 3, 1.0, 1), (0, 3, 2.0, 1), (0, 3, 0.5, 2), (0, 4, 0.25, 1), (1, 4, 0.0, 3), (2, 5, 0.0, 3)]
    write_automaton(folder / "several.fst", arcs, {3: 0.0})
    return str(folder / "several.fst")


def raised(places: list[tuple[int, float]]) -> list[tuple[int, float]]:
    (state, residual), *others = places
    return [(state, residual + 1.0), *others]


def all_but_the_first(places: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return places[1:]


@pytest.mark.slow
@pytest.mark.parametrize("semiring", ["tropical", "log"])
@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (raised, "the arcs of subset claim"),
        (all_but_the_first, "the arcs of subset claim"),
        (lambda places: [(99, 0.0)], "the arcs of subset claim"),
    ],
)  # fmt: skip
def test_a_lie_about_subsets_is_found(
    lie: Callable[[list[tuple[int, float]]], Any], expected: str, semiring: Any, mix: Mix, tmp_path: Path
) -> None:
    predictor: Any = NfstPredictor(lattice_with_several_paths(tmp_path), semiring=semiring)
    true = predictor.subset
    predictors = {"nfst": predictor, "ngram": mix["ngram"]}
    assert errors(predictors, BeamDecoder(), 1)[0] is None

    def subset(state: State) -> Any:
        automaton, places = true(state)
        return automaton, lie(places) if len(places) > 1 else places

    vars(predictor)["subset"] = subset
    (error, *_) = errors(predictors, BeamDecoder(), 1)
    assert error is not None and re.match(rf"predictor 'nfst', .*: {expected}", error), error


class Negative(WholeLattice):
    """Its states are negative, as if nothing could follow."""

    steps = None  # type: ignore[assignment]

    def initialize_batch(self, sources: Sequence[Any]) -> list[State]:
        return [-1 - state for state in super().initialize_batch(sources)]

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        return Scores(rows=[SparseRow(*WholeLattice.steps(self, -1 - state, None)[:2]) for state in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        after = [
            WholeLattice.steps(self, -1 - state, [token])[2][0] for state, token in zip(states, tokens, strict=True)
        ]
        return [-1 - state for state in after]

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [0.0 for _ in states]


def test_a_negative_state_that_is_not_dead_is_found() -> None:
    lattice = Negative([random_automaton(np.random.default_rng(1), 5, V, cyclic=False)])
    (error, *_) = errors({"a": lattice, "wc": HOST.load("predictor", "wc")()}, BeamDecoder(), 1)
    assert error is not None and re.match(
        r"predictor 'a', .*: its state is -\d+, which claims that nothing can", error
    )


@pytest.mark.parametrize("kind", [AStarDecoder, BeamDecoder, VanillaDecoder, GreedyDecoder])
@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_lie_about_dense_scores_is_found(kind: type[Decoder], batch_size: int) -> None:
    dense = Table(np.random.default_rng(3).normal(size=(V, V)))
    dense.max_score = 0.5
    found = errors({"table": dense}, kind(), batch_size, sentences=LIMITED)
    claim = r"predictor 'table', .*: max_score claims at most 0.5, but token \d scores \d"
    assert found.count(None) == 0 and all(re.match(claim, str(error)) for error in found)


def test_differences_of_rounding_are_no_lies(mix: Mix) -> None:
    off = 1.0 - 1e-7
    bend(0, highest=lambda found: found / off, lowest=lambda found: found * off)(mix["ngram"])
    bound("best_remaining", -1e-7)(mix["fst"])
    redrawn(slightly_lower)(mix["fst"])
    assert not any(errors(mix, AStarDecoder(), 64))


CHECKED: list[tuple[Sequence[float], BoundsKind, int]] = [
    ((1.0, 1.0), "product", 13),
    ((1.0, -0.5), "auto", 64),
    ((-1.0, 0.5), "sum", 1),
    ((0.5, 0.0), "product", 64),
]
"""Weights, bounds, and batch sizes."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "bounds", "batch_size", "decoder"),
    [(*checked, decoder) for i, checked in enumerate(CHECKED) for decoder in some(DECODERS, i)],
    indirect=["decoder"],
)
def test_checks_change_no_result(
    weights: Sequence[float], bounds: BoundsKind, batch_size: int, decoder: Decoder, mix: Mix
) -> None:
    """Each sentence is there twice, as the same object."""
    found: list[Any] = []
    for kind in (Constellation, CheckedConstellation):
        constellation = kind.of(mix, weights=weights, vocab_size=V, bounds=bounds)
        scheduler = Scheduler(constellation, decoder, batch_size=batch_size, nbest=3)
        try:
            outcomes = list(scheduler.run(LIMITED * 2))
        except UsageError as error:  # a bound that a weight needs is not declared
            found.append(str(error))
            continue
        found.append([(str(outcome.error), outcome.result, outcome.result.expansions) for outcome in outcomes])
    assert found[0] == found[1]


def test_the_summary_says_how_much_was_checked(mix: Mix) -> None:
    constellation = CheckedConstellation.of(mix, vocab_size=V, bounds="product")
    list(Scheduler(constellation, AStarDecoder()).run(SENTENCES))
    summary = constellation.summary()
    assert summary is not None and re.search(r"; check-bounds: claims checked at \d+ prefixes$", summary)


def test_a_sentence_that_has_ended_leaves_nothing(mix: Mix) -> None:
    constellation = CheckedConstellation.of(mix, vocab_size=V, bounds="product")
    list(Scheduler(constellation, AStarDecoder()).run(SENTENCES))
    assert constellation._sentences == {}

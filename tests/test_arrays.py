"""The promise of ``arcs_of_tensors``: `arcs` answers for tensors with tensors, with NumPy's numbers bit for bit.

Other tests hold the numbers of NumPy arrays to plain oracles; they are the oracle here.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sgdec_predictors.ngram import NGram

from sgdec import EOS, BatchPredictor, Source
from sgdec.arcs import DEAD, Automata, Automaton, Numbers, spread
from sgdec.arrays import Ints, namespace
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import Arcs, Listed, Scores, State
from sgdec.search.constellation import Constellation
from sgdec.search.product import Product
from tests.helpers.with_arcs import LISTING, SENTENCES, V, predictors_with_arcs, write_model

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
KINDS = (torch.int64, torch.int64, torch.float64, torch.int64)


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return predictors_with_arcs(tmp_path_factory.mktemp("tensors"))


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return str(request.param)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the CPU too, a new tensor needs a device, and NumPy's functions do not take tensors."""

    def refuse(*_: Any) -> None:
        raise TypeError("a tensor was given to NumPy")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    with torch.device("meta"):
        yield


def put(array: npt.NDArray[Any], device: str) -> Any:
    return torch.tensor(array, device=device)


def same(expected: Sequence[npt.NDArray[Any]], found: Sequence[Any], device: str) -> None:
    """Whether tensors are arrays bit for bit; also -0.0 is not 0.0."""
    for array, tensor in zip(expected, found, strict=True):
        assert isinstance(tensor, torch.Tensor) and tensor.device.type == device
        assert tensor.cpu().numpy().dtype == array.dtype and tensor.shape == array.shape
        assert tensor.cpu().numpy().tobytes() == array.tobytes(), (array, tensor)


def asked(predictor: Any, states: Ints, candidates: Listed | None, device: str) -> Arcs:
    """NumPy's answer, after a comparison with that for tensors."""
    expected: Arcs = predictor.arcs(states, candidates)
    listed = None if candidates is None else (put(candidates[0], device), put(candidates[1], device))
    given = put(states, device)
    found = predictor.arcs(given, listed)
    same(expected, found, device)
    assert tuple(part.dtype for part in found) == KINDS
    assert given.tolist() == states.tolist(), "the states of the caller must not change"
    return expected


def ragged(rng: np.random.Generator, rows: int, share: float) -> Listed:
    wanted = [np.flatnonzero(rng.random(V) < share * rng.integers(2)) for _ in range(rows)]
    return np.cumsum([0, *map(len, wanted)]), np.concatenate([np.zeros(0, np.int64), *wanted])


def walk(predictor: Any, roots: Sequence[int], lists: bool, rng: np.random.Generator, device: str) -> None:
    """Ask about all prefixes of a random walk, in all forms."""
    states = np.array(roots, np.int64)
    for _ in range(4):
        some = rng.choice(states, 2 * len(states))  # in any order, and more than once
        for asked_of in (some, some[:1], some[:0]):
            for share in (0.9, 0.0):
                asked(predictor, asked_of, ragged(rng, len(asked_of), share), device)
            if lists:
                asked(predictor, asked_of, None, device)
        every = np.arange(0, V * len(states) + 1, V), np.tile(np.arange(V), len(states))
        _, tokens, _, after = asked(predictor, states, every, device)
        states = rng.choice(after[tokens != EOS], 3 * len(roots))  # dead ones, too


NAMES = (
    "fst", "forced", "forcedlst", "trie", "tries", "unweighted", "wc", "unkc", "length", "extlength", "minlength",
    "maxlength", "ngram",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_tensors_give_the_numbers_of_arrays(predictors: dict[str, Any], name: str, device: str) -> None:
    """While sentences come and go: their copies on the device are those of the sentences in flight."""
    predictor, rng = predictors[name], np.random.default_rng(1)
    roots = predictor.initialize_batch(SENTENCES[:5])
    walk(predictor, roots, name in LISTING, rng, device)
    if hasattr(predictor, "release"):
        predictor.release(roots[1:4])
    roots = [roots[0], roots[4], *predictor.initialize_batch(SENTENCES[5:])]
    walk(predictor, roots, name in LISTING, rng, device)
    if hasattr(predictor, "release"):
        predictor.release(roots)
        walk(predictor, predictor.initialize_batch(SENTENCES[:2]), name in LISTING, rng, device)


def test_tokens_that_an_n_gram_model_meets_later_are_known(tmp_path: Path, device: str) -> None:
    """Its table of tokens grows; those with high numbers are not in it."""
    write_model(tmp_path / "lm.arpa", np.random.default_rng(4))
    ngram = NGram(str(tmp_path / "lm.arpa"))
    states = np.array(ngram.initialize_batch(SENTENCES[:2]), np.int64)
    for token in (3, 5, 4, 1 << 21, 600):
        asked(ngram, states, (np.arange(3), np.array([token, token])), device)


def test_every_bundled_predictor_with_arcs_is_tested(predictors: dict[str, Any]) -> None:
    assert {name for name, predictor in predictors.items() if predictor.arcs_of_tensors} == set(NAMES)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, -0.25, 0.0)])
@pytest.mark.parametrize(
    "names",
    ["fst ngram", "tries wc ngram", "forcedlst length unkc", "trie extlength", "fst minlength maxlength", "forced"],
)
def test_products_of_tensors_are_those_of_arrays(
    predictors: dict[str, Any], names: str, weights: tuple[float, ...], device: str
) -> None:
    chosen = {name: predictors[name] for name in names.split()}
    constellation = Constellation.of(chosen, weights=weights[: len(chosen)], vocab_size=V)
    product = constellation.product
    assert product is not None
    rng = np.random.default_rng(2)
    states = [np.array(each.initialize_batch(SENTENCES), np.int64) for each in chosen.values()]
    for _ in range(5):
        ending = rng.random(len(states[0])) < 0.2
        expected = product.arcs(states, ending)
        found = product.arcs([put(each, device) for each in states], put(ending, device))
        same(flat(expected), flat(found), device)
        kept = rng.integers(0, len(expected.row), 20 if len(expected.row) else 0)  # repeats, and states after </s>
        states = [after[kept] for after in expected.after]


def flat(arcs: Any) -> list[Any]:
    row, token, score, ledger, after = arcs
    return [row, token, score, *ledger, *after]


def test_a_product_refuses_tensors_that_a_predictor_does_not_know(predictors: dict[str, Any]) -> None:
    product = Product(["fst"], [1.0], [(0, Plain(predictors["fst"]).arcs)], V)
    states, ending = predictors["fst"].initialize_batch(SENTENCES[:1]), torch.zeros(1, dtype=torch.bool)
    with pytest.raises(UsageError, match="'fst' has arcs of NumPy arrays only"):
        product.arcs([torch.tensor(states)], ending)


class Plain(BatchPredictor):
    """Arcs without the trait."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        raise AssertionError

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        raise AssertionError

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        raise AssertionError

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        found: Arcs = self.inner.arcs(states, candidates)
        return found


@pytest.mark.parametrize(
    ("scores", "message"),
    [([np.nan, -1.0], "gave NaN as the score of token 3"), ([-1.0, np.inf], "gave inf as the score of token 4")],
)
def test_invalid_scores_of_tensors_are_found(scores: list[float], message: str, device: str) -> None:
    automata = Automata[Automaton]()
    root = automata.add(Automaton(np.array([0, 2]), np.array([3, 4]), np.array(scores), np.array([DEAD, DEAD])))
    product = Product(["it"], [1.0], [(0, Trusted(automata).arcs)], V)
    with pytest.raises(SgdecError, match=message):
        product.arcs([torch.tensor([root], device=device)], torch.zeros(1, dtype=torch.bool, device=device))


class Trusted:
    """Automata with the trait."""

    arcs_of_tensors = True

    def __init__(self, automata: Automata[Automaton]) -> None:
        self._automata = automata

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        return self._automata.arcs(states, candidates)


def test_copies_are_freed_when_their_sentences_are_released(device: str) -> None:
    automata, chain = Automata[Automaton](), Automaton(*map(np.array, ([0, 1, 1], [7], [-0.5], [1])))
    gc.freeze()  # the tensors of earlier tests are not looked at
    try:
        for _ in range(3):
            roots = [automata.add(chain) for _ in range(4)]
            found = automata.arcs(torch.tensor(roots, device=device), None)
            assert found[3].tolist() == [root + 1 for root in roots]
            del found
            assert tensors() > 0, "the copies are kept for the next call"
            for root in roots:
                automata.release(root)
            assert tensors() == 0
    finally:
        gc.unfreeze()


def tensors() -> int:
    """The number of tensors in memory."""
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


def test_tensors_without_array_api_compat_are_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    monkeypatch.delitem(sys.modules, "array_api_compat.torch", raising=False)
    with pytest.raises(SgdecError, match=r"need array-api-compat: .* \(pip install \"sgdec\[nmt\]\"\)"):
        namespace(torch.zeros(1, device="cpu"))


def test_arrays_import_neither_torch_nor_array_api_compat() -> None:
    code = (
        "import sys; import numpy as np; from sgdec.arcs import *\n"
        "a = Automata(); n = a.add(Automaton(*map(np.array, ([0, 1, 1], [7], [-0.5], [1]))))\n"
        "assert a.arcs(np.array([n]), None)[3].tolist() == [n + 1]\n"
        "assert not {'torch', 'array_api_compat'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_numbers_and_ranges_of_tensors(device: str) -> None:
    numbers = Numbers()
    starts = [numbers.take(size) for size in (3, 10, 1)]
    states = np.array([DEAD, *starts, starts[1] + 9, -2])
    same([numbers.places(states)], [numbers.places(put(states, device))], device)  # type: ignore[list-item]
    numbers.release(starts[0])
    same([numbers.places(states[2:])], [numbers.places(put(states[2:], device))], device)  # type: ignore[list-item]
    for ranges in (np.array([[5, 9, 2], [3, 0, 2]]), np.zeros((2, 0), np.int64)):
        same(spread(*ranges), spread(*map(put, ranges, [device] * 2)), device)

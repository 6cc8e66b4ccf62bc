"""The promise of ``examples/g2p``: greedy search is that of g2p-en itself, and what is proven is the optimum.

There are two oracles. One is the code of the package, run with stand-ins for the libraries that it imports. The other
is the equations of the model in float64, one word and one symbol at a time, with a uniform-cost search of its own.
"""

from __future__ import annotations

import doctest
import heapq
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import fmean
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import sgdec
from sgdec.found import Found
from sgdec.testing import PredictorContract, PredictorSearchContract
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "g2p"
KINDS = ("common", "derived", "names", "coined")
WORDS = [word for kind in KINDS for word in (EXAMPLE / "words" / f"{kind}.txt").read_text().split()]
ODD = ["x", "can't", "zz-top", "zettabyteunlearnablestomach", "youtubersproutizationthreadability"]
"""Words with symbols that the model does not know, and words that g2p-en gives up after 20 phonemes."""
BEAMS = (1, 3)
SAME = 1e-9
"""Sums of the same float64 numbers in another order differ by less."""


def example() -> Any:
    spec = importlib.util.spec_from_file_location("g2p", EXAMPLE / "g2p.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


g2p = example()


@pytest.fixture(scope="module", autouse=True)
def package() -> Path:
    """The folder of g2p-en. Where the data folder is given, as in continuous integration, the package is needed."""
    try:
        return Path(str(distribution("g2p-en").locate_file("g2p_en")))
    except PackageNotFoundError:
        missing = "g2p-en is not installed: pip install --no-deps g2p-en==2.1.0"
        if "SGDEC_DATA" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)


@pytest.fixture(scope="module")
def original(package: Path) -> Iterator[Any]:
    """The class of g2p-en. It imports nltk and inflect, and would download data; here it finds empty ones."""
    nltk = ModuleType("nltk")
    stand_ins = {
        "nltk": {"data": SimpleNamespace(find=lambda name: name), "pos_tag": None},
        "nltk.corpus": {"cmudict": SimpleNamespace(dict=dict)},
        "nltk.tokenize": {"TweetTokenizer": lambda: SimpleNamespace(tokenize=None)},
        "inflect": {"engine": lambda: None},
    }
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, members in stand_ins.items():
            module = nltk if name == "nltk" else ModuleType(name)
            vars(module).update(members)
            patch.setitem(sys.modules, name, module)
        for name in ("g2p_en", "g2p_en.expand", "g2p_en.g2p"):
            patch.setitem(sys.modules, name, ModuleType(name))  # so that the module itself is removed afterwards
            del sys.modules[name]
        from g2p_en.g2p import G2p

        yield G2p()


class Best(NamedTuple):
    phonemes: tuple[int, ...]
    """The model's ids, without ``</s>``."""
    score: float


class Equations:
    """The model, from its equations alone, with its own ids: 2 = <s>, 3 = </s>."""

    START, END = 2, 3

    def __init__(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as file:
            self.weights = {name: file[name].astype(np.float64) for name in file}

    @cache  # noqa: B019
    def read(self, side: str, symbol: int) -> Any:
        x = self.weights[f"{side}_emb"][symbol]
        return np.split(self.weights[f"{side}_w_ih"] @ x + self.weights[f"{side}_b_ih"], 3)

    def unit(self, side: str, symbol: int, h: Any) -> Any:
        """h' of a gated recurrent unit, after one more symbol."""
        of_x = self.read(side, symbol)
        of_h = np.split(self.weights[f"{side}_w_hh"] @ h + self.weights[f"{side}_b_hh"], 3)
        reset, update = (1 / (1 + np.exp(-of_x[gate] - of_h[gate])) for gate in (0, 1))
        return update * h + (1 - update) * np.tanh(of_x[2] + reset * of_h[2])

    @cache  # noqa: B019
    def begin(self, word: str) -> Any:
        """The state that scores the first phoneme of a word."""
        h = np.zeros(256)
        for character in word:
            h = self.unit("enc", 3 + ord(character) - ord("a") if "a" <= character <= "z" else 1, h)
        return self.after(self.unit("enc", 2, h), self.START)

    def after(self, h: Any, phoneme: int) -> Any:
        return self.unit("dec", phoneme, h)

    def scores(self, h: Any) -> Any:
        """ln P of all 74 symbols."""
        logits = self.weights["fc_w"] @ h + self.weights["fc_b"]
        return logits - math.log(math.fsum(np.exp(logits)))

    def greedy(self, word: str) -> Best:
        """The most probable symbol, again and again, until </s> or 20 of them."""
        h, found, total = self.begin(word), [], 0.0
        while len(found) < 20:
            scores = self.scores(h)
            symbol = int(scores.argmax())
            total += scores[symbol]
            if symbol == self.END:
                return Best(tuple(found), total)
            found.append(symbol)
            h = self.after(h, symbol)
        return Best(tuple(found), total + self.scores(h)[self.END])

    def best(self, word: str) -> Best:
        """The most probable output of any length: prefixes in order of probability, until one is finished."""
        queue: list[tuple[float, tuple[int, ...], Any]] = [(0.0, (), self.begin(word))]
        while True:
            cost, phonemes, before = heapq.heappop(queue)
            if phonemes[-1:] == (self.END,):
                return Best(phonemes[:-1], -cost)
            h = self.after(before, phonemes[-1]) if phonemes else before
            for symbol, score in enumerate(self.scores(h).tolist()):
                heapq.heappush(queue, (cost - score, (*phonemes, symbol), h))


@pytest.fixture(scope="module")
def equations(package: Path) -> Equations:
    return Equations(package / "checkpoint20.npz")


@pytest.fixture(scope="module")
def symbols(original: Any) -> dict[str, list[str]]:
    """``graphemes`` and ``phonemes`` of the package, by id."""
    return {"graphemes": original.graphemes, "phonemes": original.phonemes}


@pytest.fixture(scope="module")
def optima(equations: Equations) -> list[Best]:
    return [equations.best(word) for word in WORDS]


def decode(
    decoder: str, words: Sequence[str], *, limit: int = 20, precision: str = "fp64", **options: Any
) -> list[Found]:
    run = sgdec.load({"g2p": g2p.G2P}, decoder, max_length=limit, precision=precision, **{decoder: options})
    return list(run.decode(words))


@pytest.fixture(scope="module")
def greedy() -> list[Found]:
    """Outputs of greedy search in float64."""
    return decode("greedy", [*WORDS, *ODD])


def spelled(best: Best, symbols: dict[str, list[str]]) -> str:
    return " ".join(symbols["phonemes"][phoneme] for phoneme in best.phonemes)


class TestContract(PredictorContract):
    vocab_size = 74
    sources = (
        sgdec.Source(1, (3, 4, 5), max_length=5),
        sgdec.Source(2, (0,), max_length=3),
        sgdec.Source(3, (28, 29, 3)),  # the last letters, and <pad>
        sgdec.Source(4, ()),
    )

    def make(self) -> Any:
        return g2p.G2P()


class TestSearches(PredictorSearchContract):
    """All prefixes of 74 symbols are enumerated, so that they have to be short."""

    vocab_size = 74
    limits = (1, 0)
    spaces = 4

    def draw(self, rng: np.random.Generator) -> Any:
        return g2p.G2P(context=sgdec.Context(precision="fp64"))


def test_the_words_are_a_thousand_and_different() -> None:
    assert len(set(WORDS)) == len(WORDS) == 1000
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


def test_the_vocabularies_are_those_of_the_package(symbols: dict[str, list[str]]) -> None:
    letters, phonemes = g2p.G2P.vocabularies
    assert list(g2p.LETTERS) == symbols["graphemes"] and list(g2p.PHONEMES) == symbols["phonemes"]
    assert [letters.piece(token) for token in range(3)] == [phonemes.piece(token) for token in range(3)]
    assert [letters.piece(token) for token in range(3)] == ["<unk>", "<s>", "</s>"]
    assert sorted([letters.piece(token) for token in range(letters.size)]) == sorted([*symbols["graphemes"], "<s>"])
    assert sorted([phonemes.piece(token) for token in range(phonemes.size)]) == sorted(symbols["phonemes"])
    assert letters.decode(letters.encode("Café-x")) == "cafe<unk>x"
    assert phonemes.decode(phonemes.encode("K AE1 </s> X T")) == "K AE1 <unk> <unk> T"
    for vocabulary in (letters, phonemes):
        assert all(vocabulary.token(vocabulary.piece(token)) == token for token in range(vocabulary.size))
        for outside in (-1, vocabulary.size):
            with pytest.raises(IndexError):
                vocabulary.piece(outside)
    assert letters.fingerprint != phonemes.fingerprint


def test_the_example_in_its_documentation_is_true() -> None:
    assert doctest.testmod(g2p).failed == 0


def test_greedy_search_is_that_of_the_package(original: Any, greedy: list[Found]) -> None:
    expected = [" ".join(original.predict(word)) for word in [*WORDS, *ODD]]
    for found in (greedy, decode("greedy", [*WORDS, *ODD], precision="fp32")):
        assert [each.best.text for each in found] == expected
    assert [len(text.split()) for text in expected].count(20) == 2, "no word shows the limit of 20 phonemes"


def test_greedy_search_is_that_of_the_equations(
    equations: Equations, symbols: dict[str, list[str]], greedy: list[Found]
) -> None:
    expected = [equations.greedy(word) for word in [*WORDS, *ODD]]
    assert [each.best.text for each in greedy] == [spelled(best, symbols) for best in expected]
    assert [each.best.score for each in greedy] == pytest.approx([best.score for best in expected], abs=SAME, rel=0)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp64", SAME)])
def test_all_scores_after_any_prefix_are_those_of_the_equations(
    equations: Equations, symbols: dict[str, list[str]], precision: str, tolerance: float
) -> None:
    model, rng = g2p.G2P(context=sgdec.Context(precision=precision)), np.random.default_rng(1)
    letters, phonemes = model.vocabularies
    words = [*WORDS[::50], *ODD]
    states = model.initialize_batch([sgdec.Source(i, letters.encode(word)) for i, word in enumerate(words, start=1)])
    expected = [equations.begin(word) for word in words]
    order = [phonemes.token(symbol) for symbol in symbols["phonemes"]]
    for _ in range(6):
        rows = model.predict_batch(states).values[:, order]
        np.testing.assert_allclose(rows, [equations.scores(h) for h in expected], rtol=0, atol=tolerance)
        np.testing.assert_allclose(np.exp(rows.astype(np.float64)).sum(axis=-1), 1, atol=tolerance)
        drawn = rng.integers(len(order), size=len(words)).tolist()
        states = model.consume_batch(states, [order[symbol] for symbol in drawn])
        expected = [equations.after(h, symbol) for h, symbol in zip(expected, drawn, strict=True)]


@pytest.mark.parametrize(("decoder", "limit"), [("dfs", 20), ("astar", 0)])
def test_exact_searches_prove_the_optimum_of_the_equations(
    optima: list[Best], symbols: dict[str, list[str]], decoder: str, limit: int
) -> None:
    found = decode(decoder, WORDS, limit=limit)
    assert all(each.proven for each in found)
    assert [each.best.text for each in found] == [spelled(best, symbols) for best in optima]
    assert [each.best.score for each in found] == pytest.approx([best.score for best in optima], abs=SAME, rel=0)


def test_no_beam_is_better_than_the_optimum_and_wider_beams_miss_fewer(optima: list[Best]) -> None:
    errors = []
    for size in BEAMS:
        scores = [each.best.score for each in decode("beam", WORDS, size=size)]
        assert all(score <= best.score + SAME for score, best in zip(scores, optima, strict=True))
        errors.append(sum(score < best.score - SAME for score, best in zip(scores, optima, strict=True)))
    assert errors == sorted(errors, reverse=True) and errors[0] > 100 > errors[-1] > 0


def test_the_optimum_is_never_empty_and_has_phonemes_only(equations: Equations, optima: list[Best]) -> None:
    assert {phoneme for best in optima for phoneme in best.phonemes} <= set(range(4, 74))
    empty = [equations.scores(equations.begin(word))[equations.END] for word in WORDS]
    assert max(score - best.score for score, best in zip(empty, optima, strict=True)) < -5


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("missing", "No such file"),
        ("text", "not a weight file"),
        ("one array", "not a weight file"),
        ("cut", "not a weight file"),
        ("objects", "not a weight file"),
        ("other names", "not a weight file"),
        ("other shape", "expected fc_w of shape (74, 256), found (73, 256)"),
        ("no output", "expected fc_b of shape (74,), found no array"),
    ],
)
def test_a_file_without_the_weights_is_one_line(package: Path, tmp_path: Path, mistake: str, message: str) -> None:
    path = tmp_path / "weights.npz"
    with np.load(package / "checkpoint20.npz") as file:
        arrays = {name: file[name] for name in file}
    if mistake == "text":
        path.write_text("weights\n")
    elif mistake == "one array":
        with open(path, "wb") as one:
            np.save(one, arrays["fc_b"])
    elif mistake == "cut":
        path.write_bytes((package / "checkpoint20.npz").read_bytes()[:100_000])
    elif mistake == "objects":
        np.savez(path, **{**arrays, "fc_b": np.array([{}], dtype=object)})
    elif mistake == "other names":
        np.savez(path, weights=arrays["fc_b"])
    elif mistake == "other shape":
        np.savez(path, **{**arrays, "fc_w": arrays["fc_w"][:-1]})
    elif mistake == "no output":
        np.savez(path, **{name: array for name, array in arrays.items() if name != "fc_b"})
    with pytest.raises(sgdec.SgdecError) as caught:
        g2p.G2P(str(path))
    assert str(path) in str(caught.value) and message in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(g2p, "distribution", absent)
    with pytest.raises(sgdec.SgdecError, match=r"g2p-en is not installed.*pip install --no-deps g2p-en==2\.1\.0"):
        g2p.G2P()


def test_other_precisions_and_other_source_tokens_are_refused() -> None:
    with pytest.raises(sgdec.UsageError, match="fp32 or fp64, not in bf16"):
        g2p.G2P(context=sgdec.Context(precision="bf16"))
    for token in (-1, 1, 2, 30):
        with pytest.raises(sgdec.SgdecError, match=f"source token {token} is not a letter"):
            g2p.G2P().initialize_batch([sgdec.Source(1, (3, token))])


class Ran(NamedTuple):
    words: dict[str, list[str]]
    """By kind."""
    work: Path
    printed: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, commands: dict[str, str]) -> Ran:
    """The folder and the output of a small run."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("g2p")
    words = {"first": WORDS[250:900:40], "second": ["carmichael", "cat", "launchization"]}
    (folder / "words").mkdir()
    for kind, listed in words.items():
        (folder / "words" / f"{kind}.txt").write_text("".join(f"{word}\n" for word in listed))
    settings = {"WORDS": str(folder / "words"), "BEAMS": "2 3"}
    command = [str(EXAMPLE / "recipe.sh"), str(folder / "work")]
    done = subprocess.run(command, env={**commands, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Ran(words, folder / "work", done.stdout)


def cells(printed: str, name: str) -> list[list[str]]:
    """The rows of tables that begin with this cell."""
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|"))
    return [row[1:] for row in rows if row[0] == name]


def test_the_tables_of_the_recipe_are_those_of_the_equations(ran: Ran, equations: Equations) -> None:
    words = [word for listed in ran.words.values() for word in listed]
    greedy, best = ([search(word) for word in words] for search in (equations.greedy, equations.best))
    lost = [high.score - low.score for high, low in zip(best, greedy, strict=True)]
    wrong = [score for score in lost if score > SAME]
    assert 0 < len(wrong) < len(words)
    share, mean = f"{100 * len(wrong) / len(words):.1f} %", f"{fmean(math.exp(each.score) for each in greedy):.4f}"
    (row,) = cells(ran.printed, "greedy")
    assert row[:5] == [str(len(wrong)), share, mean, f"{fmean(wrong):.2f}", f"{max(wrong):.2f}"]
    for exact in ("dfs", "astar"):
        row, proofs = cells(ran.printed, exact)
        assert row[:5] == ["0", "0.0 %", f"{fmean(math.exp(each.score) for each in best):.4f}", "", ""]
        assert proofs[-1] == "100.0 %"
    begin = 0
    for kind, listed in ran.words.items():
        place = slice(begin, begin := begin + len(listed))
        probability = f"{fmean(math.exp(each.score) for each in best[place]):.3f}"
        phonemes = f"{fmean(len(each.phonemes) for each in best[place]):.1f}"
        share = f"{100 * fmean(score > SAME for score in lost[place]):.1f} %"
        assert cells(ran.printed, kind)[0][:3] == [probability, phonemes, share]
    longer = [len(a.phonemes) - len(b.phonemes) for a, b, c in zip(best, greedy, lost, strict=True) if c > SAME]
    counts = [sum(d < 0 for d in longer), sum(d == 0 for d in longer), sum(d > 0 for d in longer)]
    assert "search errs: {} shorter, {} as long, {} longer\n".format(*counts) in ran.printed
    empty = [equations.scores(equations.begin(word))[equations.END] for word in words]
    nearest = min(each.score - score for each, score in zip(best, empty, strict=True))
    assert f"the empty output below the best: {nearest:.1f} or more\n".lower() in ran.printed.lower()
    assert "beyond the limit on length: 0\n" in ran.printed
    assert cells(ran.printed, "launchization")[0][-1] == f"{max(wrong):.2f}"


def test_the_accuracy_is_that_of_the_equations(
    ran: Ran, package: Path, equations: Equations, symbols: dict[str, list[str]]
) -> None:
    lines = (package / "homographs.en").read_text(encoding="utf-8").splitlines()
    listed = [line.strip().split("|") for line in lines if line[0] != "#"]
    right: dict[str, list[bool]] = {}
    for name, search in (("greedy", equations.greedy), ("exact", equations.best)):
        right[name] = [spelled(search(word.lower()), symbols) in both for word, *both, _ in listed]
        count = sum(right[name])
        assert f"{name}: {count} right ({100 * count / len(listed):.1f} %)" in ran.printed
    assert f"words: {len(listed)}; search errors of greedy search: " in ran.printed
    gained = sum(right["exact"]) - sum(right["greedy"])
    found = [int(count) for count in re.findall(r"(\d+) of them where they differ", ran.printed)]
    assert found[1] - found[0] == gained > 0


def test_the_plot_shows_every_beam_and_kind(ran: Ran) -> None:
    picture = (ran.work / "search_errors.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml")
    assert all(f">{text}</text>" in picture for text in ("1", "2", "3", *ran.words, "dfs", "astar"))


@pytest.mark.parametrize(
    ("results", "change", "message"),
    [
        ("beam.3", {"score": 0.0}, "better score than the exact"),
        ("dfs", {"proven": False}, "dfs.jsonl: not every word is proven"),
        ("any-length", {"proven": None}, "any-length.jsonl: not every word is proven"),
        ("dfs", {"score": -50.0}, "dfs has proven another score than astar"),
    ],
)
def test_results_that_contradict_each_other_are_refused(
    ran: Ran, tmp_path: Path, results: str, change: dict[str, Any], message: str
) -> None:
    shutil.copytree(ran.work / "search", tmp_path / "search")
    path = tmp_path / "search" / f"{results}.jsonl"
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    (found[1] if "proven" in change else found[1]["hypotheses"][0]).update(change)
    path.write_text("".join(json.dumps(word) + "\n" for word in found))
    options = ["--words", str(ran.work.parent / "words"), "--beams", "2", "3"]
    command = [sys.executable, str(EXAMPLE / "search_errors.py"), str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr

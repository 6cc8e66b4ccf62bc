"""The promise: what each wrapper says it scores, it scores, by an enumeration that shares no code with it.

And what bad input costs: one clear line.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec import EOS, BatchPredictor, Predictor, Scores, SgdecError, Source, UsageError
from sgdec.context import Context, Vocabularies
from sgdec.lifting import lift
from sgdec.plugins.assembly import RunConfig, assemble
from sgdec.plugins.host import Host
from sgdec.protocol import FORBIDDEN, Candidates
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import BatchTable, Bonus, Lattice, OnDemandTable, Table, enumerate_space
from sgdec.testing.reading import read_row
from tests.helpers.breadth import examples
from tests.helpers.lattice_files import write_automaton
from tests.helpers.oracles import opened, tiny
from tests.helpers.tiny_models import characters, write_checkpoint

V = 6
HOST = Host(autoload=False)


def wrap(name: str, inner: Predictor | BatchPredictor, **options: Any) -> BatchPredictor:
    made: BatchPredictor = HOST.load("predictor", name)(lift(inner), **options)
    return made


KINDS = ("dense", "on demand", "open", "restricting")


def inner_predictor(kind: str, seed: int, highest: float = 0.0) -> Predictor:
    """Random scores over V tokens, many of them equal, some forbidden."""
    rng = np.random.default_rng(seed)
    table = np.floor(2 * rng.uniform(highest - 4, highest, (V, V))) / 2
    table[rng.random((V, V)) < 0.2] = FORBIDDEN
    if kind == "open":
        return Bonus({EOS: table[0, 0], 3: table[0, 1], 5: table[0, 2]}, default=min(highest, -0.5))
    if kind == "restricting":
        arcs = {
            state: {
                token: (float(table[state, token]), int(rng.integers(state, 5)) + 1)
                for token in rng.permutation(V)[:4].tolist()
                if table[state, token] != FORBIDDEN
            }
            for state in range(5)
        }
        return Lattice(arcs | {5: {EOS: (-0.25, 9)}})
    return (Table if kind == "dense" else OnDemandTable)(table)


def alone(predictor: Predictor | BatchPredictor) -> Constellation:
    return Constellation.of({"it": predictor}, vocab_size=V)


def totals(predictor: Predictor | BatchPredictor, limit: int = 3) -> dict[tuple[int, ...], float]:
    """Every hypothesis of at most ``limit`` tokens, with its total."""
    paths = enumerate_space(alone(predictor), Source(1, (3,), max_length=limit))
    return {path.tokens: path.total for path in paths}


spaces = {"kind": st.sampled_from(KINDS), "seed": st.integers(0, 10_000)}


def test_idxmap_renames_the_tokens_of_every_hypothesis(tmp_path: Path) -> None:
    inner_of = [0, 1, 2, 5, 3, 4]
    for seed, kind in enumerate(KINDS):
        inner = inner_predictor(kind, seed)
        expected = totals(inner)
        found = totals(wrap("idxmap", inner, path=write_map(tmp_path, inner_of)))
        assert {tuple(inner_of[token] for token in tokens): total for tokens, total in found.items()} == expected


def test_a_map_and_its_inverse_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    there, back = write_map(tmp_path / "a", [0, 1, 2, 5, 3, 4]), write_map(tmp_path / "b", [0, 1, 2, 4, 5, 3])
    for seed, kind in enumerate(KINDS):
        inner = inner_predictor(kind, seed)
        assert totals(wrap("idxmap", wrap("idxmap", inner, path=back), path=there)) == totals(inner)


class Listening(Predictor):
    """Scores a token by the source it heard of."""

    def initialize(self, source: Source) -> None:
        self.heard = source

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse(self.heard.tokens, [-1.0] * len(self.heard.tokens), default=-2.0)


def heard(wrapped: BatchPredictor, source: Source) -> Source:
    (state,) = wrapped.initialize_batch([source])
    found: Source = state.predictor.heard
    return found


def test_idxmap_maps_source_tokens_by_a_map_of_their_own(tmp_path: Path) -> None:
    target, source = (tmp_path / name for name in ("target", "source"))
    target.mkdir(), source.mkdir()
    path, src_path = write_map(target, [0, 1, 2, 3]), write_map(source, [0, 1, 2, 4, 5, 3])
    given = Source(1, (3, 5, 4, 3), max_length=2)
    assert heard(wrap("idxmap", Listening(), path=path, src_path=src_path), given).tokens == (4, 3, 5, 4)
    assert heard(wrap("idxmap", Listening(), path=path), given) is given


def test_altsrc_reads_the_line_of_the_same_number_with_the_vocabulary_there_is(tmp_path: Path) -> None:
    ids, text = tmp_path / "other.ids", tmp_path / "other.txt"
    ids.write_text("3\n4 5 3\n"), text.write_text("a\nb c\n")
    second = Source(2, (3, 3), "x x", max_length=4)
    assert heard(wrap("altsrc", Listening(), path=str(ids)), second) == Source(2, (4, 5, 3), "4 5 3", max_length=4)
    context = Context(vocabularies=Vocabularies(characters("abc")))
    read = heard(wrap("altsrc", Listening(), path=str(text), context=context), second)
    assert read == Source(2, characters("abc").encode("b c"), "b c", max_length=4)


def test_altsrc_prefers_the_vocabulary_of_what_it_wraps(tmp_path: Path) -> None:
    class Model(BatchTable):
        vocabularies = Vocabularies(characters("xbc"))

        def initialize_batch(self, sources: Sequence[Source]) -> list[Any]:
            self.heard = list(sources)
            return super().initialize_batch(sources)

    (tmp_path / "other.txt").write_text("b c\n")
    model = Model(np.zeros((V, V)))
    context = Context(vocabularies=Vocabularies(characters("abc")))
    around = wrap("altsrc", wrap("rank", model), path=str(tmp_path / "other.txt"), context=context)
    around.initialize_batch([Source(1, (3,))])
    assert model.heard[0].tokens == characters("xbc").encode("b c") != characters("abc").encode("b c")


@pytest.mark.parametrize(
    ("tokens", "masked"), [("3", {3}), ("4,1", {1, 4}), (">3", {4, 5}), ("<3", {0, 1}), ("<1,3,>4", {0, 3, 5})]
)
@settings(max_examples=examples(25))
@given(**spaces)
def test_maskvocab_scores_a_hypothesis_as_the_inner_predictor_does_without_the_masked_tokens(
    tokens: str, masked: set[int], kind: str, seed: int
) -> None:
    inner = inner_predictor(kind, seed, highest=1.0)
    found = totals(wrap("maskvocab", inner, tokens=tokens), limit=2)
    for hypothesis in (each for n in range(3) for each in product([0, 1, 3, 4, 5], repeat=n)):
        kept = [token for token in hypothesis if token not in masked]
        total = inner_total(inner, kept)
        assert found.get(hypothesis, FORBIDDEN) == pytest.approx(total)


def inner_total(inner: Predictor, tokens: Sequence[int]) -> float:
    """Of a hypothesis without ``</s>``; -inf as soon as a token is forbidden."""
    predictor = lift(inner)
    states, total = predictor.initialize_batch([Source(1, (3,))]), 0.0
    for token in (*tokens, EOS):
        total += read_row(predictor.predict_batch(states), 0, V)[token]
        if total == FORBIDDEN:
            return total
        states = predictor.consume_batch(states, [token]) if token != EOS else states
    return total


@given(**spaces)
def test_a_rank_says_how_many_tokens_score_higher(kind: str, seed: int) -> None:
    inner = lift(inner_predictor(kind, seed, highest=1.0))
    ranked = wrap("rank", inner_predictor(kind, seed, highest=1.0), context=Context(vocab_size=V))
    states, inner_states = ranked.initialize_batch([Source(1, (3,))]), inner.initialize_batch([Source(1, (3,))])
    scores = read_row(inner.predict_batch(inner_states), 0, V)
    ranks = read_row(ranked.predict_batch(states, [[EOS, 3]]), 0, V)  # candidates do not change a rank
    for token in range(V):
        better = sum(other > scores[token] for other in scores)
        assert ranks[token] == (FORBIDDEN if scores[token] == FORBIDDEN else -1 - better)


def test_ranks_of_tensors_are_those_of_arrays_in_any_precision() -> None:
    import torch

    values = np.random.default_rng(3).normal(size=(4, 700)).round(1)
    values[0, :9] = FORBIDDEN

    class Tensors(BatchTable):
        def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Scores:
            return Scores(values=tensor)

    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        tensor = torch.from_numpy(values).to(dtype)
        exact = tensor.double().numpy()
        found = wrap("rank", Tensors(np.zeros((V, V)))).predict_batch([None] * 4).values
        expected = np.where(exact == FORBIDDEN, FORBIDDEN, -1.0 - (exact[:, None, :] > exact[:, :, None]).sum(axis=2))
        assert (np.asarray(found) == expected).all()


@given(**spaces, max_skips=st.integers(1, 3), skipped=st.sampled_from([(3,), (0, 4), (1, 3, 5)]))
def test_skipvocab_takes_the_best_way_to_each_token(
    kind: str, seed: int, max_skips: int, skipped: tuple[int, ...]
) -> None:
    tokens = ",".join(map(str, skipped))
    inner = inner_predictor(kind, seed, highest=1.0 if seed % 2 else 0.0)
    wrapped = wrap("skipvocab", inner, tokens=tokens, max_skips=max_skips, size=0)
    (state,), (at,) = wrapped.initialize_batch([Source(1, (3,))]), lift(inner).initialize_batch([Source(1, (3,))])
    rng = np.random.default_rng(seed)
    for _ in range(3):
        ways = ways_from(lift(inner), at, skipped, max_skips)
        row = read_row(wrapped.predict_batch([state]), 0, V)
        expected = {token: best(ways, token)[0] for token in range(V) if token not in skipped}
        for token in range(V):
            assert row[token] == pytest.approx(expected.get(token, FORBIDDEN))
        possible = [token for token, score in expected.items() if score != FORBIDDEN and token != EOS]
        if not possible:
            break
        token = int(rng.choice(possible))
        (state,) = wrapped.consume_batch([state], [token])
        (at,) = lift(inner).consume_batch([best(ways, token)[1]], [token])


def ways_from(
    inner: BatchPredictor, state: Any, skipped: Sequence[int], most: int
) -> list[tuple[float, np.ndarray, Any]]:
    """All ways through skipped tokens: score, row after it, state; fewer skips first, then better ones."""
    ways = [(0.0, state)]
    found = []
    for _ in range(most + 1):
        rows = [(score, read_row(inner.predict_batch([at]), 0, V), at) for score, at in ways]
        found += rows
        ways = [
            (score + row[token], inner.consume_batch([at], [token])[0])
            for score, row, at in rows
            for token in skipped
            if row[token] != FORBIDDEN
        ]
        ways.sort(key=lambda way: -way[0])
    return found


def best(ways: list[tuple[float, np.ndarray, Any]], token: int) -> tuple[float, Any]:
    score, _, state = max(
        ((score + row[token], -i, ways[i][2]) for i, (score, row, _) in enumerate(ways)), key=lambda way: way[:2]
    )
    return score, state


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    wrapper=st.sampled_from([("maskvocab", {"tokens": "3,>4"}), ("skipvocab", {"tokens": "0,3"}), ("rank", {})]),
    weight=st.sampled_from([1.0, -0.5]),
)
def test_an_exact_search_with_wrappers_finds_what_enumeration_finds(
    seed: int, kind: str, wrapper: tuple[str, dict[str, str]], weight: float
) -> None:
    """So the bounds and the keys that are passed on are right."""
    name, options = wrapper
    inner = inner_predictor(kind, seed, highest=1.0)
    wrapped = wrap(name, inner, **options, **({"context": Context(vocab_size=V)} if name == "rank" else {}))
    if weight < 0 and not hasattr(wrapped, "worst_remaining"):
        weight = 1.0
    beside = inner_predictor("on demand", seed + 1)
    space = tiny(max_length=3, weights=[weight, 0.7], vocab_size=V, it=wrapped, beside=beside)
    expected = [path.total for path in enumerate_space(space.constellation(), space.source)]
    for options in ({}, {"recombine": True}):
        here = opened(space, nbest=1)
        found = HOST.load("decoder", "dfs")(**options).decode(here)
        assert [hypothesis.score for hypothesis in found.hypotheses] == pytest.approx(expected[:1])


def test_wrappers_bring_the_vocabularies_in_which_the_run_speaks(tmp_path: Path) -> None:
    """Those of the model inside, as far as tokens mean the same outside."""
    model = str(write_checkpoint(tmp_path / "model", source="abc", target="abd"))
    (tmp_path / "other.txt").write_text("a\n")
    path = write_map(tmp_path, range(7))

    def sides(predictors: str, **options: dict[str, Any]) -> tuple[bool, bool]:
        found = assemble(RunConfig(predictors, "greedy", {"nmt": {"model": model}, **options}), HOST).vocabularies
        return found.source is not None, found.target is not None

    assert sides("nmt") == sides("rank:nmt") == sides("maskvocab:rank:nmt", maskvocab={"tokens": "4"}) == (True, True)
    assert sides("skipvocab:nmt", skipvocab={"tokens": "4"}) == (True, True)
    assert sides("skipvocab:nmt", skipvocab={"max_id": 5}) == (True, False)
    assert sides("altsrc:nmt", altsrc={"path": str(tmp_path / "other.txt")}) == (False, True)
    assert sides("idxmap:nmt", idxmap={"path": path}) == (True, False)
    assert sides("idxmap:nmt", idxmap={"path": path, "src_path": path}) == (False, False)


def test_what_is_inside_idxmap_does_not_read_with_the_vocabulary_outside(tmp_path: Path) -> None:
    """A reference in text would be read with other numbers than the map is made for."""
    model = str(write_checkpoint(tmp_path / "model"))
    references = tmp_path / "references.ids"
    references.write_text("5 4\n")
    options = {
        "nmt": {"model": model},
        "idxmap": {"path": write_map(tmp_path, [0, 1, 2, 3, 6, 4, 5])},
        "forced": {"path": str(references)},
    }
    run = assemble(RunConfig("nmt,idxmap:forced", "greedy", options), HOST)
    (root,) = run.constellation.roots([Source(1, (4,), max_length=4)])
    (found,) = run.decoder.decode(SearchSpace(run.constellation, root)).hypotheses
    assert found.tokens == (6, 5)


def test_scores_come_out_alike_alone_and_in_a_batch_of_nested_wrappers(tmp_path: Path) -> None:
    path = write_map(tmp_path, [0, 1, 2, 4, 5, 3])
    inner = inner_predictor("dense", 1)
    nested = wrap(
        "idxmap", wrap("maskvocab", wrap("skipvocab", wrap("rank", inner), tokens="3"), tokens="5"), path=path
    )
    sources = [Source(number, (3,) * number, max_length=3) for number in (1, 2, 3)]
    constellation = Constellation.of({"it": nested}, vocab_size=V)
    decoder = HOST.load("decoder", "beam")(size=3)

    def decoded(batch: int) -> list[Any]:
        outcomes = Scheduler(constellation, decoder, batch_size=batch).run(sources)
        return [outcome.result.hypotheses for outcome in outcomes]

    assert decoded(1) == decoded(3)


def test_a_map_around_a_transducer_renames_what_the_transducer_spells(tmp_path: Path) -> None:
    """``idxmap:fsttok:ngram``, and so on: each wrapper sees the next one as any predictor."""
    write_automaton(tmp_path / "t.fst", [(0, (3, 5), 0.0, 0), (0, (4, 4), 0.0, 1), (1, (3, 0), 0.0, 0)], {0: 0.0})
    inner_of = [0, 1, 2, 4, 5, 3]
    path = write_map(tmp_path, inner_of)
    for seed, kind in enumerate(KINDS):
        spelling = wrap("fsttok", inner_predictor(kind, seed), path=str(tmp_path / "t.fst"))
        found = totals(wrap("idxmap", spelling, path=path))
        assert {tuple(inner_of[token] for token in tokens): total for tokens, total in found.items()} == totals(
            spelling
        )
        assert found


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rank", {}),
        ("maskvocab", {"tokens": "3,>4"}),
        ("skipvocab", {"tokens": "3"}),
        ("idxmap", {"path": "map.txt"}),
    ],
)
def test_tensors_stay_on_their_device_and_score_as_arrays(
    name: str, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")

    class OnDevice(BatchTable):
        def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Scores:
            return Scores(values=torch.from_numpy(np.asarray(super().predict_batch(states).values)).cuda())

    monkeypatch.chdir(tmp_path)
    write_map(tmp_path, [0, 1, 2, 4, 5, 3])
    table = np.random.default_rng(2).uniform(-3, 0, (V, V))
    wrapped = [wrap(name, kind(table), **options) for kind in (BatchTable, OnDevice)]
    states = [each.consume_batch(each.initialize_batch([Source(1, (3,))] * 2), [4, 5]) for each in wrapped]
    arrays, tensors = (each.predict_batch(at).values for each, at in zip(wrapped, states, strict=True))
    assert isinstance(tensors, torch.Tensor) and tensors.is_cuda
    assert np.allclose(tensors.cpu().numpy(), np.asarray(arrays))


# Bad input.


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0 0\n1 1\n2 2\n3 4\n", "map.txt: inner token 3 is missing. Expected a line"),
        ("0 0\n1 1\n2 2\n3 4\n4 4\n", "map.txt: line 5: inner token 4 is mapped twice; the map must be a bijection."),
        ("0 0\n1 1\n2 2\n3 4\n3 3\n", "map.txt: line 5: outer token 3 is mapped twice; the map must be a bijection."),
        ("0 0\n1 2\n2 1\n", "map.txt: line 2: 0, 1 and 2 (<unk>, <s>, </s>) must be mapped to themselves."),
        ("0 0\n1 one\n", "map.txt: line 2: expected 'outer inner', two token ids, not '1 one'."),
        ("0 0 0\n", "map.txt: line 1: expected 'outer inner', two token ids, not '0 0 0'."),
        ("0 0\n1 1\n2 2\n4 4\n3 3\n", "map.txt maps 5 tokens, but the target vocabulary has 6."),
        ("", "outer token 0 is missing. Expected a line 'outer inner' for each token"),
        (None, "map.txt: cannot be read (No such file or directory)."),
    ],
)
def test_a_map_that_is_no_bijection_of_the_vocabulary_is_one_line(
    tmp_path: Path, lines: str | None, message: str
) -> None:
    if lines is not None:
        (tmp_path / "map.txt").write_text(lines)
    with pytest.raises(SgdecError) as error:
        wrap("idxmap", Listening(), path=str(tmp_path / "map.txt"), context=Context(vocab_size=V))
    assert str(error.value).startswith("idxmap: ") and message in str(error.value) and "\n" not in str(error.value)


def test_tokens_that_a_map_does_not_have_are_named(tmp_path: Path) -> None:
    path = write_map(tmp_path, [0, 1, 2, 4, 3])
    mapped = wrap("idxmap", inner_predictor("dense", 0), path=path, src_path=path)
    with pytest.raises(SgdecError, match=r"idxmap: token 9 is not in .*map.txt, which maps 0 to 4\."):
        mapped.initialize_batch([Source(1, (9, 3))])
    states = mapped.initialize_batch([Source(1, (3,))])
    with pytest.raises(SgdecError, match=r"map.txt maps 5 tokens, but the inner predictor scores 6\."):
        mapped.predict_batch(states)
    with pytest.raises(SgdecError, match=r"idxmap: token 5 of the inner predictor is not in .*, which maps 0 to 4\."):
        open_row = wrap("idxmap", Bonus({5: -1.0}), path=path)
        open_row.predict_batch(open_row.initialize_batch([Source(1, (3,))]))


@pytest.mark.parametrize(
    ("lines", "sentence", "message"),
    [
        ("3\n4\n", 3, "other.ids has 2 lines, so none for sentence 3. Expected one line per source sentence."),
        (
            "3\n4 four\n",
            2,
            "other.ids: line 2: 'four' is not a token id. Without a source vocabulary, lines are token ids",
        ),
        ("3\n\n4\n", 2, "other.ids: line 2 is empty; a source has at least one token."),
    ],
)
def test_a_line_that_altsrc_cannot_read_is_named(tmp_path: Path, lines: str, sentence: int, message: str) -> None:
    (tmp_path / "other.ids").write_text(lines)
    wrapped = wrap("altsrc", Listening(), path=str(tmp_path / "other.ids"))
    with pytest.raises(SgdecError) as error:
        wrapped.initialize_batch([Source(sentence, (3,))])
    assert str(error.value).startswith("altsrc: ") and message in str(error.value)


def test_a_source_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"altsrc: .*none.ids: cannot be read \(No such file or directory\)\."):
        wrap("altsrc", Listening(), path=str(tmp_path / "none.ids"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "maskvocab",
            {"tokens": "4,x"},
            "maskvocab: tokens '4,x': 'x' is neither an id nor >n nor <n, as in 4,17,>100.",
        ),
        ("maskvocab", {"tokens": "2"}, "maskvocab: tokens '2': </s> (2) cannot be one of them."),
        ("maskvocab", {"tokens": "4,9"}, "maskvocab: token 9 is outside the target vocabulary of 6 tokens."),
        ("maskvocab", {"tokens": " "}, "maskvocab: tokens ' ' names no token."),
        ("skipvocab", {}, "skipvocab: nothing is skipped. Give --skipvocab.tokens, --skipvocab.max_id, or both."),
        ("skipvocab", {"tokens": ">-1"}, "skipvocab: tokens '>-1': '>-1' is neither an id nor >n nor <n"),
        ("skipvocab", {"tokens": "9"}, "skipvocab: token 9 is outside the target vocabulary of 6 tokens."),
    ],
)
def test_tokens_that_cannot_be_meant_are_one_line(name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        wrap(name, inner_predictor("dense", 0), **options, context=Context(vocab_size=V))
    assert message in str(error.value)


def test_rank_says_what_it_needs_where_tokens_that_are_not_listed_score_higher() -> None:
    ranked = wrap("rank", Bonus({3: -9.0}, default=-1.0))
    with pytest.raises(UsageError, match=r"rank: how many tokens score higher is unknown; give --vocab-size\."):
        ranked.predict_batch(ranked.initialize_batch([Source(1, (3,))]))


def write_map(folder: Path, inner_of: Sequence[int]) -> str:
    path = folder / "map.txt"
    path.write_text("".join(f"{outer} {inner}\n" for outer, inner in enumerate(inner_of)))
    return str(path)

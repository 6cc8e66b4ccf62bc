"""The promise of trace files: what is read is what was recorded, with numbers rounded to six decimals."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec import Decoder, Result, SearchSpace
from sgdec.context import Vocabularies
from sgdec.errors import SgdecError
from sgdec.protocol import Source
from sgdec.search.outcome import Unreadable
from sgdec.search.scheduler import Scheduler
from sgdec.testing import TinySpace, tiny_spaces
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.trace import Ended, Expansion, Fate, Header, SentenceTrace, Tracing, read_trace, writing_trace
from tests.helpers.contracts import HOST
from tests.helpers.random_spaces import random_spaces

DECODERS: list[tuple[str, dict[str, Any]]] = [
    ("greedy", {}),
    ("beam", {"size": 2}),
    ("beam", {"size": 3, "recombine": True, "stop": "full"}),
    ("beam", {"size": 4, "prune_local": 0.5, "prune_final": 0.5}),
    ("vanilla", {"size": 2}),  # not with restricting predictors
    ("sepbeam", {"size": 2}),
    ("syncbeam", {"symbol": 3, "recombine": True}),
    ("bestfirst", {"size": 2, "recombine": True}),
    ("bucket", {"size": 2}),
    ("dfs", {"max_expansions": 9}),
    ("astar", {"capacity": 2, "max_expansions": 9}),
    ("restarting", {"max_expansions": 9}),
    ("sample", {"samples": 3}),
    ("stochastic", {"samples": 3}),
    ("mcmc", {"walks": 2, "steps": 5}),
    ("diverse", {"size": 4}),
]
PAIRS = pytest.mark.parametrize(
    ("space", "decoder"),
    [
        pytest.param(space, decoder, id=f"{space.name} {decoder[0]}")
        for space in (tiny_spaces()[number] for number in (1, 9, 10))
        for decoder in DECODERS
    ],
)
NONE = Vocabularies()
HOSTILE = ["a\nb", "a\r\nb", " ", "\u2028", "\x85", "\0", '"', "\\", "</script>", "\u202eabc", "é" * 9, "😀", ""]


def header(predictors: Sequence[str] = ("a",), weights: Sequence[float | None] | None = None) -> Header:
    """Of a run with these predictors."""
    return Header(
        predictors=tuple(predictors),
        weights=tuple([1.0] * len(predictors) if weights is None else weights),
        decoder="beam",
        options={"size": 2, "stop": "full"},
        ranking={"alpha": 0.5},
        nbest=1,
        signature="sgdec:1",
        children=20,
        expansions=10_000,
        sgdec="1.0",
    )


def traces(
    space: TinySpace, decoder: str, options: dict[str, Any], tracing: Tracing, nbest: int = 1, batch_size: int = 1
) -> list[SentenceTrace]:
    """Of three sentences of this space; the first is the longest, so it is searched last."""
    scheduler = Scheduler(
        space.constellation(), HOST.load("decoder", decoder)(**options), nbest=nbest, batch_size=batch_size,
        tracing=tracing, window=3,
    )  # fmt: skip
    sources = [replace(space.source, id=n, tokens=(3,) * (5 - n)) for n in (1, 2, 3)]
    return [outcome.trace for outcome in scheduler.run(sources) if outcome.trace is not None]


def written(path: Path, found: Sequence[SentenceTrace], vocabularies: Vocabularies = NONE, **about: Any) -> Path:
    with writing_trace(path, header(**about), vocabularies) as writer:
        for trace in found:
            writer.write(trace)
    return path


def rounded(value: Any, digits: int = 6) -> Any:
    """What a file keeps: six decimals, three of attention, and no infinite gap."""
    if isinstance(value, dict):
        kept = {key: rounded(item, 3 if key == "attention" else digits) for key, item in value.items()}
        return {**kept, "gap": None} if kept.get("gap") == math.inf else kept
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    return round(value, digits) if isinstance(value, float) else value


@given(
    space=random_spaces() | st.sampled_from(tiny_spaces()),
    decoder=st.sampled_from(DECODERS),
    tracing=st.builds(Tracing, children=st.sampled_from([1, 3]), expansions=st.sampled_from([1, 4, 10_000])),
    nbest=st.integers(1, 3),
    batch_size=st.sampled_from([1, 3]),
    ending=st.sampled_from(["", ".gz", ".zst"]),
)
def test_what_is_read_is_what_was_recorded(
    space: TinySpace, decoder: tuple[str, dict[str, Any]], tracing: Tracing, nbest: int, batch_size: int, ending: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    found = traces(space, *decoder, tracing, nbest, batch_size)
    members = space.constellation()
    path = tmp_path_factory.mktemp("x") / f"trace{ending}"
    read = read_trace(written(path, found, predictors=members.names, weights=members.weights))
    assert [rounded(asdict(trace)) for trace in read.sentences] == [rounded(asdict(trace)) for trace in found]
    assert read.header == header(members.names, members.weights) and read.pieces == {}
    for trace in read.sentences:
        assert len(trace.expansions) <= tracing.expansions and trace.counted >= len(trace.expansions)
        assert len({batch.number for batch in trace.batches}) == len(trace.batches)
        if len(trace.expansions) < tracing.expansions:
            assert not [child for _, child in trace.nodes() if child.fate == Fate.UNRECORDED]


@pytest.mark.slow
@PAIRS
def test_fewer_recorded_expansions_are_the_first(space: TinySpace, decoder: tuple[str, dict[str, Any]]) -> None:
    """A child that is expanded later says so, and a child that the decoder never expands has the same fate."""
    whole, cut = (traces(space, *decoder, Tracing(expansions=most)) for most in (10_000, 2))
    for full, first in zip(whole, cut, strict=True):
        assert full.counted == first.counted and len(first.expansions) == min(2, len(full.expansions))
        for expected, found in zip(full.expansions[:2], first.expansions, strict=True):
            fates = [Fate.UNRECORDED if isinstance(fate, int) and fate >= 2 else fate for fate in expected.fates]
            into = {token: node for token, node in expected.into.items() if node[0] < 2}
            assert found == replace(expected, fates=tuple(fates), into=into)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda found: found[0])
def test_fewer_listed_children_are_the_best_and_all_that_matter(decoder: tuple[str, dict[str, Any]]) -> None:
    """With one child per expansion, those that were expanded, listed or received are there anyway."""
    space = tiny_spaces()[1]
    for full, few in zip(*(traces(space, *decoder, Tracing(n), nbest=2) for n in (20, 1)), strict=True):
        assert few.hypotheses == full.hypotheses and len(few.expansions) == len(full.expansions)
        for expected, found in zip(full.expansions, few.expansions, strict=True):
            assert found.tokens[0] == expected.tokens[0] and set(found.tokens) <= set(expected.tokens)
            assert all(expected.child(child.token) == child for child in found.children)
            for child in expected.children:
                if isinstance(child.fate, int) or child.fate == Fate.LISTED:
                    assert found.child(child.token)


@pytest.mark.slow
@PAIRS
def test_the_size_of_batches_changes_no_trace(space: TinySpace, decoder: tuple[str, dict[str, Any]]) -> None:
    alone, together = (traces(space, *decoder, Tracing(), 2, size) for size in (1, 64))
    assert alone == together  # without times and batches


class Odd(WordVocabulary):
    """A vocabulary whose texts are whatever one likes."""

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(self.piece, tokens))


def sentence(number: int = 1, **more: Any) -> SentenceTrace:
    """A search that has expanded the empty prefix and the one of token 3."""
    children: Any = {"totals": (-1.0, -2.0), "scores": ((-1.0,), (-2.0,)), "rest": "beam"}
    found = SentenceTrace(
        id=number, tokens=(3, 4), text="a b", max_length=4,
        expansions=(
            Expansion(0, None, None, 9, (3, 2), fates=(1, "outranked"), **children),
            Expansion(1, 0, 3, 9, (2, 4), fates=("listed", "beam"), **children),
        ),
        bounds=(), hypotheses=(Ended((3,), -1.0, -1.0, 1),), stopped="best", counted=2, proven=None, gap=None,
        error=None,
    )  # fmt: skip
    return replace(found, **more)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_any_text_survives(tmp_path: Path, ending: str) -> None:
    vocabulary = Odd([*SPECIAL, *(text or "empty" for text in HOSTILE)])
    tokens = tuple(range(3, 3 + len(HOSTILE)))
    one = sentence(text="\n".join(HOSTILE), tokens=tokens, stopped=HOSTILE[0], error=HOSTILE[5])
    one = replace(one, hypotheses=(replace(one.hypotheses[0], text=HOSTILE[0]),))
    path = tmp_path / f"x{ending}"
    with writing_trace(path, replace(header(), decoder="\n\u2028"), Vocabularies(vocabulary, vocabulary)) as writer:
        writer.write(one)
    read = read_trace(path)
    (found,) = read.sentences
    assert found == replace(one, pieces=found.pieces) and found.pieces == tuple(map(vocabulary.piece, tokens))
    assert read.header.decoder == "\n\u2028"
    assert read.pieces == {token: vocabulary.piece(token) for token in (2, 3, 4)}


def test_text_that_is_no_unicode_is_replaced(tmp_path: Path) -> None:
    """An error can name a file whose name is not UTF-8."""
    (found,) = read_trace(written(tmp_path / "x", [sentence(error="\udcff.fst: no such file")])).sentences
    assert found.error == "?.fst: no such file"


def test_tokens_outside_the_vocabulary_have_no_pieces(tmp_path: Path) -> None:
    vocabulary = WordVocabulary([*SPECIAL, "a"])
    read = read_trace(written(tmp_path / "x", [sentence(tokens=(3,))], Vocabularies(vocabulary, vocabulary)))
    assert read.pieces == {2: "</s>", 3: "a"} and read.sentences[0].pieces == ("a",)


def test_a_run_without_sentences_is_a_trace(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path / "x", [])).sentences == ()


def test_failed_sentences_are_there_with_their_errors(tmp_path: Path) -> None:
    def read() -> Iterator[Source | Unreadable]:
        yield Unreadable(1, SgdecError("line 1 is too long"))
        yield replace(space.source, id=2)

    space = next(space for space in tiny_spaces() if space.empty)
    beam = HOST.load("decoder", "beam")()
    unreadable, failed = Scheduler(space.constellation(), beam, tracing=Tracing()).run(read())
    assert unreadable.trace is None and failed.trace is not None and failed.trace.hypotheses == ()
    names = space.constellation().names
    (found,) = read_trace(written(tmp_path / "x", [failed.trace], predictors=names)).sentences
    assert found.id == 2 and found.expansions and "no hypothesis" in str(found.error)


class Changing(Decoder):
    """Expands the empty prefix and its best open child, and then says that it drops this child."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def decode(self, space: SearchSpace) -> Result:
        (children,) = space.expand([space.root], limit=3)
        first = next(node for node in children if not node.finished)
        space.expand([first], limit=3)
        space.dropped(first, "a second thought")
        if self.fails:
            raise SgdecError("no more")
        return Result([])


@pytest.mark.parametrize("fails", [False, True])
def test_expanded_children_keep_their_numbers_and_failed_searches_their_counts(tmp_path: Path, fails: bool) -> None:
    (space,) = (space for space in tiny_spaces() if space.name == "dense")
    (outcome,) = Scheduler(space.constellation(), Changing(fails), tracing=Tracing()).run([space.source])
    assert outcome.trace is not None
    names = space.constellation().names
    (found,) = read_trace(written(tmp_path / "x", [outcome.trace], predictors=names)).sentences
    assert 1 in found.expansions[0].fates and found.counted == len(found.expansions) == 2
    assert ("no more" in str(found.error)) == fails


@pytest.mark.parametrize(("sentences", "expected"), [(Tracing(), [1, 2, 5]), (Tracing(first=2, last=4), [2])])
def test_a_part_can_be_read(tmp_path: Path, sentences: Tracing, expected: list[int]) -> None:
    path = written(tmp_path / "x", [sentence(n) for n in (1, 2, 5)])
    assert [found.id for found in read_trace(path, sentences).sentences] == expected


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    for name in ("x", "x.gz", "x.zst"):
        with pytest.raises(RuntimeError), writing_trace(tmp_path / name, header(), NONE) as writer:
            writer.write(sentence())
            raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_packed_files_do_not_depend_on_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = written(tmp_path / "x.gz", [sentence()]).read_bytes()
    monkeypatch.setattr("time.time", lambda: 1e9)
    again = written(tmp_path / "y.gz", [sentence()]).read_bytes()
    assert once == again and json.loads(gzip.decompress(once).splitlines()[0])["event"] == "trace"

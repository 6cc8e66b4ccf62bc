"""With distinct texts, a decoder lists each text once, with its best hypothesis; exact ones list the n best texts.

Oracle: enumeration of the space, best first, of which later hypotheses with an earlier text are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.bestfirst import BestFirstDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.lendfs import LenDfsDecoder
from sgdec_decoders.restarting import RestartingDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.syncbeam import SyncBeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

import sgdec
from sgdec import Decoder, Result, SearchSpace, UsageError
from sgdec.cli.main import main
from sgdec.context import EOS
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler
from sgdec.testing import Table, TinySpace, enumerate_space
from sgdec.testing.trace_checks import require_complete
from sgdec.trace.records import Fate, Tracing
from tests.helpers.oracles import tiny
from tests.helpers.vocabularies import trained

PIECES = {0: "", 3: "a", 4: "aa"}
WIDE = 60
"""The number of prefixes of one length is below this."""

EXACT: dict[str, Callable[[], Decoder]] = {
    "astar": AStarDecoder,
    "astar by score": lambda: AStarDecoder(heuristic="none"),
    "bucket": BucketDecoder,
    "dfs": DfsDecoder,
    "restarting": RestartingDecoder,
    "beam": lambda: BeamDecoder(WIDE, stop="length"),
    "beam, proven": lambda: BeamDecoder(WIDE, stop="proven"),
    "vanilla": lambda: VanillaDecoder(WIDE, stop="length"),
    "vanilla, proven": lambda: VanillaDecoder(WIDE, stop="proven"),
    "syncbeam": lambda: SyncBeamDecoder(symbol=3, size=WIDE, stop="length"),
    "sepbeam": lambda: SepBeamDecoder(WIDE, stop="length"),
    "generate": lambda: BeamDecoder(WIDE, stop="hf-false"),
}
OTHERS: dict[str, Callable[[], Decoder]] = {
    "sample": lambda: SampleDecoder(samples=40),
    "bestfirst": lambda: BestFirstDecoder(6),
    "lendfs": LenDfsDecoder,
    "beam": lambda: BeamDecoder(6, stop="full"),
    "vanilla": lambda: VanillaDecoder(6, stop="full", prune_final=2.0),
}


def text_of(tokens: Sequence[int]) -> str:
    """Many tokens give one text."""
    return "".join(PIECES[token] for token in tokens)


def space(seed: int) -> TinySpace:
    """Texts of at most six letters, each from several of the 40 outputs."""
    scores = np.random.default_rng(seed).normal(-1.0, 1.0, (5, 5))
    scores[:, 1] = -np.inf
    return tiny(3, a=Table(np.minimum(scores, -0.01)))


def search(decoder: Decoder, tiny: TinySpace, nbest: int, **options: Any) -> Outcome:
    scheduler = Scheduler(tiny.constellation(), decoder, nbest=nbest, text_of=text_of, **options)
    (outcome,) = scheduler.run([tiny.source])
    return outcome


def expected(tiny: TinySpace) -> dict[str, float]:
    """The score of the best hypothesis of each text, best first."""
    found: dict[str, float] = {}
    for path in enumerate_space(tiny.constellation(), tiny.source):
        found.setdefault(text_of(path.tokens), path.total)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("nbest", [1, 3, 5, 50])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", EXACT)
def test_an_exact_search_lists_the_n_best_texts(name: str, seed: int, nbest: int) -> None:
    tiny = space(seed)
    outcome = search(EXACT[name](), tiny, nbest)
    found = {text_of(each.tokens): each.score for each in outcome.result.hypotheses}
    wanted = dict(list(expected(tiny).items())[:nbest])
    assert len(outcome.result.hypotheses) == len(found)
    assert list(found) == list(wanted)
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("name", OTHERS)
def test_every_list_has_the_first_of_each_text_of_a_longer_list(name: str) -> None:
    repetitions = 0
    for drawn in map(space, range(3)):
        (longest,) = Scheduler(drawn.constellation(), OTHERS[name](), nbest=50, batch_size=1).run([drawn.source])
        every = [(text_of(each.tokens), each.score) for each in longest.result.hypotheses]
        wanted = [each for place, each in enumerate(every) if each[0] not in dict(every[:place])]
        found = search(OTHERS[name](), drawn, 50).result.hypotheses
        assert [(text_of(each.tokens), each.score) for each in found] == wanted
        repetitions += len(every) - len(wanted)
    assert repetitions


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EXACT, "bestfirst", "sample"])
def test_a_trace_says_which_hypotheses_have_the_text_of_another(name: str) -> None:
    repetitions = 0
    for drawn in map(space, range(4)):
        outcome = search({**OTHERS, **EXACT}[name](), drawn, 3, tracing=Tracing())
        assert outcome.trace is not None
        require_complete(outcome.trace, name)
        listed = {text_of(each.tokens) for each in outcome.result.hypotheses}
        for expansion, child in outcome.trace.nodes():
            if child.fate == Fate.TEXT:
                assert child.token == EOS and text_of(outcome.trace.path(expansion.number)) in listed
                repetitions += 1
    assert repetitions


class Careless(Decoder):
    """Knows nothing of texts."""

    def decode(self, space: SearchSpace) -> Result:
        with_texts, space.text_of = space.text_of, None
        found = BeamDecoder(WIDE, stop="length").decode(space)
        space.text_of = with_texts
        return replace(found, proven=True)


def test_lists_of_other_decoders_become_shorter_and_a_full_one_is_proven_no_longer() -> None:
    tiny = space(0)
    short, whole = search(Careless(), tiny, 6).result, search(Careless(), tiny, 100).result
    assert len({text_of(each.tokens) for each in short.hypotheses}) == len(short.hypotheses) < 6
    assert short.proven is None
    assert [text_of(each.tokens) for each in whole.hypotheses] == list(expected(tiny)) and whole.proven


def test_recombination_is_refused_for_lists_of_several_texts() -> None:
    with pytest.raises(UsageError, match="recombine true expands only n prefixes"):
        search(DfsDecoder(recombine=True), space(0), 2)
    assert search(DfsDecoder(recombine=True), space(0), 1).result.proven


# The command line and the library.

RUN = ["decode", "--predictors", "wc", "--tokenizer", "a.spm", "--max-length", "3", "--nbest", "4", "--distinct-text"]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer with a, aa and ab, so that texts have several segmentations."""
    folder = tmp_path_factory.mktemp("letters")
    vocabulary = trained(["a aa ab b", "ab ab aa", "b aab"] * 4, vocab_size=9)
    (folder / "a.spm").write_bytes(vocabulary.serialized)  # type: ignore[attr-defined]
    (folder / "in.txt").write_text("a\n")
    return folder


@pytest.mark.parametrize("decoder", ["dfs", "beam", "vanilla", "sample"])
def test_each_format_has_each_text_once(
    decoder: str, letters: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(letters)
    more = {"sample": ["--sample.samples", "30"], "beam": ["--beam.size", "40", "--beam.stop", "full"]}
    rows = {}
    for form in ("jsonl", "nbest"):
        assert main([*RUN, "--decoder", decoder, *more.get(decoder, []), "--output-format", form, "in.txt"]) == 0
        rows[form] = capsys.readouterr().out.splitlines()
    texts = [hypothesis["text"] for hypothesis in json.loads(rows["jsonl"][0])["hypotheses"]]
    assert len(set(texts)) == len(texts) == 4 or decoder == "vanilla"
    assert [row.split(" ||| ")[1] for row in rows["nbest"]] == texts


def test_the_library_has_it_too_and_the_signature_names_it(letters: Path) -> None:
    run = sgdec.load("wc", "dfs", tokenizer=letters / "a.spm", max_length=3, nbest=4, distinct_text=True)
    (found,) = run.decode(["a"])
    assert len({each.text for each in found.hypotheses}) == 4
    assert "distinct_text:True" in run.signature


def test_a_run_without_texts_is_refused_and_so_are_copied_words(letters: Path) -> None:
    with pytest.raises(UsageError, match=r"distinct texts need a target vocabulary.*--tokenizer FILE"):
        sgdec.load("wc", "dfs", vocab_size=5, distinct_text=True)
    with pytest.raises(UsageError, match="--copy-unknown changes them later: give one of them"):
        sgdec.load("wc", "dfs", tokenizer=letters / "a.spm", distinct_text=True, copy_unknown=True)


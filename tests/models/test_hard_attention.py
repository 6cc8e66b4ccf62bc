"""`hard-attention`: the attention moves when the target says so and in no other way; the steps of a target are those
of the cheapest alignment, come with training text and given outputs, and are in no text that is written."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdec.checkpoints import files, layout
from sgdec.cli.main import main
from sgdec.context import BOS
from sgdec.errors import SgdecError, UsageError
from sgdec.models.gru import GRUDecoder
from sgdec.models.hard_attention import HardAttention, ReadingGRU
from sgdec.models.multi_source_hard import MultiSourceHard
from sgdec.text.steps import CHANGE, GAP, STEP, Stepping, align
from sgdec.text.two_sources import TwoSources
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.training import train
from sgdec.training.config import TrainConfig
from sgdec.training.data.text import ParallelText, read_text
from tests.helpers.families import make

pytestmark = pytest.mark.slow

LETTERS = WordVocabulary([*SPECIAL, *"abcdef"])
STEPPING = Stepping(LETTERS)
lines = st.lists(st.integers(3, 5), max_size=6)


@cache
def cost(source: tuple[int, ...], target: tuple[int, ...]) -> int:
    """Of the cheapest way from one to the other, by its definition."""
    if not source or not target:
        return GAP * (len(source) + len(target))
    last = 0 if source[-1] == target[-1] else CHANGE
    return min(
        cost(source[:-1], target[:-1]) + last,
        cost(source[:-1], target) + GAP,
        cost(source, target[:-1]) + GAP,
    )


def cost_of(places: Sequence[int], source: Sequence[int], target: Sequence[int]) -> int:
    """The least cost of an alignment with these positions: of all tokens at one, one is a pair, others insertions."""
    total = GAP * (len(source) - len(set(places)))
    for place in set(places):
        here = [token for token, at in zip(target, places, strict=True) if at == place]
        total += GAP * (len(here) - 1) + (0 if source[place] in here else CHANGE)
    return total


@given(lines.filter(bool), lines)
def test_an_alignment_never_goes_back_and_is_the_cheapest(source: list[int], target: list[int]) -> None:
    places = align(source, target)
    assert len(places) == len(target) and places == sorted(places)
    assert all(0 <= place < len(source) for place in places)
    assert cost_of(places, source, target) <= cost(tuple(source), tuple(target)) + 2 * GAP  # insertions at the start
    if source == target:
        assert places == list(range(len(source)))


@given(lines.filter(bool), lines)
def test_steps_tell_the_alignment_and_are_undone(source: list[int], target: list[int]) -> None:
    stepped = STEPPING.with_steps(LETTERS, source, target)
    assert [token for token in stepped if token != STEPPING.step] == target
    assert stepped.count(STEPPING.step) == len(source) - 1, "the attention ends at the end of the source"
    before = [stepped[:n].count(STEPPING.step) for n, token in enumerate(stepped) if token != STEPPING.step]
    assert before == align(source, target)
    assert STEPPING.decode(stepped) == LETTERS.decode(target)


@pytest.mark.parametrize(
    ("source", "target", "stepped"),
    [
        ("a b c", "a b c", "a > b > c"),
        ("a b c", "a c", "a > > c"),
        ("a b c", "a b b c", "a > b b > c"),
        ("a b c", "a d c", "a > d > c"),
        ("a b c", "", "> >"),
        ("a b c", "d a b c", "d a > b > c"),
        ("a b c", "a b c d", "a > b > c d"),
        ("a b", "e f c d", "e > f c d"),
        ("a b c d", "e d", "e > > > d"),
        ("a b c", "f b b c", "f > b b > c"),
    ],
)
def test_steps_stand_where_one_expects_them(source: str, target: str, stepped: str) -> None:
    found = STEPPING.with_steps(LETTERS, LETTERS.encode(source), LETTERS.encode(target))
    assert " ".join(">" if token == STEPPING.step else LETTERS.piece(token) for token in found) == stepped


def test_tokens_of_two_vocabularies_meet_as_strings() -> None:
    other = WordVocabulary([*SPECIAL, *"fxedcba"])
    found = STEPPING.with_steps(other, other.encode("a x b c"), LETTERS.encode("a c"))
    assert [STEPPING.piece(token) for token in found] == ["a", STEP, STEP, STEP, "c"]
    assert STEPPING.token(STEP) == STEPPING.size - 1 == LETTERS.size


def test_a_text_alone_does_not_tell_its_steps() -> None:
    with pytest.raises(SgdecError, match="its text does not tell without the source"):
        STEPPING.encode("a b")


SOURCES, LENGTHS = torch.tensor([[5, 6, 7, 8], [10, 11, 2, 2]]), torch.tensor([4, 2])
STEP_TOKEN = 28
TARGETS = torch.tensor([[BOS, STEP_TOKEN, 4, STEP_TOKEN, STEP_TOKEN], [BOS, 4, STEP_TOKEN, STEP_TOKEN, 3]])
PLACES = [[0, 1, 1, 2, 3], [0, 0, 1, 1, 1]]


@pytest.mark.parametrize("family", ["hard", "hard and soft"])
def test_the_attention_moves_with_each_step_and_stays_at_the_end(family: str) -> None:
    model = cast(HardAttention, make(family))
    memory = model.encode(SOURCES, LENGTHS)
    assert model.positions(memory, TARGETS).tolist() == PLACES
    state = model.start(memory)
    for tokens, places in zip(TARGETS.T, torch.tensor(PLACES).T, strict=True):
        state, _, attention = model.step(memory, state, tokens)
        assert torch.equal(state[-1], places)
        assert torch.equal(attention, torch.eye(4, dtype=attention.dtype)[places])


def test_a_step_reads_the_attended_state_beside_the_last_token() -> None:
    """The equations, for both decoders."""
    tokens, place = torch.tensor([4, STEP_TOKEN]), torch.tensor([2, 1])
    for family in ("hard", "hard and soft"):
        model = cast(HardAttention, make(family))
        memory = model.encode(SOURCES, LENGTHS)
        hidden, _ = model.start(memory)
        (after, _), output, _ = model.step(memory, (hidden, torch.tensor([2, 0])), tokens)
        read = torch.cat([model.target_embedding(tokens), memory.values[torch.arange(2), place]], -1)
        if isinstance(decoder := model.decoder, GRUDecoder):
            asked = decoder.first(decoder.first.read(read), hidden)
            contexts, _ = decoder.attention(asked[:, None], memory)
            expected = decoder.second(decoder.second.read(contexts[:, 0]), asked)
            said = torch.cat([expected, read, contexts[:, 0]], -1)
        else:
            assert isinstance(decoder, ReadingGRU)
            expected = decoder.block(decoder.block.read(read), hidden)
            said = torch.cat([expected, read], -1)
        torch.testing.assert_close(after, expected)
        torch.testing.assert_close(output, torch.tanh(decoder.readout(said)))


def respelled(word: str) -> str:
    """A monotone rule: b is doubled, c is left out, every d becomes e, and an f gets an a before it."""
    return "".join({"b": "bb", "c": "", "d": "e", "f": "af"}.get(letter, letter) for letter in word)


def examples(count: int, seed: int, shortest: int, longest: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    drawn = ["".join(draw.choices("abcdef", k=draw.randint(shortest, longest))) for _ in range(count)]
    return [(" ".join(word), " ".join(respelled(word))) for word in drawn if respelled(word)]


TRAIN, UNSEEN, LONGER = examples(500, 1, 2, 6), examples(60, 2, 2, 6), examples(30, 3, 12, 16)


def write(folder: Path, name: str, pairs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """A file per side."""
    paths = tuple(str(folder / f"{name}.{side}") for side in ("in", "out", "third")[: len(pairs[0])])
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in side))
    return paths


def config(folder: Path, output: str, **settings: object) -> TrainConfig:
    (folder / "letters.json").write_bytes(LETTERS.serialized)
    given: dict[str, object] = {
        "train": write(folder, "train", TRAIN),
        "valid": write(folder, "valid", UNSEEN),
        "tokenizer": (str(folder / "letters.json"),),
        "output": str(folder / output),
        "model": "hard-attention",
        "options": {"width": 24, "embedding": 12},
        "batch_tokens": 256,
        "max_steps": 250,
        "lr": 0.015,
        "cooldown": 0.5,
        "label_smoothing": 0.0,
        "bleu": 60,
        "threads": 1,
        "precision": "fp32",
    }
    return TrainConfig(**{**given, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spelling")
    done = train(config(folder, "run"), quiet=True)
    assert done.scores["perplexity"] < 1.15 and done.scores["bleu"] > 90
    write(folder, "longer", LONGER)
    return folder


def command(folder: Path, verb: str, *args: str) -> list[str]:
    output = folder / "out"
    output.unlink(missing_ok=True)
    model = ["--predictors", "nmt", "--nmt.model", str(folder / "run" / "best"), "--threads", "1"]
    assert main([verb, *model, "--output", str(output), *args]) == 0
    return output.read_text().splitlines()


LONG = ("--max-length-factor", "3")


def test_it_learns_a_monotone_rule_that_holds_for_longer_lines_too(run: Path) -> None:
    """Lines of 12 to 16 letters after training on 2 to 6: the next letter is the next one, however many there are."""
    for name, pairs, least in (("valid", UNSEEN, 0.9), ("longer", LONGER, 0.7)):
        found = command(run, "decode", *LONG, str(run / f"{name}.in"))
        right = sum(text == target for text, (_, target) in zip(found, pairs, strict=True))
        assert right >= least * len(pairs), (name, right, len(pairs))
        one_by_one = command(run, "decode", *LONG, "--batch-size", "1", "--range", "1:10", str(run / f"{name}.in"))
        assert one_by_one == found[:10]


def test_tokens_have_steps_and_text_has_none_and_scoring_puts_them_in(run: Path) -> None:
    """The model may place steps otherwise than the alignment, and a text has the score of its alignment's steps."""
    rows = command(run, "decode", *LONG, "--output-format", "jsonl", str(run / "valid.in"))
    scores = command(run, "score", str(run / "valid.in"), str(run / "valid.out"))
    as_aligned = 0
    for row, score, (source, target) in zip(map(json.loads, rows), scores, UNSEEN, strict=True):
        best = row["hypotheses"][0]
        assert STEPPING.decode(best["tokens"]) == best["text"] and STEP not in best["text"]
        if best["tokens"] == STEPPING.with_steps(LETTERS, LETTERS.encode(source), LETTERS.encode(target)):
            as_aligned += 1
            assert best["text"] == target and float(score) == pytest.approx(best["score"], abs=1e-4)
    assert as_aligned >= 0.8 * len(UNSEEN)


def test_both_attentions_together_learn_it(tmp_path: Path) -> None:
    settings = {"options": {"width": 16, "embedding": 12, "soft": True}, "max_steps": 100, "lr": 0.02}
    assert train(config(tmp_path, "run", **settings), quiet=True).scores["perplexity"] < 1.2


def test_of_two_sources_the_second_is_gone_through() -> None:
    both = TwoSources(LETTERS, WordVocabulary([*SPECIAL, *"cba"]))
    found = STEPPING.with_steps(both, both.encode("d e f f\ta b c"), LETTERS.encode("a c"))
    assert [STEPPING.piece(token) for token in found] == ["a", STEP, STEP, "c"]
    model = cast(MultiSourceHard, make("multi-source hard"))
    source, lengths = torch.tensor([[5, 2, 7, 8, 9], [10, 11, 2, 3, 2]]), torch.tensor([5, 4])
    assert model.positions(model.encode(source, lengths), TARGETS).tolist() == [[2, 3, 3, 4, 4], [3, 3, 3, 3, 3]]


def test_both_sources_and_all_attentions_together_learn(tmp_path: Path) -> None:
    """The second source, with the letter that is the first for each of its letters c."""
    draw = random.Random(4)
    drawn = [(draw.choice("abdef"), "".join(draw.choices("abcdef", k=draw.randint(2, 5)))) for _ in range(500)]
    sides = [(first, " ".join(second), " ".join(second.replace("c", first))) for first, second in drawn]
    settings: dict[str, object] = {
        "train": write(tmp_path, "both", sides[50:]),
        "valid": write(tmp_path, "unseen", sides[:50]),
        "model": "multi-source-hard",
        "options": {"width": 16, "embedding": 12},
        "max_steps": 110,
        "lr": 0.02,
    }
    done = train(config(tmp_path, "run", **settings), quiet=True)
    assert done.scores["perplexity"] < 1.1
    assert isinstance(layout.load_vocabularies(done.best).source, TwoSources)


def test_training_text_has_steps_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    paths = write(tmp_path, "few", [("a b c", "a b b"), ("c c d", "e")])
    text = read_text(paths, LETTERS, STEPPING)
    assert isinstance(text, ParallelText)
    assert text.targets == [STEPPING.with_steps(LETTERS, s, STEPPING.plain.encode(t)) for s, t in
                            zip(text.sources, text.target_lines, strict=True)]  # fmt: skip
    settings: dict[str, object] = {"cooldown": 0.0, "bleu": 2, "options": {"width": 8, "embedding": 8}}
    done = train(config(tmp_path, "whole", max_steps=4, **settings), quiet=True)
    train(config(tmp_path, "parts", max_steps=2, **settings), quiet=True)
    train(config(tmp_path, "parts", max_steps=4, **settings), resume=True, quiet=True)
    whole, parts = (files.load_tensors(tmp_path / name / "last" / layout.WEIGHTS) for name in ("whole", "parts"))
    assert all(torch.equal(whole[tensor], parts[tensor]) for tensor in whole)
    assert isinstance(layout.load_vocabularies(done.best).target, Stepping)


def test_from_right_to_left_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--right-left: hard-attention moves through the source from left to right"):
        train(config(tmp_path, "run", right_left=True), quiet=True)

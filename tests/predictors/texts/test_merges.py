"""What is known early of BPE of Hugging Face is true: it excludes nothing that a tokenizer writes for any text.

Oracle: the tokenizers themselves, trained on random texts in which words, blanks, digits and contractions meet.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.canonical import Canonical
from sgdec_predictors.texts.segmentation import Segmentation

from sgdec import EOS, Context, Source
from sgdec.context import Vocabularies
from sgdec.protocol import FORBIDDEN
from sgdec.text.pretrained import load_pretrained
from sgdec.vocabularies import PretrainedVocabulary
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.spelled_ids import BYTES

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

SPECIAL = ["<unk>", "<s>", "</s>"]
LETTERS = ["a", "b", "s", "t", "re", "ve", "ll", "m", "d", "'", "'", " ", " ", "\n", "1", "2", "!", "é", "日", "▁"]
SEEDS, TEXTS = (range(60), 1500) if EXHAUSTIVE else (range(9), 400)


def byte_level(backend: Any) -> list[str]:
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return list(pre_tokenizers.ByteLevel.alphabet())


def one_part(backend: Any) -> list[str]:
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return list(pre_tokenizers.ByteLevel.alphabet())


def metaspace(backend: Any) -> list[str]:
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return []


def whole_text(backend: Any) -> list[str]:
    metaspace(backend)
    backend.pre_tokenizer = None
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return []


KINDS: dict[str, Callable[[Any], list[str]]] = {
    "byte level": byte_level, "one part": one_part, "metaspace": metaspace, "whole text": whole_text,
}  # fmt: skip


def text_of(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(1, 9)))


def made(kind: str, seed: int, folder: Path) -> PretrainedVocabulary:
    """A tokenizer with random merges. Every second has added tokens, and keeps parts whole that are tokens; some of
    these no merges make. Every third was trained on text that is not split, so that pieces are longer than parts."""
    rng = random.Random(seed)
    lines = [text_of(rng) for _ in range(100)]
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    letters = KINDS[kind](backend)
    special = [*SPECIAL, *(() if letters else BYTES)]
    steps = json.loads(backend.to_str())["pre_tokenizer"]
    if seed % 3 == 0:
        KINDS["one part" if letters else "whole text"](backend)
    backend.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=len(letters) + len(special) + rng.randint(5, 60), special_tokens=special, initial_alphabet=letters,
        show_progress=False,
    ))  # fmt: skip
    if seed % 2:
        longer = sorted(piece for piece in backend.get_vocab() if piece.isalpha() and len(piece) == 2)
        backend.add_tokens([*rng.sample(longer, min(2, len(longer))), "s t"])
    content = json.loads(backend.to_str())
    content["pre_tokenizer"] = steps
    if kind == "metaspace":
        content["normalizer"] = None
    if seed % 2:
        merges = content["model"]["merges"]
        content["model"]["merges"] = [each for each in merges if rng.random() < 0.9]
    content["added_tokens"] = [each for each in content["added_tokens"] if each["content"] not in BYTES]
    content["model"]["ignore_merges"] = bool(seed % 2)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    roles = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **roles}))
    return load_pretrained(folder)[1]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_a_tokenizer_writes_is_excluded(kind: str, tmp_path: Path) -> None:
    known = met = 0
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        vocabulary, rng = made(kind, seed, folder), random.Random(-seed)
        segmentation = Segmentation(vocabulary)
        known += sum(map(len, segmentation.never_after.values()))
        for text in {text_of(rng) for _ in range(TEXTS)}:
            own = vocabulary.encode(text)
            if not segmentation.is_canonical(own):
                continue
            met += 1
            where = (seed, text, [vocabulary.piece(token) for token in own])
            assert segmentation.never.isdisjoint(own), where
            assert not any(b in segmentation.never_after.get(a, ()) for a, b in itertools.pairwise(own)), where
    assert known > 8 * len(SEEDS) and met > 50 * len(SEEDS)


@pytest.mark.parametrize("kind", KINDS)
def test_complete_outputs_are_those_of_the_rule_at_their_end(kind: str, tmp_path: Path) -> None:
    """All sequences of a few tokens, those of the pairs among them."""
    vocabulary = made(kind, 2, tmp_path)
    segmentation = Segmentation(vocabulary)
    canonical = Canonical(Context(vocabularies=Vocabularies(target=vocabulary), vocab_size=vocabulary.size))
    pairs = [(a, b) for a, after in segmentation.never_after.items() for b in after]
    random.Random(0).shuffle(pairs)
    first = canonical.predict_batch(canonical.initialize_batch([Source(1, (3,))])).rows[0]
    assert all(first.get(token) == FORBIDDEN for token in segmentation.never)
    few = sorted({*itertools.chain(*pairs[:6]), *sorted(segmentation.never)[:2], 3, vocabulary.size - 1})[:14]
    early = allowed = 0
    for output in itertools.chain.from_iterable(itertools.product(few, repeat=length) for length in range(4)):
        (state,), score = canonical.initialize_batch([Source(1, (3,))]), 0.0
        for place, token in enumerate((*output, EOS)):
            score = canonical.predict_batch([state]).rows[0].get(token)
            if score == FORBIDDEN:
                early += place < len(output)
                break
            if token != EOS:
                (state,) = canonical.consume_batch([state], [token])
        assert (score > FORBIDDEN) == segmentation.is_canonical(output), output
        allowed += score > FORBIDDEN
    assert early > 100 and allowed > 10


def test_nothing_is_known_of_other_steps_and_of_merges_that_are_drawn(tmp_path: Path) -> None:
    made("whole text", 2, tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated", "invert": False}
    for place, change in enumerate(
        [
            {"pre_tokenizer": split},
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split]}},
            {"model": {**content["model"], "dropout": 0.5}},
        ]
    ):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "tokenizer_config.json").write_text((tmp_path / "tokenizer_config.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps({**content, **change}))
        assert not Segmentation(load_pretrained(folder)[1]).never_after

"""Vocabularies that transformers reads have the same tokens for every line, and the same text for every output; the
others are refused."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from sgdec.errors import UsageError
from sgdec.text.hf_files import tokenizer_files
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.text.vocabulary import Trained, train
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow  # importing transformers takes seconds

TEXT = [
    *filter(str.strip, (ROOT / "README.md").read_text(encoding="utf-8").splitlines()),
    "Straße naïve 東京 タワー ﬁne ½ x² e\u0301",
    "Ελληνικά и русский текст",
]
KINDS: dict[str, dict[str, Any]] = {
    "bpe": {"size": 400, "kind": "bpe"},
    "unigram": {"size": 300, "kind": "unigram"},
    "char": {"size": 400, "kind": "char"},
    "without normalisation": {"size": 400, "kind": "bpe", "normalization": "identity"},
    "unknown characters": {"size": 150, "kind": "unigram", "coverage": 0.98},
    "words": {"size": 100_000, "kind": "word"},
}
STRANGE = [
    *SPECIAL, *(f" {special} " for special in SPECIAL), "<pad>", "<::::>", ">>de<<", "[UNK]", "▁", " ", "  ", "\t",
    "\xa0", "\u3000", "\x1c", "\x1f", "\x85", "\u2028", "\u200b", "\u200d", "\ufeff", "\0",
]  # fmt: skip
BLOCKS = [
    (0x00, 0x20), (0x20, 0x7F), (0x80, 0x180), (0x300, 0x500), (0x590, 0x700), (0x900, 0xE00), (0x1100, 0x1200),
    (0x1E00, 0x2070), (0x2580, 0x2590), (0x3000, 0x3200), (0xAC00, 0xAC80), (0xE000, 0xE010), (0xFB00, 0xFB50),
    (0xFE00, 0xFE70), (0xFF00, 0xFFEF), (0x1D400, 0x1D4FF), (0x1F600, 0x1F640),
]  # fmt: skip


def lines(number: int) -> list[str]:
    """Pieces of text, of Unicode's blocks, and strings with a meaning somewhere."""
    draw = random.Random(5)

    def part() -> str:
        kind = draw.random()
        if kind < 0.5:
            first = draw.randrange(20)
            return draw.choice(TEXT)[first : first + draw.randrange(1, 9)]
        if kind < 0.7:
            return draw.choice(STRANGE)
        block = draw.choice(BLOCKS)
        return "".join(chr(draw.randrange(*block)) for _ in range(draw.randrange(1, 4)))

    drawn = ("".join(part() for _ in range(draw.randrange(12))) for _ in range(number))
    return ["", " ", *TEXT, *(line.replace("\n", " ") for line in drawn)]


def theirs(vocabulary: Trained, folder: Path) -> Any:
    from transformers import AutoTokenizer

    for name, content in tokenizer_files(vocabulary, 10_000, where="it").items():
        (folder / name).write_bytes(content)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.mark.parametrize("name", KINDS)
def test_lines_have_the_same_tokens_and_outputs_the_same_text(name: str, tmp_path: Path) -> None:
    """Except for blanks at the ends of an output, which are of no consequence."""
    vocabulary = train(TEXT, **KINDS[name])
    tokenizer = theirs(vocabulary, tmp_path)
    assert len(tokenizer) == vocabulary.size and tokenizer.all_special_ids == [1, 2, 0]
    given = lines(1000)
    assert [tokenizer(line)["input_ids"] for line in given] == [list(vocabulary.encode(line)) for line in given]
    batch = tokenizer(given[:20], padding=True)
    assert [sum(mask) for mask in batch["attention_mask"]] == [len(vocabulary.encode(line)) for line in given[:20]]
    draw = random.Random(6)
    outputs = [[draw.randrange(3, vocabulary.size) for _ in range(draw.randrange(9))] for _ in range(1000)]
    found = [tokenizer.decode([1, *output, 2, 1, 1], skip_special_tokens=True) for output in outputs]
    assert [text.strip() for text in found] == [vocabulary.decode(output).strip() for output in outputs]


def spm(**settings: Any) -> SentencePieceVocabulary:
    """A SentencePiece model of settings that `sgdec tokenizer` does not have."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["so simple", "so so"]), model_writer=model, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        hard_vocab_limit=False, minloglevel=2, **settings,
    )  # fmt: skip
    return SentencePieceVocabulary(model.getvalue())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: spm(vocab_size=280, byte_fallback=True), "it has the piece '<0x00>', a byte or a control symbol"),
        (lambda: spm(vocab_size=20, control_symbols="<2de>"), "it has the piece '<2de>', a byte or a control symbol"),
        (lambda: train(["abc cab"], 7, "char"), "it knows no character of <s>, and transformers would read these"),
        (lambda: train(TEXT, 200, "word"), r"it has symbols for unknown words \(.*\), and transformers has no"),
        (lambda: train(["so so"], 900, "mixed"), "it is of the kind mixed, and no tokenizer of transformers spells"),
    ],
)
def test_what_transformers_cannot_read_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}.* Give --no-tokenizer to export the model alone"):
        tokenizer_files(make(), 10, where="it")


def test_a_vocabulary_of_one_word_is_exact_too(tmp_path: Path) -> None:
    """``</s>`` in a line is an unknown word, wherever it stands; ``</s>s`` is one as well."""
    words = WordVocabulary([*SPECIAL, "so"])
    tokenizer = theirs(words, tmp_path)
    line = "</s> so <s> </s></s> </s>s so</s> <unk> so\u3000</s>\u2029<s>"
    assert tokenizer(line)["input_ids"] == list(words.encode(line)) == [0, 3, 0, 0, 0, 0, 0, 3, 0, 0]

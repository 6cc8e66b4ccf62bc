"""SentencePiece vocabularies: text to tokens and back, and how to train one.

By default source and target share one model, so that names and numbers are segmented in the same way on both sides
and can be copied (GNMT, Wu et al. 2016, section 4.1). Every model trained here has the ids 0 ``<unk>``, 1 ``<s>``, 2
``</s>`` and no padding piece: batches are padded with any token and masked.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from sgdec.context import BOS, EOS, UNK
from sgdec.errors import SgdecError, UsageError
from sgdec.io.documents import read_document
from sgdec.text.words import BLANK

Kind = Literal["unigram", "bpe", "char", "word"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class SentencePieceVocabulary:
    """A `sgdec.context.Vocabulary` read from a SentencePiece ``.spm`` (or ``.model``) file."""

    def __init__(self, serialized: bytes, *, name: str = "the SentencePiece model") -> None:
        """``serialized`` is the content of a model file; errors call it ``name``.

        Raises `SgdecError` if this is not a SentencePiece model, or its special tokens have other numbers.
        """
        import sentencepiece

        self.serialized = serialized
        self._processor: Any = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(serialized)
        except (RuntimeError, UnicodeDecodeError):  # of a message that quotes a piece
            raise SgdecError(f"{name}: this is not a SentencePiece model.") from None
        ids = self._processor.unk_id(), self._processor.bos_id(), self._processor.eos_id()
        if ids != (UNK, BOS, EOS):
            raise SgdecError(
                f"{name}: <unk>, <s>, </s> are numbered {', '.join(map(str, ids))}, expected 0, 1, 2. "
                "Train it with `sgdec tokenizer`."
            )
        try:
            self._processor.id_to_piece(list(range(self.size)))
        except UnicodeDecodeError as error:
            raise SgdecError(f"{name}: a piece is not UTF-8 ({error.object!r}). The file is damaged.") from None

    @classmethod
    def load(cls, path: str | Path) -> SentencePieceVocabulary:
        """Read a model file. Raises `SgdecError` if it is missing or damaged."""
        try:
            serialized = read_document(path)
        except OSError as error:
            raise SgdecError(f"{path}: cannot be read ({error.strerror}). `sgdec tokenizer` trains one.") from None
        return cls(serialized, name=str(path))

    @property
    def size(self) -> int:
        return int(self._processor.vocab_size())

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints = the same pieces under the same numbers."""
        pieces = "\n".join(self._processor.id_to_piece(list(range(self.size))))
        return hashlib.sha256(pieces.encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a line, without ``<s>`` and ``</s>``."""
        return tuple(self._processor.encode(text))

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines at once."""
        encoded: list[list[int]] = self._processor.encode(list(lines))
        return encoded

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that these tokens spell."""
        return str(self._processor.decode([int(token) for token in tokens]))

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside the vocabulary."""
        if not 0 <= token < self.size:
            raise IndexError(f"token {token} is outside the vocabulary 0..{self.size - 1}")
        return str(self._processor.id_to_piece(int(token)))

    def token(self, piece: str) -> int:
        """The token of one string; `UNK` if there is none."""
        return int(self._processor.piece_to_id(piece))

    def text_of(self, token: int) -> str | None:
        """The text of a token, ``▁`` for a blank; None for a token without text (``<unk>``, a byte)."""
        processor = self._processor
        special = processor.is_unknown, processor.is_control, processor.is_unused, processor.is_byte
        return None if any(is_a(token) for is_a in special) else self.piece(token)

    def bytes_of(self, token: int) -> bytes | None:
        """The UTF-8 bytes that a token adds to a text that has begun; None for a token without text."""
        if self._processor.is_byte(token):
            return bytes([int(self.piece(token)[3:5], 16)])
        text = self.text_of(token)
        return None if text is None else text.replace(BLANK, " ").encode()

    def words_in(self, line: str) -> list[str]:
        """The words of a line after this vocabulary's normalisation, split at blanks."""
        try:
            pieces = self._processor.encode(line, out_type=str)
        except UnicodeDecodeError:
            raise SgdecError("the SentencePiece model turns this text into invalid UTF-8: it is damaged.") from None
        return [word for word in "".join(pieces).split(BLANK) if word]


def train_vocabulary(
    lines: Iterable[str],
    size: int,
    *,
    kind: Kind = "bpe",
    coverage: float = 1.0,
    normalization: str = "nmt_nfkc",
) -> SentencePieceVocabulary:
    """Train a SentencePiece model of ``size`` pieces on lines of text.

    ``coverage`` is the share of characters that must be in the vocabulary (below 1 the rarest become
    ``<unk>``); ``normalization`` is SentencePiece's rule (``identity`` does not change the text). For ``char`` and
    ``word``, ``size`` is a limit; the other kinds reach it exactly. Raises `UsageError` if the text cannot give that
    many pieces.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for line in lines if line.strip()),
            model_writer=model,
            vocab_size=size,
            model_type=kind,
            character_coverage=coverage,
            normalization_rule_name=normalization,
            hard_vocab_limit=kind in ("unigram", "bpe"),
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=-1,
            max_sentence_length=1 << 20,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:  # "Internal: src/...(598) [condition] Vocabulary size too high. ..."
        reason = str(error).rpartition("] ")[2].strip().rstrip(".") or "the text holds no pieces"
        raise UsageError(f"a {kind} vocabulary of {size} pieces cannot be made from this text: {reason}.") from None
    return SentencePieceVocabulary(model.getvalue())

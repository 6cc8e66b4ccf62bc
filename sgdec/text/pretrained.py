"""Text and token numbers of Hugging Face models: a vocabulary over their tokenizers.

The ids of such a model are renumbered, see `sgdec.text.numbering`. A predictor and a vocabulary of one folder find
the same `Roles` (`sgdec.text.roles`), so their tokens have the same numbers.

The tokens of a text are plain: without ``</s>``, language tags and other marks, as in lattices, tries and n-gram
models. `PretrainedVocabulary.wrap` adds the marks that the model's encoder reads. A mark that is written in a text,
such as ``</s>`` or ``<|endoftext|>``, is text: its characters if the tokenizer can spell them, otherwise ``<unk>``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from sgdec.context import BOS, EOS, UNK
from sgdec.errors import SgdecError, UsageError
from sgdec.text.model_folder import (
    TwoTokenizers,
    no_panics,
    quiet,
    read_config,
    read_tokenizer,
    reading,
    reason,
    stamps,
)
from sgdec.text.numbering import RESERVED
from sgdec.text.roles import Roles, pieces_of, read_roles, roles_of
from sgdec.text.words import BLANK, SPECIAL

__all__ = ["PretrainedVocabulary", "Roles", "load_pretrained", "read_roles", "roles_of"]

Side = Literal["source", "target"]


def load_pretrained(
    folder: str | Path, *, source_language: str | None = None, target_language: str | None = None
) -> tuple[PretrainedVocabulary, PretrainedVocabulary]:
    """The source and target vocabulary of a folder with a model, or with a tokenizer alone.

    The languages are those of the tokens that multilingual models read and write, such as ``de_DE``; by default the
    tokenizer's. Raises `SgdecError` as `read_tokenizer` and `roles_of`.
    """
    return _load(str(folder), stamps(folder), source_language, target_language)


@lru_cache(maxsize=4)
def _load(
    folder: str, stamps: object, source_language: str | None, target_language: str | None
) -> tuple[PretrainedVocabulary, PretrainedVocabulary]:
    """`load_pretrained`, for the option --tokenizer and for each predictor. ``stamps`` change if a file does."""
    tokenizer = read_tokenizer(folder, source_language, target_language)
    config, generation = read_config(folder) or (None, None)
    with reading(folder, "its settings cannot be used"):
        roles = roles_of(config, generation, tokenizer, target_language=target_language, name=folder)
        return PretrainedVocabulary(tokenizer, roles, "source"), PretrainedVocabulary(tokenizer, roles, "target")


class PretrainedVocabulary:
    """A `sgdec.context.Vocabulary` over a tokenizer of `transformers`."""

    def __init__(self, tokenizer: Any, roles: Roles, side: Side = "target") -> None:
        """``side``: Marian's tokenizers split sources and targets in different ways."""
        self.roles = roles
        self.numbering = roles.numbering if side == "target" else roles.sources
        self._tokenizer = getattr(tokenizer, side) if isinstance(tokenizer, TwoTokenizers) else tokenizer
        self._side = side
        found = list(map(pieces_of(tokenizer, side).get, self.numbering.ids.tolist()))
        self._spelled = [piece is not None for piece in found]
        self._pieces = _named(found)
        special = {id for id in self._tokenizer.all_special_ids if id < len(self.numbering.numbers)}
        self._marks = {BOS, EOS, *map(int, self.numbering.numbers[[*special, *self.numbering.ends]])}
        self._of_text = [UNK if token in self._marks else token for token in self.numbering.numbers.tolist()]

    @property
    def size(self) -> int:
        return self.numbering.size

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints = the same pieces under the same numbers."""
        return hashlib.sha256("\n".join(self._pieces).encode("utf-8", "surrogatepass")).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text without marks; a mark that is written in the text is read as text."""
        return tuple(self.encode_all([text])[0])

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines at once."""
        numbers = self._of_text
        return [[numbers[id] for id in row] for row in self._ids(lines, marks=False)]

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """The tokens of a prompt: marks that are written in it, such as ``<|im_start|>``, are marks."""
        return tuple(self.numbering.numbers[self._ids([text], marks=True)[0]].tolist())

    def mark_in(self, text: str) -> str | None:
        """A mark that a text spells, which `encode_prompt` would read as a mark; None if there is none."""
        return next((mark for mark in self._written if mark in text), None)

    @cached_property
    def _written(self) -> list[str]:
        """The marks that `encode_prompt` reads. Some have no role, such as ``<|start_header_id|>`` of Llama 3."""
        added = self._tokenizer.added_tokens_decoder.values()
        return [*map(str, self._tokenizer.all_special_tokens), *(str(each) for each in added if each.special)]

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` can be used."""
        return getattr(self._tokenizer, "chat_template", None) is not None

    def encode_chat(self, message: str) -> tuple[int, ...]:
        """The tokens of a conversation in the tokenizer's chat template: a user's message, and the marks after which
        the model answers. Raises `UsageError` if the tokenizer has no template that takes one."""
        turns = [{"role": "user", "content": message}]
        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program that can refuse anything
            raise UsageError(
                f"the tokenizer has no chat template for one message of a user: {reason(error)}."
            ) from None
        return self.encode_prompt(text)

    def wrap(self, tokens: Iterable[int]) -> tuple[int, ...]:
        """The tokens of a source as the model reads them: with the marks that the tokenizer adds before and after,
        such as ``</s>`` or a language."""
        before, after = self._around
        return (*before, *tokens, *after)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these tokens; marks are left out, and a number without a spelling is written as its piece."""
        ids, parts = self.numbering.ids, []
        for spelled, run in groupby(map(int, tokens), self._spelled.__getitem__):
            if spelled:
                parts.append(self._decoded([int(ids[token]) for token in run]))
            else:
                parts += map(self.piece, run)
        return " ".join(parts)

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside the vocabulary."""
        if not 0 <= token < self.size:
            raise IndexError(f"token {token} is outside the vocabulary 0..{self.size - 1}")
        return self._pieces[token]

    def token(self, piece: str) -> int:
        """The token of one string; `UNK` if there is none."""
        return self._tokens.get(piece, UNK)

    def text_of(self, token: int) -> str | None:
        """The text of a token, ``▁`` for a blank; None for a token without text (``<unk>``, part of a character), and
        for one with a blank after its beginning, which is in no word."""
        text = self._text(token)
        return None if text is None or BLANK in text[1:] else text

    def bytes_of(self, token: int) -> bytes | None:
        """The UTF-8 bytes that a token adds to a text that has begun; None for a token without text."""
        if not self._spelled[token] or token in self._marks or token == UNK:
            return None
        piece = self._pieces[token]
        if token in self._added or piece in self._tokenizer.all_special_tokens:
            return self._added.get(token)
        if self._of_bytes:
            return bytes(_BYTES[character] for character in piece) if _BYTES.keys() >= {*piece} else None
        return bytes([int(piece[3:5], 16)]) if _is_byte(piece) else piece.replace(BLANK, " ").encode()

    @cached_property
    def byte_runs(self) -> frozenset[int]:
        """The tokens of single bytes that `decode` reads together: if those next to each other are not UTF-8 as a
        whole, each of them becomes U+FFFD, also those that are a character. Empty if it reads them one by one."""
        if self._of_bytes or b'"ByteFallback"' not in self._decoder:
            return frozenset()
        return frozenset(
            token for token, piece in enumerate(self._pieces) if self._spelled[token] and _is_byte(piece)
        )

    def _text(self, token: int) -> str | None:
        found = None if not self._of_bytes and _is_byte(self._pieces[token]) else self.bytes_of(token)
        try:
            return None if found is None else found.decode().replace(" ", BLANK)
        except UnicodeDecodeError:
            return None

    def words_in(self, line: str) -> list[str]:
        """The words of a line after this vocabulary's normalisation, split at blanks."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:  # SentencePiece; Marian's tokenizers have two models
            name = "sp_model" if hasattr(self._tokenizer, "sp_model") else f"spm_{self._side}"
            with _calling():
                line = "".join(getattr(self._tokenizer, name).encode(line, out_type=str))
        elif backend.normalizer is not None:
            with _calling():
                line = backend.normalizer.normalize_str(line)
        return line.replace(BLANK, " ").split()

    def _ids(self, lines: Sequence[str], *, marks: bool) -> list[list[int]]:
        """The model's ids of lines, without the marks of `wrap`; ``marks``: whether marks in the text are marks."""
        if not lines:
            return []
        if self._tokenizer.is_fast:  # objects of `transformers` around these calls would take four times as long
            backend = self._tokenizer.backend_tokenizer
            backend.no_truncation()
            backend.no_padding()
            backend.encode_special_tokens = not marks
            with _calling():
                return [found.ids for found in backend.encode_batch_fast(list(lines), add_special_tokens=False)]
        given = {"text" if self._side == "source" else "text_target": list(lines)}
        with quiet(), _calling():
            found = self._tokenizer(**given, add_special_tokens=False, split_special_tokens=not marks, verbose=False)
        return list(found["input_ids"])

    def _decoded(self, ids: list[int]) -> str:
        with _calling():
            return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @cached_property
    def _tokens(self) -> dict[str, int]:
        return {piece: token for token, piece in enumerate(self._pieces)}

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """The marks before and after a text."""
        if not self._tokenizer.is_fast:
            ids = self._tokenizer.build_inputs_with_special_tokens([RESERVED])
            place = ids.index(RESERVED)
            before, after = ids[:place], ids[place + 1 :]
        else:
            with _calling():
                found = self._tokenizer("a", return_special_tokens_mask=True)
            ids, marks = found["input_ids"], found["special_tokens_mask"]
            text = [place for place, mark in enumerate(marks) if not mark] or [len(ids)]
            before, after = ids[: text[0]], ids[text[-1] + 1 :]
        numbers = self.numbering.numbers
        return [int(numbers[id]) for id in before], [int(numbers[id]) for id in after]

    @cached_property
    def _added(self) -> dict[int, bytes | None]:
        """The text of tokens that were added to a trained tokenizer; None for marks, which are left out of texts."""
        numbers = self.numbering.numbers
        listed = [int(numbers[id]) for id in self._tokenizer.added_tokens_decoder if id < len(numbers)]
        anchor = self.encode("a")
        before = self.decode(anchor)
        after = self.decode((*anchor, *anchor)).removeprefix(before)  # can begin with a blank
        texts = {token: self.decode((*anchor, token, *anchor)) for token in listed}
        return {
            token: self._pieces[token].encode() if text == before + self._pieces[token] + after else None
            for token, text in texts.items()
        }

    @cached_property
    def steps(self) -> dict[str, Any] | None:
        """The steps of a tokenizer of the library `tokenizers`, as in tokenizer.json; None for others."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return None if backend is None else dict(json.loads(backend.to_str()))

    @cached_property
    def _of_bytes(self) -> bool:
        """Whether pieces are spelled in GPT-2's 256 characters for bytes."""
        return b'"ByteLevel"' in self._decoder

    @cached_property
    def _decoder(self) -> bytes:
        """How a tokenizer of the library `tokenizers` decodes, as JSON; empty for others."""
        decoder = getattr(getattr(self._tokenizer, "backend_tokenizer", None), "decoder", None)
        return b"" if decoder is None else bytes(decoder.__getstate__())


@contextmanager
def _calling() -> Iterator[None]:
    """Context manager: what a tokenizer raises for damaged files becomes an `SgdecError`."""
    try:
        with no_panics(2):
            yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # Rust's panics derive from it
        raise SgdecError(f"the tokenizer fails: {reason(error)}. Its files are damaged; copy them again.") from None


def _named(pieces: Sequence[str | None]) -> tuple[str, ...]:
    """The pieces by number. A number without one gets a name that no other has."""
    taken = set(pieces)

    def name(number: int) -> str:
        found = SPECIAL[number] if number < len(SPECIAL) else f"<{number}>"
        while found in taken:
            found = f"<{found}>"
        return found

    return tuple(name(number) if piece is None else piece for number, piece in enumerate(pieces))


def _is_byte(piece: str) -> bool:
    """Whether a piece is one byte of a character, such as ``<0xE2>``."""
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in byte-level BPE (Radford et al. 2019, GPT-2): the byte's own in
    Latin-1 if it is visible, otherwise one from U+0100 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_characters()

"""The ids of a Hugging Face model that have a role in a search: ends, beginnings, unknown words, forced tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sgdec.errors import SgdecError
from sgdec.io.limits import VOCABULARY
from sgdec.text.model_folder import has_tokenizer, language_id, read_config, read_tokenizer, reading
from sgdec.text.numbering import Numbering


@dataclass(frozen=True, eq=False)
class Roles:
    """The ids of a model that mean something to a search. All ids are the model's own; `numbering` maps them."""

    numbering: Numbering
    """The numbers of the tokens that the model writes."""
    sources: Numbering
    """The numbers of the tokens that the model reads; the same object unless each side has ids of its own."""
    seq2seq: bool
    """Whether an encoder reads the source; otherwise the source is a prompt."""
    bos: int | None
    """The token that begins a text, even if it has another role too."""
    decoder_start: int | None
    """The token that the decoder reads first, `bos` if the configs name none; None for models without an encoder."""
    forced_bos: int | None
    """The token that must come first, such as the target language; `generate()` does not score it."""
    forced_eos: tuple[int, ...]
    """The tokens of which one must come last if the longest allowed length is reached."""

    @property
    def rows(self) -> int:
        """The number of ids that the model scores."""
        return len(self.numbering.numbers)

    @property
    def eos(self) -> tuple[int, ...]:
        """The ids that end a text; the first has the number `EOS`."""
        return self.numbering.ends


def roles_of(
    config: Any,
    generation_config: Any,
    tokenizer: Any = None,
    *,
    target_language: str | None = None,
    name: str = "the model",
) -> Roles:
    """The roles of a model's ids, from objects of `transformers`. Errors call the model ``name``.

    The generation config comes before the config, and both before the tokenizer. Without a config they are those of
    the tokenizer alone. An id that ends texts has no other role.

    Raises `SgdecError` if no id ends a text, a role's id does not exist, or the tokenizer has an id that the model
    lacks.
    """
    places = [place for place in (generation_config, config, tokenizer) if place is not None]

    def find(role: str) -> list[int]:
        values = [getattr(place, f"{role}_token_id", None) for place in places]
        found: Any = next((value for value in values if value is not None), [])
        ids = list(found) if isinstance(found, list | tuple) else [found]
        if not all(type(id) is int for id in ids):
            raise SgdecError(f"{name}: {role}_token_id is {found!r}; expected a token id.")
        return ids

    spelled = {} if tokenizer is None else {side: pieces_of(tokenizer, side) for side in ("source", "target")}
    for pieces in spelled.values():
        if not pieces or not all(type(id) is int and id >= 0 for id in pieces):
            raise SgdecError(f"{name}: the tokenizer has no pieces, or an id is not a number. Its files are damaged.")
    written, read = _rows(config, spelled)
    for side, rows in (("source", read), ("target", written)):
        if type(rows) is not int or not 0 < rows <= VOCABULARY.value:
            raise SgdecError(f"{name}: the vocabulary has {rows!r} tokens. {VOCABULARY.raising}")
        largest = max(spelled.get(side, [0]))
        if largest >= rows:
            raise SgdecError(
                f"{name}: the tokenizer has the id {largest} ({spelled[side][largest]!r}), but the model has only "
                f"the ids 0 to {rows - 1}. They belong to different models."
            )

    eos, bos = find("eos"), next(iter(find("bos")), None)

    def numbered(rows: int, side: str, eos: Sequence[int]) -> Numbering:
        unknown = getattr(tokenizer, "unk_token", None)
        unk = next((id for id, piece in spelled.get(side, {}).items() if piece == unknown), None)
        roles = {"bos": bos, "unk": unk}
        try:
            return Numbering.of(rows, eos=eos, **{role: None if id in eos else id for role, id in roles.items()})
        except ValueError as error:
            place = "eos_token_id and bos_token_id in generation_config.json or config.json"
            raise SgdecError(f"{name}: {error}. Correct {place}.") from None

    numbering = numbered(written, "target", eos)
    shared = written == read and not _separate(tokenizer)
    sources = numbering
    if not shared:
        sources = numbered(read, "source", eos if tokenizer is None else [tokenizer.eos_token_id])
    seq2seq = bool(getattr(config, "is_encoder_decoder", False))
    start, forced = next(iter(find("decoder_start")), bos), next(iter(find("forced_bos")), None)
    for role, id in (("decoder_start", start), ("forced_bos", forced)):
        if id is not None and not 0 <= id < written:
            raise SgdecError(f"{name}: {role}_token_id is {id}, but there are only {written} ids.")
    if target_language is not None:
        language = language_id(tokenizer, target_language)
        if start in (getattr(tokenizer, "lang_code_to_id", None) or {}).values():
            start = language  # as in mBART; later models begin with </s> and force the language
        else:
            forced = language
    return Roles(
        numbering,
        sources,
        seq2seq=seq2seq,
        bos=bos,
        decoder_start=start if seq2seq else None,
        forced_bos=forced,
        forced_eos=tuple(find("forced_eos")),
    )


def read_roles(folder: str | Path, *, target_language: str | None = None) -> Roles:
    """The roles of the ids of a model in a folder, from its configs and from its tokenizer if there is one.

    Reads no weights. Raises `SgdecError` as `roles_of`, and for files that are missing or damaged.
    """
    configs = read_config(folder)
    if configs is None:
        raise SgdecError(f"{folder}: there is no config.json. Expected the folder of a Hugging Face model.")
    tokenizer = read_tokenizer(folder, None, target_language) if has_tokenizer(folder) else None
    if tokenizer is None and target_language is not None:
        raise SgdecError(f"{folder}: there is no tokenizer, so no language {target_language!r}.")
    with reading(folder, "its settings cannot be used"):
        return roles_of(*configs, tokenizer, target_language=target_language, name=str(folder))


def pieces_of(tokenizer: Any, side: str) -> dict[int, str]:
    """The piece of each id."""
    return _pieces(tokenizer, side == "target" and _separate(tokenizer))


@lru_cache(maxsize=8)
def _pieces(tokenizer: Any, own: bool) -> dict[int, str]:
    """`pieces_of`, which takes half a second for 250,000 pieces. ``own``: those of targets that have others."""
    vocabulary = tokenizer.target_encoder if own else tokenizer.get_vocab()
    return {id: piece for piece, id in vocabulary.items()}


def _rows(config: Any, spelled: Mapping[str, Mapping[int, str]]) -> tuple[int, int]:
    """The numbers of ids that a model writes and reads; without a config, those of the tokenizer."""
    if config is None:
        return max(spelled["target"]) + 1, max(spelled["source"]) + 1
    if getattr(config, "share_encoder_decoder_embeddings", True):
        rows = config.get_text_config().vocab_size
        return rows, rows
    return config.decoder_vocab_size, config.vocab_size


def _separate(tokenizer: Any) -> bool:
    """Whether sources and targets have different ids, as in some of Marian's tokenizers."""
    return bool(getattr(tokenizer, "separate_vocabs", False))

"""Folders of models and tokenizers in the layout of Hugging Face's library ``transformers``: the files that say how
text becomes token ids.

Tokenizers come in three layouts: ``tokenizer.json``; a SentencePiece model such as ``spiece.model``; and Marian's
``source.spm``, ``target.spm`` and ``vocab.json``. If a folder contains a folder ``target`` with another tokenizer, as
`sgdec export` writes it, that tokenizer is for targets. Nothing is downloaded, and no code of a folder runs.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from sgdec.errors import SgdecError
from sgdec.io.documents import parse_json, read_document
from sgdec.io.limits import DOCUMENT
from sgdec.text.folder_checks import check_config, check_tokenizer

CONFIG, GENERATION = "config.json", "generation_config.json"
PIECES = ("tokenizer.json", "vocab.json", "vocab.txt", "tekken.json", "*.model", "*.spm", "*.tiktoken")
"""Files with the pieces of a tokenizer: a folder with a tokenizer has at least one of them."""
TEXT = (".json", ".txt", ".model", ".spm", ".tiktoken", ".jinja")
"""The ends of the names of all files that can change how text becomes tokens."""
TEMPLATES = "additional_chat_templates"
"""The folder of further chat templates, of which one can be the default."""
TARGET = "target"
"""The folder of the tokenizer of targets, if they have one of their own."""
EXPECTED = "Expected tokenizer.json, spiece.model, or source.spm, target.spm and vocab.json."


def is_checkpoint(folder: str | Path) -> bool:
    """Whether a folder is a checkpoint or a run of `sgdec train`, whose files have other meanings."""
    for place in ("", "best", "last"):
        try:
            config = parse_json(read_document(Path(folder, place, CONFIG)))
        except (OSError, ValueError, SgdecError):
            continue
        if isinstance(config, dict) and "source_vocab_size" in config and "format" in config:
            return True
    return False


def is_foreign(folder: str | Path) -> bool:
    """Whether a folder has the config of a model, or a tokenizer, and is not one of `sgdec train`."""
    return (Path(folder, CONFIG).is_file() or has_tokenizer(folder)) and not is_checkpoint(folder)


def has_tokenizer(folder: str | Path) -> bool:
    """Whether a folder has the files of a tokenizer."""
    return any(True for pattern in PIECES for _ in Path(folder).glob(pattern))


def text_files(folder: str | Path) -> list[str]:
    """The sorted names of the files that can change how text becomes tokens."""
    names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(TEXT) and entry.is_file()]
    names += [f"{TEMPLATES}/{file.name}" for file in Path(folder, TEMPLATES).glob("*.jinja")]
    own = Path(folder, TARGET)
    return sorted([*names, *(f"{TARGET}/{name}" for name in text_files(own))] if has_tokenizer(own) else names)


def read_config(folder: str | Path) -> tuple[Any, Any] | None:
    """A model's config and generation config, as objects of `transformers`; None for a folder without a model.

    Raises `SgdecError` if a file is damaged, or the architecture is unknown.
    """
    if not Path(folder, CONFIG).is_file():
        return None
    check_config(folder)
    from transformers import AutoConfig, GenerationConfig

    with reading(folder, "the model's config cannot be used"):
        config = AutoConfig.from_pretrained(_path(folder), local_files_only=True, trust_remote_code=False)
        file = GENERATION if Path(folder, GENERATION).is_file() else CONFIG  # as the library itself chooses
        generation = GenerationConfig.from_pretrained(
            _path(folder), file, local_files_only=True, _from_model_config=file == CONFIG
        )
    return config, generation


def read_tokenizer(folder: str | Path, source_language: str | None = None, target_language: str | None = None) -> Any:
    """The tokenizer of a folder, as an object of `transformers`, or a `TwoTokenizers`; for multilingual models with
    the languages of a run.

    Raises `SgdecError` if the folder has none, a file is damaged or too large, the tokenizer has code of its own,
    or it does not know a language.
    """
    found = _read(_path(folder), stamps(folder), str(folder), source_language, target_language)
    own = Path(folder, TARGET)
    return TwoTokenizers(found, read_tokenizer(own)) if has_tokenizer(own) else found


def stamps(folder: str | Path) -> tuple[tuple[str, int, int], ...]:
    """The names, sizes and times of the files of a tokenizer and of the configs: equal stamps = nothing has changed.

    Raises `SgdecError` if there is no tokenizer, or a file is too large.
    """
    if not Path(folder).is_dir():
        raise SgdecError(f"{folder}: no such folder.")
    if not has_tokenizer(folder):
        raise SgdecError(f"{folder}: there are no files of a tokenizer. {EXPECTED}")
    found = []
    for name in text_files(folder):
        status = os.stat(Path(folder, name))
        if status.st_size > DOCUMENT.value:
            raise SgdecError(f"{folder}/{name}: too large, {status.st_size} bytes. {DOCUMENT.raising}")
        found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


class TwoTokenizers:
    """A tokenizer for sources and another one for targets. All attributes are those of the former, except for those
    by which Marian's tokenizers give each side a vocabulary."""

    separate_vocabs = True

    def __init__(self, source: Any, target: Any) -> None:
        self.source, self.target = source, target
        self.target_encoder: dict[str, int] = target.get_vocab()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


@lru_cache(maxsize=4)
def _read(path: str, stamps: object, name: str, source: str | None, target: str | None) -> Any:
    """`read_tokenizer`, which is slow for large vocabularies. ``stamps`` change if a file does."""
    check_tokenizer(name)
    if Path(name, CONFIG).is_file():
        check_config(name)
    from transformers import AutoTokenizer

    given = {key: value for key, value in (("src_lang", source), ("tgt_lang", target)) if value is not None}
    with reading(name, "the tokenizer cannot be used"), no_panics(1, 2):
        found = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False, **given)
        _ = found.all_special_ids, found("a")  # damaged files can fail here first
        if _replaces_code(path, found):  # the library takes its own class of the architecture instead
            raise ValueError("trust_remote_code")
    files = dict.fromkeys(["tokenizer.json", *found.vocab_files_names.values()])
    if not any(Path(path, file).is_file() for file in files):  # the tokenizer would have special tokens only
        raise SgdecError(f"{name}: {type(found).__name__} needs one of the files {', '.join(files)}.")
    for option, language in given.items():
        if not hasattr(found, option):
            raise SgdecError(f"{name}: the tokenizer has no languages; omit the language {language!r}.")
        if language_id(found, language) is None:
            known = [piece for piece in found.all_special_tokens if "_" in piece and "<" not in piece]
            shown = f" It knows {', '.join(known[:5])}, ..." if known else ""
            raise SgdecError(f"{name}: the tokenizer has no language {language!r}.{shown}")
    return found


def language_id(tokenizer: Any, language: str) -> int | None:
    """The id of a language's token, such as ``de_DE``; None if the tokenizer has no such token."""
    piece = getattr(tokenizer, "lang_code_to_token", {}).get(language, language)
    found = tokenizer.convert_tokens_to_ids(piece)
    return found if tokenizer.convert_ids_to_tokens(found) == piece else None


def _replaces_code(path: str, tokenizer: Any) -> bool:
    """Whether a folder's settings name a tokenizer with code of its own, and this is another one."""
    file = Path(path, "tokenizer_config.json")
    settings = parse_json(read_document(file)) if file.is_file() else {}
    own = settings.get("auto_map") or {}
    if isinstance(own, dict) and "AutoTokenizer" not in own:
        return False
    names = {type(tokenizer).__name__.removesuffix("Fast"), *(base.__name__ for base in type(tokenizer).__mro__)}
    return settings.get("tokenizer_class", "").removesuffix("Fast") not in {*names, "PreTrainedTokenizer"}


@contextmanager
def quiet() -> Iterator[None]:
    """Context manager: `transformers` prints no warnings."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def no_panics(*numbers: int) -> Iterator[None]:
    """Context manager: what is written to the file descriptors with these numbers is dropped, by native code too.

    Before a failure in Rust raises an exception, it is printed to 2, with RUST_BACKTRACE on a hundred lines. While a
    tokenizer is loaded, its library prints unknown settings to 1, where the outputs of a command go.
    """
    before = {}
    for number in numbers:
        with suppress(OSError):  # it is closed
            before[number] = os.dup(number)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in before:
        os.dup2(nowhere, number)
    os.close(nowhere)
    try:
        yield
    finally:
        for number, copy in before.items():
            os.dup2(copy, number)
            os.close(copy)


@contextmanager
def reading(folder: str | Path, failure: str) -> Iterator[None]:
    """Context manager: an error of `transformers`, or of code that uses its objects, which can have anything as a
    value, becomes an `SgdecError` that names the damaged file, if there is one."""
    try:
        with quiet():
            yield
    except (ModuleNotFoundError, SgdecError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # the library raises errors of many types; Rust's derive from BaseException
        if type(error).__name__ == "OutOfMemoryError":  # PyTorch's
            raise
        damaged = _damaged(folder)
        if damaged is not None:
            raise SgdecError(f"{folder}/{damaged}: this is not JSON. Copy the folder again.") from None
        if "trust_remote_code" in str(error):
            raise SgdecError(f"{folder}: {failure}: it needs code from its folder, which sgdec never runs.") from None
        raise SgdecError(f"{folder}: {failure}: {reason(error)}.") from None


ADVICE = re.compile(r"weights_only|trust_remote_code|=\s*(True|False)\b", re.IGNORECASE)


def reason(error: BaseException) -> str:
    """The first line of a library's message, without its advice on arguments, which can be unsafe: none of them is an
    option here."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()] or [type(error).__name__]
    whole = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    kept = [sentence for sentence in re.split(r"(?<=[.!?]) ", whole) if not ADVICE.search(sentence)]
    return " ".join(kept).rstrip(".") or type(error).__name__


def _damaged(folder: str | Path) -> str | None:
    """The first JSON file of a folder that cannot be parsed; None if all can."""
    for name in text_files(folder):
        if name.endswith(".json"):
            try:
                parse_json(read_document(Path(folder, name)))
            except (OSError, ValueError):
                return name
    return None


def _path(folder: str | Path) -> str:
    """An absolute path: the library takes a relative one for a name on Hugging Face's site in some places."""
    return os.path.abspath(folder)

"""Checks of the files of a Hugging Face folder before a library gets them, which believes every number that it reads.

`check_config` is about what the classes of configs build lists from; `sgdec_predictors.pretrained.loading` compares a
model with its weights. `check_tokenizer` is about ``tokenizer.json``, which the library `tokenizers` reads.
"""

from __future__ import annotations

import base64
import binascii
import gc
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sgdec.errors import SgdecError
from sgdec.io.documents import parse_json, read_document

MOST_LAYERS = 1 << 14
"""Also the largest number of labels."""
LAYERS = re.compile(r"(n|num|encoder|decoder)_(\w+_)?layers?|num_labels|attention_types")
"""The keys of numbers from which configs build lists."""
MOST_GROWTH = 64
"""The most growth of a text by all steps of a tokenizer together, as a factor."""
UNICODE_GROWTH = 18
"""The growth of one character by Unicode's compatibility forms (U+FDFA), which many tokenizers apply."""
LONGEST_WORD = 1024
"""WordPiece's time for a word is up to the cube of its characters; BERT's limit is 100."""
MOST_PADDING = 1 << 20
STEPS = {"normalizer": "normalizers", "decoder": "decoders", "post_processor": "processors"}
"""The keys of the steps of a tokenizer, with the key of the list in a sequence of such steps."""
CHARSMAP = "precompiled_charsmap"
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError)


def check_config(folder: str | Path) -> None:
    """Raises `SgdecError` if a folder's ``config.json`` would make a config too large, or names another file."""
    file = Path(folder, "config.json")
    config = _object(file)
    if "configuration_files" in config:
        raise SgdecError(f"{file}: configuration_files leads to other configs. Copy the right one to config.json.")
    for key, number in _numbers(config):
        if LAYERS.fullmatch(key) and not 0 <= number <= MOST_LAYERS:
            raise SgdecError(f"{file}: {key} is {number}; expected 0 to {MOST_LAYERS}.")


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in a JSON value with the last key on the way to each."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from _numbers(inside, name)
    elif isinstance(value, list):
        for inside in value:
            yield from _numbers(inside, key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield key, value


def check_tokenizer(folder: str | Path) -> None:
    """Raises `SgdecError` if a ``tokenizer.json`` would use memory or time out of proportion, or names what it lacks.

    Newer forms of the file, such as ``tokenizer.4.0.json``, are checked too.
    """
    settings = Path(folder, "tokenizer_config.json")
    names = _object(settings).get("fast_tokenizer_files", []) if settings.is_file() else []
    if not (isinstance(names, list) and all(type(name) is str and name == os.path.basename(name) for name in names)):
        raise SgdecError(f"{settings}: fast_tokenizer_files names a file outside of the folder.")
    for file in sorted(Path(folder).glob("tokenizer*.json")):
        if file.name != settings.name:
            try:
                tokenizer = _parsed(read_document(file))
                for key, fault in _faults(tokenizer):
                    raise SgdecError(f"{file}: {key}: {fault}.")
            except SgdecError:
                raise
            except RecursionError:
                raise SgdecError(f"{file}: lists and objects lie too deep in each other.") from None
            except MALFORMED as error:
                reason = "this is not JSON" if isinstance(error, ValueError) else "this is not a tokenizer"
                raise SgdecError(f"{file}: {reason}. Copy the folder again.") from None


def _parsed(content: bytes) -> Any:
    """The value in a JSON file with a vocabulary of 100,000 entries, without the time that `parse_json` takes to look
    for deep nesting, and that garbage collections of all objects of a program take."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return json.loads(content)
    finally:
        if collecting:
            gc.enable()


def _faults(tokenizer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The key and the description of each fault."""
    for key in ("normalizer", "decoder"):
        growth, most = 1.0, MOST_GROWTH
        for step in _steps(tokenizer.get(key), STEPS[key]):
            growth *= _growth(step)
            if CHARSMAP in step:
                most = MOST_GROWTH * UNICODE_GROWTH
            if growth > most:
                yield key, f"its replacements make a text more than {most} times as long"
                break
    model = tokenizer["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict) and "merges" not in model and model.get("unk_token") not in vocabulary:
        yield "model", f"the unknown token {model.get('unk_token')!r} is not in the vocabulary"
    if not 0 <= model.get("max_input_chars_per_word", 0) <= LONGEST_WORD:
        yield "model", f"max_input_chars_per_word is {model['max_input_chars_per_word']}, more than {LONGEST_WORD}"
    added = [token["id"] for token in tokenizer.get("added_tokens") or ()]
    listed = vocabulary.values() if isinstance(vocabulary, dict) else [len(vocabulary) - 1]
    largest = max([*added, *listed], default=-1)
    for step in _steps(tokenizer.get("post_processor"), STEPS["post_processor"]):
        for id in _ids(step):
            if not 0 <= id <= largest:
                yield "post_processor", f"it adds the id {id}, but the largest one is {largest}"
    for key in ("padding", "truncation"):
        for name, number in _numbers(tokenizer.get(key)):
            if not 0 <= number <= MOST_PADDING and name != "max_length":  # truncation at 10**30 is none
                yield key, f"{name} is {number}; expected 0 to {MOST_PADDING}"


def _steps(step: Any, inner: str) -> Iterator[dict[str, Any]]:
    """A step, or all steps of a sequence, which can contain sequences. As in the library, the keys tell the kind of a
    step whose ``type`` is missing or wrong."""
    if step is None:
        return
    if inner in step:
        for one in step[inner]:
            yield from _steps(one, inner)
    else:
        yield step


def _growth(step: dict[str, Any]) -> float:
    """The most growth of a text by a step, as a factor of its characters."""
    if "pattern" in step and "content" in step:
        content, pattern = len(step["content"]), step["pattern"]
        if pattern.get("String"):
            return max(1.0, content / len(pattern["String"]))
        return max(1.0, content + _can_be_empty(pattern.get("Regex", "")))
    if "prepend" in step:
        return 1.0 + len(step["prepend"])
    if CHARSMAP in step:
        return max(1.0, _longest(step[CHARSMAP]))
    return 1.0


def _can_be_empty(pattern: str) -> bool:
    """Whether a regular expression may match between two characters; True if that is unknown."""
    try:
        return len(pattern) > LONGEST_WORD or bool(
            re.search(r"\(\?[=!<]|\\[bBAzZG]|[$^|]", pattern) or re.fullmatch(pattern, "")
        )
    except (re.error, RecursionError, OverflowError):
        return True


def _longest(charsmap: str) -> int:
    """The characters of the longest replacement in SentencePiece's map: the bytes of a trie, with their number before
    them, and strings that end with zero bytes."""
    try:
        data = base64.b64decode(charsmap or "", validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
    size = int.from_bytes(data[:4], "little")
    if data and not (size % 4 == 0 and 4 + size <= len(data)):
        raise KeyError("the trie is cut")
    return max((len(text.decode(errors="replace")) for text in data[4 + size :].split(b"\0")), default=0)


def _ids(step: dict[str, Any]) -> list[int]:
    """The ids that a post-processor adds."""
    templates = [id for token in step.get("special_tokens", {}).values() for id in token["ids"]]
    return templates + [step[key][1] for key in ("sep", "cls") if key in step]


def _object(file: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `SgdecError` if there is none."""
    try:
        value = parse_json(read_document(file))
    except OSError as error:
        raise SgdecError(f"{file}: cannot be read ({error.strerror}). Copy the folder again.") from None
    except ValueError:
        raise SgdecError(f"{file}: this is not JSON. Copy the folder again.") from None
    if not isinstance(value, dict):
        raise SgdecError(f"{file}: expected a JSON object. Copy the folder again.")
    return value

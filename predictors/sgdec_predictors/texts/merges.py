r"""Neighbours that no text has as tokens of a BPE of Hugging Face, whatever stands before and after them.

A tokenizer splits a text into parts, and BPE merges the characters of each part: as long as neighbours have an entry
in the list of merges, it merges those whose entry is first, of equal ones the leftmost. Two facts exclude tokens a b
next to each other, for any text around them:

1. **They are in one part.** Then BPE of the characters of a b alone gives a and b. Proof: nothing is ever merged
   across the outer ends of a b, because these are ends of tokens. So what happens inside of a b depends on what is
   inside: each merge there is the first one among all of the part, hence the first one inside, which is what BPE of
   a b alone does next; and it stops when nothing inside can be merged. So if BPE makes one token of the string a b,
   these two tokens never stand next to each other in one part. With ``ignore_merges`` a part that is a token as a
   whole is not merged, and has no neighbours; other parts are merged as above.
2. **No text is split between them.** This depends on the step that splits, and is known of three:

   - none: the whole text is one part;
   - ``Metaspace``: parts begin with ``▁``, and nowhere else;
   - ``ByteLevel`` with its pattern, which is GPT-2's:
     ``'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+``. A match that has a letter, digit
     or mark takes all of its kind that follow, except one of the first seven, which end with a letter that has ``'``
     at most two places before it. A blank before a visible character is never the end of a match: runs of blanks
     leave the last one to it. No match ends inside a character.

   Tokens that were added are read before all this, so a text is also split around them. They are in no pair here.

A vocabulary with ``byte_fallback`` writes characters as bytes only if they have no piece. So the byte of an ASCII
character with a piece is a token of no text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sgdec.context import UNK
from sgdec.vocabularies import PretrainedVocabulary

CONTRACTED = frozenset("stemld")
"""The last letters of the contractions in GPT-2's pattern."""
LONGEST = 3
"""The number of characters of the longest contraction."""


def never_merged(vocabulary: PretrainedVocabulary) -> tuple[list[tuple[int, int]], frozenset[int]]:
    """Pairs of tokens that are next to each other in no text, and tokens of no text; empty if none are known."""
    steps = vocabulary.steps
    if steps is None or not _is_plain(steps["model"]):
        return [], frozenset()
    added = {each["content"] for each in steps["added_tokens"]}
    pieces = {piece for piece in steps["model"]["vocab"] if piece not in added}
    tokens = {piece: token for piece in pieces if (token := vocabulary.token(piece)) != UNK}
    pairs, never = [], set()
    if steps["model"]["byte_fallback"]:
        never = {tokens[byte] for code in range(33, 127) if chr(code) in tokens and (byte := _byte(code)) in tokens}
    together = _together(steps["pre_tokenizer"])
    if together is not None:
        bytes_ = {_byte(code) for code in range(256)}
        parts = tokens.keys() - bytes_
        for whole in _merged(steps["model"], parts):
            for cut in range(1, len(whole)):
                first, second = whole[:cut], whole[cut:]
                if first in parts and second in parts and together(first, second):
                    pairs.append((tokens[first], tokens[second]))
    return pairs, frozenset(never)


def _is_plain(model: dict[str, Any]) -> bool:
    """Whether it merges as described, always in the same way."""
    marks = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    return model["type"] == "BPE" and not model.get("dropout") and not marks


def _merged(model: dict[str, Any], pieces: set[str]) -> list[str]:
    """Those of these pieces that BPE makes of their characters."""
    from tokenizers import Tokenizer

    alone = {"version": "1.0", "added_tokens": [], "model": {**model, "ignore_merges": False}}
    backend: Any = Tokenizer.from_str(json.dumps(alone))
    listed = sorted(pieces)
    found = backend.encode_batch_fast(listed, add_special_tokens=False)
    ids = model["vocab"]
    return [piece for piece, own in zip(listed, found, strict=True) if own.ids == [ids[piece]]]


def _byte(code: int) -> str:
    return f"<0x{code:02X}>"


def _together(step: dict[str, Any] | None) -> Callable[[str, str], bool] | None:
    """Whether no text is split between these two pieces; None if nothing is known of a step."""
    if step is None:
        return lambda first, second: True
    if step["type"] == "Metaspace":
        blank = step["replacement"]
        return lambda first, second: not second.startswith(blank)
    if step["type"] == "ByteLevel":
        return _in_one_match if step.get("use_regex", True) else lambda first, second: True
    return None


def _in_one_match(first: str, second: str) -> bool:
    """Whether matches of GPT-2's pattern that have the end of ``first`` have the beginning of ``second``, too.

    >>> [_in_one_match(*each.split()) for each in ("a b", "the n", "'s a", "1 2", "Ġ a", "Ġ Ġ", "a 1", "! ?")]
    [True, True, False, True, True, False, False, True]
    """
    last, after = first[-1], second[0]
    if _continues(after):
        return True
    if not "!" <= after <= "~":
        return False
    if last == "Ġ":
        return True
    if not "!" <= last <= "~":
        return False
    if last.isalpha() and after.isalpha():
        end = first[-LONGEST:]
        return last.lower() not in CONTRACTED or (len(end) == LONGEST and end.isascii() and end.isalpha())
    return (last.isdigit() and after.isdigit()) or not (last.isalnum() or after.isalnum())


def _continues(character: str) -> bool:
    """Whether it stands for a byte that begins no character, 0x80 to 0xBF.

    GPT-2 writes the bytes 0x80 to 0xA0 and 0xAD as characters from U+0122 on, the others as in Latin-1.
    """
    return "¡" <= character <= "¿" or "Ģ" <= character <= "Ń"

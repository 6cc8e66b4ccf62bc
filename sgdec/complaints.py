"""Pydantic's errors about values in plain words: 'x' should be an integer; trace.nbest is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PHRASES = {
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "unexpected_keyword_argument": "is unknown",
    "union_tag_not_found": "has no {discriminator}",
    "union_tag_invalid": "has the {discriminator} '{tag}', expected one of {expected_tags}",
    "invalid_key": "has a key that is not text",
    "recursion_loop": "contains itself",
    "json_invalid": "is not JSON that can be read",
    "none_required": "should be null",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "int_type": "should be an integer",
    "int_parsing": "should be an integer",
    "int_from_float": "should be an integer",
    "int_parsing_size": "has too many digits",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a finite number",
    "greater_than": "should be above {gt}",
    "greater_than_equal": "should be at least {ge}",
    "less_than": "should be below {lt}",
    "less_than_equal": "should be at most {le}",
    "multiple_of": "should be divisible by {multiple_of}",
    "literal_error": "should be {expected}",
    "enum": "should be {expected}",
    "string_type": "should be text",
    "string_unicode": "should be text in UTF-8",
    "string_too_short": "is too short, expected {min_length} characters or more",
    "string_too_long": "is too long, expected {max_length} characters or fewer",
    "string_pattern_mismatch": "should have the form {pattern}",
    "path_type": "should be the name of a file",
    "bytes_type": "should be text",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "set_type": "should be a list",
    "frozen_set_type": "should be a list",
    "deque_type": "should be a list",
    "iterable_type": "should be a list",
    "sequence_str": "should be a list, not text",
    "too_short": "has {actual_length} values, expected {min_length} or more",
    "too_long": "has {actual_length} values, expected {max_length} or fewer",
    "dict_type": "should be a table of names and values",
    "mapping_type": "should be a table of names and values",
    "dataclass_type": "should be a table of names and values",
    "model_type": "should be a table of names and values",
}
"""The words about a value, by pydantic's type of error; the names in braces are of the error's context."""

OF_NAMES = ("missing", "extra_forbidden", "unexpected_keyword_argument")
"""The types of errors that are about a name: the value that pydantic passes along is not its value."""

LONGEST = 80
"""The characters of a value that are shown."""


def complaint(subject: str, error: Mapping[str, Any]) -> str:
    """A clause about ``subject``, a value or its place in a file, from one of the errors of a ``ValidationError``.

    A validator's own message follows the subject. Types that are not in `PHRASES` are those of annotations of third
    parties, such as dates: their value is only called unsuitable.

    >>> complaint("'x'", {"type": "int_parsing", "msg": "Input should be a valid integer, ..."})
    "'x' should be an integer"
    >>> complaint("--size: 3", {"type": "value_error", "ctx": {"error": ValueError("it is odd")}})
    '--size: 3: it is odd'
    """
    context = error.get("ctx", {})
    if error["type"] in ("value_error", "assertion_error"):
        return f"{subject}: {context['error']}"
    numbers = {name: f"{value:g}" for name, value in context.items() if isinstance(value, float)}
    phrase = PHRASES.get(error["type"], "is unsuitable")
    return f"{subject} {phrase.format_map({**context, **numbers})}"


def shown(value: object) -> str:
    """A value as a subject: its ``repr``, cut if it is long.

    >>> shown("x"), shown("9" * 5000)[70:]
    ("'x'", '999999999...')
    """
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."

"""A generated parallel corpus: English and German number words, 0 to 999,999.

The task is not trivial: German says the ones before the tens and joins them with *und*, and *one* is *ein* before
another word but *eins* at the end. German spelling writes a number as one word; here its parts are separate words, so
that a model can get single words wrong.
"""

from __future__ import annotations

import random
from pathlib import Path

from sgdec.errors import SgdecError, UsageError
from sgdec.io.writing import write_whole

LIMIT = 1_000_000

ONES = {
    "zero": "null", "one": "ein", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs",
    "seven": "sieben", "eight": "acht", "nine": "neun", "ten": "zehn", "eleven": "elf", "twelve": "zwölf",
    "thirteen": "dreizehn", "fourteen": "vierzehn", "fifteen": "fünfzehn", "sixteen": "sechzehn",
    "seventeen": "siebzehn", "eighteen": "achtzehn", "nineteen": "neunzehn",
}  # fmt: skip
TENS = {
    "twenty": "zwanzig", "thirty": "dreißig", "forty": "vierzig", "fifty": "fünfzig", "sixty": "sechzig",
    "seventy": "siebzig", "eighty": "achtzig", "ninety": "neunzig",
}  # fmt: skip
SIZES = {"hundred": "hundert", "thousand": "tausend"}

ENGLISH_ONES, GERMAN_ONES = list(ONES), list(ONES.values())
ENGLISH_TENS, GERMAN_TENS = list(TENS), list(TENS.values())


def english(number: int) -> str:
    """The words of a number from 0 to 999,999.

    >>> english(3421)
    'three thousand four hundred twenty one'
    """
    return " ".join(_english(number))


def german(number: int) -> str:
    """The words of a number from 0 to 999,999.

    >>> german(3421), german(101)
    ('drei tausend vier hundert ein und zwanzig', 'ein hundert eins')
    """
    words = _german(number)
    return " ".join([*words[:-1], "eins" if words[-1] == "ein" else words[-1]])


def _english(number: int) -> list[str]:
    if number < 20:
        return [ENGLISH_ONES[number]]
    if number < 100:
        tens, ones = divmod(number, 10)
        return [ENGLISH_TENS[tens - 2], *(_english(ones) if ones else [])]
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, size)
    return [*_english(count), name, *(_english(rest) if rest else [])]


def _german(number: int) -> list[str]:
    if number < 20:
        return [GERMAN_ONES[number]]
    if number < 100:
        tens, ones = divmod(number, 10)
        return [*([GERMAN_ONES[ones], "und"] if ones else []), GERMAN_TENS[tens - 2]]
    size, name = (1000, "tausend") if number >= 1000 else (100, "hundert")
    count, rest = divmod(number, size)
    return [*_german(count), name, *(_german(rest) if rest else [])]


def draw(seed: int, count: int, limit: int = LIMIT) -> list[int]:
    """``count`` different numbers below ``limit``. Their logarithms are uniform, so that short numbers are as likely
    as long ones.

    Raises `UsageError` if ``count`` is more than half of all numbers.

    >>> len(set(draw(1, 500)))
    500
    """
    if count > limit // 2:
        raise UsageError(f"{count} lines in all are too many: there are {limit} numbers. Raise the limit.")
    rng = random.Random(seed)
    numbers: dict[int, None] = {}
    while len(numbers) < count:
        numbers[int((limit + 1) ** rng.random()) - 1] = None
    return list(numbers)


def write_corpus(directory: Path, seed: int, sizes: dict[str, int], limit: int = LIMIT) -> None:
    """Write ``NAME.en`` and ``NAME.de`` for each name in ``sizes``, with the given number of lines; no number occurs
    twice.

    Raises `SgdecError` if the files cannot be written.
    """
    numbers = iter(draw(seed, sum(sizes.values()), limit))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, size in sizes.items():
            chosen = [next(numbers) for _ in range(size)]
            for language, spell in (("en", english), ("de", german)):
                text = "".join(f"{spell(number)}\n" for number in chosen)
                write_whole(directory / f"{name}.{language}", text)
    except OSError as error:
        raise SgdecError(f"{directory}: cannot be written ({error.strerror}).") from None

"""A parallel corpus that makes itself: English number words and German ones, 0 to 999,999.

The two languages disagree where it hurts: German says the ones before the tens and joins them with *und*, and
*one* is *ein* before another word but *eins* at the end. German writes such a number as one word; here its
parts are apart, as a speaker hears them, so that there are words to get wrong.
"""

from __future__ import annotations

import random
from pathlib import Path

from sgdec.errors import SgdecError

LIMIT = 1_000_000

ENGLISH_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
GERMAN_ONES = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
).split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


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
    return " ".join(words[:-1] + ["eins" if words[-1] == "ein" else words[-1]])


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
    """``count`` different numbers below ``limit``; short ones are as likely as long ones, while there are any.

    >>> len(set(draw(1, 500)))
    500
    """
    rng = random.Random(seed)
    numbers: dict[int, None] = {}
    while len(numbers) < count:
        numbers[int(limit ** rng.random())] = None
    return list(numbers)


def write_corpus(directory: Path, seed: int, sizes: dict[str, int], limit: int = LIMIT) -> None:
    """For each name of ``sizes`` that many line pairs, ``NAME.en`` and ``NAME.de``; no number comes twice.

    Raises `SgdecError` where the files cannot be written.
    """
    numbers = iter(draw(seed, sum(sizes.values()), limit))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, size in sizes.items():
            chosen = [next(numbers) for _ in range(size)]
            for language, spell in (("en", english), ("de", german)):
                text = "".join(f"{spell(number)}\n" for number in chosen)
                (directory / f"{name}.{language}").write_text(text, encoding="utf-8")
    except OSError as error:
        raise SgdecError(f"{directory}: cannot be written ({error.strerror}).") from None

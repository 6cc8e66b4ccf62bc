"""Make sentences about people, the records of these in JSON, and the schema of the records.

    python records.py FOLDER [PAIRS [TESTS]]

    Ida, aged 41, speaks Welsh and lives in Cork    {"name":"Ida","age":41,"city":"Cork","languages":["cy"]}

In the texts to train and to validate, one record in three has an older form, which the schema does not allow:
``{"name":"Ida","age":"41","place":"Cork","languages":"cy"}``. The texts to test have none.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from making import Pair, misspelled, write_lines, write_parts

NAMES = "Ada Ben Cleo Dora Emil Finn Greta Hugo Ida Jon Kira Lena Max Nora Otto Pia Rosa Sven Tilda Uma"
CITIES = "Bergen Cork Graz Lille Lyon Oslo Porto Riga Turin Vilnius"
LANGUAGES = {"Danish": "da", "French": "fr", "German": "de", "Irish": "ga", "Polish": "pl", "Welsh": "cy"}
OLDER = 1 / 3
PROPERTIES = {
    "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
    "age": {"type": "integer", "minimum": 18, "maximum": 79},
    "city": {"enum": CITIES.split()},
    "languages": {"type": "array", "items": {"enum": list(LANGUAGES.values())}, "maxItems": 2},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": list(PROPERTIES), "additionalProperties": False}


def pair(draw: random.Random, older: float) -> Pair:
    """``older``: the chance of the older form."""
    name, age, city = draw.choice(NAMES.split()), draw.randrange(18, 80), draw.choice(CITIES.split())
    languages = draw.sample(list(LANGUAGES), draw.randrange(3))
    speaks = f"speaks {' and '.join(languages) or 'no other language'}"
    forms = (
        f"{name}, aged {age}, {speaks} and lives in {city}", f"{name} from {city}, {age} years old, {speaks}",
        f"in {city} lives {name}, {age}, who {speaks}",
    )  # fmt: skip
    codes = [LANGUAGES[language] for language in languages]
    record: dict[str, object] = {"name": name, "age": age, "city": city, "languages": codes}
    if draw.random() < older:
        record = {"name": name, "age": str(age), "place": city, "languages": ",".join(codes)}
    return misspelled(draw.choice(forms), draw, 0.3), json.dumps(record, separators=(",", ":"))


def main(folder: str, pairs: str = "6000", tests: str = "100") -> None:
    draw = random.Random(1)
    write_parts(Path(folder), int(pairs), int(tests), lambda: pair(draw, OLDER), lambda: pair(draw, 0))
    write_lines(Path(folder, "person.json"), [json.dumps(SCHEMA, indent=2)])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Sentences about people and what they say as JSON: the data of this example.

`Ida, aged 41, lives in Kraków.` says `{"name": "Ida", "age": 41, "city": "Kraków"}`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Person: TypeAlias = dict[str, Any]
NAMES = "Ada Ben Cleo Dora Emil Finn Greta Hugo Ida Jon Kira Lena Max Nora Otto Pia Rosa Sven Tilda Uma"
CITIES = "Bergen Cork Graz Kraków Lille Lyon Malmö Oslo Paris Porto Riga Zürich"
AGES = range(18, 80)
SENTENCES = (
    "{name}, aged {age}, lives in {city}.", "{name} from {city} is {age} years old.",
    "In {city} lives {name}, who is {age}.", "At {age}, {name} has moved to {city}.",
)  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}},
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
HABITS: dict[str, Callable[[Person], str]] = {
    "spaced": lambda person: json.dumps(person, ensure_ascii=False),
    "compact": lambda person: json.dumps(person, ensure_ascii=False, separators=(",", ":")),
    "pretty": lambda person: json.dumps(person, ensure_ascii=False, indent=2),
    "tabs": lambda person: json.dumps(person, ensure_ascii=False, indent="\t"),
    "escaped": lambda person: json.dumps(person),
    "newline": lambda person: f"\n{json.dumps(person, ensure_ascii=False)}",
    "line": lambda person: f"{json.dumps(person, ensure_ascii=False)}\n",
    "fenced": lambda person: f"```json\n{json.dumps(person, ensure_ascii=False, indent=2)}\n```",
    "reversed": lambda person: json.dumps(dict(reversed(person.items())), ensure_ascii=False),
}
"""How a model may have learned to write an answer."""
QUESTIONS = 40


def draw_person(draw: random.Random) -> Person:
    return {"name": draw.choice(NAMES.split()), "age": draw.choice(AGES), "city": draw.choice(CITIES.split())}


def held_out() -> list[tuple[str, Person]]:
    """The questions that no model is trained on, with their answers."""
    draw = random.Random(40)
    people = [draw_person(draw) for _ in range(QUESTIONS)]
    return [(SENTENCES[number % len(SENTENCES)].format(**person), person) for number, person in enumerate(people)]


def examples(seed: int) -> Iterator[tuple[str, Person]]:
    """Questions for training, without an end; they are about none of the people in the held-out ones."""
    draw = random.Random(seed)
    others = [person for _, person in held_out()]
    while True:
        person = draw_person(draw)
        if person not in others:
            yield draw.choice(SENTENCES).format(**person), person


def is_right(text: str, person: Person) -> bool:
    """Whether a text is JSON, and says what is asked for."""
    try:
        return bool(json.loads(text) == person)
    except ValueError:
        return False

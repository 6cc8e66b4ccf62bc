"""The promise of ``examples/chat``: sgdec and transformers read its folders alike, models are trained on the answers
to other questions than the held-out ones, and the masks of the comparison allow right answers."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import sgdec
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow
MODULES = ("people", "make_models", "compare")


@pytest.fixture(scope="module")
def example() -> Iterator[dict[str, Any]]:
    """The scripts, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "chat"))
        yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture(scope="module", params=["gpt2-bytes-chatml", "llama-pieces-inst"])
def folder(request: pytest.FixtureRequest, example: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model after one step of training."""
    folder: Path = tmp_path_factory.mktemp("chat") / request.param
    example["make_models"].make(request.param, folder, "spaced", 1)
    return folder


def prompts(folder: Path, questions: list[str]) -> list[list[int]]:
    """As transformers reads them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    chats = [[{"role": "user", "content": question}] for question in questions]
    found: list[list[int]] = tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=False)
    return found


def test_the_folder_is_read_alike_by_sgdec_and_by_transformers(folder: Path, example: dict[str, Any]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    questions = [question for question, _ in example["people"].held_out()][:4]
    model, tokenizer = (kind.from_pretrained(folder) for kind in (AutoModelForCausalLM, AutoTokenizer))
    run = sgdec.load("hf", "greedy", hf={"model": str(folder), "chat": True}, max_length=6)
    for result, prompt in zip(run.decode(questions), prompts(folder, questions), strict=True):
        output = model.eval().generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False)
        assert result.best.text == tokenizer.decode(output[0, len(prompt) :], skip_special_tokens=True)


def test_the_labels_are_the_answers_with_their_end(folder: Path, example: dict[str, Any]) -> None:
    make_models, people = example["make_models"], example["people"]
    tokenizer = example["compare"].AutoTokenizer.from_pretrained(folder)
    chats = [(question, people.HABITS["pretty"](person)) for question, person in people.held_out()[:4]]
    ids, mask, labels = make_models.batch_of(tokenizer, chats)
    asked = prompts(folder, [question for question, _ in chats])
    for row, (_, answer) in enumerate(chats):
        learned = labels[row][labels[row] != make_models.IGNORED].tolist()
        assert learned[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(learned[:-1]).strip() == answer
        assert ids[row][mask[row].bool()].tolist() == asked[row] + learned


def test_the_masks_allow_right_answers_and_then_their_end(folder: Path, example: dict[str, Any]) -> None:
    import torch

    people, compare = example["people"], example["compare"]
    tokenizer = compare.AutoTokenizer.from_pretrained(folder)
    schema = folder / "person.json"
    schema.write_text(json.dumps(people.SCHEMA))
    allowed = compare.masks(tokenizer, schema, 0)
    for habit in ("spaced", "compact", "pretty"):
        ids = tokenizer.encode(people.HABITS[habit](people.held_out()[0][1]), add_special_tokens=False)
        for place, token in enumerate([*ids, tokenizer.eos_token_id]):
            assert token in allowed(0, torch.tensor(ids[:place], dtype=torch.long)), (habit, place)
        assert tokenizer.eos_token_id not in allowed(0, torch.tensor(ids[:-1]))


def test_held_out_questions_are_about_others_and_answers_are_judged_by_their_value(example: dict[str, Any]) -> None:
    import jsonschema

    people = example["people"]
    questions = people.held_out()
    trained_on = [person for _, person in islice(people.examples(2), 4800)]
    assert len(questions) == 40
    assert not [person for _, person in questions if person in trained_on]
    for question, person in questions:
        assert all(str(value) in question for value in person.values())
        jsonschema.validate(person, people.SCHEMA)
        assert {habit for habit, write in people.HABITS.items() if not people.is_right(write(person), person)} == {
            "fenced"
        }
        assert not people.is_right(json.dumps({**person, "age": person["age"] + 1}), person)
        assert not people.is_right(json.dumps(person)[:-1], person)

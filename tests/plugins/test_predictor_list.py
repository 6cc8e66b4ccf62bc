"""The promise of ``--predictors``: every part has one name, and what is no such list is one clear line."""

from __future__ import annotations

import pytest

from sgdec.errors import UsageError
from sgdec.plugins.predictor_list import parse_predictors

# The list, and for each entry its (name, plugin) pairs from the outside in.
CASES = [
    ("nmt", [[("nmt", "nmt")]]),
    ("nmt,fst", [[("nmt", "nmt")], [("fst", "fst")]]),
    (" nmt , fst ", [[("nmt", "nmt")], [("fst", "fst")]]),
    ("nmt,nmt,nmt", [[("nmt", "nmt")], [("nmt2", "nmt")], [("nmt3", "nmt")]]),
    ("l2r=nmt,r2l=nmt", [[("l2r", "nmt")], [("r2l", "nmt")]]),
    ("l2r=nmt,nmt", [[("l2r", "nmt")], [("nmt", "nmt")]]),
    ("idxmap:nmt", [[("idxmap", "idxmap"), ("nmt", "nmt")]]),
    ("l2r=idxmap:nmt", [[("idxmap", "idxmap"), ("l2r", "nmt")]]),
    (
        "nmt,a:b:nmt,b:a:nmt",
        [
            [("nmt", "nmt")],
            [("a", "a"), ("b", "b"), ("nmt2", "nmt")],
            [("b2", "b"), ("a2", "a"), ("nmt3", "nmt")],
        ],
    ),
    ("a:a:nmt", [[("a", "a"), ("a2", "a"), ("nmt", "nmt")]]),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_list_becomes_named_chains(text: str, expected: list[list[tuple[str, str]]]) -> None:
    entries = parse_predictors(text)
    assert [[tuple(part) for part in entry.parts] for entry in entries] == expected


def test_the_outermost_name_is_the_ledgers() -> None:
    assert [entry.name for entry in parse_predictors("l2r=idxmap:nmt,x=fst")] == ["idxmap", "x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a name is missing in entry 1"),
        ("nmt,,fst", "a name is missing in entry 2"),
        ("nmt,", "a name is missing in entry 2"),
        ("nmt:", "a name is missing in entry 1"),
        ("=nmt", "a name is missing in entry 1"),
        ("a=b=nmt", "'a=b' is not a name in entry 1"),
        ("a:b=nmt", "'a:b' is not a name in entry 1"),
        ("n mt", "'n mt' is not a name in entry 1"),
        ("nmt,a.b=fst", "'a.b' is not a name in entry 2"),
    ],
)
def test_what_is_no_list_says_which_entry_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_predictors(text)
    assert str(caught.value) == (
        f"--predictors {text!r}: {message}. Expected a comma list of [NAME=][WRAPPER:]...PREDICTOR, "
        "such as 'nmt,fst' or 'l2r=nmt,fst'."
    )


@pytest.mark.parametrize(
    ("text", "name"), [("fst=nmt,fst", "fst"), ("nmt2=fst,nmt,nmt", "nmt2"), ("a=nmt,a=nmt", "a")]
)
def test_two_parts_of_one_name_are_refused(text: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' names two parts. Rename one"):
        parse_predictors(text)


def test_a_part_cannot_have_the_decoders_name() -> None:
    assert parse_predictors("nmt", taken=["beam"])
    with pytest.raises(UsageError, match="'beam' is the decoder"):
        parse_predictors("beam=nmt", taken=["beam"])

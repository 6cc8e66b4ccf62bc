"""Outputs are read from every format that holds them, and a file that does not fit is refused in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sgdec.errors import SgdecError
from sgdec.io.outputs import StoredHypothesis, format_of, read_outputs

LISTS = [[StoredHypothesis("ein Hund", -1.5), StoredHypothesis("ein Hut", -2.0)], [StoredHypothesis("ja", -0.25)]]
NBEST = "1 ||| ein Hund ||| nmt= -1 ||| -1.5\n1 ||| ein Hut ||| nmt= -2 ||| -2.0\n2 ||| ja ||| nmt= -1 ||| -0.25\n"
JSON = "".join(
    json.dumps({"id": number, "hypotheses": [{"text": text, "score": score} for text, score in listed]}) + "\n"
    for number, listed in enumerate(LISTS, 1)
)


@pytest.mark.parametrize(("content", "format"), [(NBEST, "nbest"), (JSON, "jsonl")])
def test_lists_are_read_from_both_formats(content: str, format: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(content)
    outputs = read_outputs(str(tmp_path / "x"))
    assert outputs.format == format and outputs.lists == LISTS
    assert outputs.texts == ["ein Hund", "ja"]


def test_lines_are_outputs_without_scores_and_gzip_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"ein Hund\n\nja\n"))
    outputs = read_outputs(str(tmp_path / "x.gz"))
    assert outputs.format == "text"
    assert outputs.best == [
        StoredHypothesis("ein Hund", None),
        StoredHypothesis("", None),
        StoredHypothesis("ja", None),
    ]


def test_lists_that_count_from_0_are_those_that_count_from_1(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(NBEST.replace("1 |||", "0 |||").replace("2 |||", "1 |||"))
    assert read_outputs(str(tmp_path / "x")).lists == LISTS


def test_a_sentence_that_failed_has_the_empty_output(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(JSON + '{"id": 3, "hypotheses": [], "error": "no path"}\n')
    outputs = read_outputs(str(tmp_path / "x"))
    assert outputs.lists[2] == [] and outputs.best[2] == StoredHypothesis("", None)


def test_sentences_that_an_nbest_list_leaves_out_have_failed(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("2 ||| ja ||| -1\n4 ||| nein ||| -2\n")
    outputs = read_outputs(str(tmp_path / "x"))
    assert [bool(listed) for listed in outputs.lists] == [False, True, False, True]
    filled = outputs.filled(6)
    assert len(filled.lists) == 6 and filled.missing == 4 and filled.filled(3) is filled
    (tmp_path / "x").write_text(JSON)
    assert len(read_outputs(str(tmp_path / "x")).filled(6).lists) == 2, "JSON lines have a line for each sentence"


def test_files_name_the_predictors_of_their_scores(tmp_path: Path) -> None:
    def weights(content: str) -> object:
        (tmp_path / "x").write_text(content)
        return read_outputs(str(tmp_path / "x")).weights

    row = '{"id": 1, "hypotheses": []}\n{"id": 2, "hypotheses": [{"text": "a", "score": -1%s}]}\n'
    assert weights(row % ', "weights": {"nmt": 1, "wc": null, "lm": NaN}') == {"nmt": 1.0, "wc": None, "lm": None}
    assert weights(row % "") == weights("1 ||| ja ||| -1\n") == weights("ja\n") == {}
    assert weights(NBEST) == {"nmt": None}


@pytest.mark.parametrize("text", ["", '"text": null, '])
def test_token_ids_without_text_are_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(f'{{"id": 1, "hypotheses": [{{"tokens": [5, 70], {text}"score": -1}}]}}\n')
    assert read_outputs(str(tmp_path / "x")).texts == ["5 70"]


@pytest.mark.parametrize("score", ["-Infinity", "NaN", "1e200"])
def test_scores_that_cannot_be_summed_are_missing(score: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(f'{{"id": 1, "hypotheses": [{{"text": "a", "score": {score}}}]}}\n')
    assert read_outputs(str(tmp_path / "x")).best == [StoredHypothesis("a", None)]


@pytest.mark.parametrize("line", ["", "5 7 6", "{}", '{"id": 1}', "{hypotheses}", "a ||| b", "[1]", "||| ja"])
def test_other_first_lines_are_text(line: str) -> None:
    assert format_of(line) == "text"


def test_a_given_format_is_taken(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(NBEST)
    assert read_outputs(str(tmp_path / "x"), "text").texts == NBEST.splitlines()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x: the file has no lines"),
        (b"ja\n\xff\n", "x: line 2 is not UTF-8"),
        (b"1 ||| ja\n2000000000 ||| ja\n", "x: line 2: the id is too large. Expected at most 10,000,000 sentences."),
        (b"1 ||| ja\nnein\n", "x: line 2 does not begin with a sentence id"),
        (b'{"id": 2, "hypotheses": []}\n', "x: sentence 1 is missing; the next one is 2"),
        (b'{"id": 1, "hypotheses": []}\n' * 2, "x: sentence 2 is missing; the next one is 1"),
        (b'{"id": 1, "hypotheses": []}\nja\n', "x: line 2 is not a result of"),
        (b'{"id": true, "hypotheses": []}\n', "x: line 1 is not a result of"),
        (b'{"id": 1, "hypotheses": [3]}\n', "x: line 1 is not a result of"),
        (b'{"id": 1, "hypotheses": [{"text": 3, "score": 0}]}\n', "x: line 1 is not a result of"),
        (b'{"id": 1, "hypotheses": [{"text": "\\ud800", "score": 0}]}\n', "x: line 1 is not a result of"),
        (b'{"id": 1, "hypotheses": [{"text": "a", "score": null}]}\n', "x: line 1 is not a result of"),
    ],
)
def test_bad_files_are_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SgdecError, match=message):
        read_outputs(str(tmp_path / "x"))


def test_a_trace_is_refused_in_place_of_outputs(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"event":"trace","version":1}\n')
    with pytest.raises(SgdecError, match=r"x is a trace\. Expected outputs"):
        read_outputs(str(tmp_path / "x"))
    assert read_outputs(str(tmp_path / "x"), "text").texts == ['{"event":"trace","version":1}']

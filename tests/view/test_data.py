"""The data of a page are JSON, and have everything that the traces have."""

from __future__ import annotations

import gzip
import json
import math
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from sgdec.trace.records import Bound, Fate, SentenceTrace
from sgdec.view.data import OVERVIEW, REASONS, packed, page_data, sentence_data
from sgdec.view.runs import TracedRun
from sgdec.view.tree import prefixes
from tests.helpers.traced_runs import Model, on_lattice, random_traces, traced

HEADER = traced(sources=[[3]]).header


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(b64decode(text, validate=True)))


@given(random_traces())
def test_columns_of_a_tree_are_its_prefixes(trace: SentenceTrace) -> None:
    data = sentence_data([TracedRun("x", HEADER, {}, [trace])], 1)
    tree, columns = prefixes(trace), data["searches"][0]["tree"]
    assert columns["parent"] == [-1 if prefix.parent is None else prefix.parent for prefix in tree]
    assert columns["token"] == [-1 if prefix.token is None else prefix.token for prefix in tree]
    assert columns["total"] == [prefix.total for prefix in tree]
    assert columns["fate"] == [prefix.fate for prefix in tree]
    assert columns["rank"] == [-1 if prefix.rank is None else prefix.rank for prefix in tree]
    assert columns["times"] == [len(prefix.expansions) for prefix in tree]


def test_expansions_have_what_predictors_said() -> None:
    run = on_lattice(sources=[[3, 4, 5]])
    (trace,) = run.sentences
    search = sentence_data([run], 1)["searches"][0]
    tree = prefixes(trace)
    for expansion, found in zip(trace.expansions, search["expansions"], strict=True):
        assert expansion.number in tree[found["place"]].expansions
        assert found["candidates"] == expansion.candidates and found["rest"] == expansion.rest
        assert found["where"] == expansion.place
        alone = [each and (each.token, *each.forbidden_by) for each in expansion.alone]
        assert [each and (each[0], *each[2]) for each in found["alone"]] == alone
        assert math.isclose(sum(found["attention"]["nmt"]), 1.0, abs_tol=1e-3)
    ranks = [tree[hypothesis["place"]].rank for hypothesis in search["hypotheses"]]
    assert ranks == list(range(len(trace.hypotheses)))


def test_recombined_prefixes_lead_to_those_that_represent_both() -> None:
    run = on_lattice(sources=[[3, 4, 5]])
    (trace,) = run.sentences
    expansion = next(each for each in trace.expansions if each.number > 0)
    token = expansion.tokens[0]
    other = trace.expansions[0].tokens[1]
    changed = replace(expansion, into={token: (0, other)})
    records = tuple(changed if each.number == expansion.number else each for each in trace.expansions)
    trace = replace(trace, expansions=records)
    (pair,) = sentence_data([replace(run, sentences=[trace])], 1)["searches"][0]["recombined"]
    tree = prefixes(trace)
    assert (tree[pair[0]].token, tree[pair[1]].token) == (token, other)
    assert tree[pair[1]].parent == 0


def test_notes_of_the_decoder_are_those_of_a_prefix() -> None:
    run = on_lattice(sources=[[3, 4, 5]])
    (trace,) = run.sentences
    first = trace.expansions[0]
    changed = replace(first, notes={first.tokens[0]: ("group 1", "group 3")})
    trace = replace(trace, expansions=(changed, *trace.expansions[1:]))
    ((place, note),) = sentence_data([replace(run, sentences=[trace])], 1)["searches"][0]["notes"].items()
    tree = prefixes(trace)
    assert (tree[int(place)].token, tree[int(place)].parent, note) == (first.tokens[0], 0, ["group 1", "group 3"])


def test_infinities_become_null_and_everything_is_json() -> None:
    run = traced(sources=[[3]])
    trace = replace(run.sentences[0], bounds=(Bound(1, math.inf, None), Bound(2, -1.0, -2.0)), gap=math.inf)
    data = sentence_data([replace(run, sentences=[trace])], 1)
    (search,) = unpacked(packed(data))["searches"]
    assert search["bounds"] == [[1, None, None], [2, -1.0, -2.0]] and search["gap"] is None


def test_every_fate_has_words() -> None:
    assert set(REASONS) == set(Fate)


def test_a_wide_search_shows_a_part_first() -> None:
    run = traced(predictors={"nmt": Model(1, 9)}, sources=[[3, 4, 5, 6]], size=60)
    (trace,) = run.sentences
    assert len(trace.expansions) > OVERVIEW
    assert len(sentence_data([run], 1)["searches"][0]["shown"]) == OVERVIEW


def test_packed_data_are_the_data_and_the_same_text_each_time() -> None:
    data = sentence_data([traced(sources=[[3, 4, 5]])], 1)
    assert unpacked(packed(data)) == json.loads(json.dumps(data))
    assert b64decode(packed(data))[4:8] == bytes(4), "no time of packing"
    assert unpacked(packed({"text": "</script>\x00\ud800é"})) == {"text": "</script>\x00?é"}
    with pytest.raises(ValueError, match="JSON"):
        packed({"score": math.nan})


def test_the_sentences_of_a_page_are_those_of_all_runs() -> None:
    one = traced(sources=[[3, 4], [5], [6]])
    other = replace(one, sentences=one.sentences[1:2])
    runs = [replace(one, sentences=one.sentences[:2]), replace(one, sentences=one.sentences[1:])]
    assert page_data(runs)["ids"] == [1, 2, 3]
    first, second = sentence_data([one, other], 1), sentence_data([one, other], 2)
    assert first["searches"][1] is None and first["parting"] is None
    assert None not in second["searches"] and second["parting"]["step"] is None

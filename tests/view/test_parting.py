"""Two runs: where they part, by how much each predictor differs, and where a run lost the other's output."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sgdec import Source, UsageError
from sgdec.view.layout import path
from sgdec.view.parting import Parting, parting
from sgdec.view.runs import TracedRun, require_same_sources
from sgdec.view.tree import prefixes
from tests.helpers.traced_runs import Model, on_lattice, renamed, traced

GREEDY = traced("greedy", nbest=1)
BEAM = traced("beam", size=12)


def parted(one: TracedRun, other: TracedRun, id: int) -> Parting:
    traces = [one.by_id[id], other.by_id[id]]
    return parting([one, other], traces, [prefixes(trace) for trace in traces])


@pytest.mark.parametrize("id", [1, 2, 3])
def test_runs_part_at_the_first_token_that_differs(id: int) -> None:
    found = parted(GREEDY, BEAM, id)
    one, other = ((*run.by_id[id].hypotheses[0].tokens, 2) for run in (GREEDY, BEAM))
    differing = [step for step, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]]
    assert found.step == (differing[0] if differing else None)


def test_some_of_these_runs_part_and_equal_runs_do_not() -> None:
    assert any(parted(GREEDY, BEAM, id).step is not None for id in (1, 2, 3))
    assert parted(BEAM, BEAM, 1).step is None


@pytest.mark.parametrize("id", [1, 2, 3])
def test_sums_by_predictor_are_those_of_the_models_and_add_up_to_the_score(id: int) -> None:
    for run, sums in zip((GREEDY, BEAM), parted(GREEDY, BEAM, id).sums, strict=True):
        trace = run.by_id[id]
        (best,) = trace.hypotheses[:1]
        assert sum(sums.values()) == pytest.approx(best.score)
        for (name, found), model, weight in zip(sums.items(), (Model(1), Model(2)), (1.0, 0.5), strict=True):
            model.initialize(Source(id, trace.tokens))
            expected = 0.0
            for token in (*best.tokens, 2):
                expected += float(model.predict_next().values[0, token])
                model.consume(token)
            assert found == pytest.approx(weight * expected), name


@pytest.mark.parametrize("id", [1, 2, 3])
def test_the_other_output_is_followed_as_far_as_the_tree_goes(id: int) -> None:
    for place, (run, other) in enumerate([(GREEDY, BEAM), (BEAM, GREEDY)]):
        tree = prefixes(run.by_id[id])
        missed = parted(GREEDY, BEAM, id).missed[place]
        assert missed is not None
        output = (*other.by_id[id].hypotheses[0].tokens, 2)
        known = {tuple(tree[at].token for at in path(tree, end)[1:]) for end in range(len(tree))}
        longest = max(length for length in range(len(output) + 1) if output[:length] in known)
        assert tuple(tree[at].token for at in path(tree, missed.place)[1:]) == output[:longest]
        assert missed.complete == (longest == len(output))


def test_runs_without_an_output_have_nothing_to_compare() -> None:
    failed = traced("beam", {"nmt": Model(1)}, sources=[[3, 4, 5, 6]])
    trace = replace(failed.sentences[0], hypotheses=())
    none = replace(failed, sentences=[trace])
    found = parted(none, BEAM, 1)
    assert found.step is None and found.sums[0] == {} and found.missed[1] is None


def test_runs_of_other_sources_are_refused_with_the_first_difference() -> None:
    other = traced(sources=[[3, 4, 5, 6], [8, 8]], name="other.jsonl")
    with pytest.raises(UsageError, match=r"different sources: sentence 2 is '7 8 9' and '8 8'\. Give two traces"):
        require_same_sources([BEAM, other])


def test_runs_without_a_common_sentence_are_refused() -> None:
    other = replace(BEAM, sentences=[replace(BEAM.sentences[0], id=9)])
    with pytest.raises(UsageError, match=r"no sentence in common\. Give two traces of the same input"):
        require_same_sources([BEAM, other])


def test_texts_are_compared_if_there_are_any() -> None:
    require_same_sources([renamed(BEAM, "a"), renamed(on_lattice(), "a")])
    with pytest.raises(UsageError, match="sentence 1 is 'a' and 'b'"):
        require_same_sources([renamed(BEAM, "a"), renamed(BEAM, "b")])

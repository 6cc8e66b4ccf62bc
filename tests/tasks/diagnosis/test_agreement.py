"""Agreement counts the steps at which predictors have one best token, and the same one."""

from __future__ import annotations

from sgdec.context import EOS
from sgdec.tasks.diagnosis.agreement import agreement
from sgdec.tasks.diagnosis.following import NO_TOKEN, FollowedPath, FollowedStep


def path(*best: int) -> FollowedPath:
    return FollowedPath(tuple(FollowedStep(token, 0.5, 0.1) for token in best), None)


def test_only_steps_with_one_best_token_each_count() -> None:
    outputs = [(4, 5), None, (6,)]
    paths = {
        "a": [path(4, 7, EOS), None, path(6, EOS)],
        "b": [path(4, NO_TOKEN, 9), None, path(8, EOS)],
        "c": [None, None, path(8)],  # has failed, and has stopped at a token that it forbids
    }
    found = agreement(outputs, paths)
    assert found.taken == {"a": (4, 5), "b": (2, 4), "c": (0, 1)}
    assert found.same == {("a", "b"): (2, 4), ("a", "c"): (0, 1), ("b", "c"): (1, 1)}
    assert found.taken["a"].share == 0.8


def test_without_steps_there_is_no_share() -> None:
    assert agreement([()], {"a": [path(NO_TOKEN)]}).taken["a"].share is None

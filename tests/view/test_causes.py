"""What the page of two runs says about the end of the other's output is its planted cause, and blames nobody else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgdec import EOS
from sgdec.testing.toys import Lattice, Table
from sgdec.view.page import page
from sgdec.view.runs import TracedRun
from tests.helpers.browsing import Reader, chromium
from tests.helpers.traced_runs import SHOWN, traced

pytestmark = pytest.mark.slow

V = 9
BAD = -float("inf")


def table(**rows: dict[int, float]) -> Table:
    """A bigram model: ``r3`` is the row after token 3. Tokens without a score have -5."""
    scores = np.full((V, V), -5.0)
    for name, row in rows.items():
        for token, score in row.items():
            scores[int(name[1:]), token] = score
    return Table(scores)


def run(decoder: str = "beam", lm: dict[str, Any] | None = None, **options: Any) -> TracedRun:
    """The trace of a search for one sentence."""
    predictors = options.pop("predictors")
    size = {"size": options.pop("size", 1)} if decoder in ("beam", "vanilla") else {}
    return traced(
        decoder, predictors, sources=[[3, 4]], nbest=options.pop("nbest", 1),
        weights=options.pop("weights", (1.0,) * len(predictors)), **size, **options,
    )  # fmt: skip


LIKES_5 = table(r1={5: -0.1, 4: -1.0, 3: -2.0}, r5={EOS: -0.1}, r4={EOS: -0.1}, r3={EOS: -0.1})
WITHOUT_5 = table(r1={5: BAD, 4: -1.0}, r4={EOS: -0.1})
ONLY_4 = Lattice({0: {4: (-0.5, 1)}, 1: {EOS: (-0.1, 9)}})
TO_5 = Lattice({0: {5: (-0.5, 1)}, 1: {EOS: (-0.1, 9)}})
TO_3 = Lattice({0: {3: (-0.5, 1)}, 1: {EOS: (-0.1, 9)}})
ALONE_5 = run(predictors={"lm": LIKES_5})
MODELS = {"nmt": LIKES_5, "lm": LIKES_5}
# The first step prefers 4, the second makes 5 better in all.
LATE = table(r1={4: -0.5, 5: -0.7, 3: -3.0}, r4={EOS: -4.0}, r5={EOS: -0.1}, r3={EOS: -0.1})
LATE_5 = run(predictors={"lm": LATE}, size=3)
# 3 6 and 4 6 meet in one state.
MEETING = table(r1={3: -0.5, 4: -0.6}, r3={6: -0.5}, r4={6: -0.5}, r6={EOS: -0.1})
VIA_4 = Lattice({0: {4: (-0.5, 1)}, 1: {6: (0.0, 2)}, 2: {EOS: (0.0, 9)}})
# Three tokens and the end.
LONG = table(r1={5: -0.1}, r5={6: -0.1}, r6={7: -0.1}, r7={EOS: -0.1})
ENDING = table(r1={5: -0.1}, r5={EOS: -0.1, 6: -0.3}, r6={EOS: -3.5}, r7={EOS: -0.1})

CASES: dict[str, tuple[TracedRun, TracedRun, str]] = {
    "forbidden by the first predictor": (
        run(predictors={"nmt": WITHOUT_5, "lm": LIKES_5}), ALONE_5,
        "after <s>. The next token, ▁w5, is forbidden by nmt.",
    ),
    "forbidden by the second predictor": (
        run(predictors={"lm": LIKES_5, "fst": ONLY_4}), ALONE_5,
        "after <s>. The next token, ▁w5, is forbidden by fst.",
    ),
    "forbidden by both": (
        run(predictors={"nmt": WITHOUT_5, "lm": LIKES_5, "fst": ONLY_4}), ALONE_5,
        "after <s>. The next token, ▁w5, is forbidden by nmt and fst.",
    ),
    "forbidden by the only predictor": (
        run(predictors={"fst": ONLY_4}), ALONE_5,
        "after <s>. The next token, ▁w5, is forbidden by fst.",
    ),
    "forbidden by one that the trace does not name": (
        run(predictors={"lm": LIKES_5, "fst": ONLY_4}), run(predictors={"lm": LIKES_5, "fst": TO_3}),
        "after <s>. The next token, ▁w3, is forbidden; the trace does not say by which predictor.",
    ),
    "beam full": (run(predictors={"lm": LATE}), LATE_5, "at ▁w5: the beam was full."),
    "beam full, of arrays": (run("vanilla", predictors={"lm": LATE}), LATE_5, "at ▁w5: the beam was full."),
    "beam full, not listed": (
        run(predictors={"lm": LATE}, children=1), LATE_5,
        "after <s>. The next token, ▁w5, is not among the continuations that the trace lists: the beam was full; "
        "unless a predictor forbids it.",
    ),
    "local pruning": (
        run(predictors={"lm": LATE}, size=3, prune_local=0.1), LATE_5,
        "at ▁w5: pruned: too far below its best sibling.",
    ),
    "local pruning, of arrays": (
        run("vanilla", predictors={"lm": LATE}, size=3, prune_local=0.1), LATE_5,
        "at ▁w5: pruned: too far below its best sibling.",
    ),
    "local pruning or beam full, not listed": (
        run(predictors={"lm": LATE}, size=3, prune_local=1.0, children=1),
        run(predictors={"lm": LATE, "fst": TO_3}, size=3),
        "after <s>. The next token, ▁w3, is not among the continuations that the trace lists: the beam was full, or "
        "it was pruned: too far below its best sibling; unless a predictor forbids it.",
    ),
    "final pruning": (
        run(predictors={"lm": ENDING}, size=4, prune_final=0.5, stop="full", nbest=2),
        run(predictors={"lm": ENDING, "fst": Lattice({0: {5: (0.0, 1)}, 1: {6: (0.0, 2)}, 2: {EOS: (0.0, 9)}})}),
        "pruned: finished, too far below the best finished hypothesis.",
    ),
    "bound": (
        run("dfs", predictors={"lm": LATE}), run(predictors={"lm": LATE}),
        "no hypothesis that begins with it can enter the list.",
    ),
    "recombined": (
        run(predictors={"lm": MEETING}, size=3, recombine=True), run(predictors={"lm": MEETING, "fst": VIA_4}),
        "at ▁w4 ▁w6: recombined with “▁w3 ▁w6”.",
    ),
    "length limit": (
        run(predictors={"lm": LONG}, max_length=1), run(predictors={"lm": LONG}, max_length=5),
        "after ▁w5. The next token, ▁w6, exceeds the length limit of 1 token: only </s> can follow.",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[TracedRun, TracedRun], list[str]]]:
    """What the page of two runs says about each run."""
    file: Path = tmp_path_factory.mktemp("pages") / "page.html"
    with chromium() as browser:
        reader = Reader(browser)

        def read(first: TracedRun, second: TracedRun) -> list[str]:
            file.write_text(page([first, second]), encoding="utf-8")
            reader.open(file)
            reader.wait_until(SHOWN)
            return [text.removesuffix("Show").strip() for text in reader.texts("#parting p")[1:]]

        yield read
        assert reader.complaints == []


@pytest.mark.parametrize("name", CASES)
def test_the_page_says_the_planted_cause(said: Callable[[TracedRun, TracedRun], list[str]], name: str) -> None:
    first, second, expected = CASES[name]
    assert first.by_id[1].hypotheses and second.by_id[1].hypotheses
    about_first = said(first, second)[0]
    assert about_first.startswith("Run 1 ") and about_first.endswith(expected)
    assert {"nmt", "lm", "fst"} & set(re.findall(r"\w+", about_first)) == set(re.findall("nmt|lm|fst", expected))
    assert said(second, first)[1] == about_first.replace("Run 1", "Run 2").replace("run 2", "run 1")

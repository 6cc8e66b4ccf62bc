"""Progress of ``phrases`` against banks recorded from fairseq 0.12.2 (`UnorderedConstraintState`,
`OrderedConstraintState`), which follow Post and Vilar 2018 and Hu et al. 2019.

The two mean the same as long as no token that begins a phrase breaks another one off: fairseq then forgets both, and
`phrases` counts the one that begins, as it is found in the text. In ordered lists fairseq forgets all phrases if one
is broken off, and `phrases` only that one. So the recorded outputs end before such a place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sgdec_predictors.phrases import Phrases

from sgdec import EOS, Context, Source
from sgdec.context import Vocabularies
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.places import ROOT

CASES = json.loads((ROOT / "tests" / "data" / "fairseq_banks.json").read_text())
WORDS = WordVocabulary([*SPECIAL, *(f"w{token}" for token in range(3, 13))])
CONTEXT = Context(vocabularies=Vocabularies(WORDS, WORDS))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["unordered", "ordered"])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_progress_is_the_recorded_bank(case: dict[str, Any], order: str, tmp_path: Path) -> None:
    (tmp_path / "wanted.tsv").write_text("\t".join(map(WORDS.decode, case["phrases"])))
    predictor = Phrases(str(tmp_path / "wanted.tsv"), ordered=order == "ordered", context=CONTEXT)
    states = predictor.initialize_batch([Source(1, (3,))])
    recorded = case[order]
    met, may_end = [], 0
    for token in [None, *case["output"]][: len(recorded["banks"])]:
        if token is not None:
            states = predictor.consume_batch(states, [token])
        met.append(predictor.progress(states)[0][0])
        may_end += predictor.predict_batch(states).rows[0].get(EOS) == 0.0
    assert met == recorded["banks"] and may_end == recorded["finished"]
    assert predictor.progress(states)[0][1] == sum(map(len, case["phrases"]))

"""The search for an output that constraints allow, beyond what `tests.decoders.test_banks` says about it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sgdec_predictors.phrases import Phrases

from sgdec import EOS, Context, Source
from sgdec.context import Vocabularies
from sgdec.search.completing import Constraint, allowed_output
from sgdec.search.constellation import Constellation
from sgdec.text.words import SPECIAL, WordVocabulary

WORDS = WordVocabulary([*SPECIAL, *(f"w{number}" for number in range(500))])
CONTEXT = Context(vocabularies=Vocabularies(WORDS, WORDS))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_many_phrases_are_found_at_once_even_if_they_just_fit(tmp_path: Path, seed: int, ordered: bool) -> None:
    """Breadth first, ten phrases would have 2^10 sets of those that are met."""
    draw = random.Random(seed)
    chosen = iter(draw.sample(range(500), 30))
    phrases = [" ".join(f"w{next(chosen)}" for _ in range(draw.randint(1, 3))) for _ in range(10)]
    (tmp_path / "wanted.tsv").write_text("\t".join(phrases))
    predictor = Phrases(str(tmp_path / "wanted.tsv"), ordered=ordered, context=CONTEXT)
    constellation = Constellation.of({"phrases": predictor}, vocab_size=WORDS.size)
    length = sum(len(phrase.split()) for phrase in phrases)
    (root,) = constellation.roots([Source(1, (3,), max_length=length)])
    constraint = Constraint(constellation.members[0], root.states[0])
    found = allowed_output([constraint], WORDS.size, length, most=20_000)
    assert found is not None and len(found) == length + 1 and found[-1] == EOS
    text = f" {WORDS.decode(found[:-1])} "
    assert all(f" {phrase} " in text for phrase in phrases)

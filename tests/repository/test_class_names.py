"""The promise of names: a class name stands for one thing in all of the project."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from tests.helpers.places import ROOT

REASONS = {
    "Attention": "an ability of predictors, and a layer of models",
    "Decoder": "a search strategy, and a half of an encoder-decoder",
    "LanguageModel": "a kind of trained models, and the tables behind the predictor ngram",
    "Lattice": "a lattice of a file, and a small predictor for tests",
    "Prefix": "the prefix of a pretrained model, and the state of a table for tests",
}
"""Names that live in several files: the words of two fields, or of a public name that stays."""


def files_by_class() -> dict[str, set[str]]:
    """For each class the files that define one of its name. Private classes are known only in their files."""
    found: dict[str, set[str]] = defaultdict(set)
    for source in ("sgdec", "predictors", "decoders"):
        for path in sorted((ROOT / source).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(str(path.relative_to(ROOT)))
    return found


@pytest.mark.slow
def test_a_class_name_lives_in_one_file_or_has_a_reason() -> None:
    several = {name: sorted(files) for name, files in files_by_class().items() if len(files) > 1}
    assert {name: files for name, files in several.items() if name not in REASONS} == {}
    assert sorted(several) == sorted(REASONS), "a reason is needed no longer"

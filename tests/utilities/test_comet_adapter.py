"""The promise: the program for COMET of the how-to page works, shown with a module that has COMET's interface.

The names and signatures are those of unbabel-comet 2.2.7; its score is here a function of the lengths of texts.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import sgdec
from sgdec.errors import SgdecError
from sgdec.utility import Utility, pairwise
from tests.helpers.places import ROOT

PAGE = ROOT / "docs" / "howto" / "utilities.md"
COMET = '''
from types import SimpleNamespace

def download_model(model: str, saving_directory=None) -> str:
    print("Fetching 5 files: 100%")
    return model

class CometModel:
    def __init__(self, name): self.name = name
    def requires_references(self) -> bool: return "kiwi" not in self.name
    def predict(self, samples, batch_size=16, gpus=1, devices=None, mc_dropout=0, progress_bar=True,
                accelerator="auto", num_workers=None, length_batching=True):
        assert gpus in (0, 1) and not progress_bar
        print("GPU available: False, used: False")
        for sample in samples:
            assert set(sample) == {"src", "mt", "ref"} - ({"ref"} if "kiwi" in self.name else set())
        scores = [len(s["src"]) + 10 * len(s["mt"]) + 100 * len(s.get("ref", "")) for s in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))

def load_from_checkpoint(checkpoint_path: str, reload_hparams=False, strict=False, local_files_only=False):
    return CometModel(checkpoint_path)
'''
TORCH = "class cuda:\n    device_count = staticmethod(lambda: 0)\n"


@pytest.fixture
def adapter(tmp_path: Path) -> str:
    (program,) = re.findall(r"cat > comet_utility\.py <<'END'\n(.*?)^END$", PAGE.read_text("utf-8"), re.S | re.M)
    assert len(program.splitlines()) <= 32
    (tmp_path / "comet_utility.py").write_text(program)
    (tmp_path / "comet.py").write_text(COMET)
    (tmp_path / "torch.py").write_text(TORCH)
    return f"'{sys.executable}' '{tmp_path / 'comet_utility.py'}'"


def load(command: str) -> Utility:
    return sgdec.load_utility("command", command=command, seconds=60)


def test_every_pair_gets_the_score_of_the_model(adapter: str) -> None:
    comet = load(adapter)
    assert pairwise(comet, ["a", "bb"], ["", "c", "dd"], "src").tolist() == [[13, 113, 213], [23, 123, 223]]
    with pytest.raises(SgdecError, match="COMET needs the text of the source"):
        pairwise(comet, ["a"], ["b"])
    assert pairwise(comet, ["a"], ["b"], "").tolist() == [[110]]


def test_a_model_without_references_has_one_column(adapter: str) -> None:
    kiwi = load(f"{adapter} Unbabel/wmt22-cometkiwi-da")
    assert not kiwi.needs_references
    assert pairwise(kiwi, ["a", "bb"], source="src").tolist() == [[13], [23]]


def test_without_comet_the_error_says_what_is_missing(adapter: str, tmp_path: Path) -> None:
    (tmp_path / "comet.py").unlink()
    with pytest.raises(SgdecError, match=r"ended \(exit status 1\); it last said: .*No module named 'comet'"):
        load(adapter)

"""``--compile`` changes how fast, not what: the losses are those without it, and where it cannot work it says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sgdec.checkpoints.loading import load_language_model
from sgdec.errors import UsageError
from sgdec.training.preparing import prepare
from tests.helpers.lm_case import make_lm_config
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # those of torch.compile itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_compiled_run_has_the_same_losses_dropout_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the model that takes least to compile; `benchmarks/compiling.py` compares translation models.

    The compiler makes plain C++ in this process: its vector code takes twice as long to compile, and its pool of
    processes each import torch.
    """
    import torch._inductor.config as inductor  # here, because every worker of a parallel run collects this file

    monkeypatch.setattr(inductor.cpp, "vec_isa_ok", False)
    monkeypatch.setattr(inductor, "compile_threads", 1)
    sizes = {"embedding": 8, "hidden": 8, "output": 8, "order": 3, "dropout": 0.1}
    settings: dict[str, Any] = {"model": "nplm", "options": sizes, "max_steps": 4}
    plain = list(prepare(make_lm_config(tmp_path, "plain", **settings), quiet=True).steps())
    compiled = list(prepare(make_lm_config(tmp_path, "compiled", **settings, compile=True), quiet=True).steps())
    assert compiled == pytest.approx(plain, rel=1e-4)
    load_language_model(tmp_path / "compiled")


def test_without_a_compiler_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match=r"--compile needs a C\+\+ compiler, and there is no g\+\+\. Install one"):
        prepare(make_config(tmp_path, compile=True), quiet=True)

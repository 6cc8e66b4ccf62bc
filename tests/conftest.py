"""What all tests share: one thread, properties that are the same on every run, the data folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch

settings.register_profile("sgdec", deadline=None, derandomize=True, database=None)
settings.load_profile("sgdec")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder that holds data/ and cases/; the test is skipped if SGDEC_DATA does not name one."""
    if "SGDEC_DATA" not in os.environ:
        pytest.skip("SGDEC_DATA does not name the data folder")
    folder = Path(os.environ["SGDEC_DATA"])
    assert folder.is_dir(), f"SGDEC_DATA names {folder}, which is no folder"
    return folder

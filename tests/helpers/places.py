"""Where things lie in this repository, wherever the test that needs them lies."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"

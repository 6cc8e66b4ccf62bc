"""An installed sgdec has all of its packages: setup.cfg lists every folder with Python files in it."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_setup_cfg_lists_every_package() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    roots = [ROOT, ROOT / "predictors", ROOT / "decoders"]
    found = {
        ".".join(init.parent.relative_to(root).parts)
        for root, name in zip(roots, ("sgdec", "sgdec_predictors", "sgdec_decoders"), strict=True)
        for init in (root / name).rglob("__init__.py")
    }
    assert set(config["options"]["packages"].split()) == found


def test_entry_points_name_modules_that_exist() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    for line in config["options.entry_points"]["sgdec"].strip().splitlines():
        module = line.split("=")[1].strip().replace(".", "/") + ".py"
        assert any((ROOT / root / module).exists() for root in (".", "predictors", "decoders")), line

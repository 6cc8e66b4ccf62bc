"""``python -m sgdec.cli``: the command ``sgdec`` without its installed script."""

from __future__ import annotations

import sys

from sgdec.cli.start import start

if __name__ == "__main__":
    sys.exit(start())

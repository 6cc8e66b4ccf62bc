"""``python -m sgdec``: the command line, where the console script is not on the path."""

from __future__ import annotations

import sys

from sgdec.cli.start import start

if __name__ == "__main__":
    sys.exit(start())

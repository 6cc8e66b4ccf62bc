"""``python -m sgdec.cli``: the command ``sgdec`` where no script is installed."""

from __future__ import annotations

import sys

from sgdec.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

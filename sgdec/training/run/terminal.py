"""What a run says while it runs, on standard error."""

from __future__ import annotations

import sys


class Terminal:
    """Lines that stay, and one that is rewritten."""

    def __init__(self, *, quiet: bool = False) -> None:
        """``quiet``: say nothing."""
        self.quiet, self.live = quiet, sys.stderr.isatty() and not quiet
        self._width = 0

    def progress(self, text: str) -> None:
        """Show where the run is, on the same line as before; nothing where there is no terminal."""
        if self.live:
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)

    def line(self, text: str) -> None:
        """Say something that stays."""
        if not self.quiet:
            self.progress("")
            sys.stderr.write(("\r" if self.live else "") + text + "\n")
            sys.stderr.flush()

"""The logger of a run: ``sgdec.training``, or one that logs only errors."""

from __future__ import annotations

import logging

LOG = logging.getLogger("sgdec.training")
QUIET = LOG.getChild("quiet")
QUIET.setLevel(logging.ERROR)

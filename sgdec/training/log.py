"""Who a run tells what it does: the logger ``sgdec.training``, or one that says nothing but errors."""

from __future__ import annotations

import logging

LOG = logging.getLogger("sgdec.training")
QUIET = LOG.getChild("quiet")
QUIET.setLevel(logging.ERROR)

"""The site: Sphinx reads the pages of this folder, and takes the reference from sgdec itself (``make docs``).

Nothing is downloaded while it is built or read: formulas become MathML, which browsers draw by themselves.
"""

from __future__ import annotations

import gc
import sys
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).parents[1]
gc.disable()  # collections take a quarter of the time of a build, whose process ends soon
sys.path[:0] = [str(ROOT / "docs" / "_ext"), *(str(ROOT / source) for source in ("", "predictors", "decoders"))]

project = "sgdec"
author = "the sgdec developers"
copyright = author
version = release = installed("sgdec")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "docstrings",
    "mathml",
    "outside",
    "reference_pages",
    "rooms",
]
exclude_patterns = ["_ext", "_static"]
nitpicky = True
smartquotes = False  # which would make dashes of the options' hyphens
default_role = "py:obj"
# Single backticks make a link if the reference has that name, and otherwise mark code.
nitpick_ignore_regex = [(r"py:.*", r".*")]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False  # there are none, and to look for them every source file is parsed again
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"sgdec {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"

"""Links to files of the repository that are not pages of the site, such as ``../../examples/plugin/README.md``.

On Read the Docs and GitHub the links lead to the repository, whose address the environment gives; elsewhere they
download the file. A link to a missing file is a warning, so the build fails.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.typing import ExtensionMetadata

log = logging.getLogger(__name__)
LINK = re.compile(r"\]\((\.\.?/[^)#\s]*)((?:#[^)\s]*)?)\)")


def repository() -> str:
    """The address of the files of this build on Read the Docs or GitHub, or an empty string."""
    if url := os.environ.get("READTHEDOCS_GIT_CLONE_URL"):
        return f"{url.removesuffix('.git')}/blob/{os.environ['READTHEDOCS_GIT_COMMIT_HASH']}"
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ['GITHUB_SERVER_URL']}/{name}/blob/{os.environ['GITHUB_SHA']}"
    return ""


def rewrite(app: Sphinx, page: str, content: list[str]) -> None:
    site = Path(app.srcdir).resolve()
    here = (site / page).parent

    def link(found: re.Match[str]) -> str:
        target = (here / found[1]).resolve()
        if target.is_relative_to(site):
            return found[0]
        if not target.exists():
            log.warning("%s: no such file", found[1], location=page)
        if where := repository():
            return f"]({where}/{target.relative_to(site.parent).as_posix()}{found[2]})"
        return f"](path:{found[1]})"

    content[0] = LINK.sub(link, content[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

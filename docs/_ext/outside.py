"""Links from the site to files of the repository, and pages of the site that are such files.

A page that is one ``{include}`` block is the file that the block names, and links to that file lead to the page. The
links in the file are relative to the file, as on GitHub. A link to the file of a plugin leads to the plugin's page.
Links to other files lead to the repository if Read the Docs or GitHub tell where it is; otherwise they download the
file. A link to a file that does not exist is a warning, and so the build fails.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.typing import ExtensionMetadata

from sgdec.plugins.host import HOOK_OF, Host

log = logging.getLogger(__name__)
LINK = re.compile(r"\]\((?![a-z]+:|[/#])([^)#\s]+)((?:#[^)\s]*)?)\)")
INCLUDED = re.compile(r"```\{include\} (\S+)\n```\n")


def repository() -> str:
    """Return the address of this build's files on Read the Docs or GitHub, or an empty string."""
    if url := os.environ.get("READTHEDOCS_GIT_CLONE_URL"):
        return f"{url.removesuffix('.git')}/blob/{os.environ['READTHEDOCS_GIT_COMMIT_HASH']}"
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ['GITHUB_SERVER_URL']}/{name}/blob/{os.environ['GITHUB_SHA']}"
    return ""


def included(page: Path) -> Path | None:
    """Return the file that a page consists of; None for an ordinary page."""
    found = INCLUDED.fullmatch(page.read_text(encoding="utf-8"))
    return (page.parent / found[1]).resolve() if found else None


def borrowed(site: Path) -> dict[Path, Path]:
    """Return the pages that are files of the repository, by file."""
    return {file: page for page in sorted(site.rglob("*.md")) if (file := included(page))}


@cache
def described(site: Path) -> dict[Path, Path]:
    """Return the pages of plugins, by the files of the plugins; of several names in a file, the file's own counts."""
    found: dict[Path, Path] = {}
    for entry in Host(autoload=False).names():
        spec = find_spec(entry.value)
        if spec is not None and spec.origin is not None:
            file = Path(spec.origin).resolve()
            page = site / "reference" / HOOK_OF[entry.kind].removeprefix("sgdec_") / f"{entry.name}.rst"
            if file not in found or entry.name.replace("-", "_") == file.stem:
                found[file] = page
    return found


def rewrite(app: Sphinx, page: str, content: list[str]) -> None:
    """Replace an included file by its text, and relative links to files outside the site."""
    site = Path(app.srcdir).resolve()
    path = site / f"{page}.md"
    if not path.exists():  # generated, and not Markdown
        return
    origin, pages = included(path) or path, borrowed(site) | described(site)
    if origin != path:
        app.env.note_dependency(str(origin))
        content[0] = origin.read_text(encoding="utf-8")

    def link(found: re.Match[str]) -> str:
        target = (origin.parent / found[1]).resolve()
        target = pages.get(target, target)
        if target.is_relative_to(site):
            return f"]({os.path.relpath(target, path.parent)}{found[2]})"
        if not target.exists():
            log.warning("%s: no such file", found[1], location=page)
        if where := repository():
            return f"]({where}/{target.relative_to(site.parent).as_posix()}{found[2]})"
        return f"](path:{os.path.relpath(target, path.parent)})"

    content[0] = LINK.sub(link, content[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

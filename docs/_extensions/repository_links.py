"""Links of pages to what is outside of `docs/`, as they stand in the repository, led to where the site has it."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from sphinx.application import Sphinx

LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
PAGES = {
    "examples": "gallery/index.rst",
    "benchmarks/README.md": "figures.md",
    "CHANGELOG.md": "changes.md",
    "src/dask_train/frameworks/base.py": "generated/dask_train.Framework.rst",
}


def page_for(path: str) -> str:
    """Return the page, from `docs/`, that shows a file or folder of the repository; KeyError where none does."""
    path = path.rstrip("/")
    if path in PAGES:
        return PAGES[path]
    if path.startswith("examples/") and path.endswith(".py"):
        return f"gallery/{path.removeprefix('examples/').removesuffix('.py').replace('/', '-')}.rst"
    if path.startswith("examples/"):
        return PAGES["examples"]
    raise KeyError(path)


def relink(docname: str, text: str) -> str:
    """Return the text of a page with links to files of the repository led to pages; those within `docs/` stay."""
    folder = posixpath.dirname(docname)

    def lead(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link["path"]))
        if path.startswith("docs/"):
            return link[0]
        return posixpath.relpath(page_for(path), folder or ".") + (link["anchor"] or "")

    return LINK.sub(lead, text)


def relink_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Relink a page that Sphinx has read."""
    source[0] = relink(docname, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", relink_source)
    return {"parallel_read_safe": True}

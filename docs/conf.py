"""How the documentation site is built: `make docs` runs `sphinx-build` on this folder, without a network.

Pages are Markdown that reads well in the repository, too: links point to files of the repository, and what is outside
of this folder is found on the site by `repository_links`. Pages of examples are made by `gallery`, those of public
names by autosummary from their docstrings.
"""

import os
import sys
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

os.environ["KERAS_BACKEND"] = "jax"  # the only one in this environment

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent / "src"), str(DOCS / "_extensions")]

project = "dask-train"
author = "the dask-train developers"
copyright = "2026, the dask-train developers"  # noqa: A001 - Sphinx' name for it
version = release = ProjectMetadata(str(DOCS.parent), PluginManager()).version

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "argument_table",
    "gallery",
    "own_members",
    "repository_links",
]
root_doc = "index"
templates_path = ["_templates"]
# The last one is made by myst_nb.
exclude_patterns = ["_build", "_templates", "_extensions", "jupyter_execute"]
nitpicky = False  # types in signatures name classes of Dask, NumPy and Keras, whose pages need a network

autodoc_typehints = "none"  # signatures without them are read at a glance; the docstrings tell types
autodoc_member_order = "bysource"
autosummary_generate = True
autosummary_ignore_module_all = False
numpydoc_show_class_members = False  # the template of a class lists them

myst_heading_anchors = 3
nb_execution_mode = "off"  # the tests run the notebook; the site shows the outputs that are stored in it
suppress_warnings = ["myst.header"]

html_theme = "pydata_sphinx_theme"
html_title = f"dask-train {release}"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
# Light or dark, as the reader's system has it.
html_context = {"default_mode": "auto"}
html_sidebars = {"start": [], "tutorial": []}  # there is nothing below them
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 4,  # with the title and the search these fit into a line of 1280 pixels
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}

"""The gallery: a page for each program of `examples/`, of its docstring and its source, and one that lists them.

Programs are read, not run: the tests run each of them.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NamedTuple

from sphinx.application import Sphinx

EXAMPLES = Path(__file__).parents[2] / "examples"
# What programs are left with, by their names; tests/docs/gallery/pictures.py makes them.
PICTURES = Path(__file__).parents[1] / "pictures" / "gallery"

# The headings of the gallery, with the folders below `examples/` whose programs they show.
SECTIONS = (
    ("Whole programs", ".", "Each starts a cluster of its own on this machine; ``--small`` trains on fewer rows."),
    ("Loops made for torchrun", "loops", "Loops as other libraries document them, in roles of ``dt.train``."),
)

INTRODUCTION = """\
Examples
========

Programs from the folder ``examples`` of the repository, with what to look at in each. All of them run in the tests.
"""


class Example(NamedTuple):
    """A program, and what its docstring says of it."""

    path: Path
    title: str
    summary: str  # the first paragraph below the title, as sentences; may be empty
    text: str  # all paragraphs below the title
    program_line: int  # where the program begins, below its docstring

    @property
    def page(self) -> str:
        """The name of its page below `docs/gallery`, without a suffix."""
        return "-".join(self.path.relative_to(EXAMPLES).with_suffix("").parts)

    @property
    def picture(self) -> str:
        """Its picture, as seen from its page; empty where there is none."""
        path = PICTURES / f"{self.page}.png"
        return f"../pictures/gallery/{path.name}" if path.exists() else ""


def read_example(path: Path) -> Example:
    """Return what the docstring of a program says; a program without one is a ValueError."""
    program = ast.parse(path.read_text())
    docstring = ast.get_docstring(program)
    if not docstring:
        raise ValueError(f"{path} has no docstring, of which its page in the gallery is made.")
    title, _, text = docstring.partition("\n\n")
    summary = text.partition("\n\n")[0].removesuffix("What to look at:").rstrip()
    if summary.endswith(":"):  # what it introduces is on the page alone
        summary = summary.rstrip(":") + "."
    program_line = (program.body[0].end_lineno or 0) + 2
    return Example(path, title.replace("\n", " ").rstrip("."), summary, text, program_line)


def examples_in(folder: str) -> list[Example]:
    """Return the programs of a folder below `examples/`, by name."""
    return [read_example(path) for path in sorted((EXAMPLES / folder).glob("*.py")) if path.name != "__init__.py"]


def page_of(example: Example) -> str:
    """Return the page of a program: title, docstring, and source."""
    name = example.path.relative_to(EXAMPLES)
    options = {"language": "python", "lines": f"{example.program_line}-"}
    source = "\n".join([f".. literalinclude:: ../../examples/{name}", *_indented(_fields(options)), ""])
    parts = [*_headed(example.title, "="), example.text, "", *_shown(example)]
    return "\n".join([*parts, *_headed(f"``examples/{name}``", "-"), source])


def _shown(example: Example) -> list[str]:
    """Return what it is left with, as a picture."""
    if not example.picture:
        return []
    return [
        f".. figure:: {example.picture}",
        f"   :alt: The result of {example.path.name}",
        "",
        "   What ``--small`` ends with.",
        "",
    ]


def index() -> str:
    """Return the page that lists all programs, with the first paragraph of each."""
    lines = [INTRODUCTION]
    for heading, folder, text in SECTIONS:
        examples = examples_in(folder)
        lines += [*_headed(heading, "-"), text, ""]
        lines += [".. container:: gallery", ""]
        for example in examples:
            lines += [*_indented("\n".join([".. container:: gallery-card", "", *_indented(card_of(example))])), ""]
        lines += [".. toctree::", "   :hidden:", "", *(f"   {example.page}" for example in examples), ""]
    return "\n".join(lines)


def card_of(example: Example) -> str:
    """Return a program on the page that lists all: its picture, its title, and what it is about."""
    plain = example.title.replace("``", "")  # the text of a link has no markup
    lines = []
    if example.picture:
        options = {"alt": plain, "target": f"{example.page}.html"}
        lines += [f".. image:: {example.picture}", *_indented(_fields(options)), ""]
    return "\n".join([*lines, f":doc:`{plain} <{example.page}>`", "", example.summary])


def _headed(text: str, character: str) -> list[str]:
    return [text, character * len(text), ""]


def _fields(options: dict[str, str]) -> str:
    return "\n".join(f":{name}: {value}" for name, value in options.items())


def _indented(text: str, width: int = 3) -> list[str]:
    return [f"{' ' * width}{line}" for line in text.splitlines()]


def write_gallery(app: Sphinx) -> None:
    """Write the pages into `docs/gallery`; a page that has not changed is left as it is, for Sphinx not to read it."""
    folder = Path(app.srcdir) / "gallery"
    folder.mkdir(exist_ok=True)
    pages = {example.page: page_of(example) for _, name, _ in SECTIONS for example in examples_in(name)}
    pages["index"] = index()
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        page = folder / f"{name}.rst"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_gallery, priority=100)  # before autosummary looks for pages
    return {"parallel_read_safe": True}

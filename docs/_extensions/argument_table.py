"""The table of arguments by verb, made from the signatures: ```` ```{verb-arguments} ```` on a page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

import dask_train

VERBS = ("fit", "train", "search", "evaluate", "predict", "predict_to", "publish_dataset", "persist")


def arguments() -> dict[str, list[str]]:
    """Return the verbs that have each argument, by the argument's name, in the order of the signatures."""
    found: dict[str, list[str]] = {}
    for verb in VERBS:
        for name in inspect.signature(getattr(dask_train, verb)).parameters:
            found.setdefault(name, []).append(verb)
    return found


def shared() -> dict[str, list[str]]:
    """Return those that several verbs have, the most common ones first."""
    several = {name: verbs for name, verbs in arguments().items() if len(verbs) > 1}
    return dict(sorted(several.items(), key=lambda item: -len(item[1])))


def alone() -> dict[str, list[str]]:
    """Return the arguments that only one verb has, by that verb."""
    return {verb: [name for name, verbs in arguments().items() if verbs == [verb]] for verb in VERBS}


class ArgumentTable(Directive):
    """Put the table in place of the directive, and a list of the arguments of single verbs below it."""

    def run(self) -> list[nodes.Node]:
        head = ["argument", *VERBS]
        rows = [[name, *("✓" if verb in verbs else "" for verb in VERBS)] for name, verbs in shared().items()]
        items = [nodes.list_item("", paragraph) for paragraph in _of_single_verbs()]
        return [_table(head, rows), nodes.paragraph("", "Only one verb has:"), nodes.bullet_list("", *items)]


def _of_single_verbs() -> Iterator[nodes.paragraph]:
    for verb, names in alone().items():
        if names:
            listed: list[nodes.Node] = [nodes.literal("", f"dt.{verb}"), nodes.Text(": ")]
            for number, name in enumerate(names):
                listed += [nodes.Text(", " if number else ""), nodes.literal("", name)]
            yield nodes.paragraph("", "", *listed)


def _table(head: list[str], rows: list[list[str]]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", nodes.row("", *(_cell(text, code=number > 0) for number, text in enumerate(head))))
    group += nodes.tbody("", *(nodes.row("", *(_cell(text, code=text == row[0]) for text in row)) for row in rows))
    return nodes.table("", group, classes=["wide"])  # on phones it scrolls


def _cell(text: str, *, code: bool) -> nodes.entry:
    inside = nodes.literal("", text) if code else nodes.Text(text)
    return nodes.entry("", nodes.paragraph("", "", inside))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("verb-arguments", ArgumentTable)
    return {"parallel_read_safe": True}

"""What a cluster reports about itself, and what is wrong with it, as a web page that needs no other file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from dask_train.cards import Card, CardTable
from dask_train.doctor.diagnosis import Finding
from dask_train.report.whole_file import write_whole

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" \
content="light dark"><title>{title}</title></head>
<body style="font-family:system-ui,sans-serif;line-height:1.5;margin:2rem">{body}</body>
</html>
"""


def write_page(
    title: str,
    findings: Sequence[Finding],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    path: str | os.PathLike[str],
) -> Path:
    """Write the page.

    Parameters
    ----------
    title
        Whose condition it is.
    findings
        What is so, and what to change.
    columns, rows
        The processes that reported.
    path
        The HTML file to make or replace, in one step.

    Returns
    -------
    Path
        The file, as it was named.
    """
    finding_rows = [(finding.level, finding.what, finding.change) for finding in findings]
    cards = (
        Card(
            kind="Findings",
            tables=[CardTable(columns=("", "what", "what to change"), rows=finding_rows, most=len(finding_rows))],
        ),
        Card(kind="Processes", tables=[CardTable(columns=columns, rows=rows, most=len(rows))]),
    )
    body = f"<h1>{escape(title)}</h1>" + "".join(f"<p>{card.html()}</p>" for card in cards)
    return write_whole(path, _PAGE.format(title=escape(title), body=body).encode())

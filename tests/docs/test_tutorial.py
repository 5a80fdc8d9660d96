"""The tutorial: its cells run, and what the site shows of it is what they gave, on some machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = json.loads((Path(__file__).parents[2] / "docs" / "tutorial.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def kinds(outputs: list[dict[str, Any]]) -> set[str]:
    """What a cell gives: kinds of text and pictures, names of streams, errors."""
    found: set[str] = set()
    for output in outputs:
        found |= set(output["data"]) if "data" in output else {output.get("name", output["output_type"])}
    return found


def text_of(outputs: list[dict[str, Any]]) -> str:
    return json.dumps([output.get("data", output) for output in outputs])


def test_its_outputs_are_stored_and_can_be_shown_anywhere() -> None:
    assert [cell["execution_count"] for cell in CODE] == [*range(1, len(CODE) + 1)], "make tutorial"
    assert {"widgets", "signature"}.isdisjoint(NOTEBOOK["metadata"])
    for cell in CODE:
        text = text_of(cell["outputs"])
        assert not kinds(cell["outputs"]) & {"error", "stderr", "application/vnd.jupyter.widget-view+json"}, text
        assert "\\u001b" not in text
        assert "<script" not in text
        assert not re.search(r"/(?:home|work|tmp|root|Users)/", text), "a path of the machine where it ran"


@pytest.mark.nightly
def test_its_cells_give_what_is_stored(executed_notebook: Callable[..., Any], tmp_path: Path) -> None:
    outputs, page = executed_notebook(["".join(cell["source"]) for cell in CODE], tmp_path)
    for cell, given in zip(CODE, outputs, strict=True):
        given[:] = [output for output in given if "Port 8787 is already in use" not in text_of([output])]
        assert kinds(given) == kinds(cell["outputs"]), f"{''.join(cell['source'])}\n{text_of(given)}"
    assert "\x1b" not in page
    everything = text_of([output for given in outputs for output in given])
    assert "50,009 rows in 8 parts" in everything
    assert "0 written by the second call" in everything
    auc = re.search(r"'auc': (0\.\d+)", everything)
    assert auc is not None
    assert float(auc[1]) > 0.85
    ledgers = re.findall(r"trained ([\d,]+), repeated ([\d,]+), dropped (\d+)>", everything)
    assert [dropped for *_, dropped in ledgers] == ["0"] * len(ledgers)
    assert ledgers[0][1] == "0", "nothing was killed yet"
    assert ledgers[-1][0] == "84,824", "two epochs of 42,412 rows, each row once"

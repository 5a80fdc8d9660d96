"""What an executed notebook holds: values and long verbs as HTML, and nothing that only a terminal can show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

SETUP = """
import dask.array as da
from distributed import Client
import dask_train as dt
client = Client(n_workers=1, threads_per_worker=2, dashboard_address=None)

def worker(session):
    for step in range(4):
        session.report(loss=1 / (1 + step))
    return session.rank
"""
RUN = "run = dt.train(worker, roles={'worker': 1}, wait=False)\nrun"
RESULT = "result = run.result()\nresult"
PUBLISH = "dt.publish_dataset(da.ones((1000, 3), chunks=(100, 3)), name='<ones>')"
PREDICT = "dt.predict_to({path!r}, lambda x: x[:, 0], da.ones((1000, 3), chunks=(100, 3)))"
WRONG = "dt.train(worker, roles={'worker': -1})"
PLOT = """
from dask_train.report.account import MetricCurves, figure_of
figure_of(MetricCurves({"loss": [2.0, 1.0]}, [0, 1]))
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory, executed_notebook: Callable[..., Any]) -> dict[str, Any]:
    """The outputs of each cell, and the whole notebook as a page."""
    cells = {
        "setup": SETUP,
        "run": RUN,
        "result": RESULT,
        "ledger": "result.ledger",
        "publish": PUBLISH,
        "dataset": "dt.get_dataset('<ones>')",
        "datasets": "dt.list_datasets()",
        "predict": PREDICT.format(path=str(tmp_path_factory.mktemp("predicted") / "here")),
        "plot": PLOT,
        "wrong": WRONG,
        "close": "client.close(); client.cluster.close()",
    }
    outputs, page = executed_notebook(list(cells.values()), tmp_path_factory.mktemp("notebook"))
    return {"page": page, **dict(zip(cells, outputs, strict=True))}


def html(outputs: list[dict[str, Any]]) -> str:
    return "\n".join(output["data"].get("text/html", "") for output in outputs if "data" in output)


pytestmark = pytest.mark.slow


def test_a_run_is_drawn_until_it_is_over_and_its_button_goes(executed: dict[str, Any]) -> None:
    shown = executed["run"]
    assert "over" in html(shown)
    assert "<polyline" in html(shown), "the curve of its loss"
    assert "Dask worker" in html(shown), "where its roles were"
    assert "Button" not in json.dumps([output["data"].get("text/plain", "") for output in shown])


def test_every_value_and_every_long_verb_is_shown(executed: dict[str, Any]) -> None:
    assert "loss" in html(executed["result"])
    assert "trained" in html(executed["ledger"])
    assert "10 of 10 partitions · 1,000 of 1,000 rows" in html(executed["publish"])
    assert "&lt;ones&gt;" in html(executed["dataset"])
    assert "&lt;ones&gt;" in html(executed["datasets"])
    assert "10 of 10 partitions · 1,000 of 1,000 rows" in html(executed["predict"])
    assert "PredictedFiles" in html(executed["predict"])
    assert executed["plot"][0]["data"]["image/png"], "a figure shows itself"


def test_no_output_of_ours_has_escape_codes_or_scripts(executed: dict[str, Any]) -> None:
    ours = [output for name, outputs in executed.items() if name not in ("page", "wrong") for output in outputs]
    assert ours
    assert "\\u001b" not in json.dumps(ours)
    assert "<script" not in html(ours)
    assert "&lt;ones&gt;" in executed["page"]


def test_a_browser_draws_it(executed: dict[str, Any], browser: Any, tmp_path: Any) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(executed["page"])
    browser.load(path.as_uri())
    drawn = browser.tell(
        "[...document.querySelectorAll('svg polyline, img, [role=progressbar]')]"
        ".map(each => [each.tagName, each.getBoundingClientRect().width])"
    )
    assert {"polyline", "IMG"} <= {name for name, _ in drawn}
    assert [name for name, width in drawn if not width] == []
    assert "<table" not in browser.tell("document.body.innerText"), "HTML that is shown as text"


def test_a_wrong_argument_raises_at_the_cells_line(executed: dict[str, Any]) -> None:
    (error,) = executed["wrong"]
    assert error["ename"] == "ValueError"
    assert "dask_train/" not in "".join(error["traceback"])
    assert "dt.train" in "".join(error["traceback"])

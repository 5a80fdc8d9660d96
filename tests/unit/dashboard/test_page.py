"""The page in bokeh, without a browser: what is shown of which run, and what is gone."""

from __future__ import annotations

from types import SimpleNamespace


def test_a_run_that_is_removed_disappears(shown):
    shown.run()
    assert shown.data("scores")["run"] == ["r"]
    shown.ask("end", summary={"phase": "over", "outcome": "cancelled"})
    shown.asks.runs.records.clear()
    shown.page.update()
    assert shown.data("scores")["run"] == []
    assert shown.page._select.options == []


def test_what_dask_workers_tell_is_seen(shown):
    (worker,) = shown.records.scheduler.workers.values()
    names = ("segments_bytes", "model_processes", "template_processes", "predicted_blocks", "predicted_rows")
    worker.metrics = {"dask-train": dict.fromkeys(names, 2.0)}
    shown.records.scheduler.task_groups = {"predict-abc": SimpleNamespace(states={"memory": 1}, duration=1.0)}
    shown.page.update()
    assert (shown.data("model processes")["rows"], shown.data("prediction")["done"]) == (["2"], [1])


def test_a_part_that_can_not_be_shown_leaves_the_others(shown, monkeypatch, caplog):
    def fails(*given):
        raise ValueError("'mse' is not in tuple")

    for part in (shown.page._searches, shown.page._charts, shown.page._curves):
        monkeypatch.setattr(part, "update", fails)
    shown.run()
    shown.page.update()
    assert shown.data("scores")["run"] == ["r"]
    assert len([record for record in caplog.records if "could not be shown" in record.getMessage()]) == 1

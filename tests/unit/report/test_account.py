"""The page and the figure of a call of ``fit``."""

from __future__ import annotations

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dask_train.data.ledger import Ledger
from dask_train.driver.result import Attempt
from dask_train.fitting.result import FitResult
from dask_train.report.account import MetricCurves, record_of


def told(time, role="worker", **values):
    return {"role": role, "rank": 0, "attempt": 0, "time": time, **values}


@pytest.fixture
def result():
    places = {"worker/0": "tcp://a:1", "worker/1": "tcp://b:1"}
    return FitResult(
        scores=[
            told(11.0, epoch=0, step=4, loss=0.9),
            told(12.0, epoch=0, loss=0.8, accuracy=0.5),
            told(13.0, epoch=1, loss=float("nan")),
            told(14.0, role="scorer", val_loss=0.7, steps=12),
        ],
        ledger=Ledger(lines=(), read=20, trained=19, repeated=1, dropped=0),
        attempts=[
            Attempt(number=0, started=10.0, ended=12.0, places=places),
            Attempt(number=1, started=12.5, ended=15.0, places={"worker/1": "tcp://c:1"}),
        ],
        stop_reason="",
        run_id="fit-1",
        model=SimpleNamespace(name="net"),
        history={"loss": [0.8, 0.7], "accuracy": [0.5, 0.6], "val_loss": [0.9]},
        epoch=[0, 1],
        all_reduce_s=0.1,
        waiting_s=0.0,
    )


def test_the_page(result, tmp_path):
    page = result.report(tmp_path / "run.html").read_text()
    for words in ("net, 2 epochs", "worker 0", "worker 1", "tcp://c:1", "attempt 1", "val_loss", "after all epochs"):
        assert words in page
    assert "Lowest validation loss 0.7" in page
    assert page.count("<td>training</td>") == 2
    assert page.count("<td>validation</td>") == 1
    assert page.count("var(--other-curve)") > 0
    assert "nan" not in page.lower().replace("nanny", "")


def test_steps_of_any_kind_are_no_reason_for_no_page(result, tmp_path):
    result.scores.extend(told(14.5, loss=0.6, steps=steps) for steps in (2.5, -1, "late", None))
    assert result.report(tmp_path / "run.html").read_text().count("<td>training</td>") == 6


def spans(result):
    record = record_of(result, "net", MetricCurves(result.history, result.epoch))
    return {role.label: [(span.name, span.start_s, span.end_s) for span in role.spans] for role in record.roles}


def test_a_role_that_was_not_lost_works_to_the_end_and_one_that_joins_from_then_on(result):
    result.attempts[0].places["worker/2"] = "tcp://d:1"
    result.attempts[0].joined["worker/2"] = 11.5
    assert spans(result) == {
        "worker 0 · tcp://a:1": [("attempt 0", 0.0, 5.0)],
        "worker 1 · tcp://c:1": [("attempt 0", 0.0, 2.5), ("attempt 1", 2.5, 5.0)],
        "worker 2 · tcp://d:1": [("attempt 0", 1.5, 5.0)],
    }


def test_an_attempt_of_all_roles_ends_also_those_that_had_joined(result):
    result.attempts[0].places["worker/2"] = "tcp://d:1"
    result.attempts[0].joined["worker/2"] = 11.5
    result.attempts[1].places["worker/0"] = "tcp://a:1"
    assert spans(result)["worker 2 · tcp://d:1"] == [("attempt 0", 1.5, 2.5)]


def test_one_that_has_left_works_until_then_also_where_all_others_start_again_later(result):
    first, second = result.attempts
    first.places.update({"worker/2": "tcp://d:1", "worker/3": "tcp://e:1"})
    first.left["worker/2"] = 11.0
    second.places["worker/0"] = "tcp://a:1"
    second.left["worker/3"] = 14.0
    found = spans(result)
    assert found["worker 2 · tcp://d:1"] == [("attempt 0", 0.0, 1.0)]
    assert found["worker 3 · tcp://e:1"] == [("attempt 0", 0.0, 4.0)]


def test_other_metrics_have_curves_over_epochs(result, tmp_path):
    result.history.update(auc=[0.5, 0.6], val_auc=[float("nan"), 0.55], lr=["x", None])
    page = result.report(tmp_path / "run.html").read_text()
    assert "training from 0.5 in epoch 1 to 0.6 in epoch 2; validation from 0.55 in epoch 2 to 0.55 in epoch 2." in page
    assert page.count('id="metric-') > 0
    assert page.count("<figcaption>") == 3, "loss, accuracy, auc"


def test_an_epoch_that_was_not_validated_has_no_score(result):
    result.history["val_loss"] = [0.9, float("nan")]
    assert "val_loss" not in repr(result)
    result.history["loss"] = [0.8, float("nan")]
    assert "nan" in repr(result), "a training that has diverged"


def test_the_figure(result):
    figure = result.plot()
    loss, accuracy = figure.axes
    assert [line.get_xdata().tolist() for line in loss.lines] == [[1, 2], [2]], "validation was in the last epoch"
    assert [text.get_text() for text in loss.get_legend().texts] == ["training", "validation"]
    assert accuracy.get_title() == "accuracy"


@pytest.mark.parametrize(
    ("reported", "count", "drawn"),
    [
        ([1, 3], 2, [2, 4]),  # validation_freq=2
        ([0, 1], 2, [1, 2]),  # validation_freq=[1, 2]
        ([3], 2, [2, 4]),  # resumed after the second epoch, validation_freq=2
        ([3], 3, [4]),  # resumed, with another validation_freq
    ],
)
def test_values_are_drawn_at_the_epochs_that_were_validated(result, tmp_path, reported, count, drawn):
    result.epoch[:] = range(5)
    result.history.update(auc=[0.5] * 5, val_auc=[0.1, 0.2, 0.3][:count])
    for epoch in reported:
        result.scores.append(told(14.0, epoch=epoch, step=1, auc=0.5))
        result.scores.append(told(14.0, epoch=epoch, num_steps=4, val_auc=0.5))
    line = result._metrics().lines()["auc"]["validation"]
    assert [epoch for epoch, _ in line] == drawn
    assert [value for _, value in line] == result.history["val_auc"][-len(drawn) :]


def test_epochs_that_a_scorer_did_not_validate_interrupt_no_line(result):
    result.epoch[:] = range(4)
    result.history.clear()
    result.history.update(loss=[4.0, 3.0, 2.0, 1.0], val_loss=[math.nan, 2.0, math.nan, 1.0], auc=[math.nan] * 4)
    loss, auc = result.plot().axes
    assert [line.get_xdata().tolist() for line in loss.lines] == [[1, 2, 3, 4], [2, 4]]
    assert len(auc.lines) == 1


def test_a_notebook_shows_the_figure_without_pyplot(result):
    assert result.plot()._repr_png_().startswith(b"\x89PNG")
    code = "import dask_train.report.shown_figure, sys; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0

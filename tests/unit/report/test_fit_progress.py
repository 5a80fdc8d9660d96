"""What is shown of a run of ``fit``."""

from __future__ import annotations

import io

import pytest

from dask_train.report.fit_progress import EpochLines, FitDisplay


def status(*scores, phase="running"):
    roles = [{"role": role, "num_batches": 10} for role in ("worker", "worker", "scorer")]
    return {
        "phase": phase,
        "roles": roles,
        "num_alive": 3,
        "num_scores": len(scores),
        "training": ("worker",),
        "last_scores": [(score["role"], score["rank"], score) for score in scores],
    }


def told(time, epoch, step=None, role="worker", **metrics):
    place = {} if step is None else {"step": step}
    return {"role": role, "rank": 0, "attempt": 0, "time": time, "epoch": epoch, "num_steps": 50, **place, **metrics}


@pytest.fixture
def display():
    return FitDisplay(True, epochs=4, file=io.StringIO(), clock=lambda: 7.0)


def test_epoch_step_time_left_and_metrics(display):
    display.update(status(told(100.0, 0, 20, loss=0.7)))
    assert "left" not in display.lines(200)[0]
    scorer = {"role": "scorer", "rank": 0, "attempt": 0, "time": 101.0, "steps": 30, "val_loss": 0.61}
    display.update(status(told(102.0, 1, 30, loss=0.5, accuracy=0.875), scorer))
    line = display.lines(200)[0]
    # 60 steps in 2 s, and 120 of 200 are left.
    for words in ("running", "3 of 3 roles", "epoch 2/4", "step 30/50", "4.0 s left", "loss 0.5", "accuracy 0.875"):
        assert words in line
    assert "val_loss 0.61" in line
    assert "30 steps/s" in line, "what workers share is one step"
    assert "batches/s" not in line
    assert "num_steps" not in line
    display.update(status(told(102.0, 1, 30, loss=0.5), phase="over"))
    assert "left" not in display.lines(200)[0], "nothing is to come"
    display.update(status(told(103.0, 1, loss=0.5)))
    assert "step 30/50" not in display.lines(200)[0], "the epoch has ended"


def test_a_line_an_epoch_none_left_out():
    written = io.StringIO()
    scorer = {"role": "scorer", "rank": 0, "attempt": 0, "time": 101.0, "steps": 30, "val_loss": 0.61}
    scores = [told(100.0, 0, 20, loss=0.7), told(102.0, 0, loss=0.6), scorer, told(105.0, 1, loss=0.5, val_loss=0.4)]
    with EpochLines(epochs=4, file=written) as lines:
        lines.update({"scores": scores[:1]})
        assert written.getvalue() == ""
        lines.update({"scores": scores})
        lines.update({"scores": scores})
    assert written.getvalue().splitlines() == [
        "Epoch 1/4 - 50 steps - 2.0 s - loss: 0.6",
        "Epoch 2/4 - 50 steps - 3.0 s - loss: 0.5 - val_loss: 0.4",
    ]


def test_of_the_first_round_it_is_not_known_how_long_it_took():
    written = io.StringIO()
    scores = [{"role": "worker", "rank": 0, "time": 100.0 + number, "round": number, "loss": 0.5} for number in (1, 2)]
    EpochLines(epochs=None, file=written).update({"scores": scores})
    assert written.getvalue().splitlines() == ["Round 1 - loss: 0.5", "Round 2 - 1.0 s - loss: 0.5"]


def test_what_starts_again_is_no_step_back(display):
    display.update(status(told(100.0, 2, 20, loss=0.7)))
    display.update(status(told(101.0, 1, 5, loss=0.7)))
    assert "left" not in display.lines(200)[0]
    display.update(status(told(102.0, 1, 15, loss=0.7)))
    assert "14 s left" in display.lines(200)[0].replace("13.5", "14")


def test_before_the_first_score(display):
    display.update(status(phase="launching"))
    assert display.lines(60)[0].startswith("launching")

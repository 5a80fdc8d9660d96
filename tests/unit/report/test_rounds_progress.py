"""What is shown of a run that grows trees."""

from __future__ import annotations

import io

import pytest

from dask_train.report.fit_progress import RoundsDisplay


def status(time, number, phase="running", **scores):
    score = {"role": "worker", "rank": 0, "attempt": 0, "time": time, "round": number, **scores}
    roles = [{"role": "worker", "rank": rank, "num_batches": 0} for rank in (0, 1)]
    told = [["worker", 0, score]] if number else []
    return {
        **{"phase": phase, "roles": roles, "num_alive": 2, "num_scores": number, "training": ["worker"]},
        "last_scores": told,
    }


@pytest.fixture
def display():
    return RoundsDisplay(True, rounds=100, file=io.StringIO(), clock=lambda: 7.0)


def test_rounds_time_left_and_scores(display):
    display.update(status(10.0, 0))
    assert "round" not in display.lines(200)[0], "before the first"
    display.update(status(10.0, 20, validation_logloss=0.7))
    assert "left" not in display.lines(200)[0]
    display.update(status(12.0, 60, validation_logloss=0.5))
    assert " · round 60/100 · 2.0 s left · validation_logloss 0.5 · " in display.lines(200)[0]
    assert display._share_done() == 0.6
    display.update(status(14.0, 100, phase="over"))
    assert "left" not in display.lines(200)[0]


def test_what_starts_again_is_no_step_back(display):
    display.update(status(10.0, 60))
    display.update(status(20.0, 20))
    assert "left" not in display.lines(200)[0]
    display.update(status(21.0, 40))
    assert "round 40/100 · 3.0 s left" in display.lines(200)[0]


def test_a_model_with_more_rounds_than_were_asked_for_has_no_end_that_is_known(display):
    for time, number in ((10.0, 110), (11.0, 120)):
        display.update(status(time, number))
    assert "round 120 ·" in display.lines(200)[0]
    assert "left" not in display.lines(200)[0]

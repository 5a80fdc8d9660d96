"""Scores as points of curves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dask_train.logging.points import Point, Points


def score(role: str = "worker", rank: int = 0, **values: Any) -> dict[str, Any]:
    return {"role": role, "rank": rank, "attempt": 0, "time": 5.0, **values}


def test_keras_scores_are_over_epochs_and_over_steps() -> None:
    points = Points().of(
        [
            score(epoch=1, step=3, num_steps=10, loss=2.0),
            score(epoch=1, num_steps=10, loss=1.5, val_loss=1.0, trial=7),
        ]
    )
    assert points == [
        Point("step/loss", 2.0, 13, 5.0),
        Point("loss", 1.5, 1, 5.0, "epoch"),
        Point("val_loss", 1.0, 1, 5.0, "epoch"),
    ]


def test_others_are_over_what_they_have_or_counted() -> None:
    points = Points()
    first = points.of([score(loss=1.0, good=True, name="x"), score(rank=1, loss=9.0)])
    assert first == [Point("loss", 1.0, 0, 5.0), Point("rank 1/loss", 9.0, 0, 5.0)]
    assert points.of([score(loss=0.5), score("chief", steps=70, loss=3.0)]) == [
        Point("loss", 0.5, 1, 5.0),
        Point("chief/loss", 3.0, 70, 5.0, "steps"),
    ]
    assert points.of([score("scorer", step="late", val_loss=0.1)]) == [Point("val_loss", 0.1, 0, 5.0)]
    assert points.of([score(round=3, val_rmse=2.0), score(epoch=4, loss=1.0), score(epoch=4, step=7, loss=1.0)]) == [
        Point("val_rmse", 2.0, 3, 5.0, "round"),
        Point("loss", 1.0, 4, 5.0, "epoch"),
        Point("loss", 1.0, 7, 5.0),
    ]
    assert points.of([score(step=math.nan, loss=1.0)]) == [Point("loss", 1.0, 5, 5.0)]


def test_a_name_is_of_the_role_that_reports_it_first() -> None:
    points = Points()
    found = [point.name for point in points.of([score(loss=2.0), score("scorer", loss=1.0, auc=0.5), score(auc=0.6)])]
    assert found == ["loss", "scorer/loss", "auc", "worker/auc"]
    assert [point.name for point in points.of([score("scorer", rank=1, loss=1.0)])] == ["scorer/rank 1/loss"]
    assert [point.name for point in points.of([score("chief", loss=1.0, best=1.0)])] == ["chief/loss", "chief/best"]
    (later,) = points.of([score("scorer", epoch=0, step=1, num_steps=4, loss=1.0)])
    assert later.name == "scorer/step/loss"


@pytest.mark.parametrize("place", [{"epoch": "3"}, {"epoch": None}, {"num_steps": math.nan}, {"step": "late"}])
def test_places_that_are_no_numbers_lose_no_value(place: dict[str, Any]) -> None:
    (point,) = Points().of([score(**{"epoch": 1, "num_steps": 10, "step": 3, "loss": 2.0, **place})])
    assert (point.name, point.value) == ("loss", 2.0)


def test_a_place_that_no_number_can_hold_is_counted() -> None:
    assert Points().of([score(epoch=1e300, num_steps=1e300, step=0, loss=2.0)])[0].value == 2.0

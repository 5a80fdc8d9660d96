"""The record of a run refuses what can't be drawn, and says why."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from dask_train.report.record import RoleTimeline, RunRecord, Score, Span


def make_score(**changes: Any) -> Score:
    return Score(**{"time_s": 1.0, "loss": 2.3, "accuracy": None, "step": None, "rows_trained": None, **changes})


def make_record(**changes: Any) -> RunRecord:
    plain = {"title": "a run", "target_loss": None, "scores": (), "phases": (), "roles": (), "pictures": {}}
    return RunRecord(**{**plain, "summary": (), "machine": "", **changes})


def test_span_that_ends_before_it_starts() -> None:
    with pytest.raises(ValueError, match=r"'train' ends at 3 s, before its start at 4 s.*different clocks.*Give both"):
        Span(name="train", start_s=4, end_s=3)


def test_instant_is_a_span() -> None:
    assert Span(name="stop", start_s=4, end_s=4).duration_s == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["start_s", "end_s"])
def test_span_times_are_finite(field: str, bad: float) -> None:
    times = {"start_s": 0.0, "end_s": 1.0, field: bad}
    with pytest.raises(ValueError, match=r"'train' is .*not a finite number"):
        Span(name="train", **times)


@pytest.mark.parametrize("name", ["", "  "])
def test_span_has_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="name of a span is empty"):
        Span(name=name, start_s=0, end_s=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_s": math.nan}, "time of a score is nan"),
        ({"loss": math.inf}, "loss of the score at 1 s is inf"),
        ({"accuracy": math.nan}, "accuracy of the score at 1 s is nan"),
        ({"accuracy": 97.3}, r"97\.3, not between 0 and 1.*percent.*Divide"),
        ({"step": -1}, "step of the score at 1 s is -1"),
        ({"rows_trained": -128}, "rows_trained of the score at 1 s is -128"),
    ],
)
def test_score_figures(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_score(**changes)


def test_score_takes_numpy_numbers_and_no_strings() -> None:
    assert make_score(loss=np.float32(0.5), step=np.int64(3)).loss == 0.5
    with pytest.raises(TypeError, match=r"loss .* is a str, not a number. Convert it with float"):
        make_score(loss="0.5")
    with pytest.raises(TypeError, match=r"step .* is a float, not an integer"):
        make_score(step=1.5)


def test_role_label() -> None:
    with_address = RoleTimeline(role="worker", rank=2, address="tcp://127.0.0.1:3123", spans=())
    assert with_address.label == "worker 2 · tcp://127.0.0.1:3123"
    assert RoleTimeline(role="ps", rank=0, address="", spans=()).label == "ps 0"


def test_role_is_checked() -> None:
    with pytest.raises(ValueError, match="rank of a 'worker' timeline is -1"):
        RoleTimeline(role="worker", rank=-1, address="", spans=())
    with pytest.raises(TypeError, match=r"spans of worker 0 are a list.*Convert them with tuple"):
        RoleTimeline(role="worker", rank=0, address="", spans=[])  # type: ignore[arg-type]


def test_record_is_checked() -> None:
    with pytest.raises(ValueError, match="title of a run is empty"):
        make_record(title=" ")
    with pytest.raises(ValueError, match="target loss is nan"):
        make_record(target_loss=math.nan)
    with pytest.raises(TypeError, match="scores of a run hold a float"):
        make_record(scores=(0.1,))
    with pytest.raises(TypeError, match=r"'rows', 3\), not a pair of strings"):
        make_record(summary=(("rows", 3),))


@pytest.mark.parametrize("shape", [(28,), (28, 28, 1), (0, 28)])
def test_pictures_are_2d(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"picture 'mean' is of shape \(.*2-d"):
        make_record(pictures={"mean": np.zeros(shape)})


def test_pictures_are_finite_and_real() -> None:
    with pytest.raises(ValueError, match="'mean' holds NaN or infinity"):
        make_record(pictures={"mean": np.full((2, 2), np.nan)})
    with pytest.raises(TypeError, match="'mean' is of dtype complex128"):
        make_record(pictures={"mean": np.zeros((2, 2), complex)})


def test_pictures_are_copied_and_read_only() -> None:
    source = np.zeros((28, 28), np.uint8)
    record = make_record(pictures={"one": source})
    source[:] = 255
    picture = record.pictures["one"]
    assert (picture.dtype, picture.shape, picture.max()) == (np.float64, (28, 28), 0)
    with pytest.raises(ValueError, match="read-only"):
        picture[0, 0] = 1


def test_times_of_the_run_cover_all_that_is_in_it() -> None:
    worker = RoleTimeline(role="worker", rank=0, address="", spans=(Span(name="train", start_s=-0.5, end_s=8),))
    record = make_record(roles=(worker,), phases=(Span(name="all", start_s=0, end_s=9),), scores=(make_score(),))
    assert (record.start_s, record.end_s) == (-0.5, 9)
    assert (make_record().start_s, make_record().end_s) == (0, 0)


def test_target_is_reached_by_the_first_score_in_time() -> None:
    scores = tuple(make_score(time_s=time_s, loss=loss) for time_s, loss in [(3, 0.05), (1, 2.0), (2, 0.1)])
    record = make_record(scores=scores, target_loss=0.1)
    assert [score.time_s for score in record.scores_in_order] == [1, 2, 3]
    assert record.target_reached is scores[2]
    assert make_record(scores=scores).target_reached is None
    assert make_record(scores=scores, target_loss=0.01).target_reached is None


def test_record_survives_pickling() -> None:
    record = make_record(pictures={"one": np.eye(3)}, scores=(make_score(),))
    again = pickle.loads(pickle.dumps(record))
    assert again.scores == record.scores
    assert (again.pictures["one"] == np.eye(3)).all()

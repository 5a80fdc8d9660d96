"""Deadlines: read from ``dask.config``, and checked."""

from __future__ import annotations

import math

import dask
import pytest

from dask_train.config import Deadlines, PredictLimits


def test_defaults_are_those_of_the_documentation():
    assert Deadlines.from_dask_config() == Deadlines(
        placement_s=60, launch_s=60, rendezvous_s=30, progress_s=120, stop_s=5, close_s=60
    )


@pytest.mark.parametrize(
    ("written", "seconds"), [("2 minutes", 120.0), ("1500ms", 1.5), (3, 3.0), (0.5, 0.5), ("7", 7.0)]
)
def test_durations_are_read_as_dask_reads_them(written, seconds):
    with dask.config.set({"train.launch.timeout": written}):
        assert Deadlines.from_dask_config().launch_s == seconds


@pytest.mark.parametrize("bad", ["soon", None, "", [], "5 parsecs", "-3s"])
def test_what_is_no_duration_is_refused(bad):
    with (
        dask.config.set({"train.progress.timeout": bad}),
        pytest.raises(ValueError, match=r"train\.progress\.timeout is .*, which is no duration\. Write it like '60s'"),
    ):
        Deadlines.from_dask_config()


@pytest.mark.parametrize("bad", [0, -1, "0s", math.inf, math.nan, True])
def test_a_deadline_is_finite_and_above_0(bad):
    with (
        dask.config.set({"train.close.timeout": bad}),
        pytest.raises(ValueError, match=r"train\.close\.timeout is .* finite number of seconds above 0.*dask\.config"),
    ):
        Deadlines.from_dask_config()


@pytest.mark.parametrize("bad", ["60s", None, True])
def test_a_value_of_another_type_is_refused(bad):
    with pytest.raises(ValueError, match=r"train\.launch\.timeout is "):
        Deadlines(placement_s=1, launch_s=bad, rendezvous_s=1, progress_s=1, stop_s=1, close_s=1)


def test_limits_of_model_processes_are_read():
    assert PredictLimits.from_dask_config() == PredictLimits(
        idle_s=60, timeout_s=300, launch_s=60, attempts=3, processes=2, threads=None
    )
    with dask.config.set({"train.predict.idle": "2 minutes", "train.predict.threads": 4}):
        found = PredictLimits.from_dask_config()
    assert (found.idle_s, found.threads) == (120, 4)


@pytest.mark.parametrize(
    ("name", "bad"), [("idle", "-1s"), ("timeout", True), ("attempts", 0), ("processes", 1.5), ("threads", "many")]
)
def test_limits_that_are_none_are_refused(name, bad):
    with (
        dask.config.set({f"train.predict.{name}": bad}),
        pytest.raises(ValueError, match=rf"train\.predict\.{name} is "),
    ):
        PredictLimits.from_dask_config()

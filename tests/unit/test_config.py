"""Deadlines: read from ``dask.config``, and checked."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import dask
import pytest

from dask_train.config import Deadlines, PredictLimits, TemplateSettings, memory_limit, seconds_or


def test_defaults_are_those_of_the_documentation():
    assert Deadlines.from_dask_config() == Deadlines(
        placement_s=60, launch_s=60, rendezvous_s=30, progress_s=120, stop_s=5, close_s=60, client_s=300
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
        idle_s=60,
        timeout_s=300,
        launch_s=60,
        attempts=3,
        processes=2,
        threads=None,
        template=TemplateSettings(idle_s=600),
    )
    with dask.config.set({"train.predict.idle": "2 minutes", "train.predict.threads": 4}):
        found = PredictLimits.from_dask_config()
    assert (found.idle_s, found.threads, found.in_dask_limit) == (120, 4, True)
    with dask.config.set({"train.memory.limit": "8 GiB"}):  # of data, as where roles are counted
        assert not PredictLimits.from_dask_config().in_dask_limit


def test_settings_of_templates_are_read():
    assert TemplateSettings.from_dask_config() == TemplateSettings(idle_s=600, imports=())
    for off in (0, "0s"):
        with dask.config.set({"train.template.idle": off}):
            assert TemplateSettings.from_dask_config().idle_s == 0
    for names in (["a", "b.c"], "a, b.c", "a b.c"):
        with dask.config.set({"train.template.imports": names}):
            assert TemplateSettings.from_dask_config().imported(("numpy", "a")) == ("numpy", "a", "b.c")


@pytest.mark.parametrize(
    ("name", "bad"),
    [("idle", "-1s"), ("idle", math.inf), ("idle", True)] + [("imports", bad) for bad in (5, [5], "a-b", ["a."], None)],
)
def test_wrong_settings_of_templates_are_refused(name, bad):
    key = f"train.template.{name}"
    with dask.config.set({key: bad}), pytest.raises(ValueError, match=f"{re.escape(key)} is "):
        TemplateSettings.from_dask_config()


@pytest.mark.parametrize(
    ("name", "bad"), [("idle", "-1s"), ("timeout", True), ("attempts", 0), ("processes", 1.5), ("threads", "many")]
)
def test_limits_that_are_none_are_refused(name, bad):
    with (
        dask.config.set({f"train.predict.{name}": bad}),
        pytest.raises(ValueError, match=rf"train\.predict\.{name} is "),
    ):
        PredictLimits.from_dask_config()


def test_own_defaults_count_where_the_whole_configuration_was_set_anew(monkeypatch):
    monkeypatch.setattr(dask.config, "global_config", {})
    monkeypatch.setattr(dask.config, "config", {})
    assert Deadlines.from_dask_config().progress_s == 120
    assert PredictLimits.from_dask_config().threads is None
    assert memory_limit() is None


def test_a_configuration_of_one_setting_leaves_the_others_as_they_are():
    code = """
import dask
with dask.config.set({"train.progress.timeout": "30s"}):
    from dask_train.config import Deadlines
    print(Deadlines.from_dask_config().progress_s, Deadlines.from_dask_config().launch_s)
print(Deadlines.from_dask_config().progress_s)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == ["30.0", "60.0", "120.0"]


@pytest.mark.parametrize(("given", "seconds"), [(None, 7.0), (3, 3.0), (0.5, 0.5)])
def test_seconds(given, seconds):
    assert seconds_or(7.0, given) == seconds


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan, "3s", True])
def test_bad_seconds(bad):
    with pytest.raises(ValueError, match=r"timeout_s is .*; a deadline is a finite number of seconds above 0"):
        seconds_or(7.0, bad)

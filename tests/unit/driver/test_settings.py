"""What concerns a run is checked when its settings are made, and means the same wherever they are handed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dask_train.checkpoint.policy import Checkpoint
from dask_train.driver.settings import RunSettings
from dask_train.logging.base import Logger
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"streaming": 0}, ValueError, "streaming is 0; pass True, False"),
        ({"stop": 3}, TypeError, "stop is 3, which is no rule"),
        ({"checkpoint": "kept", "resume": 1}, TypeError, "resume is 1; it is True or False"),
        ({"resume": True}, ValueError, "resume=True resumes from a checkpoint"),
        ({"recovery": "some"}, ValueError, "recovery is 'some'"),
        ({"on": "tcp://a:1"}, ValueError, "on is 'tcp://a:1'; pass a list"),
        ({"on": []}, ValueError, r"on is \[\]; pass a list"),
        ({"gpus": 2}, ValueError, "gpus is 2"),
        ({"wait": "no"}, TypeError, "wait is 'no'; it is True or False"),
        ({"name": ""}, ValueError, "name is ''"),
        ({"log": 3}, TypeError, "log has 3"),
    ],
)
def test_what_can_not_be_is_refused_when_settings_are_made(given, error, told):
    with pytest.raises(error, match=told):
        RunSettings(**given)


def test_texts_and_functions_are_what_they_mean_also_in_settings_made_of_others():
    first = RunSettings(stop="loss < 1", checkpoint="kept", resume=True, recovery="role", log=print, streaming=True)
    for run in (first, replace(first, wait=False)):
        assert isinstance(run.stop, StopRule)
        assert run.checkpoint == Checkpoint("kept")
        assert run.recovery == RecoveryPolicy(scope="role")
        assert [isinstance(each, Logger) for each in run.log] == [True]
        assert (run.streaming, run.window) == (True, RunSettings(streaming=True).window)


def test_where_nothing_is_said_a_lost_role_is_replaced_and_nothing_is_kept_or_logged():
    run = RunSettings()
    assert (run.stop, run.checkpoint, run.log, run.window) == (None, None, [], None)
    assert run.recovery == RecoveryPolicy()
    assert RunSettings(recovery=None).recovery is None


def test_a_name_that_was_given_counts():
    assert RunSettings().named("fit").name == "fit"
    assert RunSettings(name="mine").named("fit").name == "mine"


def test_resources_are_those_of_the_roles():
    run = RunSettings(resources={"GPU": 1})
    assert run.needs(["ps", "worker"]) == {"worker": {"GPU": 1.0}}
    assert RunSettings(resources={"GPU": 0, "RAM": 1}).needs(["worker"]) == {"worker": {"RAM": 1.0}}, "0 needs none"
    with pytest.raises(ValueError, match="names role 'scorer'"):
        RunSettings(resources={"scorer": {"GPU": 1}}).needs(["worker"])

"""What places for scores are told of a run when it begins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.driver.job import Job


@pytest.mark.parametrize("resume", [False, True])
def test_the_place_of_checkpoints_and_whether_the_run_resumes(resume):
    job = SimpleNamespace(
        id="r", checkpoint=CheckpointPlace(url="s3://key:secret@host/ck", resume=resume), params={"epochs": 3}
    )
    start = Job.started(job)
    assert (start.run, start.params, start.resumes) == ("r", {"epochs": 3}, resume)
    assert start.checkpoint.endswith("@host/ck")
    assert "secret" not in start.checkpoint


def test_a_run_without_checkpoints():
    start = Job.started(SimpleNamespace(id="r", checkpoint=None, params={}))
    assert (start.checkpoint, start.resumes) == ("", False)

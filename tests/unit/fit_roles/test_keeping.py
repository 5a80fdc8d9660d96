"""When a checkpoint of ``fit`` is due, and which one a run goes on with."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.errors import CheckpointError
from dask_train.fit_roles.keeping import Keeper, Kept
from dask_train.fit_roles.layout import Layout
from dask_train.fit_roles.task import FitTask


@pytest.fixture
def make(tmp_path):
    """A keeper of some run, and the time that it sees."""

    def keeper(every=(10, 60.0), *, run="this", attempt=0, resume=False, batch_size=8, folder=tmp_path / "kept"):
        now = [0.0]
        task = FitTask(
            header={},
            arrays=[],
            layout=Layout(x=0),
            batch_size=batch_size,
            checkpoint_every=every,
            run=run,
            resume=resume,
            patience_s=5.0,
        )
        session = SimpleNamespace(
            num_rows=100,
            attempt=attempt,
            size=2,
            peers={},
            scratch=tmp_path,
            checkpoints=lambda: CheckpointFolder(str(folder)),
        )
        return Keeper(task, session, clock=lambda: now[0]), now

    return keeper


def kept(keeper, run="this", steps=10):
    return Kept(
        run=run,
        order=keeper.order(13),
        epoch=1,
        batch=2,
        steps=steps,
        header={"a": 1},
        arrays=[np.arange(3)],
        history={},
        epochs=[],
        callbacks=[],
        read=[],
    )


def test_when_one_is_due(make):
    keeper, now = make()
    assert not keeper.due(9, epoch_ends=False)
    assert keeper.due(10, epoch_ends=False)
    assert keeper.due(1, epoch_ends=True)
    keeper.keep(kept(keeper, steps=10))
    keeper.finish()
    assert not keeper.due(19, epoch_ends=False)
    assert keeper.due(21, epoch_ends=False)
    now[0] = 59.0
    assert not keeper.due(19, epoch_ends=False)
    now[0] = 61.0
    assert keeper.due(19, epoch_ends=False)


def test_none_is_due_where_none_are_kept(make):
    keeper, _ = make(every=None)
    assert not keeper.due(1000, epoch_ends=True)
    assert keeper.load() is None


def test_which_one_a_run_goes_on_with(make):
    keeper, _ = make()
    assert keeper.load() is None, "a run begins anew"
    keeper.keep(kept(keeper))
    keeper.finish()
    assert make(attempt=1)[0].load().steps == 10, "its own, when it starts again"
    assert make(run="other", attempt=1)[0].load() is None, "not that of another run"
    found = make(run="other", resume=True)[0].load()
    assert (found.epoch, found.batch, found.run) == (1, 2, "this")
    np.testing.assert_array_equal(found.arrays[0], [0, 1, 2])
    with pytest.raises(CheckpointError, match=r"was made with batch_size=8, and this run has 9: .* same data and arg"):
        make(resume=True, batch_size=9)[0].load()


def test_one_that_can_not_be_written_ends_training(make, tmp_path):
    (tmp_path / "file").touch()
    keeper, _ = make(folder=tmp_path / "file" / "below")
    keeper.keep(kept(keeper))
    with pytest.raises(CheckpointError, match="can't be written"):
        keeper.finish()
    with pytest.raises(CheckpointError, match="can't be written"):
        keeper.due(11, epoch_ends=False)

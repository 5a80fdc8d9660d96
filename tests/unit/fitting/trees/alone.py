"""Ranks without processes, one alone or several in threads: what roles use of a session; and rows for them."""

from __future__ import annotations

import pickle
import secrets
import threading
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.columns import Column, Columns, SourceColumn
from dask_train.fitting.trees.role import TreesRole
from dask_train.fitting.trees.task import EvalSet, TreesTask
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.checkpointer import Checkpointer

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(600, 4)).round(1)
X[RANDOM.random(X.shape) < 0.1] = np.nan
X[:, 3] = RANDOM.integers(-1, 3, 600)  # codes of categories
FRAME = pd.DataFrame(X[:, :3], columns=list("abc")).assign(
    kind=pd.Categorical.from_codes(X[:, 3].astype(int), list("zyx"))
)
SIGNAL = np.nan_to_num(X[:, 0]) + X[:, 3]
LABELS = np.digitize(SIGNAL, [0.0, 1.5])
WEIGHTS = RANDOM.integers(1, 4, 600).astype(float)
QUERIES = np.sort(RANDOM.integers(0, 30, 600))


def described(num_features, *, origins=(), labels=1, **places):
    """Columns of which the first one is a matrix of features."""
    matrix = Column(dtype="<f8", row_shape=(num_features,), origins=tuple(origins))
    return Columns(columns=(matrix,), features=0, labels=labels, **places)


def origins_of(frame):
    """What is known of the columns of a frame."""
    return tuple(SourceColumn(name=name, dtype=dtype) for name, dtype in frame.dtypes.items())


PLAN = described(4, origins=origins_of(FRAME), weights=2)
PLAIN = described(3)
RANKED = described(3, groups=2)
BEGUN = described(3, margins=2)


class Rows:
    """A data set in parts."""

    def __init__(self, *parts):
        self.parts = parts
        columns = tuple(Column(dtype=each.dtype.str, row_shape=each.shape[1:]) for each in parts[0])
        self.schema = Columns(columns=columns, names=None, is_tuple=True)
        self.num_rows = sum(len(part[0]) for part in parts)

    @property
    def partition_numbers(self):
        return np.arange(len(self.parts))

    def partitions(self):
        return iter(self.parts)

    def whole(self):
        return self


class Alone:
    """A session of one rank, whose checkpoints lie in a folder."""

    world_rank, world_size, num_threads = 0, 1, 1
    attempt, peers, _state_memory = 0, {}, None

    def __init__(self, rows, folder=None, *, every=1, stop_after=None, **datasets):
        self._rows, self._datasets, self._folder, self._stop_after = rows, datasets, folder, stop_after
        self.network = {}
        self.scratch, self._link = folder, SimpleNamespace(spent=TimeSpent())
        self.schema, self.num_rows = rows.schema, rows.num_rows
        self.scores, self.notices, self.saved = [], [], []
        self._every = every

    @property
    def partition_numbers(self):
        return self._rows.partition_numbers

    def partitions(self):
        return self._rows.partitions()

    def dataset(self, name):
        return self._datasets[name]

    def all_gather(self, arrays):
        return arrays

    def all_reduce(self, arrays, op="sum"):
        return np.asarray(arrays)

    def report(self, **scores):
        self.scores.append(scores)

    def notice(self, text):
        self.notices.append(text)

    def should_stop(self):
        return self._stop_after is not None and len(self.scores) >= self._stop_after

    def checkpoints(self):
        return self._kept

    def open_checkpoint(self, *, own):
        loaded = self._kept.load(self.scratch, own=own)
        return loaded and loaded.folder

    def of_run(self, run):
        """What a task has of a run that keeps checkpoints there."""
        self._kept = CheckpointFolder(CheckpointPlace(url=str(self._folder), run=run, resume=True), 0)
        policy = Checkpoint(self._folder, every_steps=self._every, every_s=None)
        return {"checkpoint": policy, "resume": True, "run": run}


class Together(Alone):
    """A session of one of several ranks, whose threads meet at a barrier."""

    def __init__(self, rows, rank, barrier, given, **datasets):
        super().__init__(rows, **datasets)
        self.world_rank, self.world_size, self._barrier, self._given = rank, barrier.parties, barrier, given

    def _everyones(self, array):
        self._given[self.world_rank] = np.asarray(array)
        self._barrier.wait()
        found = [self._given[rank] for rank in range(self.world_size)]
        self._barrier.wait()
        return found

    def all_gather(self, array):
        return np.concatenate(self._everyones(array))

    def all_reduce(self, array, op="sum"):
        return getattr(np, op)(self._everyones(array), axis=0)


def together(rows, **datasets):
    """A session for each rank, with its own rows; the data sets are those of all."""
    barrier, given = threading.Barrier(len(rows), timeout=10), {}
    return [Together(mine, rank, barrier, given, **datasets) for rank, mine in enumerate(rows)]


def cut(*columns):
    """Columns in three parts."""
    return Rows(*(tuple(column[a:b] for column in columns) for a, b in ((0, 250), (250, 300), (300, 600))))


def grow(session, estimator, plan, *, keeps=False, run=None, **more):
    """What a role returns, in the words of a fit; ``run`` is of the call, each of which has its own."""
    library = type(estimator).__module__.partition(".")[0]
    sent = pickle.loads(pickle.dumps(estimator))  # a role has its own
    kept = session.of_run(run or secrets.token_hex(4)) if keeps else {}
    role, keep = TreesRole(TreesTask(library=library, estimator=sent, columns=plan, **kept, **more)), Checkpointer.keep

    def noted(checkpointer, kept, **how):
        session.saved.append(kept.steps)
        keep(checkpointer, kept, **how)

    with patch.object(Checkpointer, "keep", noted):
        outcome = role(session)
    return SimpleNamespace(**outcome.header, history=outcome.history, num_rounds=outcome.steps, epoch=outcome.epoch)


def scored(name, plan):
    return EvalSet(name=name, prefix="val_", dataset=name, columns=plan)

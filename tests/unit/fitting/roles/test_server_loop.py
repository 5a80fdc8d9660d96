"""Where a worker with parameter servers begins, what a checkpoint of it holds, and what outlives the first worker."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError, StalledError
from dask_train.fitting.roles import loop as loop_module
from dask_train.fitting.roles import server_loop as server_loop_module
from dask_train.fitting.roles.loop import CALLBACKS
from dask_train.fitting.roles.server_loop import SERVERS, ServerLoop
from dask_train.trainers.common.fit_checkpoint import MODEL, FitCheckpoint
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import Position
from dask_train.trainers.common.task import LoopTask

# Ten batches an epoch, for two workers.
ROWS, BATCH_SIZE = 100, 10
HELD = {"steps": {0: 13, 1: 9}, "progress": [{0: (13, 0), 1: (9, 2)}], "counted": {0: [np.ones(2)]}}


class Servers:
    """Servers that hold what the test says, and note what they are given."""

    def __init__(self, *, ready=False, steps=0, remembered=None, num_servers=1):
        self.shards = [None] * num_servers
        self.begun, self.held = (ready, steps, remembered), HELD
        self.told = []

    def begin(self, rank):
        self.told.append(("begin", rank))
        return self.begun

    def bring(self, progress, counted):
        self.told.append(("bring", progress, counted))

    def give(self, variables):
        self.told.append(("give", variables))

    def remember(self, value):
        self.told.append(("remember", value))

    def everything(self):
        self.told.append(("everything",))
        return self.held

    def names(self):
        return [each[0] for each in self.told]


class Agreement:
    """One worker's, which agrees with nobody."""

    size = 2
    replaceable = None
    resizes = False

    def __init__(self, rank):
        self.rank = rank

    def of_first(self, value):
        return value

    def flags(self, save, stop):
        return save, stop


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    monkeypatch.setattr(server_loop_module, "others_of", lambda model: [])
    monkeypatch.setattr(loop_module, "configuration_of", lambda task, data, model: {"model": "plain"})


def loop_of(servers, *, rank=0, kept=None, **of_task):
    """The loop of one worker, with the checkpoint that it finds, and what it has kept."""
    settings = {"epochs": 5, "batch_size": BATCH_SIZE, "run": "this", **of_task}
    task = LoopTask(**settings)
    object.__setattr__(task, "new_learning_rate", False)
    session = SimpleNamespace(
        num_rows=ROWS, size=2, rank=rank, peers={"ps": ["h:1"]}, report=lambda **_: None, should_stop=lambda: False
    )
    loop = ServerLoop(task, session, Agreement(rank), SimpleNamespace(steps_per_execution=1), None, servers)
    loop.saved = []
    loop._checkpointer.load = lambda check: kept
    loop._checkpointer.keep = lambda one, as_scored: loop.saved.append(one)
    loop._checkpointer.due = lambda steps, *, epoch_ends: epoch_ends
    return loop


def state_of(restored):
    state = RankState().shared(MODEL, lambda: "weights", lambda value: restored.append((MODEL, value)))
    return state.shared(CALLBACKS, lambda: "held", lambda value: restored.append((CALLBACKS, value)), trained=False)


def kept(**more):
    settings = {
        "run": "another",
        "order": {},
        "configuration": {},
        "epoch": 1,
        "batch": 3,
        "steps": 13,
        "shared": {MODEL: "weights of then", CALLBACKS: "held then", SERVERS: HELD},
        "history": {"loss": [0.5]},
        "epochs": [0],
        "read": [("another", 2, {rank: [taken(steps)] for rank, steps in HELD["steps"].items()})],
    }
    return FitCheckpoint(**{**settings, **more})


def taken(steps):
    return BatchRange(dataset=0, turn=0, epoch=0, batch_size=BATCH_SIZE, first=0, taken=steps, done=steps)


def test_the_first_worker_brings_what_it_begins_with():
    servers, restored = Servers(num_servers=2), []
    assert loop_of(servers).keep(state_of(restored)) == Position(0, 0, 0)
    assert servers.told == [("begin", 0), ("bring", [{}, {}], {})]
    assert restored == []


def test_others_begin_where_servers_know_them():
    loop = loop_of(Servers(ready=True, steps=23), rank=1)
    assert loop.keep(state_of([])) == loop.position == Position(2, 3, 23)
    with pytest.raises(StalledError, match="Worker 0 has brought no weights within 180 s"):
        loop_of(Servers(), rank=1).keep(state_of([]))


@pytest.mark.parametrize(("num_servers", "progress"), [(1, HELD["progress"]), (2, [{0: (13, 0), 1: (9, 0)}] * 2)])
def test_a_checkpoint_is_brought_and_remembered(num_servers, progress):
    servers, restored = Servers(num_servers=num_servers), []
    loop = loop_of(servers, kept=kept())
    assert loop.keep(state_of(restored)) == Position(1, 3, 13)
    assert restored == [(MODEL, "weights of then"), (CALLBACKS, "held then")]
    assert servers.names() == ["begin", "remember", "bring", "give"], "before others can begin"
    assert servers.told[2][1:] == (progress, HELD["counted"])
    assert loop.history == {"loss": [0.5]}
    # Who takes the first worker's place before the end of an epoch has the same of the course of training.
    (_, remembered), restored = servers.told[1], []
    later = loop_of(Servers(ready=True, steps=15, remembered=remembered))
    assert later.keep(state_of(restored)) == Position(1, 5, 15)
    assert restored == [(CALLBACKS, "held then")], "servers have the weights"
    assert (later.history, later._reported_epochs, later._read) == ({"loss": [0.5]}, [0], kept().read)


def test_a_checkpoint_of_an_earlier_version_is_brought():
    then = kept(
        shared={"name": "model"},
        arrays=[np.ones(1)],
        rates=[0.5],
        callbacks=[("Counting", b"held")],
        steps_by_rank=HELD["steps"],
        progress=[{0: [13, 0], 1: [9, 2]}],  # tuples are lists in a checkpoint
        counted=HELD["counted"],
    )
    servers, restored = Servers(), []
    loop_of(servers, kept=then).keep(state_of(restored))
    assert [name for name, _ in restored] == [MODEL, CALLBACKS]
    assert restored[0][1]["rates"] == [0.5]
    assert servers.told[2][1:] == (HELD["progress"], HELD["counted"])


def test_one_that_was_begun_with_another_epoch_is_refused():
    with pytest.raises(CheckpointError, match="begun with initial_epoch=0, and this run has 2") as raised:
        loop_of(Servers(), kept=kept(), initial_epoch=2).keep(state_of([]))
    assert "Pass initial_epoch=0" in str(raised.value)


def test_a_checkpoint_holds_what_servers_hold_and_what_each_worker_has_taken():
    servers = Servers()
    loop = loop_of(servers, kept=kept(), checkpoint=Checkpoint("kept"))
    loop.keep(state_of([]))
    servers.held = {"steps": {0: 20, 1: 12}, "progress": [], "counted": {}}
    for _ in range(7):
        loop.step_done()
    assert loop.ends_epoch
    assert loop.saved == []
    loop.epoch_done(loss=0.25)
    (saved,) = loop.saved
    assert (saved.epoch, saved.batch, saved.steps) == (2, 0, 20)
    assert saved.shared == {MODEL: "weights", CALLBACKS: "held", SERVERS: servers.held}
    (_, _, before), (run, size, now) = saved.read
    assert (run, size) == ("this", 2)
    assert {rank: sum(each.done for each in ranges) for rank, ranges in before.items()} == {0: 13, 1: 9}
    assert {rank: sum(each.done for each in ranges) for rank, ranges in now.items()} == {0: 7, 1: 3}
    assert [(each.epoch, each.first) for each in now[1]] == [(0, 9), (1, 0)]
    assert servers.names()[-2:] == ["remember", "everything"]


def test_others_neither_save_nor_remember():
    servers = Servers(ready=True, steps=9)
    loop = loop_of(servers, rank=1, checkpoint=Checkpoint("kept"))
    loop.keep(state_of([]))
    assert loop.begins_last
    loop.step_done()
    loop.epoch_done()
    assert (loop.position, loop.saved) == (Position(1, 0, 10), [])
    assert servers.names() == ["begin"]
    assert not loop.begins_last

"""Where a worker with parameter servers begins, what a checkpoint of it holds, and what outlives the first worker."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.fitting.roles import loop as loop_module
from dask_train.fitting.roles import server_loop as server_loop_module
from dask_train.fitting.roles.loop import CALLBACKS
from dask_train.fitting.roles.server_loop import SERVERS, ServerLoop
from dask_train.fitting.roles.worker_counts import WorkerCounts
from dask_train.trainers.common.fit_checkpoint import MODEL, FitCheckpoint
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import LeftError, Position
from dask_train.trainers.common.task import LoopTask

# Ten batches an epoch, for two workers.
ROWS, BATCH_SIZE = 100, 10
TWO = WorkerCounts(((0, 2),))
HELD = {"steps": {0: 13, 1: 9}, "progress": [{0: (13, 0), 1: (9, 2)}], "counted": {0: [np.ones(2)]}}


class Servers:
    """Servers that hold what the test says, and note what they are given."""

    def __init__(self, *, ready=False, steps=0, remembered=None, num_servers=1, counts=TWO):
        self.shards = [None] * num_servers
        self.begun, self.held = (ready, steps, remembered), HELD
        self.told, self.counts = [], counts
        self.reached, self.waited_for, self.not_yet = 0, [], []

    def begin(self, rank, wait_s):
        self.told.append(("begin", rank))
        return self.not_yet.pop() if self.not_yet else self.begun

    def bring(self, progress, counted, counts, num_steps):
        self.told.append(("bring", progress, counted))
        self.counts, self.num_steps = counts, num_steps

    def share(self, first, workers):
        self.told.append(("share", first, workers))
        if accepted := self.reached < first:
            self.counts = self.counts.then(first, workers)
        return accepted, self.reached

    def wait_for_counts(self, wait_s):
        self.told.append(("wait",))
        self.counts = self.waited_for.pop(0)

    def skip(self, rank, steps):
        self.told.append(("skip", rank, steps))

    def ended(self, known, wait_s):
        return known, self.held["steps"]

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


class Session:
    """One worker's."""

    num_rows, peers, _joins = ROWS, {"ps": ["h:1"]}, False

    def __init__(self, rank, size):
        self.rank, self.size, self.told = rank, size, []
        self.notes, self.stops = [], False
        self._link = SimpleNamespace(wanted_size=0, shared_among=self.told.append, note=self.notes.append)

    def report(self, **scores):
        pass

    def should_stop(self):
        return self.stops

    def _go_on_among(self, size):
        self.size = size


def loop_of(servers, *, rank=0, kept=None, size=2, **of_task):
    """The loop of one worker, with the checkpoint that it finds, and what it has kept."""
    settings = {"epochs": 5, "batch_size": BATCH_SIZE, "run": "this", **of_task}
    task = LoopTask(**settings)
    object.__setattr__(task, "new_learning_rate", False)
    session = Session(rank, size)
    loop = ServerLoop(task, session, Agreement(rank), SimpleNamespace(steps_per_execution=1), None, servers)
    loop.saved, loop.dealt = [], []
    loop.deal_again = lambda: loop.dealt.append((loop.position.steps, session.size))
    loop._checkpointer.finish = lambda: loop.saved.append("finished")
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


def test_others_wait_for_the_first_weights_as_long_as_the_run_does():
    """Worker 0 may have been lost, and wait for room."""
    servers = Servers(ready=True, steps=0)
    servers.not_yet = [(False, 0, None)] * 1000
    loop = loop_of(servers, rank=1)
    assert loop.keep(state_of([])) == Position(0, 0, 0)
    assert set(loop._session.notes) == {"waiting for worker 0 to bring the first weights"}
    loop = loop_of(Servers(), rank=1)
    loop._session.stops = True
    with pytest.raises(LeftError):
        loop.keep(state_of([]))


@pytest.mark.parametrize("num_servers", [1, 2])
def test_a_checkpoint_is_brought_and_remembered(num_servers):
    servers, restored = Servers(num_servers=num_servers), []
    loop = loop_of(servers, kept=kept())
    assert loop.keep(state_of(restored)) == Position(1, 3, 13)
    assert restored == [(MODEL, "weights of then"), (CALLBACKS, "held then")]
    assert servers.names() == ["begin", "remember", "bring", "give"], "before others can begin"
    # Two gradients of worker 1's tenth step are in the weights: other servers do not apply them again.
    assert servers.told[2][1:] == (HELD["progress"] * num_servers, HELD["counted"])
    assert loop.history == {"loss": [0.5]}
    # Who takes the first worker's place before the end of an epoch has the same of the course of training.
    (_, remembered), restored = servers.told[1], []
    later = loop_of(Servers(ready=True, steps=15, remembered=remembered))
    assert later.keep(state_of(restored)) == Position(1, 5, 15)
    assert restored == [(CALLBACKS, "held then")], "servers have the weights"
    assert (later.history, later._reported_epochs, later._read) == ({"loss": [0.5]}, [0], kept().read)


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
    counts = {"workers": ((0, 2),)}
    assert saved.shared == {MODEL: "weights", CALLBACKS: "held", SERVERS: {**servers.held, **counts}}
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


def wants(loop, size):
    """The first worker is told of another number, and takes a step."""
    loop._session._link.wanted_size = size
    loop.step_done()


def told(loop):
    return loop._session.told


def test_another_number_shares_the_batches_from_a_step_on_that_none_has_begun_and_the_run_is_told_once():
    servers = Servers()
    loop = loop_of(servers)
    loop.keep(state_of([]))
    servers.reached = 4
    wants(loop, 3)
    assert [each for each in servers.told if each[0] == "share"] == [("share", 2, 3), ("share", 6, 3)]
    assert told(loop) == [3]
    for _ in range(5):
        loop.step_done()
    assert loop.dealt == [(6, 3)]
    assert told(loop) == [3]
    wants(loop, 2)
    assert servers.counts == TWO.then(6, 3).then(8, 2)


def test_the_run_is_told_of_fewer_when_those_that_leave_have_and_a_checkpoint_knows_it():
    servers = Servers(counts=WorkerCounts(((0, 3),)))
    loop = loop_of(servers, checkpoint=Checkpoint("kept"))
    loop.keep(state_of([]))
    servers.counts = WorkerCounts(((0, 3),))
    servers.held = {**HELD, "steps": {0: 1, 1: 1, 2: 0}}
    wants(loop, 2)
    assert servers.counts.changes == ((0, 3), (2, 2))
    assert (told(loop), loop.saved) == ([], [])
    servers.held = {**HELD, "steps": {0: 2, 1: 2, 2: 2}}
    loop.step_done()
    (saved, finished), (size,) = loop.saved, told(loop)
    assert (saved.shared[SERVERS]["workers"], finished, size) == (((0, 3), (2, 2)), "finished", 2)
    (_, _, taken_by_rank) = saved.read[-1]
    assert {rank: [(each.size, each.done) for each in ranges] for rank, ranges in taken_by_rank.items()} == {
        rank: [(3, 2)] for rank in range(3)
    }


def test_a_change_that_would_come_after_the_last_step_is_none():
    servers = Servers(ready=True, steps=48)
    loop = loop_of(servers)
    loop.keep(state_of([]))
    servers.reached = 49
    wants(loop, 3)
    assert (servers.counts, told(loop)) == (TWO, [])


def test_with_several_steps_in_a_call_a_change_waits_for_an_epoch():
    servers = Servers()
    loop = loop_of(servers)
    loop._epochs.steps_per_execution = 4
    loop.keep(state_of([]))
    wants(loop, 3)
    assert servers.counts == TWO.then(10, 3)


def test_one_that_joins_waits_for_its_share_and_one_that_leaves_ends():
    servers = Servers(ready=True)
    servers.waited_for = [TWO, TWO.then(13, 3)]
    loop = loop_of(servers, rank=2, size=3)
    with pytest.raises(LeftError):
        loop.keep(state_of([]))
    loop._session._joins = True
    assert loop.keep(state_of([])) == Position(1, 3, 13)
    assert servers.names()[-6:] == ["begin", "wait", "begin", "wait", "begin", "skip"]
    servers.counts = servers.counts.then(15, 2)
    loop.step_done()
    with pytest.raises(LeftError):
        loop.step_done()
    assert not loop.rejoin()
    servers.counts = servers.counts.then(31, 4)
    assert loop.rejoin()
    assert (loop.position, loop.dealt) == (Position(3, 1, 31), [(31, 4)])


def test_one_that_takes_a_place_before_a_change_has_the_share_of_then():
    loop = loop_of(Servers(ready=True, steps=4, counts=TWO.then(10, 3)), rank=1, size=3)
    loop.keep(state_of([]))
    assert loop._session.size == 2
    for _ in range(5):
        loop.step_done()
    assert loop.dealt == []


@pytest.mark.parametrize(
    ("size", "held", "counts"),
    [
        (2, {}, TWO),
        (3, {}, TWO.then(13, 3)),  # the two go on to where the first one is; the third begins there
        (3, {"workers": [[0, 2], [11, 3]]}, TWO.then(11, 3)),
        (3, {"workers": [[0, 3], [11, 2]]}, WorkerCounts(((0, 3), (11, 2), (13, 3)))),
        (2, {"workers": [[0, 3], [5, 2]], "steps": {0: 13, 1: 9, 2: 5}}, WorkerCounts(((0, 3), (5, 2)))),
    ],
)
def test_a_checkpoint_is_resumed_by_as_many_workers_or_more(size, held, counts):
    servers = Servers()
    then = kept(shared={MODEL: "weights of then", CALLBACKS: "held then", SERVERS: {**HELD, **held}})
    loop_of(servers, kept=then, size=size).keep(state_of([]))
    assert servers.counts == counts


@pytest.mark.parametrize(
    ("progress", "steps_per_execution", "first"),
    [
        ([{0: (12, 0), 1: (13, 1)}], 1, 14),  # weights have a gradient of step 13, of a worker's share of two
        ([{0: (12, 1), 1: (13, 0)}], 1, 13),
        ([{0: (12, 0), 1: (13, 0)}, {0: (12, 0), 1: (13, 1)}], 1, 14),
        ([{0: (12, 0), 1: (13, 0)}], 4, 20),  # the first worker's call takes steps 12 to 15
        ([{0: (19, 0), 1: (19, 1)}], 4, 20),
        ([{0: (50, 0), 1: (50, 0)}], 4, 50),  # it was trained to its end
    ],
)
def test_another_number_resumes_with_a_step_that_no_worker_has_begun(progress, steps_per_execution, first):
    servers = Servers(num_servers=len(progress))
    steps = {rank: min(each[rank][0] for each in progress) for rank in range(2)}
    held = {**HELD, "steps": steps, "progress": progress}
    then = kept(shared={MODEL: "weights of then", CALLBACKS: "held then", SERVERS: held})
    loop = loop_of(servers, kept=then, size=3)
    loop._epochs.steps_per_execution = steps_per_execution
    loop.keep(state_of([]))
    assert servers.counts == TWO.then(first, 3)


@pytest.mark.parametrize(
    ("steps_per_execution", "steps", "passes"),
    [(1, {0: 12, 1: 13, 2: 13}, True), (4, {0: 13, 1: 13, 2: 13}, True), (4, {0: 12, 1: 13, 2: 13}, False)],
)
def test_a_change_within_an_epoch_is_passed_in_single_steps(steps_per_execution, steps, passes):
    held = {**HELD, "workers": [[0, 2], [13, 3]], "steps": steps, "progress": [{r: (n, 0) for r, n in steps.items()}]}
    then = kept(shared={MODEL: "weights of then", CALLBACKS: "held then", SERVERS: held})
    servers = Servers()
    loop = loop_of(servers, kept=then, size=3)
    loop._epochs.steps_per_execution = steps_per_execution
    if passes:
        loop.keep(state_of([]))
        assert servers.counts == TWO.then(13, 3)
    else:
        with pytest.raises(CheckpointError, match=r"changes at step 13 .* in a call of steps_per_execution=4"):
            loop.keep(state_of([]))


@pytest.mark.parametrize(
    ("size", "held"),
    [(1, {}), (2, {"workers": [[0, 3], [11, 2]], "steps": {0: 13, 1: 9, 2: 10}})],
)
def test_a_checkpoint_with_a_share_of_a_worker_that_is_not_there_is_refused(size, held):
    then = kept(shared={MODEL: "weights of then", CALLBACKS: "held then", SERVERS: {**HELD, **held}})
    with pytest.raises(CheckpointError, match=rf"with {size + 1} workers, and this run has {size}") as raised:
        loop_of(Servers(), kept=then, size=size).keep(state_of([]))
    assert f"Pass workers={size + 1} or more" in str(raised.value)
